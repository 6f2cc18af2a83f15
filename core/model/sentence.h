/* core/model/sentence.h - what the files of an embedding model say of its vectors: the modules of
 * modules.json in their order, limits and prompts (the folder format of sentence-transformers,
 * versions 0.3 to 6).
 */
#ifndef GW_MODEL_SENTENCE_H
#define GW_MODEL_SENTENCE_H

#include "core/base/json.h"

/* y = act(W x + b), or that + R x: to each token's row before the pooling, else to the vector. */
typedef struct gw_dense {
    int32_t in, out;
    int act;         /* of sentence_run.c; 0: none           */
    float *weight;   /* [out, in]                            */
    float *bias;     /* [out] or NULL                        */
    int residual;    /* its input is added to its output     */
    float *straight; /* [out, in] of the residual, or NULL: as it is */
} gw_dense;

typedef enum gw_module_kind {
    GW_MODULE_DENSE,
    GW_MODULE_POOLING,
    GW_MODULE_NORMALIZE,
    GW_MODULE_LAYER_NORM, /* weight, bias of `dense`, its width `out` */
    GW_MODULE_STATIC      /* a table [in, out] of vectors: `weight` of `dense` */
} gw_module_kind;

typedef enum gw_pooling_mode {
    GW_POOL_CLS,
    GW_POOL_MAX,
    GW_POOL_MEAN,
    GW_POOL_MEAN_SQRT,
    GW_POOL_WEIGHTED,
    GW_POOL_LAST,
    GW_POOL_MODES
} gw_pooling_mode;

typedef struct gw_module {
    gw_module_kind kind;
    gw_pooling_mode mode[GW_POOL_MODES]; /* whose vectors stand one after the other */
    int n_modes;
    gw_dense dense;
} gw_module;

enum { GW_MODULES_MOST = 16 };

typedef struct gw_sentence {
    int found;  /* 0: the folder has no modules.json; all else is then 0 */
    int tabled; /* the first module is a table: there is no transformer */
    gw_module module[GW_MODULES_MOST];
    int n_modules;
    int at_pooling;    /* the module that makes a vector of rows; -1: none does      */
    int named_late;    /* a module of PyLate, which takes rows without saying so     */
    int skips_prompt;  /* tokens of the prompt are left out of the pooling           */
    int normalize;     /* the last module divides by the length; not in the list then */
    int32_t truncate;  /* the first so many values are the vector; 0: all            */
    int32_t n_ctx;     /* most tokens of a text; 0: it does not say                  */
    int n_judges;      /* LogitScore: the score of a pair is the logit of the first of `judge`, */
    int32_t judge[2];  /* less that of the second where there are two; 0: it has no such module */
    int structured;    /* contents of the messages of a pair: 1 lists of parts, 0 texts, -1: it
                        * does not say                                                */
    json_t *variables; /* of the chat template that writes pairs: an object; NULL: none          */
    json_t *prompts;   /* object of texts; NULL: none                                */
    char standard[64]; /* name of the prompt of every text; "": none                 */
} gw_sentence;

/* Late interaction: how documents [0] and queries [1] are written. */
typedef struct gw_late {
    char prefix[2][64]; /* a token that comes second; "": none                           */
    int32_t length[2];  /* most tokens, with it                                          */
    int expands;        /* queries get mask tokens at their end, up to their length      */
    int sees;           /* all tokens attend to those; 0: they attend to the others alone */
    char mask[64];
    json_t *skips; /* texts of tokens that documents have no vectors of; NULL: punctuation */
} gw_late;

/* Of the folder, as PyLate's or ColBERT's own library has it; *out is to be freed when it
 * succeeds. */
gw_status gw_late_read(const char *folder, int own_library, gw_late *out);
void gw_late_free(gw_late *late);

/* folder: of the model. GW_E_UNSUPPORTED names a module, an activation or a way to pool that is not
 * known. *out is to be freed when it succeeds. */
gw_status gw_sentence_read(const char *folder, gw_sentence *out);
void gw_sentence_free(gw_sentence *s);

/* What modules.json names first, without its weights: the part of the folder that the transformer
 * is in ("": the folder itself); *tabled: it is a table of vectors instead. *found 0: there is no
 * modules.json. part [room]. */
gw_status gw_sentence_first(const char *folder, char *part, size_t room, int *tabled, int *found);
/* Does modules.json name LogitScore? A quick look. */
gw_status gw_sentence_judges(const char *folder, int *judges);
/* "do_lower_case" of the folder's sentence_*_config.json. */
gw_status gw_sentence_lowers(const char *folder, int *lowers);

/* sentence_modules.c: one module by the name of its class; part: its folder within `folder`. */
gw_status gw_module_read(const char *folder, const char *where, const char *class, const char *part,
                         gw_sentence *s);
int gw_module_is_transformer(const char *class);
/* A file of the folder, or of its part, as JSON; *out NULL: there is no such file. */
gw_status gw_sentence_json(const char *folder, const char *part, const char *name, json_t **out);
/* The same; GW_E_TYPE where it is no object. */
gw_status gw_sentence_settings(const char *folder, const char *part, const char *name,
                               json_t **out);

/* A product with a matrix [out, in] as module `at`, before all others there; takes the matrix
 * over when it succeeds. */
gw_status gw_sentence_project(gw_sentence *s, const char *where, int at, int32_t out, int32_t in,
                              float *matrix);
/* Width of what the modules make of rows [.., width]; GW_E_METADATA: one does not fit the one
 * before it. */
gw_status gw_sentence_width(const gw_sentence *s, const char *where, int32_t width, int32_t *out);
/* Floats of room for either of the two buffers below. */
size_t gw_sentence_room(const gw_sentence *s, int32_t width, size_t rows);
/* Modules [first, ..) of rows x [n, width], or of a vector when first is after the pooling (n 1):
 * the first `skip` rows are a prompt that the pooling leaves out. x and room are overwritten;
 * returns where the vector is. Sums in double, in the order of their indices. */
float *gw_sentence_run(const gw_sentence *s, int first, float *x, float *room, size_t n,
                       int32_t width, size_t skip);

#endif
