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
    memcpy(t->at + t->n, text, bytes);
    t->n += bytes;
    t->at[t->n] = '\0';
    return 0;
}

size_t text_character(const char *text, size_t n) {
    const unsigned char *t = (const unsigned char *)text;
    static const struct {
        unsigned char first, last, low, high;
        size_t bytes;
    } rows[] = {
        {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (t[0] < rows[i].first || t[0] > rows[i].last) {
            continue;
        }
        if (rows[i].bytes > n ||
            (rows[i].bytes > 1 && (t[1] < rows[i].low || t[1] > rows[i].high))) {
            return 0;
        }
        for (size_t k = 2; k < rows[i].bytes; k++) {
            if (t[k] < 0x80 || t[k] > 0xBF) {
                return 0;
            }
        }
        return rows[i].bytes;
    }
    return 0;
}
