/* backends/opencl/attention_form.c - ROPE_KV and ATTENTION in every form: nodes to launches. */
#include <stdio.h>

#include "backends/opencl/opencl.h"

enum { BOTH = 4, WITHIN = 8 };     /* as in attention_form.cl */
enum { SCRATCH_BYTES = 64 << 20 }; /* of partial results, and more where a row needs it */

static int is_f32(const gw_tensor *t) { return t == NULL || t->fmt == GW_FMT_F32; }

static int is_stored(const gw_tensor *t) { return gw_cl_is_cache(t) || gw_cache_bits(t->fmt) > 0; }

/* Of values that are part of the keys: none. */
static int has_two_formats(const gw_node *node) {
    return node->in[2] != NULL && node->in[2]->fmt != node->in[1]->fmt;
}

/* ---- ROPE_KV --------------------------------------------------------------------------------- */

enum { LAYER = 1, INTERLEAVED = 2, AFTER = 4, PLAIN = 8, NORM_V = 16 }; /* as in rope_form.cl */

int gw_cl_accepts_rope_form(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    int caches = node->args.rope.kv_heads == 0 ||
                 (is_stored(node->in[1]) && (node->in[2] == NULL || is_stored(node->in[2])) &&
                  node->in[3] != NULL);
    return caches && is_f32(node->in[0]) && is_f32(node->out) && is_f32(node->w[0]) &&
           is_f32(node->w[1]) && is_f32(node->w[2]) && is_f32(node->w[3]);
}

static int how_of(const gw_rope_args *a) {
    return (a->norm_kind == GW_NORM_LAYER ? LAYER : 0) |
           (a->style == GW_ROPE_INTERLEAVED ? INTERLEAVED : 0) | (a->norm_after ? AFTER : 0) |
           (a->norm_plain ? PLAIN : 0) | (a->norm_v ? NORM_V : 0);
}

/* Heads [first, end) of q, k and v, into caches like `cache`; NULL: there is none. */
static gw_status record_heads(struct gw_segment *segment, const gw_node *node,
                              const gw_tensor *cache, int first, int end) {
    const gw_rope_args *a = &node->args.rope;
    const int caches = a->kv_heads > 0, within = caches && node->in[2] == NULL;
    int flags = 0;
    gw_cl_call call = gw_cl_launch_new(
        segment, "rope_form", cache != NULL ? gw_cl_cache_options(cache) : "-DATTENTION",
        "rope_form");
    gw_cl_arg_step(&call);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->w[i]);
        flags |= (node->w[i] != NULL) << i;
    }
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, first);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, within ? 0 : a->v_dim > 0 ? a->v_dim : a->head_dim);
    gw_cl_arg_int(&call, node->w[2] != NULL ? a->rope_dim : 0);
    gw_cl_arg_int(&call, caches ? node->in[3]->dim[1] : 0);
    gw_cl_arg_int(&call, a->norm_span);
    gw_cl_arg_int(&call, how_of(a));
    gw_cl_arg_float(&call, a->eps);
    gw_cl_arg_int(&call, flags);
    if (cache != NULL) {
        gw_cl_arg_split(&call, cache);
    }
    return gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM, (size_t)(end - first),
                            (size_t)segment->rows, 1);
}

gw_status gw_cl_record_rope_form(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_rope_args *a = &node->args.rope;
    const gw_tensor *k = a->kv_heads > 0 ? node->in[1] : NULL, *v = k != NULL ? node->in[2] : NULL;
    int of_k = a->heads + a->kv_heads, all = of_k + (v != NULL ? a->kv_heads : 0);
    (void)kernel;
    if (v == NULL || v->fmt == k->fmt) {
        return record_heads(segment, node, k, 0, k != NULL ? all : a->heads);
    }
    GW_TRY(record_heads(segment, node, k, 0, of_k));
    return record_heads(segment, node, v, of_k, all);
}

/* ---- ATTENTION ------------------------------------------------------------------------------- */

int gw_cl_accepts_attention_form(const gw_kernel *kernel, const gw_node *node,
                                 const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return is_f32(node->in[0]) && gw_cl_is_cache(node->in[1]) &&
           (node->in[2] == NULL || gw_cl_is_cache(node->in[2])) &&
           node->in[3]->fmt == GW_FMT_I32 && is_f32(node->w[0]) && is_f32(node->w[1]) &&
           is_f32(node->w[2]) &&
           (node->out->fmt == GW_FMT_F32 ||
            (node->out->fmt == GW_FMT_ACT8 && gw_cl_width(node->out) % GW_ACT_BLOCK == 0));
}

/* Rows [row0, row0 + rows): partial results of every page in scratch, then their join in out. */
typedef struct tile {
    cl_mem scratch, out;
    cl_ulong out_offset;
    size_t row0, rows;
    int ev;
    int own;       /* of each row its own page alone; nothing to join here */
    cl_ulong part; /* where partial results begin in scratch               */
} tile;

enum { F32, F16, Q8_0 }; /* CELLS_... of attention.cl */

static int cells_of(const gw_tensor *cache) {
    return cache->fmt == GW_FMT_F16 ? F16 : cache->fmt == GW_FMT_Q8_0 ? Q8_0 : F32;
}

/* -D options of a kernel that reads keys and values. */
static void cache_options(const gw_node *node, const tile *t, char *out, size_t room) {
    if (has_two_formats(node)) {
        snprintf(out, room, "-DATTENTION -DMIXED -DK_CELLS=%d -DV_CELLS=%d%s",
                 cells_of(node->in[1]), cells_of(node->in[2]), t->own ? " -DOWN" : "");
    } else {
        snprintf(out, room, "%s%s", gw_cl_cache_options(node->in[1]), t->own ? " -DOWN" : "");
    }
}

static gw_status record_pages(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    const size_t pages = gw_cl_width(node->in[3]), most = t->own ? 1 : pages;
    char options[96];
    cache_options(node, t, options, sizeof options);
    gw_cl_call call = gw_cl_launch_new(segment, "attention_form", options, "attend_form");
    gw_cl_arg_step(&call);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_tensor(&call, node->w[1]);
    gw_cl_arg_tensor(&call, node->w[2]);
    gw_cl_arg_mem(&call, t->scratch, t->part);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, t->ev);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, a->window);
    gw_cl_arg_int(&call, t->own ? GW_PAGE : a->chunk);
    gw_cl_arg_float(&call, a->softcap);
    gw_cl_arg_int(&call, a->reach);
    gw_cl_arg_int(&call, (node->w[1] != NULL ? 1 : 0) | (node->w[2] != NULL ? 2 : 0) |
                             (a->both ? BOTH : 0) | (node->in[2] == NULL ? WITHIN : 0));
    gw_cl_arg_int(&call, a->v_first);
    gw_cl_arg_split(&call, node->in[1]);
    GW_TRY(gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM, most, (size_t)a->heads,
                            t->rows));
    call.launch->page_groups = most;
    return GW_OK;
}

static gw_status record_join(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    const int item = segment->device->item;
    gw_cl_call call =
        gw_cl_launch_new(segment, "attention_form", "-DATTENTION -DJOIN", "attend_form_join");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, t->scratch, 0);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_mem(&call, t->out, t->out_offset);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, t->ev);
    gw_cl_arg_int(&call, node->in[3]->dim[1]);
    gw_cl_arg_int(&call, a->window);
    gw_cl_arg_int(&call, a->chunk);
    gw_cl_arg_int(&call, (node->w[0] != NULL ? 1 : 0) | (a->both ? BOTH : 0));
    return gw_cl_launch_end(&call, item ? 1 : GW_CL_TEAM,
                            item ? 1 : gw_cl_groups((size_t)t->ev, GW_CL_TEAM), (size_t)a->heads,
                            t->rows);
}

gw_status gw_cl_record_form_join(struct gw_segment *segment, const gw_node *node, cl_mem parts,
                                 size_t row0, size_t rows, cl_mem out, cl_ulong out_at) {
    const gw_attn_args *a = &node->args.attn;
    const tile t = {.scratch = parts,
                    .out = out,
                    .out_offset = out_at,
                    .row0 = row0,
                    .rows = rows,
                    .ev = a->v_dim > 0 ? a->v_dim : a->head_dim};
    return record_join(segment, node, &t);
}

gw_status gw_cl_record_own_mixed(struct gw_segment *segment, const gw_node *node, cl_mem part,
                                 cl_ulong offset) {
    const tile t = {.scratch = part,
                    .part = offset,
                    .rows = (size_t)segment->rows,
                    .ev = node->args.attn.head_dim,
                    .own = 1};
    return record_pages(segment, node, &t);
}

gw_status gw_cl_record_attention_form(struct gw_segment *segment, const gw_kernel *kernel,
                                      const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    tile t = {.ev = a->v_dim > 0 ? a->v_dim : a->head_dim};
    const size_t rows = (size_t)segment->rows, values = (size_t)a->heads * (size_t)t.ev;
    const size_t row_bytes =
        (size_t)a->heads * gw_cl_width(node->in[3]) * ((size_t)t.ev + 2) * sizeof(float);
    const int act8 = node->out->fmt == GW_FMT_ACT8; /* encoded by a launch of its own */
    size_t at_once = SCRATCH_BYTES / row_bytes;
    (void)kernel;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    const size_t part_bytes = (at_once * row_bytes + 255) / 256 * 256;
    GW_TRY(gw_cl_scratch(segment->device, part_bytes + (act8 ? rows * values * sizeof(float) : 0),
                         &t.scratch));
    t.out = act8 ? t.scratch : gw_cl_mem(node->out);
    t.out_offset = act8 ? part_bytes : node->out->offset;
    for (; t.row0 < rows; t.row0 += at_once) {
        t.rows = rows - t.row0 < at_once ? rows - t.row0 : at_once;
        GW_TRY(record_pages(segment, node, &t));
        GW_TRY(record_join(segment, node, &t));
    }
    return act8 ? gw_cl_record_encode(segment, t.scratch, part_bytes, node->out) : GW_OK;
}
