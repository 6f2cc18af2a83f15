/* core/text/template/filters_list.c - the filters over lists and dicts. One row each. */
#include <string.h>

#include "core/text/template/render.h"

static const gw_tv absent = {.kind = GW_TV_ABSENT};

static int none(gw_tv v) { return !gw_tv_given(v) || v.kind == GW_TV_NONE; }

/* ---- keys of items --------------------------------------------------------------------------- */

/* By attribute, where one is given; texts in lower case unless their case counts. */
static gw_tv key_of(gw_tpl *r, gw_tv item, gw_tv attribute, int case_counts) {
    gw_tv key = none(attribute) ? item : gw_tpl_path(r, item, attribute, NULL);
    return key.kind == GW_TV_TEXT && !case_counts ? gw_tpl_case(r, key, GW_TPL_LOWER) : key;
}

/* "a,b": by a, then by b. */
static gw_tv keys_of(gw_tpl *r, gw_tv item, gw_tv attribute, int case_counts) {
    if (attribute.kind != GW_TV_TEXT || memchr(attribute.text, ',', attribute.n) == NULL) {
        return key_of(r, item, attribute, case_counts);
    }
    gw_tv keys = gw_tv_list(r, 2);
    for (size_t at = 0; at <= attribute.n;) {
        const char *comma = memchr(attribute.text + at, ',', attribute.n - at);
        size_t n = comma != NULL ? (size_t)(comma - attribute.text) - at : attribute.n - at;
        gw_tpl_add(r, keys, key_of(r, item, gw_tv_cut(attribute, at, n), case_counts));
        at += n + 1;
    }
    return keys;
}

static gw_tv copy_items(gw_tpl *r, gw_tv v) {
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    gw_tv list = gw_tv_list(r, w.n);
    for (size_t i = 0; i < w.n; i++) {
        gw_tpl_add(r, list, gw_tpl_walk_at(&w, i));
    }
    return list;
}

static gw_tv sorted(gw_tpl *r, gw_tv v, gw_tv attribute, int case_counts, int reverse) {
    gw_tv list = copy_items(r, v), keys = gw_tv_list(r, list.list->n);
    for (size_t i = 0; i < list.list->n; i++) {
        gw_tpl_add(r, keys, keys_of(r, list.list->at[i], attribute, case_counts));
    }
    gw_tpl_sort(r, list.list->at, keys.list->at, list.list->n, reverse);
    return list;
}

/* a: reverse, case_sensitive, attribute */
static gw_tv f_sort(gw_tpl *r, gw_tv v, const gw_tv *a) {
    int reverse = gw_tv_given(a[0]) && gw_tpl_int(r, a[0], "reverse") != 0;
    return sorted(r, v, a[2], gw_tv_truth(r, a[1]), reverse);
}

/* a: case_sensitive, by, reverse */
static gw_tv f_dictsort(gw_tpl *r, gw_tv v, const gw_tv *a) {
    int by_value = gw_tv_same_text(a[1], "value");
    if (gw_tv_given(a[1]) && !by_value && !gw_tv_same_text(a[1], "key")) {
        gw_tpl_raise(r, GW_E_TYPE, "You can only sort by either \"key\" or \"value\"");
    }
    if (v.kind != GW_TV_DICT) {
        gw_tpl_raise(r, GW_E_TYPE, "dictsort: a mapping is needed, not %s", gw_tv_type(v));
    }
    v.kind = GW_TV_VIEW;
    v.part = GW_TPL_ITEMS;
    return sorted(r, v, gw_tv_int(by_value), gw_tv_truth(r, a[0]), gw_tv_truth(r, a[2]));
}

/* a: case_sensitive, attribute */
static gw_tv f_unique(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    gw_tv list = gw_tv_list(r, 0), seen = gw_tv_dict(r);
    for (size_t i = 0; i < w.n; i++) {
        gw_tv item = gw_tpl_walk_at(&w, i), key = key_of(r, item, a[1], gw_tv_truth(r, a[0]));
        if (gw_tpl_find(r, seen.dict, key) == NULL) {
            gw_tpl_put(r, seen.dict, key, gw_tv_none());
            gw_tpl_add(r, list, item);
        }
    }
    return gw_tv_iterator(r, list);
}

static gw_tv extreme(gw_tpl *r, gw_tv v, const gw_tv *a, int largest) {
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    gw_tv best = gw_tv_undefined("No aggregated item, sequence was empty."), best_key = absent;
    for (size_t i = 0; i < w.n; i++) {
        gw_tv item = gw_tpl_walk_at(&w, i), key = key_of(r, item, a[1], gw_tv_truth(r, a[0]));
        if (i == 0 ||
            (largest ? gw_tv_less(r, best_key, key, ">") : gw_tv_less(r, key, best_key, "<"))) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

static gw_tv f_min(gw_tpl *r, gw_tv v, const gw_tv *a) { return extreme(r, v, a, 0); }
static gw_tv f_max(gw_tpl *r, gw_tv v, const gw_tv *a) { return extreme(r, v, a, 1); }

/* a: attribute, start */
static gw_tv f_sum(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    gw_tv sum = gw_tv_given(a[1]) ? a[1] : gw_tv_int(0);
    if (sum.kind == GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    for (size_t i = 0; i < w.n; i++) {
        gw_tv item = gw_tpl_walk_at(&w, i);
        sum = gw_tpl_binary(r, sum, '+', none(a[0]) ? item : gw_tpl_path(r, item, a[0], NULL));
    }
    return sum;
}

/* a: attribute, default, case_sensitive */
static gw_tv f_groupby(gw_tpl *r, gw_tv v, const gw_tv *a) {
    int case_counts = gw_tv_truth(r, a[2]);
    gw_tv items = copy_items(r, v), keys = gw_tv_list(r, items.list->n);
    for (size_t i = 0; i < items.list->n; i++) {
        gw_tv key = gw_tpl_path(r, items.list->at[i], a[0], none(a[1]) ? NULL : &a[1]);
        gw_tpl_add(r, keys, gw_tv_pair(r, key, items.list->at[i]));
    }
    gw_tv folded = gw_tv_list(r, items.list->n), groups = gw_tv_list(r, 0);
    for (size_t i = 0; i < keys.list->n; i++) {
        gw_tpl_add(r, folded, key_of(r, keys.list->at[i].list->at[0], absent, case_counts));
    }
    gw_tpl_sort(r, keys.list->at, folded.list->at, keys.list->n, 0);
    gw_tv last = absent, list = absent;
    for (size_t i = 0; i < keys.list->n; i++) {
        gw_tv key = keys.list->at[i].list->at[0], fold = key_of(r, key, absent, case_counts);
        if (!gw_tv_given(last) || !gw_tv_equal(r, last, fold)) {
            list = gw_tv_list(r, 0);
            gw_tv group = gw_tv_pair(r, key, list);
            group.part = GW_TPL_GROUP;
            gw_tpl_add(r, groups, group);
            last = fold;
        }
        gw_tpl_add(r, list, keys.list->at[i].list->at[1]);
    }
    return groups;
}

/* ---- one of them ----------------------------------------------------------------------------- */

static gw_tv f_first(gw_tpl *r, gw_tv v, const gw_tv *a) {
    (void)a;
    if (v.kind == GW_TV_ITERATOR && v.list->n > 0) { /* only the first is taken */
        gw_tv first = v.list->at[0];
        v.list->at++;
        v.list->n--;
        return first;
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    return w.n > 0 ? gw_tpl_walk_at(&w, 0) : gw_tv_undefined("No first item, sequence was empty.");
}

static gw_tv f_last(gw_tpl *r, gw_tv v, const gw_tv *a) {
    (void)a;
    if (v.kind == GW_TV_ITERATOR) {
        gw_tpl_raise(r, GW_E_TYPE, "'generator' object is not reversible");
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    if (w.n == 0) {
        return gw_tv_undefined("No last item, sequence was empty.");
    }
    gw_tv last = gw_tpl_walk_at(&w, w.n - 1);
    last.safe = v.kind == GW_TV_TEXT ? v.safe : last.safe;
    return last;
}

/* Drawn from the rendering's time and from how far it has come: the same each time when --date
 * fixes the time. */
static gw_tv f_random(gw_tpl *r, gw_tv v, const gw_tv *a) {
    const gw_template_time *t = &r->options->time;
    const int fields[] = {t->year, t->month, t->day, t->hour, t->minute, t->second};
    uint64_t x = r->steps;
    (void)a;
    if (v.kind != GW_TV_TEXT && v.kind != GW_TV_LIST && v.kind != GW_TV_TUPLE &&
        v.kind != GW_TV_RANGE && v.kind != GW_TV_UNDEFINED) {
        gw_tpl_raise(r, GW_E_TYPE, "random: a sequence is needed, not %s", gw_tv_type(v));
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    if (w.n == 0) {
        return gw_tv_undefined("No random item, sequence was empty.");
    }
    for (size_t i = 0; i < 6; i++) { /* splitmix64 */
        x = (x + (uint64_t)fields[i]) * 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        x ^= x >> 31;
    }
    return gw_tpl_walk_at(&w, (size_t)(x % w.n));
}

static gw_tv f_length(gw_tpl *r, gw_tv v, const gw_tv *a) {
    (void)a;
    return gw_tv_int((int64_t)gw_tv_length(r, v));
}

/* ---- all of them ----------------------------------------------------------------------------- */

static gw_tv f_list(gw_tpl *r, gw_tv v, const gw_tv *a) { return (void)a, copy_items(r, v); }

/* a: d, attribute */
static gw_tv f_join(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv between = gw_tv_given(a[0]) ? a[0] : gw_tv_words(""), items = v;
    if (!none(a[1])) {
        gw_tpl_walk w = gw_tpl_walk_over(r, v);
        items = gw_tv_list(r, w.n);
        for (size_t i = 0; i < w.n; i++) {
            gw_tpl_add(r, items, gw_tpl_path(r, gw_tpl_walk_at(&w, i), a[1], NULL));
        }
    }
    between = r->escapes ? gw_tpl_escape(r, between) : gw_tv_str(r, between);
    return gw_tpl_join(r, between, items, 0);
}

static gw_tv f_reverse(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tv step = gw_tv_int(-1);
    (void)a;
    if (v.kind == GW_TV_TEXT) {
        return gw_tpl_slice(r, v, absent, absent, step);
    }
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise(r, GW_E_TYPE, "argument must be iterable");
    }
    return gw_tv_iterator(r, gw_tpl_slice(r, copy_items(r, v), absent, absent, step));
}

static gw_tv f_items(gw_tpl *r, gw_tv v, const gw_tv *a) {
    (void)a;
    if (v.kind == GW_TV_UNDEFINED) {
        return gw_tv_iterator(r, gw_tv_list(r, 0));
    }
    if (v.kind != GW_TV_DICT) {
        gw_tpl_raise(r, GW_E_TYPE, "Can only get item pairs from a mapping.");
    }
    v.kind = GW_TV_VIEW;
    v.part = GW_TPL_ITEMS;
    return gw_tv_iterator(r, copy_items(r, v));
}

/* a: linecount, fill_with */
static gw_tv f_batch(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    int64_t size = gw_tpl_int(r, a[0], "batch");
    gw_tv rows = gw_tv_list(r, 0), row = absent;
    if (size < 1) {
        gw_tpl_raise(r, GW_E_TYPE, "batch: at least 1 is needed");
    }
    for (size_t i = 0; i < w.n; i++) {
        if (i % (size_t)size == 0) {
            row = gw_tv_list(r, 0);
            gw_tpl_add(r, rows, row);
        }
        gw_tpl_add(r, row, gw_tpl_walk_at(&w, i));
    }
    while (gw_tv_given(row) && !none(a[1]) && row.list->n < (size_t)size) {
        gw_tpl_add(r, row, a[1]);
    }
    return gw_tv_iterator(r, rows);
}

/* a: slices, fill_with */
static gw_tv f_slice(gw_tpl *r, gw_tv v, const gw_tv *a) {
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    int64_t count = gw_tpl_int(r, a[0], "slice");
    gw_tv columns = gw_tv_list(r, 0);
    if (count < 1) {
        gw_tpl_raise(r, GW_E_TYPE, "slice: at least 1 is needed");
    }
    size_t each = w.n / (size_t)count, longer = w.n % (size_t)count, at = 0;
    for (size_t c = 0; c < (size_t)count; c++) {
        gw_tv column = gw_tv_list(r, 0);
        for (size_t i = 0; i < each + (c < longer); i++) {
            gw_tpl_add(r, column, gw_tpl_walk_at(&w, at++));
        }
        if (!none(a[1]) && c >= longer) {
            gw_tpl_add(r, column, a[1]);
        }
        gw_tpl_add(r, columns, column);
    }
    return gw_tv_iterator(r, columns);
}

/* ---- some of them ---------------------------------------------------------------------------- */

static const gw_tpl_builtin *row_named(gw_tpl *r, gw_tv name, int test) {
    const gw_tpl_builtin *row = NULL;
    if (name.kind == GW_TV_TEXT) {
        row = test ? gw_tpl_test(name.text, name.n) : gw_tpl_filter(name.text, name.n);
    }
    if (row == NULL) {
        gw_tv shown = gw_tv_repr(r, name);
        gw_tpl_raise(r, GW_E_TYPE, "No %s named %.*s.", test ? "test" : "filter",
                     (int)(shown.n > 80 ? 80 : shown.n), shown.text);
    }
    return row;
}

/* What of positional and named arguments comes behind the first `skip`. */
static gw_tpl_args rest_of(gw_tpl *r, const gw_tv *a, size_t skip) {
    gw_tpl_named *named = gw_tpl_array(r, a[1].dict->n + 1, sizeof *named);
    for (size_t i = 0; i < a[1].dict->n; i++) {
        const gw_tpl_entry *e = &a[1].dict->at[i];
        named[i] = (gw_tpl_named){e->key.text, e->key.n, e->value};
    }
    size_t n = a[0].list->n;
    return (gw_tpl_args){.at = n > skip ? a[0].list->at + skip : NULL,
                         .n = n > skip ? n - skip : 0,
                         .named = named,
                         .n_named = a[1].dict->n};
}

static gw_tv f_map(gw_tpl *r, gw_tv v, const gw_tv *a) {
    if (!gw_tv_truth(r, v)) { /* of none as of an empty list */
        return gw_tv_iterator(r, gw_tv_list(r, 0));
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    gw_tv list = gw_tv_list(r, w.n);
    gw_tv *attribute = gw_tpl_find_word(r, a[1].dict, "attribute", 9);
    gw_tv *preset = gw_tpl_find_word(r, a[1].dict, "default", 7);
    preset = preset != NULL && preset->kind != GW_TV_NONE ? preset : NULL;
    if (a[0].list->n == 0 && attribute == NULL) {
        gw_tpl_raise(r, GW_E_TYPE, "map requires a filter argument");
    }
    const gw_tpl_builtin *row = a[0].list->n > 0 ? row_named(r, a[0].list->at[0], 0) : NULL;
    gw_tpl_args args = rest_of(r, a, 1);
    for (size_t i = 0; i < w.n; i++) {
        gw_tv item = gw_tpl_walk_at(&w, i);
        if (row != NULL) {
            gw_tpl_add(r, list, gw_tpl_call_row(r, row, item, &args));
            continue;
        }
        gw_tpl_add(r, list, gw_tpl_path(r, item, *attribute, preset));
    }
    return gw_tv_iterator(r, list);
}

/* Items whose test comes out as wanted; by_attribute: the first argument names what is tested. */
static gw_tv choose(gw_tpl *r, gw_tv v, const gw_tv *a, int wanted, int by_attribute) {
    if (!gw_tv_truth(r, v)) {
        return gw_tv_iterator(r, gw_tv_list(r, 0));
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, v);
    size_t n = a[0].list->n, first = by_attribute ? 1 : 0;
    gw_tv list = gw_tv_list(r, 0);
    if (n < first) {
        gw_tpl_raise(r, GW_E_TYPE, "Missing parameter for attribute name");
    }
    const gw_tpl_builtin *row = n > first ? row_named(r, a[0].list->at[first], 1) : NULL;
    gw_tpl_args args = rest_of(r, a, first + 1);
    for (size_t i = 0; i < w.n; i++) {
        gw_tv item = gw_tpl_walk_at(&w, i);
        gw_tv tested = by_attribute ? gw_tpl_path(r, item, a[0].list->at[0], NULL) : item;
        int passes = gw_tv_truth(r, row != NULL ? gw_tpl_call_row(r, row, tested, &args) : tested);
        if (passes == wanted) {
            gw_tpl_add(r, list, item);
        }
        gw_tpl_charge(r, 1);
    }
    return gw_tv_iterator(r, list);
}

static gw_tv f_select(gw_tpl *r, gw_tv v, const gw_tv *a) { return choose(r, v, a, 1, 0); }
static gw_tv f_reject(gw_tpl *r, gw_tv v, const gw_tv *a) { return choose(r, v, a, 0, 0); }
static gw_tv f_selectattr(gw_tpl *r, gw_tv v, const gw_tv *a) { return choose(r, v, a, 1, 1); }
static gw_tv f_rejectattr(gw_tpl *r, gw_tv v, const gw_tv *a) { return choose(r, v, a, 0, 1); }

const gw_tpl_builtin gw_tpl_filters_list[] = {
    {"batch", "linecount fill_with?", f_batch},
    {"count", "", f_length},
    {"dictsort", "case_sensitive? by? reverse?", f_dictsort},
    {"first", "", f_first},
    {"groupby", "attribute default? case_sensitive?", f_groupby},
    {"items", "", f_items},
    {"join", "d? attribute?", f_join},
    {"last", "", f_last},
    {"length", "", f_length},
    {"list", "", f_list},
    {"map", "* **", f_map},
    {"max", "case_sensitive? attribute?", f_max},
    {"min", "case_sensitive? attribute?", f_min},
    {"random", "", f_random},
    {"reject", "* **", f_reject},
    {"rejectattr", "* **", f_rejectattr},
    {"reverse", "", f_reverse},
    {"select", "* **", f_select},
    {"selectattr", "* **", f_selectattr},
    {"slice", "slices fill_with?", f_slice},
    {"sort", "reverse? case_sensitive? attribute?", f_sort},
    {"sum", "attribute? start?", f_sum},
    {"unique", "case_sensitive? attribute?", f_unique},
    {NULL, NULL, NULL}};
