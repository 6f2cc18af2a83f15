/* backends/opencl/attention.c - ROPE_KV and ATTENTION: nodes to launches. */
#include "backends/opencl/opencl.h"

enum { SCRATCH_BYTES = 64 << 20, PAGE_GROUPS = 64 };

static int is_half(const gw_tensor *cache) { return cache->fmt == GW_FMT_F16; }

static int is_cache(const gw_tensor *t) { return t->fmt == GW_FMT_F16 || t->fmt == GW_FMT_F32; }

/* ---- ROPE_KV --------------------------------------------------------------------------------- */

int gw_cl_accepts_rope_kv(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel;
    (void)device;
    int norms = (node->w[0] == NULL || node->w[0]->fmt == GW_FMT_F32) &&
                (node->w[1] == NULL || node->w[1]->fmt == GW_FMT_F32);
    return norms && node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32 &&
           is_cache(node->in[1]) && node->in[2]->fmt == node->in[1]->fmt && node->in[3] != NULL &&
           node->w[2]->fmt == GW_FMT_F32;
}

gw_status gw_cl_record_rope_kv(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_rope_args *a = &node->args.rope;
    (void)kernel;
    gw_cl_call call = gw_cl_launch_new(
        segment, "attention", is_half(node->in[1]) ? "-DROPE_KV -DHALF" : "-DROPE_KV", "rope_kv");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[1]);
    gw_cl_arg_tensor(&call, node->in[2]);
    gw_cl_arg_tensor(&call, node->in[3]);
    for (int i = 0; i < 3; i++) {
        gw_cl_arg_tensor(&call, node->w[i]);
    }
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, a->rope_dim);
    gw_cl_arg_int(&call, a->style == GW_ROPE_INTERLEAVED);
    gw_cl_arg_int(&call, (node->w[0] != NULL ? 1 : 0) | (node->w[1] != NULL ? 2 : 0));
    gw_cl_arg_float(&call, a->eps);
    gw_cl_arg_int(&call, node->in[3]->dim[1]);
    return gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM,
                            (size_t)(a->heads + 2 * a->kv_heads), (size_t)segment->rows, 1);
}

/* ---- ATTENTION ------------------------------------------------------------------------------- */

int gw_cl_accepts_attention(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && is_cache(node->in[1]) &&
           node->in[2]->fmt == node->in[1]->fmt && node->in[3]->fmt == GW_FMT_I32 &&
           (node->out->fmt == GW_FMT_F32 || node->out->fmt == GW_FMT_ACT8);
}

/* Rows [row0, row0 + rows): partial results of every page, then their join. */
typedef struct tile {
    cl_mem scratch, out;
    cl_ulong out_offset;
    size_t row0, rows;
    int act8;
} tile;

static gw_status record_pages(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    int item = segment->device->item;
    size_t pages = gw_cl_width(node->in[3]);
    size_t each = item ? 1 : gw_cl_groups(pages, PAGE_GROUPS);
    gw_cl_call call =
        gw_cl_launch_new(segment, "attention", is_half(node->in[1]) ? "-DHALF" : "", "attend");
    gw_cl_arg_step(&call);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_mem(&call, t->scratch, 0);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, a->window);
    gw_cl_arg_int(&call, (int64_t)each);
    return gw_cl_launch_end(&call, item ? 1 : GW_PAGE, gw_cl_groups(pages, each),
                            (size_t)a->kv_heads, t->rows);
}

static gw_status record_join(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    gw_cl_call call =
        gw_cl_launch_new(segment, "attention", t->act8 ? "-DJOIN -DACT8" : "-DJOIN", "attend_join");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, t->scratch, 0);
    gw_cl_arg_mem(&call, t->out, t->out_offset);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, node->in[3]->dim[1]);
    gw_cl_arg_int(&call, a->window);
    return gw_cl_launch_end(&call, segment->device->item ? 1 : GW_PAGE, (size_t)a->heads, t->rows,
                            1);
}

gw_status gw_cl_record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    size_t rows = (size_t)segment->rows, e = (size_t)a->head_dim;
    size_t row_bytes = (size_t)a->heads * gw_cl_width(node->in[3]) * (e + 2) * sizeof(float);
    size_t at_once = SCRATCH_BYTES / row_bytes;
    int act8 = node->out->fmt == GW_FMT_ACT8, straddles = act8 && e % GW_ACT_BLOCK != 0;
    (void)kernel;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    size_t part_bytes = (at_once * row_bytes + 255) / 256 * 256;
    size_t whole = straddles ? rows * (size_t)a->heads * e * sizeof(float) : 0;
    tile t = {.act8 = act8 && !straddles};
    GW_TRY(gw_cl_scratch(segment->device, part_bytes + whole, &t.scratch));
    t.out = straddles ? t.scratch : gw_cl_mem(node->out);
    t.out_offset = straddles ? part_bytes : node->out->offset;
    for (t.row0 = 0; t.row0 < rows; t.row0 += at_once) {
        t.rows = rows - t.row0 < at_once ? rows - t.row0 : at_once;
        GW_TRY(record_pages(segment, node, &t));
        GW_TRY(record_join(segment, node, &t));
    }
    return straddles ? gw_cl_record_encode(segment, t.scratch, part_bytes, node->out) : GW_OK;
}
