/* core/text/tokens/stream.h - decodes ids as they come and hands out whole characters only. */
#ifndef GW_TEXT_STREAM_H
#define GW_TEXT_STREAM_H

#include "core/text/tokens/tokenizer.h"

typedef struct gw_text_stream gw_text_stream;

/* The tokenizer is borrowed. One stream is one text: the leading-space rule applies to its first
 * token. */
gw_status gw_text_stream_new(const gw_tokenizer *t, gw_text_stream **out);
void gw_text_stream_free(gw_text_stream *s);
/* Decoding goes on in s where it stands in `from`, of the same tokenizer; NULL: at the beginning.
 */
gw_status gw_text_stream_copy(gw_text_stream *s, const gw_text_stream *from);

/* The characters that are complete with this id, possibly none; bytes that can never become a
 * character come as U+FFFD. id -1: what is left of a character comes as U+FFFD. Control tokens give
 * nothing. *text is NUL-terminated, belongs to the stream and lives until the next call. */
gw_status gw_text_stream_push(gw_text_stream *s, int32_t id, const char **text, size_t *bytes);

#endif
