/* apps/sampling.h - what a text is sampled by, in one table: the option of the command line that
 * says it, the field of a request, and where it goes in gw_sampler_options. A new number of a
 * sampler is a row of the option table and a row here. */
#ifndef GW_APPS_SAMPLING_H
#define GW_APPS_SAMPLING_H

#include "apps/options.h"

typedef struct sampling_row {
    const char *names; /* in requests, "repeat_penalty repetition_penalty" */
    size_t option;     /* in app_options: its row of the option table has kind and range */
    size_t field;      /* in gw_sampler_options: float, or int32_t of a KIND_INT         */
    int or_minus_one;  /* requests may say -1 for 0 */
} sampling_row;

extern const sampling_row sampling_table[]; /* ends with names == NULL */

/* The row's option. */
const app_option *sampling_option(const sampling_row *row);
/* 1: the value is in its range, and set. */
int sampling_set(const sampling_row *row, double value, gw_sampler_options *out);
/* All of them as the options say; what it points to is the options'. */
void sampling_of_options(const app_options *o, gw_sampler_options *out);
/* Where neither an option nor a request says so (bits of rows, given), as the model's files
 * recommend. text (may be NULL): what that changed, "temperature 0.6, top_k 20"; "": nothing. */
void sampling_of_model(const app_options *o, const gw_model *model, uint32_t given,
                       gw_sampler_options *out, char *text, size_t room);
/* One note of it. */
void sampling_note(const app_options *o, const gw_model *model);

#endif
