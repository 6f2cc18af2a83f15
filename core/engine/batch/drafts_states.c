/* core/engine/batch/drafts_states.c - hidden states of the target, for a draft model that takes
 * them (draft_hidden.c says what that is): of each slot those of the last positions. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/engine/batch/batch_state.h"
#include "core/engine/run/session_hidden.h"

/* Positions of a slot whose states wait: drafts of a pass, and what was kept of the one before. */
enum { WAITING = 2 * GW_DECODE_MAX };

static float *row_of(const gw_draft_states *t, float *rows, int32_t i) {
    return rows + (size_t)i * (size_t)t->width;
}

/* A ring: the last positions of the slot, each at its own place. */
static float *waiting(const gw_draft_states *t, int32_t slot, int32_t pos) {
    return row_of(t, t->rows, slot * WAITING + pos % WAITING);
}

gw_status gw_draft_states_open(gw_batch *b) {
    gw_draft_states *t = &b->drafts.states;
    gw_session *draft = b->drafts.model;
    if (draft == NULL || !gw_model_predicts(draft->model)) {
        return GW_OK;
    }
    int32_t widest = gw_session_widest(b->session), wide = gw_session_widest(draft);
    int32_t slots = b->parallel;
    widest = wide > widest ? wide : widest;
    size_t most = (size_t)(b->chunk > widest ? b->chunk : widest);
    int32_t layer[GW_TAPS], width = gw_model_given_width(draft->model);
    int taps = 0;
    GW_TRY(gw_model_taps(draft->model, b->model, layer, &taps));
    GW_TRY(taps > 0 ? gw_session_hidden_tap(b->session, layer, taps) : GW_OK);
    const int by_block = b->drafts.block.rows > 0;
    t->own_at = width - (by_block ? 1 : gw_session_hidden_width(draft));
    if (gw_session_hidden_width(b->session) != (taps > 0 ? t->own_at : width)) {
        return gw_fail(GW_E_UNSUPPORTED, "draft",
                       "takes hidden states of %d values, the model's have %d",
                       (int)(taps > 0 ? t->own_at : width),
                       (int)gw_session_hidden_width(b->session));
    }
    t->rows = calloc((size_t)slots * WAITING * (size_t)width, sizeof *t->rows);
    t->own = calloc((size_t)slots * (size_t)width, sizeof *t->own);
    t->pass = calloc(most * (size_t)width, sizeof *t->pass);
    t->given = calloc(most * (size_t)width, sizeof *t->given);
    t->first = calloc((size_t)slots, sizeof *t->first);
    t->n = calloc((size_t)slots, sizeof *t->n);
    if (t->rows == NULL || t->own == NULL || t->pass == NULL || t->given == NULL ||
        t->first == NULL || t->n == NULL) {
        return gw_fail(GW_E_NOMEM, "draft", "no memory for hidden states of %d sequences",
                       (int)slots);
    }
    t->width = width;
    GW_TRY(gw_session_hidden_open(b->session));
    return by_block ? GW_OK : gw_session_hidden_open(draft);
}

void gw_draft_states_close(gw_batch *b) {
    gw_draft_states *t = &b->drafts.states;
    free(t->rows);
    free(t->own);
    free(t->pass);
    free(t->given);
    free(t->first);
    free(t->n);
}

void gw_draft_states_begin(gw_batch *b, int32_t slot) {
    if (b->drafts.states.width > 0) {
        b->drafts.states.n[slot] = 0;
    }
}

/* What row i of the pass has left waits as that of its position. */
static void keep(gw_draft_states *t, const gw_row *row, int32_t i) {
    int32_t slot = row->slot, first = t->first[slot], n = t->n[slot];
    if (row->pos < first || row->pos > first + n) {
        first = row->pos;
        n = 0;
    }
    n = row->pos - first;
    if (n == WAITING) {
        first++;
        n--;
    }
    memcpy(waiting(t, slot, row->pos), row_of(t, t->pass, i), (size_t)t->width * sizeof *t->rows);
    t->first[slot] = first;
    t->n[slot] = n + 1;
}

/* Of rows [at, at + n) that have run: the target's first, then nothing of the draft model's. */
static gw_status read_target(gw_batch *b, int32_t at, int32_t n) {
    gw_draft_states *t = &b->drafts.states;
    memset(t->pass, 0, (size_t)n * (size_t)t->width * sizeof *t->pass);
    return gw_session_hidden_read(b->session, at, n, t->pass, t->width);
}

gw_status gw_draft_states_take(gw_batch *b, const gw_row *rows, int32_t n) {
    gw_draft_states *t = &b->drafts.states;
    int32_t at = 0, followed = t->width > 0 ? gw_drafts_rows(b, rows, n, &at) : 0;
    if (followed == 0) {
        return GW_OK;
    }
    double start = gw_seconds_now();
    GW_TRY(read_target(b, at, followed));
    for (int32_t i = 0; i < followed; i++) {
        keep(t, &rows[at + i], i);
    }
    b->drafts.rest.spent += gw_seconds_now() - start;
    return GW_OK;
}

int gw_draft_states_has(const gw_batch *b, const gw_seq *s) {
    const gw_draft_states *t = &b->drafts.states;
    return t->width == 0 || (t->n[s->slot] > 0 && t->first[s->slot] <= s->drafts.read);
}

/* The state before a row, or of a model that drafts by blocks its own; zeros where it is not there.
 */
static void before(const gw_batch *b, const gw_row *row, float *to) {
    const gw_draft_states *t = &b->drafts.states;
    int32_t at = row->pos - (b->drafts.block.rows == 0) - t->first[row->slot];
    size_t bytes = (size_t)t->width * sizeof *to;
    if (at >= 0 && at < t->n[row->slot]) {
        memcpy(to, waiting(t, row->slot, t->first[row->slot] + at), bytes);
    } else {
        memset(to, 0, bytes);
    }
}

gw_status gw_draft_states_read(gw_batch *b, const gw_row *rows, int32_t at, int32_t n) {
    gw_draft_states *t = &b->drafts.states;
    if (t->width == 0) {
        return GW_OK;
    }
    GW_TRY(read_target(b, at, n));
    const int32_t back = b->drafts.block.rows == 0;
    for (int32_t i = 0; i < n; i++) {
        int follows =
            i > 0 && rows[i - 1].slot == rows[i].slot && rows[i - 1].pos + 1 == rows[i].pos;
        if (follows || back == 0) {
            memcpy(row_of(t, t->given, i), row_of(t, t->pass, i - back),
                   (size_t)t->width * sizeof *t->given);
        } else {
            before(b, &rows[i], row_of(t, t->given, i));
        }
    }
    for (int32_t i = 0; i < n; i++) {
        keep(t, &rows[i], i);
    }
    return gw_session_hidden_give(b->drafts.model, t->given, n);
}

gw_status gw_draft_states_give(gw_batch *b, const gw_row *rows, int32_t n, int drafted) {
    gw_draft_states *t = &b->drafts.states;
    if (t->width == 0) {
        return GW_OK;
    }
    for (int32_t i = 0; i < n; i++) {
        float *to = row_of(t, t->given, i);
        if (b->drafts.block.rows > 0 && rows[i].last > 0) { /* of a block */
            memset(to, 0, (size_t)t->width * sizeof *to);
            to[t->own_at] = 1.0f;
        } else if (drafted && b->drafts.block.rows == 0) {
            memcpy(to, row_of(t, t->own, rows[i].slot), (size_t)t->width * sizeof *to);
        } else {
            before(b, &rows[i], to);
        }
    }
    return gw_session_hidden_give(b->drafts.model, t->given, n);
}

gw_status gw_draft_states_own(gw_batch *b, const gw_row *rows, int32_t n) {
    gw_draft_states *t = &b->drafts.states;
    if (t->width == 0) {
        return GW_OK;
    }
    GW_TRY(gw_session_hidden_read(b->drafts.model, 0, n, t->pass + t->own_at, t->width));
    for (int32_t i = 0; i < n; i++) {
        memcpy(row_of(t, t->own, rows[i].slot) + t->own_at, row_of(t, t->pass, i) + t->own_at,
               (size_t)(t->width - t->own_at) * sizeof *t->own);
    }
    return GW_OK;
}
