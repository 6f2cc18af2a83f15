/* core/plan/kernel_list.h - a device's list of kernels, made from the table of its backend: a row
 * of an op, or one per weight format where logs and bench are to name it.
 */
#ifndef GW_PLAN_KERNEL_LIST_H
#define GW_PLAN_KERNEL_LIST_H

#include "core/plan/backend.h"

typedef struct gw_kernel_row {
    gw_op op;
    const char *name;
    int per_format, every_form; /* every_form: as in gw_kernel */
    int (*accepts)(const gw_kernel *kernel, const gw_node *node, const struct gw_device *device);
    gw_status (*record)(struct gw_segment *segment, const gw_kernel *kernel, const gw_node *node);
} gw_kernel_row;

typedef struct gw_kernel_list {
    gw_kernel *at; /* best first, as they were added */
    size_t n, most;
    char (*names)[64];
} gw_kernel_list;

/* Room for `most` kernels. GW_E_NOMEM, and where is what messages name. */
gw_status gw_kernel_list_new(gw_kernel_list *list, size_t most, const char *where);
void gw_kernel_list_free(gw_kernel_list *list);
/* One kernel, named BACKEND.ROW.WAY, or BACKEND.ROW.FORMAT.WAY where the row is per format. state:
 * gw_kernel.state, outlives the list. There must be room. */
void gw_kernel_list_add(gw_kernel_list *list, const gw_kernel_row *row, const char *backend,
                        gw_fmt fmt, const char *way, const void *state);

#endif
