/* core/text/chat/chat_parts.h - a chat from inside: forms, templates, requests. */
#ifndef GW_TEXT_CHAT_PARTS_H
#define GW_TEXT_CHAT_PARTS_H

#include "core/text/buffer.h"
#include "core/text/chat/chat.h"
#include "core/text/chat/inserted.h"
#include "core/text/template/template.h"
#include "core/text/tokens/trie.h"

enum { GW_CHAT_MARKERS = 12, GW_CHAT_BARRED = 64, GW_CHAT_TYPED = -2 /* id of a typed piece */ };

typedef struct gw_chat_marked {
    const char *spelling; /* in the style's pattern, between the braces */
    size_t bytes;
    int32_t id; /* -1: the vocabulary has none */
} gw_chat_marked;

struct gw_chat {
    const gw_chat_style *style; /* NULL: a template of no known form */
    const gw_vocab *vocab;
    const gw_tokenizer *tokenizer; /* NULL: texts only */
    gw_chat_source source;
    gw_chat_marked markers[GW_CHAT_MARKERS];
    int n_markers;
    int32_t barred[GW_CHAT_BARRED]; /* what text may not become: markers of any form, and ends */
    size_t n_barred;
    int32_t end; /* -1: the style closes an answer with text, or not at all */
    char end_text[64];
    /* Of a template; NULL where the style writes. */
    gw_template *template;
    gw_template *for_tools; /* of requests with tools; NULL: the same */
    char name[64];          /* "": that of the style */
    char *specials;         /* JSON: bos_token and the like, as the vocabulary spells them */
    char *arguments;        /* JSON, NULL: none */
    char reasoning[160];    /* JSON, "": none */
    gw_template_time date;  /* year 0: now */
    gw_trie *tokens;        /* that a template's own text may spell */
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
/* templated.c: the same by a template. */
gw_status gw_chat_take_template(gw_chat *c, const gw_chat_settings *settings,
                                const gw_chat_own *own, const char *text, size_t bytes);
/* inserts: in place of marks of pictures; NULL: none. */
gw_status gw_chat_write_template(const gw_chat *c, const char *request, size_t bytes,
                                 const gw_chat_inserts *inserts, gw_chat_text *out);
gw_status gw_chat_render_template(const gw_chat *c, const gw_chat_message *messages, size_t n,
                                  size_t from, int32_t **ids, size_t *n_ids);
/* Behind the markers: which tokens a template may spell, and which one ends an answer. */
gw_status gw_chat_settle_template(gw_chat *c);
void gw_chat_drop_template(gw_chat *c);

gw_text_rules gw_chat_rules(const gw_chat *chat, int joined);

#endif
