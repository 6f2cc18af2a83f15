/* core/tensor/route.h - which experts a row of a mixture uses, and their gates, in the words of
 * dialect.h: docs/arithmetic.md, section 5. All of one row by one thread.
 */
#ifndef GW_TENSOR_ROUTE_H
#define GW_TENSOR_ROUTE_H

#include "core/tensor/act.h"

#define GW_ROUTE_MOST 1024 /* experts, at most */

typedef enum gw_score {
    GW_SCORE_SOFTMAX,        /* over all experts                                       */
    GW_SCORE_SOFTMAX_CHOSEN, /* over the chosen ones' logits                           */
    GW_SCORE_SIGMOID,
    GW_SCORE_SQRT_SOFTPLUS,
    GW_SCORE_SPARSEMIXER /* Phi-3.5-MoE: one after the other, threshold 2 * jitter     */
} gw_score;
typedef struct gw_route_args {
    int used; /* u: experts of a row */
    gw_score score;
    int groups, groups_used; /* experts in groups of E / groups, the best groups_used are kept;
                              * 0: no limit */
    int group_best;          /* a group's worth: the sum of its best 1 or 2 selection scores */
    int renorm;              /* gates divided by their sum (+ 1e-20 for sigmoid kinds) */
    float scale;             /* of all gates, after renorm; 0: none */
    float jitter;            /* SPARSEMIXER: jitter eps */
} gw_route_args;

enum { GW_ROUTE_OPEN, GW_ROUTE_CHOSEN, GW_ROUTE_SHUT };

/* The largest value that is open, lowest index among equals; there is one. */
GW_FN int gw_route_best(const float *x, const gw_u8 *mark, int n) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (mark[i] == GW_ROUTE_OPEN && (best < 0 || x[i] > x[best])) {
            best = i;
        }
    }
    return best;
}

/* Experts of groups that are not among the best are shut. */
GW_FN void gw_route_groups(const gw_route_args *a, int experts, const float *select, gw_u8 *mark) {
    float worth[GW_ROUTE_MOST];
    gw_u8 kept[GW_ROUTE_MOST];
    int size = experts / a->groups;
    for (int g = 0; g < a->groups; g++) {
        float first = select[g * size], second = 0.0f;
        for (int i = 1; i < size; i++) {
            float x = select[g * size + i];
            if (x > first) {
                second = first;
                first = x;
            } else {
                second = i == 1 || x > second ? x : second;
            }
        }
        worth[g] = a->group_best == 2 && size > 1 ? first + second : first;
        kept[g] = GW_ROUTE_OPEN;
    }
    for (int i = 0; i < a->groups_used; i++) {
        kept[gw_route_best(worth, kept, a->groups)] = GW_ROUTE_CHOSEN;
    }
    for (int e = 0; e < experts; e++) {
        mark[e] = kept[e / size] == GW_ROUTE_CHOSEN ? GW_ROUTE_OPEN : GW_ROUTE_SHUT;
    }
}

/* SPARSEMIXER: the gate of `best` among the experts that are open and near it. */
GW_FN float gw_route_near(const float *x, const gw_u8 *mark, int experts, int best, float jitter) {
    float top = x[best], sum = 0.0f;
    for (int e = 0; e < experts; e++) {
        float size = GW_FABS(x[e]);
        size = size < top ? top : size;
        if (mark[e] == GW_ROUTE_OPEN && !((top - x[e]) / size > 2.0f * jitter)) {
            sum = sum + gw_exp(x[e] - top);
        }
    }
    return 1.0f / sum;
}

/* The score of a logit; SOFTMAX: with the largest one and the sum of all. */
GW_FN float gw_route_score(gw_score score, float x, float largest, float sum) {
    return score == GW_SCORE_SOFTMAX         ? gw_exp(x - largest) / sum
           : score == GW_SCORE_SIGMOID       ? gw_sigmoid(x)
           : score == GW_SCORE_SQRT_SOFTPLUS ? GW_SQRT(gw_softplus(x))
                                             : x;
}

/* Divides the gates of out as a->renorm says, and multiplies them. */
GW_FN void gw_route_finish(const gw_route_args *a, GW_GLOBAL const float *factor,
                           GW_GLOBAL float *out) {
    int u = a->used, sigmoid = a->score == GW_SCORE_SIGMOID || a->score == GW_SCORE_SQRT_SOFTPLUS;
    float sum = 0.0f;
    for (int i = 0; i < u; i++) {
        sum = sum + out[u + i];
    }
    sum = sigmoid ? sum + 1e-20f : sum;
    for (int i = 0; i < u; i++) {
        float gate = out[u + i];
        gate = a->renorm ? gate / sum : gate;
        gate = a->scale != 0.0f ? gate * a->scale : gate;
        out[u + i] = factor != 0 ? gate * factor[(int)out[i]] : gate;
    }
}

/* Softmax of the gates of out, which are logits. */
GW_FN void gw_route_softmax(int u, GW_GLOBAL float *out) {
    float largest = out[u], sum = 0.0f;
    for (int i = 1; i < u; i++) {
        largest = out[u + i] > largest ? out[u + i] : largest;
    }
    for (int i = 0; i < u; i++) {
        out[u + i] = gw_exp(out[u + i] - largest);
        sum = sum + out[u + i];
    }
    for (int i = 0; i < u; i++) {
        out[u + i] = out[u + i] / sum;
    }
}

/* x: the logits; bias of the selection, factor of each expert's gate [experts], or NULL; given: the
 * experts [used] where they are known already, or NULL. out [2 used]: experts in increasing order,
 * then their gates. */
GW_FN void gw_route_row(const gw_route_args *a, int experts, GW_GLOBAL const float *x,
                        GW_GLOBAL const float *bias, GW_GLOBAL const float *factor,
                        GW_GLOBAL const float *given, GW_GLOBAL float *out) {
    float select[GW_ROUTE_MOST], largest = x[0], sum = 0.0f;
    gw_u8 mark[GW_ROUTE_MOST];
    int sparse = a->score == GW_SCORE_SPARSEMIXER, n = 0;
    for (int e = 1; e < experts; e++) {
        largest = x[e] > largest ? x[e] : largest;
    }
    for (int e = 0; e < experts && a->score == GW_SCORE_SOFTMAX; e++) {
        sum = sum + gw_exp(x[e] - largest);
    }
    for (int e = 0; e < experts; e++) {
        float score = gw_route_score(a->score, x[e], largest, sum);
        select[e] = bias != 0 && !sparse ? score + bias[e] : score;
        mark[e] = GW_ROUTE_OPEN;
    }
    if (a->groups > 0 && !sparse) {
        gw_route_groups(a, experts, select, mark);
    }
    for (int i = 0; i < a->used; i++) {
        int best = given != 0 ? (int)given[i] : gw_route_best(select, mark, experts);
        float gate = sparse ? gw_route_near(select, mark, experts, best, a->jitter) : 0.0f;
        mark[best] = GW_ROUTE_CHOSEN;
        select[best] = sparse ? gate : gw_route_score(a->score, x[best], largest, sum);
    }
    for (int e = 0; e < experts; e++) {
        if (mark[e] == GW_ROUTE_CHOSEN) {
            out[n] = (float)e;
            out[a->used + n++] = select[e];
        }
    }
    if (a->score == GW_SCORE_SOFTMAX_CHOSEN) {
        gw_route_softmax(a->used, out);
    }
    gw_route_finish(a, factor, out);
}

#endif
