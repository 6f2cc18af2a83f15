/* tests/count_alloc.h - counts every allocation of the program, to prove that a path makes none.
 * Included by exactly one file of a test. Under a sanitizer, which owns malloc, and on C libraries
 * without the names below, nothing is counted and COUNTS_ALLOCATIONS is 0: such tests skip. */
#ifndef GW_TESTS_COUNT_ALLOC_H
#define GW_TESTS_COUNT_ALLOC_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static atomic_size_t allocations;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define COUNTS_ALLOCATIONS 0
#else
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#endif

#ifndef COUNTS_ALLOCATIONS
#define COUNTS_ALLOCATIONS 1
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, bytes);
}
void *realloc(void *old, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t align, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(align, bytes);
}
int posix_memalign(void **out, size_t align, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    void *p = __libc_memalign(align, bytes);
    if (p == NULL) {
        return 12; /* ENOMEM */
    }
    *out = p;
    return 0;
}
#endif

#endif
