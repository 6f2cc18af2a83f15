/* core/model/sentence.h - what the files of an embedding model say of its vectors: modules.json,
 * 1_Pooling and the dense layers behind it, prompts (the folder format of sentence-transformers).
 */
#ifndef GW_MODEL_SENTENCE_H
#define GW_MODEL_SENTENCE_H

#include "core/base/json.h"

/* y = act(W x + b) */
typedef struct gw_dense {
    int32_t in, out;
    int tanh;      /* 0: no activation */
    float *weight; /* [out, in]        */
    float *bias;   /* [out] or NULL    */
} gw_dense;

enum { GW_DENSE_MOST = 4 };

typedef struct gw_sentence {
    int found;          /* 0: the folder has no modules.json; all else is then 0 */
    gw_pooling pooling; /* GW_POOLING_MODEL: it does not say */
    int normalize;
    gw_dense dense[GW_DENSE_MOST];
    int n_dense;
    int32_t n_ctx;     /* most tokens of a text; 0: it does not say */
    json_t *prompts;   /* object of texts; NULL: none */
    char standard[64]; /* name of the prompt of every text; "": none */
} gw_sentence;

/* folder: of the model. GW_E_UNSUPPORTED names a module or a way to pool that is not known. *out is
 * to be freed when it succeeds. */
gw_status gw_sentence_read(const char *folder, gw_sentence *out);
void gw_sentence_free(gw_sentence *s);
/* x [s->dense[0].in] to out [of the last], room for the widest in both; returns where the result
 * is. */
float *gw_sentence_dense(const gw_sentence *s, float *x, float *room);

#endif
