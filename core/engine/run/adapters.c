/* core/engine/run/adapters.c - see adapters.h. */
#include "core/engine/run/adapters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/engine/run/session_state.h"

/* ---- rows ----------------------------------------------------------------------------------- */

/* One more adapter, in the order of places; those with a scale of 0 are none. The row's used places
 * are its last ones of at_once. */
static gw_status add(const gw_adapters *a, gw_lora_row *row, int32_t adapter, float scale) {
    if (adapter < 0 || adapter >= a->n || !isfinite(scale)) {
        return gw_fail(GW_E_ARGUMENT, "lora", "adapter %d with scale %g; there are 0..%d", adapter,
                       (double)scale, a->n - 1);
    }
    float place = (float)(adapter + 1);
    int at = a->at_once - 1;
    for (int i = 0; i < a->at_once; i++) {
        if (row->place[i] == place) {
            return gw_fail(GW_E_ARGUMENT, "lora", "adapter %d stands twice", adapter);
        }
    }
    if (scale == 0.0f) {
        return GW_OK;
    }
    if (row->place[0] != 0.0f) {
        return gw_fail(GW_E_LIMIT, "lora", "a text has at most %d of the adapters at once here",
                       a->at_once);
    }
    while (at >= 0 && row->place[at] > place) {
        at--;
    }
    for (int i = 0; i < at; i++) {
        row->place[i] = row->place[i + 1];
        row->scale[i] = row->scale[i + 1];
    }
    row->place[at] = place;
    row->scale[at] = scale;
    return GW_OK;
}

gw_status gw_lora_row_of(const gw_model *m, const gw_lora_pick *pick, gw_lora_row *out) {
    gw_lora_row row = {{0}, {0}};
    if (m->adapters == NULL) {
        if (pick != NULL && pick->n > 0) {
            return gw_fail(GW_E_ARGUMENT, "lora", "the model has no adapters");
        }
        *out = row;
        return GW_OK;
    }
    if (pick == NULL) {
        *out = m->adapters->usual;
        return GW_OK;
    }
    if (pick->n < 0 || pick->n > GW_LORA_AT_ONCE) {
        return gw_fail(GW_E_LIMIT, "lora", "%d adapters for one text; at most %d", pick->n,
                       (int)GW_LORA_AT_ONCE);
    }
    for (int32_t i = 0; i < pick->n; i++) {
        GW_TRY(add(m->adapters, &row, pick->adapter[i], pick->scale[i]));
    }
    *out = row;
    return GW_OK;
}

uint64_t gw_lora_row_digest(const gw_model *m, const gw_lora_row *row) {
    uint64_t sum = 0;
    for (int i = 0; m->adapters != NULL && i < GW_LORA_AT_ONCE; i++) {
        if (row->place[i] != 0.0f) {
            const uint64_t key[2] = {sum, m->adapters->digest[(int)row->place[i] - 1]};
            sum = gw_hash_bytes(key, &row->scale[i], sizeof row->scale[i]);
            sum += sum == 0;
        }
    }
    return sum;
}

/* ---- a model's ------------------------------------------------------------------------------ */

void gw_adapters_free(gw_adapters *a) {
    if (a != NULL) {
        gw_lora_bank_free(a->bank);
        free(a->info);
        free(a->digest);
        free(a);
    }
}

static void name_of(const gw_lora_file *file, gw_lora_info *out) {
    const char *path = file->path, *name = path;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        name = path[i] == '/' ? path + i + 1 : name;
    }
    snprintf(out->path, sizeof out->path, "%s", path);
    if (file->name != NULL) {
        snprintf(out->name, sizeof out->name, "%s", file->name);
    } else {
        snprintf(out->name, sizeof out->name, "%.*s", (int)(n - (size_t)(name - path)), name);
    }
    out->scale = file->scale;
}

static gw_status check_model(const gw_model *m, size_t n, int32_t at_once) {
    if (m->weights == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, m->name, "only the vocabulary of this model is open");
    }
    if (n > GW_LORA_MOST || at_once > GW_LORA_AT_ONCE || at_once < 0) {
        return gw_fail(GW_E_LIMIT, "lora", "%zu adapters, %d at once; at most %d and %d", n,
                       at_once, (int)GW_LORA_MOST, (int)GW_LORA_AT_ONCE);
    }
    if (m->hp.n_source > 0) {
        return gw_fail(GW_E_UNSUPPORTED, m->name,
                       "reads a source text: adapters of such models are not run");
    }
    const gw_group *groups = gw_place_groups(&m->place);
    for (int d = 0; groups != NULL && d < m->place.n_devices; d++) {
        if (groups[d].n > 1) {
            return gw_fail(GW_E_UNSUPPORTED, "lora",
                           "cards share layers (--split-mode tensor, hybrid), whose adapters are "
                           "not cut: use --split-mode layer");
        }
    }
    return GW_OK;
}

/* Of texts that choose nothing; *at_once 0: as many as there are. */
static gw_status usual_row(gw_adapters *a, int32_t at_once) {
    int some = 0;
    for (int i = 0; i < a->n; i++) {
        some += a->info[i].scale != 0.0f;
    }
    if (some > (at_once > 0 ? at_once : GW_LORA_AT_ONCE)) {
        return gw_fail(GW_E_LIMIT, "lora",
                       "%d adapters have a scale; a text has at most %d at once", some,
                       at_once > 0 ? at_once : (int)GW_LORA_AT_ONCE);
    }
    a->at_once = at_once > 0 ? at_once : some > 1 ? some : 1;
    a->usual = (gw_lora_row){{0}, {0}};
    for (int i = 0; i < a->n; i++) {
        GW_TRY(add(a, &a->usual, i, a->info[i].scale));
    }
    return GW_OK;
}

static gw_status open_all(gw_model *m, gw_adapters *a, const gw_lora_file *files, gw_lora **list,
                          int32_t at_once) {
    for (int i = 0; i < a->n; i++) {
        GW_TRY(gw_lora_open(files[i].path, &list[i]));
        name_of(&files[i], &a->info[i]);
        a->info[i].rank = gw_lora_rank(list[i]);
        a->digest[i] = gw_lora_digest(list[i]);
    }
    GW_TRY(usual_row(a, at_once));
    return gw_lora_bank_new(m->weights, list, a->n, a->at_once, m->place.where, &a->bank);
}

gw_status gw_model_adapt(gw_model *m, const gw_lora_file *files, size_t n, int32_t at_once) {
    gw_lora *list[GW_LORA_MOST] = {NULL};
    GW_TRY(check_model(m, n, at_once));
    if (n == 0) {
        gw_adapters_free(m->adapters);
        m->adapters = NULL;
        return GW_OK;
    }
    gw_adapters *a = calloc(1, sizeof *a);
    gw_status status = GW_E_NOMEM;
    if (a != NULL) {
        a->n = (int)n;
        a->info = calloc(n, sizeof *a->info);
        a->digest = calloc(n, sizeof *a->digest);
    }
    if (a == NULL || a->info == NULL || a->digest == NULL) {
        status = gw_fail(GW_E_NOMEM, "lora", "no memory for %zu adapters", n);
    } else {
        status = open_all(m, a, files, list, at_once);
    }
    for (size_t i = 0; i < n; i++) {
        gw_lora_free(list[i]);
    }
    if (status != GW_OK) {
        gw_adapters_free(a);
        return status;
    }
    gw_adapters_free(m->adapters);
    m->adapters = a;
    return GW_OK;
}

size_t gw_model_adapters(const gw_model *m, gw_lora_info *rows, size_t room) {
    size_t n = m->adapters != NULL ? (size_t)m->adapters->n : 0;
    for (size_t i = 0; rows != NULL && i < n && i < room; i++) {
        rows[i] = m->adapters->info[i];
    }
    return n;
}

int gw_model_adapters_at_once(const gw_model *m) {
    return m->adapters != NULL ? m->adapters->at_once : 0;
}

uint64_t gw_model_adapter_bytes(const gw_model *m) {
    return m->adapters != NULL ? gw_lora_bank_bytes(m->adapters->bank) : 0;
}

/* ---- a session's ---------------------------------------------------------------------------- */

gw_status gw_adapting_new(gw_session *s, int32_t rows) {
    gw_adapting *g = &s->adapting;
    const gw_adapters *a = s->model->adapters;
    if (a == NULL) {
        return GW_OK;
    }
    size_t wide = 2 * (size_t)a->at_once;
    g->n_rows = rows;
    g->rows = calloc((size_t)rows, sizeof *g->rows);
    g->packed = calloc((size_t)rows * wide, sizeof *g->packed);
    if (g->rows == NULL || g->packed == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for adapters of %d rows", rows);
    }
    for (int d = 0; d < s->model->place.n_devices; d++) {
        const gw_plan_device *to = &s->model->place.devices[d];
        size_t bytes = (size_t)rows * wide * sizeof(float);
        GW_TRY(to->backend->alloc(to->device, bytes, &g->route[d]));
        g->route_on[d] = (gw_tensor){.name = "lora route",
                                     .fmt = GW_FMT_F32,
                                     .n_dim = 2,
                                     .dim = {rows, (int64_t)wide},
                                     .buf = g->route[d],
                                     .device = d};
    }
    g->own = a->usual;
    return gw_adapting_fill(s, &a->usual);
}

void gw_adapting_free(gw_session *s) {
    gw_adapting *g = &s->adapting;
    for (int d = 0; d < s->model->place.n_devices; d++) {
        if (g->route[d] != NULL) {
            s->model->place.devices[d].backend->release(g->route[d]);
        }
    }
    free(g->rows);
    free(g->packed);
    memset(g, 0, sizeof *g);
}

/* Rows [first, first + n), which are in g->rows, to all devices. */
static gw_status write_rows(gw_session *s, int32_t first, int32_t n) {
    gw_adapting *g = &s->adapting;
    const size_t u = (size_t)s->model->adapters->at_once, row = 2 * u * sizeof(float);
    for (int32_t i = first; i < first + n; i++) {
        memcpy(g->packed + (size_t)i * 2 * u, g->rows[i].place, u * sizeof(float));
        memcpy(g->packed + (size_t)i * 2 * u + u, g->rows[i].scale, u * sizeof(float));
    }
    for (int d = 0; d < s->model->place.n_devices; d++) {
        GW_TRY(s->model->place.devices[d].backend->write(
            g->route[d], (size_t)first * row, g->packed + (size_t)first * 2 * u, (size_t)n * row));
    }
    return GW_OK;
}

gw_status gw_adapting_fill(gw_session *s, const gw_lora_row *row) {
    for (int32_t i = 0; i < s->adapting.n_rows; i++) {
        s->adapting.rows[i] = *row;
    }
    return s->adapting.n_rows > 0 ? write_rows(s, 0, s->adapting.n_rows) : GW_OK;
}

gw_status gw_adapting_show(gw_session *s, gw_lora_row_fn rows, const void *user, int32_t n) {
    gw_adapting *g = &s->adapting;
    int32_t first = n, end = 0;
    for (int32_t i = 0; g->rows != NULL && i < n; i++) {
        const gw_lora_row *row = rows(user, i);
        if (memcmp(&g->rows[i], row, sizeof *row) != 0) {
            g->rows[i] = *row;
            first = i < first ? i : first;
            end = i + 1;
        }
    }
    if (first >= end) {
        return GW_OK;
    }
    for (int i = s->first_prompt_pass; i < s->n_passes; i++) { /* one before may be at work */
        GW_TRY(s->passes[i].plan != NULL ? gw_plan_wait(s->passes[i].plan) : GW_OK);
    }
    gw_status status = write_rows(s, first, end - first);
    if (status != GW_OK) { /* whatever is there now is not known */
        memset(g->rows, 0xff, (size_t)g->n_rows * sizeof *g->rows);
    }
    return status;
}

gw_status gw_session_adapt(gw_session *s, const gw_lora_pick *pick) {
    gw_lora_row row;
    if (s->pos > 0) {
        return gw_fail(
            GW_E_ARGUMENT, "lora",
            "the session has %d tokens, which were read with the adapters it had: rewind "
            "it to 0 first",
            s->pos);
    }
    GW_TRY(gw_lora_row_of(s->model, pick, &row));
    GW_TRY(gw_session_settle(s));
    s->adapting.own = row;
    return gw_adapting_fill(s, &row);
}
