/* core/text/tokens/steps.h - changes of a text before it is cut: the normalizers of tokenizer.json,
 * and the pre-tokenizers that change what they cut (Metaspace, ByteLevel). */
#ifndef GW_TEXT_TOKENS_STEPS_H
#define GW_TEXT_TOKENS_STEPS_H

#include "core/text/buffer.h"
#include "core/text/regex.h"
#include "core/text/tokens/vocab.h"

typedef struct gw_change { /* made ready */
    const gw_vocab_step *how;
    gw_regex *regex; /* of REPLACE */
} gw_change;

/* The step is borrowed. GW_E_UNSUPPORTED: a pattern that PCRE2 refuses. */
gw_status gw_change_new(const char *where, const gw_vocab_step *how, gw_change *out);
void gw_change_free(gw_change *step);

enum {
    GW_PLACE_FIRST = 1, /* the text begins the whole                                 */
    GW_PLACE_JOINED = 2 /* it goes on with a text that is there: nothing is prepended */
};

/* Appends to out what text [n], well-formed UTF-8, becomes. Linear in the text. */
gw_status gw_change_run(const gw_change *step, gw_regex_work *work, const char *text, size_t n,
                        int place, gw_bytes *out);

#endif
