/* core/engine/run/tower.h - a model's eyes: its vision tower, plans over the patches of a
 * tile, and the sights that it has made last.
 *
 * A tower is described by a spec (NAME-vision) and runs like any model, but for what the host makes
 * for the grid of a tile: rows of positions, rope tables of two dimensions, and which patches stand
 * in which window. All layers see whole tiles, or windows; nothing is causal.
 */
#ifndef GW_ENGINE_TOWER_H
#define GW_ENGINE_TOWER_H

#include <stdatomic.h>

#include "core/engine/run/model_state.h"
#include "core/image/patches.h"
#include "include/godwit_see.h"
#include "core/model/build.h"

/* Sights that are kept: so many at most, and no more bytes but for the last one. */
enum { GW_TOWER_ENDS = 8, GW_TOWER_KEPT = 16, GW_TOWER_KEPT_BYTES = 64 << 20 };

/* One tile of a sight, in groups of merge x merge patches: a group is a row. */
typedef struct gw_sight_tile {
    int32_t first, rows, columns; /* its first row in the sight; its grid in groups */
} gw_sight_tile;

struct gw_sight {
    atomic_int holders; /* requests come from other threads */
    uint8_t digest[GW_PICTURE_DIGEST];
    int64_t n_patches;
    int32_t n_tiles, n_rows, width; /* width: of all parts of a row side by side */
    gw_sight_tile *tile;            /* [n_tiles] */
    float *rows;                    /* [n_rows, width] */
};

typedef struct gw_tower gw_tower;

/* options: those of the decoder; its mmproj or folder is opened. load_weights 0: it is only placed,
 * and can compute nothing. GW_E_UNSUPPORTED: there are no eyes. */
gw_status gw_tower_open(const gw_model_options *options, const gw_backend *const *backends,
                        int load_weights, gw_tower **out);
/* What it takes of the devices of a decoder, into place->taken; loaded: it has it already. */
void gw_tower_taken(const gw_tower *tower, int loaded, gw_place *place);
void gw_tower_free(gw_tower *tower);
/* The plans and their memory go until the next picture; its model, whose weights may then sleep. */
void gw_tower_rest(gw_tower *tower);
/* What a card has reserved for pictures is taken again. GW_E_NOMEM, GW_E_DEVICE. */
gw_status gw_tower_return(gw_tower *tower);
gw_model *gw_tower_model(gw_tower *tower);
/* Does it fit the decoder? GW_E_METADATA. Then the placeholder is known. */
gw_status gw_tower_check(gw_tower *tower, const gw_model *decoder);
/* How many layers of the decoder get rows of their own. */
int gw_tower_deep(const gw_tower *tower);
void gw_tower_describe(const gw_tower *tower, gw_eyes *out);
/* between may be NULL; see gw_model_see_between. */
gw_status gw_tower_see(gw_tower *tower, const gw_patches *patches, gw_between_fn between,
                       void *user, gw_sight **out);
/* One run over patches, of which nothing is kept. */
gw_status gw_tower_time(gw_tower *tower, const gw_patches *patches, gw_eyes_time *out);
gw_status gw_tower_roof(const gw_tower *tower, gw_roof *out); /* of its device */
/* Where row i of a sight stands in its picture: the tile, and in it row and column. */
void gw_sight_at(const gw_sight *sight, int32_t i, int32_t *tile, int32_t *row, int32_t *column);

/* ---- tower_grid.c: what the host makes for a grid ---- */

typedef enum gw_grid_kind {
    GW_GRID_NONE,
    GW_GRID_ALIGNED,  /* a square table, bilinear between its corners (Qwen3-VL)          */
    GW_GRID_ROWS,     /* a row for each patch, in order                                   */
    GW_GRID_TWO,      /* a table of columns, then one of rows, added up (Gemma 4)         */
    GW_GRID_CORNER,   /* the top left part of a square table                              */
    GW_GRID_BUCKETS,  /* of a square table the row and column at the same share (Idefics) */
    GW_GRID_BILINEAR, /* a square table resized, narrower with antialias (SigLIP 2)       */
    GW_GRID_BICUBIC,  /* a square table resized by a = -0.75 (MoonViT)                    */
    GW_GRID_KINDS
} gw_grid_kind;

/* Rows of positions of patches at[n] (row, column) of a grid of rows x columns, out of a table
 * [entries, d]. to [n, d]. GW_E_UNSUPPORTED: the table is too small. */
gw_status gw_grid_places(gw_grid_kind kind, const float *table, int64_t entries, int32_t d,
                         int32_t rows, int32_t columns, const int32_t (*at)[2], int32_t n,
                         float *to);

/* The order in which a tower takes the patches of a tile. All [n]. */
typedef struct gw_grid_order {
    int32_t n, n_windows;
    int32_t *from;    /* which of the patches as they come                               */
    int32_t (*at)[2]; /* row and column                                                 */
    int32_t *window;  /* its window, rising                                              */
    int32_t *group;   /* [n / merge^2] where the row of each group belongs in the result */
} gw_grid_order;

/* by_block: they come by groups of merge x merge; window: side of a window in groups, 0: none. */
gw_status gw_grid_arrange(int32_t rows, int32_t columns, int32_t merge, int by_block,
                          int32_t window, gw_grid_order *out);
void gw_grid_free(gw_grid_order *order);

#endif
