/* apps/serve/wide.h - integers beyond 64 bits in the schemas of a request. */
#ifndef GW_APPS_SERVE_WIDE_H
#define GW_APPS_SERVE_WIDE_H

#include <jansson.h>

#include "apps/serve/fault.h"

/* Of a request in which such integers have become real numbers, rounded, and of the same with
 * zeros in their stead (marks): a bound is brought to what 64 bits hold, within the schema's own,
 * so that each value that is made is valid; 0. What has to be exact (const and enum with all that
 * is in them, multipleOf, what stands in a "not" or an "if", a bound that leaves no value of 64
 * bits) is refused by its place; -1. Conversations, texts and default values are left as they are.
 */
int wide_tame(json_t *request, const json_t *marks, fault *f);

#endif
