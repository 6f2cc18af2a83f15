/* core/text/tokens/vocab_json.h - what the two files that read tokenizer.json share. */
#ifndef GW_TEXT_VOCAB_JSON_H
#define GW_TEXT_VOCAB_JSON_H

#include "core/base/json.h"
#include "core/text/tokens/vocab.h"

/* Everything around the model: normalizer, pre_tokenizer, post_processor, decoder. Settles
 * v->kind (byte-level or not), the spaces, the splits and bos/eos. GW_E_UNSUPPORTED names the step
 * that is not built here. */
gw_status gw_vocab_json_pipeline(const char *where, const json_t *root, gw_vocab *v);

#endif
