/* include/godwit_encoder.h - the part of godwit.h for vectors and scores of whole texts; it comes
 * with godwit.h, and only so. */
#ifndef GODWIT_ENCODER_H
#define GODWIT_ENCODER_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_encoder gw_encoder;

enum { GW_ENCODER_ROWS = 8192 };

typedef enum gw_pooling {
    GW_POOLING_MODEL, /* as the model's files say, else the mean; of a decoder the last token */
    GW_POOLING_NONE,  /* hidden states, and vectors of tokens */
    GW_POOLING_CLS,   /* the first token     */
    GW_POOLING_LAST,
    GW_POOLING_MEAN
} gw_pooling;

typedef struct gw_encoder_options {
    int32_t n_ctx;      /* most tokens of a text; 0: the model's, at most 8192             */
    int32_t rows;       /* tokens of a pass over short texts, 1..8192; 0: 512, of a card 8192 */
    gw_pooling pooling; /* of gw_encoder_embed                                             */
    int32_t dimensions; /* the first so many values of a vector; 0: all                    */
    int normalize;      /* 0: as the model's files say, else yes; 1: yes; -1: no           */
    /* "f32", "f16", "q8_0"; NULL or "auto": f16 where a device computes attention on 16-bit
     * units, else f32 */
    const char *kv_type;
    const volatile int *cancel; /* polled per pass; may be NULL */
    gw_progress_fn progress;    /* while GPU kernels are compiled, as for sessions */
    void *progress_user;
} gw_encoder_options;

typedef struct gw_encoder_info {
    int32_t width;  /* of a vector                                                    */
    int32_t hidden; /* of a hidden state                                              */
    int32_t n_ctx;  /* most tokens of a text                                          */
    int32_t labels; /* scores of a text; 0: the model has no classifier               */
    int32_t types;  /* kinds of tokens: 2 where the halves of a pair differ           */
    gw_pooling pooling;
    int normalize;
    int causal; /* it is a decoder: tokens see those before them alone                */
    int per_token; /* vectors are of tokens, not of texts (gw_encoder_rows): late interaction, or
                    * GW_POOLING_NONE */
} gw_encoder_info;

/* Any model that makes hidden states: encoders, decoders, the encoder of an encoder-decoder. The
 * model must outlive it. GW_E_UNSUPPORTED names a module of the model's files that is not known. */
gw_status gw_encoder_new_sized(gw_model *model, const gw_encoder_options *options, size_t size,
                               gw_encoder **out);
static inline gw_status gw_encoder_new(gw_model *model, const gw_encoder_options *options,
                                       gw_encoder **out) {
    return gw_encoder_new_sized(model, options, sizeof *options, out);
}
void gw_encoder_free(gw_encoder *encoder);
/* gw_encoder_info grows at its end: of out the first `size` bytes are written, 0 where this library
 * knows nothing. */
void gw_encoder_describe_sized(const gw_encoder *encoder, gw_encoder_info *out, size_t size);
static inline void gw_encoder_get_info(const gw_encoder *encoder, gw_encoder_info *out) {
    gw_encoder_describe_sized(encoder, out, sizeof *out);
}
/* For programs from before: the fields up to per_token, whatever is added. */
void gw_encoder_describe(const gw_encoder *encoder, gw_encoder_info *out);

/* The text that the model's files put before texts of this use ("query", "document"); name NULL:
 * before every text. "" where there is none for it; NULL when the name is not known. */
const char *gw_encoder_prompt(const gw_encoder *encoder, const char *name);

/* Tokens of a text, with the special ones around it. types: of each token; NULL: all 0. */
typedef struct gw_encoder_text {
    const int32_t *ids, *types;
    size_t n;      /* 1..n_ctx */
    size_t prompt; /* the first so many are a prompt: gw_encoder_prompt_tokens */
} gw_encoder_text;

/* How many tokens of texts after this prompt the model leaves out of the pooling (INSTRUCTOR):
 * 0 unless its files say so. */
gw_status gw_encoder_prompt_tokens(const gw_encoder *encoder, const char *prompt, size_t bytes,
                                   size_t *n);

/* Vectors out [n, width]. Short texts share passes; a vector does not depend on its neighbours, bit
 * for bit. GW_E_CONTEXT names the first text that is too long. */
gw_status gw_encoder_embed(gw_encoder *encoder, const gw_encoder_text *texts, size_t n, float *out);
/* What a text is used as: models of late interaction (ColBERT) mark and fill up both kinds each in
 * its own manner; for all others it is the text's tokens. */
typedef enum gw_encoder_use { GW_USE_DOCUMENT, GW_USE_QUERY } gw_encoder_use;
/* Tokens of a text for gw_encoder_rows: *ids malloc'd, freed with gw_free, of which all attend to
 * the first *seen. GW_E_CONTEXT: too long; with `cut` the end is left out instead, but for the
 * tokens that end every text. */
gw_status gw_encoder_tokens(const gw_encoder *encoder, const char *text, size_t bytes,
                            gw_encoder_use use, int cut, int32_t **ids, size_t *n, size_t *seen);
/* 0: documents have no vector of this token (punctuation). */
int gw_encoder_keeps(const gw_encoder *encoder, int32_t token);
/* Vectors of all tokens of n texts one after the other, out [tokens, width]. seen [n]; NULL: all
 * of each. As above, no vector depends on its neighbours' texts. */
gw_status gw_encoder_rows(gw_encoder *encoder, const gw_encoder_text *texts, const size_t *seen,
                          size_t n, float *out);
/* Hidden states out [text->n, hidden], behind the last norm. */
gw_status gw_encoder_hidden(gw_encoder *encoder, const gw_encoder_text *text, float *out);
/* Scores out [n, labels] of the classifier as it gives them. GW_E_UNSUPPORTED: it has none. */
gw_status gw_encoder_score(gw_encoder *encoder, const gw_encoder_text *texts, size_t n, float *out);

/* Times, bytes and operations of kernels since the last gw_encoder_profile(encoder, 1), by kernel
 * and role; launches are awaited one by one meanwhile. Returns how many rows there are. */
gw_status gw_encoder_profile(gw_encoder *encoder, int on);
size_t gw_encoder_kernel_times(const gw_encoder *encoder, gw_kernel_time *rows, size_t capacity);

/* ---- models that read a source text (encoder-decoders) ------------------------------------- */

/* 1: the model's sessions read a source text before they make one. */
int gw_model_reads_source(const gw_model *model);
/* Read a source text, in one pass; the session's own tokens are forgotten. What follows, prefill
 * and decode, attends to it. GW_E_CONTEXT: longer than the session's context. */
gw_status gw_session_source(gw_session *s, const int32_t *tokens, size_t n);

/* What a source text and the text made of it begin with. to, from: languages by the model's names
 * for them ("fr" of __fr__ or <2fr>, "fra_Latn"); NULL: as the model's files say. source [*n]: the
 * tokens of a text (GW_TEXT_BOS) become those with its language, malloc'd, freed with gw_free.
 * target [2]: the first tokens of the session, *n_target of them. GW_E_ARGUMENT: the model knows no
 * such language. */
gw_status gw_translation_begin(const gw_model *model, const char *from, const char *to,
                               const int32_t *text, size_t n_text, int32_t **source, size_t *n,
                               int32_t target[2], size_t *n_target);

#ifdef __cplusplus
}
#endif

#endif
