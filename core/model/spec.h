/* core/model/spec.h - a model family as data: which numbers, which weights, which blocks.
 *
 * specs/NAME.spec are text, embedded at build time; the grammar stands in specs/README.md. A new
 * family made of known blocks is one new file there, or a file given by --spec, and nothing else.
 */
#ifndef GW_MODEL_SPEC_H
#define GW_MODEL_SPEC_H

#include "core/model/checkpoint.h"
#include "core/model/expr.h"

typedef struct gw_spec gw_spec;

/* Find the family by a GGUF architecture name or a Hugging Face architecture class name.
 * GW_E_METADATA names what is unknown and lists what is known. The spec is const data. */
const gw_spec *gw_spec_of(const char *architecture); /* NULL: no family has it */
/* The class that a type of model has by its rule of names: "qwen3_moe" is Qwen3MoeForCausalLM; or
 * the type itself where a family has that name. 0: no family has either. */
int gw_spec_class(const char *model_type, char *out, size_t room);
gw_status gw_spec_find(const char *where, const char *architecture, const gw_spec **out);
/* The same of vision towers, NAME-vision: by the architecture of the model in a folder, or by the
 * projector type of an mmproj file. NULL: none is known. */
const gw_spec *gw_spec_tower(const char *name);
/* The words of every line `key ...` of a spec, one blank between them; as many as out has room for. */
void gw_spec_words(const gw_spec *spec, const char *key, char *out, size_t room);
/* Is the text of such a family read with this tower's rows? */
int gw_spec_sees_for(const gw_spec *tower, const char *family);
const char *gw_spec_family(const gw_spec *spec);
/* The embedded specs in order of name; NULL past the last one. */
const gw_spec *gw_spec_at(size_t i);
const char *gw_spec_text(const gw_spec *spec);
/* The embedded spec of this name, bytes long; NULL: there is none. */
const gw_spec *gw_spec_named(const char *name, size_t bytes);

/* ---- a spec, read --------------------------------------------------------------------------- */

enum {
    GW_SPEC_WEIGHTS = 112,
    GW_SPEC_SOURCES = 3, /* alternatives of a weight in one container */
    GW_SPEC_BLOCKS = 112,
    GW_SPEC_ARGS = 6,
    GW_SPEC_NUMBERS = 128,
    GW_SPEC_KEYS = 4,
    GW_SPEC_WORDS = 8,
    GW_SPEC_KINDS = 8,
    GW_SPEC_VALUES = 24,
    GW_SPEC_LISTED = 16 /* prefixes, and names to pass over */
};

/* ---- numbers */

typedef enum gw_number_type {
    GW_NUMBER_INTEGER,
    GW_NUMBER_REAL,
    GW_NUMBER_FLAG,
    GW_NUMBER_LIST,      /* how many integers the file lists: no list of layers */
    GW_NUMBER_WORD,      /* the index of a text in `words`  */
    GW_NUMBER_LETTER,    /* the same of the layer's letter in a text */
    GW_NUMBER_ACTIVATION /* a gw_act_kind                   */
} gw_number_type;

typedef struct gw_spec_number {
    char name[24];
    gw_number_type type;
    char hf[GW_SPEC_KEYS][64], gguf[GW_SPEC_KEYS][64]; /* the first that is there */
    int n_hf, n_gguf;
    char words[GW_SPEC_WORDS][32];
    int n_words;
    gw_expr absent, null, must; /* when no key is there; when it is null; what has to hold */
    int file;                   /* where it was declared: inherited or own */
} gw_spec_number;

/* Numbers that the engine itself reads; a spec has them all (specs/llama.spec). */
typedef enum gw_reserved {
    GW_NUM_LAYERS,
    GW_NUM_D_MODEL,
    GW_NUM_VOCAB,
    GW_NUM_CONTEXT,
    GW_NUM_EPS,
    GW_NUM_TIED,
    GW_NUM_KIND,
    GW_NUM_HEADS,
    GW_NUM_KV_HEADS,
    GW_NUM_D_HEAD,
    GW_NUM_V_HEAD,
    GW_NUM_V_FIRST,
    GW_NUM_FF,
    GW_NUM_WINDOW,
    GW_NUM_CHUNK,
    GW_NUM_ROPE,
    GW_NUM_Q_FACTOR,
    GW_NUM_ATTN_SCALE,
    GW_NUM_ATTN_CAP,
    GW_NUM_EXPERTS,
    GW_NUM_USED,
    GW_NUM_EXPERT_FF,
    GW_NUM_CAUSAL,
    GW_NUM_SOURCE,
    GW_NUM_NAMED,
    GW_NUM_UNCOUNTED,
    GW_NUM_STREAMS,
    GW_NUM_RESERVED
} gw_reserved;

/* "gelu_new", "silu": 1 and *out, or 0. */
int gw_activation_known(const char *text, gw_act_kind *out);
const char *gw_reserved_name(gw_reserved number);

typedef struct gw_spec_rope {
    char name[24];
    gw_expr dim, turning, base, truncate, shorter, magnitude, rows, columns, spread;
    gw_rope_style style_hf, style_gguf;
    char scaling[GW_SPEC_KEYS][64]; /* objects of config.json that may hold the scaling */
    int n_scaling, scales;          /* scales 0: none, in no container */
} gw_spec_rope;

typedef struct gw_spec_factor { /* of q, by position */
    char name[24];
    gw_expr value;
} gw_spec_factor;

/* ---- weights */

/* clang-format off */
typedef enum gw_transform {
    GW_TRANSFORM_NONE, GW_TRANSFORM_PLUS_ONE, GW_TRANSFORM_EXP, GW_TRANSFORM_NEGATE,
    GW_TRANSFORM_SOFTPLUS, GW_TRANSFORM_SQRT, GW_TRANSFORM_TIMES,
    GW_TRANSFORM_XIELU, /* alpha_p, alpha_n, beta, eps as trained to what the activation takes */
    GW_TRANSFORM_SHIFT, /* shares m of the row before become taps m, 1 - m of a convolution */
    GW_TRANSFORM_INTEGERS, /* stored as 64-bit integers, or 32-bit ones */
    GW_TRANSFORM_RELATIVE /* [buckets, heads] by bucket of distance to [heads, distances]       */
} gw_transform;
/* clang-format on */

enum { GW_SPEC_TRANSFORMS = 3, GW_SPEC_WITH = 3 };

/* How a container stores a weight. */
typedef struct gw_spec_source {
    char name[80]; /* %d: the layer; a second %d: the expert. Folders: without the prefix */
    char with[GW_SPEC_WITH][80]; /* [n_with] tensors of the same shape behind it */
    int n_with;
    char scales[80]; /* of a matrix in two tensors: codes and their scales; "": in one       */
    gw_expr first, count, of; /* of every `of` stored rows, `count` from `first` on; no `of`: all */
    int transposed;           /* stored [columns, rows]                                           */
    gw_expr within, span;     /* transposed by heads: the columns of each are the stored rows from
                               * `within` on of every `span`; no `span`: one transposed matrix    */
    gw_transform transform[GW_SPEC_TRANSFORMS];
    gw_expr times;         /* of GW_TRANSFORM_TIMES */
    int quarters;          /* of each cut piece those of its rows in the order 2 0 3 1 */
    gw_expr buckets, both; /* of GW_TRANSFORM_RELATIVE; both: distances ahead have their own half */
    gw_expr folded;        /* stored columns are [columns / N, N], and become [N, columns / N] */
} gw_spec_source;

typedef struct gw_spec_weight {
    char role[24];
    gw_expr dim[3];
    int n_dim; /* 3: [experts, rows, columns]; a bias of experts is [experts, rows] with `stacked`
                */
    int stacked;
    int per_layer;
    int first; /* names of layers and others mix; outside of layers it is the first one's */
    int optional;
    int keep_float;   /* never converted: a router */
    int flat;         /* stored with more axes than it has */
    int wide;         /* the same, and they are those of a row: kernels of a convolution */
    int tall;         /* of as many rows as are stored     */
    int across;       /* of as many columns                */
    int alibi;        /* made, not stored: slopes of the heads */
    int sinusoid;     /* made: rows of sines and cosines of positions */
    gw_expr period;   /* of those: what the steps of frequency are counted in */
    gw_expr numbered; /* %d in names of a folder is this; no expression: the layer's number */
    int single;       /* of those: angles as single precision has them */
    int fallback;     /* index of the weight that serves when this one is absent; -1: none */
    int tied;         /* the fallback serves also when the checkpoint says that both are one */
    gw_spec_source hf[GW_SPEC_SOURCES], gguf[GW_SPEC_SOURCES];
    int n_hf, n_gguf;
    int file, hf_file, gguf_file;
} gw_spec_weight;

/* ---- blocks */

/* clang-format off */
typedef enum gw_block_kind {
    GW_BLOCK_EMBED, GW_BLOCK_NORM, GW_BLOCK_QKV, GW_BLOCK_ROPE_KV, GW_BLOCK_ATTENTION,
    GW_BLOCK_RESIDUAL, GW_BLOCK_GLU, GW_BLOCK_LINEAR, GW_BLOCK_MLP, GW_BLOCK_MIX, GW_BLOCK_ADD,
    GW_BLOCK_ROUTE, GW_BLOCK_EXPERTS, GW_BLOCK_POOL,
    GW_BLOCK_CONV, GW_BLOCK_DELTA, GW_BLOCK_SSM, GW_BLOCK_RETENTION, GW_BLOCK_WKV,
    GW_BLOCK_EXP_GATES, GW_BLOCK_DIVIDE, GW_BLOCK_NORM_GROUPS, GW_BLOCK_HEADS, GW_BLOCK_COLUMNS,
    GW_BLOCK_STREAMS, GW_BLOCK_SPARSE_GLU, GW_BLOCK_ACT, GW_BLOCK_HYPER,
    GW_BLOCK_ROTATE, GW_BLOCK_DOT, GW_BLOCK_COMPRESS, GW_BLOCK_CHOOSE, GW_BLOCK_LISTED,
    GW_BLOCK_NGRAM, GW_BLOCK_KINDS
} gw_block_kind;
/* clang-format on */

typedef enum gw_section {
    GW_SECTION_START,
    GW_SECTION_LAYER,
    GW_SECTION_HEAD,
    GW_SECTION_SCORE, /* of a whole text, behind the head's norms; its weights may be absent */
    GW_SECTIONS
} gw_section;

/* Flags of blocks. */
enum {
    GW_FLAG_LAYERNORM = 1 << 0,
    GW_FLAG_ADD = 1 << 1,   /* the result is added to the stream */
    GW_FLAG_ROW = 1 << 2,   /* norms of q, k over the whole row  */
    GW_FLAG_HEADS = 1 << 3, /* their weights are [heads, e]      */
    GW_FLAG_AFTER = 1 << 4,
    GW_FLAG_PLAIN = 1 << 5,
    GW_FLAG_NORM_V = 1 << 6,
    GW_FLAG_GATE_INPUT = 1 << 7,
    GW_FLAG_QUERY = 1 << 8,  /* q alone, of a layer that reads another one's cache */
    GW_FLAG_KEYS = 1 << 9,   /* k and v alone, for layers that read this one's cache */
    GW_FLAG_CROSS = 1 << 10, /* attention to the source text */
    GW_FLAG_BY_CHANNEL = 1 << 11,
    GW_FLAG_BEFORE = 1 << 12,  /* the gate comes before the norm */
    GW_FLAG_MEASURE = 1 << 13, /* what the norm divides by */
    GW_FLAG_BACK = 1 << 14,    /* by the negative angle    */
    GW_FLAG_ROOT = 1 << 15,    /* of a sum, with its sign  */
    GW_FLAG_WHOLE = 1 << 16,   /* choose: equal ones among the whole text's */
    GW_FLAG_LOWEST = 1 << 17,  /* choose: the lowest of equal ones */
    GW_FLAG_CENTER = 1 << 18   /* norm_groups: LayerNorm of each */
};

/* Slots of gw_spec_block.number. */
enum {
    GW_ARG_EPS = 0,
    GW_ARG_SCALE = 1,
    GW_ARG_CAP = 2,
    GW_ARG_LIMIT = 3,
    GW_ARG_ALPHA = 4,
    GW_ARG_USED = 0,
    GW_ARG_GROUPS = 2,
    GW_ARG_GROUPS_USED = 3,
    GW_ARG_BEST = 4,
    GW_ARG_RENORM = 5,
    GW_ARG_JITTER = 6,
    GW_ARG_OFFSET = 2,
    GW_ARG_CACHE = 3,  /* attention: the layer whose cache is read */
    GW_ARG_REACH = 4,  /* attention: of the bias by distance        */
    GW_ARG_KIND = 0,   /* pool: a gw_pick_kind                      */
    GW_ARG_SHARED = 5, /* attention: layers from this one on share caches */
    GW_ARG_TAPS = 2,
    GW_ARG_HEADS = 1, /* of delta, ssm, heads; of norm_groups how many groups */
    GW_ARG_KEYS = 3,
    GW_ARG_VALUES = 4,
    GW_ARG_LOW = 5,
    GW_ARG_HIGH = 6,
    GW_ARG_TILED = 7,
    GW_ARG_FIRST = 2, /* of heads, columns */
    GW_ARG_PASS = 3,
    GW_ARG_PASS_FIRST = 4,
    GW_ARG_WIDTH = 5,  /* of columns, compress */
    GW_ARG_INPUTS = 3, /* of streams: GW_ARG_HEADS are made, from GW_ARG_FIRST on */
    GW_ARG_PLUS = 4,
    GW_ARG_DEVIATIONS = 2,
    GW_ARG_APART = 3,  /* of conv */
    GW_ARG_ROUNDS = 2, /* of hyper: GW_ARG_HEADS streams */
    GW_ARG_TABLE = 3,  /* of rotate, compress: the rope */
    GW_ARG_FACTOR = 2, /* of dot: GW_ARG_HEADS groups */
    GW_ARG_RATIO = 1,  /* of compress, listed */
    GW_ARG_SERIES = 4,
    GW_ARG_MOST = 2, /* of choose: GW_ARG_HEADS query heads */
    GW_ARG_AREA = 3, /* of choose, listed */
    GW_ARG_BLOCKS = 4,
    GW_ARG_LOCAL = 5,
    GW_ARG_LISTS = 2, /* of listed */
    GW_ARG_SIZE = 0,  /* of ngram: GW_ARG_HEADS hashes of a length */
    GW_ARG_INDEX = 2,
    GW_ARG_BASE = 3,
    GW_ARG_SEED = 4,
    GW_ARG_END = 5,
    GW_ARG_STATED = 6, /* of ngram: the first multiplier */
    GW_SPEC_EXPRS = 8
};

enum { GW_VALUE_STREAM, GW_VALUE_LAST };

typedef struct gw_spec_block {
    int index;    /* among the blueprint's blocks */
    gw_expr when; /* it runs only where this is not 0; no expression: everywhere */
    gw_block_kind kind;
    gw_section section;
    int layer_kind;           /* of GW_SECTION_LAYER                                             */
    int weight[GW_SPEC_ARGS]; /* indices of weights, -1: none; slots by kind: spec_blocks.c      */
    int in, side, plus, out;  /* values: taken, the route or gate beside it, added, given */
    int more;                 /* the fourth of columns                                            */
    gw_expr number[GW_SPEC_EXPRS];
    unsigned flags;
    gw_act_kind act; /* when act_number is -1 */
    int act_number;  /* number that says which activation, or which score */
    gw_score score;
} gw_spec_block;

typedef struct gw_blueprint {
    char family[32];
    gw_expr_pool pool;
    gw_spec_number number[GW_SPEC_NUMBERS];
    int n_numbers;
    int reserved[GW_NUM_RESERVED]; /* index of each; -1 while it is not declared */
    gw_spec_rope rope[GW_MAX_ROPES];
    int n_ropes;
    gw_spec_factor factor[GW_MAX_FACTORS];
    int n_factors;
    gw_spec_weight weight[GW_SPEC_WEIGHTS];
    int n_weights;
    char kind[GW_SPEC_KINDS][24]; /* of layers */
    int n_kinds;
    gw_spec_block block[GW_SPEC_BLOCKS];
    int n_blocks;
    char value[GW_SPEC_VALUES][24];
    gw_expr width[GW_SPEC_VALUES]; /* of a kept value, which start gives to layers and head, or a
                                    * choose block to later layers */
    int n_values;
    int given; /* the last kept value that the engine gives: of each row the hidden state of the
                * token before it (session_hidden.h), or of a vision tower patches; -1: none */
    unsigned all_given; /* a bit for each value that the engine gives */
    char prefix[GW_SPEC_LISTED][40],
        skip[GW_SPEC_LISTED][40]; /* of names in folders; to pass over */
    int n_prefixes, n_skips;
} gw_blueprint;

/* Read the text of a spec. name: for messages, which read "NAME.spec:LINE". GW_E_SYNTAX. */
gw_status gw_blueprint_read(const char *name, const char *text, gw_blueprint *out);

/* Does the block run in this layer (n_layers: outside of them)? */
static inline int gw_block_runs(const gw_spec_block *b, const gw_hparams *hp, int layer) {
    int row = layer >= hp->n_layers ? hp->n_layers : layer;
    if (hp->skips != NULL && hp->skips[row * hp->n_blocks + b->index]) {
        return 0;
    }
    return layer >= hp->n_layers
               ? b->section != GW_SECTION_LAYER
               : b->section == GW_SECTION_LAYER &&
                     (b->layer_kind == hp->layer[layer].kind || b->layer_kind == hp->deep_kind - 1);
}
/* Floats that a sequence's state of this block takes in a layer; 0: it has none. */
uint64_t gw_block_state(const gw_blueprint *bp, const gw_hparams *hp, int layer, int block);
/* How many of them a sequence has where `entries` are asked for: of those that are small what their
 * kernels need to read several before they write one. */
int32_t gw_block_entries(const gw_blueprint *bp, const gw_hparams *hp, int layer, int block,
                         int32_t entries);
/* How many matrices the block multiplies one input with side by side: weight[0 .. n). */
int gw_block_matrices(const gw_spec_block *b);
/* A block of a layer whose value later layers may take as well (a line `value`). */
static inline int gw_block_hands_on(const gw_spec_block *b) {
    return b->section == GW_SECTION_LAYER &&
           (b->kind == GW_BLOCK_CHOOSE || b->kind == GW_BLOCK_COLUMNS);
}
/* Does the block read rows of a table for all layers beside the embedding, which is the first? Such
 * a table stays at home, in main memory; one of n-grams where it does not fit elsewhere. */
int gw_block_stays_home(const gw_blueprint *bp, const gw_spec_block *b);
/* What an ngram block hashes in a layer. */
gw_ngram_args gw_block_ngram(const gw_blueprint *bp, const gw_hparams *hp, int layer,
                             const gw_spec_block *b);
/* The area that a compress block keeps in a layer, but for where it begins. */
gw_area gw_block_area(const gw_blueprint *bp, const gw_hparams *hp, int layer,
                      const gw_spec_block *b);

/* An expression over the numbers of a layer; NaN where one of them is not stated. */
double gw_spec_value(const gw_blueprint *bp, const gw_hparams *hp, int layer, gw_expr e);
/* The same by position, for factors. */
double gw_spec_value_at(const gw_blueprint *bp, const gw_hparams *hp, gw_expr e, double position);
/* A number by its name, outside the layers; absent: where no line declares it, or none states it.
 */
double gw_spec_named_number(const gw_blueprint *bp, const gw_hparams *hp, const char *name,
                            double absent);
/* The same in a layer. */
double gw_spec_layer_number(const gw_blueprint *bp, const gw_hparams *hp, const char *name,
                            int layer, double absent);
/* One dimension of a weight; GW_E_METADATA when it is no number from 1 to 2^31. */
gw_status gw_spec_extent(const gw_blueprint *bp, const gw_hparams *hp, int layer,
                         const gw_spec_weight *w, gw_expr e, int64_t *out);

#endif
