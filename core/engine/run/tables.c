/* core/engine/run/tables.c - fills rope tables and factors of q. */
#include "core/engine/run/tables.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/rope.h"

static gw_status make_rope(gw_tables *t, const gw_hparams *hp, int32_t n_ctx, int32_t more, int d,
                           int which) {
    enum { ROWS = 256 };
    const gw_rope *rope = &hp->rope[which];
    const gw_plan_device *to = &t->devices[d];
    struct gw_buffer **cells = &t->rope_cells[d][which];
    int half = rope->dim / 2;
    size_t row = 2 * (size_t)half * sizeof(float);
    double *freq = calloc((size_t)half + 1, sizeof *freq), magnitude;
    float *rows = malloc(ROWS * row + 1);
    gw_status status = GW_OK;
    if (freq == NULL || rows == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for the rope table");
        goto done;
    }
    gw_rope_frequencies(rope, n_ctx, freq, &magnitude);
    const int64_t all = (int64_t)n_ctx + more;
    GW_TRY_DONE(to->backend->alloc(to->device, (size_t)all * row + 1, cells));
    for (int64_t p = 0; p < n_ctx; p += ROWS) {
        int64_t n = n_ctx - p < ROWS ? n_ctx - p : ROWS;
        gw_rope_fill(freq, half, magnitude, p, n, rows);
        GW_TRY_DONE(to->backend->write(*cells, (size_t)p * row, rows, (size_t)n * row));
    }
    t->rope[d][which] = (gw_tensor){.name = "rope",
                                    .fmt = GW_FMT_F32,
                                    .n_dim = 3,
                                    .dim = {all, 2, half},
                                    .buf = *cells,
                                    .device = d};
done:
    free(freq);
    free(rows);
    return status;
}

static gw_status make_factor(gw_tables *t, const gw_blueprint *bp, const gw_hparams *hp,
                             int32_t n_ctx, int d, int which) {
    const gw_plan_device *to = &t->devices[d];
    size_t bytes = (size_t)n_ctx * sizeof(float);
    float *values = malloc(bytes);
    gw_status status;
    if (values == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for factors of %d positions", n_ctx);
    }
    for (int32_t p = 0; p < n_ctx; p++) {
        values[p] = (float)gw_spec_value_at(bp, hp, bp->factor[which].value, p);
    }
    GW_TRY_DONE(to->backend->alloc(to->device, bytes, &t->factor_cells[d][which]));
    GW_TRY_DONE(to->backend->write(t->factor_cells[d][which], 0, values, bytes));
    t->factor[d][which] = (gw_tensor){.name = "factor",
                                      .fmt = GW_FMT_F32,
                                      .n_dim = 1,
                                      .dim = {n_ctx},
                                      .buf = t->factor_cells[d][which],
                                      .device = d};
done:
    free(values);
    return status;
}

gw_status gw_tables_new(const gw_plan_device *devices, int n_devices, const gw_blueprint *bp,
                        const gw_hparams *hp, int32_t n_ctx, int32_t more, gw_tables *out) {
    memset(out, 0, sizeof *out);
    out->devices = devices;
    out->n_devices = n_devices;
    for (int d = 0; d < n_devices; d++) {
        for (int r = 0; r < hp->n_ropes; r++) {
            GW_TRY(hp->rope[r].dim > 0 ? make_rope(out, hp, n_ctx, more, d, r) : GW_OK);
        }
        for (int f = 0; f < bp->n_factors; f++) {
            GW_TRY(make_factor(out, bp, hp, n_ctx, d, f));
        }
    }
    return GW_OK;
}

void gw_tables_free(gw_tables *t) {
    for (int d = 0; d < t->n_devices; d++) {
        const gw_backend *backend = t->devices[d].backend;
        for (int r = 0; r < GW_MAX_ROPES; r++) {
            if (t->rope_cells[d][r] != NULL) {
                backend->release(t->rope_cells[d][r]);
            }
        }
        for (int f = 0; f < GW_MAX_FACTORS; f++) {
            if (t->factor_cells[d][f] != NULL) {
                backend->release(t->factor_cells[d][f]);
            }
        }
    }
    memset(t, 0, sizeof *t);
}
