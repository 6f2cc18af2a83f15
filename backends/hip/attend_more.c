/* backends/hip/attend_more.c - ATTENTION in every form: nodes to launches. */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "kernels_hip/attention/attend_more_params.h"

enum { SCRATCH_BYTES = 128 << 20 };

static int value_width(const gw_attn_args *a) { return a->v_dim > 0 ? a->v_dim : a->head_dim; }

static int is_cache(const gw_tensor *t) {
    return t->fmt == GW_FMT_F16 || t->fmt == GW_FMT_F32 || t->fmt == GW_FMT_Q8_0;
}

static int cells_of(const gw_tensor *t) {
    return t->fmt == GW_FMT_F16 ? GW_MORE_F16 : t->fmt == GW_FMT_F32 ? GW_MORE_F32 : GW_MORE_Q8_0;
}

void gw_hip_more_cells(const gw_node *node, char name[GW_HIP_NAME],
                       struct gw_attend_more_params *p) {
    const gw_tensor *k = node->in[1], *v = node->in[2] != NULL ? node->in[2] : k;
    p->k_cells = cells_of(k);
    p->v_cells = cells_of(v);
    snprintf(name, GW_HIP_NAME, "gw_attend_more_%s",
             k->fmt == v->fmt ? gw_format_of(k->fmt)->name : "mixed");
}

static int accepts_attention(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && is_cache(node->in[1]) &&
           (node->in[2] == NULL || is_cache(node->in[2])) &&
           (node->out->fmt == GW_FMT_F32 ||
            (node->out->fmt == GW_FMT_ACT8 && gw_hip_width(node->out) % GW_ACT_BLOCK == 0));
}

static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Rows in turns whose pages' sums have room. */
static gw_status record_turns(struct gw_segment *segment, const gw_node *node,
                              struct gw_attend_more_params *p, gw_hip_ptr scratch, size_t at_once) {
    const struct gw_device *d = segment->device;
    size_t rows = (size_t)segment->rows, pages = gw_hip_width(node->in[3]);
    unsigned group = (unsigned)(p->heads / p->kv_heads), side = GW_ATTEND_MORE_TEAMS;
    while (side > group) {
        side /= 2;
    }
    unsigned across = (unsigned)p->kv_heads * gw_hip_groups(group, side);
    unsigned units = across * (unsigned)at_once;
    unsigned most = gw_hip_groups(pages, GW_ATTEND_MORE_TEAMS / side);
    unsigned share = 8 * (unsigned)d->units / units; /* blocks of a row and head */
    share = share < 1 ? 1 : share > most ? most : share;
    char name[GW_HIP_NAME];
    gw_hip_more_cells(node, name, p);
    p->side = (int32_t)side;
    p->top = scratch;
    p->sum = p->top + padded(at_once * (size_t)p->heads * pages * sizeof(float));
    p->values = p->sum + padded(at_once * (size_t)p->heads * pages * sizeof(float));
    for (size_t row0 = 0; row0 < rows; row0 += at_once) {
        p->row0 = (int32_t)row0;
        p->rows = (int32_t)(rows - row0 < at_once ? rows - row0 : at_once);
        GW_TRY(gw_hip_record(segment, node, name, across, (unsigned)p->rows, share,
                             GW_ATTEND_MORE_THREADS, 1, 1, 0, p, sizeof *p));
        GW_TRY(gw_hip_record(segment, node, "gw_attend_more_join", (unsigned)p->heads,
                             (unsigned)p->rows, 1, GW_ATTEND_MORE_THREADS, 1, 1, 0, p, sizeof *p));
    }
    return GW_OK;
}

static gw_status record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    size_t rows = (size_t)segment->rows, heads = (size_t)a->heads, ev = (size_t)value_width(a);
    size_t pages = gw_hip_width(node->in[3]), k_bytes, v_bytes;
    int straddles = node->out->fmt == GW_FMT_ACT8 && ev % GW_ACT_BLOCK != 0;
    gw_hip_ptr scratch;
    (void)kernel;
    GW_TRY(gw_row_bytes(node->in[1]->fmt, (uint64_t)GW_PAGE * (uint64_t)a->head_dim, &k_bytes));
    const gw_tensor *values = node->in[2] != NULL ? node->in[2] : node->in[1];
    GW_TRY(gw_row_bytes(values->fmt, (uint64_t)GW_PAGE * (uint64_t)ev, &v_bytes));
    size_t of_row = heads * pages * (ev + 2) * sizeof(float), at_once = SCRATCH_BYTES / of_row;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    size_t whole = straddles ? padded(rows * heads * ev * sizeof(float)) : 0;
    GW_TRY(gw_hip_scratch(segment, whole + at_once * of_row + 3 * 256, &scratch));
    struct gw_attend_more_params p = {.step = gw_hip_step(segment),
                                      .q = gw_hip_at(node->in[0]),
                                      .k = gw_hip_at(node->in[1]),
                                      .v = node->in[2] != NULL ? gw_hip_at(node->in[2]) : 0,
                                      .pages = gw_hip_at(node->in[3]),
                                      .sinks = node->w[0] != NULL ? gw_hip_at(node->w[0]) : 0,
                                      .slopes = node->w[1] != NULL ? gw_hip_at(node->w[1]) : 0,
                                      .bias = node->w[2] != NULL ? gw_hip_at(node->w[2]) : 0,
                                      .out = straddles ? scratch : gw_hip_at(node->out),
                                      .page_stride = (int32_t)pages,
                                      .table_stride = (int32_t)pages,
                                      .heads = a->heads,
                                      .kv_heads = a->kv_heads,
                                      .e = a->head_dim,
                                      .ev = (int32_t)ev,
                                      .window = a->window,
                                      .chunk = a->chunk,
                                      .form = straddles ? GW_FORM_FLOATS
                                                        : gw_hip_form(segment, node->out),
                                      .k_bytes = (int32_t)k_bytes,
                                      .v_bytes = (int32_t)v_bytes,
                                      .v_first = a->v_first,
                                      .both = a->both,
                                      .reach = a->reach,
                                      .scale = a->scale,
                                      .softcap = a->softcap};
    GW_TRY(record_turns(segment, node, &p, scratch + whole, at_once));
    return straddles ? gw_hip_record_encode(segment, node, p.out, node->out) : GW_OK;
}

/* clang-format off */
const gw_kernel gw_hip_attend_more_kernels[] = {
    {GW_OP_ATTENTION, "hip.attention.more", accepts_attention, record_attention, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
