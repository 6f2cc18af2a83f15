/* kernels_hip/gemm/gemm_wide.hip - products of many tokens with F16 and BF16 weights on matrix
 * instructions of four waves: LINEAR, with the sums of gemm_group.hip, in the same order.
 *
 * What bounds such a product is what shared memory gives: instructions of 64 rows and 64 tokens
 * read their tokens for few rows, and waves that have the same rows read the same weights.
 * Here four waves have 64 rows and all 256 tokens of a tile, 128 sums a thread: weights come to
 * registers once and tokens once for 64 rows, half of the bytes per operation. Stages are whole
 * pieces of memory, of each strip two records and of tokens what struct gw_narrow_to has laid out;
 * one wave copies them, four stages ahead, also over the end of a tile: blocks stay. Tiles of the
 * same tokens follow one another, GW_WIDE_BAND of them, for the sake of the second cache.
 */
#include "kernels_hip/gemm/gemm_half.h"

#if GW_GROUP_MMA

enum {
    RING = GW_WIDE_RING,
    STAGE = GW_WIDE_STAGE,
    WEIGHTS_AT = GW_WIDE_TOKENS * TOKEN_BYTES,
    WAVES = GW_GEMM_THREADS / 32,
    STRIPS = GW_GEMM_ROWS / GW_MMA_M,
    HALF = GW_WIDE_TOKENS / 2, /* tokens that lie together */
    BF16 = 1
};
static_assert(STAGE == WEIGHTS_AT + STRIPS * RECORDS * RECORD, "what the host gives");

/* Tiles of a launch: `rows` along the weights' rows, `across` along the tokens. */
struct wide_tiles {
    int rows, across, stages;

    __device__ inline wide_tiles(const gw_gemm_params &p) {
        rows = 0;
        for (int i = 0; i < p.parts; i++) {
            rows += (p.w[i].rows + (int)GW_GEMM_ROWS - 1) / (int)GW_GEMM_ROWS;
        }
        across = (gw_live(p.step) + (int)GW_WIDE_TOKENS - 1) / (int)GW_WIDE_TOKENS;
        stages = (p.k + 127) / 128 * (4 / RECORDS);
    }
    __device__ inline int count(void) const { return rows * across; }
    template <class T> __device__ inline gw_tile_at find(const gw_gemm_params &p, int id) const {
        const int band = (int)GW_WIDE_BAND * across, first = id / band * (int)GW_WIDE_BAND;
        const int high = rows - first < (int)GW_WIDE_BAND ? rows - first : (int)GW_WIDE_BAND;
        return gw_tile_at_row<T>(p, first + id % band % high, id % band / high * GW_WIDE_TOKENS);
    }
};

/* It has come; has been read. */
GW_DEVICE gw_shared_at wide_has(gw_shared_at gates, int slot) {
    return gates + slot * (int)GW_GATE_BYTES;
}
GW_DEVICE gw_shared_at wide_read(gw_shared_at gates, int slot) {
    return wide_has(gates, RING + slot);
}

/* All stages of the block's tiles, each to its place when that is free, by one wave. */
__device__ static inline void wide_feed(const gw_gemm_params &p, const wide_tiles &tiles,
                                        gw_shared_at shared, gw_shared_at gates) {
    typedef gw_tile<GW_GEMM_ROWS, GW_WIDE_TOKENS, WAVES, 1> T;
    const int lane = gw_lane();
    int slot = 0, round = 0;
    for (int id = (int)blockIdx.x; id < tiles.count(); id += (int)gridDim.x) {
        const gw_tile_at at = tiles.find<T>(p, id);
        const int whole = at.live - at.token > HALF, copies = STRIPS + 1 + whole;
        const int tokens = lane >= STRIPS, s = tokens ? 0 : lane, part = lane - STRIPS;
        const size_t bytes = (size_t)tiles.stages * RECORDS * RECORD;
        const uint8_t *from =
            tokens ? (const uint8_t *)p.x + (size_t)(at.token / HALF + (part == 1 && whole)) *
                                                tiles.stages * HALF * TOKEN_BYTES
                   : gw_tile_weight(p, at, s).plane[0] + (size_t)gw_tile_strip(p, at, s) * bytes;
        const int piece = tokens ? HALF * TOKEN_BYTES : RECORDS * RECORD;
        const int to = tokens ? part * HALF * TOKEN_BYTES : WEIGHTS_AT + s * RECORDS * RECORD;
        const int all = STRIPS * RECORDS * RECORD + (1 + whole) * HALF * TOKEN_BYTES;
        for (int n = 0; n < tiles.stages; n++, from += piece) {
            if (round > 0) {
                gw_gate_wait(wide_read(gates, slot), (round - 1) & 1);
            }
            gw_fetch(copies, shared + slot * STAGE + to, from, piece, all, wide_has(gates, slot));
            slot = slot + 1 == RING ? 0 : slot + 1;
            round += slot == 0;
        }
    }
}

/* What a lane needs of a stage's weights, by k step. */
template <class T>
__device__ GW_ALWAYS_INLINE void wide_operands(unsigned (*a)[T::MT][GW_MMA_A],
                                                  const gw_tile_at &at,
                                                  const unsigned char *stage) {
#pragma unroll
    for (int n = 0; n < RECORDS; n++) {
        gw_16b w[T::MT][T::AR];
        half_weights<T, 0>(w, at, stage + WEIGHTS_AT, n);
        half_operands<T>(a[2 * n], w, 0);
        half_operands<T>(a[2 * n + 1], w, 1);
    }
}

/* y = (sum * power of two of the row + bias) + residual, EACH tiles of tokens at a time, so that
 * what comes from memory has registers beside the sums. */
template <class T, int FORMAT>
__device__ GW_ALWAYS_INLINE void wide_store(const gw_gemm_params &p, const gw_tile_at &at,
                                            const float (*acc)[T::NT][GW_MMA_C]) {
    enum { EACH = 4 };
    const gw_gemm_weight &w = p.w[at.part];
    const int r = (at.strip + at.m) * GW_MMA_M + gw_mma_c_row(at.lane, 0);
    const int first = at.token + gw_mma_c_col(at.lane, 0);
    const int there[2] = {r < w.rows, r + 8 < w.rows};
    float bias[2] = {0.0f, 0.0f};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bias[h] = w.bias && there[h] ? w.bias[r + 8 * h] : 0.0f;
    }
    const size_t column = (size_t)w.column + r;
#pragma unroll
    for (int j = 0; j < T::NT; j += EACH) {
        float before[EACH][GW_MMA_C], by[EACH][2];
#pragma unroll
        for (int k = 0; k < EACH * GW_MMA_C; k++) {
            const int t = first + (j + k / 4) * GW_MMA_N + k % 2, h = k % 4 / 2;
            const int live = t < at.live;
            if (h == 0) {
                by[k / 4][k % 2] = FORMAT != BF16 && live ? p.scale[t] : 1.0f;
            }
            before[k / 4][k % 4] =
                p.residual && live && there[h] ? p.residual[(size_t)t * p.stride + column + 8 * h]
                                               : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < EACH * GW_MMA_C; k++) {
            const int t = first + (j + k / 4) * GW_MMA_N + k % 2, h = k % 4 / 2;
            float v = acc[0][j + k / 4][k % 4];
            v = FORMAT != BF16 ? v * by[k / 4][k % 2] : v;
            v = w.bias ? v + bias[h] : v;
            v = p.residual ? v + before[k / 4][k % 4] : v;
            if (t < at.live && there[h]) {
                ((float *)p.y)[(size_t)t * p.stride + column + 8 * h] = v;
            }
        }
        gw_read_no_earlier();
    }
}

/* A tile, whose stages are the block's from number u on. */
template <int FORMAT>
__device__ GW_ALWAYS_INLINE void wide_tile(const gw_gemm_params &p, const gw_tile_at &at,
                                           int stages, unsigned u, unsigned char *shared,
                                           gw_shared_at gates) {
    enum { TOKENS = GW_WIDE_TOKENS };
    typedef gw_tile<GW_GEMM_ROWS, TOKENS, WAVES, 1> T;
    enum { STEPS = 2 * RECORDS, SUMS = T::NT * GW_MMA_C };
    const gw_group_at columns = gw_group_columns(shared);
    unsigned a[2][STEPS][T::MT][GW_MMA_A];
    float acc[T::MT][T::NT][GW_MMA_C];
    static_assert(T::MT == 1 && RING % 2 == 0, "a wave has a strip");
    gw_gate_wait(wide_has(gates, u % RING), u / RING & 1);
    wide_operands<T>(a[0], at, shared + u % RING * STAGE);
#pragma unroll 1
    for (int n = 0; n < stages; n += 2) { /* stages are even in number */
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const unsigned slot = (u + n + odd) % RING;
            gw_group_keep<SUMS>(&acc[0][0][0]);
            gw_group_keep<STEPS * GW_MMA_A>(&a[odd][0][0][0]);
            gw_group_begin();
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                const gw_group_at b = columns + slot * (STAGE / 16) + step * GW_GROUP_K_STEP;
                const int goes_on = step > 0 || odd > 0 || n > 0;
                if (FORMAT == BF16) {
                    gw_group_bf16<TOKENS>(&acc[0][0][0], a[odd][step][0], b, goes_on);
                } else {
                    gw_group_f16<TOKENS>(&acc[0][0][0], a[odd][step][0], b, goes_on);
                }
            }
            gw_group_end();
            gw_group_wait<1>(); /* the stage before has been read */
            gw_group_keep<SUMS>(&acc[0][0][0]);
            gw_group_keep<STEPS * GW_MMA_A>(&a[1 - odd][0][0][0]);
            if (n + odd > 0 && gw_wave_lane() == 0) {
                gw_gate_arrive(wide_read(gates, (u + n + odd - 1) % RING));
            }
            if (n + odd + 1 < stages) {
                const unsigned next = u + n + odd + 1;
                gw_gate_wait(wide_has(gates, next % RING), next / RING & 1);
                wide_operands<T>(a[1 - odd], at, shared + next % RING * STAGE);
            }
        }
    }
    gw_group_wait<0>();
    gw_group_keep<SUMS>(&acc[0][0][0]);
    if (gw_wave_lane() == 0) {
        gw_gate_arrive(wide_read(gates, (u + stages - 1) % RING));
    }
    wide_store<T, FORMAT>(p, at, acc);
}

template <int FORMAT>
__device__ GW_ALWAYS_INLINE void wide(const gw_gemm_params &p, unsigned char *shared) {
    typedef gw_tile<GW_GEMM_ROWS, GW_WIDE_TOKENS, WAVES, 1> T;
    const gw_shared_at gates = gw_shared_address(shared + RING * STAGE);
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < RING; slot++) {
            gw_gate_make(wide_has(gates, slot), GW_FETCH_ARRIVALS);
            gw_gate_make(wide_read(gates, slot), WAVES);
        }
        gw_gates_made();
    }
    __syncthreads();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const wide_tiles tiles(p);
    const int team = (int)threadIdx.x / 32;
    if (team >= WAVES) { /* from here on two programs, for registers */
        gw_leave_registers<GW_GROUP_FEEDER_REGISTERS>();
        if (team == WAVES) {
            wide_feed(p, tiles, gw_shared_address(shared), gates);
        }
        return;
    }
    gw_take_registers<GW_GROUP_REGISTERS>();
    unsigned u = 0;
    for (int id = (int)blockIdx.x; id < tiles.count(); id += (int)gridDim.x, u += tiles.stages) {
        const gw_tile_at at = tiles.find<T>(p, id);
        wide_tile<FORMAT>(p, at, tiles.stages, u, shared, gates);
    }
}

GW_KERNEL(gw_gemm_wide_f16, struct gw_gemm_params, GW_GROUP_BLOCK, 1) {
    GW_SHARED_TILES(unsigned char, shared);
    wide<0>(p, shared);
}
GW_KERNEL(gw_gemm_wide_bf16, struct gw_gemm_params, GW_GROUP_BLOCK, 1) {
    GW_SHARED_TILES(unsigned char, shared);
    wide<BF16>(p, shared);
}

#endif
