/* core/text/template/access.c - names, members, items and slices: what Jinja finds where. */
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"
#include "core/text/utf8.h"

/* ---- names ----------------------------------------------------------------------------------- */

gw_tpl_scope *gw_tpl_scope_new(gw_tpl *r, gw_tpl_scope *up) {
    gw_tpl_scope *scope = gw_tpl_alloc(r, sizeof *scope);
    scope->up = up;
    return scope;
}

void gw_tpl_set(gw_tpl *r, gw_tpl_scope *scope, uint32_t name, gw_tv value) {
    for (size_t i = 0; i < scope->n; i++) {
        if (scope->at[i].name == name) {
            scope->at[i].value = value;
            return;
        }
    }
    if (scope->n == scope->room) {
        size_t room = scope->room * 2 + 4;
        gw_tpl_var *at = gw_tpl_array(r, room, sizeof *at);
        if (scope->n > 0) {
            memcpy(at, scope->at, scope->n * sizeof *at);
        }
        scope->at = at;
        scope->room = room;
    }
    scope->at[scope->n++] = (gw_tpl_var){name, value};
}

gw_tv gw_tpl_lookup(gw_tpl *r, uint32_t name) {
    for (const gw_tpl_scope *s = r->scope; s != NULL; s = s->up) {
        for (size_t i = 0; i < s->n; i++) {
            if (s->at[i].name == name) {
                return s->at[i].value;
            }
        }
        gw_tpl_charge(r, s->n / 16);
    }
    return (gw_tv){.kind = GW_TV_ABSENT};
}

/* ---- attributes ------------------------------------------------------------------------------ */

gw_tv gw_tpl_method_of(gw_tpl *r, gw_tv self, const gw_tpl_builtin *row) {
    gw_tpl_object *object = gw_tpl_alloc(r, sizeof *object);
    object->method = (gw_tpl_method){row, self};
    return (gw_tv){.kind = GW_TV_METHOD, .object = object};
}

static int says(const char *name, size_t n, const char *word) {
    return n == strlen(word) && memcmp(name, word, n) == 0;
}

int gw_tpl_loop_fill(gw_tpl *r, gw_tpl_loop *loop, size_t n) {
    const gw_tpl_node *node = loop->node;
    if (node->c == NULL) {
        return n <= loop->items.n;
    }
    gw_tpl_scope *back = r->scope;
    while (loop->passed.list->n < n && loop->taken < loop->items.n) {
        gw_tv item = gw_tpl_walk_at(&loop->items, loop->taken++);
        r->scope = gw_tpl_scope_new(r, loop->around);
        gw_tpl_assign(r, node->a, item);
        gw_tpl_charge(r, 1);
        if (gw_tv_truth(r, gw_tpl_eval(r, node->c))) {
            gw_tpl_add(r, loop->passed, item);
        }
    }
    r->scope = back;
    return n <= loop->passed.list->n;
}

static gw_tv loop_item(gw_tpl *r, gw_tpl_loop *loop, size_t at) {
    if (!gw_tpl_loop_fill(r, loop, at + 1)) {
        return gw_tv_undefined("there is no next item");
    }
    return loop->node->c == NULL ? gw_tpl_walk_at(&loop->items, at) : loop->passed.list->at[at];
}

static gw_tv loop_attribute(gw_tpl *r, gw_tpl_loop *loop, const char *name, size_t n) {
    static const char *const names[] = {"index",    "index0", "revindex", "revindex0",
                                        "length",   "first",  "last",     "previtem",
                                        "nextitem", "depth",  "depth0"};
    size_t which = 0, all;
    while (which < 11 && !says(name, n, names[which])) {
        which++;
    }
    switch (which) {
    case 0:
    case 1:
        return gw_tv_int((int64_t)(loop->at + (which == 0)));
    case 2:
    case 3:
    case 4:
        gw_tpl_loop_fill(r, loop, SIZE_MAX);
        all = loop->node->c == NULL ? loop->items.n : loop->passed.list->n;
        return gw_tv_int((int64_t)(which == 4 ? all : all - loop->at - (which == 3)));
    case 5:
        return gw_tv_bool(loop->at == 0);
    case 6:
        return gw_tv_bool(!gw_tpl_loop_fill(r, loop, loop->at + 2));
    case 7:
        return loop->at == 0 ? gw_tv_undefined("there is no previous item")
                             : loop_item(r, loop, loop->at - 1);
    case 8:
        return loop_item(r, loop, loop->at + 1);
    case 9:
    case 10:
        return gw_tv_int((int64_t)(loop->depth + (which == 9)));
    default:
        return (gw_tv){.kind = GW_TV_ABSENT};
    }
}

static gw_tv macro_attribute(gw_tpl *r, const gw_tpl_macro *macro, const char *name, size_t n) {
    const gw_tpl_node *node = macro->node;
    if (says(name, n, "name")) {
        const gw_tpl_word *word = &r->t->names[node->name];
        return node->what == GW_TPL_MACRO ? gw_tv_text(word->text, word->bytes) : gw_tv_none();
    }
    if (says(name, n, "arguments")) {
        gw_tv all = gw_tv_tuple(r, 0);
        for (const gw_tpl_node *p = node->c; p != NULL; p = p->next) {
            gw_tpl_add(r, all, gw_tv_text(r->t->names[p->name].text, r->t->names[p->name].bytes));
        }
        return all;
    }
    return (gw_tv){.kind = GW_TV_ABSENT};
}

gw_tv gw_tpl_own_attribute(gw_tpl *r, gw_tv of, const char *name, size_t n) {
    const gw_tv absent = {.kind = GW_TV_ABSENT};
    const gw_tpl_builtin *row = NULL;
    gw_tv *value, found = absent;
    switch (of.kind) {
    case GW_TV_TEXT:
        row = gw_tpl_text_method(name, n);
        break;
    case GW_TV_NAMESPACE:
        value = gw_tpl_find_word(r, of.dict, name, n);
        return value != NULL ? *value : absent;
    case GW_TV_LOOP:
        found = loop_attribute(r, &of.object->loop, name, n);
        row = gw_tpl_other_method(of, name, n);
        break;
    case GW_TV_MACRO:
        return macro_attribute(r, &of.object->macro, name, n);
    case GW_TV_CYCLER:
        if (says(name, n, "current")) {
            const gw_tpl_cycler *c = &of.object->cycler;
            return c->items.list->at[c->at % c->items.list->n];
        }
        row = gw_tpl_other_method(of, name, n);
        break;
    case GW_TV_TUPLE:
        if (of.part == GW_TPL_GROUP && (says(name, n, "grouper") || says(name, n, "list"))) {
            return of.list->at[n == 4];
        }
        row = gw_tpl_other_method(of, name, n);
        break;
    default:
        row = gw_tpl_other_method(of, name, n);
        break;
    }
    return gw_tv_given(found) ? found : row != NULL ? gw_tpl_method_of(r, of, row) : absent;
}

static gw_tv no_access(gw_tv of, const char *name, size_t n) {
    gw_tv v = gw_tv_no_member(of, name, n);
    v.part = GW_TPL_NO_ACCESS;
    return v;
}

gw_tv gw_tpl_attribute(gw_tpl *r, gw_tv of, const char *name, size_t n) {
    if (of.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, of);
    }
    if (gw_tpl_is_unsafe(of, name, n)) {
        return no_access(of, name, n);
    }
    gw_tv found = gw_tpl_own_attribute(r, of, name, n);
    if (gw_tv_given(found)) {
        return found;
    }
    if (of.kind == GW_TV_DICT) {
        gw_tv *value = gw_tpl_find_word(r, of.dict, name, n);
        if (value != NULL) {
            return *value;
        }
    }
    if (n > 4 && memcmp(name, "__", 2) == 0 && memcmp(name + n - 2, "__", 2) == 0) {
        return no_access(of, name, n); /* every object of Python has some of these */
    }
    return gw_tv_no_member(of, name, n);
}

/* ---- items ----------------------------------------------------------------------------------- */

size_t gw_tpl_at_char(gw_tpl *r, gw_tv text, size_t chars) {
    size_t at = 0;
    gw_tpl_charge(r, chars / 32);
    for (; chars > 0 && at < text.n; chars--) {
        do {
            at++;
        } while (at < text.n && ((unsigned char)text.text[at] & 0xC0) == 0x80);
    }
    return at;
}

static gw_tv indexed(gw_tpl *r, gw_tv of, int64_t at) {
    int64_t n = (int64_t)gw_tv_length(r, of);
    at += at < 0 ? n : 0;
    if (at < 0 || at >= n) {
        return (gw_tv){.kind = GW_TV_ABSENT};
    }
    if (of.kind == GW_TV_TEXT) {
        size_t begin = gw_tpl_at_char(r, of, (size_t)at);
        size_t size = gw_utf8_next(of.text + begin, of.n - begin, NULL);
        return gw_tv_cut(of, begin, size > 0 ? size : 1);
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, of);
    return gw_tpl_walk_at(&w, (size_t)at);
}

static gw_tv no_element(gw_tpl *r, gw_tv of, gw_tv key) {
    gw_tpl_out *out = gw_tpl_out_open(r);
    gw_tpl_out_words(r, out, gw_tv_type_repr(of));
    gw_tpl_out_words(r, out, " has no element ");
    gw_tpl_out_text(r, out, gw_tv_repr(r, key));
    gw_tv text = gw_tpl_out_close(r, out);
    return (gw_tv){
        .kind = GW_TV_UNDEFINED, .part = GW_TPL_NO_MESSAGE, .text = text.text, .n = text.n};
}

static int can_be_key(gw_tv v) { return v.kind != GW_TV_LIST && v.kind != GW_TV_DICT; }

gw_tv gw_tpl_item(gw_tpl *r, gw_tv of, gw_tv key) {
    gw_tv found = {.kind = GW_TV_ABSENT};
    if (of.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, of);
    }
    int index = key.kind == GW_TV_INT || key.kind == GW_TV_BOOL;
    if (of.kind == GW_TV_DICT && can_be_key(key)) {
        gw_tv *value = gw_tpl_find(r, of.dict, key);
        if (value != NULL) {
            return *value;
        }
    } else if (index && (of.kind == GW_TV_LIST || of.kind == GW_TV_TUPLE || of.kind == GW_TV_TEXT ||
                         of.kind == GW_TV_RANGE)) {
        found = indexed(r, of, key.i);
    }
    if (gw_tv_given(found)) {
        return found;
    }
    if (key.kind == GW_TV_TEXT) {
        if (gw_tpl_is_unsafe(of, key.text, key.n)) {
            return no_access(of, key.text, key.n);
        }
        found = gw_tpl_own_attribute(r, of, key.text, key.n);
        return gw_tv_given(found) ? found : gw_tv_no_member(of, key.text, key.n);
    }
    return no_element(r, of, key);
}

static gw_tv or_preset(gw_tv found, const gw_tv *preset) {
    return found.kind == GW_TV_UNDEFINED && preset != NULL ? *preset : found;
}

gw_tv gw_tpl_path(gw_tpl *r, gw_tv of, gw_tv path, const gw_tv *preset) {
    if (path.kind != GW_TV_TEXT) {
        return or_preset(gw_tpl_item(r, of, path), preset);
    }
    for (size_t at = 0; at <= path.n;) {
        const char *dot = memchr(path.text + at, '.', path.n - at);
        size_t n = dot != NULL ? (size_t)(dot - path.text) - at : path.n - at;
        gw_tv part = gw_tv_cut(path, at, n);
        size_t digits = 0;
        while (digits < n && part.text[digits] >= '0' && part.text[digits] <= '9') {
            digits++;
        }
        if (n > 0 && digits == n && n < 10) {
            part = gw_tpl_integer(r, part.text, n, 10);
        }
        of = or_preset(gw_tpl_item(r, of, part), preset);
        at += n + 1;
    }
    return of;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static int64_t bound(gw_tpl *r, gw_tv v, int64_t preset, int64_t low, int64_t high, int64_t n) {
    if (!gw_tv_given(v) || v.kind == GW_TV_NONE) {
        return preset;
    }
    if (v.kind == GW_TV_BIG) {
        return gw_tpl_big_negative(v) ? low : high;
    }
    if (v.kind != GW_TV_INT && v.kind != GW_TV_BOOL) {
        if (v.kind == GW_TV_UNDEFINED) {
            gw_tpl_raise_undefined(r, v);
        }
        gw_tpl_raise(r, GW_E_TYPE, "slice indices must be integers or None");
    }
    int64_t at = v.i < 0 ? v.i + n : v.i;
    return at < low ? low : at > high ? high : at;
}

static gw_tv slice_text(gw_tpl *r, gw_tv text, int64_t from, int64_t count, int64_t step) {
    if (step == 1) {
        size_t begin = gw_tpl_at_char(r, text, (size_t)from);
        gw_tv rest = gw_tv_cut(text, begin, text.n - begin);
        return gw_tv_cut(rest, 0, gw_tpl_at_char(r, rest, (size_t)count));
    }
    gw_tpl_walk chars = gw_tpl_walk_over(r, text);
    gw_tpl_out *out = gw_tpl_out_open(r);
    for (int64_t i = 0; i < count; i++) {
        gw_tpl_out_text(r, out, gw_tpl_walk_at(&chars, (size_t)(from + i * step)));
    }
    gw_tv cut = gw_tpl_out_close(r, out);
    cut.safe = text.safe;
    return cut;
}

gw_tv gw_tpl_slice(gw_tpl *r, gw_tv of, gw_tv from, gw_tv to, gw_tv by) {
    int64_t step = 1;
    if (of.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, of);
    }
    if (of.kind != GW_TV_TEXT && of.kind != GW_TV_LIST && of.kind != GW_TV_TUPLE &&
        of.kind != GW_TV_RANGE) {
        if (of.kind == GW_TV_DICT) {
            gw_tpl_raise(r, GW_E_TYPE, "unhashable type: 'slice'");
        }
        gw_tpl_raise(r, GW_E_TYPE, "'%s' object is not subscriptable", gw_tv_type(of));
    }
    if (gw_tv_given(by) && by.kind != GW_TV_NONE) {
        step = gw_tpl_int(r, by, "step");
    }
    if (step == 0) {
        gw_tpl_raise(r, GW_E_TYPE, "slice step cannot be zero");
    }
    step = step < -INT32_MAX ? -INT32_MAX : step > INT32_MAX ? INT32_MAX : step;
    int64_t n = (int64_t)gw_tv_length(r, of), low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    int64_t begin = bound(r, from, step > 0 ? 0 : n - 1, low, high, n);
    int64_t end = bound(r, to, step > 0 ? n : -1, low, high, n);
    int64_t span = step > 0 ? end - begin : begin - end;
    int64_t count = span > 0 ? (span - 1) / (step > 0 ? step : -step) + 1 : 0;
    if (of.kind == GW_TV_TEXT) {
        return slice_text(r, of, begin, count, step);
    }
    if (of.kind == GW_TV_RANGE) {
        int64_t first = of.list->at[0].i, size = of.list->at[2].i;
        gw_tv range = gw_tv_list(r, 3);
        gw_tpl_add(r, range, gw_tv_int(first + begin * size));
        gw_tpl_add(r, range, gw_tv_int(first + end * size));
        gw_tpl_add(r, range, gw_tv_int(size * step));
        range.kind = GW_TV_RANGE;
        return range;
    }
    gw_tpl_walk items = gw_tpl_walk_over(r, of);
    gw_tv out = gw_tv_list(r, (size_t)count);
    out.kind = of.kind == GW_TV_TUPLE ? GW_TV_TUPLE : GW_TV_LIST;
    for (int64_t i = 0; i < count; i++) {
        gw_tpl_add(r, out, gw_tpl_walk_at(&items, (size_t)(begin + i * step)));
    }
    return out;
}
