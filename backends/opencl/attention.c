/* backends/opencl/attention.c - ROPE_KV and ATTENTION: nodes to launches. */
#include <stdio.h>

#include "backends/opencl/opencl.h"

/* SCRATCH: of partial results, at least; more on a device with much memory, for a prompt. */
enum { SCRATCH_BYTES = 64 << 20, MOST_SCRATCH_BYTES = 256 << 20, GROUPS_PER_UNIT = 4 };

int gw_cl_is_cache(const gw_tensor *t) {
    return t->fmt == GW_FMT_F16 || t->fmt == GW_FMT_F32 || t->fmt == GW_FMT_Q8_0;
}

static int is_split(const gw_tensor *cache) { return cache->buf->piece > 0; }

/* -D options of every kernel that reads or writes the cache. */
const char *gw_cl_cache_options(const gw_tensor *cache) {
    static const char *const options[][2] = {
        {"-DATTENTION", "-DATTENTION -DSPLIT"},
        {"-DATTENTION -DHALF", "-DATTENTION -DHALF -DSPLIT"},
        {"-DATTENTION -DQ8", "-DATTENTION -DQ8 -DSPLIT"},
        {"-DATTENTION -DPACKED=4", "-DATTENTION -DPACKED=4 -DSPLIT"},
        {"-DATTENTION -DPACKED=5", "-DATTENTION -DPACKED=5 -DSPLIT"},
    };
    int bits = gw_cache_bits(cache->fmt);
    int fmt = cache->fmt == GW_FMT_F16 ? 1 : cache->fmt == GW_FMT_Q8_0 ? 2 : 0;
    fmt = bits > 0 ? bits - 1 : fmt;
    return options[fmt][is_split(cache)];
}

/* The last arguments of these kernels: the other allocations; K and V of a layer share them. */
void gw_cl_arg_split(gw_cl_call *call, const gw_tensor *cache) {
    const struct gw_buffer *b = cache->buf;
    for (int i = 1; i < GW_CL_PIECES && is_split(cache); i++) {
        gw_cl_arg_mem(call, b->chunks[i < b->n_chunks ? i : 0].mem, 0);
    }
    if (is_split(cache)) {
        gw_cl_arg_ulong(call, b->piece);
    }
}

/* Of K or V of a page, one KV head of width e. */
static size_t page_bytes(const gw_tensor *cache, size_t e) {
    const gw_format *f = gw_format_of(cache->fmt);
    return GW_PAGE * e / f->block_elems * f->block_bytes;
}

/* ---- ROPE_KV --------------------------------------------------------------------------------- */

int gw_cl_accepts_rope_kv(const gw_kernel *kernel, const gw_node *node,
                          const struct gw_device *device) {
    (void)kernel;
    (void)device;
    int norms = (node->w[0] == NULL || node->w[0]->fmt == GW_FMT_F32) &&
                (node->w[1] == NULL || node->w[1]->fmt == GW_FMT_F32);
    return norms && node->in[0]->fmt == GW_FMT_F32 && node->out->fmt == GW_FMT_F32 &&
           gw_cl_is_cache(node->in[1]) && node->in[2]->fmt == node->in[1]->fmt &&
           node->in[3] != NULL && node->w[2]->fmt == GW_FMT_F32;
}

static void arg_turning(gw_cl_call *call, const gw_node *node) {
    const gw_rope_args *a = &node->args.rope;
    for (int i = 0; i < 3; i++) {
        gw_cl_arg_tensor(call, node->w[i]);
    }
    gw_cl_arg_tensor(call, node->out);
    gw_cl_arg_int(call, a->rope_dim);
    gw_cl_arg_int(call, a->style == GW_ROPE_INTERLEAVED);
    gw_cl_arg_int(call, (node->w[0] != NULL ? 1 : 0) | (node->w[1] != NULL ? 2 : 0));
    gw_cl_arg_float(call, a->eps);
}

gw_status gw_cl_record_rope_kv(struct gw_segment *segment, const gw_kernel *kernel,
                               const gw_node *node) {
    const gw_rope_args *a = &node->args.rope;
    (void)kernel;
    gw_cl_call call =
        gw_cl_launch_new(segment, "rope_kv", gw_cl_cache_options(node->in[1]), "rope_kv");
    gw_cl_arg_step(&call);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    arg_turning(&call, node);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, node->in[3]->dim[1]);
    gw_cl_arg_split(&call, node->in[1]);
    return gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM,
                            (size_t)(a->heads + 2 * a->kv_heads), (size_t)segment->rows, 1);
}

/* ---- ATTENTION ------------------------------------------------------------------------------- */

int gw_cl_accepts_attention(const gw_kernel *kernel, const gw_node *node,
                            const struct gw_device *device) {
    (void)kernel;
    (void)device;
    return node->in[0]->fmt == GW_FMT_F32 && gw_cl_is_cache(node->in[1]) &&
           node->in[2]->fmt == node->in[1]->fmt && node->in[3]->fmt == GW_FMT_I32 &&
           (node->out->fmt == GW_FMT_F32 || node->out->fmt == GW_FMT_ACT8);
}

/* Rows [row0, row0 + rows): partial results of every page, then their join. */
typedef struct tile {
    cl_mem scratch, out;
    cl_ulong out_offset;
    size_t row0, rows;
    int act8;
    size_t groups; /* of pages, one partial result of each; 0: a result of each page */
    size_t along;  /* groups of items that share them */
    size_t kept;   /* where scores of attention_groups.cl begin in scratch */
    int own;       /* of each row its own page alone; nothing to join here */
    cl_ulong part; /* where partial results begin in scratch               */
} tile;

int gw_cl_takes_rope(const struct gw_segment *segment, const gw_node *rope, const gw_node *node) {
    return !segment->device->item && segment->rows == 1 && rope->op == GW_OP_ROPE_KV &&
           rope->kernel->record == gw_cl_record_rope_kv && node->op == GW_OP_ATTENTION &&
           node->kernel->record == gw_cl_record_attention && node->in[0] == rope->out &&
           node->in[1] == rope->in[1] && node->in[2] == rope->in[2] && node->in[3] == rope->in[3];
}

/* -D options of the team kernels. */
static void team_options(const struct gw_segment *segment, const gw_node *node, const tile *t,
                         const char *more, char *out, size_t room) {
    size_t e = (size_t)node->args.attn.head_dim, page = 2 * page_bytes(node->in[1], e);
    size_t rest = (4 * e + 2 * GW_CL_GROUP) * sizeof(float) + 1024;
    int staged = e % 8 == 0 && page + rest <= segment->device->local_bytes && page <= 32 << 10;
    snprintf(out, room, "%s%s -DE=%zu%s%s%s", gw_cl_cache_options(node->in[1]), more, e,
             staged ? " -DSTAGED" : "", t->act8 ? " -DACT8" : "",
             segment->device->last_joins && !t->own ? " -DLAST_JOINS" : "");
}

static gw_status record_team_pages(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    const gw_node *rope = segment->rope;
    size_t pages = gw_cl_width(node->in[3]);
    size_t most =
        gw_cl_groups(GROUPS_PER_UNIT * (size_t)segment->device->units, (size_t)a->kv_heads);
    char options[128];
    team_options(segment, node, t, rope != NULL ? " -DROPE" : t->own ? " -DOWN" : "", options,
                 sizeof options);
    gw_cl_call call = gw_cl_launch_new(segment, "attention_team", options, "attend");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, rope != NULL ? rope->in[0] : node->in[0]);
    for (int i = 1; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_mem(&call, t->scratch, t->part);
    gw_cl_arg_mem(&call, t->out, t->out_offset);
    gw_cl_arg_mem(&call, segment->arrived, 0);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, a->window);
    if (rope != NULL) {
        arg_turning(&call, rope);
    }
    gw_cl_arg_split(&call, node->in[1]);
    most = t->own ? 1 : most < pages ? most : pages;
    GW_TRY(gw_cl_launch_end(&call, GW_CL_GROUP, most, (size_t)a->kv_heads, t->rows));
    call.launch->page_groups = most;
    return GW_OK;
}

/* Rows of a prompt share pages. */
enum { QUERIES = 32 }; /* of attention_rows.cl */

static size_t rows_of_group(const gw_attn_args *a) {
    return QUERIES / (size_t)(a->heads / a->kv_heads);
}

/* One way for prompts: with matrix instructions elsewhere, or not at all. */
static int takes_rows(const struct gw_segment *segment, const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    const size_t e = (size_t)a->head_dim, columns = QUERIES + 4;
    const size_t bytes = page_bytes(node->in[1], e) + (e + GW_PAGE) * columns * sizeof(float);
    return segment->device->matrix && !segment->device->item && segment->rows > GW_DECODE_MAX &&
           a->heads / a->kv_heads <= QUERIES && page_bytes(node->in[1], e) % 16 == 0 &&
           bytes + GW_CL_GROUP * sizeof(float) <= segment->device->local_bytes;
}

static gw_status record_rows(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    const size_t pages = gw_cl_width(node->in[3]), most = t->own ? 1 : pages;
    char options[128];
    snprintf(options, sizeof options, "%s%s -DE=%d", gw_cl_cache_options(node->in[1]),
             t->own ? " -DOWN" : "", (int)a->head_dim);
    gw_cl_call call = gw_cl_launch_new(segment, "attention_rows", options, "attend_rows");
    gw_cl_arg_step(&call);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_mem(&call, t->scratch, t->part);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, (int64_t)t->rows);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, a->window);
    gw_cl_arg_split(&call, node->in[1]);
    GW_TRY(gw_cl_launch_end(&call, GW_CL_GROUP, most, (size_t)a->kv_heads,
                            gw_cl_groups(t->rows, rows_of_group(a))));
    call.launch->page_groups = most;
    return GW_OK;
}

/* A prompt without a window: a group of items has the pages of a group to itself. */
enum { ITEMS_OF_PAGES = 128, QUERIES_OF_PAGES = 64 }; /* GROUP, QUERIES of attention_groups.cl */

static size_t rows_of_pages(const gw_attn_args *a) {
    return QUERIES_OF_PAGES / (size_t)(a->heads / a->kv_heads);
}

static int takes_groups(const struct gw_segment *segment, const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    const size_t e = (size_t)a->head_dim, queries = e * QUERIES_OF_PAGES * sizeof(float);
    const size_t weights = QUERIES_OF_PAGES * (GW_PAGE + 4) * sizeof(float);
    const int shuffles = segment->device->shuffles;
    const size_t scratch = shuffles == 0 || shuffles == GW_CL_SHUFFLES_LOCAL
                               ? ITEMS_OF_PAGES * sizeof(float)
                               : 0;
    return takes_rows(segment, node) && a->window <= 0 && (e == 64 || e == 128) &&
           a->heads / a->kv_heads <= QUERIES_OF_PAGES &&
           page_bytes(node->in[1], e) + (queries > weights ? queries : weights) + scratch <=
               segment->device->local_bytes;
}

/* Groups of items along the groups of pages: as many as fill the device with `rows` rows. */
static size_t groups_at_once(const struct gw_segment *segment, const gw_node *node, size_t rows) {
    const gw_attn_args *a = &node->args.attn;
    const size_t blocks = (size_t)a->kv_heads * gw_cl_groups(rows, rows_of_pages(a));
    const size_t groups = gw_cl_groups(gw_cl_width(node->in[3]), GW_PAGE_GROUP);
    const size_t fill = 2 * (size_t)segment->device->units / blocks;
    return fill < 1 ? 1 : fill < groups ? fill : groups;
}

/* Scores of one launch, which stay in memory. */
static size_t kept_bytes(const struct gw_segment *segment, const gw_node *node, size_t rows) {
    const gw_attn_args *a = &node->args.attn;
    return (size_t)a->kv_heads * gw_cl_groups(rows, rows_of_pages(a)) *
           groups_at_once(segment, node, rows) * GW_PAGE_GROUP * GW_PAGE * QUERIES_OF_PAGES *
           sizeof(float);
}

static gw_status record_groups(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    char options[128];
    snprintf(options, sizeof options, "%s -DGROUP=%d -DE=%d", gw_cl_cache_options(node->in[1]),
             (int)ITEMS_OF_PAGES, (int)a->head_dim);
    gw_cl_call call = gw_cl_launch_new(segment, "attention_groups", options, "attend_groups");
    gw_cl_arg_step(&call);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_mem(&call, t->scratch, 0);
    gw_cl_arg_mem(&call, t->scratch, t->kept);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, (int64_t)t->rows);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, node->in[3]->dim[1]);
    gw_cl_arg_int(&call, (int64_t)t->groups);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_split(&call, node->in[1]);
    return gw_cl_launch_end(&call, ITEMS_OF_PAGES, t->along, (size_t)a->kv_heads,
                            gw_cl_groups(t->rows, rows_of_pages(a)));
}

static gw_status record_team_join(struct gw_segment *segment, const gw_node *node, const tile *t,
                                  int rows_shared) {
    const gw_attn_args *a = &node->args.attn;
    char options[128];
    if (segment->device->last_joins && !rows_shared) {
        return GW_OK;
    }
    team_options(segment, node, t, t->groups > 0 ? " -DJOIN -DGROUPED" : " -DJOIN", options,
                 sizeof options);
    gw_cl_call call = gw_cl_launch_new(segment, "attention_team", options, "attend_join");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, t->scratch, 0);
    gw_cl_arg_mem(&call, t->out, t->out_offset);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, t->groups > 0 ? (int64_t)t->groups : node->in[3]->dim[1]);
    gw_cl_arg_int(&call, a->window);
    return gw_cl_launch_end(&call, GW_CL_GROUP, (size_t)a->kv_heads, t->rows, 1);
}

static gw_status record_item_pages(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    size_t pages = gw_cl_width(node->in[3]), most = t->own ? 1 : pages;
    char options[64];
    snprintf(options, sizeof options, "%s%s", gw_cl_cache_options(node->in[1]),
             t->own ? " -DOWN" : "");
    gw_cl_call call = gw_cl_launch_new(segment, "attention_item", options, "attend");
    gw_cl_arg_step(&call);
    for (int i = 0; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_mem(&call, t->scratch, t->part);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_float(&call, a->scale);
    gw_cl_arg_int(&call, a->window);
    gw_cl_arg_split(&call, node->in[1]);
    GW_TRY(gw_cl_launch_end(&call, 1, most, (size_t)a->kv_heads, t->rows));
    call.launch->page_groups = most;
    return GW_OK;
}

static gw_status record_item_join(struct gw_segment *segment, const gw_node *node, const tile *t) {
    const gw_attn_args *a = &node->args.attn;
    gw_cl_call call = gw_cl_launch_new(segment, "attention_item",
                                       t->act8 ? "-DATTENTION -DJOIN -DACT8" : "-DATTENTION -DJOIN",
                                       "attend_join");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, t->scratch, 0);
    gw_cl_arg_mem(&call, t->out, t->out_offset);
    gw_cl_arg_int(&call, (int64_t)t->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->head_dim);
    gw_cl_arg_int(&call, node->in[3]->dim[1]);
    gw_cl_arg_int(&call, a->window);
    return gw_cl_launch_end(&call, 1, (size_t)a->heads, t->rows, 1);
}

gw_status gw_cl_record_own_pages(struct gw_segment *segment, const gw_node *node, cl_mem part,
                                 cl_ulong offset) {
    const tile t = {.scratch = part,
                    .part = offset,
                    .out = gw_cl_mem(node->out),
                    .out_offset = node->out->offset,
                    .rows = (size_t)segment->rows,
                    .own = 1};
    if (segment->device->item) {
        return record_item_pages(segment, node, &t);
    }
    return (takes_rows(segment, node) ? record_rows : record_team_pages)(segment, node, &t);
}

static size_t scratch_bytes(const struct gw_device *device, int shared) {
    const cl_ulong part = device->memory / 256;
    return !shared || part < SCRATCH_BYTES ? SCRATCH_BYTES
           : part < MOST_SCRATCH_BYTES     ? (size_t)part
                                           : MOST_SCRATCH_BYTES;
}

/* Rows at once, so that partial results and scores have room; *t: where scores begin, groups. */
static size_t rows_at_once(const struct gw_segment *segment, const gw_node *node, size_t room,
                           tile *t) {
    const gw_attn_args *a = &node->args.attn;
    const size_t part = (size_t)a->heads * ((size_t)a->head_dim + 2) * sizeof(float);
    const size_t pages = gw_cl_width(node->in[3]), rows = (size_t)segment->rows;
    if (takes_groups(segment, node)) {
        const size_t block = rows_of_pages(a);
        size_t at_once = rows;
        t->groups = gw_cl_groups(pages, GW_PAGE_GROUP);
        while (at_once > block &&
               at_once * part * t->groups + kept_bytes(segment, node, at_once) > room) {
            at_once = gw_cl_groups(at_once / 2, block) * block;
        }
        t->along = groups_at_once(segment, node, at_once);
        t->kept = (at_once * part * t->groups + 255) / 256 * 256;
        return at_once;
    }
    size_t at_once = room / (part * pages);
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    if (takes_rows(segment, node) && at_once < rows && at_once > rows_of_group(a)) {
        at_once -= at_once % rows_of_group(a);
    }
    t->kept = (at_once * part * pages + 255) / 256 * 256;
    return at_once;
}

gw_status gw_cl_record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                 const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    const size_t rows = (size_t)segment->rows, e = (size_t)a->head_dim;
    const int shared = takes_rows(segment, node);
    const int act8 = node->out->fmt == GW_FMT_ACT8, straddles = act8 && e % GW_ACT_BLOCK != 0;
    (void)kernel;
    tile t = {.act8 = act8 && !straddles};
    const size_t room = scratch_bytes(segment->device, shared);
    const size_t at_once = rows_at_once(segment, node, room, &t);
    const size_t used = t.kept + (t.groups > 0 ? kept_bytes(segment, node, at_once) : 0);
    const size_t whole = straddles ? rows * (size_t)a->heads * e * sizeof(float) : 0;
    GW_TRY(gw_cl_scratch(segment->device, used + whole, &t.scratch));
    t.out = straddles ? t.scratch : gw_cl_mem(node->out);
    t.out_offset = straddles ? used : node->out->offset;
    for (t.row0 = 0; t.row0 < rows; t.row0 += at_once) {
        t.rows = rows - t.row0 < at_once ? rows - t.row0 : at_once;
        if (segment->device->item) {
            GW_TRY(record_item_pages(segment, node, &t));
            GW_TRY(record_item_join(segment, node, &t));
            continue;
        }
        GW_TRY((t.groups > 0 ? record_groups : shared ? record_rows : record_team_pages)(segment,
                                                                                         node, &t));
        GW_TRY(record_team_join(segment, node, &t, shared));
    }
    return straddles ? gw_cl_record_encode(segment, t.scratch, used, node->out) : GW_OK;
}
