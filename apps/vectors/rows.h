/* apps/vectors/rows.h - vectors of tokens (late interaction, --pooling none) of a list of texts,
 * and the files that they go to. */
#ifndef GW_APPS_ROWS_H
#define GW_APPS_ROWS_H

#include "apps/encode.h"

/* Of the texts that the options name, written. Exit code. */
int vectors_rows(const app_options *o, gw_encoder *encoder);
/* scores [items->n] of the items as documents for the query of -q (app_match). Exit code. */
int vectors_match(const app_options *o, gw_encoder *encoder, const app_items *items, float *scores);

#endif
