/* core/model/config.c - evaluates the number lines of a spec for every layer, and checks ranges. */
#include "core/model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what a container states ---------------------------------------------------------------- */

static const json_t *member(const json_t *object, const char *key, int dotted) {
    char part[64];
    for (const char *dot; dotted && object != NULL && (dot = strchr(key, '.')) != NULL;
         key = dot + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
        object = json_object_get(object, part);
    }
    return object != NULL ? json_object_get(object, key) : NULL;
}

const json_t *gw_facts_find(const gw_facts *facts, const char (*keys)[64], int n, int layer,
                            const char **key) {
    for (int i = 0; i < n; i++) {
        char name[80];
        const char *mark = strstr(keys[i], "%d");
        if (mark != NULL) {
            snprintf(name, sizeof name, "%.*s%d%s", (int)(mark - keys[i]), keys[i], layer,
                     mark + 2);
        } else {
            snprintf(name, sizeof name, "%s", keys[i]);
        }
        const json_t *v = member(facts->object, name, facts->in_folder);
        v = v == NULL && facts->outer != NULL ? member(facts->outer, name, 1) : v;
        if (v != NULL) {
            *key = keys[i];
            return v;
        }
    }
    return NULL;
}

int gw_facts_real(const json_t *value, double *out) {
    const char *word = json_string_value(json_object_get(value, "__float__"));
    if (word != NULL) {
        *out = strcmp(word, "Infinity") == 0    ? (double)INFINITY
               : strcmp(word, "-Infinity") == 0 ? -(double)INFINITY
                                                : (double)NAN;
        return 1;
    }
    *out = json_is_number(value) ? json_number_value(value) : 0.0;
    return json_is_number(value);
}

/* ---- one number ----------------------------------------------------------------------------- */

enum { UNREAD, READING, READ };

typedef struct reading {
    const gw_facts *facts;
    const gw_blueprint *bp;
    int layer;
    double *row; /* [n_numbers] of the layer */
    unsigned char state[GW_SPEC_NUMBERS];
    unsigned char missing[GW_SPEC_NUMBERS];
} reading;

static const json_t *stated(const reading *r, const gw_spec_number *x, const char **key) {
    gw_facts outer = *r->facts;
    if (outer.outer != NULL && x == &r->bp->number[r->bp->reserved[GW_NUM_TIED]]) {
        /* The class of the whole model ties its weights, or does not. */
        outer.object = r->facts->outer;
        outer.outer = r->facts->object;
        return gw_facts_find(&outer, x->hf, x->n_hf, r->layer, key);
    }
    return r->facts->in_folder ? gw_facts_find(r->facts, x->hf, x->n_hf, r->layer, key)
                               : gw_facts_find(r->facts, x->gguf, x->n_gguf, r->layer, key);
}

static gw_status wrong(const reading *r, const char *key, const char *want) {
    return gw_fail(GW_E_TYPE, r->facts->where, "\"%s\" must be %s", key, want);
}

static gw_status word_of(const reading *r, const gw_spec_number *x, const char *key,
                         const char *text, double *out) {
    gw_act_kind act;
    if (x->type == GW_NUMBER_ACTIVATION && gw_activation_known(text, &act)) {
        *out = act;
        return GW_OK;
    }
    for (int i = 0; i < x->n_words; i++) {
        if (strcmp(text, x->words[i]) == 0) {
            *out = i;
            return GW_OK;
        }
    }
    return gw_fail(GW_E_UNSUPPORTED, r->facts->where, "%s: %.64s is not supported", key, text);
}

/* The index among the words of the letter that the layer has in a text. */
static gw_status letter_of(const reading *r, const gw_spec_number *x, const char *key,
                           const json_t *v, double *out) {
    const char *text = json_string_value(v);
    if (text == NULL || (size_t)r->layer >= strlen(text)) {
        return text == NULL
                   ? wrong(r, key, "a text with a letter for each layer")
                   : gw_fail(GW_E_METADATA, r->facts->where,
                             "%s has %zu letters; layer %d has none", key, strlen(text), r->layer);
    }
    const char letter[2] = {text[r->layer], '\0'};
    return word_of(r, x, key, letter, out);
}

/* A list is of any numbers, of true and false, or of words. */
static gw_status item_of(const reading *r, const gw_spec_number *x, const char *key,
                         const json_t *v, double *out) {
    if (x->n_words > 0 && json_is_string(v)) {
        return word_of(r, x, key, json_string_value(v), out);
    }
    if (x->n_words == 0 && json_is_boolean(v)) {
        *out = json_is_true(v);
        return GW_OK;
    }
    return x->n_words == 0 && gw_facts_real(v, out)
               ? GW_OK
               : wrong(r, key, x->n_words > 0 ? "a list of words" : "a list of numbers");
}

/* One value that the file states. */
static gw_status convert(const reading *r, const gw_spec_number *x, const char *key,
                         const json_t *v, double *out) {
    int real = gw_facts_real(v, out);
    switch (x->type) {
    case GW_NUMBER_FLAG:
        if (!json_is_boolean(v) && !(json_is_integer(v) && json_integer_value(v) >> 1 == 0 &&
                                     strcmp(x->name, "tied") != 0)) {
            return wrong(r, key, "true or false");
        }
        *out = json_is_true(v) || (json_is_integer(v) && json_integer_value(v) == 1);
        return GW_OK;
    case GW_NUMBER_LIST:
        return item_of(r, x, key, v, out);
    case GW_NUMBER_LETTER:
        return letter_of(r, x, key, v, out);
    case GW_NUMBER_INTEGER:
        if (!real || (!r->facts->in_folder && !json_is_integer(v)) ||
            !(*out >= -0x1p53 && *out <= 0x1p53 && *out == floor(*out))) {
            return json_is_integer(v) ? gw_fail(GW_E_METADATA, r->facts->where,
                                                "%s is %" PRId64 ", which is out of range", key,
                                                (int64_t)json_integer_value(v))
                                      : wrong(r, key, "an integer");
        }
        return GW_OK;
    case GW_NUMBER_REAL:
        return !real || (!r->facts->in_folder && json_is_integer(v)) ? wrong(r, key, "a number")
                                                                     : GW_OK;
    default:
        return json_is_string(v) ? word_of(r, x, key, json_string_value(v), out)
                                 : wrong(r, key, "a word");
    }
}

static gw_status number_of(void *user, int number, double *out);
static gw_status list_of(void *user, gw_expr_op op, int number, double argument, double *out);

static gw_status evaluate(reading *r, gw_expr e, double *out) {
    gw_expr_scope scope = {.layer = r->layer,
                           .in_folder = r->facts->in_folder,
                           .number = number_of,
                           .list = list_of,
                           .user = r};
    return gw_expr_evaluate(&r->bp->pool, e, &scope, out);
}

/* A number alone is a list of one. */
static size_t length(const json_t *v) { return json_is_number(v) ? 1 : json_array_size(v); }
static const json_t *item(const json_t *v, size_t i) {
    return json_is_number(v) ? v : json_array_get(v, i);
}

/* From the file, or by the expression behind `=`; *missing when there is neither. */
static gw_status read_number(reading *r, const gw_spec_number *x, double *out, int *missing) {
    const char *key = x->name;
    const json_t *v = stated(r, x, &key);
    if (x->type == GW_NUMBER_LIST) {
        *out = (double)(json_is_object(v) ? json_object_size(v) : length(v));
        return v == NULL || json_is_null(v) || json_is_array(v) || json_is_object(v) ||
                       json_is_number(v)
                   ? GW_OK
                   : wrong(r, key, "a list");
    }
    if (json_is_array(v)) { /* one for each layer */
        size_t n = json_array_size(v);
        if ((size_t)r->layer >= n) {
            return gw_fail(GW_E_METADATA, r->facts->where, "%s has %zu values; layer %d has none",
                           key, n, r->layer);
        }
        v = json_array_get(v, (size_t)r->layer);
    }
    if (json_is_null(v) && x->null.n > 0) {
        return evaluate(r, x->null, out);
    }
    if (v != NULL && !json_is_null(v)) {
        return convert(r, x, key, v, out);
    }
    if (x->absent.n > 0) {
        return evaluate(r, x->absent, out);
    }
    *missing = 1;
    *out = (double)NAN;
    return GW_OK;
}

static const char *key_text(const reading *r, const gw_spec_number *x) {
    int hf = r->facts->in_folder;
    return (hf ? x->n_hf : x->n_gguf) > 0 ? (hf ? x->hf[0] : x->gguf[0]) : x->name;
}

static gw_status fill(reading *r, int number) {
    const gw_spec_number *x = &r->bp->number[number];
    int missing = 0;
    double y = 0.0, holds = 1.0;
    r->state[number] = READING;
    GW_TRY(read_number(r, x, &y, &missing));
    r->row[number] = y;
    r->missing[number] = (unsigned char)missing;
    r->state[number] = READ;
    if (x->must.n > 0 && !missing) {
        GW_TRY(evaluate(r, x->must, &holds));
        if (!(holds != 0.0)) {
            return gw_fail(GW_E_UNSUPPORTED, r->facts->where, "%s is %g, which is not supported",
                           key_text(r, x), y);
        }
    }
    return GW_OK;
}

static gw_status number_of(void *user, int number, double *out) {
    reading *r = user;
    const gw_spec_number *x = &r->bp->number[number];
    if (r->state[number] == READING) {
        return gw_fail(GW_E_SYNTAX, r->bp->family, "the number '%s' depends on itself", x->name);
    }
    if (r->state[number] == UNREAD) {
        GW_TRY(fill(r, number));
    }
    if (r->missing[number]) {
        return gw_fail(GW_E_METADATA, r->facts->where, "the number '%s' is not stated (%s)",
                       x->name, key_text(r, x));
    }
    *out = r->row[number];
    return GW_OK;
}

/* Questions to a list as the file states it: another than one value for each layer. */
static gw_status list_of(void *user, gw_expr_op op, int number, double argument, double *out) {
    reading *r = user;
    const gw_spec_number *x = &r->bp->number[number];
    const char *key = x->name;
    const json_t *v = stated(r, x, &key);
    size_t n = length(v);
    *out = op == GW_EXPR_GIVEN ? v != NULL && !json_is_null(v) : (double)n;
    if (op == GW_EXPR_GIVEN || op == GW_EXPR_COUNT) {
        return GW_OK;
    }
    if (op == GW_EXPR_AT) {
        if (!(argument >= 0.0 && argument < (double)n)) {
            return gw_fail(GW_E_METADATA, r->facts->where, "%s has %zu values; number %g is asked",
                           key, n, argument);
        }
        const json_t *at = item(v, (size_t)argument);
        return json_is_null(at) && x->null.n > 0 ? evaluate(r, x->null, out)
                                                 : convert(r, x, key, at, out);
    }
    int has = 0;
    for (size_t i = 0; i < n; i++) {
        double y = 0.0;
        GW_TRY(convert(r, x, key, item(v, i), &y));
        has |= y == argument;
    }
    *out = has;
    return GW_OK;
}

static gw_status read_layer(const gw_facts *facts, const gw_blueprint *bp, int layer, double *row) {
    reading r = {.facts = facts, .bp = bp, .layer = layer, .row = row};
    for (int i = 0; i < bp->n_numbers; i++) {
        if (r.state[i] == UNREAD) {
            GW_TRY(fill(&r, i));
        }
    }
    return GW_OK;
}

/* ---- ranges --------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    double low, high;
} ranges[GW_NUM_RESERVED] = {
    [GW_NUM_LAYERS] = {"number of layers", 1, 4096},
    [GW_NUM_D_MODEL] = {"model width", 1, 1 << 20},
    [GW_NUM_VOCAB] = {"vocabulary size", 1, 1 << 24},
    [GW_NUM_CONTEXT] = {"context length", 1, 1 << 30},
    [GW_NUM_EPS] = {"norm epsilon", 0, 1},
    [GW_NUM_TIED] = {"sign of tied embeddings", 0, 1},
    [GW_NUM_KIND] = {"kind of layer", 0, GW_SPEC_KINDS - 1},
    [GW_NUM_HEADS] = {"number of attention heads", 1, 1 << 14},
    [GW_NUM_KV_HEADS] = {"number of key-value heads", 1, 1 << 14},
    [GW_NUM_D_HEAD] = {"width of a head", 2, 1 << 13},
    [GW_NUM_V_HEAD] = {"width of a value head", 2, 1 << 13},
    [GW_NUM_V_FIRST] = {"column of a key where the value begins", -1, 1 << 13},
    [GW_NUM_FF] = {"feed-forward width", 1, 1 << 24},
    [GW_NUM_WINDOW] = {"sliding window", 0, 1 << 30},
    [GW_NUM_CHUNK] = {"attention chunk", -1, 1 << 30},
    [GW_NUM_ROPE] = {"kind of rope", -1, GW_MAX_ROPES - 1},
    [GW_NUM_Q_FACTOR] = {"factor of q", -1, GW_MAX_FACTORS - 1},
    [GW_NUM_ATTN_SCALE] = {"scale of attention", 1e-9, 1e9},
    [GW_NUM_ATTN_CAP] = {"cap of attention", 0, 1e9},
    [GW_NUM_EXPERTS] = {"number of experts", 0, 1 << 14},
    [GW_NUM_USED] = {"number of experts used", 0, 256},
    [GW_NUM_EXPERT_FF] = {"width of an expert", 0, 1 << 24},
    [GW_NUM_CAUSAL] = {"sign of causal attention", 0, 1},
    [GW_NUM_SOURCE] = {"number of layers for a source", 0, 4096},
    [GW_NUM_NAMED] = {"number of a layer in names", 0, 4096},
    [GW_NUM_UNCOUNTED] = {"token without a position", -1, 1 << 24},
    [GW_NUM_STREAMS] = {"number of streams", 1, 8}};

static gw_status in_range(const gw_facts *facts, const gw_blueprint *bp, const double *row,
                          gw_reserved which, double *out) {
    double x = row[bp->reserved[which]], low = ranges[which].low, high = ranges[which].high;
    /* A window as long as the largest context hides nothing. */
    x = (which == GW_NUM_WINDOW || which == GW_NUM_CHUNK) && x > high ? 0.0 : x;
    int real = which == GW_NUM_EPS || which == GW_NUM_ATTN_SCALE || which == GW_NUM_ATTN_CAP;
    if (isnan(x)) {
        return gw_fail(GW_E_METADATA, facts->where, "the %s is not stated, or no number",
                       ranges[which].what);
    }
    if (!(x >= low && x <= high) || (!real && x != floor(x))) {
        return gw_fail(GW_E_METADATA, facts->where, "the %s is %.12g; %g to %.12g is possible",
                       ranges[which].what, x, low, high);
    }
    *out = x;
    return GW_OK;
}

static gw_status take_int(const gw_facts *facts, const gw_blueprint *bp, const double *row,
                          gw_reserved which, int32_t *out) {
    double x = 0.0;
    GW_TRY(in_range(facts, bp, row, which, &x));
    *out = (int32_t)x;
    return GW_OK;
}

static gw_status take_float(const gw_facts *facts, const gw_blueprint *bp, const double *row,
                            gw_reserved which, float *out) {
    double x = 0.0;
    GW_TRY(in_range(facts, bp, row, which, &x));
    *out = (float)x;
    return GW_OK;
}

static gw_status check_heads(const gw_facts *facts, const gw_hparams *hp, const gw_layer *l) {
    if (l->n_heads % l->n_kv_heads != 0) {
        return gw_fail(GW_E_METADATA, facts->where,
                       "%d attention heads do not share %d key-value heads", l->n_heads,
                       l->n_kv_heads);
    }
    if (l->d_head % 2 != 0) {
        return gw_fail(GW_E_METADATA, facts->where, "the width of a head is %d; it must be even",
                       l->d_head);
    }
    if ((int64_t)l->n_heads * (l->d_head > l->v_head ? l->d_head : l->v_head) > 1 << 24) {
        return gw_fail(GW_E_METADATA, facts->where, "%d heads of %d are too wide", l->n_heads,
                       l->d_head);
    }
    if (l->v_first > l->d_head - l->v_head) {
        return gw_fail(GW_E_METADATA, facts->where,
                       "a value of %d columns from column %d on is not part of a key of %d",
                       l->v_head, l->v_first, l->d_head);
    }
    if (l->n_used > l->n_experts) {
        return gw_fail(GW_E_METADATA, facts->where, "%d of %d experts cannot be used", l->n_used,
                       l->n_experts);
    }
    (void)hp;
    return GW_OK;
}

static gw_status settle_layer(const gw_facts *facts, const gw_blueprint *bp, const double *row,
                              const gw_hparams *hp, gw_layer *l) {
    const struct {
        gw_reserved which;
        int32_t *to;
    } whole[] = {{GW_NUM_KIND, &l->kind},
                 {GW_NUM_HEADS, &l->n_heads},
                 {GW_NUM_KV_HEADS, &l->n_kv_heads},
                 {GW_NUM_D_HEAD, &l->d_head},
                 {GW_NUM_V_HEAD, &l->v_head},
                 {GW_NUM_V_FIRST, &l->v_first},
                 {GW_NUM_FF, &l->d_ff},
                 {GW_NUM_WINDOW, &l->window},
                 {GW_NUM_CHUNK, &l->chunk},
                 {GW_NUM_ROPE, &l->rope},
                 {GW_NUM_Q_FACTOR, &l->q_factor},
                 {GW_NUM_EXPERTS, &l->n_experts},
                 {GW_NUM_USED, &l->n_used},
                 {GW_NUM_EXPERT_FF, &l->d_expert},
                 {GW_NUM_CAUSAL, &l->causal},
                 {GW_NUM_NAMED, &l->named}};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        GW_TRY(take_int(facts, bp, row, whole[i].which, whole[i].to));
    }
    GW_TRY(take_float(facts, bp, row, GW_NUM_ATTN_SCALE, &l->attn_scale));
    GW_TRY(take_float(facts, bp, row, GW_NUM_ATTN_CAP, &l->attn_cap));
    if (l->kind >= bp->n_kinds || l->rope >= bp->n_ropes || l->q_factor >= bp->n_factors) {
        return gw_fail(GW_E_METADATA, facts->where,
                       "family %s has no layers, rope or factor of kind %d, %d, %d", bp->family,
                       l->kind, l->rope, l->q_factor);
    }
    return check_heads(facts, hp, l);
}

/* Where the conditions of blocks hold; those outside the layers by the numbers of the first. */
static gw_status settle_blocks(const gw_blueprint *bp, gw_arena *arena, const char *where,
                               gw_hparams *hp) {
    hp->n_blocks = bp->n_blocks;
    for (int k = 0; k < bp->n_kinds; k++) {
        hp->deep_kind = strcmp(bp->kind[k], "deep") == 0 ? k + 1 : hp->deep_kind;
    }
    hp->skips = gw_arena_array(arena, (size_t)(hp->n_layers + 1) * (size_t)bp->n_blocks, 1);
    if (hp->skips == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for %d layers", hp->n_layers);
    }
    for (int i = 0; i < (hp->n_layers + 1) * bp->n_blocks; i++) {
        const gw_spec_block *b = &bp->block[i % bp->n_blocks];
        int layer = i / bp->n_blocks;
        int asks =
            b->when.n > 0 && (layer == hp->n_layers ? b->section != GW_SECTION_LAYER
                                                    : b->section == GW_SECTION_LAYER &&
                                                          (b->layer_kind == hp->layer[layer].kind ||
                                                           b->layer_kind == hp->deep_kind - 1));
        double holds = asks ? gw_spec_value(bp, hp, layer == hp->n_layers ? 0 : layer, b->when) : 1;
        hp->skips[i] = !(holds != 0.0);
    }
    for (int i = 0; i < hp->n_layers * bp->n_blocks; i++) {
        const gw_spec_block *b = &bp->block[i % bp->n_blocks];
        gw_layer *l = &hp->layer[i / bp->n_blocks];
        int layer = i / bp->n_blocks, block = i % bp->n_blocks;
        uint64_t state = gw_block_state(bp, hp, layer, block) * sizeof(float);
        int32_t least = gw_block_entries(bp, hp, layer, block, GW_STATE_LEAST);
        hp->state_bytes += state * GW_STATE_ENTRIES;
        hp->least_state_bytes += state * (state > 0 ? (uint64_t)least : 0);
        if (b->kind == GW_BLOCK_COMPRESS && gw_block_runs(b, hp, i / bp->n_blocks)) {
            if (l->n_areas == GW_MAX_AREAS) {
                return gw_fail(GW_E_METADATA, where, "layer %d has more than %d compress blocks",
                               i / bp->n_blocks, GW_MAX_AREAS);
            }
            gw_area a = gw_block_area(bp, hp, i / bp->n_blocks, b);
            a.at = (int)gw_layer_paged(l);
            l->area[l->n_areas++] = a;
        }
    }
    return GW_OK;
}

static int same_cache(const gw_layer *a, const gw_layer *b) {
    return a->n_kv_heads == b->n_kv_heads && a->d_head == b->d_head && a->v_head == b->v_head &&
           a->v_first == b->v_first && a->window == b->window && a->chunk == b->chunk &&
           a->rope == b->rope;
}

/* How far back each cache is read: as far as the layer that looks back farthest, whose own windows
 * or chunks say so. A block that names the cache of another layer may see all of it. */
static void settle_reach(const gw_blueprint *bp, gw_hparams *hp) {
    int bounded = hp->n_source == 0;
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        bounded =
            bounded && (block->kind != GW_BLOCK_ATTENTION || block->number[GW_ARG_CACHE].n == 0);
    }
    for (int i = 0; i < hp->n_layers; i++) {
        const gw_layer *l = &hp->layer[i];
        int32_t chunk = l->chunk > 0 ? l->chunk : 0;
        int32_t window = l->window > 0 ? l->window : chunk;
        int32_t seen = chunk > 0 && chunk < window ? chunk : window;
        gw_layer *cache = &hp->layer[l->cache_of];
        int first = l->cache_of == i;
        if (!bounded || !l->causal || seen == 0) {
            cache->reach = 0;
        } else if (first || (cache->reach > 0 && seen > cache->reach)) {
            cache->reach = seen;
        }
    }
}

/* Which layers have a cache; those behind a block's `shared N` read that of the last one before
 * layer N that is of their shape and sees as far. */
static gw_status settle_caches(const gw_facts *facts, const gw_blueprint *bp, gw_hparams *hp) {
    for (int i = 0; i < hp->n_layers; i++) {
        gw_layer *l = &hp->layer[i];
        int keys = 0, fills = 0, attends = 0;
        l->cache_of = i;
        for (int b = 0; b < bp->n_blocks; b++) {
            const gw_spec_block *block = &bp->block[b];
            int runs = gw_block_runs(block, hp, i);
            keys |= runs && block->kind == GW_BLOCK_ROPE_KV && (block->flags & GW_FLAG_KEYS);
            fills |= runs && block->kind == GW_BLOCK_ROPE_KV && !(block->flags & GW_FLAG_QUERY);
            attends |=
                runs && (block->kind == GW_BLOCK_ATTENTION || block->kind == GW_BLOCK_LISTED);
            l->has_cache |= runs && block->kind == GW_BLOCK_LISTED;
            if (!runs || block->kind != GW_BLOCK_ATTENTION || (block->flags & GW_FLAG_CROSS)) {
                continue;
            }
            gw_expr first = block->number[GW_ARG_SHARED];
            double own = first.n > 0 ? gw_spec_value(bp, hp, i, first) : hp->n_layers;
            int from = i < own ? i : (int)own - 1;
            while (from >= 0 && from < i &&
                   !(hp->layer[from].has_cache && same_cache(&hp->layer[from], l))) {
                from--;
            }
            if (from < 0) {
                return gw_fail(GW_E_METADATA, facts->where,
                               "layer %d has no layer before layer %g whose cache it could read", i,
                               own);
            }
            l->cache_of = from;
            l->has_cache = from == i;
        }
        l->has_cache |= keys;
        if (fills && !attends && !keys) {
            return gw_fail(GW_E_METADATA, facts->where,
                           "layer %d has rope_kv and no attention behind it", i);
        }
    }
    settle_reach(bp, hp);
    return GW_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Are positions learned? Only then is a padding token passed over. */
static int has_places(const gw_blueprint *bp) {
    int has = 0;
    for (int b = 0; b < bp->n_blocks; b++) {
        has |= bp->block[b].kind == GW_BLOCK_EMBED && bp->block[b].weight[1] >= 0;
    }
    return has;
}

static gw_status settle_model(const gw_facts *facts, const gw_blueprint *bp, const double *row,
                              gw_hparams *hp) {
    int32_t tied = 0;
    GW_TRY(take_int(facts, bp, row, GW_NUM_D_MODEL, &hp->d_model));
    GW_TRY(take_int(facts, bp, row, GW_NUM_STREAMS, &hp->n_streams));
    GW_TRY(take_int(facts, bp, row, GW_NUM_VOCAB, &hp->n_vocab));
    GW_TRY(take_int(facts, bp, row, GW_NUM_CONTEXT, &hp->n_ctx));
    GW_TRY(take_float(facts, bp, row, GW_NUM_EPS, &hp->norm_eps));
    GW_TRY(take_int(facts, bp, row, GW_NUM_SOURCE, &hp->n_source));
    GW_TRY(take_int(facts, bp, row, GW_NUM_UNCOUNTED, &hp->uncounted));
    hp->uncounted = has_places(bp) ? hp->uncounted : -1;
    if (hp->n_source > hp->n_layers) {
        return gw_fail(GW_E_METADATA, facts->where, "%d of %d layers for a source", hp->n_source,
                       hp->n_layers);
    }
    GW_TRY(take_int(facts, bp, row, GW_NUM_TIED, &tied));
    hp->tied = tied;
    return GW_OK;
}

gw_status gw_config_read(const gw_facts *facts, const gw_blueprint *bp, gw_arena *arena,
                         gw_hparams *out) {
    gw_hparams hp = {.n_values = bp->n_numbers, .in_folder = facts->in_folder};
    double first[GW_SPEC_NUMBERS];
    snprintf(hp.family, sizeof hp.family, "%s", bp->family);
    GW_TRY(read_layer(facts, bp, 0, first));
    GW_TRY(take_int(facts, bp, first, GW_NUM_LAYERS, &hp.n_layers));
    GW_TRY(settle_model(facts, bp, first, &hp));
    hp.values =
        gw_arena_array(arena, (size_t)hp.n_layers * (size_t)bp->n_numbers, sizeof *hp.values);
    hp.layer = gw_arena_array(arena, (size_t)hp.n_layers, sizeof *hp.layer);
    if (hp.values == NULL || hp.layer == NULL) {
        return gw_fail(GW_E_NOMEM, facts->where, "no memory for %d layers", hp.n_layers);
    }
    for (int l = 0; l < hp.n_layers; l++) {
        double *row = hp.values + (size_t)l * (size_t)bp->n_numbers;
        GW_TRY(read_layer(facts, bp, l, row));
        GW_TRY(settle_layer(facts, bp, row, &hp, &hp.layer[l]));
    }
    GW_TRY(settle_blocks(bp, arena, facts->where, &hp));
    GW_TRY(settle_caches(facts, bp, &hp));
    GW_TRY(gw_config_ropes(facts, bp, arena, &hp));
    *out = hp;
    return GW_OK;
}
