/* kernels_hip/experts/adapters.hip - adapters of rows in any number: A x of rows that have the same
 * adapter together, so that its matrix is read once for a tile of them; then B of that, in
 * registers for as many rows as have it.
 */
#include "kernels_hip/device.h"
#include "kernels_hip/experts/adapters_params.h"
#include "kernels_hip/strip.h"

enum {
    RECORD = 8192 /* bytes: 128 columns of 16 rows, a kilobyte for each class */
};

struct __align__(16) four {
    float v[4];
};

/* ---- A --------------------------------------------------------------------------------------- */

GW_DEVICE int place_of(const gw_lora_a_params &p, int e) {
    return (int)p.route[(size_t)(e / p.used) * 2 * p.used + e % p.used];
}

/* Entries [from, from + most) of those of a place, in increasing order; how many there are. */
template <int THREADS>
__device__ static inline int entries_of(const gw_lora_a_params &p, int place, int from, int most,
                                        int *list, int *counts) {
    const int all = gw_live(p.step) * p.used, lane = gw_lane(), team = gw_team();
    int seen = 0;
    for (int base = 0; base < all && seen < from + most; base += THREADS) {
        const int e = base + (int)threadIdx.x, is = e < all && place_of(p, e) == place;
        const unsigned those = gw_ballot(is);
        if (lane == 0) {
            counts[team] = __popc(those);
        }
        __syncthreads();
        int before = seen + __popc(those & ((1u << lane) - 1u)) - from;
        for (int t = 0; t < THREADS / GW_LANES; t++) {
            before += t < team ? counts[t] : 0;
            seen += counts[t];
        }
        if (is && before >= 0 && before < most) {
            list[before] = e;
        }
        __syncthreads();
    }
    seen -= from;
    return seen < most ? seen : most;
}

/* Rows [first, first + n) of y of entries without an adapter. */
GW_DEVICE void leave_zeros(const gw_lora_a_params &p, int first, int n) {
    const int all = gw_live(p.step) * p.used, step = (int)gridDim.x * (int)blockDim.x;
    for (int e = (int)(blockIdx.x * blockDim.x + threadIdx.x); e < all; e += step) {
        for (int i = first; place_of(p, e) == 0 && i < first + n && i < p.n; i++) {
            p.y[(size_t)e * p.n + i] = 0.0f;
        }
    }
}

/* Rows [first, first + n) of y of the tile's entries, by the block that is the last of its classes:
 * what each class has has been written. */
GW_DEVICE void join_classes(const gw_lora_a_params &p, const int *list, int rows, int first, int n,
                            unsigned *before) {
    const int tile = (int)blockIdx.x / GW_LORA_CLASSES;
    const int at = ((int)blockIdx.z * (int)gridDim.y + (int)blockIdx.y) * p.tiles + tile;
    if (gw_block_arrives(p.count + at, GW_LORA_CLASSES - 1, before) != GW_LORA_CLASSES - 1) {
        return;
    }
    for (int k = (int)threadIdx.x; k < rows * n; k += (int)blockDim.x) {
        const int column = first + k % n;
        if (column < p.n) {
            const size_t to = (size_t)list[k / n] * p.n + column;
            float z[GW_LORA_CLASSES];
#pragma unroll
            for (int c = 0; c < GW_LORA_CLASSES; c++) {
                z[c] = p.sums[to * GW_LORA_CLASSES + c];
            }
#pragma unroll
            for (int h = 1; h < GW_LORA_CLASSES; h *= 2) {
#pragma unroll
                for (int c = 0; c < GW_LORA_CLASSES; c += 2 * h) {
                    z[c] = z[c] + z[c + h];
                }
            }
            p.y[to] = z[0];
        }
    }
}

/* Few rows: all that a block reads is in flight at once. A thread has a row of x, one of A, and a
 * lane of the class. */
GW_KERNEL(gw_lora_a_rows, struct gw_lora_a_params, GW_LORA_FEW_THREADS) {
    enum { CHAINS = 4 * GW_LORA_FEW_A };
    GW_SHARED_DYNAMIC(unsigned char, shared);
    __shared__ int list[GW_LORA_FEW], counts[GW_LORA_FEW_THREADS / GW_LANES];
    __shared__ unsigned before;
    const int id = (int)threadIdx.x, chain = id % CHAINS, mine = id / CHAINS;
    const int q = (int)blockIdx.x % GW_LORA_CLASSES, tile = (int)blockIdx.x / GW_LORA_CLASSES;
    const int place = (int)blockIdx.z, first = (int)blockIdx.y * GW_LORA_FEW_A;
    const int records = (p.k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS, pitch = 16 * records + 4;
    four *a = (four *)shared;                   /* [records][chain] */
    float *x = (float *)(a + records * CHAINS); /* [row][pitch] */
    const int rows = place > 0 ? entries_of<GW_LORA_FEW_THREADS>(p, place, tile * GW_LORA_FEW,
                                                                 GW_LORA_FEW, list, counts)
                               : 0;
    if (rows > 0) { /* weights, before the wait */
        const int row = place * p.n + first;
        const uint8_t *w = p.a + (size_t)(row / GW_STRIP_ROWS) * records * RECORD + 1024 * q +
                           64 * (row % GW_STRIP_ROWS);
        for (int i = id; i < records * CHAINS; i += GW_LORA_FEW_THREADS) {
            gw_copy_async(a + i, w + (size_t)(i / CHAINS) * RECORD + 16 * (i % CHAINS));
        }
    }
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (place == 0) {
        leave_zeros(p, first, GW_LORA_FEW_A);
    }
    if (rows <= 0) {
        return;
    }
    for (int r = 0; r < rows; r++) {
        const float *from = p.x + (size_t)(list[r] / p.used) * (size_t)p.k + 4 * q;
        for (int j = id; j < 4 * records; j += GW_LORA_FEW_THREADS) {
            float *to = x + r * pitch + 4 * j;
            if (32 * j < p.k) {
                gw_copy_async(to, from + 32 * j);
            } else {
                const four none = {{0.0f, 0.0f, 0.0f, 0.0f}};
                *(four *)to = none;
            }
        }
    }
    gw_copy_commit();
    gw_copy_wait<0>();
    __syncthreads();
    const float *own = x + (mine < rows ? mine : 0) * pitch + chain % 4;
    float v = 0.0f;
#pragma unroll 8
    for (int u = 0; u < records; u++) {
        const four w = a[u * CHAINS + chain];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v = GW_FMA(w.v[e], own[16 * u + 4 * e], v);
        }
    }
    v = v + gw_shuffle_xor(v, 1);
    v = v + gw_shuffle_xor(v, 2);
    if (chain % 4 == 0 && mine < rows) {
        p.sums[((size_t)list[mine] * p.n + first + chain / 4) * GW_LORA_CLASSES + q] = v;
    }
    join_classes(p, list, rows, first, GW_LORA_FEW_A, &before);
}

/* Four columns of a row of k, or zeros for those beyond it. */
GW_DEVICE four four_of(const float *row, int column, int k) {
    four v = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (column < k && k % 4 == 0) {
        return *(const four *)(row + column);
    }
#pragma unroll
    for (int t = 0; t < 4; t++) {
        v.v[t] = column + t < k ? row[column + t] : 0.0f;
    }
    return v;
}

/* Many rows. EACH rows of x of a thread, and two of the strip, in one lane of the class: a chain is
 * 16 bytes of each record. PIECE records of x and of the class's part of A in shared memory at a
 * time. */
template <int EACH, int PIECE> struct lora_a_desk {
    enum {
        ROWS = GW_LORA_GROUPS * EACH,
        STEP = ROWS + 4,                              /* lanes of a wave in different banks */
        ITEMS = PIECE * 4 * ROWS / GW_LORA_A_THREADS, /* of x, four columns each, of a thread */
        COPIES = PIECE * 64 / GW_LORA_A_THREADS
    };
    four a[2][PIECE * 64];      /* [record][row of the strip][lane of the class] */
    float x[PIECE * 16 * STEP]; /* [term][lane of the class][row] */
    int list[ROWS], counts[GW_LORA_A_THREADS / GW_LANES];
    unsigned before;
};

template <int EACH, int PIECE> struct lora_a {
    typedef lora_a_desk<EACH, PIECE> desk;
    enum { ROWS = desk::ROWS, STEP = desk::STEP, ITEMS = desk::ITEMS };
    const gw_lora_a_params &p;
    desk &d;
    int q, rows, records;

    __device__ inline lora_a(const gw_lora_a_params &params, desk &shared)
        : p(params), d(shared), q((int)blockIdx.x % GW_LORA_CLASSES) {
        records = (p.k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS;
    }
    /* Records [record, record + PIECE) of A, whose first is at w; rows beyond the last are the last
     * one's again. */
    __device__ inline void ask(int slot, int record) const {
#pragma unroll
        for (int c = 0; c < (int)desk::COPIES; c++) {
            const int i = c * GW_LORA_A_THREADS + (int)threadIdx.x, at = record + i / 64;
            const int of = (int)blockIdx.y * GW_STRIP_ROWS + i % 64 / 4;
            const int row = (int)blockIdx.z * p.n + (of < p.n ? of : p.n - 1);
            const uint8_t *w = p.a + ((size_t)(row / GW_STRIP_ROWS) * records + at) * RECORD +
                               1024 * q + 64 * (row % GW_STRIP_ROWS) + 16 * (i % 4);
            gw_copy_async_if(at < records, d.a[slot] + i, w);
        }
        gw_copy_commit();
    }
    /* Items of a piece from `record` on: columns 32 j + 4 q .. + 3 of a row. */
    __device__ inline void fetch(int record, four *v) const {
#pragma unroll
        for (int i = 0; i < (int)ITEMS; i++) {
            const int item = i * GW_LORA_A_THREADS + (int)threadIdx.x, row = item % ROWS;
            const size_t of = row < rows ? (size_t)(d.list[row] / p.used) : 0;
            v[i] =
                four_of(p.x + of * (size_t)p.k, record * GW_STRIP_FLOATS + item / ROWS * 32 + 4 * q,
                        row < rows ? p.k : 0);
        }
    }
    __device__ inline void store(const four *v) const {
#pragma unroll
        for (int i = 0; i < (int)ITEMS; i++) {
            const int item = i * GW_LORA_A_THREADS + (int)threadIdx.x;
            float *to = d.x + item / ROWS * 4 * STEP + item % ROWS;
#pragma unroll
            for (int t = 0; t < 4; t++) {
                to[t * STEP] = v[i].v[t];
            }
        }
    }
    /* Records [0, n) of a piece; r: the first of the thread's two rows, eight before the other. */
    __device__ inline void add(const four *a, int n, const float *x, float (*sums)[EACH]) const {
#pragma unroll 2
        for (int u = 0; u < n; u++, x += 16 * STEP, a += 64) {
            const four w[2] = {a[0], a[32]};
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const float v = x[e * 4 * STEP + i];
                    sums[0][i] = GW_FMA(w[0].v[e], v, sums[0][i]);
                    sums[1][i] = GW_FMA(w[1].v[e], v, sums[1][i]);
                }
            }
        }
    }
    __device__ inline void run(void) {
        const int id = (int)threadIdx.x, r = id % 32 / 4, t = id % 4, group = id / 32;
        const int tile = (int)blockIdx.x / GW_LORA_CLASSES, place = (int)blockIdx.z;
        rows = place > 0
                   ? entries_of<GW_LORA_A_THREADS>(p, place, tile * ROWS, ROWS, d.list, d.counts)
                   : 0;
        if (rows > 0) { /* weights, before the wait */
            ask(0, 0);
        }
        gw_grid_launch_dependents();
        gw_grid_dependency_wait();
        if (place == 0) {
            leave_zeros(p, (int)blockIdx.y * GW_STRIP_ROWS, GW_STRIP_ROWS);
        }
        if (rows <= 0) {
            return;
        }
        const float *x = d.x + t * STEP + group * EACH;
        float sums[2][EACH];
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            sums[0][n] = sums[1][n] = 0.0f;
        }
        four v[ITEMS];
        fetch(0, v);
        int slot = 0;
#pragma unroll 1
        for (int record = 0; record < records; record += PIECE, slot = 1 - slot) {
            __syncthreads();
            ask(1 - slot, record + PIECE);
            store(v);
            gw_copy_wait<1>();
            __syncthreads();
            if (record + PIECE < records) {
                fetch(record + PIECE, v);
            }
            add(d.a[slot] + 4 * r + t, records - record < PIECE ? records - record : PIECE, x,
                sums);
        }
        gw_copy_wait<0>();
        leave(r, t, group, sums);
    }
    /* The class's lanes are joined here. */
    __device__ inline void leave(int r, int t, int group, const float (*sums)[EACH]) const {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = (int)blockIdx.y * GW_STRIP_ROWS + r + 8 * h;
#pragma unroll
            for (int n = 0; n < EACH; n++) {
                float v = sums[h][n];
                v = v + gw_shuffle_xor(v, 1);
                v = v + gw_shuffle_xor(v, 2);
                const int mine = group * EACH + n;
                if (t == 0 && mine < rows && i < p.n) {
                    p.sums[((size_t)d.list[mine] * p.n + i) * GW_LORA_CLASSES + q] = v;
                }
            }
        }
        join_classes(p, d.list, rows, (int)blockIdx.y * GW_STRIP_ROWS, GW_STRIP_ROWS, &d.before);
    }
};

GW_KERNEL(gw_lora_a_tile, struct gw_lora_a_params, GW_LORA_A_THREADS) {
    typedef lora_a<GW_LORA_MANY, 8> A;
    __shared__ A::desk desk;
    A(p, desk).run();
}

/* ---- B --------------------------------------------------------------------------------------- */

/* Rows of B of neighbouring columns in registers, COLUMNS of them that have their values in the
 * same columns of B; of any rank, one where it lies. */
template <int RANK, int COLUMNS> struct b_rows {
    float w[COLUMNS][RANK];
    __device__ inline void load(const float *from, int wide, int) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
            for (int i = 0; i < RANK; i += 4) {
                const four v = *(const four *)(from + (size_t)c * wide + i);
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    w[c][i + t] = v.v[t];
                }
            }
        }
    }
    __device__ inline void times(const float *a, float *sum) const {
        float z[COLUMNS][RANK / 4];
#pragma unroll
        for (int i = 0; i < RANK; i += 4) {
            const four x = *(const four *)(a + i);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float v[4];
#pragma unroll
                for (int t = 0; t < 4; t++) {
                    v[t] = GW_FMA(w[c][i + t], x.v[t], 0.0f);
                }
                z[c][i / 4] = (v[0] + v[1]) + (v[2] + v[3]);
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
            for (int h = 1; h < RANK / 4; h *= 2) {
#pragma unroll
                for (int i = 0; i < RANK / 4; i += 2 * h) {
                    z[c][i] = z[c][i] + z[c][i + h];
                }
            }
            sum[c] = z[c][0];
        }
    }
};
template <> struct b_rows<0, 1> {
    const float *w = 0;
    int n = 0;
    __device__ inline void load(const float *from, int, int rank) {
        w = from;
        n = rank;
    }
    __device__ inline void times(const float *a, float *sum) const {
        float v[GW_LANES];
#pragma unroll
        for (int i = 0; i < GW_LANES; i++) {
            v[i] = 0.0f;
        }
        for (int base = 0; base < n; base += GW_LANES) {
#pragma unroll
            for (int i = 0; i < GW_LANES; i++) {
                v[i] = base + i < n ? GW_FMA(w[base + i], a[base + i], v[i]) : v[i];
            }
        }
#pragma unroll
        for (int h = 1; h < GW_LANES; h *= 2) {
#pragma unroll
            for (int i = 0; i < GW_LANES; i += 2 * h) {
                v[i] = v[i] + v[i + h];
            }
        }
        *sum = v[0];
    }
};

enum { B_VALUES = 4 * 3 * 32 }; /* of a row in shared memory, most: adapters, matrices, rank */

/* A tile's rows by their last adapter, in increasing order, so that a thread reads its rows of B
 * once for all that have it; and what the route says of them. */
struct b_desk {
    int order[GW_LORA_B_ROWS], place[GW_LORA_B_ROWS * 4];
    float scale[GW_LORA_B_ROWS * 4];

    __device__ inline void fill(const gw_lora_b_params &p, int first, int rows) {
        const int id = (int)threadIdx.x, last = p.used - 1;
        if (id < rows * p.used) {
            const float *route = p.route + (size_t)(first + id / p.used) * 2 * p.used;
            place[id] = (int)route[id % p.used];
            scale[id] = route[p.used + id % p.used];
        }
        __syncthreads();
        if (id < rows) {
            int before = 0;
            for (int i = 0; i < rows; i++) {
                const int other = place[i * p.used + last], own = place[id * p.used + last];
                before += other < own || (other == own && i < id);
            }
            order[before] = id;
        }
        __syncthreads();
    }
};

template <int RANK> __device__ static inline void lora_b(const gw_lora_b_params &p) {
    enum { AHEAD = 8, COLUMNS = RANK > 0 ? GW_LORA_B_COLUMNS : 1 };
    struct __align__(4 * COLUMNS) some {
        float v[COLUMNS];
    };
    __shared__ b_desk d;
    __shared__ __align__(16) float held[RANK > 0 ? GW_LORA_B_ROWS * B_VALUES : 4];
    const int c = COLUMNS * ((int)blockIdx.x * GW_LORA_B_THREADS + (int)threadIdx.x);
    const int first = (int)blockIdx.y * p.rows, left = gw_live(p.step) - first;
    const int rows = left < p.rows ? left : p.rows, row = p.used * p.wide;
    gw_grid_launch_dependents();
    if (rows <= 0) {
        gw_grid_dependency_wait();
        return;
    }
    d.fill(p, first, rows);
    const int part = c < p.end[0] ? p.part[0] : c < p.end[1] ? p.part[1] : p.part[2];
    const float *b = p.b + (size_t)c * p.wide + part * p.rank;
    b_rows<RANK, COLUMNS> w;
    int has = d.place[d.order[0] * p.used]; /* the adapter of w */
    if (part >= 0 && c < p.m && has > 0) {  /* weights, before the wait */
        w.load(b + (size_t)has * p.m * p.wide, p.wide, p.rank);
    }
    gw_grid_dependency_wait();
    const float *a = p.a + (size_t)first * row;
    if (RANK > 0) {
        for (int i = 4 * (int)threadIdx.x; i < rows * row; i += 4 * GW_LORA_B_THREADS) {
            *(four *)(held + i) = *(const four *)(a + i);
        }
        a = held;
        __syncthreads();
    }
    a += part * p.rank;
    if (c >= p.m) {
        return;
    }
#pragma unroll 1
    for (int j = 0; j < rows; j += AHEAD) {
        some y[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int n = d.order[j + i < rows ? j + i : j];
            if (p.addend) {
                y[i] = *(const some *)(p.addend + (size_t)(first + n) * p.m + c);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (j + i >= rows) {
                break;
            }
            const int n = d.order[j + i];
            some acc;
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                acc.v[k] = 0.0f;
            }
            for (int u = 0; u < p.used && part >= 0; u++) {
                const int x = d.place[n * p.used + u];
                if (x > 0) {
                    float sum[COLUMNS];
                    if (x != has) {
                        has = x;
                        w.load(b + (size_t)x * p.m * p.wide, p.wide, p.rank);
                    }
                    w.times(a + n * row + u * p.wide, sum);
#pragma unroll
                    for (int k = 0; k < COLUMNS; k++) {
                        acc.v[k] = GW_FMA(d.scale[n * p.used + u], sum[k], acc.v[k]);
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < COLUMNS; k++) {
                acc.v[k] = p.addend ? y[i].v[k] + acc.v[k] : acc.v[k];
            }
            *(some *)(p.y + (size_t)(first + n) * p.m + c) = acc;
        }
    }
}

#define LORA_B(name, rank)                                                                         \
    GW_KERNEL(gw_lora_b_##name, struct gw_lora_b_params, GW_LORA_B_THREADS) { lora_b<rank>(p); }
LORA_B(8, 8)
LORA_B(16, 16)
LORA_B(32, 32)
LORA_B(more, 0)
