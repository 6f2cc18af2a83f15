/* core/base/size.h - arithmetic on sizes that came from outside. Each returns 1 when the result is
 * exact and stored, 0 on overflow (then *out is unspecified). No signed sizes, no wrapping. */
#ifndef GW_BASE_SIZE_H
#define GW_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "godwit runs on little-endian processors only: weights are used as they lie in their files"
#endif
#if __SIZEOF_POINTER__ < 8
#error "godwit needs 64-bit addresses: files of weights are mapped whole"
#endif

static inline int gw_size_add(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static inline int gw_size_mul(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* The smallest multiple of `align` (a power of two) that is not below `value`. */
static inline int gw_size_align(uint64_t value, uint64_t align, uint64_t *out) {
    uint64_t sum;
    if (!gw_size_add(value, align - 1, &sum)) {
        return 0;
    }
    *out = sum & ~(align - 1);
    return 1;
}

#endif
