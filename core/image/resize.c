/* core/image/resize.c - the two passes of a resize. Rows of the first pass live in a ring that
 * holds those which the second one needs at once. */
#include "core/image/resize.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clones.h"
#include "core/image/filter.h"
#include "core/image/picture.h"

/* Vectors of the compiler's: their widths are the loops', whatever the machine has. */
typedef int32_t v8 __attribute__((vector_size(32)));
typedef uint8_t b8 __attribute__((vector_size(8)));

enum { ROWS = 4, COLUMNS = 32, SLACK = 8 }; /* of one step; bytes that may be read behind a row */

typedef struct passes {
    gw_taps across, down; /* n is 0: that size stays */
    const uint8_t *rgb;   /* [height, width, 3] */
    int32_t width, height, to_width;
    uint8_t *last; /* the last row of rgb with SLACK behind it                  */
    uint8_t *ring; /* [ring_rows, to_width * 3] rows of the first pass, row y at y % ring_rows */
    int32_t ring_rows, done; /* rows of the first pass that were computed: those before this one */
    const uint8_t **row;     /* [down.room] the rows of one output                        */
} passes;

static inline uint8_t clipped(int32_t value, int shift) {
    int32_t v = value >> shift;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Four rows of the first pass, two to a vector; a pixel is read as four bytes, the last of which is
 * not used. */
GW_CLONES static void filter_across(const gw_taps *t, const uint8_t *const from[ROWS],
                                    uint8_t *const to[ROWS]) {
    const int32_t h = 1 << (t->shift - 1);
    const v8 half = {h, h, h, h, h, h, h, h};
    for (int32_t x = 0; x < t->n; x++) {
        const int32_t *weight = t->weight + (size_t)x * (size_t)t->room;
        size_t at = 3 * (size_t)t->first[x];
        v8 sum[ROWS / 2] = {half, half};
        for (int32_t k = 0; k < t->count[x]; k++, at += 3) {
            for (int r = 0; r < ROWS / 2; r++) {
                uint32_t one, other;
                uint64_t both;
                b8 px;
                memcpy(&one, from[2 * r] + at, sizeof one);
                memcpy(&other, from[2 * r + 1] + at, sizeof other);
                both = one | (uint64_t)other << 32; /* not through memory: it would wait for it */
                memcpy(&px, &both, sizeof px);
                sum[r] += __builtin_convertvector(px, v8) * weight[k];
            }
        }
        for (int r = 0; r < ROWS; r++) {
            for (int c = 0; c < 3; c++) {
                to[r][3 * (size_t)x + (size_t)c] = clipped(sum[r / 2][4 * (r % 2) + c], t->shift);
            }
        }
    }
}

/* One row of the second pass: bytes [n] of `count` rows. */
GW_CLONES static void filter_down(const int32_t *weight, int32_t count, int shift,
                                  const uint8_t *const *row, size_t n, uint8_t *out) {
    int32_t half = 1 << (shift - 1);
    size_t x = 0;
    for (; x + COLUMNS <= n; x += COLUMNS) {
        v8 start = (v8){0} + half, sum[COLUMNS / 8] = {start, start, start, start};
        for (int32_t k = 0; k < count; k++) {
            for (int i = 0; i < COLUMNS / 8; i++) {
                b8 px;
                memcpy(&px, row[k] + x + 8 * i, sizeof px);
                sum[i] += __builtin_convertvector(px, v8) * weight[k];
            }
        }
        for (int i = 0; i < COLUMNS / 8; i++) {
            v8 v = sum[i] >> shift;
            v &= ~(v < 0);
            v8 over = v > 255;
            b8 px = __builtin_convertvector((v & ~over) | (over & 255), b8);
            memcpy(out + x + 8 * i, &px, sizeof px);
        }
    }
    for (; x < n; x++) {
        int32_t sum = half;
        for (int32_t k = 0; k < count; k++) {
            sum += row[k][x] * weight[k];
        }
        out[x] = clipped(sum, shift);
    }
}

static const uint8_t *source_row(const passes *p, int32_t y) {
    return y == p->height - 1 ? p->last : p->rgb + (size_t)y * (size_t)p->width * 3;
}

/* Rows [p->done, end) of the first pass into the ring. */
static void read_rows(passes *p, int32_t end) {
    size_t row = 3 * (size_t)p->to_width;
    while (p->done < end) {
        const uint8_t *from[ROWS];
        uint8_t *to[ROWS];
        for (int r = 0; r < ROWS; r++) { /* what is too many is computed again, to the same bytes */
            int32_t y = p->done + r < end ? p->done + r : end - 1;
            from[r] = source_row(p, y);
            to[r] = p->ring + (size_t)(y % p->ring_rows) * row;
        }
        filter_across(&p->across, from, to);
        p->done = p->done + ROWS < end ? p->done + ROWS : end;
    }
}

/* Row y of the first pass; it was read if it is one of a ring. */
static const uint8_t *first_pass_row(const passes *p, int32_t y) {
    return p->across.n != 0 ? p->ring + (size_t)(y % p->ring_rows) * 3 * (size_t)p->to_width
                            : p->rgb + (size_t)y * (size_t)p->width * 3;
}

static void run(passes *p, int32_t to_height, uint8_t *out) {
    size_t row = 3 * (size_t)p->to_width;
    for (int32_t y = 0; y < to_height; y++, out += row) {
        int32_t first = p->down.n != 0 ? p->down.first[y] : y;
        int32_t count = p->down.n != 0 ? p->down.count[y] : 1;
        if (p->across.n != 0) {
            p->done = p->done < first ? first : p->done;
            read_rows(p, first + count);
        }
        for (int32_t k = 0; k < count; k++) {
            p->row[k] = first_pass_row(p, first + k);
        }
        if (p->down.n != 0) {
            filter_down(p->down.weight + (size_t)y * (size_t)p->down.room, count, p->down.shift,
                        p->row, row, out);
        } else {
            memcpy(out, p->row[0], row);
        }
    }
}

static gw_status prepare(const char *where, passes *p, gw_filter filter, gw_pixel_rule rule,
                         int32_t to_height) {
    if (p->to_width != p->width) {
        GW_TRY(gw_taps_make(where, p->width, p->to_width, filter, rule, &p->across));
    }
    if (to_height != p->height) {
        GW_TRY(gw_taps_make(where, p->height, to_height, filter, rule, &p->down));
    }
    size_t row = 3 * (size_t)p->width, rows = p->down.n != 0 ? (size_t)p->down.room : 1;
    p->ring_rows = (int32_t)rows + ROWS;
    p->ring = malloc((size_t)p->ring_rows * 3 * (size_t)p->to_width);
    p->last = malloc(row + SLACK);
    p->row = malloc(rows * sizeof *p->row);
    if (p->ring == NULL || p->last == NULL || p->row == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory to resize a picture");
    }
    memcpy(p->last, p->rgb + (size_t)(p->height - 1) * row, row);
    memset(p->last + row, 0, SLACK);
    return GW_OK;
}

static gw_status across_then_down(const char *where, const uint8_t *rgb, int32_t width,
                                  int32_t height, gw_filter filter, gw_pixel_rule rule,
                                  int32_t to_width, int32_t to_height, uint8_t *out) {
    passes p = {.rgb = rgb, .width = width, .height = height, .to_width = to_width};
    gw_status status = prepare(where, &p, filter, rule, to_height);
    if (status == GW_OK) {
        run(&p, to_height, out);
    }
    gw_taps_free(&p.across);
    gw_taps_free(&p.down);
    free(p.ring);
    free(p.last);
    free(p.row);
    return status;
}

gw_status gw_resize(const char *where, const uint8_t *rgb, int32_t width, int32_t height,
                    gw_filter filter, gw_pixel_rule rule, int32_t to_width, int32_t to_height,
                    uint8_t *out) {
    int64_t less = (int64_t)height - to_height;
    int down_first = rule == GW_PIXELS_PIL && less > 0 && less > 2 * ((int64_t)width - to_width);
    if (!down_first || width == to_width) {
        return across_then_down(where, rgb, width, height, filter, rule, to_width, to_height, out);
    }
    uint8_t *between = malloc((size_t)width * (size_t)to_height * 3);
    if (between == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory to resize a picture");
    }
    gw_status status =
        across_then_down(where, rgb, width, height, filter, rule, width, to_height, between);
    if (status == GW_OK) {
        status = across_then_down(where, between, width, to_height, filter, rule, to_width,
                                  to_height, out);
    }
    free(between);
    return status;
}
