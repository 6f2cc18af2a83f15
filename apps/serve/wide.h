/* apps/serve/wide.h - integers beyond 64 bits in a request, which jansson does not hold. */
#ifndef GW_APPS_SERVE_WIDE_H
#define GW_APPS_SERVE_WIDE_H

#include <jansson.h>

#include "apps/serve/fault.h"

/* Where a model is shown such an integer, a text with the mark and its digits stands for it until
 * the JSON is written: one that nobody can guess, so that no text of a client's is one. "": none
 * yet, and there is no such integer. */
typedef struct wide_mark {
    char word[24];
} wide_mark;

/* A text with such integers, as real numbers, or NULL and *error; and one that could be parsed so,
 * as marked texts, or NULL: no memory. */
json_t *wide_parse_real(const char *text, size_t bytes, json_error_t *error);
json_t *wide_parse_marked(const char *text, size_t bytes, wide_mark *mark);

/* JSON with the digits of marked integers; freed by the caller. NULL: no memory. */
char *wide_dump(const json_t *value, const wide_mark *mark);

/* What the model is shown of a request (arguments of calls, variables of the template, documents)
 * is taken from the same request with marked integers. */
void wide_show(json_t *request, const json_t *marked);

/* Schemas of a request in which such integers have become real numbers, rounded, and of the same
 * with marked ones: a bound is brought to what 64 bits hold, within the schema's own, so that each
 * value that is made is valid; 0. What has to be exact (const and enum with all that is in them,
 * multipleOf, what stands in a "not" or an "if", a bound that leaves no value of 64 bits) is
 * refused by its place; -1. Default values and examples, which are only shown, become marked ones.
 */
int wide_tame(json_t *request, const json_t *marked, fault *f);

#endif
