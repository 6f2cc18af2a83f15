/* core/text/answer/answer_pattern.h - the marks of a form as steps; for answer_*.c only.
 *
 * A text is read as symbols: its bytes, and two that stand around the spelling of a token that is
 * no text. So a mark that is a token is never mistaken for text that spells it.
 */
#ifndef GW_TEXT_ANSWER_PATTERN_H
#define GW_TEXT_ANSWER_PATTERN_H

#include "core/text/answer/answer.h"

enum { GW_SYMBOL_OPENS = 256, GW_SYMBOL_CLOSES = 257, GW_STEPS_MAX = 24, GW_SYMBOLS_MAX = 400 };

typedef enum gw_step_kind {
    GW_STEP_TEXT,  /* symbols without white space */
    GW_STEP_SPACE, /* white space                 */
    GW_STEP_NAME,
    GW_STEP_ID,
    GW_STEP_NUMBER,
    GW_STEP_ARGUMENTS,
    GW_STEP_OBJECT,
    GW_STEP_LIST,
    GW_STEP_PARAMS,
    GW_STEP_GEMMA,
    GW_STEP_PYTHON,
    GW_STEP_KEY,
    GW_STEP_VALUE,
    GW_STEP_IS_TEXT,
    GW_STEP_TYPE
} gw_step_kind;

typedef struct gw_step {
    uint8_t kind;
    uint16_t at, n; /* TEXT, SPACE: in symbols */
} gw_step;

typedef struct gw_pattern {
    gw_step steps[GW_STEPS_MAX];
    uint16_t symbols[GW_SYMBOLS_MAX];
    size_t n, n_symbols;
} gw_pattern;

/* text NULL or "": no steps. */
void gw_pattern_read(const char *text, const gw_marks *marks, gw_pattern *out);
/* The first step TEXT; NULL: there is none before a slot. */
const gw_step *gw_pattern_first(const gw_pattern *p);
/* A pattern without slots as one mark: its symbols [*n] but for white space around them. */
const uint16_t *gw_pattern_mark(const gw_pattern *p, size_t *n);
/* The step of that kind, p->n when there is none. */
size_t gw_pattern_find(const gw_pattern *p, gw_step_kind kind);

static inline int gw_symbol_is_space(unsigned c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

#endif
