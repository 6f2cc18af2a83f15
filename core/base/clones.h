/* core/base/clones.h - functions compiled once for every instruction set of x86-64, the best of
 * which is taken when the program starts: one text, and without contraction the same bits.
 */
#ifndef GW_BASE_CLONES_H
#define GW_BASE_CLONES_H

/* Resolvers run before the sanitizers are ready. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GW_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define GW_CLONES
#endif

#endif
