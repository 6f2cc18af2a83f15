/* core/text/buffer.h - growing arrays of bytes and ids, for results of unknown length. */
#ifndef GW_TEXT_BUFFER_H
#define GW_TEXT_BUFFER_H

#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"

typedef struct gw_bytes {
    char *data;
    size_t n, capacity;
} gw_bytes;

typedef struct gw_ids {
    int32_t *data;
    size_t n, capacity;
} gw_ids;

/* Room for `count` items of `size` bytes in *data; the capacity at least doubles. */
static inline gw_status gw_array_reserve(void **data, size_t *capacity, size_t count, size_t size) {
    if (count <= *capacity) {
        return GW_OK;
    }
    size_t want = *capacity < 16 ? 16 : *capacity;
    while (want < count) {
        if (__builtin_mul_overflow(want, (size_t)2, &want)) {
            return gw_fail(GW_E_NOMEM, NULL, "a text is too long");
        }
    }
    size_t total;
    void *grown = __builtin_mul_overflow(want, size, &total) ? NULL : realloc(*data, total);
    if (grown == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for %zu items of text", count);
    }
    *data = grown;
    *capacity = want;
    return GW_OK;
}

static inline gw_status gw_bytes_reserve(gw_bytes *b, size_t more) {
    void *data = b->data;
    gw_status status = gw_array_reserve(&data, &b->capacity, b->n + more, 1);
    b->data = data;
    return status;
}

static inline gw_status gw_bytes_add(gw_bytes *b, const void *from, size_t n) {
    GW_TRY(gw_bytes_reserve(b, n));
    if (n > 0) {
        memcpy(b->data + b->n, from, n);
    }
    b->n += n;
    return GW_OK;
}

static inline gw_status gw_ids_add(gw_ids *ids, int32_t id) {
    if (ids->n == ids->capacity) {
        void *data = ids->data;
        gw_status status = gw_array_reserve(&data, &ids->capacity, ids->n + 1, sizeof *ids->data);
        ids->data = data;
        GW_TRY(status);
    }
    ids->data[ids->n++] = id;
    return GW_OK;
}

#endif
