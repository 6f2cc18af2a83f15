/* apps/serve/chat_fit.h - conversations rewritten for templates that refuse them as they are. No
 * text is dropped, and each stays at its place: what cannot be said the one way is said another. */
#ifndef GW_APPS_SERVE_CHAT_FIT_H
#define GW_APPS_SERVE_CHAT_FIT_H

#include <jansson.h>

enum {
    FIT_ARGUMENTS = 1,    /* arguments that are no JSON: an object with that text                */
    FIT_THOUGHT = 2,      /* text of a message that reasons and calls: the end of its reasoning  */
    FIT_SINGLE_CALLS = 4, /* several calls of one message: a message each, before its result     */
    FIT_TURNS = 8,        /* neighbours of one role: one message                                 */
    FIT_SYSTEM = 16,      /* a system message in the middle: a user's, <system-reminder>         */
    FIT_SYSTEM_INSIDE = 32, /* the same, as the end of the user's message or result before it     */
    FIT_NO_SYSTEM = 64 /* the system message at the start: the start of the user's first one  */
};

/* Which combinations are worth an attempt, in this order; ends with 0. */
extern const unsigned chat_fits[];

/* A new list, or NULL: there is nothing that `how` would change, or no memory. Linear. */
json_t *chat_fit(const json_t *messages, unsigned how);

/* Does the text [bytes] show each system message that is not the first, in their order? */
int chat_fit_shows(const json_t *messages, const char *text, size_t bytes);

#endif
