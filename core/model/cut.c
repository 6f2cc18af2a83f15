/* core/model/cut.c - see cut.h. */
#include "core/model/cut.h"

#include <string.h>

/* Rows of a unit: whole activation blocks, and whole strips of a card's layout. Products of a block
 * LINEAR inside layers are routers, gates and small projections: below LEAST rows an exchange takes
 * longer than the rows of others. */
enum { UNIT = GW_ACT_BLOCK, LEAST = 1024 };

int gw_cut_range(const gw_group *group, int64_t n, int unit, int32_t first[GW_MAX_CARDS + 1]) {
    int64_t units = (n + unit - 1) / unit;
    double sum = 0.0, upto = 0.0;
    if (units < group->n || n > INT32_MAX) {
        return 0;
    }
    for (int c = 0; c < group->n; c++) {
        sum += group->share[c];
    }
    first[0] = 0;
    for (int c = 0; c < group->n; c++) {
        upto += group->share[c];
        int64_t end = (int64_t)(upto / sum * (double)units + 0.5), before = first[c] / unit;
        int64_t most = units - (group->n - 1 - c); /* one for each that follows */
        end = end > before ? end : before + 1;
        end = end < most ? end : most;
        first[c + 1] = (int32_t)(c + 1 == group->n ? n : end * unit);
    }
    return 1;
}

/* ---- attention ------------------------------------------------------------------------------ */

/* Blocks of a layer from the product of q, k and v to attention. */
typedef struct chain {
    const gw_spec_block *qkv, *rope, *attention;
} chain;

/* Does another block than `by` read what `from` gives, up to where that is given anew? */
static int is_read(const gw_blueprint *bp, const gw_hparams *hp, int layer,
                   const gw_spec_block *from, const gw_spec_block *by) {
    int v = from->out;
    for (int b = from->index + 1; b < bp->n_blocks; b++) {
        const gw_spec_block *x = &bp->block[b];
        if (!gw_block_runs(x, hp, layer)) {
            continue;
        }
        if (x != by && (x->in == v || x->side == v || x->plus == v || x->more == v)) {
            return 1;
        }
        if (x->out == v) {
            return 0;
        }
    }
    return 0;
}

static int follows(const gw_spec_block *a, const gw_spec_block *b) {
    return a != NULL && b != NULL && a->out == b->in;
}

static int find_chain(const gw_blueprint *bp, const gw_hparams *hp, int layer, chain *out) {
    const gw_spec_block *before = NULL;
    memset(out, 0, sizeof *out);
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *x = &bp->block[b];
        if (!gw_block_runs(x, hp, layer)) {
            continue;
        }
        if (x->kind == GW_BLOCK_QKV) {
            out->qkv = out->qkv == NULL ? x : NULL;
        } else if (x->kind == GW_BLOCK_ROPE_KV) {
            out->rope = out->rope == NULL && before == out->qkv ? x : NULL;
        } else if (x->kind == GW_BLOCK_ATTENTION) {
            out->attention = out->attention == NULL && before == out->rope ? x : NULL;
        }
        before = x;
    }
    unsigned refused = GW_FLAG_ROW | GW_FLAG_QUERY | GW_FLAG_KEYS | GW_FLAG_CROSS;
    return follows(out->qkv, out->rope) && follows(out->rope, out->attention) &&
           ((out->rope->flags | out->attention->flags) & refused) == 0 &&
           out->attention->number[GW_ARG_CACHE].n == 0 &&
           !is_read(bp, hp, layer, out->qkv, out->rope) &&
           !is_read(bp, hp, layer, out->rope, out->attention);
}

/* Card c has heads [from, to): whole groups of a KV head, or a part of one. */
static int take_heads(const gw_layer *y, int from, int to, int c, gw_cut_heads *out) {
    int each = y->n_heads / y->n_kv_heads;
    out->head[c] = from;
    out->head[c + 1] = to;
    out->kv_first[c] = from / each;
    out->kv_count[c] = (to - 1) / each - from / each + 1;
    int whole = from % each == 0 && to % each == 0;
    return to > from && (to - from) * y->v_head % GW_ACT_BLOCK == 0 &&
           (whole || out->kv_count[c] == 1);
}

int gw_cut_attention(const gw_blueprint *bp, const gw_hparams *hp, const gw_group *group, int layer,
                     gw_cut_heads *out) {
    chain found;
    const gw_layer *y = &hp->layer[layer];
    int32_t first[GW_MAX_CARDS + 1];
    if (group->n < 2 || layer >= hp->n_layers || hp->n_source > 0 || y->cache_of != layer ||
        y->n_heads < 1 || y->n_kv_heads < 1 || y->n_heads % y->n_kv_heads != 0 ||
        !find_chain(bp, hp, layer, &found)) {
        return 0;
    }
    for (int32_t l = 0; l < hp->n_layers; l++) {
        if (l != layer && hp->layer[l].cache_of == layer) {
            return 0;
        }
    }
    int each = y->n_kv_heads >= group->n ? y->n_heads / y->n_kv_heads : 1, fits = 1;
    if (!gw_cut_range(group, y->n_heads, each, first)) {
        return 0;
    }
    for (int c = 0; c < group->n; c++) {
        fits = fits && take_heads(y, first[c], first[c + 1], c, out);
    }
    return fits;
}

/* ---- by what it is for ---------------------------------------------------------------------- */

/* The cut of an argument of the blocks around attention, where that is cut. */
static gw_cut cut_by_heads(const gw_spec_block *b, int arg) {
    switch (b->kind) {
    case GW_BLOCK_QKV:
        return arg % 3 == 0 ? GW_CUT_HEADS : GW_CUT_KV;
    case GW_BLOCK_ROPE_KV: /* norms of all heads by weights of their own */
        return (b->flags & GW_FLAG_HEADS) == 0 ? GW_CUT_WHOLE : arg == 0 ? GW_CUT_HEADS : GW_CUT_KV;
    case GW_BLOCK_ATTENTION:
        return GW_CUT_HEADS;
    default:
        return GW_CUT_WHOLE;
    }
}

static gw_cut cut_by_rows(const gw_spec_block *b, int arg, int64_t rows) {
    switch (b->kind) {
    case GW_BLOCK_RESIDUAL:
        return arg == 0 || arg == 3 ? GW_CUT_ROWS : GW_CUT_WHOLE;
    case GW_BLOCK_GLU:
        return arg % 3 < 2 ? GW_CUT_ROWS : GW_CUT_WHOLE;
    case GW_BLOCK_MLP:
        return arg == 0 || arg == 3 ? GW_CUT_ROWS : GW_CUT_WHOLE;
    case GW_BLOCK_LINEAR:
        return gw_block_matrices(b) == 1 && (arg == 0 || arg == 3) &&
                       (rows >= LEAST || b->section == GW_SECTION_HEAD)
                   ? GW_CUT_ROWS
                   : GW_CUT_WHOLE;
    case GW_BLOCK_EXPERTS:
        return GW_CUT_EXPERTS;
    default:
        return GW_CUT_WHOLE;
    }
}

static void set_heads(const gw_cut_heads *h, const gw_group *g, const gw_layer *y, gw_cut cut,
                      int64_t rows, gw_cut_rows *out) {
    int64_t each = rows / (cut == GW_CUT_HEADS ? y->n_heads : y->n_kv_heads);
    out->parts = 1;
    out->span = rows;
    for (int c = 0; c < g->n; c++) {
        int from = cut == GW_CUT_HEADS ? h->head[c] : h->kv_first[c];
        int n = cut == GW_CUT_HEADS ? h->head[c + 1] - h->head[c] : h->kv_count[c];
        out->first[c] = (int32_t)(from * each);
        out->count[c] = (int32_t)(n * each);
    }
}

gw_cut gw_cut_of(const gw_blueprint *bp, const gw_hparams *hp, const gw_group *group, int layer,
                 int block, int arg, int64_t rows, gw_cut_rows *out) {
    const gw_spec_block *b = &bp->block[block];
    gw_cut_heads heads;
    int32_t first[GW_MAX_CARDS + 1];
    gw_cut cut = GW_CUT_WHOLE;
    if (group->n < 2) {
        return GW_CUT_WHOLE;
    }
    if (b->kind == GW_BLOCK_QKV || b->kind == GW_BLOCK_ROPE_KV || b->kind == GW_BLOCK_ATTENTION) {
        if (!gw_cut_attention(bp, hp, group, layer, &heads)) {
            return GW_CUT_WHOLE;
        }
        cut = cut_by_heads(b, arg);
        if (cut != GW_CUT_WHOLE) {
            set_heads(&heads, group, &hp->layer[layer], cut, rows, out);
        }
        return cut;
    }
    cut = cut_by_rows(b, arg, rows);
    out->parts = cut == GW_CUT_EXPERTS ? hp->layer[layer].n_experts : 1;
    out->span = out->parts > 0 ? rows / out->parts : 0;
    if (cut == GW_CUT_WHOLE || !gw_cut_range(group, out->span, UNIT, first)) {
        return GW_CUT_WHOLE;
    }
    for (int c = 0; c < group->n; c++) {
        out->first[c] = first[c];
        out->count[c] = first[c + 1] - first[c];
    }
    return cut;
}
