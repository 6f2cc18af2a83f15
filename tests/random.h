/* tests/random.h - numbers for tests, the same in every run and on every host: xorshift64
 * (Marsaglia 2003). Each test program has its own sequence. */
#ifndef GW_TESTS_RANDOM_H
#define GW_TESTS_RANDOM_H

#include <math.h>
#include <stdint.h>

static uint64_t random_state = 88172645463325252u;

/* Any seed will do; the product spreads its bits and is not zero but for the largest one. */
static inline void random_seed(uint64_t seed) { random_state = (seed + 1) * 0x9e3779b97f4a7c15u; }

static inline uint32_t random_u32(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

static inline float random_float(float size) { /* (-size, size), zero included */
    return ((float)(random_u32() >> 8) / 8388608.0f - 1.0f) * size;
}

static inline double uniform(void) { /* (0, 1) */
    return ((double)(random_u32() >> 8) + 0.5) / 16777216.0;
}

static inline float normal(void) {
    double u = uniform();
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * uniform()));
}

#endif
