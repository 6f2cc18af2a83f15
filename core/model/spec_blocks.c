/* core/model/spec_blocks.c - sections and blocks: one table says what each may be given. */
#include <string.h>

#include "core/model/spec_parts.h"

enum { MOST_OPTIONS = 12 };

/* A word of a block: 'w' takes `count` weights into slots from `slot` on, 'n' an expression, 'v' a
 * value, 'f' sets a flag. Weights of options may be optional ones. */
typedef struct option {
    const char *word;
    char type;
    int slot, count; /* of 'f': the flag */
} option;

/* Slots: embed: table, positions, types. norm: weight, bias, factor. qkv, linear, residual:
 * matrices, then from 3 their biases. rope_kv: norms of q and k. attention: sinks, slopes, bias.
 * glu: gate, up, then from 3 their biases. mlp: matrix, 1 parameters, 3 its bias. mix: 0 factor.
 * route: bias, factor. experts: gate, up, down, then from 3 their biases.
 * conv: taps, bias. delta: A, bias of the decay; ssm: the same and D. norm_groups, heads: the
 * weight. */
typedef struct block_rule {
    const char *name;
    gw_section first, last; /* sections where it may stand      */
    int acts;               /* an activation comes first        */
    int least, most;        /* roles behind it                  */
    int takes;              /* the value when `from` names none */
    int adds;               /* gives the stream                 */
    option options[MOST_OPTIONS];
} block_rule;

enum { NOTHING = -1 };

#define START GW_SECTION_START
#define LAYER GW_SECTION_LAYER
#define HEAD GW_SECTION_HEAD
#define SCORE GW_SECTION_SCORE
#define STREAM GW_VALUE_STREAM
#define LAST GW_VALUE_LAST
/* clang-format off */
static const block_rule rules[GW_BLOCK_KINDS] = {
    [GW_BLOCK_EMBED] = {"embed", START, LAYER, 0, 1, 1, NOTHING, 1,
        {{"scale", 'n', GW_ARG_SCALE, 1}, {"positions", 'w', 1, 1}, {"types", 'w', 2, 1},
         {"offset", 'n', GW_ARG_OFFSET, 1}}},
    [GW_BLOCK_NORM] = {"norm", START, SCORE, 0, 0, 1, STREAM, 0,
        {{"bias", 'w', 1, 1}, {"factor", 'w', 2, 1}, {"eps", 'n', GW_ARG_EPS, 1},
         {"layernorm", 'f', GW_FLAG_LAYERNORM, 0}, {"add", 'f', GW_FLAG_ADD, 0}}},
    [GW_BLOCK_QKV] = {"qkv", LAYER, LAYER, 0, 3, 3, LAST, 0, {{"bias", 'w', 3, 3}}},
    [GW_BLOCK_ROPE_KV] = {"rope_kv", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"norm", 'w', 0, 2}, {"row", 'f', GW_FLAG_ROW, 0}, {"heads", 'f', GW_FLAG_HEADS, 0},
         {"after", 'f', GW_FLAG_AFTER, 0}, {"plain", 'f', GW_FLAG_PLAIN, 0},
         {"norm_v", 'f', GW_FLAG_NORM_V, 0}, {"layernorm", 'f', GW_FLAG_LAYERNORM, 0},
         {"query", 'f', GW_FLAG_QUERY, 0}, {"keys", 'f', GW_FLAG_KEYS, 0},
         {"eps", 'n', GW_ARG_EPS, 1}}},
    [GW_BLOCK_ATTENTION] = {"attention", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"sinks", 'w', 0, 1}, {"slopes", 'w', 1, 1}, {"bias", 'w', 2, 1},
         {"reach", 'n', GW_ARG_REACH, 1}, {"cross", 'f', GW_FLAG_CROSS, 0},
         {"cache", 'n', GW_ARG_CACHE, 1}, {"shared", 'n', GW_ARG_SHARED, 1}}},
    [GW_BLOCK_RESIDUAL] = {"residual", LAYER, LAYER, 0, 1, 1, LAST, 1,
        {{"bias", 'w', 3, 1}, {"scale", 'n', GW_ARG_SCALE, 1}}},
    [GW_BLOCK_GLU] = {"glu", LAYER, HEAD, 1, 2, 2, LAST, 0,
        {{"bias", 'w', 3, 2}, {"limit", 'n', GW_ARG_LIMIT, 1}, {"alpha", 'n', GW_ARG_ALPHA, 1}}},
    [GW_BLOCK_LINEAR] = {"linear", START, SCORE, 0, 1, 3, LAST, 0, {{"bias", 'w', 3, 0}}},
    [GW_BLOCK_MLP] = {"mlp", LAYER, SCORE, 1, 1, 1, LAST, 0,
        {{"bias", 'w', 3, 1}, {"params", 'w', 1, 1}}},
    [GW_BLOCK_MIX] = {"mix", START, SCORE, 0, 0, 0, LAST, 0,
        {{"scale", 'n', GW_ARG_SCALE, 1}, {"cap", 'n', GW_ARG_CAP, 1}, {"factor", 'w', 0, 1},
         {"gate", 'v', 0, 1}, {"plus", 'v', 1, 1}, {"add", 'f', GW_FLAG_ADD, 0}}},
    [GW_BLOCK_ADD] = {"add", LAYER, LAYER, 0, 0, 0, LAST, 1, {{"scale", 'n', GW_ARG_SCALE, 1}}},
    [GW_BLOCK_ROUTE] = {"route", LAYER, LAYER, 1, 0, 0, LAST, 0,
        {{"used", 'n', GW_ARG_USED, 1}, {"scale", 'n', GW_ARG_SCALE, 1},
         {"groups", 'n', GW_ARG_GROUPS, 1}, {"groups_used", 'n', GW_ARG_GROUPS_USED, 1},
         {"best", 'n', GW_ARG_BEST, 1}, {"renorm", 'n', GW_ARG_RENORM, 1},
         {"jitter", 'n', GW_ARG_JITTER, 1}, {"bias", 'w', 0, 1}, {"factor", 'w', 1, 1},
         {"chosen", 'v', 0, 1}}},
    [GW_BLOCK_EXPERTS] = {"experts", LAYER, LAYER, 1, 3, 3, LAST, 0,
        {{"route", 'v', 0, 1}, {"bias", 'w', 3, 3}, {"limit", 'n', GW_ARG_LIMIT, 1},
         {"alpha", 'n', GW_ARG_ALPHA, 1}, {"gate_input", 'f', GW_FLAG_GATE_INPUT, 0},
         {"add", 'f', GW_FLAG_ADD, 0}}},
    [GW_BLOCK_POOL] = {"pool", SCORE, SCORE, 0, 0, 0, NOTHING, 0, {{"kind", 'n', GW_ARG_KIND, 1}}},
    [GW_BLOCK_CONV] = {"conv", LAYER, LAYER, 1, 1, 1, LAST, 0,
        {{"taps", 'n', GW_ARG_TAPS, 1}, {"apart", 'n', GW_ARG_APART, 1}, {"bias", 'w', 1, 1}}},
    [GW_BLOCK_DELTA] = {"delta", LAYER, LAYER, 0, 2, 2, LAST, 0,
        {{"decay", 'v', 0, 1}, {"beta", 'v', 1, 1}, {"heads", 'n', GW_ARG_HEADS, 1},
         {"groups", 'n', GW_ARG_GROUPS, 1}, {"keys", 'n', GW_ARG_KEYS, 1},
         {"values", 'n', GW_ARG_VALUES, 1}, {"tiled", 'n', GW_ARG_TILED, 1},
         {"channels", 'f', GW_FLAG_BY_CHANNEL, 0}, {"eps", 'n', GW_ARG_EPS, 1},
         {"low", 'n', GW_ARG_LOW, 1}}},
    [GW_BLOCK_SSM] = {"ssm", LAYER, LAYER, 0, 3, 3, LAST, 0,
        {{"steps", 'v', 0, 1}, {"heads", 'n', GW_ARG_HEADS, 1}, {"groups", 'n', GW_ARG_GROUPS, 1},
         {"keys", 'n', GW_ARG_KEYS, 1}, {"values", 'n', GW_ARG_VALUES, 1},
         {"low", 'n', GW_ARG_LOW, 1}, {"high", 'n', GW_ARG_HIGH, 1},
         {"tiled", 'n', GW_ARG_TILED, 1}, {"channels", 'f', GW_FLAG_BY_CHANNEL, 0}}},
    [GW_BLOCK_RETENTION] = {"retention", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"decay", 'v', 0, 1}, {"heads", 'n', GW_ARG_HEADS, 1}, {"groups", 'n', GW_ARG_GROUPS, 1},
         {"keys", 'n', GW_ARG_KEYS, 1}, {"values", 'n', GW_ARG_VALUES, 1}}},
    [GW_BLOCK_EXP_GATES] = {"exp_gates", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"heads", 'n', GW_ARG_HEADS, 1}}},
    [GW_BLOCK_DIVIDE] = {"divide", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"by", 'v', 0, 1}, {"least", 'v', 1, 1}, {"eps", 'n', GW_ARG_EPS, 1}}},
    [GW_BLOCK_WKV] = {"wkv", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"decay", 'v', 0, 1}, {"back", 'v', 1, 1}, {"heads", 'n', GW_ARG_HEADS, 1},
         {"keys", 'n', GW_ARG_KEYS, 1}, {"values", 'n', GW_ARG_VALUES, 1}}},
    [GW_BLOCK_NORM_GROUPS] = {"norm_groups", START, HEAD, 1, 1, 1, LAST, 0,
        {{"groups", 'n', GW_ARG_HEADS, 1}, {"gate", 'v', 0, 1}, {"eps", 'n', GW_ARG_EPS, 1},
         {"center", 'f', GW_FLAG_CENTER, 0}, {"bias", 'w', 1, 1},
         {"before", 'f', GW_FLAG_BEFORE, 0}, {"measure", 'f', GW_FLAG_MEASURE, 0}}},
    [GW_BLOCK_HEADS] = {"heads", LAYER, LAYER, 0, 1, 1, LAST, 0,
        {{"count", 'n', GW_ARG_HEADS, 1}, {"first", 'n', GW_ARG_FIRST, 1},
         {"pass", 'n', GW_ARG_PASS, 1}, {"pass_first", 'n', GW_ARG_PASS_FIRST, 1}}},
    [GW_BLOCK_COLUMNS] = {"columns", START, HEAD, 0, 0, 0, LAST, 0,
        {{"first", 'n', GW_ARG_FIRST, 1}, {"width", 'n', GW_ARG_WIDTH, 1}, {"and", 'v', 0, 1},
         {"then", 'v', 1, 1}, {"last", 'v', 2, 1}}},
    [GW_BLOCK_STREAMS] = {"streams", START, HEAD, 0, 0, 0, LAST, 0,
        {{"count", 'n', GW_ARG_HEADS, 1}, {"inputs", 'n', GW_ARG_INPUTS, 1}, {"coef", 'v', 0, 1},
         {"base", 'v', 1, 1}, {"plus", 'n', GW_ARG_PLUS, 1}, {"first", 'n', GW_ARG_FIRST, 1}}},
    [GW_BLOCK_SPARSE_GLU] = {"sparse_glu", LAYER, LAYER, 1, 0, 0, LAST, 0,
        {{"deviations", 'n', GW_ARG_DEVIATIONS, 1}}},
    [GW_BLOCK_ACT] = {"act", LAYER, HEAD, 1, 0, 0, LAST, 0,
        {{"params", 'w', 1, 1}, {"limit", 'n', GW_ARG_LIMIT, 1}}},
    [GW_BLOCK_HYPER] = {"hyper", LAYER, HEAD, 0, 2, 2, LAST, 0,
        {{"streams", 'n', GW_ARG_HEADS, 1}, {"rounds", 'n', GW_ARG_ROUNDS, 1},
         {"eps", 'n', GW_ARG_EPS, 1}}},
    [GW_BLOCK_ROTATE] = {"rotate", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"heads", 'n', GW_ARG_HEADS, 1}, {"first", 'n', GW_ARG_FIRST, 1},
         {"by", 'n', GW_ARG_TABLE, 1}, {"back", 'f', GW_FLAG_BACK, 0}}},
    [GW_BLOCK_DOT] = {"dot", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"with", 'v', 0, 1}, {"groups", 'n', GW_ARG_HEADS, 1}, {"scale", 'n', GW_ARG_FACTOR, 1},
         {"root", 'f', GW_FLAG_ROOT, 0}}},
    [GW_BLOCK_COMPRESS] = {"compress", LAYER, LAYER, 0, 1, 1, LAST, 0,
        {{"gates", 'w', 1, 1}, {"ratio", 'n', GW_ARG_RATIO, 1}, {"series", 'n', GW_ARG_SERIES, 1},
         {"first", 'n', GW_ARG_FIRST, 1}, {"by", 'n', GW_ARG_TABLE, 1},
         {"eps", 'n', GW_ARG_EPS, 1}, {"width", 'n', GW_ARG_WIDTH, 1}}},
    [GW_BLOCK_CHOOSE] = {"choose", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"weights", 'v', 0, 1}, {"heads", 'n', GW_ARG_HEADS, 1}, {"most", 'n', GW_ARG_MOST, 1},
         {"area", 'n', GW_ARG_AREA, 1}, {"whole", 'f', GW_FLAG_WHOLE, 0},
         {"lowest", 'f', GW_FLAG_LOWEST, 0}, {"blocks", 'n', GW_ARG_BLOCKS, 1},
         {"local", 'n', GW_ARG_LOCAL, 1}}},
    [GW_BLOCK_LISTED] = {"listed", LAYER, LAYER, 0, 0, 0, LAST, 0,
        {{"list", 'v', 0, 1}, {"sinks", 'w', 0, 1}, {"area", 'n', GW_ARG_AREA, 1},
         {"ratio", 'n', GW_ARG_RATIO, 1}, {"local", 'n', GW_ARG_LOCAL, 1},
         {"lists", 'n', GW_ARG_LISTS, 1}}},
    [GW_BLOCK_NGRAM] = {"ngram", LAYER, LAYER, 0, 1, 1, NOTHING, 0,
        {{"size", 'n', GW_ARG_SIZE, 1}, {"heads", 'n', GW_ARG_HEADS, 1},
         {"index", 'n', GW_ARG_INDEX, 1}, {"base", 'n', GW_ARG_BASE, 1},
         {"seed", 'n', GW_ARG_SEED, 1}, {"end", 'n', GW_ARG_END, 1},
         {"factor", 'n', GW_ARG_STATED, 1}}},
};
/* clang-format on */

/* ---- sections ------------------------------------------------------------------------------- */

static void drop_blocks(gw_blueprint *bp, gw_section section) {
    int n = 0;
    for (int b = 0; b < bp->n_blocks; b++) {
        if (bp->block[b].section != section) {
            bp->block[n++] = bp->block[b];
        }
    }
    bp->n_blocks = n;
}

/* A value that the stream's section ends with, or the head's. */
static gw_status leave(const gw_spec_reader *r) {
    if (r->pass == 2 && r->section == GW_SECTION_START && !(r->defined & 1u << STREAM)) {
        return gw_spec_fail(r, "the section start ends without a stream: it needs embed");
    }
    return GW_OK;
}

gw_status gw_spec_enter(gw_spec_reader *r, const gw_spec_line *l, gw_section section) {
    static const char *const names[] = {"start", "layer", "head", "score"};
    gw_blueprint *bp = r->out;
    if ((int)section < r->section || ((int)section == r->section && section != LAYER)) {
        return gw_spec_fail(r, "section '%s' is out of order: start, layer, head, score",
                            names[section]);
    }
    GW_TRY(leave(r));
    if (!r->own[section]) { /* a family's own sections replace inherited ones */
        r->own[section] = 1;
        if (r->pass == 2) {
            drop_blocks(bp, section);
        } else if (section == LAYER) {
            bp->n_kinds = 0;
        }
    }
    r->section = (int)section;
    r->defined = section == START || section == SCORE ? 0 : 1u << STREAM;
    for (int v = 0; v < bp->n_values; v++) {
        int kept = section == START ? (int)(bp->all_given >> v & 1) : bp->width[v].n > 0;
        r->defined |= kept ? 1u << v : 0u;
    }
    if (section != LAYER) {
        return GW_OK;
    }
    gw_spec_word name = l->n > 1 ? l->word[1] : (gw_spec_word){"layer", 5};
    int kind = 0;
    while (kind < bp->n_kinds && !gw_spec_is(name, bp->kind[kind])) {
        kind++;
    }
    if (r->pass == 1) {
        if (kind < bp->n_kinds || kind == GW_SPEC_KINDS) {
            return gw_spec_fail(r, "layer '%.*s' stands twice, or there are more than %d kinds",
                                name.n < 24 ? (int)name.n : 24, name.at, GW_SPEC_KINDS);
        }
        GW_TRY(gw_spec_copy(r, name, bp->kind[kind], sizeof bp->kind[kind], "name"));
        bp->n_kinds++;
    }
    r->kind = kind;
    return GW_OK;
}

/* ---- words of a block ----------------------------------------------------------------------- */

static gw_status read_role(const gw_spec_reader *r, gw_spec_word w, gw_section section, int spare,
                           int *out) {
    const gw_blueprint *bp = r->out;
    *out = -1;
    if (gw_spec_is(w, "-") && spare != 1) {
        return GW_OK;
    }
    int role = gw_spec_role(bp, w);
    if (role < 0) {
        return gw_spec_fail(r, "weight '%.*s' is not declared", w.n < 40 ? (int)w.n : 40, w.at);
    }
    if (bp->weight[role].per_layer && section != LAYER && !bp->weight[role].first) {
        return gw_spec_fail(r, "weight '%.*s' is per layer, which does not fit this section",
                            (int)w.n, w.at);
    }
    if (spare != 2 && bp->weight[role].optional) {
        return gw_spec_fail(r, "weight '%.*s' is optional, but this block cannot do without it",
                            (int)w.n, w.at);
    }
    *out = role;
    return GW_OK;
}

static gw_status read_value(const gw_spec_reader *r, gw_spec_word w, int *out) {
    for (int i = 0; i < r->out->n_values; i++) {
        if (gw_spec_is(w, r->out->value[i]) && (r->defined >> i & 1)) {
            *out = i;
            return GW_OK;
        }
    }
    return gw_spec_fail(r, "value '%.*s' was not given before in this section",
                        w.n < 40 ? (int)w.n : 40, w.at);
}

static gw_status name_value(gw_spec_reader *r, gw_spec_word w, int *out) {
    gw_blueprint *bp = r->out;
    int i = 0;
    while (i < bp->n_values && !gw_spec_is(w, bp->value[i])) {
        i++;
    }
    if (i == GW_SPEC_VALUES) {
        return gw_spec_fail(r, "more than %d values", GW_SPEC_VALUES);
    }
    if (i == bp->n_values) {
        GW_TRY(gw_spec_copy(r, w, bp->value[i], sizeof bp->value[i], "value"));
        bp->n_values++;
    }
    *out = i;
    return GW_OK;
}

static const option *option_of(const block_rule *rule, gw_spec_word w) {
    for (int i = 0; i < MOST_OPTIONS && rule->options[i].word != NULL; i++) {
        if (gw_spec_is(w, rule->options[i].word)) {
            return &rule->options[i];
        }
    }
    return NULL;
}

/* value NAME WIDTH [given]: start, a choose block or the engine gives it; layers and head may take
 * it. */
gw_status gw_spec_read_value(gw_spec_reader *r, const gw_spec_line *l) {
    int v = 0;
    if (l->n < 3) {
        return gw_spec_fail(r, "value needs a name and a width");
    }
    GW_TRY(name_value(r, l->word[1], &v));
    if (l->n > 3 && gw_spec_is(l->word[l->n - 1], "given")) {
        const char *from = l->word[2].at;
        gw_spec_word width = {from, (size_t)(l->word[l->n - 1].at - from)};
        r->out->given = v;
        r->out->all_given |= 1u << v;
        return r->pass == 1 ? GW_OK : gw_spec_expr(r, width, 0, 0, &r->out->width[v]);
    }
    return r->pass == 1 ? GW_OK : gw_spec_rest(r, l, 2, 0, 0, &r->out->width[v]);
}

/* A kept value has to be given by start, by the engine, or by a block that chooses. */
static gw_status check_kept(const gw_spec_reader *r) {
    const gw_blueprint *bp = r->out;
    for (int v = 0; v < bp->n_values; v++) {
        int given = bp->width[v].n == 0 || (bp->all_given >> v & 1), chosen = 0;
        for (int b = 0; b < bp->n_blocks; b++) {
            int chooses = gw_block_hands_on(&bp->block[b]) && bp->block[b].out == v;
            given |= chooses || (bp->block[b].section == START && bp->block[b].out == v);
            chosen += chooses && bp->width[v].n > 0;
        }
        if (!given) {
            return gw_spec_fail(r, "no block of start, choose or columns gives the value '%s'",
                                bp->value[v]);
        }
        if (chosen > 1) { /* it lies in one place */
            return gw_spec_fail(r, "two blocks give the value '%s'", bp->value[v]);
        }
    }
    return GW_OK;
}

/* The activation, or of route the score: a name, or a number that holds one. */
static gw_status read_act(const gw_spec_reader *r, gw_spec_word w, gw_spec_block *b) {
    static const char *const scores[] = {"softmax", "softmax_chosen", "sigmoid", "sqrt_softplus",
                                         "sparsemixer"};
    b->act_number = -1;
    for (int i = 0; b->kind == GW_BLOCK_ROUTE && i < 5; i++) {
        if (gw_spec_is(w, scores[i])) {
            b->score = (gw_score)i;
            return GW_OK;
        }
    }
    if (b->kind != GW_BLOCK_ROUTE && gw_activation_named(w.at, w.n, &b->act)) {
        return GW_OK;
    }
    b->act_number = gw_spec_number_of(r->out, w.at, w.n);
    return b->act_number >= 0
               ? GW_OK
               : gw_spec_fail(r, "'%.*s' is no %s and no number", w.n < 40 ? (int)w.n : 40, w.at,
                              b->kind == GW_BLOCK_ROUTE ? "score" : "activation");
}

static gw_status read_option(const gw_spec_reader *r, const gw_spec_line *l, int *at,
                             const block_rule *rule, int roles, gw_spec_block *b) {
    gw_spec_word w = l->word[*at];
    const option *o = option_of(rule, w);
    if (o == NULL) {
        return gw_spec_fail(r, "'%.*s' is no word of %s", w.n < 40 ? (int)w.n : 40, w.at,
                            rule->name);
    }
    int count = o->type == 'f' ? 0 : o->count > 0 ? o->count : roles;
    if (*at + count >= l->n) {
        return gw_spec_fail(r, "%s takes %d more after %s", rule->name, count, o->word);
    }
    for (int i = 0; i < count; i++) {
        gw_spec_word v = l->word[*at + 1 + i];
        if (o->type == 'w') {
            GW_TRY(read_role(r, v, b->section, 2, &b->weight[o->slot + i]));
        } else if (o->type == 'v') {
            GW_TRY(read_value(r, v, o->slot == 0 ? &b->side : o->slot == 1 ? &b->plus : &b->more));
        } else {
            GW_TRY(gw_spec_expr(r, v, 0, 0, &b->number[o->slot]));
        }
    }
    b->flags |= o->type == 'f' ? (unsigned)o->slot : 0u;
    *at += 1 + count;
    return GW_OK;
}

/* `from VALUE`, `-> VALUE` and `if EXPR`; 1: it was one of them. */
static gw_status read_flow(gw_spec_reader *r, const gw_spec_line *l, int *at, gw_spec_block *b,
                           int *found) {
    int from = gw_spec_is(l->word[*at], "from"), to = gw_spec_is(l->word[*at], "->");
    int when = gw_spec_is(l->word[*at], "if");
    *found = (from || to || when) && *at + 1 < l->n;
    if (*found && when) {
        GW_TRY(gw_spec_expr(r, l->word[*at + 1], 0, 0, &b->when));
        *at += 2;
    } else if (*found) {
        GW_TRY(from ? read_value(r, l->word[*at + 1], &b->in)
                    : name_value(r, l->word[*at + 1], &b->out));
        *at += 2;
    }
    return GW_OK;
}

static int is_role_place(const block_rule *rule, const gw_spec_line *l, int at, int roles) {
    return at < l->n && roles < rule->most && option_of(rule, l->word[at]) == NULL &&
           !gw_spec_is(l->word[at], "from") && !gw_spec_is(l->word[at], "->") &&
           !gw_spec_is(l->word[at], "if");
}

/* Values that a recurrent block cannot do without. */
static gw_status needs_values(const gw_spec_reader *r, const block_rule *rule,
                              const gw_spec_block *b) {
    static const struct {
        const char *first, *second;
    } needs[GW_BLOCK_KINDS] = {[GW_BLOCK_DELTA] = {"decay", "beta"},
                               [GW_BLOCK_SSM] = {"steps", NULL},
                               [GW_BLOCK_RETENTION] = {"decay", NULL},
                               [GW_BLOCK_WKV] = {"decay", "back"},
                               [GW_BLOCK_DIVIDE] = {"by", "least"}};
    const char *first = needs[b->kind].first, *second = needs[b->kind].second;
    if (first != NULL && (b->side < 0 || (second != NULL && b->plus < 0))) {
        return second != NULL ? gw_spec_fail(r, "%s needs '%s VALUE' and '%s VALUE'", rule->name,
                                             first, second)
                              : gw_spec_fail(r, "%s needs '%s VALUE'", rule->name, first);
    }
    return GW_OK;
}

static gw_status finish(gw_spec_reader *r, const block_rule *rule, gw_spec_block *b) {
    int adds = rule->adds || (b->flags & GW_FLAG_ADD);
    b->in = b->in >= 0 ? b->in : rule->takes;
    b->flags |= adds ? GW_FLAG_ADD : 0u;
    b->out = b->out >= 0 ? b->out : adds ? STREAM : LAST;
    if (b->in >= 0 && !(r->defined >> b->in & 1)) {
        return gw_spec_fail(r, "%s takes what the block before gives, and there is none",
                            rule->name);
    }
    if (b->kind == GW_BLOCK_EXPERTS && b->side < 0) {
        return gw_spec_fail(r, "experts needs 'route VALUE'");
    }
    if (b->kind == GW_BLOCK_DOT && b->side < 0) {
        return gw_spec_fail(r, "dot needs 'with VALUE'");
    }
    if (b->kind == GW_BLOCK_LISTED && b->side < 0 && b->number[GW_ARG_AREA].n == 0) {
        return gw_spec_fail(r, "listed needs 'list VALUE' or 'area NUMBER'");
    }
    if (b->kind == GW_BLOCK_COMPRESS && (b->weight[0] < 0) != (b->number[GW_ARG_WIDTH].n > 0)) {
        return gw_spec_fail(r, "compress needs a norm, or '-' and 'width NUMBER'");
    }
    if (b->kind == GW_BLOCK_ROUTE && b->number[GW_ARG_USED].n == 0) {
        return gw_spec_fail(r, "route needs 'used NUMBER'");
    }
    GW_TRY(needs_values(r, rule, b));
    r->defined |= 1u << b->out;
    return GW_OK;
}

static gw_status read_block(gw_spec_reader *r, const gw_spec_line *l, gw_block_kind kind) {
    const block_rule *rule = &rules[kind];
    if (r->section < (int)rule->first || r->section > (int)rule->last) {
        return gw_spec_fail(r, "%s may not stand in this section", rule->name);
    }
    if (r->pass == 1) {
        return GW_OK;
    }
    if (r->out->n_blocks == GW_SPEC_BLOCKS) {
        return gw_spec_fail(r, "more than %d blocks", GW_SPEC_BLOCKS);
    }
    gw_spec_block b = {.kind = kind,
                       .section = (gw_section)r->section,
                       .layer_kind = r->kind,
                       .in = -1,
                       .side = -1,
                       .plus = -1,
                       .more = -1,
                       .out = -1,
                       .act_number = -1};
    for (int i = 0; i < GW_SPEC_ARGS; i++) {
        b.weight[i] = -1;
    }
    int at = 1, roles = 0;
    if (rule->acts) {
        if (l->n < 2) {
            return gw_spec_fail(r, "%s needs its activation or score first", rule->name);
        }
        GW_TRY(read_act(r, l->word[at++], &b));
    }
    for (; is_role_place(rule, l, at, roles); roles++) {
        int bare =
            kind == GW_BLOCK_NORM || kind == GW_BLOCK_NORM_GROUPS || kind == GW_BLOCK_COMPRESS;
        int spare = kind == GW_BLOCK_EXPERTS || bare ? 0 : 1;
        GW_TRY(read_role(r, l->word[at++], b.section, spare, &b.weight[roles]));
    }
    if (roles < rule->least) {
        return gw_spec_fail(r, "%s takes %d weights", rule->name, rule->least);
    }
    while (at < l->n) {
        int found = 0;
        GW_TRY(read_flow(r, l, &at, &b, &found));
        GW_TRY(found ? GW_OK : read_option(r, l, &at, rule, roles, &b));
    }
    GW_TRY(finish(r, rule, &b));
    r->out->block[r->out->n_blocks++] = b;
    return GW_OK;
}

gw_status gw_spec_read_block(gw_spec_reader *r, const gw_spec_line *l, int *found) {
    for (int i = 0; i < GW_BLOCK_KINDS; i++) {
        if (gw_spec_is(l->word[0], rules[i].name)) {
            *found = 1;
            return read_block(r, l, (gw_block_kind)i);
        }
    }
    return GW_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Sections in order, also where a family has replaced one that it inherits. */
static void sort_blocks(gw_blueprint *bp) {
    for (int i = 1; i < bp->n_blocks; i++) {
        gw_spec_block b = bp->block[i];
        int k = i;
        for (; k > 0 && bp->block[k - 1].section > b.section; k--) {
            bp->block[k] = bp->block[k - 1];
        }
        bp->block[k] = b;
    }
    for (int i = 0; i < bp->n_blocks; i++) {
        bp->block[i].index = i;
    }
}

/* Does `source` say more than that all layers are a decoder's? */
static int may_encode(const gw_blueprint *bp) {
    int i = bp->reserved[GW_NUM_SOURCE];
    gw_expr e = i >= 0 ? bp->number[i].absent : (gw_expr){0, 0};
    return e.n > 1 || (e.n == 1 && (bp->pool.step[e.first].op != GW_EXPR_CONSTANT ||
                                    bp->pool.step[e.first].constant != 0.0));
}

gw_status gw_spec_check_end(const gw_spec_reader *r) {
    gw_blueprint *bp = r->out;
    sort_blocks(bp);
    int embeds = 0, blocks[GW_SPEC_KINDS] = {0};
    const gw_spec_block *end = NULL; /* of the head */
    for (int b = 0; b < bp->n_blocks; b++) {
        gw_block_kind kind = bp->block[b].kind;
        int begins = kind == GW_BLOCK_EMBED || kind == GW_BLOCK_COLUMNS ||
                     kind == GW_BLOCK_STREAMS || kind == GW_BLOCK_LINEAR;
        embeds += begins && bp->block[b].section == START && bp->block[b].out == STREAM;
        end = bp->block[b].section == HEAD ? &bp->block[b] : end;
        blocks[bp->block[b].layer_kind] += bp->block[b].section == LAYER;
    }
    for (int k = 0; k < bp->n_kinds; k++) {
        if (blocks[k] == 0) {
            return gw_spec_fail(r, "layer '%s' has no blocks", bp->kind[k]);
        }
    }
    int logits = end != NULL && (end->kind == GW_BLOCK_LINEAR || end->kind == GW_BLOCK_MIX);
    if (embeds != 1 || bp->n_kinds == 0 || !(logits || may_encode(bp))) {
        return gw_spec_fail(r,
                            "a spec needs start with one embed, layer, and a head that ends with "
                            "logits, linear or mix, unless it is an encoder's");
    }
    GW_TRY(check_kept(r));
    for (int i = 0; i < GW_NUM_RESERVED; i++) {
        if (bp->reserved[i] < 0) {
            return gw_spec_fail(r, "the number '%s' is not declared; 'like llama' has all",
                                gw_reserved_name((gw_reserved)i));
        }
    }
    return GW_OK;
}
