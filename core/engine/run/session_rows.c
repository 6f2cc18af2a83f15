/* core/engine/run/session_rows.c - see session_rows.h. */
#include "core/engine/run/session_rows.h"

#include <float.h>

#include "core/engine/sampling/sampler.h"

gw_status gw_rows_map(gw_session *s, int32_t slot, int32_t first, const int32_t *pages, int32_t n) {
    return gw_kv_map(&s->kv, slot, first, pages, n);
}

/* ---- sources and forks ----------------------------------------------------------------------- */

gw_status gw_rows_map_source(gw_session *s, int32_t slot, int32_t n, const int32_t *pages,
                             int32_t n_pages) {
    for (int d = 0; d < s->model->place.n_devices; d++) {
        size_t wide = (size_t)s->source_table[d].dim[1] * sizeof *pages;
        for (int32_t i = slot; i < slot + n; i++) {
            GW_TRY(s->model->place.devices[d].backend->write(
                s->source_pages[d], (size_t)i * wide, pages, (size_t)n_pages * sizeof *pages));
        }
    }
    return GW_OK;
}

gw_status gw_rows_source(gw_session *s, int32_t slot, const int32_t *tokens, int32_t n) {
    gw_step *step = &s->step;
    int32_t pad = s->model->hp.uncounted, before = 0;
    GW_TRY(gw_session_check_cancel(s));
    step->n = step->n_pick = n;
    step->pick = 0;
    step->pos_max = n - 1;
    for (int32_t i = 0; i < n; i++) {
        step->token[i] = tokens[i];
        step->pos[i] = i;
        step->slot[i] = slot;
        step->last[i] = n - 1;
        step->less[i] = pad >= 0 && tokens[i] == pad ? i + 1 : before;
        before += pad >= 0 && tokens[i] == pad;
    }
    return gw_pass_run(s, s->source, gw_plan_run);
}

size_t gw_rows_copy_bytes(const gw_session *s) {
    size_t page = gw_kv_largest_page(&s->kv), entry = gw_states_largest_entry(&s->states);
    return page > entry ? page : entry;
}

gw_status gw_rows_copy(gw_session *s, int32_t from, int32_t to, int32_t pos, int32_t page_from,
                       int32_t page_to, void *room) {
    for (int l = s->model->hp.n_source; page_from != page_to && l < s->kv.n_layers; l++) {
        for (int part = 0; part < GW_KV_PARTS; part++) {
            GW_TRY(gw_kv_read_page(&s->kv, l, part, page_from, room));
            GW_TRY(gw_kv_write_page(&s->kv, l, part, page_to, room));
        }
    }
    for (int i = 0; i < s->states.n; i++) {
        GW_TRY(gw_states_read_of(&s->states, i, from, pos, room));
        GW_TRY(gw_states_write_of(&s->states, i, to, pos, room));
    }
    return GW_OK;
}

size_t gw_rows_page_bytes(const gw_session *s) { return gw_kv_pages_bytes(&s->kv); }

gw_status gw_rows_page_save(gw_session *s, int32_t page, void *out) {
    char *to = out;
    for (int i = 0; i < GW_KV_PARTS * s->kv.n_layers; i++) {
        int layer = i / GW_KV_PARTS, part = i % GW_KV_PARTS;
        GW_TRY(gw_kv_read_page(&s->kv, layer, part, page, to));
        to += gw_kv_page_bytes(&s->kv, layer, part);
    }
    return GW_OK;
}

gw_status gw_rows_page_load(gw_session *s, int32_t page, const void *in) {
    const char *from = in;
    for (int i = 0; i < GW_KV_PARTS * s->kv.n_layers; i++) {
        int layer = i / GW_KV_PARTS, part = i % GW_KV_PARTS;
        GW_TRY(gw_kv_write_page(&s->kv, layer, part, page, from));
        from += gw_kv_page_bytes(&s->kv, layer, part);
    }
    return GW_OK;
}

size_t gw_rows_state_bytes(const gw_session *s) {
    return s->states.any ? gw_states_all_entries(&s->states) : 0;
}

gw_status gw_rows_state_save(gw_session *s, int32_t slot, int32_t pos, void *out) {
    char *to = out;
    for (int i = 0; i < s->states.n; i++) {
        GW_TRY(gw_states_read_of(&s->states, i, slot, pos, to));
        to += gw_states_entry_bytes(&s->states, i);
    }
    return GW_OK;
}

gw_status gw_rows_state_load(gw_session *s, int32_t slot, int32_t pos, const void *in) {
    const char *from = in;
    for (int i = 0; i < s->states.n; i++) {
        GW_TRY(gw_states_write_of(&s->states, i, slot, pos, from));
        from += gw_states_entry_bytes(&s->states, i);
    }
    return GW_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct lora_rows {
    const gw_row *rows;
    const gw_lora_row *usual;
} lora_rows;

static const gw_lora_row *lora_of(const void *user, int32_t i) {
    const lora_rows *of = user;
    return of->rows[i].lora != NULL ? of->rows[i].lora : of->usual;
}

static gw_status show_adapters(gw_session *s, const gw_row *rows, int32_t n) {
    const gw_adapters *a = s->model->adapters;
    const lora_rows of = {rows, a != NULL ? &a->usual : NULL};
    return a != NULL ? gw_adapting_show(s, lora_of, &of, n) : GW_OK;
}

static gw_status set_rows(gw_session *s, const gw_row *rows, int32_t n) {
    gw_step *step = &s->step;
    s->ahead = s->sees = 0;
    step->n = step->n_pick = n;
    step->pick = step->pos_max = 0;
    for (int32_t i = 0; i < n; i++) {
        step->token[i] = rows[i].token;
        step->pos[i] = rows[i].pos;
        step->slot[i] = rows[i].slot;
        step->last[i] = rows[i].last;
        step->less[i] = rows[i].less;
        int32_t sees = rows[i].last > rows[i].pos ? rows[i].last : rows[i].pos;
        step->pos_max = sees > step->pos_max ? sees : step->pos_max;
    }
    return show_adapters(s, rows, n);
}

gw_status gw_rows_fetch(gw_session *s, int32_t i) {
    size_t v = (size_t)s->model->hp.n_vocab, at = (size_t)i * v;
    return s->logits_copy == NULL
               ? GW_OK
               : s->model->place.devices[s->head_device].backend->read(
                     s->logits, at * sizeof(float), s->logits_copy + at, v * sizeof(float));
}

gw_status gw_rows_draw(gw_session *s, const gw_choice *rules, int32_t *ids) {
    GW_TRY(gw_session_set_rules(s, rules, s->step.n));
    return gw_session_draw_ids(s, ids);
}

/* The draw follows on the device, so the host waits once for both. */
gw_status gw_rows_decode(gw_session *s, const gw_row *rows, int32_t n, const gw_choice *rules,
                         int32_t *ids) {
    gw_pass *p = gw_session_decode_pass(s, n);
    gw_status status = set_rows(s, rows, n);
    status = status == GW_OK && rules != NULL ? gw_session_set_rules(s, rules, n) : status;
    if (status == GW_OK) {
        status = gw_pass_run(s, p, rules != NULL ? gw_plan_start : gw_plan_run);
    }
    status = status == GW_OK && rules != NULL ? gw_session_draw_ids(s, ids) : status;
    if (status != GW_OK) {
        (void)gw_plan_wait(p->plan); /* nothing is still at work */
    }
    return status;
}

int gw_rows_steps(const gw_session *s) { return gw_session_steps_ahead(s) && !s->states.any; }

gw_status gw_rows_step(gw_session *s, const gw_row *row, const gw_choice *rule, int more,
                       int32_t *id) {
    gw_status status = show_adapters(s, row, 1);
    status = status == GW_OK ? gw_session_step_row(s, rule, row, more, id) : status;
    if (status != GW_OK) {
        s->ahead = 0;
        (void)gw_plan_wait(s->next->plan); /* nothing is still at work */
    }
    return status;
}

gw_status gw_rows_prefill(gw_session *s, const gw_row *rows, int32_t n) {
    GW_TRY(set_rows(s, rows, n));
    int any = 0;
    for (int32_t i = 0; s->seeing.parts > 0 && i < n; i++) {
        s->seeing.glances[i] = rows[i].seen;
        any |= rows[i].seen.row != NULL;
    }
    gw_status status = gw_seeing_show(s, s->seeing.glances, n, any);
    status = status == GW_OK ? gw_prompt_run(s, 0) : status;
    if (status != GW_OK) {
        (void)gw_plan_wait(s->passes[s->first_prompt_pass].plan);
    }
    return status;
}

gw_status gw_rows_head(gw_session *s, int32_t at, int32_t n) {
    gw_status status = gw_session_run_head(s, at, n);
    return status == GW_E_NUMERIC ? GW_OK : status; /* gw_rows_logits says of which */
}

const float *gw_rows_logits(const gw_session *s, int32_t i) {
    size_t v = (size_t)s->model->hp.n_vocab;
    const float *x = s->logits_host + (size_t)i * v;
    int bad = 0;
    for (size_t k = 0; k < v; k++) {
        bad |= !(x[k] <= FLT_MAX); /* NaN and +infinity */
    }
    return !bad && gw_logits_top(x, v) >= -FLT_MAX ? x : NULL;
}
