/* include/godwit_answer.h - what a server needs of answers and grammars besides godwit.h: answers
 * that are cut off, several that read alike, grammars that are kept. Threads as there. */
#ifndef GODWIT_ANSWER_H
#define GODWIT_ANSWER_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kind of gw_part: the answer ends inside of this call (gw_answer_cut). */
enum { GW_PART_CALL_CUT = GW_PART_CALL_BROKEN + 1 };
/* A kind of gw_grammar_new: a regular expression, as in a schema, of the whole text. */
enum { GW_GRAMMAR_PATTERN = GW_GRAMMAR_JSON_SCHEMA + 1 };

/* Another answer with the options of `like`, by whose tools it reads: `like` must outlive it, and
 * gw_answer_grammar is its alone. */
gw_status gw_answer_new_like(const gw_answer *like, uint64_t id_seed, gw_answer **out);
/* Before the last push of an answer that was cut off: what there is of a call is a call that is
 * cut, and marks of one are no text. */
void gw_answer_cut(gw_answer *answer);
/* How the answer begins, as a small number: with equal options, answers that begin alike may look
 * alike, so that the grammar of one serves the other. */
int gw_answer_beginning(const gw_answer *answer);

#ifdef __cplusplus
}
#endif

#endif
