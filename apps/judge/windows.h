/* apps/judge/windows.h - scores a model on a text, window by window, alone or beside a base.
 *
 * ids = start token (where the model has one) + text. A window is n_ctx consecutive ids; the start
 * token is written over its first. A rest shorter than a window is dropped.
 *
 *   stride 0   windows do not overlap, and the tokens behind the middle of each are scored: those
 *              at n_ctx / 2 + 1 .. n_ctx - 1 (llama.cpp's way)
 *   stride s   windows begin s apart, and the last s tokens of each are scored, of the first one
 *              all but the first token (Hugging Face's way)
 */
#ifndef GW_APPS_JUDGE_WINDOWS_H
#define GW_APPS_JUDGE_WINDOWS_H

#include "apps/common.h"
#include "apps/judge/base_file.h"

typedef struct judge_windows {
    const int32_t *ids; /* [at least count windows] */
    size_t count;
    int32_t n_ctx, stride;
} judge_windows;

/* The text's tokens and windows by -c, --stride and --chunks; *ids is freed with gw_free. A text
 * without a window is an error. Exit code. */
int judge_cut_text(const app_options *o, const gw_model *model, const app_text *text, int32_t **ids,
                   judge_windows *out);

typedef struct judge_text {
    const judge_windows *windows;
    gw_model *model;
    gw_session *session;  /* of n_ctx tokens                                            */
    gw_session *base;     /* NULL, or of another model with the same vocabulary         */
    base_file *base_file; /* NULL, or the base's rows; stride 0 */
    out_file *save;       /* NULL, or where the model's own rows go, as such a file; stride 0 */
} judge_text;

/* Rows in order of the text. Exit code; what was scored before an error stays in out. */
int judge_score_text(const judge_text *text, tally *out);

#endif
