/* core/text/tokens/trie.c - a byte trie whose edges lie in one hash table; see trie.h. */
#include "core/text/tokens/trie.h"

#include "core/text/buffer.h"

typedef struct edge { /* key 0: free; node 0 is the root and never a target */
    uint64_t key;     /* (from << 8 | byte) + 1 */
    uint32_t to;
} edge;

typedef struct node {
    int32_t id; /* -1: no word ends here */
    int special;
} node;

struct gw_trie {
    edge *edges;
    size_t n_edges, edge_slots; /* slots: a power of two */
    node *nodes;
    size_t n_nodes, node_capacity;
    size_t n_words;
    uint32_t first[256]; /* edges of the root, 0: none */
};

gw_trie *gw_trie_new(void) {
    gw_trie *trie = calloc(1, sizeof *trie);
    if (trie == NULL) {
        return NULL;
    }
    trie->edge_slots = 64;
    trie->node_capacity = 64;
    trie->edges = calloc(trie->edge_slots, sizeof *trie->edges);
    trie->nodes = calloc(trie->node_capacity, sizeof *trie->nodes);
    if (trie->edges == NULL || trie->nodes == NULL) {
        gw_trie_free(trie);
        return NULL;
    }
    trie->nodes[0].id = -1;
    trie->n_nodes = 1;
    return trie;
}

void gw_trie_free(gw_trie *trie) {
    if (trie != NULL) {
        free(trie->edges);
        free(trie->nodes);
        free(trie);
    }
}

size_t gw_trie_count(const gw_trie *trie) { return trie->n_words; }

static edge *slot_of(edge *edges, size_t slots, uint64_t key) {
    size_t at = (size_t)((key * 0x9E3779B97F4A7C15u) >> 24) & (slots - 1);
    while (edges[at].key != 0 && edges[at].key != key) {
        at = (at + 1) & (slots - 1);
    }
    return &edges[at];
}

uint32_t gw_trie_step(const gw_trie *trie, uint32_t from, uint8_t byte) {
    if (from == 0) {
        return trie->first[byte];
    }
    const edge *e = slot_of(trie->edges, trie->edge_slots, ((uint64_t)from << 8 | byte) + 1);
    return e->key == 0 ? 0 : e->to;
}

static gw_status grow_edges(gw_trie *trie) {
    size_t slots = trie->edge_slots * 2;
    edge *edges = calloc(slots, sizeof *edges);
    if (edges == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for %zu added tokens", trie->n_words);
    }
    for (size_t i = 0; i < trie->edge_slots; i++) {
        if (trie->edges[i].key != 0) {
            *slot_of(edges, slots, trie->edges[i].key) = trie->edges[i];
        }
    }
    free(trie->edges);
    trie->edges = edges;
    trie->edge_slots = slots;
    return GW_OK;
}

static gw_status add_node(gw_trie *trie, uint32_t from, uint8_t byte, uint32_t *to) {
    if (trie->n_edges * 2 >= trie->edge_slots) {
        GW_TRY(grow_edges(trie));
    }
    void *nodes = trie->nodes;
    gw_status status =
        gw_array_reserve(&nodes, &trie->node_capacity, trie->n_nodes + 1, sizeof *trie->nodes);
    trie->nodes = nodes;
    GW_TRY(status);
    *to = (uint32_t)trie->n_nodes++;
    trie->nodes[*to].id = -1;
    trie->nodes[*to].special = 0;
    if (from == 0) {
        trie->first[byte] = *to;
        return GW_OK;
    }
    uint64_t key = ((uint64_t)from << 8 | byte) + 1;
    edge *e = slot_of(trie->edges, trie->edge_slots, key);
    e->key = key;
    e->to = *to;
    trie->n_edges++;
    return GW_OK;
}

int32_t gw_trie_word(const gw_trie *trie, uint32_t at) { return trie->nodes[at].id; }

gw_status gw_trie_add(gw_trie *trie, const char *word, size_t n, int32_t id, int special) {
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t to = gw_trie_step(trie, at, (uint8_t)word[i]);
        if (to == 0) {
            GW_TRY(add_node(trie, at, (uint8_t)word[i], &to));
        }
        at = to;
    }
    if (at != 0 && trie->nodes[at].id < 0) {
        trie->nodes[at].id = id;
        trie->nodes[at].special = special;
        trie->n_words++;
    }
    return GW_OK;
}

size_t gw_trie_match(const gw_trie *trie, const char *text, size_t n, int special, int32_t *id) {
    size_t best = 0;
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at = gw_trie_step(trie, at, (uint8_t)text[i]);
        if (at == 0) {
            break;
        }
        const node *here = &trie->nodes[at];
        if (here->id >= 0 && (special || !here->special)) {
            best = i + 1;
            *id = here->id;
        }
    }
    return best;
}
