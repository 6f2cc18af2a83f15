/* apps/judge/report.c - tables and JSON. See report.h. */
#include "apps/judge/report.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/output.h"

/* ---- shares ---------------------------------------------------------------------------------- */

/* Wilson 1927. */
judge_share judge_share_of(const judge_set *set, const choice_score *scores, judge_measure m) {
    judge_share s = {.n = set->n};
    for (size_t i = 0; i < set->n; i++) {
        s.right += judge_best(set, &set->tasks[i], scores, m) == (size_t)set->tasks[i].gold;
    }
    const double z = 1.959963984540054;
    double n = (double)s.n, p = (double)s.right / n, zz = z * z / n;
    double half = z * sqrt(p * (1 - p) / n + zz / (4 * n));
    s.low = (p + zz / 2 - half) / (1 + zz);
    s.high = (p + zz / 2 + half) / (1 + zz);
    return s;
}

/* Twice the smaller tail of a fair coin thrown `lost` + `gained` times. */
static double coin(size_t gained, size_t lost) {
    size_t n = gained + lost, least = gained < lost ? gained : lost;
    double sum = 0;
    for (size_t k = 0; k <= least; k++) {
        sum += exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) -
                   (double)n * log(2));
    }
    return 2 * sum < 1 ? 2 * sum : 1;
}

judge_contrast judge_contrast_of(const judge_set *set, const choice_score *scores,
                                 const choice_score *other) {
    judge_measure m = judge_has_measure(set, MEASURE_NORM) ? MEASURE_NORM : MEASURE_ACC;
    judge_contrast c = {0};
    for (size_t i = 0; i < set->n; i++) {
        size_t gold = (size_t)set->tasks[i].gold;
        int right = judge_best(set, &set->tasks[i], scores, m) == gold;
        int its = judge_best(set, &set->tasks[i], other, m) == gold;
        c.gained += right && !its;
        c.lost += its && !right;
    }
    c.p = coin(c.gained, c.lost);
    return c;
}

/* Of a set; NULL: it is the first. */
static const choice_score *reference(const judge_report *r, size_t model, size_t set) {
    for (size_t i = 0; i < model; i++) {
        if (r->models[i].scores[set] != NULL) {
            return r->models[i].scores[set];
        }
    }
    return NULL;
}

static double bits_per_weight(const judged *m) {
    return m->n_params > 0 ? 8.0 * (double)m->weight_bytes / (double)m->n_params : 0;
}

static int has_text(const judge_report *r) {
    for (size_t i = 0; i < r->n; i++) {
        if (r->models[i].has_text) {
            return 1;
        }
    }
    return 0;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_texts(const judge_report *r) {
    char size[32];
    out_print("%s, %zu windows of %d", r->file, r->windows, (int)r->n_ctx);
    if (r->stride > 0) {
        out_print(", %d apart", (int)r->stride);
    }
    if (r->base != NULL) {
        out_print(", against %s", r->base);
    }
    out_text("\n\n| model | size | bits/weight | PPL | +/- | bits/byte |");
    out_text(r->base != NULL ? " ln(PPL/base) | +/- | KL | +/- | same top % | RMS dp % |\n"
                               "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
                             : "\n|---|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < r->n; i++) {
        const judged *m = &r->models[i];
        const tally_figures *f = &m->text;
        if (!m->has_text) {
            continue;
        }
        out_print("| %s | %s | %.2f | %.4f | %.4f | %.4f |", m->name,
                  app_bytes(m->file_bytes, size), bits_per_weight(m), f->ppl, f->ppl_error,
                  f->bits_per_byte);
        if (f->has_base) {
            out_print(" %.5f | %.5f | %.5f | %.5f | %.3f | %.3f |", f->log_ratio,
                      f->log_ratio_error, f->kl, f->kl_error, 100 * f->same_top, 100 * f->dp_rms);
        }
        out_text("\n");
    }
}

static void print_quantiles(const judge_report *r) {
    out_text("\n| KL | ");
    for (int q = 0; q < TALLY_QUANTILES; q++) {
        double at = 100 * tally_quantiles[q];
        out_print(at == 0     ? "least |"
                  : at == 50  ? " median |"
                  : at == 100 ? " largest |"
                              : " %g%% |",
                  at);
    }
    out_text("\n|---|");
    for (int q = 0; q < TALLY_QUANTILES; q++) {
        out_text("---:|");
    }
    for (size_t i = 0; i < r->n; i++) {
        const judged *m = &r->models[i];
        if (m->has_text) {
            out_print("\n| %s |", m->name);
            for (int q = 0; q < TALLY_QUANTILES; q++) {
                out_print(" %.6f |", m->text.kl_at[q]);
            }
        }
    }
    out_text("\n");
}

static void print_set(const judge_report *r, size_t set) {
    const judge_set *s = &r->sets[set];
    out_print("\n%s, %s, %zu tasks: right in 100, 95%% interval\n\n| model |", s->path, s->kind,
              s->n);
    for (int m = 0; m < MEASURES; m++) {
        if (judge_has_measure(s, (judge_measure)m)) {
            out_print(" %s | |", judge_measure_name((judge_measure)m));
        }
    }
    out_text(" better : worse | p |\n|---|");
    for (int m = 0; m < MEASURES; m++) {
        out_text(judge_has_measure(s, (judge_measure)m) ? "---:|---|" : "");
    }
    out_text("---:|---:|\n");
    for (size_t i = 0; i < r->n; i++) {
        const choice_score *scores = r->models[i].scores[set], *other = reference(r, i, set);
        if (scores == NULL) {
            continue;
        }
        out_print("| %s |", r->models[i].name);
        for (int m = 0; m < MEASURES; m++) {
            if (judge_has_measure(s, (judge_measure)m)) {
                judge_share x = judge_share_of(s, scores, (judge_measure)m);
                out_print(" %.2f | %.2f .. %.2f |", 100 * (double)x.right / (double)x.n,
                          100 * x.low, 100 * x.high);
            }
        }
        if (other != NULL) {
            judge_contrast c = judge_contrast_of(s, scores, other);
            out_print(" %zu : %zu | %.3f |\n", c.gained, c.lost, c.p);
        } else {
            out_text(" | |\n");
        }
    }
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* Names of the figures are those of the references that others compute. */
static void print_csv(const judge_report *r) {
    out_text("model,bytes,bits_per_weight,ppl,ppl_err,bits_per_byte,base_ppl,kl,kl_err,kl_median,"
             "kl_p90,kl_p95,kl_p99,kl_p999,kl_max,same_top,rms_dp");
    for (size_t s = 0; s < r->n_sets; s++) {
        for (int m = 0; m < MEASURES; m++) {
            if (judge_has_measure(&r->sets[s], (judge_measure)m)) {
                out_print(",%s_%s", r->sets[s].kind, judge_measure_name((judge_measure)m));
            }
        }
    }
    for (size_t i = 0; i < r->n; i++) {
        const judged *m = &r->models[i];
        const tally_figures *f = &m->text;
        out_print("\n\"%s\",%llu,%.4f", m->name, (unsigned long long)m->file_bytes,
                  bits_per_weight(m));
        if (m->has_text) {
            out_print(",%.6f,%.6f,%.6f", f->ppl, f->ppl_error, f->bits_per_byte);
        } else {
            out_text(",,,");
        }
        if (m->has_text && f->has_base) {
            out_print(",%.6f,%.8f,%.8f", f->base_ppl, f->kl, f->kl_error);
            for (int q = 5; q < TALLY_QUANTILES; q++) {
                out_print(",%.8f", f->kl_at[q]);
            }
            out_print(",%.6f,%.6f", f->same_top, f->dp_rms);
        } else {
            out_text(",,,,,,,,,,,");
        }
        for (size_t s = 0; s < r->n_sets; s++) {
            for (int k = 0; k < MEASURES; k++) {
                if (!judge_has_measure(&r->sets[s], (judge_measure)k)) {
                    continue;
                }
                out_text(",");
                if (m->scores[s] != NULL) {
                    judge_share x = judge_share_of(&r->sets[s], m->scores[s], (judge_measure)k);
                    out_print("%.6f", (double)x.right / (double)x.n);
                }
            }
        }
    }
    out_text("\n");
}

static void set_real(json_t *object, const char *name, double x) {
    json_object_set_new(object, name, isfinite(x) ? json_real(x) : json_null());
}

static json_t *text_json(const tally_figures *f) {
    static const char *const names[TALLY_QUANTILES] = {
        "min", "p001", "p01", "p05", "p10", "median", "p90", "p95", "p99", "p999", "max"};
    json_t *t = json_object();
    char name[32];
    json_object_set_new(t, "scored", json_integer((json_int_t)f->n));
    json_object_set_new(t, "bytes", json_integer((json_int_t)f->bytes));
    set_real(t, "ppl", f->ppl);
    set_real(t, "ppl_err", f->ppl_error);
    set_real(t, "bits_per_byte", f->bits_per_byte);
    if (!f->has_base) {
        return t;
    }
    set_real(t, "base_ppl", f->base_ppl);
    set_real(t, "base_ppl_err", f->base_ppl_error);
    set_real(t, "ln_ppl_ratio", f->log_ratio);
    set_real(t, "ln_ppl_ratio_err", f->log_ratio_error);
    set_real(t, "kl", f->kl);
    set_real(t, "kl_err", f->kl_error);
    set_real(t, "same_top", f->same_top);
    set_real(t, "same_top_err", f->same_top_error);
    set_real(t, "mean_dp", f->dp);
    set_real(t, "mean_dp_err", f->dp_error);
    set_real(t, "rms_dp", f->dp_rms);
    set_real(t, "rms_dp_err", f->dp_rms_error);
    for (int q = 0; q < TALLY_QUANTILES; q++) {
        snprintf(name, sizeof name, "kl_%s", names[q]);
        set_real(t, name, f->kl_at[q]);
        snprintf(name, sizeof name, "dp_%s", names[q]);
        set_real(t, name, f->dp_at[q]);
    }
    return t;
}

/* A task: what each choice has, and which measures find the right one. */
static json_t *sample_json(const judge_set *set, const judge_task *task,
                           const choice_score *scores) {
    json_t *x = json_object(), *sums = json_array(), *ids = json_array(), *means = json_array(),
           *characters = json_array();
    for (size_t k = task->first; k < task->first + task->n; k++) {
        json_array_append_new(sums, json_real(scores[k].sum));
        json_array_append_new(ids, json_integer(scores[k].n));
        json_array_append_new(characters, json_integer(set->choices[k].characters));
        json_array_append_new(
            means, json_real(scores[k].mean_sum / (scores[k].n_mean > 0 ? scores[k].n_mean : 1)));
    }
    json_object_set_new(x, "gold", json_integer(task->gold));
    json_object_set_new(x, "loglikelihood", sums);
    json_object_set_new(x, "ids", ids);
    json_object_set_new(x, "characters", characters);
    if (judge_has_measure(set, MEASURE_MEAN)) {
        json_object_set(x, "means", means);
    }
    json_decref(means);
    for (int m = 0; m < MEASURES; m++) {
        if (judge_has_measure(set, (judge_measure)m)) {
            json_object_set_new(x, judge_measure_name((judge_measure)m),
                                json_boolean(judge_best(set, task, scores, (judge_measure)m) ==
                                             (size_t)task->gold));
        }
    }
    return x;
}

static json_t *set_json(const judge_set *set, const choice_score *scores,
                        const choice_score *other) {
    json_t *t = json_object(), *intervals = json_object(), *samples = json_array();
    json_object_set_new(t, "file", json_string(set->path));
    json_object_set_new(t, "kind", json_string(set->kind));
    json_object_set_new(t, "n", json_integer((json_int_t)set->n));
    for (int m = 0; m < MEASURES; m++) {
        const char *name = judge_measure_name((judge_measure)m);
        if (judge_has_measure(set, (judge_measure)m)) {
            judge_share s = judge_share_of(set, scores, (judge_measure)m);
            set_real(t, name, (double)s.right / (double)s.n);
            json_object_set_new(intervals, name, json_pack("[ff]", s.low, s.high));
        }
    }
    json_object_set_new(t, "interval_95", intervals);
    if (other != NULL) {
        judge_contrast c = judge_contrast_of(set, scores, other);
        json_object_set_new(t, "against_first",
                            json_pack("{s:I, s:I, s:f}", "better", (json_int_t)c.gained, "worse",
                                      (json_int_t)c.lost, "p", c.p));
    }
    for (size_t i = 0; i < set->n; i++) {
        json_array_append_new(samples, sample_json(set, &set->tasks[i], scores));
    }
    json_object_set_new(t, "samples", samples);
    return t;
}

static json_t *model_json(const judge_report *r, size_t i) {
    const judged *m = &r->models[i];
    json_t *x = json_object(), *tasks = json_array();
    json_object_set_new(x, "model", json_string(m->name));
    json_object_set_new(x, "path", json_string(m->path != NULL ? m->path : ""));
    json_object_set_new(x, "format", json_string(m->format));
    json_object_set_new(x, "device", json_string(m->device));
    json_object_set_new(x, "file_bytes", json_integer((json_int_t)m->file_bytes));
    set_real(x, "bits_per_weight", bits_per_weight(m));
    set_real(x, "seconds", m->seconds);
    if (m->has_text) {
        json_object_set_new(x, "text", text_json(&m->text));
    }
    for (size_t s = 0; s < r->n_sets; s++) {
        if (m->scores[s] != NULL) {
            json_array_append_new(tasks, set_json(&r->sets[s], m->scores[s], reference(r, i, s)));
        }
    }
    json_object_set_new(x, "tasks", tasks);
    return x;
}

static int print_json(const judge_report *r) {
    json_t *all = json_object(), *models = json_array();
    if (has_text(r)) {
        json_object_set_new(all, "text",
                            json_pack("{s:s, s:s?, s:i, s:i, s:I}", "file", r->file, "base",
                                      r->base, "n_ctx", (int)r->n_ctx, "stride", (int)r->stride,
                                      "windows", (json_int_t)r->windows));
    }
    for (size_t i = 0; i < r->n; i++) {
        json_array_append_new(models, model_json(r, i));
    }
    json_object_set_new(all, "models", models);
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    json_decref(all);
    if (text == NULL) {
        app_error("no memory for the table, or a name that is not UTF-8");
        return APP_FAILURE;
    }
    out_text(text);
    out_text("\n");
    free(text);
    return APP_OK;
}

int report_print(const judge_report *r, const char *format) {
    int code = APP_OK;
    if (strcmp(format, "json") == 0) {
        code = print_json(r);
    } else if (strcmp(format, "csv") == 0) {
        print_csv(r);
    } else {
        if (has_text(r)) {
            print_texts(r);
        }
        if (has_text(r) && r->base != NULL) {
            print_quantiles(r);
        }
        for (size_t s = 0; s < r->n_sets; s++) {
            print_set(r, s);
        }
    }
    return code == APP_OK && out_flush() != 0 ? APP_FAILURE : code;
}
