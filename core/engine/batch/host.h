/* core/engine/batch/host.h - pages that the cache lets go, in main memory (pages.h counts them):
 * copied there when they give way, and back when a prompt begins with them, where copying a page is
 * faster than reading its tokens, and saved where both copies together are. All three are measured.
 * A page of the draft model goes along.
 *
 * All memory is taken at once; copies end before the next pass begins.
 */
#ifndef GW_ENGINE_BATCH_HOST_H
#define GW_ENGINE_BATCH_HOST_H

#include "core/engine/batch/pages.h"

struct gw_batch;

/* Of a page. */
typedef struct gw_host_time {
    double seconds; /* of late; 0: not known */
    int32_t doubts; /* how often it was not done for that since it was measured */
} gw_host_time;

typedef struct gw_host {
    int32_t n;    /* places; 0: nothing is kept */
    size_t bytes; /* of a place: the model's page, then the draft model's */
    size_t own;   /* of these the model's */
    char *at;     /* [n, bytes] */
    gw_host_time save, fetch;
} gw_host;

/* How many places a batch whose sessions are there has by its options, and their memory.
 * GW_E_ARGUMENT: less than a page; GW_E_NOMEM says what is needed and what there is. */
gw_status gw_host_open(struct gw_batch *b);
void gw_host_close(struct gw_batch *b);
/* Pages are counted: from now on they are kept. */
void gw_host_begin(struct gw_batch *b);

/* Would a prompt have its next page sooner by a copy? Yes also where nothing is measured yet, or
 * has not been for long. */
int gw_host_pays(struct gw_batch *b);
/* The page with these tokens behind `before`, for one more sequence, from wherever it is; *page -1:
 * from nowhere. */
gw_status gw_host_find(struct gw_batch *b, gw_page_name before, const int32_t *tokens,
                       int32_t *page);

#endif
