/* core/text/template/eval.c - expressions. */
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"

/* ---- arguments ------------------------------------------------------------------------------- */

static void add_named(gw_tpl *r, gw_tpl_named *to, gw_tv key, gw_tv value) {
    if (key.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "keywords must be strings");
    }
    *to = (gw_tpl_named){key.text, key.n, value};
}

static void count_argument(gw_tpl *r, const gw_tpl_node *arg, gw_tv value, size_t *n,
                           size_t *n_named) {
    if (arg->op == '*') {
        *n += gw_tpl_walk_over(r, value).n;
    } else if (arg->op == GW_OP_STARS) {
        if (value.kind != GW_TV_DICT) {
            gw_tpl_raise(r, GW_E_TYPE, "argument after ** must be a mapping, not %s",
                         gw_tv_type(value));
        }
        *n_named += value.dict->n;
    } else {
        *(arg->word != NULL ? n_named : n) += 1;
    }
}

/* caller: one more named argument, unless ABSENT. */
static gw_tpl_args arguments(gw_tpl *r, const gw_tpl_node *list, gw_tv caller) {
    size_t count = 0, n = 0, n_named = gw_tv_given(caller) ? 1 : 0;
    if (list == NULL && n_named == 0) {
        return (gw_tpl_args){0};
    }
    for (const gw_tpl_node *arg = list; arg != NULL; arg = arg->next) {
        count++;
    }
    gw_tv *values = gw_tpl_array(r, count + 1, sizeof *values);
    count = 0;
    for (const gw_tpl_node *arg = list; arg != NULL; arg = arg->next, count++) {
        values[count] = gw_tpl_eval(r, arg->a);
        if (arg->op == '*' && values[count].kind == GW_TV_ITERATOR) { /* counted, then walked */
            values[count].kind = GW_TV_LIST;
        }
        count_argument(r, arg, values[count], &n, &n_named);
    }
    gw_tv *at = gw_tpl_array(r, n + 1, sizeof *at);
    gw_tpl_named *named = gw_tpl_array(r, n_named + 1, sizeof *named);
    gw_tpl_args out = {.at = at, .named = named};
    count = 0;
    for (const gw_tpl_node *arg = list; arg != NULL; arg = arg->next, count++) {
        gw_tv v = values[count];
        if (arg->op == '*') {
            gw_tpl_walk w = gw_tpl_walk_over(r, v);
            for (size_t i = 0; i < w.n; i++) {
                at[out.n++] = gw_tpl_walk_at(&w, i);
            }
        } else if (arg->op == GW_OP_STARS) {
            for (size_t i = 0; i < v.dict->n; i++) {
                add_named(r, &named[out.n_named++], v.dict->at[i].key, v.dict->at[i].value);
            }
        } else if (arg->word != NULL) {
            named[out.n_named++] = (gw_tpl_named){arg->word, arg->word_bytes, v};
        } else {
            at[out.n++] = v;
        }
    }
    if (gw_tv_given(caller)) {
        named[out.n_named++] = (gw_tpl_named){"caller", 6, caller};
    }
    return out;
}

/* ---- one node -------------------------------------------------------------------------------- */

static gw_tv eval_name(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv v = gw_tpl_lookup(r, node->name);
    if (gw_tv_given(v)) {
        return v;
    }
    const gw_tpl_word *word = &r->t->names[node->name];
    const gw_tpl_builtin *row = gw_tpl_global(word->text, word->bytes);
    if (row != NULL) {
        return (gw_tv){.kind = GW_TV_FUNCTION, .function = row};
    }
    if (word->bytes == 4 && memcmp(word->text, "self", 4) == 0) { /* blocks of a page: none */
        v = gw_tv_dict(r);
        v.kind = GW_TV_NAMESPACE;
        return v;
    }
    return gw_tv_no_name(word->text, word->bytes);
}

static gw_tv eval_optional(gw_tpl *r, const gw_tpl_node *node) {
    return node != NULL ? gw_tpl_eval(r, node) : (gw_tv){.kind = GW_TV_ABSENT};
}

static gw_tv eval_item(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv of = gw_tpl_eval(r, node->a);
    if (node->b->what != GW_TPL_SLICE) {
        return gw_tpl_item(r, of, gw_tpl_eval(r, node->b));
    }
    const gw_tpl_node *s = node->b;
    gw_tv from = eval_optional(r, s->a), to = eval_optional(r, s->b);
    return gw_tpl_slice(r, of, from, to, eval_optional(r, s->c));
}

static gw_tv eval_call(gw_tpl *r, const gw_tpl_node *node, gw_tv caller) {
    gw_tv what = gw_tpl_eval(r, node->a);
    gw_tpl_args args = arguments(r, node->list, caller);
    return gw_tpl_call(r, what, &args);
}

static gw_tv eval_row(gw_tpl *r, const gw_tpl_node *node, gw_tv self) {
    if (node->row == NULL) {
        gw_tpl_raise(r, GW_E_SYNTAX, "No %s named '%.*s'.",
                     node->what == GW_TPL_TEST ? "test" : "filter",
                     (int)(node->word_bytes > 80 ? 80 : node->word_bytes), node->word);
    }
    gw_tpl_args args = arguments(r, node->list, (gw_tv){.kind = GW_TV_ABSENT});
    return gw_tpl_call_row(r, node->row, self, &args);
}

static gw_tv eval_compare(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv left = gw_tpl_eval(r, node->a);
    for (const gw_tpl_node *o = node->list; o != NULL; o = o->next) {
        gw_tv right = gw_tpl_eval(r, o->a);
        if (!gw_tpl_compare(r, left, o->op, right)) {
            return gw_tv_bool(0);
        }
        left = right;
    }
    return gw_tv_bool(1);
}

static gw_tv eval_concat(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv all = gw_tv_words("");
    if (!r->escapes) {
        for (const gw_tpl_node *item = node->list; item != NULL; item = item->next) {
            all = gw_tv_join2(r, all, gw_tv_str(r, gw_tpl_eval(r, item)));
        }
        return all;
    }
    gw_tv parts = gw_tv_list(r, 0);
    int safe = 0;
    for (const gw_tpl_node *item = node->list; item != NULL; item = item->next) {
        gw_tpl_add(r, parts, gw_tv_soft(r, gw_tpl_eval(r, item)));
        safe |= parts.list->at[parts.list->n - 1].safe;
    }
    for (size_t i = 0; i < parts.list->n; i++) { /* plain ones are escaped beside a safe one only */
        gw_tv part = parts.list->at[i];
        all = gw_tv_join2(r, all, safe ? gw_tpl_escape(r, part) : part);
    }
    all.safe = (uint8_t)safe;
    return all;
}

static gw_tv eval_items(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv list = gw_tv_list(r, 0);
    list.kind = node->what == GW_TPL_MAKE_TUPLE ? GW_TV_TUPLE : GW_TV_LIST;
    for (const gw_tpl_node *item = node->list; item != NULL; item = item->next) {
        gw_tpl_add(r, list, gw_tpl_eval(r, item));
    }
    return list;
}

static gw_tv eval_dict(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv dict = gw_tv_dict(r);
    for (const gw_tpl_node *pair = node->list; pair != NULL; pair = pair->next) {
        gw_tv key = gw_tpl_eval(r, pair->a);
        gw_tpl_put(r, dict.dict, key, gw_tpl_eval(r, pair->b));
    }
    return dict;
}

static gw_tv eval_sign(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv v = gw_tpl_eval(r, node->a);
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (!gw_tv_is_number(v)) {
        gw_tpl_raise(r, GW_E_TYPE, "bad operand type for unary %c: '%s'",
                     node->what == GW_TPL_NEGATE ? '-' : '+', gw_tv_type(v));
    }
    return node->what == GW_TPL_NEGATE ? gw_tpl_negate(r, v)
                                       : gw_tpl_arithmetic(r, gw_tv_int(0), '+', v);
}

static gw_tv eval_binary(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv a = gw_tpl_eval(r, node->a);
    return gw_tpl_binary(r, a, node->op, gw_tpl_eval(r, node->b));
}

static gw_tv eval_condition(gw_tpl *r, const gw_tpl_node *node) {
    if (gw_tv_truth(r, gw_tpl_eval(r, node->a))) {
        return gw_tpl_eval(r, node->b);
    }
    return node->c != NULL ? gw_tpl_eval(r, node->c)
                           : gw_tv_undefined("the inline if-expression evaluated to false and no "
                                             "else section was defined.");
}

static gw_tv eval_node(gw_tpl *r, const gw_tpl_node *node) {
    gw_tv v;
    switch (node->what) {
    case GW_TPL_CONST:
        return node->value;
    case GW_TPL_NAME:
        return eval_name(r, node);
    case GW_TPL_ATTR:
        return gw_tpl_attribute(r, gw_tpl_eval(r, node->a), node->word, node->word_bytes);
    case GW_TPL_ITEM:
        return eval_item(r, node);
    case GW_TPL_CALL:
        return eval_call(r, node, (gw_tv){.kind = GW_TV_ABSENT});
    case GW_TPL_FILTER:
    case GW_TPL_TEST:
        return eval_row(r, node, gw_tpl_eval(r, node->a));
    case GW_TPL_NOT:
        return gw_tv_bool(!gw_tv_truth(r, gw_tpl_eval(r, node->a)));
    case GW_TPL_NEGATE:
    case GW_TPL_PLUS:
        return eval_sign(r, node);
    case GW_TPL_BINARY:
        return eval_binary(r, node);
    case GW_TPL_CONCAT:
        return eval_concat(r, node);
    case GW_TPL_AND:
    case GW_TPL_OR:
        v = gw_tpl_eval(r, node->a);
        return gw_tv_truth(r, v) == (node->what == GW_TPL_AND) ? gw_tpl_eval(r, node->b) : v;
    case GW_TPL_COND:
        return eval_condition(r, node);
    case GW_TPL_COMPARE:
        return eval_compare(r, node);
    case GW_TPL_MAKE_LIST:
    case GW_TPL_MAKE_TUPLE:
        return eval_items(r, node);
    case GW_TPL_MAKE_DICT:
        return eval_dict(r, node);
    default: /* a slice among several indices, which nothing takes */
        return gw_tv_undefined("this is no value");
    }
}

gw_tv gw_tpl_eval(gw_tpl *r, const gw_tpl_node *node) {
    gw_tpl_deeper(r);
    gw_tpl_charge(r, 1);
    gw_tv v = eval_node(r, node);
    gw_tpl_back(r);
    return v;
}

gw_tv gw_tpl_filter_block(gw_tpl *r, const gw_tpl_node *filters, gw_tv text) {
    if (filters == NULL) {
        return text;
    }
    gw_tpl_deeper(r);
    text = gw_tpl_filter_block(r, filters->a, text);
    gw_tpl_back(r);
    return eval_row(r, filters, text);
}

/* The call of a call block, with the block as caller(). */
gw_tv gw_tpl_call_block(gw_tpl *r, const gw_tpl_node *call, gw_tv caller) {
    return eval_call(r, call, caller);
}
