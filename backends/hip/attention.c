/* backends/hip/attention.c - ATTENTION, split over the pages: nodes to launches. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backends/hip/hip.h"
#include "backends/hip/shape.h"
#include "kernels_hip/attention/attention_params.h"

/* RESERVED: bytes of shared memory that NVIDIA takes for a block. */
enum { SCRATCH_BYTES = 128 << 20, RESERVED = 1024 };

/* Bytes, whole times 16. */
static int whole_16(int bytes) { return (bytes + 15) / 16 * 16; }

static int lesser(int a, int b) { return a < b ? a : b; }

static gw_status record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node);

static int is_cache(gw_fmt fmt) {
    return fmt == GW_FMT_F16 || fmt == GW_FMT_F32 || fmt == GW_FMT_Q8_0;
}

static int accepts_attention(const gw_kernel *kernel, const gw_node *node,
                             const struct gw_device *device) {
    gw_fmt cache = node->in[1]->fmt;
    (void)kernel;
    (void)device;
    return gw_hip_is_plain_but_sinks(node) && node->in[0]->fmt == GW_FMT_F32 && is_cache(cache) &&
           node->args.attn.head_dim >= 4 &&
           node->in[2]->fmt == cache && node->in[3]->fmt == GW_FMT_I32 &&
           (node->out->fmt == GW_FMT_F32 ||
            (node->out->fmt == GW_FMT_ACT8 && gw_hip_width(node->out) % GW_ACT_BLOCK == 0));
}

/* How many heads of a group a team takes at once: the least work. */
static int heads_at_once(int group) {
    int best = 1, least = INT32_MAX;
    for (int n = GW_ATTEND_HEADS; n > 0; n /= 2) {
        int work = (group + n - 1) / n * (n + 2); /* fetching and widening count as two */
        if (work < least) {
            best = n;
            least = work;
        }
    }
    return best;
}

/* How pages come in pieces: as large as a place of the ring, at least four of K and of V, and whole
 * 16 bytes. */
static void cut_pages(struct gw_attend_params *p, const gw_format *cache, int heads, int chunk) {
    int scales = cache->is_float ? 0 : p->e / 32 * 2; /* of a position */
    int cell = cache->is_float ? (int)cache->block_bytes : 1, e = p->e;
    p->k_rows = 1;
    while (2 * GW_ATTEND_LEAST * p->k_rows <= e && 2 * p->k_rows <= GW_ATTEND_MOST_ROWS &&
           2 * p->k_rows * GW_PAGE * cell <= chunk) {
        p->k_rows *= 2;
    }
    p->v_rows = GW_PAGE / GW_ATTEND_LEAST;
    while (p->v_rows > 1 && p->v_rows * e * cell > chunk && p->v_rows / 2 * e * cell % 16 == 0) {
        p->v_rows /= 2;
    }
    p->k_bytes = p->k_rows * GW_PAGE * cell;
    p->v_bytes = p->v_rows * e * cell;
    p->k_chunks = (e + p->k_rows - 1) / p->k_rows;
    p->v_chunks = GW_PAGE / p->v_rows;
    p->chunk = p->k_bytes > p->v_bytes ? p->k_bytes : p->v_bytes;
    p->scale_bytes = GW_PAGE * scales;
    p->fresh_bytes = p->turn.in != 0 ? whole_16(e * 4 + scales) : 0;
    p->team_bytes = GW_PAGE * heads * 4 + GW_ATTEND_QUERIES(heads, e) +
                    2 * (p->scale_bytes + p->fresh_bytes) + GW_ATTEND_STAGES * p->chunk;
}

int gw_hip_can_fuse_rope(const struct gw_segment *segment, const gw_node *before,
                         const gw_node *node) {
    if (segment->device->no_fuse || before->op != GW_OP_ROPE_KV || !gw_op_is_plain(before) ||
        node->op != GW_OP_ATTENTION || node->kernel->record != record_attention ||
        node->in[0] != before->out || !gw_hip_disjoint(before->in[0], node->out)) {
        return 0;
    }
    return node->in[1] == before->in[1] && node->in[2] == before->in[2] &&
           node->in[3] == before->in[3];
}

/* Can a launch join the pages of this node's heads itself? */
static int joins_pages(const struct gw_segment *segment, const gw_node *node,
                       const struct gw_attend_params *p) {
    const struct gw_device *d = segment->device;
    int unit = node->out->fmt == GW_FMT_ACT8 ? GW_ACT_BLOCK : 4; /* values that stay together */
    return !d->no_fuse && !d->no_block && p->e % unit == 0 && p->parts.rows == segment->rows;
}

/* Shared memory of a block. On NVIDIA it is limited to `fifths` fifths, so that blocks of the next
 * product can be co-resident and prefetch their first weights. */
static int room_beside(const struct gw_device *d, int fifths) {
    return d->driver->nvidia ? d->shared_bytes * fifths / 5 : d->shared_bytes * 3 / 4;
}

/* Tiles of a page that a block of few pages holds beside its desk, and its shared memory. An even
 * number; 0: not two. */
static int block_slots(const struct gw_device *d, int tile, int desk, int pages, unsigned *shared) {
    int room = room_beside(d, 2), slots = room > desk ? (room - desk) / tile / 2 * 2 : 0;
    slots = slots > 2 * pages ? 2 * pages : slots;
    slots = slots == 0 && desk + 2 * tile <= d->shared_bytes - RESERVED ? 2 : slots;
    *shared = (unsigned)(desk + slots * tile);
    return slots;
}

/* Bytes of a page's tile. */
static int tile_bytes(const struct gw_attend_params *p, gw_fmt cache) {
    const gw_format *format = gw_format_of(cache);
    return GW_PAGE * p->e * (format->is_float ? (int)format->block_bytes : 1) + p->scale_bytes;
}

/* Where there is room its blocks begin beside those of the product in front, launch number
 * `front` - 1. */
static int begins_beside(struct gw_segment *segment, size_t front, unsigned shared) {
    const struct gw_device *d = segment->device;
    gw_hip_launch *before = front > 0 ? &segment->launches[front - 1] : NULL;
    int carve_out = d->has_carve_out && before != NULL && before->has_slack &&
                    before->shared_bytes + shared + RESERVED <= (unsigned)d->shared_bytes;
    if (carve_out) {
        before->carve_out = 1;
    }
    return carve_out;
}

/* Is launch number `front` - 1 ROPE_KV of several rows, which gw_attend_rows does itself? */
static int turns_rows(const struct gw_segment *segment) {
    return segment->rope != NULL && segment->rows > 1;
}

/* As gw_hip_stand_alone, of the product in front of launch number `front`. */
static int stand_alone(const struct gw_segment *segment, size_t front, unsigned blocks) {
    const struct gw_device *d = segment->device;
    size_t turns = turns_rows(segment) ? 1 : 0;
    const gw_hip_launch *before = front > turns ? &segment->launches[front - turns - 1] : NULL;
    int known = before != NULL && before->items > 0;
    return d->driver->nvidia && gw_hip_stand_alone((unsigned)d->units, known ? before->items : 0,
                                                   known ? before->grid[0] : 0, blocks);
}

/* Can variant `way` be recorded, for up to `pages` pages? A variant exists for all attention nodes
 * of a segment or for none. front: index of the launch that it replaces, together with the launch
 * of ROPE_KV before that where the variant rotates too. */
static int takes(struct gw_segment *segment, int way, size_t front, int pages, int first) {
    int *most = &segment->most_pages[way];
    *most = first ? pages : lesser(pages, *most);
    if (*most <= 0) {
        *most = 0;
        return 0;
    }
    segment->launches[front].ways &= ~(1 << way);
    if (turns_rows(segment) && (way == GW_HIP_ATTEND_ROWS || way == GW_HIP_ATTEND_BLOCK)) {
        segment->launches[front - 1].ways &= ~(1 << way);
    }
    return 1;
}

/* Rows of a block of gw_attend_rows: as few as leave no more blocks than run at once. */
static int rows_at_once(const struct gw_segment *segment, const struct gw_attend_params *p) {
    int most = lesser(segment->rows, GW_ROWS_MOST), rows = 1;
    while (rows < most && (unsigned)p->heads * gw_hip_groups((size_t)segment->rows, (size_t)rows) >
                              (unsigned)segment->device->units) {
        rows *= 2;
    }
    return rows;
}

/* Shared memory of a block of p->block_has rows without its tiles. */
static int rows_desk(const struct gw_segment *segment, const struct gw_attend_params *p, int tile,
                     int pages) {
    int fresh = turns_rows(segment) ? segment->rows * GW_ROWS_CELLS(tile) : 0;
    return GW_ROWS_DESK(p->e, p->block_has, pages, fresh);
}

/* New rows that come at once in a block of gw_attend_rows. */
static int new_at_once(int e, int threads) {
    return GW_ROWS_NEW * (threads / GW_LANES / ((e + GW_LANES - 1) / GW_LANES));
}

/* Attention of few pages by a block per head and row, or some rows, behind launch number `front` -
 * 1. All attention of a segment has this way, or none. */
static gw_status record_block(struct gw_segment *segment, const gw_node *node, size_t front,
                              const struct gw_attend_params *pages_params, int first) {
    struct gw_attend_params block = *pages_params, *p = &block;
    const struct gw_device *d = segment->device;
    int one = segment->rows == 1, tile = tile_bytes(p, node->in[1]->fmt);
    /* Beyond these several blocks are faster: a block of each query head reads pages for itself,
     * one pair after the other (measured on an H200 with groups of 1 and 4 of 128, and of 8 of 64).
     */
    int pages = p->e > 64 || !one ? GW_BLOCK_PAGES : GW_BLOCK_PAGES_NARROW;
    unsigned shared = 0, rows;
    char name[48];
    p->block_has = one ? 1 : rows_at_once(segment, p);
    rows = gw_hip_groups((size_t)segment->rows, (size_t)p->block_has);
    do {
        int desk = one ? GW_BLOCK_DESK(p->e, pages) : rows_desk(segment, p, tile, pages);
        p->slots = block_slots(d, tile, desk, pages, &shared);
    } while (p->slots == 0 && --pages > 0);
    if (p->e > GW_BLOCK_THREADS || (unsigned)p->heads * rows > GW_BLOCK_MOST * (unsigned)d->units) {
        pages = 0;
    }
    if (!takes(segment, GW_HIP_ATTEND_BLOCK, front, pages, first)) {
        return GW_OK;
    }
    if (!one && stand_alone(segment, front, (unsigned)p->heads * rows)) {
        unsigned half = (unsigned)d->shared_bytes / 2;
        shared = shared > half ? shared : half;
    }
    /* Several rows: a multiprocessor that products have given all of to shared memory stays so. */
    int carve_out =
        one ? p->e <= GW_BLOCK_FEWER && begins_beside(segment, front, shared) : d->has_carve_out;
    int fewer = one ? carve_out : new_at_once(p->e, GW_BLOCK_FEWER) >= segment->rows;
    snprintf(name, sizeof name, "gw_attend_%s_%s", one ? "block" : "rows",
             gw_format_of(node->in[1]->fmt)->name);
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)(p->heads / p->kv_heads), rows,
                         (unsigned)p->kv_heads, fewer ? GW_BLOCK_FEWER : GW_BLOCK_THREADS, 1, 1,
                         shared, p, sizeof *p));
    segment->launches[segment->n - 1].ways = 1 << GW_HIP_ATTEND_BLOCK;
    segment->launches[segment->n - 1].sends_at = offsetof(struct gw_attend_params, sends);
    segment->launches[segment->n - 1].carve_out = carve_out;
    return GW_OK;
}

/* Attention of up to GW_SPLIT_PAGES pages by blocks that share them. All attention of a segment has
 * this way, or none. */
static gw_status record_split(struct gw_segment *segment, const gw_node *node, size_t front,
                              const struct gw_attend_params *pages_params, int first) {
    struct gw_attend_params split = *pages_params, *p = &split;
    const struct gw_device *d = segment->device;
    const gw_format *cache = gw_format_of(node->in[1]->fmt);
    int group = p->heads / p->kv_heads, tile = tile_bytes(p, node->in[1]->fmt), shared = 0;
    int many = segment->rows > GW_BLOCK_ROWS; /* blocks for all multiprocessors, several each */
    p->block_has = lesser(group, GW_SPLIT_HEADS);
    /* As many pages at once as have a team for each head. */
    for (int n = 1; n == 1 || (!many && n * p->block_has <= GW_SPLIT_THREADS / GW_LANES); n++) {
        int bytes = GW_SPLIT_DESK(p->e, p->block_has, n) + 2 * n * tile;
        if (bytes <= (n == 1 ? d->shared_bytes : room_beside(d, 3))) {
            shared = bytes;
            p->slots = 2 * n;
        }
    }
    unsigned columns = (unsigned)p->kv_heads * gw_hip_groups((size_t)group, (size_t)p->block_has);
    int blocks = (many ? GW_SPLIT_BESIDE : 1) * d->units / (int)(columns * (unsigned)segment->rows);
    blocks = many && blocks < 1 ? 1 : blocks;
    /* Beyond these a team per page, with a join of its own, is faster (measured on an H200 with
     * groups of 1, 3, 4, 7 and 8, one to eight rows). */
    int pages = group > 1 ? GW_SPLIT_PAGES : GW_SPLIT_ALONE;
    if (segment->most_pages[GW_HIP_ATTEND_DEEP] > pages ||
        segment->most_pages[GW_HIP_ATTEND_WHOLE] > pages) {
        pages = p->block_has > 4 ? GW_SPLIT_FEW_HEADS
                : p->e > 64      ? GW_SPLIT_FEW
                                 : GW_SPLIT_FEW_NARROW;
    }
    if (many) {
        pages = GW_SPLIT_PAGES;
    } else {
        pages = lesser(pages, blocks * (GW_SPLIT_UNITS / p->block_has));
    }
    pages = lesser(pages, GW_SPLIT_JOIN / p->block_has);
    while (pages > 0 && 4 * GW_SPLIT_FLOATS(p->e, pages) > shared) {
        pages--;
    }
    if (!takes(segment, GW_HIP_ATTEND_SPLIT, front,
               p->e > GW_SPLIT_THREADS || (!many && blocks < 2) ? 0 : pages, first)) {
        return GW_OK;
    }
    GW_TRY(gw_hip_counters(segment, (size_t)p->parts.rows * (size_t)p->heads, &p->arrived));
    char name[48];
    snprintf(name, sizeof name, "gw_attend_split_%s", cache->name);
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)blocks, (unsigned)segment->rows, columns,
                         GW_SPLIT_THREADS, 1, 1, (unsigned)shared, p, sizeof *p));
    segment->launches[segment->n - 1].ways = 1 << GW_HIP_ATTEND_SPLIT;
    segment->launches[segment->n - 1].sends_at = offsetof(struct gw_attend_params, sends);
    segment->launches[segment->n - 1].carve_out = begins_beside(segment, front, (unsigned)shared);
    return GW_OK;
}

/* Attention of some pages by a block per head and some rows, which look at the same pages. */
static gw_status record_rows(struct gw_segment *segment, const gw_node *node, size_t front,
                             const struct gw_attend_params *pages_params, int first) {
    struct gw_attend_params rows = *pages_params, *p = &rows;
    const struct gw_device *d = segment->device;
    int tile = tile_bytes(p, node->in[1]->fmt), more = p->window > 0, pages = GW_ROWS_PAGES, desk;
    int room = d->programmatic ? room_beside(d, 4) : d->shared_bytes - RESERVED;
    p->block_has = rows_at_once(segment, p);
    do { /* rows with a window see one page more together */
        desk = rows_desk(segment, p, tile, pages + more);
    } while (desk + 2 * tile > room && --pages > 0);
    /* Two rows of heads that share no KV head leave blocks enough to share the pages (measured on
     * an H200: two, four and eight rows, groups of 1 and 8). Of few pages the launch of ROPE_KV,
     * which that has, costs as much as it gains. */
    if (p->heads == p->kv_heads && segment->most_pages[GW_HIP_ATTEND_SPLIT] > 0) {
        pages = turns_rows(segment) ? lesser(pages, GW_ROWS_ALONE) : 0;
    }
    if (segment->rows == 1 || p->e > GW_BLOCK_THREADS) {
        pages = 0;
    }
    if (!takes(segment, GW_HIP_ATTEND_ROWS, front, pages, first)) {
        return GW_OK;
    }
    p->slots = lesser((room - desk) / tile / 2 * 2, 2 * (pages + more));
    char name[48];
    snprintf(name, sizeof name, "gw_attend_rows_%s", gw_format_of(node->in[1]->fmt)->name);
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)(p->heads / p->kv_heads),
                         gw_hip_groups((size_t)segment->rows, (size_t)p->block_has),
                         (unsigned)p->kv_heads, GW_BLOCK_THREADS, 1, 1,
                         (unsigned)(desk + p->slots * tile), p, sizeof *p));
    segment->launches[segment->n - 1].ways = 1 << GW_HIP_ATTEND_ROWS;
    segment->launches[segment->n - 1].sends_at = offsetof(struct gw_attend_params, sends);
    return GW_OK;
}

/* Attention by blocks that have groups of pages, in the way of many. Fewer of them than there are
 * multiprocessors are left to launch number `front`, whose pages are faster on their own then
 * (measured on an H100 with groups of 1 and 4 heads); a window may have no more at any time.
 * grouped: whether it is there. */
static gw_status record_groups(struct gw_segment *segment, const gw_node *node, size_t front,
                               const struct gw_attend_params *pages_params, int heads,
                               int *grouped) {
    struct gw_attend_params groups = *pages_params, *p = &groups;
    const struct gw_device *d = segment->device;
    int *most = &segment->most_pages[GW_HIP_ATTEND_PAGES], e = p->e,
        teams = GW_GROUP_THREADS / GW_LANES;
    int group = p->heads / p->kv_heads, same = p->kv_heads * ((group + heads - 1) / heads);
    p->team_bytes = GW_PAGE * heads * 4 + 2 * p->scale_bytes + GW_ATTEND_STAGES * p->chunk;
    int shared = GW_GROUP_DESK(e, heads) + 2 * p->fresh_bytes + teams * p->team_bytes;
    int pages = d->no_pages ? 0 : (d->units / (same * p->parts.rows) + 1) * GW_PAGE_GROUP;
    *grouped = (e == 64 || e == 128) && heads <= GW_GROUP_HEADS &&
               2 * (shared + RESERVED) <= d->shared_bytes &&
               (p->window == 0 || GW_WINDOW_PAGES(p->window) > pages);
    if (!*grouped) {
        return GW_OK;
    }
    pages = d->no_block && pages > 0 ? INT32_MAX : pages;
    *most = *most == 0 ? pages : lesser(pages, *most);
    segment->launches[front].ways &= ~(1 << GW_HIP_ATTEND_MANY);
    char name[48];
    snprintf(name, sizeof name, "gw_attend_group_%s_h%d_e%d", gw_format_of(node->in[1]->fmt)->name,
             heads, e);
    size_t at_most = gw_hip_groups(gw_hip_width(node->in[3]), GW_PAGE_GROUP);
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)(at_most * (size_t)(same * p->parts.rows)),
                         1, 1, GW_GROUP_THREADS, 1, 1, (unsigned)shared, p, sizeof *p));
    segment->launches[segment->n - 1].fill = (unsigned)same;
    segment->launches[segment->n - 1].ways = 1 << GW_HIP_ATTEND_MANY;
    return GW_OK;
}

/* Pages on their own, so few of them that each has a team with a longer ring: deep, or whole, with
 * all of the page. `same`: units of a row and page. */
static gw_status record_few(struct gw_segment *segment, const gw_node *node, size_t front,
                            const struct gw_attend_params *pages_params, int heads, int same,
                            int way, int first) {
    struct gw_attend_params few = *pages_params, *p = &few;
    const struct gw_device *d = segment->device;
    const char *cache = gw_format_of(node->in[1]->fmt)->name;
    int teams = GW_ATTEND_THREADS / GW_LANES, deep = way == GW_HIP_ATTEND_DEEP;
    int chunks = deep ? GW_ATTEND_DEEP : p->k_chunks + p->v_chunks;
    p->team_bytes += (chunks - GW_ATTEND_STAGES) * p->chunk;
    int shared = teams * p->team_bytes, units = d->shared_bytes / (shared + RESERVED) * teams;
    int has =
        !d->no_pages && (deep ? p->e == 128 && node->in[1]->fmt == GW_FMT_F16
                              : (p->e == 64 || p->e == 128) && node->in[1]->fmt != GW_FMT_F32);
    if (!takes(segment, way, front, has ? units * d->units / (same * p->parts.rows) : 0, first)) {
        return GW_OK;
    }
    char name[48];
    snprintf(name, sizeof name, "gw_attend_%s_h%d_%s%d", cache, heads, deep ? "deep" : "whole",
             p->e);
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)(units / teams * d->units), 1, 1,
                         GW_ATTEND_THREADS, 1, 1, (unsigned)shared, p, sizeof *p));
    segment->launches[segment->n - 1].fill = (unsigned)same;
    segment->launches[segment->n - 1].ways = 1 << way;
    return GW_OK;
}

static gw_status record_pages(struct gw_segment *segment, const gw_node *node,
                              const struct gw_attend_parts *parts, int *grouped) {
    const gw_attn_args *a = &node->args.attn;
    const gw_format *cache = gw_format_of(node->in[1]->fmt);
    struct gw_device *device = segment->device;
    int e = a->head_dim, group = a->heads / a->kv_heads, heads = heads_at_once(group);
    int per = e > 64 && e % 4 == 0 ? 4 : e > 32 && e % 2 == 0 ? 2 : 1;
    char name[48];
    struct gw_attend_params p = {.step = gw_hip_step(segment),
                                 .parts = *parts,
                                 .q = gw_hip_at(node->in[0]),
                                 .k = gw_hip_at(node->in[1]),
                                 .v = gw_hip_at(node->in[2]),
                                 .pages = gw_hip_at(node->in[3]),
                                 .table_stride = (int32_t)gw_hip_width(node->in[3]),
                                 .heads = a->heads,
                                 .kv_heads = a->kv_heads,
                                 .e = e,
                                 .window = a->window,
                                 .scale = a->scale};
    p.sinks = node->w[0] != NULL ? gw_hip_at(node->w[0]) : 0;
    if (segment->rope != NULL && segment->rows == 1) {
        p.turn = gw_hip_rotation(segment->rope);
    }
    cut_pages(&p, cache, heads, device->warp == 32 ? GW_ATTEND_CHUNK : GW_ATTEND_CHUNK_WIDE);
    int known = e == 64 || e == 128; /* widths that have kernels of their own */
    snprintf(name, sizeof name, "gw_attend_%s_h%d_%c%d", cache->name, heads, known ? 'e' : 'v',
             known ? e : per);
    unsigned teams = GW_ATTEND_THREADS / GW_LANES, shared = teams * (unsigned)p.team_bytes;
    size_t front = segment->n;
    /* As many blocks as run at once, so many that a team stays with its heads. */
    size_t same = (size_t)a->kv_heads * (size_t)((group + heads - 1) / heads) *
                  gw_hip_groups((size_t)e, (size_t)per * GW_LANES);
    size_t most = gw_hip_groups(gw_hip_width(node->in[3]) * (size_t)parts->rows, teams);
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)(most * same), 1, 1, GW_ATTEND_THREADS, 1,
                         1, shared, &p, sizeof p));
    segment->launches[segment->n - 1].fill = (unsigned)same;
    GW_TRY(record_groups(segment, node, front, &p, heads, grouped));
    int first = segment->attends++ == 0;
    GW_TRY(record_few(segment, node, front, &p, heads, (int)same, GW_HIP_ATTEND_DEEP, first));
    GW_TRY(record_few(segment, node, front, &p, heads, (int)same, GW_HIP_ATTEND_WHOLE, first));
    if (!joins_pages(segment, node, &p)) {
        for (int way = GW_HIP_ATTEND_SPLIT; way < GW_HIP_ATTEND_KINDS; way++) {
            segment->most_pages[way] = 0;
        }
        return GW_OK;
    }
    p.out = gw_hip_at(node->out);
    p.form = gw_hip_form(segment, node->out);
    GW_TRY(record_split(segment, node, front, &p, first));
    if (segment->rows > GW_BLOCK_ROWS) {
        segment->most_pages[GW_HIP_ATTEND_ROWS] = segment->most_pages[GW_HIP_ATTEND_BLOCK] = 0;
        return GW_OK;
    }
    if (turns_rows(segment)) {
        p.turn = gw_hip_rotation(segment->rope);
    }
    GW_TRY(record_rows(segment, node, front, &p, first));
    return record_block(segment, node, front, &p, first);
}

static gw_status record_join(struct gw_segment *segment, const gw_node *node,
                             const struct gw_attend_parts *parts, gw_hip_ptr out, int form,
                             const char *of, int ways) {
    const gw_attn_args *a = &node->args.attn;
    struct gw_join_params p = {.step = gw_hip_step(segment),
                               .parts = *parts,
                               .out = out,
                               .sinks = node->w[0] != NULL ? gw_hip_at(node->w[0]) : 0,
                               .heads = a->heads,
                               .e = a->head_dim,
                               .window = a->window,
                               .form = form};
    unsigned slices = gw_hip_groups((size_t)a->head_dim, GW_JOIN_WIDTH);
    char name[48];
    snprintf(name, sizeof name, "gw_attend_join_%s_%s", of,
             form != GW_FORM_FLOATS ? "act8" : "f32");
    GW_TRY(gw_hip_record(segment, node, name, (unsigned)a->heads * slices, (unsigned)parts->rows, 1,
                         GW_JOIN_THREADS, 1, 1, 0, &p, sizeof p));
    segment->launches[segment->n - 1].ways = ways;
    if (out == gw_hip_at(node->out)) {
        segment->launches[segment->n - 1].sends_at = offsetof(struct gw_join_params, sends);
    }
    return GW_OK;
}

static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Rows in tiles whose partial results fit into the scratch. Blocks of act8 that straddle heads are
 * encoded in a third step. */
static gw_status record_attention(struct gw_segment *segment, const gw_kernel *kernel,
                                  const gw_node *node) {
    const gw_attn_args *a = &node->args.attn;
    size_t rows = (size_t)segment->rows, heads = (size_t)a->heads, e = (size_t)a->head_dim;
    size_t stride = (gw_hip_width(node->in[3]) + 3) / 4 * 4, wide = (e + 3) / 4 * 4;
    size_t at_once = SCRATCH_BYTES / (heads * stride * (wide + 2) * sizeof(float));
    int act8 = node->out->fmt == GW_FMT_ACT8, straddles = act8 && e % GW_ACT_BLOCK != 0;
    gw_hip_ptr scratch;
    (void)kernel;
    at_once = at_once < 1 ? 1 : at_once > rows ? rows : at_once;
    size_t tops = padded(at_once * heads * stride * sizeof(float));
    size_t values = padded(at_once * heads * stride * wide * sizeof(float));
    size_t whole = straddles ? rows * heads * e * sizeof(float) : 0;
    GW_TRY(gw_hip_scratch(segment, 2 * tops + values + whole, &scratch));
    struct gw_attend_parts parts = {.top = scratch,
                                    .sum = scratch + tops,
                                    .values = scratch + 2 * tops,
                                    .page_stride = (int32_t)stride,
                                    .e_padded = (int32_t)wide};
    gw_hip_ptr out = straddles ? scratch + 2 * tops + values : gw_hip_at(node->out);
    int form = straddles ? GW_FORM_FLOATS : gw_hip_form(segment, node->out), grouped;
    for (size_t row0 = 0; row0 < rows; row0 += at_once) {
        parts.row0 = (int32_t)row0;
        parts.rows = (int32_t)(rows - row0 < at_once ? rows - row0 : at_once);
        GW_TRY(record_pages(segment, node, &parts, &grouped));
        if (grouped) {
            GW_TRY(
                record_join(segment, node, &parts, out, form, "groups", 1 << GW_HIP_ATTEND_MANY));
        }
        GW_TRY(record_join(segment, node, &parts, out, form, "pages",
                           1 << GW_HIP_ATTEND_PAGES | 1 << GW_HIP_ATTEND_DEEP |
                               1 << GW_HIP_ATTEND_WHOLE | !grouped << GW_HIP_ATTEND_MANY));
    }
    return straddles ? gw_hip_record_encode(segment, node, out, node->out) : GW_OK;
}

/* clang-format off */
const gw_kernel gw_hip_attention_kernels[] = {
    {GW_OP_ATTENTION, "hip.attention.split", accepts_attention, record_attention, NULL, 1},
    {.name = NULL},
};
/* clang-format on */
