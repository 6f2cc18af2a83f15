/* backends/hip/attend_latent.c - ATTENTION whose values are part of the keys: nodes to launches. */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "kernels_hip/attention/attend_latent_params.h"

/* RESERVED: bytes of shared memory for what a kernel declares, and what NVIDIA takes for a block.
 */
enum { SCRATCH_BYTES = 128 << 20, RESERVED = 8192 };

static int value_width(const gw_attn_args *a) { return a->v_dim > 0 ? a->v_dim : a->head_dim; }

static int cell_bytes(gw_fmt fmt) {
    return gw_format_of(fmt)->is_float ? (int)gw_format_of(fmt)->block_bytes : 1;
}

/* Teams of a block of values: as many as have room; 0: too few. */
static int teams_of(const struct gw_device *d, int cell) {
    int teams = GW_LATENT_VALUES_THREADS / 32;
    while (teams > 0 && GW_LATENT_VALUES_BYTES(cell, teams) > d->shared_bytes - RESERVED) {
        teams /= 2;
    }
    return teams < GW_LATENT_LEAST_TEAMS ? 0 : teams;
}

static int accepts_attention(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    const gw_attn_args *a = &node->args.attn;
    gw_fmt cache = node->in[1]->fmt;
    (void)kernel;
    return node->in[2] == NULL && node->w[0] == NULL && node->w[1] == NULL && node->w[2] == NULL &&
           a->window == 0 && a->chunk == 0 && a->softcap == 0.0f && !a->both &&
           a->head_dim % GW_LATENT_STEP == 0 && node->in[0]->fmt == GW_FMT_F32 &&
           (cache == GW_FMT_F16 || cache == GW_FMT_F32 || cache == GW_FMT_Q8_0) &&
           GW_LATENT_Q_BYTES(a->head_dim) <= device->shared_bytes && a->v_first % 4 == 0 &&
           teams_of(device, cell_bytes(cache)) > 0 &&
           (node->out->fmt == GW_FMT_F32 ||
            (node->out->fmt == GW_FMT_ACT8 && gw_hip_width(node->out) % GW_ACT_BLOCK == 0));
}

static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Blocks that share the pages of a row, where `across` of them stand side by side and each
 * multiprocessor has `each`. */
static unsigned share_of(const struct gw_device *d, int each, size_t across, size_t most) {
    size_t share = gw_hip_groups((size_t)each * (size_t)d->units, across);
    return (unsigned)(share < 1 ? 1 : share > most ? most : share);
}

/* Rows in turns whose weights and sums have room. */
static gw_status record_turns(struct gw_segment *segment, const gw_node *node,
                              struct gw_attend_latent_params *p, size_t at_once) {
    const struct gw_device *d = segment->device;
    const char *cache = gw_format_of(node->in[1]->fmt)->name;
    int cell = cell_bytes(node->in[1]->fmt), teams = teams_of(d, cell);
    size_t rows = (size_t)segment->rows, pages = (size_t)p->table_stride;
    size_t blocks =
        (size_t)p->kv_heads * gw_hip_groups((size_t)(p->heads / p->kv_heads), GW_LATENT_HEADS);
    size_t slices = gw_hip_groups((size_t)p->ev, GW_LATENT_COLUMNS);
    size_t joins = (size_t)p->heads * gw_hip_groups((size_t)p->ev, GW_LATENT_THREADS);
    char scores[48], values[48];
    snprintf(scores, sizeof scores, "gw_latent_scores_%s", cache);
    snprintf(values, sizeof values, "gw_latent_values_%s", cache);
    for (size_t row0 = 0; row0 < rows; row0 += at_once) {
        size_t n = rows - row0 < at_once ? rows - row0 : at_once;
        p->row0 = (int32_t)row0;
        p->rows = (int32_t)n;
        GW_TRY(gw_hip_record(segment, node, scores, (unsigned)blocks, (unsigned)n,
                             share_of(d, 4, blocks * n, pages), GW_LATENT_THREADS, 1, 1,
                             (unsigned)GW_LATENT_Q_BYTES(p->e), p, sizeof *p));
        GW_TRY(gw_hip_record(segment, node, values, (unsigned)(blocks * slices), (unsigned)n,
                             share_of(d, 2, blocks * slices * n, (size_t)p->units),
                             32 * (unsigned)teams, 1, 1,
                             (unsigned)GW_LATENT_VALUES_BYTES(cell, teams), p, sizeof *p));
        GW_TRY(gw_hip_record(segment, node, "gw_latent_join", (unsigned)joins, (unsigned)n, 1,
                             GW_LATENT_THREADS, 1, 1, 0, p, sizeof *p));
    }
    return GW_OK;
}

/* Pages that a row may see before blocks of values take groups of them: so many that there are
 * blocks for all multiprocessors. */
static size_t alone_of(const struct gw_device *d, size_t across, size_t pages) {
    size_t alone = GW_PAGE_GROUP * (size_t)d->units / across;
    alone = alone < GW_LATENT_ALONE ? alone : GW_LATENT_ALONE;
    return alone < pages ? alone : pages;
}

/* Pages that a row may see before lanes of scores have four positions: beyond, the teams are enough
 * for a multiprocessor to wait for none of them. */
static size_t few_of(const struct gw_device *d, size_t across) {
    return 3 * (size_t)d->units / (2 * across);
}

static gw_status record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    size_t rows = (size_t)segment->rows, heads = (size_t)a->heads, ev = (size_t)value_width(a);
    size_t pages = gw_hip_width(node->in[3]), k_bytes, kv_heads = (size_t)a->kv_heads;
    size_t blocks = kv_heads * gw_hip_groups(heads / kv_heads, GW_LATENT_HEADS);
    size_t slices = gw_hip_groups(ev, GW_LATENT_COLUMNS);
    size_t alone = alone_of(segment->device, blocks * slices * rows, pages);
    size_t groups = gw_hip_groups(pages, GW_PAGE_GROUP), units = alone > groups ? alone : groups;
    int straddles = node->out->fmt == GW_FMT_ACT8 && ev % GW_ACT_BLOCK != 0;
    gw_hip_ptr scratch;
    (void)kernel;
    GW_TRY(gw_row_bytes(node->in[1]->fmt, (uint64_t)GW_PAGE * (uint64_t)a->head_dim, &k_bytes));
    size_t of_weights = blocks * pages * GW_PAGE * GW_LATENT_HEADS * sizeof(float);
    size_t of_values = heads * units * ev * sizeof(float);
    size_t of_pages = heads * pages * sizeof(float);
    size_t of_row = of_weights + of_values + 2 * of_pages, at_once = SCRATCH_BYTES / of_row;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    size_t whole = straddles ? padded(rows * heads * ev * sizeof(float)) : 0;
    GW_TRY(gw_hip_scratch(segment, whole + at_once * of_row + 4 * 256, &scratch));
    struct gw_attend_latent_params p = {.step = gw_hip_step(segment),
                                        .q = gw_hip_at(node->in[0]),
                                        .k = gw_hip_at(node->in[1]),
                                        .pages = gw_hip_at(node->in[3]),
                                        .out = straddles ? scratch : gw_hip_at(node->out),
                                        .table_stride = (int32_t)pages,
                                        .units = (int32_t)units,
                                        .alone = (int32_t)alone,
                                        .few = (int32_t)few_of(segment->device, blocks * rows),
                                        .heads = a->heads,
                                        .kv_heads = a->kv_heads,
                                        .e = a->head_dim,
                                        .ev = (int32_t)ev,
                                        .v_first = a->v_first,
                                        .form = straddles ? GW_FORM_FLOATS
                                                          : gw_hip_form(segment, node->out),
                                        .k_bytes = (int32_t)k_bytes,
                                        .scale = a->scale};
    p.weights = scratch + whole;
    p.values = p.weights + padded(at_once * of_weights);
    p.top = p.values + padded(at_once * of_values);
    p.sum = p.top + padded(at_once * of_pages);
    GW_TRY(record_turns(segment, node, &p, at_once));
    return straddles ? gw_hip_record_encode(segment, node, p.out, node->out) : GW_OK;
}

/* clang-format off */
const gw_kernel gw_hip_attend_latent_kernels[] = {
    {GW_OP_ATTENTION, "hip.attention.latent", accepts_attention, record_attention, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
