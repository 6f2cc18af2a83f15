/* core/model/config.h - the numbers of a model as its container states them, read by the lines of a
 * spec, and the one place where they are checked.
 */
#ifndef GW_MODEL_CONFIG_H
#define GW_MODEL_CONFIG_H

#include <jansson.h>

#include "core/base/arena.h"
#include "core/model/gguf.h"
#include "core/model/spec.h"

/* What a container states: config.json, or the metadata of a GGUF file as such an object, keys
 * without their architecture. */
typedef struct gw_facts {
    const char *where;
    const json_t *object; /* looked into first: text_config where there is one */
    const json_t *outer;  /* then this; may be NULL                            */
    int in_folder;
} gw_facts;

/* The architecture alone, for messages and for files that are only a vocabulary; "" when none is
 * named and `needed` is 0. Below 0: needed, and files that are no model by themselves are taken. */
gw_status gw_config_gguf_architecture(const gw_gguf *g, int needed, char *out, size_t capacity);
gw_status gw_config_hf_architecture(const char *where, const json_t *config, int needed, char *out,
                                    size_t capacity);

/* *out: released by json_decref. */
gw_status gw_config_gguf_facts(const gw_gguf *g, const char *architecture, json_t **out);
gw_facts gw_config_hf_facts(const char *where, const json_t *config);
/* What a folder's weights are that cannot be read: GW_E_UNSUPPORTED. */
gw_status gw_config_refuse_quantized(const gw_facts *facts);
/* config.json with the bare words Infinity, -Infinity and NaN in values, which no JSON has, made
 * objects {"__float__": "Infinity"}: malloc'd, *n bytes. */
char *gw_config_plain_json(const char *text, size_t bytes, size_t *n);

/* The first of `keys` that is there, in layer l for keys with %d; NULL: none. `a.b` is member b of
 * member a; GGUF keys are not taken apart. */
const json_t *gw_facts_find(const gw_facts *facts, const char (*keys)[64], int n, int layer,
                            const char **key);
/* 1 for a number, an Infinity or a NaN. */
int gw_facts_real(const json_t *value, double *out);

/* Every number of every layer, checked; layers, values and divisors live in the arena.
 * GW_E_METADATA, GW_E_TYPE and GW_E_UNSUPPORTED name the number; *out is unchanged then. */
gw_status gw_config_read(const gw_facts *facts, const gw_blueprint *bp, gw_arena *arena,
                         gw_hparams *out);
/* rope_config.c: the kinds of positions; hp has its layers. */
gw_status gw_config_ropes(const gw_facts *facts, const gw_blueprint *bp, gw_arena *arena,
                          gw_hparams *hp);

#endif
