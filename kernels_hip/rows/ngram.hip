/* kernels_hip/rows/ngram.hip - NGRAM: rows of a table by hash of a token and those before it, and
 * the tokens that a sequence has at last (docs/arithmetic.md, section 5). */
#include "kernels_hip/device.h"
#include "kernels_hip/rows/ngram_params.h"
#include "core/tensor/arith.h"

GW_DEVICE int token_of(const gw_ngram_params &p, int row) {
    const int token = gw_step_token(p.step, row);
    return token >= 0 || p.ids == 0 ? max(token, 0) : max(p.ids[row], 0);
}

/* The row before, of the same sequence; -1: none in this step. */
GW_DEVICE int row_before(const gw_ngram_params &p, int row) {
    const int slot = gw_step_slot(p.step, row);
    int at = row - 1;
    while (at >= 0 && gw_step_slot(p.step, at) != slot) {
        at--;
    }
    return at;
}

/* What is known before the first row of a sequence in this step. */
GW_DEVICE const float *known_before(const gw_ngram_params &p, int row) {
    const int pos = gw_step_pos(p.step, row);
    const size_t entry = (size_t)gw_step_slot(p.step, row) * p.entries + pos % p.entries;
    return pos > 0 ? p.state + entry * (p.hashes->size - 1) : 0;
}

/* The row of the table for hash n. */
GW_DEVICE gw_i64 row_of_hash(const gw_ngram_params &p, int row, int n) {
    const gw_ngram *g = p.hashes;
    const int length = n / g->heads + 2;
    gw_u64 mixed = gw_ngram_mixed(g, 0, 0, token_of(p, row));
    int at = row, ended = 0, past = 0; /* past: taken from the state */
    for (int i = 1; i < length; i++) {
        const int before = past == 0 ? row_before(p, at) : -1;
        int token = -1;
        if (before >= 0) {
            at = before;
            token = token_of(p, at);
        } else {
            const float *known = known_before(p, at);
            token = known ? (int)known[past] - 1 : -1;
            past++;
        }
        ended |= token < 0 || token == g->end;
        mixed = gw_ngram_mixed(g, mixed, i, ended ? g->end : token);
    }
    return gw_ngram_row(g, mixed, n);
}

#define NGRAM_F32(x) (x)
#define NGRAM_F16(x) gw_f16_to_f32(x)
#define NGRAM_BF16(x) gw_bf16_to_f32(x)
#define NGRAM(format, type, widen)                                                                 \
    GW_KERNEL(gw_ngram_##format, struct gw_ngram_params, GW_NGRAM_THREADS) {                       \
        const int row = (int)blockIdx.y, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);         \
        gw_grid_launch_dependents();                                                               \
        gw_grid_dependency_wait();                                                                 \
        if (row < gw_live(p.step) && i < p.width) {                                                \
            const gw_i64 at = row_of_hash(p, row, i / p.wide);                                     \
            const type *from = (const type *)p.table + at * p.wide;                                \
            p.out[(size_t)row * p.width + i] = widen(from[i % p.wide]);                            \
        }                                                                                          \
    }
NGRAM(f32, float, NGRAM_F32)
NGRAM(f16, gw_u16, NGRAM_F16)
NGRAM(bf16, gw_u16, NGRAM_BF16)

/* One thread, that of a sequence's last row, writes what is known behind its rows: an entry may be
 * the one that the first of them still need, which it has read before. */
GW_KERNEL(gw_ngram_note, struct gw_ngram_params, GW_NGRAM_THREADS) {
    const int row = (int)(blockIdx.x * blockDim.x + threadIdx.x), live = gw_live(p.step);
    gw_grid_launch_dependents();
    gw_grid_dependency_wait();
    const int slot = row < live ? gw_step_slot(p.step, row) : 0;
    for (int later = row + 1; later < live; later++) {
        if (gw_step_slot(p.step, later) == slot) {
            return;
        }
    }
    if (row >= live) {
        return;
    }
    const int width = p.hashes->size - 1;
    int first = row, behind = 0; /* rows between them; more than these are not kept */
    for (int b = row_before(p, row); b >= 0 && behind < p.entries + width; b = row_before(p, b)) {
        first = b;
        behind++;
    }
    const float *known = row_before(p, first) < 0 ? known_before(p, first) : 0;
    float last[GW_NGRAM_SIZE - 1];
    for (int k = 0; k < GW_NGRAM_SIZE - 1; k++) {
        last[k] = known && k < width ? known[k] : 0.0f;
    }
    for (int at = first; at <= row; at++) {
        if (gw_step_slot(p.step, at) != slot) {
            continue;
        }
        for (int k = GW_NGRAM_SIZE - 2; k > 0; k--) {
            last[k] = last[k - 1];
        }
        last[0] = (float)(token_of(p, at) + 1);
        if (behind-- < p.entries - 1) {
            const size_t entry =
                (size_t)slot * p.entries + (gw_step_pos(p.step, at) + 1) % p.entries;
            for (int k = 0; k < GW_NGRAM_SIZE - 1; k++) {
                if (k < width) {
                    p.state[entry * width + k] = last[k];
                }
            }
        }
    }
}
