/* core/text/chat/inserted.h - texts in place of marks that a template wrote, and conversations for
 * templates that know texts alone. */
#ifndef GW_TEXT_CHAT_INSERTED_H
#define GW_TEXT_CHAT_INSERTED_H

#include "core/text/template/template.h"

/* In place of the first mark that the template wrote itself stands text[0], of the second text[1].
 * before and after: what else a template would write around a mark. */
typedef struct gw_chat_inserts {
    const char *mark, *before, *after;
    char *const *text; /* [n] */
    size_t n;
} gw_chat_inserts;

/* *text is written anew; what was typed stays that, whatever it spells. GW_E_ARGUMENT: there are
 * not n marks; *used (may be NULL) says how many; GW_E_NOMEM. On an error *text is as it was. */
gw_status gw_chat_insert(gw_template_text *text, const gw_chat_inserts *inserts, size_t *used);

enum { GW_CHAT_STAND_IN = 40 };

/* A request whose messages have texts only: lists of parts become one text, where stand_in, which
 * the request nowhere has, is what a picture was. *out: malloc'd, NUL-terminated. GW_E_ARGUMENT: it
 * has other parts, or is no JSON. */
gw_status gw_chat_flatten(const char *request, size_t bytes, char stand_in[GW_CHAT_STAND_IN],
                          char **out);
/* As gw_chat_insert, in place of stand_in, which lies in what was typed; with before and after. */
gw_status gw_chat_insert_flat(gw_template_text *text, const char *stand_in,
                              const gw_chat_inserts *inserts);

#endif
