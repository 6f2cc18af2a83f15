/* apps/judge/tasks.h - tasks with choices: a context, several endings, one of them right.
 *
 * What kind of task a file holds is found in it. JSON: objects, one a line or in one array, with
 * the members that the set has on Hugging Face; context and endings are then those of EleutherAI's
 * lm-evaluation-harness. Else one of the forms that llama.cpp's perplexity tool reads (and MMLU's
 * own tables), with context and endings as they stand there.
 *
 *   kind        found by                                    context / ending
 *   hellaswag   activity_label, ctx_a, endings, label       "LABEL: CTX_A Ctx_b" / " ENDING"
 *               six lines: context, 0..3, four endings      CONTEXT / " ENDING"
 *   winogrande  sentence, option1, option2, answer          what is before _ + OPTION / the rest
 *               table: number,sentence,option,option,1|2    the same
 *   mmlu        question, choices (a list), answer          question, lettered choices / " A"
 *               table: question,A,B,C,D,A|B|C|D             the same
 *   arc         question, choices (text, label), answerKey  "Question: QUESTION\nAnswer:" / " TEXT"
 *   openbookqa  question_stem, choices, answerKey           QUESTION / " TEXT"
 *   piqa        goal, sol1, sol2, label                     "Question: GOAL\nAnswer:" / " SOL"
 *   choice      query, choices (a list), gold               QUERY / " CHOICE"
 *               binary file of llama.cpp                    QUESTION / " ANSWER"
 */
#ifndef GW_APPS_JUDGE_TASKS_H
#define GW_APPS_JUDGE_TASKS_H

#include <stddef.h>
#include <stdint.h>

#include "apps/judge/texts.h"

typedef struct judge_choice {
    text_span context, ending;
    int32_t characters; /* of the ending without the space in front of it */
} judge_choice;

typedef struct judge_task {
    size_t first, n;   /* its choices */
    int32_t gold;      /* the right one, 0 .. n - 1 */
    text_span intro;   /* stands before everything, examples too */
    text_span subject; /* examples come from those of the same */
} judge_task;

/* How a set is scored besides by the largest likelihood (acc). */
enum {
    JUDGE_NORM = 1, /* divided by the characters of the ending: acc_norm */
    JUDGE_MEAN = 2, /* llama.cpp's: the mean over the ids behind what all choices begin with */
    JUDGE_PAIR = 4  /* llama.cpp's for winogrande: over those behind the option but the last */
};

typedef struct judge_set {
    const char *path, *kind;
    unsigned measures;
    text_pool pool; /* all its texts */
    judge_task *tasks;
    size_t n, room;
    judge_choice *choices;
    size_t n_choices, choice_room;
} judge_set;

/* Error line printed; exit code. limit: most tasks, 0: all. */
int judge_read_tasks(const char *path, size_t limit, judge_set *out);
void judge_free_tasks(judge_set *set);

/* Complete the contexts: intro, the first `shots` tasks of `examples` (of the same subject) with
 * their right endings, each with a blank line behind, then the context. examples NULL: none.
 * Exit code. */
int judge_complete_contexts(judge_set *set, const judge_set *examples, size_t shots);

/* ---- for the readers of the forms ------------------------------------------------------------ */

/* A task begins; then its choices, of which number `gold` is right. 0, or -1: no memory. */
int judge_begin_task(judge_set *set, int32_t gold);
int judge_add_choice(judge_set *set, text_span context, text_span ending);
/* A question with lettered choices [n], as MMLU is asked; subject NULL: none. 0, or -1. */
int judge_add_lettered(judge_set *set, const char *question, const char *subject,
                       const char *const *choices, size_t n, int32_t gold);

/* Exit codes; error lines name place and reason. */
int judge_read_json(judge_set *set, const char *text, size_t bytes, size_t limit);
int judge_read_plain(judge_set *set, const char *text, size_t bytes, size_t limit);

#endif
