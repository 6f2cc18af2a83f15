/* apps/judge/texts.h - texts of tasks: one growing pool of bytes, and places in it. */
#ifndef GW_APPS_JUDGE_TEXTS_H
#define GW_APPS_JUDGE_TEXTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct text_span {
    size_t at, bytes; /* in the pool */
} text_span;

typedef struct text_pool {
    char *at; /* [used] */
    size_t used, room;
    int failed; /* no memory: what was put since is lost */
} text_pool;

void text_free(text_pool *pool);
/* Bytes to its end; those of the pool itself are allowed with text_copy alone. */
void text_put(text_pool *pool, const char *text, size_t bytes);
void text_puts(text_pool *pool, const char *text);
void text_copy(text_pool *pool, text_span span);
/* From `from` (a former pool->used) to its end. */
text_span text_since(const text_pool *pool, size_t from);
/* The span without white space around it. */
text_span text_strip(const text_pool *pool, text_span span);
/* Bytes without the white space at their end. */
size_t text_right_stripped(const char *text, size_t bytes);

#endif
