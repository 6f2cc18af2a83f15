/* apps/serve/text.c - see text.h. */
#include "apps/serve/text.h"

#include <stdlib.h>
#include <string.h>

int text_add(text_buffer *t, const char *text, size_t bytes) {
    if (t->n + bytes + 1 > t->capacity) {
        size_t capacity = t->capacity < 64 ? 64 : t->capacity;
        while (capacity < t->n + bytes + 1) {
            capacity *= 2;
        }
        char *grown = realloc(t->at, capacity);
        if (grown == NULL) {
            return -1;
        }
        t->at = grown;
        t->capacity = capacity;
    }
    if (bytes > 0) { /* text may be NULL otherwise */
        memcpy(t->at + t->n, text, bytes);
    }
    t->n += bytes;
    t->at[t->n] = '\0';
    return 0;
}
