/* core/quantize/codebook.c - see codebook.h. */
#include "core/quantize/codebook.h"

#include <stdatomic.h>
#include <string.h>

#include "core/base/clones.h"
#include "core/base/os.h"
#include "core/tensor/small.h"

enum {
    NEAR = GW_BOOK_NEAR,
    KEYS_2 = 1 << 16, /* eight coordinates of two bits                   */
    KEYS_3 = 1 << 12, /* four of three bits                              */
    LISTS_2 = 6561    /* keys of two bits that occur: three values each  */
};

static const float of_iq2[] = {8, 25, 43}, of_iq1[] = {-8, 0, 8};
static const float of_iq3_xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
static const float of_iq3_s[] = {1, 3, 5, 7, 9, 11, 13, 15};

#define ROOM(name, keys, lists)                                                                    \
    static gw_i16 at_##name[keys];                                                                 \
    static gw_u16 near_##name[lists][NEAR];
ROOM(iq2_xxs, KEYS_2, LISTS_2)
ROOM(iq2_xs, KEYS_2, LISTS_2)
ROOM(iq2_s, KEYS_2, LISTS_2)
ROOM(iq1, KEYS_2, LISTS_2)
ROOM(iq3_xxs, KEYS_3, KEYS_3)
ROOM(iq3_s, KEYS_3, KEYS_3)

/* clang-format off */
static const gw_codebook book_iq2_xxs = {8, 2, 3, 256, of_iq2, gw_grid_iq2_xxs, at_iq2_xxs, near_iq2_xxs};
static const gw_codebook book_iq2_xs = {8, 2, 3, 512, of_iq2, gw_grid_iq2_xs, at_iq2_xs, near_iq2_xs};
static const gw_codebook book_iq2_s = {8, 2, 3, 1024, of_iq2, gw_grid_iq2_s, at_iq2_s, near_iq2_s};
static const gw_codebook book_iq1 = {8, 2, 3, 2048, of_iq1, gw_grid_iq1, at_iq1, near_iq1};
static const gw_codebook book_iq3_xxs = {4, 3, 8, 256, of_iq3_xxs, gw_grid_iq3_xxs, at_iq3_xxs, near_iq3_xxs};
static const gw_codebook book_iq3_s = {4, 3, 8, 512, of_iq3_s, gw_grid_iq3_s, at_iq3_s, near_iq3_s};
/* clang-format on */

/* ---- lists ---------------------------------------------------------------------------------- */

/* The NEAR points of least distance from a key, the first of equals before. */
static void list_near(const gw_codebook *b, unsigned key, gw_u16 *near) {
    float part[GW_BOOK_DIM][GW_BOOK_SIZES], distance[NEAR];
    unsigned mask = (1u << b->bits) - 1;
    int have = 0;
    for (int i = 0; i < b->dim; i++) {
        float from = b->sizes[key >> b->bits * i & mask];
        for (int k = 0; k < b->n_sizes; k++) {
            part[i][k] = (b->sizes[k] - from) * (b->sizes[k] - from);
        }
    }
    for (int p = 0; p < b->n; p++) {
        float d = 0.0f;
        for (int i = 0; i < b->dim; i++) {
            d += part[i][b->points[p] >> b->bits * i & mask];
        }
        if (have == NEAR && !(d < distance[NEAR - 1])) {
            continue;
        }
        int to = have < NEAR ? have++ : NEAR - 1;
        for (; to > 0 && d < distance[to - 1]; to--) {
            distance[to] = distance[to - 1];
            near[to] = near[to - 1];
        }
        distance[to] = d;
        near[to] = b->points[p];
    }
}

static void make(const gw_codebook *b) {
    int lists = 0;
    unsigned keys = 1u << b->bits * b->dim, mask = (1u << b->bits) - 1;
    memset(b->at, 0xff, keys * sizeof *b->at);
    for (int p = 0; p < b->n; p++) {
        b->at[b->points[p]] = (gw_i16)p;
    }
    for (unsigned key = 0; key < keys; key++) {
        int occurs = b->at[key] < 0;
        for (int i = 0; i < b->dim; i++) {
            occurs = occurs && (int)(key >> b->bits * i & mask) < b->n_sizes;
        }
        if (occurs) {
            list_near(b, key, b->near[lists]);
            b->at[key] = (gw_i16)(-1 - lists++);
        }
    }
}

/* The first to ask makes it, the others wait. */
static const gw_codebook *made(const gw_codebook *b, _Atomic int *state) {
    enum { NOT_YET, AT_WORK, DONE };
    int seen = NOT_YET;
    if (atomic_load_explicit(state, memory_order_acquire) == DONE) {
        return b;
    }
    if (atomic_compare_exchange_strong(state, &seen, AT_WORK)) {
        make(b);
        atomic_store_explicit(state, DONE, memory_order_release);
    }
    while (atomic_load_explicit(state, memory_order_acquire) != DONE) {
        usleep(200);
    }
    return b;
}

const gw_codebook *gw_codebook_of(gw_fmt fmt) {
    static _Atomic int states[6];
    switch (fmt) {
    case GW_FMT_IQ2_XXS:
        return made(&book_iq2_xxs, &states[0]);
    case GW_FMT_IQ2_XS:
        return made(&book_iq2_xs, &states[1]);
    case GW_FMT_IQ2_S:
        return made(&book_iq2_s, &states[2]);
    case GW_FMT_IQ3_XXS:
        return made(&book_iq3_xxs, &states[3]);
    case GW_FMT_IQ3_S:
        return made(&book_iq3_s, &states[4]);
    default:
        return made(&book_iq1, &states[5]);
    }
}

/* ---- the nearest point ---------------------------------------------------------------------- */

/* Errors of points come out of tables of two coordinates each, so that a point costs dim / 2
 * additions whatever the weights. */
static inline __attribute__((always_inline)) unsigned key_of(const gw_codebook *b, int dim,
                                                             int bits, int n, const float *x,
                                                             const float *a, float scale,
                                                             const float *sizes, float *error) {
    float cost[GW_BOOK_DIM][GW_BOOK_SIZES], least = 0.0f;
    unsigned key = 0;
    for (int i = 0; i < dim; i++) {
        int best = 0;
        for (int k = 0; k < n; k++) {
            float off = scale * sizes[k] - x[i];
            cost[i][k] = a[i] * (off * off);
        }
        for (int k = 1; k < n; k++) {
            best = cost[i][k] < cost[i][best] ? k : best;
        }
        key |= (unsigned)best << bits * i;
        least += cost[i][best];
    }
    *error = least;
    if (b->at[key] >= 0) {
        return key;
    }
    float two[GW_BOOK_DIM / 2][1 << 6];
    for (int i = 0; i < dim; i += 2) {
        for (int high = 0; high < n; high++) {
            for (int low = 0; low < n; low++) {
                two[i / 2][(high << bits) + low] = cost[i][low] + cost[i + 1][high];
            }
        }
    }
    const gw_u16 *list = b->near[-1 - b->at[key]];
    const unsigned mask = (1u << 2 * bits) - 1;
    unsigned best = list[0];
    least = 3.4e38f;
    for (int j = 0; j < NEAR; j++) {
        unsigned k = list[j];
        float sum = two[0][k & mask] + two[1][k >> 2 * bits & mask];
        if (dim == 8) {
            sum += two[2][k >> 4 * bits & mask] + two[3][k >> 6 * bits & mask];
        }
        best = sum < least ? k : best;
        least = sum < least ? sum : least;
    }
    *error = least;
    return best;
}

static inline __attribute__((always_inline)) gw_near nearest(const gw_codebook *b, int dim,
                                                             int bits, int n, const float *x,
                                                             const float *a, float scale,
                                                             const float *sizes) {
    gw_near out = {0};
    unsigned key = key_of(b, dim, bits, n, x, a, scale, sizes, &out.error);
    out.key = (gw_u16)key;
    for (int i = 0; i < dim; i++) {
        float size = sizes[key >> bits * i & ((1u << bits) - 1)], al = a[i] * size;
        out.xl += al * x[i];
        out.ll += al * size;
    }
    return out;
}

GW_CLONES gw_near gw_codebook_nearest(const gw_codebook *book, const float *x, const float *a,
                                      float scale, const float *sizes) {
    return book->dim == 8 ? nearest(book, 8, 2, 3, x, a, scale, sizes)
                          : nearest(book, 4, 3, 8, x, a, scale, sizes);
}
