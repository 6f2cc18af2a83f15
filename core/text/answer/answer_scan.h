/* core/text/answer/answer_scan.h - JSON byte by byte, and values of other notations as JSON; for
 * answer_*.c only. */
#ifndef GW_TEXT_ANSWER_SCAN_H
#define GW_TEXT_ANSWER_SCAN_H

#include "core/text/answer/answer.h"

enum { GW_SCAN_DEPTH = 512 };

/* A JSON value as far as it has been seen. Zero: nothing yet. */
typedef struct gw_scan {
    uint8_t state, digits; /* digits: of \uXXXX, or letters of a word */
    uint8_t is_list[GW_SCAN_DEPTH / 8];
    uint16_t depth;
    const char *word;
} gw_scan;

typedef enum gw_scan_result {
    GW_SCAN_MORE,
    GW_SCAN_DONE,   /* the value is whole with this byte      */
    GW_SCAN_BEFORE, /* it was whole before this byte: a number */
    GW_SCAN_WRONG
} gw_scan_result;

/* A control character inside a string is taken: the caller writes it as an escape. */
gw_scan_result gw_scan_byte(gw_scan *s, unsigned char c);
int gw_scan_in_string(const gw_scan *s);

/* Bits of what a value is. */
enum {
    GW_IS_STRING = 1,
    GW_IS_INTEGER = 2,
    GW_IS_NUMBER = 4, /* and no integer */
    GW_IS_BOOLEAN = 8,
    GW_IS_NULL = 16,
    GW_IS_OBJECT = 32,
    GW_IS_LIST = 64,
    GW_IS_ANYTHING = 127
};

/* What the parameter of a tool may be, by its schema; anything where that says nothing. */
unsigned gw_answer_types(const gw_tool *tool, const char *key, size_t n);

/* n bytes as a JSON string with its quotes, or only its inside. */
gw_status gw_json_string_add(gw_bytes *out, const char *text, size_t n, int quotes);
/* The text of a JSON string without its quotes: GW_OK and *fine. */
gw_status gw_json_string_read(const char *text, size_t n, gw_bytes *out, int *fine);

/* A literal of JSON or of Python (numbers, texts in either quotes, lists, tuples, dictionaries,
 * True, None), the whole text but for white space around it, as JSON. *is: GW_IS_..., 0 when it is
 * none; then out is as before. */
gw_status gw_literal_json(const char *text, size_t n, gw_bytes *out, unsigned *is);
/* "a=1, 'x'": what stands in the parentheses of a call in Python; values without a name are those
 * of the tool's parameters in their order. *fine 0: it is none. */
gw_status gw_python_arguments(const char *text, size_t n, const gw_tool *tool, gw_bytes *out,
                              int *fine);
/* {key:<|"|>text<|"|>,...} as Gemma 4 writes it; JSON is read too. */
gw_status gw_gemma_arguments(const char *text, size_t n, gw_bytes *out, int *fine);
/* The text of a parameter as the JSON that its types ask for. */
gw_status gw_value_json(const char *text, size_t n, unsigned types, gw_bytes *out);

#endif
