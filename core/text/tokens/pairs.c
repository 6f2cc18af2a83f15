/* core/text/tokens/pairs.c - open addressing, at most half full; see pairs.h. */
#include "core/text/tokens/pairs.h"

#include <stdlib.h>

typedef struct slot {
    uint64_t key; /* (left << 32 | right) + 1; 0: free */
    uint32_t rank;
    int32_t id;
} slot;

struct gw_pairs {
    slot *slots;
    size_t mask;
    uint64_t seed; /* so that a file cannot choose pairs that collide */
};

gw_pairs *gw_pairs_new(size_t count) {
    gw_pairs *pairs = calloc(1, sizeof *pairs);
    size_t slots = 16;
    while (slots / 2 < count) {
        slots *= 2;
    }
    if (pairs == NULL || (pairs->slots = calloc(slots, sizeof *pairs->slots)) == NULL) {
        free(pairs);
        return NULL;
    }
    pairs->mask = slots - 1;
    pairs->seed = (uint64_t)(uintptr_t)pairs->slots * 0x9E3779B97F4A7C15u;
    return pairs;
}

void gw_pairs_free(gw_pairs *pairs) {
    if (pairs != NULL) {
        free(pairs->slots);
        free(pairs);
    }
}

static slot *find_slot(const gw_pairs *pairs, int32_t left, int32_t right) {
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    uint64_t mix = (key ^ pairs->seed) * 0xD6E8FEB86659FD93u;
    mix = (mix ^ mix >> 32) * 0xD6E8FEB86659FD93u;
    size_t at = (size_t)(mix ^ mix >> 32) & pairs->mask;
    while (pairs->slots[at].key != 0 && pairs->slots[at].key != key) {
        at = (at + 1) & pairs->mask;
    }
    return &pairs->slots[at];
}

void gw_pairs_set(gw_pairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    slot *s = find_slot(pairs, left, right);
    s->key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    s->rank = rank;
    s->id = id;
}

int gw_pairs_find(const gw_pairs *pairs, int32_t left, int32_t right, uint32_t *rank, int32_t *id) {
    const slot *s = find_slot(pairs, left, right);
    if (s->key == 0) {
        return 0;
    }
    *rank = s->rank;
    *id = s->id;
    return 1;
}
