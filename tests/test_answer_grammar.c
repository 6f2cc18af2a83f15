/* tests/test_answer_grammar.c - forced answers (core/text/answer): any walk through the grammar of
 * a form is read back as calls whose arguments fit their schemas, and what models write is allowed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/text/answer/answer.h"
#include "core/text/grammar/json_schema.h"
#include "tests/answer_cases.h"
#include "tests/sanitized.h"

enum { BYTES = 256, MARKS = 160, STEPS = 6000, WALKS = TEST_SANITIZED ? 2 : 12 };

static void ok(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

/* ---- a vocabulary: every byte, and every mark of the forms as a token ---------------------------
 */

typedef struct rig {
    gw_vocab_token tokens[BYTES + MARKS];
    gw_vocab vocab;
    gw_tokenizer *tokenizer;
    gw_token_tree *tree;
    size_t n;
} rig;

static rig the;

static int find_token(const char *text, size_t n) {
    for (size_t i = BYTES; i < the.n; i++) {
        if (the.tokens[i].bytes == n && memcmp(the.tokens[i].text, text, n) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int is_token(const void *user, const char *text, size_t n) {
    return user != NULL && find_token(text, n) >= 0;
}

static void add_tokens(const char *pattern) {
    for (const char *p = pattern != NULL ? strchr(pattern, '{') : NULL; p != NULL;
         p = strchr(p, '{')) {
        size_t n = strcspn(++p, "}");
        if (*p == '{') {
            p++;
        } else if (find_token(p, n) < 0) {
            assert_true(the.n < BYTES + MARKS - 1);
            the.tokens[the.n++] =
                (gw_vocab_token){.text = p, .bytes = (uint32_t)n, .kind = GW_TOKEN_CONTROL};
        }
    }
}

static int open_rig(void **state) {
    static char spelled[BYTES][8];
    const gw_tool_form *t;
    const gw_reasoning_form *g;
    (void)state;
    gw_vocab_init(&the.vocab);
    the.vocab.kind = GW_VOCAB_SPM_BPE;
    for (int i = 0; i < BYTES; i++) {
        snprintf(spelled[i], sizeof spelled[i], "<0x%02X>", (unsigned)i);
        the.tokens[i] = (gw_vocab_token){.text = spelled[i], .bytes = 6, .kind = GW_TOKEN_BYTE};
    }
    the.n = BYTES;
    for (size_t i = 0; (t = gw_tool_form_at(i)) != NULL; i++) {
        add_tokens(t->begin);
        add_tokens(t->call);
        add_tokens(t->end);
        add_tokens(t->param);
    }
    for (size_t i = 0; (g = gw_reasoning_form_at(i)) != NULL; i++) {
        add_tokens(g->open);
        add_tokens(g->close);
        for (int k = 0; k < 4; k++) {
            add_tokens(g->drop[k]);
        }
    }
    add_tokens("{<|start|>}{<|channel|>}{<|message|>}{<|constrain|>}{<|end|>}{<|eom|>}{<|call|>}{<|"
               "eot|>}");
    the.tokens[the.n++] = (gw_vocab_token){.text = "</s>", .bytes = 4, .kind = GW_TOKEN_CONTROL};
    the.vocab.tokens = the.tokens;
    the.vocab.n_tokens = the.n;
    the.vocab.eos = (int32_t)the.n - 1;
    return gw_vocab_check("test", &the.vocab) != GW_OK ||
           gw_tokenizer_new(&the.vocab, &the.tokenizer) != GW_OK ||
           gw_token_tree_new(&the.vocab, the.tokenizer, the.n, &the.tree) != GW_OK;
}

static int close_rig(void **state) {
    (void)state;
    gw_token_tree_free(the.tree);
    gw_tokenizer_free(the.tokenizer);
    return 0;
}

/* ---- one answer ------------------------------------------------------------------------------ */

typedef struct job {
    const gw_tool_form *tools;
    const gw_reasoning_form *reasoning;
    const char *prompt;
    gw_tool_choice choice;
    const char *named;
    int one_call, reason_first, tokens;
    const char *schema;
    gw_tools list;
    gw_reader *reader;
    gw_program *program;
    gw_matcher *matcher;
    gw_bytes rules, notes;
} job;

/* Text as tokens: marks are tokens where they are to be. */
static size_t take_piece(const job *j, const char *text, size_t n, int *id) {
    size_t best = 1;
    *id = (unsigned char)text[0];
    for (size_t i = BYTES; i < the.n && j->tokens; i++) {
        size_t bytes = the.tokens[i].bytes;
        if (bytes <= n && bytes > best && memcmp(the.tokens[i].text, text, bytes) == 0) {
            best = bytes;
            *id = (int)i;
        }
    }
    return best;
}

/* 0: anything goes. */
static int open_job(job *j, const char *tools) {
    gw_marks marks = {is_token, j->tokens ? &the : NULL};
    ok(gw_tools_read(tools, strlen(tools), &j->list));
    gw_reader_options reader = {.tools = j->tools,
                                .reasoning = j->reasoning,
                                .list = &j->list,
                                .marks = marks,
                                .whole_calls = 1};
    ok(gw_reader_new(&reader, &j->reader));
    for (size_t at = 0, n = strlen(j->prompt); at < n;) {
        int id;
        size_t bytes = take_piece(j, j->prompt + at, n - at, &id);
        ok(gw_reader_prompt(j->reader, j->prompt + at, bytes, id >= BYTES));
        at += bytes;
    }
    gw_answer_rules rules = {.tools = j->tools,
                             .reasoning = j->reasoning,
                             .list = &j->list,
                             .marks = marks,
                             .start = gw_reader_start(j->reader),
                             .choice = j->choice,
                             .named = j->named,
                             .one_call = j->one_call,
                             .reason_first = j->reason_first,
                             .schema = j->schema,
                             .schema_bytes = j->schema != NULL ? strlen(j->schema) : 0};
    ok(gw_answer_write_rules(&rules, &j->rules, &j->notes));
    if (j->rules.n == 0) {
        return 0;
    }
    if (gw_grammar_link("answer", j->rules.data, j->rules.n, &j->program) != GW_OK) {
        fail_msg("%s: %s\n%.*s", j->tools->name, gw_error_text(), (int)j->rules.n, j->rules.data);
    }
    ok(gw_matcher_new(j->program, the.tree, &the.vocab.eos, 1, (int32_t)the.n, &j->matcher));
    return 1;
}

static void close_job(job *j) {
    gw_matcher_free(j->matcher);
    gw_program_free(j->program);
    gw_reader_free(j->reader);
    gw_tools_free(&j->list);
    free(j->rules.data);
    free(j->notes.data);
}

/* Does the JSON fit the tool's schema? */
static int fits(const gw_tool *tool, const char *text) {
    json_t *any = json_pack("{s:s}", "type", "object");
    char *schema = json_dumps(tool->parameters != NULL ? tool->parameters : any, 0);
    gw_program *program = NULL;
    gw_matcher *m = NULL;
    int taken = 0;
    ok(gw_json_schema_compile(schema, strlen(schema), &program));
    ok(gw_matcher_new(program, the.tree, &the.vocab.eos, 1, (int32_t)the.n, &m));
    ok(gw_matcher_bytes(m, text, strlen(text), &taken));
    taken = taken && gw_matcher_may_end(m);
    gw_matcher_free(m);
    gw_program_free(program);
    json_decref(any);
    free(schema);
    return taken;
}

typedef struct seen {
    size_t calls;
    gw_bytes text;
    char name[64];
} seen;

static void take_parts(const job *j, seen *s, const gw_part *parts, size_t n, const gw_bytes *all) {
    for (size_t i = 0; i < n; i++) {
        if (parts[i].kind == GW_PART_TEXT) {
            ok(gw_bytes_add(&s->text, parts[i].text, parts[i].bytes));
        }
        if (parts[i].kind == GW_PART_CALL) {
            snprintf(s->name, sizeof s->name, "%s", parts[i].name);
        }
        if (parts[i].kind == GW_PART_ARGUMENTS) {
            const gw_tool *tool = gw_tools_find(&j->list, s->name, strlen(s->name));
            if (tool == NULL || !fits(tool, parts[i].text)) {
                fail_msg("%s: %s(%s) in\n%.*s", j->tools->name, s->name, parts[i].text, (int)all->n,
                         all->data);
            }
            s->calls++;
        }
    }
}

static uint32_t random_of(uint32_t *state, uint32_t n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static int allowed(const gw_token_mask *mask, int32_t id) {
    return (int)(mask->bits[id / 64] >> (id % 64) & 1);
}

/* Mostly what ends something, so that a text has an end. */
static int32_t pick(const gw_token_mask *mask, uint32_t *random) {
    static const char ends[] = "\"}])>\n<,e0";
    if (allowed(mask, the.vocab.eos) && random_of(random, 2) == 0) {
        return the.vocab.eos;
    }
    if (random_of(random, 3) != 0) {
        const char *at = ends + random_of(random, sizeof ends - 1);
        if (allowed(mask, *at)) {
            return *at;
        }
    }
    if (random_of(random, 4) == 0) { /* a token */
        size_t n = the.n - 1 - BYTES, from = random_of(random, (uint32_t)n);
        for (size_t i = 0; i < n; i++) {
            int32_t id = (int32_t)(BYTES + (from + i) % n);
            if (allowed(mask, id)) {
                return id;
            }
        }
    }
    for (int tries = 0; tries < 4000; tries++) {
        int32_t id = (int32_t)random_of(random, (uint32_t)the.n);
        if (allowed(mask, id) && (tries > 40 || id < 128)) {
            return id;
        }
    }
    return -1;
}

/* A walk from the first token to the end; what it has been read as. */
static void walk(job *j, uint32_t seed, seen *s) {
    uint32_t random = seed;
    gw_bytes all = {0};
    const gw_part *parts;
    size_t n;
    int ended = 0;
    for (int step = 0; step < STEPS && !ended; step++) {
        gw_token_mask mask;
        int taken = 0;
        ok(gw_matcher_mask(j->matcher, &mask));
        int32_t id = pick(&mask, &random);
        if (id < 0) {
            fail_msg("%s: nothing goes on behind\n%.*s", j->tools->name, (int)all.n, all.data);
        }
        ended = id == the.vocab.eos;
        if (ended) {
            break;
        }
        ok(gw_matcher_token(j->matcher, id, &taken));
        assert_true(taken);
        char byte = (char)id;
        const char *text = id < BYTES ? &byte : the.tokens[id].text;
        size_t bytes = id < BYTES ? 1 : the.tokens[id].bytes;
        ok(gw_bytes_add(&all, text, bytes));
        ok(gw_reader_push(j->reader, text, bytes, id >= BYTES, &parts, &n));
        take_parts(j, s, parts, n, &all);
        ended = gw_matcher_at_end(j->matcher);
    }
    if (!ended) {
        fail_msg("%s: no end of\n%.*s", j->tools->name, (int)all.n, all.data);
    }
    ok(gw_reader_end(j->reader, NULL, 0, &parts, &n));
    take_parts(j, s, parts, n, &all);
    if (j->choice == GW_TOOLS_REQUIRED &&
        (s->calls == 0 || s->text.n > 0 || (j->one_call && s->calls > 1))) {
        fail_msg("%s: %zu calls, text [%.*s] in\n%.*s", j->tools->name, s->calls, (int)s->text.n,
                 s->text.n > 0 ? s->text.data : "", (int)all.n, all.data);
    }
    free(all.data);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Schemas whose values a form without quotes could spoil. */
#define HARD_TOOLS                                                                                 \
    "[{\"name\":\"hard\",\"parameters\":{\"type\":\"object\",\"properties\":{"                     \
    "\"a\":{\"type\":\"string\",\"pattern\":\"^[a-z<>/=]{1,6}$\"},"                                \
    "\"b\":{\"type\":[\"string\",\"null\"],\"maxLength\":5},"                                      \
    "\"c\":{\"anyOf\":[{\"type\":\"string\",\"minLength\":1,\"maxLength\":4},{\"type\":"           \
    "\"integer\",\"minimum\":10},{\"type\":\"boolean\"}]},"                                        \
    "\"d\":{\"$ref\":\"#/$defs/d\"},\"e\":{\"enum\":[\"x y\",\"</parameter>\",7,null]},"           \
    "\"f\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},\"maxItems\":2},"   \
    "\"g\":{\"type\":\"string\",\"format\":\"date\"},\"h\":{\"const\":\"\xC3\xA9\"}},"             \
    "\"required\":[\"a\",\"c\",\"h\"],\"additionalProperties\":false,"                             \
    "\"$defs\":{\"d\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"number\","            \
    "\"minimum\":"                                                                                 \
    "0.5,\"maximum\":2}},\"required\":[\"k\"],\"additionalProperties\":false}}}},"                 \
    "{\"name\":\"none\",\"parameters\":{\"type\":\"object\",\"properties\":{},"                    \
    "\"additionalProperties\":false}},"                                                            \
    "{\"name\":\"one\",\"parameters\":{\"properties\":{\"on\":{\"type\":\"boolean\"}},"            \
    "\"required\":[\"on\"],\"additionalProperties\":false}}]"

/* A reasoning form that goes with a form of calls: that of the first case. */
static const answer_case *case_of(const char *tools) {
    for (size_t i = 0; i < ANSWER_CASES; i++) {
        if (strcmp(answer_cases[i].tools, tools) == 0) {
            return &answer_cases[i];
        }
    }
    return NULL;
}

static void test_forced(void **state) {
    (void)state;
    const gw_tool_form *t;
    for (size_t i = 0; (t = gw_tool_form_at(i)) != NULL && t->call != NULL; i++) {
        const answer_case *c = case_of(t->name);
        for (uint32_t k = 0; k < WALKS; k++) {
            job j = {.tools = t,
                     .reasoning = gw_reasoning_form_named(c->reasoning),
                     .prompt = c->prompt,
                     .choice = GW_TOOLS_REQUIRED,
                     .tokens = (int)(k & 1),
                     .one_call = (int)(k >> 1 & 1),
                     .reason_first = (int)(k >> 2 & k & 1) && strcmp(c->reasoning, "apriel") !=
                                                                  0, /* text seldom spells a mark */
                     .named = k % 5 == 4 ? "hard" : NULL};
            seen s = {0};
            assert_int_equal(open_job(&j, HARD_TOOLS), 1);
            if (j.notes.n > 0) {
                fail_msg("%s: %s", t->name, j.notes.data);
            }
            walk(&j, k * 7919 + (uint32_t)i, &s);
            assert_true(j.named == NULL || strcmp(s.name, "hard") == 0);
            free(s.text.data);
            close_job(&j);
        }
    }
}

static void test_auto(void **state) {
    (void)state;
    const gw_tool_form *t;
    size_t calls = 0;
    for (size_t i = 0; (t = gw_tool_form_at(i)) != NULL && t->call != NULL; i++) {
        const answer_case *c = case_of(t->name);
        for (uint32_t k = 0; k < WALKS; k++) {
            job j = {.tools = t,
                     .reasoning = gw_reasoning_form_named(c->reasoning),
                     .prompt = c->prompt,
                     .tokens = (int)(k & 1)};
            seen s = {0};
            int loose = (t->flags & (GW_TOOLS_BARE | GW_TOOLS_LISTED)) != 0;
            assert_int_equal(open_job(&j, HARD_TOOLS), !loose);
            if (!loose) {
                walk(&j, k * 104729 + (uint32_t)i, &s);
            }
            calls += s.calls;
            free(s.text.data);
            close_job(&j);
        }
    }
    assert_true(calls > 0 || TEST_SANITIZED);
}

/* What templates write is what a model was trained on: it may be written. */
static void test_own_text(void **state) {
    (void)state;
    for (size_t i = 0; i < ANSWER_CASES; i++) {
        const answer_case *c = &answer_cases[i];
        job j = {.tools = gw_tool_form_named(c->tools),
                 .reasoning = gw_reasoning_form_named(c->reasoning),
                 .prompt = c->prompt,
                 .tokens = 1};
        if (c != case_of(c->tools) || j.tools->call == NULL || !open_job(&j, CASE_TOOLS)) {
            close_job(&j);
            continue;
        }
        size_t n = strlen(c->answer);
        for (size_t at = 0; at < n;) {
            int id, taken = 0;
            size_t bytes = take_piece(&j, c->answer + at, n - at, &id);
            if (bytes >= 7 && (memcmp(c->answer + at, "<|call|>", 7) == 0 ||
                               memcmp(c->answer + at, "<|eot|>", 7) == 0)) {
                break; /* ends of an answer */
            }
            ok(gw_matcher_token(j.matcher, id, &taken));
            if (!taken) {
                fail_msg("%s: not allowed at %zu: %s", c->tools, at, c->answer + at);
            }
            at += bytes;
        }
        assert_true(gw_matcher_may_end(j.matcher));
        close_job(&j);
    }
}

static void test_schema(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
        "\"required\":[\"a\"],\"additionalProperties\":false}";
    for (size_t i = 0; i < ANSWER_CASES; i += 3) {
        const answer_case *c = &answer_cases[i];
        if (strcmp(c->reasoning, "apriel") == 0) {
            continue; /* text seldom spells a mark */
        }
        for (int k = 1; k < 4; k += 2) {
            job j = {.tools = gw_tool_form_named(c->tools),
                     .reasoning = gw_reasoning_form_named(c->reasoning),
                     .prompt = c->prompt,
                     .tokens = k & 1,
                     .choice = k >> 1 ? GW_TOOLS_NONE : GW_TOOLS_AUTO,
                     .schema = schema};
            seen s = {0};
            assert_int_equal(open_job(&j, HARD_TOOLS), 1);
            walk(&j, (uint32_t)(i * 31 + (size_t)k), &s);
            if (s.calls == 0) {
                gw_tool by_schema = {.parameters = json_loads(schema, 0, NULL)};
                ok(gw_bytes_add(&s.text, "", 1));
                if (j.choice == GW_TOOLS_NONE || s.text.data[0] == '{') {
                    if (!fits(&by_schema, s.text.data)) {
                        fail_msg("%s, %s: [%s]", c->tools, c->reasoning, s.text.data);
                    }
                }
                json_decref(by_schema.parameters);
            }
            free(s.text.data);
            close_job(&j);
        }
    }
}

/* A schema that cannot be kept is any object, and said. */
static void test_notes(void **state) {
    (void)state;
    static const char tools[] = "[{\"name\":\"a\",\"parameters\":{\"type\":\"object\","
                                "\"properties\":{\"b\":{\"$dynamicRef\":"
                                "\"#x\"}}}},{\"name\":\"c\",\"parameters\":{\"type\":\"object\","
                                "\"properties\":{\"d\":{\"type\":"
                                "\"string\"}},\"minProperties\":1}}]";
    static const char *const forms[] = {"hermes", "qwen3-coder", "lfm2"};
    for (size_t i = 0; i < 3; i++) {
        job j = {.tools = gw_tool_form_named(forms[i]),
                 .reasoning = gw_reasoning_form_named("none"),
                 .prompt = "",
                 .choice = GW_TOOLS_REQUIRED};
        assert_int_equal(open_job(&j, tools), 1);
        assert_true(j.notes.n > 0);
        assert_non_null(strstr(j.notes.data, "'a'"));
        close_job(&j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced),   cmocka_unit_test(test_auto),
        cmocka_unit_test(test_own_text), cmocka_unit_test(test_schema),
        cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
