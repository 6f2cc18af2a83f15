/* apps/judge/tasks_plain.c - tasks that are no JSON: llama.cpp's six lines of HellaSwag, its table
 * of WinoGrande and its binary files of choices; MMLU's tables. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/judge/tasks.h"

enum { CHOICES_MAX = 100, FIELDS = 8 };

static int fail(const judge_set *set, size_t line, const char *why) {
    app_error("%s: line %zu: %s", set->path, line, why);
    return APP_FAILURE;
}

static const char no_memory[] = "no memory for its texts";

/* ---- lettered questions ---------------------------------------------------------------------- */

int judge_add_lettered(judge_set *set, const char *question, const char *subject,
                       const char *const *choices, size_t n, int32_t gold) {
    text_pool *pool = &set->pool;
    if (judge_begin_task(set, gold) != 0) {
        return -1;
    }
    if (subject != NULL) {
        size_t from = pool->used;
        text_puts(pool, subject);
        set->tasks[set->n - 1].subject = text_since(pool, from);
        from = pool->used;
        text_puts(pool, "The following are multiple choice questions (with answers) about ");
        size_t name = pool->used;
        text_puts(pool, subject);
        for (size_t i = name; i < pool->used && !pool->failed; i++) {
            pool->at[i] = pool->at[i] == '_' ? ' ' : pool->at[i];
        }
        text_puts(pool, ".\n\n");
        set->tasks[set->n - 1].intro = text_since(pool, from);
    }
    size_t raw = pool->used;
    text_puts(pool, question);
    text_span asked = text_strip(pool, text_since(pool, raw));
    size_t from = pool->used;
    text_copy(pool, asked);
    for (size_t i = 0; i < n; i++) {
        const char letter[] = {'\n', (char)('A' + i), '.', ' ', '\0'};
        text_puts(pool, letter);
        text_puts(pool, choices[i]);
    }
    text_puts(pool, "\nAnswer:");
    text_span context = text_since(pool, from);
    for (size_t i = 0; i < n; i++) {
        const char letter[] = {' ', (char)('A' + i), '\0'};
        size_t at = pool->used;
        text_puts(pool, letter);
        if (judge_add_choice(set, context, text_since(pool, at)) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- six lines ------------------------------------------------------------------------------- */

typedef struct cursor {
    const char *at, *end;
    size_t line; /* of what was read last */
} cursor;

/* Without its end (LF or CR LF); 0: there is none. */
static int next_line(cursor *c, const char **text, size_t *bytes) {
    if (c->at >= c->end) {
        return 0;
    }
    const char *stop = memchr(c->at, '\n', (size_t)(c->end - c->at));
    size_t n = (size_t)((stop != NULL ? stop : c->end) - c->at);
    *text = c->at;
    *bytes = n > 0 && c->at[n - 1] == '\r' ? n - 1 : n;
    c->at = stop != NULL ? stop + 1 : c->end;
    c->line++;
    return 1;
}

static int read_six_lines(judge_set *set, cursor c, size_t limit) {
    const char *text, *label;
    size_t bytes, n;
    while ((limit == 0 || set->n < limit) && next_line(&c, &text, &bytes)) {
        if (bytes == 0 && c.at == c.end) {
            break; /* an empty line at the end */
        }
        if (!next_line(&c, &label, &n) || n != 1 || label[0] < '0' || label[0] > '3') {
            return fail(set, c.line, "the second line of a HellaSwag task is 0, 1, 2 or 3");
        }
        size_t from = set->pool.used;
        text_put(&set->pool, text, bytes);
        text_span context = text_since(&set->pool, from);
        int failed = judge_begin_task(set, label[0] - '0');
        for (int i = 0; i < 4 && failed == 0; i++) {
            if (!next_line(&c, &text, &bytes)) {
                return fail(set, c.line, "the file ends within a task of six lines");
            }
            size_t at = set->pool.used;
            text_puts(&set->pool, " ");
            text_put(&set->pool, text, bytes);
            failed = judge_add_choice(set, context, text_since(&set->pool, at));
        }
        if (failed != 0) {
            return fail(set, c.line, no_memory);
        }
    }
    return APP_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The fields of the next record (RFC 4180: quotes around, doubled within, line ends too), each put
 * into the pool, each with a NUL. How many there are, at most FIELDS + 1; 0: the end; -1: a quote
 * that is not closed. */
static int next_record(cursor *c, text_pool *pool, size_t fields[FIELDS]) {
    int n = 0, open = 1;
    if (c->at >= c->end) {
        return 0;
    }
    c->line++;
    while (open) {
        int quoted = c->at < c->end && *c->at == '"';
        size_t from = pool->used;
        c->at += quoted;
        while (c->at < c->end && (quoted || (*c->at != ',' && *c->at != '\n'))) {
            if (quoted && *c->at == '"') {
                quoted = c->at + 1 < c->end && c->at[1] == '"';
                c->at++;
                if (!quoted) {
                    continue; /* what follows up to the comma belongs to the field as it is */
                }
            }
            c->line += *c->at == '\n';
            text_put(pool, c->at++, 1);
        }
        if (quoted) {
            return -1;
        }
        open = c->at < c->end && *c->at == ',';
        if (!open && pool->used > from && pool->at[pool->used - 1] == '\r') {
            pool->used--;
        }
        c->at += c->at < c->end;
        text_put(pool, "", 1);
        if (n < FIELDS) {
            fields[n] = from;
        }
        n++;
    }
    return n;
}

static int add_pair(judge_set *set, const size_t f[FIELDS], size_t line) {
    text_pool *pool = &set->pool;
    const char *gap = strchr(pool->at + f[1], '_'), *answer = pool->at + f[4];
    if (gap == NULL) {
        return fail(set, line, "the sentence has no _ where the options go");
    }
    if ((answer[0] != '1' && answer[0] != '2') || answer[1] != '\0') {
        return fail(set, line, "the last field is not 1 or 2: which option is right");
    }
    size_t before = (size_t)(gap - (pool->at + f[1])), rest = f[1] + before + 1;
    text_span ending = {.at = rest, .bytes = strlen(pool->at + rest)};
    int failed = judge_begin_task(set, answer[0] - '1');
    for (int i = 0; i < 2 && failed == 0; i++) {
        size_t at = pool->used;
        text_copy(pool, (text_span){.at = f[1], .bytes = before});
        text_copy(pool, (text_span){.at = f[2 + i], .bytes = strlen(pool->at + f[2 + i])});
        failed = judge_add_choice(set, text_since(pool, at), ending);
    }
    return failed == 0 ? APP_OK : fail(set, line, no_memory);
}

static int add_letters(judge_set *set, const size_t f[FIELDS], size_t line) {
    char *texts[6], key = set->pool.at[f[5]];
    if (key < 'A' || key > 'D' || set->pool.at[f[5] + 1] != '\0') {
        return fail(set, line, "the last field is not A, B, C or D: which choice is right");
    }
    for (int i = 0; i < 5; i++) { /* the pool may move */
        texts[i] = strdup(set->pool.at + f[i]);
    }
    int failed = 0;
    for (int i = 0; i < 5; i++) {
        failed |= texts[i] == NULL;
    }
    if (!failed) {
        const char *const choices[4] = {texts[1], texts[2], texts[3], texts[4]};
        failed = judge_add_lettered(set, texts[0], NULL, choices, 4, key - 'A') != 0;
    }
    for (int i = 0; i < 5; i++) {
        free(texts[i]);
    }
    return failed ? fail(set, line, no_memory) : APP_OK;
}

static int read_table(judge_set *set, cursor c, int wanted, size_t limit) {
    int n = 1;
    while ((limit == 0 || set->n < limit) && n != 0) {
        size_t f[FIELDS] = {0}, before = c.line + 1;
        n = next_record(&c, &set->pool, f);
        if (n < 0) {
            return fail(set, before, "a quote that is not closed");
        }
        if (n == 0 || (n == 1 && set->pool.at[f[0]] == '\0')) {
            continue; /* the end, or an empty line */
        }
        if (set->pool.failed || n != wanted) {
            app_error("%s: line %zu: %d fields, not %d as before", set->path, before, n, wanted);
            return APP_FAILURE;
        }
        int code = wanted == 5 ? add_pair(set, f, before) : add_letters(set, f, before);
        if (code != APP_OK) {
            return code;
        }
    }
    return APP_OK;
}

/* ---- llama.cpp's binary files ---------------------------------------------------------------- */

typedef struct bytes_reader {
    const unsigned char *at;
    size_t left;
} bytes_reader;

static int take_u32(bytes_reader *b, uint32_t *out) {
    if (b->left < 4) {
        return -1;
    }
    *out = (uint32_t)b->at[0] | (uint32_t)b->at[1] << 8 | (uint32_t)b->at[2] << 16 |
           (uint32_t)b->at[3] << 24;
    b->at += 4;
    b->left -= 4;
    return 0;
}

static int take_text(bytes_reader *b, const char **text, uint32_t *bytes) {
    if (take_u32(b, bytes) != 0 || *bytes > b->left) {
        return -1;
    }
    *text = (const char *)b->at;
    b->at += *bytes;
    b->left -= *bytes;
    return 0;
}

/* n u32, n texts, n i32: 1 where the answer is right. */
typedef struct answers {
    uint32_t n, bytes[CHOICES_MAX], label[CHOICES_MAX];
    const char *text[CHOICES_MAX];
} answers;

static int take_answers(bytes_reader *b, answers *a) {
    int failed = take_u32(b, &a->n) != 0 || a->n > CHOICES_MAX;
    for (uint32_t i = 0; !failed && i < a->n; i++) {
        failed = take_text(b, &a->text[i], &a->bytes[i]);
    }
    for (uint32_t i = 0; !failed && i < a->n; i++) {
        failed = take_u32(b, &a->label[i]);
    }
    return failed ? -1 : 0;
}

/* n u32, n positions u32, then each: question, answers of which one is right, answers of which
 * several are (not used). */
static int read_binary(judge_set *set, bytes_reader b, size_t limit) {
    uint32_t n = 0, skip, bytes;
    int failed = take_u32(&b, &n) != 0 || b.left / 4 < n;
    for (uint32_t i = 0; i < n && !failed; i++) {
        failed = take_u32(&b, &skip);
    }
    for (uint32_t i = 0; i < n && !failed && (limit == 0 || set->n < limit); i++) {
        answers one, several;
        const char *question;
        int32_t gold = -1;
        if (take_text(&b, &question, &bytes) != 0 || take_answers(&b, &one) != 0 ||
            take_answers(&b, &several) != 0) {
            failed = 1;
            break;
        }
        for (uint32_t k = 0; k < one.n; k++) {
            gold = gold < 0 && one.label[k] == 1 ? (int32_t)k : gold;
        }
        if (gold < 0) {
            app_error("%s: task %u has no right answer", set->path, i + 1);
            return APP_FAILURE;
        }
        size_t from = set->pool.used;
        text_put(&set->pool, question, bytes);
        text_span context = text_since(&set->pool, from);
        int memory = judge_begin_task(set, gold);
        for (uint32_t k = 0; k < one.n && memory == 0; k++) {
            size_t at = set->pool.used;
            text_puts(&set->pool, " ");
            text_put(&set->pool, one.text[k], one.bytes[k]);
            memory = judge_add_choice(set, context, text_since(&set->pool, at));
        }
        if (memory != 0) {
            app_error("%s: %s", set->path, no_memory);
            return APP_FAILURE;
        }
    }
    if (failed) {
        app_error("%s: no file of tasks that is known, or a binary one that is not whole",
                  set->path);
        return APP_FAILURE;
    }
    return APP_OK;
}

/* ---- which it is ----------------------------------------------------------------------------- */

int judge_read_plain(judge_set *set, const char *text, size_t bytes, size_t limit) {
    cursor c = {.at = text, .end = text + bytes};
    if (bytes == 0) {
        return APP_OK;
    }
    if (memchr(text, '\0', bytes < 64 ? bytes : 64) != NULL) {
        set->kind = "choice";
        set->measures = JUDGE_NORM | JUDGE_MEAN;
        return read_binary(set, (bytes_reader){.at = (const unsigned char *)text, .left = bytes},
                           limit);
    }
    cursor look = c;
    const char *label = NULL;
    size_t n = 0;
    if (next_line(&look, &label, &n) && next_line(&look, &label, &n) && n == 1 &&
        isdigit((unsigned char)label[0])) {
        set->kind = "hellaswag";
        set->measures = JUDGE_NORM | JUDGE_MEAN;
        return read_six_lines(set, c, limit);
    }
    text_pool first = {0};
    size_t fields[FIELDS] = {0};
    look = c;
    int columns = next_record(&look, &first, fields);
    text_free(&first);
    if (columns != 5 && columns != 6) {
        app_error("%s: no file of tasks that is known: neither JSON, nor six lines a task, nor a "
                  "table of 5 (WinoGrande) or 6 (MMLU) fields",
                  set->path);
        return APP_FAILURE;
    }
    set->kind = columns == 5 ? "winogrande" : "mmlu";
    set->measures = columns == 5 ? JUDGE_PAIR : 0;
    return read_table(set, c, columns, limit);
}
