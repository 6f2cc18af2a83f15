/* backends/hip/attend_host.c - prompts over caches in main memory: attention there reads a page for
 * many tiles of queries, so the pages that the rows see are brought to the card once, to a place
 * that all layers share. Attention in digits, and over caches in 4 and 5 bits, brings them
 * anyway.
 */
#include "backends/hip/hip.h"
#include "core/tensor/digits.h"
#include "kernels_hip/attention/cells_params.h"

/* The place is where digits would be in another model: gw_place_kernel_bytes counts as many bytes
 * for them as such caches have. */
static int brings_pages(const struct gw_segment *segment, const gw_node *node) {
    const gw_tensor *k = node->in[1], *v = node->in[2];
    if (node->op != GW_OP_ATTENTION || v == NULL || k->buf == NULL || !k->buf->in_host) {
        return 0;
    }
    const gw_attn_args *a = &node->args.attn;
    int fits = k->fmt == GW_FMT_F16 || k->fmt == GW_FMT_Q8_0;
    return fits && a->order == GW_ORDER_PREFILL && !a->digits && segment->rows > GW_DECODE_MAX &&
           v->fmt == k->fmt && k->dim[2] == v->dim[3] &&
           k->dim[2] % GW_DIGITS_LEAST == 0 && k->dim[2] <= GW_DIGITS_MOST;
}

gw_status gw_hip_record_node(struct gw_segment *segment, const gw_node *node) {
    if (!brings_pages(segment, node)) {
        return node->kernel->record(segment, node->kernel, node);
    }
    gw_tensor k = *node->in[1], v = *node->in[2];
    struct gw_buffer at = {.device = segment->device};
    gw_node near = *node;
    size_t tile = 0, tiles = (size_t)k.dim[0] * (size_t)k.dim[1];
    GW_TRY(gw_row_bytes(k.fmt, (uint64_t)GW_PAGE * (uint64_t)k.dim[2], &tile));
    GW_TRY(gw_hip_unpacked(segment, 2 * tiles * tile, &at.at));
    at.bytes = 2 * tiles * tile;
    k.buf = v.buf = &at;
    k.offset = 0;
    v.offset = tiles * tile;
    near.in[1] = &k;
    near.in[2] = &v;
    struct gw_cells_unpack_params p = {.step = gw_hip_step(segment),
                                       .k = gw_hip_at(node->in[1]),
                                       .v = gw_hip_at(node->in[2]),
                                       .k_out = gw_hip_at(&k),
                                       .v_out = gw_hip_at(&v),
                                       .pages = gw_hip_at(node->in[3]),
                                       .table_stride = (int32_t)gw_hip_width(node->in[3]),
                                       .kv_heads = (int32_t)k.dim[1],
                                       .window = node->args.attn.window,
                                       .tile = (int32_t)tile};
    GW_TRY(gw_hip_record(segment, node, "gw_cells_unpack",
                         (unsigned)p.table_stride * (unsigned)(2 * p.kv_heads), 1, 1,
                         GW_CELLS_THREADS, 1, 1, 0, &p, sizeof p));
    segment->launches[segment->n - 1].fill = 1;
    segment->rope = NULL; /* it has its launch, as always with so many rows */
    size_t front = segment->n;
    GW_TRY(near.kernel->record(segment, near.kernel, &near));
    gw_hip_in_order(segment, front);
    return GW_OK;
}
