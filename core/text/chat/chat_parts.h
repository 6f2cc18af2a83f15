/* core/text/chat/chat_parts.h - a chat from inside: forms, templates, requests. */
#ifndef GW_TEXT_CHAT_PARTS_H
#define GW_TEXT_CHAT_PARTS_H

#include "core/text/buffer.h"
#include "core/text/chat/chat.h"

enum { GW_CHAT_MARKERS = 12, GW_CHAT_BARRED = 64, GW_CHAT_TYPED = -2 /* id of a typed piece */ };

typedef struct gw_chat_marked {
    const char *spelling; /* in the style's pattern, between the braces */
    size_t bytes;
    int32_t id; /* -1: the vocabulary has none */
} gw_chat_marked;

typedef struct gw_template gw_template;

struct gw_chat {
    const gw_chat_style *style; /* NULL: a template of no known form */
    const gw_vocab *vocab;
    const gw_tokenizer *tokenizer; /* NULL: texts only */
    gw_chat_source source;
    char *preset; /* system text without which no conversation begins; NULL: none */
    gw_chat_marked markers[GW_CHAT_MARKERS];
    int n_markers;
    int32_t barred[GW_CHAT_BARRED]; /* what text may not become: markers of any form, and ends */
    size_t n_barred;
    int32_t end; /* -1: the style closes an answer with text, or not at all */
    char end_text[64];
    gw_template *template; /* NULL: the style writes */
};

/* A conversation in the patterns of a form. */
typedef struct gw_chat_form {
    const gw_chat *c;
    gw_text_piece *pieces; /* malloc'd [n] */
    size_t n, capacity;
    gw_chat_message preset;
    const gw_chat_message *system; /* waits for the user's message that takes it along */
    int unfinished;                /* the last answer stays open                      */
    int closed;                    /* no answer is opened at the end                  */
    int goes_on;
} gw_chat_form;

gw_status gw_chat_fill(gw_chat_form *r, const gw_chat_message *messages, size_t n, size_t from);
gw_text_rules gw_chat_rules(const gw_chat *chat, int joined);

#endif
