/* core/plan/kernel_list.c - see kernel_list.h. */
#include "core/plan/kernel_list.h"

#include <stdio.h>
#include <stdlib.h>

gw_status gw_kernel_list_new(gw_kernel_list *list, size_t most, const char *where) {
    *list = (gw_kernel_list){.at = calloc(most, sizeof *list->at),
                             .most = most,
                             .names = calloc(most, sizeof *list->names)};
    if (list->at == NULL || list->names == NULL) {
        gw_kernel_list_free(list);
        return gw_fail(GW_E_NOMEM, where, "no memory for the kernel table");
    }
    return GW_OK;
}

void gw_kernel_list_free(gw_kernel_list *list) {
    free(list->at);
    free(list->names);
    *list = (gw_kernel_list){.at = NULL};
}

void gw_kernel_list_add(gw_kernel_list *list, const gw_kernel_row *row, const char *backend,
                        gw_fmt fmt, const char *way, const void *state) {
    char *name = list->names[list->n];
    if (row->per_format) {
        snprintf(name, sizeof list->names[0], "%s.%s.%s.%s", backend, row->name,
                 gw_format_of(fmt)->name, way);
    } else {
        snprintf(name, sizeof list->names[0], "%s.%s.%s", backend, row->name, way);
    }
    list->at[list->n++] = (gw_kernel){.op = row->op,
                                      .name = name,
                                      .accepts = row->accepts,
                                      .record = row->record,
                                      .state = state,
                                      .every_form = row->every_form};
}
