/* core/text/template/template.h - chat templates: the Jinja language as transformers runs it.
 *
 * A template is parsed once and rendered from JSON. The language is Jinja 3.1 with trim_blocks and
 * lstrip_blocks, loop controls, {% generation %}, tojson without HTML escapes, raise_exception,
 * strftime_now and from_json; there are no other templates to include, no files and no process.
 *
 * Every byte of a text carries a mark: typed, when it came out of the JSON. The marks go through
 * all operations, so that the result tells what the template wrote from what people did.
 *
 * Templates come from outside: parsing is bounded in depth, a rendering in steps, depth and memory.
 */
#ifndef GW_TEXT_TEMPLATE_H
#define GW_TEXT_TEMPLATE_H

#include "core/base/status.h"

typedef struct gw_template gw_template; /* read-only after parsing; any thread */

/* where: how messages name it, copied. The text is copied. GW_E_SYNTAX names the line; GW_E_LIMIT
 * (nested too deeply, more than 16 MiB), GW_E_ENCODING, GW_E_NOMEM. */
gw_status gw_template_parse(const char *where, const char *text, size_t bytes, gw_template **out);
void gw_template_free(gw_template *t); /* accepts NULL */

const char *gw_template_source(const gw_template *t, size_t *bytes); /* as it was given */
/* 1 when the template names such a variable. */
int gw_template_names(const gw_template *t, const char *name);

/* Variables: the members of a JSON object. Of several inputs the later ones win. */
typedef struct gw_template_input {
    const char *where; /* how messages name it */
    const char *json;
    size_t bytes;
    int trusted; /* its texts are the template's own; else only those of bos_token and the like */
} gw_template_input;

typedef struct gw_template_time { /* of strftime_now: the fields of a calendar */
    int year, month, day, hour, minute, second;
} gw_template_time;

typedef struct gw_template_options {
    gw_template_time time;
    /* The inputs are a request: "tools" and "documents" are null and add_generation_prompt is
     * false unless given; members of messages that are null go; a role that is one word is the
     * template's own; reasoning_content is thinking, too; continue_final_message ends the text
     * behind the last message's content. */
    int conversation;
} gw_template_options;

typedef struct gw_template_text {
    char *text; /* malloc'd [bytes], NUL-terminated */
    size_t bytes;
    size_t *typed; /* malloc'd [n_typed][2]: begin and end, in order, apart from each other */
    size_t n_typed;
} gw_template_text;

/* GW_E_ARGUMENT: the template's own raise_exception, or a request that does not fit; GW_E_TYPE: an
 * operation that the values do not allow; GW_E_FORBIDDEN; GW_E_LIMIT. Messages name the line of the
 * template. *out is written on GW_OK only. */
gw_status gw_template_render(const gw_template *t, const gw_template_input *inputs, size_t n,
                             const gw_template_options *options, gw_template_text *out);
void gw_template_text_free(gw_template_text *text);

/* "2026-11-26 10:20:30", or only the date. GW_E_ARGUMENT. */
gw_status gw_template_time_read(const char *text, gw_template_time *out);
void gw_template_time_now(gw_template_time *out); /* local time */

#endif
