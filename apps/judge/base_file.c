/* apps/judge/base_file.c - see base_file.h. */
#include "apps/judge/base_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/signals.h"
#include "core/base/os.h"

static const char magic[8] = "_logits_";

enum { HEAD_BYTES = 20, N_CTX_MAX = 1 << 24, N_VOCAB_MAX = 1 << 24 };

static size_t row_codes(int32_t n_vocab) { return 4 + (size_t)(n_vocab + 1) / 2 * 2; }
static size_t rows_of(int32_t n_ctx) { return (size_t)(n_ctx - 1 - n_ctx / 2); }

/* All of it; exit code. */
static int read_part(const base_file *f, void *to, size_t bytes) {
    char *at = to;
    while (bytes > 0) {
        ssize_t n = signals_read(f->fd, at, bytes < (1 << 30) ? bytes : 1 << 30);
        if (n < 0 && errno == EINTR && signals_caught() != 0) {
            return signals_exit_code(APP_FAILURE);
        }
        if (n <= 0) {
            app_error("%s: %s", f->path,
                      n < 0 ? strerror(errno) : "ends before its last window: it is not whole");
            return APP_FAILURE;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return APP_OK;
}

/* The header's numbers against each other and against the size of the file. */
static int check_head(base_file *f, const unsigned char head[HEAD_BYTES]) {
    int32_t n_chunk;
    struct stat st;
    memcpy(&f->n_ctx, head + 8, 4);
    memcpy(&f->n_vocab, head + 12, 4);
    memcpy(&n_chunk, head + 16, 4);
    if (memcmp(head, magic, sizeof magic) != 0) {
        app_error("%s: no file of log-probabilities as llama-perplexity --kl-divergence-base or "
                  "--save-all-logits writes it",
                  f->path);
        return APP_FAILURE;
    }
    if (f->n_ctx < 4 || f->n_ctx > N_CTX_MAX || f->n_vocab < 1 || f->n_vocab > N_VOCAB_MAX ||
        n_chunk < 1) {
        app_error("%s: %d windows of %d tokens over a vocabulary of %d: its header is broken",
                  f->path, (int)n_chunk, (int)f->n_ctx, (int)f->n_vocab);
        return APP_FAILURE;
    }
    f->windows = (size_t)n_chunk;
    uint64_t window = (uint64_t)f->n_ctx * 4 +
                      (uint64_t)rows_of(f->n_ctx) * row_codes(f->n_vocab) * sizeof(uint16_t);
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        ((uint64_t)st.st_size - HEAD_BYTES) / window < f->windows) {
        app_error("%s: is to have %zu windows of %llu bytes, more than there are: it is not whole",
                  f->path, f->windows, (unsigned long long)window);
        return APP_FAILURE;
    }
    return APP_OK;
}

static int check_ids(const base_file *f) {
    for (size_t i = 0; i < f->windows * (size_t)f->n_ctx; i++) {
        if (f->ids[i] < 0 || f->ids[i] >= f->n_vocab) {
            app_error("%s: token %zu is %d, outside its vocabulary of %d", f->path, i,
                      (int)f->ids[i], (int)f->n_vocab);
            return APP_FAILURE;
        }
    }
    return APP_OK;
}

int base_file_open(base_file *f, const char *path) {
    unsigned char head[HEAD_BYTES] = {0};
    *f = (base_file){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (f->fd < 0) {
        app_error("%s: cannot open: %s", path, strerror(errno));
        return APP_FAILURE;
    }
    int code = read_part(f, head, sizeof head);
    code = code == APP_OK ? check_head(f, head) : code;
    if (code == APP_OK) {
        size_t n = f->windows * (size_t)f->n_ctx;
        f->ids = malloc(n * sizeof *f->ids);
        f->rows = malloc(rows_of(f->n_ctx) * row_codes(f->n_vocab) * sizeof *f->rows);
        if (f->ids == NULL || f->rows == NULL) {
            app_error("out of memory");
            return APP_FAILURE;
        }
        code = read_part(f, f->ids, n * sizeof *f->ids);
    }
    return code == APP_OK ? check_ids(f) : code;
}

void base_file_close(base_file *f) {
    if (f->path != NULL && f->fd >= 0) {
        close(f->fd);
    }
    free(f->ids);
    free(f->rows);
    *f = (base_file){.fd = -1};
}

int base_file_rewind(base_file *f) {
    off_t at = HEAD_BYTES + (off_t)(f->windows * (size_t)f->n_ctx * sizeof *f->ids);
    if (lseek(f->fd, at, SEEK_SET) != at) {
        app_error("%s: cannot read: %s", f->path, strerror(errno));
        return APP_FAILURE;
    }
    return APP_OK;
}

int base_file_next(base_file *f) {
    return read_part(f, f->rows, rows_of(f->n_ctx) * row_codes(f->n_vocab) * sizeof(uint16_t));
}

tally_codes base_file_row(const base_file *f, size_t i) {
    const uint16_t *at = f->rows + i * row_codes(f->n_vocab);
    tally_codes row = {.at = at + 4};
    memcpy(&row.scale, at, sizeof row.scale);
    memcpy(&row.least, at + 2, sizeof row.least);
    return row;
}

int base_file_begin(out_file *out, const char *path, int32_t n_ctx, int32_t n_vocab,
                    const int32_t *ids, size_t windows) {
    size_t n = windows * (size_t)n_ctx;
    uint64_t bytes = HEAD_BYTES + n * sizeof *ids +
                     windows * rows_of(n_ctx) * row_codes(n_vocab) * sizeof(uint16_t);
    unsigned char head[HEAD_BYTES];
    int32_t count = (int32_t)windows;
    if (windows > INT32_MAX) {
        app_error("%s: %zu windows are more than such a file can hold", path, windows);
        return APP_FAILURE;
    }
    memcpy(head, magic, sizeof magic);
    memcpy(head + 8, &n_ctx, 4);
    memcpy(head + 12, &n_vocab, 4);
    memcpy(head + 16, &count, 4);
    return out_file_open(out, path, bytes) == 0 && out_file_write(out, head, sizeof head) == 0 &&
                   out_file_write(out, ids, n * sizeof *ids) == 0
               ? APP_OK
               : APP_FAILURE;
}

int base_file_write(out_file *out, const tally_codes *row, int32_t n_vocab) {
    static const uint16_t padding = 0;
    const float head[2] = {row->scale, row->least};
    return out_file_write(out, head, sizeof head) == 0 &&
                   out_file_write(out, row->at, (size_t)n_vocab * sizeof *row->at) == 0 &&
                   (n_vocab % 2 == 0 || out_file_write(out, &padding, sizeof padding) == 0)
               ? APP_OK
               : APP_FAILURE;
}
