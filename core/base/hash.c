/* core/base/hash.c - open addressing with linear probing, at most half full. */
#include "core/base/hash.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"

typedef struct slot {
    const void *key; /* NULL: free */
    size_t n, value;
    uint64_t hash;
} slot;

struct gw_map {
    slot *slots;
    size_t capacity, count; /* capacity is a power of two */
    uint64_t seed[2];
};

static uint64_t rotate(uint64_t v, int by) { return v << by | v >> (64 - by); }

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static uint64_t hash_of(const uint64_t seed[2], const uint8_t *p, size_t n) {
    uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du,
                     seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u};
    size_t at = 0;
    for (; n - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, p + at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)n << 56;
    for (size_t i = 0; at + i < n; i++) {
        last |= (uint64_t)p[at + i] << (8 * i);
    }
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t gw_hash_bytes(const uint64_t key[2], const void *data, size_t n) {
    return hash_of(key, data, n);
}

gw_map *gw_map_new(void) {
    gw_map *map = calloc(1, sizeof *map);
    if (map == NULL) {
        return NULL;
    }
    if (getrandom(map->seed, sizeof map->seed, GRND_NONBLOCK) != (ssize_t)sizeof map->seed) {
        map->seed[0] = (uint64_t)(uintptr_t)map; /* early boot: weaker, still correct */
    }
    return map;
}

void gw_map_free(gw_map *map) {
    if (map != NULL) {
        free(map->slots);
        free(map);
    }
}

static slot *slot_of(const gw_map *map, const void *key, size_t n, uint64_t hash) {
    size_t mask = map->capacity - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        slot *s = &map->slots[i];
        if (s->key == NULL || (s->hash == hash && s->n == n && memcmp(s->key, key, n) == 0)) {
            return s;
        }
    }
}

static int grow(gw_map *map) {
    gw_map bigger = *map;
    bigger.capacity = map->capacity != 0 ? map->capacity * 2 : 64;
    bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
    if (bigger.slots == NULL) {
        return 0;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        const slot *s = &map->slots[i];
        if (s->key != NULL) {
            *slot_of(&bigger, s->key, s->n, s->hash) = *s;
        }
    }
    free(map->slots);
    *map = bigger;
    return 1;
}

gw_map_result gw_map_add(gw_map *map, const void *key, size_t n, size_t value, size_t *present) {
    if (map->count >= map->capacity / 2 && !grow(map)) {
        return GW_MAP_NOMEM;
    }
    uint64_t hash = hash_of(map->seed, key, n);
    slot *s = slot_of(map, key, n, hash);
    if (s->key != NULL) {
        if (present != NULL) {
            *present = s->value;
        }
        return GW_MAP_PRESENT;
    }
    *s = (slot){key, n, value, hash};
    map->count++;
    return GW_MAP_ADDED;
}

int gw_map_find(const gw_map *map, const void *key, size_t n, size_t *value) {
    if (map->capacity == 0) {
        return 0;
    }
    const slot *s = slot_of(map, key, n, hash_of(map->seed, key, n));
    if (s->key == NULL) {
        return 0;
    }
    *value = s->value;
    return 1;
}

size_t gw_map_count(const gw_map *map) { return map->count; }
