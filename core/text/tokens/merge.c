/* core/text/tokens/merge.c - see merge.h. */
#include "core/text/tokens/merge.h"

#include "core/text/buffer.h"

void gw_merger_clear(gw_merger *m) {
    free(m->symbols);
    free(m->heap);
    free(m->path);
    memset(m, 0, sizeof *m);
}

gw_status gw_merger_add(gw_merger *m, uint32_t start, uint32_t bytes, int32_t id, int frozen) {
    if (m->n == m->symbol_capacity) {
        void *data = m->symbols;
        gw_status status =
            gw_array_reserve(&data, &m->symbol_capacity, m->n + 1, sizeof *m->symbols);
        m->symbols = data;
        GW_TRY(status);
    }
    uint32_t at = (uint32_t)m->n++;
    gw_symbol symbol = {start, bytes, id, at == 0 ? GW_NO_SYMBOL : at - 1, GW_NO_SYMBOL, frozen};
    m->symbols[at] = symbol;
    if (at > 0) {
        m->symbols[at - 1].next = at;
    }
    return GW_OK;
}

static void sift_down(gw_pair *heap, size_t n, size_t at) {
    gw_pair moved = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && heap[child + 1].key < heap[child].key) {
            child++;
        }
        if (heap[child].key >= moved.key) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static gw_status push(gw_merger *m, gw_pair pair) {
    if (m->n_heap == m->heap_capacity) {
        void *data = m->heap;
        gw_status status = gw_array_reserve(&data, &m->heap_capacity, m->n_heap + 1, sizeof pair);
        m->heap = data;
        GW_TRY(status);
    }
    size_t at = m->n_heap++;
    while (at > 0 && m->heap[(at - 1) / 2].key > pair.key) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = pair;
    return GW_OK;
}

static gw_pair pop(gw_merger *m) {
    gw_pair top = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap > 0) {
        sift_down(m->heap, m->n_heap, 0);
    }
    return top;
}

/* Offer the pair that begins at symbol `left`. */
static gw_status offer(gw_merger *m, uint32_t left, gw_pair_fn find, void *context) {
    const gw_symbol *a = &m->symbols[left];
    if (a->next == GW_NO_SYMBOL) {
        return GW_OK;
    }
    const gw_symbol *b = &m->symbols[a->next];
    uint32_t rank;
    int32_t id;
    if (a->frozen || b->frozen || !find(context, a, b, &rank, &id)) {
        return GW_OK;
    }
    gw_pair pair = {(uint64_t)rank << 32 | left, a->bytes + b->bytes, id};
    return push(m, pair);
}

gw_status gw_merger_run(gw_merger *m, gw_pair_fn find, void *context) {
    m->n_heap = 0;
    for (uint32_t i = 0; i + 1 < m->n; i++) {
        GW_TRY(offer(m, i, find, context));
    }
    while (m->n_heap > 0) {
        gw_pair best = pop(m);
        uint32_t left = (uint32_t)best.key;
        gw_symbol *a = &m->symbols[left];
        if (a->bytes == 0 || a->next == GW_NO_SYMBOL) {
            continue;
        }
        gw_symbol *b = &m->symbols[a->next];
        if (a->bytes + b->bytes != best.bytes) {
            continue; /* one of the two has grown since */
        }
        a->bytes = best.bytes;
        a->id = best.id;
        a->next = b->next;
        b->bytes = 0;
        if (a->next != GW_NO_SYMBOL) {
            m->symbols[a->next].prev = left;
        }
        if (a->prev != GW_NO_SYMBOL) {
            GW_TRY(offer(m, a->prev, find, context));
        }
        GW_TRY(offer(m, left, find, context));
    }
    return GW_OK;
}
