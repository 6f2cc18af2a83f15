/* core/engine/batch/adapters.c - requests with adapters: pages of their prompts are shared among
 * those that have the same adapters with the same scales, and the same salt. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/batch/batch_state.h"

/* Beyond so many different choices of adapters pages are no longer shared. */
enum { ROOTS = 4096 };

gw_page_name gw_batch_root(gw_batch *b, const gw_request *r) {
    static const gw_lora_row none;
    gw_lora_roots *roots = &b->lora_roots;
    if (r->no_cache) {
        return gw_pages_new_root(b->pages);
    }
    if (memcmp(&r->lora, &none, sizeof none) == 0) {
        return r->root;
    }
    for (int32_t i = 0; i < roots->n; i++) {
        gw_lora_root *x = &roots->at[i];
        if (x->salted == r->root && memcmp(&x->row, &r->lora, sizeof x->row) == 0) {
            return x->name;
        }
    }
    if (roots->n == roots->room && roots->room < ROOTS) {
        int32_t room = roots->room > 0 ? 2 * roots->room : 16;
        gw_lora_root *more = realloc(roots->at, (size_t)room * sizeof *more);
        roots->room = more != NULL ? room : roots->room;
        roots->at = more != NULL ? more : roots->at;
    }
    gw_page_name name = gw_pages_new_root(b->pages);
    if (roots->n < roots->room) {
        roots->at[roots->n++] = (gw_lora_root){.salted = r->root, .row = r->lora, .name = name};
    }
    return name;
}
