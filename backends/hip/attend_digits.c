/* backends/hip/attend_digits.c - ATTENTION of prompts whose pages are summed in integers: nodes to
 * launches (kernels_hip/attention/attend_digits_params.h).
 */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "core/tensor/digits.h"
#include "kernels_hip/attention/attend_digits_params.h"
#include "kernels_hip/attention/attend_more_params.h"
#include "kernels_hip/attention/attend_prompt_params.h"

enum { SUMS_BYTES = 128 << 20 }; /* of groups of pages; rows that need more take turns */

static int width_of(int e) { return e <= 64 ? 64 : e <= 128 ? 128 : 256; }

/* Bytes of a page's keys and values for a KV head, and of a place for one of them. */
typedef struct layout {
    int keys, values, place;
} layout;

/* Matrix instructions of four waves have a layout of their own. */
static layout layout_of(const struct gw_device *device, int wide) {
    int ev = GW_DIGITS_EV(wide), slices = wide / ev;
    if (device->group) {
        return (layout){GW_DIGITS_GROUP_KEYS(wide), slices * GW_DIGITS_GROUP_VALUES(ev),
                        GW_DIGITS_GROUP_PLACE(wide)};
    }
    return (layout){GW_DIGITS_KEYS(wide), slices * GW_DIGITS_VALUES(ev), GW_DIGITS_PLACE(wide)};
}

static unsigned shared_of(const struct gw_device *device, int e) {
    int wide = width_of(e), stages = gw_hip_has_copies(device) ? GW_DIGITS_STAGES(wide) : 1;
    return (unsigned)GW_DIGITS_SHARED(layout_of(device, wide).place, stages);
}

static int accepts_attention(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    (void)kernel;
    return node->args.attn.digits && node->in[0]->fmt == GW_FMT_F32 &&
           gw_cache_bits(node->in[1]->fmt) == 0 && gw_cache_bits(node->in[2]->fmt) == 0 &&
           (node->out->fmt == GW_FMT_F32 || node->out->fmt == GW_FMT_ACT8) &&
           shared_of(device, node->args.attn.head_dim) <= (unsigned)device->shared_bytes;
}

static gw_hip_ptr take(gw_hip_ptr *at, size_t bytes) {
    gw_hip_ptr here = *at;
    *at += (bytes + 255) / 256 * 256;
    return here;
}

/* Shared memory of the launch of own pages, by tiles of queries. */
static unsigned shared_of_own(const struct gw_device *d, int wide) {
    return GW_PROMPT_SHARED((unsigned)wide, gw_hip_is_wide(d));
}

/* Each row's own page, in float. */
static gw_status record_own(struct gw_segment *segment, const gw_node *node,
                            const struct gw_digits_params *p) {
    const struct gw_device *d = segment->device;
    unsigned e = (unsigned)p->wide, wide = (unsigned)gw_hip_is_wide(d);
    size_t queries = (size_t)segment->rows * (size_t)(p->heads / p->kv_heads);
    struct gw_prompt_params own = {.step = p->step,
                                   .q = p->q,
                                   .k = p->k,
                                   .v = p->v,
                                   .pages = p->pages,
                                   .out = p->own_values,
                                   .tops = p->own_top,
                                   .totals = p->own_sum,
                                   .heads = p->heads,
                                   .kv_heads = p->kv_heads,
                                   .e = p->e,
                                   .page_stride = p->table_stride,
                                   .form = GW_FORM_FLOATS,
                                   .scale = p->scale};
    char name[48];
    snprintf(name, sizeof name, "gw_attend_prompt_own_%s_%u", gw_format_of(node->in[1]->fmt)->name,
             e);
    return gw_hip_record(segment, node, name, (unsigned)p->kv_heads,
                         gw_hip_groups(queries, GW_PROMPT_QUERIES(e, wide)), 1,
                         GW_PROMPT_THREADS(e, wide), 1, 1, shared_of_own(d, p->wide), &own,
                         sizeof own);
}

/* The same where that has no room: by the kernel of every form, a chunk as long as a page. */
static gw_status record_own_apart(struct gw_segment *segment, const gw_node *node,
                                  const struct gw_digits_params *p) {
    int group = p->heads / p->kv_heads, side = GW_ATTEND_MORE_TEAMS;
    while (side > group) {
        side /= 2;
    }
    struct gw_attend_more_params own = {.step = p->step,
                                        .q = p->q,
                                        .k = p->k,
                                        .v = p->v,
                                        .pages = p->pages,
                                        .top = p->own_top,
                                        .sum = p->own_sum,
                                        .values = p->own_values,
                                        .rows = segment->rows,
                                        .page_stride = 1,
                                        .table_stride = p->table_stride,
                                        .heads = p->heads,
                                        .kv_heads = p->kv_heads,
                                        .e = p->e,
                                        .ev = p->e,
                                        .chunk = GW_PAGE,
                                        .form = GW_FORM_FLOATS,
                                        .side = side,
                                        .k_bytes = p->k_bytes,
                                        .v_bytes = p->v_bytes,
                                        .scale = p->scale};
    unsigned across = (unsigned)p->kv_heads * gw_hip_groups((size_t)group, (size_t)side);
    char name[GW_HIP_NAME];
    gw_hip_more_cells(node, name, &own);
    return gw_hip_record(segment, node, name, across, (unsigned)segment->rows, 1,
                         GW_ATTEND_MORE_THREADS, 1, 1, 0, &own, sizeof own);
}

/* Digits of the pages; of keys and values in two formats by two launches. */
static gw_status record_make(struct gw_segment *segment, const gw_node *node,
                             struct gw_digits_params *p) {
    const size_t slices = (size_t)(p->wide / GW_DIGITS_EV(p->wide));
    const size_t units = gw_hip_width(node->in[3]) * (size_t)p->kv_heads * (1 + slices);
    const int two = node->in[1]->fmt != node->in[2]->fmt;
    for (int i = 1; i <= 1 + two; i++) {
        char name[48];
        p->only = two ? i : 0;
        snprintf(name, sizeof name, "gw_attend_digits_make_%s_%d",
                 gw_format_of(node->in[i]->fmt)->name, (int)p->wide);
        GW_TRY(gw_hip_record(
            segment, node, name, (unsigned)units, 1, 1, GW_DIGITS_MAKE_THREADS, 1, 1,
            (unsigned)GW_DIGITS_MAKE_SHARED(p->wide, gw_hip_has_copies(segment->device)), p,
            sizeof *p));
        segment->launches[segment->n - 1].fill = 1;
    }
    return GW_OK;
}

/* Groups of pages and their join, of rows in turns: how many it takes depends on the groups that
 * there are when it runs, which are `groups` at most. */
static gw_status record_turns(struct gw_segment *segment, const gw_node *node,
                              struct gw_digits_params *p, size_t tiles, size_t groups) {
    size_t kv_heads = (size_t)p->kv_heads, slices = (size_t)(p->wide / GW_DIGITS_EV(p->wide));
    size_t at_once = (size_t)p->room / (kv_heads * groups), turns = gw_hip_groups(tiles, at_once);
    size_t units = (size_t)p->room * slices, most = (size_t)p->room / kv_heads;
    unsigned warp = (unsigned)segment->device->warp;
    char name[48];
    snprintf(name, sizeof name, "gw_attend_digits_%s%d", p->group ? "group_" : "", p->wide);
    for (size_t turn = 0; turn < turns; turn++) {
        size_t here = turn > 0 ? gw_hip_groups(tiles, turn) : tiles; /* tiles, most */
        here = here < most ? here : most;
        p->turn = (int32_t)turn;
        GW_TRY(gw_hip_record(segment, node, name, (unsigned)units, 1, 1, GW_DIGITS_WAVES * warp, 1,
                             1, shared_of(segment->device, p->e), p, sizeof *p));
        segment->launches[segment->n - 1].fill = 1;
        GW_TRY(gw_hip_record(
            segment, node, "gw_attend_digits_join",
            gw_hip_groups(here * kv_heads * GW_DIGITS_QUERIES, GW_DIGITS_JOIN_THREADS / GW_LANES),
            1, 1, GW_DIGITS_JOIN_THREADS, 1, 1, 0, p, sizeof *p));
    }
    return GW_OK;
}

static gw_status record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    int wide = width_of(a->head_dim);
    size_t rows = (size_t)segment->rows, heads = (size_t)a->heads, kv_heads = (size_t)a->kv_heads;
    size_t e = (size_t)a->head_dim, table = gw_hip_width(node->in[3]);
    size_t tiles = gw_hip_groups(rows * (heads / kv_heads), GW_DIGITS_QUERIES);
    size_t groups = gw_hip_groups(table, GW_DIGITS_GROUP), k_bytes, v_bytes, entry;
    size_t pages = (size_t)node->in[1]->dim[0] * kv_heads, room = tiles * kv_heads * groups;
    layout lies = layout_of(segment->device, wide);
    gw_hip_ptr at, none = 0;
    (void)kernel;
    GW_TRY(gw_row_bytes(node->in[1]->fmt, (uint64_t)GW_PAGE * (uint64_t)e, &k_bytes));
    GW_TRY(gw_row_bytes(node->in[2]->fmt, (uint64_t)GW_PAGE * (uint64_t)e, &v_bytes));
    entry = (size_t)GW_DIGITS_QUERIES * (e + 2) * sizeof(float);
    if (room * entry > SUMS_BYTES) {
        size_t least = kv_heads * groups, fits = SUMS_BYTES / entry;
        room = fits > least ? fits : least;
    }
    struct gw_digits_params p = {.step = gw_hip_step(segment),
                                 .q = gw_hip_at(node->in[0]),
                                 .k = gw_hip_at(node->in[1]),
                                 .v = gw_hip_at(node->in[2]),
                                 .pages = gw_hip_at(node->in[3]),
                                 .sinks = node->w[0] != NULL ? gw_hip_at(node->w[0]) : 0,
                                 .out = gw_hip_at(node->out),
                                 .room = (int32_t)room,
                                 .heads = a->heads,
                                 .kv_heads = a->kv_heads,
                                 .e = a->head_dim,
                                 .wide = wide,
                                 .table_stride = (int32_t)table,
                                 .form = gw_hip_form(segment, node->out),
                                 .k_bytes = (int32_t)k_bytes,
                                 .v_bytes = (int32_t)v_bytes,
                                 .group = segment->device->group,
                                 .scale = a->scale};
    for (int pass = 0; pass < 2; pass++) { /* first to count, then in memory */
        gw_hip_ptr base = none;
        if (pass == 1) {
            GW_TRY(gw_hip_scratch(segment, (size_t)at, &base));
        }
        at = base;
        p.keys = take(&at, pages * (size_t)lies.keys);
        p.values = take(&at, pages * (size_t)lies.values);
        p.own_top = take(&at, rows * heads * sizeof(float));
        p.own_sum = take(&at, rows * heads * sizeof(float));
        p.own_values = take(&at, rows * heads * e * sizeof(float));
        p.top = take(&at, room * GW_DIGITS_QUERIES * sizeof(float));
        p.sum = take(&at, room * GW_DIGITS_QUERIES * sizeof(float));
        p.sums = take(&at, room * GW_DIGITS_QUERIES * e * sizeof(float));
    }
    GW_TRY(record_make(segment, node, &p));
    int fits = node->in[1]->fmt == node->in[2]->fmt &&
               shared_of_own(segment->device, wide) <= (unsigned)segment->device->shared_bytes;
    GW_TRY((fits ? record_own : record_own_apart)(segment, node, &p));
    return record_turns(segment, node, &p, tiles, groups);
}

/* clang-format off */
const gw_kernel gw_hip_attend_digits_kernels[] = {
    {GW_OP_ATTENTION, "hip.attention.digits", accepts_attention, record_attention, NULL,
     GW_DIGITS_TOO},
    {.name = NULL},
};
/* clang-format on */
