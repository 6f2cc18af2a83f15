/* backends/cpu/kernels.c - the kernel table of a device: per op the device's level first, the
 * scalar anchor last. LINEAR and GLU have a row per weight format, so that logs and bench name it.
 */
#include <stdlib.h>

#include "backends/cpu/cpu.h"

/* clang-format off */
static const gw_kernel_row entries[] = {
    {GW_OP_EMBED,        "embed",        0, 1, gw_cpu_accepts_embed,         gw_cpu_record_embed},
    {GW_OP_PICK,         "pick",         0, 1, gw_cpu_accepts_pick,          gw_cpu_record_pick},
    {GW_OP_NORM,         "norm",         0, 0, gw_cpu_accepts_norm,          gw_cpu_record_norm},
    {GW_OP_NORM,         "norm_any",     0, 1, gw_cpu_accepts_norm_any,      gw_cpu_record_norm_any},
    {GW_OP_QUANTIZE,     "quantize",     0, 1, gw_cpu_accepts_quantize,      gw_cpu_record_quantize},
    {GW_OP_LINEAR,       "linear",       1, 1, gw_cpu_accepts_linear,        gw_cpu_record_linear},
    {GW_OP_GLU,          "glu",          1, 1, gw_cpu_accepts_glu,           gw_cpu_record_glu},
    {GW_OP_ROPE_KV,      "rope_kv",      0, 1, gw_cpu_accepts_rope_kv,       gw_cpu_record_rope_kv},
    {GW_OP_ATTENTION,    "attention",    0, GW_DIGITS_TOO, gw_cpu_accepts_attention,     gw_cpu_record_attention},
    {GW_OP_SAMPLE,       "sample",       0, 1, gw_cpu_accepts_sample,        gw_cpu_record_sample},
    {GW_OP_ACT,          "act",          0, 1, gw_cpu_accepts_act,           gw_cpu_record_act},
    {GW_OP_MIX,          "mix",          0, 1, gw_cpu_accepts_mix,           gw_cpu_record_mix},
    {GW_OP_ROUTE,        "route",        0, 1, gw_cpu_accepts_route,         gw_cpu_record_route},
    {GW_OP_EXPERTS_GLU,  "experts_glu",  1, 1, gw_cpu_accepts_experts_glu,   gw_cpu_record_experts_glu},
    {GW_OP_EXPERTS_DOWN, "experts_down", 1, 1, gw_cpu_accepts_experts_down,  gw_cpu_record_experts_down},
    {GW_OP_EXPERTS_LORA_A, "experts_lora_a", 0, 1, gw_cpu_accepts_lora, gw_cpu_record_lora},
    {GW_OP_EXPERTS_LORA_B, "experts_lora_b", 0, 1, gw_cpu_accepts_lora, gw_cpu_record_lora},
    {GW_OP_CONV,         "conv",         0, 1, gw_cpu_accepts_conv,          gw_cpu_record_conv},
    {GW_OP_SCAN,         "scan",         0, 1, gw_cpu_accepts_scan,          gw_cpu_record_scan},
    {GW_OP_EXP_GATES,    "exp_gates",    0, 1, gw_cpu_accepts_exp_gates,     gw_cpu_record_exp_gates},
    {GW_OP_DIVIDE,       "divide",       0, 1, gw_cpu_accepts_divide,        gw_cpu_record_divide},
    {GW_OP_GROUP_NORM,   "group_norm",   0, 1, gw_cpu_accepts_group_norm,    gw_cpu_record_group_norm},
    {GW_OP_HEADS,        "heads",        0, 1, gw_cpu_accepts_heads,         gw_cpu_record_heads},
    {GW_OP_STREAMS,      "streams",      0, 1, gw_cpu_accepts_streams,       gw_cpu_record_streams},
    {GW_OP_SPARSE_GLU,   "sparse_glu",   0, 1, gw_cpu_accepts_sparse_glu,    gw_cpu_record_sparse_glu},
    {GW_OP_COLUMNS,      "columns",      0, 1, gw_cpu_accepts_columns,       gw_cpu_record_columns},
    {GW_OP_WIDEN,        "widen",        0, 1, gw_cpu_accepts_widen,         gw_cpu_record_widen},
    {GW_OP_HYPER,        "hyper",        0, 1, gw_cpu_accepts_hyper,         gw_cpu_record_hyper},
    {GW_OP_ROTATE,       "rotate",       0, 1, gw_cpu_accepts_rotate,        gw_cpu_record_rotate},
    {GW_OP_GROUP_DOT,    "group_dot",    0, 1, gw_cpu_accepts_group_dot,     gw_cpu_record_group_dot},
    {GW_OP_COMPRESS,     "compress",     0, 1, gw_cpu_accepts_compress,      gw_cpu_record_compress},
    {GW_OP_CHOOSE,       "choose",       0, 1, gw_cpu_accepts_choose,        gw_cpu_record_choose},
    {GW_OP_LISTED,       "listed",       0, 1, gw_cpu_accepts_listed,        gw_cpu_record_listed},
    {GW_OP_NGRAM,        "ngram",        0, 1, gw_cpu_accepts_ngram,         gw_cpu_record_ngram},
};
/* clang-format on */

enum { ENTRIES = sizeof entries / sizeof entries[0] };

static void add(struct gw_device *device, const gw_kernel_row *entry, gw_cpu_row row,
                const char *way) {
    gw_cpu_row *state = &device->rows[device->kernels.n];
    *state = row;
    gw_kernel_list_add(&device->kernels, entry, "cpu", row.fmt, way, state);
}

static void add_level(struct gw_device *device, const gw_kernel_row *entry, gw_cpu_level level) {
    gw_cpu_row row = {.level = level};
    for (int fmt = 0; fmt < (entry->per_format ? GW_FMT_ACT8 : 1); fmt++) {
        row.fmt = (gw_fmt)fmt;
        add(device, entry, row, gw_cpu_level_name(level));
    }
}

static void add_blas(struct gw_device *device, const gw_kernel_row *entry) {
    int product = entry->op == GW_OP_LINEAR || entry->op == GW_OP_GLU;
    for (int fmt = 0; fmt < GW_FMT_COUNT && product; fmt++) {
        gw_cpu_row row = {.level = device->level, .fmt = (gw_fmt)fmt, .blas = 1};
        if (gw_cpu_blas_kernel(row.fmt) != NULL) {
            add(device, entry, row, "blas");
        }
    }
}

gw_status gw_cpu_list_kernels(struct gw_device *device) {
    size_t most = (size_t)ENTRIES * 3 * GW_FMT_COUNT;
    device->rows = calloc(most, sizeof *device->rows);
    if (device->rows == NULL) {
        return gw_fail(GW_E_NOMEM, "cpu", "no memory for the kernel table");
    }
    GW_TRY(gw_kernel_list_new(&device->kernels, most, "cpu"));
    for (size_t i = 0; i < ENTRIES; i++) {
        if (device->blas != NULL) {
            add_blas(device, &entries[i]);
        }
        if (device->level != GW_CPU_SCALAR) {
            add_level(device, &entries[i], device->level);
        }
        add_level(device, &entries[i], GW_CPU_SCALAR);
    }
    return GW_OK;
}
