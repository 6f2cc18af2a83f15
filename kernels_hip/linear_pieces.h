/* kernels_hip/linear_pieces.h - a product whose rows of x come to shared memory in pieces, because
 * all of them together do not fit.
 *
 * A block goes over the pieces with a batch of two tiles for each group of waves: both tiles' terms
 * of a piece are added before the next piece takes its place, so a thread keeps the chains of two
 * tiles, and x is read once for both. Terms stay in their order.
 */
#ifndef GW_KERNELS_HIP_LINEAR_PIECES_H
#define GW_KERNELS_HIP_LINEAR_PIECES_H

#include "kernels_hip/linear_stream.h"

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

/* K as for gw_product. Sums are joined half of the classes at a time: a block meets often enough
 * because of the pieces. */
template <class K, int GLU>
__device__ static inline void gw_product_in_pieces(const gw_linear_params &p) {
    enum { GROUPS = WAVES / K::CLASSES, HALF = K::CLASSES / 2 };
    typedef gw_ring<K::RECORD> ring_of;
    GW_SHARED_DYNAMIC(unsigned char, shared);
    ring_of ring;
    unsigned *x = (unsigned *)ring.open(shared, p.depth);
    float *many = (float *)(x + p.width * p.row_words);
    float *columns = many + (int)GW_LINEAR_FACTORS / 4;
    float *joined = columns + GW_LINEAR_COLUMNS(p.width, GLU, p.behind != 0);
    const int wave = gw_wave(), group = wave / K::CLASSES, q = wave % K::CLASSES;
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
    };
    if (ring_of::STEP == 1) {
#pragma unroll 1
        for (int d = 0; d < p.early; d++) {
            ask(0);
        }
    } else {
#pragma unroll
        for (int d = 0; d < ring_of::STEP; d++) {
            ask(d);
        }
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
    if (ring_of::STEP == 1) { /* behind x, which would have to wait for it */
#pragma unroll 1
        for (int d = p.early; d < ring.slots_ahead(); d++) {
            ask(0);
        }
    }
    const unsigned *mine = x;
    gw_extra extra[K::OUTS];
    float weight = 0.0f;
    typename K::held held = {};
    float sums[K::SUMS], other[K::SUMS]; /* of the other tile of the batch */
    const int fold = (int)threadIdx.x - group * K::CLASSES * LANES;
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
        if (at.piece == last_piece && fold < K::FOLDERS) {
#pragma unroll
            for (int o = 0; o < K::OUTS; o++) {
                extra[o] = gw_ask(p, at.tile, K::out_row(fold), K::out_col(fold, o), live);
            }
        }
        weight = gw_ask_behind<GLU>(p, at.tile.item);
    };
    auto finish = [&]() { /* lanes 16 apart are added first */
                          float *values = joined + group * HALF * K::VALUES;
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
                          __syncthreads();
                          if (fold < K::FOLDERS) {
#pragma unroll
                              for (int o = 0; o < K::OUTS; o++) {
                                  const float v = K::template join<0>(values, fold, o);
                                  gw_outlet<GROUPS, GLU> to;
                                  to.open(p, at.tile, columns, K::out_row(fold),
                                          K::out_col(fold, o), K::speaks(fold) ? live : 0);
                                  to.put(p, v, extra[o]);
                              }
                          }
                          if ((GLU || p.behind) && at.tile.ends_item()) {
                              __syncthreads();
                              gw_leave<K, GLU>(p, columns, at.tile.item, live, weight, gw_team(),
                                               GW_LINEAR_THREADS / GW_LANES);
                          }
    };
    auto leave = [&]() {
        const int piece = at.piece, second = at.second;
        if (piece == last_piece) {
            finish();
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
            __syncthreads();
            if (at.piece == 0) {
                clear();
            }
        }
        enter();
    };
    clear();
    enter();
    __syncthreads();
    while (at.tile.item < items) {
#pragma unroll
        for (int d = 0; d < ring_of::STEP; d++) { /* where slots are registers: constants */
            while (to_add <= 0 && at.tile.item < items) {
                leave();
            }
            if (at.tile.item < items) {
                K::add(
                    ring, d, [&]() { ask(d); }, to_add, mine, p.row_words, sums, live, held);
                mine += K::X_STEP;
                to_add--;
            }
        }
    }
}

#endif
