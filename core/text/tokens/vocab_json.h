/* core/text/tokens/vocab_json.h - what the files that read tokenizer.json share. */
#ifndef GW_TEXT_VOCAB_JSON_H
#define GW_TEXT_VOCAB_JSON_H

#include "core/base/json.h"
#include "core/text/tokens/vocab.h"

/* Everything around the model: normalizer, pre_tokenizer, post_processor, decoder. Settles
 * v->kind (byte-level or not), the steps, the splits and bos/eos. GW_E_UNSUPPORTED names the step
 * that is not built here. */
gw_status gw_vocab_json_pipeline(const char *where, const json_t *root, gw_vocab *v);
gw_status gw_vocab_json_decoder(const char *where, const json_t *root, gw_vocab *v);
gw_status gw_vocab_json_frame(const char *where, const json_t *root, gw_vocab *v);

/* Calls fn for the step of root[key], or for each of its Sequence, `members`, and of those within,
 * in order; none where it is null. */
typedef gw_status (*gw_json_step_fn)(const char *where, const json_t *step, const char *type,
                                     void *context);
gw_status gw_json_steps(const char *where, const json_t *root, const char *key, const char *members,
                        gw_json_step_fn fn, void *context);

/* The pattern of a step, {"String": plain text} or {"Regex": expression}. GW_E_METADATA: none. */
gw_status gw_json_pattern(const char *where, const json_t *step, const char **text, int *literal);

/* GW_E_UNSUPPORTED, in words: what is the kind of step, type its name. */
gw_status gw_json_step_refused(const char *where, const char *what, const char *type);

#endif
