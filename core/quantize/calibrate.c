/* core/quantize/calibrate.c - the body of gw_calibrate: an importance matrix from a text, and from
 * others that are added; what it holds as a table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- --show --------------------------------------------------------------------------------- */

typedef struct summary {
    double rows, mean;      /* of all experts; mean square of an input */
    double half, entropy;   /* share of the columns that have half of it; of even columns 1 */
    int64_t unused, unseen; /* columns of all experts, experts */
} summary;

static int falling(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

/* sorted: room for the columns of all experts. */
static summary summarize(const gw_imatrix_entry *e, float *sorted) {
    summary s = {0};
    int64_t n = e->cols * e->experts;
    double sum = 0.0, part = 0.0;
    for (int64_t x = 0; x < e->experts; x++) {
        s.rows += (double)e->counts[x];
        s.unseen += e->counts[x] == 0.0f;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += (double)e->sums[i];
        s.unused += e->sums[i] == 0.0f;
    }
    memcpy(sorted, e->sums, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, falling);
    for (int64_t i = 0; i < n && sum > 0.0; i++) {
        double p = (double)sorted[i] / sum;
        s.entropy -= p > 0.0 ? p * log(p) : 0.0;
        s.half += part < 0.5 * sum ? 1.0 / (double)n : 0.0;
        part += (double)sorted[i];
    }
    s.entropy = n > 1 ? s.entropy / log((double)n) : 1.0;
    s.mean = s.rows > 0.0 ? sum / (s.rows * (double)e->cols) : 0.0;
    return s;
}

static gw_status show_matrix(const gw_calibrate_options *o, const gw_imatrix *m) {
    char line[400];
    snprintf(line, sizeof line, "%-32s %9s %11s %8s %8s %7s", "weight", "rows", "mean x^2",
             "half in", "entropy", "unused");
    o->show(o->show_user, line);
    for (size_t i = 0; i < m->n; i++) {
        const gw_imatrix_entry *e = &m->list[i];
        float *sorted = malloc((size_t)(e->cols * e->experts) * sizeof *sorted + 1);
        if (sorted == NULL) {
            return gw_fail(GW_E_NOMEM, e->name, "no memory to sort its columns");
        }
        summary s = summarize(e, sorted);
        free(sorted);
        int n = snprintf(line, sizeof line, "%-32s %9.0f %11.5g %7.2f%% %8.4f %7lld", e->name,
                         s.rows, s.mean, 100.0 * s.half, s.entropy, (long long)s.unused);
        if (e->experts > 1) {
            snprintf(line + n, sizeof line - (size_t)n, "  %lld of %lld experts saw no text",
                     (long long)s.unseen, (long long)e->experts);
        }
        o->show(o->show_user, line);
    }
    snprintf(line, sizeof line, "%zu weights, %lld windows of %lld tokens%s%s", m->n,
             (long long)m->chunks, (long long)m->chunk_size, m->dataset[0] != '\0' ? " of " : "",
             m->dataset);
    o->show(o->show_user, line);
    return GW_OK;
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
        GW_TRY_DONE(gw_original_open(o->model, NULL, NULL, &original));
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
    GW_TRY_DONE(o->show != NULL ? show_matrix(o, &m) : GW_OK);
    status = o->out != NULL ? gw_imatrix_write(&m, o->out) : GW_OK;
done:
    gw_inputs_free(inputs);
    gw_original_close(&original);
    gw_imatrix_free(&other);
    gw_imatrix_free(&m);
    return status;
}
