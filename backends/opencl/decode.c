/* backends/opencl/decode.c - products of up to three stacked matrices in one launch: LINEAR and GLU
 * of generated tokens on teams, the norm before them included where a step has one row; every
 * LINEAR of quantized weights on items.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"

enum {
    PAIR = 2, /* weight rows of a team */
    PARTS = 3,
    MOST_AHEAD = 4, /* units of a row that an item loads ahead: 64 bytes or more */
    GROUPS_PER_UNIT = 1,
    LOCAL_SPARE = 4096, /* scratch and columns, beside the tile */
    NORM_MOST = 8192
};

/* One allocation of one matrix. */
typedef struct part {
    const gw_tensor *w, *bias;
    const gw_cl_chunk *chunk;
    int64_t column; /* of the output, for the chunk's first row */
} part;

/* ---- sizes ----------------------------------------------------------------------------------- */

static int is_quantized(const gw_tensor *w) { return gw_cl_planes_of(w->fmt) != NULL; }

/* The narrowest kernel for a plan of `rows`: 1, 2, 4, 8 or 16. */
static int width_for(int rows) {
    int n = 1;
    while (n < rows && n < GW_DECODE_MAX) {
        n *= 2;
    }
    return n;
}

static size_t units_of(const gw_tensor *w) {
    if (is_quantized(w)) {
        return (size_t)w->dim[1] / GW_ACT_BLOCK;
    }
    return gw_cl_lanes_pieces(w->fmt, (size_t)w->dim[1]) * GW_CL_TEAM;
}

static size_t unit_local_bytes(const gw_tensor *w) {
    const gw_format *f = gw_format_of(w->fmt);
    size_t per_lane = f->block_elems > 1 ? 16 : 16 / f->block_bytes; /* of floats */
    return is_quantized(w) ? sizeof(gw_act8) : per_lane * sizeof(float);
}

/* Units of local memory: a row's, or for wider steps what fits, always whole loads ahead. */
static size_t tile_for(const struct gw_device *device, const gw_tensor *w, int width, size_t room) {
    size_t least = (size_t)width * GW_CL_TEAM, ahead = GW_CL_TEAM * MOST_AHEAD;
    size_t fit = room / unit_local_bytes(w), need = gw_cl_groups(units_of(w), ahead) * ahead;
    (void)device;
    if (width == 1 && need <= fit) {
        return need;
    }
    size_t tile = least;
    while (2 * tile <= fit && tile < need * (size_t)width) {
        tile *= 2;
    }
    return tile;
}

static size_t local_room(const struct gw_device *device) {
    size_t most = device->local_bytes < 48 << 10 ? device->local_bytes : 48 << 10;
    return most > LOCAL_SPARE ? most - LOCAL_SPARE : 0;
}

/* ---- what a norm before it asks for ---------------------------------------------------------- */

static int apart(const gw_tensor *a, const gw_tensor *b, size_t a_bytes, size_t b_bytes) {
    return a->buf != b->buf || a->offset + a_bytes <= b->offset || b->offset + b_bytes <= a->offset;
}

/* The sum of squares of each block. */
static size_t norm_local_bytes(size_t d) { return gw_cl_groups(d, GW_ACT_BLOCK) * sizeof(float); }

int gw_cl_takes_norm(const struct gw_segment *segment, const gw_node *norm, const gw_node *node) {
    const struct gw_device *device = segment->device;
    const gw_tensor *w = node->w[0], *x = norm->in[0];
    if (device->item || segment->rows != 1 || norm->op != GW_OP_NORM ||
        norm->kernel->record != gw_cl_record_norm ||
        (node->op != GW_OP_LINEAR && node->op != GW_OP_GLU) || node->in[0] != norm->out ||
        node->args.linear.order != GW_ORDER_DECODE) {
        return 0;
    }
    size_t d = gw_cl_width(x);
    size_t tile = gw_cl_groups(units_of(w), GW_CL_TEAM * MOST_AHEAD) * GW_CL_TEAM * MOST_AHEAD *
                  unit_local_bytes(w);
    if (d % 8 != 0 || d > NORM_MOST || norm_local_bytes(d) + tile > local_room(device) ||
        !gw_cl_one_glu_launch(segment, node)) {
        return 0;
    }
    return apart(x, node->out, d * sizeof(float), gw_cl_width(node->out) * sizeof(float));
}

/* Groups that run at the same time take the blocks in turn: their preparation serves them all. */
static size_t at_once(const struct gw_segment *segment, size_t blocks) {
    size_t units = (size_t)(segment->device->units > 0 ? segment->device->units : 1);
    size_t most = units * (size_t)GROUPS_PER_UNIT;
    return blocks < most ? blocks : most;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void decode_options(const struct gw_segment *segment, const gw_node *node,
                           const gw_tensor *w, char *out, size_t room) {
    const struct gw_device *device = segment->device;
    int width = width_for(segment->rows), glu = node->op == GW_OP_GLU;
    size_t used = gw_cl_format_options(w->fmt, GW_ORDER_DECODE, out, room);
    size_t cols = (size_t)w->dim[1];
    size_t squares = segment->norm != NULL ? norm_local_bytes(cols) : 0;
    size_t tile = tile_for(device, w, width, local_room(device) - squares);
    int wide = w->fmt == GW_FMT_Q8_0 || w->fmt == GW_FMT_INT8 ||
               (!is_quantized(w) && gw_format_of(w->fmt)->block_elems > 1);
    int ahead = wide ? MOST_AHEAD / 2 : MOST_AHEAD;
    size_t chunk = (size_t)(GW_CL_TEAM * ahead);
    int whole = width == 1 && units_of(w) <= tile && units_of(w) % chunk == 0;
    used +=
        (size_t)snprintf(out + used, room - used, " -DGROUP=%d -DN=%d -DTILE=%zu -DMOST_AHEAD=%d%s",
                         device->group, width, tile, ahead, whole ? " -DWHOLE" : "");
    if (segment->norm != NULL) {
        used += (size_t)snprintf(out + used, room - used, " -DNORM_WIDTH=%zu", cols);
    }
    if (!is_quantized(w) && units_of(w) * (unit_local_bytes(w) / sizeof(float)) != cols) {
        used += (size_t)snprintf(out + used, room - used, " -DRAGGED");
    }
    snprintf(out + used, room - used, "%s%s", glu ? " -DGLU" : "",
             glu && node->out->fmt == GW_FMT_ACT8 ? " -DACT8" : "");
}

static void arg_norm(gw_cl_call *call, const struct gw_segment *segment, const gw_node *node) {
    const gw_node *norm = segment->norm;
    gw_cl_arg_tensor(call, norm != NULL ? norm->in[0] : node->in[0]);
    gw_cl_arg_tensor(call, norm != NULL ? norm->w[0] : NULL);
    gw_cl_arg_tensor(call, norm != NULL ? norm->out : NULL);
    gw_cl_arg_float(call, norm != NULL ? norm->args.norm.eps : 0.0f);
}

static void arg_part(gw_cl_call *call, const part *p, const part *other) {
    const gw_cl_chunk *chunk = p != NULL ? p->chunk : other->chunk;
    gw_cl_arg_mem(call, chunk->mem, 0);
    gw_cl_arg_ulong(call, chunk->high);
    gw_cl_arg_ulong(call, chunk->head);
    gw_cl_arg_ulong(call, chunk->sub);
    if (p != NULL && p->bias != NULL) {
        gw_cl_arg_mem(call, gw_cl_mem(p->bias),
                      p->bias->offset + (cl_ulong)chunk->first * sizeof(float));
    } else {
        gw_cl_arg_tensor(call, NULL);
    }
    gw_cl_arg_int(call, p != NULL ? p->column : 0);
    gw_cl_arg_int(call, p != NULL ? chunk->rows : 0);
}

/* residual, y, k, y_stride, biased, has_residual of linear_decode and linear_prefill. */
static void arg_result(gw_cl_call *call, const gw_node *node, const part *first) {
    gw_cl_arg_tensor(call, node->in[1]);
    gw_cl_arg_tensor(call, node->out);
    gw_cl_arg_int(call, first->w->dim[1]);
    gw_cl_arg_int(call, node->out->dim[1]);
    gw_cl_arg_int(call, first->bias != NULL);
    gw_cl_arg_int(call, node->in[1] != NULL);
}

/* On items: any LINEAR of quantized weights. spans: its input with one scale per span, once that is
 * there. */
static gw_status record_strips(struct gw_segment *segment, const gw_node *node, const part *parts,
                               int n, cl_mem *spans) {
    char options[224];
    size_t strips = 0;
    const gw_order order = node->args.linear.order;
    int decode = order == GW_ORDER_DECODE, aligned = gw_cl_takes_spans(parts[0].w, order);
    size_t used = gw_cl_format_options(parts[0].w->fmt, order, options, sizeof options);
    snprintf(options + used, sizeof options - used, "%s", decode ? " -DDECODE" : "");
    if (aligned) {
        GW_TRY(gw_cl_record_spans(segment, node->in[0], spans));
    }
    gw_cl_call call = gw_cl_launch_new(segment, "linear_item", options,
                                       decode ? "linear_decode" : "linear_prefill");
    gw_cl_arg_step(&call);
    for (int i = 0; i < PARTS; i++) {
        arg_part(&call, i < n ? &parts[i] : NULL, &parts[0]);
        strips += i < n ? gw_cl_groups((size_t)parts[i].chunk->rows, GW_CL_STRIP) : 0;
    }
    if (aligned) {
        gw_cl_arg_mem(&call, *spans, 0);
    } else {
        gw_cl_arg_tensor(&call, node->in[0]);
    }
    arg_result(&call, node, &parts[0]);
    return gw_cl_launch_end(&call, 1, strips, gw_cl_groups((size_t)segment->rows, GW_DECODE_MAX),
                            1);
}

static gw_status record_parts(struct gw_segment *segment, const gw_node *node, const part *parts,
                              int n, cl_mem *spans) {
    char options[320];
    size_t groups = 0, each = (size_t)(PAIR * segment->device->group / GW_CL_TEAM);
    if (segment->device->item) {
        return record_strips(segment, node, parts, n, spans);
    }
    decode_options(segment, node, parts[0].w, options, sizeof options);
    gw_cl_call call = gw_cl_launch_new(segment, "decode_team", options, "linear_decode");
    gw_cl_arg_step(&call);
    for (int i = 0; i < PARTS; i++) {
        arg_part(&call, i < n ? &parts[i] : NULL, &parts[0]);
        groups += i < n ? gw_cl_groups((size_t)parts[i].chunk->rows, each) : 0;
    }
    arg_norm(&call, segment, node);
    arg_result(&call, node, &parts[0]);
    size_t width = (size_t)width_for(segment->rows);
    return gw_cl_launch_end(&call, (size_t)segment->device->group, at_once(segment, groups),
                            gw_cl_groups((size_t)segment->rows, width), 1);
}

/* May `b` go into the launch of `a`? */
static int goes_with(const part *a, const part *b) {
    return a->w->fmt == b->w->fmt && (a->bias != NULL) == (b->bias != NULL);
}

gw_status gw_cl_record_stacked(struct gw_segment *segment, const gw_node *node) {
    part parts[PARTS];
    cl_mem spans = NULL;
    int n = 0;
    int64_t column = 0;
    for (int i = 0; i < 3 && node->w[i] != NULL; i++) {
        for (int c = 0; c < node->w[i]->buf->n_chunks; c++) {
            const gw_cl_chunk *chunk = &node->w[i]->buf->chunks[c];
            part p = {node->w[i], node->w[3 + i], chunk, column + chunk->first};
            if (n == PARTS || (n > 0 && !goes_with(&parts[0], &p))) {
                GW_TRY(record_parts(segment, node, parts, n, &spans));
                n = 0;
            }
            parts[n++] = p;
        }
        column += node->w[i]->dim[0];
    }
    return record_parts(segment, node, parts, n, &spans);
}

int gw_cl_one_glu_launch(const struct gw_segment *segment, const gw_node *node) {
    const gw_tensor *gate = node->w[0], *up = node->w[1];
    return node->op != GW_OP_GLU ||
           (!segment->device->item && node->args.linear.order == GW_ORDER_DECODE &&
            gate->fmt == up->fmt && gate->buf->n_chunks == up->buf->n_chunks);
}

static void arg_planes(gw_cl_call *call, const gw_cl_chunk *chunk) {
    gw_cl_arg_mem(call, chunk->mem, 0);
    gw_cl_arg_ulong(call, chunk->high);
    gw_cl_arg_ulong(call, chunk->head);
    gw_cl_arg_ulong(call, chunk->sub);
}

gw_status gw_cl_record_decode_glu(struct gw_segment *segment, const gw_node *node) {
    char options[320];
    const gw_tensor *gate = node->w[0], *up = node->w[1];
    decode_options(segment, node, gate, options, sizeof options);
    for (int i = 0; i < gate->buf->n_chunks; i++) {
        const gw_cl_chunk *chunk = &gate->buf->chunks[i];
        gw_cl_call call = gw_cl_launch_new(segment, "decode_team", options, "glu_decode");
        gw_cl_arg_step(&call);
        arg_planes(&call, chunk);
        arg_planes(&call, &up->buf->chunks[i]);
        arg_norm(&call, segment, node);
        gw_cl_arg_tensor(&call, node->out);
        gw_cl_arg_int(&call, chunk->rows);
        gw_cl_arg_int(&call, gate->dim[1]);
        gw_cl_arg_int(&call, node->out->dim[1]);
        gw_cl_arg_int(&call, chunk->first);
        GW_TRY(gw_cl_launch_end(
            &call, (size_t)segment->device->group,
            at_once(segment, gw_cl_groups((size_t)chunk->rows, GW_ACT_BLOCK)),
            gw_cl_groups((size_t)segment->rows, (size_t)width_for(segment->rows)), 1));
    }
    return GW_OK;
}
