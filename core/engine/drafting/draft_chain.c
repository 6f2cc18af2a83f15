/* core/engine/drafting/draft_chain.c - see draft_chain.h. The factor of low rank of a row is made
 * here, of w1's row of the token before it, gates and memory; its product with w2 is a model of its
 * own (specs/dflash-chain.spec), on the head's device. */
#include "core/engine/drafting/draft_chain.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"
#include "core/engine/run/model_state.h"
#include "core/engine/run/session_hidden.h"
#include "core/engine/run/session_rows.h"
#include "core/tensor/act.h"

enum { LANES = 8 };

struct gw_chain {
    gw_draft_chain is;
    gw_session *product; /* of w2 */
    int32_t width, vocab;
    float *gate, *gate_bias; /* [gate's rows, its columns] */
    float *sure;             /* [width (+ rank)]; NULL: it does not say */
    float sure_bias;
    float *w1;    /* [rank], of a token                */
    float *state; /* [texts, rank] of a block so far   */
    float *next;  /* [rank] what becomes of it         */
    float *given; /* [texts, 2 * rank] of a step       */
    gw_row *rows; /* [texts]                           */
    float *sum;   /* [vocab]                           */
};

/* Sums in double by column modulo 8, joined in order. */
static double dot(const float *w, const float *x, int32_t n) {
    double lane[LANES] = {0.0}, sum = 0.0;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int32_t k = 0; k < LANES; k++) {
            lane[k] += (double)w[i + k] * (double)x[i + k];
        }
    }
    for (int32_t k = 0; i + k < n; k++) {
        lane[k] += (double)w[i + k] * (double)x[i + k];
    }
    for (int32_t k = 0; k < LANES; k++) {
        sum += lane[k];
    }
    return sum;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int role_named(const gw_model *m, const char *role) {
    const gw_blueprint *bp = gw_weights_blueprint(m->weights);
    int r = bp->n_weights - 1;
    while (r >= 0 && strcmp(bp->weight[r].role, role) != 0) {
        r--;
    }
    return r;
}

static gw_status read_values(const gw_model *m, const char *role, float **out) {
    int64_t rows;
    int r = role_named(m, role);
    return r >= 0 ? gw_weights_values(m->weights, r, out, &rows) : GW_OK;
}

static gw_status read_gates(gw_chain *c, const gw_model *head) {
    float *bias = NULL;
    if (c->is.kind != GW_CHAIN_PLAIN) {
        GW_TRY(read_values(head, "chain_gate", &c->gate));
        GW_TRY(read_values(head, "chain_bias", &c->gate_bias));
        if (c->gate == NULL || c->gate_bias == NULL) {
            return gw_fail(GW_E_METADATA, head->name,
                           "markov_head.%s.weight is missing, or its bias",
                           c->is.kind == GW_CHAIN_GATED ? "gate_proj" : "joint_proj");
        }
    }
    if (c->is.sure) {
        GW_TRY(read_values(head, "sure", &c->sure));
        GW_TRY(read_values(head, "sure_bias", &bias));
    }
    c->sure_bias = bias != NULL ? bias[0] : 0.0f;
    free(bias);
    return GW_OK;
}

static gw_status open_product(gw_chain *c, const gw_model *head, int32_t texts) {
    const gw_sharing sharing = {.slots = texts, .pages = texts, .widest = texts};
    const gw_session_options o = {.n_ctx = GW_PAGE, .chunk = GW_DECODE_MAX};
    GW_TRY(gw_session_make(head->chain, &o, &sharing, &c->product));
    c->width = head->hp.d_model;
    c->vocab = head->hp.n_vocab;
    if (head->chain->hp.n_vocab != c->vocab) {
        return gw_fail(GW_E_METADATA, head->name, "has logits of %d tokens, and adds to %d",
                       (int)c->vocab, (int)head->chain->hp.n_vocab);
    }
    return GW_OK;
}

gw_status gw_chain_new(const gw_model *head, int32_t texts, gw_chain **out) {
    *out = NULL;
    if (head->chain == NULL) {
        return GW_OK;
    }
    gw_chain *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for a chain");
    }
    *out = c;
    c->is = head->draft_chain;
    GW_TRY(open_product(c, head, texts));
    GW_TRY(read_gates(c, head));
    const size_t n = (size_t)texts, rank = (size_t)c->is.rank;
    c->w1 = calloc(rank, sizeof *c->w1);
    c->state = calloc(n * rank, sizeof *c->state);
    c->next = calloc(rank, sizeof *c->next);
    c->given = calloc(n * 2 * rank, sizeof *c->given);
    c->rows = calloc(n, sizeof *c->rows);
    c->sum = calloc((size_t)c->vocab, sizeof *c->sum);
    return c->w1 != NULL && c->state != NULL && c->next != NULL && c->given != NULL &&
                   c->rows != NULL && c->sum != NULL
               ? GW_OK
               : gw_fail(GW_E_NOMEM, "draft", "no memory for chains of %d texts", (int)texts);
}

void gw_chain_free(gw_chain *c) {
    if (c == NULL) {
        return;
    }
    gw_session_free(c->product);
    free(c->gate);
    free(c->gate_bias);
    free(c->sure);
    free(c->w1);
    free(c->state);
    free(c->next);
    free(c->given);
    free(c->rows);
    free(c->sum);
    free(c);
}

/* ---- steps ----------------------------------------------------------------------------------- */

void gw_chain_begin(gw_chain *c, int32_t text) {
    memset(c->state + (size_t)text * (size_t)c->is.rank, 0, (size_t)c->is.rank * sizeof *c->state);
}

static float gate_of(const gw_chain *c, int32_t row, const float *hidden) {
    const float *w = c->gate + (size_t)row * (size_t)(c->width + c->is.rank);
    return (float)(dot(w, hidden, c->width) + dot(w + c->width, c->w1, c->is.rank) +
                   (double)c->gate_bias[row]);
}

static float joint_of(const gw_chain *c, int32_t row, const float *state, const float *hidden) {
    const int32_t rank = c->is.rank;
    const float *w = c->gate + (size_t)row * (size_t)(c->width + 2 * rank);
    return (float)(dot(w, state, rank) + dot(w + rank, c->w1, rank) +
                   dot(w + 2 * rank, hidden, c->width) + (double)c->gate_bias[row]);
}

/* What the product's model multiplies w1's row by, and adds to that. */
static void fill(gw_chain *c, const gw_chain_row *row, float *given) {
    const int32_t rank = c->is.rank;
    float *state = c->state + (size_t)row->text * (size_t)rank, *added = given + rank;
    const int remembers = c->is.kind == GW_CHAIN_REMEMBERS;
    for (int32_t i = 0; i < rank; i++) {
        given[i] = c->is.kind == GW_CHAIN_PLAIN ? 1.0f
                   : remembers                  ? 0.0f
                                                : gw_sigmoid(gate_of(c, i, row->hidden));
        added[i] = remembers ? gw_tanh(joint_of(c, 2 * rank + i, state, row->hidden)) : 0.0f;
    }
    if (!remembers) {
        return;
    }
    for (int32_t i = 0; i < rank; i++) {
        float keep = gw_sigmoid(joint_of(c, i, state, row->hidden));
        float other = gw_tanh(joint_of(c, rank + i, state, row->hidden));
        c->next[i] = keep * state[i] + (1.0f - keep) * other;
    }
    memcpy(state, c->next, (size_t)rank * sizeof *state);
}

static float trust_of(const gw_chain *c, const gw_chain_row *row) {
    double sum = (double)c->sure_bias;
    if (c->sure == NULL) {
        return -1.0f;
    }
    sum += dot(c->sure, row->hidden, c->width);
    sum += c->is.sure_by_token ? dot(c->sure + c->width, c->w1, c->is.rank) : 0.0;
    return gw_sigmoid((float)sum);
}

gw_status gw_chain_step(gw_chain *c, gw_chain_row *rows, int32_t n) {
    const gw_model *product = gw_session_model(c->product);
    const int w1 = role_named(product, "embed");
    for (int32_t i = 0; i < n; i++) {
        GW_TRY(gw_weights_row(product->weights, w1, rows[i].before, c->w1));
        fill(c, &rows[i], c->given + (size_t)i * 2 * (size_t)c->is.rank);
        rows[i].trust = trust_of(c, &rows[i]);
        c->rows[i] = (gw_row){.token = rows[i].before, .slot = rows[i].text};
    }
    GW_TRY(gw_session_hidden_give(c->product, c->given, n));
    return gw_rows_decode(c->product, c->rows, n, NULL, NULL);
}

gw_status gw_chain_logits(gw_chain *c, int32_t i, const float *logits, const float **out) {
    *out = NULL;
    GW_TRY(gw_rows_fetch(c->product, i));
    const float *more = gw_rows_logits(c->product, i);
    if (logits == NULL || more == NULL) {
        return GW_OK;
    }
    for (int32_t t = 0; t < c->vocab; t++) {
        c->sum[t] = logits[t] + more[t];
    }
    *out = c->sum;
    return GW_OK;
}
