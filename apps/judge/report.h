/* apps/judge/report.h - what evaluation found, as tables, JSON and a picture. */
#ifndef GW_APPS_JUDGE_REPORT_H
#define GW_APPS_JUDGE_REPORT_H

#include "apps/judge/choices.h"
#include "apps/judge/tally.h"

typedef struct judged {
    char name[128]; /* of the file or folder */
    const char *path;
    char format[32], device[256];
    uint64_t file_bytes, weight_bytes, n_params;
    double seconds;
    int has_text, is_base; /* is_base: its text is part of the others' figures */
    tally_figures text;
    choice_score **scores; /* [sets], each [n_choices]; NULL: not asked */
} judged;

typedef struct judge_report {
    const judged *models; /* [n]; the first that has tasks is what others are held against */
    size_t n;
    const judge_set *sets;
    size_t n_sets;
    const char *file, *base; /* the text; the base model or its file; NULL: none */
    int32_t n_ctx, stride;
    size_t windows;
} judge_report;

/* format: "md", "csv" or "json", to standard output. Exit code. */
int report_print(const judge_report *r, const char *format);
/* Loss against size, as an SVG file. Exit code. */
int report_draw(const judge_report *r, const char *path);

/* ---- between the two ------------------------------------------------------------------------- */

typedef struct judge_share { /* of tasks done right */
    size_t right, n;
    double low, high; /* 95% by Wilson's formula */
} judge_share;
judge_share judge_share_of(const judge_set *set, const choice_score *scores, judge_measure m);

/* Tasks that one of two models gets right and the other does not, by acc_norm where there is one,
 * else acc; p: how likely a difference as large is by chance (McNemar's exact test). */
typedef struct judge_contrast {
    size_t gained, lost;
    double p;
} judge_contrast;
judge_contrast judge_contrast_of(const judge_set *set, const choice_score *scores,
                                 const choice_score *other);

#endif
