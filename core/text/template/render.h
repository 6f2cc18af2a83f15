/* core/text/template/render.h - a rendering from inside: its state, scopes, and the objects that
 * only a rendering has.
 */
#ifndef GW_TEXT_TEMPLATE_RENDER_H
#define GW_TEXT_TEMPLATE_RENDER_H

#include "core/text/template/tree.h"

enum {
    GW_TPL_STEPS = 1500000, /* of a rendering, and as many more per byte of the variables: */
    GW_TPL_STEPS_PER_BYTE = 64,
    GW_TPL_MEMORY = 24 << 20, /* bytes, and as many more per byte of the variables: */
    GW_TPL_MEMORY_PER_BYTE = 24,
    GW_TPL_NESTED = 1600, /* operations inside one another */
    GW_TPL_GROWING = 6,
    GW_TPL_RANGE_MAX = 100000 /* items, as in Jinja's sandbox */
};

typedef struct gw_tpl_chunk gw_tpl_chunk;

typedef struct gw_tpl_var {
    uint32_t name;
    gw_tv value;
} gw_tpl_var;

typedef struct gw_tpl_scope {
    struct gw_tpl_scope *up;
    gw_tpl_var *at;
    size_t n, room;
} gw_tpl_scope;

/* GW_TV_LOOP: a for that runs. */
typedef struct gw_tpl_loop {
    const gw_tpl_node *node;
    gw_tpl_scope *around;
    gw_tpl_walk items;
    size_t taken; /* of items, by a filter */
    gw_tv passed; /* list of those that passed it; only with one */
    size_t at, depth;
    gw_tv changed; /* what loop.changed saw last */
} gw_tpl_loop;

/* GW_TV_MACRO: also the caller() of a call block. */
typedef struct gw_tpl_macro {
    const gw_tpl_node *node;
    gw_tpl_scope *around;
} gw_tpl_macro;

/* GW_TV_METHOD: a builtin with the value it belongs to. */
typedef struct gw_tpl_method {
    const gw_tpl_builtin *row;
    gw_tv self;
} gw_tpl_method;

typedef struct gw_tpl_cycler { /* also GW_TV_JOINER: one text */
    gw_tv items;
    size_t at;
} gw_tpl_cycler;

struct gw_tpl_object {
    union {
        gw_tpl_loop loop;
        gw_tpl_macro macro;
        gw_tpl_method method;
        gw_tpl_cycler cycler;
    };
};

struct gw_tpl {
    const gw_template *t;
    const gw_template_options *options;
    jmp_buf failed;
    gw_status status;
    int line;          /* of what runs now */
    const char *input; /* the input that is read now; NULL: the template runs */
    size_t nested;
    uint64_t steps, steps_max;
    size_t memory, memory_max;
    gw_tpl_chunk *chunks, *texts;          /* the newest first */
    gw_tpl_chunk *growing[GW_TPL_GROWING]; /* of texts, those that were begun last */
    size_t grown;
    gw_tpl_out *outs;
    gw_tpl_scope *scope;
    gw_tpl_out *out;
    int escapes;        /* autoescape */
    uint32_t loop_name; /* number of "loop" and the like; UINT32_MAX: the template has none */
    uint32_t varargs_name, kwargs_name, caller_name;
};

/* A name of the template; ABSENT where it has none. */
gw_tv gw_tpl_lookup(gw_tpl *r, uint32_t name);
void gw_tpl_set(gw_tpl *r, gw_tpl_scope *scope, uint32_t name, gw_tv value);
gw_tpl_scope *gw_tpl_scope_new(gw_tpl *r, gw_tpl_scope *up);

gw_tv gw_tpl_eval(gw_tpl *r, const gw_tpl_node *node);
typedef enum gw_tpl_way { GW_TPL_ON, GW_TPL_BROKEN, GW_TPL_NEXT } gw_tpl_way;
gw_tpl_way gw_tpl_run(gw_tpl *r, const gw_tpl_node *list);
gw_tv gw_tpl_run_apart(gw_tpl *r, const gw_tpl_node *list); /* what it prints, as a text */
void gw_tpl_assign(gw_tpl *r, const gw_tpl_node *target, gw_tv value);
gw_tv gw_tpl_filter_block(gw_tpl *r, const gw_tpl_node *filters, gw_tv text);
gw_tv gw_tpl_call_block(gw_tpl *r, const gw_tpl_node *call, gw_tv caller);
gw_tv gw_tpl_loop_again(gw_tpl *r, gw_tpl_loop *loop, gw_tv items); /* loop(items) */
int gw_tpl_loop_fill(gw_tpl *r, gw_tpl_loop *loop, size_t n);       /* 1: there are so many */

/* Members and items, as Jinja looks them up: attribute, then item; item, then attribute. */
gw_tv gw_tpl_attribute(gw_tpl *r, gw_tv of, const char *name, size_t n);
gw_tv gw_tpl_item(gw_tpl *r, gw_tv of, gw_tv key);
/* path: "a.b.0", or a number. preset: in place of each step that is undefined; NULL: none. */
gw_tv gw_tpl_path(gw_tpl *r, gw_tv of, gw_tv path, const gw_tv *preset);
gw_tv gw_tpl_slice(gw_tpl *r, gw_tv of, gw_tv from, gw_tv to, gw_tv step);
/* ABSENT: no such attribute. */
gw_tv gw_tpl_own_attribute(gw_tpl *r, gw_tv of, const char *name, size_t n);

gw_tv gw_tpl_call(gw_tpl *r, gw_tv what, const gw_tpl_args *args);
gw_tv gw_tpl_call_row(gw_tpl *r, const gw_tpl_builtin *row, gw_tv self, const gw_tpl_args *args);
gw_tv gw_tpl_method_of(gw_tpl *r, gw_tv self, const gw_tpl_builtin *row);

/* Tables. */
const gw_tpl_builtin *gw_tpl_text_method(const char *name, size_t n);
const gw_tpl_builtin *gw_tpl_other_method(gw_tv of, const char *name, size_t n);
int gw_tpl_is_unsafe(gw_tv of, const char *name, size_t n); /* changes it, or opens it up */
const gw_tpl_builtin *gw_tpl_global(const char *name, size_t n);
const gw_tpl_builtin *gw_tpl_find_row(const gw_tpl_builtin *rows, const char *name, size_t n);
extern const gw_tpl_builtin gw_tpl_filters_text[], gw_tpl_filters_list[], gw_tpl_filters_other[];

void gw_tpl_release(gw_tpl *r); /* all of its memory */

/* Operations that several tables share. */
gw_tv gw_tpl_binary(gw_tpl *r, gw_tv a, int op, gw_tv b);
int gw_tpl_compare(gw_tpl *r, gw_tv a, int op, gw_tv b);
int gw_tpl_contains(gw_tpl *r, gw_tv in, gw_tv what);
gw_tv gw_tpl_percent(gw_tpl *r, gw_tv format, gw_tv values);
gw_tv gw_tpl_format(gw_tpl *r, gw_tv format, const gw_tv *a); /* a: tuple and dict of arguments */
gw_tv gw_tpl_escape(gw_tpl *r, gw_tv v);                      /* & < > " ' ; a safe text stays */
gw_tv gw_tpl_to_json(gw_tpl *r, gw_tv self, const gw_tv *a);
gw_tv gw_tpl_from_json(gw_tpl *r, gw_tv text);
gw_tv gw_tpl_wordwrap(gw_tpl *r, gw_tv self, const gw_tv *a);
gw_tv gw_tpl_pprint(gw_tpl *r, gw_tv self, const gw_tv *a);
gw_tv gw_tpl_urlize(gw_tpl *r, gw_tv self, const gw_tv *a);
gw_tv gw_tpl_read_real(gw_tpl *r, gw_tv text); /* float(text) of Python; ABSENT: it is none */
gw_tv gw_tpl_date(gw_tpl *r, gw_tv format);
gw_tv gw_tpl_strip(gw_tpl *r, gw_tv text, gw_tv chars, int front, int back);
gw_tv gw_tpl_replace(gw_tpl *r, gw_tv text, gw_tv old, gw_tv new, int64_t count);
gw_tv gw_tpl_lines(gw_tpl *r, gw_tv text, int keep);
gw_tv gw_tpl_case(gw_tpl *r, gw_tv text, int how);
enum { GW_TPL_UPPER, GW_TPL_LOWER, GW_TPL_TITLE, GW_TPL_CAPITAL, GW_TPL_SWAP, GW_TPL_FOLD };
gw_tv gw_tpl_join(gw_tpl *r, gw_tv separator, gw_tv items, int strict);
gw_tv gw_tpl_pad(gw_tpl *r, gw_tv text, int64_t width, gw_tv fill, int how); /* '<', '>', '^' */
int64_t gw_tpl_int(gw_tpl *r, gw_tv v, const char *what);   /* an integer, or an error */
size_t gw_tpl_at_char(gw_tpl *r, gw_tv text, size_t chars); /* byte where that character begins */
void gw_tpl_sort(gw_tpl *r, gw_tv *at, const gw_tv *keys, size_t n, int reverse);

/* What a request means beyond its members: template.h, gw_template_options.conversation. */
void gw_tpl_prepare(gw_tpl *r, gw_tpl_dict *variables, int *goes_on);
void gw_tpl_protect(gw_tpl_dict *variables); /* the template may not change them */
void gw_tpl_cut_at_mark(gw_tpl *r, gw_tpl_out *out, gw_tpl_dict *variables);

#endif
