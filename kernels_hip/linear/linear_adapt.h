/* kernels_hip/linear/linear_adapt.h - adapters of the one row of a product, by the waves that join
 * (linear_async.h): A x while the others multiply, B of that added to each result.
 *
 * A unit is what a class of lanes has of a few rows of A. Blocks make a unit each, as far as there
 * are some, and write it to memory, each number with a word that says it is there; then each awaits
 * all of them, because every result needs all of A x. That is no cycle: all blocks run at once, and
 * units wait for nothing. Weights, of A and of B, are copied to shared memory before x is there.
 */
#ifndef GW_KERNELS_HIP_LINEAR_ADAPT_H
#define GW_KERNELS_HIP_LINEAR_ADAPT_H

#include "kernels_hip/linear/linear_norm.h"
#include "kernels_hip/linear/linear_tiles.h"

#if GW_COPIES

enum {
    GW_ADAPT_THREADS = GW_LINEAR_JOINERS(1) * GW_LANES,
    GW_ADAPT_AT_ONCE = 4,   /* records of a thread in flight, beyond those in shared memory     */
    GW_ADAPT_RECORD = 8192, /* bytes of a record of F32, a kilobyte for each class             */
    GW_ADAPT_X = 7          /* pieces of x of a thread in flight                               */
};

struct __align__(16) gw_adapt_four {
    float v[4];
};

GW_DEVICE void gw_adapt_meet(void) { gw_sync_some<5, GW_ADAPT_THREADS>(); }

struct gw_adapt {
    const gw_linear_lora &l;
    float *x, *ax;          /* of x the class's columns; A x [used, l.n] */
    gw_adapt_four *a;       /* [l.held records, l.each rows, lanes of the class] of A  */
    float *b;               /* of B [l.rounds, columns of two tiles, a row with padding] */
    int id, records, first; /* first: the row's first adapter */
    float scale;

    /* there: of products with adapters */
    __device__ inline gw_adapt(const gw_linear_params &p, float *shared, int there)
        : l(p.lora), x(shared), id((int)threadIdx.x - (int)GW_LINEAR_THREADS) {
        records = (l.k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
        ax = x + records * 16;
        a = (gw_adapt_four *)(ax + l.used * l.n);
        b = (float *)(a + l.held * l.each * 4);
        first = there ? place(0) : 0;
        scale = there ? l.route[l.used] : 0.0f;
    }
    __device__ inline int place(int u) const { return (int)l.route[u]; }
    /* Of units of a place, of which the classes of the same rows are neighbours. */
    __device__ inline int place_of(int unit) const { return unit / (l.n / l.each * 8); }
    __device__ inline int row_of(int unit) const { return unit / 8 % (l.n / l.each) * l.each; }
    /* The first record of a unit, its first row and lane; 0: its place is empty. */
    __device__ inline const uint8_t *part_of_a(int unit) const {
        const int at = place(place_of(unit)), row = at * l.rows + l.first + row_of(unit);
        return at > 0 ? l.a + (size_t)(row / GW_STRIP_ROWS) * records * GW_ADAPT_RECORD +
                            1024 * (unit % 8) + 64 * (row % GW_STRIP_ROWS)
                      : 0;
    }
    /* Weights need not wait for x. */
    __device__ inline void ask(int unit) const {
        const uint8_t *w = unit < l.units ? part_of_a(unit) : 0;
        const int wide = 4 * l.each; /* of a record */
#pragma unroll 1
        for (int i = id; w && i < l.held * wide; i += (int)GW_ADAPT_THREADS) {
            gw_copy_async(a + i, w + (size_t)(i / wide) * GW_ADAPT_RECORD + 16 * (i % wide));
        }
        gw_copy_commit();
        for (int r = l.held + id; w && r < records; r += (int)GW_ADAPT_THREADS) {
            gw_prefetch_bytes(w + (size_t)r * GW_ADAPT_RECORD, 16 * wide);
        }
    }
    /* The columns of x of class q, four of every 32; with a norm once its sums have come. */
    __device__ inline void stage(const gw_linear_params &p, int q) const {
        const int n = l.k / GW_ACT_BLOCK;
        gw_norm_sums sums;
        float factor = 1.0f;
        sums.ask(p.squares, l.weight ? n : 0);
#pragma unroll 1
        for (int base = 0; base < 4 * records; base += GW_ADAPT_X * (int)GW_ADAPT_THREADS) {
            gw_adapt_four v[GW_ADAPT_X];
#pragma unroll
            for (int i = 0; i < (int)GW_ADAPT_X; i++) {
                const int j = base + i * (int)GW_ADAPT_THREADS + id;
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    v[i].v[t] = 0.0f;
                }
                if (j < n) {
                    v[i] = *(const gw_adapt_four *)(l.x + j * GW_ACT_BLOCK + 4 * q);
                }
                if (j < n && l.weight) {
                    const gw_adapt_four w =
                        *(const gw_adapt_four *)(l.weight + j * GW_ACT_BLOCK + 4 * q);
#pragma unroll
                    for (int t = 0; t < 4; t++) {
                        v[i].v[t] = v[i].v[t] * w.v[t];
                    }
                }
            }
            if (l.weight && base == 0) { /* whole teams */
                factor = sums.factor(n * GW_ACT_BLOCK, p.eps);
            }
#pragma unroll
            for (int i = 0; i < (int)GW_ADAPT_X; i++) {
                const int j = base + i * (int)GW_ADAPT_THREADS + id;
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    v[i].v[t] = l.weight ? v[i].v[t] * factor : v[i].v[t];
                }
                if (j < 4 * records) {
                    *(gw_adapt_four *)(x + 4 * j) = v[i];
                }
            }
        }
        gw_adapt_meet();
    }
    __device__ inline float add(const gw_adapt_four &w, int record, float v) const {
        const float *from = x + 16 * record + id % 4;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v = GW_FMA(w.v[e], from[4 * e], v);
        }
        return v;
    }
    /* The thread's chain. */
    __device__ inline float sum(const uint8_t *w) const {
        float v = 0.0f;
#pragma unroll 8
        for (int r = 0; r < l.held; r++) {
            v = add(a[r * 4 * l.each + id], r, v);
        }
#pragma unroll 1
        for (int base = l.held; base < records; base += (int)GW_ADAPT_AT_ONCE) {
            gw_adapt_four more[GW_ADAPT_AT_ONCE];
#pragma unroll
            for (int u = 0; u < (int)GW_ADAPT_AT_ONCE; u++) {
                if (base + u < records) {
                    more[u] = *(const gw_adapt_four *)(w + (size_t)(base + u) * GW_ADAPT_RECORD);
                }
            }
#pragma unroll
            for (int u = 0; u < (int)GW_ADAPT_AT_ONCE; u++) {
                if (base + u < records) {
                    v = add(more[u], base + u, v);
                }
            }
        }
        return v;
    }
    /* What is in flight. */
    __device__ inline void make(const gw_linear_params &p, int unit) const {
        const uint8_t *w = part_of_a(unit);
        gw_copy_wait<0>();
        if (w) {
            stage(p, unit % 8);
            float v = id < 4 * l.each ? sum(w + 16 * id) : 0.0f;
            v = v + gw_shuffle_xor(v, 1);
            v = v + gw_shuffle_xor(v, 2);
            if (id % 4 == 0 && id < 4 * l.each) {
                const size_t i = (size_t)place_of(unit) * l.n + row_of(unit) + id / 4;
                gw_card_store_pair(l.sums + 2 * (i * 8 + unit % 8), GW_F32_BITS(v), 1);
            }
            gw_adapt_meet(); /* x is free */
        }
    }
    /* Value i of A x, when all of its classes have come. */
    __device__ inline float value(int i) const {
        gw_two_pairs two[4];
        float z[8];
        unsigned there;
        do {
            there = 1;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                two[c] = gw_card_load(l.sums + 2 * ((size_t)i * 8 + 2 * c));
            }
#pragma unroll
            for (int c = 0; c < 4; c++) {
                there &= two[c].word[1] & two[c].word[3];
            }
        } while (there == 0);
#pragma unroll
        for (int c = 0; c < 8; c++) {
            z[c] = GW_F32_FROM_BITS(two[c / 2].word[c % 2 * 2]);
        }
        return gw_join_classes<8>(z, 1);
    }
    /* All of A x to shared memory, and what else is in flight. */
    __device__ inline void all(void) const {
        const int n = l.units > 0 ? l.used * l.n : 0;
        for (int i = id; i < n; i += (int)GW_ADAPT_THREADS) {
            ax[i] = place(i / l.n) > 0 ? value(i) : 0.0f;
        }
        gw_copy_wait<0>();
        gw_adapt_meet();
    }
    /* The last block that has read A x clears it; a wave, after its results, for which others
     * wait. */
    __device__ inline void clear(void) const {
        const int n = l.units > 0 ? l.used * l.n : 0;
        int last = 0;
        if (gw_lane() == 0 && n > 0) {
            last = atomicInc(l.count, gridDim.x - 1) == gridDim.x - 1;
        }
        if (gw_shuffle(last, 0)) {
            for (int i = gw_lane(); i < n * 8; i += GW_LANES) {
                gw_card_store_pair(l.sums + 2 * (size_t)i, 0, 0);
            }
        }
    }
    /* The first unit is in flight, unless blocks run one after the other. */
    __device__ inline void run(const gw_linear_params &p) const {
        const int from = l.alone ? 0 : (int)blockIdx.x, step = l.alone ? 1 : (int)gridDim.x;
        for (int unit = from; unit < l.units; unit += step) {
            if (l.alone || unit != from) {
                ask(unit);
            }
            make(p, unit);
        }
    }
};

/* What adapters add to a result. Ranks of 8 and 16. */
struct gw_adapt_row {
    const float *b; /* of place 0; 0: they add +0 */
    const float *w; /* of the first adapter, in shared memory or in global */
    int part;

    template <class Walk>
    __device__ inline void find(const gw_linear_params &p, const gw_adapt &a, const Walk &at,
                                int row) {
        const int k = at.part(p), r = (at.tile() - p.part[k].tile) * GW_STRIP_ROWS + row;
        b = 0;
        part = a.l.part[k];
        if (part >= 0 && r < p.part[k].rows) {
            b = a.l.b + (size_t)(a.l.row[k] + r) * a.l.wide + part;
            part -= a.l.first;
        }
        w = b + (size_t)a.first * a.l.m * a.l.wide;
    }
    /* Where tile number `round` of the block has it in shared memory. */
    __device__ static inline float *held(const gw_adapt &a, int round) {
        return a.b + (size_t)(round * GW_LANES + gw_lane()) * GW_ADAPT_ROW(a.l.rank);
    }
    template <class Walk>
    __device__ inline void open(const gw_linear_params &p, const gw_adapt &a, const Walk &at,
                                int row, int round) {
        find(p, a, at, row);
        if (round < a.l.rounds) {
            w = held(a, round);
        }
    }
    __device__ static inline float times(const gw_adapt &a, const float *w, const float *x) {
        float z[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            z[i] = 0.0f;
            if (4 * i < a.l.rank) {
                const gw_adapt_four y = *(const gw_adapt_four *)(x + 4 * i);
                const gw_adapt_four f = *(const gw_adapt_four *)(w + 4 * i);
                float v[4];
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    v[t] = GW_FMA(f.v[t], y.v[t], 0.0f);
                }
                z[i] = (v[0] + v[1]) + (v[2] + v[3]);
            }
        }
        return (z[0] + z[1]) + (z[2] + z[3]);
    }
    __device__ inline float sum(const gw_adapt &a) const {
        float acc = 0.0f;
        if (b && a.first > 0) {
            acc = GW_FMA(a.scale, times(a, w, a.ax + part), acc);
        }
        for (int u = 1; b && u < a.l.used; u++) {
            const int place = a.place(u);
            if (place > 0) {
                acc = GW_FMA(
                    a.l.route[a.l.used + u],
                    times(a, b + (size_t)place * a.l.m * a.l.wide, a.ax + u * a.l.n + part), acc);
            }
        }
        return acc;
    }
};

/* The rows of B of a block's results to shared memory; a wave. */
template <class Walk>
__device__ static inline void gw_adapt_ask_rows(const gw_linear_params &p, const gw_adapt &a,
                                                Walk at, int items, int row) {
    int round = 0;
#pragma unroll 1
    for (; a.first > 0 && at.item < items && round < a.l.rounds; at.next(), round++) {
        gw_adapt_row r;
        r.find(p, a, at, row);
        float *to = gw_adapt_row::held(a, round);
#pragma unroll 1
        for (int i = 0; r.b && i < a.l.rank; i += 4) {
            gw_copy_async(to + i, r.w + i);
        }
    }
    gw_copy_commit();
}

#endif

#endif
