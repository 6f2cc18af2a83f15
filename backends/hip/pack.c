/* backends/hip/pack.c - packing on the card (kernels_hip/pack.hip).
 *
 * A strip has the bits of its rows in another order. Which bit comes from where is not written a
 * second time: gw_hip_pack is asked. The bits of a stored piece are numbered; the piece is packed
 * once for every bit of the numbers, with the stored bits whose number has it; the results spell
 * where every packed bit comes from. A format that computes something while it is packed fails the
 * comparison behind it, and the host goes on packing it.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "core/base/list.h"
#include "kernels_hip/pack_params.h"
#include "kernels_hip/strip.h"

/* BITS: most sources of a byte. WHOLE: columns of a record, or of two or four. */
enum { BITS = 8, TRIALS = 8, WHOLE = 128 };

/* Of a piece of `cols` columns. */
struct gw_hip_table {
    gw_fmt fmt;
    size_t cols, stored, bytes; /* stored: of one row; bytes: packed, of a strip */
    int bits_from;              /* 0: the host packs it */
    gw_hip_ptr at;
    size_t at_bytes;
};

/* ---- making a table -------------------------------------------------------------------------- */

/* One strip of the columns of a table, packed and as stored. */
typedef struct trial {
    gw_hip_layout layout;
    size_t bits; /* as stored */
    unsigned char *stored, *packed;
    uint32_t *number; /* [8 * layout.unit_bytes[0]] of the stored bit, 1..; 0: none */
    unsigned char *constant;
} trial;

static void pack_trial(trial *t) {
    unsigned char *out[GW_HIP_PLANES] = {t->packed};
    gw_hip_pack(&t->layout, t->stored, GW_STRIP_ROWS, out);
}

static int bit_of(const unsigned char *bytes, size_t i) { return bytes[i / 8] >> i % 8 & 1; }

static void number_bits(trial *t) {
    size_t n = t->bits / 8, packed = t->layout.unit_bytes[0];
    memset(t->stored, 0, n);
    pack_trial(t);
    memcpy(t->constant, t->packed, packed);
    memset(t->number, 0, 8 * packed * sizeof *t->number);
    for (int k = 0; (size_t)1 << k <= t->bits; k++) {
        memset(t->stored, 0, n);
        for (size_t i = 0; i < t->bits; i++) {
            t->stored[i / 8] |= (unsigned char)(((i + 1) >> k & 1) << i % 8);
        }
        pack_trial(t);
        for (size_t i = 0; i < 8 * packed; i++) {
            t->number[i] |= (uint32_t)(bit_of(t->packed, i) ^ bit_of(t->constant, i)) << k;
        }
    }
}

/* Entries of the table: table [1 + BITS, packed]; the most of one byte, or -1: a number is none. */
static int list_sources(const trial *t, uint32_t *table) {
    size_t packed = t->layout.unit_bytes[0];
    int most = 1; /* 0 would say that the host packs */
    for (size_t b = 0; b < packed; b++) {
        int n = 0;
        table[b] = t->constant[b];
        for (size_t k = 0; k < 8; k++) {
            uint32_t bit = t->number[8 * b + k];
            if (bit > t->bits) {
                return -1;
            }
            if (bit == 0) {
                continue;
            }
            uint32_t from = (bit - 1) / 8, turn = ((bit - 1) % 8 + 8 - k) % 8;
            uint32_t entry = from | turn << GW_PACK_ROTATION;
            int i = 0;
            while (i < n && (table[(1 + (size_t)i) * packed + b] & 0xffffffu) != entry) {
                i++;
            }
            if (i == n) {
                table[(1 + (size_t)n++) * packed + b] = entry;
            }
            table[(1 + (size_t)i) * packed + b] |= 1u << (GW_PACK_MASK + k);
        }
        most = n > most ? n : most;
    }
    return most;
}

/* Random bits, and all of them set, by the table as by the host? */
static int holds(trial *t, const uint32_t *table, int n) {
    size_t packed = t->layout.unit_bytes[0];
    uint64_t draw = 88172645463325252u;
    for (int i = 0; i < TRIALS; i++) {
        for (size_t b = 0; b < t->bits / 8; b++) {
            draw ^= draw << 13, draw ^= draw >> 7, draw ^= draw << 17; /* xorshift, Marsaglia */
            t->stored[b] = i == 0 ? 0xff : (unsigned char)(draw >> 32);
        }
        pack_trial(t);
        for (size_t b = 0; b < packed; b++) {
            uint32_t byte = table[b];
            for (int k = 1; k <= n; k++) {
                uint32_t e = table[(size_t)k * packed + b];
                byte ^= t->stored[e & 0xffff] * 0x101u >> (e >> GW_PACK_ROTATION & 7) &
                        e >> GW_PACK_MASK;
            }
            if (byte != t->packed[b]) {
                return 0;
            }
        }
    }
    return 1;
}

static gw_status send_table(struct gw_device *device, struct gw_hip_table *t,
                            const uint32_t *table) {
    const gw_hip_driver *d = device->driver;
    t->at_bytes = (size_t)(1 + t->bits_from) * t->bytes * sizeof *table;
    GW_TRY(gw_hip_memory_new(device, t->at_bytes, &t->at));
    GW_TRY(gw_hip_check(d, d->Write(t->at, table, t->at_bytes, device->stream), "sending a table"));
    return gw_hip_check(d, d->StreamWait(device->stream), "sending a table");
}

static gw_status make_table(struct gw_device *device, struct gw_hip_table *t) {
    gw_tensor strip = {.name = "table", .fmt = t->fmt, .n_dim = 2};
    trial r = {.bits = 8 * GW_STRIP_ROWS * t->stored};
    strip.dim[0] = GW_STRIP_ROWS;
    strip.dim[1] = (int64_t)t->cols;
    GW_TRY(gw_hip_layout_of(device, &strip, 0, &r.layout));
    t->bytes = r.layout.unit_bytes[0];
    if (r.layout.row_bytes != t->stored || r.layout.n_planes != 1 || t->bytes % 4 != 0 ||
        r.bits / 8 > GW_PACK_MOST) {
        return GW_OK;
    }
    uint32_t *table = calloc((1 + BITS) * t->bytes, sizeof *table);
    r.stored = malloc(r.bits / 8);
    r.packed = malloc(t->bytes);
    r.constant = malloc(t->bytes);
    r.number = malloc(8 * t->bytes * sizeof *r.number);
    gw_status status = GW_OK;
    if (table == NULL || r.stored == NULL || r.packed == NULL || r.constant == NULL ||
        r.number == NULL) {
        status = gw_fail(GW_E_NOMEM, "hip", "no memory for a table of %zu bytes", t->bytes);
    } else {
        number_bits(&r);
        int n = list_sources(&r, table);
        t->bits_from = n > 0 && holds(&r, table, n) ? n : 0;
        status = t->bits_from > 0 ? send_table(device, t, table) : GW_OK;
    }
    free(table);
    free(r.stored);
    free(r.packed);
    free(r.constant);
    free(r.number);
    return status;
}

/* ---- use ------------------------------------------------------------------------------------- */

static gw_status table_of(struct gw_device *device, gw_fmt fmt, size_t cols,
                          struct gw_hip_table *out) {
    struct gw_hip_packing *all = &device->packing;
    for (size_t i = 0; i < all->n; i++) {
        if (all->table[i].fmt == fmt && all->table[i].cols == cols) {
            *out = all->table[i];
            return GW_OK;
        }
    }
    struct gw_hip_table *grown =
        gw_list_grown(all->table, all->n, &all->room, sizeof *all->table);
    if (grown == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a table");
    }
    all->table = grown;
    *out = (struct gw_hip_table){.fmt = fmt, .cols = cols};
    GW_TRY(gw_row_bytes(fmt, cols, &out->stored));
    gw_status status = make_table(device, out);
    grown[all->n++] = *out; /* its memory is freed, whatever became of it */
    return status;
}

/* The pieces of a row: whole ones, and what is left behind them. */
typedef struct pieces {
    struct gw_hip_table whole, rest;
    size_t n_whole, n_rest;
} pieces;

/* *on_card: 1 where both have a table. */
static gw_status cut_row(struct gw_device *device, const gw_hip_layout *layout, pieces *out,
                         int *on_card) {
    const gw_format *f = gw_format_of(layout->fmt);
    size_t cols = f->block_elems > WHOLE ? f->block_elems : WHOLE;
    size_t rest = layout->cols % cols;
    *out = (pieces){.n_whole = layout->cols / cols, .n_rest = rest > 0};
    *on_card = 0;
    if (layout->number != GW_HIP_LAYOUT_STRIPS || f->row_header != 0 ||
        cols % f->block_elems != 0 || cols % WHOLE != 0) {
        return GW_OK;
    }
    GW_TRY(out->n_whole > 0 ? table_of(device, layout->fmt, cols, &out->whole) : GW_OK);
    GW_TRY(out->n_rest > 0 ? table_of(device, layout->fmt, rest, &out->rest) : GW_OK);
    *on_card = (out->n_whole == 0 || out->whole.bits_from > 0) &&
               (out->n_rest == 0 || out->rest.bits_from > 0) &&
               out->n_whole * out->whole.bytes + out->n_rest * out->rest.bytes ==
                   layout->unit_bytes[0] &&
               out->n_whole * out->whole.stored + out->n_rest * out->rest.stored ==
                   layout->row_bytes;
    return GW_OK;
}

gw_status gw_hip_packs(struct gw_device *device, const gw_hip_layout *layout, int *on_card) {
    pieces row;
    return cut_row(device, layout, &row, on_card);
}

static gw_status start(struct gw_device *device, const struct gw_hip_table *t,
                       struct gw_pack_params *p, size_t pieces_of_row) {
    gw_hip_launch l = {.kernel = "gw_pack_rows",
                       .grid = {(unsigned)pieces_of_row,
                                (unsigned)((p->rows + GW_STRIP_ROWS - 1) / GW_STRIP_ROWS), 1},
                       .block = {GW_PACK_THREADS, 1, 1},
                       .params = p};
    p->table = t->at;
    p->stored = (int32_t)t->stored;
    p->piece_bytes = (int32_t)t->bytes;
    p->bits_from = t->bits_from;
    GW_TRY(gw_hip_find(device, l.kernel, &l.function));
    return gw_hip_check(device->driver, gw_hip_start(device, &l, 0, GW_HIP_ATTEND_MANY),
                        "packing a weight");
}

gw_status gw_hip_pack_rows(struct gw_device *device, const gw_hip_layout *layout, gw_hip_ptr rows,
                           size_t n, gw_hip_ptr to) {
    pieces row;
    int on_card;
    struct gw_pack_params p = {.from = rows,
                               .to = to,
                               .row_bytes = (int64_t)layout->row_bytes,
                               .strip_bytes = (int64_t)layout->unit_bytes[0],
                               .rows = (int32_t)n};
    GW_TRY(cut_row(device, layout, &row, &on_card));
    GW_TRY(row.n_whole > 0 ? start(device, &row.whole, &p, row.n_whole) : GW_OK);
    p.from += row.n_whole * row.whole.stored;
    p.to += row.n_whole * row.whole.bytes;
    return row.n_rest > 0 ? start(device, &row.rest, &p, 1) : GW_OK;
}

void gw_hip_packing_free(struct gw_device *device) {
    for (size_t i = 0; i < device->packing.n; i++) {
        gw_hip_memory_free(device, device->packing.table[i].at, device->packing.table[i].at_bytes);
    }
    free(device->packing.table);
    device->packing = (struct gw_hip_packing){.n = 0};
}
