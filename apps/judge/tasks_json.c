/* apps/judge/tasks_json.c - tasks as JSON objects: one row per kind, found by its members. The
 * texts are those of EleutherAI's lm-evaluation-harness (read there in 2026-11). */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "apps/common.h"
#include "apps/judge/tasks.h"

enum { MEMBERS = 5, CHOICES_MAX = 26 };

typedef struct reader {
    judge_set *set;
    const json_t *doc;
    size_t line;
    char why[160]; /* what is wrong with the object; "": memory */
} reader;

/* ---- members --------------------------------------------------------------------------------- */

static int refuse(reader *r, const char *why, const char *name) {
    snprintf(r->why, sizeof r->why, why, name);
    return -1;
}

static const json_t *text_member(reader *r, const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_string(value)) {
        refuse(r, "its \"%s\" is no text", name);
        return NULL;
    }
    return value;
}

static void put_json(text_pool *pool, const json_t *text) {
    text_put(pool, json_string_value(text), json_string_length(text));
}

/* A number from 0 on: as an integer, as digits, or (`letters`) as A, B, ...; -1: none. */
static int32_t number_of(const json_t *value, int letters) {
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        json_int_t n = json_integer_value(value);
        return n >= 0 && n < CHOICES_MAX ? (int32_t)n : -1;
    }
    if (text == NULL || text[0] == '\0' || text[1] != '\0') {
        return -1;
    }
    return isdigit((unsigned char)text[0])               ? text[0] - '0'
           : letters && text[0] >= 'A' && text[0] <= 'Z' ? text[0] - 'A'
                                                         : -1;
}

/* The right one of n, as member `name` says, counted from `from`; -1: it does not. */
static int32_t gold_of(reader *r, const char *name, int32_t from, size_t n, int letters) {
    int32_t gold = number_of(json_object_get(r->doc, name), letters) - from;
    if (gold < 0 || (size_t)gold >= n) {
        refuse(r, "its \"%s\" names none of its choices (a test part without answers has none)",
               name);
        return -1;
    }
    return gold;
}

static const json_t *list_member(reader *r, const json_t *object, const char *name) {
    const json_t *list = json_object_get(object, name);
    size_t n = json_array_size(list);
    if (n < 2 || n > CHOICES_MAX) {
        refuse(r, "its \"%s\" is no list of 2 to 26 choices", name);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (!json_is_string(json_array_get(list, i))) {
            refuse(r, "its \"%s\" holds what is no text", name);
            return NULL;
        }
    }
    return list;
}

/* A blank and each text of the list, all after one context. */
static int add_endings(reader *r, text_span context, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t from = r->set->pool.used;
        text_puts(&r->set->pool, " ");
        put_json(&r->set->pool, json_array_get(list, i));
        if (judge_add_choice(r->set, context, text_since(&r->set->pool, from)) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- kinds: 0, or -1 with r->why ------------------------------------------------------------- */

/* What the harness does to HellaSwag's texts: white space around goes, " [title]" ends a sentence,
 * other brackets go with what is in them, two blanks become one. */
static text_span clean_hellaswag(text_pool *pool, text_span span) {
    size_t from = pool->used;
    span = text_strip(pool, span);
    for (size_t i = 0; i < span.bytes; i++) {
        const char *at = pool->at + span.at + i;
        size_t left = span.bytes - i;
        if (left >= 8 && memcmp(at, " [title]", 8) == 0) {
            text_puts(pool, ". ");
            i += 7;
            continue;
        }
        const char *close = *at == '[' ? memchr(at, ']', left) : NULL;
        if (close != NULL && memchr(at, '\n', (size_t)(close - at)) == NULL) {
            i += (size_t)(close - at);
            continue;
        }
        text_copy(pool, (text_span){.at = span.at + i, .bytes = 1});
    }
    text_span whole = text_since(pool, from);
    size_t n = 0;
    for (size_t i = 0; i < whole.bytes && !pool->failed; i++, n++) {
        pool->at[whole.at + n] = pool->at[whole.at + i];
        i += pool->at[whole.at + i] == ' ' && i + 1 < whole.bytes &&
             pool->at[whole.at + i + 1] == ' ';
    }
    return (text_span){.at = whole.at, .bytes = n};
}

/* As Python's capitalize, of ASCII letters. */
static void capitalize(text_pool *pool, text_span span) {
    for (size_t i = 0; i < span.bytes && !pool->failed; i++) {
        char *c = pool->at + span.at + i;
        *c = (char)(i == 0 ? toupper((unsigned char)*c) : tolower((unsigned char)*c));
    }
}

static int read_hellaswag(reader *r) {
    text_pool *pool = &r->set->pool;
    const json_t *label = text_member(r, r->doc, "activity_label"),
                 *a = text_member(r, r->doc, "ctx_a"), *b = json_object_get(r->doc, "ctx_b"),
                 *endings = list_member(r, r->doc, "endings");
    int32_t gold = endings != NULL ? gold_of(r, "label", 0, json_array_size(endings), 0) : -1;
    if (label == NULL || a == NULL || gold < 0 || judge_begin_task(r->set, gold) != 0) {
        return -1;
    }
    size_t from = pool->used;
    put_json(pool, label);
    text_puts(pool, ": ");
    put_json(pool, a);
    text_puts(pool, " ");
    size_t behind = pool->used;
    if (json_is_string(b)) {
        put_json(pool, b);
        capitalize(pool, text_since(pool, behind));
    }
    text_span context = clean_hellaswag(pool, text_since(pool, from));
    for (size_t i = 0; i < json_array_size(endings); i++) {
        size_t raw = pool->used;
        put_json(pool, json_array_get(endings, i));
        text_span cleaned = clean_hellaswag(pool, text_since(pool, raw));
        size_t at = pool->used;
        text_puts(pool, " ");
        text_copy(pool, cleaned);
        if (judge_add_choice(r->set, context, text_since(pool, at)) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_winogrande(reader *r) {
    text_pool *pool = &r->set->pool;
    const json_t *sentence = text_member(r, r->doc, "sentence");
    const json_t *options[2] = {text_member(r, r->doc, "option1"),
                                text_member(r, r->doc, "option2")};
    int32_t gold = gold_of(r, "answer", 1, 2, 0);
    const char *all = json_string_value(sentence), *gap = all != NULL ? strchr(all, '_') : NULL;
    if (gap == NULL && all != NULL) {
        return refuse(r, "its \"%s\" has no _ where the options go", "sentence");
    }
    if (gap == NULL || options[0] == NULL || options[1] == NULL || gold < 0 ||
        judge_begin_task(r->set, gold) != 0) {
        return -1;
    }
    size_t raw = pool->used;
    text_puts(pool, gap + 1);
    text_span rest = text_strip(pool, text_since(pool, raw));
    size_t from = pool->used;
    text_puts(pool, " ");
    text_copy(pool, rest);
    text_span ending = text_since(pool, from);
    for (int i = 0; i < 2; i++) {
        size_t at = pool->used;
        text_put(pool, all, (size_t)(gap - all));
        put_json(pool, options[i]);
        if (judge_add_choice(r->set, text_since(pool, at), ending) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_mmlu(reader *r) {
    const json_t *question = text_member(r, r->doc, "question"),
                 *subject = json_object_get(r->doc, "subject"),
                 *choices = list_member(r, r->doc, "choices");
    size_t n = json_array_size(choices);
    int32_t gold = choices != NULL ? gold_of(r, "answer", 0, n, 1) : -1;
    const char *texts[CHOICES_MAX];
    if (question == NULL || gold < 0) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        texts[i] = json_string_value(json_array_get(choices, i));
    }
    return judge_add_lettered(r->set, json_string_value(question), json_string_value(subject),
                              texts, n, gold);
}

/* Options with labels of their own, one of which is the answer's key. */
static int add_keyed(reader *r, text_span context, const json_t *choices) {
    const json_t *texts = list_member(r, choices, "text"),
                 *labels = json_object_get(choices, "label");
    const char *key = json_string_value(json_object_get(r->doc, "answerKey"));
    int32_t gold = -1;
    for (size_t i = 0; key != NULL && i < json_array_size(texts); i++) {
        const char *label = json_string_value(json_array_get(labels, i));
        gold = gold < 0 && label != NULL && strcmp(label, key) == 0 ? (int32_t)i : gold;
    }
    if (texts == NULL) {
        return -1;
    }
    if (gold < 0) {
        return refuse(r, "its \"%s\" is the label of none of its choices", "answerKey");
    }
    return judge_begin_task(r->set, gold) == 0 ? add_endings(r, context, texts) : -1;
}

static text_span question_and_answer(text_pool *pool, const json_t *question) {
    size_t from = pool->used;
    text_puts(pool, "Question: ");
    put_json(pool, question);
    text_puts(pool, "\nAnswer:");
    return text_since(pool, from);
}

static int read_arc(reader *r) {
    const json_t *question = text_member(r, r->doc, "question");
    return question != NULL ? add_keyed(r, question_and_answer(&r->set->pool, question),
                                        json_object_get(r->doc, "choices"))
                            : -1;
}

static int read_openbookqa(reader *r) {
    const json_t *question = text_member(r, r->doc, "question_stem");
    size_t from = r->set->pool.used;
    if (question == NULL) {
        return -1;
    }
    put_json(&r->set->pool, question);
    return add_keyed(r, text_since(&r->set->pool, from), json_object_get(r->doc, "choices"));
}

static int read_piqa(reader *r) {
    const json_t *goal = text_member(r, r->doc, "goal");
    const json_t *ways[2] = {text_member(r, r->doc, "sol1"), text_member(r, r->doc, "sol2")};
    int32_t gold = gold_of(r, "label", 0, 2, 0);
    if (goal == NULL || ways[0] == NULL || ways[1] == NULL || gold < 0 ||
        judge_begin_task(r->set, gold) != 0) {
        return -1;
    }
    text_span context = question_and_answer(&r->set->pool, goal);
    for (int i = 0; i < 2; i++) {
        size_t from = r->set->pool.used;
        text_puts(&r->set->pool, " ");
        put_json(&r->set->pool, ways[i]);
        if (judge_add_choice(r->set, context, text_since(&r->set->pool, from)) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_choice(reader *r) {
    const json_t *query = text_member(r, r->doc, "query"),
                 *choices = list_member(r, r->doc, "choices");
    int32_t gold = choices != NULL ? gold_of(r, "gold", 0, json_array_size(choices), 0) : -1;
    size_t from = r->set->pool.used;
    if (query == NULL || gold < 0 || judge_begin_task(r->set, gold) != 0) {
        return -1;
    }
    put_json(&r->set->pool, query);
    return add_endings(r, text_since(&r->set->pool, from), choices);
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    const char *members[MEMBERS]; /* which are all there */
    int object_choices;           /* 1: "choices" is an object, -1: a list, 0: there is none */
    unsigned measures;
    int (*read)(reader *r);
} kind;

static const kind kinds[] = {
    {"hellaswag",
     {"activity_label", "ctx_a", "endings", "label"},
     0,
     JUDGE_NORM | JUDGE_MEAN,
     read_hellaswag},
    {"winogrande", {"sentence", "option1", "option2", "answer"}, 0, JUDGE_PAIR, read_winogrande},
    {"mmlu", {"question", "choices", "answer"}, -1, 0, read_mmlu},
    {"arc", {"question", "choices", "answerKey"}, 1, JUDGE_NORM | JUDGE_MEAN, read_arc},
    {"openbookqa",
     {"question_stem", "choices", "answerKey"},
     1,
     JUDGE_NORM | JUDGE_MEAN,
     read_openbookqa},
    {"piqa", {"goal", "sol1", "sol2", "label"}, 0, JUDGE_NORM | JUDGE_MEAN, read_piqa},
    {"choice", {"query", "choices", "gold"}, -1, JUDGE_NORM | JUDGE_MEAN, read_choice},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int is_of(const kind *k, const json_t *doc) {
    int all = json_is_object(json_object_get(doc, "choices")) == (k->object_choices > 0);
    for (int i = 0; i < MEMBERS && k->members[i] != NULL; i++) {
        all = all && json_object_get(doc, k->members[i]) != NULL;
    }
    return all;
}

static int fail(const reader *r, const char *why) {
    app_error("%s: line %zu: %s", r->set->path, r->line, why);
    return APP_FAILURE;
}

static int refuse_kind(const reader *r) {
    char list[512];
    size_t used = 0;
    for (int k = 0; k < KINDS && used < sizeof list; k++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s (", k > 0 ? ", " : "",
                                 kinds[k].name);
        for (int i = 0; i < MEMBERS && kinds[k].members[i] != NULL && used < sizeof list; i++) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? " " : "",
                                     kinds[k].members[i]);
        }
        used += used < sizeof list ? (size_t)snprintf(list + used, sizeof list - used, ")") : 0;
    }
    app_error("%s: line %zu: no task of a known kind, by its members: %s", r->set->path, r->line,
              list);
    return APP_FAILURE;
}

/* One object of the file. Exit code. */
static int read_object(judge_set *set, const json_t *doc, size_t line) {
    reader r = {.set = set, .doc = doc, .line = line};
    for (int k = 0; k < KINDS; k++) {
        if (!is_of(&kinds[k], doc)) {
            continue;
        }
        if (set->kind != NULL && strcmp(set->kind, kinds[k].name) != 0) {
            return fail(&r, "a task of another kind than those before it");
        }
        set->kind = kinds[k].name;
        set->measures = kinds[k].measures;
        if (kinds[k].read(&r) == 0) {
            return APP_OK;
        }
        return fail(&r, r.why[0] != '\0' ? r.why : "no memory for its texts");
    }
    return refuse_kind(&r);
}

static size_t lines_until(const char *text, size_t bytes) {
    size_t n = 1;
    for (size_t i = 0; i < bytes; i++) {
        n += text[i] == '\n';
    }
    return n;
}

/* Of a value that begins here: the object, or the objects of a list. */
static int read_value(judge_set *set, const json_t *value, size_t line, size_t limit) {
    size_t i;
    json_t *doc;
    if (!json_is_array(value)) {
        return read_object(set, value, line);
    }
    json_array_foreach(value, i, doc) {
        if (limit > 0 && set->n == limit) {
            break;
        }
        int code = read_object(set, doc, line);
        if (code != APP_OK) {
            return code;
        }
    }
    return APP_OK;
}

int judge_read_json(judge_set *set, const char *text, size_t bytes, size_t limit) {
    size_t at = 0, line = 1;
    while (limit == 0 || set->n < limit) {
        while (at < bytes && isspace((unsigned char)text[at])) {
            line += text[at++] == '\n';
        }
        if (at == bytes) {
            break;
        }
        json_error_t error;
        json_t *value = json_loadb(text + at, bytes - at,
                                   JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
        if (value == NULL) {
            app_error("%s: line %zu: no JSON: %s", set->path,
                      line + (size_t)(error.line > 0 ? error.line - 1 : 0), error.text);
            return APP_FAILURE;
        }
        size_t used = (size_t)error.position;
        int code = read_value(set, value, line, limit);
        json_decref(value);
        if (code != APP_OK) {
            return code;
        }
        line += lines_until(text + at, used) - 1;
        at += used;
    }
    return APP_OK;
}
