/* core/base/arena.c - a chain of chunks, filled front to back; large requests get their own. */
#include "core/base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 * 1024, ALIGN = alignof(max_align_t) };

typedef struct chunk {
    struct chunk *next;
    size_t size, used;
    alignas(max_align_t) unsigned char bytes[];
} chunk;

struct gw_arena {
    chunk *first; /* the one being filled */
    size_t bytes;
};

gw_arena *gw_arena_new(void) { return calloc(1, sizeof(gw_arena)); }

void gw_arena_free(gw_arena *arena) {
    if (arena == NULL) {
        return;
    }
    for (chunk *c = arena->first; c != NULL;) {
        chunk *next = c->next;
        free(c);
        c = next;
    }
    free(arena);
}

static chunk *new_chunk(size_t size) {
    chunk *c = size <= SIZE_MAX - sizeof(chunk) ? calloc(1, sizeof(chunk) + size) : NULL;
    if (c != NULL) {
        c->size = size;
    }
    return c;
}

void *gw_arena_alloc(gw_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t need = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    chunk *c = arena->first;
    if (c != NULL && need <= c->size - c->used) {
        void *p = c->bytes + c->used;
        c->used += need;
        return p;
    }
    int large = need > CHUNK / 4;
    chunk *fresh = new_chunk(large ? need : CHUNK);
    if (fresh == NULL) {
        return NULL;
    }
    fresh->used = need;
    arena->bytes += sizeof(chunk) + fresh->size;
    if (large && c != NULL) { /* the current chunk goes on being filled */
        fresh->next = c->next;
        c->next = fresh;
    } else {
        fresh->next = c;
        arena->first = fresh;
    }
    return fresh->bytes;
}

void *gw_arena_array(gw_arena *arena, size_t count, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : gw_arena_alloc(arena, bytes);
}

size_t gw_arena_bytes(const gw_arena *arena) { return arena->bytes; }

char *gw_arena_copy(gw_arena *arena, const void *text, size_t n) {
    char *p = n < SIZE_MAX ? gw_arena_alloc(arena, n + 1) : NULL;
    if (p != NULL && n > 0) {
        memcpy(p, text, n);
    }
    return p;
}
