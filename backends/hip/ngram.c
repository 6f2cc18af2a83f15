/* backends/hip/ngram.c - NGRAM: nodes to launches. */
#include <stdio.h>

#include "backends/hip/hip.h"
#include "kernels_hip/rows/ngram_params.h"

static int accepts_ngram(const gw_kernel *kernel, const gw_node *node,
                         const struct gw_device *device) {
    gw_fmt fmt = node->w[0]->fmt;
    (void)kernel;
    (void)device;
    return node->w[0]->layout == GW_LAYOUT_ROWS && node->out->fmt == GW_FMT_F32 &&
           (fmt == GW_FMT_F32 || fmt == GW_FMT_F16 || fmt == GW_FMT_BF16);
}

static gw_status send_hashes(struct gw_segment *segment, const gw_node *node, gw_hip_ptr *out) {
    struct gw_device *device = segment->device;
    gw_ngram hashes;
    gw_ngram_init(&hashes, &node->args.ngram);
    GW_TRY(gw_hip_private(segment, sizeof hashes, out));
    GW_TRY(gw_hip_check(device->driver,
                        device->driver->Write(*out, &hashes, sizeof hashes, device->stream),
                        "writing hashes"));
    return gw_hip_wait(device);
}

static gw_status record_ngram(struct gw_segment *segment, const gw_kernel *kernel,
                              const gw_node *node) {
    const unsigned rows = (unsigned)segment->rows;
    char name[48];
    struct gw_ngram_params p = {.step = gw_hip_step(segment),
                                .table = gw_hip_at(node->w[0]),
                                .ids = node->in[0] != NULL ? gw_hip_at(node->in[0]) : 0,
                                .state = gw_hip_at(node->in[1]),
                                .out = gw_hip_at(node->out),
                                .wide = (int32_t)node->w[0]->dim[1],
                                .width = (int32_t)gw_hip_width(node->out),
                                .entries = (int32_t)node->in[1]->dim[1]};
    (void)kernel;
    GW_TRY(send_hashes(segment, node, &p.hashes));
    snprintf(name, sizeof name, "gw_ngram_%s", gw_format_of(node->w[0]->fmt)->name);
    GW_TRY(gw_hip_record(segment, node, name, gw_hip_groups((size_t)p.width, GW_NGRAM_THREADS),
                         rows, 1, GW_NGRAM_THREADS, 1, 1, 0, &p, sizeof p));
    return gw_hip_record(segment, node, "gw_ngram_note", gw_hip_groups(rows, GW_NGRAM_THREADS), 1,
                         1, GW_NGRAM_THREADS, 1, 1, 0, &p, sizeof p);
}

/* clang-format off */
const gw_kernel gw_hip_ngram_kernels[] = {
    {GW_OP_NGRAM, "hip.ngram", accepts_ngram, record_ngram, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
