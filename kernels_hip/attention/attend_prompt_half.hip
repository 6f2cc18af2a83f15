/* kernels_hip/attention/attend_prompt_half.hip - attention of many rows on 16-bit matrix
 * instructions, for models whose products are on them too (gemm_half.hip) and caches of binary16.
 *
 * A block of threads takes GW_PROMPT_HALF_QUERIES queries, pairs of a row and a head, of one KV
 * head, a wave 16 of them, and goes over the pages once: scores, their weights against the largest
 * score so far, sums; what was summed before is scaled when a larger score comes (online softmax:
 * Milakov and Gimelshein, arXiv:1805.02867; by tiles: Dao et al., arXiv:2205.14135). Queries and
 * weights are rounded to binary16, powers of two come from the device's own instruction; sums are
 * binary32 in an order that depends on the page and the place in it, and what a query does not see
 * leaves its sums as they are. So a row's result is independent of the rows beside it; its bits are
 * the device's own. attend_prompt.hip has the bits of every other backend.
 */
#include "kernels_hip/device.h"
#include "kernels_hip/attention/attend_prompt.h"

#if GW_MMA

enum {
    QUERIES = GW_PROMPT_HALF_QUERIES,
    WAVES = QUERIES / GW_MMA_M,
    THREADS = WAVES * LANES,
    WIDE = GW_QUADS,
    STAGES = WIDE ? 2 : 1,
    SPAN = 16,                      /* columns that operands are loaded for at once, and a k step */
    TILES = SPAN / GW_MMA_N,        /* of results                                                 */
    GROUPS = GW_PAGE / SPAN,        /* of a page                                                  */
    CR = WIDE ? 2 : GW_MMA_RESULTS, /* rows and columns of a thread's results            */
    CC = GW_MMA_C / CR
};

/* A page of K, [E, GW_PAGE], or V, [GW_PAGE, E], as operand B: [k, n]. Waves of 32 transpose while
 * they load, so a row of k is as it was, pieces of 16 bytes exchanged; for others neighbours along
 * k stand together: words [n, k / 2 + 2]. */
template <int K, int N> struct matrix {
    enum { ROW = 2 * N, PITCH = K / 2 + 2, BYTES = WIDE ? K * ROW : N * PITCH * 4 };

    __device__ static inline int piece_at(int k, int piece) {
        return k * ROW + (piece ^ (k & 7)) * 16;
    }
    /* Operands of k .. k + 15 and columns n .. n + 15. */
    __device__ static inline void load(unsigned *b, const uint8_t *at, int k, int n, int lane) {
#if GW_QUADS
        gw_load_matrices_across(b,
                                at + piece_at(k + lane / 8 % 2 * 8 + lane % 8, n / 8 + lane / 16));
#elif GW_WMMA
        const unsigned *column = (const unsigned *)at + (n + lane % 16) * PITCH + k / 2;
#pragma unroll
        for (int i = 0; i < GW_MMA_B; i += 2) {
            struct __align__(8) pair {
                unsigned w[2];
            };
            const pair v = *(const pair *)(column + gw_mma_b_k_half(lane, i) / 2);
            b[i] = v.w[0];
            b[i + 1] = v.w[1];
        }
#else
        struct __align__(8) pair {
            unsigned w[2];
        };
        const pair v =
            *(const pair *)((const unsigned *)at + (n + lane % 16) * PITCH + k / 2 + lane / 16 * 2);
        b[0] = v.w[0];
        b[1] = v.w[1];
#endif
    }
    /* Rows of n columns (a multiple of 8) from memory, on NVIDIA begun only. Of k rows those in
     * [first, end): the others become zeros, for what memory has there may be no number. */
    __device__ static inline void fill(uint8_t *to, const uint8_t *from, int k, int n, int first,
                                       int end) {
        enum { PIECES = N / 8 };
        const gw_16b zeros = {{0, 0, 0, 0}};
        const int piece = (int)threadIdx.x % PIECES;
        if (piece * 8 >= n) {
            return;
        }
        from += piece * 16;
#if GW_QUADS
        for (int row = (int)threadIdx.x / PIECES; row < k; row += THREADS / PIECES) {
            if (row >= first && row < end) {
                gw_copy_async(to + piece_at(row, piece), from + (size_t)row * n * 2);
            } else {
                *(gw_16b *)(to + piece_at(row, piece)) = zeros;
            }
        }
#else
        for (int two = (int)threadIdx.x / PIECES; two < k / 2; two += THREADS / PIECES) {
            const int row = 2 * two;
            gw_16b a = zeros, b = zeros;
            if (row >= first && row < end) {
                a = *(const gw_16b *)(from + (size_t)row * n * 2);
            }
            if (row + 1 >= first && row + 1 < end) {
                b = *(const gw_16b *)(from + (size_t)(row + 1) * n * 2);
            }
            unsigned *words = (unsigned *)to + piece * 8 * PITCH + two;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                words[2 * i * PITCH] = (a.w[i] & 0xffffu) | b.w[i] << 16;
                words[(2 * i + 1) * PITCH] = a.w[i] >> 16 | (b.w[i] & 0xffff0000u);
            }
        }
#endif
    }
};

template <int E> struct desk {
    typedef matrix<E, GW_PAGE> keys;
    typedef matrix<GW_PAGE, E> values;
    enum {
        STAGE = keys::BYTES + values::BYTES,
        WEIGHT_ROW = GW_PAGE + 8, /* halves */
        WEIGHTS = WIDE ? 0 : WAVES * GW_MMA_M * WEIGHT_ROW * 2
    };
    uint8_t *pages;  /* [STAGES]: K, then V               */
    gw_u16 *weights; /* of this wave: [16, WEIGHT_ROW]    */
    int *low, *high; /* [QUERIES] the first and last position that each sees */
    int *slot;       /* [QUERIES] its sequence; -1: none */

    __device__ inline desk(uint8_t *shared, int wave) {
        static_assert(STAGES * STAGE + WEIGHTS + 12 * QUERIES == GW_PROMPT_HALF_SHARED(E, WIDE),
                      "what the host gives");
        pages = shared;
        weights = (gw_u16 *)(shared + STAGES * STAGE) + wave * GW_MMA_M * WEIGHT_ROW;
        low = (int *)(shared + STAGES * STAGE + WEIGHTS);
        high = low + QUERIES;
        slot = high + QUERIES;
    }
};

/* Queries of a wave, as operand A, and what becomes of them. gfx11: each half of a wave has half of
 * the operand, whose registers would not do for all of it. */
#if GW_MATRIX == GW_MATRIX_WMMA_11
enum { WORDS_OF_QUERY = GW_MMA_A / 2 };
GW_DEVICE int column_of_query(int lane, int i) { return lane / 16 * 8 + 2 * i; }
#else
#define WORDS_OF_QUERY GW_MMA_A
#define column_of_query gw_mma_a_k_half
#endif
template <int E> struct state {
    unsigned q[E / SPAN][WORDS_OF_QUERY];
    float top[CR];   /* the largest score so far                   */
    float total[CR]; /* of weights: those of this thread's columns */
    float sum[E / SPAN][TILES][GW_MMA_C];
};

struct place {
    int begin, group, live; /* the block's first query; heads of a KV head */
};

/* The row and head (of all) of query i of the block. */
GW_DEVICE int query_row(const place &at, int i) { return (at.begin + i) / at.group; }
GW_DEVICE int query_head(const place &at, int i) {
    return (int)blockIdx.y * at.group + (at.begin + i) % at.group;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Beyond the range of binary16 a query is not a query of this world: its scores choose one position
 * anyway. NaN stays. */
GW_DEVICE float within_half(float v) {
    return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
}

template <int E>
__device__ static inline void open(state<E> &s, const gw_prompt_params &p, const place &at,
                                   int first, int lane) {
    enum { AR = WIDE ? 2 : 1 };
    struct __align__(8) pair {
        float v[2];
    };
#pragma unroll
    for (int r = 0; r < AR; r++) {
        const int i = first + gw_mma_a_row(lane, r), row = query_row(at, i);
        const float *q = p.q + ((size_t)row * p.heads + query_head(at, i)) * p.e;
#pragma unroll
        for (int step = 0; step < E / SPAN; step++) {
#pragma unroll
            for (int k = 0; k < WORDS_OF_QUERY / AR; k++) {
                const int c = step * SPAN + column_of_query(lane, k * AR);
                pair two = {{0.0f, 0.0f}};
                if (row < at.live && c < p.e) {
                    two = *(const pair *)(q + c);
                }
                s.q[step][k * AR + r] = gw_two_halves(within_half(two.v[0]), within_half(two.v[1]));
            }
        }
    }
#pragma unroll
    for (int r = 0; r < CR; r++) {
        s.top[r] = -INFINITY;
        s.total[r] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < E / SPAN * TILES * GW_MMA_C; i++) {
        s.sum[i / GW_MMA_C / TILES][i / GW_MMA_C % TILES][i % GW_MMA_C] = 0.0f;
    }
}

/* ---- a page ---------------------------------------------------------------------------------- */

/* Positions [from, end) of a page that a query sees. */
struct range {
    int from, end;
};

/* Over the threads that share rows of results. */
GW_DEVICE float largest_of_row(float v) {
#pragma unroll
    for (int h = 1; h < LANES / (GW_MMA_M / CR); h *= 2) {
        const float other = gw_shuffle_xor(v, h);
        v = other > v ? other : v;
    }
    return v;
}
GW_DEVICE float sum_of_row(float v) {
#pragma unroll
    for (int h = 1; h < LANES / (GW_MMA_M / CR); h *= 2) {
        v = v + gw_shuffle_xor(v, h);
    }
    return v;
}

/* What a query does not see of a page. */
__device__ static inline void hide(const range *seen, float (*x)[TILES][GW_MMA_C], int lane) {
#pragma unroll
    for (int i = 0; i < GROUPS * TILES * GW_MMA_C; i++) {
        const int g = i / GW_MMA_C / TILES, t = i / GW_MMA_C % TILES, k = i % GW_MMA_C;
        const int at = g * SPAN + t * GW_MMA_N + gw_mma_c_col(lane, k);
        const int yes = at >= seen[k / CC].from && at < seen[k / CC].end;
        x[g][t][k] = yes ? x[g][t][k] : -INFINITY;
    }
}

/* Products become weights; what was summed before is scaled to the largest score. scale: of scores,
 * as exponents of 2. */
template <int E>
__device__ static inline void weigh(state<E> &s, float scale, float (*x)[TILES][GW_MMA_C]) {
    float before[CR];
#pragma unroll
    for (int r = 0; r < CR; r++) {
        float top = -INFINITY, total = 0.0f;
#pragma unroll
        for (int i = 0; i < GROUPS * TILES * CC; i++) {
            top = fmaxf(top, x[i / CC / TILES][i / CC % TILES][r * CC + i % CC]);
        }
        top = fmaxf(largest_of_row(top) * scale, s.top[r]);
        /* Nothing seen so far: nothing is summed. */
        const float from = top == -INFINITY ? 0.0f : top;
        before[r] = top == s.top[r] ? 1.0f : gw_power_of_two(s.top[r] - from);
        s.top[r] = top;
#pragma unroll
        for (int i = 0; i < GROUPS * TILES * CC; i++) {
            float &v = x[i / CC / TILES][i / CC % TILES][r * CC + i % CC];
            v = gw_power_of_two(fmaf(v, scale, -from));
            total = total + v;
        }
        s.total[r] = fmaf(s.total[r], before[r], total);
    }
#pragma unroll
    for (int i = 0; i < E / SPAN * TILES * GW_MMA_C; i++) {
        s.sum[i / GW_MMA_C / TILES][i / GW_MMA_C % TILES][i % GW_MMA_C] *=
            before[i % GW_MMA_C / CC];
    }
}

/* Weights of 16 positions, results so far, as operand A. */
__device__ static inline void weights_of(unsigned *a, const float (*x)[TILES][GW_MMA_C], int g,
                                         const gw_u16 *shared, int row_halves, int lane) {
#if GW_QUADS
    (void)shared, (void)row_halves, (void)lane;
#pragma unroll
    for (int i = 0; i < GW_MMA_A; i++) { /* the same threads have them */
        a[i] = gw_two_halves(x[g][i / 2][i % 2 * 2], x[g][i / 2][i % 2 * 2 + 1]);
    }
#else
    (void)x;
    const unsigned *row = (const unsigned *)(shared + gw_mma_a_row(lane, 0) * row_halves);
#pragma unroll
    for (int i = 0; i < GW_MMA_A; i++) {
        a[i] = row[(g * SPAN + gw_mma_a_k_half(lane, i)) / 2];
    }
#endif
}

/* Weights to shared memory, where other threads need them. */
__device__ static inline void hand_on(const float (*x)[TILES][GW_MMA_C], gw_u16 *shared,
                                      int row_halves, int lane) {
#if !(GW_QUADS)
#pragma unroll
    for (int i = 0; i < GROUPS * GW_MMA_C; i++) {
        const int g = i / GW_MMA_C, k = i % GW_MMA_C;
        shared[gw_mma_c_row(lane, k) * row_halves + g * SPAN + gw_mma_c_col(lane, k)] =
            (gw_u16)gw_two_halves(x[g][0][k], 0.0f);
    }
    gw_sync_wave();
#else
    (void)x, (void)shared, (void)row_halves, (void)lane;
#endif
}

template <int E>
__device__ static inline void attend_page(state<E> &s, const desk<E> &d, float scale,
                                          const uint8_t *page, const range *seen, int all,
                                          int lane) {
    typedef desk<E> D;
    float x[GROUPS][TILES][GW_MMA_C];
#pragma unroll
    for (int i = 0; i < GROUPS * TILES * GW_MMA_C; i++) {
        x[i / GW_MMA_C / TILES][i / GW_MMA_C % TILES][i % GW_MMA_C] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < E / SPAN; step++) {
#if GW_MATRIX == GW_MATRIX_WMMA_11
        const gw_wmma_whole<GW_MMA_A> q(s.q[step], lane);
#define OPERAND_OF(step) q.w
#else
#define OPERAND_OF(step) s.q[step]
#endif
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            unsigned b[TILES * GW_MMA_B];
            D::keys::load(b, page, step * SPAN, g * SPAN, lane);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                gw_mma_f16(x[g][t], OPERAND_OF(step), b + t * GW_MMA_B);
            }
#if GW_WMMA
            if (g % 2 == 1) {
                gw_wmma_now(x[g][0]);
            }
#endif
        }
        gw_read_no_earlier();
    }
    if (!all) {
        hide(seen, x, lane);
    }
    weigh<E>(s, scale, x);
    hand_on(x, d.weights, D::WEIGHT_ROW, lane);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        unsigned a[GW_MMA_A];
        weights_of(a, x, g, d.weights, D::WEIGHT_ROW, lane);
#pragma unroll
        for (int c = 0; c < E / SPAN; c++) {
            unsigned b[TILES * GW_MMA_B];
            D::values::load(b, page + D::keys::BYTES, g * SPAN, c * SPAN, lane);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                gw_mma_f16(s.sum[c][t], a, b + t * GW_MMA_B);
            }
#if GW_WMMA
            if (c % GW_WMMA_QUARTERS == GW_WMMA_QUARTERS - 1) { /* as many as have room */
                gw_wmma_now(s.sum[c][0]);
            }
#endif
        }
        gw_read_no_earlier();
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* A page of which the queries here see positions [low, high) of the sequence. */
template <int E>
__device__ static inline void fetch_page(const gw_prompt_params &p, uint8_t *to, int slot, int page,
                                         int low, int high) {
    const size_t number = (size_t)p.pages[(size_t)slot * p.page_stride + page];
    const size_t at = (number * p.kv_heads + blockIdx.y) * GW_PAGE * p.e * 2;
    desk<E>::keys::fill(to, (const uint8_t *)p.k + at, p.e, GW_PAGE, 0, p.e);
    desk<E>::values::fill(to + desk<E>::keys::BYTES, (const uint8_t *)p.v + at, GW_PAGE, p.e,
                          low - page * GW_PAGE, high - page * GW_PAGE);
}

/* Queries [from, end) of the block, of one sequence, over their pages. */
template <int E>
__device__ static inline void attend_run(state<E> &s, const desk<E> &d, const gw_prompt_params &p,
                                         int slot, int from, int end, int first, int lane) {
    /* Rows of a sequence come in order. */
    const int lowest = d.low[from], highest = d.high[end - 1];
    const int last = highest / GW_PAGE;
#if GW_WMMA
    int lowest_of[2] = {0x7fffffff, -1}, highest_of[2] = {0x7fffffff, -1};
#else
    int low[CR], high[CR], lowest_of[2] = {0x7fffffff, -1}, highest_of[2] = {0x7fffffff, -1};
#pragma unroll
    for (int r = 0; r < CR; r++) {
        const int i = first + gw_mma_c_row(lane, r * CC), there = i >= from && i < end;
        high[r] = there ? d.high[i] + 1 : 0;
        low[r] = there ? d.low[i] : 0;
    }
#endif
    const int whole = first >= from && first + GW_MMA_M <= end;
    if (first < end && first + GW_MMA_M > from) { /* the wave's first and last query of the run */
        const int one = first > from ? first : from;
        const int other = first + GW_MMA_M < end ? first + GW_MMA_M - 1 : end - 1;
        lowest_of[0] = d.low[one];
        lowest_of[1] = d.low[other];
        highest_of[0] = d.high[one];
        highest_of[1] = d.high[other];
    }
    if (STAGES > 1) {
        fetch_page<E>(p, d.pages, slot, lowest / GW_PAGE, lowest, highest + 1);
        gw_copy_commit();
    }
    for (int page = lowest / GW_PAGE, turn = 0; page <= last; page++) {
        const int base = page * GW_PAGE;
        uint8_t *here = d.pages + turn * desk<E>::STAGE;
        if (STAGES > 1) {
            gw_copy_wait<0>();
            __syncthreads();
            turn ^= 1;
            if (page < last) {
                fetch_page<E>(p, d.pages + turn * desk<E>::STAGE, slot, page + 1, lowest,
                              highest + 1);
            }
            gw_copy_commit();
        } else {
            __syncthreads();
            fetch_page<E>(p, here, slot, page, lowest, highest + 1);
            __syncthreads();
        }
        if (highest_of[1] >= base && lowest_of[0] < base + GW_PAGE) {
            const int all = whole && lowest_of[1] <= base && highest_of[0] >= base + GW_PAGE - 1;
            range seen[CR];
#pragma unroll
            for (int r = 0; r < CR; r++) {
#if GW_WMMA /* eight rows of a thread, anew for each page: it has no registers for them */
                const int i = first + gw_mma_c_row(lane, r), there = i >= from && i < end;
                seen[r].from = (there ? d.low[i] : 0) - base;
                seen[r].end = (there ? d.high[i] + 1 : 0) - base;
#else
                seen[r].from = low[r] - base;
                seen[r].end = high[r] - base;
#endif
            }
            attend_page<E>(s, d, p.scale * 1.44269504088896341f, here, seen, all, lane);
        }
    }
    __syncthreads(); /* before another run's pages */
}

template <int E>
__device__ static inline void store(const state<E> &s, const gw_prompt_params &p, const place &at,
                                    int first, int lane) {
#pragma unroll
    for (int r = 0; r < CR; r++) {
        const int i = first + gw_mma_c_row(lane, r * CC), row = query_row(at, i);
        const float inverse = 1.0f / sum_of_row(s.total[r]);
        float *out = (float *)p.out + ((size_t)row * p.heads + query_head(at, i)) * p.e;
#pragma unroll
        for (int c = 0; c < E / SPAN * TILES; c++) {
#pragma unroll
            for (int k = r * CC; k < (r + 1) * CC; k++) {
                const int col = c * GW_MMA_N + gw_mma_c_col(lane, k);
                if (row < at.live && col < p.e) {
                    out[col] = s.sum[c / TILES][c % TILES][k] * inverse;
                }
            }
        }
    }
}

template <int E> __device__ static inline void attend(const gw_prompt_params &p, uint8_t *shared) {
    const int tid = (int)threadIdx.x, wave = tid / LANES, lane = gw_wave_lane();
    const int first = wave * GW_MMA_M;
    gw_grid_launch_dependents();
    const place at = {(int)(gridDim.x - 1 - blockIdx.x) * QUERIES, p.heads / p.kv_heads,
                      gw_live(p.step)}; /* the longest first */
    gw_grid_dependency_wait();
    if (at.begin >= at.live * at.group) {
        return;
    }
    const desk<E> d(shared, wave);
    state<E> s;
    for (int i = tid; i < QUERIES; i += THREADS) {
        const int row = query_row(at, i), there = row < at.live;
        const gw_prompt_span span = gw_prompt_seen(p, there ? row : 0);
        d.low[i] = span.low;
        d.high[i] = span.high;
        d.slot[i] = there ? gw_step_slot(p.step, row) : -1;
    }
    for (int i = tid * 16; i < STAGES * desk<E>::STAGE && p.e < E; i += THREADS * 16) {
        *(gw_16b *)(d.pages + i) = gw_16b{{0, 0, 0, 0}}; /* beyond e it stays so */
    }
    open<E>(s, p, at, first, lane);
    __syncthreads();
    for (int from = 0, end = 0; from < QUERIES && d.slot[from] >= 0; from = end) {
        const int slot = d.slot[from];
        for (unsigned others = 0; end < QUERIES && others == 0;) { /* the run's end */
            others = ~gw_ballot(end + gw_lane() < QUERIES && d.slot[end + gw_lane()] == slot);
            end += others == 0 ? GW_LANES : __ffs((int)others) - 1;
        }
        attend_run<E>(s, d, p, slot, from, end, first, lane);
    }
    store<E>(s, p, at, first, lane);
}

/* E: the width of a head is at most that, and a multiple of 8. Of 64 values four blocks share a
 * multiprocessor, for which some registers are given up. */
#define KERNEL(E)                                                                                  \
    GW_KERNEL(gw_attend_prompt_half_##E, struct gw_prompt_params, THREADS, E == 64 ? 4 : 1) {      \
        GW_SHARED_DYNAMIC(uint8_t, shared);                                                        \
        attend<E>(p, shared);                                                                      \
    }
KERNEL(64)
KERNEL(128)

#endif
