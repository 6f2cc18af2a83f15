/* core/engine/run/seeing.c - see seeing.h. */
#include "core/engine/run/seeing.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/run/session_state.h"
#include "core/model/rope.h"

/* ---- a timeline ----------------------------------------------------------------------------- */

int gw_views_needed(const gw_hparams *hp) {
    int any = 0;
    for (int r = 0; r < hp->n_ropes; r++) {
        any |= hp->rope[r].by_row + hp->rope[r].by_column > 0;
    }
    return any;
}

/* Positions that a run of rows takes less than it has rows. */
static int32_t saved_by(const gw_views *v, const gw_view *x) {
    int32_t most = 0;
    for (int32_t i = 0; i < x->n && v->grid; i++) {
        int32_t tile, row, column;
        gw_sight_at(x->sight, x->first + i, &tile, &row, &column);
        most = row + 1 > most ? row + 1 : most;
        most = column + 1 > most ? column + 1 : most;
    }
    return v->grid ? x->n - most : 0;
}

int32_t gw_views_less(const gw_views *v, int32_t pos) {
    int32_t less = 0;
    for (int32_t i = 0; i < v->n && v->view[i].pos < pos; i++) {
        less = v->view[i].less + saved_by(v, &v->view[i]);
    }
    return less;
}

static gw_status check_runs(const gw_seen_rows *seen, size_t n_seen, size_t n) {
    size_t end = 0;
    for (size_t i = 0; i < n_seen; i++) {
        const gw_seen_rows *x = &seen[i];
        if (x->sight == NULL || x->first < 0 || x->n < 1 || x->n > x->sight->n_rows - x->first ||
            x->at < end || x->at > n || (size_t)x->n > n - x->at) {
            return gw_fail(GW_E_ARGUMENT, "image",
                           "rows of picture %zu do not lie within the %zu tokens, or overlap",
                           i + 1, n);
        }
        end = x->at + (size_t)x->n;
    }
    return GW_OK;
}

gw_status gw_views_add(gw_views *v, const gw_seen_rows *seen, size_t n_seen, int32_t pos,
                       size_t n) {
    GW_TRY(check_runs(seen, n_seen, n));
    for (size_t i = 0; i < n_seen && v->whole > 0; i++) {
        if (seen[i].n > v->whole) {
            return gw_fail(GW_E_LIMIT, "image",
                           "picture %zu has %d rows, which see one another; at most %d are read at "
                           "once: make it smaller, or the context larger",
                           i + 1, seen[i].n, v->whole);
        }
    }
    if (n_seen > (size_t)(v->room - v->n)) {
        size_t room = (size_t)v->n + n_seen + 8;
        gw_view *more = room < 1u << 24 ? realloc(v->view, room * sizeof *more) : NULL;
        if (more == NULL) {
            return gw_fail(GW_E_NOMEM, "image", "no memory for %zu pictures", room);
        }
        v->view = more;
        v->room = (int32_t)room;
    }
    for (size_t i = 0; i < n_seen; i++) {
        gw_view x = {seen[i].sight, seen[i].first, seen[i].n, pos + (int32_t)seen[i].at, 0};
        x.less = gw_views_less(v, x.pos);
        atomic_fetch_add(&x.sight->holders, 1);
        v->view[v->n++] = x;
    }
    return GW_OK;
}

void gw_views_cut(gw_views *v, int32_t pos) {
    while (v->n > 0 && v->view[v->n - 1].pos >= pos) {
        gw_sight_free(v->view[--v->n].sight);
    }
    gw_view *last = v->n > 0 ? &v->view[v->n - 1] : NULL;
    if (last != NULL && last->pos + last->n > pos) {
        last->n = pos - last->pos;
    }
}

gw_status gw_views_copy(gw_views *to, const gw_views *from) {
    if (from->n > to->room) {
        gw_view *more = realloc(to->view, (size_t)from->n * sizeof *more);
        if (more == NULL) {
            return gw_fail(GW_E_NOMEM, "image", "no memory for %d pictures", (int)from->n);
        }
        to->view = more;
        to->room = from->n;
    }
    for (; to->n < from->n; to->n++) {
        to->view[to->n] = from->view[to->n];
        atomic_fetch_add(&to->view[to->n].sight->holders, 1);
    }
    return GW_OK;
}

void gw_views_free(gw_views *v) {
    gw_views_cut(v, 0);
    free(v->view);
    v->view = NULL;
    v->room = 0;
}

int32_t gw_views_stop(const gw_views *v, int32_t pos, int *whole) {
    *whole = 0;
    for (int32_t i = 0; i < v->n && v->whole > 0; i++) {
        const gw_view *x = &v->view[i];
        if (x->pos + x->n > pos) {
            *whole = x->pos <= pos;
            return *whole ? x->pos + x->n : x->pos;
        }
    }
    return INT32_MAX;
}

int gw_views_within(const gw_views *v, int32_t pos) {
    int whole;
    (void)gw_views_stop(v, pos, &whole);
    return whole && pos > 0 && gw_views_stop(v, pos - 1, &whole) > pos && whole;
}

void gw_views_look(const gw_views *v, int32_t pos, int32_t n, gw_glance *out, int *any) {
    *any = 0;
    memset(out, 0, (size_t)n * sizeof *out);
    for (int32_t i = 0; i < v->n; i++) {
        const gw_view *x = &v->view[i];
        int32_t from = x->pos > pos ? x->pos : pos, end = x->pos + x->n;
        for (int32_t p = from; p < end && p < pos + n; p++) {
            gw_glance *g = &out[p - pos];
            int32_t tile, row, column;
            g->row = gw_sight_row(x->sight, x->first + p - x->pos);
            gw_sight_at(x->sight, x->first + p - x->pos, &tile, &row, &column);
            g->at[0] = x->pos - x->less;
            g->at[1] = g->at[0] + row;
            g->at[2] = g->at[0] + column;
            g->last = end - 1;
            *any = 1;
        }
    }
}

/* ---- a session's buffers -------------------------------------------------------------------- */

static gw_status new_buffer(gw_session *s, int d, int64_t cols, const char *name,
                            struct gw_buffer **buffer, gw_tensor *on) {
    const gw_plan_device *to = &s->model->place.devices[d];
    size_t bytes = (size_t)s->most_rows * (size_t)cols * sizeof(float);
    GW_TRY(to->backend->alloc(to->device, bytes, buffer));
    *on = (gw_tensor){.name = name,
                      .fmt = GW_FMT_F32,
                      .n_dim = 2,
                      .dim = {s->most_rows, cols},
                      .buf = *buffer,
                      .device = d};
    return GW_OK;
}

static gw_status write_all(gw_session *s, int which, const float *from, size_t bytes) {
    for (int d = 0; d < s->model->place.n_devices; d++) {
        struct gw_buffer *to =
            which < 0 ? s->seeing.gate[d] : s->seeing.seen[d * s->seeing.parts + which];
        GW_TRY(s->model->place.devices[d].backend->write(to, 0, from, bytes));
    }
    return GW_OK;
}

/* Rows [0, n) are text. */
static gw_status shut(gw_session *s, int32_t n) {
    gw_seeing *e = &s->seeing;
    size_t d = (size_t)s->model->hp.d_model;
    memset(e->rows, 0, (size_t)n * d * sizeof *e->rows);
    for (int i = 0; i < e->parts; i++) {
        GW_TRY(write_all(s, i, e->rows, (size_t)n * d * sizeof *e->rows));
    }
    for (int32_t i = 0; i < n; i++) {
        e->rows[i] = 1.0f;
    }
    return write_all(s, -1, e->rows, (size_t)n * sizeof *e->rows);
}

gw_status gw_seeing_new(gw_session *s) {
    gw_seeing *e = &s->seeing;
    const gw_model *m = s->model;
    int widest = 0;
    if (m->tower == NULL) {
        return GW_OK;
    }
    for (int r = 0; r < m->hp.n_ropes; r++) {
        widest = m->hp.rope[r].dim > widest ? m->hp.rope[r].dim : widest;
    }
    widest = m->hp.d_model > widest ? m->hp.d_model : widest;
    e->parts = 1 + gw_tower_deep(m->tower);
    e->rows = malloc((size_t)s->most_rows * (size_t)widest * sizeof *e->rows);
    e->glances = malloc((size_t)s->most_rows * sizeof *e->glances);
    e->seen = calloc((size_t)(m->place.n_devices * e->parts), sizeof *e->seen);
    e->seen_on = calloc((size_t)(m->place.n_devices * e->parts), sizeof *e->seen_on);
    if (e->rows == NULL || e->glances == NULL || e->seen == NULL || e->seen_on == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for rows of pictures");
    }
    for (int d = 0; d < m->place.n_devices; d++) {
        GW_TRY(new_buffer(s, d, 1, "gate", &e->gate[d], &e->gate_on[d]));
        for (int i = d * e->parts; i < (d + 1) * e->parts; i++) {
            GW_TRY(new_buffer(s, d, m->hp.d_model, "seen", &e->seen[i], &e->seen_on[i]));
        }
    }
    s->views.grid = gw_views_needed(&m->hp);
    s->views.whole = s->picture_rows;
    e->token = (int32_t)gw_spec_named_number(gw_weights_blueprint(m->weights), &m->hp,
                                             "picture_token", -1.0);
    return shut(s, s->most_rows);
}

void gw_seeing_free(gw_session *s) {
    gw_seeing *e = &s->seeing;
    for (int d = 0; d < s->model->place.n_devices; d++) {
        const gw_backend *backend = s->model->place.devices[d].backend;
        if (e->gate[d] != NULL) {
            backend->release(e->gate[d]);
        }
        for (int i = d * e->parts; e->seen != NULL && i < (d + 1) * e->parts; i++) {
            if (e->seen[i] != NULL) {
                backend->release(e->seen[i]);
            }
        }
    }
    free(e->rows);
    free(e->glances);
    free(e->seen);
    free(e->seen_on);
    gw_views_free(&s->views);
}

/* Rows of the rope tables after those of text, one for each row of the pass. */
static gw_status show_angles(gw_session *s, const gw_glance *rows, int32_t n) {
    const gw_hparams *hp = &s->model->hp;
    for (int r = 0; r < hp->n_ropes; r++) {
        const gw_rope *rope = &hp->rope[r];
        const size_t row = (size_t)rope->dim;
        double freq[1 << 13], magnitude;
        if (rope->by_row + rope->by_column == 0 || row / 2 > sizeof freq / sizeof freq[0]) {
            continue;
        }
        gw_rope_frequencies(rope, s->n_ctx, freq, &magnitude);
        for (int32_t i = 0; i < n; i++) {
            gw_rope_fill_grid(rope, freq, magnitude, &rows[i].at, 1,
                              s->seeing.rows + (size_t)i * row);
        }
        for (int d = 0; d < s->model->place.n_devices; d++) {
            const gw_plan_device *to = &s->model->place.devices[d];
            GW_TRY(to->backend->write(s->tables.rope_cells[d][r],
                                      (size_t)s->n_ctx * row * sizeof(float), s->seeing.rows,
                                      (size_t)n * row * sizeof(float)));
        }
    }
    return GW_OK;
}

gw_status gw_seeing_show(gw_session *s, const gw_glance *rows, int32_t n, int any) {
    gw_seeing *e = &s->seeing;
    const size_t d = (size_t)s->model->hp.d_model;
    if (s->model->tower == NULL || (!any && e->shown == 0)) {
        return GW_OK;
    }
    s->sees = any && s->views.whole > 0;
    for (int32_t i = 0; i < n && s->sees; i++) {
        s->step.last[i] = rows[i].last;
        s->step.pos_max = rows[i].last > s->step.pos_max ? rows[i].last : s->step.pos_max;
    }
    for (int i = s->first_prompt_pass; i < s->n_passes; i++) { /* a chunk before may be at work */
        GW_TRY(gw_plan_wait(s->passes[i].plan));
    }
    GW_TRY(e->shown > 0 ? shut(s, e->shown) : GW_OK);
    e->shown = 0;
    if (!any) {
        return GW_OK;
    }
    e->shown = n;
    for (int part = 0; part < e->parts; part++) {
        for (int32_t i = 0; i < n; i++) {
            float *to = e->rows + (size_t)i * d;
            if (rows[i].row != NULL) {
                memcpy(to, rows[i].row + (size_t)part * d, d * sizeof *to);
            } else {
                memset(to, 0, d * sizeof *to);
            }
        }
        GW_TRY(write_all(s, part, e->rows, (size_t)n * d * sizeof(float)));
    }
    for (int32_t i = 0; i < n; i++) {
        e->rows[i] = rows[i].row != NULL ? 0.0f : 1.0f;
        if (rows[i].row != NULL && e->token >= 0) {
            s->step.token[i] = e->token;
        }
        if (rows[i].row != NULL && s->views.grid) {
            s->step.less[i] = s->step.pos[i] - (s->n_ctx + i);
        }
    }
    GW_TRY(write_all(s, -1, e->rows, (size_t)n * sizeof(float)));
    return s->views.grid ? show_angles(s, rows, n) : GW_OK;
}
