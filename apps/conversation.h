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

#include "apps/chat_answer.h"
#include "apps/generate.h"
#include "apps/pictures.h"

typedef struct chat_turn { /* figures of one turn */
    int32_t kept, read, written, timed;
    double read_seconds, first_seconds, text_seconds;
    const char *ended;
} chat_turn;

typedef struct conversation {
    app_generator g;
    gw_chat *chat;
    /* Texts malloc'd. Behind the NUL of a text stands what else the message has, a JSON object
     * ("tool_calls", "tool_call_id", "name", "images"), or "". */
    gw_chat_message *messages;
    chat_answer answer;
    size_t n, capacity;
    size_t n_held, n_ctx;  /* tokens of the conversation; the session may lack the last */
    int stale;             /* the session does not hold what the messages say   */
    app_pictures pictures; /* of all messages; images NULL: the model takes none */
    char blind[PICTURES_BLIND];
    char *images;       /* what the next message has of them, {"images": [PATH, ...]}; NULL: none */
    gw_seen_rows *seen; /* [n_seen] where their rows are in the session */
    size_t n_seen;
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

/* Calls of the last answer that wait for results: conversation_call(c, i), NULL behind the last. A
 * result for each in their order, then the model goes on. */
const chat_call *conversation_call(const conversation *c, size_t i);
int conversation_result(conversation *c, const chat_call *call, const char *text, size_t bytes);
int conversation_go_on(conversation *c);
/* Only the first n messages were said. */
void conversation_cut(conversation *c, size_t n);
/* Other tools, from a file; NULL: none. */
int conversation_tools(conversation *c, const char *path);

/* The first message when it is a system message, else NULL. */
const gw_chat_message *conversation_system(const conversation *c);
int conversation_set_system(conversation *c, const char *text, size_t bytes); /* "": none */
void conversation_reset(conversation *c); /* forget all but the system message */

/* A picture in front of the next message. Exit code. */
int conversation_image(conversation *c, const char *path);

/* Are there tools, calls, results or pictures? Then the messages are written anew for every answer.
 */
int conversation_has_calls(const conversation *c);
int conversation_are_calls(const gw_chat_message *list, size_t n); /* ... in this list? */
/* The tokens of messages [n] with those, as the model's template writes them: a request as JSON. A
 * form that has no tools tells of them in words. *ids [*n_ids], freed with gw_free. GW_E_NOMEM
 * without a message. */
gw_status conversation_request(const conversation *c, const gw_chat_message *list, size_t n,
                               int32_t **ids, size_t *n_ids);

/* conversation_pictures.c: the pictures that messages [n] name are read. Exit code. */
int conversation_read_images(conversation *c, const gw_chat_message *list, size_t n);
/* The request of these messages by the template; GW_E_NOMEM without a message. */
gw_status conversation_write(const conversation *c, const char *request,
                             const gw_chat_message *list, size_t n, gw_chat_text *out);
/* Where the rows of their pictures stand in its tokens [n_ids]: gw_free(*seen). */
gw_status conversation_see(conversation *c, const gw_chat_message *list, size_t n,
                           const int32_t *ids, size_t n_ids, gw_seen_rows **seen, size_t *n_seen);
/* How many of the first `same` tokens, which agree, the session holds with the same pictures. */
size_t conversation_same(const conversation *c, const gw_seen_rows *seen, size_t n_seen,
                         size_t same);

/* A copy of a text with what stands behind it; NULL: no memory. */
char *conversation_text(const char *text, size_t bytes, const char *more);

/* JSON: {"messages": [{"role": ..., "content": ...}, ...], ...}; loading replaces the messages.
 * Bytes that are not UTF-8 are saved as U+FFFD. Exit codes; nothing changes on failure. */
int conversation_save(const conversation *c, const char *path);
int conversation_load(conversation *c, const char *path);

#endif
