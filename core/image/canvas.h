/* core/image/canvas.h - Llama 4's choice among grids of tiles. */
#ifndef GW_IMAGE_CANVAS_H
#define GW_IMAGE_CANVAS_H

#include "core/image/layout.h"

/* Writes scaled, canvas, rows, columns and whole. */
gw_status gw_canvas_choose(const char *where, const gw_processor *p, int32_t width, int32_t height,
                           gw_layout *out);

#endif
