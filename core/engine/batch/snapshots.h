/* core/engine/batch/snapshots.h - what recurrent blocks know at the ends of some shared pages, so
 * that a prompt with a common beginning is not read again: kept in main memory under the names of
 * those pages (pages.h), which are never given twice. The one that was used longest ago goes first.
 *
 * Where: at the last whole page of a prompt, from where the next turn of a conversation goes on,
 * and every GW_SNAPSHOT_PAGES pages, for prompts that are alike only in their beginning. All of
 * them together take no more memory than the pages do, or two where even these are more.
 */
#ifndef GW_ENGINE_BATCH_SNAPSHOTS_H
#define GW_ENGINE_BATCH_SNAPSHOTS_H

#include "core/engine/batch/pages.h"

struct gw_batch;
struct gw_seq;

enum { GW_SNAPSHOT_PAGES = 16, GW_SNAPSHOTS_MOST = 256 };

typedef struct gw_snapshot {
    gw_page_name name;
    uint64_t used;
    void *state;
} gw_snapshot;

typedef struct gw_snapshots {
    int32_t n, most; /* most 0: the model has no recurrent blocks */
    size_t bytes;    /* of each */
    uint64_t uses;
    gw_snapshot *at; /* [most] */
} gw_snapshots;

/* Of a batch whose session is there. */
gw_status gw_snapshots_open(struct gw_batch *b);
void gw_snapshots_close(struct gw_batch *b);
int gw_snapshots_has(const struct gw_batch *b, gw_page_name name);
/* Where the sequence's prompt has to end a pass, at the latest; its end where that is free. */
int32_t gw_snapshots_stop(const struct gw_batch *b, const struct gw_seq *s);
/* How many of so many pages that it begins with a prompt of n tokens leaves a snapshot behind. */
int32_t gw_snapshots_within(int32_t n_prompt, int32_t pages);
/* The sequence has read and named whole pages: one is kept where that is wanted. Where there is no
 * memory for it, none is. */
gw_status gw_snapshots_save(struct gw_batch *b, const struct gw_seq *s);
/* Its slot knows what the snapshot of its last page says, which is there. */
gw_status gw_snapshots_load(struct gw_batch *b, const struct gw_seq *s);

#endif
