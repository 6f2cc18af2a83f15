/* tests/test_template.c - chat templates against what the reference library makes of them:
 * published templates with their conversations, the language in small, templates that mean harm;
 * and the marks of what people typed, through every operation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include <dirent.h>
#include <time.h>

#include "core/base/file.h"
#include "core/text/template/template.h"
#include "tests/sanitized.h"

static const gw_template_options options = {.time = {2026, 11, 26, 10, 20, 30}};

static const char *shared_path(const char *name) {
    static char path[4096];
    const char *root = getenv("GODWIT_SHARED");
    snprintf(path, sizeof path, "%s/templates/%s", root != NULL ? root : "../shared", name);
    return path;
}

/* A file of the shared data as text; skips without it. */
static char *read_shared(const char *name, size_t *n) {
    gw_file file;
    if (gw_file_open(shared_path(name), name, &file) != GW_OK) {
        print_message("SKIP: %s (set GODWIT_SHARED)\n", gw_error_text());
        skip();
    }
    char *text = malloc(file.size + 1);
    assert_non_null(text);
    memcpy(text, file.data, file.size);
    text[file.size] = '\0';
    *n = file.size;
    gw_file_close(&file);
    return text;
}

/* One number is beyond jansson's range; the vars themselves are cut out by a template. */
static json_t *parse_json(const char *text, size_t n) {
    json_t *json =
        json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    assert_non_null(json);
    return json;
}

static gw_status render(const char *text, size_t n, const gw_template_input *inputs, size_t count,
                        int conversation, gw_template_text *out) {
    gw_template *t = NULL;
    gw_template_options o = options;
    o.conversation = conversation;
    gw_status status = gw_template_parse("template", text, n, &t);
    if (status == GW_OK) {
        status = gw_template_render(t, inputs, count, &o, out);
        gw_template_free(t);
    }
    return status;
}

static gw_template_input input_of(const char *json) {
    return (gw_template_input){"request", json, strlen(json), 0};
}

/* Lines of JSON: one per item of a list in a file, made by a template over it. */
static char **lines_of(const char *file, size_t bytes, const char *expression, size_t n) {
    char *wrapped = malloc(bytes + 32), text[400];
    char **lines = calloc(n + 1, sizeof *lines);
    gw_template_text out;
    assert_true(wrapped != NULL && lines != NULL);
    int length = sprintf(wrapped, "{\"rows\": ");
    memcpy(wrapped + length, file, bytes);
    strcpy(wrapped + length + bytes, "}");
    snprintf(text, sizeof text, "{%% for row in rows %%}{{ (%s)|tojson }}\n{%% endfor %%}",
             expression);
    gw_template_input input = {"rows", wrapped, (size_t)length + bytes + 1, 0};
    gw_status status = render(text, strlen(text), &input, 1, 0, &out);
    if (status != GW_OK) {
        print_error("%s\n", gw_error_text());
    }
    assert_int_equal(status, GW_OK);
    char *at = out.text;
    for (size_t i = 0; i < n; i++) {
        size_t size = strcspn(at, "\n");
        lines[i] = strndup(at, size);
        at += size + (at[size] == '\n');
    }
    free(wrapped);
    gw_template_text_free(&out);
    return lines;
}

static void free_lines(char **lines, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(lines[i]);
    }
    free(lines);
}

static const char *text_at(const json_t *row, const char *key) {
    return json_string_value(json_object_get(row, key));
}

/* Does the message say these words? (They are cut and escaped in a message.) */
static int says(const char *words) {
    char head[60];
    size_t n = strcspn(words, "\n\"\\");
    snprintf(head, sizeof head, "%.*s", n < 50 ? (int)n : 50, words);
    return strstr(gw_error_text(), head) != NULL;
}

/* 1: as the row wants it. */
static int judge(const json_t *row, gw_status status, const gw_template_text *out,
                 const char *name) {
    const json_t *want = json_object_get(row, "text"),
                 *other = json_object_get(row, "text_if_lists_may_change");
    const char *raises = text_at(row, "raises"), *error = text_at(row, "error");
    if (status == GW_OK) {
        want = want == NULL ? other : want;
        if (want != NULL && json_string_length(want) == out->bytes &&
            memcmp(json_string_value(want), out->text, out->bytes) == 0) {
            return 1;
        }
        print_error("%s\n  want %s %s\n  have %s\n", name, want != NULL ? "text" : "error",
                    want != NULL ? json_string_value(want) : raises, out->text);
        return 0;
    }
    if (want != NULL) {
        print_error("%s\n  want %s\n  have the error %s\n", name, json_string_value(want),
                    gw_error_text());
        return 0;
    }
    if (strcmp(error, "TemplateError") == 0 && !says(raises)) {
        print_error("%s\n  want the error %s\n  have the error %s\n", name, raises,
                    gw_error_text());
        return 0;
    }
    const json_t *line = json_object_get(row, "line");
    char where[32];
    snprintf(where, sizeof where, "line %d:", (int)json_number_value(line));
    if (line != NULL && !json_is_null(line) && strstr(gw_error_text(), where) == NULL) {
        print_error("%s\n  want %s %s\n  have %s\n", name, where, raises, gw_error_text());
        return 0;
    }
    return 1;
}

/* ---- the language ---------------------------------------------------------------------------- */

static void the_language_in_small(void **state) {
    (void)state;
    size_t bytes, failed = 0;
    char *file = read_shared("language.json", &bytes);
    json_t *rows = parse_json(file, bytes);
    size_t n = json_array_size(rows);
    char **vars = lines_of(file, bytes, "row.vars", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i), *text = json_object_get(row, "template");
        gw_template_input input = input_of(vars[i]);
        gw_template_text out = {0};
        gw_status status =
            render(json_string_value(text), json_string_length(text), &input, 1, 0, &out);
        char name[600];
        snprintf(name, sizeof name, "%s: %s", text_at(row, "name"), json_string_value(text));
        failed += !judge(row, status, &out, name);
        gw_template_text_free(&out);
    }
    print_message("%zu rows of the language, %zu wrong\n", n, failed);
    assert_true(n >= 300);
    assert_int_equal(failed, 0);
    free_lines(vars, n);
    json_decref(rows);
    free(file);
}

/* ---- published templates --------------------------------------------------------------------- */

/* Rows of one golden.json; conversations: the lines of conversations.json by name. */
static size_t check_goldens(const char *folder, const json_t *names, char **conversations,
                            size_t *n_rows) {
    char path[300];
    size_t bytes, n_text, failed = 0;
    snprintf(path, sizeof path, "%s/golden.json", folder);
    char *file = read_shared(path, &bytes);
    snprintf(path, sizeof path, "%s/template.jinja", folder);
    char *text = read_shared(path, &n_text);
    json_t *rows = parse_json(file, bytes);
    size_t n = json_array_size(rows);
    char **kwargs = lines_of(file, bytes, "row.kwargs", n);
    gw_template *t = NULL;
    gw_status parsed = gw_template_parse(folder, text, n_text, &t);
    if (parsed != GW_OK) {
        print_error("%s\n", gw_error_text());
        failed = n;
    }
    gw_template_options o = options;
    o.conversation = 1;
    for (size_t i = 0; i < n && parsed == GW_OK; i++) {
        const json_t *row = json_array_get(rows, i);
        size_t c = 0;
        while (strcmp(json_string_value(json_array_get(names, c)), text_at(row, "conversation")) !=
               0) {
            c++;
        }
        gw_template_input inputs[2] = {input_of(conversations[c]), input_of(kwargs[i])};
        gw_template_text out = {0};
        gw_status status = gw_template_render(t, inputs, 2, &o, &out);
        char name[600];
        snprintf(name, sizeof name, "%s: %s %s", folder, text_at(row, "conversation"), kwargs[i]);
        failed += !judge(row, status, &out, name);
        gw_template_text_free(&out);
    }
    gw_template_free(t);
    free_lines(kwargs, n);
    json_decref(rows);
    free(file);
    free(text);
    *n_rows += n;
    return failed;
}

static void published_templates(void **state) {
    (void)state;
    size_t bytes, failed = 0, n_rows = 0, folders = 0;
    char *file = read_shared("conversations.json", &bytes);
    json_t *all = parse_json(file, bytes), *names = json_array();
    const char *key;
    json_t *value;
    json_object_foreach(all, key, value) { json_array_append_new(names, json_string(key)); }
    size_t n = json_array_size(names);
    char **conversations = lines_of(file, bytes, "rows[row]", n);
    DIR *dir = opendir(shared_path("."));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.' && gw_path_look(shared_path(e->d_name)) == GW_PATH_FOLDER) {
            failed += check_goldens(e->d_name, names, conversations, &n_rows);
            folders++;
        }
    }
    closedir(dir);
    print_message("%zu renderings of %zu templates, %zu wrong\n", n_rows, folders, failed);
    assert_true(folders >= 30);
    assert_int_equal(failed, 0);
    free_lines(conversations, n);
    json_decref(names);
    json_decref(all);
    free(file);
}

/* ---- harm ------------------------------------------------------------------------------------ */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static char *repeated(const json_t *parts, size_t *n) {
    size_t i, total = 0;
    json_t *part;
    json_array_foreach(parts, i, part) {
        total += json_string_length(json_array_get(part, 0)) *
                 (size_t)json_number_value(json_array_get(part, 1));
    }
    char *text = malloc(total + 1), *at = text;
    assert_non_null(text);
    json_array_foreach(parts, i, part) {
        const json_t *word = json_array_get(part, 0);
        for (size_t k = (size_t)json_number_value(json_array_get(part, 1)); k > 0; k--) {
            memcpy(at, json_string_value(word), json_string_length(word));
            at += json_string_length(word);
        }
    }
    *n = total;
    return text;
}

static void templates_that_mean_harm(void **state) {
    (void)state;
    size_t bytes, failed = 0, n_text;
    char *file = read_shared("hostile.json", &bytes);
    json_t *rows = parse_json(file, bytes);
    size_t n = json_array_size(rows);
    char **vars = lines_of(file, bytes, "row.vars", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i), *given = json_object_get(row, "template");
        char *text = given != NULL ? strdup(json_string_value(given))
                                   : repeated(json_object_get(row, "template_repeat"), &n_text);
        n_text = given != NULL ? json_string_length(given) : n_text;
        gw_template_input input = input_of(vars[i]);
        gw_template_text out = {0};
        double start = seconds();
        gw_status status = render(text, n_text, &input, 1, 0, &out);
        double took = seconds() - start;
        const char *expect = text_at(row, "expect");
        int right = strcmp(expect, "limit") == 0   ? status == GW_E_LIMIT
                    : strcmp(expect, "error") == 0 ? status != GW_OK
                    : strcmp(expect, "text") == 0  ? status == GW_OK
                                                   : 1;
        right = right && (took < 0.2 || TEST_SANITIZED || TEST_EMULATED);
        if (!right) {
            print_error("%s: want %s, have %s in %.3f s\n", text_at(row, "name"), expect,
                        status == GW_OK ? "text" : gw_error_text(), took);
        }
        failed += !right;
        gw_template_text_free(&out);
        free(text);
    }
    print_message("%zu templates that mean harm, %zu wrong\n", n, failed);
    assert_int_equal(failed, 0);
    free_lines(vars, n);
    json_decref(rows);
    free(file);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* In `want` what was typed stands between '{' and '}'. */
static void marks(const char *template_text, const char *json, const char *want) {
    gw_template_input input = input_of(json);
    gw_template_text out = {0};
    char have[1000] = "";
    gw_status status = render(template_text, strlen(template_text), &input, 1, 1, &out);
    if (status != GW_OK) {
        print_error("%s: %s\n", template_text, gw_error_text());
    }
    assert_int_equal(status, GW_OK);
    size_t n = 0, range = 0;
    for (size_t i = 0; i <= out.bytes; i++) {
        if (range > 0 && out.typed[2 * range - 1] == i) {
            have[n++] = '}';
        }
        if (range < out.n_typed && out.typed[2 * range] == i) {
            have[n++] = '{';
            range++;
        }
        have[n] = out.text[i];
        n += i < out.bytes;
    }
    have[n] = '\0';
    if (range < out.n_typed || strcmp(have, want) != 0) {
        print_error("%s\n", template_text);
    }
    assert_int_equal(range, out.n_typed);
    assert_string_equal(have, want);
    gw_template_text_free(&out);
}

static void what_people_typed_stays_marked(void **state) {
    (void)state;
    static const char json[] =
        "{\"t\": \"a<b> c\", \"l\": [\"x\", \"y\"], \"n\": 12, \"d\": "
        "{\"k\": \"v\"}, \"u\": \"xy.org\", \"j\": \"[\\\"p\\\\nq\\\"]\", \"bos_token\": \"<s>\"}";
    static const char *const cases[][2] = {
        {"[{{ t }}]", "[{a<b> c}]"},
        {"{{ '<' + t + '>' }}", "<{a<b> c}>"},
        {"{{ 'x' ~ t ~ n }}", "x{a<b> c}12"},
        {"{{ t[1:4] }}|{{ t[0] }}|{{ t[::-1] }}", "{<b>}|{a}|{c >b<a}"},
        {"{{ t.split('<')|join('|') }}", "{a}|{b> c}"},
        {"{{ ('- ' + t).split(' ')|join(',') }}", "-,{a<b>},{c}"},
        {"{{ (' ' + t + ' ')|trim }}", "{a<b> c}"},
        {"{{ t.replace('b', '<x>') }}", "{a<}<x>{> c}"},
        {"{{ '<b>'.replace('b', t) }}", "<{a<b> c}>"},
        {"{{ t|upper }}{{ t.title() }}", "{A<B> CA<B> C}"},
        {"{{ ('q' + t)|upper }}", "Q{A<B> C}"},
        {"{{ '%s=%5s' % (t, 'z') }}", "{a<b> c}=    z"},
        {"{{ '{}:{k}'.format(t, k=d.k) }}", "{a<b> c}:{v}"},
        {"{{ t|tojson }}", "\"{a<b> c}\""},
        {"{{ d|tojson }}{{ l }}", "{\"{k}\": \"{v}\"}['{x}', '{y}']"},
        {"{{ t|e }}", "{a&lt;b&gt; c}"},
        {"{{ ('<' + t)|safe + '&' }}", "<{a<b> c}&amp;"},
        {"{% for c in t[:2] %}({{ c }}){% endfor %}", "({a})({<})"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "{k}={v}"},
        {"{% set x %}<{{ t }}>{% endset %}{{ x }}{{ x|length }}", "<{a<b> c}>8"},
        {"{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(t)|upper }}", "[{A<B> C}]"},
        {"{% set ns = namespace(s='') %}{% for i in l %}{% set ns.s = ns.s + i + ';' %}{% endfor %}"
         "{{ ns.s }}",
         "{x};{y};"},
        {"{{ (j|from_json)[0].split('\n')|join('/') }}", "{p}/{q}"},
        {"{{ bos_token }}{{ t|length }}", "<s>6"},
        {"{{ t|indent(2, true) }}|{{ t.center(8, '*') }}", "  {a<b> c}|*{a<b> c}*"},
        {"{{ l|sort|first }}{{ l|map('upper')|join }}", "{xXY}"},
        {"{{ t|default('z') }}{{ none|default(t) }}", "{a<b> c}None"},
        {"{{ t if t == 'a<b> c' else 'no' }}", "{a<b> c}"},
        {"{{ ('see ' ~ u)|urlize }}",
         "see <a href=\"https://{xy.org}\" rel=\"noopener\">{xy.org}</a>"},
        {"{{ (t ~ ' <end>')|wordwrap(4) }}", "{a<b>}\n{c} <e\nnd>"},
        {"{{ [t]|pprint }}{{ t|random in t }}", "['{a<b> c}']True"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        marks(cases[i][0], json, cases[i][1]);
    }
    /* a role that is one word may be part of a marker; what spells one by itself may not */
    static const char roles[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                "{\"role\": \"<|x|>\", \"content\": \"b\"}]}";
    marks("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}", roles,
          "<|user|>{a}<|{<|x|>}|>{b}");
}

/* ---- beyond the shared data ------------------------------------------------------------------ */

static void check_text(const char *text, const char *want) {
    gw_template_input input = input_of("{\"s\": \"Hello World\", \"l\": [3, 1, 2], \"big\": "
                                       "123456789012345678901234567890}");
    gw_template_text out = {0};
    gw_status status = render(text, strlen(text), &input, 1, 0, &out);
    const char *have = status == GW_OK ? out.text : gw_error_text();
    if (strcmp(have, want) != 0) {
        print_error("%s\n", text);
    }
    assert_string_equal(have, want);
    gw_template_text_free(&out);
}

static void more_of_the_language(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{{ big * big }}", "15241578753238836750495351562536198787501905199875019052100"},
        {"{{ big // 7 }} {{ big % 7 }} {{ -big // 7 }} {{ -big % 7 }}",
         "17636684144620811271604938270 0 -17636684144620811271604938270 0"},
        {"{{ (big + 3) // -10 }} {{ (big + 3) % -10 }}", "-12345678901234567890123456790 -7"},
        {"{{ 2 ** 64 - 1 }} {{ 2 ** 63 }} {{ -(2 ** 63) }} {{ 9223372036854775807 + 1 }}",
         "18446744073709551615 9223372036854775808 -9223372036854775808 9223372036854775808"},
        {"{{ '%x %o %e %g' % (255, 8, 12345.678, 0.0001) }}", "ff 10 1.234568e+04 0.0001"},
        {"{{ '%-6s|%06.2f|%+d|%c' % ('ab', 3.14159, 5, 'x') }}", "ab    |003.14|+5|x"},
        {"{{ '%(a)s-%(b)d' % {'a': 1, 'b': 2} }}", "1-2"},
        {"{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:,}|{:.2f}|{:x}'.format('a', 'b', 'c', 42, 1234567, 2.5, "
         "255) "
         "}}",
         "    a|b    |  c  |00042|1,234,567|2.50|ff"},
        {"{{ '{0[0]}{0[1]} {x[a]}{x.a}'.format([1, 2], x={'a': 3}) }}", "12 33"},
        {"{{ s|truncate(9, true) }}|{{ ('one two three four ' * 2)|truncate(12) }}",
         "Hello World|one two..."},
        {"{{ 'the quick brown fox jumps'|wordwrap(10) }}", "the quick\nbrown fox\njumps"},
        {"{{ l.append(4) }}",
         "template: forbidden: line 1: access to attribute 'append' of 'list' object is unsafe."},
        {"{% set q = [1] %}{% set p = q + [2] %}{% set _ = q.append(9) %}{{ q }}{{ p }}{{ q.pop(0) "
         "}}{{ "
         "q }}",
         "[1, 9][1, 2]1[9]"},
        {"{% for x in l recursive %}{{ x }}{{ loop(l[:0]) }}{% endfor %}", "312"},
        {"{{ l|batch(2)|map('join', '-')|join(';') }}", "3-1;2"},
        {"{{ [{'a': 1}, {}]|map(attribute='a')|list }}", "[1, Undefined]"},
        {"{{ l|select('>', 1)|list }}{{ l|sort(reverse=true) }}", "[3, 2][3, 2, 1]"},
        {"{{ 7.0 // 2 }} {{ -7.5 % 2 }} {{ 1e308 * 10 }} {{ 5 / 2 }}", "3.0 0.5 inf 2.5"},
        {"{{ 'a\\tb'.expandtabs(4) }}|{{ ' x y '.split() }}{{ 'a b c'.rsplit(None, 1) }}",
         "a   b|['x', 'y']['a b', 'c']"},
        {"{{ '%d' % 3.99 }}{{ 10 | string | int + 1 }}", "311"},
        {"{{ 3 is odd and s is string }}{{ s is not in ['x'] }}", "TrueTrue"},
        {"{% if false %}{{ s|nope }}{% endif %}ok", "ok"},
        {"{{ s|nope if false }}ok", "ok"},
        {"{{ s|nope }}", "template: syntax: line 1: No filter named 'nope'."},
        {"{% for a in l %}{% for b in l %}{{ loop.index }}{% if loop.first %}{% continue %}{% "
         "endif %}"
         "{% break %}{% endfor %}{% endfor %}",
         "121212"},
        {"{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}", "211"},
        {"{% filter upper|trim %} a{{ s }} {% endfilter %}", "AHELLO WORLD"},
        {"{% macro m(x) %}{{ caller(x, 2) }}{% endmacro %}{% call(a, b=5) m(1) %}{{ a + b }}{% "
         "endcall %}",
         "3"},
        {"{{ dict(a=1, **{'b': 2}) }}{{ range(*[1, 4])|list }}", "{'a': 1, 'b': 2}[1, 2, 3]"},
        {"{{ strftime_now('%A %-d %B %Y, %H:%M, day %j, week %V, %y%m%d %I%p %u %w') }}",
         "Thursday 26 November 2026, 10:20, day 330, week 48, 261126 10AM 4 4"},
        {"{{ 1.5|round }}{{ 2.675|round(2) }}{{ 1234|round(-2) }}", "2.02.671200"},
        {"{{ 'Ωσς ΣΑΣ'|lower }}", "ωσς σας"},
        {"{{ {'a': [1, {'b': none}], 'c': 1.0}|tojson(indent=2) }}",
         "{\n  \"a\": [\n    1,\n    {\n      \"b\": null\n    }\n  ],\n  \"c\": 1.0\n}"},
        {"{% print 1, 2 %}{{ 'a' 'b' }}", "12ab"},
        /* a text that grows piece by piece costs what its pieces do */
        {"{% set ns = namespace(out='') %}{% for i in range(20000) %}{% set ns.out = ns.out ~ ('<' "
         "~ i "
         "~ '>') ~ 'abcdefgh' %}{% endfor %}{{ ns.out|length }}{{ ns.out[-12:] }}",
         "288890999>abcdefgh"},
        {"a\n{%- if true +%}\n b {%- endif %}\n{% raw -%} {{ x }} {%- endraw %} c",
         "a\n b{{ x }} c"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_text(cases[i][0], cases[i][1]);
    }
}

static void corners_of_the_language(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{% for x in l %}{% continue %}{% else %}none{% endfor %}|{% for x in l %}{% break %}"
         "{% else %}none{% endfor %}",
         "none|none"},
        {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}none{% endf"
         "or %}",
         "32"},
        {"a{#", "a"},
        {"{{ big[1:] }}", "template: type: line 1: 'int' object is not subscriptable"},
        {"{{ ('<b>'|safe)|list }}{{ ('<b>'|safe)[0] ~ '<' }}", "['<', 'b', '>']<<"},
        {"{% autoescape true %}{{ '<' ~ 1 }}{{ s|safe ~ '<' }}{% endautoescape %}",
         "&lt;1Hello World&lt;"},
        {"{{ 'a' % l }}{{ '%s' % l }}{{ 'b' % undef }}", "a[3, 1, 2]b"},
        {"{{ 'a' % 1 }}",
         "template: type: line 1: not all arguments converted during string formatting"},
        {"{{ [{'a': {}}, {'a': {'b': 1}}]|map(attribute='a.b', default=0)|list }}{{ [{'a': 1},"
         " {}]|groupby('a.x', default=2)|length }}",
         "[0, 1]1"},
        {"{{ 'well-known-fact foo--bar verylongword'|wordwrap(6, wrapstring='|') }}",
         "well-|known-|fact|foo--|bar ve|rylong|word"},
        {"{{ 'a-b  c'|wordwrap(3, false, '|', false) }}{{ 1|wordwrap }}",
         "template: type: line 1: wordwrap: a text is needed, not int"},
        {"{{ [l * 12, {'b': 1, 'a': 'word ' * 20}]|pprint }}",
         "[[3,\n  1,\n  2,\n  3,\n  1,\n  2,\n  3,\n  1,\n  2,\n  3,\n  1,\n  2,\n  3,\n  1,\n"
         "  2,\n  3,\n  1,\n  2,\n  3,\n  1,\n  2,\n  3,\n  1,\n  2,\n  3,\n  1,\n  2,\n  3,\n"
         "  1,\n  2,\n  3,\n  1,\n  2,\n  3,\n  1,\n  2],\n {'a': 'word word word word word wo"
         "rd word word word word word word word word '\n       'word word word word word word "
         "',\n  'b': 1}]"},
        {"{{ '(see http://a.b/c(d), www.x.org) me@x.io'|urlize(8, rel='z', target='_t') }}",
         "(see http://a.b/c(d), <a href=\"https://www.x.org\" rel=\"noopener z\" target=\"_t\""
         ">www.x.or...</a>) <a href=\"mailto:me@x.io\">me@x.io</a>"},
        {"{{ 'tel:1 ftp://x'|urlize(extra_schemes=['tel:', 'ftp:']) }}{{ s|urlize(extra_scheme"
         "s=['x']) }}",
         "template: type: line 1: 'x' is not a valid URI scheme prefix."},
        {"{{ []|random }}{{ [7]|random }}{{ ('a' * 3)|random }}", "7a"},
        {"{{ '12'|filesizeformat }} {{ (-0.5)|filesizeformat }} {{ 1e300|filesizeformat|length"
         " }}",
         "12 Bytes 0 Bytes 281"},
        {"{{ l|truncate }}{{ 1|indent }}",
         "template: type: line 1: indent: a text is needed, not int"},
        {"{{ 5|truncate }}", "template: type: line 1: object of type 'int' has no len()"},
        {"{{ 1e200 ** 2 }}", "template: type: line 1: the result is too large"},
        {"{{ 1e200 * 1e200 }}{{ big|round(2, 'ceil') }}{{ (-0.2)|round(0, 'ceil') }}",
         "inf1.2345678901234568e+290.0"},
        {"{{ ['a']|sum(start='') }}",
         "template: type: line 1: sum() can't sum strings [use ''.join(seq) instead]"},
        {"{{ l|sort('x') }}",
         "template: type: line 1: reverse: 'str' object cannot be interpreted as an integer"},
        {"{{ 'ﬁßΣ'.casefold() }}", "fissσ"},
        {"{{ namespace(nope) }}", "template: type: line 1: 'nope' is undefined"},
        {"{% for loop in l %}{% endfor %}",
         "template: syntax: line 1: can't assign to 'loop' inside a for"},
        {"{% for x in l %}{% set loop = 1 %}{% endfor %}",
         "template: syntax: line 1: can't assign to 'loop' inside a for"},
        {"{% print 1, %}", "template: syntax: line 1: unexpected '%}'"},
        {"{{ [1] is filter }}", "template: type: line 1: unhashable type: 'list'"},
        {"{{ strftime_now('%^a %#p %5d %-5m %Ey %s %10Y|%_3H') }}",
         "THU am 00026    11 26 1795688430 0000002026| 10"},
        {"{% if true %}x\n\n",
         "template: syntax: line 1: Unexpected end of template: the block 'if' is not closed"},
        {"{{ 1\n\n", "template: syntax: line 1: expected '}}', got the end of the template"},
        {"a\n{% raw -%}\n\nb", "template: syntax: line 4: Missing end of raw directive"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_text(cases[i][0], cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_language_in_small),
        cmocka_unit_test(more_of_the_language),
        cmocka_unit_test(corners_of_the_language),
        cmocka_unit_test(published_templates),
        cmocka_unit_test(templates_that_mean_harm),
        cmocka_unit_test(what_people_typed_stays_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
