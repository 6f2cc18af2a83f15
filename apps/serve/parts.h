/* apps/serve/parts.h - the content of a message as clients send it: a text, nothing, or a list of
 * parts in the words of any API. The one place that knows which kinds of parts there are. */
#ifndef GW_APPS_SERVE_PARTS_H
#define GW_APPS_SERVE_PARTS_H

#include <jansson.h>

#include "apps/serve/picture.h"

/* The text of message number `message`, its parts joined by line ends: a new JSON text, or NULL and
 * *f for a part that no model can read. Pictures are added to the list, and marks of theirs stand
 * in the text. result: it is what a tool gave, where a part that cannot be read is only named,
 * since the client cannot take it back. Time and memory in proportion to the content. */
json_t *parts_read(const json_t *content, size_t message, int result, picture_list *pictures,
                   fault *f);

#endif
