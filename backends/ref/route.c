/* backends/ref/route.c - ROUTE, straight from its definition. */
#include <math.h>
#include <string.h>

#include "backends/ref/ref.h"

/* Scores, selection scores, what is left to choose from, gates: of every expert; of every group. */
static size_t scratch_route(const gw_node *node, int rows) {
    (void)rows;
    return 6 * (size_t)ref_cols(node->in[0]);
}

/* The largest of n, the lowest index among equals. */
static int64_t largest(const double *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

static void softmax(double *x, int64_t n) {
    double top = x[largest(x, n)], sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = exp(x[i] - top);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] /= sum;
    }
}

/* Experts of groups that are not kept become -inf. */
static void keep_groups(const gw_route_args *a, double *select, int64_t experts, double *worth) {
    int64_t size = experts / a->groups;
    for (int g = 0; g < a->groups; g++) {
        double *own = select + g * size, best = own[largest(own, size)], second = -INFINITY;
        int64_t at = largest(own, size);
        for (int64_t i = 0; i < size; i++) {
            second = i != at && own[i] > second ? own[i] : second;
        }
        worth[g] = a->group_best == 2 && size > 1 ? best + second : best;
    }
    for (int kept = 0; kept < a->groups_used; kept++) {
        worth[largest(worth, a->groups)] = -INFINITY;
    }
    for (int64_t e = 0; e < experts; e++) {
        select[e] = isinf(worth[e / size]) ? select[e] : -INFINITY;
    }
}

/* SPARSEMIXER: softmax of what is left and near the largest; its share. */
static double near_share(const double *left, int64_t experts, int64_t best, double jitter) {
    double top = left[best], sum = 0.0;
    for (int64_t e = 0; e < experts; e++) {
        double size = fmax(fabs(left[e]), top);
        if (!isinf(left[e]) && !((top - left[e]) / size > 2.0 * jitter)) {
            sum += exp(left[e] - top);
        }
    }
    return 1.0 / sum;
}

static void score_all(const gw_route_args *a, double *score, int64_t experts) {
    if (a->score == GW_SCORE_SOFTMAX) {
        softmax(score, experts);
    }
    for (int64_t e = 0; e < experts; e++) {
        double x = score[e];
        score[e] = a->score == GW_SCORE_SIGMOID ? 1.0 / (1.0 + exp(-x))
                   : a->score == GW_SCORE_SQRT_SOFTPLUS
                       ? sqrt((x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))))
                       : x;
    }
}

static void finish(const gw_node *node, double *gate, const double *expert) {
    const gw_route_args *a = &node->args.route;
    int sigmoid = a->score == GW_SCORE_SIGMOID || a->score == GW_SCORE_SQRT_SOFTPLUS;
    double sum = sigmoid ? 1e-20 : 0.0;
    if (a->score == GW_SCORE_SOFTMAX_CHOSEN) {
        softmax(gate, a->used);
    }
    for (int i = 0; i < a->used; i++) {
        sum += gate[i];
    }
    for (int i = 0; i < a->used; i++) {
        gate[i] /= a->renorm ? sum : 1.0;
        gate[i] *= a->scale != 0.0f ? (double)a->scale : 1.0;
        gate[i] *= node->w[1] != NULL ? (double)ref_floats(node->w[1], 0)[(int)expert[i]] : 1.0;
    }
}

static void run_route(const gw_node *node, const gw_step *step, int rows, double *scratch) {
    const gw_route_args *a = &node->args.route;
    int64_t experts = ref_cols(node->in[0]);
    int sparse = a->score == GW_SCORE_SPARSEMIXER;
    double *score = scratch, *left = score + experts, *worth = left + experts;
    double *gate = worth + experts, *out = gate + experts;
    (void)step;
    for (int i = 0; i < rows; i++) {
        int n = 0;
        ref_read(score, node->in[0], i);
        score_all(a, score, experts);
        memcpy(left, score, (size_t)experts * sizeof *left);
        for (int64_t e = 0; e < experts && node->w[0] != NULL && !sparse; e++) {
            left[e] += (double)ref_floats(node->w[0], 0)[e];
        }
        if (a->groups > 0 && !sparse) {
            keep_groups(a, left, experts, worth);
        }
        for (int64_t e = 0; e < experts; e++) {
            worth[e] = 0.0; /* from here on: whether it is chosen */
        }
        for (int j = 0; j < a->used; j++) {
            int64_t best = node->in[1] != NULL ? (int64_t)ref_floats(node->in[1], i)[j]
                                               : largest(left, experts);
            gate[best] = sparse ? near_share(left, experts, best, (double)a->jitter) : score[best];
            worth[best] = 1.0;
            left[best] = -INFINITY;
        }
        for (int64_t e = 0; e < experts; e++) {
            if (worth[e] > 0.0) {
                out[n] = (double)e;
                out[a->used + n++] = gate[e];
            }
        }
        finish(node, out + a->used, out);
        ref_write(node->out, i, out);
    }
}

const ref_op ref_route = {scratch_route, run_route};
