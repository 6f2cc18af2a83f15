/* core/base/reader.h - the only way to bytes that came from outside.
 *
 * A reader is a range of memory and a position in it. gw_reader_take hands out the next n bytes or
 * nothing; no other code indexes file bytes. Numbers are little-endian, of any alignment. A failed
 * call leaves the position and the result as they were.
 */
#ifndef GW_BASE_READER_H
#define GW_BASE_READER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct gw_reader {
    const uint8_t *data;
    uint64_t size, at; /* at <= size */
} gw_reader;

static inline gw_reader gw_reader_of(const void *data, uint64_t size) {
    gw_reader r = {(const uint8_t *)data, size, 0};
    return r;
}

static inline uint64_t gw_reader_left(const gw_reader *r) { return r->size - r->at; }

/* The next n bytes, or NULL when fewer are left. n = 0 gives a pointer that must not be read. */
static inline const uint8_t *gw_reader_take(gw_reader *r, uint64_t n) {
    if (n > gw_reader_left(r)) {
        return NULL;
    }
    const uint8_t *p = r->data != NULL ? r->data + r->at : (const uint8_t *)"";
    r->at += n;
    return p;
}

/* Unsigned little-endian number of `bytes` bytes (1..8) at p, which must hold them. */
static inline uint64_t gw_load_le(const uint8_t *p, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

static inline int gw_reader_u32(gw_reader *r, uint32_t *out) {
    const uint8_t *p = gw_reader_take(r, 4);
    if (p == NULL) {
        return 0;
    }
    *out = (uint32_t)gw_load_le(p, 4);
    return 1;
}

static inline int gw_reader_u64(gw_reader *r, uint64_t *out) {
    const uint8_t *p = gw_reader_take(r, 8);
    if (p == NULL) {
        return 0;
    }
    *out = gw_load_le(p, 8);
    return 1;
}

#endif
