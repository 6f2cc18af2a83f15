/* kernels_hip/linear_stream.h - what the linear kernels share: the stream of weights through a
 * block, the walk over tiles, activations in shared memory and what happens to a finished tile.
 *
 * A block stays for many tiles and its waves never stop reading: a wave owns a ring of slots, each
 * one record (or a class of it), and refills a slot as soon as it is read. The first fill is on its
 * way before the wait for the kernels in front.
 */
#ifndef GW_KERNELS_HIP_LINEAR_STREAM_H
#define GW_KERNELS_HIP_LINEAR_STREAM_H

#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/linear_norm.h"
#include "kernels_hip/linear_params.h"
#include "kernels_hip/strip.h"

enum {
    WAVES = GW_LINEAR_THREADS / LANES,
    SETS = 64 / LANES, /* rows of a thread: one, or lane / 4 and lane / 4 + 8 */
};

GW_DEVICE int gw_wave(void) { return (int)threadIdx.x / LANES; }

/* ---- the ring of a wave ---------------------------------------------------------------------- */

#if GW_COPIES
/* Copies into shared memory without registers between; the host says how many slots fit. The slot
 * that has been read is the next one to be filled. */
template <int BYTES> struct gw_ring {
    enum { STEP = 1, DEPTH = GW_LINEAR_DEPTH(BYTES) };
    gw_shared_at first, end, now; /* slots of the wave; the one whose turn it is */
    int depth;

    /* Returns what is behind the slots of all waves. */
    __device__ inline unsigned char *open(unsigned char *shared, int slots_of_wave) {
        depth = slots_of_wave;
        first = gw_shared_address(gw_shared_place(shared + gw_wave() * depth * BYTES));
        end = first + depth * BYTES;
        now = first;
        return shared + WAVES * depth * BYTES;
    }
    __device__ inline int slots_ahead() const { return depth; }
    /* from: of this lane, the first 16 bytes of a wave's lying side by side */
    template <int PART, int JUMP>
    __device__ inline void put(int, const unsigned char *from, int parts) {
        const int lane = gw_wave_lane();
        const gw_shared_at to = now + 16 * lane;
#pragma unroll
        for (int part = 0; part < BYTES / PART; part++) {
#pragma unroll
            for (int at = 0; at < PART; at += 16 * LANES) {
                const int mine = at + 16 * LANES <= PART || 16 * lane < PART - at;
                gw_copy_async_if(part < parts && mine, gw_shared_pointer(to + part * PART + at),
                                 from + part * JUMP + at);
            }
        }
        gw_copy_commit();
        now = now + BYTES == end ? first : now + BYTES;
    }
    __device__ inline const unsigned char *get(int) {
        if (depth == DEPTH) { /* the oldest of them has to be there */
            gw_copy_wait<DEPTH - 1>();
        } else if ((int)DEPTH > (int)GW_LINEAR_SOME && depth == GW_LINEAR_SOME) {
            gw_copy_wait<GW_LINEAR_SOME - 1>();
        } else {
            gw_copy_wait<GW_LINEAR_LESS - 1>();
        }
        gw_sync_wave();
        return gw_shared_pointer(now);
    }
    __device__ inline void done() { gw_sync_wave(); }
};
#else
/* Loads wait in registers, as deep as the ring; a record passes one slot of shared memory. */
template <int BYTES> struct gw_ring {
    enum {
        DEPTH = GW_LINEAR_DEPTH(BYTES) < 4 ? GW_LINEAR_DEPTH(BYTES) : 4,
        STEP = DEPTH,
        PIECES = (BYTES + 16 * LANES - 1) / (16 * LANES)
    };
    unsigned char *slot;
    gw_16b held[DEPTH][PIECES];

    __device__ inline unsigned char *open(unsigned char *shared, int) {
        slot = shared + gw_wave() * BYTES;
        return shared + WAVES * BYTES;
    }
    __device__ static inline int slots_ahead() { return DEPTH; }
    template <int PART, int JUMP>
    __device__ inline void put(int d, const unsigned char *from, int parts) {
        const int lane = gw_wave_lane();
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int at = 16 * (i * LANES + lane), part = at / PART;
            if (at < BYTES && part < parts) {
                held[d][i] = gw_stream(from + part * (JUMP - PART) + 16 * i * LANES);
            }
        }
    }
    __device__ inline const unsigned char *get(int d) {
        const int lane = gw_wave_lane();
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            if (16 * (i * LANES + lane) < BYTES) {
                *(gw_16b *)(slot + 16 * (i * LANES + lane)) = held[d][i];
            }
        }
        gw_sync_wave();
        return slot;
    }
    __device__ inline void done() { gw_sync_wave(); }
};
#endif

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Where a group of waves is. A LINEAR item is a tile for each group, with a norm behind it two
 * tiles; a GLU item is two tiles of gate and two of up: so 32 columns are there together. */
template <int GROUPS, int GLU> struct gw_walk {
    enum { TILES = GLU ? 4 : 2 }; /* of an item, but for those of LINEAR for one group alone */
    int item, round, group, rounds;

    __device__ static inline int pairs(const gw_linear_params &p) {
        return GLU || GROUPS > 1 || p.behind != 0;
    }
    __device__ inline void open(const gw_linear_params &p, int g) {
        item = (int)blockIdx.x;
        round = 0;
        group = g;
        rounds = pairs(p) ? TILES / GROUPS : 1;
    }
    __device__ inline int ends_item(void) const {
        return (!GLU && GROUPS > 1) || round + 1 == rounds;
    }
    __device__ inline void next(void) {
        round++;
        if ((!GLU && GROUPS > 1) || round == rounds) {
            round = 0;
            item += (int)gridDim.x;
        }
    }
    /* Which of the tiles of an item: of GLU gate, gate, up, up. */
    __device__ inline int place(void) const { return round + rounds * group; }
    __device__ inline int tile(void) const {
        return GLU          ? 2 * item + (place() & 1)
               : GROUPS > 1 ? item * GROUPS + group
                            : item * rounds + round;
    }
    __device__ static inline int items(const gw_linear_params &p) {
        return pairs(p) ? (p.tiles + 1) / 2 : p.tiles;
    }
    __device__ inline int part(const gw_linear_params &p) const {
        if (GLU) {
            return place() / 2;
        }
        const int t = tile();
        return p.parts > 2 && t >= p.part[2].tile ? 2 : p.parts > 1 && t >= p.part[1].tile ? 1 : 0;
    }
    /* The strip of this tile; beyond the end the last one, whose results nobody wants. */
    __device__ inline const unsigned char *strip(const gw_linear_params &p, size_t bytes) const {
        const int k = part(p), last = (p.part[k].rows + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS - 1;
        const int s = tile() - p.part[k].tile;
        return p.part[k].w + (size_t)(s < last ? s : last) * bytes;
    }
};

struct gw_nothing {};

/* ---- what becomes of a sum ------------------------------------------------------------------- */

/* bias and residual of one result, asked for when its tile begins. */
struct gw_extra {
    float bias, residual;
};

template <int GROUPS, int GLU>
__device__ static inline gw_extra gw_ask(const gw_linear_params &p, const gw_walk<GROUPS, GLU> &at,
                                         int row, int n, int live) {
    gw_extra e = {0.0f, 0.0f};
    if (!GLU && at.tile() < p.tiles) {
        const gw_linear_part &w = p.part[at.part(p)];
        const int r = (at.tile() - w.tile) * GW_STRIP_ROWS + row;
        if (r < w.rows && n < live) {
            if (w.bias) {
                e.bias = w.bias[r];
            }
            if (p.residual) {
                e.residual =
                    p.residual[(size_t)((int)blockIdx.y * p.width + n) * p.stride + w.column + r];
            }
        }
    }
    return e;
}

/* Where the result of matrix row `row` of the tile and row n of x goes, looked up before it is
 * there: who hands it out is waited for. y: 0 where nobody wants it, and for GLU; column: among the
 * item's, of row 0 of x. */
template <int GROUPS, int GLU> struct gw_outlet {
    float *y, *column;
    int n, biased;

    __device__ inline void open(const gw_linear_params &p, const gw_walk<GROUPS, GLU> &at,
                                float *columns, int row, int row_of_x, int live) {
        y = 0;
        biased = 0;
        n = GLU && row_of_x >= live ? -1 : row_of_x;
        column = columns + at.place() * GW_STRIP_ROWS + row;
        if (!GLU && at.tile() < p.tiles) {
            const gw_linear_part &w = p.part[at.part(p)];
            const int r = (at.tile() - w.tile) * GW_STRIP_ROWS + row;
            const size_t begins = (size_t)((int)blockIdx.y * p.width + n) * p.stride;
            biased = w.bias != 0;
            y = r < w.rows && n < live ? (float *)p.y + begins + w.column + r : 0;
        }
    }
    /* Result v to y, or to the GLU's columns; in front of a norm to both. */
    __device__ inline void put(const gw_linear_params &p, float v, const gw_extra &e) const {
        if (GLU) {
            if (n >= 0) {
                column[n * 2 * GW_LINEAR_ITEM] = v;
            }
        } else if (y) {
            v = biased ? v + e.bias : v;
            v = p.residual ? v + e.residual : v;
            *y = v;
            if (p.behind) {
                column[n * GW_LINEAR_ITEM] = v;
            }
        }
    }
};

/* The 32 columns of GLU item `item`, a team per row of x: this one is `team` of `teams`. */
GW_DEVICE void gw_glu_columns(const gw_linear_params &p, const float *columns, int item, int live,
                              int team, int teams) {
    const int lane = gw_lane(), c = item * GW_LINEAR_ITEM + lane;
    for (int n = team; n < live; n += teams) {
        const size_t y = (size_t)((int)blockIdx.y * p.width + n);
        const float v = gw_silu(columns[n * 64 + lane]) * columns[n * 64 + 32 + lane];
        if (p.act8) {
            gw_team_encode((gw_act8 *)p.y + y * (p.stride / GW_ACT_BLOCK) + item, v);
        } else if (c < p.part[0].rows) {
            ((float *)p.y)[y * p.stride + c] = v;
        }
    }
}

/* What an item leaves when all of its columns are there, by team `team` of `teams`. */
template <class K, int GLU>
__device__ static inline void gw_leave(const gw_linear_params &p, const float *columns, int item,
                                       int live, float weight, int team, int teams) {
    if (GLU) {
        gw_glu_columns(p, columns, item, live, team, teams);
    } else {
        gw_norm_columns<K::X_ROWS == 1>(p, columns, item, live, weight, team, teams);
    }
}

/* Joins what 8 classes have, `apart` floats from one another: lanes 16, 8 and 4 apart. ONCE 0: 16
 * is done, and 4 classes are left. */
template <int ONCE> __device__ static inline float gw_join_8(const float *v, int apart) {
    if (!ONCE) {
        return (v[0] + v[2 * apart]) + (v[apart] + v[3 * apart]);
    }
    return ((v[0] + v[4 * apart]) + (v[2 * apart] + v[6 * apart])) +
           ((v[apart] + v[5 * apart]) + (v[3 * apart] + v[7 * apart]));
}

/* ---- sums of a tile that other waves join ---------------------------------------------------- */

#if GW_COPIES
/* Gates of a group's tiles, whose waves' sums are there, and have been read; and of an item's
 * columns, where joining goes in turns: all are there, and have been read. Every thread arrives for
 * itself. JOINERS: threads of a group that read. */
template <class K, int GLU> struct gw_gates {
    enum {
        PLACES = GW_LINEAR_PLACES,
        GROUPS = WAVES / K::CLASSES,
        JOINERS = GW_LINEAR_APART(K::SUMS, 1) ? (int)LANES : (int)K::FOLDERS
    };
    gw_gate full[GROUPS][PLACES], free[GROUPS][PLACES], columns_full, columns_free;

    __device__ inline void make() {
        for (int i = 0; i < GROUPS * PLACES; i++) {
            gw_gate_make(&full[i / PLACES][i % PLACES], K::CLASSES * LANES);
            gw_gate_make(&free[i / PLACES][i % PLACES], JOINERS);
        }
        gw_gate_make(&columns_full, gw_walk<GROUPS, GLU>::TILES * JOINERS);
        gw_gate_make(&columns_free, GROUPS * JOINERS);
    }
};

/* What the waves behind those that multiply do, one for each group: joins what belongs to a tile
 * and hands it out. The next launch waits for them, a wave alone takes five cycles for each
 * instruction, so all that can be is made before the sums are there. */
template <class K, int GLU>
__device__ static inline void gw_fold_tiles(const gw_linear_params &p, gw_gates<K, GLU> &gates,
                                            const float *joined, float *columns, int live) {
    enum {
        GROUPS = WAVES / K::CLASSES,
        PLACES = gw_gates<K, GLU>::PLACES,
        TURNS = K::FOLDERS / LANES
    };
    static_assert(GROUPS * LANES == GW_LINEAR_FOLDS, "two groups");
    const int group = gw_wave() - WAVES, lane = gw_wave_lane(), turn = lane % 4;
    const int row = K::out_row(lane + turn * LANES); /* known to four lanes: one for each turn */
    const int items = gw_walk<GROUPS, GLU>::items(p);
    gw_walk<GROUPS, GLU> at;
    at.open(p, group);
    for (int place = 0, round = 0; at.item < items; at.next()) {
        const float *values = joined + (place * GROUPS + group) * K::CLASSES * K::VALUES;
        const float weight = gw_ask_behind<GLU>(p, at.item);
        gw_extra extra[K::OUTS];
        gw_outlet<GROUPS, GLU> to[K::OUTS];
        const int mine = turn < TURNS ? live : 0;
#pragma unroll
        for (int o = 0; o < K::OUTS; o++) {
            extra[o] = gw_ask(p, at, row, K::out_col(lane, o), mine);
            to[o].open(p, at, columns, row, K::out_col(lane, o), mine);
        }
        gw_gate_wait(&gates.full[group][place], round & 1);
        float v[TURNS][K::OUTS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
#pragma unroll
            for (int o = 0; o < K::OUTS; o++) {
                v[t][o] = K::template join<1>(values, lane + t * LANES, o);
            }
        }
        gw_gate_arrive(&gates.free[group][place]);
#pragma unroll
        for (int o = 0; o < K::OUTS; o++) {
            float result = v[0][o];
#pragma unroll
            for (int t = 1; t < TURNS; t++) {
                result = turn == t ? v[t][o] : result;
            }
            to[o].put(p, result, extra[o]);
        }
        if ((GLU || p.behind) && at.ends_item()) {
            gw_sync_some<2, GW_LINEAR_FOLDS>();
            gw_leave<K, GLU>(p, columns, at.item, live, weight, group, GROUPS);
            gw_sync_some<2, GW_LINEAR_FOLDS>();
        }
        place = place + 1 == PLACES ? 0 : place + 1;
        round += place == 0;
    }
}
#endif

/* For the launch behind this one; threads 0 and 1 do it. */
GW_DEVICE void gw_ask_ahead(const gw_linear_params &p) {
    if ((int)threadIdx.x < 2 && (int)blockIdx.x < p.ahead_blocks) {
        const uint8_t *from = threadIdx.x == 0 ? p.ahead[0] : p.ahead[1];
        gw_prefetch_bytes(from + (size_t)blockIdx.x * (size_t)p.ahead_step, p.ahead_bytes);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* K describes one kernel:
 *   CLASSES, RECORD          waves of a tile, bytes of a slot
 *   strip(terms)             bytes of a strip
 *   first(q)                 where in it the first slot of wave q of a tile begins
 *   STEP, PART, JUMP         bytes from slot to slot; a slot is RECORD / PART pieces, JUMP apart
 *   parts(terms, q)          pieces of wave q in a strip; the last slot may have one less
 *   DIRECT, stage(p, x, from, n, factors, asked, ready)  x is read where it is, or its rows go to
 *                            shared memory first (linear_norm.h)
 *   X_STEP, first_x(q)       words of a row of x that a slot of all waves takes, and where in them
 *                            this thread's begin
 *   ACT8, X_ROWS             the format of x; most rows of it
 *   number(scale, sums)      what the second word of an act8 block becomes in shared memory
 *   SUMS, held, add(...)     a thread's chains, what else it keeps from slot to slot, zeros at
 *                            first, and a slot's terms added, for x from here on; refill() as soon
 *                            as the slot is read
 *   VALUES                   SUMS of all threads of a wave
 *   FOLDERS, OUTS, join(values, fold, o), speaks(fold), out_row(fold), out_col(fold, o)
 *                            threads that join what classes q and q + CLASSES / 2 have together,
 *                            results of each, and where they belong; four neighbours have the same,
 *                            of which the first speaks
 */
template <class K, int GLU> __device__ static inline void gw_product(const gw_linear_params &p) {
    enum {
        GROUPS = WAVES / K::CLASSES,
        HALF = K::CLASSES / 2,
        FEW = GW_LINEAR_FEW(K::SUMS),
        APART = GW_LINEAR_APART(K::SUMS, GW_COPIES)
    };
    typedef gw_ring<K::RECORD> ring_of;
    GW_SHARED_DYNAMIC(unsigned char, shared);
    ring_of ring;
    unsigned *x = (unsigned *)ring.open(shared, p.depth);
    unsigned *behind_x = x + (K::DIRECT ? 0 : p.width * p.row_words);
    float *many = (float *)behind_x + (GW_COPIES ? (int)GW_LINEAR_GATES / 4 : 0);
    float *columns = many + (int)GW_LINEAR_FACTORS / 4;
    float *joined = columns + GW_LINEAR_COLUMNS(p.width, GLU, p.behind != 0);
    const int wave = gw_wave(), group = wave / K::CLASSES, q = wave % K::CLASSES;
    const int first = (int)blockIdx.y * p.width;
    const int there = p.x_rows - first < p.width ? p.x_rows - first : p.width;
#if GW_COPIES
    gw_gates<K, GLU> &gates = *(gw_gates<K, GLU> *)behind_x;
    static_assert(sizeof gates <= GW_LINEAR_GATES, "what the host leaves for them");
    if (APART && wave >= WAVES) {
        if (threadIdx.x == GW_LINEAR_THREADS) {
            gates.make();
        }
        gw_sync_some<3, GW_LINEAR_BLOCK(K::SUMS, GW_COPIES)>(); /* gates */
        const int left = gw_live(p.step) - first, live = left < there ? left : there;
        gw_grid_launch_dependents();
        gw_grid_dependency_wait();
        if (live > 0) {
            gw_fold_tiles<K, GLU>(p, gates, joined, columns, live);
        }
        return;
    }
#endif
    enum { PARTS = K::RECORD / K::PART };
    const int parts = K::parts(p.terms, q); /* of this wave, in a strip */
    const size_t strip_bytes = K::strip(p.terms);
    const int items = gw_walk<GROUPS, GLU>::items(p);
    const size_t begins = K::first(q) + 16 * (size_t)gw_wave_lane();
    gw_walk<GROUPS, GLU> at, ahead;
    at.open(p, group);
    ahead.open(p, group);
    int in_strip = parts;
    const unsigned char *from = ahead.strip(p, strip_bytes) + begins;
    auto ask = [&](int d) {
        ring.template put<K::PART, K::JUMP>(d, from, ahead.item < items ? in_strip : 0);
        from += K::STEP;
        in_strip -= PARTS;
        if (in_strip <= 0) {
            in_strip = parts;
            ahead.next();
            if (ahead.item < items) {
                from = ahead.strip(p, strip_bytes) + begins;
            }
        }
    };
    if (ring_of::STEP == 1) {
#pragma unroll 1
        for (int d = 0; d < p.early; d++) {
            if (K::X_ROWS == 1 && p.paced && d > 0) {
                gw_copy_wait<0>();
            }
            ask(0);
        }
    } else {
#pragma unroll
        for (int d = 0; d < ring_of::STEP; d++) {
            ask(d);
        }
    }
    auto rest = [&]() { /* behind x, which would have to wait for it */
                        if (ring_of::STEP == 1) {
#pragma unroll 1
                            for (int d = p.early; d < ring.slots_ahead(); d++) {
                                ask(0);
                            }
                        }
    };
    const int count = gw_live(p.step);
    gw_grid_launch_dependents();
#if GW_COPIES
    if (APART) {
        gw_sync_some<3, GW_LINEAR_BLOCK(K::SUMS, GW_COPIES)>();
    } else if (threadIdx.x == 0) {
        gates.make();
    }
#endif
    gw_grid_dependency_wait();
    if (K::DIRECT) {
        rest();
    } else { /* without waiting for how many are alive */
        gw_factors<K::X_ROWS> factors;
        factors.ask(p, K::ACT8 ? p.terms : p.terms / GW_ACT_BLOCK, first, there, many);
        K::stage(p, x, p.x + (size_t)first * (size_t)p.row_bytes, there, factors, rest,
                 [&]() { factors.get(p, there); });
    }
    const int left = count - first, live = left < there ? left : there;
    if (live <= 0) {
        return; /* the whole block */
    }
    const unsigned *rows =
        K::DIRECT ? (const unsigned *)(p.x + (size_t)first * (size_t)p.row_bytes) : x;
    rows += K::first_x(q);
    const unsigned *mine = rows; /* of x, for the slot that is next */
    gw_extra extra[K::OUTS];
    float weight = 0.0f;
    typename K::held held = {};
    float sums[K::SUMS];
    enum { THREADS = K::CLASSES * LANES };
    int fold = (int)threadIdx.x - group * THREADS; /* below FOLDERS: one of those that join */
    const int in_turns = GW_COPIES && p.places > 0;
    auto begin = [&]() {
        mine = rows;
#pragma unroll
        for (int i = 0; i < K::SUMS; i++) {
            sums[i] = 0.0f;
        }
        if (!APART && fold < K::FOLDERS) {
#pragma unroll
            for (int o = 0; o < K::OUTS; o++) {
                extra[o] = gw_ask(p, at, K::out_row(fold), K::out_col(fold, o), live);
            }
        }
        if (!APART && (!in_turns || fold < K::FOLDERS)) {
            weight = gw_ask_behind<GLU>(p, at.item);
        }
    };
    int place = 0, round = 0; /* of the place */
    int done = 0;             /* items */
    (void)round, (void)done;
    auto gated = [&]() { /* all classes side by side */
#if GW_COPIES
                         /* Waves take turns at joining, for it takes time: so columns have gates
                          * of their own, between who writes an item's and who reads them, and
                          * between those and who writes the next one's. */
                         enum { JOINERS = gw_gates<K, GLU>::JOINERS, TEAMS = JOINERS / GW_LANES };
                         const int have_columns = GLU || p.behind != 0;
                         float *values = joined + (place * GROUPS + group) * K::CLASSES * K::VALUES;
                         if (round > 0) {
                             gw_gate_wait(&gates.free[group][place], (round - 1) & 1);
                         }
#pragma unroll
                         for (int i = 0; i < K::SUMS; i++) {
                             values[q * K::VALUES + i * LANES + gw_wave_lane()] = sums[i];
                         }
                         gw_gate_arrive(&gates.full[group][place]);
                         if (!APART && fold < K::FOLDERS) {
                             float v[K::OUTS];
                             gw_outlet<GROUPS, GLU> to[K::OUTS];
#pragma unroll
                             for (int o = 0; o < K::OUTS; o++) {
                                 to[o].open(p, at, columns, K::out_row(fold), K::out_col(fold, o),
                                            K::speaks(fold) ? live : 0);
                             }
                             gw_gate_wait(&gates.full[group][place], round & 1);
#pragma unroll
                             for (int o = 0; o < K::OUTS; o++) {
                                 v[o] = K::template join<1>(values, fold, o);
                             }
                             gw_gate_arrive(&gates.free[group][place]);
                             if (have_columns && done > 0) {
                                 gw_gate_wait(&gates.columns_free, (done - 1) & 1);
                             }
#pragma unroll
                             for (int o = 0; o < K::OUTS; o++) {
                                 to[o].put(p, v[o], extra[o]);
                             }
                             if (have_columns) {
                                 gw_gate_arrive(&gates.columns_full);
                             }
                             if (have_columns && at.ends_item()) {
                                 gw_gate_wait(&gates.columns_full, done & 1);
                                 gw_leave<K, GLU>(p, columns, at.item, live, weight,
                                                  group * TEAMS + fold / GW_LANES, GROUPS * TEAMS);
                                 gw_gate_arrive(&gates.columns_free);
                             }
                         }
                         if (!APART) {
                             fold += fold < K::FOLDERS ? THREADS - K::FOLDERS : -K::FOLDERS;
                         }
                         place = place + 1 == (FEW ? GW_LINEAR_PLACES : p.places) ? 0 : place + 1;
                         round += place == 0;
                         done += at.ends_item();
                         at.next();
#endif
    };
    auto finish = [&]() {
        if (GW_COPIES && (APART || in_turns)) {
            gated();
            return;
        }
        float *values =
            joined + (place * GROUPS + group) * (FEW ? (int)K::CLASSES : (int)HALF) * K::VALUES;
        if (FEW) { /* all classes side by side, in turns with the tile before */
            place ^= 1;
#pragma unroll
            for (int i = 0; i < K::SUMS; i++) {
                values[q * K::VALUES + i * LANES + gw_wave_lane()] = sums[i];
            }
        } else { /* half of them: lanes 16 apart are added first */
            float *half = values + (q % HALF) * K::VALUES + gw_wave_lane();
            __syncthreads();
            if (q >= HALF) {
#pragma unroll
                for (int i = 0; i < K::SUMS; i++) {
                    half[i * LANES] = sums[i];
                }
            }
            __syncthreads();
            if (q < HALF) {
#pragma unroll
                for (int i = 0; i < K::SUMS; i++) {
                    half[i * LANES] = sums[i] + half[i * LANES];
                }
            }
        }
        __syncthreads();
        if (fold < K::FOLDERS) {
#pragma unroll
            for (int o = 0; o < K::OUTS; o++) {
                const float v = K::template join<FEW>(values, fold, o);
                gw_outlet<GROUPS, GLU> to;
                to.open(p, at, columns, K::out_row(fold), K::out_col(fold, o),
                        K::speaks(fold) ? live : 0);
                to.put(p, v, extra[o]);
            }
        }
        if ((GLU || p.behind) && at.ends_item()) {
            __syncthreads();
            gw_leave<K, GLU>(p, columns, at.item, live, weight, gw_team(),
                             GW_LINEAR_THREADS / GW_LANES);
        }
        at.next();
    };
    gw_sync_some<1, GW_LINEAR_THREADS>();
    if (K::X_ROWS == 1 && !p.ahead_end) {
        gw_ask_ahead(p);
    }
    if (ring_of::STEP == 1) {
        while (at.item < items) {
            begin();
            for (int left_of = parts; left_of > 0; left_of -= PARTS) {
                K::add(
                    ring, 0, [&]() { ask(0); }, left_of, mine, p.row_words, sums, live, held);
                mine += K::X_STEP;
            }
            finish();
        }
        if (K::X_ROWS == 1 && p.ahead_end) {
            gw_ask_ahead(p);
        }
        return;
    }
    if (parts <= 0) { /* a class without a term still joins */
        while (at.item < items) {
            begin();
            finish();
        }
        return;
    }
    for (int left_of = parts;
         at.item < items;) { /* slots are registers: their numbers have to be constants */
#pragma unroll
        for (int d = 0; d < ring_of::STEP; d++) {
            if (at.item < items) {
                if (left_of == parts) {
                    begin();
                }
                K::add(
                    ring, d, [&]() { ask(d); }, left_of, mine, p.row_words, sums, live, held);
                mine += K::X_STEP;
                left_of -= PARTS;
                if (left_of <= 0) {
                    left_of = parts;
                    finish();
                }
            }
        }
    }
}

#endif
