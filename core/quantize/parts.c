/* core/quantize/parts.c - see parts.h. */
#include "core/quantize/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/os.h"
#include "core/base/save.h"
#include "core/base/text.h"

static gw_status refuse(const char *path, const char *what) {
    return gw_fail(errno == ENOMEM ? GW_E_NOMEM : GW_E_IO, path, "cannot %s: %s", what,
                   strerror(errno));
}

static char *joined(const char *a, size_t n, const char *b) {
    char *text = malloc(n + strlen(b) + 1);
    if (text != NULL) {
        memcpy(text, a, n);
        strcpy(text + n, b);
    }
    return text;
}

gw_status gw_parts_new(const char *out, int n, gw_parts *p) {
    *p = (gw_parts){.list = calloc((size_t)n, sizeof *p->list), .journal_fd = -1};
    size_t stem = strlen(out) - (gw_text_ends(out, ".gguf") ? 5 : 0);
    if (p->list == NULL) {
        return gw_fail(GW_E_NOMEM, out, "no memory to write it");
    }
    p->n = n;
    for (int i = 0; i < n; i++) {
        char tail[64] = "";
        p->list[i].fd = -1;
        if (n > 1) {
            snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", i + 1, n);
        }
        p->list[i].path = joined(out, n > 1 ? stem : strlen(out), tail);
    }
    p->journal = joined(out, strlen(out), ".partial.journal");
    for (int i = 0; i < n; i++) {
        gw_out_file *q = &p->list[i];
        q->partial = q->path != NULL ? joined(q->path, strlen(q->path), ".partial") : NULL;
        if (q->partial == NULL || p->journal == NULL) {
            return gw_fail(GW_E_NOMEM, out, "no memory to write it");
        }
    }
    return GW_OK;
}

/* ---- the journal ---------------------------------------------------------------------------- */

uint64_t gw_parts_hash(uint64_t before, const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t h = before ^ 0x9e3779b97f4a7c15u;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    for (; bytes > 0; bytes--, at++) {
        h = (h ^ *at) * 0x100000001b3u;
    }
    return h ^ 0x9e3779b97f4a7c15u;
}

static void identify(gw_parts *p) {
    for (int i = 0; i < p->n; i++) {
        p->identity = gw_parts_hash(p->identity, p->list[i].head.at, p->list[i].head.n);
        p->identity = gw_parts_hash(p->identity, &p->list[i].bytes, 8);
    }
}

/* 1 when the journal is of the same work; hashes of whole tensors are kept. */
static int read_journal(gw_parts *p, size_t tensors) {
    int fd = dup(p->journal_fd);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    uint64_t identity = 0, hash, source;
    size_t number;
    char line[80];
    if (f == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return 0;
    }
    int same = fgets(line, sizeof line, f) != NULL &&
               sscanf(line, "godwit quantize %" SCNx64, &identity) == 1 && identity == p->identity;
    while (same && fgets(line, sizeof line, f) != NULL) {
        if (strchr(line, '\n') != NULL &&
            sscanf(line, "%zu %" SCNx64 " %" SCNx64, &number, &hash, &source) == 3 &&
            number < tensors) {
            p->hashes[number] = hash;
            p->sources[number] = source;
        }
    }
    fclose(f);
    return same;
}

/* Is the open file still the one of that name? A run that ended may have removed it. */
static int is_there(int fd, const char *path) {
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && lstat(path, &named) == 0 && ours.st_ino == named.st_ino &&
           ours.st_dev == named.st_dev;
}

/* Opens the journal and locks it, so that nobody else writes the files beside it. File systems
 * without locks have none. */
static gw_status lock_journal(gw_parts *p) {
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(p->journal, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) {
            return refuse(p->journal, "create it");
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
            close(fd);
            if (errno == EINTR) {
                continue;
            }
            return gw_fail(GW_E_IO, p->list[0].path,
                           "is being written by another godwit quantize: wait for it, or give "
                           "another name");
        }
        if (is_there(fd, p->journal)) {
            p->journal_fd = fd;
            return GW_OK;
        }
        close(fd);
    }
    return gw_fail(GW_E_IO, p->journal, "cannot be locked: it vanishes again and again");
}

static gw_status write_all(int fd, const char *path, const void *data, size_t bytes, uint64_t at,
                           int placed) {
    const char *from = data;
    while (bytes > 0) {
        ssize_t n = placed ? pwrite(fd, from, bytes, (off_t)at) : write(fd, from, bytes);
        if (n < 0 && errno != EINTR) {
            return refuse(path, "write");
        }
        from += n > 0 ? n : 0;
        at += n > 0 ? (uint64_t)n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return GW_OK;
}

gw_status gw_parts_note(gw_parts *p, size_t tensor, uint64_t hash, uint64_t source) {
    char line[80];
    int n = snprintf(line, sizeof line, "%zu %" PRIx64 " %" PRIx64 "\n", tensor, hash, source);
    return write_all(p->journal_fd, p->journal, line, (size_t)n, 0, 0);
}

/* ---- files ---------------------------------------------------------------------------------- */

static gw_status no_room(const char *path, uint64_t need) {
    struct statvfs fs;
    uint64_t left = 0;
    int known = 0;
    char folder[4096], asked[GW_SIZE_TEXT], room[GW_SIZE_TEXT];
    const char *slash = gw_os_last_slash(path);
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1,
             slash != NULL ? path : ".");
    if (statvfs(folder, &fs) == 0) {
        left = (uint64_t)fs.f_bavail * fs.f_frsize;
        known = 1;
    }
    if (known && left >= need) {
        return gw_fail(GW_E_IO, path,
                       "needs %s, which a quota or a limit on file sizes (ulimit -f) refuses",
                       gw_text_size(need, 4, asked));
    }
    return gw_fail(GW_E_IO, path, "needs %s, %s are free%s", gw_text_size(need, 4, asked),
                   gw_text_size(left, 4, room), known ? "" : " (as far as is known)");
}

static gw_status open_part(gw_out_file *q, int again) {
    q->fd =
        open(q->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (again ? 0 : O_TRUNC), 0666);
    if (q->fd < 0) {
        return refuse(q->partial, "create it");
    }
    int full = posix_fallocate(q->fd, 0, (off_t)q->bytes);
    if (full == ENOSPC || full == EFBIG || full == EDQUOT) {
        return no_room(q->path, q->bytes);
    }
    if (ftruncate(q->fd, (off_t)q->bytes) != 0) {
        return refuse(q->partial, "write");
    }
    return write_all(q->fd, q->partial, q->head.at, q->head.n, 0, 1);
}

gw_status gw_parts_begin(gw_parts *p, int resume, size_t tensors, int *resumed) {
    struct stat st;
    p->hashes = calloc(tensors + 1, sizeof *p->hashes);
    p->sources = calloc(tensors + 1, sizeof *p->sources);
    if (p->hashes == NULL || p->sources == NULL) {
        return gw_fail(GW_E_NOMEM, p->journal, "no memory to write it");
    }
    for (int i = 0; i < p->n; i++) {
        if (stat(p->list[i].path, &st) == 0 && !S_ISREG(st.st_mode)) {
            return gw_fail(GW_E_IO, p->list[i].path, "is no regular file: it is not replaced");
        }
    }
    identify(p);
    GW_TRY(lock_journal(p));
    int again = resume && read_journal(p, tensors);
    for (int i = 0; i < p->n; i++) {
        GW_TRY(open_part(&p->list[i], again));
    }
    *resumed = again;
    if (again) {
        return GW_OK;
    }
    if (ftruncate(p->journal_fd, 0) != 0) {
        return refuse(p->journal, "write");
    }
    char line[64];
    int n = snprintf(line, sizeof line, "godwit quantize %" PRIx64 "\n", p->identity);
    return write_all(p->journal_fd, p->journal, line, (size_t)n, 0, 0);
}

gw_status gw_parts_write(const gw_parts *p, int part, uint64_t at, const void *data, size_t bytes) {
    const gw_out_file *q = &p->list[part];
    return write_all(q->fd, q->partial, data, bytes, q->head.n + at, 1);
}

gw_status gw_parts_read(const gw_parts *p, int part, uint64_t at, void *data, size_t bytes) {
    const gw_out_file *q = &p->list[part];
    char *to = data;
    at += q->head.n;
    while (bytes > 0) {
        ssize_t n = pread(q->fd, to, bytes, (off_t)at);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return n == 0 ? gw_fail(GW_E_TRUNCATED, q->partial, "is shorter than it was")
                          : refuse(q->partial, "read");
        }
        to += n > 0 ? n : 0;
        at += n > 0 ? (uint64_t)n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return GW_OK;
}

/* What was written is read by the reader that will have to. */
static gw_status check_part(const gw_out_file *q) {
    gw_file file;
    gw_gguf *g = NULL;
    GW_TRY(gw_file_open(q->partial, q->partial, &file));
    gw_status status = gw_gguf_parse(q->partial, file.data, file.size, file.fd, &g);
    gw_gguf_free(g);
    gw_file_close(&file);
    return status;
}

gw_status gw_parts_end(gw_parts *p) {
    for (int i = 0; i < p->n; i++) {
        gw_out_file *q = &p->list[i];
        if (fsync(q->fd) != 0) {
            return refuse(q->partial, "write to the disk");
        }
        int failed = close(q->fd);
        q->fd = -1;
        if (failed != 0) {
            return refuse(q->partial, "write to the disk");
        }
        GW_TRY(check_part(q));
    }
    for (int i = p->n - 1; i >= 0; i--) { /* the first last: it is the one that is opened */
        if (rename(p->list[i].partial, p->list[i].path) != 0) {
            return refuse(p->list[i].path, "rename to it");
        }
    }
    unlink(p->journal);
    gw_save_sync_folder(p->list[0].path);
    return GW_OK;
}

void gw_parts_free(gw_parts *p, int keep) {
    for (int i = 0; p->list != NULL && i < p->n; i++) {
        gw_out_file *q = &p->list[i];
        if (q->fd >= 0) {
            close(q->fd);
            if (!keep) {
                unlink(q->partial);
            }
        }
        free(q->path);
        free(q->partial);
        gw_bytes_free(&q->head);
    }
    if (p->journal_fd >= 0) {
        if (!keep && is_there(p->journal_fd, p->journal)) { /* removed while it is still locked */
            unlink(p->journal);
        }
        close(p->journal_fd);
    }
    free(p->list);
    free(p->journal);
    free(p->hashes);
    free(p->sources);
    *p = (gw_parts){.journal_fd = -1};
}
