/* apps/judge/tasks.c - sets of tasks, whatever form they came in. See tasks.h. */
#include "apps/judge/tasks.h"

#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "core/base/utf8.h"

/* Room for one more in an array of elements of `size`; NULL: no memory. */
static void *grow(void *at, size_t n, size_t *room, size_t size) {
    if (n < *room) {
        return at;
    }
    size_t more = *room == 0 ? 64 : 2 * *room;
    void *grown = more < SIZE_MAX / size ? realloc(at, more * size) : NULL;
    *room = grown != NULL ? more : *room;
    return grown;
}

int judge_begin_task(judge_set *set, int32_t gold) {
    judge_task *tasks = grow(set->tasks, set->n, &set->room, sizeof *tasks);
    if (tasks == NULL) {
        return -1;
    }
    set->tasks = tasks;
    tasks[set->n++] = (judge_task){.first = set->n_choices, .gold = gold};
    return 0;
}

int judge_add_choice(judge_set *set, text_span context, text_span ending) {
    judge_choice *choices = grow(set->choices, set->n_choices, &set->choice_room, sizeof *choices);
    if (choices == NULL || set->pool.failed) {
        set->choices = choices != NULL ? choices : set->choices;
        return -1;
    }
    const char *text = set->pool.at + ending.at;
    size_t space = ending.bytes > 0 && text[0] == ' ';
    set->choices = choices;
    choices[set->n_choices++] =
        (judge_choice){.context = context,
                       .ending = ending,
                       .characters = (int32_t)gw_utf8_count(text + space, ending.bytes - space)};
    set->tasks[set->n - 1].n++;
    return 0;
}

void judge_free_tasks(judge_set *set) {
    text_free(&set->pool);
    free(set->tasks);
    free(set->choices);
    *set = (judge_set){0};
}

static int first_letter(const app_text *text) {
    size_t i = 0;
    while (i < text->bytes && strchr(" \t\r\n", text->at[i]) != NULL && text->at[i] != '\0') {
        i++;
    }
    return i < text->bytes ? text->at[i] : -1;
}

int judge_read_tasks(const char *path, size_t limit, judge_set *out) {
    app_text text = {0};
    *out = (judge_set){.path = path};
    int code = app_read_file(path, &text);
    if (code != APP_OK) {
        return code;
    }
    int first = first_letter(&text);
    code = first == '{' || first == '[' ? judge_read_json(out, text.at, text.bytes, limit)
                                        : judge_read_plain(out, text.at, text.bytes, limit);
    free(text.at);
    if (code == APP_OK && out->n == 0) {
        app_error("%s: no tasks in it", path);
        code = APP_FAILURE;
    }
    return code;
}

/* ---- examples -------------------------------------------------------------------------------- */

static int same_text(const judge_set *a, text_span x, const judge_set *b, text_span y) {
    return x.bytes == y.bytes &&
           (x.bytes == 0 || memcmp(a->pool.at + x.at, b->pool.at + y.at, x.bytes) == 0);
}

/* The examples of a task to the end of the pool; returns how many there were. */
static size_t put_shots(judge_set *set, const judge_task *task, const judge_set *examples,
                        size_t shots) {
    size_t n = 0;
    for (size_t i = 0; i < examples->n && n < shots; i++) {
        const judge_task *e = &examples->tasks[i];
        if (!same_text(set, task->subject, examples, e->subject)) {
            continue;
        }
        const judge_choice *right = &examples->choices[e->first + (size_t)e->gold];
        text_put(&set->pool, examples->pool.at + right->context.at, right->context.bytes);
        text_put(&set->pool, examples->pool.at + right->ending.at, right->ending.bytes);
        text_puts(&set->pool, "\n\n");
        n++;
    }
    return n;
}

int judge_complete_contexts(judge_set *set, const judge_set *examples, size_t shots) {
    for (size_t i = 0; i < set->n; i++) {
        const judge_task *task = &set->tasks[i];
        judge_choice *choices = set->choices + task->first;
        text_span old = {0}, made = {0};
        for (size_t k = 0; k < task->n && (task->intro.bytes > 0 || shots > 0); k++) {
            if (k > 0 && choices[k].context.at == old.at && choices[k].context.bytes == old.bytes) {
                choices[k].context = made; /* one place for all choices of a task */
                continue;
            }
            size_t from = set->pool.used, n = 0;
            text_copy(&set->pool, task->intro);
            n = examples != NULL ? put_shots(set, task, examples, shots) : 0;
            if (n < shots) {
                app_error("--shots: task %zu of %s has %zu examples of its subject in %s, not %zu",
                          i + 1, set->path, n, examples != NULL ? examples->path : "no file",
                          shots);
                return APP_FAILURE;
            }
            old = choices[k].context;
            text_copy(&set->pool, old);
            made = text_since(&set->pool, from);
            choices[k].context = made;
        }
    }
    if (set->pool.failed) {
        app_error("%s: no memory for its texts", set->path);
        return APP_FAILURE;
    }
    return APP_OK;
}
