/* core/tensor/sample.h - SAMPLE: the token that a sampler of top-k, top-p, min-p and temperature,
 * in that order, draws from the logits alone. docs/arithmetic.md, section 8; in the dialect of
 * arith.h.
 */
#ifndef GW_TENSOR_SAMPLE_H
#define GW_TENSOR_SAMPLE_H

#include "core/tensor/arith.h"

/* What a sampler does, as it lies in device memory: words of 32 bits. */
typedef struct gw_choice {
    float temperature; /* 0: the largest logit                                     */
    gw_i32 top_k;      /* the k largest and those equal to the k-th; 0: all        */
    gw_u32 seed_low, seed_high;
    gw_i32 first; /* the position whose noise counts is the row's plus this one */
    float top_p;  /* of the top-k the most probable that reach it; 0: all           */
    float min_p;  /* of these the ones with that much of the largest's probability  */
} gw_choice;
#define GW_CHOICE_WORDS 7

/* So many may be left by top-k where top-p or min-p come behind it; of more (ties) none is drawn,
 * and without top-k neither. They take doubles, which OpenCL devices may lack. */
#define GW_CHOICE_RANKED 256
#if !defined(__OPENCL_VERSION__) || defined(cl_khr_fp64)
#define GW_CHOICE_NARROWS 1
#endif

/* Keys order floats as integers; -0 has the key of +0. What is not a number and +infinity lie
 * outside of GW_KEY_LEAST .. GW_KEY_MOST. */
#define GW_KEY_LEAST 0x007fffffu /* -infinity            */
#define GW_KEY_MOST 0xff7fffffu  /* the largest finite   */
GW_FN gw_u32 gw_float_key(float x) {
    gw_u32 u = GW_F32_BITS(x);
    u = u == 0x80000000u ? 0u : u;
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
GW_FN float gw_key_float(gw_u32 key) {
    return GW_F32_FROM_BITS((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

/* Can a token be drawn whose score has this key? */
GW_FN int gw_key_counts(gw_u32 key) { return key > GW_KEY_LEAST && key <= GW_KEY_MOST; }

GW_FN float gw_choice_scaled(gw_choice c, float x) {
    return c.temperature > 0.0f && c.temperature != 1.0f ? x / c.temperature : x;
}
/* The token with the largest score is drawn, the lowest of equal ones. */
GW_FN float gw_choice_score(gw_choice c, float x, gw_i32 pos, gw_i32 token) {
    float y = gw_choice_scaled(c, x);
    return c.temperature > 0.0f
               ? y + gw_gumbel(c.seed_low, c.seed_high, 0, (gw_u32)(pos + c.first), (gw_u32)token)
               : y;
}

GW_FN int gw_choice_filters(gw_choice c, int n) {
    return c.temperature > 0.0f && c.top_k > 0 && c.top_k < n;
}

/* Do top-p or min-p come behind top-k? */
GW_FN int gw_choice_narrows(gw_choice c) {
    return c.temperature > 0.0f && (c.top_p > 0.0f || c.min_p > 0.0f);
}

typedef struct gw_listed {
    gw_u32 key;
    gw_i32 token;
} gw_listed;

/* The order of top-p. */
GW_FN int gw_listed_before(gw_listed a, gw_listed b) {
    return a.key > b.key || (a.key == b.key && a.token < b.token);
}

/* ---- one row after the other, for processors --------------------------------------------------
 */

/* The k-th largest key of n >= k. */
GW_FN gw_u32 gw_kth_key(GW_GLOBAL const gw_listed *list, int n, int k) {
    gw_u32 least = 0;
    for (gw_u32 bit = 0x80000000u; bit != 0; bit >>= 1) {
        int count = 0;
        for (int i = 0; i < n; i++) {
            count += list[i].key >= (least | bit);
        }
        least |= count >= k ? bit : 0u;
    }
    return least;
}

GW_FN int gw_keep_from(GW_GLOBAL gw_listed *list, int n, gw_u32 least) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        gw_listed x = list[i];
        list[kept] = x;
        kept += x.key >= least;
    }
    return kept;
}

/* The k largest of x [n] and those equal to the k-th, k < n; returns how many. list [n]. Cut down
 * whenever it has doubled, so that few keys are looked at more than once. */
GW_FN int gw_list_top(GW_GLOBAL const float *x, int n, int k, GW_GLOBAL gw_listed *list) {
    gw_u32 least = 0;
    int listed = 0, full = k > 2048 ? k : 2048;
    for (int i = 0; i < n; i++) {
        gw_u32 key = gw_float_key(x[i]);
        if (key < least) {
            continue;
        }
        list[listed].key = key;
        list[listed].token = i;
        listed++;
        if (listed - full >= full) {
            least = gw_kth_key(list, listed, k);
            listed = gw_keep_from(list, listed, least);
            full = listed > full ? listed : full;
        }
    }
    return gw_keep_from(list, listed, gw_kth_key(list, listed, k));
}

#ifdef GW_CHOICE_NARROWS
/* How many of the first of n masses, which fall, it takes to reach top_p of all; 0: n. */
GW_FN int gw_masses_reaching(const float *mass, int n, float top_p) {
    double all = 0.0, sum = 0.0;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        all += (double)mass[i];
    }
    do {
        sum += (double)mass[kept++];
    } while (kept < n && (!(top_p > 0.0f) || sum < (double)top_p * all));
    return kept;
}

/* The list, ranked and shortened by top-p and min-p; 0: it is too long. */
GW_FN int gw_list_narrowed(GW_GLOBAL gw_listed *list, int n, gw_choice c) {
    float mass[GW_CHOICE_RANKED];
    int left = 0;
    if (n > GW_CHOICE_RANKED) {
        return 0;
    }
    for (int i = 1; i < n; i++) {
        gw_listed x = list[i];
        int at = i;
        for (; at > 0 && gw_listed_before(x, list[at - 1]); at--) {
            list[at] = list[at - 1];
        }
        list[at] = x;
    }
    for (int i = 0; i < n; i++) {
        mass[i] = gw_exp(gw_key_float(list[i].key) - gw_key_float(list[0].key));
    }
    int kept = gw_masses_reaching(mass, n, c.top_p);
    for (int i = 0; i < kept; i++) {
        gw_listed x = list[i];
        list[left] = x;
        left += !(mass[i] < c.min_p);
    }
    return left;
}
#endif

/* No noise is larger: -ln(-ln(1 - 2^-24)) = 16.6356. */
#define GW_NOISE_MAX 16.64f

/* The token of a row at position pos with logits x [n]; -1 when one of them is not a number or
 * +infinity, or none can be drawn. list [n] when the choice filters. */
GW_FN gw_i32 gw_choose(GW_GLOBAL const float *x, int n, gw_choice c, gw_i32 pos,
                       GW_GLOBAL gw_listed *list) {
    gw_u32 low = 0xffffffffu, high = 0;
    for (int i = 0; i < n; i++) {
        gw_u32 key = gw_float_key(x[i]);
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    if (low < GW_KEY_LEAST || !gw_key_counts(high)) {
        return -1;
    }
    gw_i32 best = 0;
    while (gw_float_key(x[best]) != high) {
        best++;
    }
    if (!(c.temperature > 0.0f)) {
        return best;
    }
    int listed = gw_choice_filters(c, n) ? gw_list_top(x, n, c.top_k, list) : 0;
    if (gw_choice_narrows(c)) {
#ifdef GW_CHOICE_NARROWS
        listed = listed > 0 ? gw_list_narrowed(list, listed, c) : 0;
#else
        listed = 0;
#endif
        if (listed == 0) {
            return -1;
        }
    }
    float most = gw_choice_score(c, x[best], pos, best);
    for (int i = 0; i < (listed > 0 ? listed : n); i++) {
        gw_i32 token = listed > 0 ? list[i].token : i;
        if (gw_choice_scaled(c, x[token]) + GW_NOISE_MAX < most) {
            continue; /* no noise can make it win */
        }
        float y = gw_choice_score(c, x[token], pos, token);
        if (y > most || (y == most && token < best)) {
            most = y;
            best = token;
        }
    }
    return gw_key_counts(gw_float_key(most)) ? best : -1;
}

#endif
