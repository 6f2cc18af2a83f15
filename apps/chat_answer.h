/* apps/chat_answer.h - an answer of a chat as it comes: its text on standard output, its reasoning
 * folded, its calls of tools kept.
 *
 * Reasoning goes to standard output only with --show-reasoning, dim on a terminal; else a terminal
 * shows one dim line while the model thinks, and how long it took.
 */
#ifndef GW_APPS_CHAT_ANSWER_H
#define GW_APPS_CHAT_ANSWER_H

#include "apps/options.h"

typedef struct chat_text {
    char *at;
    size_t bytes, capacity;
} chat_text;

/* Appends; the text stays NUL-terminated. Exit code. */
int chat_text_add(chat_text *t, const char *text, size_t bytes);

typedef struct chat_call {
    char *name, *id;
    chat_text arguments; /* JSON */
} chat_call;

typedef struct chat_answer {
    const app_options *o;
    const gw_model *model;
    const gw_chat *chat;
    gw_answer *reader;
    gw_grammar *grammar; /* of this answer's calls; NULL: none                   */
    chat_text tools;     /* the list of tools, JSON; bytes 0: none               */
    chat_text text;      /* the answer's, so far                                 */
    chat_text thoughts;  /* hidden reasoning                                     */
    chat_call *calls;    /* [n_calls] whole ones                                 */
    size_t n_calls, capacity;
    int reasoned;   /* the answer had reasoning                                  */
    int thinking;   /* it is being written: 1 hidden, 2 shown                    */
    int keep_blank; /* white space at the beginning belongs to the text          */
    size_t words;   /* of the reasoning                                          */
    double since;
    int after_results; /* the answer is to results: no call has to come          */
    uint64_t answers;  /* for the ids of calls */
} chat_answer;

/* Exit codes. chat is borrowed. */
int chat_answer_open(chat_answer *a, const app_options *o, const gw_model *model,
                     const gw_chat *chat);
void chat_answer_close(chat_answer *a);
/* The tools of a file from the next answer on; path NULL: none. Nothing changes on failure. */
int chat_answer_tools(chat_answer *a, const char *path);

/* An answer to a prompt of these tokens begins. free_text: no grammar for its calls. */
int chat_answer_begin(chat_answer *a, const int32_t *prompt, size_t n, int free_text);
/* More text, or (text NULL) a token that is none. */
int chat_answer_more(chat_answer *a, const char *text, size_t bytes, int32_t id);
int chat_answer_end(chat_answer *a);

/* The calls as a member of a message, JSON: "tool_calls": [...]; malloc'd, "" without calls. NULL:
 * no memory, said. */
char *chat_answer_members(const chat_answer *a);

#endif
