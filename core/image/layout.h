/* core/image/layout.h - how large a picture is made and into which tiles it is cut. */
#ifndef GW_IMAGE_LAYOUT_H
#define GW_IMAGE_LAYOUT_H

#include "core/image/patches.h"

typedef struct gw_extent {
    int32_t w, h;
} gw_extent;

typedef struct gw_layout {
    gw_extent first;  /* SPLIT: the picture is made so large before anything else; 0: it is not */
    gw_extent scaled; /* then so large                                                          */
    gw_extent canvas; /* padded with 0 to this, which is cut into tiles                         */
    int32_t rows, columns; /* of tiles                                                            */
    gw_extent whole; /* and the whole picture once more; 0: not                                */
    int whole_of_scaled; /* made of `scaled`, not of the picture itself                         */
} gw_layout;

/* GW_E_LIMIT: an aspect, or a size, that is refused. */
gw_status gw_layout_of(const char *where, const gw_processor *p, int32_t width, int32_t height,
                       gw_layout *out);

/* So many times as long as wide is the most that some rules take. */
enum { GW_LAYOUT_ASPECT = 200 };

#endif
