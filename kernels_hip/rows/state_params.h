/* kernels_hip/rows/state_params.h - parameters of the kernels in state.hip, state_prompt.hip,
 * state_step.hip and gates.hip.
 * Widths in elements; buffers are dense rows of that width. */
#ifndef GW_KERNELS_HIP_STATE_PARAMS_H
#define GW_KERNELS_HIP_STATE_PARAMS_H

#include "kernels_hip/params.h"

enum {
    GW_STATE_THREADS = 128,
    GW_STATE_TEAMS = GW_STATE_THREADS / 32,
    GW_SCAN_THREADS = 32,
    GW_SCAN_RECORD = 4, /* floats: decay (by head), strength, and two that make it 16 bytes */
};

/* What a plan must have for the kernels of state_prompt.hip, which list the rows of a sequence in
 * shared memory, so many bytes each; and those of gw_state_prompt_conv that a block has. */
enum { GW_STATE_PROMPT = 16, GW_CONV_ROWS = 16, GW_STATE_LISTED = 4 };

/* gw_state_prompt_scan_*: keys of a head; rows in shared memory, those that are on their way. */
enum {
    GW_SCAN_KEYS_HELD = 128,
    GW_SCAN_RING = 16,
    GW_SCAN_AHEAD = GW_SCAN_RING - 2,
};
/* Floats of a row there. */
#define GW_SCAN_SLOT(by_key)                                                                       \
    (((by_key) ? 3 : 2) * GW_SCAN_KEYS_HELD + GW_SCAN_THREADS + GW_SCAN_RECORD)

/* gw_state_conv, gw_state_conv_apart (taps that are not side by side): a thread per column, grid
 * (columns, rows); a block does the sequence whose first row of the step is its own.
 * gw_state_prompt_conv: grid (columns, slots + rows over GW_CONV_ROWS). */
struct gw_state_conv_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(float) state;      /* [slots, entries, (taps - 1) width] */
    GW_DEV(const float) w;    /* [width, taps]                      */
    GW_DEV(const float) bias; /* may be 0                           */
    GW_DEV(float) out;
    int32_t width, taps, apart, entries, kind, slots;
};

/* gw_state_prepare: what SCAN takes of every row, [q g*k | k g*k | decays by key h*k | records h];
 * a team per group of q, of k, and per head; grid (those over teams, rows). */
struct gw_state_prepare_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) decay;
    GW_DEV(const float) beta; /* rows of beta_step floats */
    GW_DEV(const float) a;    /* 0 where decays are given */
    GW_DEV(const float) bias; /* may be 0 */
    GW_DEV(float) out;
    int32_t delta, given, heads, groups, keys, values, decays, decay_step, beta_step;
    float eps, q_scale, k_scale, low, high;
};

/* gw_state_scan, gw_state_scan_64, gw_state_scan_128 (keys of that width, in registers): a thread
 * per column of a head, grid (columns, rows). gw_state_prompt_scan_*: grid (columns, slots); a
 * block's columns are of one head. */
struct gw_state_scan_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) made;
    GW_DEV(float) state;
    GW_DEV(const float) skip; /* may be 0 */
    GW_DEV(float) out;
    int32_t delta, heads, groups, keys, values, decays, tiled, entries;
};

/* gw_state_scan_channels, gw_state_scan_channels_16 (keys of that width, in registers; a block's
 * columns are of one head): SSM by channel; a thread per column of a head, grid (columns, rows). */
struct gw_state_channels_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) decay; /* [rows, heads values] */
    GW_DEV(const float) a;     /* [heads values, keys] */
    GW_DEV(const float) bias;  /* may be 0 */
    GW_DEV(const float) skip;
    GW_DEV(float) state;
    GW_DEV(float) out;
    int32_t heads, groups, keys, values, tiled, entries;
    float low, high;
};

/* gw_state_scan_wkv, gw_state_scan_wkv_64 (keys of that width, in registers; a block's columns are
 * of one head): a thread per column of a head, grid (columns, rows); in is [r | k | v | e]. */
struct gw_state_wkv_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) decay; /* [rows, heads keys] */
    GW_DEV(const float) back;  /* [rows, heads keys] */
    GW_DEV(float) state;
    GW_DEV(float) out;
    int32_t heads, keys, values, entries;
    float base, scale;
};

/* gw_gates_exp: a thread per head, grid (heads, rows); a block does the sequence whose first row of
 * the step is its own. */
struct gw_gates_exp_params {
    struct gw_step_params step;
    GW_DEV(const float) in; /* [rows, write heads, forget heads] */
    GW_DEV(float) state;    /* [slots, entries, heads] */
    GW_DEV(float) out;      /* [rows, decay heads, write heads, floor heads] */
    int32_t heads, entries;
};

/* gw_gates_divide: a thread per column, grid (columns, rows). */
struct gw_gates_divide_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) by;    /* [rows, columns] */
    GW_DEV(const float) least; /* the same */
    GW_DEV(float) out;
    int32_t width, columns;
    float eps;
};

/* gw_state_step_KEYS: CONV, SCAN (delta rule, a decay a head), GROUP_NORM of its heads and codes of
 * a single row, heads of as many values as keys, side by side [q g*k | k g*k | v h*k]. A block per
 * head, a thread per value of it; behind them `more` blocks that bring weights to the second cache
 * for the launches that follow. */
enum {
    GW_STEP_TAPS = 4, /* at most */
    GW_STEP_SOON = 3,
    GW_STEP_PIECE = 4096, /* bytes that a thread of those asks for */
};
struct gw_state_step_params {
    struct gw_step_params step;
    GW_DEV(const float) in;        /* [2 groups keys + heads keys] */
    GW_DEV(float) taps_state;      /* [slots, taps_entries, (taps - 1) width of in] */
    GW_DEV(const float) taps_w;    /* [width of in, taps] */
    GW_DEV(const float) taps_bias; /* may be 0 */
    GW_DEV(const float) decay;     /* [heads] */
    GW_DEV(const float) beta;      /* [heads] */
    GW_DEV(const float) a;         /* [heads] */
    GW_DEV(const float) bias;      /* [heads], may be 0 */
    GW_DEV(float) state;           /* [slots, entries, heads keys keys] */
    GW_DEV(const float) gate;      /* [heads keys], may be 0 */
    GW_DEV(const float) weight;    /* [wide], may be 0 */
    GW_DEV(void) out;              /* in a form */
    int32_t taps, taps_entries, taps_kind, heads, groups, entries, tiled;
    int32_t gate_kind, gate_first, wide, form;
    float eps, q_scale, k_scale, norm_eps;
    GW_DEV(const uint8_t) soon[GW_STEP_SOON];
    int64_t soon_bytes[GW_STEP_SOON];
};

/* gw_state_group_norm: a team per group, grid (groups over teams, rows). */
struct gw_state_group_norm_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) gate;   /* may be 0 */
    GW_DEV(const float) weight; /* may be 0; wide of them */
    GW_DEV(const float) bias;   /* may be 0 */
    GW_DEV(float) out;
    int32_t width, groups, kind, gate_first, wide, measure, center;
    float eps;
};

/* gw_state_streams: a thread per column of all streams, grid (columns, rows). */
struct gw_state_streams_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const float) coef; /* may be 0 */
    GW_DEV(const float) base; /* may be 0 */
    GW_DEV(float) out;
    int32_t m, streams, inputs, from;
    float plus;
};

/* gw_state_heads_FORMAT: a team per column of the result, grid (columns over teams, rows). */
struct gw_state_heads_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(const void) w; /* [heads m, k] */
    GW_DEV(float) out;
    int32_t heads, e, m, k, first, pass_first, pass;
};

/* gw_state_columns: columns [from, from + n) of rows of `width` to columns [at, at + n) of rows of
 * `wide`; grid (columns, rows). */
struct gw_state_columns_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(float) out;
    int32_t width, from, n, wide, at;
};

/* gw_state_widen: a thread per column of the result, of heads of k columns and then m; grid
 * (columns, rows). */
struct gw_state_widen_params {
    struct gw_step_params step;
    GW_DEV(const float) in;
    GW_DEV(float) out;
    int32_t heads, k, m;
};

#endif
