/* apps/serve/parts.h - the content of a message as clients send it: a text, nothing, or a list of
 * parts in the words of any API. The one place that knows which kinds of parts there are. */
#ifndef GW_APPS_SERVE_PARTS_H
#define GW_APPS_SERVE_PARTS_H

#include <jansson.h>

#include "apps/serve/fault.h"

/* The text of message number `message`, its parts joined by line ends: a new JSON text, or NULL and
 * *f for a part that this model cannot read. result: it is what a tool gave, where such a part is
 * only named, since the client cannot take it back. Time and memory in proportion to the content.
 */
json_t *parts_read(const json_t *content, size_t message, int result, fault *f);

#endif
