/* core/text/answer/answer_rules.c - what an answer may look like, as a grammar; see answer.h.
 *
 *   answer  reasoning, text, calls, as far as each may come
 *   calls   begin, calls with what stands between two of them, end
 *   free    any text without the mark of a call, `thought` without that which ends reasoning
 *   body    text by a schema, else free
 */
#include "core/text/answer/answer_rules.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/text/grammar/json_schema.h"
#include "core/text/utf8.h"

enum { MARKS = 4, STATES = 400 };

#define PUT(...) GW_TRY(gw_rules_put(w->out, __VA_ARGS__))

gw_status gw_rules_put(gw_bytes *out, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) {
        return gw_fail(GW_E_LIMIT, "tools", "a name is too long");
    }
    return gw_bytes_add(out, text, (size_t)n);
}

gw_status gw_rules_put_text(gw_bytes *out, const char *text, size_t n) {
    GW_TRY(gw_bytes_add(out, "\"", 1));
    for (size_t i = 0; i < n; i++) {
        unsigned c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7F) {
            GW_TRY(gw_rules_put(out, "\\x%02X", c));
        } else {
            GW_TRY(c == '"' || c == '\\' ? gw_bytes_add(out, "\\", 1) : GW_OK);
            GW_TRY(gw_bytes_add(out, text + i, 1));
        }
    }
    return gw_bytes_add(out, "\" ", 2);
}

/* Symbols: text in quotes, tokens by their own term. */
static gw_status put_symbols(gw_bytes *out, const uint16_t *symbols, size_t n) {
    for (size_t i = 0; i < n;) {
        char text[GW_SYMBOLS_MAX];
        size_t k = 0;
        int token = symbols[i] == GW_SYMBOL_OPENS;
        i += (size_t)token;
        while (i < n && symbols[i] < GW_SYMBOL_OPENS) {
            text[k++] = (char)symbols[i++];
        }
        i += (size_t)token;
        GW_TRY(token ? gw_bytes_add(out, "@", 1) : GW_OK);
        GW_TRY(gw_rules_put_text(out, text, k));
    }
    return GW_OK;
}

gw_status gw_rules_put_marks(gw_bytes *out, const gw_pattern *p, size_t from, size_t *to) {
    size_t i = from;
    while (i < p->n && p->steps[i].kind <= GW_STEP_SPACE) {
        i++;
    }
    if (i > from) {
        const gw_step *last = &p->steps[i - 1];
        size_t first = p->steps[from].at;
        GW_TRY(put_symbols(out, p->symbols + first, last->at + last->n - first));
    }
    if (to != NULL) {
        *to = i;
    }
    return GW_OK;
}

static gw_status put_mark(gw_rules_work *w, const char *text) {
    gw_pattern p;
    gw_pattern_read(text, &w->r->marks, &p);
    return gw_rules_put_marks(w->out, &p, 0, NULL);
}

/* ---- text without marks ---------------------------------------------------------------------- */

/* Marks as characters: what has a token in it cannot be spelled and is left out. */
typedef struct mark_text {
    uint32_t at[GW_SYMBOLS_MAX];
    size_t n;
} mark_text;

static void add_mark_text(mark_text *marks, size_t *n, const uint16_t *symbols, size_t bytes) {
    char text[GW_SYMBOLS_MAX];
    mark_text *m = &marks[*n];
    m->n = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (symbols[i] >= GW_SYMBOL_OPENS) {
            return;
        }
        text[i] = (char)symbols[i];
    }
    for (size_t i = 0; i < bytes;) {
        size_t k = gw_utf8_next(text + i, bytes - i, &m->at[m->n]);
        i += k > 0 ? k : 1;
        m->n += k > 0;
    }
    *n += m->n > 0 && *n < MARKS;
}

/* How much of a mark (its number and length) the text ends with, when `seen` of mark `mark` is
 * followed by c; *whole: all of one. The longest; of equal ones the first. */
static size_t follow(const mark_text *marks, size_t n, size_t mark, size_t seen, uint32_t c,
                     size_t *to, int *whole) {
    size_t best = 0;
    *to = 0;
    *whole = 0;
    for (size_t m = 0; m < n; m++) {
        for (size_t k = seen + 1; k > 0; k--) { /* the last k characters, c among them */
            if (k > marks[m].n || marks[m].at[k - 1] != c ||
                memcmp(marks[m].at, marks[mark].at + (seen + 1 - k), (k - 1) * sizeof c) != 0) {
                continue;
            }
            *whole |= k == marks[m].n;
            if (k > best) {
                best = k;
                *to = m;
            }
            break;
        }
    }
    return best;
}

/* Rules NAME, NAME-m-k: k characters of mark m have been seen. */
static gw_status put_free(gw_rules_work *w, const char *name, const mark_text *marks, size_t n) {
    if (n == 0) {
        PUT("%s ::= .*\n", name);
        return GW_OK;
    }
    PUT("%s ::= %s-0-0\n", name, name);
    for (size_t m = 0; m < n; m++) {
        for (size_t seen = m == 0 ? 0 : 1; seen < marks[m].n; seen++) {
            PUT("%s-%zu-%zu ::= [^", name, m, seen);
            for (size_t a = 0; a < n; a++) {
                for (size_t i = 0; i < marks[a].n; i++) {
                    PUT("\\U%08X", marks[a].at[i]);
                }
            }
            PUT("] %s-0-0", name);
            for (size_t a = 0; a < n; a++) {
                for (size_t i = 0; i < marks[a].n; i++) {
                    uint32_t c = marks[a].at[i];
                    size_t to;
                    int whole, known = 0;
                    for (size_t b = 0; b <= a; b++) {
                        for (size_t k = 0; k < (b < a ? marks[b].n : i); k++) {
                            known |= marks[b].at[k] == c;
                        }
                    }
                    size_t k = follow(marks, n, m, seen, c, &to, &whole);
                    if (!known && !whole) {
                        PUT(" | \"\\U%08X\" %s-%zu-%zu", c, name, k > 0 ? to : 0, k);
                    }
                }
            }
            PUT(" | \"\"\n");
        }
    }
    return GW_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int is_allowed(const gw_rules_work *w, size_t i) {
    return w->r->named == NULL || strcmp(w->r->named, w->r->list->at[i].name) == 0;
}

static gw_status put_any_of(gw_rules_work *w, const char *rule, const char *of) {
    const char *bar = "";
    PUT("%s ::= ", rule);
    for (size_t i = 0; i < w->r->list->n; i++) {
        if (is_allowed(w, i)) {
            PUT("%st%zu-%s", bar, i, of);
            bar = " | ";
        }
    }
    PUT("\n");
    return GW_OK;
}

/* %l and %y: all calls are inside of one. */
static gw_status put_listed_calls(gw_rules_work *w, size_t slot, int one_call) {
    int list = w->call.steps[slot].kind == GW_STEP_LIST;
    int lines = !list && w->call.steps[slot - 1].kind == GW_STEP_SPACE;
    size_t to;
    GW_TRY(put_any_of(w, "one", "one"));
    PUT("blank ::= ( \" \" | \"\\n\" [ ]{0,12} )?\ncalls ::= ");
    GW_TRY(gw_rules_put_marks(w->out, &w->begin, 0, NULL));
    GW_TRY(gw_rules_put_marks(w->out, &w->call, 0, &to));
    PUT("%sone ", list ? "\"[\" blank " : "");
    PUT(one_call ? ""
        : lines  ? "( \"\\n\" one )* "
        : list   ? "( \",\" blank one )* "
                 : "( \", \" one )* ");
    PUT("%s", list ? "blank \"]\" " : "");
    GW_TRY(gw_rules_put_marks(w->out, &w->call, slot + 1, NULL));
    GW_TRY(gw_rules_put_marks(w->out, &w->end, 0, NULL));
    PUT("\n");
    return GW_OK;
}

static int is_muse(const gw_rules_work *w) {
    return w->r->reasoning != NULL && w->r->reasoning->kind == GW_REASONING_MUSE;
}

static int is_harmony(const gw_rules_work *w) {
    return w->r->reasoning != NULL && w->r->reasoning->kind == GW_REASONING_HARMONY;
}

/* Muse: each call is a message to its tool. */
static gw_status put_addressed_calls(gw_rules_work *w) {
    for (size_t i = 0; i < w->r->list->n; i++) {
        if (is_allowed(w, i)) {
            PUT("t%zu-sent ::= \" to=\" ", i);
            GW_TRY(
                gw_rules_put_text(w->out, w->r->list->at[i].name, strlen(w->r->list->at[i].name)));
            GW_TRY(put_mark(w, "{<|message|>}"));
            PUT("t%zu-call\n", i);
        }
    }
    return put_any_of(w, "sent", "sent");
}

static gw_status put_separate_calls(gw_rules_work *w, int one_call) {
    const char *call = is_muse(w) ? "sent" : "call";
    if (is_muse(w)) {
        GW_TRY(put_addressed_calls(w));
    } else {
        GW_TRY(put_any_of(w, "call", "call"));
    }
    const char *first = w->r->start == GW_START_CALL ? "rest" : call;
    if (w->r->start == GW_START_CALL) { /* the prompt has the first mark of the first call */
        const gw_step *mark = gw_pattern_first(&w->call);
        for (size_t i = 0; i < w->r->list->n; i++) {
            GW_TRY(is_allowed(w, i)
                       ? gw_rules_call(w, i, "rest", (size_t)(mark - w->call.steps) + 1)
                       : GW_OK);
        }
        GW_TRY(put_any_of(w, "rest", "rest"));
    }
    PUT("calls ::= ");
    GW_TRY(gw_rules_put_marks(w->out, &w->begin, 0, NULL));
    PUT("%s ", first);
    if (!one_call) {
        PUT("( ");
        if (is_muse(w)) {
            GW_TRY(put_mark(w, "{<|eom|>}{<|start|>}assistant"));
        } else {
            GW_TRY(gw_rules_put_marks(w->out, &w->between, 0, NULL));
        }
        PUT("%s )* ", call);
    }
    GW_TRY(gw_rules_put_marks(w->out, &w->end, 0, NULL));
    PUT("\n");
    return GW_OK;
}

static gw_status put_calls(gw_rules_work *w) {
    size_t slot = gw_pattern_find(&w->call, GW_STEP_LIST);
    int one_call = w->r->one_call || (w->r->tools->flags & GW_TOOLS_ONE) != 0;
    slot = slot < w->call.n ? slot : gw_pattern_find(&w->call, GW_STEP_PYTHON);
    for (size_t i = 0; i < w->r->list->n; i++) {
        GW_TRY(is_allowed(w, i) ? gw_rules_tool(w, i) : GW_OK);
    }
    return slot < w->call.n ? put_listed_calls(w, slot, one_call) : put_separate_calls(w, one_call);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* What is there, what may be: calls are allowed, are needed; text is by a schema. */
typedef struct shape {
    int calls, forced, schema;
} shape;

/* Messages with headers: a header is open. */
static gw_status put_harmony(gw_rules_work *w, const shape *s) {
    PUT("next ::= ");
    GW_TRY(put_mark(w, "{<|end|>}{<|start|>}assistant"));
    PUT("message\nmessage ::= ");
    if (!s->forced || w->r->reason_first) {
        GW_TRY(put_mark(w, "{<|channel|>}analysis{<|message|>}"));
        PUT("free %s | ", s->forced || s->schema ? "next" : "next?");
    }
    if (!s->forced) {
        if (!s->schema) {
            GW_TRY(put_mark(w, "{<|channel|>}commentary{<|message|>}"));
            PUT("free next? | ");
        }
        GW_TRY(put_mark(w, "{<|channel|>}final{<|message|>}"));
        PUT("body%s", s->calls ? " | " : "\n");
    }
    if (s->calls) {
        PUT("calls\n");
    }
    return GW_OK;
}

static gw_status put_muse(gw_rules_work *w, const shape *s) {
    PUT("next ::= ");
    GW_TRY(put_mark(w, "{<|eom|>}{<|start|>}assistant"));
    PUT("message\nmessage ::= ");
    if (!s->forced || w->r->reason_first) {
        PUT("\" to=self\" ");
        GW_TRY(put_mark(w, "{<|message|>}"));
        PUT("free %s | ", s->forced || s->schema ? "next" : "next?");
    }
    if (!s->forced) {
        PUT("\" to=user\" ");
        GW_TRY(put_mark(w, "{<|message|>}"));
        PUT("body%s", s->calls ? " | " : "\n");
    }
    if (s->calls) {
        PUT("calls\n");
    }
    return GW_OK;
}

static gw_status put_messages(gw_rules_work *w, const shape *s) {
    GW_TRY(is_muse(w) ? put_muse(w, s) : put_harmony(w, s));
    PUT("root ::= %s\n", w->r->start == GW_START_HEADER ? "message"
                         : w->r->start == GW_START_REASONING
                             ? (s->forced || s->schema ? "free next" : "free next?")
                         : s->forced ? "next"
                                     : "body");
    return GW_OK;
}

/* Marks that stand around text and calls. */
static gw_status put_drops(gw_rules_work *w) {
    const char *bar = "";
    PUT("drops ::= ( ");
    for (int i = 0; w->r->reasoning != NULL && i < 4 && w->r->reasoning->drop[i] != NULL; i++) {
        PUT("%s", bar);
        GW_TRY(put_mark(w, w->r->reasoning->drop[i]));
        bar = "| ";
    }
    PUT(bar[0] != '\0' ? "){0,3}\n" : ")\n");
    return GW_OK;
}

/* Between two marks, or nothing of the kind. */
static gw_status put_tagged(gw_rules_work *w, const shape *s) {
    const char *after = s->forced   ? "called"
                        : !s->calls ? "told"
                        : s->schema ? "( told | called )"
                                    : "told called?";
    int has = w->open.n > 0, inside = w->r->start == GW_START_REASONING;
    GW_TRY(put_drops(w));
    PUT("told ::= drops body drops\n");
    if (s->calls) {
        PUT("called ::= drops calls \"\\n\"? drops\n");
    }
    if (has) {
        size_t n, marks = 0;
        mark_text text[MARKS + 1];
        const uint16_t *symbols = gw_pattern_mark(&w->close, &n);
        add_mark_text(text, &marks, symbols, n);
        GW_TRY(put_free(w, "thought", text, marks));
        PUT("closed ::= ");
        GW_TRY(put_symbols(w->out, symbols, n));
        PUT("\"\\n\"{0,2} %s\n", after);
        symbols = gw_pattern_mark(&w->open, &n);
        PUT("reasoned ::= ");
        GW_TRY(put_symbols(w->out, symbols, n));
        PUT("\"\\n\"? thought %s\n", s->forced || s->schema ? "closed" : "closed?");
    }
    if (inside && s->forced && !w->r->reason_first) {
        PUT("root ::= \"\\n\"{0,2} closed\n");
    } else if (inside) {
        PUT("root ::= thought %s\n", s->forced || s->schema ? "closed" : "closed?");
    } else if (has && (!s->forced || w->r->reason_first)) {
        PUT("root ::= %s | \"\\n\"? reasoned\n", after);
    } else {
        PUT("root ::= %s\n", after);
    }
    return GW_OK;
}

static gw_status put_body(gw_rules_work *w, const shape *s) {
    mark_text marks[MARKS + 1];
    size_t n = 0;
    const gw_pattern *both[2] = {&w->begin, &w->call};
    for (int i = 0; i < 2 && s->calls && !(is_harmony(w) && i == 1); i++) {
        const gw_step *first = gw_pattern_first(both[i]);
        if (first != NULL) {
            add_mark_text(marks, &n, both[i]->symbols + first->at, first->n);
        }
    }
    if (w->open.n > 0 && !s->schema) {
        size_t bytes;
        const uint16_t *symbols = gw_pattern_mark(&w->open, &bytes);
        add_mark_text(marks, &n, symbols, bytes);
    }
    GW_TRY(put_free(w, "free", marks, n));
    if (!s->schema) {
        PUT("body ::= free\n");
        return GW_OK;
    }
    PUT("body ::= f-root\n");
    return gw_json_schema_rules(w->r->schema, w->r->schema_bytes, "#", "f-", NULL, 0, w->out, NULL);
}

gw_status gw_answer_write_rules(const gw_answer_rules *rules, gw_bytes *out, gw_bytes *notes) {
    gw_rules_work work = {.r = rules, .out = out, .notes = notes}, *w = &work;
    const gw_tool_form *f = rules->tools;
    const gw_reasoning_form *g = rules->reasoning;
    shape s = {.schema = rules->schema != NULL};
    s.calls = f != NULL && f->call != NULL && rules->list != NULL && rules->list->n > 0 &&
              rules->choice != GW_TOOLS_NONE;
    s.forced = s.calls && rules->choice == GW_TOOLS_REQUIRED;
    /* where no mark tells a call, any text may come in its place */
    int loose = s.calls && !s.forced &&
                (rules->free_calls || (f->flags & (GW_TOOLS_BARE | GW_TOOLS_LISTED)) != 0);
    if (loose && !s.schema) {
        return GW_OK;
    }
    s.calls = s.calls && !(loose && rules->free_calls);
    if (!s.calls && !s.schema) {
        return GW_OK;
    }
    if (s.calls) {
        gw_pattern_read(f->begin, &rules->marks, &w->begin);
        gw_pattern_read((f->flags & GW_TOOLS_BARE) != 0 ? "%o" : f->call, &rules->marks, &w->call);
        gw_pattern_read(f->end, &rules->marks, &w->end);
        gw_pattern_read(f->between, &rules->marks, &w->between);
        gw_pattern_read(f->object, &rules->marks, &w->object);
        gw_pattern_read(f->param, &rules->marks, &w->param);
        GW_TRY(put_calls(w));
    }
    if (g != NULL && g->kind == GW_REASONING_TAGS) {
        gw_pattern_read(g->open, &rules->marks, &w->open);
        gw_pattern_read(g->close, &rules->marks, &w->close);
    }
    GW_TRY(put_body(w, &s));
    return is_muse(w) || is_harmony(w) ? put_messages(w, &s) : put_tagged(w, &s);
}
