/* backends/mpi/mpi.h - the inside of the "mpi" backend: a device of this process stands for one
 * that another process of the same job has opened, on this host or another (docs/hosts.md).
 *
 * Rank 0 runs the command. Every call of its engine to such a device is a message to the rank that
 * has it; the other ranks do what messages say (serve.c). Messages of two ranks arrive in the order
 * in which they were sent. Commands without an answer that fail are told with the next answer.
 */
#ifndef GW_BACKENDS_MPI_H
#define GW_BACKENDS_MPI_H

#include "core/plan/backend.h"

enum {
    GW_MPI_RANKS = 64,       /* at most                         */
    GW_MPI_HELD = 8,         /* devices of one rank at most     */
    GW_MPI_ADDRESSES = 8,    /* of a host at most               */
    GW_MPI_PIECE = 16 << 20,  /* bytes of weights in one message */
    GW_MPI_LONGEST = 1 << 30, /* bytes of a message of or to a worker at most */
    GW_MPI_SECRET = 16,       /* bytes of a shared secret at least */
    GW_MPI_DIGEST = 32
};

/* ---- libmpi (library.c) ---------------------------------------------------------------------- */

/* Open MPI's libmpi.so.40 (its releases 3 to 5). Handles are addresses of its symbols. */
typedef struct gw_mpi_library {
    int (*Init_thread)(int *argc, char ***argv, int needed, int *given);
    int (*Finalize)(void);
    int (*Comm_rank)(void *comm, int *rank);
    int (*Comm_size)(void *comm, int *n);
    int (*Allgather)(const void *from, int n, void *type, void *to, int each, void *to_type,
                     void *comm);
    void *world, *byte;
} gw_mpi_library;

/* GW_E_UNSUPPORTED: there is no such library here, or it is another make of MPI. */
gw_status gw_mpi_library_open(gw_mpi_library *out);

/* ---- bytes of a message (wire.c) ------------------------------------------------------------- */

/* Written at the end, read from the beginning. What does not fit any more, or is not there, sets
 * `failed`, and what is read then is zero. */
typedef struct gw_wire {
    unsigned char *at;
    size_t n, room, taken;
    int failed;
} gw_wire;

void gw_wire_put(gw_wire *w, const void *bytes, size_t n);
void gw_wire_take(gw_wire *w, void *bytes, size_t n);
/* n bytes where they lie, until the next change of w; NULL: they are not there. */
const unsigned char *gw_wire_view(gw_wire *w, size_t n);
void gw_wire_put_number(gw_wire *w, uint64_t x);
uint64_t gw_wire_take_number(gw_wire *w);
void gw_wire_put_text(gw_wire *w, const char *text); /* NULL: "" */
void gw_wire_take_text(gw_wire *w, char *out, size_t room);
void gw_wire_clear(gw_wire *w); /* keeps its memory */
void gw_wire_free(gw_wire *w);

/* Tensors of nodes, each once: what two nodes share is one tensor on the other side, too. */
typedef struct gw_wire_tensors {
    const gw_tensor **seen;
    size_t n, room;
} gw_wire_tensors;

/* Where a tensor lies: a number of buffer for the other side; 0: nowhere. */
typedef uint64_t (*gw_wire_place_fn)(const struct gw_buffer *buffer);

/* kernel: its number in the list of its device; -1: not chosen. With place NULL only whether a
 * tensor lies somewhere is written, so that equal nodes of different layers are equal bytes. */
void gw_wire_put_nodes(gw_wire *w, const gw_node *nodes, size_t n, const int64_t *kernel,
                       gw_wire_place_fn place);

/* Nodes with all that they point to. */
typedef struct gw_wire_nodes {
    gw_node *node;
    int64_t *kernel;
    gw_tensor *tensor;
    char (*text)[64]; /* names of tensors, then of nodes */
    size_t n, n_tensors;
} gw_wire_nodes;

/* buffers [n_buffers] by number. GW_E_NOMEM; GW_E_METADATA: the bytes are none of these. */
gw_status gw_wire_take_nodes(gw_wire *w, struct gw_buffer *const *buffers, size_t n_buffers,
                             gw_wire_nodes *out);
void gw_wire_nodes_free(gw_wire_nodes *nodes);

void gw_wire_put_tensor(gw_wire *w, const gw_tensor *t);
void gw_wire_take_tensor(gw_wire *w, gw_tensor *t); /* its name becomes "weight" */
void gw_wire_put_step(gw_wire *w, const gw_step *step);
void gw_wire_take_step(gw_wire *w, gw_step *step);

/* ---- ranks (link.c, meet.c) ------------------------------------------------------------------ */

/* What a rank says of itself. */
typedef struct gw_mpi_self {
    char build[64]; /* program and sizes: equal or refused */
    char host[64];
    char address[GW_MPI_ADDRESSES][48]; /* numeric; "" behind the last */
    int32_t port, n_devices;
    int32_t keeps;         /* does it keep weights by their digests? */
    unsigned char key[16]; /* what whoever connects must know */
    gw_device_info device[GW_MPI_HELD];
    char error[512]; /* why it has none; "" */
} gw_mpi_self;

/* Starts MPI, tells all ranks of one another, and connects every two. Fills the addresses of self.
 * Once a process. */
gw_status gw_mpi_link_open(gw_mpi_self *self);
/* 0: this process is alone. */
int gw_mpi_ranks(void);
int gw_mpi_rank(void);
const gw_mpi_self *gw_mpi_peer(int rank);
const char *gw_mpi_called(int rank); /* "rank 1", "worker HOST:PORT" */
int gw_mpi_is_meshed(void);          /* do others than rank 0 speak to one another? */

/* Takes the bytes of w, which is empty then. GW_E_DEVICE: some rank was lost. */
gw_status gw_mpi_send(int to, gw_wire *w);
/* Waits for the next message. Replaces w. GW_E_DEVICE: some rank was lost. */
gw_status gw_mpi_take(int from, gw_wire *w);
/* Waiting ends with GW_E_CANCELLED some seconds after *cancel is not 0: a launcher that ends a job
 * tells all at once, and rank 0 may still have something to do. NULL: it does not. */
void gw_mpi_cancel_by(const volatile int *cancel);
/* "rank 1 on HOST was lost: ..."; "": none was. settle: as many seconds to find out, for a process
 * that was told to end and may have been so because another has died. */
const char *gw_mpi_lost(double settle);
/* All has been said: ends MPI, in order where no rank was lost. */
void gw_mpi_link_close(void);

/* ---- commands (device.c sends, serve.c does) ------------------------------------------------- */

/* Numbers behind the name are 64 bits each; "answer" begins with a status and, if that is not
 * GW_OK, a text alone. Buffers and segments have numbers that rank 0 gives. */
typedef enum gw_mpi_command {
    GW_MPI_OPEN,     /* blas, no_graph, exact; answer: kernels, narrows, has roof, note         */
    GW_MPI_CLOSE,    /* answer                                                                  */
    GW_MPI_DESCRIBE, /* answer: gw_device_info                                                  */
    GW_MPI_ALLOC,    /* number, bytes, page bytes (0: no pages); answer                         */
    GW_MPI_RELEASE,  /* number                                                                  */
    GW_MPI_WRITE,    /* number, at, bytes                                                       */
    GW_MPI_READ,     /* number, at, n; answer: bytes                                            */
    GW_MPI_SIZE,     /* tensor, keep_rows; answer: layout, bytes                                */
    GW_MPI_HAVE,     /* digest, bytes; answer: are they kept? (keep.c)                          */
    GW_MPI_LOAD,     /* tensor, keep_rows, number, gw_mpi_kept, digest; then the rows in
                      * messages, unless they are kept; answer: layout, offset                  */
    GW_MPI_STOW,     /* number; answer: bytes kept; 0: they lie in main memory anyway           */
    GW_MPI_RESTORE,  /* number; answer                                                          */
    GW_MPI_CHOOSE,   /* a node; answer: kernel or -1, name of its arithmetic                    */
    GW_MPI_FREEZE,   /* number, rows, nodes; answer                                             */
    GW_MPI_READY,    /* segment; answer: note                                                   */
    GW_MPI_RUN,      /* segment, step                                                           */
    GW_MPI_WAIT,     /* answer                                                                  */
    GW_MPI_FREE,     /* segment                                                                 */
    GW_MPI_PROFILE,  /* segment, on                                                             */
    GW_MPI_TIMES,    /* segment; answer: gw_node_time of its nodes                              */
    GW_MPI_ROOF,     /* answer: gw_roof                                                         */
    GW_MPI_HAND,     /* number, at, bytes, rank, its device, number there, at there: to a rank  */
    GW_MPI_ACCEPT,   /* number, at, bytes, rank: what that one hands                            */
    GW_MPI_END       /* nothing follows                                                         */
} gw_mpi_command;

typedef enum gw_mpi_kept {
    GW_MPI_PASSING, /* the rows follow, and are not kept */
    GW_MPI_NEW,     /* they follow, and are kept under their digest */
    GW_MPI_KEPT     /* they are */
} gw_mpi_kept;

/* ---- weights that a worker keeps (keep.c) ---------------------------------------------------- */

/* Of pieces of 1 MiB: SHA-256 of their SHA-256s. By all threads. */
void gw_mpi_digest(const void *bytes, size_t n, unsigned char digest[GW_MPI_DIGEST]);
/* The same of rows of a source. The source's error. */
gw_status gw_mpi_digest_rows(const gw_weight_source *src, int64_t rows, size_t row_bytes,
                             unsigned char digest[GW_MPI_DIGEST]);

/* The same, from the cache folder where the rows are part of a file that is as it was when their
 * digest was computed (known.c). By any thread. */
gw_status gw_mpi_digest_source(const gw_weight_source *src, int64_t rows, size_t row_bytes,
                               unsigned char digest[GW_MPI_DIGEST]);
/* All weights were loaded: what is new goes to the cache folder. */
void gw_mpi_digests_save(void);

/* The folder of them, at most so many bytes in it: the ones used longest ago go. It must be this
 * user's alone, and is made. GW_E_IO says why nothing can be kept. Once a process. */
gw_status gw_mpi_keep_open(const char *folder, uint64_t most);
void gw_mpi_keep_close(void);
int gw_mpi_keeps(void);
/* A mapping of n bytes, for munmap; NULL: they are not there. */
const void *gw_mpi_keep_find(const unsigned char digest[GW_MPI_DIGEST], size_t n);
/* Best effort: bytes of another digest, and what does not fit, are left out. */
void gw_mpi_keep_add(const unsigned char digest[GW_MPI_DIGEST], const void *bytes, size_t n);

/* ---- workers (challenge.c) ------------------------------------------------------------------- */

/* Both ends of a connection say hello; who runs the command proves first that it knows the secret,
 * then the worker. Sizes are fixed and times bounded, and nothing else is read before. */

/* HMAC-SHA-256 (RFC 2104). */
void gw_mpi_hmac(const void *key, size_t key_bytes, const void *text, size_t bytes,
                 unsigned char mac[32]);

typedef struct gw_mpi_secret {
    const void *at;
    size_t bytes;
} gw_mpi_secret;

/* Program and sizes of structs: what has to be equal. */
void gw_mpi_build(char out[64]);
/* fd does not block. busy: is somebody else served? Only who knows the secret learns that.
 * GW_E_ARGUMENT: refused, in words for people; GW_E_DEVICE: the connection. */
gw_status gw_mpi_challenge(int fd, const gw_mpi_secret *secret, int (*busy)(void *), void *user);
gw_status gw_mpi_prove(int fd, const gw_mpi_secret *secret, const char *called);
/* n bytes before the moment `end` of gw_seconds_now. GW_E_DEVICE */
gw_status gw_mpi_give_before(int fd, const void *bytes, size_t n, double end);
gw_status gw_mpi_get_before(int fd, void *bytes, size_t n, double end);

/* The devices of this rank, as --device names them. NULL, "auto": the first card, else the CPU. */
gw_status gw_mpi_held(const char *device, gw_mpi_self *self);
/* Ranks but 0: does what rank 0 says until it says that nothing follows. */
gw_status gw_mpi_serve(int threads);
/* Bytes of weights that rank 0 has sent, and that were kept here. */
void gw_mpi_served(uint64_t *came, uint64_t *kept);

#endif
