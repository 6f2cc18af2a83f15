/* core/model/spec_weights.c - the lines weight and stored. */
#include <string.h>

#include "core/model/spec_parts.h"

/* Dimensions joined by commas; a comma in brackets belongs to a function. */
static gw_status read_shape(const gw_spec_reader *r, gw_spec_word w, gw_spec_weight *out) {
    int depth = 0;
    size_t start = 0;
    out->n_dim = 0;
    for (size_t i = 0; i <= w.n; i++) {
        char c = i < w.n ? w.at[i] : ',';
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (c != ',' || (depth > 0 && i < w.n)) {
            continue;
        }
        if (out->n_dim == 3) {
            return gw_spec_fail(r,
                                "shape '%.*s': expected one to three dimensions such as "
                                "heads*d_head,d_model",
                                w.n < 60 ? (int)w.n : 60, w.at);
        }
        GW_TRY(
            gw_spec_expr(r, (gw_spec_word){w.at + start, i - start}, 0, 0, &out->dim[out->n_dim]));
        out->n_dim++;
        start = i + 1;
    }
    return GW_OK;
}

/* How often %d stands in the name; -1 for any other use of %. */
static int marks(const char *name) {
    int n = 0;
    for (const char *p = strchr(name, '%'); p != NULL; p = strchr(p + 1, '%')) {
        if (p[1] != 'd') {
            return -1;
        }
        n++;
    }
    return n;
}

static gw_status read_transform(const gw_spec_reader *r, gw_spec_word w, gw_spec_source *s,
                                int *known) {
    static const struct {
        const char *name;
        gw_transform transform;
    } all[] = {{"plus_one", GW_TRANSFORM_PLUS_ONE}, {"exp", GW_TRANSFORM_EXP},
               {"negate", GW_TRANSFORM_NEGATE},     {"softplus", GW_TRANSFORM_SOFTPLUS},
               {"sqrt", GW_TRANSFORM_SQRT},         {"xielu", GW_TRANSFORM_XIELU},
               {"times", GW_TRANSFORM_TIMES},       {"relative", GW_TRANSFORM_RELATIVE},
               {"integers", GW_TRANSFORM_INTEGERS}, {"shift", GW_TRANSFORM_SHIFT}};
    *known = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (gw_spec_is(w, all[i].name)) {
            int k = 0;
            while (k < GW_SPEC_TRANSFORMS && s->transform[k] != GW_TRANSFORM_NONE) {
                k++;
            }
            if (k == GW_SPEC_TRANSFORMS) {
                return gw_spec_fail(r, "more than %d transforms", GW_SPEC_TRANSFORMS);
            }
            s->transform[k] = all[i].transform;
            *known = 1;
        }
    }
    return GW_OK;
}

/* What stands behind a name: cut FIRST COUNT OF, transposed, transforms, scales NAME. *at: the word
 * behind what was read. */
static gw_status read_source_options(const gw_spec_reader *r, const gw_spec_line *l, int *at,
                                     gw_spec_source *s) {
    for (int known = 1; *at < l->n && known;) {
        gw_spec_word w = l->word[*at];
        int left = l->n - *at - 1;
        if (gw_spec_is(w, "cut") && left >= 3) {
            GW_TRY(gw_spec_expr(r, l->word[*at + 1], 0, 0, &s->first));
            GW_TRY(gw_spec_expr(r, l->word[*at + 2], 0, 0, &s->count));
            GW_TRY(gw_spec_expr(r, l->word[*at + 3], 0, 0, &s->of));
            *at += 4;
        } else if (gw_spec_is(w, "transposed")) {
            s->transposed = 1;
            *at += 1;
        } else if (gw_spec_is(w, "quarters")) {
            s->quarters = 1;
            *at += 1;
        } else if (gw_spec_is(w, "within") && left >= 2) {
            GW_TRY(gw_spec_expr(r, l->word[*at + 1], 0, 0, &s->within));
            GW_TRY(gw_spec_expr(r, l->word[*at + 2], 0, 0, &s->span));
            *at += 3;
        } else if (gw_spec_is(w, "with") && left >= 1) {
            if (s->n_with == GW_SPEC_WITH) {
                return gw_spec_fail(r, "more than %d tensors behind one", GW_SPEC_WITH);
            }
            GW_TRY(
                gw_spec_copy(r, l->word[*at + 1], s->with[s->n_with++], sizeof s->with[0], "name"));
            *at += 2;
        } else if (gw_spec_is(w, "folded") && left >= 1) {
            GW_TRY(gw_spec_expr(r, l->word[*at + 1], 0, 0, &s->folded));
            *at += 2;
        } else if (gw_spec_is(w, "scales") && left >= 1) {
            GW_TRY(gw_spec_copy(r, l->word[*at + 1], s->scales, sizeof s->scales, "name"));
            *at += 2;
        } else {
            GW_TRY(read_transform(r, w, s, &known));
            *at += known;
            if (known && gw_spec_is(w, "times")) {
                if (*at == l->n) {
                    return gw_spec_fail(r, "times needs a number");
                }
                GW_TRY(gw_spec_expr(r, l->word[*at], 0, 0, &s->times));
                *at += 1;
            } else if (known && gw_spec_is(w, "relative")) {
                if (*at + 2 > l->n) {
                    return gw_spec_fail(r, "relative needs the number of buckets and whether those "
                                           "behind have their own half");
                }
                GW_TRY(gw_spec_expr(r, l->word[*at], 0, 0, &s->buckets));
                GW_TRY(gw_spec_expr(r, l->word[*at + 1], 0, 0, &s->both));
                *at += 2;
            }
        }
    }
    return GW_OK;
}

static gw_status name_source(const gw_spec_reader *r, gw_spec_word w, gw_spec_source *s) {
    memset(s, 0, sizeof *s);
    return gw_spec_copy(r, w, s->name, sizeof s->name, "name");
}

/* Names of one weight: all of layers or none; the expert only where it has experts. */
static gw_status check_marks(const gw_spec_reader *r, gw_spec_weight *w) {
    int seen = 0;
    for (int i = 0; i < w->n_hf + w->n_gguf; i++) {
        int n = marks(i < w->n_hf ? w->hf[i].name : w->gguf[i - w->n_hf].name);
        int most = w->n_dim == 3 || w->stacked ? 2 : 1;
        if (n < 0 || n > most || (seen && (n > 0) != w->per_layer && !w->first)) {
            return gw_spec_fail(r, "weight '%s': every name needs %%d once, or none does%s",
                                w->role, most == 2 ? "; a second %d is the expert" : "");
        }
        w->per_layer = n > 0 || w->first;
        seen = 1;
    }
    return GW_OK;
}

static gw_status declare(gw_spec_reader *r, gw_spec_word w, gw_spec_weight **out) {
    gw_blueprint *bp = r->out;
    int i = gw_spec_role(bp, w);
    if (i < 0 && bp->n_weights == GW_SPEC_WEIGHTS) {
        return gw_spec_fail(r, "more than %d weights", GW_SPEC_WEIGHTS);
    }
    if (i >= 0 && r->pass == 1 && bp->weight[i].file == r->file) {
        return gw_spec_fail(r, "weight '%.*s' is declared twice", (int)w.n, w.at);
    }
    if (i < 0) {
        i = bp->n_weights;
        GW_TRY(gw_spec_copy(r, w, bp->weight[i].role, sizeof bp->weight[i].role, "role"));
        bp->n_weights++;
    }
    *out = &bp->weight[i];
    (*out)->file = r->file;
    return GW_OK;
}

/* The words behind the names that say what becomes of the weight. */
static gw_status read_weight_options(const gw_spec_reader *r, const gw_spec_line *l, int at,
                                     gw_spec_weight *w) {
    for (; at < l->n; at++) {
        gw_spec_word o = l->word[at];
        int *flag = gw_spec_is(o, "optional")  ? &w->optional
                    : gw_spec_is(o, "float")   ? &w->keep_float
                    : gw_spec_is(o, "flat")    ? &w->flat
                    : gw_spec_is(o, "wide")    ? &w->wide
                    : gw_spec_is(o, "tall")    ? &w->tall
                    : gw_spec_is(o, "across")  ? &w->across
                    : gw_spec_is(o, "stacked") ? &w->stacked
                    : gw_spec_is(o, "alibi")   ? &w->alibi
                    : gw_spec_is(o, "layer")   ? &w->per_layer
                    : gw_spec_is(o, "first")   ? &w->first
                    : gw_spec_is(o, "single")  ? &w->single
                                               : NULL;
        if (flag != NULL) {
            *flag = 1;
        } else if (gw_spec_is(o, "numbered") && at + 1 < l->n) {
            GW_TRY(gw_spec_expr(r, l->word[++at], 0, 0, &w->numbered));
        } else if (gw_spec_is(o, "sinusoid") && at + 1 < l->n) {
            w->sinusoid = 1;
            GW_TRY(gw_spec_expr(r, l->word[++at], 0, 0, &w->period));
        } else if ((gw_spec_is(o, "else") || gw_spec_is(o, "tied")) && at + 1 < l->n) {
            w->tied = gw_spec_is(o, "tied");
            w->fallback = gw_spec_role(r->out, l->word[++at]);
            if (w->fallback < 0) {
                return gw_spec_fail(r, "weight '%.*s' after %s is not declared", (int)l->word[at].n,
                                    l->word[at].at, w->tied ? "tied" : "else");
            }
        } else {
            return gw_spec_fail(
                r,
                "weight '%s' may end in optional, float, flat, wide, stacked, alibi, layer, "
                "sinusoid N, single, numbered N, tied ROLE or else ROLE, not '%.*s'",
                w->role, o.n < 40 ? (int)o.n : 40, o.at);
        }
    }
    return GW_OK;
}

gw_status gw_spec_read_weight(gw_spec_reader *r, const gw_spec_line *l) {
    gw_spec_weight *w = NULL;
    if (l->n < 5) {
        return gw_spec_fail(r, "weight needs a role, a shape, a GGUF name and a Hugging Face name");
    }
    GW_TRY(declare(r, l->word[1], &w));
    if (r->pass == 1) {
        return GW_OK;
    }
    gw_spec_weight fresh = {.file = r->file, .fallback = -1};
    fresh.hf_file = fresh.gguf_file = r->file;
    memcpy(fresh.role, w->role, sizeof fresh.role);
    *w = fresh;
    GW_TRY(read_shape(r, l->word[2], w));
    if (!gw_spec_is(l->word[3], "-")) {
        GW_TRY(name_source(r, l->word[3], &w->gguf[w->n_gguf++]));
    }
    if (!gw_spec_is(l->word[4], "-")) {
        GW_TRY(name_source(r, l->word[4], &w->hf[w->n_hf++]));
    }
    GW_TRY(read_weight_options(r, l, 5, w));
    return check_marks(r, w);
}

gw_status gw_spec_read_stored(gw_spec_reader *r, const gw_spec_line *l) {
    if (r->pass == 1) {
        return GW_OK;
    }
    int role = l->n >= 4 ? gw_spec_role(r->out, l->word[1]) : -1;
    int hf = l->n >= 4 && gw_spec_is(l->word[2], "hf");
    if (role < 0 || (!hf && !gw_spec_is(l->word[2], "gguf"))) {
        return gw_spec_fail(r, "stored needs a weight that is declared, hf or gguf, and a name");
    }
    gw_spec_weight *w = &r->out->weight[role];
    int *n = hf ? &w->n_hf : &w->n_gguf, *file = hf ? &w->hf_file : &w->gguf_file;
    gw_spec_source *list = hf ? w->hf : w->gguf;
    *n = *file == r->file ? *n : 0; /* a family's own names replace inherited ones */
    *file = r->file;
    if (*n == GW_SPEC_SOURCES) {
        return gw_spec_fail(r, "more than %d names of one weight", GW_SPEC_SOURCES);
    }
    int at = 4;
    GW_TRY(name_source(r, l->word[3], &list[*n]));
    GW_TRY(read_source_options(r, l, &at, &list[*n]));
    if (at != l->n) {
        return gw_spec_fail(r,
                            "'%.*s': expected cut FIRST COUNT OF, transposed, within FIRST OF, "
                            "scales NAME or a transform",
                            l->word[at].n < 40 ? (int)l->word[at].n : 40, l->word[at].at);
    }
    ++*n;
    return check_marks(r, w);
}
