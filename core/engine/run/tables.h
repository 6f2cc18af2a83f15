/* core/engine/run/tables.h - what attention needs to know of positions, on every device: rope
 * tables and factors of q. */
#ifndef GW_ENGINE_TABLES_H
#define GW_ENGINE_TABLES_H

#include "core/model/weights.h"

typedef struct gw_tables {
    const gw_plan_device *devices; /* borrowed */
    int n_devices;
    struct gw_buffer *rope_cells[GW_MAX_DEVICES][GW_MAX_ROPES];
    struct gw_buffer *factor_cells[GW_MAX_DEVICES][GW_MAX_FACTORS];
    gw_tensor rope[GW_MAX_DEVICES][GW_MAX_ROPES];     /* [positions, 2, dim / 2] f32 */
    gw_tensor factor[GW_MAX_DEVICES][GW_MAX_FACTORS]; /* [positions] f32         */
} gw_tables;

/* For positions below n_ctx, and `more` rows of rope tables after them, which are the caller's to
 * write. out is freed by gw_tables_free whatever happens. GW_E_NOMEM. */
gw_status gw_tables_new(const gw_plan_device *devices, int n_devices, const gw_blueprint *bp,
                        const gw_hparams *hp, int32_t n_ctx, int32_t more, gw_tables *out);
void gw_tables_free(gw_tables *t); /* of a zeroed or built one */

#endif
