/* core/image/patches.h - from a decoded picture to the values that a vision tower reads.
 *
 * A processor holds the settings of one model: how its pictures are resized, normalised and cut
 * into patches. It is plain data, read once from the configuration of a folder or the keys of an
 * mmproj file; any thread may use it. Bits follow the published processor (transformers 5.24):
 * pixels are resized in 8 bits as torchvision or Pillow does (core/image/resize.h; which one: the
 * table in core/image/processor.c), then each becomes a float32 by the formula that the processor
 * has.
 */
#ifndef GW_IMAGE_PATCHES_H
#define GW_IMAGE_PATCHES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/image/picture.h"
#include "core/image/resize.h"

/* ---- processors ---------------------------------------------------------------------------- */

/* How the size of what is cut into patches follows from a picture's size. */
typedef enum gw_size_rule {
    GW_SIZE_SMART,   /* Qwen2-VL and followers: multiples of patch * merge, area within pixels    */
    GW_SIZE_FRAMES,  /* GLM-4V: as SMART, pixels of all frames counted; what is less than one
                      * merged patch is enlarged to it first                                      */
    GW_SIZE_FIXED,   /* Gemma 3, SigLIP: side_h x side_w                                          */
    GW_SIZE_LONGEST, /* Pixtral: longest edge at most, both rounded up to patch * merge           */
    GW_SIZE_BUDGET,  /* Gemma 4: aspect kept, largest multiples of patch * merge within tokens    */
    GW_SIZE_KIMI,    /* Kimi-VL, K2.5: patches within a budget, then padded to patch * merge      */
    GW_SIZE_SPLIT,   /* Idefics 3, SmolVLM: longest edge, tiles of one side and the whole         */
    GW_SIZE_ASPECT,  /* InternVL: the grid of tiles of nearest aspect, and a thumbnail            */
    GW_SIZE_LFM2,    /* LFM2-VL: one picture where it fits, else tiles and a thumbnail            */
    GW_SIZE_CANVAS   /* Llama 4: the best of the possible grids, padded, and the whole            */
} gw_size_rule;

/* Order of patches in a tile: by rows, or by blocks of merge x merge whose blocks go by rows. */
typedef enum gw_patch_order { GW_PATCHES_BY_ROW, GW_PATCHES_BY_BLOCK } gw_patch_order;
/* Order of a patch's values: [3, temporal, patch, patch], or [patch, patch, 3]. */
typedef enum gw_value_order { GW_VALUES_PLANES, GW_VALUES_PIXELS } gw_value_order;

/* A value of a pixel x, all in float32. */
typedef enum gw_formula {
    GW_FORMULA_FOLDED, /* (x - mean / scale) / (std / scale)                                 */
    GW_FORMULA_SCALE,  /* x * scale                                                          */
    GW_FORMULA_PLAIN,  /* (x / 255 - mean) / std                                             */
    GW_FORMULA_BF16    /* (x * scale - mean) / std, each step rounded to bfloat16            */
} gw_formula;

enum { GW_PROCESSOR_FILE = 160 };

typedef struct gw_processor {
    char kind[32]; /* "qwen2_vl", "gemma3", "pixtral", ...: a row of the table of kinds */
    gw_size_rule size;
    gw_filter filter;
    gw_pixel_rule pixels;
    gw_patch_order order;
    gw_value_order values;
    gw_formula formula;
    int32_t patch;          /* side of a patch in pixels                                         */
    int32_t merge;          /* merge x merge patches give one token                              */
    int32_t temporal;       /* how often a value stands, between planes and rows. The values are
                               equal: whoever adds the weights of all frames may set this to 1   */
    int32_t side_h, side_w; /* FIXED; of tiles: SPLIT, ASPECT, LFM2, CANVAS        */
    int32_t longest;        /* LONGEST, SPLIT: pixels of the longer edge           */
    int64_t min_pixels, max_pixels; /* SMART, FRAMES                                        */
    int32_t min_tokens, max_tokens; /* LFM2: of what is no tile; BUDGET: max alone         */
    int32_t max_patches, max_side;  /* KIMI: in all, of an edge                            */
    int32_t min_tiles, max_tiles;   /* ASPECT, LFM2; CANVAS: max alone                     */
    int split;                      /* SPLIT, ASPECT, LFM2: pictures may become tiles      */
    int thumbnail;                  /* ASPECT, LFM2: and the whole picture is another      */
    double tolerance;               /* LFM2: how far above max_tokens there are no tiles   */
    double scale;                   /* 1/255: rescale_factor                               */
    float mean[3], std[3];
    char file[GW_PROCESSOR_FILE]; /* that says all this, for messages; cut in front; "": none */
} gw_processor;

/* settings: preprocessor_config.json, or processor_config.json, whose image_processor is taken;
 * config: config.json, of which patch and merge sizes are taken where settings have none. config
 * may be NULL. GW_E_METADATA, GW_E_TYPE: a value that cannot be; GW_E_UNSUPPORTED: a processor of
 * no known kind. */
gw_status gw_processor_from_folder(const char *where, const json_t *settings, const json_t *config,
                                   gw_processor *out);
/* keys: the metadata of an mmproj file as an object, "vision.patch_size" and so on, as
 * gw_config_gguf_facts gives it for the architecture "clip". */
gw_status gw_processor_from_mmproj(const char *where, const json_t *keys, gw_processor *out);

/* ---- patches ------------------------------------------------------------------------------- */

/* One picture as the tower sees it: attention and positions are those of a tile. */
typedef struct gw_tile {
    int64_t first;             /* its first row in values                                */
    int32_t rows, columns;     /* its grid, in patches                                   */
    int32_t tokens;            /* rows of the text that its features take                */
    int32_t at_row, at_column; /* in the grid of tiles; -1: the whole picture            */
} gw_tile;

typedef struct gw_patches {
    int64_t n;        /* patches of all tiles                                               */
    int32_t width;    /* values of one: 3 * temporal * patch * patch                        */
    int32_t temporal; /* how often each value stands in it; 0: no processor made them     */
    float *values;    /* [n, width]                                                         */
    int32_t n_tiles;
    gw_tile *tile;                     /* [n_tiles] in the order of their features in the text */
    int32_t tile_rows, tile_columns;   /* the grid of tiles; 0, 0: one tile, the whole picture */
    int64_t tokens;                    /* of all tiles                                     */
    uint8_t digest[GW_PICTURE_DIGEST]; /* the picture's                                  */
    char settings[GW_PROCESSOR_FILE];  /* the processor's file                           */
} gw_patches;

/* Only the sizes: values stay NULL. For counts of tokens. GW_E_LIMIT: a picture of an aspect or
 * size that the processor refuses; GW_E_NOMEM. */
gw_status gw_patches_plan(const char *where, const gw_processor *p, int32_t width, int32_t height,
                          gw_patches *out);
/* No tile of a picture has more patches, of pictures up to 200 times as long as wide (layout.c). */
int64_t gw_patches_most(const gw_processor *p);
/* The whole. *out: gw_patches_free. */
gw_status gw_patches_make(const char *where, const gw_processor *p, const gw_picture *picture,
                          gw_patches *out);
void gw_patches_free(gw_patches *patches); /* what it holds; accepts one that is all 0 */

#endif
