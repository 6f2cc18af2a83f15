/* backends/opencl/kernels.c - the kernel table of a device. LINEAR and GLU have a row per weight
 * format, so that logs and bench name it.
 */
#include "backends/opencl/opencl.h"

#define RUNS(kernel) gw_cl_accepts_##kernel, gw_cl_record_##kernel
/* clang-format off */
static const gw_kernel_row entries[] = {
    {GW_OP_EMBED,        "embed",          0, 0, RUNS(embed)},
    {GW_OP_PICK,         "pick",           0, 0, RUNS(pick)},
    {GW_OP_NORM,         "norm",           0, 0, RUNS(norm)},
    {GW_OP_QUANTIZE,     "quantize",       0, 0, RUNS(quantize)},
    {GW_OP_LINEAR,       "linear",         1, 0, RUNS(linear)},
    {GW_OP_GLU,          "glu",            1, 0, RUNS(glu)},
    {GW_OP_ROPE_KV,      "rope_kv",        0, 0, RUNS(rope_kv)},
    {GW_OP_ATTENTION,    "attention",      0, 0, RUNS(attention)},
    {GW_OP_SAMPLE,       "sample",         0, 0, RUNS(sample)},
    /* behind those that know the plain form alone */
    {GW_OP_EMBED,        "embed.form",     0, 1, RUNS(embed_form)},
    {GW_OP_PICK,         "pick.form",      0, 1, RUNS(pick_form)},
    {GW_OP_NORM,         "norm.form",      0, 1, RUNS(norm_form)},
    {GW_OP_ROPE_KV,      "rope_kv.form",   0, 1, RUNS(rope_form)},
    {GW_OP_ATTENTION,    "attention.form", 0, 1, RUNS(attention_form)},
    {GW_OP_ATTENTION,    "attention.digits", 0, GW_DIGITS_TOO, RUNS(attention_digits)},
    {GW_OP_ATTENTION,    "attention.cells", 0, GW_DIGITS_TOO, RUNS(cells)},
    {GW_OP_ACT,          "act",            0, 1, gw_cl_accepts_rowwise, gw_cl_record_act},
    {GW_OP_MIX,          "mix",            0, 1, gw_cl_accepts_rowwise, gw_cl_record_mix},
    {GW_OP_ROUTE,        "route",          0, 1, RUNS(route)},
    {GW_OP_EXPERTS_GLU,  "experts_glu",    1, 1, RUNS(experts_glu)},
    {GW_OP_EXPERTS_DOWN, "experts_down",   1, 1, RUNS(experts_down)},
    {GW_OP_EXPERTS_LORA_A, "experts_lora_a", 0, 1, RUNS(lora_a)},
    {GW_OP_EXPERTS_LORA_B, "experts_lora_b", 0, 1, RUNS(lora_b)},
    {GW_OP_CONV,         "conv",           0, 1, gw_cl_accepts_state, gw_cl_record_conv},
    {GW_OP_SCAN,         "scan",           0, 1, gw_cl_accepts_state, gw_cl_record_scan},
    {GW_OP_EXP_GATES,    "exp_gates",      0, 1, gw_cl_accepts_state, gw_cl_record_exp_gates},
    {GW_OP_DIVIDE,       "divide",         0, 1, gw_cl_accepts_state, gw_cl_record_divide},
    {GW_OP_GROUP_NORM,   "group_norm",     0, 1, gw_cl_accepts_state, gw_cl_record_group_norm},
    {GW_OP_HEADS,        "heads",          0, 1, RUNS(heads)},
    {GW_OP_STREAMS,      "streams",        0, 1, gw_cl_accepts_state, gw_cl_record_streams},
    {GW_OP_SPARSE_GLU,   "sparse_glu",     0, 1, gw_cl_accepts_state, gw_cl_record_sparse_glu},
    {GW_OP_COLUMNS,      "columns",        0, 1, gw_cl_accepts_state, gw_cl_record_columns},
    {GW_OP_WIDEN,        "widen",          0, 1, gw_cl_accepts_state, gw_cl_record_widen},
    {GW_OP_HYPER,        "hyper",          0, 1, gw_cl_accepts_state, gw_cl_record_hyper},
    {GW_OP_ROTATE,       "rotate",         0, 1, gw_cl_accepts_state, gw_cl_record_rotate},
    {GW_OP_GROUP_DOT,    "group_dot",      0, 1, gw_cl_accepts_state, gw_cl_record_group_dot},
    {GW_OP_COMPRESS,     "compress",       0, 1, gw_cl_accepts_area, gw_cl_record_compress},
    {GW_OP_CHOOSE,       "choose",         0, 1, gw_cl_accepts_area, gw_cl_record_choose},
    {GW_OP_LISTED,       "listed",         0, 1, RUNS(listed)},
    {GW_OP_NGRAM,        "ngram",          0, 1, RUNS(ngram)},
};
/* Under --blas, before all others. */
static const gw_kernel_row blas_entries[] = {
    {GW_OP_LINEAR,       "linear",         1, 0, RUNS(blas_linear)},
    {GW_OP_GLU,          "glu",            1, 0, RUNS(blas_glu)},
};
/* clang-format on */
enum {
    ENTRIES = sizeof entries / sizeof entries[0],
    BLAS_ENTRIES = sizeof blas_entries / sizeof blas_entries[0],
    MOST = (ENTRIES + BLAS_ENTRIES) * GW_FMT_ACT8
};

static void add(struct gw_device *d, const gw_kernel_row *row, gw_fmt fmt, const char *way) {
    gw_kernel_list_add(&d->kernels, row, "opencl", fmt, way,
                       row->per_format ? gw_format_of(fmt) : NULL);
}

gw_status gw_cl_list_kernels(struct gw_device *d) {
    GW_TRY(gw_kernel_list_new(&d->kernels, MOST, "opencl"));
    for (size_t i = 0; i < BLAS_ENTRIES && d->blas == GW_CL_BLAS_WORKS; i++) {
        for (int fmt = 0; fmt < GW_FMT_ACT8; fmt++) {
            if (gw_format_of((gw_fmt)fmt)->is_float) {
                add(d, &blas_entries[i], (gw_fmt)fmt, "clblast");
            }
        }
    }
    const char *way = d->item ? "item" : d->nvidia ? "ptx" : "team";
    for (size_t i = 0; i < ENTRIES; i++) {
        for (int fmt = 0; fmt < (entries[i].per_format ? GW_FMT_ACT8 : 1); fmt++) {
            add(d, &entries[i], (gw_fmt)fmt, way);
        }
    }
    return GW_OK;
}
