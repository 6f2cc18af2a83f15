/* core/text/tokens/base64.h - bytes of tokenizer files (RFC 4648). */
#ifndef GW_TEXT_TOKENS_BASE64_H
#define GW_TEXT_TOKENS_BASE64_H

#include "core/text/buffer.h"

/* Appends what text [n] stands for; 1 when it is well formed (padding may be missing), 0 when not
 * or without memory. */
int gw_base64_read(const char *text, size_t n, gw_bytes *out);

#endif
