/* tests/gguf_image.h - GGUF files put together byte by byte, valid or broken. */
#ifndef GW_TESTS_GGUF_IMAGE_H
#define GW_TESTS_GGUF_IMAGE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct image {
    uint8_t data[1 << 17];
    size_t n;
} image;

static inline void put(image *m, const void *bytes, size_t n) {
    memcpy(m->data + m->n, bytes, n);
    m->n += n;
}

static inline void put_number(image *m, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        m->data[m->n++] = (uint8_t)(v >> (8 * i));
    }
}

static inline void put_u32(image *m, uint64_t v) { put_number(m, v, 4); }
static inline void put_u64(image *m, uint64_t v) { put_number(m, v, 8); }

static inline void put_f32(image *m, double v) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    put_u32(m, bits);
}

static inline void put_text(image *m, const char *text) {
    put_u64(m, strlen(text));
    put(m, text, strlen(text));
}

static inline void put_head(image *m, uint64_t n_tensors, uint64_t n_pairs) {
    m->n = 0;
    put(m, "GGUF", 4);
    put_u32(m, 3);
    put_u64(m, n_tensors);
    put_u64(m, n_pairs);
}

static inline void put_pair_u32(image *m, const char *key, uint64_t v) {
    put_text(m, key);
    put_u32(m, 4);
    put_u32(m, v);
}

static inline void put_pair_text(image *m, const char *key, const char *v) {
    put_text(m, key);
    put_u32(m, 8);
    put_text(m, v);
}

/* A tensor entry with the dimensions in file order (columns first). */
static inline void put_tensor(image *m, const char *name, int rank, uint64_t d0, uint64_t d1,
                              uint32_t type, uint64_t offset) {
    put_text(m, name);
    put_u32(m, (uint64_t)rank);
    for (int i = 0; i < rank; i++) {
        put_u64(m, i == 0 ? d0 : i == 1 ? d1 : 1);
    }
    put_u32(m, type);
    put_u64(m, offset);
}

static inline void put_zeros(image *m, size_t n) {
    memset(m->data + m->n, 0, n);
    m->n += n;
}

static inline void put_padding(image *m, size_t align) {
    put_zeros(m, (align - m->n % align) % align);
}

/* The image in memory of exactly its size, so that a sanitizer sees a read past its end. */
static inline uint8_t *exact_copy(const image *m, size_t n) {
    uint8_t *copy = malloc(n != 0 ? n : 1);
    if (copy != NULL) {
        memcpy(copy, m->data, n);
    }
    return copy;
}

static inline int write_image(const char *path, const image *m) {
    FILE *f = fopen(path, "wb");
    size_t n = f != NULL ? fwrite(m->data, 1, m->n, f) : 0;
    return f != NULL && fclose(f) == 0 && n == m->n;
}

#endif
