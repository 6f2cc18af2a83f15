/* backends/hip/cells.c - ATTENTION over caches in 4 and 5 bits (core/tensor/cells.h): nodes to
 * launches. Generated tokens are summed in the codes as they lie in the cache, where keys and
 * values have one format. Else pages are made ready for a kernel that reads q8_0, one layer's at a
 * time: queries are rotated where keys have 4 or 5 bits, results where values have.
 */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "core/plan/digits.h"
#include "core/tensor/cells.h"
#include "kernels_hip/attention/cells_params.h"

static int value_width(const gw_attn_args *a) { return a->v_dim > 0 ? a->v_dim : a->head_dim; }

/* The node as it would be with q8_0 in place of 4 and 5 bits; what it names is in here, or where it
 * was. span: of the rotation of queries, and of results; 0: they are not rotated. */
typedef struct unpacked {
    gw_node node;
    gw_tensor q, k, v, out;
    struct gw_buffer q_at, k_at, v_at, out_at;
    int span, back;
} unpacked;

static const gw_tensor *moved(gw_tensor *t, const gw_tensor *from, struct gw_buffer *to,
                              gw_fmt fmt) {
    *t = *from;
    t->fmt = fmt;
    t->offset = 0;
    t->buf = to;
    return t;
}

static void as_q8_0(const gw_node *node, unpacked *u) {
    const gw_attn_args *a = &node->args.attn;
    const gw_tensor *v = node->in[2];
    u->node = *node;
    u->span = gw_cache_bits(node->in[1]->fmt) > 0 ? gw_cells_width(a->head_dim) : 0;
    u->back = v == NULL                   ? u->span
              : gw_cache_bits(v->fmt) > 0 ? gw_cells_width(value_width(a))
                                          : 0;
    if (u->span > 0) {
        u->node.in[0] = moved(&u->q, node->in[0], &u->q_at, GW_FMT_F32);
        u->node.in[1] = moved(&u->k, node->in[1], &u->k_at, GW_FMT_Q8_0);
    }
    if (u->back > 0) {
        u->node.in[2] = v != NULL ? moved(&u->v, v, &u->v_at, GW_FMT_Q8_0) : NULL;
        (void)moved(&u->out, node->out, &u->out_at, GW_FMT_F32);
        u->node.out = &u->out;
    }
}

/* ---- attention in codes ---------------------------------------------------------------------- */

enum { SCRATCH_BYTES = 128 << 20, RESERVED = 1024 }; /* as in attention.c */

static int heads_at_once(const gw_attn_args *a) {
    int group = a->heads / a->kv_heads;
    return group > 2 ? GW_CODES_HEADS : group;
}

/* How a block of gw_attend_codes uses its shared memory: the first of these that fits, of the first
 * two together with another block. 0: none does. */
static unsigned codes_shared(const struct gw_device *d, const gw_node *node,
                             struct gw_attend_codes_params *p, int *teams) {
    static const struct {
        int grouped, teams, slots, blocks;
    } uses[] = {{1, 8, 2, 2}, {1, 8, 1, 2}, {1, 4, 2, 1}, {1, 4, 1, 1},
                {0, 4, 2, 1}, {0, 4, 1, 1}, {0, 2, 1, 1}, {0, 1, 1, 1}};
    const gw_attn_args *a = &node->args.attn;
    int heads = heads_at_once(a), e = a->head_dim, bits = gw_cache_bits(node->in[1]->fmt);
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        int bytes = GW_CODES_DESK(heads, e, uses[i].grouped) +
                    uses[i].teams * GW_CODES_TEAM(heads, e, bits, uses[i].slots);
        if (uses[i].blocks * (bytes + RESERVED) <= d->shared_bytes) {
            p->grouped = uses[i].grouped;
            p->slots = uses[i].slots;
            *teams = uses[i].teams;
            return (unsigned)bytes;
        }
    }
    return 0;
}

static int accepts_cells(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    unpacked u;
    (void)kernel;
    as_q8_0(node, &u);
    if ((u.span == 0 && u.back == 0) || node->in[0]->fmt != GW_FMT_F32) {
        return 0;
    }
    if (gw_attn_in_codes(node)) {
        struct gw_attend_codes_params p;
        int teams;
        return codes_shared(device, node, &p, &teams) > 0;
    }
    return gw_kernel_first(device->kernels, device->n_kernels, &u.node, device) != NULL;
}

static gw_status record_rotation(struct gw_segment *segment, const gw_node *node, gw_hip_ptr in,
                                 gw_hip_ptr out, size_t width, int span, int form) {
    enum { TEAMS = GW_CELLS_THREADS / GW_LANES };
    struct gw_cells_rotate_params p = {.step = gw_hip_step(segment),
                                       .in = in,
                                       .out = out,
                                       .width = (int32_t)width,
                                       .span = span,
                                       .form = form};
    return gw_hip_record(segment, node,
                         form == GW_FORM_FLOATS ? "gw_cells_rotate_f32" : "gw_cells_rotate_act8",
                         gw_hip_groups(width / (size_t)span, TEAMS), (unsigned)segment->rows, 1,
                         GW_CELLS_THREADS, 1, 1, 0, &p, sizeof p);
}

static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

static gw_status record_codes_join(struct gw_segment *segment, const gw_node *node,
                                   const struct gw_attend_codes_params *p, gw_hip_ptr out) {
    struct gw_join_params join = {.step = p->step,
                                  .parts = p->parts,
                                  .out = out,
                                  .sinks = node->w[0] != NULL ? gw_hip_at(node->w[0]) : 0,
                                  .heads = p->heads,
                                  .e = p->e,
                                  .window = p->window,
                                  .form = GW_FORM_FLOATS};
    return gw_hip_record(
        segment, node, p->grouped ? "gw_attend_join_groups_f32" : "gw_attend_join_pages_f32",
        (unsigned)p->heads * gw_hip_groups((size_t)p->e, GW_JOIN_WIDTH), (unsigned)p->parts.rows, 1,
        GW_JOIN_THREADS, 1, 1, 0, &join, sizeof join);
}

static gw_status record_codes(struct gw_segment *segment, const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    size_t heads = (size_t)a->heads, e = (size_t)a->head_dim, rows = (size_t)segment->rows;
    size_t table = gw_hip_width(node->in[3]), groups = gw_hip_groups(table, GW_PAGE_GROUP);
    int at_once = heads_at_once(a), teams = 0;
    struct gw_attend_codes_params p = {.step = gw_hip_step(segment),
                                       .k = gw_hip_at(node->in[1]),
                                       .v = gw_hip_at(node->in[2]),
                                       .pages = gw_hip_at(node->in[3]),
                                       .q = gw_hip_at(node->in[0]),
                                       .table_stride = (int32_t)table,
                                       .heads = a->heads,
                                       .kv_heads = a->kv_heads,
                                       .e = a->head_dim,
                                       .window = a->window,
                                       .scale = a->scale};
    unsigned shared = codes_shared(segment->device, node, &p, &teams);
    size_t stride = ((p.grouped ? groups : table) + 3) / 4 * 4;
    size_t some = SCRATCH_BYTES / (heads * stride * (e + 2) * sizeof(float));
    some = some < 1 ? 1 : some > rows ? rows : some;
    size_t tops = padded(some * heads * stride * sizeof(float));
    gw_hip_ptr scratch;
    GW_TRY(gw_hip_scratch(segment,
                          2 * tops + padded(some * heads * stride * e * sizeof(float)) +
                              rows * heads * e * sizeof(float),
                          &scratch));
    p.parts = (struct gw_attend_parts){.top = scratch,
                                       .sum = scratch + tops,
                                       .values = scratch + 2 * tops,
                                       .page_stride = (int32_t)stride,
                                       .e_padded = (int32_t)e};
    gw_hip_ptr out = p.parts.values + padded(some * heads * stride * e * sizeof(float));
    size_t kv_heads = (size_t)a->kv_heads;
    size_t tiles = kv_heads * gw_hip_groups(heads / kv_heads, (size_t)at_once);
    char name[48];
    snprintf(name, sizeof name, "gw_attend_codes_%s_h%d_e%d", gw_format_of(node->in[1]->fmt)->name,
             at_once, e == 64 || e == 128 ? a->head_dim : 0);
    for (size_t row0 = 0; row0 < rows; row0 += some) {
        p.parts.row0 = (int32_t)row0;
        p.parts.rows = (int32_t)(rows - row0 < some ? rows - row0 : some);
        GW_TRY(gw_hip_record(segment, node, name,
                             (unsigned)(tiles * groups * (size_t)p.parts.rows), 1, 1,
                             (unsigned)teams * GW_LANES, 1, 1, shared, &p, sizeof p));
        segment->launches[segment->n - 1].fill = 1;
        GW_TRY(record_codes_join(segment, node, &p, out));
    }
    return record_rotation(segment, node, out, gw_hip_at(node->out), heads * e,
                           gw_cells_width(a->head_dim), gw_hip_form(segment, node->out));
}

/* ---- as q8_0 --------------------------------------------------------------------------------- */

static gw_status record_unpack(struct gw_segment *segment, const gw_node *node,
                               const unpacked *u) {
    const gw_attn_args *a = &node->args.attn;
    const int k = u->span > 0, v = u->back > 0 && node->in[2] != NULL;
    struct gw_cells_unpack_params p = {.step = gw_hip_step(segment),
                                       .k = k ? gw_hip_at(node->in[1]) : 0,
                                       .v = v ? gw_hip_at(node->in[2]) : 0,
                                       .k_out = u->k_at.at,
                                       .v_out = u->v_at.at,
                                       .pages = gw_hip_at(node->in[3]),
                                       .table_stride = (int32_t)gw_hip_width(node->in[3]),
                                       .kv_heads = a->kv_heads,
                                       .e = a->head_dim,
                                       .ev = value_width(a),
                                       .k_bits = k ? gw_cache_bits(node->in[1]->fmt) : 0,
                                       .v_bits = v ? gw_cache_bits(node->in[2]->fmt) : 0,
                                       .window = a->window};
    GW_TRY(gw_hip_record(segment, node, "gw_cells_unpack",
                         (unsigned)p.table_stride * (unsigned)(p.kv_heads * (k + v)), 1, 1,
                         GW_CELLS_THREADS, 1, 1, 0, &p, sizeof p));
    segment->launches[segment->n - 1].fill = 1;
    return GW_OK;
}

static gw_status record_cells(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    const struct gw_device *d = segment->device;
    size_t e = (size_t)a->head_dim, ev = (size_t)value_width(a), rows = (size_t)segment->rows;
    size_t pages = (size_t)node->in[1]->dim[0] * (size_t)a->kv_heads, k_bytes, v_bytes;
    size_t q = (size_t)a->heads * e, values = (size_t)a->heads * ev;
    unpacked u;
    (void)kernel;
    if (gw_attn_in_codes(node)) {
        return record_codes(segment, node);
    }
    as_q8_0(node, &u);
    const gw_kernel *reads = gw_kernel_first(d->kernels, d->n_kernels, &u.node, d);
    GW_TRY(gw_row_bytes(GW_FMT_Q8_0, (uint64_t)GW_PAGE * e, &k_bytes));
    GW_TRY(gw_row_bytes(GW_FMT_Q8_0, (uint64_t)GW_PAGE * ev, &v_bytes));
    size_t of_q = u.span > 0 ? padded(rows * q * sizeof(float)) : 0;
    size_t of_k = u.span > 0 ? padded(pages * k_bytes) : 0;
    size_t of_out = u.back > 0 ? padded(rows * values * sizeof(float)) : 0;
    size_t of_v = u.back > 0 && node->in[2] != NULL ? pages * v_bytes : 0;
    GW_TRY(gw_hip_unpacked(segment, of_q + of_out + of_k + of_v, &u.q_at.at));
    u.out_at.at = u.q_at.at + of_q;
    u.k_at.at = u.out_at.at + of_out;
    u.v_at.at = u.k_at.at + of_k;
    GW_TRY(u.span > 0 ? record_rotation(segment, node, gw_hip_at(node->in[0]), u.q_at.at, q, u.span,
                                        GW_FORM_FLOATS)
                      : GW_OK);
    GW_TRY(record_unpack(segment, node, &u));
    u.node.kernel = reads;
    size_t front = segment->n;
    GW_TRY(reads->record(segment, reads, &u.node));
    gw_hip_in_order(segment, a->digits ? segment->n : front);
    return u.back > 0 ? record_rotation(segment, node, u.out_at.at, gw_hip_at(node->out), values,
                                        u.back, gw_hip_form(segment, node->out))
                      : GW_OK;
}

/* clang-format off */
const gw_kernel gw_hip_cells_kernels[] = {
    {GW_OP_ATTENTION, "hip.attention.cells", accepts_cells, record_cells, NULL, GW_DIGITS_TOO},
    {.name = NULL},
};
/* clang-format on */
