/* core/quantize/calibrate.c - the body of gw_calibrate: an importance matrix from a text, and from
 * others that are added. */
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/quantize/inputs.h"

/* Sums and counts of the same weight are added, weights that are new are taken over. */
static gw_status add_matrix(gw_imatrix *to, const gw_imatrix *from, const char *where) {
    for (size_t i = 0; i < from->n; i++) {
        const gw_imatrix_entry *f = &from->list[i];
        const gw_imatrix_entry *found = gw_imatrix_find(to, f->name);
        if (found == NULL) {
            gw_imatrix_entry *list = gw_arena_array(to->arena, to->n + 1, sizeof *list);
            size_t values = (size_t)(f->cols * f->experts), experts = (size_t)f->experts;
            if (list == NULL) {
                return gw_fail(GW_E_NOMEM, where, "no memory to add it");
            }
            if (to->n > 0) {
                memcpy(list, to->list, to->n * sizeof *list);
            }
            gw_imatrix_entry *e = &list[to->n];
            *e = *f;
            e->name = gw_arena_copy(to->arena, f->name, strlen(f->name));
            e->sums = gw_arena_array(to->arena, values, sizeof *e->sums);
            e->counts = gw_arena_array(to->arena, experts, sizeof *e->counts);
            if (e->name == NULL || e->sums == NULL || e->counts == NULL) {
                return gw_fail(GW_E_NOMEM, where, "no memory to add it");
            }
            memcpy(e->sums, f->sums, values * sizeof *e->sums);
            memcpy(e->counts, f->counts, experts * sizeof *e->counts);
            to->list = list;
            to->n++;
            continue;
        }
        if (found->cols != f->cols || found->experts != f->experts) {
            return gw_fail(GW_E_METADATA, where, "%s has another shape there: is it of this model?",
                           f->name);
        }
        for (int64_t k = 0; k < f->cols * f->experts; k++) {
            found->sums[k] += f->sums[k];
        }
        for (int64_t k = 0; k < f->experts; k++) {
            found->counts[k] += f->counts[k];
        }
    }
    to->chunks += from->chunks;
    to->chunk_size = to->chunk_size > 0 ? to->chunk_size : from->chunk_size;
    if (to->dataset[0] == '\0') {
        memcpy(to->dataset, from->dataset, sizeof to->dataset);
    }
    return GW_OK;
}

static void say_unseen(const gw_calibrate_options *o, const gw_imatrix *m) {
    for (size_t i = 0; i < m->n && o->say != NULL; i++) {
        const gw_imatrix_entry *e = &m->list[i];
        char line[400] = "";
        size_t used = 0;
        for (int64_t x = 0; x < e->experts; x++) {
            if (e->counts[x] == 0.0f && used < sizeof line - 40) {
                used += (size_t)snprintf(line + used, sizeof line - used, "%s%lld",
                                         used > 0 ? ", " : "", (long long)x);
            }
        }
        if (used > 0) {
            char text[600];
            snprintf(text, sizeof text, "%s: no text for experts %s", e->name, line);
            o->say(o->say_user, text);
        }
    }
}

gw_status gw_calibrate_model(const gw_calibrate_options *o, const gw_backend *const *backends) {
    gw_original original = {0};
    gw_inputs *inputs = NULL;
    gw_imatrix m = {.arena = gw_arena_new()}, other = {0};
    gw_status status = GW_OK;
    if (m.arena == NULL) {
        return gw_fail(GW_E_NOMEM, o->out, "no memory for the importance matrix");
    }
    if (o->text == NULL && o->n_in == 0) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, "calibrate", "needs a text, or matrices to add"));
    }
    if (o->text != NULL) {
        const gw_inputs_wish wish = {.text = o->text,
                                     .windows = o->windows,
                                     .n_ctx = o->n_ctx,
                                     .threads = o->threads,
                                     .with_output = o->with_output,
                                     .xtx = o->xtx != NULL,
                                     .memory = o->memory,
                                     .cancel = o->cancel,
                                     .say = o->say,
                                     .say_user = o->say_user};
        GW_TRY_DONE(gw_original_open(o->model, NULL, &original));
        GW_TRY_DONE(gw_inputs_collect(&original, backends, &wish, &inputs));
        GW_TRY_DONE(gw_inputs_imatrix(inputs, o->text, &other));
        GW_TRY_DONE(add_matrix(&m, &other, o->text));
    }
    for (size_t i = 0; i < o->n_in; i++) {
        gw_imatrix_free(&other);
        GW_TRY_DONE(gw_imatrix_read(o->in_files[i], &other));
        GW_TRY_DONE(add_matrix(&m, &other, o->in_files[i]));
    }
    say_unseen(o, &m);
    if (o->xtx != NULL && inputs != NULL) {
        GW_TRY_DONE(gw_inputs_write_xtx(inputs, o->xtx));
    }
    status = gw_imatrix_write(&m, o->out);
done:
    gw_inputs_free(inputs);
    gw_original_close(&original);
    gw_imatrix_free(&other);
    gw_imatrix_free(&m);
    return status;
}
