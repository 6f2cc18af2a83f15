/* core/model/packed_parts.h - what the packed_*.c files share that find matrices made of codes,
 * scales, zeros and an index in a folder. Which layout a tensor has is what the configuration
 * declares (packed_declared.c); names, types and shapes have to agree with it. Nobody else includes
 * this. */
#ifndef GW_MODEL_PACKED_PARTS_H
#define GW_MODEL_PACKED_PARTS_H

#include "core/model/checkpoint_parts.h"
#include "core/model/packed.h"

/* ---- what is declared ----------------------------------------------------------------------- */

typedef enum gw_gptq_layout {
    GW_GPTQ_UNDECLARED, /* no configuration: the shape has to tell                            */
    GW_GPTQ_LESS_ONE,   /* zeros as stored are less one                                       */
    GW_GPTQ_RAW,        /* zeros as they are                                                  */
    GW_GPTQ_PLANES,     /* the same, codes and zeros of 3, 5, 6, 7 bits in planes             */
    GW_GPTQ_AWQ,        /* AWQ's order of columns in a word                                   */
    GW_GPTQ_GEMV        /* AWQ for products with vectors: rows as they are                    */
} gw_gptq_layout;

/* One group of compressed-tensors: how the linear layers that it targets are quantized. */
typedef struct gw_scheme {
    const json_t *weights, *targets;
    const char *format; /* of this group, else of all; NULL: not said */
} gw_scheme;

/* A rotation of what goes into linear layers, whose matrix may stand in the file. */
typedef struct gw_turned {
    const char *name; /* of the tensors: X.NAME_input.weight */
    const json_t *targets, *ignore;
    int64_t head_dim; /* 0: of all columns */
    int inverse, walsh;
} gw_turned;

enum { GW_MOST_SCHEMES = 64, GW_MOST_TURNED = 16 };

typedef struct gw_declared {
    const char *where;    /* the folder, for messages                    */
    const json_t *config; /* quantization_config or quantization; NULL: none */
    gw_gptq_layout gptq;
    int dense; /* compressed-tensors: codes run on over the ends of words */
    gw_scheme scheme[GW_MOST_SCHEMES];
    int n_schemes;
    gw_turned turned[GW_MOST_TURNED];
    int n_turned;
} gw_declared;

/* Reads what the folder's configuration declares. config NULL: GPTQ and AWQ folders of before have
 * a file of their own, *apart is then released by json_decref. GW_E_UNSUPPORTED names a layout that
 * is not read. */
gw_status gw_declared_read(gw_checkpoint *c, gw_declared *out, json_t **apart);
/* The group whose targets match the module X of X.weight; NULL: there is none. */
const gw_scheme *gw_declared_scheme(const gw_declared *d, const char *module, size_t bytes);
/* The rotation of what goes into it; NULL: none. */
const gw_turned *gw_declared_turned(const gw_declared *d, const char *module, size_t bytes);
int64_t gw_json_whole(const json_t *object, const char *key); /* 0: no integer is there */

/* ---- one matrix ----------------------------------------------------------------------------- */

typedef struct gw_raw {
    const gw_stored *t; /* NULL: there is none */
    const char *dtype;
} gw_raw;

typedef struct gw_finder {
    gw_checkpoint *c;
    const gw_declared *declared;
    const json_t *config; /* NULL: none */
    const char *name;     /* of the codes */
    size_t base;          /* bytes of the name that the tensors share */
    gw_raw codes;
    gw_packed p;
} gw_finder;

/* packed_find.c */
gw_raw gw_packed_name(const gw_checkpoint *c, const char *name);
gw_raw gw_packed_beside(const gw_finder *f, const char *suffix);
/* A tensor that has become part of a matrix is no weight of its own. */
void gw_packed_used(const gw_finder *f, gw_raw r);
int gw_raw_is(gw_raw r, const char *dtype);
int gw_raw_is_shape(gw_raw r, int64_t rows, int64_t cols);
int64_t gw_raw_count(gw_raw r);
gw_status gw_packed_misfit(const gw_finder *f, gw_raw r, const char *suffix);
/* 1 and *out, or 0. */
int gw_packed_numbers(const gw_finder *f, gw_raw r, int64_t wide, gw_numbers *out);
float gw_packed_lone(const gw_finder *f, gw_raw r); /* a single number; 0: none */
/* The matrix becomes one tensor of that name; of a linear layer X.weight. */
gw_status gw_packed_keep(gw_finder *f, const char *name, int n_dim, const int64_t *dim, gw_fmt fmt,
                         int linear);
gw_status gw_packed_keep_linear(gw_finder *f);
/* The groups of the columns, where an index says so. */
gw_status gw_packed_order(gw_finder *f, gw_raw r, const char *suffix, int64_t groups);
/* Columns of a group: from the number of groups, with the configuration's where a last group is
 * shorter. 0: no size fits. */
int64_t gw_packed_span(const gw_finder *f, int64_t cols, int64_t groups);

/* The rules, each for codes of one suffix and type. */
gw_status gw_find_qweight(gw_finder *f);      /* packed_gptq.c: GPTQ, AWQ */
gw_status gw_find_words(gw_finder *f);        /* packed_tensors.c: compressed-tensors */
gw_status gw_find_bytes(gw_finder *f);        /* the same; bitsandbytes' int8 */
gw_status gw_find_packed_bytes(gw_finder *f); /* the same; packed_float.c: floats of 4 and 6 bits */
gw_status gw_find_float8(gw_finder *f);       /* packed_float.c */
gw_status gw_find_blocks(gw_finder *f);       /* MXFP4 of gpt-oss */
gw_status gw_find_u8(gw_finder *f);           /* ModelOpt */
gw_status gw_find_u32(gw_finder *f);          /* MLX */
/* packed_levels.c: bitsandbytes' four bits, found by X.quant_state... of whatever type X is. */
gw_status gw_find_levels(gw_finder *f);
/* Codes [.., rows, cols / 2] of E2M1 with scales of bytes. exponents: 1 they are powers of two, 0
 * E4M3, -1 as the group size tells. */
gw_status gw_packed_keep_e2m1(gw_finder *f, gw_raw scale, int64_t row_bytes, const char *name,
                              int exponents);

#endif
