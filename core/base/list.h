/* core/base/list.h - lists that grow by doubling, so that memory follows what was really read. */
#ifndef GW_BASE_LIST_H
#define GW_BASE_LIST_H

#include <stdlib.h>

/* `items` (NULL at first) with room for more than n items of `size` bytes, maybe at another place;
 * *capacity counts items. NULL without memory: then the list is as it was. */
static inline void *gw_list_grown(void *items, size_t n, size_t *capacity, size_t size) {
    if (n < *capacity) {
        return items;
    }
    size_t more = *capacity != 0 ? *capacity * 2 : 16, bytes;
    void *grown = __builtin_mul_overflow(more, size, &bytes) ? NULL : realloc(items, bytes);
    *capacity = grown != NULL ? more : *capacity;
    return grown;
}

#endif
