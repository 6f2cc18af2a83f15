/* apps/serve/parts.c - parts of messages: see parts.h. */
#include "apps/serve/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/text.h"

/* Where the text of a part is, by the names of OpenAI's chat API, of its responses and of the
 * Messages API. A part without a type is one of these by its members. */
static const struct {
    const char *type, *member;
} kinds[] = {{"text", "text"},         {"input_text", "text"}, {"output_text", "text"},
             {"summary_text", "text"}, {"refusal", "refusal"}, {"reasoning_text", "text"},
             {"thinking", "thinking"}};

/* NULL: no text. */
static const json_t *text_of(const json_t *part, const char *type) {
    if (json_is_string(part)) {
        return part;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (type == NULL || strcmp(type, kinds[i].type) == 0) {
            const json_t *text = json_object_get(part, kinds[i].member);
            if (json_is_string(text)) {
                return text;
            }
        }
    }
    return NULL;
}

static int add_part(text_buffer *out, const json_t *part, size_t message, size_t number, int result,
                    fault *f) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = text_of(part, type);
    char name[80];
    if (text == NULL && !result) {
        return fault_set(f, 400, "messages",
                         "messages[%zu].content[%zu]: a part of type '%.40s' cannot be read: this "
                         "model takes text",
                         message, number, type != NULL ? type : "?");
    }
    snprintf(name, sizeof name, "[%.40s: not shown, this model takes text]",
             type != NULL ? type : "?");
    const char *said = text != NULL ? json_string_value(text) : name;
    size_t bytes = text != NULL ? json_string_length(text) : strlen(name);
    if ((number > 0 && text_add(out, "\n", 1) != 0) || text_add(out, said, bytes) != 0) {
        return fault_set(f, 503, NULL, "out of memory");
    }
    return 0;
}

json_t *parts_read(const json_t *content, size_t message, int result, fault *f) {
    text_buffer out = {0};
    const json_t *part;
    size_t i;
    if (content == NULL || json_is_null(content)) {
        return json_string("");
    }
    if (json_is_string(content)) {
        return json_incref((json_t *)(uintptr_t)content);
    }
    if (!json_is_array(content)) {
        fault_set(f, 400, "messages", "messages[%zu].content: a text or a list of parts is needed",
                  message);
        return NULL;
    }
    json_array_foreach(content, i, part) {
        if (add_part(&out, part, message, i, result, f) != 0) {
            free(out.at);
            return NULL;
        }
    }
    json_t *text = out.n > 0 ? json_stringn_nocheck(out.at, out.n) : json_string("");
    free(out.at);
    return text;
}
