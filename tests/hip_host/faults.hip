/* tests/hip_host/faults.hip - kernels with planted faults, right ones beside them, and one that
 * looks at shares of tiles, for tests/test_hip_emulator.c. p.out has room for one word per thread,
 * or for what a kernel says. */
#include "kernels_hip/device.h"
#include "kernels_hip/gemm/gemm_stream_k.h"
#include "faults_params.h"

enum { THREADS = 128 };
#define KERNEL(name) GW_KERNEL(gw_test_##name, struct gw_test_params, THREADS)

/* ---- barriers -------------------------------------------------------------------------------- */

GW_DEVICE unsigned next_one(int with_barrier) {
    __shared__ unsigned s[THREADS];
    s[threadIdx.x] = threadIdx.x;
    if (with_barrier) {
        __syncthreads();
    }
    return s[(threadIdx.x + 1) % THREADS] + s[(threadIdx.x + THREADS - 1) % THREADS];
}
KERNEL(neighbours) { p.out[blockIdx.x * THREADS + threadIdx.x] = next_one(1); }
KERNEL(no_barrier) { p.out[blockIdx.x * THREADS + threadIdx.x] = next_one(0); }

KERNEL(barrier_for_some) {
    if (threadIdx.x < 96) {
        __syncthreads();
    }
    p.out[threadIdx.x] = 1;
}
KERNEL(two_barriers) {
    if (threadIdx.x < 64) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    p.out[threadIdx.x] = 1;
}
KERNEL(stays_away) {
    if (threadIdx.x == 5) {
        return;
    }
    __syncthreads();
    p.out[threadIdx.x] = 1;
}

/* ---- tiles shared out ------------------------------------------------------------------------ */

#if GW_GROUP_MMA
/* What is wrong with the shares of 132 blocks in the case `id`, and, times 65536, how many blocks
 * have the middle of a tile that two others begin and end. */
GW_DEVICE unsigned wrong_shares(int id) {
    const int rows = id == 0 ? 67 : id % 16 * 11 + 1, tokens = id == 0 ? 5 : id / 16;
    const int w = tokens % 4, h = tokens >= 4 || w == 0, units = id == 0 ? 64 : 1 + id * 7 % 64;
    const gw_cut cut = {id % 3, w, h ? GROUP_TOKENS / (id % 2 ? 2 : 4) : 0};
    const int tiles = rows * gw_cut_tiles(cut), blocks = tiles < 132 ? tiles : 132;
    gw_share s = {cut, rows, units, 0, 0, 0};
    unsigned wrong = 0, middle = 0;
    for (int b = 0, before = 0, left = 0; b < blocks; b++) {
        int stages = 0, n = 0, takes = 0, leaves = 0;
        s.from = gw_share_begin(s, b, blocks);
        s.to = gw_share_begin(s, b + 1, blocks);
        wrong += s.from != before || s.to < s.from;
        before = s.to;
        for (gw_job job; gw_share_job(s, n, &job); n++) {
            gw_job after;
            const int all = job.tile * units;
            wrong += all + job.from < s.from || all + job.to > s.to || job.from >= job.to;
            stages += job.to - job.from;
            takes += job.from > 0;
            leaves += job.to < units;
            wrong += job.from > 0 && gw_share_job(s, n + 1, &after); /* that comes last */
            wrong += job.to < units && n > 0;                        /* and this first  */
            middle += job.from > 0 && job.to < units;
        }
        wrong += stages != s.to - s.from || takes != left || leaves > 1;
        left = leaves;
        wrong += b + 1 == blocks && (before != tiles * units || left > 0);
    }
    return wrong + middle * 65536;
}
KERNEL(shares) { p.out[threadIdx.x] = wrong_shares((int)threadIdx.x); }
#else
KERNEL(shares) { p.out[threadIdx.x] = 65536; }
#endif

/* ---- gates and barriers of some -------------------------------------------------------------- */

/* Three times, the first half of the block hands a word each to the second, in one place. */
GW_DEVICE void hand_over(unsigned *out, int waits, int arrivals) {
    __shared__ unsigned s[THREADS / 2];
    __shared__ unsigned long long gates[2];
    const gw_shared_at full = gw_shared_address(&gates[0]), free = gw_shared_address(&gates[1]);
    const unsigned id = threadIdx.x % (THREADS / 2);
    unsigned sum = 0;
    if (threadIdx.x == 0) {
        gw_gate_make(full, arrivals);
        gw_gate_make(free, THREADS / 2);
    }
    __syncthreads();
    for (unsigned round = 0; round < 3; round++) {
        if (threadIdx.x < THREADS / 2) {
            if (round > 0 && waits) {
                gw_gate_wait(free, (int)(round - 1) & 1);
            }
            s[id] = id + 100 * round;
            gw_gate_arrive(full);
        } else {
            if (waits) {
                gw_gate_wait(full, (int)round & 1);
            }
            sum += s[THREADS / 2 - 1 - id] << 8 * round;
            gw_gate_arrive(free);
        }
    }
    if (threadIdx.x >= THREADS / 2) {
        out[id] = sum;
    }
}
KERNEL(gates) { hand_over(p.out, 1, THREADS / 2); }
KERNEL(no_gate) { hand_over(p.out, 0, THREADS / 2); }
KERNEL(gate_stays_shut) { hand_over(p.out, 1, THREADS / 2 + 1); }
/* Words that one block of threads waits for and another writes; here it is the same one. */
GW_DEVICE void wait_for_word(unsigned *out, int written) {
    if (threadIdx.x == 0) {
        gw_word_release(out, written ? 7 : 0);
    }
    __syncthreads();
    gw_word_wait(out);
    out[threadIdx.x] = 7;
}
KERNEL(word) { wait_for_word(p.out, 1); }
KERNEL(word_not_written) { wait_for_word(p.out, 0); }

KERNEL(gate_not_made) {
    __shared__ unsigned long long gate;
    gw_gate_arrive(gw_shared_address(&gate));
    p.out[threadIdx.x] = 1;
}

/* 32 threads fetch `bytes` of a word for each thread; all read them before and behind the gate. */
GW_DEVICE void fetch_words(const struct gw_test_params &p, int bytes, int waits) {
    __shared__ __align__(16) unsigned s[THREADS];
    __shared__ unsigned long long gate;
    const gw_shared_at at = gw_shared_address(&gate);
    if (threadIdx.x == 0) {
        gw_gate_make(at, GW_FETCH_ARRIVALS);
        gw_gates_made();
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        gw_fetch(1, gw_shared_address(s), p.in, bytes, bytes, at);
    }
    const unsigned early = s[threadIdx.x];
    __syncthreads();
    if (waits) {
        gw_gate_wait(at, 0);
    }
    p.out[threadIdx.x] = early == 0xffffffffu ? s[threadIdx.x] : 0;
}
KERNEL(fetch) { fetch_words(p, 4 * THREADS, 1); }
KERNEL(fetch_left_behind) { fetch_words(p, 4 * THREADS, 0); }
KERNEL(fetch_askew) { fetch_words(p, 4 * THREADS - 8, 1); }

KERNEL(some_stay_away) {
    if (threadIdx.x < 32) {
        gw_sync_some<1, 64>();
    }
    p.out[threadIdx.x] = 1;
}

/* ---- shared memory --------------------------------------------------------------------------- */

KERNEL(not_written) {
    GW_SHARED_DYNAMIC(unsigned, s);
    __shared__ unsigned t[THREADS];
    p.out[threadIdx.x] = s[threadIdx.x] & t[threadIdx.x];
}
KERNEL(copy_without_wait) {
    __shared__ __align__(16) unsigned s[4 * THREADS];
    gw_copy_async(s + 4 * threadIdx.x, p.in + 4 * threadIdx.x);
    gw_copy_commit();
    p.out[threadIdx.x] = s[4 * threadIdx.x];
}
KERNEL(copy_with_wait) {
    __shared__ __align__(16) unsigned s[8 * THREADS];
    for (int i = 0; i < 2; i++) {
        gw_copy_async(s + 4 * (threadIdx.x + i * THREADS), p.in + 4 * (threadIdx.x + i * THREADS));
        gw_copy_commit();
    }
    gw_copy_wait<1>(); /* the first has come, the second not */
    const unsigned first = s[4 * threadIdx.x], second = s[4 * (threadIdx.x + THREADS)];
    gw_copy_wait<0>();
    p.out[threadIdx.x] = first == p.in[4 * threadIdx.x] && second == 0xffffffffu
                             ? s[4 * (threadIdx.x + THREADS)]
                             : 0;
}

/* ---- teams ----------------------------------------------------------------------------------- */

KERNEL(shuffle_of_some) {
    unsigned v = threadIdx.x;
    if (threadIdx.x % 32 < 16) {
        v = gw_shuffle_xor(v, 1);
    }
    p.out[threadIdx.x] = v;
}
KERNEL(shuffle_or_ballot) {
    p.out[threadIdx.x] =
        threadIdx.x % 2 ? gw_shuffle_xor(threadIdx.x, 1) : gw_ballot((int)threadIdx.x);
}
/* Teams at different places at the same time: each has values of its own. */
KERNEL(teams_apart) {
    int v = (int)threadIdx.x;
    for (int i = 0; i <= gw_team(); i++) {
        v = gw_team_sum(v) % 1000 + gw_lane();
    }
    p.out[threadIdx.x] = (unsigned)v;
}
/* A line per way to move values; all must agree. */
KERNEL(ways_to_move) {
    const int lane = gw_lane(), base = (int)threadIdx.x - lane;
    int wrong = 0;
    wrong |= gw_shuffle((int)threadIdx.x, 7) != base + 7;
    wrong |= gw_shuffle_xor((int)threadIdx.x, 16) != base + (lane ^ 16);
    wrong |= gw_shuffle_down((int)threadIdx.x, 3) != base + (lane < 29 ? lane + 3 : lane);
    wrong |= gw_ballot(lane % 3 == 0) != 0x49249249u;
    wrong |= gw_team_max((unsigned)(lane * 7 % 32)) != 31;
    wrong |= gw_fold((float)lane) != 496.0f;
    wrong |= gw_dp4a((int)0x80ff7f01u, (int)0x7f02ff80u, 9) != 9 - 128 * 127 - 2 - 127 - 128;
    p.out[threadIdx.x] = (unsigned)wrong;
}

/* ---- memory ---------------------------------------------------------------------------------- */

KERNEL(beyond_the_end) { p.out[threadIdx.x + 1] = 1; }
KERNEL(before_the_start) { *(p.out + threadIdx.x - 1) = 1; }

/* ---- matrix instructions --------------------------------------------------------------------- */

/* in: A [16, 32] and B^T [GW_MMA_N, 32] of int8, then 16-bit floats in the same shape with K = 16:
 * small whole numbers. out: D of int8 [16, 16], of f16, of bf16 (as floats), with C = 100. */
KERNEL(multiply) {
    const int lane = gw_wave_lane();
    const int8_t *a8 = (const int8_t *)p.in, *b8 = a8 + 16 * 32;
    const gw_u16 *half = (const gw_u16 *)(p.in + 32 * 32 / 4);
    unsigned a[GW_MMA_A], b[GW_MMA_B];
    int c[GW_MMA_C];
    float f[GW_MMA_C];
    if ((int)threadIdx.x >= LANES) {
        return;
    }
    for (int i = 0; i < GW_MMA_A; i++) {
        a[i] = *(const unsigned *)(a8 + gw_mma_a_row(lane, i) * 32 + gw_mma_a_k_int8(lane, i));
    }
    for (int i = 0; i < GW_MMA_B; i++) {
        b[i] = *(const unsigned *)(b8 + gw_mma_b_col(lane) * 32 + gw_mma_b_k_int8(lane, i));
    }
    for (int i = 0; i < GW_MMA_C; i++) {
        c[i] = 100;
    }
#if !GW_WMMA && LANES == 32 /* and by dot products, once more */
    gw_mma_int8_by_dots(c, a, b);
    for (int i = 0; i < GW_MMA_C; i++) {
        f[i] = (float)c[i];
        c[i] = 100;
    }
#endif
    gw_mma_int8(c, a, b);
    for (int i = 0; i < GW_MMA_C; i++) {
#if !GW_WMMA && LANES == 32
        c[i] = f[i] == (float)c[i] ? c[i] : -1;
#endif
        p.out[gw_mma_c_row(lane, i) * 16 + gw_mma_c_col(lane, i)] = (unsigned)c[i];
    }
    for (int bf16 = 0; bf16 < 2; bf16++, half += 32 * 16) {
        for (int i = 0; i < GW_MMA_A; i++) {
            a[i] =
                *(const unsigned *)(half + gw_mma_a_row(lane, i) * 16 + gw_mma_a_k_half(lane, i));
        }
        for (int i = 0; i < GW_MMA_B; i++) {
            b[i] = *(const unsigned *)(half + (16 + gw_mma_b_col(lane)) * 16 +
                                       gw_mma_b_k_half(lane, i));
        }
        for (int i = 0; i < GW_MMA_C; i++) {
            f[i] = 100.0f;
        }
        if (bf16) {
            gw_mma_bf16(f, a, b);
        } else {
            gw_mma_f16(f, a, b);
        }
        for (int i = 0; i < GW_MMA_C; i++) {
            p.out[(bf16 + 1) * 256 + gw_mma_c_row(lane, i) * 16 + gw_mma_c_col(lane, i)] =
                (unsigned)(int)f[i];
        }
    }
}
