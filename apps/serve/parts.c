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

/* What is read of a content: how it ends decides whether a line end comes before the next part. */
typedef struct reading {
    text_buffer out;
    picture_list *pictures;
    size_t message;
    int result, after_text;
    fault *f;
} reading;

static int add(reading *r, const char *said, size_t bytes, int is_text) {
    int line = is_text && r->after_text;
    r->after_text = is_text;
    return (line && text_add(&r->out, "\n", 1) != 0) || text_add(&r->out, said, bytes) != 0
               ? fault_set(r->f, 503, NULL, "out of memory")
               : 0;
}

static int add_named(reading *r, const char *type) {
    char name[80];
    snprintf(name, sizeof name, "[%.40s: not shown, this model takes text]", type);
    return add(r, name, strlen(name), 1);
}

/* Pictures of a result that the server cannot take are named like all that it cannot. */
static int add_picture(reading *r, const json_t *part, const char *type, size_t number) {
    char field[64], mark[PICTURE_MARK];
    snprintf(field, sizeof field, "messages[%zu].content[%zu]", r->message, number);
    if (picture_add(r->pictures, part, type, field, mark, r->f) != 0) {
        if (!r->result || r->f->status != 400) {
            return -1;
        }
        *r->f = (fault){0};
        return add_named(r, type);
    }
    r->pictures->at[r->pictures->n - 1].of_a_result = r->result;
    return add(r, mark, strlen(mark), 0);
}

static int add_part(reading *r, const json_t *part, size_t number) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = text_of(part, type);
    if (text != NULL) {
        return add(r, json_string_value(text), json_string_length(text), 1);
    }
    type = type != NULL ? type : json_object_get(part, "image_url") != NULL ? "image_url" : "?";
    if (picture_is(type)) {
        return add_picture(r, part, type, number);
    }
    return r->result ? add_named(r, type)
                     : fault_set(r->f, 400, "messages",
                                 "messages[%zu].content[%zu]: a part of type '%.40s' cannot be "
                                 "read: models here take text and pictures",
                                 r->message, number, type);
}

json_t *parts_read(const json_t *content, size_t message, int result, picture_list *pictures,
                   fault *f) {
    reading r = {.pictures = pictures, .message = message, .result = result, .f = f};
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
        if (add_part(&r, part, i) != 0) {
            free(r.out.at);
            return NULL;
        }
    }
    json_t *text = r.out.n > 0 ? json_stringn_nocheck(r.out.at, r.out.n) : json_string("");
    free(r.out.at);
    return text;
}
