/* core/text/tokens/word_cache.h - words of one call that were encoded before: texts repeat them. */
#ifndef GW_TEXT_TOKENS_WORD_CACHE_H
#define GW_TEXT_TOKENS_WORD_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { GW_CACHED_BYTES = 48 }; /* longer words are encoded anew */

typedef struct gw_cached_word {
    uint32_t at;    /* of its ids among those of the call */
    uint16_t n_ids; /* how many                           */
    uint16_t bytes; /* 0: free                            */
    char text[GW_CACHED_BYTES];
} gw_cached_word;

typedef struct gw_word_cache gw_word_cache;

gw_word_cache *gw_word_cache_new(void); /* NULL: no memory */
void gw_word_cache_free(gw_word_cache *cache);

/* The place of a word of 1..GW_CACHED_BYTES bytes. *known: it is there; else the place is for the
 * caller to fill with gw_word_cache_put, whatever word it had before. */
gw_cached_word *gw_word_cache_find(gw_word_cache *cache, const char *word, size_t n, int *known);
void gw_word_cache_put(gw_cached_word *place, const char *word, size_t n, size_t at, size_t n_ids);

#endif
