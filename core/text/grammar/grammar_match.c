/* core/text/grammar/grammar_match.c - a text token by token: the state, states that are held, and
 * which tokens may follow. See grammar.h. */
#include "core/text/grammar/grammar_stacks.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
enum { MASK_BYTES = 8 << 20, MASKS_MIN = 8, MASKS_MAX = 1024 };

typedef struct known_mask {
    uint32_t state; /* 0: none */
    uint32_t n_text;
    uint32_t
        farthest; /* bytes until the text may end behind a token of it, at most; NONE: unknown */
} known_mask;

struct gw_matcher {
    const gw_program *p;
    const gw_token_tree *tree;
    const int32_t *ends;
    size_t n_ends;
    size_t n_tokens;
    gw_stacks *stacks;
    uint32_t held[GW_MATCHER_KEPT + 1]; /* the last is the current one */
    uint64_t *bits;                     /* [n_masks + 1, words + 1]; the last: within a limit */
    known_mask *masks;                  /* [n_masks]: a state has one place */
    size_t n_masks, words;
    uint32_t *states;      /* [deepest + 2] along a path of the tree */
    const uint32_t **rows; /* [deepest + 2] theirs, NULL: not looked up */
};

static uint32_t *current(gw_matcher *m) { return &m->held[GW_MATCHER_KEPT]; }

/* ---- life ------------------------------------------------------------------------------------ */

gw_status gw_matcher_new(const gw_program *program, const gw_token_tree *tree, const int32_t *ends,
                         size_t n_ends, int32_t n_vocab, gw_matcher **out) {
    gw_status status = GW_OK;
    gw_matcher *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return gw_fail(GW_E_NOMEM, "grammar", "no memory");
    }
    m->p = program;
    m->tree = tree;
    m->ends = ends;
    m->n_ends = n_ends;
    m->n_tokens = (size_t)n_vocab;
    m->words = ((size_t)n_vocab + 63) / 64;
    m->n_masks = MASK_BYTES / (m->words * sizeof *m->bits + 1);
    m->n_masks = m->n_masks < MASKS_MIN   ? MASKS_MIN
                 : m->n_masks > MASKS_MAX ? MASKS_MAX
                                          : m->n_masks;
    m->bits = calloc((m->n_masks + 1) * (m->words + 1), sizeof *m->bits);
    m->masks = calloc(m->n_masks, sizeof *m->masks);
    m->states = calloc((size_t)tree->deepest + 2, sizeof *m->states);
    m->rows = calloc((size_t)tree->deepest + 2, sizeof *m->rows);
    if (m->bits == NULL || m->masks == NULL || m->states == NULL || m->rows == NULL) {
        GW_TRY_DONE(
            gw_fail(GW_E_NOMEM, "grammar", "no memory for masks of %d tokens", (int)n_vocab));
    }
    GW_TRY_DONE(gw_stacks_new(program, &m->stacks));
    GW_TRY_DONE(gw_stacks_open(m->stacks));
    gw_matcher_reset(m);
    *out = m;
    return GW_OK;
done:
    gw_matcher_free(m);
    return status;
}

void gw_matcher_free(gw_matcher *m) {
    if (m != NULL) {
        gw_stacks_free(m->stacks);
        free(m->bits);
        free(m->masks);
        free(m->states);
        free(m->rows);
        free(m);
    }
}

void gw_matcher_reset(gw_matcher *m) {
    for (int i = 0; i <= GW_MATCHER_KEPT; i++) {
        m->held[i] = gw_stacks_start(m->stacks);
    }
}

void gw_matcher_keep(gw_matcher *m, int slot) { m->held[slot] = *current(m); }
void gw_matcher_back(gw_matcher *m, int slot) { *current(m) = m->held[slot]; }

static void collect(gw_matcher *m) {
    gw_stacks_collect(m->stacks, m->held, GW_MATCHER_KEPT + 1);
    memset(m->masks, 0, m->n_masks * sizeof *m->masks);
}

/* ---- going on -------------------------------------------------------------------------------- */

static uint32_t next_state(gw_matcher *m, uint32_t state, unsigned char byte) {
    unsigned k = m->p->class_of[byte];
    const uint32_t *row = gw_stacks_row(m->stacks, state);
    if (row == NULL) {
        return GW_STACKS_FULL;
    }
    return row[k] != GW_STACKS_NEW ? row[k] : gw_stacks_step(m->stacks, state, k);
}

/* GW_STACKS_FULL when the stacks are. */
static uint32_t follow_bytes(gw_matcher *m, const char *text, size_t n) {
    uint32_t state = *current(m);
    for (size_t i = 0; i < n && state != 0 && state != GW_STACKS_FULL; i++) {
        state = next_state(m, state, (unsigned char)text[i]);
    }
    return state;
}

gw_status gw_matcher_bytes(gw_matcher *m, const char *text, size_t n, int *taken) {
    uint32_t state = follow_bytes(m, text, n);
    if (state == GW_STACKS_FULL) {
        collect(m);
        state = follow_bytes(m, text, n);
    }
    if (state == GW_STACKS_FULL) {
        return gw_stacks_error(m->stacks);
    }
    *taken = state != 0;
    if (state != 0) {
        *current(m) = state;
    }
    return GW_OK;
}

static int is_end(const gw_matcher *m, int32_t id) {
    for (size_t i = 0; i < m->n_ends; i++) {
        if (m->ends[i] == id) {
            return 1;
        }
    }
    return 0;
}

static gw_status take_text(gw_matcher *m, int32_t id, int *taken) {
    static const char opens[] = {(char)GW_TOKEN_OPENS}, closes[] = {(char)GW_TOKEN_CLOSES};
    const char *text;
    size_t bytes;
    if (gw_token_is_text(m->tree->vocab, m->tree->tokenizer, id)) {
        gw_tokenizer_piece(m->tree->tokenizer, id, 0, &text, &bytes);
        return gw_matcher_bytes(m, text, bytes, taken);
    }
    const gw_vocab_token *token = &m->tree->vocab->tokens[id];
    GW_TRY(gw_matcher_bytes(m, opens, 1, taken));
    GW_TRY(*taken ? gw_matcher_bytes(m, token->text, token->bytes, taken) : GW_OK);
    return *taken ? gw_matcher_bytes(m, closes, 1, taken) : GW_OK;
}

/* Tokens of the tree, and no others. */
gw_status gw_matcher_token(gw_matcher *m, int32_t id, int *taken) {
    gw_token_mask mask;
    if (is_end(m, id)) {
        *taken = gw_matcher_may_end(m);
        return GW_OK;
    }
    if (id < 0 || (size_t)id >= m->n_tokens) {
        *taken = 0;
        return GW_OK;
    }
    GW_TRY(gw_matcher_mask(m, &mask));
    if (!(mask.bits[(size_t)id / 64] >> (id % 64) & 1)) {
        *taken = 0;
        return GW_OK;
    }
    return take_text(m, id, taken);
}

gw_status gw_matcher_retake(gw_matcher *m, int32_t id) {
    int taken;
    return is_end(m, id) ? GW_OK : take_text(m, id, &taken);
}

int gw_matcher_may_end(const gw_matcher *m) {
    return gw_stacks_may_end(m->stacks, m->held[GW_MATCHER_KEPT]);
}

int gw_matcher_at_end(const gw_matcher *m) {
    return gw_stacks_only_end(m->stacks, m->held[GW_MATCHER_KEPT]);
}

int gw_matcher_too_deep(const gw_matcher *m) { return gw_stacks_too_deep(m->stacks); }

/* ---- masks ----------------------------------------------------------------------------------- */

/* The next state where it is not in the row yet; GW_STACKS_FULL: the stacks are full. */
static uint32_t learn(gw_matcher *m, unsigned depth, unsigned k) {
    const uint32_t *row = gw_stacks_row(m->stacks, m->states[depth]);
    if (row == NULL) {
        return GW_STACKS_FULL;
    }
    m->rows[depth] = row;
    return row[k] != GW_STACKS_NEW ? row[k] : gw_stacks_step(m->stacks, m->states[depth], k);
}

static void set_several(const gw_token_tree *tree, uint32_t node, uint64_t *bits) {
    for (uint32_t t = tree->first[node]; t < tree->first[node + 1]; t++) {
        uint32_t id = (uint32_t)tree->ids[t];
        bits[id / 64] |= (uint64_t)1 << (id % 64);
    }
}

/* The whole tree but what hangs on a byte that is not allowed; 0: the stacks are full. Most of the
 * nodes are visited, and whether a token ends in one or another hangs on it is as good as random:
 * so neither is asked. A node without a token sets a bit behind the mask. */
static int walk(gw_matcher *m, uint64_t *bits) {
    const gw_token_node *nodes = m->tree->nodes;
    const gw_stack_rows known = gw_stacks_rows(m->stacks);
    const uint8_t *class_of = m->p->class_of;
    uint32_t n = m->tree->n_nodes, nowhere = (uint32_t)m->words * 64;
    m->states[0] = *current(m);
    m->rows[0] = NULL;
    for (uint32_t i = 0; i < n;) {
        const gw_token_node *node = &nodes[i];
        unsigned depth = node->depth, k = class_of[node->byte];
        const uint32_t *row = m->rows[depth];
        uint32_t next = row != NULL ? row[k] : GW_STACKS_NEW;
        if (next == GW_STACKS_NEW) {
            next = learn(m, depth, k);
            if (next == GW_STACKS_FULL) {
                return 0;
            }
        }
        if (next == 0) {
            i = node->end;
            continue;
        }
        uint32_t id = node->id >= 0 ? (uint32_t)node->id : nowhere;
        bits[id / 64] |= (uint64_t)1 << (id % 64);
        if (node->several) {
            set_several(m->tree, i, bits);
        }
        m->states[depth + 1] = next;
        m->rows[depth + 1] = gw_stacks_known_row(&known, next);
        i++;
    }
    return 1;
}

/* The same walk with a look at how far the end is behind every token: those stay that leave at most
 * `left` bytes. *farthest: behind any of them. */
static int walk_within(gw_matcher *m, uint64_t *bits, uint32_t left, uint32_t *farthest) {
    const gw_token_node *nodes = m->tree->nodes;
    m->states[0] = *current(m);
    *farthest = 0;
    for (uint32_t i = 0; i < m->tree->n_nodes;) {
        const gw_token_node *node = &nodes[i];
        uint32_t next = learn(m, node->depth, m->p->class_of[node->byte]);
        if (next == GW_STACKS_FULL) {
            return 0;
        }
        if (next == 0) {
            i = node->end;
            continue;
        }
        uint32_t least = gw_stacks_least(m->stacks, next);
        if (node->id >= 0 && least <= left) {
            *farthest = least > *farthest ? least : *farthest;
            bits[(uint32_t)node->id / 64] |= (uint64_t)1 << (node->id % 64);
            if (node->several) {
                set_several(m->tree, i, bits);
            }
        }
        m->states[node->depth + 1u] = next;
        i++;
    }
    return 1;
}

static uint32_t count_bits(const uint64_t *bits, size_t words) {
    uint32_t n = 0;
    for (size_t i = 0; i < words; i++) {
        n += (uint32_t)__builtin_popcountll(bits[i]);
    }
    return n;
}

/* The mask of the current state, into the place that states like it have; looks: also how far the
 * end is behind its tokens. 0: the stacks are full. */
static int make_mask(gw_matcher *m, int looks) {
    uint32_t state = *current(m);
    known_mask *known = &m->masks[state % m->n_masks];
    uint64_t *bits = m->bits + (state % m->n_masks) * (m->words + 1);
    if (known->state == state && state != 0 && (!looks || known->farthest != NONE)) {
        return 1;
    }
    memset(bits, 0, m->words * sizeof *bits);
    *known = (known_mask){.farthest = NONE};
    if (looks ? !walk_within(m, bits, NONE, &known->farthest) : !walk(m, bits)) {
        return 0;
    }
    known->state = state;
    known->n_text = count_bits(bits, m->words);
    for (size_t i = 0; i < m->n_ends && gw_stacks_may_end(m->stacks, state); i++) {
        bits[(size_t)m->ends[i] / 64] |= (uint64_t)1 << (m->ends[i] % 64);
    }
    return 1;
}

static gw_status have_mask(gw_matcher *m, int looks) {
    if (gw_stacks_crowded(m->stacks)) {
        collect(m);
    }
    if (make_mask(m, looks)) {
        return GW_OK;
    }
    collect(m);
    return make_mask(m, looks) ? GW_OK : gw_stacks_error(m->stacks);
}

static gw_token_mask known_bits(const gw_matcher *m) {
    size_t place = m->held[GW_MATCHER_KEPT] % m->n_masks;
    return (gw_token_mask){m->bits + place * (m->words + 1), m->masks[place].n_text};
}

gw_status gw_matcher_mask(gw_matcher *m, gw_token_mask *out) {
    GW_TRY(have_mask(m, 0));
    *out = known_bits(m);
    return GW_OK;
}

gw_status gw_matcher_mask_within(gw_matcher *m, uint32_t left, gw_token_mask *out) {
    uint64_t *bits = m->bits + m->n_masks * (m->words + 1);
    uint32_t farthest;
    GW_TRY(have_mask(m, 1));
    *out = known_bits(m);
    uint32_t state = *current(m), all = m->masks[state % m->n_masks].farthest;
    if (all <= left || gw_stacks_least(m->stacks, state) > left + 1) {
        return GW_OK;
    }
    memset(bits, 0, m->words * sizeof *bits);
    if (!walk_within(m, bits, left, &farthest)) { /* cannot be: all these states are known */
        return gw_stacks_error(m->stacks);
    }
    uint32_t n_text = count_bits(bits, m->words);
    for (size_t i = 0; i < m->n_ends && gw_stacks_may_end(m->stacks, state); i++) {
        bits[(size_t)m->ends[i] / 64] |= (uint64_t)1 << (m->ends[i] % 64);
    }
    if (n_text > 0 || gw_stacks_may_end(m->stacks, state)) {
        *out = (gw_token_mask){bits, n_text};
    }
    return GW_OK;
}
