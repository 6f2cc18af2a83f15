/* core/text/answer/answer.h - what a model writes, in parts: reasoning, text, calls of tools.
 *
 * A form is a row of answer_forms.c: the marks around reasoning and calls, as the templates of its
 * models have them. The same row is read by the reader (parts out of a text that comes in pieces)
 * and by the grammar (texts that are calls with arguments by their schemas). docs/answers.md.
 */
#ifndef GW_TEXT_ANSWER_H
#define GW_TEXT_ANSWER_H

#include <jansson.h>

#include "core/text/buffer.h"
#include "core/text/grammar/grammar.h"

/* ---- forms ----------------------------------------------------------------------------------- */

/* Marks are written in patterns: "{X}" is the token spelled X where the vocabulary has X as a
 * special token, else text; "{{" is a brace. White space stands as models write it and may be any
 * or none when it is read. In a call besides:
 *   %n  the tool's name        %a  its arguments, a JSON object      %i  the call's id
 *   %d  the call's number      %o  a call as a JSON object, `object` %l  a JSON list of them
 *   %p  its arguments, each as `param`: %k the name, %v the value: text where the schema says
 *       string, else JSON; %s "true" for text, else "false"; %t the JSON type of the value
 *   %g  its arguments as Gemma writes them        %y  calls as Python writes them, with commas
 */
typedef struct gw_tool_form {
    const char *name;
    const char *models;    /* for people: who writes so                                        */
    const char *detect[3]; /* a template with all of these is of the form; the first row counts */
    const char *begin;     /* once, before the first call; "" nothing                          */
    const char *call;
    const char *between; /* two calls */
    const char *end;     /* after the last call */
    const char *object;  /* of %o and %l */
    const char *param;   /* of %p */
    const char *raw_end; /* values with this inside cannot be written; NULL: with what follows %v */
    int flags;
} gw_tool_form;

enum {
    GW_TOOLS_BARE = 1,    /* a call may begin the answer without its mark: the JSON object alone */
    GW_TOOLS_ONE = 2,     /* one call in an answer                                               */
    GW_TOOLS_OPENED = 4,  /* prompts end with the first mark of a call                           */
    GW_TOOLS_KEYED = 8,   /* %o: {"NAME": ARGUMENTS}                                             */
    GW_TOOLS_LISTED = 16, /* only what is among the tools is a call: the mark is no strange text */
    GW_TOOLS_NUMBERED = 32, /* %n is written "functions.NAME:NUMBER"                              */
    GW_TOOLS_PYTHON = 64 /* values that are no text are written as Python prints them, or as JSON */
};

typedef enum gw_reasoning_kind {
    GW_REASONING_TAGS,    /* between two marks                                            */
    GW_REASONING_HARMONY, /* messages with headers: channel and recipient (gpt-oss)       */
    GW_REASONING_MUSE     /* messages with headers: recipient "self", "user" or a tool    */
} gw_reasoning_kind;

typedef struct gw_reasoning_form {
    const char *name;
    const char *models;
    const char *detect[3];
    const char *open, *close; /* NULL: there is none */
    const char *drop[4];      /* other marks that are no text */
    gw_reasoning_kind kind;
} gw_reasoning_form;

/* The i-th row; NULL behind the last. */
const gw_tool_form *gw_tool_form_at(size_t i);
const gw_reasoning_form *gw_reasoning_form_at(size_t i);
/* "none" is a row; NULL: no such name. */
const gw_tool_form *gw_tool_form_named(const char *name);
const gw_reasoning_form *gw_reasoning_form_named(const char *name);
/* The row of a template (Jinja); NULL text: none. "json", "none" where it has no known marks. */
const gw_tool_form *gw_tool_form_of(const char *text, size_t bytes);
const gw_reasoning_form *gw_reasoning_form_of(const char *text, size_t bytes);

/* ---- tools ----------------------------------------------------------------------------------- */

typedef struct gw_tool {
    const char *name;
    json_t *parameters; /* a schema, an object; NULL: any object */
} gw_tool;

typedef struct gw_tools {
    json_t *list; /* owns what the tools point to */
    gw_tool *at;
    size_t n;
} gw_tools;

/* A list as in gw_answer_options. Functions only: what is of another type is passed over. GW_E_TYPE
 * and those of gw_json_parse. */
gw_status gw_tools_read(const char *text, size_t bytes, gw_tools *out);
void gw_tools_free(gw_tools *tools);
const gw_tool *gw_tools_find(const gw_tools *tools, const char *name, size_t n);

/* Schemas of tools that are too large for one grammar are let go of by levels: above 0 the longest
 * lengths and counts, then (GW_RELAX_MAX - 1) all of them and patterns, then all that is said of
 * arguments. */
enum { GW_RELAX_MAX = 8 };
/* The first level at which the tools fit, by an estimate that takes one pass over their schemas. */
int gw_tools_fit(const gw_tools *tools);
/* The tools at that level, freed by gw_tools_free; a note of what was let go. Level 0: none. */
gw_status gw_tools_relax(const gw_tools *tools, int level, gw_tools *out, gw_bytes *notes);

/* ---- which spellings are tokens -------------------------------------------------------------- */

/* Is X a token that is no text? NULL in place of the function: none is. */
typedef struct gw_marks {
    int (*is_token)(const void *user, const char *text, size_t n);
    const void *user;
} gw_marks;

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct gw_reader gw_reader;

typedef struct gw_reader_options {
    const gw_tool_form *tools;          /* NULL: calls are text     */
    const gw_reasoning_form *reasoning; /* NULL: nothing is set off */
    const gw_tools *list;               /* borrowed; NULL: unknown  */
    gw_marks marks;                     /* during gw_reader_new only */
    int whole_calls;
    uint64_t id_seed;
} gw_reader_options;

gw_status gw_reader_new(const gw_reader_options *options, gw_reader **out);
void gw_reader_free(gw_reader *r);
/* An answer begins. Then its prompt, or the end of it, as the answer itself below. */
gw_status gw_reader_reset(gw_reader *r);
gw_status gw_reader_prompt(gw_reader *r, const char *text, size_t n, int token);
/* text [n] is more of the answer, or (token) the spelling of a token that is no text; GW_E_NOMEM is
 * the only error. Parts are valid until the next call. */
gw_status gw_reader_push(gw_reader *r, const char *text, size_t n, int token, const gw_part **parts,
                         size_t *n_parts);
/* Before the last of it: the answer was cut off; forced: it could only have been a call. */
void gw_reader_cut(gw_reader *r, int forced);
/* text [n]: the last of it. */
gw_status gw_reader_end(gw_reader *r, const char *text, size_t n, const gw_part **parts,
                        size_t *n_parts);

/* Where an answer to the prompt begins. */
typedef enum gw_answer_start {
    GW_START_TEXT,
    GW_START_REASONING, /* behind the mark that opens it */
    GW_START_HEADER,    /* in the header of a message    */
    GW_START_CALL       /* behind the first mark of a call */
} gw_answer_start;
gw_answer_start gw_reader_start(const gw_reader *r);

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct gw_answer_rules {
    const gw_tool_form *tools;
    const gw_reasoning_form *reasoning;
    const gw_tools *list;
    gw_marks marks;
    gw_answer_start start;
    gw_tool_choice choice;
    const char *named;
    int one_call, reason_first, free_calls;
    const char *schema; /* of the text; NULL: any */
    size_t schema_bytes;
} gw_answer_rules;

/* The grammar in GBNF, appended to out, which stays empty where anything goes. notes: lines, one
 * for each tool whose schema is not kept. */
gw_status gw_answer_write_rules(const gw_answer_rules *rules, gw_bytes *out, gw_bytes *notes);

#endif
