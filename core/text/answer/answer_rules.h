/* core/text/answer/answer_rules.h - the grammar of an answer while it is written; for
 * answer_rules*.c only. */
#ifndef GW_TEXT_ANSWER_RULES_H
#define GW_TEXT_ANSWER_RULES_H

#include "core/text/answer/answer_pattern.h"
#include "core/text/answer/answer_scan.h"

typedef struct gw_rules_work {
    const gw_answer_rules *r;
    gw_bytes *out, *notes;
    gw_pattern begin, call, end, between, object, param, open, close;
} gw_rules_work;

gw_status gw_rules_put(gw_bytes *out, const char *fmt, ...) GW_PRINTF(2, 3);
/* Text as a literal. */
gw_status gw_rules_put_text(gw_bytes *out, const char *text, size_t n);
/* Steps TEXT and SPACE from `from` on, up to the first slot; returns its place in *to. */
gw_status gw_rules_put_marks(gw_bytes *out, const gw_pattern *p, size_t from, size_t *to);

/* answer_rules_tool.c: rules of tool number i: "ti-call", from step `from` of the call on as
 * "ti-NAME". Of a form with %l and %y: "ti-one", a call in the list. */
gw_status gw_rules_tool(gw_rules_work *w, size_t i);
gw_status gw_rules_call(gw_rules_work *w, size_t i, const char *name, size_t from);

#endif
