/* core/text/answer/answer_reader.h - the state of a reader; for answer_*.c only.
 *
 * answer_reader.c looks for marks in text, answer_call.c follows the steps of a call's pattern, and
 * answer_object.c a call as a JSON object. What a call is made of is kept (raw) until the call is
 * whole: where it turns out to be none, it becomes text, and reading goes on with the symbol that
 * did not fit; so each symbol is looked at a bounded number of times.
 */
#ifndef GW_TEXT_ANSWER_READER_H
#define GW_TEXT_ANSWER_READER_H

#include "core/text/answer/answer_pattern.h"
#include "core/text/answer/answer_scan.h"
#include "include/godwit_answer.h"

enum { GW_MARKS_MAX = 40, GW_HOLD_MAX = 160, GW_NAME_MAX = 256 };

typedef enum gw_mark_action {
    GW_MARK_OPEN,    /* reasoning begins */
    GW_MARK_CLOSE,   /* and ends         */
    GW_MARK_DROP,    /* is no text       */
    GW_MARK_INNER,   /* is part of a call: text where that was none */
    GW_MARK_BEGIN,   /* first mark of the pattern `begin` */
    GW_MARK_CALL,    /* ... of `call`                     */
    GW_MARK_START,   /* the header of a message begins    */
    GW_MARK_CHANNEL, /* in a header: the channel's name follows */
    GW_MARK_MESSAGE, /* the header ends                   */
    GW_MARK_STOP     /* the message ends                  */
} gw_mark_action;

enum { GW_IN_TEXT = 1, GW_IN_REASONING = 2, GW_IN_HEADER = 4 };

typedef struct gw_mark {
    const uint16_t *symbols;
    size_t n;
    uint8_t action, in;
} gw_mark;

typedef struct gw_reader_part { /* as gw_part, with places in `text` */
    gw_part_kind kind;
    size_t at, bytes, call, name, id;
} gw_reader_part;

typedef enum gw_object_state {
    GW_OBJECT_BEGIN,
    GW_OBJECT_KEY,
    GW_OBJECT_KEY_TEXT,
    GW_OBJECT_COLON,
    GW_OBJECT_VALUE,
    GW_OBJECT_NAME,
    GW_OBJECT_ID,
    GW_OBJECT_ARGUMENTS,
    GW_OBJECT_ARGUMENTS_TEXT,
    GW_OBJECT_OTHER,
    GW_OBJECT_NEXT,
    GW_OBJECT_LIST
} gw_object_state;

struct gw_reader {
    const gw_tool_form *tools;
    const gw_reasoning_form *reasoning_form;
    const gw_tools *list;
    uint64_t id_seed;
    int whole_calls;
    gw_pattern begin, call, end, param, open, close, drop[4], header[9];
    gw_mark marks[GW_MARKS_MAX];
    size_t n_marks;
    gw_bytes tail; /* the end of the prompt: symbols of 16 bits */

    /* text */
    int where; /* GW_IN_... */
    uint16_t hold[GW_HOLD_MAX];
    size_t n_hold;
    gw_bytes space;   /* white space that may stand before a mark */
    int eat;          /* white space that comes is none of the text's */
    int bare;         /* a call may begin without its mark */
    int skip;         /* inside of a token that is no text */
    int broken;       /* the last call was none */
    gw_bytes head;    /* the header so far; 1: a channel's name follows */
    int in_call_text; /* Muse: a message to a tool */
    gw_answer_start start;
    int began;       /* the prompt has been looked at */
    int cut, forced; /* it was cut off; it could only be a call */

    /* a call */
    int calling, section, params, whole;
    int unmarked; /* it began with its object alone */
    size_t step, pos;
    gw_bytes raw, name, id, key, value, arguments, keys;
    int named;      /* CALL has been given out, or the name is known and kept   */
    int streaming;  /* its arguments go out as they come                        */
    int empty;      /* no argument yet                                          */
    unsigned types; /* of the parameter that is read; 0: not known yet          */
    int doubled;    /* the parameter has come before                            */
    size_t n_value; /* bytes of it                                              */
    int line_end;   /* a line break that is part of the value or of the pattern */
    gw_scan scan;
    gw_object_state object;
    int listed, outer, nested, escaped, is_arguments, python;
    size_t deep; /* brackets that are open */
    int quoted;

    /* parts */
    size_t n_calls;
    gw_reader_part *parts;
    gw_part *out;
    size_t n_parts, parts_capacity, out_capacity;
    gw_bytes text;
    int failed; /* no memory */
};

/* answer_reader.c */
void gw_reader_add(gw_reader *r, gw_bytes *to, const void *from, size_t n);
void gw_reader_emit(gw_reader *r, gw_part_kind kind, const char *text, size_t n);
void gw_reader_symbol(gw_reader *r, unsigned c);

/* answer_call.c */
/* A call begins behind the first mark of a pattern, or (mark NULL) with its object; raw has what
 * was read of it. */
void gw_call_begin(gw_reader *r, const gw_mark *mark);
/* A call to `name` begins with its arguments: behind a header. */
void gw_call_of(gw_reader *r, const char *name, size_t n);
void gw_call_symbol(gw_reader *r, unsigned c);
void gw_call_end_of_text(gw_reader *r);
/* It is none. */
void gw_call_break(gw_reader *r);
/* Its name is known; 0: there is no such tool. */
int gw_call_name(gw_reader *r);
void gw_call_arguments(gw_reader *r, const char *text, size_t n);
void gw_call_whole(gw_reader *r);
void gw_call_reset(gw_reader *r);

/* answer_object.c: 1 the symbol is read, 0 it belongs to what comes behind, -1 it does not fit.
 * *done: the object, or the list of them, is over. */
int gw_object_symbol(gw_reader *r, unsigned c, int *done);
int gw_python_symbol(gw_reader *r, unsigned c, int *done);
int gw_gemma_symbol(gw_reader *r, unsigned c, int *done);
/* A byte of arguments: JSON. */
int gw_arguments_symbol(gw_reader *r, unsigned c, int *done);

#endif
