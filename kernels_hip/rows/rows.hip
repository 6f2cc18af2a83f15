/* kernels_hip/rows/rows.hip - the step block, and the ops that treat each row on its own: EMBED,
 * PICK, NORM, QUANTIZE, ROPE_KV. */
#include "kernels_hip/act8.h"
#include "kernels_hip/device.h"
#include "kernels_hip/rows/rope.h"
#include "kernels_hip/rows/row_leave.h"
#include "kernels_hip/rows/rows_params.h"
#include "core/tensor/blocks.h"
#include "core/tensor/nvfp4.h"
#include "core/tensor/planes.h"

/* ---- the step block -------------------------------------------------------------------------- */

/* No launch behind it begins before it has ended: they read the step without waiting for others. A
 * load from pinned memory takes a microsecond, so a thread has several in flight, and the first
 * ones do not wait for the number of live rows. Each word is loaded once: loads of one word by all
 * warps are served one after the other (30 us a step on an H100 when all threads loaded the head).
 */
GW_KERNEL(gw_take_step, struct gw_take_step_params, GW_TAKE_THREADS) {
    enum { AT_ONCE = 8 };
    __shared__ int head[GW_STEP_ROWS];
    const volatile int32_t *from = (const volatile int32_t *)p.from;
    const int mine = (int)threadIdx.x, threads = (int)blockDim.x;
    const int first = mine < p.n ? from[mine] : 0;
    if (mine < GW_STEP_ROWS) {
        head[mine] = first;
    }
    __syncthreads();
    const int live = max(head[GW_STEP_N], head[GW_STEP_N_PICK]);
    const int n = min(p.n, GW_STEP_ROWS + GW_STEP_OF_ROW * live);
    if (mine < n) {
        p.to[mine] = first;
    }
#pragma unroll 1
    for (int i = mine + threads; i < n; i += AT_ONCE * threads) {
        int32_t words[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = i + k * threads;
            words[k] = at < n ? from[at] : 0;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int at = i + k * threads;
            if (at < n) {
                p.to[at] = words[k];
            }
        }
    }
}

/* ---- EMBED ----------------------------------------------------------------------------------- */

GW_DEVICE int64_t token_of(const struct gw_embed_params &p, int row) {
    const int token = gw_step_token(p.step, row);
    return token >= 0 ? token : max(p.ids[row], 0);
}

GW_DEVICE int embed_first(void) { return 4 * (int)(blockIdx.x * blockDim.x + threadIdx.x); }

/* element(from, j): of the row from on. */
#define EMBED_ELEMENTS(format, type, element)                                                      \
    GW_KERNEL(gw_embed_##format, struct gw_embed_params, GW_ROWS_THREADS) {                        \
        const int row = (int)blockIdx.y, i = embed_first();                                        \
        gw_grid_launch_dependents();                                                               \
        gw_grid_dependency_wait();                                                                 \
        if (row >= gw_live(p.step)) {                                                              \
            return;                                                                                \
        }                                                                                          \
        const type *from = (const type *)(p.table + token_of(p, row) * p.row_bytes);               \
        row_four v;                                                                                \
        for (int j = 0; j < 4; j++) {                                                              \
            v.v[j] = i + j < p.width ? element(from, i + j) : 0.0f;                                \
        }                                                                                          \
        row_leave(p, row, i, v);                                                                   \
    }
#define EMBED_F32(from, j) (from)[j]
#define EMBED_F16(from, j) gw_f16_to_f32((from)[j])
#define EMBED_BF16(from, j) gw_bf16_to_f32((from)[j])
EMBED_ELEMENTS(f32, float, EMBED_F32)
EMBED_ELEMENTS(f16, gw_u16, EMBED_F16)
EMBED_ELEMENTS(bf16, gw_u16, EMBED_BF16)
EMBED_ELEMENTS(e4m3, gw_block_e4m3, gw_e4m3_weight)
EMBED_ELEMENTS(nvfp4_codes, gw_block_nvfp4, gw_nvfp4_weight)

/* A thread unpacks 32 weights, block b of the row, for eight. */
enum { EMBED_EACH = GW_ROWS_THREADS * 4 / 32, EMBED_STEP = 36 };
#define EMBED(format, unpack)                                                                      \
    GW_KERNEL(gw_embed_##format, struct gw_embed_params, GW_ROWS_THREADS) {                        \
        __shared__ __align__(16) float blocks[EMBED_EACH * EMBED_STEP];                            \
        const int row = (int)blockIdx.y, i = embed_first(), id = (int)threadIdx.x;                 \
        gw_grid_launch_dependents();                                                               \
        gw_grid_dependency_wait();                                                                 \
        if (row >= gw_live(p.step)) {                                                              \
            return;                                                                                \
        }                                                                                          \
        const int b = (int)blockIdx.x * EMBED_EACH + id;                                           \
        if (id < EMBED_EACH && b < p.width / 32) {                                                 \
            const uint8_t *from = p.table + token_of(p, row) * p.row_bytes;                        \
            float w[32];                                                                           \
            unpack;                                                                                \
            for (int k = 0; k < 32; k++) {                                                         \
                blocks[id * EMBED_STEP + k] = w[k];                                                \
            }                                                                                      \
        }                                                                                          \
        __syncthreads();                                                                           \
        row_four v = {{0.0f, 0.0f, 0.0f, 0.0f}};                                                   \
        if (i < p.width) {                                                                         \
            v = row_read(blocks + id / 8 * EMBED_STEP + id % 8 * 4);                               \
        }                                                                                          \
        row_leave(p, row, i, v);                                                                   \
    }
#define EMBED_BLOCKS(format, subs)                                                                 \
    EMBED(format, gw_##format##_weights((const gw_block_##format *)from + b / subs, b % subs, w))
#define EMBED_INT4(format, subs)                                                                   \
    EMBED(format,                                                                                  \
          gw_int4_weights(&((const gw_block_##format *)from)[b / subs].head,                       \
                          ((const gw_block_##format *)from)[b / subs].nibbles, b % subs, w))
EMBED_BLOCKS(q8_0, 1)
EMBED_BLOCKS(q4_0, 1)
EMBED_BLOCKS(q4_1, 1)
EMBED_BLOCKS(q5_0, 1)
EMBED_BLOCKS(q5_1, 1)
EMBED_BLOCKS(q2_k, 8)
EMBED_BLOCKS(q3_k, 8)
EMBED_BLOCKS(q4_k, 8)
EMBED_BLOCKS(q5_k, 8)
EMBED_BLOCKS(q6_k, 8)
EMBED_BLOCKS(iq4_nl, 1)
EMBED_BLOCKS(iq4_xs, 8)
EMBED_BLOCKS(mxfp4, 1)
EMBED_BLOCKS(bl3h_b64, 2)
#define EMBED_PLANES(unused, FORMAT, name, low, high, offset, levels, term, sub, share, head)      \
    EMBED_BLOCKS(name, share)
GW_PLANE_FORMATS(EMBED_PLANES, 0)
EMBED(int8, gw_int8_weights((const gw_row_int8 *)from,
                            (const gw_block_int8 *)(from + sizeof(gw_row_int8)) + b, w))
EMBED_INT4(int4_g32, 1)
EMBED_INT4(int4_g64, 2)
EMBED_INT4(int4_g128, 4)
EMBED_INT4(int4_g256, 8)

/* ---- PICK, QUANTIZE -------------------------------------------------------------------------- */

GW_KERNEL(gw_pick, struct gw_pick_params, GW_ROWS_THREADS) {
    const int row = (int)blockIdx.y;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= p.step.step[GW_STEP_N_PICK]) {
        return;
    }
    const float *from = p.in + (size_t)(p.step.step[GW_STEP_PICK] + row) * p.width;
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < p.width;
         i += (int)(gridDim.x * blockDim.x)) {
        p.out[(size_t)row * p.width + i] = from[i];
    }
}

GW_KERNEL(gw_quantize, struct gw_quantize_params, GW_ROWS_THREADS) {
    const int row = (int)blockIdx.y, blocks = p.width / GW_ACT_BLOCK;
    const int teams = GW_ROWS_THREADS / GW_LANES;
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    if (row >= gw_live(p.step)) {
        return;
    }
    for (int b = (int)blockIdx.x * teams + gw_team(); b < blocks; b += (int)gridDim.x * teams) {
        const int i = b * GW_ACT_BLOCK + gw_lane(), from = p.columns ? (int)p.columns[i] : i;
        gw_team_encode(p.out, (size_t)row * blocks + b, p.form, p.in[(size_t)row * p.width + from]);
    }
}

/* ---- other forms of rows --------------------------------------------------------------------- */

/* A thread per block; whole teams, whose lanes hold neighbours. */
GW_KERNEL(gw_act8_group, struct gw_act8_group_params, GW_ROWS_THREADS) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int row = (int)blockIdx.y, b = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int padded = (p.blocks + GW_ACT_GROUP - 1) / GW_ACT_GROUP * GW_ACT_GROUP;
    if (row >= gw_live(p.step)) {
        return;
    }
    gw_act8 block = {0.0f, {0, 0}, {0}};
    if (p.plain && b < p.blocks) {
        block = ((const gw_act8 *)p.from)[(size_t)row * p.blocks + b];
    } else if (!p.plain && b < padded) {
        const int i = b % GW_ACT_GROUP;
        const unsigned *group = (const unsigned *)p.from +
                                (size_t)((row * padded + b) / GW_ACT_GROUP) * GW_ACT_GROUP_WORDS;
        unsigned *words = (unsigned *)&block;
        words[0] = group[i];
        words[1] = group[GW_ACT_GROUP + i];
        for (int word = 0; word < 8; word++) {
            words[2 + word] = group[gw_group_word(i, word)];
        }
    }
    if (p.form == GW_FORM_SPAN) {
        gw_span_blocks((unsigned *)&block);
    }
    if (b < padded) {
        gw_store_act8(p.to, (size_t)row * padded + b,
                      p.form == GW_FORM_SPAN ? (int)GW_FORM_SCALED : p.form, block);
    }
}

GW_KERNEL(gw_pad, struct gw_pad_params, GW_ROWS_THREADS) {
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (row < gw_live(p.step) && i < p.padded) {
        p.to[(size_t)row * p.padded + i] = i < p.width ? p.from[(size_t)row * p.width + i] : 0.0f;
    }
}

/* ---- NORM ------------------------------------------------------------------------------------ */

/* A thread has all of its values and weights on their way at once, of up to GW_NORM_PIECE. */
enum { NORM_STEP = 4 * GW_NORM_THREADS, NORM_FOURS = GW_NORM_PIECE / NORM_STEP };

/* Four neighbours of a row of `width` from i on; beyond it 0. WHOLE: the width is a multiple of 4,
 * and rows begin at 16 bytes. */
template <int WHOLE>
__device__ static inline row_four norm_take(const float *row, int width, int i) {
    row_four r = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (WHOLE) {
        return i < width ? row_read(row + i) : r;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        r.v[j] = i + j < width ? row[i + j] : 0.0f;
    }
    return r;
}

/* Those that this thread has of a piece. */
template <int WHOLE>
__device__ static inline void norm_ask(const float *row, int width, row_four *fours) {
#pragma unroll
    for (int k = 0; k < NORM_FOURS; k++) {
        fours[k] = norm_take<WHOLE>(row, width, 4 * (int)threadIdx.x + k * NORM_STEP);
    }
}

/* What a row's blocks have of its sum of squares, a piece of it. */
struct norm_desk {
    float squares[GW_NORM_PIECE / GW_ACT_BLOCK];
};

/* put(i, values, factor): four of the row times the weights, from i on, and what they still lack;
 * whole teams, beyond the width of zeros. */
template <int WHOLE, class Put>
__device__ static inline void norm_row(const struct gw_norm_params &p, norm_desk &desk, Put put) {
    const int row = (int)blockIdx.x, n = p.width, live = gw_live(p.step), lane = gw_lane();
    const int mine = 4 * (int)threadIdx.x, end = (n + 127) / 128 * 128; /* whole teams */
    row_four weights[NORM_FOURS], values[NORM_FOURS];
    norm_ask<WHOLE>(p.weight, n, weights);
    gw_grid_dependency_wait();
    if (row >= live) {
        return;
    }
    const float *x = p.in + (size_t)row * n;
    norm_ask<WHOLE>(x, n, values);
    float sum = 0.0f;
    for (int base = 0; base < n; base += GW_NORM_PIECE) {
        if (base > 0) {
            __syncthreads();
            norm_ask<WHOLE>(x + base, n - base, values);
        }
#pragma unroll
        for (int k = 0; k < NORM_FOURS; k++) {
            const float square = row_squares(values[k]);
            if (lane % 8 == 0) {
                desk.squares[(mine + k * NORM_STEP) / GW_ACT_BLOCK] = square;
            }
        }
        __syncthreads();
        for (int b = lane; b * GW_ACT_BLOCK < min(n - base, (int)GW_NORM_PIECE); b += GW_LANES) {
            sum = sum + desk.squares[b];
        }
    }
    const float factor = gw_rms_scale(gw_fold(sum), n, p.eps);
    for (int base = 0; base < n; base += GW_NORM_PIECE) {
        if (n > GW_NORM_PIECE) {
            norm_ask<WHOLE>(x + base, n - base, values);
            norm_ask<WHOLE>(p.weight + base, n - base, weights);
        }
#pragma unroll
        for (int k = 0; k < NORM_FOURS; k++) {
            const int i = base + mine + k * NORM_STEP;
            if (i < end) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    values[k].v[j] = values[k].v[j] * weights[k].v[j];
                }
                put(i, values[k], factor);
            }
        }
    }
}

template <int WHOLE>
__device__ static inline void norm_f32(const struct gw_norm_params &p, norm_desk &desk) {
    const int n = p.width;
    float *out = (float *)p.out + (size_t)blockIdx.x * n;
    norm_row<WHOLE>(p, desk, [&](int i, row_four v, float factor) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v.v[j] = v.v[j] * factor;
        }
        if (WHOLE && i < n) {
            *(row_four *)(out + i) = v;
        }
#pragma unroll
        for (int j = 0; j < (WHOLE ? 0 : 4); j++) {
            if (i + j < n) {
                out[i + j] = v.v[j];
            }
        }
    });
}

GW_KERNEL(gw_norm_f32, struct gw_norm_params, GW_NORM_THREADS) {
    __shared__ norm_desk desk;
    gw_grid_launch_dependents();
    if (p.width % 4 == 0) {
        norm_f32<1>(p, desk);
    } else {
        norm_f32<0>(p, desk);
    }
}

GW_KERNEL(gw_norm_act8, struct gw_norm_params, GW_NORM_THREADS) {
    __shared__ norm_desk desk;
    const int n = p.width;
    const size_t first = (size_t)blockIdx.x * (size_t)(n / GW_ACT_BLOCK);
    gw_grid_launch_dependents();
    norm_row<1>(p, desk, [&](int i, const row_four &v, float factor) {
        gw_act8_four code;
        code.encode(v.v);
        code.scale = GW_F32_BITS(GW_F32_FROM_BITS(code.scale) * factor);
        if (i < n) { /* whole blocks */
            code.store(p.out, first + (size_t)(i / GW_ACT_BLOCK), p.form);
        }
    });
}

/* ---- ROPE_KV --------------------------------------------------------------------------------- */

template <typename PUT> __device__ static inline void rope_kv(const struct gw_rope_kv_params &p) {
    typedef typename PUT::cell cell;
    const struct gw_rope_params &turn = p.turn;
    const int row = (int)blockIdx.y, lane = gw_lane(), e = turn.e;
    const int h = (int)blockIdx.x * (GW_ROWS_THREADS / GW_LANES) + gw_team();
    gw_grid_launch_dependents();
    /* No launch of the pass writes the step and the pages. */
    const int live = gw_live(p.step), pos = gw_step_pos(p.step, row), j = pos % GW_PAGE;
    const int page =
        row < live ? p.pages[(size_t)gw_step_slot(p.step, row) * p.page_stride + pos / GW_PAGE] : 0;
    gw_grid_dependency_wait();
    const int is_k = h >= turn.heads && h < turn.heads + turn.kv_heads;
    if (row >= live || h >= turn.heads + 2 * turn.kv_heads || (is_k && p.without_k)) {
        return; /* whole teams; only teams meet below */
    }
    gw_turning head;
    head.open(turn, row, h, pos - gw_step_less(p.step, row));
    if (h < turn.heads) {
        float *out = turn.out + ((size_t)row * turn.heads + h) * e;
        head.each([&](int i, float v) { out[i] = v; });
        return;
    }
    const int is_v = h >= turn.heads + turn.kv_heads;
    const int g = h - turn.heads - (is_v ? turn.kv_heads : 0);
    uint8_t *tile =
        (uint8_t *)(is_v ? p.v : p.k) + ((size_t)page * turn.kv_heads + g) * (size_t)p.tile_bytes;
    if (!PUT::SCALED) {
        cell *to = (cell *)tile + (is_v ? j * e : j);
        head.each([&](int i, float v) { PUT::put(to, is_v ? i : i * GW_PAGE, 0, 0, v); });
        return;
    }
    gw_u16 *scales = (gw_u16 *)(tile + GW_PAGE * e);
    for (int i = lane; i < e; i += GW_LANES) {
        PUT::put((cell *)tile, is_v ? j * e + i : i * GW_PAGE + j, scales,
                 is_v ? j * (e / 32) + i / 32 : i / 32 * GW_PAGE + j, head.value(i));
    }
}
#define ROPE_KV(format)                                                                            \
    GW_KERNEL(gw_rope_kv_##format, struct gw_rope_kv_params, GW_ROWS_THREADS) {                    \
        rope_kv<gw_put_##format>(p);                                                               \
    }
ROPE_KV(f32)
ROPE_KV(f16)
ROPE_KV(q8_0)

/* K of many rows. A position's cells lie a page apart, those of neighbours side by side: so a block
 * has a head of some rows in shared memory, and then a team stores one value of all of them. */
template <typename PUT> __device__ static inline void rope_k(const struct gw_rope_kv_params &p) {
    enum { TEAMS = GW_ROWS_THREADS / GW_LANES, STEP = GW_ROPE_STEP };
    static_assert((int)GW_ROPE_ROWS == (int)GW_LANES, "a lane has a row");
    typedef typename PUT::cell cell;
    GW_SHARED_DYNAMIC(cell, cells); /* [e, STEP] */
    const struct gw_rope_params &turn = p.turn;
    const int g = (int)blockIdx.x, first = (int)blockIdx.y * (int)GW_ROPE_ROWS, e = turn.e;
    const int lane = gw_lane(), live = gw_live(p.step);
    gw_grid_launch_dependents();
    if (first >= live) {
        gw_grid_dependency_wait(); /* those behind wait for this launch alone */
        return;
    }
    const int row = first + lane < live ? first + lane : first, pos = gw_step_pos(p.step, row);
    const int angle = pos - gw_step_less(p.step, row);
    const int page = p.pages[(size_t)gw_step_slot(p.step, row) * p.page_stride + pos / GW_PAGE];
    const auto tile_of = [&](int page) {
        return (uint8_t *)p.k + ((size_t)page * turn.kv_heads + g) * (size_t)p.tile_bytes;
    };
    gw_grid_dependency_wait();
    for (int r = gw_team(); r < (int)GW_ROPE_ROWS && first + r < live; r += TEAMS) {
        const int its_pos = gw_shuffle(pos, r);
        gw_turning head;
        head.open(turn, first + r, turn.heads + g, gw_shuffle(angle, r));
        if (!PUT::SCALED) {
            head.each([&](int i, float v) { PUT::put(cells, i * STEP + r, 0, 0, v); });
            continue;
        }
        gw_u16 *to = (gw_u16 *)(tile_of(gw_shuffle(page, r)) + GW_PAGE * e);
        for (int i = lane; i < e; i += GW_LANES) {
            PUT::put(cells, i * STEP + r, to, i / 32 * GW_PAGE + its_pos % GW_PAGE, head.value(i));
        }
    }
    __syncthreads();
    if (first + lane < live) {
        cell *to = (cell *)tile_of(page) + pos % GW_PAGE;
        for (int i = gw_team(); i < e; i += TEAMS) {
            to[i * GW_PAGE] = cells[i * STEP + lane];
        }
    }
}
#define ROPE_K(format)                                                                             \
    GW_KERNEL(gw_rope_k_##format, struct gw_rope_kv_params, GW_ROWS_THREADS) {                     \
        rope_k<gw_put_##format>(p);                                                                \
    }
ROPE_K(f32)
ROPE_K(f16)
ROPE_K(q8_0)
