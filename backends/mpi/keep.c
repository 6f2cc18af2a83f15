/* backends/mpi/keep.c - weights that a worker keeps on disk, each in a file named by its digest, so
 * that the next start of the same model sends none of them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/load.h"
#include "backends/mpi/mpi.h"
#include "core/base/digest.h"
#include "core/base/list.h"
#include "core/base/save.h"
#include "core/base/sha256.h"
#include "core/base/team.h"

enum { PIECE = 1 << 20, TOGETHER = 16, NAME = 2 * GW_MPI_DIGEST + 1 };

static struct {
    char folder[3072];
    uint64_t most, used;
    int fd; /* of the folder; 0: nothing is kept */
} kept;

/* ---- digests --------------------------------------------------------------------------------- */

typedef struct pieces {
    const unsigned char *bytes;
    size_t n;
    unsigned char leaf[TOGETHER][GW_MPI_DIGEST];
} pieces;

static void digest_piece(void *user, int64_t i) {
    pieces *p = user;
    gw_digest one;
    unsigned char raw[64];
    size_t at = (size_t)i * PIECE;
    (void)gw_digest_begin(&one, 0, 0); /* SHA-256 never fails */
    gw_digest_add(&one, p->bytes + at, p->n - at < PIECE ? p->n - at : PIECE);
    (void)gw_digest_end(&one, raw);
    memcpy(p->leaf[i], raw, sizeof p->leaf[i]);
}

/* Of the pieces of [bytes, bytes + n), into whole. */
static void add_pieces(gw_sha256 *whole, const unsigned char *bytes, size_t n) {
    pieces p = {.bytes = bytes, .n = n};
    const size_t count = (n + PIECE - 1) / PIECE;
    gw_parallel_for(0, (int64_t)count, digest_piece, &p);
    gw_sha256_add(whole, p.leaf, count * GW_MPI_DIGEST);
}

void gw_mpi_digest(const void *bytes, size_t n, unsigned char digest[GW_MPI_DIGEST]) {
    const size_t most = (size_t)TOGETHER * PIECE;
    gw_sha256 whole;
    gw_sha256_begin(&whole);
    for (size_t at = 0; at < n; at += most) {
        add_pieces(&whole, (const unsigned char *)bytes + at, n - at < most ? n - at : most);
    }
    gw_sha256_end(&whole, digest);
}

/* Rows that are made come in pieces that do not end with a row. */
typedef struct made {
    gw_sha256 whole;
    unsigned char *room;
    size_t have;
} made;

static void flush(made *m, int last) {
    size_t n = last ? m->have : m->have / PIECE * PIECE;
    add_pieces(&m->whole, m->room, n);
    m->have -= n;
    memmove(m->room, m->room + n, m->have);
}

gw_status gw_mpi_digest_rows(const gw_weight_source *src, int64_t rows, size_t row_bytes,
                             unsigned char digest[GW_MPI_DIGEST]) {
    if (src->map != NULL) {
        gw_mpi_digest(src->map, (size_t)rows * row_bytes, digest);
        return GW_OK;
    }
    /* After each flush less than a piece is left, so that no more than TOGETHER are ever there. */
    const size_t fill = (size_t)(TOGETHER - 2) * PIECE;
    int64_t each = row_bytes < fill ? (int64_t)(fill / row_bytes) : 1;
    if (row_bytes > fill) {
        return gw_fail(GW_E_LIMIT, "mpi", "a row of %zu bytes is too long", row_bytes);
    }
    made m = {.room = malloc((size_t)TOGETHER * PIECE)};
    gw_status status = m.room != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "mpi", "no memory for rows");
    gw_sha256_begin(&m.whole);
    for (int64_t at = 0; at < rows && status == GW_OK; at += each) {
        int64_t n = rows - at < each ? rows - at : each;
        status = gw_load_rows(src, at, n, row_bytes, m.room + m.have);
        m.have += (size_t)n * row_bytes;
        flush(&m, 0);
    }
    if (status == GW_OK) {
        flush(&m, 1);
        gw_sha256_end(&m.whole, digest);
    }
    free(m.room);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

typedef struct file {
    char name[NAME];
    struct timespec used;
    uint64_t bytes;
} file;

static int is_older(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* The file used longest ago, and *used: bytes of all. 0: there is none. */
static int look_around(file *oldest, uint64_t *used) {
    int fd = openat(kept.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = 0;
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    *used = 0;
    if (folder == NULL && fd >= 0) {
        (void)close(fd);
    }
    for (struct dirent *d; folder != NULL && (d = readdir(folder)) != NULL;) {
        struct stat st;
        if (strspn(d->d_name, "0123456789abcdef") != NAME - 1 || d->d_name[NAME - 1] != '\0' ||
            fstatat(kept.fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) {
            continue;
        }
        *used += (uint64_t)st.st_size;
        if (!found || is_older(&st.st_mtim, &oldest->used)) {
            memcpy(oldest->name, d->d_name, NAME);
            oldest->used = st.st_mtim;
            oldest->bytes = (uint64_t)st.st_size;
            found = 1;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return found;
}

/* Room for n bytes more. */
static int make_room(size_t n) {
    file oldest;
    if (n > kept.most) {
        return 0;
    }
    while (kept.used > kept.most - n) {
        int found = look_around(&oldest, &kept.used); /* another process may have changed it */
        if (kept.used <= kept.most - n) {
            break;
        }
        if (!found || unlinkat(kept.fd, oldest.name, 0) != 0) {
            return 0;
        }
        kept.used -= oldest.bytes;
    }
    return 1;
}

/* It and what is above it. */
static int make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int failed = mkdir(path, 0700) != 0 && errno != EEXIST;
        *slash = '/';
        if (failed) {
            return -1;
        }
    }
    return mkdir(path, 0700) != 0 && errno != EEXIST ? -1 : 0;
}

gw_status gw_mpi_keep_open(const char *folder, uint64_t most) {
    struct stat st;
    file oldest;
    int n = snprintf(kept.folder, sizeof kept.folder, "%s", folder);
    if (n < 1 || (size_t)n >= sizeof kept.folder) {
        return gw_fail(GW_E_LIMIT, "keep", "the folder's name is too long");
    }
    int fd = make_folders(kept.folder) == 0
                 ? open(kept.folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                 : -1;
    if (fd < 0) {
        return gw_fail(GW_E_IO, folder, "weights cannot be kept there: %s", strerror(errno));
    }
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
        (void)close(fd);
        return gw_fail(GW_E_IO, folder,
                       "weights are not kept there: others than this user may write to it");
    }
    kept.fd = fd;
    kept.most = most;
    (void)look_around(&oldest, &kept.used);
    return GW_OK;
}

void gw_mpi_keep_close(void) {
    if (kept.fd > 0) {
        (void)close(kept.fd);
        kept.fd = 0;
    }
}

int gw_mpi_keeps(void) { return kept.fd > 0; }

const void *gw_mpi_keep_find(const unsigned char digest[GW_MPI_DIGEST], size_t n) {
    char name[NAME];
    struct stat st;
    if (kept.fd <= 0 || n == 0) {
        return NULL;
    }
    gw_sha256_hex(digest, name);
    int fd = openat(kept.fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    void *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (uint64_t)st.st_size == n) {
        map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
        (void)futimens(fd, NULL); /* used now */
    }
    (void)close(fd);
    return map != MAP_FAILED ? map : NULL;
}

void gw_mpi_keep_add(const unsigned char digest[GW_MPI_DIGEST], const void *bytes, size_t n) {
    unsigned char own[GW_MPI_DIGEST];
    char name[NAME], path[sizeof kept.folder + NAME + 1];
    gw_save save;
    if (kept.fd <= 0 || !make_room(n)) {
        return;
    }
    gw_mpi_digest(bytes, n, own);
    if (memcmp(own, digest, sizeof own) != 0) {
        return;
    }
    gw_sha256_hex(digest, name);
    snprintf(path, sizeof path, "%s/%s", kept.folder, name);
    if (gw_save_begin(&save, path, 0600, n) != GW_OK) {
        return;
    }
    gw_status status = gw_save_write(&save, bytes, n);
    status = status == GW_OK ? gw_save_end(&save) : status;
    gw_save_drop(&save);
    kept.used += status == GW_OK ? n : 0;
}
