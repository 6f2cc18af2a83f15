/* core/model/weights_find.c - finds the stored tensors of every role: names, prefixes, experts one
 * by one, fallbacks; checks shapes; and refuses what no role takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/model/packed.h"
#include "core/model/weights_parts.h"
#include "core/tensor/small.h"

static int is_folder(const gw_weights *w) {
    return gw_checkpoint_container(w->checkpoint) == GW_CONTAINER_HF;
}

static const gw_spec_source *sources_of(const gw_weights *w, const gw_spec_weight *s, int *n) {
    *n = is_folder(w) ? s->n_hf : s->n_gguf;
    return is_folder(w) ? s->hf : s->gguf;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* The name on disk without its prefix: the first %d replaced by the layer, the second by the
 * expert. */
static void disk_name(const char *pattern, int layer, int expert, char *out, size_t room) {
    size_t used = 0;
    int number = layer;
    for (const char *mark; (mark = strstr(pattern, "%d")) != NULL; pattern = mark + 2) {
        int n = snprintf(out + used, room - used, "%.*s%d", (int)(mark - pattern), pattern, number);
        used += n > 0 && (size_t)n < room - used ? (size_t)n : 0;
        number = expert;
    }
    snprintf(out + used, room - used, "%s", pattern);
}

/* In a folder below any of the family's prefixes. */
static const gw_stored *find(const gw_weights *w, const char *name, int integers,
                             const char **why) {
    char full[240];
    int n = is_folder(w) ? w->bp.n_prefixes : 0;
    for (int i = 0; i < (n > 0 ? n : 1); i++) {
        snprintf(full, sizeof full, "%s%s", n > 0 ? w->bp.prefix[i] : "", name);
        const gw_stored *t = integers ? gw_checkpoint_integers(w->checkpoint, full)
                                      : gw_checkpoint_find(w->checkpoint, full);
        *why = t == NULL ? gw_checkpoint_unusable(w->checkpoint, full) : NULL;
        if (t != NULL || *why != NULL) {
            return t;
        }
    }
    return NULL;
}

static void shape_text(const int64_t *dim, int n, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        int wrote = snprintf(out + used, room - used, "%s%lld", i ? ", " : "[", (long long)dim[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    snprintf(out + used, room - used, "%s", n ? "]" : "[]");
}

/* ---- shapes --------------------------------------------------------------------------------- */

typedef struct wanted {
    int64_t experts, rows, cols; /* experts 1: none; a vector: rows 1 */
    int vector, flat, wide, to_float;
} wanted;

static gw_status read_wanted(const gw_weights *w, const gw_spec_weight *s, int layer, wanted *out) {
    int64_t dim[3] = {1, 1, 1};
    for (int i = 0; i < s->n_dim; i++) {
        GW_TRY(gw_spec_extent(&w->bp, &w->hp, layer, s, s->dim[i], &dim[i]));
    }
    out->vector = s->n_dim == 1 || s->stacked;
    out->flat = s->flat;
    out->wide = s->wide;
    out->to_float = s->keep_float;
    out->experts = s->n_dim == 3 || s->stacked ? dim[0] : 1;
    out->rows = s->n_dim == 3 ? dim[1] : s->n_dim == 2 && !s->stacked ? dim[0] : 1;
    out->cols = dim[s->n_dim - 1];
    int64_t all = out->experts * out->rows;
    if (all > INT32_MAX || out->cols > INT32_MAX || all * out->cols > (int64_t)1 << 42) {
        return gw_fail(GW_E_METADATA, w->where, "weight '%s' of layer %d is too large", s->role,
                       layer);
    }
    return GW_OK;
}

static gw_status refuse(const gw_weights *w, const gw_stored *t, const int64_t *want, int n) {
    char have_text[112], want_text[112];
    shape_text(t->dim, t->n_dim, have_text, sizeof have_text);
    shape_text(want, n, want_text, sizeof want_text);
    return gw_fail(GW_E_METADATA, w->where, "tensor %s is %s, the model needs %s", t->name,
                   have_text, want_text);
}

/* The shape that one stored tensor must have: experts together or one by one, more rows where they
 * are cut, columns first where it is transposed. Axes of 1 at either end do not count. */
static gw_status check_shape(const gw_weights *w, const gw_stored *t, const wanted *want,
                             gw_entry *e) {
    if (e->buckets > 0) { /* becomes a vector of all distances */
        int64_t table[2] = {e->buckets, t->n_dim == 2 ? t->dim[1] : 0};
        if (t->n_dim != 2 || t->dim[0] != e->buckets || table[1] < 1 ||
            want->cols % table[1] != 0) {
            return refuse(w, t, table, 2);
        }
        e->stored_rows = t->dim[0] * t->dim[1];
        e->stored_cols = 1;
        return GW_OK;
    }
    int parts = e->source != NULL ? 1 + e->source->n_with : 1;
    if (gw_entry_taps(e) > 1 && (!want->vector || want->experts > 1 || want->cols % 2 != 0)) {
        return gw_fail(GW_E_METADATA, w->where,
                       "tensor %s cannot be shifted: %lld values are no vector of pairs", t->name,
                       (long long)want->cols);
    }
    int64_t axes[3], experts = e->n_stored > 1 ? 1 : want->experts;
    int64_t rows = (want->vector ? want->cols : want->rows) / (parts * gw_entry_taps(e));
    int n = 0;
    if (e->of > 0) {
        if (rows % e->count != 0 || e->first < 0 || e->first + e->count > e->of) {
            return gw_fail(GW_E_METADATA, w->where,
                           "tensor %s cannot be cut: %lld rows, %lld from %lld on of every %lld",
                           t->name, (long long)rows, (long long)e->count, (long long)e->first,
                           (long long)e->of);
        }
        rows = rows / e->count * e->of;
    }
    if (experts > 1) {
        axes[n++] = experts;
    }
    if (want->vector) {
        axes[n++] = rows;
    } else {
        axes[n++] = e->transposed ? want->cols : rows;
        axes[n++] = e->transposed ? rows : want->cols;
    }
    int first = 0, last = t->n_dim;
    while (last - first > n && t->dim[last - 1] == 1) {
        last--;
    }
    while (last - first > n && t->dim[first] == 1) {
        first++;
    }
    if (e->span >
        0) { /* heads of `span` stored rows, each of which is a row of all columns' heads */
        int64_t wide = t->n_dim > 0 ? t->dim[t->n_dim - 1] : 0;
        if (wide < 1 || rows % wide != 0 || e->within < 0 || e->within + want->cols > e->span) {
            return refuse(w, t, axes, n);
        }
        axes[0] = rows / wide * e->span;
        axes[1] = wide;
        n = 2;
    }
    int lone = t->n_dim == 0 && n == 1 && axes[0] == 1; /* a number without axes */
    int64_t before = 1; /* of a flat weight: what its first axis is stored as */
    for (int i = first; i < last - n + 1; i++) {
        before *= t->dim[i];
    }
    int64_t inner = 1; /* of a wide one: what its last axis is stored as */
    for (int i = 1; i < t->n_dim; i++) {
        inner *= t->dim[i];
    }
    int wide = want->wide && n == 2 && t->n_dim > 2 && t->dim[0] == axes[0] && inner == axes[1];
    int flat = want->flat && last - first > n && before == axes[0] &&
               memcmp(t->dim + last - n + 1, axes + 1, (size_t)(n - 1) * sizeof *axes) == 0;
    int stack = want->flat && n == 3 && last - first == 2 && /* experts one below the other */
                t->dim[first] == axes[0] * axes[1] && t->dim[first + 1] == axes[2];
    if (!lone && !flat && !wide && !stack &&
        (last - first != n || memcmp(t->dim + first, axes, (size_t)n * sizeof *axes) != 0)) {
        return refuse(w, t, axes, n);
    }
    e->stored_rows = want->vector ? experts * rows : axes[n - 2] * experts;
    e->stored_cols = want->vector ? 1 : axes[n - 1];
    return GW_OK;
}

static gw_status check_stored(const gw_weights *w, const gw_stored *t, const wanted *want,
                              gw_entry *e) {
    GW_TRY(check_shape(w, t, want, e));
    const gw_format *f = t->fmt < GW_FMT_COUNT ? gw_format_of(t->fmt) : NULL;
    if (f == NULL || t->fmt == GW_FMT_ACT8 || t->fmt == GW_FMT_I32 ||
        (want->vector && !f->is_float)) {
        return gw_fail(GW_E_TYPE, w->where, "tensor %s is stored as %s, which is no %s", t->name,
                       f != NULL ? f->name : "?",
                       want->vector ? "norm weight or bias" : "weight format");
    }
    int reordered =
        e->source != NULL && e->buckets == 0 &&
        (e->transposed || e->folded > 0 || e->source->transform[0] != GW_TRANSFORM_NONE);
    if (!f->is_float && reordered && t->packed == NULL && !want->to_float) {
        return gw_fail(GW_E_UNSUPPORTED, w->where,
                       "tensor %s is stored as %s and would have to be transposed or changed",
                       t->name, f->name);
    }
    size_t bytes;
    GW_TRY(gw_matrix_bytes(t->fmt, want->vector ? 1 : (uint64_t)e->stored_rows,
                           want->vector ? (uint64_t)e->stored_rows : (uint64_t)e->stored_cols,
                           &bytes));
    if (bytes != t->bytes) {
        return gw_fail(GW_E_METADATA, w->where, "tensor %s holds %zu bytes, not %zu", t->name,
                       t->bytes, bytes);
    }
    if (e->n_stored > 0 && e->stored[0] != NULL && t->fmt != e->stored[0]->fmt &&
        (t->packed == NULL || e->stored[0]->packed == NULL)) {
        return gw_fail(GW_E_UNSUPPORTED, w->where, "tensor %s is stored as %s, %s as %s", t->name,
                       f->name, e->stored[0]->name, gw_format_of(e->stored[0]->fmt)->name);
    }
    return GW_OK;
}

/* ---- one entry ------------------------------------------------------------------------------ */

static gw_status keep(gw_weights *w, const gw_stored *t) {
    if (w->n_pool == w->pool_capacity) {
        return gw_fail(GW_E_NOMEM, w->where, "no memory for the list of tensors");
    }
    w->pool[w->n_pool++] = t;
    return GW_OK;
}

int gw_source_names_experts(const gw_spec_source *s) {
    const char *mark = strstr(s->name, "%d");
    return mark != NULL && strstr(mark + 2, "%d") != NULL;
}

static gw_status cut_of(const gw_weights *w, const gw_spec_weight *s, int layer,
                        const gw_spec_source *source, gw_entry *e) {
    e->source = source;
    e->of = 0;
    e->times = 1.0f;
    e->span = 0;
    if (source->span.n > 0) {
        e->within = (int64_t)gw_spec_value(&w->bp, &w->hp, layer, source->within);
        GW_TRY(gw_spec_extent(&w->bp, &w->hp, layer, s, source->span, &e->span));
    }
    if (source->of.n > 0) {
        double first = gw_spec_value(&w->bp, &w->hp, layer, source->first);
        if (!(first >= 0.0 && first < 0x1p31)) {
            return gw_fail(GW_E_METADATA, w->where, "weight '%s' of layer %d is cut at row %g",
                           s->role, layer, first);
        }
        e->first = (int64_t)first;
        GW_TRY(gw_spec_extent(&w->bp, &w->hp, layer, s, source->count, &e->count));
        GW_TRY(gw_spec_extent(&w->bp, &w->hp, layer, s, source->of, &e->of));
        if (source->quarters && e->count % 4 != 0) {
            return gw_fail(GW_E_METADATA, w->where,
                           "weight '%s' of layer %d: %lld rows have no "
                           "quarters",
                           s->role, layer, (long long)e->count);
        }
    }
    e->buckets = e->both = 0;
    if (source->buckets.n > 0) {
        int64_t buckets = 0;
        GW_TRY(gw_spec_extent(&w->bp, &w->hp, layer, s, source->buckets, &buckets));
        if (s->n_dim != 1 || buckets < 4 || buckets > 1 << 16) {
            return gw_fail(GW_E_METADATA, w->where, "weight '%s' has %lld buckets of distance",
                           s->role, (long long)buckets);
        }
        e->buckets = (int)buckets;
        e->both = gw_spec_value(&w->bp, &w->hp, layer, source->both) != 0.0;
    }
    e->folded = 0;
    if (source->folded.n > 0) {
        GW_TRY(gw_spec_extent(&w->bp, &w->hp, layer, s, source->folded, &e->folded));
    }
    if (source->times.n > 0) {
        e->times = (float)gw_spec_value(&w->bp, &w->hp, layer, source->times);
    }
    return GW_OK;
}

/* What stands for a layer in names of a folder, or of a GGUF file. */
static int number_in(const gw_weights *w, const gw_spec_weight *s, int layer, int folder) {
    double own = s->numbered.n > 0 && folder ? gw_spec_value(&w->bp, &w->hp, layer, s->numbered)
                                             : w->hp.layer[layer].named;
    return own >= 0.0 && own < 0x1p30 ? (int)own : 0;
}

static int number_of(const gw_weights *w, const gw_spec_weight *s, int layer) {
    return number_in(w, s, layer, is_folder(w));
}

gw_status gw_weights_named(const gw_weights *w, int role, int layer, int expert, int folder, int i,
                           char *name, size_t room, gw_entry *e, int *there) {
    const gw_spec_weight *s = &w->bp.weight[role];
    const gw_spec_source *source = folder ? &s->hf[i] : &s->gguf[i];
    *there = i < (folder ? s->n_hf : s->n_gguf);
    if (!*there) {
        return GW_OK;
    }
    if ((gw_source_names_experts(source) && expert < 0) || source->n_with > 0 ||
        source->folded.n > 0 || source->span.n > 0 || source->buckets.n > 0) {
        name[0] = '\0'; /* of no linear layer */
        return GW_OK;
    }
    disk_name(source->name, number_in(w, s, layer, folder), expert, name, room);
    return cut_of(w, s, layer, source, e);
}

/* The tensors of one way to store the weight; *found 0: it is not stored so. */
static gw_status try_source(gw_weights *w, const gw_spec_weight *s, const gw_spec_source *source,
                            int layer, wanted *want, gw_entry *e, int *found) {
    char name[160];
    int each = gw_source_names_experts(source), n = each ? (int)want->experts : 1 + source->n_with;
    const char *why = NULL;
    size_t at = w->n_pool;
    *found = 0;
    for (int x = 0; x < n; x++) {
        disk_name(!each && x > 0 ? source->with[x - 1] : source->name, number_of(w, s, layer), x,
                  name, sizeof name);
        int integers = source->transform[0] == GW_TRANSFORM_INTEGERS;
        const gw_stored *t = find(w, name, integers, &why);
        if (why != NULL) {
            return gw_fail(GW_E_TYPE, w->where, "tensor %s holds %s, which no weight can be", name,
                           why);
        }
        if (t == NULL && x == 0) {
            return GW_OK;
        }
        if (t == NULL) {
            return gw_fail(GW_E_METADATA, w->where, "tensor %s is missing (%s of a %s model)", name,
                           s->role, w->bp.family);
        }
        GW_TRY(keep(w, t));
        int64_t high = t->n_dim == 3 && s->flat ? t->dim[0] * t->dim[1] : t->dim[0];
        int tall = s->tall && (t->n_dim == 2 || (t->n_dim == 3 && s->flat)) && t->dim[0] > 0 &&
                   high <= INT32_MAX / n;
        want->rows = tall ? high : want->rows;
        int across = s->across && t->n_dim == 2 && t->dim[1] > 0 && t->dim[1] <= INT32_MAX;
        want->cols = across ? t->dim[1] : want->cols;
    }
    GW_TRY(cut_of(w, s, layer, source, e));
    e->stored = w->pool + at;
    e->n_stored = n;
    e->transposed = source->transposed && !e->stored[0]->as_linear;
    for (int x = 0; x < n; x++) {
        GW_TRY(check_stored(w, e->stored[x], want, e));
    }
    *found = 1;
    return GW_OK;
}

/* Experts as MLX saves them, all in one tensor: beside the family's name of them, up to "experts",
 * switch_mlp or experts itself, and the projections by the same names in every family. */
static gw_status try_switch(gw_weights *w, const gw_spec_weight *s, int layer, wanted *want,
                            gw_entry *e, int *found) {
    static const gw_spec_source plain; /* neither cut nor changed */
    static const struct {
        const char *role, *names[2];
    } rows[] = {{"e_gate", {"gate_proj", NULL}},
                {"e_up", {"up_proj", "fc1"}},
                {"e_down", {"down_proj", "fc2"}}};
    static const char *const parts[] = {"switch_mlp", "experts"};
    const char *name = s->hf[0].name, *end = strstr(name, ".experts.");
    end = end != NULL ? end : strstr(name, ".input_linear.");
    end = end != NULL ? end : strstr(name, ".output_linear.");
    for (size_t r = 0; r < 3 && end != NULL && s->n_dim == 3; r++) {
        for (size_t k = 0; k < 4 && strcmp(s->role, rows[r].role) == 0; k++) {
            char pattern[160], full[160];
            const char *why = NULL;
            if (rows[r].names[k / 2] == NULL) {
                continue;
            }
            snprintf(pattern, sizeof pattern, "%.*s.%s.%s.weight", (int)(end - name), name,
                     parts[k % 2], rows[r].names[k / 2]);
            disk_name(pattern, w->hp.layer[layer].named, 0, full, sizeof full);
            const gw_stored *t = find(w, full, 0, &why);
            if (t == NULL) {
                continue;
            }
            GW_TRY(keep(w, t));
            GW_TRY(cut_of(w, s, layer, &plain, e));
            e->stored = w->pool + w->n_pool - 1;
            e->n_stored = 1;
            e->transposed = 0;
            GW_TRY(check_stored(w, t, want, e));
            *found = 1;
            return GW_OK;
        }
    }
    return GW_OK;
}

static gw_status try_sources(gw_weights *w, int role, int layer, wanted *want, gw_entry *e,
                             int *found) {
    const gw_spec_weight *s = &w->bp.weight[role];
    int n = 0;
    const gw_spec_source *list = sources_of(w, s, &n);
    *found = 0;
    for (int i = 0; i < n && !*found; i++) {
        GW_TRY(try_source(w, s, &list[i], layer, want, e, found));
    }
    return !*found && n > 0 && is_folder(w) ? try_switch(w, s, layer, want, e, found) : GW_OK;
}

static gw_status missing(const gw_weights *w, const gw_spec_weight *s, int layer) {
    char name[160];
    int n = 0;
    const gw_spec_source *list = sources_of(w, s, &n);
    if (n == 0) {
        return gw_fail(GW_E_METADATA, w->where, "weight '%s' of family %s has no name in a %s",
                       s->role, w->bp.family, is_folder(w) ? "folder" : "GGUF file");
    }
    disk_name(list[0].name, number_of(w, s, layer), 0, name, sizeof name);
    return gw_fail(GW_E_METADATA, w->where, "tensor %s%s is missing (%s of a %s model)",
                   is_folder(w) && w->bp.n_prefixes > 0 ? w->bp.prefix[0] : "", name, s->role,
                   w->bp.family);
}

/* X.scale of X.weight, which GGUF files with NVFP4 have: the scale of the whole matrix. */
static const gw_stored *factor_of(const gw_weights *w, const char *name) {
    char other[200];
    if (!gw_text_ends(name, ".weight")) {
        return NULL;
    }
    snprintf(other, sizeof other, "%.*s.scale", (int)(strlen(name) - 7), name);
    const gw_stored *t = gw_checkpoint_find(w->checkpoint, other);
    return t != NULL && t->fmt == GW_FMT_F32 && t->n_dim <= 1 && t->bytes >= sizeof(float) ? t
                                                                                           : NULL;
}

/* That, or the scale of what goes into such a product, which is not rounded so here. */
static int is_factor(const gw_weights *w, const char *name) {
    static const char *const tails[] = {".input_scale", ".scale"};
    char other[200];
    for (int i = 0; i < 2; i++) {
        if (gw_text_ends(name, tails[i])) {
            snprintf(other, sizeof other, "%.*s.weight", (int)(strlen(name) - strlen(tails[i])),
                     name);
            const gw_stored *t = gw_checkpoint_find(w->checkpoint, other);
            return t != NULL && t->fmt == GW_FMT_NVFP4;
        }
    }
    return 0;
}

/* Only the section score uses it, so that the model does without. */
static int scores_only(const gw_weights *w, int role) {
    for (int b = 0; b < w->bp.n_blocks; b++) {
        for (int k = 0; k < GW_SPEC_ARGS; k++) {
            if (w->bp.block[b].weight[k] == role && w->bp.block[b].section != GW_SECTION_SCORE) {
                return 0;
            }
        }
    }
    return 1;
}

/* What is read: packed matrices as floats where several of them, or a change of them, need it. */
static gw_fmt format_of(const gw_entry *e) {
    gw_fmt fmt = e->stored[0]->fmt;
    int changes = e->transposed || e->source->transform[0] != GW_TRANSFORM_NONE;
    for (int i = 0; i < e->n_stored; i++) {
        const gw_packed *p = e->stored[i]->packed;
        if (p != NULL &&
            (changes || e->stored[i]->fmt != fmt || (p->column != NULL && e->n_stored > 1))) {
            return GW_FMT_F32;
        }
    }
    return fmt;
}

/* Where formats stay that are in files only. */
static gw_fmt home_of(const gw_entry *e) {
    gw_fmt home = gw_small_home(e->from);
    const gw_format *f = gw_format_of(home);
    return f->is_float || e->stored_cols % (int64_t)f->block_elems == 0 ? home : GW_FMT_F32;
}

/* Fill the entry of a weight in a layer from the checkpoint. */
static gw_status match(gw_weights *w, int role, int layer) {
    const gw_spec_weight *s = &w->bp.weight[role];
    gw_entry *e = &w->entries[w->start[role] + (size_t)layer];
    wanted want;
    int found = 0;
    GW_TRY(read_wanted(w, s, layer, &want));
    e->made = s->alibi || s->sinusoid;
    if (s->sinusoid) {
        e->period = gw_spec_value(&w->bp, &w->hp, layer, s->period);
        e->single = s->single;
        e->zero = w->hp.uncounted;
    }
    if (!e->made && !(s->tied && w->hp.tied)) {
        GW_TRY(try_sources(w, role, layer, &want, e, &found));
    }
    for (int other = s->fallback; !found && other >= 0; other = w->bp.weight[other].fallback) {
        GW_TRY(try_sources(w, other, layer, &want, e, &found));
    }
    if (!found && !e->made) {
        return s->optional || scores_only(w, role) ? GW_OK : missing(w, s, layer);
    }
    e->keep_float = s->keep_float;
    e->experts = want.experts > 1 ? (int)want.experts : 0;
    e->used = e->experts > 0 ? w->hp.layer[layer].n_used : 0;
    e->t.name = found ? e->stored[0]->name : s->role;
    e->from = found ? format_of(e) : GW_FMT_F32;
    e->column = found && !gw_format_of(e->from)->is_float && e->stored[0]->packed != NULL
                    ? e->stored[0]->packed->column
                    : NULL;
    e->factor = found && e->from == GW_FMT_NVFP4 ? factor_of(w, e->stored[0]->name) : NULL;
    int changed = e->made || e->folded > 0 || e->source->transform[0] != GW_TRANSFORM_NONE ||
                  (e->transposed && !gw_format_of(e->from)->is_float);
    e->t.fmt = want.vector || changed        ? GW_FMT_F32
               : gw_format_is_small(e->from) ? home_of(e)
                                             : e->from;
    e->t.n_dim = want.vector ? 1 : 2;
    e->t.dim[0] = want.vector ? want.experts * want.cols : want.experts * want.rows;
    e->t.dim[1] = want.vector ? 0 : want.cols;
    e->columns =
        (gw_tensor){.name = e->t.name, .fmt = GW_FMT_F32, .n_dim = 1, .dim = {e->t.dim[1]}};
    return GW_OK;
}

/* ---- what is left --------------------------------------------------------------------------- */

/* 1 when name is PREFIX layer . SUFFIX of the pattern; *end: what follows the layer. */
static int is_layer_name(const char *pattern, const char *name, int *layer, const char **end) {
    const char *mark = strstr(pattern, "%d");
    size_t n = mark != NULL ? (size_t)(mark - pattern) : 0;
    if (mark == NULL || strncmp(pattern, name, n) != 0) {
        return 0;
    }
    const char *p = name + n;
    *layer = 0;
    while (*p >= '0' && *p <= '9') {
        *layer = *layer < 100000 ? *layer * 10 + (*p - '0') : *layer;
        p++;
    }
    *end = p;
    return p > name + n && *p == '.';
}

/* The rest of a name against the rest of a pattern, whose %d is any number. */
static int same_tail(const char *tail, const char *pattern) {
    while (*pattern != '\0') {
        if (pattern[0] == '%' && pattern[1] == 'd') {
            if (*tail < '0' || *tail > '9') {
                return 0;
            }
            while (*tail >= '0' && *tail <= '9') {
                tail++;
            }
            pattern += 2;
        } else if (*tail++ != *pattern++) {
            return 0;
        }
    }
    return *tail == '\0';
}

static int is_used(const gw_weights *w, int role) {
    for (int b = 0; b < w->bp.n_blocks; b++) {
        for (int k = 0; k < GW_SPEC_ARGS; k++) {
            if (w->bp.block[b].weight[k] == role) {
                return 1;
            }
        }
    }
    return 0;
}

/* 1: a role takes it; 0: it lies in a layer and none does; -1: it is no business of the layers. */
static int is_known(const gw_weights *w, const char *name) {
    int in_layer = 0;
    for (int r = 0; r < w->bp.n_weights; r++) {
        int n = 0, used = is_used(w, r);
        const gw_spec_source *list = sources_of(w, &w->bp.weight[r], &n);
        for (int i = 0; i < n; i++) {
            const char *tail = NULL;
            int layer = 0;
            if (used && strcmp(list[i].name, name) == 0) {
                return 1; /* one of a layer that serves all */
            }
            if (is_layer_name(list[i].name, name, &layer, &tail) && layer < w->hp.n_layers) {
                in_layer = 1;
                if (used && same_tail(tail, strstr(list[i].name, "%d") + 2)) {
                    return 1;
                }
            }
            const char *beside[1 + GW_SPEC_WITH] = {list[i].scales};
            for (int k = 0; k < list[i].n_with; k++) {
                beside[1 + k] = list[i].with[k];
            }
            for (int k = 0; used && k < 1 + list[i].n_with; k++) {
                if (is_layer_name(beside[k], name, &layer, &tail) &&
                    same_tail(tail, strstr(beside[k], "%d") + 2)) {
                    return 1;
                }
            }
        }
    }
    return in_layer ? 0 : -1;
}

static int is_skipped(const gw_weights *w, const char *name) {
    for (int i = 0; i < w->bp.n_skips; i++) {
        if (strstr(name, w->bp.skip[i]) != NULL) {
            return 1;
        }
    }
    return 0;
}

/* Has an entry found it by another name than its rules have? */
static int is_taken(const gw_weights *w, const gw_stored *t) {
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        const gw_entry *e = &w->entries[i];
        if (e->n_stored == 1 && e->stored[0] == t) {
            return 1;
        }
    }
    return 0;
}

/* A weight of a layer that no rule names would be dropped silently and give wrong text. */
static gw_status check_leftovers(const gw_weights *w) {
    for (size_t i = 0; i < gw_checkpoint_count(w->checkpoint); i++) {
        const gw_stored *t = gw_checkpoint_at(w->checkpoint, i);
        const char *name = t->name;
        int n = is_folder(w) && w->bp.n_prefixes > 0 ? w->bp.n_prefixes : 1, known = -1;
        for (int k = 0; k < n && known != 1; k++) {
            const char *prefix = is_folder(w) && w->bp.n_prefixes > 0 ? w->bp.prefix[k] : "";
            size_t bytes = strlen(prefix);
            if (strncmp(name, prefix, bytes) == 0) {
                int got = is_known(w, name + bytes);
                known = got >= 0 ? got : known;
            }
        }
        if (known == 0 && !t->part && !is_factor(w, name) && !is_skipped(w, name) &&
            !is_taken(w, t)) {
            return gw_fail(GW_E_UNSUPPORTED, w->where,
                           "tensor %s has no place in the model family %s", name, w->bp.family);
        }
    }
    return GW_OK;
}

/* ---- all ------------------------------------------------------------------------------------ */

static int layers_of(const gw_weights *w, int role) {
    return (int)(w->start[role + 1] - w->start[role]);
}

/* The first block that uses a weight in a layer; -1: none does. */
static int first_user(const gw_weights *w, int role, int layer) {
    for (int b = 0; b < w->bp.n_blocks; b++) {
        const gw_spec_block *block = &w->bp.block[b];
        for (int k = 0; k < GW_SPEC_ARGS; k++) {
            int outside = block->section != GW_SECTION_LAYER;
            if (block->weight[k] == role && (!outside || layer == 0) &&
                (!w->bp.weight[role].per_layer && !outside
                     ? 1
                     : gw_block_runs(block, &w->hp, outside ? w->hp.n_layers : layer))) {
                return b;
            }
        }
    }
    return -1;
}

static void note_user(gw_weights *w, int role, int layer, int b) {
    gw_entry *e = &w->entries[w->start[role] + (size_t)layer];
    const gw_spec_block *block = &w->bp.block[b];
    e->block = b;
    /* Used by a layer's blocks though it is one for all: by the first. */
    e->layer = block->section == GW_SECTION_LAYER ? layer : w->hp.n_layers;
    e->keep_rows = block->kind == GW_BLOCK_EMBED || block->kind == GW_BLOCK_NGRAM;
    e->plain = block->kind == GW_BLOCK_HEADS;
    if (e->plain && e->t.n_dim == 2 && !gw_format_of(e->t.fmt)->is_float) {
        e->t.fmt = GW_FMT_F32; /* expanded */
    }
    if (e->plain && gw_format_of(e->t.fmt)->block_elems > 1) {
        e->t.fmt = GW_FMT_F32; /* a format of products alone */
    }
}

/* Room for every stored tensor in the lists of entries. */
static gw_status make_pool(gw_weights *w) {
    size_t n = w->start[w->bp.n_weights];
    for (int r = 0; r < w->bp.n_weights; r++) {
        const gw_spec_weight *s = &w->bp.weight[r];
        for (int l = 0; (s->n_dim == 3 || s->stacked) && l < layers_of(w, r); l++) {
            n += (size_t)w->hp.layer[l].n_experts * GW_SPEC_SOURCES;
        }
    }
    size_t most = 8 * (gw_checkpoint_count(w->checkpoint) + n / 8 + 64);
    w->pool_capacity = n * GW_SPEC_SOURCES < most ? n * GW_SPEC_SOURCES + 16 : most;
    w->pool = calloc(w->pool_capacity, sizeof *w->pool);
    return w->pool != NULL ? GW_OK
                           : gw_fail(GW_E_NOMEM, w->where, "no memory for the list of tensors");
}

gw_status gw_weights_match(gw_weights *w) {
    GW_TRY(make_pool(w));
    for (int r = 0; r < w->bp.n_weights; r++) {
        for (int l = 0; l < layers_of(w, r); l++) {
            int user = first_user(w, r, l);
            if (user >= 0) {
                GW_TRY(match(w, r, l));
                note_user(w, r, l, user);
            }
        }
    }
    return check_leftovers(w);
}

gw_status gw_weights_values(gw_weights *w, int role, float **out, int64_t *rows) {
    gw_entry *e = &w->entries[w->start[role]];
    *out = NULL;
    *rows = 0;
    GW_TRY(match(w, role, 0));
    gw_entry own = *e;
    memset(e, 0, sizeof *e); /* so that it is neither loaded nor counted */
    if (!gw_entry_there(&own)) {
        return GW_OK;
    }
    own.t.fmt = GW_FMT_F32;
    const int vector = own.t.n_dim == 1;
    size_t n = (size_t)own.t.dim[0] * (size_t)(vector ? 1 : own.t.dim[1]);
    float *values = malloc(n * sizeof *values);
    if (values == NULL) {
        return gw_fail(GW_E_NOMEM, w->where, "no memory for %s", own.t.name);
    }
    gw_weight_source source = gw_entry_source(&own);
    gw_status status =
        vector ? gw_entry_values(&own, values) : source.rows(&source, 0, own.t.dim[0], values);
    if (status != GW_OK) {
        free(values);
        return status;
    }
    *out = values;
    *rows = own.t.dim[0];
    return GW_OK;
}

gw_status gw_weights_row(const gw_weights *w, int role, int64_t row, float *out) {
    gw_entry own = w->entries[w->start[role]];
    if (!gw_entry_there(&own) || own.t.n_dim != 2 || row < 0 || row >= own.t.dim[0]) {
        return gw_fail(GW_E_ARGUMENT, w->bp.weight[role].role, "has no row %lld", (long long)row);
    }
    own.t.fmt = GW_FMT_F32;
    gw_weight_source source = gw_entry_source(&own);
    return source.rows(&source, row, 1, out);
}
