/* apps/conversation.h - a conversation: its messages, and the tokens of it that the session holds.
 *
 * Answers stay in the session as they were generated; a turn evaluates only what is new. When the
 * messages were changed behind the session's back (stale), the next turn writes all of them anew
 * and evaluates from the first token that differs. With --context-shift the model forgets the
 * oldest messages when they no longer fit, and the oldest tokens when an answer needs room; the
 * list of messages stays whole.
 */
#ifndef GW_APPS_CONVERSATION_H
#define GW_APPS_CONVERSATION_H

#include "apps/generate.h"

typedef struct chat_text {
    char *at;
    size_t bytes, capacity;
} chat_text;

typedef struct chat_turn { /* figures of one turn */
    int32_t kept, read, written, timed;
    double read_seconds, first_seconds, text_seconds;
    const char *ended;
} chat_turn;

typedef struct conversation {
    app_generator g;
    gw_chat *chat;
    gw_chat_message *messages; /* texts malloc'd */
    size_t n, capacity;
    size_t n_held, n_ctx; /* tokens of the conversation; the session may lack the last */
    int stale;            /* the session does not hold what the messages say   */
    int sampler_off;      /* the sampler knows other tokens than those held    */
    chat_turn last;
    int32_t turns, written, read;
    size_t forgotten; /* messages behind the system message that found no room any more */
    double read_seconds, text_seconds;
} conversation;

/* Exit code; conversation_close in any case. */
int conversation_open(conversation *c, const app_options *o);
void conversation_close(conversation *c);

/* Answer `text` (NULL: the last message, a user's), written to standard output as it comes. Exit
 * code. Nothing is changed when it fails; Ctrl-C keeps what the answer has so far. */
int conversation_turn(conversation *c, const char *text, size_t bytes);

/* The first message when it is a system message, else NULL. */
const gw_chat_message *conversation_system(const conversation *c);
int conversation_set_system(conversation *c, const char *text, size_t bytes); /* "": none */
void conversation_reset(conversation *c); /* forget all but the system message */

/* JSON: {"messages": [{"role": ..., "content": ...}, ...], ...}; loading replaces the messages.
 * Bytes that are not UTF-8 are saved as U+FFFD. Exit codes; nothing changes on failure. */
int conversation_save(const conversation *c, const char *path);
int conversation_load(conversation *c, const char *path);

#endif
