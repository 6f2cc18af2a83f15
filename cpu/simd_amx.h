/* cpu/simd_amx.h - the few tile instructions that cpu/linear_amx.c is made of.
 *
 * Eight tiles in one of two shapes: 0 .. 3 hold sums, 16 x 16 words; 4 and 5 the codes of 16
 * activation rows, 32 or 64 bytes each; 6 and 7 those of 16 weight rows, 8 or 16 x 16 words of 4
 * codes. TILE_DOT adds to sum [i][j] the 32 or 64 products of activation row i and weight row j; it
 * takes as long for either; TILE_DOT_UNSIGNED's weights have no sign. Assembler, not
 * intrinsics: gcc 12's tell the compiler too little of the memory they touch. Under GODWIT_SIMDE
 * the tiles are plain C, so that any x86 can check the bits.
 */
#ifndef GW_CPU_SIMD_AMX_H
#define GW_CPU_SIMD_AMX_H

#include "core/tensor/formats.h"

#include <string.h>

#if defined(GODWIT_SIMDE)

typedef struct gw_tiles {
    size_t columns; /* 32 or 64 */
    gw_i8 at[8][1024];
} gw_tiles;

static inline void gw_tile_load(gw_tiles *t, int tile, const void *from, size_t stride) {
    const size_t rows = tile >= 6 ? t->columns / 4 : 16;
    const size_t bytes = tile == 4 || tile == 5 ? t->columns : 64;
    for (size_t i = 0; i < rows; i++) {
        memcpy(t->at[tile] + i * 64, (const char *)from + i * stride, bytes);
    }
}
static inline void gw_tile_store(const gw_tiles *t, int tile, void *to) {
    memcpy(to, t->at[tile], sizeof t->at[tile]);
}
static inline void gw_tile_dot(gw_tiles *t, int sums, int x, int w, int mask) {
    for (size_t i = 0; i < 256; i++) {
        const gw_i8 *q = t->at[x] + i / 16 * 64, *code = t->at[w] + i % 16 * 4;
        gw_i32 sum;
        memcpy(&sum, t->at[sums] + i * 4, sizeof sum);
        for (size_t j = 0; j < t->columns; j++) {
            sum += (gw_i32)q[j] * ((gw_i32)code[j / 4 * 64 + j % 4] & mask);
        }
        memcpy(t->at[sums] + i * 4, &sum, sizeof sum);
    }
}
#define TILES_BEGIN(t, wide) (memset((t), 0, sizeof *(t)), (t)->columns = (wide) ? 64 : 32)
#define TILES_END(t) (void)(t)
#define TILE_LOAD(t, n, from, stride) gw_tile_load(t, n, from, stride)
#define TILE_STORE(t, n, to) gw_tile_store(t, n, to)
#define TILE_ZERO(t, n) memset((t)->at[n], 0, sizeof(t)->at[n])
#define TILE_DOT(t, sums, x, w) gw_tile_dot(t, sums, x, w, -1)
#define TILE_DOT_UNSIGNED(t, sums, x, w) gw_tile_dot(t, sums, x, w, 255)

#else

typedef struct gw_tiles {
    char none;
} gw_tiles;

typedef struct gw_tile_shape { /* the operand of LDTILECFG */
    gw_u8 palette, start, reserved[14];
    gw_u16 bytes[16]; /* of a row */
    gw_u8 rows[16];
} gw_tile_shape;

static const gw_tile_shape gw_tile_shapes[2] = {{.palette = 1,
                                                 .bytes = {64, 64, 64, 64, 32, 32, 64, 64},
                                                 .rows = {16, 16, 16, 16, 16, 16, 8, 8}},
                                                {.palette = 1,
                                                 .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                                 .rows = {16, 16, 16, 16, 16, 16, 16, 16}}};

/* Released tiles cost nothing when threads change places. */
#define TILES_BEGIN(t, wide) ((void)(t), gw_tiles_configure(&gw_tile_shapes[wide]))
#define TILES_END(t) __asm__ volatile("tilerelease" ::: "memory")
#define TILE_LOAD(t, n, from, stride)                                                              \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #n ::"r"(from), "r"((size_t)(stride))            \
                     : "memor"                                                                     \
                       "y")
#define TILE_STORE(t, n, to)                                                                       \
    ((void)(t));                                                                                   \
    __asm__ volatile("tilestored %%tmm" #n ", (%0,%1,1)" ::"r"(to), "r"((size_t)64) : "memory")
#define TILE_ZERO(t, n) __asm__ volatile("tilezero %%tmm" #n ::)
#define TILE_DOT(t, sums, x, w) __asm__ volatile("tdpbssd %%tmm" #w ", %%tmm" #x ", %%tmm" #sums ::)
#define TILE_DOT_UNSIGNED(t, sums, x, w)                                                           \
    __asm__ volatile("tdpbsud %%tmm" #w ", %%tmm" #x ", %%tmm" #sums ::)

static inline void gw_tiles_configure(const gw_tile_shape *all) {
    __asm__ volatile("ldtilecfg %0" ::"m"(*all) : "memory");
}

#endif
#endif
