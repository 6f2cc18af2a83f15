/* apps/vectors/rows.h - vectors of tokens (late interaction, --pooling none) of a list of texts,
 * and the files that they go to. */
#ifndef GW_APPS_ROWS_H
#define GW_APPS_ROWS_H

#include "apps/encode.h"

/* Of the texts that the options name. Exit code. */
int vectors_rows(const app_options *o, gw_encoder *encoder);

#endif
