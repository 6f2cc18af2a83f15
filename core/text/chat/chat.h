/* core/text/chat/chat.h - conversations in the form a model was trained on, as token ids.
 *
 * A form is a row of text patterns (chat_styles.c). In a pattern "{X}" is the token spelled X
 * ({bos}, {eos}: those of the vocabulary), put in by its id; where the vocabulary has no such token
 * its spelling is text. "%" is where the message goes. What people type is only ever text.
 */
#ifndef GW_TEXT_CHAT_H
#define GW_TEXT_CHAT_H

#include "core/text/tokens/tokenizer.h"

enum {
    GW_CHAT_TRIM_SYSTEM = 1, /* white space around the text of a message is dropped */
    GW_CHAT_TRIM_USER = 2,
    GW_CHAT_TRIM_ANSWER = 4,
    GW_CHAT_TRIM_WHOLE = 8, /* of a user's message together with the system text before it */
    GW_CHAT_STRIP = 16      /* tokens swallow the white space behind them */
};

typedef struct gw_chat_style {
    const char *name;
    const char *begin;  /* once, before everything                                        */
    const char *system; /* a system message; NULL: `join` inside the next user's message  */
    const char *join;
    const char *user;
    const char *answer; /* opens an answer: generation goes on from here   */
    const char *said;   /* the text of an answer that is known             */
    const char *end;    /* closes an answer; a model ends its own with it  */
    const char *after;  /* between an answer and the next message          */
    const char *preset; /* system text when the conversation has none; "" none */
    const char *stop;   /* text that ends an answer where no token does; "" none */
    int flags;
} gw_chat_style;

/* The templates that a model brings. */
typedef struct gw_chat_own {
    const char *text; /* [bytes] the one asked for by name, else the default; NULL: none */
    size_t bytes;
    const char *tools_text; /* [tools_bytes] for requests with tools; NULL: the same */
    size_t tools_bytes;
    int named; /* text is the one of that name */
} gw_chat_own;

typedef enum gw_chat_source { /* how the form was chosen */
                              GW_CHAT_BY_NAME,
                              GW_CHAT_BY_TEMPLATE,
                              GW_CHAT_BY_VOCAB,
                              GW_CHAT_BY_DEFAULT
} gw_chat_source;

/* The row of a name ("llama2", "llama-2"; "mistral" and "deepseek" look at the vocabulary). NULL:
 * no such name. */
const gw_chat_style *gw_chat_style_named(const char *name, const gw_vocab *vocab);
/* The row that a template of a model file (Jinja text) follows, known by its markers. NULL: none.
 */
const gw_chat_style *gw_chat_style_of_template(const char *text, size_t bytes,
                                               const gw_vocab *vocab);
/* The row whose markers the vocabulary has; "plain" when it has those of none. */
const gw_chat_style *gw_chat_style_of_vocab(const gw_vocab *vocab);
/* The i-th row, NULL behind the last. */
const gw_chat_style *gw_chat_style_at(size_t i);
/* The i-th name, NULL behind the last. */
const char *gw_chat_style_name(size_t i);
/* The id of the token spelled so; -1: none. */
int32_t gw_chat_marker(const gw_vocab *vocab, const char *spelling, size_t bytes);

/* The form or template of the settings; without one the model's own template, else by the
 * vocabulary. own: NULL for a model without templates. tokenizer: NULL for texts only. All are
 * borrowed but texts. GW_E_ARGUMENT: an unknown name, date, argument; GW_E_SYNTAX: a template. */
gw_status gw_chat_bind_settings(const gw_vocab *vocab, const gw_tokenizer *tokenizer,
                                const gw_chat_settings *settings, const gw_chat_own *own,
                                gw_chat **out);
/* The same of a name (NULL: none) and the model's own template [bytes] (NULL: none). */
gw_status gw_chat_bind(const gw_vocab *vocab, const gw_tokenizer *tokenizer, const char *name,
                       const char *template_text, size_t bytes, gw_chat **out);

#endif
