/* apps/judge/base_file.h - the file in which llama.cpp's perplexity tool saves what a base model
 * predicts (--kl-divergence-base), read and written.
 *
 *   "_logits_"  n_ctx u32  n_vocab i32  windows i32  ids i32 [windows, n_ctx]
 *   then of each window the rows n_ctx / 2 .. n_ctx - 2, each: scale f32, least f32, codes u16
 *   [n_vocab], padded to an even number
 *
 * Little endian. The ids are those of the text; a model that has a start token reads it in place of
 * the first of each window.
 */
#ifndef GW_APPS_JUDGE_BASE_FILE_H
#define GW_APPS_JUDGE_BASE_FILE_H

#include "apps/judge/tally.h"
#include "apps/output.h"

typedef struct base_file {
    const char *path;
    int fd;
    int32_t n_ctx, n_vocab;
    size_t windows;
    int32_t *ids;   /* [windows, n_ctx] */
    uint16_t *rows; /* of the window that was read last */
} base_file;

/* Error line printed, exit code. base_file_close takes what was opened, or only zeroed. */
int base_file_open(base_file *f, const char *path);
void base_file_close(base_file *f);
/* The next window is the first again. Exit code. */
int base_file_rewind(base_file *f);
/* The rows of the next window. Exit code. */
int base_file_next(base_file *f);
/* Row i of that window, 0 .. n_ctx - 2 - n_ctx / 2. */
tally_codes base_file_row(const base_file *f, size_t i);

/* ids [windows, n_ctx]; then the rows in order, then out_file_commit. Exit codes. */
int base_file_begin(out_file *out, const char *path, int32_t n_ctx, int32_t n_vocab,
                    const int32_t *ids, size_t windows);
int base_file_write(out_file *out, const tally_codes *row, int32_t n_vocab);

#endif
