/* core/base/arena.h - memory that is released all at once: strings and tables of a loaded file.
 *
 * Not thread-safe. Every allocation lives until gw_arena_free.
 */
#ifndef GW_BASE_ARENA_H
#define GW_BASE_ARENA_H

#include <stddef.h>

typedef struct gw_arena gw_arena;

gw_arena *gw_arena_new(void);        /* NULL: no memory */
void gw_arena_free(gw_arena *arena); /* accepts NULL    */

/* Zeroed, aligned for any type; NULL when there is no memory. bytes may be 0. */
void *gw_arena_alloc(gw_arena *arena, size_t bytes);
/* The same for count * size with an overflow check. */
void *gw_arena_array(gw_arena *arena, size_t count, size_t size);
/* Bytes that the arena holds. */
size_t gw_arena_bytes(const gw_arena *arena);
/* A NUL-terminated copy of n bytes. */
char *gw_arena_copy(gw_arena *arena, const void *text, size_t n);

#endif
