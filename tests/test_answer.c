/* tests/test_answer.c - answers in parts (core/text/answer): every form whole, cut everywhere,
 * broken off everywhere, with marks as tokens and as text; and how forms are recognised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/file.h"
#include "core/text/answer/answer.h"
#include "tests/answer_cases.h"
#include "tests/sanitized.h"

enum { CALLS = 8 };

typedef struct found {
    gw_bytes text, thought;
    size_t n_calls; /* whole ones */
    char *names[CALLS], *ids[CALLS];
    gw_bytes arguments[CALLS];
    int open, broken; /* a call that has not ended; how many were none */
} found;

static void ok(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

static void forget(found *f) {
    free(f->text.data);
    free(f->thought.data);
    for (size_t i = 0; i < CALLS; i++) {
        free(f->names[i]);
        free(f->ids[i]);
        free(f->arguments[i].data);
    }
    *f = (found){0};
}

static void take_parts(found *f, const gw_part *parts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const gw_part *p = &parts[i];
        assert_true(f->n_calls < CALLS);
        gw_bytes *arguments = &f->arguments[f->n_calls];
        switch (p->kind) {
        case GW_PART_TEXT:
        case GW_PART_REASONING:
            assert_int_equal(f->open, 0);
            assert_true(p->bytes > 0 && p->text[p->bytes] == '\0');
            ok(gw_bytes_add(p->kind == GW_PART_TEXT ? &f->text : &f->thought, p->text, p->bytes));
            break;
        case GW_PART_CALL:
            assert_int_equal(f->open, 0);
            assert_int_equal(p->call, f->n_calls + (size_t)f->broken);
            assert_true(strlen(p->id) >= 9);
            f->open = 1;
            f->names[f->n_calls] = strdup(p->name);
            f->ids[f->n_calls] = strdup(p->id);
            break;
        case GW_PART_ARGUMENTS:
            assert_int_equal(f->open, 1);
            ok(gw_bytes_add(arguments, p->text, p->bytes));
            break;
        case GW_PART_CALL_END:
            assert_int_equal(f->open, 1);
            f->open = 0;
            f->n_calls++;
            break;
        default:
            assert_int_equal(f->open, 1);
            f->open = 0;
            f->broken++;
            arguments->n = 0;
            free(f->names[f->n_calls]);
            free(f->ids[f->n_calls]);
            f->names[f->n_calls] = f->ids[f->n_calls] = NULL;
        }
    }
}

/* ---- marks as tokens: all that stands in braces in a pattern ----------------------------------
 */

static int is_mark(const void *user, const char *text, size_t n) {
    (void)user;
    (void)text;
    return n > 0;
}

/* The longest mark of any pattern of the forms that the text begins with. */
static size_t mark_at(const gw_tool_form *t, const gw_reasoning_form *g, const char *at, size_t n) {
    static const char *const headers =
        "{<|start|>}{<|channel|>}{<|message|>}{<|constrain|>}{<|end|>}{<|call|>}{<|return|>}"
        "{<|eom|>}{<|eot|>}{<|\"|>}";
    int has_headers = g != NULL && g->kind != GW_REASONING_TAGS;
    const char *all[16] = {t != NULL ? t->begin : NULL,
                           t != NULL ? t->call : NULL,
                           t != NULL ? t->end : NULL,
                           t != NULL ? t->param : NULL,
                           g != NULL ? g->open : NULL,
                           g != NULL ? g->close : NULL,
                           has_headers || (t != NULL && strcmp(t->name, "gemma-4") == 0) ? headers
                                                                                         : NULL};
    size_t best = 0;
    for (int i = 0; i < 4 && g != NULL; i++) {
        all[7 + i] = g->drop[i];
    }
    for (int i = 0; i < 16; i++) {
        for (const char *p = all[i] != NULL ? strchr(all[i], '{') : NULL; p != NULL;
             p = strchr(p + 1, '{')) {
            size_t bytes = strcspn(p + 1, "}");
            if (bytes <= n && bytes > best && memcmp(p + 1, at, bytes) == 0) {
                best = bytes;
            }
        }
    }
    return best;
}

typedef struct rig {
    const answer_case *c;
    gw_tools tools;
    gw_reader *reader;
    const gw_tool_form *form;
    const gw_reasoning_form *reasoning;
    int tokens;
} rig;

static void open_rig(rig *r, const answer_case *c, int tokens, int whole_calls) {
    *r = (rig){.c = c,
               .form = gw_tool_form_named(c->tools),
               .reasoning = gw_reasoning_form_named(c->reasoning),
               .tokens = tokens};
    assert_non_null(r->form);
    assert_non_null(r->reasoning);
    ok(gw_tools_read(CASE_TOOLS, strlen(CASE_TOOLS), &r->tools));
    gw_reader_options options = {
        .tools = r->form, .reasoning = r->reasoning, .list = &r->tools, .whole_calls = whole_calls};
    options.marks.is_token = tokens ? is_mark : NULL;
    ok(gw_reader_new(&options, &r->reader));
}

static void close_rig(rig *r) {
    gw_reader_free(r->reader);
    gw_tools_free(&r->tools);
}

/* n bytes in pieces of `piece`; marks come alone where they are tokens. */
static void feed(rig *r, const char *text, size_t n, size_t piece, int is_prompt, found *f) {
    const gw_part *parts;
    size_t n_parts;
    for (size_t at = 0; at < n;) {
        size_t mark = r->tokens ? mark_at(r->form, r->reasoning, text + at, n - at) : 0;
        size_t take = mark > 0 ? mark : 1;
        while (
            mark == 0 && take < piece && at + take < n &&
            (!r->tokens || mark_at(r->form, r->reasoning, text + at + take, n - at - take) == 0)) {
            take++;
        }
        if (is_prompt) {
            ok(gw_reader_prompt(r->reader, text + at, take, mark > 0));
        } else {
            ok(gw_reader_push(r->reader, text + at, take, mark > 0, &parts, &n_parts));
            take_parts(f, parts, n_parts);
        }
        at += take;
    }
}

/* Tokens are not cut. */
static size_t whole_tokens(const rig *r, size_t end) {
    for (size_t at = 0; r->tokens && at < end;) {
        size_t mark = mark_at(r->form, r->reasoning, r->c->answer + at, strlen(r->c->answer) - at);
        if (at + mark > end) {
            return at;
        }
        at += mark > 0 ? mark : 1;
    }
    return end;
}

/* The first n bytes of the answer, cut at `cut` and else in pieces. */
static void read_answer(rig *r, size_t n, size_t cut, size_t piece, found *f) {
    const gw_part *parts;
    size_t n_parts;
    ok(gw_reader_reset(r->reader));
    feed(r, r->c->prompt, strlen(r->c->prompt), piece, 1, NULL);
    n = whole_tokens(r, n);
    cut = whole_tokens(r, cut < n ? cut : n);
    feed(r, r->c->answer, cut, piece, 0, f);
    feed(r, r->c->answer + cut, n - cut, piece, 0, f);
    ok(gw_reader_end(r->reader, NULL, 0, &parts, &n_parts));
    take_parts(f, parts, n_parts);
    assert_int_equal(f->open, 0);
}

static int same_text(const gw_bytes *a, const char *text) {
    return a->n == strlen(text) && (a->n == 0 || memcmp(a->data, text, a->n) == 0);
}

static void must_be_call(const answer_case *c, size_t i, const found *f) {
    const char *want = c->calls[i], *space = strchr(want, ' ');
    json_error_t why;
    json_t *a = json_loads(space + 1, 0, &why);
    json_t *b = json_loadb(f->arguments[i].data, f->arguments[i].n, JSON_REJECT_DUPLICATES, &why);
    if (b == NULL) {
        fail_msg("%s: arguments %.*s: %s", c->tools, (int)f->arguments[i].n, f->arguments[i].data,
                 why.text);
    }
    assert_non_null(a);
    if (strncmp(f->names[i], want, (size_t)(space - want)) != 0 ||
        strlen(f->names[i]) != (size_t)(space - want) || !json_equal(a, b)) {
        fail_msg("%s: call %s %.*s instead of %s", c->tools, f->names[i], (int)f->arguments[i].n,
                 f->arguments[i].data, want);
    }
    json_decref(a);
    json_decref(b);
}

static size_t calls_of(const answer_case *c) {
    size_t n = 0;
    while (n < 3 && c->calls[n] != NULL) {
        n++;
    }
    return n;
}

static void must_be(const answer_case *c, const found *f, size_t cut) {
    if (!same_text(&f->text, c->text) || !same_text(&f->thought, c->thought) ||
        f->n_calls != calls_of(c)) {
        fail_msg("%s, cut at %zu:\n%s\ntext [%.*s]\nthought [%.*s]\n%zu calls", c->tools, cut,
                 c->answer, (int)f->text.n, f->text.n > 0 ? f->text.data : "", (int)f->thought.n,
                 f->thought.n > 0 ? f->thought.data : "", f->n_calls);
    }
    for (size_t i = 0; i < f->n_calls; i++) {
        must_be_call(c, i, f);
    }
}

/* A mark in a text can be no token. */
static int spells_mark(const answer_case *c) {
    return strstr(c->answer, "</tool_call>\\\"") != NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_whole_and_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < ANSWER_CASES; i++) {
        const answer_case *c = &answer_cases[i];
        size_t n = strlen(c->answer);
        for (int how = 0; how < 4; how += 1 + spells_mark(c)) {
            rig r;
            open_rig(&r, c, how & 1, how >> 1);
            for (size_t cut = 0; cut <= n; cut += TEST_SANITIZED ? 7 : 1) {
                found f = {0};
                read_answer(&r, n, cut, n, &f);
                must_be(c, &f, cut);
                forget(&f);
            }
            for (size_t piece = 1; piece < 6; piece += 2) {
                found f = {0};
                read_answer(&r, n, 0, piece, &f);
                must_be(c, &f, 0);
                forget(&f);
            }
            close_rig(&r);
        }
    }
}

static int begins(const gw_bytes *all, const gw_bytes *part) {
    return part->n <= all->n && (part->n == 0 || memcmp(all->data, part->data, part->n) == 0);
}

/* Broken off after any byte: the calls so far are there, what is thought so far is thought, and
 * with marks that are tokens nothing but a call that is not whole is text. */
static void test_broken_off(void **state) {
    (void)state;
    for (size_t i = 0; i < ANSWER_CASES; i++) {
        const answer_case *c = &answer_cases[i];
        size_t n = strlen(c->answer);
        for (int how = 0; how < 4; how += 1 + spells_mark(c)) {
            rig r;
            found all = {0};
            size_t calls = 0;
            open_rig(&r, c, how & 1, how >> 1);
            read_answer(&r, n, 0, n, &all);
            for (size_t end = 0; end <= n; end += TEST_SANITIZED ? 5 : 1) {
                found f = {0}, again = {0};
                read_answer(&r, end, 0, n, &f);
                read_answer(&r, end, 0, 3, &again);
                assert_true(f.n_calls >= calls && f.n_calls <= all.n_calls);
                for (size_t k = 0; k < f.n_calls; k++) {
                    must_be_call(c, k, &f);
                }
                calls = f.n_calls;
                assert_true(begins(&f.text, &again.text) && f.text.n == again.text.n);
                assert_true(begins(&f.thought, &again.thought) && f.thought.n == again.thought.n);
                assert_int_equal(f.n_calls, again.n_calls);
                assert_true(f.text.n + f.thought.n <= end);
                forget(&f);
                forget(&again);
            }
            forget(&all);
            close_rig(&r);
        }
    }
}

/* A mark that is a token is none where text spells it. */
static void test_spelled_marks(void **state) {
    (void)state;
    static const answer_case spelled = {"hermes", "think", "", HERMES("get_weather", W) "<think>",
                                        "",       "",      {0}};
    rig r;
    found f = {0};
    const gw_part *parts;
    size_t n, bytes = strlen(spelled.answer);
    open_rig(&r, &spelled, 1, 0);
    ok(gw_reader_push(r.reader, spelled.answer, bytes, 0, &parts, &n));
    take_parts(&f, parts, n);
    ok(gw_reader_end(r.reader, NULL, 0, &parts, &n));
    take_parts(&f, parts, n);
    assert_int_equal(f.n_calls, 0);
    assert_int_equal(f.text.n, bytes);
    assert_memory_equal(f.text.data, spelled.answer, bytes);
    forget(&f);
    /* ... and a token that is no mark is no text */
    ok(gw_reader_reset(r.reader));
    ok(gw_reader_push(r.reader, "a", 1, 0, &parts, &n));
    take_parts(&f, parts, n);
    ok(gw_reader_push(r.reader, "<|strange|>", 11, 1, &parts, &n));
    take_parts(&f, parts, n);
    ok(gw_reader_push(r.reader, "b", 1, 0, &parts, &n));
    take_parts(&f, parts, n);
    assert_true(same_text(&f.text, "ab"));
    forget(&f);
    close_rig(&r);
}

/* Arguments go out while they come. */
static void test_streams(void **state) {
    (void)state;
    static const char *const forms[] = {"hermes", "qwen3-coder", "mistral", "harmony"};
    for (size_t i = 0; i < ANSWER_CASES; i++) {
        const answer_case *c = &answer_cases[i];
        int chosen = 0;
        for (size_t k = 0; k < 4; k++) {
            chosen |= strcmp(forms[k], c->tools) == 0 && strstr(c->answer, W) != NULL;
        }
        const char *half = strstr(c->answer, "rich");
        if (!chosen || half == NULL) {
            continue;
        }
        rig r;
        found f = {0};
        open_rig(&r, c, 0, 0);
        ok(gw_reader_reset(r.reader));
        feed(&r, c->prompt, strlen(c->prompt), 1, 1, NULL);
        feed(&r, c->answer, (size_t)(half - c->answer), 1, 0, &f);
        assert_int_equal(f.open, 1);
        assert_string_equal(f.names[0], "get_weather");
        assert_true(f.arguments[0].n > 8);
        forget(&f);
        close_rig(&r);
    }
}

static void test_ids(void **state) {
    (void)state;
    const answer_case *c = &answer_cases[0];
    found f = {0};
    rig r;
    open_rig(&r, c, 0, 0);
    read_answer(&r, strlen(c->answer), 0, 1, &f);
    assert_int_equal(strlen(f.ids[0]), 9);
    assert_string_not_equal(f.ids[0], f.ids[1]);
    forget(&f);
    close_rig(&r);
    for (size_t i = 0; i < ANSWER_CASES; i++) {
        const char *form = answer_cases[i].tools;
        const char *id = strcmp(form, "mistral-id") == 0 ? "abcdefghi"
                         : strcmp(form, "kimi-k2") == 0  ? "functions.get_weather:0"
                                                         : NULL;
        if (id == NULL) {
            continue;
        }
        open_rig(&r, &answer_cases[i], 1, 0);
        read_answer(&r, strlen(answer_cases[i].answer), 0, 1, &f);
        assert_string_equal(f.ids[0], id);
        forget(&f);
        close_rig(&r);
    }
}

/* Each of many beginnings is looked at once. */
static void test_hostile(void **state) {
    (void)state;
    enum { TIMES = 20000 };
    static const char *const pieces[] = {"<tool_call>",
                                         "<tool_call>{\"name\":\"a\",\"arguments\":{\"b\":\"",
                                         "[",
                                         "{\"a\":",
                                         "<tool_call>\n<function=a>\n<parameter=b>\n",
                                         "\n \n",
                                         "<think>",
                                         "functools[{",
                                         ">>>a\n{"};
    for (size_t k = 0; k < sizeof pieces / sizeof pieces[0]; k++) {
        for (size_t i = 0; i < ANSWER_CASES; i += 9) {
            rig r;
            gw_bytes text = {0};
            found f = {0};
            const gw_part *parts;
            size_t n;
            for (int t = 0; t < TIMES / (TEST_SANITIZED ? 20 : 1); t++) {
                ok(gw_bytes_add(&text, pieces[k], strlen(pieces[k])));
            }
            open_rig(&r, &answer_cases[i], 0, 1);
            ok(gw_reader_push(r.reader, text.data, text.n, 0, &parts, &n));
            take_parts(&f, parts, n);
            ok(gw_reader_end(r.reader, NULL, 0, &parts, &n));
            take_parts(&f, parts, n);
            assert_true(f.text.n + f.thought.n <= text.n);
            forget(&f);
            free(text.data);
            close_rig(&r);
        }
    }
}

/* ---- which form ------------------------------------------------------------------------------ */

static void test_detection(void **state) {
    (void)state;
    static const struct {
        const char *folder, *tools, *reasoning;
    } rows[] = {{"apertus", "apertus", "apertus"},
                {"command-r-plus-tool-use", "command-r", "none"},
                {"command-r7b-tool-use", "command-r7b", "command-r7b"},
                {"deepseek-v3.1", "deepseek-v3.1", "think"},
                {"deepseek-v4", "deepseek-v4", "think"},
                {"firefunction-2", "firefunction", "none"},
                {"functionary-3.1", "functionary-3.1", "none"},
                {"functionary-3.2", "functionary-3.2", "none"},
                {"gemma-2", "json", "none"},
                {"gemma-3", "json", "none"},
                {"gemma-4", "gemma-4", "gemma-4"},
                {"glm-4.6", "glm-4.5", "think"},
                {"glm-4.7-flash", "glm-4.7", "think"},
                {"gpt-oss", "harmony", "harmony"},
                {"granite-4.0", "hermes", "none"},
                {"hermes-3-tool-use", "hermes", "none"},
                {"hy3", "hy3", "hy3"},
                {"kimi-k2", "kimi-k2", "none"},
                {"kimi-k3", "kimi-k3", "kimi-k3"},
                {"lfm2.5-8b", "lfm2", "think"},
                {"llama-3.1", "llama-3", "none"},
                {"llama-3.2", "llama-3", "none"},
                {"minicpm5", "minicpm5", "think"},
                {"minimax-m2", "minimax-m2", "think"},
                {"ministral-3-reasoning", "mistral", "magistral"},
                {"mistral-nemo", "mistral-list", "none"},
                {"mistral-small-3.2", "mistral-id", "none"},
                {"muse-glimmer", "muse", "muse"},
                {"nemotron-3-nano", "qwen3-coder", "think"},
                {"phi-4", "json", "none"},
                {"qwen2.5", "hermes", "none"},
                {"qwen3", "hermes", "think"},
                {"qwen3-coder", "qwen3-coder", "none"},
                {"qwen3.5", "qwen3-coder", "think"},
                {"r1-distill-llama", "deepseek-r1", "think"},
                {"reka-edge", "hermes", "think"},
                {"seed-oss", "seed-oss", "seed-oss"},
                {"smollm3", "json", "think"}};
    const char *root = getenv("GODWIT_SHARED");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[1024];
        gw_file file;
        snprintf(path, sizeof path, "%s/templates/%s/template.jinja",
                 root != NULL ? root : "../shared", rows[i].folder);
        if (gw_file_open(path, path, &file) != GW_OK) {
            print_message("SKIP: %s (set GODWIT_SHARED)\n", gw_error_text());
            skip();
        }
        const char *text = (const char *)file.data;
        if (strcmp(gw_tool_form_of(text, file.size)->name, rows[i].tools) != 0 ||
            strcmp(gw_reasoning_form_of(text, file.size)->name, rows[i].reasoning) != 0) {
            fail_msg("%s: %s, %s", rows[i].folder, gw_tool_form_of(text, file.size)->name,
                     gw_reasoning_form_of(text, file.size)->name);
        }
        gw_file_close(&file);
    }
}

/* Every form has a case. */
static void test_all_forms(void **state) {
    (void)state;
    const gw_tool_form *t;
    const gw_reasoning_form *g;
    for (size_t i = 0; (t = gw_tool_form_at(i)) != NULL; i++) {
        int has = 0;
        for (size_t k = 0; k < ANSWER_CASES; k++) {
            has |= strcmp(answer_cases[k].tools, t->name) == 0;
        }
        if (!has) {
            fail_msg("no case of %s", t->name);
        }
    }
    for (size_t i = 0; (g = gw_reasoning_form_at(i)) != NULL; i++) {
        int has = 0;
        for (size_t k = 0; k < ANSWER_CASES; k++) {
            has |= strcmp(answer_cases[k].reasoning, g->name) == 0;
        }
        if (!has) {
            fail_msg("no case of %s", g->name);
        }
    }
}

static void test_tools(void **state) {
    (void)state;
    static const struct {
        const char *text;
        gw_status status;
    } rows[] = {{"[]", GW_OK},
                {"[{\"name\":\"a\"}]", GW_OK},
                {"[{\"type\":\"web_search\"},{\"name\":\"a\",\"parameters\":{}}]", GW_OK},
                {"{}", GW_E_TYPE},
                {"[3]", GW_E_TYPE},
                {"[{\"type\":\"function\",\"function\":{}}]", GW_E_TYPE},
                {"[{\"name\":\"a\",\"parameters\":[]}]", GW_E_TYPE},
                {"[{", GW_E_SYNTAX}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_tools tools = {0};
        assert_int_equal(gw_tools_read(rows[i].text, strlen(rows[i].text), &tools), rows[i].status);
        assert_true(tools.n <= 1 && (i == 0 || rows[i].status != GW_OK || tools.n == 1));
        gw_tools_free(&tools);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_and_cut), cmocka_unit_test(test_broken_off),
        cmocka_unit_test(test_spelled_marks), cmocka_unit_test(test_streams),
        cmocka_unit_test(test_ids),           cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_detection),     cmocka_unit_test(test_all_forms),
        cmocka_unit_test(test_tools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
