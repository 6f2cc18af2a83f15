/* core/engine/run/adapters.h - the adapters of a model, and which of them the rows of a session's
 * passes have.
 *
 * A session keeps the route that products of adapters read (lora_bank.h) on every device: the
 * places and scales of each row. It is written when rows of a pass have others than the rows before
 * them there had, so a text that goes on alone writes nothing.
 */
#ifndef GW_ENGINE_ADAPTERS_H
#define GW_ENGINE_ADAPTERS_H

#include "core/model/lora_bank.h"
#include "include/godwit_lora.h"

/* What a row has, as devices read it: places in increasing order, 0: none; a scale for each. */
typedef struct gw_lora_row {
    float place[GW_LORA_AT_ONCE], scale[GW_LORA_AT_ONCE];
} gw_lora_row;

typedef struct gw_adapters {
    gw_lora_bank *bank;
    int n, at_once;
    gw_lora_info *info; /* [n] */
    uint64_t *digest;   /* [n] of what each holds */
    gw_lora_row usual;  /* of texts that choose nothing */
} gw_adapters;

void gw_adapters_free(gw_adapters *adapters); /* accepts NULL */

/* pick NULL: the usual row. Errors of gw_session_adapt. */
gw_status gw_lora_row_of(const gw_model *model, const gw_lora_pick *pick, gw_lora_row *out);
/* Of all that a text's adapters hold, and their scales; 0: it has none. */
uint64_t gw_lora_row_digest(const gw_model *model, const gw_lora_row *row);

/* What a session has of it; parts of gw_session. */
typedef struct gw_adapting {
    struct gw_buffer *route[GW_MAX_DEVICES];
    gw_tensor route_on[GW_MAX_DEVICES];
    gw_lora_row *rows; /* [n_rows] as the devices have them; NULL: the model has no adapters */
    float *packed;     /* [n_rows, 2 at_once] */
    int32_t n_rows;
    gw_lora_row own; /* of a session that is not shared */
} gw_adapting;

struct gw_session;
gw_status gw_adapting_new(struct gw_session *s, int32_t rows);
void gw_adapting_free(struct gw_session *s);
/* All rows have this. */
gw_status gw_adapting_fill(struct gw_session *s, const gw_lora_row *row);
/* Row i of the next pass has rows(user, i); n of them. */
typedef const gw_lora_row *(*gw_lora_row_fn)(const void *user, int32_t i);
gw_status gw_adapting_show(struct gw_session *s, gw_lora_row_fn rows, const void *user, int32_t n);

#endif
