/* core/text/chat/inserted.h - texts in place of marks that a template wrote. */
#ifndef GW_TEXT_CHAT_INSERTED_H
#define GW_TEXT_CHAT_INSERTED_H

#include "core/text/template/template.h"

/* In place of the first mark that the template wrote itself stands text[0], of the second text[1].
 */
typedef struct gw_chat_inserts {
    const char *mark;
    char *const *text; /* [n] */
    size_t n;
} gw_chat_inserts;

/* *text is written anew; what was typed stays that, whatever it spells. GW_E_ARGUMENT: there are
 * not n marks; GW_E_NOMEM. On an error *text is as it was. */
gw_status gw_chat_insert(gw_template_text *text, const gw_chat_inserts *inserts);

#endif
