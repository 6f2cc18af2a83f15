/* kernels_hip/linear/linear_registers.h - a linear product on a device without GW_COPIES: waves
 * fetch their weights through registers, and join sums behind barriers.
 *
 * A block stays for many tiles and its waves never stop reading: a wave owns a ring of slots, each
 * one record (or a class of it), and refills a slot as soon as it is read. The first fill is on its
 * way before the wait for the kernels in front.
 */
#ifndef GW_KERNELS_HIP_LINEAR_REGISTERS_H
#define GW_KERNELS_HIP_LINEAR_REGISTERS_H

#include "kernels_hip/linear/linear_norm.h"
#include "kernels_hip/linear/linear_tiles.h"

#if !GW_COPIES

/* ---- the ring of a wave ---------------------------------------------------------------------- */

/* Where in a strip byte `at` of the first part of wave q of a tile is. */
template <class K> struct gw_slot {
    __device__ static inline size_t place(int q, int at) { return K::first(q) + (size_t)at; }
};

/* Loads wait in registers; a record passes one slot of shared memory. */
template <int BYTES> struct gw_ring {
    enum {
        DEPTH = GW_LINEAR_DEPTH(BYTES) < 4 ? GW_LINEAR_DEPTH(BYTES) : 4,
        PIECES = (BYTES + 16 * LANES - 1) / (16 * LANES)
    };
    unsigned char *slot;
    gw_16b held[DEPTH][PIECES];

    /* Returns what is behind the slots of all waves. */
    __device__ inline unsigned char *open(unsigned char *shared) {
        slot = shared + gw_wave() * BYTES;
        return shared + WAVES * BYTES;
    }
    /* from: of this lane, the first 16 bytes of a wave's lying side by side */
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
    /* The same for slots whose parts lie as gw_slot says; from: the strip, q: a wave of a tile. */
    template <class K>
    __device__ inline void put_slot(int d, const unsigned char *from, int q, int parts) {
        const int lane = gw_wave_lane();
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int at = 16 * (i * LANES + lane), part = at / K::PART;
            if (at < BYTES && part < parts) {
                held[d][i] =
                    gw_stream(from + gw_slot<K>::place(q, at - part * K::PART) + part * K::JUMP);
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
};

/* What K::add reads: slot d, which is filled again by ask(d). */
template <class Ring, class Ask> struct gw_ring_source {
    Ring &ring;
    Ask &ask;
    int d;

    __device__ inline const unsigned char *take() { return ring.get(d); }
    __device__ inline void done() {
        gw_sync_wave();
        ask(d);
    }
};

/* ---- what becomes of a tile's sums ----------------------------------------------------------- */

/* Joins what the classes of a group have of a tile, in `values`, and hands it out; all of the block
 * call it. fold: the thread's number in its group. */
template <class K, int GROUPS, int GLU>
__device__ static inline void gw_finish_tile(const gw_linear_params &p,
                                             const gw_walk<GROUPS, GLU> &at, const gw_outlet &to,
                                             float *values, float *columns, int q, int fold,
                                             const float *sums, float weight, int live) {
    enum { STEP = GW_LINEAR_SUMS_STEP(K::X_ROWS), TEAMS = GW_LINEAR_THREADS / GW_LANES };
    const int row = fold % GW_STRIP_ROWS, n = fold / GW_STRIP_ROWS;
    __syncthreads(); /* who joined the tile before is done */
    K::leave(values, q, sums);
    __syncthreads();
    if (n < live) {
        const float v =
            to.put(p, gw_join_classes<K::JOINED>(values + n * STEP + row, K::X_ROWS * STEP));
        if (GLU) {
            columns[n * 2 * GW_LINEAR_ITEM + at.place() * GW_STRIP_ROWS + row] = v;
        } else if (p.behind) {
            columns[n * GW_LINEAR_ITEM + at.place() * GW_STRIP_ROWS + row] = v;
        }
    }
    if ((GLU || p.behind) && at.ends_item()) {
        __syncthreads();
        for (int i = gw_team(); i < live; i += TEAMS) {
            if (GLU) {
                const float *mine = columns + i * 2 * GW_LINEAR_ITEM + gw_lane();
                gw_leave_glu<1>(p, at.item, i, TEAMS, live, mine, mine + GW_LINEAR_ITEM,
                                gw_ask_number(p));
            } else {
                const float v = columns[i * GW_LINEAR_ITEM + gw_lane()];
                gw_leave_norm<1>(p, at.item, i, TEAMS, live, &v, weight);
                gw_leave_squares<1>(p, at.item, i, TEAMS, live, &v);
            }
        }
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* K describes one kernel:
 *   CLASSES, RECORD          waves of a tile, bytes of a slot of one
 *   strip(terms)             bytes of a strip
 *   first(q)                 where in it the first slot of wave q of a tile begins
 *   STEP, PART, JUMP         bytes from slot to slot; a slot is RECORD / PART pieces, JUMP apart
 *   parts(terms, q)          pieces of wave q in a strip; the last slot may have one less
 *   DIRECT, stage(p, x, from, n, factors, asked, ready)  x is read where it is, or its rows go to
 *                            shared memory first (linear_norm.h)
 *   X_STEP, first_x(q)       words of a row of x that a slot of all waves takes, and where in them
 *                            this thread's begin
 *   ACT8, X_ROWS             the format of x; most rows of it
 *   SORTS                    of one row: it comes as floats and is encoded in the order p.columns
 *   SPAN, settle(p, x, n, factors)  of n rows in shared memory blocks get one scale; factors: 0
 *   SUMS, held, add(source, ...)  a thread's chains, what else it keeps from slot to slot, zeros at
 *                            first, and a slot's terms added, for x from here on; source.take() is
 *                            the slot, source.done() says that it is read
 *   JOINED, leave(values, q, sums)  what the chains of wave q come to, joined as far as they are
 * its own: [JOINED][X_ROWS][16] of a tile, GW_LINEAR_SUMS_STEP apart
 */
template <class K, int GLU> __device__ static inline void gw_product(const gw_linear_params &p) {
    enum { GROUPS = WAVES / K::CLASSES, PARTS = K::RECORD / K::PART };
    typedef gw_ring<K::RECORD> ring_of;
    GW_SHARED_DYNAMIC(unsigned char, shared);
    ring_of ring;
    unsigned *x = (unsigned *)ring.open(shared);
    float *many = (float *)(x + (K::DIRECT ? 0 : p.width * p.row_words));
    float *columns = many + (int)GW_LINEAR_FACTORS / 4;
    const int wave = gw_wave(), group = wave / K::CLASSES, q = wave % K::CLASSES;
    float *values = columns + GW_LINEAR_COLUMNS(p.width, GLU, p.behind != 0) +
                    group * GW_LINEAR_SUMS(K::X_ROWS, K::JOINED);
    const int fold = (int)threadIdx.x - group * K::CLASSES * LANES;
    const int first = (int)blockIdx.y * p.width;
    const int there = p.x_rows - first < p.width ? p.x_rows - first : p.width;
    const int parts = K::parts(p.terms, q); /* of this wave, in a strip */
    const size_t strip_bytes = K::strip(p.terms);
    const int items = gw_walk<GROUPS, GLU>::items(p);
    gw_walk<GROUPS, GLU> at, ahead;
    at.open(p, group);
    ahead.open(p, group);
    int in_strip = parts;
    const unsigned char *from = ahead.strip(p, strip_bytes);
    auto ask = [&](int d) {
        ring.template put_slot<K>(d, from, q, ahead.item < items ? in_strip : 0);
        from += K::STEP;
        in_strip -= PARTS;
        if (in_strip <= 0) {
            in_strip = parts;
            ahead.next();
            if (ahead.item < items) {
                from = ahead.strip(p, strip_bytes);
            }
        }
    };
#pragma unroll
    for (int d = 0; d < ring_of::DEPTH; d++) {
        ask(d);
    }
    const int count = gw_live(p.step);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (!K::DIRECT) { /* without waiting for how many are alive */
        gw_factors<K::X_ROWS> factors;
        factors.ask(p, K::ACT8 ? p.terms : p.terms / GW_ACT_BLOCK, first, there, many);
        K::stage(p, x, p.x + (size_t)first * (size_t)p.row_bytes, there, factors,
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
    gw_outlet to;
    float weight = 0.0f;
    typename K::held held = {};
    float sums[K::SUMS];
    auto begin = [&]() {
        mine = rows;
#pragma unroll
        for (int i = 0; i < K::SUMS; i++) {
            sums[i] = 0.0f;
        }
        to.open(p, at, fold % GW_STRIP_ROWS, fold / GW_STRIP_ROWS, live);
        weight = gw_ask_behind<GLU>(p, at.item);
    };
    auto finish = [&]() {
        gw_finish_tile<K, GROUPS, GLU>(p, at, to, values, columns, q, fold, sums, weight, live);
        at.next();
    };
    __syncthreads();
    if (K::SPAN) {
        K::settle(p, x, there, 0);
        __syncthreads();
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
        for (int d = 0; d < ring_of::DEPTH; d++) {
            if (at.item < items) {
                if (left_of == parts) {
                    begin();
                }
                gw_ring_source<ring_of, decltype(ask)> source = {ring, ask, d};
                K::add(source, left_of, mine, p.row_words, sums, live, held);
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

#endif
