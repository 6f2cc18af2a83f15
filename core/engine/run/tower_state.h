/* core/engine/run/tower_state.h - what a gw_tower holds; for the tower*.c files. */
#ifndef GW_ENGINE_TOWER_STATE_H
#define GW_ENGINE_TOWER_STATE_H

#include <stdio.h>

#include "core/engine/run/tower.h"

enum { GW_TOWER_SIZES = 5 };

/* A plan: some layers, or what groups of patches become after them. */
typedef struct gw_tower_leg {
    gw_graph graph;
    gw_plan *plan;
    int windowed; /* its layers see windows                                     */
    int part;     /* 0: layers; else 1 + the part of a row that it makes        */
} gw_tower_leg;

/* Memory of the plans of all sizes, of which one runs at a time: for tiles of up to so many rows.
 */
typedef struct gw_tower_room {
    int rows, pages, windows, window_pages; /* windows: room for so many, of so many pages */
    struct gw_buffer *stream[GW_MAX_DEVICES], *cells[GW_MAX_DEVICES];
    struct gw_buffer *table[GW_MAX_DEVICES][2]; /* pages: of whole tiles, of windows */
    struct gw_buffer *rope[GW_MAX_DEVICES][GW_MAX_ROPES];
    struct gw_buffer *given[GW_MAX_DEVICES][2]; /* patches, places */
    struct gw_buffer *result[GW_TOWER_ENDS];    /* of each part [groups, d_out], on result_on */
    int result_on[GW_TOWER_ENDS];
    float *host;      /* patches, places, or rows of a result */
    int32_t shape[2]; /* rows and columns of the tile whose places and angles are on the devices */
    uint64_t *need;   /* [devices] bytes, where memory is counted and not taken; NULL: taken */
} gw_tower_room;

/* The plans for tiles of up to so many patches, over the memory of a room. */
typedef struct gw_tower_pass {
    gw_tower_room *room;
    int rows, pages, windows, window_pages;
    gw_tower_leg *leg; /* in the order in which they run */
    int n_legs;
    gw_tensor stream_on[GW_MAX_DEVICES], table_on[2][GW_MAX_DEVICES];
    gw_tensor rope_on[GW_MAX_DEVICES][GW_MAX_ROPES], kept[GW_MAX_DEVICES][GW_SPEC_VALUES];
    gw_tensor *k, *v; /* [devices, n_layers], on the device of the layer's attention */
    unsigned char *table_of;
    uint64_t *arena; /* [devices] bytes, where they are counted */
} gw_tower_pass;

/* Bytes of one device. kernels: an upper bound of what they need besides memory of the plans.
 */
typedef struct gw_tower_use {
    uint64_t weights, memory, kernels;
} gw_tower_use;

struct gw_tower {
    gw_model *model;
    const gw_blueprint *bp;
    gw_where *where;
    int patches, places; /* values of the spec; -1: none */
    int32_t merge, patch, d_out, pixels, window, eye_token;
    int by_block, n_deep;
    float patch_less, patch_times; /* of values of patches: (x - less) * times */
    gw_grid_kind grid;
    float *table; /* of patches [entries, d_model]; NULL: none */
    int64_t entries;
    float *place_b;   /* [d_model], added to the places of patches; NULL: nothing       */
    float *class_row; /* [d_model], a row after the patches of each tile; NULL: none    */
    int32_t most;     /* patches of a tile of the model's processor; 0: not known       */
    gw_tower_use use[GW_MAX_DEVICES]; /* for such a tile */
    gw_tower_room room;
    gw_tower_pass pass[GW_TOWER_SIZES];
    gw_sight *kept[GW_TOWER_KEPT]; /* the last one first */
    uint64_t most_kept;            /* bytes; the last one is kept whatever it takes */
    gw_step step;
};

/* A number of the spec in a layer. */
double gw_tower_number(const gw_tower *t, const char *name, int layer, double absent);

/* Rows of a tile that stand for no patch: they follow the patches, and no group takes them. */
static inline int gw_tower_more(const gw_tower *t) { return t->class_row != NULL; }

/* tower_pass.c. The rows of a tile, [groups, d_out * (1 + n_deep)] to out. */
gw_status gw_tower_run(gw_tower *t, const gw_patches *patches, int32_t tile, gw_between_fn between,
                       void *user, float *out);
/* Operations of that run's linear layers, added up: of floats, of integers. */
typedef struct gw_tower_ops {
    double floats, integers;
} gw_tower_ops;
gw_status gw_tower_count(gw_tower *t, const gw_patches *patches, int32_t tile, gw_tower_ops *ops);
void gw_tower_pass_free(gw_tower_pass *p);
/* Memory and plans for tiles of t->most patches. GW_E_NOMEM, GW_E_DEVICE. */
gw_status gw_tower_reserve(gw_tower *t);
/* What they would take, into t->use but for weights, which need not be loaded. */
gw_status gw_tower_need(gw_tower *t);
static inline uint64_t gw_tower_scratch(const gw_tower *t, int d) {
    return t->use[d].memory + t->use[d].kernels;
}

/* tower_room.c. Nothing is there yet but need. */
gw_status gw_tower_room_new(gw_tower *t, gw_tower_room *room, int rows);
void gw_tower_room_free(gw_tower *t, gw_tower_room *room);
/* The pass's tensors, over the room: what its graphs read and write. */
gw_status gw_tower_pass_tensors(gw_tower *t, gw_tower_pass *p, int rows);
int gw_tower_windowed(const gw_tower *t, int layer);
static inline int gw_tower_pages(int rows) { return (rows - 1) / GW_PAGE + 1; }
static inline const gw_plan_device *gw_tower_device(const gw_tower *t, int d) {
    return &t->model->place.devices[d];
}

#endif
