/* core/text/tokens/word_cache.c - one place for each hash, two tries; see word_cache.h. Collisions
 * cost what encoding without a cache costs, so the hash needs no secret. */
#include "core/text/tokens/word_cache.h"

#include <stdlib.h>
#include <string.h>

enum { PLACES = 1 << 14 };

struct gw_word_cache {
    gw_cached_word words[PLACES];
};

gw_word_cache *gw_word_cache_new(void) { return calloc(1, sizeof(gw_word_cache)); }

void gw_word_cache_free(gw_word_cache *cache) { free(cache); }

static uint64_t load(const char *p, size_t n) {
    uint64_t value = 0;
    memcpy(&value, p, n);
    return value;
}

static uint64_t hash(const char *word, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15u;
    for (; n > 8; word += 8, n -= 8) {
        h = (h ^ load(word, 8)) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    h = (h ^ load(word, n)) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

static int is(const gw_cached_word *place, const char *word, size_t n) {
    return place->bytes == n && memcmp(place->text, word, n) == 0;
}

gw_cached_word *gw_word_cache_find(gw_word_cache *cache, const char *word, size_t n, int *known) {
    uint64_t h = hash(word, n);
    gw_cached_word *first = &cache->words[h % PLACES];
    gw_cached_word *second = &cache->words[(h % PLACES) ^ 1];
    *known = 1;
    if (is(first, word, n)) {
        return first;
    }
    if (is(second, word, n)) {
        return second;
    }
    *known = 0;
    return first->bytes == 0 || second->bytes != 0 ? first : second;
}

void gw_word_cache_put(gw_cached_word *place, const char *word, size_t n, size_t at, size_t n_ids) {
    if (at > UINT32_MAX || n_ids > UINT16_MAX) {
        return;
    }
    place->at = (uint32_t)at;
    place->n_ids = (uint16_t)n_ids;
    place->bytes = (uint16_t)n;
    memcpy(place->text, word, n);
}
