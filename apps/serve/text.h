/* apps/serve/text.h - texts that grow. */
#ifndef GW_APPS_SERVE_TEXT_H
#define GW_APPS_SERVE_TEXT_H

#include <stddef.h>

typedef struct text_buffer {
    char *at; /* malloc'd, NUL-terminated; NULL while empty */
    size_t n, capacity;
} text_buffer;

/* -1: no memory, and nothing has changed. */
int text_add(text_buffer *t, const char *text, size_t bytes);

#endif
