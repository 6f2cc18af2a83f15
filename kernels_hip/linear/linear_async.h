/* kernels_hip/linear/linear_async.h - a linear product on a device with GW_COPIES: waves that
 * multiply, and some that fetch several rows of x, join sums and hand results out, with gates
 * between them.
 *
 * A block stays for many tiles and its waves never stop reading: a wave that multiplies owns a ring
 * of slots, each one record (or a class of it), and fills a slot again as soon as it is read. The
 * first ones are on their way before the wait for the kernels in front. Neighbouring threads and
 * the blocks of a record are neighbouring lanes of arith.h, so a wave joins what it has by itself,
 * and one number of each result goes through shared memory.
 */
#ifndef GW_KERNELS_HIP_LINEAR_ASYNC_H
#define GW_KERNELS_HIP_LINEAR_ASYNC_H

#include "kernels_hip/linear/linear_adapt.h"

#if GW_COPIES

enum { GW_FLOW_GROUPS = 2 };

/* ---- shared memory --------------------------------------------------------------------------- */

/* Slots of all waves, rows of x, gates, factors of the rows, and places for sums. PIECES: rows of x
 * come in pieces, p.span at a time. */
template <class K, int PIECES> struct gw_flow_desk {
    enum {
        STEP = GW_LINEAR_SUMS_STEP(K::X_ROWS),
        APART = K::X_ROWS * STEP, /* of a tile, from class to class */
        SUMS = GW_LINEAR_SUMS(K::X_ROWS, K::JOINED)
    };
    unsigned char *slots;
    unsigned *x;
    float *factors, *sums;
    gw_shared_at gates;
    int depth, piece_words;

    __device__ inline gw_flow_desk(const gw_linear_params &p, unsigned char *shared) {
        slots = gw_shared_place(shared);
        depth = p.depth;
        piece_words = (int)GW_LINEAR_PIECE_STEP * p.width;
        unsigned char *behind = slots + (int)WAVES * depth * (int)K::RECORD;
        x = (unsigned *)behind;
        behind += PIECES ? 4 * p.span * piece_words : K::DIRECT ? 0 : 4 * p.width * p.row_words;
        gates = gw_shared_address(behind);
        factors = (float *)(behind + GW_LINEAR_GATES);
        sums = factors + (int)GW_LINEAR_FACTORS / 4;
    }
    __device__ inline gw_shared_at gate(int number) const {
        return gates + number * (int)GW_GATE_BYTES;
    }
    /* x is there, or a piece of it; a piece has been read. Sums of a place are there; have been
     * read. */
    enum {
        HAS_X,
        READ = HAS_X + GW_LINEAR_PIECES,
        SUMMED = READ + GW_LINEAR_PIECES,
        JOINED = SUMMED + GW_LINEAR_PLACES,
        GATES = JOINED + GW_LINEAR_PLACES
    };
    static_assert(GATES * GW_GATE_BYTES <= GW_LINEAR_GATES, "what the host leaves for them");
    __device__ inline gw_shared_at has_x(int piece) const { return gate(HAS_X + piece); }
    __device__ inline gw_shared_at read(int piece) const { return gate(READ + piece); }
    __device__ inline gw_shared_at summed(int place) const { return gate(SUMMED + place); }
    __device__ inline gw_shared_at joined(int place) const { return gate(JOINED + place); }

    /* By a wave, a gate each. All threads that read or write arrive for themselves: racecheck of
     * compute-sanitizer does not follow one that does so for a wave. */
    __device__ inline void make_gates() const {
        const int i = gw_lane();
        if (i < (int)GATES) {
            gw_gate_make(gate(i), i >= (int)JOINED ? GW_LINEAR_JOINERS(K::X_ROWS) * (int)GW_LANES
                                  : i >= (int)READ ? (int)GW_LINEAR_THREADS
                                                   : (int)GW_FETCH_ARRIVALS);
            if (K::X_ROWS > 1) {
                gw_gates_made();
            }
        }
        gw_sync_wave();
    }
    /* What group `group` has of a tile at a place. */
    __device__ inline float *sums_of(int place, int group) const {
        return sums + (place * GW_FLOW_GROUPS + group) * SUMS;
    }
    /* The next place or piece; of a ring's round. */
    __device__ static inline void advance(int &at, int &round, int of) {
        at = at + 1 == of ? 0 : at + 1;
        round += at == 0;
    }
};

/* Rows of x that this block has; and how many of them, of `count` in all, are alive. */
GW_DEVICE int gw_rows_there(const gw_linear_params &p) {
    const int left = p.x_rows - (int)blockIdx.y * p.width;
    return left < p.width ? left : p.width;
}
GW_DEVICE int gw_rows_live(const gw_linear_params &p, int count) {
    const int left = count - (int)blockIdx.y * p.width, there = gw_rows_there(p);
    return left < there ? left : there;
}

/* The whole block, before any gate is used: behind it gates are there. */
template <class K, int PIECES> __device__ static inline void gw_flow_meet() {
    gw_sync_some<3, GW_LINEAR_BLOCK(K::X_ROWS, 1, PIECES)>();
}

/* ---- rows of x ------------------------------------------------------------------------------- */

/* All of them, by a wave; of blocks in a cluster each brings a part of every row. */
template <class K, int PIECES>
__device__ static inline void gw_flow_fetch_x(const gw_linear_params &p,
                                              const gw_flow_desk<K, PIECES> &d, int rows) {
    const int lane = gw_lane(), bytes = K::x_bytes(p.terms);
    const int part = (bytes / 16 + p.cluster - 1) / p.cluster * 16;
    const int at = gw_cluster_rank() * part, mine = bytes - at < part ? bytes - at : part;
    const unsigned char *row =
        p.x + (size_t)((int)blockIdx.y * p.width + lane) * (size_t)p.row_bytes;
    gw_fetch_for_all(rows, gw_shared_address(d.x + lane * p.row_words) + at, row + at, mine,
                     rows * bytes, d.has_x(0), p.cluster);
}

/* A piece of them after the other, for each pair of tiles, by a wave. */
template <class K, int GLU, int PIECES>
__device__ static inline void gw_flow_feed(const gw_linear_params &p,
                                           const gw_flow_desk<K, PIECES> &d, int count) {
    gw_flow_meet<K, PIECES>();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int rows = gw_rows_live(p, count), lane = gw_lane();
    const int items = gw_walk<GW_FLOW_GROUPS, GLU, K::MORE>::items(p);
    if (rows <= 0) {
        return;
    }
    const unsigned char *row =
        p.x + (size_t)((int)blockIdx.y * p.width + lane) * (size_t)p.row_bytes;
    const gw_shared_at to = gw_shared_address(d.x + lane * (int)GW_LINEAR_PIECE_STEP);
    gw_walk<GW_FLOW_GROUPS, GLU, K::MORE> at;
    int piece = 0, round = 0;
#pragma unroll 1
    for (at.open(p, 0); at.item < items; at.next()) {
        const unsigned char *from = row;
#pragma unroll 1
        for (int left = K::x_bytes(p.terms); left > 0; left -= 4 * (int)GW_LINEAR_PIECE) {
            const int n = left < 4 * (int)GW_LINEAR_PIECE ? left : 4 * (int)GW_LINEAR_PIECE;
            if (round > 0) {
                gw_gate_wait(d.read(piece), (round - 1) & 1);
            }
            gw_fetch(rows, to + 4 * piece * d.piece_words, from, n, rows * n, d.has_x(piece));
            from += n;
            d.advance(piece, round, p.span);
        }
    }
}

/* For the launch behind this one; threads 0 and 1 do it. */
GW_DEVICE void gw_ask_ahead(const gw_linear_params &p) {
    if ((int)threadIdx.x < 2 && (int)blockIdx.x < p.ahead_blocks) {
        const uint8_t *from = threadIdx.x == 0 ? p.ahead[0] : p.ahead[1];
        gw_prefetch_bytes(from + (size_t)blockIdx.x * (size_t)p.ahead_step, p.ahead_bytes);
    }
}

/* ---- waves that join ------------------------------------------------------------------------- */

/* Wave `joiner` has rows joiner, joiner + JOINERS, .. of x, of a single row both have it; a lane
 * has a column of the two tiles that are multiplied side by side. All that can be is made before
 * the sums are there: the next launch waits for these waves. */
template <class K, int GLU, int PIECES>
__device__ static inline void
gw_flow_join(const gw_linear_params &p, const gw_flow_desk<K, PIECES> &d, int count, int joiner) {
    typedef gw_flow_desk<K, PIECES> desk;
    enum {
        ONE = K::X_ROWS == 1,
        JOINERS = GW_LINEAR_JOINERS(K::X_ROWS),
        ROWS = (K::X_ROWS + JOINERS - 1) / JOINERS
    };
    const gw_adapt adapt(p, d.sums_of(p.places, 0), K::ADAPTS);
    const int items = gw_walk<GW_FLOW_GROUPS, GLU, K::MORE>::items(p);
    const int group = gw_lane() / GW_STRIP_ROWS, row = gw_lane() % GW_STRIP_ROWS;
    gw_walk<GW_FLOW_GROUPS, GLU, K::MORE> at;
    at.open(p, group);
    int tile = 0;
    gw_flow_meet<K, PIECES>();
    gw_grid_launch_dependents();
    if (K::ADAPTS) { /* after the barrier: who multiplies need not wait for the route */
        adapt.ask(p.lora.alone ? p.lora.units : (int)blockIdx.x);
    }
    gw_grid_dependency_wait();
    const int live = gw_rows_live(p, count), first = ONE ? 0 : joiner;
    if (live <= 0) {
        return;
    }
    if (K::ADAPTS) {
        adapt.run(p);
        if (joiner == 0) { /* there is time while others make their units */
            gw_adapt_ask_rows(p, adapt, at, items, row);
        }
        adapt.all();
    }
    if (!ONE && !PIECES && !K::DIRECT && joiner == 0) {
        gw_cluster_wait(p.cluster); /* for the gates of neighbours */
        gw_flow_fetch_x<K, PIECES>(p, d, live);
    }
    float gate[ROWS];
    const unsigned number = GLU ? gw_ask_number(p) : 0;
#pragma unroll 1
    for (int place = 0, round = 0; at.item < items; at.next()) {
        const float weight = gw_ask_behind<GLU>(p, at.item);
        gw_outlet to[ROWS];
        float v[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            to[i].open(p, at, row, first + i * JOINERS, live);
            to[i].y = ONE && joiner > 0 ? 0 : to[i].y;
        }
        gw_adapt_row more;
        if (K::ADAPTS) {
            more.open(p, adapt, at, row, tile++);
        }
        const float *sums = d.sums_of(place, group) + row;
        gw_gate_wait(d.summed(place), round & 1);
        if (ONE && p.behind) { /* y may lie where the residual does: both waves have that first */
            gw_sync_some<4, JOINERS *(int)GW_LANES>();
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int n = first + i * JOINERS; /* beyond the last row the last one's again */
            v[i] = gw_join_classes<K::JOINED>(
                sums + (n < K::X_ROWS ? n : K::X_ROWS - 1) * (int)desk::STEP, desk::APART);
        }
        gw_gate_arrive(d.joined(place));
        d.advance(place, round, p.places);
        const float adds = K::ADAPTS ? more.sum(adapt) : 0.0f;
        if (GLU && K::ADAPTS) { /* of one row */
            v[0] = v[0] + adds;
        }
        if (GLU && at.round == 0) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                gate[i] = v[i];
            }
            continue;
        }
        if (GLU) {
            if (!ONE || joiner == 0) {
                gw_leave_glu<ROWS, K::ADAPTS>(p, at.item, first, JOINERS, live, gate, v, number);
            }
            continue;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            v[i] = to[i].template put<K::ADAPTS>(p, v[i], adds);
        }
        if (p.behind && (!ONE || joiner == 0)) {
            gw_leave_norm<ROWS>(p, at.item, first, JOINERS, live, v, weight);
        }
        if (p.behind && (!ONE || joiner > 0)) {
            gw_leave_squares<ROWS>(p, at.item, first, JOINERS, live, v);
        }
    }
    if (K::ADAPTS && joiner > 0) {
        adapt.clear();
    }
}

/* ---- waves that multiply --------------------------------------------------------------------- */

/* Until the oldest of `depth` slots is there. */
template <int DEPTH> __device__ static inline void gw_copy_wait_oldest(int depth) {
    if (depth == DEPTH) {
        gw_copy_wait<DEPTH - 1>();
    } else if (DEPTH > (int)GW_LINEAR_SOME && depth == (int)GW_LINEAR_SOME) {
        gw_copy_wait<GW_LINEAR_SOME - 1>();
    } else {
        gw_copy_wait<GW_LINEAR_LESS - 1>();
    }
}

/* The ring of a wave; the slot that has been read is the next one to be filled. What K::add reads,
 * with the pieces of x that belong to it. */
template <class K, int GLU, int PIECES> struct gw_flow_source {
    enum { DEPTH = GW_LINEAR_DEPTH(K::RECORD), PARTS = K::RECORD / K::PART };
    const gw_linear_params &p;
    const gw_flow_desk<K, PIECES> &d;
    gw_walk<GW_FLOW_GROUPS, GLU, K::MORE> ahead;
    const unsigned char *from;    /* of this lane, in the next slot */
    gw_shared_at first, end, now; /* slots; the one whose turn it is */
    int items, parts, in_strip;   /* pieces of the wave in a strip, and those left in this one */
    int piece, round;             /* of x */

    __device__ inline gw_flow_source(const gw_linear_params &params,
                                     const gw_flow_desk<K, PIECES> &desk, int group, int q)
        : p(params), d(desk), from(params.part[0].w),
          items(gw_walk<GW_FLOW_GROUPS, GLU, K::MORE>::items(params)),
          parts(K::parts(params.terms, q)), piece(0), round(0) {
        first = gw_shared_address(d.slots) + gw_wave() * d.depth * (int)K::RECORD;
        end = first + d.depth * (int)K::RECORD;
        now = first;
        ahead.open(p, group);
        begin(q);
    }
    __device__ inline void begin(int q) {
        in_strip = parts;
        if (ahead.item < items) {
            from = ahead.strip(p, K::strip(p.terms)) + K::first(q) + 16 * gw_wave_lane();
        }
    }
    __device__ inline void ask() {
        const int lane = gw_wave_lane(), there = ahead.item < items ? in_strip : 0;
        const gw_shared_at to = now + 16 * lane;
#pragma unroll
        for (int part = 0; part < (int)PARTS; part++) {
#pragma unroll
            for (int at = 0; at < (int)K::PART; at += 16 * LANES) {
                const int mine = at + 16 * LANES <= (int)K::PART || 16 * lane < (int)K::PART - at;
                gw_copy_async_if(part < there && mine,
                                 gw_shared_pointer(to + part * (int)K::PART + at),
                                 from + part * (int)K::JUMP + at);
            }
        }
        gw_copy_commit();
        now = now + (int)K::RECORD == end ? first : now + (int)K::RECORD;
        from += K::STEP;
        in_strip -= PARTS;
        if (in_strip <= 0) {
            ahead.next();
            begin(gw_wave() % K::CLASSES);
        }
    }
    __device__ inline const unsigned char *take() const {
        gw_copy_wait_oldest<DEPTH>(d.depth);
        gw_sync_wave();
        return gw_shared_pointer(now);
    }
    __device__ inline void done() {
        gw_sync_wave();
        ask();
    }
    /* Of x, whose piece begins at the result. */
    __device__ inline const unsigned *take_piece() const {
        gw_gate_wait(d.has_x(piece), round & 1);
        return d.x + piece * d.piece_words;
    }
    __device__ inline void done_piece() {
        gw_read_before_fetch();
        gw_gate_arrive(d.read(piece));
        d.advance(piece, round, p.span);
    }
};

/* ---- a row in the order of the matrix's columns ---------------------------------------------- */

enum { GW_SORTS_NOTHING = 2 }; /* of K::SORTS: it comes as floats, but in its order */

/* Bytes of a row of x as it comes. */
template <class K> __device__ static inline int gw_flow_x_bytes(const gw_linear_params &p) {
    return (int)K::SORTS != 0 ? p.terms * (int)(GW_ACT_BLOCK * sizeof(float)) : K::x_bytes(p.terms);
}
/* Behind the place of x: the row as it comes, and the order. */
template <class K>
__device__ static inline float *gw_flow_row(const gw_linear_params &p, unsigned *x) {
    return (float *)x + K::x_bytes(p.terms) / 4;
}
/* Prefetches the permutation of columns, by the multiplying waves and before their first ring slot:
 * they wait for that slot anyway, and after megabytes of weights the permutation would be late. */
template <class K>
__device__ static inline void gw_flow_ask_order(const gw_linear_params &p, unsigned *x) {
    const int n = p.terms * GW_ACT_BLOCK;
    float *to = gw_flow_row<K>(p, x) + n;
    if ((int)K::SORTS == (int)GW_SORTS_NOTHING) {
        return;
    }
#pragma unroll 1
    for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * GW_LINEAR_THREADS) {
        gw_copy_async_if(true, to + i, p.columns + i);
    }
}
/* The row, times its factor, to blocks in the place of x, whole records of them. All that multiply
 * call it. */
template <class K>
__device__ static inline void gw_flow_sort_x(const gw_linear_params &p, unsigned *x, float factor) {
    enum { AT_ONCE = 4, TEAMS = GW_LINEAR_THREADS / GW_LANES };
    const float *from = gw_flow_row<K>(p, x), *columns = from + p.terms * GW_ACT_BLOCK;
    const int whole = (p.terms + GW_STRIP_BLOCKS - 1) / GW_STRIP_BLOCKS * GW_STRIP_BLOCKS;
    const int form = K::SPAN ? (int)GW_FORM_SUMS : (int)K::FORM;
#pragma unroll 1
    for (int b = gw_team(); b < whole; b += AT_ONCE * TEAMS) {
        float v[AT_ONCE];
        int column[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int block = b + k * TEAMS;
            const int own = block * GW_ACT_BLOCK + gw_lane();
            column[k] = block >= p.terms                         ? -1
                        : (int)K::SORTS == (int)GW_SORTS_NOTHING ? own
                                                                 : (int)columns[own];
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            v[k] = column[k] < 0 ? 0.0f : from[column[k]] * factor;
        }
        gw_team_encode<AT_ONCE>(x, (size_t)b, TEAMS, form, v,
                                (whole - b + (int)TEAMS - 1) / (int)TEAMS);
    }
    gw_sync_some<1, GW_LINEAR_THREADS>();
    if (K::SPAN) {
        K::settle(p, x, 1, 0);
        gw_sync_some<1, GW_LINEAR_THREADS>();
    }
}

/* ---- x --------------------------------------------------------------------------------------- */

/* One row of x to shared memory, by all waves that multiply; `sums`, asked for before it, make its
 * factor. rest: what is asked for behind it. */
template <class K, class Rest>
__device__ static inline float gw_flow_copy_x(const gw_linear_params &p, unsigned *to,
                                              gw_norm_sums &sums, int blocks, Rest rest) {
    enum { AT_ONCE = 2, STEP = 16 * GW_LINEAR_THREADS };
    const unsigned char *from = p.x + (size_t)blockIdx.y * (size_t)p.width * (size_t)p.row_bytes;
    const int bytes = gw_flow_x_bytes<K>(p);
    float factor = 1.0f;
    for (int base = 16 * (int)threadIdx.x; base < bytes || base < STEP; base += AT_ONCE * STEP) {
        gw_16b v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (base + k * STEP < bytes) {
                v[k] = *(const gw_16b *)(from + base + k * STEP);
            }
        }
        if (base < STEP) {
            rest();
            factor = p.squares ? sums.factor(blocks * GW_ACT_BLOCK, p.eps) : 1.0f;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (base + k * STEP < bytes) {
                *(gw_16b *)((unsigned char *)to + base + k * STEP) = v[k];
            }
        }
    }
    return factor;
}

/* x in shared memory as K::add wants it. Returns what the scales of one row of act8 are still to be
 * multiplied by: a norm's factor, unless they had to be settled. */
template <class K, int PIECES, class Rest>
__device__ static inline float
gw_flow_take_x(const gw_linear_params &p, const gw_flow_desk<K, PIECES> &d, int live, Rest rest) {
    enum { ONE = K::X_ROWS == 1, LATER = ONE && K::ACT8 && !K::SPAN };
    const int blocks = K::ACT8 ? p.terms : p.terms / GW_ACT_BLOCK;
    const int team = ONE ? 0 : gw_team(), norm = p.squares != 0 && team < live;
    float factor = 1.0f;
    if (PIECES || K::DIRECT) {
        rest();
        return factor;
    }
    gw_norm_sums sums; /* of one row every team has them, of several a team each */
    if (p.squares) {
        const size_t row = (size_t)((int)blockIdx.y * p.width + team);
        sums.ask(p.squares + row * (size_t)blocks, norm ? blocks : 0);
    }
    if (ONE) {
        unsigned *to = (int)K::SORTS != 0 ? (unsigned *)gw_flow_row<K>(p, d.x) : d.x;
        factor = gw_flow_copy_x<K>(p, to, sums, blocks, rest);
    } else {
        factor = norm ? sums.factor(blocks * GW_ACT_BLOCK, p.eps) : 1.0f;
    }
    if (norm && !LATER && gw_lane() == 0) {
        d.factors[team] = factor;
    }
    if (!ONE) {
        gw_gate_wait(d.has_x(0), 0); /* the rest of the weights would come before it */
        rest();
    }
    if ((int)K::SORTS == 1) {
        gw_copy_wait_oldest<GW_LINEAR_DEPTH(K::RECORD)>(d.depth);
    }
    if (ONE || p.settles) {
        gw_sync_some<1, GW_LINEAR_THREADS>();
    }
    if ((int)K::SORTS != 0) {
        gw_flow_sort_x<K>(p, d.x, factor);
        return 1.0f;
    }
    if (p.settles) {
        K::settle(p, d.x, live, p.squares && !LATER ? d.factors : 0);
        gw_sync_some<1, GW_LINEAR_THREADS>();
    }
    return LATER ? factor : 1.0f;
}

template <class K, int GLU, int PIECES>
__device__ static inline void gw_flow_multiply(const gw_linear_params &p,
                                               const gw_flow_desk<K, PIECES> &d, int count) {
    enum { PARTS = K::RECORD / K::PART, ONE = K::X_ROWS == 1 };
    const int group = gw_wave() / K::CLASSES, q = gw_wave() % K::CLASSES;
    const int items = gw_walk<GW_FLOW_GROUPS, GLU, K::MORE>::items(p);
    const int parts = K::parts(p.terms, q), slots = K::slots(p.terms);
    gw_flow_source<K, GLU, PIECES> source(p, d, group, q);
    if ((int)K::SORTS != 0) {
        gw_flow_ask_order<K>(p, d.x);
    }
#pragma unroll 1
    for (int i = 0; i < p.early; i++) {
        if (p.paced && i > 0) {
            gw_copy_wait<0>();
        }
        source.ask();
    }
    gw_flow_meet<K, PIECES>();
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    /* Nobody brings rows that are not alive. A single one is looked at behind its copy: in front of
     * it, an 8b of Q4_K has 0.4% fewer tokens (docs/performance.md). */
    if (!ONE && gw_rows_live(p, count) <= 0) {
        return;
    }
    const int there = ONE ? gw_rows_there(p) : gw_rows_live(p, count);
    const float factor = gw_flow_take_x<K, PIECES>(p, d, there, [&]() {
#pragma unroll 1
        for (int i = p.early; i < d.depth; i++) {
            source.ask();
        }
    });
    const int live = gw_rows_live(p, count);
    if (ONE && live <= 0) {
        return;
    }
    if (!p.ahead_end) {
        gw_ask_ahead(p);
    }
    const unsigned *rows =
        (K::DIRECT ? (const unsigned *)(p.x + (size_t)((int)blockIdx.y * p.width) * p.row_bytes)
                   : d.x) +
        K::first_x(q);
    const int row_words = PIECES ? (int)GW_LINEAR_PIECE_STEP : p.row_words;
    typename K::held held = {};
    K::hold(held, factor);
    int place = 0, round = 0;
    gw_walk<GW_FLOW_GROUPS, GLU, K::MORE> at;
#pragma unroll 1
    for (at.open(p, group); at.item < items; at.next()) {
        float sums[K::SUMS];
#pragma unroll
        for (int i = 0; i < K::SUMS; i++) {
            sums[i] = 0.0f;
        }
        const unsigned *mine = rows;
        int left = parts;
#pragma unroll 1
        for (int i = 0; i < (PIECES ? slots : (parts + PARTS - 1) / PARTS); i++, left -= PARTS) {
            if (!PIECES) {
                K::add(source, left, mine, row_words, sums, live, held);
                mine += K::X_STEP;
                continue;
            }
            const unsigned *x = source.take_piece() + K::first_x(q);
            if (left > 0) { /* of the last slot others have a part */
                K::add(source, left, x, row_words, sums, live, held);
            }
            source.done_piece();
        }
        if (round > 0) {
            gw_gate_wait(d.joined(place), (round - 1) & 1);
        }
        K::leave(d.sums_of(place, group), q, sums);
        gw_gate_arrive(d.summed(place));
        d.advance(place, round, p.places);
    }
    if (p.ahead_end) {
        gw_ask_ahead(p);
    }
}

/* K as for linear_registers.h, and
 *   slots(terms)             of a strip
 *   x_bytes(terms)           of a row of x in memory
 *   settle(p, x, n, factors) what is left to do with n rows of x, which may lack factors (or 0)
 */
template <class K, int GLU, int PIECES = 0>
__device__ static inline void gw_product(const gw_linear_params &p) {
    enum {
        JOINERS = GW_LINEAR_JOINERS(K::X_ROWS),
        SHARES = K::X_ROWS > 1 && !PIECES && !K::DIRECT
    };
    GW_SHARED_DYNAMIC(unsigned char, shared);
    const gw_flow_desk<K, PIECES> d(p, shared);
    const int count = gw_live(p.step); /* on its way while all else begins */
    static_assert(WAVES / K::CLASSES == GW_FLOW_GROUPS, "two groups of waves");
    if (gw_wave() == WAVES) {
        d.make_gates();
    }
    if (SHARES) {
        gw_cluster_arrive();
    }
    if (gw_wave() < WAVES) {
        gw_flow_multiply<K, GLU, PIECES>(p, d, count);
    } else if (PIECES && gw_wave() == (int)WAVES + JOINERS) {
        gw_flow_feed<K, GLU, PIECES>(p, d, count);
    } else {
        gw_flow_join<K, GLU, PIECES>(p, d, count, gw_wave() - WAVES);
    }
}

#endif

#endif
