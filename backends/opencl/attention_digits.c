/* backends/opencl/attention_digits.c - ATTENTION of prompts whose pages are summed in integers
 * (kernels_cl/attention/digits.cl): nodes to launches. Digits of k and v of the pages that rows
 * see; the rows' own pages in float; groups of pages; their join.
 */
#include <stdio.h>

#include "backends/opencl/opencl.h"
#include "core/tensor/digits.h"

enum {
    SUMS_BYTES = 128 << 20, /* of groups of pages; rows that need more take turns */
    MATRIX_ITEMS = 128,     /* GROUP of attention_digits_matrix.cl                */
    MATRIX_QUERIES = 64,    /* QUERIES of it                                      */
    TEAM_QUERIES = 32       /* QUERIES of attention_digits_team.cl                */
};

/* Local memory of attention_digits_matrix.cl: slices of values, and pieces of a slice, as there. */
static size_t slices_of(size_t e) { return e > 128 ? 2 : 1; }
static size_t matrix_bytes(size_t e) {
    const size_t channels = e / slices_of(e) / (e > 224 ? 2 : 1);
    return GW_PAGE * (2 * e + 16) + 2 * GW_PAGE * 4 + channels * (2 * GW_PAGE + 16 + 4);
}
/* Of attention_digits_team.cl. */
static size_t team_bytes(size_t e) {
    return GW_PAGE * 33 * 4 + TEAM_QUERIES * (2 * e + 2 * GW_PAGE) + GW_CL_GROUP * 4;
}

static int takes_matrix(const struct gw_device *device, size_t e) {
    const size_t scratch = device->nvidia ? 0 : MATRIX_ITEMS * 6 * 4; /* MATRIX_WORDS */
    return device->matrix && !device->item && matrix_bytes(e) + scratch <= device->local_bytes;
}

int gw_cl_accepts_attention_digits(const gw_kernel *kernel, const gw_node *node,
                                   const struct gw_device *device) {
    const size_t e = (size_t)node->args.attn.head_dim;
    (void)kernel;
    return node->args.attn.digits && node->in[0]->fmt == GW_FMT_F32 &&
           gw_cache_bits(node->in[1]->fmt) == 0 && gw_cache_bits(node->in[2]->fmt) == 0 &&
           node->in[3]->fmt == GW_FMT_I32 &&
           (node->w[0] == NULL || node->w[0]->fmt == GW_FMT_F32) &&
           (node->out->fmt == GW_FMT_F32 || node->out->fmt == GW_FMT_ACT8) &&
           (device->item || takes_matrix(device, e) || team_bytes(e) <= device->local_bytes);
}

/* Where things lie in scratch, in bytes; rows [row0, row0 + rows) take a turn. */
typedef struct places {
    cl_mem scratch;
    size_t keys, values, own, part;
    size_t row0, rows, groups; /* groups: of pages, that there may be */
} places;

static size_t take(size_t *end, size_t bytes) {
    const size_t at = *end;
    *end += (bytes + 255) / 256 * 256;
    return at;
}

/* Digits of keys (part 0), of values (1): of one format of both, `parts` 2, by one launch. */
static gw_status record_cut(struct gw_segment *segment, const gw_node *node, const places *at,
                            int part, int parts) {
    const gw_attn_args *a = &node->args.attn;
    const size_t pages = gw_cl_width(node->in[3]);
    char options[128];
    snprintf(options, sizeof options, "%s -DCUT -DGROUP=%d -DE=%d",
             gw_cl_cache_options(node->in[1 + part]), (int)GW_CL_GROUP, (int)a->head_dim);
    gw_cl_call call = gw_cl_launch_new(segment, "attention_digits", options, "cut_digits");
    gw_cl_arg_step(&call);
    for (int i = 1; i < 4; i++) {
        gw_cl_arg_tensor(&call, node->in[i]);
    }
    gw_cl_arg_mem(&call, at->scratch, at->keys);
    gw_cl_arg_mem(&call, at->scratch, at->values);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, (int64_t)pages);
    gw_cl_arg_int(&call, part);
    gw_cl_arg_split(&call, node->in[1]);
    GW_TRY(gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_GROUP, pages,
                            (size_t)a->kv_heads, (size_t)parts));
    call.launch->page_groups = pages;
    return GW_OK;
}

static gw_status record_groups(struct gw_segment *segment, const gw_node *node, const places *at) {
    const gw_attn_args *a = &node->args.attn;
    const size_t e = (size_t)a->head_dim, kv_heads = (size_t)a->kv_heads;
    const size_t queries = at->rows * (size_t)(a->heads / a->kv_heads);
    const int item = segment->device->item, matrix = takes_matrix(segment->device, e);
    char options[64];
    snprintf(options, sizeof options, "-DATTENTION -DE=%d%s", (int)e,
             matrix ? " -DMATRIX -DGROUP=128" : "");
    gw_cl_call call = gw_cl_launch_new(segment,
                                       item     ? "attention_digits_item"
                                       : matrix ? "attention_digits_matrix"
                                                : "attention_digits_team",
                                       options, "attend_digits");
    gw_cl_arg_step(&call);
    gw_cl_arg_tensor(&call, node->in[0]);
    gw_cl_arg_tensor(&call, node->in[3]);
    gw_cl_arg_mem(&call, at->scratch, at->keys);
    gw_cl_arg_mem(&call, at->scratch, at->values);
    gw_cl_arg_mem(&call, at->scratch, at->part);
    gw_cl_arg_int(&call, (int64_t)at->row0);
    gw_cl_arg_int(&call, (int64_t)at->rows);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, a->kv_heads);
    gw_cl_arg_int(&call, node->in[3]->dim[1]);
    gw_cl_arg_int(&call, (int64_t)at->groups);
    gw_cl_arg_float(&call, a->scale);
    if (item) {
        return gw_cl_launch_end(&call, 1, at->groups, kv_heads, at->rows);
    }
    return matrix ? gw_cl_launch_end(&call, MATRIX_ITEMS, gw_cl_groups(queries, MATRIX_QUERIES),
                                     kv_heads * slices_of(e), at->groups)
                  : gw_cl_launch_end(&call, GW_CL_GROUP, gw_cl_groups(queries, TEAM_QUERIES),
                                     kv_heads, at->groups);
}

static gw_status record_join(struct gw_segment *segment, const gw_node *node, const places *at) {
    const gw_attn_args *a = &node->args.attn;
    char options[64];
    snprintf(options, sizeof options, "-DATTENTION -DE=%d%s", (int)a->head_dim,
             node->out->fmt == GW_FMT_ACT8 ? " -DACT8" : "");
    gw_cl_call call = gw_cl_launch_new(segment, "attention_digits", options, "join_digits");
    gw_cl_arg_step(&call);
    gw_cl_arg_mem(&call, at->scratch, at->part);
    gw_cl_arg_mem(&call, at->scratch, at->own);
    gw_cl_arg_tensor(&call, node->w[0]);
    gw_cl_arg_tensor(&call, node->out);
    gw_cl_arg_int(&call, (int64_t)at->row0);
    gw_cl_arg_int(&call, a->heads);
    gw_cl_arg_int(&call, (int64_t)at->groups);
    gw_cl_arg_int(&call, node->w[0] != NULL);
    return gw_cl_launch_end(&call, segment->device->item ? 1 : GW_CL_TEAM, (size_t)a->heads,
                            at->rows, 1);
}

gw_status gw_cl_record_attention_digits(struct gw_segment *segment, const gw_kernel *kernel,
                                        const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    const size_t rows = (size_t)segment->rows, e = (size_t)a->head_dim;
    const size_t cells = (size_t)node->in[1]->dim[0] * (size_t)a->kv_heads; /* pages of KV heads */
    const size_t row_sums = (size_t)a->heads * (e + 2) * sizeof(float);
    places at = {.groups = gw_cl_groups(gw_cl_width(node->in[3]), GW_DIGITS_GROUP)};
    size_t end = 0, at_once = SUMS_BYTES / (row_sums * at.groups);
    (void)kernel;
    at_once = at_once < MATRIX_QUERIES ? MATRIX_QUERIES : at_once / MATRIX_QUERIES * MATRIX_QUERIES;
    at_once = at_once < rows ? at_once : rows;
    at.keys = take(&end, cells * GW_PAGE * (2 * e + 16 + 2 * sizeof(float)));
    at.values = take(&end, cells * e * (2 * GW_PAGE + 16 + sizeof(float)));
    at.own = take(&end, rows * row_sums);
    at.part = take(&end, at_once * row_sums * at.groups);
    GW_TRY(gw_cl_scratch(segment->device, end, &at.scratch));
    int two = node->in[1]->fmt != node->in[2]->fmt;
    GW_TRY(record_cut(segment, node, &at, 0, two ? 1 : 2));
    GW_TRY(two ? record_cut(segment, node, &at, 1, 1) : GW_OK);
    GW_TRY((two ? gw_cl_record_own_mixed : gw_cl_record_own_pages)(segment, node, at.scratch,
                                                                    at.own));
    for (; at.row0 < rows; at.row0 += at_once) {
        at.rows = rows - at.row0 < at_once ? rows - at.row0 : at_once;
        GW_TRY(record_groups(segment, node, &at));
        GW_TRY(record_join(segment, node, &at));
    }
    return GW_OK;
}
