/* kernels_hip/experts/experts_many.hip - experts of many generated tokens: tiles of the entries of
 * one expert (gw_experts_sort), in the decode order. A wave has whole strips. It takes the classes
 * of the 32 lanes one after the other and joins them as they end, so that waves share nothing but
 * the rows of x, and weights come without a stop. */
#include "kernels_hip/act8.h"
#include "kernels_hip/experts/experts.h"
#include "kernels_hip/linear/linear_four.h"

#if GW_MMA

enum { HERE = GW_EXPERTS_THREADS / LANES, CLASSES = GW_LINEAR_CLASSES };

/* ---- weights --------------------------------------------------------------------------------- */

/* A wave's ring of records, in the order in which they are multiplied: of each strip class by
 * class. What gw_wide::add reads. */
template <class F> struct many_source {
    enum {
        DEPTH = GW_EXPERTS_DEPTH(F::RECORD),
        PIECES = (F::RECORD + 16 * LANES - 1) / (16 * LANES)
    };
    const uint8_t *strip; /* of the next record */
    size_t apart;         /* to the strip after it */
    int strips, records, u;
    unsigned char *ring;
    int now; /* the slot that is read next */

    __device__ inline void open(unsigned char *slots, const uint8_t *from, size_t to_next, int n,
                                int of_strip) {
        strip = from;
        apart = to_next;
        strips = n;
        records = of_strip;
        u = now = 0;
        ring = slots + gw_wave() * DEPTH * (int)F::RECORD;
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            ask();
        }
    }
    __device__ inline void ask() {
        const uint8_t *from = strip + (size_t)u * F::RECORD;
        unsigned char *to = ring + now * (int)F::RECORD;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int at = 16 * (i * LANES + gw_wave_lane());
            gw_copy_async_if(strips > 0 && at < (int)F::RECORD, to + at, from + at);
        }
        gw_copy_commit();
        now = now + 1 == DEPTH ? 0 : now + 1;
        u += CLASSES;
        if (u >= records) { /* the next class, if there is one, or the next strip */
            u = u % CLASSES + 1;
            const int ends = u == (records < (int)CLASSES ? records : (int)CLASSES);
            u = ends ? 0 : u;
            strip += ends ? apart : 0;
            strips -= ends;
        }
    }
    __device__ inline const unsigned char *take() const {
        gw_copy_wait<DEPTH - 1>();
        gw_sync_wave();
        return ring + now * (int)F::RECORD;
    }
    __device__ inline void done() {
        gw_sync_wave();
        ask();
    }
};

/* ---- rows of x ------------------------------------------------------------------------------- */

/* Of a tile's entries to shared memory, in groups; whole teams, for four lanes have a record. */
template <class K>
__device__ static inline void stage_entries(const gw_experts_params &p, const gw_experts_tile &tile,
                                            unsigned *x, int row_words) {
    enum { AT_ONCE = 2 };
    const int blocks = p.k / GW_ACT_BLOCK, padded = K::records(blocks) * (int)GW_STRIP_BLOCKS;
    const int n = (tile.end - tile.first) * padded;
#pragma unroll 1
    for (int from = 0; from < n; from += AT_ONCE * GW_EXPERTS_THREADS) {
        unsigned act[AT_ONCE][GW_ACT_WORDS];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int at = from + j * GW_EXPERTS_THREADS + (int)threadIdx.x;
            const int t = at / padded, b = at - t * padded;
            const uint8_t *block = 0;
            if (at < n && b < blocks) {
                const int entry = p.list[tile.first + t];
                block = (const uint8_t *)p.x +
                        ((size_t)(p.by_entry ? entry : entry / p.used) * blocks + b) * ACT_BYTES;
            }
#pragma unroll
            for (int w = 0; w < (int)GW_ACT_WORDS; w += 2) {
                act[j][w] = act[j][w + 1] = 0;
                if (block) {
                    load2(act[j] + w, block + 4 * w);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int at = from + j * GW_EXPERTS_THREADS + (int)threadIdx.x;
            const int t = at / padded, b = at - t * padded;
            if (K::SPAN) {
                gw_span_blocks(act[j]);
                act[j][1] =
                    GW_F32_BITS(GW_F32_FROM_BITS(act[j][0]) * (float)gw_first_sum(act[j][1]));
            } else {
                act[j][1] = K::number(act[j][0], act[j][1]);
            }
#pragma unroll
            for (int w = 0; w < (int)GW_ACT_WORDS; w++) {
                if (at < n) {
                    x[t * row_words + K::word_at(b, w)] = act[j][w];
                }
            }
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

template <class K> __device__ static inline void put_floor(float *floor, const float *v) {
#pragma unroll
    for (int k = 0; k < (int)K::RESULTS; k++) {
        floor[k] = v[k];
    }
}
template <class K> __device__ static inline void add_floor(float *v, const float *floor) {
#pragma unroll
    for (int k = 0; k < (int)K::RESULTS; k++) {
        v[k] = floor[k] + v[k];
    }
}

/* A strip times a tile's entries, of which there are `live`: the join of 32 lanes, classes of which
 * a tree of three floors takes in as they end. */
template <class F, class K>
__device__ static inline void strip_sums(many_source<F> &source, const unsigned *x, int row_words,
                                         int records, int live, typename K::held &held,
                                         float *total) {
    float floor[3][K::RESULTS], lanes[K::SUMS], v[K::RESULTS];
#pragma unroll 1
    for (int q = 0; q < CLASSES; q++) {
#pragma unroll
        for (int k = 0; k < (int)K::SUMS; k++) {
            lanes[k] = 0.0f;
        }
#pragma unroll 1
        for (int u = q; u < records; u += CLASSES) {
            K::add(source, 0, x + u * (int)GW_ACT_GROUP_WORDS, row_words, lanes, live, held);
        }
        K::join(v, lanes);
        if (q % 2 == 0) {
            put_floor<K>(floor[0], v);
            continue;
        }
        add_floor<K>(v, floor[0]);
        if (q % 4 == 1) {
            put_floor<K>(floor[1], v);
            continue;
        }
        add_floor<K>(v, floor[1]);
        if (q == 3) {
            put_floor<K>(floor[2], v);
        }
    }
#pragma unroll
    for (int k = 0; k < (int)K::RESULTS; k++) {
        total[k] = floor[2][k] + v[k];
    }
}

/* ---- EXPERTS_GLU ----------------------------------------------------------------------------- */

enum { PITCH = GW_EXPERTS_MANY_PITCH(LANES) };

/* Sums of gate, and of up behind them, in shared memory [entries, PITCH] to y, a team to a block of
 * 32. */
GW_DEVICE void leave_hidden(const gw_experts_params &p, const gw_experts_tile &tile,
                            const float *sums) {
    enum { EACH = HERE * GW_STRIP_ROWS / GW_ACT_BLOCK };
    const int n = (tile.end - tile.first) * EACH, blocks = p.m / GW_ACT_BLOCK;
    const float *of_up = sums + GW_EXPERTS_MANY * PITCH;
#pragma unroll 1
    for (int i = gw_team(); i < n; i += GW_EXPERTS_THREADS / GW_LANES) {
        const int t = i / EACH, b = i % EACH, block = (int)blockIdx.y * EACH + b;
        if (block >= blocks) {
            continue; /* whole teams */
        }
        const int entry = p.list[tile.first + t], r = block * GW_ACT_BLOCK + gw_lane();
        const int at = t * PITCH + b * GW_ACT_BLOCK + gw_lane();
        const size_t of = (size_t)tile.expert * p.m + r, to = (size_t)entry * blocks + block;
        const float g = gw_expert_sum(p, entry, 0, of, sums[at]);
        const float u = p.w[1] ? gw_expert_sum(p, entry, 1, of, of_up[at]) : 0.0f;
        const float v = gw_expert_act(p, g, u);
        if (p.form != GW_FORM_FLOATS) {
            gw_team_encode(p.y, to, p.form, v);
        } else {
            ((float *)p.y)[to * GW_ACT_BLOCK + gw_lane()] = v;
        }
    }
}

/* What a thread has of a wave's strip of gate or up, to shared memory. */
template <class K>
__device__ static inline void put_sums(float *to, const gw_experts_tile &tile, const float *v) {
    const int lane = gw_wave_lane(), n = tile.end - tile.first;
#pragma unroll
    for (int k = 0; k < (int)K::RESULTS; k++) {
        const int t = K::col_of(lane, k);
        if (t < n) {
            to[t * PITCH + gw_wave() * GW_STRIP_ROWS + K::row_of(lane, k)] = v[k];
        }
    }
}

/* Strips of gate and of up, one of each to a wave. */
template <class F, class K>
__device__ static inline void many_glu(const gw_experts_params &p, const gw_experts_tile &tile,
                                       unsigned char *shared) {
    enum { N = K::RESULTS };
    const int records = K::records(p.k / GW_ACT_BLOCK), strips = p.m / GW_STRIP_ROWS;
    const int mine = (int)blockIdx.y * HERE + gw_wave(), there = mine < strips;
    const int row_words = GW_EXPERTS_MANY_WORDS(records), parts = p.w[1] ? 2 : 1;
    const size_t bytes = (size_t)records * F::RECORD;
    const size_t strip = (size_t)tile.expert * strips + (there ? mine : 0);
    unsigned *x = (unsigned *)(shared + HERE * many_source<F>::DEPTH * (int)F::RECORD);
    float v[N] = {}, gate[N] = {};
    typename K::held held = {};
    many_source<F> source;
    source.open(shared, p.w[0] + strip * bytes, (size_t)(p.w[1] - p.w[0]), there ? parts : 0,
                records);
    stage_entries<K>(p, tile, x, row_words);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < (there ? parts : 0); i++) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            gate[k] = v[k];
        }
        strip_sums<F, K>(source, x, row_words, records, tile.end - tile.first, held, v);
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        gate[k] = parts == 2 ? gate[k] : v[k];
    }
    gw_copy_wait<0>();
    __syncthreads(); /* x has been read */
    if (there) {
        put_sums<K>((float *)x, tile, gate);
        put_sums<K>((float *)x + GW_EXPERTS_MANY * PITCH, tile, v);
    }
    __syncthreads();
    leave_hidden(p, tile, (const float *)x);
}

/* ---- EXPERTS_DOWN ---------------------------------------------------------------------------- */

/* p.each neighbouring strips to a wave; their sums to memory. */
template <class F, class K>
__device__ static inline void many_down(const gw_experts_params &p, const gw_experts_tile &tile,
                                        unsigned char *shared) {
    enum { N = K::RESULTS };
    const int records = K::records(p.k / GW_ACT_BLOCK), strips = p.m / GW_STRIP_ROWS;
    const int first = ((int)blockIdx.y * HERE + gw_wave()) * p.each, left = strips - first;
    const int n = left < 0 ? 0 : left < p.each ? left : p.each;
    const int row_words = GW_EXPERTS_MANY_WORDS(records);
    const size_t bytes = (size_t)records * F::RECORD;
    const size_t strip = (size_t)tile.expert * strips + (n > 0 ? first : 0);
    unsigned *x = (unsigned *)(shared + HERE * many_source<F>::DEPTH * (int)F::RECORD);
    const int lane = gw_wave_lane(), entries = tile.end - tile.first;
    typename K::held held = {};
    many_source<F> source;
    source.open(shared, p.w[0] + strip * bytes, bytes, n, records);
    stage_entries<K>(p, tile, x, row_words);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        float v[N];
        strip_sums<F, K>(source, x, row_words, records, entries, held, v);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int t = K::col_of(lane, k);
            if (t < entries) {
                const int entry = p.list[tile.first + t];
                const int r = (first + i) * GW_STRIP_ROWS + K::row_of(lane, k);
                p.sums[0][(size_t)entry * p.m + r] =
                    gw_expert_sum(p, entry, 0, (size_t)tile.expert * p.m + r, v[k]);
            }
        }
    }
    gw_copy_wait<0>();
}

template <class F, class K, int GLU>
__device__ static inline void many_of(const gw_experts_params &p, const gw_experts_tile &at,
                                      unsigned char *shared) {
    if (GLU) {
        many_glu<F, K>(p, at, shared);
    } else {
        many_down<F, K>(p, at, shared);
    }
}
template <class F, int GLU>
__device__ static inline void many(const gw_experts_params &p, unsigned char *shared) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if ((int)blockIdx.x >= *p.n_tiles) {
        return;
    }
    const gw_experts_tile at = p.tiles[blockIdx.x];
    if (at.end - at.first <= 4) {
        many_of<F, gw_few<F>, GLU>(p, at, shared);
    } else if (at.end - at.first <= (int)GW_MMA_N) {
        many_of<F, gw_wide<F, GW_MMA_N>, GLU>(p, at, shared);
    } else {
        many_of<F, gw_wide<F, GW_EXPERTS_MANY>, GLU>(p, at, shared);
    }
}
#define MANY(glu, ...)                                                                             \
    GW_SHARED_DYNAMIC(unsigned char, shared);                                                      \
    many<format<__VA_ARGS__>, glu>(p, shared)
#define KERNELS(NAME, name, ...)                                                                   \
    GW_KERNEL(gw_experts_many_glu_##name, struct gw_experts_params, GW_EXPERTS_THREADS, 2) {       \
        MANY(1, __VA_ARGS__);                                                                      \
    }                                                                                              \
    GW_KERNEL(gw_experts_many_down_##name, struct gw_experts_params, GW_EXPERTS_THREADS, 2) {      \
        MANY(0, __VA_ARGS__);                                                                      \
    }
GW_STRIP_KERNELS(KERNELS)
#endif
