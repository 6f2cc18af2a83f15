/* core/text/template/call.c - calls: arguments find their parameters, macros run. */
#include <string.h>

#include "core/text/template/render.h"

enum { PARAMS_MAX = 12 };

/* ---- functions, filters, tests, methods ------------------------------------------------------ */

typedef struct param {
    const char *name;
    size_t n;
    int optional;
} param;

/* The next name of a list of parameters; 0: the end. */
static int next_param(const char **at, param *out) {
    *at += strspn(*at, " ");
    out->name = *at;
    out->n = strcspn(*at, " ?");
    *at += out->n;
    out->optional = **at == '?';
    *at += out->optional;
    return out->n > 0;
}

static gw_tv rest_of(gw_tpl *r, const gw_tpl_args *args, size_t from) {
    gw_tv rest = gw_tv_tuple(r, args->n > from ? args->n - from : 0);
    for (size_t i = from; i < args->n; i++) {
        gw_tpl_add(r, rest, args->at[i]);
    }
    return rest;
}

/* Named arguments that no parameter took; taken [n_named]. */
static gw_tv other_named(gw_tpl *r, const gw_tpl_args *args, const uint8_t *taken) {
    gw_tv rest = gw_tv_dict(r);
    for (size_t i = 0; i < args->n_named; i++) {
        if (!taken[i]) {
            gw_tpl_put(r, rest.dict, gw_tv_text(args->named[i].name, args->named[i].bytes),
                       args->named[i].value);
        }
    }
    return rest;
}

_Noreturn static void wrong_call(gw_tpl *r, const gw_tpl_builtin *row, const char *what,
                                 const char *name, size_t n) {
    gw_tpl_raise(r, GW_E_TYPE, "%s() %s%s%.*s%s", row->name, what, n > 0 ? " '" : "",
                 (int)(n > 80 ? 80 : n), name, n > 0 ? "'" : "");
}

gw_tv gw_tpl_call_row(gw_tpl *r, const gw_tpl_builtin *row, gw_tv self, const gw_tpl_args *args) {
    gw_tv a[PARAMS_MAX] = {{.kind = GW_TV_ABSENT}};
    uint8_t *taken = gw_tpl_alloc(r, args->n_named + 1);
    size_t n = 0, n_taken = 0, positional = 0;
    const char *at = row->params;
    param p;
    gw_tpl_charge(r, 1);
    for (; next_param(&at, &p) && n < PARAMS_MAX; n++) {
        if (p.name[0] == '*') {
            int named = p.n == 2;
            a[n] = named ? other_named(r, args, taken) : rest_of(r, args, positional);
            positional = named ? positional : args->n;
            n_taken = named ? args->n_named : n_taken;
            continue;
        }
        if (positional < args->n) {
            a[n] = args->at[positional++];
        }
        for (size_t i = 0; i < args->n_named; i++) {
            const gw_tpl_named *named = &args->named[i];
            if (named->bytes == p.n && memcmp(named->name, p.name, p.n) == 0) {
                if (gw_tv_given(a[n])) {
                    wrong_call(r, row, "got multiple values for argument", p.name, p.n);
                }
                a[n] = named->value;
                taken[i] = 1;
                n_taken++;
            }
        }
        if (!gw_tv_given(a[n]) && !p.optional) {
            wrong_call(r, row, "missing required argument", p.name, p.n);
        }
    }
    if (positional < args->n) {
        wrong_call(r, row, "is given too many arguments", "", 0);
    }
    for (size_t i = 0; n_taken < args->n_named && i < args->n_named; i++) {
        if (!taken[i]) {
            wrong_call(r, row, "got an unexpected keyword argument", args->named[i].name,
                       args->named[i].bytes);
        }
    }
    return row->run(r, self, a);
}

/* ---- macros ---------------------------------------------------------------------------------- */

_Noreturn static void wrong_macro(gw_tpl *r, const gw_tpl_node *node, const char *what, size_t n,
                                  const char *name, size_t bytes) {
    const gw_tpl_word caller = {"caller", 6};
    const gw_tpl_word *word = node->what == GW_TPL_MACRO ? &r->t->names[node->name] : &caller;
    int length = (int)(word->bytes > 80 ? 80 : word->bytes);
    if (bytes > 0) {
        gw_tpl_raise(r, GW_E_TYPE, "macro '%.*s' %s '%.*s'", length, word->text, what,
                     (int)(bytes > 80 ? 80 : bytes), name);
    }
    gw_tpl_raise(r, GW_E_TYPE, "macro '%.*s' %s %zu argument(s)", length, word->text, what, n);
}

/* Arguments that were named so, but for the parameters of the macro. */
static gw_tv macro_rest(gw_tpl *r, const gw_tpl_node *node, const gw_tpl_args *args) {
    gw_tv rest = gw_tv_dict(r);
    for (size_t i = 0; i < args->n_named; i++) {
        const gw_tpl_named *named = &args->named[i];
        const gw_tpl_node *p = node->c;
        for (; p != NULL; p = p->next) {
            const gw_tpl_word *word = &r->t->names[p->name];
            if (word->bytes == named->bytes && memcmp(word->text, named->name, word->bytes) == 0) {
                break;
            }
        }
        int caller = named->bytes == 6 && memcmp(named->name, "caller", 6) == 0 &&
                     (node->op & GW_TPL_USES_CALLER) != 0;
        if (p != NULL || caller) {
            continue;
        }
        if ((node->op & GW_TPL_USES_KWARGS) == 0) {
            wrong_macro(r, node, "takes no keyword argument", 0, named->name, named->bytes);
        }
        gw_tpl_put(r, rest.dict, gw_tv_text(named->name, named->bytes), named->value);
    }
    return rest;
}

static gw_tv named_argument(const gw_tpl_args *args, const char *name, size_t n) {
    for (size_t i = 0; i < args->n_named; i++) {
        if (args->named[i].bytes == n && memcmp(args->named[i].name, name, n) == 0) {
            return args->named[i].value;
        }
    }
    return (gw_tv){.kind = GW_TV_ABSENT};
}

/* In r->scope, which is the macro's own. */
static void bind_macro(gw_tpl *r, const gw_tpl_node *node, const gw_tpl_args *args) {
    size_t at = 0;
    for (const gw_tpl_node *p = node->c; p != NULL; p = p->next, at++) {
        const gw_tpl_word *word = &r->t->names[p->name];
        gw_tv named = named_argument(args, word->text, word->bytes), value;
        if (at < args->n) {
            if (gw_tv_given(named)) {
                wrong_macro(r, node, "got multiple values for argument", 0, word->text,
                            word->bytes);
            }
            value = args->at[at];
        } else if (gw_tv_given(named)) {
            value = named;
        } else {
            value = p->a != NULL ? gw_tpl_eval(r, p->a) : gw_tv_no_name(word->text, word->bytes);
        }
        gw_tpl_set(r, r->scope, p->name, value);
    }
    if (at < args->n && (node->op & GW_TPL_USES_VARARGS) == 0) {
        wrong_macro(r, node, "takes not more than", at, "", 0);
    }
    gw_tv rest = macro_rest(r, node, args);
    if (node->op & GW_TPL_USES_VARARGS) {
        gw_tpl_set(r, r->scope, r->varargs_name, rest_of(r, args, at));
    }
    if (node->op & GW_TPL_USES_KWARGS) {
        gw_tpl_set(r, r->scope, r->kwargs_name, rest);
    }
    if (node->op & GW_TPL_USES_CALLER) {
        gw_tv caller = named_argument(args, "caller", 6);
        gw_tpl_set(r, r->scope, r->caller_name,
                   gw_tv_given(caller) ? caller : gw_tv_undefined("No caller defined"));
    }
}

static gw_tv call_macro(gw_tpl *r, const gw_tpl_macro *macro, const gw_tpl_args *args) {
    gw_tpl_scope *back = r->scope;
    int line = r->line;
    gw_tpl_deeper(r);
    gw_tpl_charge(r, 10);
    r->scope = gw_tpl_scope_new(r, macro->around);
    bind_macro(r, macro->node, args);
    gw_tv text = gw_tpl_run_apart(r, macro->node->list);
    text.safe = r->escapes != 0;
    r->scope = back;
    r->line = line;
    gw_tpl_back(r);
    return text;
}

gw_tv gw_tpl_call(gw_tpl *r, gw_tv what, const gw_tpl_args *args) {
    gw_tpl_cycler *joiner;
    switch (what.kind) {
    case GW_TV_FUNCTION:
        return gw_tpl_call_row(r, what.function, gw_tv_none(), args);
    case GW_TV_METHOD:
        return gw_tpl_call_row(r, what.object->method.row, what.object->method.self, args);
    case GW_TV_MACRO:
        return call_macro(r, &what.object->macro, args);
    case GW_TV_LOOP:
        if (args->n != 1 || args->n_named > 0) {
            gw_tpl_raise(r, GW_E_TYPE, "loop() takes one argument");
        }
        return gw_tpl_loop_again(r, &what.object->loop, args->at[0]);
    case GW_TV_JOINER:
        joiner = &what.object->cycler;
        return joiner->at++ == 0 ? gw_tv_words("") : joiner->items;
    case GW_TV_UNDEFINED:
        gw_tpl_raise_undefined(r, what);
    default:
        gw_tpl_raise(r, GW_E_TYPE, "'%s' object is not callable", gw_tv_type(what));
    }
}
