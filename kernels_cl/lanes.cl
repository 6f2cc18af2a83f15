/* kernels_cl/lanes.cl - float weights in GW_CL_LAYOUT_LANES: a piece of 512 bytes holds 16 bytes
 * per lane, elements lane, lane + 32, ... of it. A unit is one lane's part of a piece.
 * Behind a piece of E4M3 come the floats of its four blocks of 128; a lane of NVFP4 has 8 bytes,
 * and behind those of all come the four floats, and twice 16 scales: of lanes below 16, of others.
 */
#if !defined(GW_ITEM) && (defined(FORMAT_F32) || defined(FORMAT_F16) || defined(FORMAT_BF16) ||    \
                          defined(FORMAT_E4M3) || defined(FORMAT_NVFP4))

#if defined(FORMAT_F32)
#define PER_LANE 4
#elif defined(FORMAT_E4M3) || defined(FORMAT_NVFP4)
#define PER_LANE 16
#else
#define PER_LANE 8
#endif
#define PIECE (TEAM * PER_LANE)

#define WEIGHTS IN(w), const ulong high_at, const ulong head_at, const ulong sub_at
#define PLANES w_buf + w_off, high_at, head_at, sub_at
#define PLANE_ARGS __global const uchar *w, ulong high_at, ulong head_at, ulong sub_at

#if defined(FORMAT_E4M3)
#define PIECE_WORDS (TEAM + 1) /* of 16 bytes */

typedef struct wraw {
    uint4 codes, scales;
} wraw;

static inline wraw fetch(PLANE_ARGS, int row, int unit, int units) {
    __global const uint4 *piece =
        (__global const uint4 *)w +
        ((size_t)row * (units / TEAM) + unit / TEAM) * PIECE_WORDS;
    wraw o;
    o.codes = load_once(piece + unit % TEAM);
    o.scales = piece[TEAM];
    return o;
}

static inline float element_at(__global const uchar *w, size_t row, int i, int k) {
    __global const uchar *piece =
        w + (row * ((k + PIECE - 1) / PIECE) + i / PIECE) * PIECE_WORDS * 16;
    __global const float *scales = (__global const float *)(piece + TEAM * 16);
    return gw_e4m3_value(piece[i % TEAM * PER_LANE + i % PIECE / TEAM]) *
           scales[i % PIECE / GW_E4M3_BLOCK];
}
#elif defined(FORMAT_NVFP4)
#define PIECE_WORDS (TEAM / 2 + 3) /* of 16 bytes */

typedef struct wraw {
    uint2 codes;
    uint4 floats, scales;
} wraw;

static inline wraw fetch(PLANE_ARGS, int row, int unit, int units) {
    __global const uint4 *piece =
        (__global const uint4 *)w +
        ((size_t)row * (units / TEAM) + unit / TEAM) * PIECE_WORDS;
    const int lane = unit % TEAM;
    wraw o;
    o.codes = ((__global const uint2 *)piece)[lane];
    o.floats = piece[TEAM / 2];
    o.scales = piece[TEAM / 2 + 1 + lane / 16];
    return o;
}

static inline float element_at(__global const uchar *w, size_t row, int i, int k) {
    __global const uchar *piece =
        w + (row * ((k + PIECE - 1) / PIECE) + i / PIECE) * PIECE_WORDS * 16;
    const int lane = i % TEAM, j = i % PIECE / TEAM;
    const float scale = gw_e4m3_value(piece[272 + lane / 16 * 16 + j]) *
                        ((__global const float *)(piece + 256))[j / 4];
    return gw_nvfp4_value((uint)piece[lane * 8 + j / 2] >> j % 2 * 4 & 15u) * scale;
}
#else
typedef uint4 wraw;

static inline wraw fetch(PLANE_ARGS, int row, int unit, int units) {
    return load_once((__global const uint4 *)w + (size_t)row * units + unit);
}
#endif

static inline void widen(wraw v, float *w) {
#if defined(FORMAT_E4M3)
    const uint codes[4] = {v.codes.s0, v.codes.s1, v.codes.s2, v.codes.s3};
    const float scales[4] = {as_float(v.scales.s0), as_float(v.scales.s1), as_float(v.scales.s2),
                             as_float(v.scales.s3)};
    UNROLL
    for (int i = 0; i < 4; i++) { /* two binary16 of a word, then the two between */
        const uint even = (codes[i] & 0x00800080u) << 8 | (codes[i] & 0x007f007fu) << 7;
        const uint odd = (codes[i] & 0x80008000u) | (codes[i] >> 1 & 0x3f803f80u);
        w[4 * i] = widen_half(even & 0xffffu) * scales[i];
        w[4 * i + 1] = widen_half(odd & 0xffffu) * scales[i];
        w[4 * i + 2] = widen_half(even >> 16) * scales[i];
        w[4 * i + 3] = widen_half(odd >> 16) * scales[i];
    }
#elif defined(FORMAT_NVFP4)
    const uint codes[2] = {v.codes.s0, v.codes.s1};
    const uint scales[4] = {v.scales.s0, v.scales.s1, v.scales.s2, v.scales.s3};
    const float floats[4] = {as_float(v.floats.s0), as_float(v.floats.s1), as_float(v.floats.s2),
                             as_float(v.floats.s3)};
    UNROLL
    for (int j = 0; j < PER_LANE; j++) {
        const uint code = codes[j / 8] >> j % 8 * 4, s = scales[j / 4] >> j % 4 * 8;
        const float scale = widen_half((s & 128u) << 8 | (s & 127u) << 7) * floats[j / 4];
        w[j] = widen_half((code & 8u) << 12 | (code & 7u) << 9) * scale;
    }
#elif defined(FORMAT_F32)
    w[0] = as_float(v.s0), w[1] = as_float(v.s1), w[2] = as_float(v.s2), w[3] = as_float(v.s3);
#else
    uint a[4] = {v.s0, v.s1, v.s2, v.s3};
    UNROLL
    for (int i = 0; i < 4; i++) {
#if defined(FORMAT_BF16)
        w[2 * i] = as_float(a[i] << 16);
        w[2 * i + 1] = as_float(a[i] & 0xffff0000u);
#else
        w[2 * i] = widen_half(a[i] & 0xffffu);
        w[2 * i + 1] = widen_half(a[i] >> 16);
#endif
    }
#endif
}

#ifdef TILE

#define PER_UNIT PER_LANE
#define UNITS(k) (((k) + PIECE - 1) / PIECE * TEAM)
#define TILE_VALUES (EACH * PER_LANE) /* of one row */
#ifdef RAGGED
#define TILE_LOADS ((TILE_VALUES + GROUP - 1) / GROUP)
#else
#define TILE_LOADS ((TILE_VALUES / 4 + GROUP - 1) / GROUP)
#endif
#define TILE_LOCALS(X) X(float, tile, TILE * PER_LANE)
#define TILE_ARGS __local float *tile
#define TILE_PASS tile

/* The values of units [from, from + EACH) of rows t0 .. t0 + N - 1, zeros beyond what there is. */
static inline void stage(__global const uchar *x, int t0, int live, int k, int from, TILE_ARGS,
                         int id) {
    const int first = from * PER_LANE;
    for (int i = id; i < TILE_VALUES * N; i += GROUP) {
        int t = i / TILE_VALUES, at = first + i % TILE_VALUES;
        __global const float *row = (__global const float *)x + (size_t)(t0 + t) * k;
        tile[i] = t < live && at < k ? row[at] : 0.0f;
    }
}

#if N == 1
/* An item's part of a row that a tile holds, on its way there. */
typedef struct share {
#ifdef RAGGED
    float v[TILE_LOADS];
#else
    float4 v[TILE_LOADS];
#endif
} share;

static inline void take(share *s, __global const uchar *x, int k, int id) {
#ifndef RAGGED
    k /= 4;
#endif
    UNROLL
    for (int j = 0; j < TILE_LOADS; j++) {
        const int i = id + GROUP * j;
#ifdef RAGGED
        s->v[j] = i < k ? ((__global const float *)x)[i] : 0.0f;
#else
        s->v[j] = i < k ? ((__global const float4 *)x)[i] : 0.0f;
#endif
    }
}

static inline void put(const share *s, TILE_ARGS, int id) {
    UNROLL
    for (int j = 0; j < TILE_LOADS; j++) {
        const int i = id + GROUP * j;
#ifdef RAGGED
        if (i < TILE_VALUES) {
            tile[i] = s->v[j];
        }
#else
        if (i < TILE_VALUES / 4) {
            ((__local float4 *)tile)[i] = s->v[j];
        }
#endif
    }
}
#endif

/* The unit of two weight rows times that of N activation rows. at: its place in the tile; left:
 * values from the tile's first to the row's end. */
static inline void add_pair(const wraw *a, const wraw *b, TILE_ARGS, int at, int left,
                            float acc[2][N]) {
    float wa[PER_LANE], wb[PER_LANE];
    const int first = at / TEAM * PIECE + at % TEAM;
    widen(*a, wa);
    widen(*b, wb);
    UNROLL
    for (int j = 0; j < PER_LANE; j++) {
        const int i = first + TEAM * j;
#ifdef RAGGED
        if (i >= left) {
            continue;
        }
#endif
        UNROLL
        for (int t = 0; t < N; t++) {
            float v = tile[t * TILE_VALUES + i];
            acc[0][t] = fma(wa[j], v, acc[0][t]);
            acc[1][t] = fma(wb[j], v, acc[1][t]);
        }
    }
}
#endif

#ifdef NORM_WIDTH
/* Quarter i of the row, but for its factor, into the tile. */
static inline void put_normed(float4 low, float4 high, int i, __global uchar *out, TILE_ARGS,
                              __local uint *scratch, int id) {
    if (QUARTER_LOW(i) < NORM_WIDTH / 4) {
        ((__local float4 *)tile)[QUARTER_LOW(i)] = low;
    }
    if (QUARTER_HIGH(i) < NORM_WIDTH / 4) {
        ((__local float4 *)tile)[QUARTER_HIGH(i)] = high;
    }
}

/* What the factor goes to: one by one, by the items in order. */
#define NORM_SCALED (NORM_WIDTH / 4)
static inline void scale_normed(float by, __global uchar *out, TILE_ARGS, int id) {
    for (int i = id; i < NORM_SCALED; i += GROUP) {
        const float4 v = ((__local float4 *)tile)[i] * by;
        ((__local float4 *)tile)[i] = v;
        if (out != 0) {
            ((__global float4 *)out)[i] = v;
        }
    }
}
#endif

#endif
