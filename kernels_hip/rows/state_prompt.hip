/* kernels_hip/rows/state_prompt.hip - CONV and SCAN of plans of many rows (docs/arithmetic.md,
 * section 5): convolutions row by row beside one another, and scans that never wait for memory.
 */
#include "kernels_hip/rows/state.h"

/* ---- sequences of a step --------------------------------------------------------------------- */

/* A row of a sequence, and the entry of its slot that takes what it leaves. */
struct state_row {
    gw_u16 row, entry;
};
static_assert(sizeof(state_row) == GW_STATE_LISTED, "what the host asks shared memory for");

/* Lists the rows of a slot in the step, in order; by a team. Returns how many. The step block is
 * there before what earlier launches write. */
GW_DEVICE int list_rows(const struct gw_step_params &s, int slot, int entries, state_row *list) {
    enum { AT_ONCE = 8 };
    const int live = gw_live(s), lane = gw_lane();
    int n = 0;
    for (int base = 0; base < live; base += AT_ONCE * GW_LANES) {
        int slots[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = base + k * GW_LANES + lane;
            slots[k] = i < live ? gw_step_slot(s, i) : -1;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const unsigned mine = gw_ballot(slots[k] == slot);
            const int i = base + k * GW_LANES + lane;
            if (slots[k] == slot) {
                const int entry = (gw_step_pos(s, i) + 1) % entries;
                const state_row row = {(gw_u16)i, (gw_u16)entry};
                list[n + __popc(mine & ((1u << lane) - 1u))] = row;
            }
            n += __popc(mine);
        }
    }
    gw_sync_team();
    return n;
}

/* ---- CONV ------------------------------------------------------------------------------------ */

enum { CONV_TAPS = 8 };

/* Of a sequence: its first rows, which need the state, and what its last rows leave. So one thread
 * reads an entry of a column and writes over it. */
GW_DEVICE void conv_ends(const struct gw_state_conv_params &p, int slot, int c,
                         const state_row *list, int n) {
    const int before = p.taps - 1, start = gw_step_pos(p.step, list[0].row);
    const size_t width = (size_t)before * p.width;
    float *state = p.state + (size_t)slot * p.entries * width + c;
    const float *from = state + start % p.entries * width;
    float x[CONV_TAPS], w[CONV_TAPS];
#pragma unroll
    for (int t = 0; t < CONV_TAPS; t++) {
        x[t] = t < before && start > 0 ? from[(size_t)t * p.width] : 0.0f;
        w[t] = t < p.taps ? p.w[(size_t)c * p.taps + t] : 0.0f;
    }
    for (int r = 0; r < n; r++) {
        if (r == before && r < n - p.entries + 1) { /* the rows between leave nothing */
            r = n - p.entries + 1;
#pragma unroll
            for (int t = 0; t < CONV_TAPS; t++) {
                x[t] = t < before ? p.in[(size_t)list[r - before + t].row * p.width + c] : 0.0f;
            }
        }
        const int i = list[r].row;
        const float newest = p.in[(size_t)i * p.width + c];
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < CONV_TAPS; t++) {
            x[t] = t == before ? newest : x[t];
            sum = t < p.taps ? GW_FMA(w[t], x[t], sum) : sum;
        }
        if (r < before) {
            sum = p.bias ? sum + p.bias[c] : sum;
            p.out[(size_t)i * p.width + c] = gate_of(p.kind, sum);
        }
        float *to = state + list[r].entry * width;
#pragma unroll
        for (int t = 0; t < CONV_TAPS - 1; t++) {
            x[t] = x[t + 1];
            if (t < before && n - 1 - r < p.entries - 1) {
                to[(size_t)t * p.width] = x[t];
            }
        }
    }
}

/* The rows that row i's taps lie on, oldest first; -1 first: some lie before the step. */
GW_DEVICE void conv_find(const struct gw_step_params &s, int i, int taps, int *rows) {
    const int slot = gw_step_slot(s, i);
    int left = taps - 1;
    rows[left] = i;
    for (int j = i - 1; j >= 0 && left > 0; j--) {
        if (gw_step_slot(s, j) == slot) {
            rows[--left] = j;
        }
    }
    rows[0] = left > 0 ? -1 : rows[0];
}

/* Rows whose taps all lie in the step; at most TAPS. */
template <int TAPS>
__device__ static inline void conv_rows(const struct gw_state_conv_params &p, int c, int first,
                                        int n, const int (*rows)[CONV_TAPS]) {
    enum { AT_ONCE = 4 };
    float w[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        w[t] = t < p.taps ? p.w[(size_t)c * p.taps + t] : 0.0f;
    }
    const float bias = p.bias ? p.bias[c] : 0.0f;
#pragma unroll 1
    for (int r = 0; r < n; r += AT_ONCE) {
        float x[AT_ONCE][TAPS];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int there = r + k < n && rows[r + k][0] >= 0;
#pragma unroll
            for (int t = 0; t < TAPS; t++) {
                x[k][t] = there && t < p.taps ? p.in[(size_t)rows[r + k][t] * p.width + c] : 0.0f;
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (r + k >= n || rows[r + k][0] < 0) {
                continue;
            }
            float sum = 0.0f;
#pragma unroll
            for (int t = 0; t < TAPS; t++) {
                sum = t < p.taps ? GW_FMA(w[t], x[k][t], sum) : sum;
            }
            sum = p.bias ? sum + bias : sum;
            p.out[(size_t)(first + r + k) * p.width + c] = gate_of(p.kind, sum);
        }
    }
}

GW_KERNEL(gw_state_prompt_conv, struct gw_state_conv_params, GW_STATE_THREADS) {
    GW_SHARED_DYNAMIC(state_row, list);
    __shared__ int rows[GW_CONV_ROWS][CONV_TAPS], count;
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x), slot = (int)blockIdx.y;
    const int first = (slot - p.slots) * GW_CONV_ROWS;
    gw_grid_launch_dependents();
    const int live = gw_live(p.step), left = live - first;
    const int n = left < GW_CONV_ROWS ? left : (int)GW_CONV_ROWS;
    if (first >= live) {
        gw_grid_dependency_wait();
        return;
    }
    if (slot < p.slots) {
        const int found = gw_team() == 0 ? list_rows(p.step, slot, p.entries, list) : 0;
        if (threadIdx.x == 0) {
            count = found;
        }
    } else if ((int)threadIdx.x < n) {
        conv_find(p.step, first + (int)threadIdx.x, p.taps, rows[threadIdx.x]);
    }
    __syncthreads();
    gw_grid_dependency_wait();
    if (c >= p.width) {
        return;
    }
    if (slot >= p.slots && p.taps <= 4) {
        conv_rows<4>(p, c, first, n, rows);
    } else if (slot >= p.slots) {
        conv_rows<CONV_TAPS>(p, c, first, n, rows);
    } else if (count > 0) {
        conv_ends(p, slot, c, list, count);
    }
}

/* ---- SCAN ------------------------------------------------------------------------------------
 *
 * A team is a block and has 32 columns of a head, a thread each, with the column of the memory in
 * registers. Rows come into a ring of shared memory long before they are needed. A turn is what
 * row i writes and answers and what row i + 1 finds: of each key four steps of two chains that do
 * not wait for each other, where row by row the one would begin when the other has ended. Nor do
 * they wait for shared memory: what they take comes some keys before.
 */

enum { BY_HEAD, BY_KEY, SSM, KEYS = GW_SCAN_KEYS_HELD };

/* A row in the ring, in floats: k, q, decays by key, the columns' x, the head's record. EARLY: so
 * many groups of 4 keys are asked for before they are needed, as many as registers allow. */
template <int KIND> struct scan_place {
    enum {
        K = 0,
        Q = KEYS,
        D = 2 * KEYS,
        X = (KIND == BY_KEY ? 3 : 2) * KEYS,
        RECORD = X + GW_SCAN_THREADS,
        FLOATS = GW_SCAN_SLOT(KIND == BY_KEY),
        GROUPS = KEYS / 4,
        EARLY = !GW_COPIES       ? 0
                : KIND == BY_KEY ? 2
                                 : 3,
        HELD = 4
    };
    static_assert(RECORD + GW_SCAN_RECORD == FLOATS, "what the host asks shared memory for");
    static_assert(GROUPS % HELD == 0 && HELD > EARLY, "a turn ends where it begins");
};

struct __align__(16) scan_four {
    float v[4];
};
GW_DEVICE scan_four four_of(const float *shared) { return *(const scan_four *)shared; }

/* What a lane fetches of each row: 4 floats of k, of q, of decays by key; and of x, or the record.
 */
template <int KIND> struct scan_source {
    typedef scan_place<KIND> place;
    const float *made, *rest;
    unsigned made_step, rest_step;
    int q_at, d_at, lane;

    __device__ inline scan_source(const struct gw_state_scan_params &p, int at) {
        const int h = at / p.values, all = p.groups * KEYS, k_at = all + group_of(p, h) * KEYS;
        lane = gw_lane();
        made_step = (unsigned)made_width(p.groups, p.heads, KEYS, KIND == BY_KEY);
        made = p.made + k_at + 4 * lane;
        q_at = -all;
        d_at = 2 * all + h * KEYS - k_at;
        if (lane < GW_SCAN_THREADS / 4) {
            rest_step = (unsigned)(p.heads * p.values + 2 * all);
            rest = p.in + (KIND == SSM ? 0 : 2 * all) + (at - lane) + 4 * lane;
        } else {
            rest_step = made_step;
            rest = record_of(p.made + 2 * all, h, p.heads, KEYS, KIND == BY_KEY);
        }
    }
    __device__ inline void fetch(float *to, unsigned row) const {
        const float *from = made + row * made_step;
        float *mine = to + 4 * lane;
        gw_copy_async(mine + place::K, from);
        gw_copy_async(mine + place::Q, from + q_at);
        if (KIND == BY_KEY) {
            gw_copy_async(mine + place::D, from + d_at);
        }
        gw_copy_async_if(lane <= GW_SCAN_THREADS / 4, mine + place::X, rest + row * rest_step);
        gw_copy_commit();
    }
};

/* Loads in front of it and behind it stay there: a compiler that orders a long unrolled loop freely
 * asks for shared memory where it is needed, and a team that has its scheduler to itself then waits
 * each time. Elsewhere the same would cost registers. */
GW_DEVICE void keep_order(void) {
    if (GW_COPIES) {
        gw_sync_team();
    }
}

/* Four keys of a turn: k and q of its row; k and, by key, decays of the next. */
template <int KIND> struct scan_keys {
    typedef scan_place<KIND> place;
    scan_four k, q, then, by;

    __device__ inline void load(const float *row, const float *next, int group) {
        k = four_of(row + place::K + 4 * group);
        q = four_of(row + place::Q + 4 * group);
        if (KIND != SSM) {
            then = four_of(next + place::K + 4 * group);
        }
        if (KIND == BY_KEY) {
            by = four_of(next + (KIND == BY_KEY ? (int)place::D : 0) + 4 * group);
        }
    }
};

/* The memory of a column before a row, decayed for it; what that row writes; and the decay for the
 * next one. */
template <int KIND> struct scan_column {
    typedef scan_place<KIND> place;
    float s[KEYS], u, d;
    scan_keys<KIND> held[place::HELD];

    /* What a row writes, of what the memory knows. */
    __device__ inline float write(const float *row, float known) const {
        const float x = row[place::X + gw_lane()], strength = row[place::RECORD + 1];
        return KIND == SSM ? strength * x : (x - known) * strength;
    }
    /* The memory, or one that is empty. */
    __device__ inline void begin(const float *from, int step, int known) {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = 0.0f;
        }
        if (!known) {
            return;
        }
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            s[j] = *from;
            from += step;
            if (j % 16 == 15) {
                keep_order();
            }
        }
    }
    /* Decays it for a row; what it knows of that. */
    __device__ inline float decay(const float *row) {
        const float by_head = row[place::RECORD];
        float known = 0.0f;
#pragma unroll
        for (int g = 0; g < place::GROUPS; g++) {
            const scan_four k = four_of(row + place::K + 4 * g);
            const scan_four by = four_of(row + (KIND == BY_KEY ? (int)place::D : 0) + 4 * g);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[4 * g + i] = s[4 * g + i] * (KIND == BY_KEY ? by.v[i] : by_head);
                known = KIND == SSM ? known : GW_FMA(k.v[i], s[4 * g + i], known);
            }
            keep_order();
        }
        return known;
    }
    /* The first row, and the next. */
    __device__ inline void open(const float *row, const float *next) {
        u = write(row, decay(row));
        d = next[place::RECORD];
#pragma unroll
        for (int g = 0; g < place::EARLY; g++) {
            held[g].load(row, next, g);
        }
    }
    /* A turn, one chain behind the other: for a device that takes a wave's next instruction no
     * earlier than it has the last one's result. */
    template <int LEAVES>
    __device__ inline float turn_apart(const float *row, const float *next, float *to, int step) {
        float y = 0.0f;
#pragma unroll
        for (int g = 0; g < place::GROUPS; g++) {
            const scan_four k = four_of(row + place::K + 4 * g);
            const scan_four q = four_of(row + place::Q + 4 * g);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float m = GW_FMA(k.v[i], u, s[4 * g + i]);
                y = GW_FMA(q.v[i], m, y);
                if (LEAVES) {
                    *to = m;
                    to += step;
                }
                s[4 * g + i] = m;
            }
            keep_order();
        }
        u = write(next, decay(next));
        return y;
    }
    /* Of row, its answer; next, and the one behind that; LEAVES: the memory behind row goes to
     * to[j step]. */
    template <int LEAVES>
    __device__ inline float turn(const float *row, const float *next, const float *behind,
                                 float *to, int step) {
        if (!GW_COPIES) {
            return turn_apart<LEAVES>(row, next, to, step);
        }
        float y = 0.0f, known = 0.0f, x = 0.0f, strength = 0.0f, later = 0.0f;
#pragma unroll
        for (int g = 0; g < place::GROUPS; g++) {
            const int early = g + place::EARLY;
            if (early < place::GROUPS) {
                held[early % place::HELD].load(row, next, early);
            } else {
                held[early % place::HELD].load(next, behind, early - place::GROUPS);
            }
            if (g == place::GROUPS / 2) {
                x = next[place::X + gw_lane()];
                strength = next[place::RECORD + 1];
                later = behind[place::RECORD];
            }
            const scan_keys<KIND> &four = held[g % place::HELD];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float m = GW_FMA(four.k.v[i], u, s[4 * g + i]);
                y = GW_FMA(four.q.v[i], m, y);
                if (LEAVES) {
                    *to = m;
                    to += step;
                }
                m = m * (KIND == BY_KEY ? four.by.v[i] : d);
                known = KIND == SSM ? known : GW_FMA(four.then.v[i], m, known);
                s[4 * g + i] = m;
            }
            keep_order();
        }
        u = KIND == SSM ? strength * x : (x - known) * strength;
        d = later;
        return y;
    }
};

/* A block's columns are of one head (values are a multiple of 32), keys are KEYS. Behind the last
 * row the list has it again, so that a turn never asks whether there is a next one. The step of a
 * memory's keys is read from shared memory where it is needed: of a number that stays, AMD's
 * compiler keeps all multiples in registers. */
template <int KIND> struct scan_block {
    typedef scan_place<KIND> place;
    enum { FLOATS = place::FLOATS };
    const scan_source<KIND> source;
    scan_column<KIND> column;
    float *ring, *memory, *out;
    int *step;
    state_row *list;
    size_t width, wide;
    float skip;

    __device__ inline scan_block(const struct gw_state_scan_params &p, int at, float *shared)
        : source(p, at), ring(shared), out(p.out + at) {
        step = (int *)(ring + GW_SCAN_RING * (int)FLOATS);
        list = (state_row *)(step + 1);
        wide = (size_t)p.heads * p.values;
        width = wide * KEYS;
        memory = p.state + (size_t)blockIdx.y * p.entries * width +
                 (size_t)(at / p.values) * KEYS * p.values + at % p.values;
        skip = KIND == SSM && p.skip ? p.skip[at / p.values] : 0.0f;
    }
    __device__ inline float *place_of(int row) const {
        return ring + row % GW_SCAN_RING * (int)FLOATS;
    }
    __device__ inline int list_all(const struct gw_state_scan_params &p) const {
        const int n = list_rows(p.step, (int)blockIdx.y, p.entries, list), lane = gw_lane();
        if (lane < GW_SCAN_RING && n > 0) {
            list[n + lane] = list[n - 1];
        }
        if (lane == 0) {
            *step = p.values;
        }
        gw_sync_team();
        return n;
    }
    __device__ inline void open(const struct gw_state_scan_params &p) {
#pragma unroll 1
        for (int r = 0; r < GW_SCAN_AHEAD; r++) {
            source.fetch(place_of(r), list[r].row);
        }
        const int start = gw_step_pos(p.step, list[0].row);
        column.begin(memory + start % p.entries * width, p.values, start > 0);
        gw_copy_wait<GW_SCAN_AHEAD - 2>();
        gw_sync_team();
        column.open(place_of(0), place_of(1));
    }
    template <int LEAVES> __device__ inline void rows(int first, int end) {
        unsigned later = list[first + GW_SCAN_AHEAD].row;
#pragma unroll 1
        for (int r = first; r < end; r++) {
            source.fetch(place_of(r + GW_SCAN_AHEAD), later);
            later = list[r + GW_SCAN_AHEAD + 1].row;
            const state_row here = list[r];
            const float x = place_of(r)[place::X + gw_lane()];
            gw_copy_wait<GW_SCAN_AHEAD - 2>();
            gw_sync_team();
            const float y = column.template turn<LEAVES>(
                place_of(r), place_of(r + 1), place_of(r + 2), memory + here.entry * width, *step);
            out[here.row * wide] = KIND == SSM ? GW_FMA(skip, x, y) : y;
        }
    }
};

template <int KIND>
__device__ static inline void scan_prompt(const struct gw_state_scan_params &p) {
    GW_SHARED_DYNAMIC(unsigned char, shared);
    const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    scan_block<KIND> block(p, at, (float *)gw_shared_place(shared));
    gw_grid_launch_dependents();
    const int n = block.list_all(p), quiet = n < p.entries ? 0 : n - p.entries + 1;
    gw_grid_dependency_wait();
    if (n > 0) {
        block.open(p);
        block.template rows<0>(0, quiet);
        block.template rows<1>(quiet, n);
    }
}

GW_KERNEL(gw_state_prompt_scan_head, struct gw_state_scan_params, GW_SCAN_THREADS) {
    scan_prompt<BY_HEAD>(p);
}
GW_KERNEL(gw_state_prompt_scan_key, struct gw_state_scan_params, GW_SCAN_THREADS) {
    scan_prompt<BY_KEY>(p);
}
GW_KERNEL(gw_state_prompt_scan_ssm, struct gw_state_scan_params, GW_SCAN_THREADS) {
    scan_prompt<SSM>(p);
}
