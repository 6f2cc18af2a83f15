/* apps/serve/text.h - texts that grow, and characters. */
#ifndef GW_APPS_SERVE_TEXT_H
#define GW_APPS_SERVE_TEXT_H

#include <stddef.h>

typedef struct text_buffer {
    char *at; /* malloc'd, NUL-terminated; NULL while empty */
    size_t n, capacity;
} text_buffer;

/* -1: no memory, and nothing has changed. */
int text_add(text_buffer *t, const char *text, size_t bytes);
/* Length of the well-formed character at text [n], n > 0; 0 when there is none (Unicode, table
 * 3-7). */
size_t text_character(const char *text, size_t n);

#endif
