/* core/text/template/objects.c - methods of lists, dicts and the objects of a loop; the functions
 * that every template has.
 */
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"

static int says(const char *name, size_t n, const char *word) {
    return n == strlen(word) && memcmp(name, word, n) == 0;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

static gw_tv d_get(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv *value = gw_tpl_find(r, self.dict, a[0]);
    return value != NULL ? *value : gw_tv_given(a[1]) ? a[1] : gw_tv_none();
}

static gw_tv view(gw_tv self, int part) {
    self.kind = GW_TV_VIEW;
    self.part = (uint8_t)part;
    return self;
}

static gw_tv d_keys(gw_tpl *r, gw_tv self, const gw_tv *a) {
    return (void)r, (void)a, view(self, GW_TPL_KEYS);
}
static gw_tv d_values(gw_tpl *r, gw_tv self, const gw_tv *a) {
    return (void)r, (void)a, view(self, GW_TPL_VALUES);
}
static gw_tv d_items(gw_tpl *r, gw_tv self, const gw_tv *a) {
    return (void)r, (void)a, view(self, GW_TPL_ITEMS);
}

static void put_all(gw_tpl *r, gw_tpl_dict *to, const gw_tpl_dict *from) {
    for (size_t i = 0; i < from->n; i++) {
        gw_tpl_put(r, to, from->at[i].key, from->at[i].value);
    }
}

static gw_tv d_copy(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv copy = gw_tv_dict(r);
    (void)a;
    put_all(r, copy.dict, self.dict);
    return copy;
}

/* Pairs, or a dict, into a dict. */
static void put_pairs(gw_tpl *r, gw_tpl_dict *to, gw_tv from) {
    if (from.kind == GW_TV_DICT) {
        put_all(r, to, from.dict);
        return;
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, from);
    for (size_t i = 0; i < w.n; i++) {
        gw_tpl_walk pair = gw_tpl_walk_over(r, gw_tpl_walk_at(&w, i));
        if (pair.n != 2) {
            gw_tpl_raise(r, GW_E_TYPE,
                         "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                         pair.n);
        }
        gw_tpl_put(r, to, gw_tpl_walk_at(&pair, 0), gw_tpl_walk_at(&pair, 1));
    }
}

static gw_tv d_update(gw_tpl *r, gw_tv self, const gw_tv *a) {
    if (gw_tv_given(a[0])) {
        put_pairs(r, self.dict, a[0]);
    }
    put_all(r, self.dict, a[1].dict);
    return gw_tv_none();
}

static gw_tv d_setdefault(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv *value = gw_tpl_find(r, self.dict, a[0]);
    if (value == NULL) {
        gw_tpl_put(r, self.dict, a[0], gw_tv_given(a[1]) ? a[1] : gw_tv_none());
        value = gw_tpl_find(r, self.dict, a[0]);
    }
    return *value;
}

static gw_tv d_pop(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv *found = gw_tpl_find(r, self.dict, a[0]);
    if (found == NULL && !gw_tv_given(a[1])) {
        gw_tpl_raise(r, GW_E_TYPE, "pop: the dict has no such key");
    }
    gw_tv value = found != NULL ? *found : a[1];
    gw_tpl_remove(r, self.dict, a[0]);
    return value;
}

static gw_tv d_clear(gw_tpl *r, gw_tv self, const gw_tv *a) {
    (void)r;
    (void)a;
    *self.dict = (gw_tpl_dict){.own = 1};
    return gw_tv_none();
}

/* ---- lists ----------------------------------------------------------------------------------- */

static gw_tv l_append(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_add(r, self, a[0]);
    return gw_tv_none();
}

static gw_tv l_extend(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_walk w = gw_tpl_walk_over(r, a[0]);
    for (size_t i = 0; i < w.n; i++) {
        gw_tpl_add(r, self, gw_tpl_walk_at(&w, i));
    }
    return gw_tv_none();
}

/* The list gets memory that is all its own, so that items may move. */
static void settle(gw_tpl *r, gw_tpl_list *list, size_t room) {
    gw_tv own = gw_tv_list(r, room);
    gw_tpl_charge(r, list->n);
    if (list->n > 0) {
        memcpy(own.list->at, list->at, list->n * sizeof(gw_tv));
    }
    own.list->n = list->n;
    *own.list->used = list->n;
    *list = *own.list;
}

static gw_tv l_insert(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_list *list = self.list;
    int64_t n = (int64_t)list->n, at = gw_tpl_int(r, a[0], "insert");
    at = at < 0 ? at + n : at;
    at = at < 0 ? 0 : at > n ? n : at;
    settle(r, list, list->n + 1);
    memmove(list->at + at + 1, list->at + at, (size_t)(n - at) * sizeof(gw_tv));
    list->at[at] = a[1];
    *list->used = ++list->n;
    return gw_tv_none();
}

static gw_tv l_pop(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_list *list = self.list;
    int64_t n = (int64_t)list->n, at = gw_tv_given(a[0]) ? gw_tpl_int(r, a[0], "pop") : -1;
    at = at < 0 ? at + n : at;
    if (at < 0 || at >= n) {
        gw_tpl_raise(r, GW_E_TYPE, n == 0 ? "pop from empty list" : "pop index out of range");
    }
    gw_tv item = list->at[at];
    if (at + 1 < n) {
        settle(r, list, list->n);
        memmove(list->at + at, list->at + at + 1, (size_t)(n - at - 1) * sizeof(gw_tv));
        *list->used = list->n - 1;
    }
    list->n--;
    return item;
}

static int64_t position(gw_tpl *r, gw_tv list, gw_tv item) {
    for (size_t i = 0; i < list.list->n; i++) {
        if (gw_tv_equal(r, list.list->at[i], item)) {
            return (int64_t)i;
        }
    }
    return -1;
}

static gw_tv l_remove(gw_tpl *r, gw_tv self, const gw_tv *a) {
    int64_t at = position(r, self, a[0]);
    if (at < 0) {
        gw_tpl_raise(r, GW_E_TYPE, "list.remove(x): x not in list");
    }
    gw_tv where = gw_tv_int(at);
    l_pop(r, self, &where);
    return gw_tv_none();
}

static gw_tv l_clear(gw_tpl *r, gw_tv self, const gw_tv *a) {
    (void)r;
    (void)a;
    self.list->n = 0;
    return gw_tv_none();
}

static gw_tv l_reverse(gw_tpl *r, gw_tv self, const gw_tv *a) {
    (void)a;
    settle(r, self.list, self.list->n);
    for (size_t i = 0, j = self.list->n; i + 1 < j; i++) {
        gw_tv item = self.list->at[i];
        self.list->at[i] = self.list->at[--j];
        self.list->at[j] = item;
    }
    return gw_tv_none();
}

static gw_tv l_index(gw_tpl *r, gw_tv self, const gw_tv *a) {
    int64_t at = position(r, self, a[0]);
    if (at < 0) {
        gw_tpl_raise(r, GW_E_TYPE, "the value is not in the %s", gw_tv_type(self));
    }
    return gw_tv_int(at);
}

static gw_tv l_count(gw_tpl *r, gw_tv self, const gw_tv *a) {
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++) {
        n += gw_tv_equal(r, self.list->at[i], a[0]);
    }
    return gw_tv_int(n);
}

static gw_tv l_copy(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv copy = gw_tv_list(r, self.list->n);
    (void)a;
    l_extend(r, copy, &self);
    return copy;
}

/* ---- loops, cyclers -------------------------------------------------------------------------- */

static gw_tv o_cycle(gw_tpl *r, gw_tv self, const gw_tv *a) {
    if (a[0].list->n == 0) {
        gw_tpl_raise(r, GW_E_TYPE, "no items for cycling given");
    }
    return a[0].list->at[self.object->loop.at % a[0].list->n];
}

static gw_tv o_changed(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_loop *loop = &self.object->loop;
    int same = gw_tv_given(loop->changed) && gw_tv_equal(r, loop->changed, a[0]);
    loop->changed = a[0];
    return gw_tv_bool(!same);
}

static gw_tv c_next(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_cycler *c = &self.object->cycler;
    (void)r;
    (void)a;
    return c->items.list->at[c->at++ % c->items.list->n];
}

static gw_tv c_reset(gw_tpl *r, gw_tv self, const gw_tv *a) {
    (void)r;
    (void)a;
    self.object->cycler.at = 0;
    return gw_tv_none();
}

/* ---- numbers --------------------------------------------------------------------------------- */

static gw_tv n_is_integer(gw_tpl *r, gw_tv self, const gw_tv *a) {
    (void)a;
    return gw_tv_bool(
        gw_tv_equal(r, self, gw_tpl_arithmetic(r, self, GW_OP_FLOOR, gw_tv_int(1))));
}

/* ---- functions ------------------------------------------------------------------------------- */

static gw_tv f_range(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv range = gw_tv_list(r, 3);
    (void)self;
    int64_t first = gw_tpl_int(r, a[0], "range"), start = 0, stop = first, step = 1;
    if (gw_tv_given(a[1])) {
        start = first;
        stop = gw_tpl_int(r, a[1], "range");
    }
    if (gw_tv_given(a[2])) {
        step = gw_tpl_int(r, a[2], "range");
    }
    if (step == 0) {
        gw_tpl_raise(r, GW_E_TYPE, "range() arg 3 must not be zero");
    }
    gw_tpl_add(r, range, gw_tv_int(start));
    gw_tpl_add(r, range, gw_tv_int(stop));
    gw_tpl_add(r, range, gw_tv_int(step));
    range.kind = GW_TV_RANGE;
    if (gw_tv_length(r, range) > GW_TPL_RANGE_MAX) {
        gw_tpl_raise(r, GW_E_LIMIT, "Range too big: at most %d items are allowed",
                     GW_TPL_RANGE_MAX);
    }
    return range;
}

static gw_tv f_dict(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv dict = gw_tv_dict(r);
    (void)self;
    if (a[0].kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, a[0]);
    }
    if (gw_tv_given(a[0])) {
        put_pairs(r, dict.dict, a[0]);
    }
    put_all(r, dict.dict, a[1].dict);
    return dict;
}

static gw_tv f_fromkeys(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv dict = gw_tv_dict(r);
    gw_tpl_walk w = gw_tpl_walk_over(r, a[0]);
    (void)self;
    for (size_t i = 0; i < w.n; i++) {
        gw_tpl_put(r, dict.dict, gw_tpl_walk_at(&w, i), gw_tv_given(a[1]) ? a[1] : gw_tv_none());
    }
    return dict;
}

static gw_tv f_namespace(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv space = f_dict(r, self, a);
    space.kind = GW_TV_NAMESPACE;
    return space;
}

static gw_tv f_cycler(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_object *object = gw_tpl_alloc(r, sizeof *object);
    (void)self;
    if (a[0].list->n == 0) {
        gw_tpl_raise(r, GW_E_TYPE, "at least one item has to be provided");
    }
    object->cycler.items = a[0];
    return (gw_tv){.kind = GW_TV_CYCLER, .object = object};
}

static gw_tv f_joiner(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tpl_object *object = gw_tpl_alloc(r, sizeof *object);
    (void)self;
    object->cycler.items = gw_tv_given(a[0]) ? a[0] : gw_tv_words(", ");
    return (gw_tv){.kind = GW_TV_JOINER, .object = object};
}

static gw_tv f_raise(gw_tpl *r, gw_tv self, const gw_tv *a) {
    gw_tv text = gw_tv_str(r, a[0]);
    (void)self;
    gw_tpl_raise(r, GW_E_ARGUMENT, "%.*s", (int)(text.n > 1500 ? 1500 : text.n), text.text);
}

static gw_tv f_date(gw_tpl *r, gw_tv self, const gw_tv *a) {
    (void)self;
    return gw_tpl_date(r, a[0]);
}

static gw_tv f_lipsum(gw_tpl *r, gw_tv self, const gw_tv *a) {
    (void)self;
    (void)a;
    gw_tpl_raise(r, GW_E_UNSUPPORTED, "lipsum(): random text is not built");
}

const gw_tpl_builtin *gw_tpl_global(const char *name, size_t n) {
    static const gw_tpl_builtin rows[] = {{"cycler", "*", f_cycler},
                                          {"dict", "pairs? **", f_dict},
                                          {"joiner", "sep?", f_joiner},
                                          {"lipsum", "* **", f_lipsum},
                                          {"namespace", "pairs? **", f_namespace},
                                          {"raise_exception", "message", f_raise},
                                          {"range", "start stop? step?", f_range},
                                          {"strftime_now", "format", f_date},
                                          {NULL, NULL, NULL}};
    return gw_tpl_find_row(rows, name, n);
}

/* ---- which method ---------------------------------------------------------------------------- */

static const gw_tpl_builtin dict_rows[] = {{"copy", "", d_copy},     {"get", "key default?", d_get},
                                           {"items", "", d_items},   {"keys", "", d_keys},
                                           {"values", "", d_values}, {NULL, NULL, NULL}};
static const gw_tpl_builtin dict_changes[] = {{"clear", "", d_clear},
                                              {"pop", "key default?", d_pop},
                                              {"setdefault", "key default?", d_setdefault},
                                              {"update", "other? **", d_update},
                                              {NULL, NULL, NULL}};
static const gw_tpl_builtin list_rows[] = {{"copy", "", l_copy},
                                           {"count", "value", l_count},
                                           {"index", "value", l_index},
                                           {NULL, NULL, NULL}};
static const gw_tpl_builtin list_changes[] = {
    {"append", "item", l_append},    {"clear", "", l_clear}, {"extend", "items", l_extend},
    {"insert", "at item", l_insert}, {"pop", "at?", l_pop},  {"remove", "item", l_remove},
    {"reverse", "", l_reverse},      {NULL, NULL, NULL}};

const gw_tpl_builtin *gw_tpl_other_method(gw_tv of, const char *name, size_t n) {
    static const gw_tpl_builtin loop[] = {
        {"changed", "*", o_changed}, {"cycle", "*", o_cycle}, {NULL, NULL, NULL}};
    static const gw_tpl_builtin cycler[] = {
        {"next", "", c_next}, {"reset", "", c_reset}, {NULL, NULL, NULL}};
    static const gw_tpl_builtin number[] = {{"is_integer", "", n_is_integer}, {NULL, NULL, NULL}};
    static const gw_tpl_builtin fromkeys = {"fromkeys", "keys value?", f_fromkeys};
    const gw_tpl_builtin *row = NULL;
    switch (of.kind) {
    case GW_TV_DICT:
        row = of.dict->own ? gw_tpl_find_row(dict_changes, name, n) : NULL;
        return row != NULL ? row : gw_tpl_find_row(dict_rows, name, n);
    case GW_TV_LIST:
        row = of.list->own ? gw_tpl_find_row(list_changes, name, n) : NULL;
        return row != NULL ? row : gw_tpl_find_row(list_rows, name, n);
    case GW_TV_TUPLE:
        return says(name, n, "copy") ? NULL : gw_tpl_find_row(list_rows, name, n);
    case GW_TV_LOOP:
        return gw_tpl_find_row(loop, name, n);
    case GW_TV_CYCLER:
        return gw_tpl_find_row(cycler, name, n);
    case GW_TV_FLOAT:
        return gw_tpl_find_row(number, name, n);
    case GW_TV_FUNCTION:
        return strcmp(of.function->name, "dict") == 0 && says(name, n, "fromkeys") ? &fromkeys
                                                                                   : NULL;
    default:
        return NULL;
    }
}

/* Lists and dicts of the request stay as they are; what the template made, it may change. (The
 * reference lets it change nothing; published templates do all the same.) */
int gw_tpl_is_unsafe(gw_tv of, const char *name, size_t n) {
    if (of.kind == GW_TV_DICT) {
        return (!of.dict->own && gw_tpl_find_row(dict_changes, name, n) != NULL) ||
               says(name, n, "popitem");
    }
    if (of.kind == GW_TV_LIST) {
        return (!of.list->own && gw_tpl_find_row(list_changes, name, n) != NULL) ||
               says(name, n, "sort");
    }
    return of.kind == GW_TV_TEXT && says(name, n, "format_map");
}
