/* apps/serve/chat_text.h - conversations as clients send them, in the shape that templates know. */
#ifndef GW_APPS_SERVE_CHAT_TEXT_H
#define GW_APPS_SERVE_CHAT_TEXT_H

#include "apps/serve/ask.h"
#include "apps/serve/models.h"

/* Messages of OpenAI's chat API: content as a text, a list of parts or null; every role; calls and
 * their results; reasoning under any of its names. A new list, or NULL and *f (a part that cannot
 * be read, a message that is none). Pictures are the ask's. What a client sends back is never
 * judged: arguments of a call that are no JSON stay a text. */
json_t *chat_text_messages(ask *a, const json_t *messages, fault *f);

/* The fields of a chat request that the template sees: messages, documents, chat_template_kwargs,
 * reasoning_effort, whether the last answer goes on. messages is taken over. 0 or -1 and *f. */
int chat_text_read(ask *a, const json_t *body, json_t *messages, fault *f);
/* What the model is given, once the ask's pictures have been looked at (job_pictures.c). A template
 * without tools is told of them in its system message; one that refuses the conversation is given
 * it in another form (chat_fit.h). Freed by gw_chat_text_free. Any thread. */
int chat_text_write(const model *m, ask *a, gw_chat_text *out, fault *f);

#endif
