/* core/engine/beam/hypotheses.c - see hypotheses.h. */
#include "core/engine/beam/hypotheses.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/sampling/sampler.h"
#include "core/tensor/arith.h"

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status make_texts(int n, int32_t room, gw_hypothesis **out) {
    *out = calloc((size_t)n, sizeof **out);
    for (int i = 0; *out != NULL && i < n; i++) {
        (*out)[i].tokens = malloc((size_t)room * sizeof(int32_t));
        if ((*out)[i].tokens == NULL) {
            return GW_E_NOMEM;
        }
    }
    return *out != NULL ? GW_OK : GW_E_NOMEM;
}

gw_status gw_hypotheses_new(const gw_beam_options *o, const int32_t *ends, int n_ends,
                            const gw_beam_input *in, int32_t most, gw_hypotheses *out) {
    int n = o->n_beams, per = n_ends > 0 ? 1 + n_ends : 2;
    gw_hypotheses h = {.o = o,
                       .ends = ends,
                       .n_ends = n_ends,
                       .n_prompt = (int32_t)in->n_prompt,
                       .n_forced = (int32_t)in->n_forced,
                       .most = most,
                       .room = most,
                       .n_running = 1,
                       .hopeful = 1};
    h.most_best = n * per;
    h.best = calloc((size_t)h.most_best, sizeof *h.best);
    if (h.best == NULL || make_texts(n, most, &h.running) != GW_OK ||
        make_texts(n, most, &h.next) != GW_OK || make_texts(n, most, &h.ended) != GW_OK) {
        gw_hypotheses_free(&h);
        return gw_fail(GW_E_NOMEM, "beams", "no memory for %d texts of %d tokens", n, (int)most);
    }
    memcpy(h.running[0].tokens, in->prompt, in->n_prompt * sizeof(int32_t));
    h.running[0].n = (int32_t)in->n_prompt;
    h.done = h.running[0].n >= most;
    *out = h;
    return GW_OK;
}

void gw_hypotheses_free(gw_hypotheses *h) {
    gw_hypothesis *const lists[] = {h->running, h->next, h->ended};
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        for (int i = 0; lists[k] != NULL && i < h->o->n_beams; i++) {
            free(lists[k][i].tokens);
        }
        free(lists[k]);
    }
    free(h->best);
    memset(h, 0, sizeof *h);
}

/* ---- continuations --------------------------------------------------------------------------- */

static int ends_text(const gw_hypotheses *h, int32_t token) {
    int is = 0;
    for (int i = 0; i < h->n_ends; i++) {
        is |= h->ends[i] == token;
    }
    return is;
}

/* Logits become log probabilities. */
static void normalize(float *x, int32_t n) {
    float largest = gw_logits_top(x, (size_t)n);
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)gw_exp(x[i] - largest);
    }
    float all = gw_log((float)sum);
    for (int32_t i = 0; i < n; i++) {
        x[i] = (x[i] - largest) - all;
    }
}

/* Tokens that would complete a run that the text has already. */
static void ban_repeats(const gw_hypothesis *t, int32_t run, float *x, int32_t n) {
    const int32_t *end = t->tokens + t->n - (run - 1);
    for (int32_t i = 0; run > 0 && i + run <= t->n; i++) {
        int32_t next = t->tokens[i + run - 1];
        if (memcmp(t->tokens + i, end, (size_t)(run - 1) * sizeof *end) == 0 && next < n) {
            x[next] = -INFINITY;
        }
    }
}

static void shape(const gw_hypotheses *h, const gw_hypothesis *t, float *x, int32_t n) {
    const gw_beam_options *o = h->o;
    if (o->no_repeat > 0) {
        ban_repeats(t, o->no_repeat, x, n);
    }
    for (int i = 0; t->n < o->min_length && i < h->n_ends; i++) {
        if (h->ends[i] < n) {
            x[h->ends[i]] = -INFINITY;
        }
    }
    if (o->forced_end >= 0 && o->forced_end < n && t->n == h->most - 1) {
        for (int32_t i = 0; i < n; i++) {
            x[i] = -INFINITY;
        }
        x[o->forced_end] = 0.0f;
    }
}

static void insert(gw_hypotheses *h, gw_continuation c) {
    int at = h->n_best < h->most_best ? h->n_best++ : h->n_best - 1;
    for (; at > 0 && c.score > h->best[at - 1].score; at--) {
        h->best[at] = h->best[at - 1];
    }
    h->best[at] = c;
}

void gw_hypotheses_offer(gw_hypotheses *h, int beam, float *logits, int32_t n_vocab) {
    const gw_hypothesis *t = &h->running[beam];
    h->n_best = beam == 0 ? 0 : h->n_best;
    normalize(logits, n_vocab);
    shape(h, t, logits, n_vocab);
    for (int32_t i = 0; i < n_vocab; i++) {
        float score = t->logprob + logits[i];
        int full = h->n_best == h->most_best;
        if (score > (full ? h->best[h->n_best - 1].score : -INFINITY)) {
            insert(h, (gw_continuation){score, beam, i});
        }
    }
}

/* ---- a step ---------------------------------------------------------------------------------- */

static float per_length(const gw_hypotheses *h, float score, int32_t n) {
    int32_t length = n - (h->n_prompt - h->n_forced);
    return score / (float)pow((double)length, (double)h->o->length_penalty);
}

static void copy_text(gw_hypothesis *to, const gw_hypothesis *from, int32_t token, float logprob) {
    memcpy(to->tokens, from->tokens, (size_t)from->n * sizeof *to->tokens);
    to->tokens[from->n] = token;
    to->n = from->n + 1;
    to->logprob = logprob;
}

/* A text that ends takes its place among the best of those that have, if it has one. */
static void end_text(gw_hypotheses *h, const gw_continuation *c) {
    const gw_hypothesis *from = &h->running[c->beam];
    int most = h->o->n_beams, full = h->n_ended == most;
    float score = per_length(h, c->score, from->n + 1);
    if (full && !(score > h->ended[most - 1].score)) {
        return;
    }
    int at = full ? most - 1 : h->n_ended++;
    gw_hypothesis room = h->ended[at];
    for (; at > 0 && score > h->ended[at - 1].score; at--) {
        h->ended[at] = h->ended[at - 1];
    }
    h->ended[at] = room;
    copy_text(&h->ended[at], from, c->token, c->score);
    h->ended[at].score = score;
}

/* May the best running text still become better than the worst that has ended? */
static int is_hopeful(const gw_hypotheses *h, int32_t n) {
    const gw_beam_options *o = h->o;
    int later = o->early == GW_BEAM_EARLY_NEVER && o->length_penalty > 0.0f;
    if (h->n_running == 0 || h->n_ended < o->n_beams) {
        return h->n_running > 0;
    }
    return per_length(h, h->running[0].logprob, later ? h->most : n) >
           h->ended[h->n_ended - 1].score;
}

void gw_hypotheses_step(gw_hypotheses *h, int *parent) {
    int beams = h->o->n_beams, going = 0;
    int32_t n = h->running[0].n + 1;
    int closed = !h->hopeful || (h->o->early == GW_BEAM_EARLY_YES && h->n_ended == beams);
    for (int i = 0; i < h->n_best; i++) {
        const gw_continuation *c = &h->best[i];
        if (n >= h->most || ends_text(h, c->token)) {
            if (i < beams && !closed) {
                end_text(h, c);
            }
        } else if (going < beams) {
            copy_text(&h->next[going], &h->running[c->beam], c->token, c->score);
            parent[going++] = c->beam;
        }
    }
    gw_hypothesis *before = h->running;
    h->running = h->next;
    h->next = before;
    h->n_running = going;
    h->hopeful = h->hopeful && is_hopeful(h, n);
    h->done = going == 0 || !h->hopeful ||
              (h->o->early == GW_BEAM_EARLY_YES && h->n_ended == beams);
}
