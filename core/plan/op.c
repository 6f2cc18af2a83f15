/* core/plan/op.c - the op table: what a node of each op must look like and what it costs at least.
 * A new op is one enum entry and one row. Meaning lives in docs/arithmetic.md and backends/ref. */
#include "core/plan/digits.h"
#include "core/plan/op_check.h"
#include "core/tensor/sample.h"

/* ---- shapes and formats --------------------------------------------------------------------- */

static gw_status check_embed(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *w = node->w[0], *y = node->out;
    if (w == NULL || w->n_dim != 2 || !is_weight(w) || w->dim[1] != y->dim[1]) {
        return refuse(node, "the table", w, "a [v, d] weight as wide as the output");
    }
    const gw_tensor *places = node->w[1];
    if (places != NULL && (places->n_dim != 2 || !is_weight(places) || !is_float(places) ||
                           places->dim[1] != y->dim[1])) {
        return refuse(node, "the position table", places, "a float [positions, d] weight");
    }
    const gw_tensor *types = node->w[2];
    if (types != NULL && (types->n_dim != 2 || !is_weight(types) || !is_float(types) ||
                          types->dim[1] != y->dim[1])) {
        return refuse(node, "the table of types", types, "a float [types, d] weight");
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

/* What is added to a result, or NULL. */
static gw_status check_addend(const gw_node *node, const gw_tensor *t) {
    if (t != NULL && (!is_matrix(t, GW_FMT_F32, node->out->dim[1]) || !same_rows(t, node->out))) {
        return refuse(node, "the addend", t, "f32 of the output's shape");
    }
    return GW_OK;
}

/* What a whole result is multiplied by, or NULL. */
static gw_status check_factor(const gw_node *node, const gw_tensor *t) {
    return t == NULL || is_vector(t, 1) ? GW_OK : refuse(node, "the factor", t, "f32 [1]");
}

static gw_status check_norm(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *y = node->out;
    if (!is_matrix(x, GW_FMT_F32, y->dim[1]) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 of the output's shape");
    }
    for (int i = 0; i < 2; i++) {
        if (node->w[i] != NULL && !is_vector(node->w[i], y->dim[1])) {
            return refuse(node, i == 0 ? "the norm weight" : "the norm bias", node->w[i],
                          "f32 [d]");
        }
    }
    if (node->in[1] != NULL || node->w[2] != NULL) {
        GW_TRY(check_addend(node, node->in[1]));
        GW_TRY(check_factor(node, node->w[2]));
        return y->fmt == GW_FMT_F32 ? GW_OK : refuse(node, "the output", y, "f32");
    }
    return is_activation(y, y->dim[1]) ? GW_OK : refuse(node, "the output", y, "f32 or act8");
}

static gw_status check_quantize(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *y = node->out;
    if (!is_matrix(x, GW_FMT_F32, y->dim[1]) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 of the output's shape");
    }
    if (node->w[0] != NULL && !is_vector(node->w[0], y->dim[1])) {
        return refuse(node, "the order of columns", node->w[0], "f32 [d]");
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
            !has_whole_blocks(w)) {
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
    return check_addend(node, node->in[1]);
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

/* Caches in1 (K), in2 (V) and page table in3 of an attention op with g heads of width e, ev. */
static gw_status check_cache(const gw_node *node, int g, int e, int ev) {
    const gw_tensor *k = node->in[1], *v = node->in[2], *table = node->in[3];
    int k_fits = k != NULL && k->n_dim == 4 && gw_cache_takes(k->fmt, e) && k->dim[0] > 0 &&
                 k->dim[1] == g && k->dim[2] == e && k->dim[3] == GW_PAGE;
    if (!k_fits) {
        return refuse(node, "the K cache", k, "f16, f32, q8_0, q5_0 or q4_0 [pages, g, e, 64]");
    }
    if (v != NULL && (v->n_dim != 4 || !gw_cache_takes(v->fmt, ev) || v->dim[0] != k->dim[0] ||
                      v->dim[1] != g || v->dim[2] != GW_PAGE || v->dim[3] != ev)) {
        return refuse(node, "the V cache", v, "f16, f32, q8_0, q5_0 or q4_0 [pages, g, 64, e]");
    }
    if (table == NULL || table->n_dim != 2 || table->fmt != GW_FMT_I32) {
        return refuse(node, "the page table", table, "i32 [slots, pages]");
    }
    return GW_OK;
}

static gw_status check_head_norms(const gw_node *node, const gw_rope_args *a) {
    for (int i = 0; i < 2; i++) {
        int64_t heads = a->norm_span == GW_SPAN_HEAD ? 1 : i == 0 ? a->heads : a->kv_heads;
        if (node->w[i] != NULL && !is_vector(node->w[i], heads * a->head_dim)) {
            return refuse(node, "a head norm", node->w[i],
                          a->norm_span == GW_SPAN_HEAD ? "f32 [e]" : "f32 [heads e]");
        }
    }
    return GW_OK;
}

static gw_status check_rope_kv(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_rope_args *a = &node->args.rope;
    int ev = a->v_dim > 0 ? a->v_dim : a->head_dim;
    if (a->heads < 0 || a->kv_heads < 0 || a->heads + a->kv_heads < 1 ||
        (a->kv_heads > 0 && a->heads % a->kv_heads != 0) || a->head_dim < 1 || a->v_dim < 0 ||
        a->rope_dim < 0 || a->rope_dim > a->head_dim || a->rope_dim % 2 != 0) {
        return refuse(node, "the output", node->out,
                      "heads in whole groups, an even rotated width");
    }
    int stored = node->in[2] != NULL ? ev : 0;
    int64_t q = (int64_t)a->heads * a->head_dim, kv = (int64_t)a->kv_heads * (a->head_dim + stored);
    if (!is_matrix(node->in[0], GW_FMT_F32, q + kv) || !same_rows(node->in[0], node->out)) {
        return refuse(node, "the input", node->in[0],
                      "f32 [n, (h + g) e + g ev], without v where it is part of k");
    }
    if (!is_matrix(node->out, GW_FMT_F32, q > 0 ? q : 1) || (a->norm_v && stored == 0)) {
        return refuse(node, "the output", node->out,
                      "f32 [n, h e], [n, 1] without q, and values of their own to be normed");
    }
    GW_TRY(check_head_norms(node, a));
    const gw_tensor *table = node->w[2], *factor = node->w[3];
    if (table == NULL ? a->rope_dim > 0
                      : table->n_dim != 3 || table->fmt != GW_FMT_F32 || table->dim[1] != 2 ||
                            table->dim[2] != a->rope_dim / 2) {
        return refuse(node, "the rope table", table, "f32 [positions, 2, r/2]");
    }
    if (factor != NULL && (factor->n_dim != 1 || factor->fmt != GW_FMT_F32)) {
        return refuse(node, "the factor by position", factor, "f32 [positions]");
    }
    return a->kv_heads > 0 ? check_cache(node, a->kv_heads, a->head_dim, ev) : GW_OK;
}

static gw_status check_attention(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_attn_args *a = &node->args.attn;
    int ev = a->v_dim > 0 ? a->v_dim : a->head_dim;
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0 || a->head_dim < 1 ||
        a->v_dim < 0 || a->window < 0 || a->chunk < -1) {
        return refuse(node, "the output", node->out, "heads in whole groups");
    }
    if (!is_matrix(node->in[0], GW_FMT_F32, (int64_t)a->heads * a->head_dim) ||
        !same_rows(node->in[0], node->out)) {
        return refuse(node, "the input", node->in[0], "f32 [n, h e]");
    }
    if (!is_activation(node->out, (int64_t)a->heads * ev)) {
        return refuse(node, "the output", node->out, "f32 or act8 [n, h ev]");
    }
    for (int i = 0; i < 2; i++) {
        if (node->w[i] != NULL && !is_vector(node->w[i], a->heads)) {
            return refuse(node, i == 0 ? "the sinks" : "the slopes", node->w[i], "f32 [h]");
        }
    }
    if (a->reach < 0 || a->reach > 1 << 20 || (a->both && a->chunk != 0) ||
        (node->w[2] != NULL && !is_vector(node->w[2], a->heads * (2 * (int64_t)a->reach + 1)))) {
        return refuse(node, "the bias by distance", node->w[2], "f32 [h (2 reach + 1)]");
    }
    if (node->in[2] == NULL &&
        (a->v_dim < 1 || a->v_first < 0 || a->v_first > a->head_dim - ev || node->in[1] == NULL ||
         !gw_cache_parts(node->in[1]->fmt, a->head_dim, a->v_first, ev))) {
        return refuse(node, "the K cache", node->in[1], "keys that have the values in them");
    }
    if (a->digits && !gw_attn_in_digits(node)) {
        return refuse(node, "the K cache", node->in[1], "a form that is summed in digits");
    }
    return check_cache(node, a->kv_heads, a->head_dim, ev);
}

static gw_status check_sample(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *choice = node->in[1], *y = node->out;
    if (x == NULL || x->n_dim != 2 || !is_matrix(x, GW_FMT_F32, x->dim[1]) || x->dim[1] < 1 ||
        !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, v]");
    }
    if (!is_matrix(choice, GW_FMT_I32, GW_CHOICE_WORDS) || !same_rows(x, choice)) {
        return refuse(node, "the choices", choice, "i32 [n, 7]");
    }
    return is_matrix(y, GW_FMT_I32, 1) ? GW_OK : refuse(node, "the output", y, "i32 [n, 1]");
}

static gw_status check_act(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_act_args *a = &node->args.act;
    const gw_tensor *x = node->in[0], *y = node->out;
    if (!is_matrix(x, GW_FMT_F32, y->dim[1] * (a->gated ? 2 : 1)) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, f], or [n, 2f] when gated");
    }
    if ((a->kind == GW_ACT_XIELU || a->kind == GW_ACT_CLAMP) && !is_vector(node->w[0], 4)) {
        return refuse(node, "the parameters", node->w[0], "f32 [4]");
    }
    return is_activation(y, y->dim[1]) ? GW_OK : refuse(node, "the output", y, "f32 or act8");
}

static gw_status check_mix(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *gate = node->in[1], *y = node->out;
    if (!is_matrix(x, GW_FMT_F32, y->dim[1]) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 of the output's shape");
    }
    if (gate != NULL && (gate->n_dim != 2 || gate->fmt != GW_FMT_F32 || gate->dim[1] < 1 ||
                         y->dim[1] % gate->dim[1] != 0 || !same_rows(gate, y))) {
        return refuse(node, "the gate", gate, "f32 [n, c], c a divisor of the width");
    }
    GW_TRY(check_addend(node, node->in[2]));
    if (node->w[0] != NULL && !is_vector(node->w[0], y->dim[1])) {
        GW_TRY(check_factor(node, node->w[0]));
    }
    return is_activation(y, y->dim[1]) ? GW_OK : refuse(node, "the output", y, "f32 or act8");
}

static gw_status check_route(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_route_args *a = &node->args.route;
    const gw_tensor *x = node->in[0], *y = node->out;
    if (x == NULL || x->n_dim != 2 || x->fmt != GW_FMT_F32 || a->used < 1 || a->used > x->dim[1] ||
        x->dim[1] > GW_ROUTE_MOST || !same_rows(x, y)) {
        return refuse(node, "the input", x,
                      "f32 [n, experts], no fewer than are used, 1024 at most");
    }
    if (a->groups > 0 && (x->dim[1] % a->groups != 0 || a->groups_used < 1 ||
                          a->groups_used > a->groups || a->group_best < 1 || a->group_best > 2 ||
                          a->groups_used * (x->dim[1] / a->groups) < a->used)) {
        return refuse(node, "the input", x, "experts in groups, enough in those that are kept");
    }
    if (node->in[1] != NULL && (!is_matrix(node->in[1], GW_FMT_F32, a->used) || a->groups > 0 ||
                                a->score == GW_SCORE_SPARSEMIXER || !same_rows(node->in[1], y))) {
        return refuse(node, "the experts chosen", node->in[1], "f32 [n, used]");
    }
    for (int i = 0; i < 2; i++) {
        if (node->w[i] != NULL && !is_vector(node->w[i], x->dim[1])) {
            return refuse(node, i == 0 ? "the selection bias" : "the factors", node->w[i],
                          "f32, one value per expert");
        }
    }
    int fits = is_matrix(y, GW_FMT_F32, 2 * (int64_t)a->used);
    return fits ? GW_OK : refuse(node, "the output", y, "f32 [n, 2 used]");
}

/* Of an op over experts: its numbers, the route in1, and matrices w[0 .. n_w) of E * rows rows with
 * biases w[2 ..]: w0's at w[bias]. */
static gw_status check_experts(const gw_node *node, int n_w, int bias, int64_t cols) {
    const gw_experts_args *a = &node->args.experts;
    const gw_tensor *route = node->in[1], *first = node->w[0];
    if (a->experts < 1 || a->used < 1 || a->used > a->experts ||
        !is_matrix(route, GW_FMT_F32, 2 * (int64_t)a->used) || !same_rows(route, node->out)) {
        return refuse(node, "the route", route, "f32 [n, 2 used]");
    }
    for (int i = 0; i < n_w; i++) {
        const gw_tensor *w = node->w[i], *b = node->w[bias + i];
        if (w == NULL && i > 0 && b == NULL) {
            continue;
        }
        if (w == NULL || w->n_dim != 2 || !is_weight(w) || w->dim[0] % a->experts != 0 ||
            w->dim[0] != first->dim[0] || w->dim[1] != cols || is_float(w) != is_float(first) ||
            !has_whole_blocks(w)) {
            return refuse(node, "a matrix", w, "a weight, all experts' rows one after the other");
        }
        if (b != NULL && !is_vector(b, w->dim[0])) {
            return refuse(node, "a bias", b, "f32, one value per row of its matrix");
        }
    }
    return GW_OK;
}

static gw_status check_experts_input(const gw_node *node, int64_t cols) {
    const gw_tensor *x = node->in[0];
    gw_fmt want = is_float(node->w[0]) ? GW_FMT_F32 : GW_FMT_ACT8;
    if (!is_matrix(x, want, cols) || !is_activation(x, cols) || !same_rows(x, node->out)) {
        return refuse(node, "the input", x,
                      want == GW_FMT_F32 ? "f32 for float weights" : "act8 for quantized weights");
    }
    return GW_OK;
}

static gw_status check_experts_glu(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_experts_args *a = &node->args.experts;
    const gw_tensor *x = node->in[0], *y = node->out;
    if (x == NULL || x->n_dim != 2) {
        return refuse(node, "the input", x, "[n, d]");
    }
    GW_TRY(check_experts(node, 2, 2, x->dim[1]));
    GW_TRY(check_experts_input(node, x->dim[1]));
    int64_t f = node->w[0]->dim[0] / a->experts;
    int fits = is_activation(y, a->used * f) && (y->fmt == GW_FMT_F32 || f % GW_ACT_BLOCK == 0);
    return fits ? GW_OK : refuse(node, "the output", y, "f32 or act8 [n, used f]");
}

static gw_status check_experts_down(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_experts_args *a = &node->args.experts;
    const gw_tensor *x = node->in[0], *y = node->out;
    if (x == NULL || x->n_dim != 2 || a->used < 1 || x->dim[1] % a->used != 0) {
        return refuse(node, "the input", x, "[n, used f]");
    }
    GW_TRY(check_experts(node, 1, 1, x->dim[1] / a->used));
    GW_TRY(check_experts_input(node, x->dim[1]));
    GW_TRY(check_addend(node, node->in[2]));
    int fits = is_matrix(y, GW_FMT_F32, node->w[0]->dim[0] / a->experts);
    return fits ? GW_OK : refuse(node, "the output", y, "f32 [n, d]");
}

static gw_status check_group_norm(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_group_norm_args *a = &node->args.group_norm;
    const gw_tensor *x = node->in[0], *gate = node->in[1], *y = node->out, *w = node->w[0];
    int64_t m = x != NULL ? x->dim[1] : 0;
    if (!is_matrix(x, GW_FMT_F32, m) || x->n_dim != 2 || !same_rows(x, y) || a->groups < 1 ||
        m % a->groups != 0 || !is_matrix(y, GW_FMT_F32, a->measure ? a->groups : m)) {
        return refuse(node, "the input", x, "f32 of the output's shape, in whole groups");
    }
    if (gate != NULL && (!is_matrix(gate, GW_FMT_F32, m) || !same_rows(gate, y))) {
        return refuse(node, "the gate", gate, "f32 of the output's shape");
    }
    if ((a->center && (gate != NULL || a->measure)) ||
        (node->w[1] != NULL && (!a->center || !is_vector(node->w[1], m)))) {
        return refuse(node, "the bias", node->w[1], "f32 [m] of centered groups without a gate");
    }
    return w == NULL || is_vector(w, m) || is_vector(w, m / a->groups)
               ? GW_OK
               : refuse(node, "the norm weight", w, "f32, of one group or of all");
}

static gw_status check_heads(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_heads_args *a = &node->args.heads;
    const gw_tensor *x = node->in[0], *w = node->w[0], *y = node->out;
    if (a->heads < 1 || w == NULL || w->n_dim != 2 || !is_weight(w) || !is_float(w) ||
        w->dim[0] % a->heads != 0) {
        return refuse(node, "the matrix", w, "a float weight, the rows of one head after another");
    }
    int64_t m = w->dim[0] / a->heads, k = w->dim[1];
    if (x == NULL || x->n_dim != 2 || x->fmt != GW_FMT_F32 || x->dim[1] % a->heads != 0 ||
        !same_rows(x, y) || a->first < 0 || a->pass_first < 0 || a->pass < 0 ||
        a->first + k > x->dim[1] / a->heads || a->pass_first + a->pass > x->dim[1] / a->heads) {
        return refuse(node, "the input", x, "f32 [n, h e], wide enough for the columns");
    }
    return is_matrix(y, GW_FMT_F32, a->heads * (a->pass + m))
               ? GW_OK
               : refuse(node, "the output", y, "f32 [n, h (s + m)]");
}

static gw_status check_streams(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_streams_args *a = &node->args.streams;
    const gw_tensor *x = node->in[0], *c = node->in[1], *base = node->in[2], *y = node->out;
    if (a->streams < 1 || a->inputs < 1 || a->from < 0 || a->from >= a->streams ||
        y->dim[1] % a->streams != 0 || !is_matrix(y, GW_FMT_F32, y->dim[1])) {
        return refuse(node, "the output", y, "f32, whole streams");
    }
    if (!is_matrix(x, GW_FMT_F32, y->dim[1] / a->streams * a->inputs) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, J m]");
    }
    if (c != NULL &&
        (!is_matrix(c, GW_FMT_F32, (int64_t)a->streams * a->inputs) || !same_rows(c, y))) {
        return refuse(node, "the coefficients", c, "f32 [n, I J]");
    }
    return a->from > 0 && base == NULL ? refuse(node, "the base", base, "f32 of the output's shape")
                                       : check_addend(node, base);
}

static gw_status check_sparse_glu(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *x = node->in[0], *y = node->out;
    if (!is_matrix(x, GW_FMT_F32, 2 * y->dim[1]) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, 2f]");
    }
    return is_matrix(y, GW_FMT_F32, y->dim[1]) ? GW_OK : refuse(node, "the output", y, "f32");
}

static gw_status check_columns(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_tensor *y = node->out;
    int64_t others = 0;
    for (int i = 0; i < GW_MAX_IN; i++) {
        const gw_tensor *x = node->in[i];
        if (x == NULL && i > 0) {
            continue;
        }
        if (x == NULL || x->n_dim != 2 || x->fmt != GW_FMT_F32 || !same_rows(x, y)) {
            return refuse(node, "an input", x, "f32, a row for each of the output");
        }
        others += i > 0 ? x->dim[1] : 0;
    }
    int64_t own = y->dim[1] - others, first = node->args.columns.first;
    int fits = first >= 0 && own > 0 && first + own <= node->in[0]->dim[1];
    return y->fmt == GW_FMT_F32 && fits
               ? GW_OK
               : refuse(node, "the output", y, "f32, as wide as its parts");
}

static gw_status check_hyper(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_hyper_args *a = &node->args.hyper;
    const gw_tensor *x = node->in[0], *y = node->out;
    int64_t n = a->streams, all = n * (n + 2);
    if (n < 1 || n > GW_HYPER_MOST || a->rounds < 1 || y->fmt != GW_FMT_F32 ||
        (y->dim[1] != n && y->dim[1] != all)) {
        return refuse(node, "the output", y, "f32 [n, N (N + 2)] or [n, N], 8 streams at most");
    }
    if (!is_matrix(x, GW_FMT_F32, y->dim[1]) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 of the output's shape");
    }
    return is_vector(node->w[0], y->dim[1] == n ? 1 : 3) && is_vector(node->w[1], y->dim[1])
               ? GW_OK
               : refuse(node, "the scale or the base", node->w[0], "f32, [3] or [1], [N (N + 2)]");
}

static int is_rope(const gw_tensor *t, int64_t dim) {
    return dim == 0 ? t == NULL
                    : t != NULL && t->n_dim == 3 && t->fmt == GW_FMT_F32 && t->dim[1] == 2 &&
                          2 * t->dim[2] == dim;
}

static gw_status check_rotate(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_rotate_args *a = &node->args.rotate;
    const gw_tensor *x = node->in[0], *y = node->out;
    if (x == NULL || a->heads < 1 || !is_matrix(x, GW_FMT_F32, y->dim[1]) || !same_rows(x, y) ||
        !is_matrix(y, GW_FMT_F32, y->dim[1]) || y->dim[1] % a->heads != 0) {
        return refuse(node, "the input", x, "f32 of the output's shape, whole heads");
    }
    if (a->first < 0 || a->first + a->rope_dim > y->dim[1] / a->heads ||
        !is_rope(node->w[0], a->rope_dim)) {
        return refuse(node, "the rope table", node->w[0], "as wide as what rotates of a head");
    }
    return GW_OK;
}

static gw_status check_group_dot(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_dot_args *a = &node->args.dot;
    const gw_tensor *x = node->in[0], *z = node->in[1], *y = node->out;
    if (x == NULL || z == NULL || a->groups < 1 || x->n_dim != 2 || x->dim[1] % a->groups != 0 ||
        !is_matrix(x, GW_FMT_F32, x->dim[1]) || !is_matrix(z, GW_FMT_F32, x->dim[1]) ||
        !same_rows(x, y) || !same_rows(z, y)) {
        return refuse(node, "an input", x, "f32, both of one shape, whole groups");
    }
    return is_matrix(y, GW_FMT_F32, a->groups) ? GW_OK
                                               : refuse(node, "the output", y, "f32 [n, groups]");
}

/* An area that lies in the pages of `t`, and the page table. */
static gw_status check_area(const gw_node *node, const gw_area *a, const gw_tensor *t,
                            const gw_tensor *table) {
    if (t == NULL || t->fmt != GW_FMT_F32 || t->n_dim != 2 || a->ratio < 1 || a->entry < 1 ||
        (a->width < 1 && a->ratio != 1) || a->at < 0 ||
        a->at + (int64_t)gw_area_floats(a) > t->dim[1]) {
        return refuse(node, "the area", t, "f32 [pages, floats], with room for it");
    }
    return table != NULL && table->n_dim == 2 && table->fmt == GW_FMT_I32
               ? GW_OK
               : refuse(node, "the page table", table, "i32 [slots, pages]");
}

static gw_status check_compress(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_compress_args *a = &node->args.compress;
    const gw_tensor *x = node->in[0], *y = node->out;
    int64_t e = a->area.entry, wide = a->series == 0 ? e : 2 * a->series * e;
    int bare = a->area.width == 0;
    GW_TRY(check_area(node, &a->area, node->in[1], node->in[2]));
    if (a->series < 0 || a->series > 2 || (!bare && a->area.width != wide) ||
        !is_matrix(x, GW_FMT_F32, wide) || !is_matrix(y, GW_FMT_F32, 1) || !same_rows(x, y)) {
        return refuse(node, "the input", x, "f32 [n, e], or [n, 2 series e]");
    }
    if (bare ? a->series > 0 || node->w[0] != NULL || node->w[1] != NULL
             : (node->w[1] == NULL ? a->series == 0 : !is_vector(node->w[1], e)) ||
                   (a->series == 0) != (node->w[0] == NULL) ||
                   (a->series > 0 && !is_vector(node->w[0], a->area.ratio * a->series * e))) {
        return refuse(node, "the norm or the bias", node->w[1], "f32 [e], [ratio series e]");
    }
    return a->first >= 0 && a->first + a->rope_dim <= e && is_rope(node->w[2], a->rope_dim)
               ? GW_OK
               : refuse(node, "the rope table", node->w[2], "as wide as what rotates");
}

static gw_status check_choose(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_choose_args *a = &node->args.choose;
    const gw_tensor *x = node->in[0], *by = node->in[3], *y = node->out;
    GW_TRY(check_area(node, &a->area, node->in[1], node->in[2]));
    if (a->heads < 1 || !is_matrix(x, GW_FMT_F32, (int64_t)a->heads * a->area.entry) ||
        !same_rows(x, y)) {
        return refuse(node, "the queries", x, "f32 [n, heads e]");
    }
    if (by != NULL && (!is_matrix(by, GW_FMT_F32, a->heads) || !same_rows(by, y) || a->block > 0)) {
        return refuse(node, "the weights", by, "f32 [n, heads], none of blocks");
    }
    if (a->block < 0 || a->local < 0 || (a->block > 0) != (a->local > 0) ||
        (a->block > 0 &&
         (a->area.width > 0 || a->ties != GW_TIES_LOWEST || y->dim[1] % a->heads != 0))) {
        return refuse(node, "the lists of blocks", y,
                      "of single positions, local blocks among them, a list for each head");
    }
    return is_matrix(y, GW_FMT_F32, y->dim[1]) ? GW_OK
                                               : refuse(node, "the output", y, "f32 [n, C]");
}

static gw_status check_listed(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_listed_args *a = &node->args.listed;
    const gw_tensor *x = node->in[0], *k = node->in[1], *v = node->in[2], *list = node->in[4];
    int64_t e = a->head_dim, ev = a->v_dim > 0 ? a->v_dim : e;
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0 || a->v_dim < 0 ||
        !is_matrix(x, GW_FMT_F32, a->heads * e) || !same_rows(x, node->out) ||
        !is_matrix(node->out, GW_FMT_F32, a->heads * ev)) {
        return refuse(node, "the queries", x, "f32 [n, h e], and [n, h ev] of the output");
    }
    if (k == NULL || k->n_dim != 4 || k->dim[1] != a->kv_heads || k->dim[2] != e ||
        k->dim[3] != GW_PAGE ||
        (v == NULL ? a->v_dim < 1 || a->v_first < 0 || a->v_first > e - ev
                   : v->n_dim != 4 || k->fmt != v->fmt || v->dim[1] != a->kv_heads ||
                         v->dim[3] != ev || v->dim[2] != GW_PAGE)) {
        return refuse(node, "the cache", k, "[pages, g, e, P], with [pages, g, P, ev] or values");
    }
    if ((list != NULL && (!is_matrix(list, GW_FMT_F32, list->dim[1]) || !same_rows(list, x))) ||
        (node->w[0] != NULL && !is_vector(node->w[0], a->heads))) {
        return refuse(node, "the list or the sinks", list, "f32 [n, C], f32 [h]");
    }
    if (node->in[5] == NULL) { /* blocks of its own cache */
        const gw_tensor *table = node->in[3];
        if (table == NULL || table->n_dim != 2 || table->fmt != GW_FMT_I32) {
            return refuse(node, "the page table", table, "i32 [slots, pages]");
        }
        int lists = a->lists > 1 ? a->lists : 1;
        return list != NULL && a->area.ratio > 0 && a->local >= 0 && a->kv_heads % lists == 0 &&
                       list->dim[1] % lists == 0
                   ? GW_OK
                   : refuse(node, "the list", list, "f32 [n, C], of blocks, for whole KV heads");
    }
    if (a->window < 1 || a->kv_heads != 1 || a->area.entry != e || ev != e || v == NULL ||
        a->local != 0 || a->lists > 1) {
        return refuse(node, "the area", node->in[5], "entries of one head's width, and a window");
    }
    return check_area(node, &a->area, node->in[5], node->in[3]);
}

static gw_status check_ngram(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_ngram_args *a = &node->args.ngram;
    const gw_tensor *w = node->w[0], *y = node->out;
    int64_t hashes = (int64_t)(a->size - 1) * a->heads;
    if (a->size < 2 || a->size > GW_NGRAM_SIZE || a->heads < 1 || hashes > GW_NGRAM_HASHES ||
        a->vocab < 1 || a->index < 0 || a->base < 2 || a->base > INT32_MAX) {
        return refuse(node, "the output", y, "lengths of 2 to 8, 64 hashes at most");
    }
    if (w == NULL || w->n_dim != 2 || !is_weight(w) ||
        !is_matrix(y, GW_FMT_F32, hashes * w->dim[1])) {
        return refuse(node, "the table", w, "[rows, width], a hash's columns beside another's");
    }
    gw_ngram g;
    gw_ngram_init(&g, a);
    const char *want = !gw_ngram_agrees(&g, a)
                           ? "one of this seed (its first multiplier is another)"
                       : w->dim[0] < g.first[hashes - 1] + g.rows[hashes - 1] ? "of more rows"
                                                                              : NULL;
    return want != NULL ? refuse(node, "the table", w, want) : gw_op_check_state(node, a->size - 1);
}

static gw_status check_exchange(const gw_node *node) {
    GW_TRY(check_out(node));
    const gw_exchange_args *a = &node->args.exchange;
    const gw_tensor *x = node->in[0], *y = node->out;
    int64_t grain = y->fmt == GW_FMT_ACT8 ? GW_ACT_BLOCK : 1;
    int fits = a->cards >= 1 && a->cards <= GW_MAX_CARDS && a->card >= 0 && a->card < a->cards &&
               a->parts >= 1 && a->first[0] == 0;
    for (int c = 0; fits && c < a->cards; c++) {
        fits = a->first[c] < a->first[c + 1] && a->first[c] % grain == 0;
    }
    if (!fits || y->dim[1] != (int64_t)a->parts * a->first[a->cards] ||
        !is_activation(y, y->dim[1])) {
        return refuse(node, "the output", y, "f32 or act8, as wide as the shares of all cards");
    }
    int64_t own = (int64_t)a->parts * (a->first[a->card + 1] - a->first[a->card]);
    if (!is_matrix(x, y->fmt, own) || !same_rows(x, y)) {
        return refuse(node, "the share", x, "as wide as this card's columns");
    }
    if (node->in[1] != NULL && y->fmt != GW_FMT_F32) {
        return refuse(node, "the output", y, "f32 where something is added");
    }
    return check_addend(node, node->in[1]);
}

int gw_op_is_plain(const gw_node *node) {
    const gw_rope_args *r = &node->args.rope;
    const gw_attn_args *a = &node->args.attn;
    const gw_embed_args *e = &node->args.embed;
    switch (node->op) {
    case GW_OP_EMBED:
        return node->w[1] == NULL && node->w[2] == NULL && (e->scale == 0.0f || e->scale == 1.0f);
    case GW_OP_PICK:
        return node->args.pick.kind == GW_PICK_ROWS;
    case GW_OP_NORM:
        return node->w[0] != NULL && node->w[1] == NULL && node->w[2] == NULL &&
               node->in[1] == NULL && node->args.norm.kind == GW_NORM_RMS;
    case GW_OP_ROPE_KV:
        return r->heads > 0 && r->kv_heads > 0 && (r->v_dim == 0 || r->v_dim == r->head_dim) &&
               r->norm_kind == GW_NORM_RMS && r->norm_span == GW_SPAN_HEAD && !r->norm_after &&
               !r->norm_plain && !r->norm_v && node->in[2] != NULL && node->w[2] != NULL &&
               node->w[3] == NULL;
    case GW_OP_ATTENTION:
        return (a->v_dim == 0 || a->v_dim == a->head_dim) && a->chunk == 0 && a->softcap == 0.0f &&
               node->in[2] != NULL && node->w[0] == NULL && node->w[1] == NULL &&
               node->w[2] == NULL && !a->both;
    default:
        return 1;
    }
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

/* Of one value in a cache; NULL: there is none. */
static double cell_bytes(const gw_tensor *cache) {
    const gw_format *f = cache != NULL ? gw_format_of(cache->fmt) : NULL;
    return f != NULL ? (double)f->block_bytes / (double)f->block_elems : 0.0;
}

/* Of a key and a value of a KV head, e and ev wide. */
static double cells_bytes(const gw_node *node, int e, int ev) {
    return e * cell_bytes(node->in[1]) + ev * cell_bytes(node->in[2]);
}

static void cost_rope_kv(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    const gw_rope_args *a = &node->args.rope;
    double kv = cells_bytes(node, a->head_dim, a->v_dim > 0 ? a->v_dim : a->head_dim);
    *bytes = rows * (row_bytes(node->in[0]) + row_bytes(node->out) + a->kv_heads * kv +
                     4.0 * a->rope_dim);
    *ops = 6.0 * rows * (double)(a->heads + a->kv_heads) * a->head_dim;
}

/* Rows are taken as the last ones of a single sequence of `positions`. */
static void cost_attention(const gw_node *node, int rows, int positions, double *bytes,
                           double *ops) {
    const gw_attn_args *a = &node->args.attn;
    double seen = 0.0;
    for (int i = 0; i < rows; i++) {
        int reach = a->both ? positions : positions - (rows - 1 - i);
        reach = a->window > 0 && reach > a->window ? a->window : reach;
        reach = a->chunk > 0 && reach > 0 ? (reach - 1) % a->chunk + 1 : reach;
        seen += reach > 0 ? reach : 0;
    }
    double span = a->window > 0 && positions > a->window + rows ? a->window + rows : positions;
    span = a->chunk > 0 && span > a->chunk ? (positions - 1) % a->chunk + 1 : span;
    int ev = a->v_dim > 0 ? a->v_dim : a->head_dim;
    *bytes = span * a->kv_heads * cells_bytes(node, a->head_dim, ev) +
             rows * (row_bytes(node->in[0]) + row_bytes(node->out));
    *ops = 2.0 * seen * a->heads * (double)(a->head_dim + ev);
}

/* Rows choose at random: of E experts, E (1 - (1 - u/E)^rows) different ones are read. */
static void cost_experts(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    const gw_experts_args *a = &node->args.experts;
    double unread = 1.0;
    for (int i = 0; i < rows; i++) {
        unread *= 1.0 - (double)a->used / a->experts;
    }
    *bytes = rows * row_bytes(node->out);
    for (int i = 0; i < 3; i++) {
        *bytes += node->in[i] != NULL ? rows * row_bytes(node->in[i]) : 0.0;
    }
    *ops = 0.0;
    for (int i = 0; i < 4; i++) {
        const gw_tensor *w = node->w[i];
        if (w != NULL) {
            double rows_of_one = w->n_dim == 2 ? (double)w->dim[0] / a->experts : 0.0;
            *bytes += weight_bytes(w) * (1.0 - unread);
            *ops += 2.0 * rows * a->used * rows_of_one * (double)w->dim[w->n_dim - 1];
        }
    }
}

static double cell_of(const gw_tensor *t) { return (double)t->dim[t->n_dim - 1] * sizeof(float); }

/* The state is read once and written for every row that may be taken back. */
static void cost_conv(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    double kept = rows < GW_STATE_ENTRIES ? rows : GW_STATE_ENTRIES - 1;
    *bytes = rows * (row_bytes(node->in[0]) + row_bytes(node->out)) + weight_bytes(node->w[0]) +
             (1.0 + kept) * cell_of(node->in[1]);
    *ops = 2.0 * rows * (double)node->out->dim[1] * node->args.conv.taps;
}

static void cost_scan(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    double kept = rows < GW_STATE_ENTRIES ? rows : GW_STATE_ENTRIES - 1;
    *bytes = rows * (row_bytes(node->in[0]) + row_bytes(node->in[2]) + row_bytes(node->out)) +
             (1.0 + kept) * cell_of(node->in[1]);
    *ops = 6.0 * rows * (double)node->in[1]->dim[2];
}

static void cost_heads(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    cost_plain(node, rows, bytes);
    *ops = 2.0 * rows * (double)node->w[0]->dim[0] * (double)node->w[0]->dim[1];
}

/* Of areas a step reads what its rows complete, entries once, lists once. */
static void cost_rotate(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    *bytes = 2.0 * rows * row_bytes(node->out);
    *ops = 6.0 * (double)rows * node->args.rotate.rope_dim * node->args.rotate.heads;
}

static void cost_compress(const gw_node *node, int rows, int positions, double *bytes,
                          double *ops) {
    (void)positions;
    double row = row_bytes(node->in[0]);
    *bytes = 3.0 * rows * row;
    *ops = 8.0 * rows * row / sizeof(float);
}

static void cost_choose(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    const gw_choose_args *a = &node->args.choose;
    double entries = (double)positions / a->area.ratio;
    *bytes = entries * a->area.entry * sizeof(float) + rows * row_bytes(node->in[0]);
    *ops = 2.0 * rows * entries * a->heads * a->area.entry;
}

static void cost_listed(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    const gw_listed_args *a = &node->args.listed;
    int has_area = node->in[5] != NULL;
    double entries = (double)positions / a->area.ratio;
    int lists = a->lists > 1 ? a->lists : 1;
    double most = node->in[4] != NULL ? (double)(node->in[4]->dim[1] / lists) : entries;
    entries = entries < most ? entries : most;
    double own = has_area ? a->window : a->area.ratio;
    double cells = 2.0 * a->kv_heads * a->head_dim * cell_bytes(node->in[1]);
    double each = has_area ? a->head_dim * (double)sizeof(float) : a->area.ratio * cells;
    *bytes = own * cells + entries * each + 2.0 * rows * row_bytes(node->in[0]);
    *ops = 4.0 * rows * (own + entries * (has_area ? 1 : a->area.ratio)) * a->heads * a->head_dim;
}

static void cost_ngram(const gw_node *node, int rows, int positions, double *bytes, double *ops) {
    (void)positions;
    *bytes = 2.0 * rows * row_bytes(node->out);
    *ops = (double)rows * (double)node->out->dim[1];
}

/* clang-format off */
static const gw_op_info ops[GW_OP_COUNT] = {
    /*                       name            check               cost           */
    [GW_OP_EMBED]        = {"embed",        check_embed,        cost_embed},
    [GW_OP_PICK]         = {"pick",         check_pick,         cost_rowwise},
    [GW_OP_NORM]         = {"norm",         check_norm,         cost_rowwise},
    [GW_OP_QUANTIZE]     = {"quantize",     check_quantize,     cost_rowwise},
    [GW_OP_LINEAR]       = {"linear",       check_linear,       cost_product},
    [GW_OP_GLU]          = {"glu",          check_glu,          cost_product},
    [GW_OP_ROPE_KV]      = {"rope_kv",      check_rope_kv,      cost_rope_kv},
    [GW_OP_ATTENTION]    = {"attention",    check_attention,    cost_attention},
    [GW_OP_SAMPLE]       = {"sample",       check_sample,       cost_rowwise},
    [GW_OP_ACT]          = {"act",          check_act,          cost_rowwise},
    [GW_OP_MIX]          = {"mix",          check_mix,          cost_rowwise},
    [GW_OP_ROUTE]        = {"route",        check_route,        cost_rowwise},
    [GW_OP_EXPERTS_GLU]  = {"experts_glu",  check_experts_glu,  cost_experts},
    [GW_OP_EXPERTS_DOWN] = {"experts_down", check_experts_down, cost_experts},
    [GW_OP_EXPERTS_LORA_A] = {"experts_lora_a", gw_op_check_lora_a, gw_op_cost_lora},
    [GW_OP_EXPERTS_LORA_B] = {"experts_lora_b", gw_op_check_lora_b, gw_op_cost_lora},
    [GW_OP_CONV]         = {"conv",         gw_op_check_conv,         cost_conv},
    [GW_OP_SCAN]         = {"scan",         gw_op_check_scan,         cost_scan},
    [GW_OP_EXP_GATES]    = {"exp_gates",    gw_op_check_exp_gates,    cost_rowwise},
    [GW_OP_DIVIDE]       = {"divide",       gw_op_check_divide,       cost_rowwise},
    [GW_OP_GROUP_NORM]   = {"group_norm",   check_group_norm,   cost_rowwise},
    [GW_OP_HEADS]        = {"heads",        check_heads,        cost_heads},
    [GW_OP_STREAMS]      = {"streams",      check_streams,      cost_rowwise},
    [GW_OP_SPARSE_GLU]   = {"sparse_glu",   check_sparse_glu,   cost_rowwise},
    [GW_OP_COLUMNS]      = {"columns",      check_columns,      cost_rowwise},
    [GW_OP_WIDEN]        = {"widen",        gw_op_check_widen,        cost_rowwise},
    [GW_OP_HYPER]        = {"hyper",        check_hyper,        cost_rowwise},
    [GW_OP_ROTATE]       = {"rotate",       check_rotate,       cost_rotate},
    [GW_OP_GROUP_DOT]    = {"group_dot",    check_group_dot,    cost_rowwise},
    [GW_OP_COMPRESS]     = {"compress",     check_compress,     cost_compress},
    [GW_OP_CHOOSE]       = {"choose",       check_choose,       cost_choose},
    [GW_OP_LISTED]       = {"listed",       check_listed,       cost_listed},
    [GW_OP_NGRAM]        = {"ngram",        check_ngram,        cost_ngram},
    [GW_OP_EXCHANGE]     = {"exchange",     check_exchange,     cost_rowwise},
};
/* clang-format on */

const gw_op_info *gw_op_describe(gw_op op) { return &ops[op]; }
