/* core/tensor/area.h - where rows and entries of a compressed cache lie, and the coefficients of
 * hyper-connections, in the words of dialect.h: docs/arithmetic.md, section 5.
 *
 * An area is a part of each page of positions: the rows of its 64 positions, then the entries that
 * end in it. Entry i ends at position (i + 1) * ratio - 1. So it is mapped, shared and taken back
 * as the page is.
 */
#ifndef GW_TENSOR_AREA_H
#define GW_TENSOR_AREA_H

#include "core/tensor/act.h"

#define GW_AREA_POSITIONS 64 /* GW_PAGE */

typedef struct gw_area {
    int at;    /* floats before it in what a layer keeps of a page */
    int width; /* floats of a row; 0: rows are the entries, of one position each */
    int ratio; /* positions of an entry    */
    int entry; /* floats of an entry       */
} gw_area;

/* Floats of what is kept of a position. */
GW_FN int gw_area_kept(const gw_area *a) { return a->width > 0 ? a->width : a->entry; }
GW_FN int gw_area_floats(const gw_area *a) {
    int entries = (GW_AREA_POSITIONS + a->ratio - 1) / a->ratio;
    return GW_AREA_POSITIONS * a->width + entries * a->entry;
}
/* Floats from the begin of the page to the row of a position in it. */
GW_FN int gw_area_row(const gw_area *a, int pos) {
    return a->at + pos % GW_AREA_POSITIONS * gw_area_kept(a);
}
/* The last position of entry i. */
GW_FN int gw_area_last(const gw_area *a, int i) { return (i + 1) * a->ratio - 1; }
/* The same to the entry that ends at position `last`. */
GW_FN int gw_area_entry(const gw_area *a, int last) {
    return a->at + GW_AREA_POSITIONS * a->width + last % GW_AREA_POSITIONS / a->ratio * a->entry;
}

/* Column c of the entry that ends at `last`, before its norm; see gw_compress_args. pages: of
 * page_floats each; table: of the row's slot; bias: of the gates. */
GW_FN float gw_area_column(const gw_area *a, int series, GW_GLOBAL const float *pages,
                           size_t page_floats, GW_GLOBAL const gw_i32 *table,
                           GW_GLOBAL const float *bias, int last, int c) {
    int first = last + 1 - a->ratio, from = series == 2 && first > 0 ? first - a->ratio : first;
    float top = 0.0f, sum = 0.0f, all = 0.0f;
    for (int turn = series == 0; turn < 2; turn++) {
        for (int p = from; p <= last; p++) {
            int at = series == 2 && p >= first ? a->entry + c : c;
            GW_GLOBAL const float *row =
                pages + (size_t)table[p / GW_AREA_POSITIONS] * page_floats + gw_area_row(a, p);
            float g = 0.0f, by;
            if (series == 0) {
                all = all + row[at];
                continue;
            }
            g = row[series * a->entry + at] + bias[p % a->ratio * series * a->entry + at];
            if (turn == 0) {
                top = p == from || g > top ? g : top;
                continue;
            }
            by = gw_exp(g - top);
            sum = sum + by;
            all = GW_FMA(by, row[at], all);
        }
    }
    return series == 0 ? all / (float)a->ratio : all / sum;
}

/* How well an entry's key [e] fits the queries q [heads, e] of a row; by: weights of the heads, or
 * 0. */
GW_FN float gw_area_score(GW_GLOBAL const float *q, GW_GLOBAL const float *by, int heads, int e,
                          GW_GLOBAL const float *key) {
    float sum = 0.0f;
    for (int h = 0; h < heads; h++) {
        float s = 0.0f;
        for (int c = 0; c < e; c++) {
            s = GW_FMA(q[h * e + c], key[c], s);
        }
        s = s > 0.0f ? s : 0.0f;
        sum = GW_FMA(by != 0 ? by[h] : 1.0f, s, sum);
    }
    return sum + 0.0f;
}

/* The same of one head's query q [e] and the best of the positions from `first` to `last`, whose
 * keys are the entries of an area without rows: the largest product, negative ones too. */
GW_FN float gw_area_block_score(const gw_area *a, GW_GLOBAL const float *q,
                                GW_GLOBAL const float *pages, size_t page_floats,
                                GW_GLOBAL const gw_i32 *table, int first, int last) {
    float top = 0.0f;
    for (int p = first; p <= last; p++) {
        GW_GLOBAL const float *key =
            pages + (size_t)table[p / GW_AREA_POSITIONS] * page_floats + gw_area_entry(a, p);
        float s = 0.0f;
        for (int c = 0; c < a->entry; c++) {
            s = GW_FMA(q[c], key[c], s);
        }
        top = p == first || s > top ? s : top;
    }
    return top;
}

/* How many entries, or blocks of `ratio` positions, a row at `pos` may choose among: the complete
 * ones; where `near` blocks up to its own are always seen, those before them. */
GW_FN int gw_choose_among(int pos, int ratio, int near) {
    int before = pos / ratio + 1 - near;
    return near == 0 ? (pos + 1) / ratio : before > 0 ? before : 0;
}

/* ---- equal scores --------------------------------------------------------------------------- */

/* order[0 .. k): the k largest of n keys, as quickselect by medians of three leaves them (Hoare
 * 1961, Musser 1997, in the steps of libstdc++'s nth_element), so that of equal ones the same are
 * taken as by the library that the published models' outputs come from. Unfinished after 2 log2(n)
 * turns: 0, and the lowest are taken. */
GW_FN void gw_swap_at(GW_GLOBAL gw_i32 *order, int a, int b) {
    gw_i32 t = order[a];
    order[a] = order[b];
    order[b] = t;
}
#define GW_BEFORE(a, b) (key[order[a]] > key[order[b]])
GW_FN int gw_select_part(GW_GLOBAL const gw_u32 *key, GW_GLOBAL gw_i32 *order, int first,
                         int last) {
    int a = first + 1, b = first + (last - first) / 2, c = last - 1, low = first + 1, high = last;
    if (GW_BEFORE(a, b)) {
        gw_swap_at(order, first, GW_BEFORE(b, c) ? b : GW_BEFORE(a, c) ? c : a);
    } else {
        gw_swap_at(order, first, GW_BEFORE(a, c) ? a : GW_BEFORE(b, c) ? c : b);
    }
    for (;; low++) {
        while (GW_BEFORE(low, first)) {
            low++;
        }
        high--;
        while (GW_BEFORE(first, high)) {
            high--;
        }
        if (low >= high) {
            return low;
        }
        gw_swap_at(order, low, high);
    }
}
GW_FN int gw_select(GW_GLOBAL const gw_u32 *key, GW_GLOBAL gw_i32 *order, int n, int k) {
    int first = 0, last = n, turns = 0;
    for (int i = n; i > 1; i /= 2) {
        turns += 2;
    }
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    while (last - first > 3) {
        int cut;
        if (turns-- == 0) {
            return 0;
        }
        cut = gw_select_part(key, order, first, last);
        first = cut <= k - 1 ? cut : first;
        last = cut <= k - 1 ? last : cut;
    }
    for (int i = first + 1; i < last; i++) { /* what is left, in order */
        for (int j = i; j > first && GW_BEFORE(j, j - 1); j--) {
            gw_swap_at(order, j, j - 1);
        }
    }
    return 1;
}
#undef GW_BEFORE

/* Which of equal ones at the edge: those that quickselect takes of the complete ones, or of all
 * `text` entries of what is read at once; or the lowest. */
enum { GW_TIES_COMPLETE, GW_TIES_TEXT, GW_TIES_LOWEST };
/* Among how many entries they are; more than quickselect serves: the lowest. */
GW_FN int gw_choose_whole(int ties, int complete, int text) {
    return ties == GW_TIES_LOWEST                    ? 0x7fffffff
           : ties == GW_TIES_TEXT && text > complete ? text
                                                     : complete;
}

/* CHOOSE of a row by one thread: its `complete` keys, room for `whole` keys and as many numbers.
 * out [most]. whole: how many entries equal ones are taken among; more than are complete where the
 * text goes on, whose keys are the least. */
GW_FN void gw_choose_keys(GW_GLOBAL gw_u32 *key, GW_GLOBAL gw_i32 *order, int complete, int whole,
                          int most, GW_GLOBAL float *out) {
    gw_u32 least = 0, taken = 0xffffffffu;
    int made = 0, above = 0, equal = 0, listed = 0;
    for (int bit = 31; bit >= 0 && complete > most; bit--) { /* the largest that `most` reach */
        gw_u32 next = least | (gw_u32)1 << bit;
        int n = 0;
        for (int k = 0; k < complete; k++) {
            n += key[k] >= next;
        }
        least = n >= most ? next : least;
    }
    for (int k = 0; k < complete && complete > most; k++) {
        above += key[k] > least;
        equal += key[k] == least;
    }
    if (complete > most && above + equal > most && whole / 64 < most) {
        for (int k = complete; k < whole; k++) {
            key[k] = 0;
        }
        listed = gw_select(key, order, whole, most);
    }
    for (int k = 0; k < most && listed; k++) {
        key[order[k]] = taken;
    }
    equal = most - above;
    for (int k = 0; k < complete && made < most; k++) {
        int is = complete <= most || (listed ? key[k] == taken : key[k] > least);
        if (!is && !listed && key[k] == least && equal > 0) {
            is = 1;
            equal--;
        }
        if (is) {
            out[made++] = (float)k;
        }
    }
    while (made < most) {
        out[made++] = -1.0f;
    }
}

/* What LISTED of a row at `pos` sees: `listed` items of the list, then positions [from, pos]. */
typedef struct gw_seen {
    int listed, each, from; /* each: items of an element of the list */
} gw_seen;
/* With ratio 1 and no area the list is all that is seen. near: as of gw_choose_among. */
GW_FN gw_seen gw_listed_seen(int pos, int ratio, int window, int has_area, int most, int near) {
    int complete = gw_choose_among(pos, ratio, near);
    int first = has_area ? pos + 1 - window : complete * ratio;
    gw_seen s;
    complete = most >= 0 && complete > most ? most : complete;
    s.each = has_area ? 1 : ratio;
    s.listed = complete * s.each;
    s.from = first > 0 ? first : 0;
    return s;
}

/* GROUP_DOT behind its sum. */
GW_FN float gw_dot_value(float sum, float scale, int root) {
    float v = sum * scale, size = GW_FABS(v);
    size = GW_SQRT(size > 1e-6f ? size : 1e-6f);
    return !root ? v : v < 0.0f ? -size : v > 0.0f ? size : 0.0f;
}

/* One row of HYPER: logits x, scale, base -> out, all of n (n + 2) values, or n where `in_only`. */
GW_FN void gw_hyper_row(int n, int rounds, float eps, int in_only, GW_GLOBAL const float *x,
                        GW_GLOBAL const float *scale, GW_GLOBAL const float *base,
                        GW_GLOBAL float *out) {
    float m[64];
    for (int i = 0; i < n; i++) {
        float v = x[i] * scale[0];
        out[i] = gw_sigmoid(v + base[i]) + eps;
    }
    if (in_only) {
        return;
    }
    for (int i = 0; i < n; i++) {
        float v = x[n + i] * scale[1], top = 0.0f, sum = 0.0f;
        out[n + i] = 2.0f * gw_sigmoid(v + base[n + i]);
        for (int j = 0; j < n; j++) {
            float y = x[2 * n + i * n + j] * scale[2];
            y = y + base[2 * n + i * n + j];
            m[i * n + j] = y;
            top = j == 0 || y > top ? y : top;
        }
        for (int j = 0; j < n; j++) {
            m[i * n + j] = gw_exp(m[i * n + j] - top);
            sum = sum + m[i * n + j];
        }
        for (int j = 0; j < n; j++) {
            m[i * n + j] = m[i * n + j] / sum + eps;
        }
    }
    for (int turn = 0; turn < 2 * rounds - 1; turn++) { /* columns, then rows and columns */
        int step = turn % 2 == 0 ? n : 1, next = turn % 2 == 0 ? 1 : n;
        for (int i = 0; i < n; i++) {
            float sum = 0.0f;
            for (int j = 0; j < n; j++) {
                sum = sum + m[i * next + j * step];
            }
            sum = sum + eps;
            for (int j = 0; j < n; j++) {
                m[i * next + j * step] = m[i * next + j * step] / sum;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            out[2 * n + j * n + i] = m[i * n + j];
        }
    }
}

#endif
