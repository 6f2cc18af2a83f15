/* core/plan/op.c - the op table: what a node of each op must look like and what it costs at least.
 * A new op is one enum entry and one row. Meaning lives in docs/arithmetic.md and backends/ref. */
#include "core/plan/op.h"

#include <stdio.h>

#include "core/tensor/sample.h"

/* ---- shapes and formats --------------------------------------------------------------------- */

static const char *dims_text(const gw_tensor *t, char *text, size_t room) {
    if (t == NULL) {
        snprintf(text, room, "nothing");
        return text;
    }
    int used =
        snprintf(text, room, "%s [", t->fmt < GW_FMT_COUNT ? gw_format_of(t->fmt)->name : "?");
    for (int i = 0; i < t->n_dim && used > 0 && (size_t)used < room; i++) {
        used +=
            snprintf(text + used, room - (size_t)used, i ? ", %lld" : "%lld", (long long)t->dim[i]);
    }
    if (used > 0 && (size_t)used + 1 < room) {
        snprintf(text + used, room - (size_t)used, "]");
    }
    return text;
}

/* Refuse the node because of operand `t`. */
static gw_status refuse(const gw_node *node, const char *operand, const gw_tensor *t,
                        const char *want) {
    char where[96], have[96];
    snprintf(where, sizeof where, "layer %d %s (%s)", node->layer, node->what ? node->what : "?",
             gw_op_describe(node->op)->name);
    return gw_fail(GW_E_METADATA, where, "%s is %s, expected %s", operand,
                   dims_text(t, have, sizeof have), want);
}

static int is_float(const gw_tensor *t) { return gw_format_of(t->fmt)->is_float; }
static int is_weight(const gw_tensor *t) { return t->fmt < GW_FMT_ACT8; }

static int is_matrix(const gw_tensor *t, gw_fmt fmt, int64_t cols) {
    return t != NULL && t->n_dim == 2 && t->fmt == fmt && t->dim[0] > 0 && t->dim[1] == cols;
}
static int is_vector(const gw_tensor *t, int64_t n) {
    return t != NULL && t->n_dim == 1 && t->fmt == GW_FMT_F32 && t->dim[0] == n;
}
/* f32, or act8 when whole blocks fit. */
static int is_activation(const gw_tensor *t, int64_t cols) {
    return is_matrix(t, GW_FMT_F32, cols) ||
           (is_matrix(t, GW_FMT_ACT8, cols) && cols % GW_ACT_BLOCK == 0);
}
static int same_rows(const gw_tensor *a, const gw_tensor *b) { return a->dim[0] == b->dim[0]; }

static gw_status check_out(const gw_node *node) {
    const gw_tensor *y = node->out;
    if (y == NULL || y->n_dim != 2 || y->dim[0] < 1 || y->dim[1] < 1) {
        return refuse(node, "the output", y, "[rows, columns]");
    }
    return GW_OK;
}

static gw_status check_embed(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *w = node->w[0], *y = node->out;
    if (w == NULL || w->n_dim != 2 || !is_weight(w) || w->dim[1] != y->dim[1]) {
        return refuse(node, "the table", w, "a [v, d] weight as wide as the output");
    }
    const gw_tensor *ids = node->in[0];
    if (ids != NULL && (!is_matrix(ids, GW_FMT_I32, 1) || !same_rows(ids, y))) {
        return refuse(node, "the ids", ids, "i32 [n, 1]");
    }
    return y->fmt == GW_FMT_F32 ? GW_OK : refuse(node, "the output", y, "f32");
}

static gw_status check_pick(const gw_node *node) {
    GW_TRY(check_out(node));
    if (!is_matrix(node->in[0], GW_FMT_F32, node->out->dim[1])) {
        return refuse(node, "the input", node->in[0], "f32, as wide as the output");
    }
    return node->out->fmt == GW_FMT_F32 ? GW_OK : refuse(node, "the output", node->out, "f32");
}

static gw_status check_norm(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *y = node->out;
    if (!is_matrix(x, GW_FMT_F32, y->dim[1]) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 of the output's shape");
    }
    if (!is_vector(node->w[0], y->dim[1])) {
        return refuse(node, "the norm weight", node->w[0], "f32 [d]");
    }
    return is_activation(y, y->dim[1]) ? GW_OK : refuse(node, "the output", y, "f32 or act8");
}

static gw_status check_quantize(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *y = node->out;
    if (!is_matrix(x, GW_FMT_F32, y->dim[1]) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 of the output's shape");
    }
    int fits = y->fmt == GW_FMT_ACT8 && is_activation(y, y->dim[1]);
    return fits ? GW_OK : refuse(node, "the output", y, "act8 in whole blocks of 32");
}

/* in0 [n, k] against weights w[0 .. n_w): one width, all floats (f32 input) or all quantized (act8
 * input). *rows: of all matrices together. */
static gw_status check_product(const gw_node *node, int n_w, int64_t *rows) {
    const gw_tensor *x = node->in[0], *first = node->w[0];
    if (first == NULL) {
        return refuse(node, "the first matrix", first, "a weight");
    }
    *rows = 0;
    for (int i = 0; i < n_w; i++) {
        const gw_tensor *w = node->w[i];
        if (w == NULL) {
            continue;
        }
        if (w->n_dim != 2 || !is_weight(w) || w->dim[0] < 1 || w->dim[1] != first->dim[1] ||
            w->dim[1] % (int64_t)gw_format_of(w->fmt)->block_elems != 0) {
            return refuse(node, "a matrix", w, "a weight of whole blocks, one width for all");
        }
        if (is_float(w) != is_float(first)) {
            return refuse(node, "a matrix", w, "all floats or all quantized");
        }
        *rows += w->dim[0];
    }
    gw_fmt want = is_float(first) ? GW_FMT_F32 : GW_FMT_ACT8;
    if (!is_matrix(x, want, first->dim[1]) || !is_activation(x, first->dim[1]) ||
        !same_rows(x, node->out)) {
        return refuse(node, "the input", x,
                      want == GW_FMT_F32 ? "f32 [n, k] for float weights"
                                         : "act8 [n, k] for quantized weights");
    }
    return GW_OK;
}

static gw_status check_linear(const gw_node *node) {
    GW_TRY(check_out(node));
    int64_t rows = 0;
    GW_TRY(check_product(node, 3, &rows));
    const gw_tensor *y = node->out;
    if (!is_matrix(y, GW_FMT_F32, rows)) {
        return refuse(node, "the output", y, "f32, a column per matrix row");
    }
    for (int i = 0; i < 3; i++) {
        const gw_tensor *bias = node->w[3 + i];
        if (bias != NULL && (node->w[i] == NULL || !is_vector(bias, node->w[i]->dim[0]))) {
            return refuse(node, "a bias", bias, "f32, one value per row of its matrix");
        }
    }
    const gw_tensor *residual = node->in[1];
    if (residual != NULL && (!is_matrix(residual, GW_FMT_F32, rows) || !same_rows(residual, y))) {
        return refuse(node, "the residual", residual, "f32 of the output's shape");
    }
    return GW_OK;
}

static gw_status check_glu(const gw_node *node) {
    GW_TRY(check_out(node));
    int64_t rows = 0;
    if (node->w[1] == NULL) {
        return refuse(node, "the second matrix", NULL, "a weight");
    }
    GW_TRY(check_product(node, 2, &rows));
    if (node->w[0]->dim[0] != node->w[1]->dim[0]) {
        return refuse(node, "the second matrix", node->w[1], "the shape of the first");
    }
    int fits = is_activation(node->out, node->w[0]->dim[0]);
    return fits ? GW_OK : refuse(node, "the output", node->out, "f32 or act8 [n, f]");
}

/* Caches in1 (K), in2 (V) and page table in3 of an attention op with g heads of width e. */
static gw_status check_cache(const gw_node *node, int g, int e) {
    const gw_tensor *k = node->in[1], *v = node->in[2], *table = node->in[3];
    int k_fits =
        k != NULL && k->n_dim == 4 &&
        (k->fmt == GW_FMT_F32 || k->fmt == GW_FMT_F16 || (k->fmt == GW_FMT_Q8_0 && e % 32 == 0)) &&
        k->dim[0] > 0 && k->dim[1] == g && k->dim[2] == e && k->dim[3] == GW_PAGE;
    if (!k_fits) {
        return refuse(node, "the K cache", k, "f16, f32 or q8_0 [pages, g, e, 64]");
    }
    if (v == NULL || v->n_dim != 4 || v->fmt != k->fmt || v->dim[0] != k->dim[0] ||
        v->dim[1] != g || v->dim[2] != GW_PAGE || v->dim[3] != e) {
        return refuse(node, "the V cache", v, "[pages, g, 64, e] in the format of K");
    }
    if (table == NULL || table->n_dim != 2 || table->fmt != GW_FMT_I32) {
        return refuse(node, "the page table", table, "i32 [slots, pages]");
    }
    return GW_OK;
}

static gw_status check_rope_kv(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_rope_args *a = &node->args.rope;
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0 || a->head_dim < 1 ||
        a->rope_dim < 0 || a->rope_dim > a->head_dim || a->rope_dim % 2 != 0) {
        return refuse(node, "the output", node->out,
                      "heads in whole groups, an even rotated width");
    }
    int64_t q = (int64_t)a->heads * a->head_dim, kv = (int64_t)a->kv_heads * a->head_dim;
    if (!is_matrix(node->in[0], GW_FMT_F32, q + 2 * kv) || !same_rows(node->in[0], node->out)) {
        return refuse(node, "the input", node->in[0], "f32 [n, (h + 2g) e]");
    }
    if (!is_matrix(node->out, GW_FMT_F32, q)) {
        return refuse(node, "the output", node->out, "f32 [n, h e]");
    }
    for (int i = 0; i < 2; i++) {
        if (node->w[i] != NULL && !is_vector(node->w[i], a->head_dim)) {
            return refuse(node, "a head norm", node->w[i], "f32 [e]");
        }
    }
    const gw_tensor *table = node->w[2];
    if (table == NULL || table->n_dim != 3 || table->fmt != GW_FMT_F32 || table->dim[1] != 2 ||
        table->dim[2] != a->rope_dim / 2) {
        return refuse(node, "the rope table", table, "f32 [positions, 2, r/2]");
    }
    return check_cache(node, a->kv_heads, a->head_dim);
}

static gw_status check_attention(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_attn_args *a = &node->args.attn;
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0 || a->head_dim < 1 ||
        a->window < 0) {
        return refuse(node, "the output", node->out, "heads in whole groups");
    }
    int64_t q = (int64_t)a->heads * a->head_dim;
    if (!is_matrix(node->in[0], GW_FMT_F32, q) || !same_rows(node->in[0], node->out)) {
        return refuse(node, "the input", node->in[0], "f32 [n, h e]");
    }
    if (!is_activation(node->out, q)) {
        return refuse(node, "the output", node->out, "f32 or act8 [n, h e]");
    }
    return check_cache(node, a->kv_heads, a->head_dim);
}

static gw_status check_sample(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *choice = node->in[1], *y = node->out;
    if (x == NULL || x->n_dim != 2 || !is_matrix(x, GW_FMT_F32, x->dim[1]) || x->dim[1] < 1 ||
        !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, v]");
    }
    if (!is_matrix(choice, GW_FMT_I32, GW_CHOICE_WORDS)) {
        return refuse(node, "the choice", choice, "i32 [1, 7]");
    }
    return is_matrix(y, GW_FMT_I32, 1) ? GW_OK : refuse(node, "the output", y, "i32 [n, 1]");
}

/* ---- least traffic and arithmetic ----------------------------------------------------------- */

static double row_bytes(const gw_tensor *t) {
    const gw_format *f = gw_format_of(t->fmt);
    double cols = (double)t->dim[t->n_dim - 1];
    return (double)f->row_header + cols / (double)f->block_elems * (double)f->block_bytes;
}

static double weight_bytes(const gw_tensor *t) {
    double rows = 1.0;
    for (int i = 0; i + 1 < t->n_dim; i++) {
        rows *= (double)t->dim[i];
    }
    return rows * row_bytes(t);
}

/* Every weight once, every live row of activations once. */
static void cost_plain(const gw_node *node, int rows, double *bytes) {
    *bytes = rows * row_bytes(node->out);
    for (int i = 0; i < GW_MAX_IN; i++) {
        *bytes += node->in[i] != NULL ? rows * row_bytes(node->in[i]) : 0.0;
    }
    for (int i = 0; i < GW_MAX_W; i++) {
        *bytes += node->w[i] != NULL ? weight_bytes(node->w[i]) : 0.0;
    }
}

static void cost_embed(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    *bytes = rows * (row_bytes(node->w[0]) + row_bytes(node->out));
    *ops = (double)rows * (double)node->out->dim[1];
}

static void cost_rowwise(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    cost_plain(node, rows, bytes);
    *ops = 4.0 * (double)rows * (double)node->out->dim[1];
}

static void cost_product(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    cost_plain(node, rows, bytes);
    *ops = 0.0;
    for (int i = 0; i < 3; i++) {
        const gw_tensor *w = node->w[i];
        *ops +=
            w != NULL && w->n_dim == 2 ? 2.0 * rows * (double)w->dim[0] * (double)w->dim[1] : 0.0;
    }
}

/* Of one value in a cache. */
static double cell_bytes(const gw_tensor *cache) {
    const gw_format *f = gw_format_of(cache->fmt);
    return (double)f->block_bytes / (double)f->block_elems;
}

static void cost_rope_kv(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    const gw_rope_args *a = &node->args.rope;
    double kv = 2.0 * a->kv_heads * a->head_dim;
    double cell = cell_bytes(node->in[1]);
    *bytes = rows * (row_bytes(node->in[0]) + row_bytes(node->out) + kv * cell + 4.0 * a->rope_dim);
    *ops = 6.0 * rows * (double)(a->heads + a->kv_heads) * a->head_dim;
}

/* Rows are taken as the last ones of a single sequence of `positions`. */
static void cost_attention(const gw_node *node, int rows, int positions, double *bytes,
                           double *ops) {
    const gw_attn_args *a = &node->args.attn;
    double seen = 0.0;
    for (int i = 0; i < rows; i++) {
        int reach = positions - (rows - 1 - i);
        reach = a->window > 0 && reach > a->window ? a->window : reach;
        seen += reach > 0 ? reach : 0;
    }
    double span = a->window > 0 && positions > a->window + rows ? a->window + rows : positions;
    double cell = cell_bytes(node->in[1]);
    *bytes = 2.0 * span * a->kv_heads * a->head_dim * cell +
             rows * (row_bytes(node->in[0]) + row_bytes(node->out));
    *ops = 4.0 * seen * a->heads * a->head_dim;
}

/* clang-format off */
static const gw_op_info ops[GW_OP_COUNT] = {
    /*                    name         check            cost           */
    [GW_OP_EMBED]     = {"embed",     check_embed,     cost_embed},
    [GW_OP_PICK]      = {"pick",      check_pick,      cost_rowwise},
    [GW_OP_NORM]      = {"norm",      check_norm,      cost_rowwise},
    [GW_OP_QUANTIZE]  = {"quantize",  check_quantize,  cost_rowwise},
    [GW_OP_LINEAR]    = {"linear",    check_linear,    cost_product},
    [GW_OP_GLU]       = {"glu",       check_glu,       cost_product},
    [GW_OP_ROPE_KV]   = {"rope_kv",   check_rope_kv,   cost_rope_kv},
    [GW_OP_ATTENTION] = {"attention", check_attention, cost_attention},
    [GW_OP_SAMPLE]    = {"sample",    check_sample,    cost_rowwise},
};
/* clang-format on */

const gw_op_info *gw_op_describe(gw_op op) { return &ops[op]; }
