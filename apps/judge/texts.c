/* apps/judge/texts.c - see texts.h. */
#include "apps/judge/texts.h"

#include <stdlib.h>
#include <string.h>

void text_free(text_pool *pool) {
    free(pool->at);
    *pool = (text_pool){0};
}

/* Room for so many more; 0: none. */
static int reserve(text_pool *pool, size_t bytes) {
    if (pool->failed || bytes > SIZE_MAX / 4 - pool->used) {
        pool->failed = 1;
        return 0;
    }
    if (pool->room - pool->used < bytes) {
        size_t room = 2 * (pool->used + bytes) + 256;
        char *grown = realloc(pool->at, room);
        if (grown == NULL) {
            pool->failed = 1;
            return 0;
        }
        pool->at = grown;
        pool->room = room;
    }
    return 1;
}

void text_put(text_pool *pool, const char *text, size_t bytes) {
    if (bytes > 0 && reserve(pool, bytes)) {
        memcpy(pool->at + pool->used, text, bytes);
        pool->used += bytes;
    }
}

void text_puts(text_pool *pool, const char *text) { text_put(pool, text, strlen(text)); }

void text_copy(text_pool *pool, text_span span) {
    if (span.bytes > 0 && reserve(pool, span.bytes)) {
        memcpy(pool->at + pool->used, pool->at + span.at, span.bytes);
        pool->used += span.bytes;
    }
}

text_span text_since(const text_pool *pool, size_t from) {
    return (text_span){.at = from, .bytes = pool->used - from};
}

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

size_t text_right_stripped(const char *text, size_t bytes) {
    while (bytes > 0 && is_space(text[bytes - 1])) {
        bytes--;
    }
    return bytes;
}

text_span text_strip(const text_pool *pool, text_span span) {
    while (span.bytes > 0 && is_space(pool->at[span.at])) {
        span.at++;
        span.bytes--;
    }
    span.bytes = span.bytes > 0 ? text_right_stripped(pool->at + span.at, span.bytes) : 0;
    return span;
}
