/* core/text/chat/inserted.c - texts in place of marks that a template wrote. */
#include "core/text/chat/inserted.h"

#include <stdlib.h>
#include <string.h>

#include "core/text/buffer.h"

/* Copies text[from, end), which the template wrote, with its marks replaced; *used counts them. */
static gw_status add_own(gw_bytes *to, const char *text, size_t from, size_t end,
                         const gw_chat_inserts *inserts, size_t *used) {
    size_t n = strlen(inserts->mark);
    while (from < end) {
        const char *found = memmem(text + from, end - from, inserts->mark, n);
        size_t at = found != NULL ? (size_t)(found - text) : end;
        GW_TRY(gw_bytes_add(to, text + from, at - from));
        if (found == NULL) {
            return GW_OK;
        }
        if (*used < inserts->n) {
            GW_TRY(gw_bytes_add(to, inserts->text[*used], strlen(inserts->text[*used])));
        }
        ++*used;
        from = at + n;
    }
    return GW_OK;
}

gw_status gw_chat_insert(gw_template_text *text, const gw_chat_inserts *inserts) {
    gw_bytes to = {0};
    size_t at = 0, used = 0;
    size_t *typed = malloc((text->n_typed + 1) * 2 * sizeof *typed);
    gw_status status = typed != NULL ? GW_OK : gw_fail(GW_E_NOMEM, "chat", "no memory");
    GW_TRY_DONE(status);
    for (size_t i = 0; i < text->n_typed; i++) {
        size_t begin = text->typed[2 * i], end = text->typed[2 * i + 1];
        GW_TRY_DONE(add_own(&to, text->text, at, begin, inserts, &used));
        typed[2 * i] = to.n;
        GW_TRY_DONE(gw_bytes_add(&to, text->text + begin, end - begin));
        typed[2 * i + 1] = to.n;
        at = end;
    }
    GW_TRY_DONE(add_own(&to, text->text, at, text->bytes, inserts, &used));
    if (used != inserts->n) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, "chat",
                            "the chat template has places for %zu pictures, %zu are given", used,
                            inserts->n));
    }
    GW_TRY_DONE(gw_bytes_add(&to, "", 1));
    free(text->text);
    free(text->typed);
    text->text = to.data;
    text->bytes = to.n - 1;
    text->typed = typed;
    return GW_OK;
done:
    free(to.data);
    free(typed);
    return status;
}
