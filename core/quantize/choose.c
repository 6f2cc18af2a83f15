/* core/quantize/choose.c - what every tensor of a model becomes: rules first, then the mixture,
 * then what its columns allow. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/quantize/make.h"
#include "core/text/regex.h"

void gw_say(const gw_quantize_options *o, const char *fmt, ...) {
    char line[1024];
    va_list args;
    if (o->say == NULL) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    o->say(o->say_user, line);
}

/* ---- rules ---------------------------------------------------------------------------------- */

typedef struct rule {
    gw_regex *pattern;
    gw_regex_work *work;
    gw_fmt fmt;
    int matched;
    const char *text;
} rule;

static gw_status format_named(const char *option, const char *name, gw_fmt *out) {
    if (!gw_format_from_name(name, out) || !gw_can_encode(*out) ||
        gw_format_of(*out)->gguf_type < 0) {
        return gw_fail(GW_E_ARGUMENT, option, "'%.40s' is no format that a GGUF file is made in",
                       name);
    }
    return GW_OK;
}

static gw_status read_rule(const char *text, rule *out) {
    const char *mark = strrchr(text, '=');
    char pattern[256];
    if (mark == NULL || (size_t)(mark - text) >= sizeof pattern || mark == text) {
        return gw_fail(GW_E_ARGUMENT, "--tensor-type", "'%.60s' is not PATTERN=TYPE", text);
    }
    memcpy(pattern, text, (size_t)(mark - text));
    pattern[mark - text] = '\0';
    GW_TRY(format_named("--tensor-type", mark + 1, &out->fmt));
    out->text = text;
    gw_status status = gw_regex_new("--tensor-type", pattern, 0, &out->pattern);
    if (status == GW_E_UNSUPPORTED) {
        return gw_fail(GW_E_ARGUMENT, "--tensor-type", "'%.60s' is no regular expression", pattern);
    }
    GW_TRY(status);
    return gw_regex_work_new(&out->work);
}

static void free_rules(rule *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        gw_regex_free(list[i].pattern);
        gw_regex_work_free(list[i].work);
    }
    free(list);
}

/* ---- one tensor ----------------------------------------------------------------------------- */

/* Whose importance counts: --include-weights, --exclude-weights. */
static int importance_wanted(const gw_quantize_options *o, const char *name) {
    for (size_t i = 0; i < o->n_exclude; i++) {
        if (strstr(name, o->exclude[i]) != NULL) {
            return 0;
        }
    }
    for (size_t i = 0; i < o->n_include; i++) {
        if (strstr(name, o->include[i]) != NULL) {
            return 1;
        }
    }
    return o->n_include == 0;
}

static gw_status find_importance(gw_making *m, gw_item *item) {
    const gw_original_tensor *t = item->t;
    if (m->imatrix.n == 0 || !importance_wanted(m->o, t->name)) {
        return GW_OK;
    }
    const char *name = m->source.pruned > 0 && m->o->imatrix != NULL ? t->seen_as : t->name;
    const gw_imatrix_entry *e = gw_imatrix_find(&m->imatrix, name);
    int64_t experts = t->n_dim == 3 ? t->dim[0] : 1;
    if (e == NULL) {
        return GW_OK;
    }
    int fits = e->cols * e->experts == t->cols * experts || (e->cols == t->cols && e->experts == 1);
    if (!fits) {
        return gw_fail(GW_E_METADATA, m->o->imatrix,
                       "%s has %lld columns there, %lld in the model: is it of another model?",
                       t->name, (long long)(e->cols * e->experts), (long long)(t->cols * experts));
    }
    item->importance = e;
    return GW_OK;
}

static const char *stays(const gw_making *m, const gw_original_tensor *t, int ruled) {
    int is_float = gw_format_of(t->fmt)->is_float;
    if (m->mixture.copy) {
        return "copy";
    }
    if (t->n_dim < 2) {
        return "a vector";
    }
    if (!gw_mixture_takes(t->name, t->n_dim) && !ruled) {
        return "small, or precision matters";
    }
    if (m->o->leave_output && strcmp(t->name, "output.weight") == 0) {
        return "--leave-output-tensor";
    }
    (void)is_float;
    return NULL;
}

static gw_status choose_one(gw_making *m, gw_mixture_model *model, rule *rules, gw_item *item) {
    const gw_quantize_options *o = m->o;
    const gw_original_tensor *t = item->t;
    int head = strcmp(t->name, "output.weight") == 0, ruled = 0;
    int embedding = strcmp(t->name, "token_embd.weight") == 0;
    gw_fmt fmt = t->fmt;
    for (size_t i = 0; i < o->n_rules && !ruled; i++) {
        size_t start, end;
        int found = 0;
        GW_TRY(gw_regex_find(rules[i].pattern, rules[i].work, t->name, strlen(t->name), 0, &found,
                             &start, &end));
        if (found) {
            rules[i].matched = 1;
            ruled = t->n_dim >= 2;
            fmt = ruled ? rules[i].fmt : fmt;
        }
    }
    item->kept = stays(m, t, ruled);
    /* Asked about in any case: matrices of a kind are counted. */
    gw_fmt usual = o->pure ? m->mixture.base
                           : gw_mixture_choose(&m->mixture, model, t->name, t->cols, t->n_dim);
    if (item->kept == NULL && !ruled) {
        fmt = usual;
        if (o->output_type != NULL && (head || (!model->has_output && embedding))) {
            GW_TRY(format_named("--output-tensor-type", o->output_type, &fmt));
        }
        if (o->embedding_type != NULL && embedding) {
            GW_TRY(format_named("--token-embedding-type", o->embedding_type, &fmt));
        }
    }
    item->wanted = item->kept != NULL ? t->fmt : fmt;
    item->to = item->kept != NULL ? t->fmt : gw_mixture_fallback(fmt, t->cols);
    if (item->kept == NULL && item->to == t->fmt) {
        item->kept = "it is that already";
    }
    gw_fmt coded = gw_format_of(t->from)->is_float ? t->fmt : t->from;
    if (item->kept == NULL && !gw_format_of(coded)->is_float && !o->allow_requantize) {
        return gw_fail(GW_E_ARGUMENT, "--allow-requantize",
                       "%s is %s already: making it again loses more than making it from floats; "
                       "give the option to do so",
                       t->name, gw_format_of(coded)->name);
    }
    if (!gw_can_encode(item->to) && item->kept == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, t->name, "%s is read, but not made",
                       gw_format_of(item->to)->name);
    }
    if (item->wanted != item->to && o->no_fallback) {
        return gw_fail(GW_E_METADATA, t->name,
                       "%lld columns are no whole number of %s blocks, and --no-fallback is given",
                       (long long)t->cols, gw_format_of(item->wanted)->name);
    }
    GW_TRY(find_importance(m, item));
    /* A text that will be read has it; where nothing is made nothing is read. */
    int later = o->dry_run && o->calibrate != NULL;
    if (item->kept == NULL && item->importance == NULL && !later &&
        gw_mixture_needs_importance(item->to, t->name)) {
        return gw_fail(GW_E_ARGUMENT, "--imatrix",
                       "%s in %s needs the importance of its columns: give --imatrix FILE or "
                       "--calibrate TEXT",
                       t->name, gw_format_of(item->to)->name);
    }
    return GW_OK;
}

/* ---- all ------------------------------------------------------------------------------------ */

static void say_table(const gw_making *m) {
    char text[32];
    for (int f = 0; f < GW_FMT_COUNT; f++) {
        size_t n = 0, seen = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; i < m->source.n; i++) {
            const gw_item *it = &m->list[i];
            if (it->to == (gw_fmt)f) {
                n++;
                bytes += it->bytes;
                seen += it->importance != NULL;
            }
        }
        if (n > 0) {
            gw_say(m->o, "%-8s %5zu tensors  %10s%s", gw_format_of((gw_fmt)f)->name, n,
                   gw_text_size(bytes, 4, text),
                   m->imatrix.n > 0 && seen > 0 && seen < n ? "  (some without importance)" : "");
        }
    }
    for (size_t i = 0; i < m->source.n; i++) {
        const gw_item *it = &m->list[i];
        if (it->wanted != it->to) {
            gw_say(m->o, "%s: %lld columns do not fit %s: %s", it->t->name, (long long)it->t->cols,
                   gw_format_of(it->wanted)->name, gw_format_of(it->to)->name);
        } else if (it->kept != NULL && it->t->n_dim >= 2 && !m->mixture.copy) {
            gw_say(m->o, "%s stays %s: %s", it->t->name, gw_format_of(it->to)->name, it->kept);
        }
    }
}

static gw_status check_rules(const gw_making *m, const rule *rules) {
    for (size_t i = 0; i < m->o->n_rules; i++) {
        if (!rules[i].matched) {
            return gw_fail(GW_E_ARGUMENT, "--tensor-type", "'%.80s' matches no tensor",
                           rules[i].text);
        }
    }
    return GW_OK;
}

/* An importance matrix of another model names nothing here. */
static gw_status check_imatrix(const gw_making *m) {
    size_t seen = 0;
    for (size_t i = 0; i < m->source.n; i++) {
        seen += m->list[i].importance != NULL;
    }
    int filtered = m->o->n_include > 0 || m->o->n_exclude > 0;
    return m->imatrix.n == 0 || seen > 0 || filtered
               ? GW_OK
               : gw_fail(GW_E_METADATA, m->o->imatrix,
                         "names no weight of this model: is it of another one?");
}

gw_status gw_choose_formats(gw_making *m) {
    const gw_quantize_options *o = m->o;
    gw_mixture_model model = {.architecture = m->source.architecture,
                              .layers = m->source.layers - m->source.pruned,
                              .heads = m->source.heads,
                              .kv_heads = m->source.kv_heads,
                              .experts = m->source.experts,
                              .has_output = gw_original_find(&m->source, "output.weight") != NULL,
                              .has_imatrix = m->imatrix.n > 0 || o->calibrate != NULL};
    rule *rules = calloc(o->n_rules + 1, sizeof *rules);
    size_t read = 0;
    gw_status status = GW_OK;
    if (rules == NULL) {
        return gw_fail(GW_E_NOMEM, "--tensor-type", "no memory for rules");
    }
    for (; read < o->n_rules && status == GW_OK; read++) {
        status = read_rule(o->rules[read], &rules[read]);
    }
    if (status != GW_OK) {
        free_rules(rules, read - 1);
        return status;
    }
    for (size_t i = 0; i < m->source.n; i++) {
        model.n_attn_v += gw_mixture_is_attn_v(m->source.list[i].name);
        model.n_ffn_down += gw_mixture_is_ffn_down(m->source.list[i].name);
    }
    for (size_t i = 0; i < m->source.n; i++) {
        gw_item *it = &m->list[i];
        it->t = &m->source.list[i];
        GW_TRY_DONE(choose_one(m, &model, rules, it));
        GW_TRY_DONE(gw_row_bytes(it->to, (uint64_t)it->t->cols, &it->row_bytes));
        size_t bytes = 0;
        GW_TRY_DONE(gw_matrix_bytes(it->to, (uint64_t)it->t->rows, (uint64_t)it->t->cols, &bytes));
        it->bytes = bytes;
    }
    GW_TRY_DONE(check_rules(m, rules));
    GW_TRY_DONE(check_imatrix(m));
    say_table(m);
done:
    free_rules(rules, o->n_rules);
    return status;
}

gw_status gw_importance_of(const gw_making *m, const gw_item *item, float **out) {
    const gw_original_tensor *t = item->t;
    int64_t experts = t->n_dim == 3 ? t->dim[0] : 1;
    *out = NULL;
    if (item->importance == NULL) {
        return GW_OK;
    }
    float *h = malloc((size_t)(experts * t->cols) * sizeof *h);
    gw_imatrix_entry e = *item->importance;
    float *counts = calloc((size_t)experts + 1, sizeof *counts);
    if (h == NULL || counts == NULL) {
        free(h);
        free(counts);
        return gw_fail(GW_E_NOMEM, t->name, "no memory for the importance of its columns");
    }
    int unseen = 0;
    if (e.experts == 1 && experts > 1 && e.cols == t->cols * experts) { /* the older form */
        for (int64_t x = 0; x < experts; x++) {
            counts[x] = e.counts[0];
        }
        e.counts = counts;
        e.experts = experts;
        e.cols = t->cols;
    }
    gw_imatrix_means(&e, h, &unseen);
    for (int64_t x = 1; x < experts && e.experts == 1; x++) {
        memcpy(h + x * t->cols, h, (size_t)t->cols * sizeof *h);
    }
    if (unseen > 0) {
        gw_say(m->o, "%s: %d of %lld experts saw no text: importance of the others used", t->name,
               unseen, (long long)experts);
    }
    free(counts);
    *out = h;
    return GW_OK;
}
