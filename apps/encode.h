/* apps/encode.h - what `embed` and `rerank` do alike. */
#ifndef GW_APPS_ENCODE_H
#define GW_APPS_ENCODE_H

#include "apps/common.h"

/* The model of -m and an encoder over it, by the options. Exit code; both are the caller's to
 * free. */
int app_open_encoder(const app_options *o, gw_model **model, gw_encoder **encoder);
/* The types of --types for the tokens of --ids. Exit code. */
int app_token_types(const app_options *o, gw_encoder_text *text);

#endif
