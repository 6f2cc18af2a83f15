/* core/engine/run/kv.h - the static paged KV cache: allocated once, never moved.
 *
 * A slot (sequence) has a row of ceil(n_ctx / GW_PAGE) entries in the page table: the pages that
 * hold its positions, out of a pool of all. At first the table is the identity, so page p of slot s
 * is page s * pages + p, as far as there are so many: what one sequence alone needs. Rewinding is
 * forgetting a position: nothing is cleared.
 *
 * A layer whose readers see no more than a window back needs only the pages of that window, and of
 * the rows that a pass appends. Where that is less than the context, its pages of a session that
 * has one sequence form a ring: entry p of its page table is page p % ring. Kernels see no
 * difference, since their sums go by entries of the table. What differs is how far back a session
 * can go: as far as the ring still holds what the first row there sees, at least GW_KV_SLACK
 * positions. Further back its tokens have to run again (session_return.c).
 */
#ifndef GW_ENGINE_KV_H
#define GW_ENGINE_KV_H

#include "core/model/cut.h"

/* K, V and the areas of a layer. */
enum { GW_KV_PARTS = 3 };
enum { GW_KV_KINDS = 4, GW_KV_SLACK = 1024 };

/* The formats of keys and of values. */
typedef struct gw_kv_pair {
    gw_fmt k, v;
} gw_kv_pair;

typedef struct gw_kv {
    const gw_plan_device *devices;
    int n_devices, n_layers;
    gw_kv_pair fmt;
    /* [n_devices, n_layers]: K, V, areas; NULL: the device has no cache of the layer */
    struct gw_buffer **cells;
    struct gw_buffer *pages[GW_KV_KINDS][GW_MAX_DEVICES];
    gw_tensor *k, *v;       /* [n_devices, n_layers], layouts of op.h; n_dim 0: not there; v of
                             * width 0: part of k */
    gw_tensor *paged;       /* [n_devices, n_layers] of [pages, floats]: areas (area.h)   */
    const gw_layer *layers; /* [n_layers]                                    */
    int32_t *first_head;    /* [n_devices, n_layers]: of the KV heads that the device has */
    int32_t *heads;         /* [n_layers] of all devices; 0: no cache         */
    gw_tensor page_table[GW_KV_KINDS][GW_MAX_DEVICES]; /* [slots, pages] i32 */
    unsigned char *in_host;  /* [n_layers] 1: cells in main memory, whatever card reads them */
    unsigned char *table_of; /* [n_layers] kind of the layer's cache: 0 has all pages, ... */
    int n_kinds;
    int32_t ring[GW_KV_KINDS];  /* ... the others so many                    */
    int32_t reach[GW_KV_KINDS]; /* as gw_layer.reach                         */
    int32_t high;               /* positions that were written since the sequence began   */
    int32_t floor;              /* positions below, but for 0, cannot be gone on from     */
} gw_kv;

/* NULL or "f16", "f32", "q8_0", "q5_0", "q4_0", or two of these, of keys and of values, as
 * "q8_0,q4_0"; GW_E_ARGUMENT. */
gw_status gw_kv_format(const char *kv_type, gw_kv_pair *out);
/* What gw_kv_format takes for it. */
enum { GW_KV_NAME = 32 };
const char *gw_kv_name(gw_kv_pair fmt, char out[GW_KV_NAME]);
/* A number for a pair, that of the format where both have it; back: 0 where no pair has it. */
uint32_t gw_kv_number(gw_kv_pair fmt);
int gw_kv_of_number(uint32_t number, gw_kv_pair *out);
static inline int gw_kv_same(gw_kv_pair a, gw_kv_pair b) { return a.k == b.k && a.v == b.v; }
/* Width of a head's keys (part 0) or values (1) in a cache: in formats of blocks, of either, a
 * multiple of 32, whose last values are zeros where the model's is none (GW_OP_WIDEN). */
int32_t gw_kv_width(const gw_layer *layer, gw_kv_pair fmt, int part);
/* GW_E_UNSUPPORTED where the model has heads that are not whole blocks of the format and cannot be
 * wider in it than they are (bp NULL: none can), or values whose format cannot differ from that of
 * the keys. */
gw_status gw_kv_check(const gw_hparams *hp, const gw_blueprint *bp, gw_kv_pair fmt);
/* How many sequences, how long each, and pages of all. */
typedef struct gw_kv_size {
    int32_t slots, n_ctx;
    int64_t pages; /* 0: as many as slots of n_ctx positions have */
    int32_t chunk; /* most rows of a pass; 0: no rings, which only one sequence can have */
} gw_kv_size;

/* Bytes of the page tables; GW_E_OVERFLOW when the caches of all layers do not fit 64 bits. */
gw_status gw_kv_bytes(const gw_hparams *hp, gw_kv_pair fmt, gw_kv_size size, uint64_t *table);
/* Of the cache of one layer, 0 where it does not attend; sizes as gw_kv_bytes has checked. */
uint64_t gw_kv_layer_bytes(const gw_layer *layer, gw_kv_pair fmt, gw_kv_size size);
/* fmt: as gw_kv_check has passed it. where [n_layers]: the device of each
 * layer's cache; host [n_layers]: 1: its cells lie in main memory, where that device reads them
 * (gw_backend.alloc_mapped); groups [n_devices]: whose cards have heads of it, or NULL.
 * GW_E_NOMEM; the caller has compared gw_kv_bytes with the memory of the devices, which outlive
 * the cache. */
gw_status gw_kv_new(const gw_plan_device *devices, int n_devices, const int *where,
                    const unsigned char *host, const gw_group *groups, const gw_blueprint *bp,
                    const gw_hparams *hp, gw_kv_pair fmt, gw_kv_size size, gw_kv *out);
/* The pages of positions of a slot from entry `first` of its row on: pages [n], on every device. */
gw_status gw_kv_map(gw_kv *kv, int32_t slot, int32_t first, const int32_t *pages, int32_t n);
/* Rows [pos, pos + n) of slot 0 are written: what is there from then on. */
void gw_kv_note(gw_kv *kv, int32_t n, int32_t pos);
/* Can rows follow at position pos, and see all they are to see? */
int gw_kv_has(const gw_kv *kv, int32_t pos);
/* Does some layer look back no further than a window? */
int gw_kv_windowed(const gw_hparams *hp);

/* One page (GW_PAGE positions, all heads) of K (part 0), V (1) or areas (2) of a layer, by its
 * entry in the page table of slot 0, as it was at first, between its devices and host memory of
 * gw_kv_page_bytes bytes; 0: the layer has none. A page that is no longer in its ring is read as
 * zeros. */
size_t gw_kv_page_bytes(const gw_kv *kv, int layer, int part);
size_t gw_kv_largest_page(const gw_kv *kv);
/* Of all parts of all layers. */
size_t gw_kv_pages_bytes(const gw_kv *kv);
gw_status gw_kv_read_page(const gw_kv *kv, int layer, int part, int32_t page, void *dst);
gw_status gw_kv_write_page(gw_kv *kv, int layer, int part, int32_t page, const void *src);
/* Zero the positions from `live` on in such a page. */
void gw_kv_blank(const gw_kv *kv, int layer, int part, int32_t live, void *page);
void gw_kv_free(gw_kv *kv); /* of a zeroed or built cache */

#endif
