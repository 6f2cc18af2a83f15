/* apps/judge/choices.h - which ending of a task a model finds likely.
 *
 * A choice's ids are those of context + ending; the ending's are what they have more than the
 * context alone (white space at its end belongs to the ending). Start token in front where the
 * model has one; without one, where the context is empty, the token that ends texts.
 */
#ifndef GW_APPS_JUDGE_CHOICES_H
#define GW_APPS_JUDGE_CHOICES_H

#include "apps/judge/tasks.h"
#include "apps/options.h"

typedef struct choice_score {
    double sum;      /* of ln p over the ending's ids                                          */
    int32_t n;       /* of these                                                               */
    double mean_sum; /* over the ids that llama.cpp counts: JUDGE_MEAN, JUDGE_PAIR (tasks.h)   */
    int32_t n_mean;
} choice_score;

typedef struct choice_ids { /* of a set's choice, for one vocabulary */
    int32_t *ids;           /* [n] */
    int32_t n, ending;      /* the first id of the ending */
    int32_t mean_from, mean_to;
} choice_ids;

typedef struct choice_texts {
    choice_ids *at; /* [set->n_choices] */
    size_t n, cut;  /* cut: how many were too long */
    int32_t longest;
    double ids; /* all of them */
} choice_texts;

/* longest: most ids of a choice, of which those behind the start token go first; 0: any number.
 * Exit code; choices_free also after an error. */
int choices_tokenize(const judge_set *set, const gw_model *vocabulary, int32_t longest,
                     choice_texts *out);
void choices_free(choice_texts *texts);

/* Positions of the KV cache that choices_score takes. */
int64_t choices_cache(const app_options *o, const choice_texts *texts);
/* scores [n]. Exit code. */
int choices_score(const app_options *o, gw_model *model, const choice_texts *texts,
                  choice_score *scores);

/* Which choice each measure finds the best, the first among equals. */
typedef enum judge_measure { MEASURE_ACC, MEASURE_NORM, MEASURE_MEAN, MEASURES } judge_measure;
const char *judge_measure_name(judge_measure m); /* "acc" */
int judge_has_measure(const judge_set *set, judge_measure m);
size_t judge_best(const judge_set *set, const judge_task *task, const choice_score *scores,
                  judge_measure m); /* scores of the whole set; 0 .. task->n - 1 */

#endif
