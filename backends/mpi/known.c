/* backends/mpi/known.c - digests of weights as they lie in files, kept in the cache folder: a start
 * that sends nothing need not read the model only to learn that. An entry is of one file and holds
 * as long as device, inode, size and both times of change are what they were. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "backends/mpi/mpi.h"
#include "core/base/cache.h"
#include "core/base/list.h"

/* A file that changed so short a time ago may change once more without another time of change. */
enum { SETTLED = 2 };

static const char kind[] = "digests";
static const uint64_t magic = 0x3130545347444f47u; /* "GODGST01": other pieces are another one */

typedef struct identity {
    uint64_t device, inode, bytes;
    int64_t modified, modified_ns, changed, changed_ns;
} identity;

/* As it is stored: no gaps. */
typedef struct part {
    uint64_t at, bytes;
    unsigned char digest[GW_MPI_DIGEST];
} part;

typedef struct head {
    uint64_t magic;
    identity file;
    uint64_t n;
} head;

typedef struct known {
    identity file;
    part *parts;
    size_t n, room;
    int is_new; /* some part is not in the cache folder */
} known;

static struct {
    pthread_mutex_t lock;
    known *files;
    size_t n, room;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int identify(int fd, identity *out) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return 0;
    }
    *out = (identity){.device = (uint64_t)st.st_dev,
                      .inode = (uint64_t)st.st_ino,
                      .bytes = (uint64_t)st.st_size,
                      .modified = (int64_t)st.st_mtim.tv_sec,
                      .modified_ns = (int64_t)st.st_mtim.tv_nsec,
                      .changed = (int64_t)st.st_ctim.tv_sec,
                      .changed_ns = (int64_t)st.st_ctim.tv_nsec};
    return 1;
}

static int is_same(const identity *a, const identity *b) { return memcmp(a, b, sizeof *a) == 0; }

/* Is it still that file, and old enough that its times tell? */
static int is_settled(int fd, const identity *file) {
    identity now;
    int64_t least = (int64_t)time(NULL) - SETTLED;
    return identify(fd, &now) && is_same(&now, file) && file->modified < least &&
           file->changed < least;
}

/* One entry a place on disk: that of a file which is no more like this makes room for its next. */
static uint64_t key_of(const identity *file) {
    uint64_t place[2] = {file->device, file->inode};
    return gw_cache_hash(magic, place, sizeof place);
}

static void read_entry(known *k) {
    size_t bytes = 0;
    unsigned char *entry = gw_cache_read(kind, key_of(&k->file), &bytes);
    head h;
    if (entry != NULL && bytes >= sizeof h) {
        memcpy(&h, entry, sizeof h);
        size_t n = (bytes - sizeof h) / sizeof(part);
        part *parts = NULL;
        if (h.magic == magic && is_same(&h.file, &k->file) && h.n == n && n > 0 &&
            bytes == sizeof h + n * sizeof *parts && (parts = malloc(n * sizeof *parts)) != NULL) {
            memcpy(parts, entry + sizeof h, n * sizeof *parts);
            k->parts = parts;
            k->n = k->room = n;
        }
    }
    free(entry);
}

static void write_entry(const known *k) {
    head h = {.magic = magic, .file = k->file, .n = k->n};
    size_t bytes = sizeof h + k->n * sizeof *k->parts;
    unsigned char *entry = malloc(bytes);
    if (entry != NULL) {
        memcpy(entry, &h, sizeof h);
        memcpy(entry + sizeof h, k->parts, k->n * sizeof *k->parts);
        gw_cache_write(kind, key_of(&k->file), entry, bytes);
    }
    free(entry);
}

/* all.lock is held, as in the next two. NULL: no memory. */
static known *known_of(const identity *file) {
    for (size_t i = 0; i < all.n; i++) {
        if (is_same(&all.files[i].file, file)) {
            return &all.files[i];
        }
    }
    known *grown = gw_list_grown(all.files, all.n, &all.room, sizeof *grown);
    if (grown == NULL) {
        return NULL;
    }
    all.files = grown;
    known *k = &all.files[all.n++];
    *k = (known){.file = *file};
    read_entry(k);
    return k;
}

static int find(const identity *file, uint64_t at, uint64_t bytes,
                unsigned char digest[GW_MPI_DIGEST]) {
    const known *k = known_of(file);
    for (size_t i = 0; k != NULL && i < k->n; i++) {
        if (k->parts[i].at == at && k->parts[i].bytes == bytes) {
            memcpy(digest, k->parts[i].digest, GW_MPI_DIGEST);
            return 1;
        }
    }
    return 0;
}

static void add(const identity *file, uint64_t at, uint64_t bytes,
                const unsigned char digest[GW_MPI_DIGEST]) {
    known *k = known_of(file);
    part *grown = k != NULL ? gw_list_grown(k->parts, k->n, &k->room, sizeof *grown) : NULL;
    if (grown != NULL) {
        k->parts = grown;
        k->parts[k->n] = (part){.at = at, .bytes = bytes};
        memcpy(k->parts[k->n++].digest, digest, GW_MPI_DIGEST);
        k->is_new = 1;
    }
}

gw_status gw_mpi_digest_source(const gw_weight_source *src, int64_t rows, size_t row_bytes,
                               unsigned char digest[GW_MPI_DIGEST]) {
    const uint64_t bytes = (uint64_t)rows * row_bytes;
    identity file;
    int in_file = src->map != NULL && src->fd > 0 && identify(src->fd, &file), found = 0;
    if (in_file) {
        pthread_mutex_lock(&all.lock);
        found = find(&file, src->at, bytes, digest);
        pthread_mutex_unlock(&all.lock);
    }
    if (found) {
        return GW_OK;
    }
    GW_TRY(gw_mpi_digest_rows(src, rows, row_bytes, digest));
    if (in_file && is_settled(src->fd, &file)) {
        pthread_mutex_lock(&all.lock);
        add(&file, src->at, bytes, digest);
        pthread_mutex_unlock(&all.lock);
    }
    return GW_OK;
}

void gw_mpi_digests_save(void) {
    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < all.n; i++) {
        if (all.files[i].is_new) {
            write_entry(&all.files[i]);
        }
        free(all.files[i].parts);
    }
    free(all.files);
    all.files = NULL;
    all.n = all.room = 0;
    pthread_mutex_unlock(&all.lock);
}
