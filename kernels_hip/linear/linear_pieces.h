/* kernels_hip/linear/linear_pieces.h - a product whose rows of x come to shared memory in pieces,
 * because all of them together do not fit; on a device without GW_COPIES (else linear_async.h).
 *
 * A block goes over the pieces with a batch of two tiles for each group of waves: both tiles' terms
 * of a piece are added before the next piece takes its place, so a thread keeps the chains of two
 * tiles, and x is read once for both. Terms stay in their order.
 */
#ifndef GW_KERNELS_HIP_LINEAR_PIECES_H
#define GW_KERNELS_HIP_LINEAR_PIECES_H

#include "kernels_hip/linear/linear_registers.h"

#if !GW_COPIES

/* The order in which a group of waves meets (tile, piece). */
template <int GROUPS, int GLU> struct gw_course {
    typedef gw_walk<GROUPS, GLU> walk;
    walk first, tile; /* of the batch, and the one whose turn it is */
    int second;       /* of the batch is that                       */
    int piece;

    __device__ inline void open(const gw_linear_params &p, int group) {
        first.open(p, group);
        tile = first;
        second = piece = 0;
    }
    __device__ inline void next(int items, int last_piece) {
        walk other = first;
        other.next();
        const bool two = other.item < items;
        if (two && !second) {
            second = 1;
            tile = other;
            return;
        }
        second = 0;
        if (piece < last_piece) {
            piece++;
        } else {
            piece = 0;
            if (two) {
                other.next();
            }
            first = other;
        }
        tile = first;
    }
};

/* K as for gw_product. */
template <class K, int GLU>
__device__ static inline void gw_product_in_pieces(const gw_linear_params &p) {
    enum { GROUPS = WAVES / K::CLASSES };
    typedef gw_ring<K::RECORD> ring_of;
    GW_SHARED_DYNAMIC(unsigned char, shared);
    ring_of ring;
    unsigned *x = (unsigned *)ring.open(shared);
    float *many = (float *)(x + p.width * p.row_words);
    float *columns = many + (int)GW_LINEAR_FACTORS / 4;
    const int wave = gw_wave(), group = wave / K::CLASSES, q = wave % K::CLASSES;
    float *values = columns + GW_LINEAR_COLUMNS(p.width, GLU, p.behind != 0) +
                    group * GW_LINEAR_SUMS(K::X_ROWS, K::JOINED);
    const int fold = (int)threadIdx.x - group * K::CLASSES * LANES;
    const int first = (int)blockIdx.y * p.width;
    const int there = p.x_rows - first < p.width ? p.x_rows - first : p.width;
    const int slots = K::parts(p.terms, q), last_piece = (K::parts(p.terms, 0) - 1) / p.span;
    const size_t strip_bytes = K::strip(p.terms);
    const size_t begins = K::first(q) + 16 * (size_t)gw_wave_lane();
    const int items = gw_walk<GROUPS, GLU>::items(p);
    gw_course<GROUPS, GLU> at, ahead;
    at.open(p, group);
    ahead.open(p, group);
    auto slots_of = [&](int piece) {
        const int left = slots - piece * p.span;
        return left < p.span ? left : p.span;
    };
    int to_ask = slots_of(0);
    const unsigned char *from = ahead.tile.strip(p, strip_bytes) + begins;
    auto ask = [&](int d) {
        ring.template put<K::PART, K::JUMP>(d, from, ahead.tile.item < items ? to_ask : 0);
        from += K::STEP;
        to_ask--;
        while (to_ask <= 0 && ahead.tile.item < items) {
            ahead.next(items, last_piece);
            to_ask = slots_of(ahead.piece);
            if (ahead.tile.item < items) {
                from = ahead.tile.strip(p, strip_bytes) + begins +
                       (size_t)(ahead.piece * p.span) * K::STEP;
            }
        }
    };
    gw_factors<K::X_ROWS> factors;
    auto stage = [&](int piece) {
        K::stage_slots(p, x, p.x + (size_t)first * (size_t)p.row_bytes, there, piece * p.span,
                       p.span, factors);
        __syncthreads();
        if (K::SPAN) {
            K::settle_slots(p, x, there, piece * p.span, p.span);
            __syncthreads();
        }
    };
#pragma unroll
    for (int d = 0; d < ring_of::DEPTH; d++) {
        ask(d);
    }
    const int left = gw_live(p.step) - first, live = left < there ? left : there;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (live <= 0) {
        return; /* the whole block */
    }
    factors.ask(p, p.terms, first, there, many);
    factors.get(p, there);
    stage(0);
    const unsigned *mine = x;
    gw_outlet to;
    float weight = 0.0f;
    typename K::held held = {};
    float sums[K::SUMS], other[K::SUMS]; /* of the other tile of the batch */
    int to_add = 0;
    auto clear = [&]() {
#pragma unroll
        for (int i = 0; i < K::SUMS; i++) {
            sums[i] = other[i] = 0.0f;
        }
    };
    auto enter = [&]() {
        to_add = slots_of(at.piece);
        mine = x + K::first_x(q);
        if (at.piece == last_piece) {
            to.open(p, at.tile, fold % GW_STRIP_ROWS, fold / GW_STRIP_ROWS, live);
        }
        weight = gw_ask_behind<GLU>(p, at.tile.item);
    };
    auto leave = [&]() {
        const int piece = at.piece, second = at.second;
        if (piece == last_piece) {
            gw_finish_tile<K, GROUPS, GLU>(p, at.tile, to, values, columns, q, fold, sums, weight,
                                           live);
        }
        at.next(items, last_piece);
        if (at.tile.item >= items) {
            return;
        }
        if (at.second != second) {
#pragma unroll
            for (int i = 0; i < K::SUMS; i++) {
                const float sum = sums[i];
                sums[i] = other[i];
                other[i] = sum;
            }
        }
        if (at.piece != piece) {
            __syncthreads();
            stage(at.piece);
            if (at.piece == 0) {
                clear();
            }
        }
        enter();
    };
    clear();
    enter();
    while (at.tile.item < items) {
#pragma unroll
        for (int d = 0; d < ring_of::DEPTH; d++) { /* slots are registers: constants */
            while (to_add <= 0 && at.tile.item < items) {
                leave();
            }
            if (at.tile.item < items) {
                gw_ring_source<ring_of, decltype(ask)> source = {ring, ask, d};
                K::add(source, to_add, mine, p.row_words, sums, live, held);
                mine += K::X_STEP;
                to_add--;
            }
        }
    }
}

#endif

#endif
