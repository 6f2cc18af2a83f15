/* include/godwit_beam.h - the part of godwit.h for beam search; it comes with godwit.h, and only
 * so. */
#ifndef GODWIT_BEAM_H
#define GODWIT_BEAM_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_beam gw_beam;

enum { GW_BEAMS_MAX = 64 };

/* When the search of a text ends, besides at its length. */
typedef enum gw_beam_early {
    GW_BEAM_EARLY_NO,   /* no running text, as long as it is now, can still be among the best */
    GW_BEAM_EARLY_YES,  /* as many texts as beams have ended                                  */
    GW_BEAM_EARLY_NEVER /* no running text can still be among the best, however long it grows */
} gw_beam_early;

/* gw_beam_defaults gives what the model's files say, for what they do not say 1 beam, a penalty of
 * 1, GW_BEAM_EARLY_NO and nothing else. */
typedef struct gw_beam_options {
    int32_t n_beams;      /* 1..GW_BEAMS_MAX                                          */
    float length_penalty; /* scores are log probabilities / length ^ this            */
    gw_beam_early early;
    int32_t no_repeat;  /* no run of so many tokens comes twice in a text; 0: may   */
    int32_t min_length; /* no end before a text has so many tokens, prompt and all  */
    int32_t max_length; /* tokens of a text, prompt and all; 0: the context         */
    int32_t forced_end; /* the token that a text of max_length ends with; -1: none  */
    int32_t texts;      /* searched at once, 0: 1; texts * n_beams <= GW_PARALLEL_MAX */
    int32_t n_ctx;      /* of a text; 0: the model's                                */
    int32_t chunk;      /* as for sessions                                          */
    const char *kv_type;
    const volatile int *cancel;
    gw_progress_fn progress;
    void *progress_user;
} gw_beam_options;

void gw_beam_defaults(const gw_model *model, gw_beam_options *out);
/* The model must outlive it. GW_E_UNSUPPORTED: layers whose sequences cannot be forked. */
gw_status gw_beam_new_sized(gw_model *model, const gw_beam_options *options, size_t size,
                            gw_beam **out);
static inline gw_status gw_beam_new(gw_model *model, const gw_beam_options *options,
                                    gw_beam **out) {
    return gw_beam_new_sized(model, options, sizeof *options, out);
}
void gw_beam_free(gw_beam *beam);

/* What a text is made from. Of an encoder-decoder the source, and the prompt is what the text
 * begins with (gw_translation_begin); of a decoder there is no source. The last n_forced tokens of
 * the prompt count as generated ones in the length that scores are divided by. */
typedef struct gw_beam_input {
    const int32_t *source, *prompt;
    size_t n_source, n_prompt, n_forced;
    int32_t max_tokens; /* behind the prompt; less than 0: as many as fit */
    /* Pictures of the prompt (godwit_see.h), by rising `at`, held by the caller meanwhile. */
    const struct gw_seen_rows *seen;
    size_t n_seen;
} gw_beam_input;

typedef struct gw_beam_text {
    int32_t *tokens; /* [n] behind the prompt, with the one that ends it; freed by _texts_free */
    size_t n;
    float score;   /* log probability / length ^ length_penalty */
    float logprob; /* of all tokens behind the prompt           */
} gw_beam_text;

/* The best texts of each input, best first: out [n, n_beams]; fewer: the others have no tokens and
 * a score of -infinity. A result does not depend on what is searched beside it, bit for bit. The
 * algorithm is that of transformers' generate (Hugging Face, v5) with its beam search heuristics.
 * GW_E_CONTEXT, GW_E_ARGUMENT name the input. */
gw_status gw_beam_search(gw_beam *beam, const gw_beam_input *inputs, size_t n, gw_beam_text *out);
void gw_beam_texts_free(gw_beam_text *texts, size_t n);

#ifdef __cplusplus
}
#endif

#endif
