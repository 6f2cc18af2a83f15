/* backends/hip/gemm.c - LINEAR and GLU of a prompt, and attention of many rows: nodes to launches.
 *
 * Quantized weights: int8 matrix instructions, or plainly where a device has none. Float weights:
 * 16-bit matrix instructions with an order of their own, unless the device was opened as exact;
 * else one chain per output. All but those have the bits of the scalar CPU.
 */
#include <stdio.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "kernels_hip/gemm/gemm_params.h"
#include "kernels_hip/attention/attend_prompt_params.h"
#include "kernels_hip/strip.h"

enum { FEWEST_WIDE = 513 }; /* rows of a plan, for gemm_wide.hip */

/* What stands behind a row of the table. */
typedef enum way { MATRIX, PLAIN, HALF, ORDERED } way;

typedef struct gemm_kind {
    gw_fmt fmt;
    const char *name; /* of the kernel, behind its family */
    way way;
    int term, form, record; /* quantized */
} gemm_kind;

/* ---- what is accepted ------------------------------------------------------------------------ */

int gw_hip_matrix16(const struct gw_device *d) { return gw_hip_has_matrices(d) && !d->exact; }

/* gemm_params.h: NVIDIA's matrix instructions. */
int gw_hip_is_wide(const struct gw_device *d) { return d->processor->matrix == GW_MATRIX_MMA; }

/* Products of many tokens, quantized: by matrix instructions of four waves where there is room. */
static int group_shared(const gemm_kind *kind) {
    return GW_GROUP_SHARED(kind->form, GW_GEMM_NUMBERS(kind->term), kind->record);
}
static int takes_group(const gemm_kind *kind, const struct gw_device *d) {
    return d->group && group_shared(kind) <= d->shared_bytes;
}

/* MATRIX: what every number of tokens needs, in blocks of the fewest waves. */
static unsigned shared_of(const gemm_kind *kind, const struct gw_device *d) {
    int wide = gw_hip_is_wide(d), large = GW_LARGE_SHARED(wide, kind->term, kind->record);
    int strips = GW_GEMM_SHARED(wide, wide ? GW_GEMM_WAVES_MANY : GW_GEMM_WAVES_FEW,
                                GW_GEMM_TOKENS(wide), kind->term, kind->record);
    switch (kind->way) {
    case MATRIX:
        return takes_group(kind, d) ? (unsigned)group_shared(kind)
                                    : (unsigned)(large > strips ? large : strips);
    case HALF:
        return (unsigned)GW_HALF_SHARED(wide, d->group);
    default:
        return 0;
    }
}

static int accepts(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device,
                   int parts) {
    const gemm_kind *kind = kernel->state;
    int is_float = gw_format_of(kind->fmt)->is_float;
    if (node->args.linear.order != GW_ORDER_PREFILL || node->w[0]->fmt != kind->fmt ||
        ((kind->way == MATRIX || kind->way == HALF) && !gw_hip_has_matrices(device)) ||
        (kind->way == HALF && device->exact) ||
        shared_of(kind, device) > (unsigned)device->shared_bytes) {
        return 0;
    }
    for (int i = 0; i < parts && node->w[i] != NULL; i++) {
        const gw_tensor *bias = node->op == GW_OP_LINEAR ? node->w[3 + i] : NULL;
        if (node->w[i]->layout != GW_HIP_LAYOUT_STRIPS ||
            gw_format_of(node->w[i]->fmt)->is_float != is_float ||
            (bias != NULL && bias->fmt != GW_FMT_F32)) {
            return 0;
        }
    }
    return node->in[0]->fmt == (is_float ? GW_FMT_F32 : GW_FMT_ACT8);
}

static int accepts_linear(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    return node->out->fmt == GW_FMT_F32 && accepts(kernel, node, device, 3);
}

static int accepts_glu(const gw_kernel *kernel, const gw_node *node,
                       const struct gw_device *device) {
    int fits = node->out->fmt == GW_FMT_F32 ||
               (node->out->fmt == GW_FMT_ACT8 && gw_hip_width(node->out) % GW_ACT_BLOCK == 0);
    return fits && accepts(kernel, node, device, 2);
}

/* ---- launches -------------------------------------------------------------------------------- */

extern const gw_kernel gw_hip_gemm_kernels[];

/* The kind of a weight, by the same way or, for floats, whatever the device prefers. */
static const gemm_kind *kind_of(const struct gw_device *device, gw_fmt fmt, way wanted) {
    const gemm_kind *kind = NULL;
    for (const gw_kernel *k = gw_hip_gemm_kernels; k->name != NULL; k++) {
        const gemm_kind *other = k->op == GW_OP_LINEAR ? k->state : NULL;
        if (other != NULL && other->fmt == fmt) {
            int takes = other->way != HALF || (!device->exact && wanted == HALF);
            kind = other->way == wanted || (kind == NULL && takes) ? other : kind;
        }
    }
    return kind;
}

static unsigned blocks_of(const struct gw_gemm_params *p, size_t rows, size_t tile_rows,
                          size_t tile_tokens) {
    size_t tiles = 0;
    if (p->glu) {
        tiles = gw_hip_groups((size_t)p->w[0].rows, tile_rows / 2);
    }
    for (int i = 0; i < p->parts && !p->glu; i++) {
        tiles += gw_hip_groups((size_t)p->w[i].rows, tile_rows);
    }
    return (unsigned)(tiles * gw_hip_groups(rows, tile_tokens));
}

static size_t narrow_scales(const struct gw_segment *segment) {
    return ((size_t)segment->rows * sizeof(float) + 255) / 256 * 256;
}

static size_t narrow_bytes(const struct gw_segment *segment, size_t k) {
    size_t rows = gw_hip_groups((size_t)segment->rows, GW_WIDE_TOKENS) * GW_WIDE_TOKENS;
    return narrow_scales(segment) +
           rows * ((k + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS) * GW_STRIP_FLOATS * 2;
}

/* Is a product of 16-bit weights one of gemm_wide.hip? Its tiles are large: of fewer rows there
 * would not be enough of them. The bits are the same. */
static int takes_wide(const struct gw_segment *segment, const gemm_kind *kind, int glu) {
    const struct gw_device *d = segment->device;
    return kind->way == HALF && d->group && !glu && kind->fmt != GW_FMT_E4M3 &&
           segment->rows >= FEWEST_WIDE && (int)GW_WIDE_SHARED <= d->shared_bytes;
}

/* Activations in the weights' format, in scratch, unless the node in front has left them; p->x and
 * p->scale then name them. */
static gw_status record_narrow(struct gw_segment *segment, const gw_node *node,
                               const gemm_kind *kind, gw_hip_ptr scratch,
                               struct gw_gemm_params *p) {
    size_t rows = (size_t)segment->rows;
    struct gw_narrow_params n = {.step = p->step,
                                 .x = p->x,
                                 .to = {.scale = scratch,
                                        .y = scratch + narrow_scales(segment),
                                        .bf16 = kind->fmt == GW_FMT_BF16,
                                        .tiled = takes_wide(segment, kind, p->glu)},
                                 .k = p->k};
    const struct gw_narrow_to *left = &segment->narrowed.to;
    if (segment->narrowed.of == node->in[0] && segment->narrowed.node + 1 == segment->node &&
        left->bf16 == n.to.bf16 && left->tiled == n.to.tiled) {
        p->x = left->y;
        p->scale = left->scale;
        return GW_OK;
    }
    p->x = n.to.y;
    p->scale = n.to.scale;
    return gw_hip_record(segment, node, "gw_narrow", (unsigned)rows, 1, 1, GW_NARROW_THREADS, 1, 1,
                         0, &n, sizeof n);
}

/* Activations in the order of stages, in scratch, for a product of `launched` blocks; p->x then
 * names them. */
static gw_status record_spread(struct gw_segment *segment, const gw_node *node,
                               const gemm_kind *kind, gw_hip_ptr scratch, unsigned launched,
                               struct gw_gemm_params *p) {
    struct gw_spread_params s = {.step = p->step,
                                 .x = p->x,
                                 .y = scratch,
                                 .k = p->k,
                                 .numbers = GW_GEMM_NUMBERS(kind->term),
                                 .form = kind->form,
                                 .tiles = (int32_t)blocks_of(p, 1, GW_GEMM_ROWS, 1),
                                 .blocks = (int32_t)launched};
    size_t rows = (size_t)segment->rows;
    size_t blocks = gw_hip_groups((size_t)p->k, 4 * GW_ACT_BLOCK) * 4;
    p->x = s.y;
    if (kind->form != GW_STAGE_BLOCKS) {
        return gw_hip_record(segment, node,
                             kind->form == GW_STAGE_SCALED ? "gw_spread_scaled" : "gw_spread_span",
                             gw_hip_groups(blocks, GW_SPREAD_THREADS), (unsigned)rows, 1,
                             GW_SPREAD_THREADS, 1, 1, 0, &s, sizeof s);
    }
    return gw_hip_record(segment, node, "gw_spread", gw_hip_groups(rows, 8),
                         gw_hip_groups(blocks, GW_SPREAD_THREADS / 8), 1, GW_SPREAD_THREADS, 1, 1,
                         0, &s, sizeof s);
}

static size_t spread_bytes(const struct gw_segment *segment, const gw_node *node) {
    size_t tiles = gw_hip_groups((size_t)segment->rows, GW_GEMM_TOKENS(1));
    return (tiles * gw_hip_groups(gw_hip_width(node->in[0]), 4 * GW_ACT_BLOCK) *
                GW_GROUP_TOKENS(GW_STAGE_BLOCKS,
                                GW_GEMM_NUMBERS(GW_TERM_AFFINE)) + /* the longest */
            255) /
           256 * 256;
}

/* Sums that blocks of a launch leave to the next ones (kernels_hip/gemm/gemm_stream_k.h). */
static size_t left_bytes(const struct gw_device *device) {
    return ((size_t)device->units + 1) * GW_SHARE_SUMS * sizeof(float);
}

/* Their words, of which the first counts blocks as they begin: that may be before a launch in front
 * has ended, so no other kernels have them. */
static gw_status has_left_of(struct gw_segment *segment, gw_hip_ptr *out) {
    size_t words = (size_t)segment->device->units + 1;
    if (segment->has_left == 0) {
        GW_TRY(gw_hip_private(segment, words * sizeof(uint32_t), &segment->has_left));
    }
    *out = segment->has_left;
    return GW_OK;
}

/* What any weights of a node need. */
static size_t scratch_bytes(const struct gw_segment *segment, const gw_node *node) {
    const struct gw_device *d = segment->device;
    if (node->in[0]->fmt == GW_FMT_F32) {
        return gw_hip_has_matrices(d) && !d->exact
                   ? narrow_bytes(segment, gw_hip_width(node->in[0]))
                   : 0;
    }
    return d->group ? spread_bytes(segment, node) + left_bytes(d) : 0;
}

/* Quantized weights, up to GW_GEMM_MANY live tokens: a strip per wave and all tokens. As many waves
 * per block as leave the fullest multiprocessor with the fewest strips; more of them share
 * activations. */
static gw_status record_strips(struct gw_segment *segment, const gw_node *node,
                               const gemm_kind *kind, const struct gw_gemm_params *p) {
    const struct gw_device *d = segment->device;
    size_t rows = segment->rows < GW_GEMM_MANY ? (size_t)segment->rows : GW_GEMM_MANY;
    size_t units = (size_t)d->units, least = 0;
    int wide = gw_hip_is_wide(d), best = 0, tokens = rows <= 32 ? 32 : rows <= 64 ? 64 : 128;
    tokens = tokens < GW_GEMM_TOKENS(wide) ? tokens : GW_GEMM_TOKENS(wide);
    int waves = tokens <= 64 ? GW_GEMM_WAVES_FEW : GW_GEMM_WAVES_MANY;
    for (; waves <= GW_GEMM_WAVES(wide); waves += 4) {
        size_t blocks = blocks_of(p, rows, (size_t)waves * GW_STRIP_ROWS, (size_t)tokens);
        size_t strips = gw_hip_groups(blocks, units) * (size_t)waves;
        if ((best == 0 || strips <= least) &&
            GW_GEMM_SHARED(wide, waves, tokens, kind->term, kind->record) <= d->shared_bytes) {
            least = strips;
            best = waves;
        }
    }
    char name[64];
    snprintf(name, sizeof name, "gw_gemm_%s", gw_hip_kernels_of(kind->fmt));
    return gw_hip_record(
        segment, node, name, blocks_of(p, rows, (size_t)best * GW_STRIP_ROWS, (size_t)tokens), 1, 1,
        (unsigned)(best * d->warp), 1, 1,
        (unsigned)GW_GEMM_SHARED(wide, best, tokens, kind->term, kind->record), p, sizeof *p);
}

/* By matrix instructions of four waves, any number of tokens. Blocks stay, so there are no more of
 * them than run at once. */
static gw_status record_group(struct gw_segment *segment, const gw_node *node,
                              const gemm_kind *kind, gw_hip_ptr scratch, struct gw_gemm_params p) {
    unsigned units = (unsigned)segment->device->units;
    unsigned tiles = blocks_of(&p, (size_t)segment->rows, GW_GEMM_ROWS, GW_GEMM_TOKENS(1));
    unsigned blocks = tiles < units ? tiles : units;
    char name[64];
    GW_TRY(record_spread(segment, node, kind, scratch, blocks, &p));
    p.left = scratch + spread_bytes(segment, node);
    GW_TRY(has_left_of(segment, &p.has_left));
    snprintf(name, sizeof name, "gw_gemm_group_%s", gw_hip_kernels_of(kind->fmt));
    return gw_hip_record(segment, node, name, blocks, 1, 1, GW_GROUP_BLOCK, 1, 1,
                         (unsigned)group_shared(kind), &p, sizeof p);
}

/* How many tokens of a plan are live is known on the device only: of two launches one is idle. */
static gw_status record_matrix(struct gw_segment *segment, const gw_node *node,
                               const gemm_kind *kind, gw_hip_ptr scratch,
                               const struct gw_gemm_params *p) {
    int wide = gw_hip_is_wide(segment->device);
    size_t rows = (size_t)segment->rows;
    char name[64];
    if (takes_group(kind, segment->device)) {
        return record_group(segment, node, kind, scratch, *p);
    }
    GW_TRY(record_strips(segment, node, kind, p));
    if (rows <= GW_GEMM_MANY) {
        return GW_OK;
    }
    snprintf(name, sizeof name, "gw_gemm_large_%s", gw_hip_kernels_of(kind->fmt));
    return gw_hip_record(segment, node, name,
                         blocks_of(p, rows, GW_GEMM_ROWS, GW_GEMM_TOKENS(wide)), 1, 1,
                         GW_GEMM_THREADS, 1, 1,
                         (unsigned)GW_LARGE_SHARED(wide, kind->term, kind->record), p, sizeof *p);
}

/* Weights of one format. scratch: scratch_bytes. */
static gw_status record_one(struct gw_segment *segment, const gw_node *node, const gemm_kind *kind,
                            gw_hip_ptr scratch, struct gw_gemm_params p) {
    size_t rows = (size_t)segment->rows;
    const struct gw_device *d = segment->device;
    char name[64];
    const char *family = kind->way == PLAIN     ? "gw_gemm_plain"
                         : kind->way == ORDERED ? "gw_gemm_ordered"
                         : d->group             ? "gw_gemm_group"
                                                : "gw_gemm_half";
    if (kind->way == MATRIX) {
        return record_matrix(segment, node, kind, scratch, &p);
    }
    snprintf(name, sizeof name, "%s_%s", family, gw_hip_kernels_of(kind->fmt));
    if (kind->way == PLAIN) {
        for (int i = 0; i < p.parts; i++) {
            struct gw_gemm_params one = p;
            one.w[0] = p.w[i];
            GW_TRY(gw_hip_record(segment, node, name,
                                 gw_hip_groups((size_t)one.w[0].rows, GW_STRIP_ROWS),
                                 gw_hip_groups(rows, GW_PLAIN_TOKENS), 1,
                                 GW_PLAIN_TOKENS * GW_STRIP_ROWS, 1, 1, 0, &one, sizeof one));
        }
        return GW_OK;
    }
    unsigned blocks = blocks_of(&p, rows, GW_ORDERED_SIDE, GW_ORDERED_SIDE);
    if (kind->way == ORDERED && !p.glu && blocks < (unsigned)d->units) {
        snprintf(name, sizeof name, "%s_few_%s", family, gw_hip_kernels_of(kind->fmt));
        blocks = blocks_of(&p, rows, GW_ORDERED_FEW, GW_ORDERED_FEW);
    }
    if (kind->way != ORDERED) {
        blocks = blocks_of(&p, rows, GW_GEMM_ROWS, GW_GEMM_TOKENS(gw_hip_is_wide(d)));
    }
    if (kind->way == HALF) {
        GW_TRY(record_narrow(segment, node, kind, scratch, &p));
    }
    if (takes_wide(segment, kind, p.glu)) {
        unsigned tiles = blocks_of(&p, rows, GW_GEMM_ROWS, GW_WIDE_TOKENS);
        snprintf(name, sizeof name, "gw_gemm_wide_%s", gw_hip_kernels_of(kind->fmt));
        return gw_hip_record(segment, node, name,
                             tiles < (unsigned)d->units ? tiles : (unsigned)d->units, 1, 1,
                             GW_GROUP_BLOCK, 1, 1, GW_WIDE_SHARED, &p, sizeof p);
    }
    return gw_hip_record(segment, node, name, blocks, 1, 1, GW_GEMM_THREADS, 1, 1,
                         shared_of(kind, d), &p, sizeof p);
}

static struct gw_gemm_weight weight_of(const gw_tensor *w, const gw_tensor *bias, int64_t column) {
    return (struct gw_gemm_weight){.plane = {gw_hip_at(w)},
                                   .bias = bias != NULL ? gw_hip_at(bias) : 0,
                                   .rows = (int32_t)w->dim[0],
                                   .column = (int32_t)column};
}

static struct gw_gemm_params params_of(const struct gw_segment *segment, const gw_node *node) {
    return (struct gw_gemm_params){.step = gw_hip_step(segment),
                                   .x = gw_hip_at(node->in[0]),
                                   .y = gw_hip_at(node->out),
                                   .k = (int32_t)gw_hip_width(node->in[0]),
                                   .stride = (int32_t)gw_hip_width(node->out)};
}

/* Neighbours of one format go together. */
static gw_status record_linear(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gemm_kind *first = kernel->state;
    struct gw_gemm_params p = params_of(segment, node);
    gw_hip_ptr scratch = 0;
    int64_t column = 0;
    p.residual = node->in[1] != NULL ? gw_hip_at(node->in[1]) : 0;
    GW_TRY(gw_hip_scratch(segment, scratch_bytes(segment, node), &scratch));
    for (int i = 0; i < GW_GEMM_PARTS && node->w[i] != NULL; i++) {
        const gw_tensor *w = node->w[i], *next = i + 1 < GW_GEMM_PARTS ? node->w[i + 1] : NULL;
        p.w[p.parts++] = weight_of(w, node->w[3 + i], column);
        column += w->dim[0];
        if (next == NULL || next->fmt != w->fmt) {
            const gemm_kind *kind = kind_of(segment->device, w->fmt, first->way);
            GW_TRY(record_one(segment, node, kind, scratch, p));
            p.parts = 0;
        }
    }
    return GW_OK;
}

/* Gate, then up, then both joined. */
static gw_status record_apart(struct gw_segment *segment, const gw_node *node, way wanted) {
    size_t rows = (size_t)segment->rows, width = gw_hip_width(node->out);
    size_t bytes = (rows * width * sizeof(float) + 255) / 256 * 256;
    int act8 = node->out->fmt == GW_FMT_ACT8;
    gw_hip_ptr scratch;
    GW_TRY(gw_hip_scratch(segment, 2 * bytes + scratch_bytes(segment, node), &scratch));
    for (int i = 0; i < 2; i++) {
        const gemm_kind *kind = kind_of(segment->device, node->w[i]->fmt, wanted);
        struct gw_gemm_params p = params_of(segment, node);
        p.y = scratch + (size_t)i * bytes;
        p.w[0] = weight_of(node->w[i], NULL, 0);
        p.parts = 1;
        GW_TRY(record_one(segment, node, kind, scratch + 2 * bytes, p));
    }
    struct gw_gemm_join_params join = {.step = gw_hip_step(segment),
                                       .gate = scratch,
                                       .up = scratch + bytes,
                                       .y = act8 ? scratch : gw_hip_at(node->out),
                                       .width = (int32_t)width};
    GW_TRY(gw_hip_record(segment, node, "gw_gemm_join", gw_hip_groups(width, GW_GEMM_THREADS),
                         (unsigned)rows, 1, GW_GEMM_THREADS, 1, 1, 0, &join, sizeof join));
    return act8 ? gw_hip_record_encode(segment, node, scratch, node->out) : GW_OK;
}

static gw_status record_glu(struct gw_segment *segment, const gw_kernel *kernel,
                            const gw_node *node) {
    const gemm_kind *kind = kernel->state;
    struct gw_gemm_params p = params_of(segment, node);
    gw_hip_ptr scratch = 0;
    if (kind->way == PLAIN || node->w[0]->fmt != node->w[1]->fmt) {
        return record_apart(segment, node, kind->way);
    }
    GW_TRY(gw_hip_scratch(segment, scratch_bytes(segment, node), &scratch));
    p.w[0] = weight_of(node->w[0], NULL, 0);
    p.w[1] = weight_of(node->w[1], NULL, 0);
    p.parts = 2;
    p.glu = 1;
    p.act8 = node->out->fmt == GW_FMT_ACT8;
    return record_one(segment, node, kind, scratch, p);
}

gw_status gw_hip_narrow_to(struct gw_segment *segment, const gw_node *node, int alone,
                           struct gw_narrow_to *out) {
    size_t at = (size_t)segment->node + 1;
    const gw_node *next = at < segment->n_nodes ? &segment->nodes[at] : NULL;
    *out = (struct gw_narrow_to){.y = 0};
    if (next == NULL || segment->device->no_fuse || next->in[0] != node->out ||
        (next->kernel->record != record_linear && next->kernel->record != record_glu)) {
        return GW_OK;
    }
    const gemm_kind *kind = next->kernel->state;
    int glu = next->op == GW_OP_GLU, parts = glu ? 2 : GW_GEMM_PARTS;
    for (int i = 0; i < parts && next->w[i] != NULL; i++) {
        if (kind->way != HALF || next->w[i]->fmt != kind->fmt) {
            return GW_OK;
        }
    }
    for (size_t i = at; alone && i < segment->n_nodes; i++) {
        for (int j = 0; j < GW_MAX_IN; j++) {
            if (segment->nodes[i].in[j] == node->out && (i > at || j > 0)) {
                return GW_OK;
            }
        }
        if (segment->nodes[i].out == node->out) {
            break;
        }
    }
    size_t bytes = narrow_bytes(segment, gw_hip_width(node->out));
    if (bytes > segment->narrowed.bytes) {
        GW_TRY(gw_hip_private(segment, bytes, &segment->narrowed.at));
        segment->narrowed.bytes = bytes;
    }
    *out = (struct gw_narrow_to){.scale = segment->narrowed.at,
                                 .y = segment->narrowed.at + narrow_scales(segment),
                                 .bf16 = kind->fmt == GW_FMT_BF16,
                                 .tiled = takes_wide(segment, kind, glu)};
    segment->narrowed.of = node->out;
    segment->narrowed.node = segment->node;
    segment->narrowed.to = *out;
    return GW_OK;
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { KEPT_PAGES = GW_PAGE_GROUP, KEPT_BYTES = 64 << 20 }; /* of scores, and of sums */

static unsigned width_of(int e) { return e <= 64 ? 64 : e <= 128 ? 128 : 256; }

static int accepts_prefill(const gw_kernel *kernel, const gw_node *node,
                           const struct gw_device *device) {
    int e = node->args.attn.head_dim;
    gw_fmt cache = node->in[1]->fmt;
    (void)kernel;
    /* Rows of a decode pass are of many texts, which have no pages in common. */
    return gw_hip_is_plain_both_ways(node) && node->in[0]->fmt == GW_FMT_F32 &&
           node->args.attn.order == GW_ORDER_PREFILL && node->in[0]->dim[0] > GW_DECODE_MAX &&
           e <= 256 &&
           GW_PROMPT_SHARED(width_of(e), gw_hip_is_wide(device)) <=
               (unsigned)device->shared_bytes &&
           (cache == GW_FMT_F16 || cache == GW_FMT_F32) && node->in[2]->fmt == cache &&
           (node->out->fmt == GW_FMT_F32 ||
            (node->out->fmt == GW_FMT_ACT8 && gw_hip_width(node->out) % GW_ACT_BLOCK == 0));
}

static struct gw_prompt_params prefill_params(const struct gw_segment *segment, const gw_node *node,
                                              gw_hip_ptr out) {
    const gw_attn_args *a = &node->args.attn;
    return (struct gw_prompt_params){.step = gw_hip_step(segment),
                                     .q = gw_hip_at(node->in[0]),
                                     .k = gw_hip_at(node->in[1]),
                                     .v = gw_hip_at(node->in[2]),
                                     .pages = gw_hip_at(node->in[3]),
                                     .sinks = node->w[0] != NULL ? gw_hip_at(node->w[0]) : 0,
                                     .out = out,
                                     .heads = a->heads,
                                     .kv_heads = a->kv_heads,
                                     .e = a->head_dim,
                                     .page_stride = (int32_t)gw_hip_width(node->in[3]),
                                     .window = a->window,
                                     .both = a->both,
                                     .scale = a->scale};
}

static gw_status record_prefill(struct gw_segment *segment, const gw_kernel *kernel,
                                const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    size_t rows = (size_t)segment->rows, group = (size_t)(a->heads / a->kv_heads);
    unsigned width = width_of(a->head_dim), wide = (unsigned)gw_hip_is_wide(segment->device);
    size_t of_block = GW_PROMPT_QUERIES(width, wide), page_scores = of_block * GW_PAGE * 4;
    int act8 = node->out->fmt == GW_FMT_ACT8, straddles = act8 && a->head_dim % GW_ACT_BLOCK != 0;
    size_t turns = gw_hip_groups(rows * group, of_block), blocks = turns * (size_t)a->kv_heads;
    size_t kept = KEPT_BYTES / (blocks * page_scores), pages = gw_hip_width(node->in[3]);
    size_t apart = straddles ? rows * gw_hip_width(node->out) * sizeof(float) : 0;
    char name[48];
    gw_hip_ptr out;
    (void)kernel;
    kept = kept < KEPT_PAGES ? kept : KEPT_PAGES;
    kept = kept < pages ? kept : pages;
    size_t groups = gw_hip_groups(pages, GW_PAGE_GROUP), queries = blocks * of_block;
    size_t of_group = queries * width * sizeof(float), kept_groups = KEPT_BYTES / of_group;
    kept_groups = kept_groups < 1 ? 1 : kept_groups < groups ? kept_groups : groups;
    size_t scores = kept * blocks * page_scores, tops = queries * groups * sizeof(float);
    size_t totals = queries * kept_groups * sizeof(float);
    apart = (apart + 255) / 256 * 256;
    GW_TRY(gw_hip_scratch(segment, apart + scores + tops + totals + kept_groups * of_group, &out));
    struct gw_prompt_params p =
        prefill_params(segment, node, straddles ? out : gw_hip_at(node->out));
    p.scores = out + apart;
    p.tops = p.scores + scores;
    p.totals = p.tops + tops;
    p.sums = p.totals + totals;
    p.kept = (int32_t)kept;
    p.groups = (int32_t)groups;
    p.kept_groups = (int32_t)kept_groups;
    p.form = straddles ? GW_FORM_FLOATS : gw_hip_form(segment, node->out);
    snprintf(name, sizeof name, "gw_attend_prompt_%s_%u",
             node->in[1]->fmt == GW_FMT_F16 ? "f16" : "f32", width);
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)a->kv_heads, (unsigned)turns, 1,
                         GW_PROMPT_THREADS(width, wide), 1, 1, GW_PROMPT_SHARED(width, wide), &p,
                         sizeof p));
    return straddles ? gw_hip_record_encode(segment, node, p.out, node->out) : GW_OK;
}

/* On 16-bit matrix units, where the product behind it is too: that takes floats. As there, what the
 * rows are decides, not how many they are. */
static int accepts_prefill_half(const gw_kernel *kernel, const gw_node *node,
                                const struct gw_device *device) {
    int e = node->args.attn.head_dim;
    (void)kernel;
    return node->w[0] == NULL && gw_hip_is_plain_both_ways(node) &&
           node->args.attn.order == GW_ORDER_PREFILL && gw_hip_matrix16(device) &&
           node->in[0]->fmt == GW_FMT_F32 && node->in[1]->fmt == GW_FMT_F16 &&
           node->in[2]->fmt == GW_FMT_F16 && node->out->fmt == GW_FMT_F32 && e % 8 == 0 &&
           e <= 128 &&
           GW_PROMPT_HALF_SHARED(width_of(e), gw_hip_is_wide(device)) <=
               (unsigned)device->shared_bytes;
}

static gw_status record_prefill_half(struct gw_segment *segment, const gw_kernel *kernel,
                                     const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    const struct gw_device *d = segment->device;
    size_t queries = (size_t)segment->rows * (size_t)(a->heads / a->kv_heads);
    unsigned width = width_of(a->head_dim);
    struct gw_prompt_params p = prefill_params(segment, node, gw_hip_at(node->out));
    char name[48];
    (void)kernel;
    snprintf(name, sizeof name, "gw_attend_prompt_half_%u", width);
    return gw_hip_record(segment, node, name, gw_hip_groups(queries, GW_PROMPT_HALF_QUERIES),
                         (unsigned)a->kv_heads, 1, GW_PROMPT_HALF_QUERIES / 16 * (unsigned)d->warp,
                         1, 1, (unsigned)GW_PROMPT_HALF_SHARED(width, gw_hip_is_wide(d)), &p,
                         sizeof p);
}

/* Units of different cards need not round alike. */
void gw_hip_arithmetic(const struct gw_device *device, const gw_node *node, char *out) {
    const gw_kernel *kernel = node->kernel;
    int products = kernel->record == record_linear || kernel->record == record_glu;
    int half = kernel->record == record_prefill_half ||
               (products && ((const gemm_kind *)kernel->state)->way == HALF);
    out[0] = '\0';
    if (half && device->driver->nvidia && !device->driver->emulated) {
        snprintf(out, GW_ARITHMETIC_BYTES, "half of sm_%d", device->capability);
    } else if (half && device->driver->emulated && !gw_hip_is_wide(device)) {
        snprintf(out, GW_ARITHMETIC_BYTES, "half of emulated %s", device->processor->name);
    } else if (half) {
        snprintf(out, GW_ARITHMETIC_BYTES, "half of %s",
                 device->driver->emulated ? "emulator" : device->arch);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

#define KIND(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                     \
    static const gemm_kind matrix_##name = {GW_FMT_##FORMAT,                                       \
                                            #name,                                                 \
                                            MATRIX,                                                \
                                            term,                                                  \
                                            GW_GROUP_FORM(low, high, levels, term, sub),           \
                                            GW_STRIP_RECORD(low, high, sub, heads, bytes)};        \
    static const gemm_kind plain_##name = {GW_FMT_##FORMAT, #name, PLAIN, 0, 0, 0};
GW_STRIP_FORMATS(KIND)
#undef KIND
static const gemm_kind half_f16 = {GW_FMT_F16, "f16", HALF, 0, 0, 0};
static const gemm_kind half_bf16 = {GW_FMT_BF16, "bf16", HALF, 0, 0, 0};
static const gemm_kind half_e4m3 = {GW_FMT_E4M3, "e4m3", HALF, 0, 0, 0};
static const gemm_kind ordered_f16 = {GW_FMT_F16, "f16", ORDERED, 0, 0, 0};
static const gemm_kind ordered_bf16 = {GW_FMT_BF16, "bf16", ORDERED, 0, 0, 0};
static const gemm_kind ordered_e4m3 = {GW_FMT_E4M3, "e4m3", ORDERED, 0, 0, 0};
static const gemm_kind ordered_nvfp4 = {GW_FMT_NVFP4_CODES, "nvfp4_codes", ORDERED, 0, 0, 0};
static const gemm_kind ordered_f32 = {GW_FMT_F32, "f32", ORDERED, 0, 0, 0};

/* clang-format off */
#define ROWS_OF(name, kind)                                                                        \
    {GW_OP_LINEAR, "hip.linear.prefill." name, accepts_linear, record_linear, &kind, 0}, \
    {GW_OP_GLU, "hip.glu.prefill." name, accepts_glu, record_glu, &kind, 0},
#define MATRIX_ROWS(FORMAT, name, ...) ROWS_OF(#name, matrix_##name)
#define PLAIN_ROWS(FORMAT, name, ...) ROWS_OF(#name ".plain", plain_##name)
const gw_kernel gw_hip_gemm_kernels[] = {
    GW_STRIP_FORMATS(MATRIX_ROWS)
    GW_STRIP_FORMATS(PLAIN_ROWS)
    ROWS_OF("f16.half", half_f16)
    ROWS_OF("bf16.half", half_bf16)
    ROWS_OF("e4m3.half", half_e4m3)
    ROWS_OF("f16", ordered_f16)
    ROWS_OF("bf16", ordered_bf16)
    ROWS_OF("f32", ordered_f32)
    ROWS_OF("e4m3", ordered_e4m3)
    ROWS_OF("nvfp4_codes", ordered_nvfp4)
    {GW_OP_ATTENTION, "hip.attention.prefill.half", accepts_prefill_half, record_prefill_half,
     NULL, 1},
    {GW_OP_ATTENTION, "hip.attention.prefill", accepts_prefill, record_prefill, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
