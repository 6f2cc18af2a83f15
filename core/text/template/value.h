/* core/text/template/value.h - values of a rendering, and the rendering that owns them.
 *
 * A value is a small struct, passed by value; what it points to lives in the rendering's memory and
 * is released with it. Errors leave by gw_tpl_raise, which goes back to the one entry of the
 * rendering (longjmp): any operation on values can fail, and nothing else is held across one.
 */
#ifndef GW_TEXT_TEMPLATE_VALUE_H
#define GW_TEXT_TEMPLATE_VALUE_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "core/text/template/template.h"

typedef enum gw_tv_kind {
    GW_TV_ABSENT, /* an argument that was not given */
    GW_TV_UNDEFINED,
    GW_TV_NONE,
    GW_TV_BOOL,
    GW_TV_INT,
    GW_TV_BIG, /* an integer beyond 64 bits */
    GW_TV_FLOAT,
    GW_TV_TEXT,
    GW_TV_LIST,
    GW_TV_TUPLE,
    GW_TV_DICT,
    GW_TV_NAMESPACE,
    GW_TV_RANGE,
    GW_TV_VIEW,     /* of a dict: keys(), values(), items() */
    GW_TV_ITERATOR, /* what a lazy filter gives: can be walked once, has no length */
    GW_TV_MACRO,
    GW_TV_FUNCTION,
    GW_TV_METHOD,
    GW_TV_LOOP,
    GW_TV_CYCLER,
    GW_TV_JOINER
} gw_tv_kind;

typedef struct gw_tpl gw_tpl;
typedef struct gw_tv gw_tv;
typedef struct gw_tpl_list gw_tpl_list;
typedef struct gw_tpl_dict gw_tpl_dict;
typedef struct gw_tpl_big gw_tpl_big;       /* number.h */
typedef struct gw_tpl_object gw_tpl_object; /* one struct per kind: render.h */
typedef struct gw_tpl_builtin gw_tpl_builtin;

enum { /* gw_tv.part */
       /* UNDEFINED: what is missing. `text` is a name, or the whole message. */
       GW_TPL_NO_NAME,
       GW_TPL_NO_MEMBER, /* of a value of kind `owner` */
       GW_TPL_NO_MESSAGE,
       GW_TPL_NO_ACCESS, /* it exists, and templates may not touch it */
       /* VIEW */
       GW_TPL_KEYS = 0,
       GW_TPL_VALUES,
       GW_TPL_ITEMS,
       /* TUPLE */
       GW_TPL_GROUP = 1 /* of groupby: has .grouper and .list */
};

struct gw_tv {
    uint8_t kind;
    uint8_t safe;      /* TEXT: needs no escape (|safe)                       */
    uint8_t all_typed; /* TEXT without `typed`: all of it is                  */
    uint8_t part;
    uint32_t n; /* TEXT and UNDEFINED: bytes                                  */
    union {
        int64_t i; /* BOOL, INT */
        double f;
        const char *text; /* UTF-8, not terminated */
        gw_tpl_list *list;
        gw_tpl_dict *dict; /* DICT, NAMESPACE, VIEW */
        const gw_tpl_big *big;
        gw_tpl_object *object;
        const gw_tpl_builtin *function;
    };
    union {
        const uint8_t *typed; /* TEXT [n]: 1 for bytes that came out of the JSON; NULL: alike */
        uintptr_t owner;      /* UNDEFINED */
    };
};

struct gw_tpl_list {
    gw_tv *at;
    size_t n;
    size_t *used; /* items in the memory behind `at`, which several lists may share  */
    size_t room;
    int own; /* made by the template: it may change */
};

typedef struct gw_tpl_entry {
    gw_tv key, value;
} gw_tpl_entry;

struct gw_tpl_dict {
    gw_tpl_entry *at; /* in order of insertion */
    size_t n, room;
    uint32_t *index; /* [2^k], entry + 1; NULL while the dict is small */
    size_t slots;
    int own;
};

/* Positional and named arguments of a call. */
typedef struct gw_tpl_named {
    const char *name;
    size_t bytes;
    gw_tv value;
} gw_tpl_named;

typedef struct gw_tpl_args {
    const gw_tv *at;
    size_t n;
    const gw_tpl_named *named;
    size_t n_named;
} gw_tpl_args;

/* A function, filter, test or method. params: names, each with '?' behind it when it may be left
 * out; "*" takes the other positional ones as a tuple, "**" the other named ones as a dict. a: in
 * that order, ABSENT where nothing was given. */
struct gw_tpl_builtin {
    const char *name, *params;
    gw_tv (*run)(gw_tpl *r, gw_tv self, const gw_tv *a);
};

/* ---- making values --------------------------------------------------------------------------- */

static inline gw_tv gw_tv_none(void) { return (gw_tv){.kind = GW_TV_NONE}; }
static inline gw_tv gw_tv_bool(int i) { return (gw_tv){.kind = GW_TV_BOOL, .i = i != 0}; }
static inline gw_tv gw_tv_int(int64_t i) { return (gw_tv){.kind = GW_TV_INT, .i = i}; }
static inline gw_tv gw_tv_float(double f) { return (gw_tv){.kind = GW_TV_FLOAT, .f = f}; }
/* A text that outlives the rendering, written by the template. */
gw_tv gw_tv_text(const char *text, size_t n);
gw_tv gw_tv_words(const char *text);
gw_tv gw_tv_undefined(const char *message);      /* constant */
gw_tv gw_tv_no_name(const char *name, size_t n); /* 'x' is undefined */
gw_tv gw_tv_no_member(gw_tv owner, const char *name, size_t n);

gw_tv gw_tv_list(gw_tpl *r, size_t room); /* empty */
gw_tv gw_tv_tuple(gw_tpl *r, size_t room);
void gw_tpl_add(gw_tpl *r, gw_tv list, gw_tv item);
gw_tv gw_tv_dict(gw_tpl *r);
gw_tv gw_tv_pair(gw_tpl *r, gw_tv a, gw_tv b); /* a tuple */
void gw_tpl_put(gw_tpl *r, gw_tpl_dict *dict, gw_tv key, gw_tv value);
/* NULL: no such key. Raises for a key that cannot be one. */
gw_tv *gw_tpl_find(gw_tpl *r, const gw_tpl_dict *dict, gw_tv key);
gw_tv *gw_tpl_find_word(gw_tpl *r, const gw_tpl_dict *dict, const char *key, size_t n);
void gw_tpl_remove(gw_tpl *r, gw_tpl_dict *dict, gw_tv key);

/* Part of a text, from byte `from`, n of them. */
gw_tv gw_tv_cut(gw_tv text, size_t from, size_t n);
gw_tv gw_tv_join2(gw_tpl *r, gw_tv a, gw_tv b); /* texts; grows in place where it can */
static inline int gw_tv_is(gw_tv v, gw_tv_kind kind) { return v.kind == kind; }
static inline int gw_tv_given(gw_tv v) { return v.kind != GW_TV_ABSENT; }
int gw_tv_same_text(gw_tv text, const char *word);

/* ---- building texts -------------------------------------------------------------------------- */

typedef struct gw_tpl_out {
    char *data;
    uint8_t *typed; /* [room] */
    size_t n, room;
    size_t n_typed;
    struct gw_tpl_out *next; /* of those that the rendering holds */
    int used;
} gw_tpl_out;

gw_tpl_out *gw_tpl_out_open(gw_tpl *r);
void gw_tpl_out_add(gw_tpl *r, gw_tpl_out *out, const char *text, size_t n, int typed);
void gw_tpl_out_words(gw_tpl *r, gw_tpl_out *out, const char *words);
void gw_tpl_out_text(gw_tpl *r, gw_tpl_out *out, gw_tv text);
void gw_tpl_out_char(gw_tpl *r, gw_tpl_out *out, uint32_t cp, int typed);
void gw_tpl_out_repeat(gw_tpl *r, gw_tpl_out *out, gw_tv text, size_t times);
gw_tv gw_tpl_out_close(gw_tpl *r, gw_tpl_out *out);
static inline int gw_tv_typed_at(gw_tv text, size_t at) {
    return text.typed != NULL ? text.typed[at] : text.all_typed;
}

/* ---- what values are ------------------------------------------------------------------------- */

int gw_tv_truth(gw_tpl *r, gw_tv v);
int gw_tv_equal(gw_tpl *r, gw_tv a, gw_tv b);
int gw_tv_less(gw_tpl *r, gw_tv a, gw_tv b, const char *op); /* a < b; op: for the message */
int gw_tv_is_number(gw_tv v);                                /* bool, integer, float */
double gw_tv_real(gw_tpl *r, gw_tv number);
const char *gw_tv_type(gw_tv v);         /* as Python names it: "NoneType" */
const char *gw_tv_type_repr(gw_tv v);    /* as Jinja names it: "dict object" */
size_t gw_tv_length(gw_tpl *r, gw_tv v); /* raises where there is none */
size_t gw_tv_chars(gw_tpl *r, gw_tv text);
gw_tv gw_tv_str(gw_tpl *r, gw_tv v);  /* as printed */
gw_tv gw_tv_repr(gw_tpl *r, gw_tv v); /* as printed inside a list */
gw_tv gw_tv_soft(gw_tpl *r, gw_tv v); /* a text stays as it is, safe or not; else gw_tv_str */
void gw_tpl_write_float(double f, char out[40]);

/* What a loop walks over. */
typedef struct gw_tpl_walk {
    const gw_tv *at; /* NULL: a range */
    size_t n;
    int64_t start, step;
} gw_tpl_walk;

gw_tpl_walk gw_tpl_walk_over(gw_tpl *r, gw_tv v); /* raises where v is not iterable */
static inline gw_tv gw_tpl_walk_at(const gw_tpl_walk *w, size_t i) {
    return w->at != NULL ? w->at[i] : gw_tv_int(w->start + (int64_t)i * w->step);
}
int gw_tv_iterable(gw_tv v);
gw_tv gw_tv_iterator(gw_tpl *r, gw_tv list); /* the items of a list as a lazy filter gives them */

/* ---- the rendering's means ------------------------------------------------------------------- */

_Noreturn void gw_tpl_raise(gw_tpl *r, gw_status status, const char *fmt, ...) GW_PRINTF(3, 4);
_Noreturn void gw_tpl_raise_undefined(gw_tpl *r, gw_tv undefined);
void *gw_tpl_alloc(gw_tpl *r, size_t bytes); /* zeroed; never NULL */
void *gw_tpl_array(gw_tpl *r, size_t count, size_t size);
/* n steps more; raises beyond the limit. A step is about what one operation costs. */
void gw_tpl_charge(gw_tpl *r, size_t n);
void gw_tpl_deeper(gw_tpl *r); /* raises beyond the limit of nested operations */
void gw_tpl_back(gw_tpl *r);

#endif
