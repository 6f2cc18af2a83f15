/* core/text/template/value.c - lists, dicts, truth, equality, order, length, walking. */
#include "core/text/template/value.h"

#include <math.h>
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"
#include "core/text/utf8.h"

enum { SMALL_DICT = 8 };

gw_tv gw_tv_undefined(const char *message) {
    return (gw_tv){.kind = GW_TV_UNDEFINED,
                   .part = GW_TPL_NO_MESSAGE,
                   .text = message,
                   .n = (uint32_t)strlen(message)};
}

gw_tv gw_tv_no_name(const char *name, size_t n) {
    return (gw_tv){.kind = GW_TV_UNDEFINED, .part = GW_TPL_NO_NAME, .text = name, .n = (uint32_t)n};
}

gw_tv gw_tv_no_member(gw_tv owner, const char *name, size_t n) {
    return (gw_tv){.kind = GW_TV_UNDEFINED,
                   .part = GW_TPL_NO_MEMBER,
                   .text = name,
                   .n = (uint32_t)n,
                   .owner = owner.kind};
}

/* ---- lists ----------------------------------------------------------------------------------- */

gw_tv gw_tv_list(gw_tpl *r, size_t room) {
    gw_tpl_list *list = gw_tpl_alloc(r, sizeof *list);
    list->used = gw_tpl_alloc(r, sizeof *list->used);
    list->at = room > 0 ? gw_tpl_array(r, room, sizeof *list->at) : NULL;
    list->room = room;
    list->own = 1;
    return (gw_tv){.kind = GW_TV_LIST, .list = list};
}

gw_tv gw_tv_tuple(gw_tpl *r, size_t room) {
    gw_tv v = gw_tv_list(r, room);
    v.kind = GW_TV_TUPLE;
    return v;
}

gw_tv gw_tv_pair(gw_tpl *r, gw_tv a, gw_tv b) {
    gw_tv pair = gw_tv_tuple(r, 2);
    gw_tpl_add(r, pair, a);
    gw_tpl_add(r, pair, b);
    return pair;
}

/* A list may share its memory with one that is longer: then it moves first. */
void gw_tpl_add(gw_tpl *r, gw_tv v, gw_tv item) {
    gw_tpl_list *list = v.list;
    gw_tpl_charge(r, 1);
    if (list->n == list->room || *list->used != list->n) {
        size_t room = list->n * 2 + 4;
        gw_tv *at = gw_tpl_array(r, room, sizeof *at);
        if (list->n > 0) {
            memcpy(at, list->at, list->n * sizeof *at);
        }
        list->at = at;
        list->room = room;
        list->used = gw_tpl_alloc(r, sizeof *list->used);
    }
    list->at[list->n++] = item;
    *list->used = list->n;
}

gw_tv gw_tv_iterator(gw_tpl *r, gw_tv list) {
    (void)r;
    list.kind = GW_TV_ITERATOR;
    return list;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

static uint64_t hash_bytes(const char *p, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)p[i]) * 0x100000001B3u;
    }
    return h ^ h >> 29;
}

static uint64_t hash_of(gw_tpl *r, gw_tv key) {
    uint64_t h = 7;
    switch (key.kind) {
    case GW_TV_TEXT:
        gw_tpl_charge(r, key.n / 64);
        return hash_bytes(key.text, key.n);
    case GW_TV_BOOL:
    case GW_TV_INT:
    case GW_TV_FLOAT:
    case GW_TV_BIG:
        return gw_tpl_hash_number(r, key);
    case GW_TV_TUPLE:
        gw_tpl_deeper(r);
        for (size_t i = 0; i < key.list->n; i++) {
            h = (h ^ hash_of(r, key.list->at[i])) * 0x9E3779B97F4A7C15u;
        }
        gw_tpl_back(r);
        return h;
    case GW_TV_LIST:
    case GW_TV_DICT:
        gw_tpl_raise(r, GW_E_TYPE, "unhashable type: '%s'", gw_tv_type(key));
    default:
        return (uint64_t)key.kind * 31;
    }
}

gw_tv gw_tv_dict(gw_tpl *r) {
    gw_tpl_dict *dict = gw_tpl_alloc(r, sizeof *dict);
    dict->own = 1;
    return (gw_tv){.kind = GW_TV_DICT, .dict = dict};
}

static int same_key(gw_tpl *r, gw_tv a, gw_tv b) {
    if (a.kind == GW_TV_TEXT && b.kind == GW_TV_TEXT) {
        return a.n == b.n && memcmp(a.text, b.text, a.n) == 0;
    }
    return gw_tv_equal(r, a, b);
}

gw_tv *gw_tpl_find(gw_tpl *r, const gw_tpl_dict *dict, gw_tv key) {
    if (dict->index == NULL) {
        if (key.kind != GW_TV_TEXT) {
            hash_of(r, key); /* can it be a key? */
        }
        for (size_t i = 0; i < dict->n; i++) {
            if (same_key(r, dict->at[i].key, key)) {
                return &dict->at[i].value;
            }
        }
        return NULL;
    }
    for (size_t at = (size_t)hash_of(r, key);; at++) {
        uint32_t entry = dict->index[at & (dict->slots - 1)];
        if (entry == 0) {
            return NULL;
        }
        if (same_key(r, dict->at[entry - 1].key, key)) {
            return &dict->at[entry - 1].value;
        }
        gw_tpl_charge(r, 1);
    }
}

gw_tv *gw_tpl_find_word(gw_tpl *r, const gw_tpl_dict *dict, const char *key, size_t n) {
    return gw_tpl_find(r, dict, gw_tv_text(key, n));
}

static void index_entry(gw_tpl *r, gw_tpl_dict *dict, size_t entry) {
    size_t at = (size_t)hash_of(r, dict->at[entry].key);
    while (dict->index[at & (dict->slots - 1)] != 0) {
        at++;
    }
    dict->index[at & (dict->slots - 1)] = (uint32_t)entry + 1;
}

static void index_all(gw_tpl *r, gw_tpl_dict *dict) {
    size_t slots = 4 * SMALL_DICT;
    while (slots < 2 * dict->room) {
        slots *= 2;
    }
    dict->index = gw_tpl_array(r, slots, sizeof *dict->index);
    dict->slots = slots;
    for (size_t i = 0; i < dict->n; i++) {
        index_entry(r, dict, i);
    }
}

void gw_tpl_put(gw_tpl *r, gw_tpl_dict *dict, gw_tv key, gw_tv value) {
    gw_tv *known = gw_tpl_find(r, dict, key);
    gw_tpl_charge(r, 1);
    if (known != NULL) {
        *known = value;
        return;
    }
    int grown = dict->n == dict->room;
    if (grown) {
        size_t room = dict->room * 2 + 4;
        gw_tpl_entry *at = gw_tpl_array(r, room, sizeof *at);
        if (dict->n > 0) {
            memcpy(at, dict->at, dict->n * sizeof *at);
        }
        dict->at = at;
        dict->room = room;
    }
    dict->at[dict->n++] = (gw_tpl_entry){key, value};
    if (grown && dict->room > SMALL_DICT) {
        index_all(r, dict);
    } else if (dict->index != NULL) {
        index_entry(r, dict, dict->n - 1);
    }
}

void gw_tpl_remove(gw_tpl *r, gw_tpl_dict *dict, gw_tv key) {
    gw_tv *known = gw_tpl_find(r, dict, key);
    if (known == NULL) {
        return;
    }
    size_t at =
        (size_t)((gw_tpl_entry *)((char *)known - offsetof(gw_tpl_entry, value)) - dict->at);
    gw_tpl_charge(r, dict->n);
    memmove(dict->at + at, dict->at + at + 1, (dict->n - at - 1) * sizeof *dict->at);
    dict->n--;
    if (dict->index != NULL) {
        index_all(r, dict);
    }
}

/* ---- names of types -------------------------------------------------------------------------- */

const char *gw_tv_type(gw_tv v) {
    static const char *const names[] = {[GW_TV_ABSENT] = "nothing",
                                        [GW_TV_UNDEFINED] = "Undefined",
                                        [GW_TV_NONE] = "NoneType",
                                        [GW_TV_BOOL] = "bool",
                                        [GW_TV_INT] = "int",
                                        [GW_TV_BIG] = "int",
                                        [GW_TV_FLOAT] = "float",
                                        [GW_TV_TEXT] = "str",
                                        [GW_TV_LIST] = "list",
                                        [GW_TV_TUPLE] = "tuple",
                                        [GW_TV_DICT] = "dict",
                                        [GW_TV_NAMESPACE] = "Namespace",
                                        [GW_TV_RANGE] = "range",
                                        [GW_TV_VIEW] = "dict_view",
                                        [GW_TV_ITERATOR] = "generator",
                                        [GW_TV_MACRO] = "Macro",
                                        [GW_TV_FUNCTION] = "function",
                                        [GW_TV_METHOD] = "function",
                                        [GW_TV_LOOP] = "LoopContext",
                                        [GW_TV_CYCLER] = "Cycler",
                                        [GW_TV_JOINER] = "Joiner"};
    return v.kind == GW_TV_TEXT && v.safe ? "Markup" : names[v.kind];
}

const char *gw_tv_type_repr(gw_tv v) {
    static const char *const names[] = {[GW_TV_ABSENT] = "nothing",
                                        [GW_TV_UNDEFINED] = "jinja2.runtime.Undefined object",
                                        [GW_TV_NONE] = "None",
                                        [GW_TV_BOOL] = "bool object",
                                        [GW_TV_INT] = "int object",
                                        [GW_TV_BIG] = "int object",
                                        [GW_TV_FLOAT] = "float object",
                                        [GW_TV_TEXT] = "str object",
                                        [GW_TV_LIST] = "list object",
                                        [GW_TV_TUPLE] = "tuple object",
                                        [GW_TV_DICT] = "dict object",
                                        [GW_TV_NAMESPACE] = "jinja2.utils.Namespace object",
                                        [GW_TV_RANGE] = "range object",
                                        [GW_TV_VIEW] = "dict view object",
                                        [GW_TV_ITERATOR] = "generator object",
                                        [GW_TV_MACRO] = "jinja2.runtime.Macro object",
                                        [GW_TV_FUNCTION] = "function object",
                                        [GW_TV_METHOD] = "function object",
                                        [GW_TV_LOOP] = "jinja2.runtime.LoopContext object",
                                        [GW_TV_CYCLER] = "jinja2.utils.Cycler object",
                                        [GW_TV_JOINER] = "jinja2.utils.Joiner object"};
    return names[v.kind];
}

/* ---- numbers, truth, equality ---------------------------------------------------------------- */

int gw_tv_is_number(gw_tv v) {
    return v.kind == GW_TV_BOOL || v.kind == GW_TV_INT || v.kind == GW_TV_BIG ||
           v.kind == GW_TV_FLOAT;
}

double gw_tv_real(gw_tpl *r, gw_tv v) {
    double f = v.kind == GW_TV_FLOAT ? v.f : v.kind == GW_TV_BIG ? gw_tpl_big_real(v) : (double)v.i;
    if (v.kind == GW_TV_BIG && isinf(f)) {
        gw_tpl_raise(r, GW_E_LIMIT, "int too large to convert to float");
    }
    return f;
}

int gw_tv_truth(gw_tpl *r, gw_tv v) {
    (void)r;
    switch (v.kind) {
    case GW_TV_ABSENT:
    case GW_TV_UNDEFINED:
    case GW_TV_NONE:
        return 0;
    case GW_TV_BOOL:
    case GW_TV_INT:
        return v.i != 0;
    case GW_TV_FLOAT:
        return v.f != 0;
    case GW_TV_TEXT:
        return v.n > 0;
    case GW_TV_LIST:
    case GW_TV_TUPLE:
    case GW_TV_RANGE:
        return gw_tv_length(r, v) > 0;
    case GW_TV_DICT:
    case GW_TV_VIEW:
        return v.dict->n > 0;
    default:
        return 1;
    }
}

static int equal_lists(gw_tpl *r, const gw_tpl_list *a, const gw_tpl_list *b) {
    if (a->n != b->n) {
        return 0;
    }
    for (size_t i = 0; i < a->n; i++) {
        if (!gw_tv_equal(r, a->at[i], b->at[i])) {
            return 0;
        }
    }
    return 1;
}

static int equal_dicts(gw_tpl *r, const gw_tpl_dict *a, const gw_tpl_dict *b) {
    if (a->n != b->n) {
        return 0;
    }
    for (size_t i = 0; i < a->n; i++) {
        const gw_tv *other = gw_tpl_find(r, b, a->at[i].key);
        if (other == NULL || !gw_tv_equal(r, a->at[i].value, *other)) {
            return 0;
        }
    }
    return 1;
}

int gw_tv_equal(gw_tpl *r, gw_tv a, gw_tv b) {
    int same = 0;
    gw_tpl_charge(r, 1);
    if (gw_tv_is_number(a) && gw_tv_is_number(b)) {
        return gw_tpl_compare_numbers(r, a, b) == 0;
    }
    if (a.kind != b.kind) {
        return 0;
    }
    gw_tpl_deeper(r);
    switch (a.kind) {
    case GW_TV_TEXT:
        gw_tpl_charge(r, a.n == b.n ? a.n / 64 : 0);
        same = a.n == b.n && memcmp(a.text, b.text, a.n) == 0;
        break;
    case GW_TV_LIST:
    case GW_TV_TUPLE:
        same = a.list == b.list || equal_lists(r, a.list, b.list);
        break;
    case GW_TV_RANGE:
        same = equal_lists(r, a.list, b.list);
        break;
    case GW_TV_DICT:
        same = a.dict == b.dict || equal_dicts(r, a.dict, b.dict);
        break;
    case GW_TV_UNDEFINED:
    case GW_TV_NONE:
        same = 1;
        break;
    default:
        same = a.object == b.object;
        break;
    }
    gw_tpl_back(r);
    return same;
}

int gw_tv_less(gw_tpl *r, gw_tv a, gw_tv b, const char *op) {
    gw_tpl_charge(r, 1);
    if (gw_tv_is_number(a) && gw_tv_is_number(b)) {
        return gw_tpl_compare_numbers(r, a, b) == -1;
    }
    if (a.kind == GW_TV_UNDEFINED || b.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, a.kind == GW_TV_UNDEFINED ? a : b);
    }
    if (a.kind == GW_TV_TEXT && b.kind == GW_TV_TEXT) {
        size_t n = a.n < b.n ? a.n : b.n;
        int order = memcmp(a.text, b.text, n); /* of UTF-8: the order of code points */
        gw_tpl_charge(r, n / 64);
        return order != 0 ? order < 0 : a.n < b.n;
    }
    if (a.kind == b.kind && (a.kind == GW_TV_LIST || a.kind == GW_TV_TUPLE)) {
        int less = -1;
        gw_tpl_deeper(r);
        for (size_t i = 0; less < 0 && i < a.list->n && i < b.list->n; i++) {
            if (!gw_tv_equal(r, a.list->at[i], b.list->at[i])) {
                less = gw_tv_less(r, a.list->at[i], b.list->at[i], op);
            }
        }
        gw_tpl_back(r);
        return less >= 0 ? less : a.list->n < b.list->n;
    }
    if (op[0] == '>') { /* the operands were exchanged */
        gw_tv other = a;
        a = b;
        b = other;
    }
    gw_tpl_raise(r, GW_E_TYPE, "'%s' not supported between instances of '%s' and '%s'", op,
                 gw_tv_type(a), gw_tv_type(b));
}

/* ---- length and walking ---------------------------------------------------------------------- */

size_t gw_tv_chars(gw_tpl *r, gw_tv text) {
    gw_tpl_charge(r, text.n / 32);
    return gw_utf8_count(text.text, text.n);
}

/* Items of range(start, stop, step), which a RANGE keeps as a list of the three. */
static size_t range_length(const gw_tpl_list *range) {
    int64_t start = range->at[0].i, stop = range->at[1].i, step = range->at[2].i;
    if (step > 0 ? start >= stop : start <= stop) {
        return 0;
    }
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (size_t)((span - 1) / size + 1);
}

size_t gw_tv_length(gw_tpl *r, gw_tv v) {
    switch (v.kind) {
    case GW_TV_TEXT:
        return gw_tv_chars(r, v);
    case GW_TV_LIST:
    case GW_TV_TUPLE:
        return v.list->n;
    case GW_TV_RANGE:
        return range_length(v.list);
    case GW_TV_DICT:
    case GW_TV_VIEW:
        return v.dict->n;
    case GW_TV_UNDEFINED:
        return 0;
    default:
        gw_tpl_raise(r, GW_E_TYPE, "object of type '%s' has no len()", gw_tv_type(v));
    }
}

int gw_tv_iterable(gw_tv v) {
    switch (v.kind) {
    case GW_TV_UNDEFINED:
    case GW_TV_TEXT:
    case GW_TV_LIST:
    case GW_TV_TUPLE:
    case GW_TV_DICT:
    case GW_TV_RANGE:
    case GW_TV_VIEW:
    case GW_TV_ITERATOR:
    case GW_TV_LOOP:
        return 1;
    default:
        return 0;
    }
}

static gw_tpl_walk walk_list(const gw_tpl_list *list, size_t from) {
    static const gw_tv nothing = {.kind = GW_TV_ABSENT};
    return (gw_tpl_walk){.at = list->n > from ? list->at + from : &nothing, .n = list->n - from};
}

static gw_tpl_walk walk_text(gw_tpl *r, gw_tv text) {
    gw_tv list = gw_tv_list(r, gw_tv_chars(r, text));
    for (size_t at = 0; at < text.n;) {
        size_t n = gw_utf8_next(text.text + at, text.n - at, NULL);
        n = n > 0 ? n : 1;
        gw_tv c = gw_tv_cut(text, at, n);
        c.safe = 0; /* the characters of a safe text are plain */
        gw_tpl_add(r, list, c);
        at += n;
    }
    return walk_list(list.list, 0);
}

static gw_tpl_walk walk_dict(gw_tpl *r, const gw_tpl_dict *dict, int part) {
    gw_tv list = gw_tv_list(r, dict->n);
    for (size_t i = 0; i < dict->n; i++) {
        const gw_tpl_entry *e = &dict->at[i];
        gw_tpl_add(r, list,
                   part == GW_TPL_KEYS     ? e->key
                   : part == GW_TPL_VALUES ? e->value
                                           : gw_tv_pair(r, e->key, e->value));
    }
    return walk_list(list.list, 0);
}

gw_tpl_walk gw_tpl_walk_over(gw_tpl *r, gw_tv v) {
    static const gw_tv nothing = {.kind = GW_TV_ABSENT};
    switch (v.kind) {
    case GW_TV_UNDEFINED:
        if (v.part == GW_TPL_NO_ACCESS) {
            gw_tpl_raise_undefined(r, v);
        }
        return (gw_tpl_walk){.at = &nothing};
    case GW_TV_TEXT:
        return walk_text(r, v);
    case GW_TV_LIST:
    case GW_TV_TUPLE:
        return walk_list(v.list, 0);
    case GW_TV_DICT:
        return walk_dict(r, v.dict, GW_TPL_KEYS);
    case GW_TV_VIEW:
        return walk_dict(r, v.dict, v.part);
    case GW_TV_RANGE:
        return (gw_tpl_walk){
            .n = range_length(v.list), .start = v.list->at[0].i, .step = v.list->at[2].i};
    case GW_TV_ITERATOR: {
        gw_tpl_walk w = walk_list(v.list, 0);
        v.list->n = 0; /* once */
        return w;
    }
    default:
        gw_tpl_raise(r, GW_E_TYPE, "'%s' object is not iterable", gw_tv_type(v));
    }
}
