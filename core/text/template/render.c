/* core/text/template/render.c - statements, and a rendering from its inputs to its text. */
#include "core/text/template/render.h"

#include <stdlib.h>
#include <string.h>

/* ---- assigning ------------------------------------------------------------------------------- */

static size_t count_nodes(const gw_tpl_node *node) {
    size_t n = 0;
    for (; node != NULL; node = node->next) {
        n++;
    }
    return n;
}

static void unpack(gw_tpl *r, const gw_tpl_node *target, gw_tv value) {
    size_t wanted = count_nodes(target->list), i = 0;
    if (value.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, value);
    }
    if (!gw_tv_iterable(value)) {
        gw_tpl_raise(r, GW_E_TYPE, "cannot unpack non-iterable %s object", gw_tv_type(value));
    }
    gw_tpl_walk w = gw_tpl_walk_over(r, value);
    if (w.n > wanted) {
        gw_tpl_raise(r, GW_E_TYPE, "too many values to unpack (expected %zu)", wanted);
    }
    if (w.n < wanted) {
        gw_tpl_raise(r, GW_E_TYPE, "not enough values to unpack (expected %zu, got %zu)", wanted,
                     w.n);
    }
    gw_tpl_deeper(r);
    for (const gw_tpl_node *item = target->list; item != NULL; item = item->next) {
        gw_tpl_assign(r, item, gw_tpl_walk_at(&w, i++));
    }
    gw_tpl_back(r);
}

void gw_tpl_assign(gw_tpl *r, const gw_tpl_node *target, gw_tv value) {
    if (target->what == GW_TPL_MAKE_TUPLE) {
        unpack(r, target, value);
    } else if (target->what == GW_TPL_NAME) {
        gw_tpl_set(r, r->scope, target->name, value);
    } else {
        gw_tv space = gw_tpl_lookup(r, target->name);
        if (space.kind != GW_TV_NAMESPACE) {
            gw_tpl_raise(r, GW_E_TYPE, "cannot assign attribute on non-namespace object");
        }
        if (target->word[0] == '_') {
            gw_tpl_raise(r, GW_E_FORBIDDEN,
                         "attributes of a namespace cannot begin with an underscore ('%.*s')",
                         (int)(target->word_bytes > 80 ? 80 : target->word_bytes), target->word);
        }
        gw_tpl_put(r, space.dict, gw_tv_text(target->word, target->word_bytes), value);
    }
}

/* ---- loops ----------------------------------------------------------------------------------- */

static gw_tpl_way run_loop(gw_tpl *r, const gw_tpl_node *node, gw_tv items, gw_tpl_scope *around,
                           size_t depth) {
    gw_tpl_object *object = gw_tpl_alloc(r, sizeof *object);
    gw_tpl_loop *loop = &object->loop;
    gw_tpl_scope *back = r->scope, *scope = gw_tpl_scope_new(r, around);
    *loop = (gw_tpl_loop){.node = node,
                          .around = around,
                          .items = gw_tpl_walk_over(r, items),
                          .depth = depth,
                          .changed = {.kind = GW_TV_ABSENT}};
    if (node->c != NULL) {
        loop->passed = gw_tv_list(r, 0);
    }
    gw_tpl_way way = GW_TPL_ON;
    int finished = 0; /* a round without break and continue: as in Jinja, else needs none */
    for (; way != GW_TPL_BROKEN && gw_tpl_loop_fill(r, loop, loop->at + 1); loop->at++) {
        gw_tv item = node->c == NULL ? gw_tpl_walk_at(&loop->items, loop->at)
                                     : loop->passed.list->at[loop->at];
        gw_tpl_charge(r, 1);
        if (node->keeps_scope) {
            scope = gw_tpl_scope_new(r, around);
        }
        scope->n = 0;
        r->scope = scope;
        if (r->loop_name != UINT32_MAX) {
            gw_tpl_set(r, scope, r->loop_name, (gw_tv){.kind = GW_TV_LOOP, .object = object});
        }
        gw_tpl_assign(r, node->a, item);
        way = gw_tpl_run(r, node->list);
        finished |= way == GW_TPL_ON;
    }
    if (!finished) {
        r->scope = gw_tpl_scope_new(r, around);
        way = gw_tpl_run(r, node->other);
        r->scope = back;
        return way;
    }
    r->scope = back;
    return GW_TPL_ON;
}

gw_tv gw_tpl_loop_again(gw_tpl *r, gw_tpl_loop *loop, gw_tv items) {
    if (!loop->node->op) {
        gw_tpl_raise(r, GW_E_TYPE,
                     "Tried to call non recursive loop.  Maybe you forgot the "
                     "'recursive' modifier.");
    }
    gw_tpl_out *back = r->out;
    gw_tpl_deeper(r);
    r->out = gw_tpl_out_open(r);
    run_loop(r, loop->node, items, loop->around, loop->depth + 1);
    gw_tv text = gw_tpl_out_close(r, r->out);
    r->out = back;
    gw_tpl_back(r);
    return text;
}

/* ---- statements ------------------------------------------------------------------------------ */

gw_tv gw_tpl_run_apart(gw_tpl *r, const gw_tpl_node *list) {
    gw_tpl_out *back = r->out;
    r->out = gw_tpl_out_open(r);
    gw_tpl_run(r, list);
    gw_tv text = gw_tpl_out_close(r, r->out);
    r->out = back;
    return text;
}

static void print(gw_tpl *r, gw_tv v) {
    if (v.kind != GW_TV_UNDEFINED) {
        gw_tpl_out_text(r, r->out, r->escapes ? gw_tpl_escape(r, v) : gw_tv_str(r, v));
    }
}

static gw_tv macro_of(gw_tpl *r, const gw_tpl_node *node) {
    gw_tpl_object *object = gw_tpl_alloc(r, sizeof *object);
    object->macro = (gw_tpl_macro){node, r->scope};
    return (gw_tv){.kind = GW_TV_MACRO, .object = object};
}

static gw_tpl_way run_if(gw_tpl *r, const gw_tpl_node *node) {
    for (;; node = node->b) {
        r->line = node->line;
        gw_tpl_charge(r, 1);
        if (gw_tv_truth(r, gw_tpl_eval(r, node->a))) {
            return gw_tpl_run(r, node->list);
        }
        if (node->b == NULL) {
            return gw_tpl_run(r, node->other);
        }
    }
}

static void run_with(gw_tpl *r, const gw_tpl_node *node, gw_tpl_scope *inner) {
    gw_tv *values = gw_tpl_array(r, count_nodes(node->c) + 1, sizeof *values);
    size_t n = 0;
    for (const gw_tpl_node *set = node->c; set != NULL; set = set->next) {
        values[n++] = gw_tpl_eval(r, set->b);
    }
    r->scope = inner;
    n = 0;
    for (const gw_tpl_node *set = node->c; set != NULL; set = set->next) {
        gw_tpl_assign(r, set->a, values[n++]);
    }
}

/* Statements with a scope of their own. */
static gw_tpl_way run_inner(gw_tpl *r, const gw_tpl_node *node) {
    gw_tpl_scope *back = r->scope, *inner = gw_tpl_scope_new(r, back);
    int escapes = r->escapes;
    gw_tpl_way way = GW_TPL_ON;
    gw_tv text;
    switch (node->what) {
    case GW_TPL_SET_BLOCK:
    case GW_TPL_FILTER_BLOCK:
        r->scope = inner;
        text = gw_tpl_run_apart(r, node->list);
        text.safe = r->escapes != 0;
        r->line = node->line;
        text = gw_tpl_filter_block(r, node->what == GW_TPL_SET_BLOCK ? node->b : node->a, text);
        r->scope = back;
        if (node->what == GW_TPL_SET_BLOCK) {
            gw_tpl_assign(r, node->a, text);
        } else {
            print(r, text);
        }
        return way;
    case GW_TPL_WITH:
        run_with(r, node, inner);
        break;
    case GW_TPL_ESCAPE:
        r->escapes = gw_tv_truth(r, gw_tpl_eval(r, node->a));
        break;
    default:
        break;
    }
    r->scope = inner;
    way = gw_tpl_run(r, node->list);
    r->scope = back;
    r->escapes = escapes;
    return way;
}

static gw_tpl_way run_one(gw_tpl *r, const gw_tpl_node *node) {
    r->line = node->line;
    switch (node->what) {
    case GW_TPL_DATA:
        gw_tpl_out_add(r, r->out, node->value.text, node->value.n, 0);
        return GW_TPL_ON;
    case GW_TPL_PRINT:
        print(r, gw_tpl_eval(r, node->a));
        return GW_TPL_ON;
    case GW_TPL_IF:
        return run_if(r, node);
    case GW_TPL_FOR:
        return run_loop(r, node, gw_tpl_eval(r, node->b), r->scope, 0);
    case GW_TPL_SET:
        gw_tpl_assign(r, node->a, gw_tpl_eval(r, node->b));
        return GW_TPL_ON;
    case GW_TPL_MACRO:
        gw_tpl_set(r, r->scope, node->name, macro_of(r, node));
        return GW_TPL_ON;
    case GW_TPL_CALL_BLOCK:
        print(r, gw_tpl_call_block(r, node->a, macro_of(r, node)));
        return GW_TPL_ON;
    case GW_TPL_BREAK:
        return GW_TPL_BROKEN;
    case GW_TPL_CONTINUE:
        return GW_TPL_NEXT;
    case GW_TPL_REFUSE:
        gw_tpl_raise(r, GW_E_FORBIDDEN, "%s", node->word);
    default:
        return run_inner(r, node);
    }
}

gw_tpl_way gw_tpl_run(gw_tpl *r, const gw_tpl_node *list) {
    gw_tpl_way way = GW_TPL_ON;
    gw_tpl_deeper(r);
    for (const gw_tpl_node *node = list; node != NULL && way == GW_TPL_ON; node = node->next) {
        gw_tpl_charge(r, 1);
        way = run_one(r, node);
    }
    gw_tpl_back(r);
    return way;
}

/* ---- a rendering ----------------------------------------------------------------------------- */

static int ends_with_token(gw_tv key) {
    return key.kind == GW_TV_TEXT && key.n > 6 && memcmp(key.text + key.n - 6, "_token", 6) == 0;
}

static void load_input(gw_tpl *r, gw_tpl_dict *variables, const gw_template_input *input) {
    gw_tv text = gw_tv_text(input->json, input->bytes);
    text.all_typed = !input->trusted;
    r->input = input->where;
    gw_tv all = gw_tpl_from_json(r, text);
    if (all.kind != GW_TV_DICT) {
        gw_tpl_raise(r, GW_E_ARGUMENT, "a JSON object is needed, this is '%s'",
                     gw_tv_type_repr(all));
    }
    for (size_t i = 0; i < all.dict->n; i++) {
        gw_tpl_entry e = all.dict->at[i];
        if (e.value.kind == GW_TV_TEXT && ends_with_token(e.key)) {
            e.value.all_typed = 0;
            e.value.typed = NULL;
        }
        gw_tpl_put(r, variables, e.key, e.value);
    }
}

static uint32_t number_of(const gw_template *t, const char *name, size_t n) {
    size_t number;
    return gw_map_find(t->numbers, name, n, &number) ? (uint32_t)number : UINT32_MAX;
}

static void set_variables(gw_tpl *r, const gw_tpl_dict *variables) {
    for (size_t i = 0; i < variables->n; i++) {
        const gw_tpl_entry *e = &variables->at[i];
        uint32_t name = number_of(r->t, e->key.text, e->key.n);
        if (name != UINT32_MAX) {
            gw_tpl_set(r, r->scope, name, e->value);
        }
    }
}

static void render(gw_tpl *r, const gw_template_input *inputs, size_t n) {
    gw_tpl_dict *variables = gw_tv_dict(r).dict;
    int goes_on = 0;
    for (size_t i = 0; i < n; i++) {
        load_input(r, variables, &inputs[i]);
    }
    if (r->options->conversation) {
        gw_tpl_prepare(r, variables, &goes_on);
    }
    gw_tpl_protect(variables);
    r->input = NULL;
    r->scope = gw_tpl_scope_new(r, NULL);
    set_variables(r, variables);
    r->out = gw_tpl_out_open(r);
    gw_tpl_run(r, r->t->body);
    if (goes_on) {
        gw_tpl_cut_at_mark(r, r->out, variables);
    }
    gw_tpl_out_add(r, r->out, "", 1, 0); /* the end */
}

static gw_status take_ranges(const uint8_t *typed, size_t n, gw_template_text *out) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += typed[i] && (i == 0 || !typed[i - 1]);
    }
    out->typed = malloc((2 * count + 1) * sizeof *out->typed);
    if (out->typed == NULL) {
        return gw_fail(GW_E_NOMEM, "template", "no memory");
    }
    for (size_t i = 0; i < n; i++) {
        if (typed[i] && (i == 0 || !typed[i - 1])) {
            out->typed[2 * out->n_typed] = i;
        }
        if (typed[i] && (i + 1 == n || !typed[i + 1])) {
            out->typed[2 * out->n_typed++ + 1] = i + 1;
        }
    }
    return GW_OK;
}

gw_status gw_template_render(const gw_template *t, const gw_template_input *inputs, size_t n,
                             const gw_template_options *options, gw_template_text *out) {
    gw_tpl *r = calloc(1, sizeof *r);
    gw_template_text text = {0};
    size_t bytes = 0;
    if (r == NULL) {
        return gw_fail(GW_E_NOMEM, t->where, "no memory");
    }
    for (size_t i = 0; i < n; i++) {
        bytes += inputs[i].bytes;
    }
    bytes = bytes > UINT32_MAX / 64 ? UINT32_MAX / 64 : bytes;
    r->t = t;
    r->options = options;
    r->line = 1;
    r->steps_max = GW_TPL_STEPS + (uint64_t)bytes * GW_TPL_STEPS_PER_BYTE;
    r->memory_max = GW_TPL_MEMORY + bytes * GW_TPL_MEMORY_PER_BYTE;
    r->loop_name = number_of(t, "loop", 4);
    r->varargs_name = number_of(t, "varargs", 7);
    r->kwargs_name = number_of(t, "kwargs", 6);
    r->caller_name = number_of(t, "caller", 6);
    if (setjmp(r->failed) == 0) {
        render(r, inputs, n);
        text.text = r->out->data;
        text.bytes = r->out->n - 1;
        r->out->data = NULL;
        r->status = take_ranges(r->out->typed, text.bytes, &text);
    }
    gw_status status = r->status;
    gw_tpl_release(r);
    free(r);
    if (status != GW_OK) {
        gw_template_text_free(&text);
        return status;
    }
    *out = text;
    return GW_OK;
}

void gw_template_text_free(gw_template_text *text) {
    free(text->text);
    free(text->typed);
    *text = (gw_template_text){0};
}
