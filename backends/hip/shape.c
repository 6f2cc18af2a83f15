/* backends/hip/shape.c - the shape of a linear product's launch: variants of kernels by how many
 * rows of x they take, and how shared memory is cut among slots of weights, rows of x and sums.
 */
#include <string.h>

#include "backends/hip/shape.h"
#include "kernels_hip/linear/linear_params.h"
#include "kernels_hip/strip.h"
#include "kernels_hip/strip_e4m3.h"

#define RECORD(FORMAT, name, low, high, offset, levels, term, sub, heads, bytes)                   \
    [GW_FMT_##FORMAT] = GW_STRIP_RECORD(low, high, sub, heads, bytes),
static const int record_bytes[GW_FMT_COUNT] = {
    GW_STRIP_FORMATS(RECORD)[GW_FMT_F32] = GW_LINEAR_FLOAT_RECORD,
    [GW_FMT_F16] = GW_LINEAR_FLOAT_RECORD,
    [GW_FMT_BF16] = GW_LINEAR_FLOAT_RECORD,
    [GW_FMT_E4M3] = GW_STRIP_E4M3_SLOT,
    [GW_FMT_NVFP4_CODES] = GW_STRIP_NVFP4_SLOT,
};

int gw_hip_record_bytes(gw_fmt fmt) { return record_bytes[fmt]; }

const char *gw_hip_kernels_of(gw_fmt fmt) {
    typedef struct look {
        gw_fmt fmt;
        const char *name;
        int numbers[8];
    } look;
#define LOOK(FORMAT, name, ...) {GW_FMT_##FORMAT, #name, {__VA_ARGS__}},
#define FLOATS(FORMAT, name) {GW_FMT_##FORMAT, name, {0}},
    static const look with[] = {FLOATS(F32, "f32") FLOATS(F16, "f16") FLOATS(BF16, "bf16")
                                    FLOATS(E4M3, "e4m3") FLOATS(NVFP4_CODES, "nvfp4_codes")
                                    GW_STRIP_KERNELS(LOOK)};
    static const look all[] = {GW_STRIP_FORMATS(LOOK)};
#undef LOOK
#undef FLOATS
    const int *numbers = NULL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        numbers = all[i].fmt == fmt ? all[i].numbers : numbers;
    }
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        if (with[i].fmt == fmt ||
            (numbers != NULL && memcmp(with[i].numbers, numbers, sizeof with[i].numbers) == 0)) {
            return with[i].name;
        }
    }
    return "none"; /* no format of strips */
}

int gw_hip_has_matrices(const struct gw_device *d) {
    return d->processor->matrix != GW_MATRIX_NONE;
}

int gw_hip_has_copies(const struct gw_device *d) { return d->processor->copies; }

int gw_hip_has_clusters(const struct gw_device *d) {
    return d->driver->nvidia && !d->driver->emulated && d->programmatic &&
           d->driver->LaunchEx != NULL;
}

/* Waves of a tile whose sums come together in shared memory. */
static int classes_of(gw_fmt fmt) {
    return gw_format_of(fmt)->is_float && fmt != GW_FMT_F32 ? 4 : GW_LINEAR_CLASSES;
}

/* Bytes of a wave's slot. */
static int slot_bytes(const struct gw_device *d, gw_fmt fmt) {
    int more = fmt == GW_FMT_E4M3 && gw_hip_has_copies(d);
    return record_bytes[fmt] * (more ? GW_LINEAR_E4M3_RECORDS : 1);
}

/* Shared memory of a block with s->depth slots to a wave, as gw_product of
 * kernels_hip/linear/linear_async.h or linear_registers.h cuts it up. 0 when it does not fit. */
static int fits_so(const struct gw_device *d, gw_fmt fmt, gw_linear_shape *s, int glu) {
    int waves = GW_LINEAR_THREADS / d->warp, copies = gw_hip_has_copies(d);
    int sums = s->groups * GW_LINEAR_SUMS(s->most, classes_of(fmt));
    int pieces = copies && s->span > 0;
    int x = 4 * (pieces ? s->span * GW_LINEAR_PIECE_STEP : s->row_words);
    int bytes = waves * slot_bytes(d, fmt) * s->depth + s->width * x + GW_LINEAR_FACTORS +
                (copies ? GW_LINEAR_GATES + 4 * s->places * sums
                        : 4 * (GW_LINEAR_COLUMNS(s->width, glu, s->behind) + sums));
    s->threads = (unsigned)GW_LINEAR_BLOCK(s->most, copies, pieces);
    s->shared = (unsigned)bytes;
    if (bytes > d->shared_bytes) {
        return 0;
    }
    /* On NVIDIA the block of a later kernel beside this one takes its bandwidth: room for one. */
    unsigned alone = (unsigned)d->shared_bytes / 2 + 1024;
    s->shared = d->driver->nvidia && s->shared < alone ? alone : s->shared;
    return 1;
}

/* With as many slots as fit. 0 when none do. */
static int fits(const struct gw_device *d, gw_fmt fmt, gw_linear_shape *s, int glu) {
    int copies = gw_hip_has_copies(d), most = GW_LINEAR_DEPTH(slot_bytes(d, fmt));
    int depths[] = {most, GW_LINEAR_SOME, GW_LINEAR_LESS};
    for (int i = 0; i < 3; i++) {
        s->depth = copies ? depths[i] : 1;
        /* Of many rows the sums take long to join: waves that multiply go on meanwhile. */
        int fewest = s->most > 8 && copies && i < 2 ? 2 : 1;
        for (s->places = copies ? GW_LINEAR_PLACES : 1; s->places >= fewest; s->places--) {
            if (s->depth <= most && fits_so(d, fmt, s, glu)) {
                return 1;
            }
        }
    }
    return 0;
}

/* 0 when nothing fits. */
static int float_shape(const struct gw_device *d, gw_fmt fmt, int rows, size_t cols, int glu,
                       int behind, gw_linear_shape *s) {
    static const char *const variants[] = {"_1", "_2", "_4"};
    int pair = fmt == GW_FMT_F32 ? 1 : 2, split = pair == 2 && d->warp == 32;
    int waves = split ? 8 : 8 / pair; /* of a tile */
    int i = rows == 1 ? 0 : rows == 2 ? 1 : 2;
    *s = (gw_linear_shape){.groups = GW_LINEAR_THREADS / d->warp / waves, .behind = behind};
    s->row_words = (int)((cols + GW_STRIP_FLOATS - 1) / GW_STRIP_FLOATS * GW_STRIP_FLOATS);
    for (; i >= 0; i--) {
        s->variant = variants[i];
        s->width = s->most = 1 << i;
        if (fits(d, fmt, s, glu)) {
            return 1;
        }
    }
    s->variant = "_long"; /* x stays in global memory: whole records only */
    s->row_words = 0;
    return cols % GW_STRIP_FLOATS == 0 && fits(d, fmt, s, glu);
}

/* Rows of x that do not fit together come in pieces: with GW_COPIES of a slot's columns each,
 * several at a time; else the fewest with which so many rows fit. */
static int pieces_shape(const struct gw_device *d, gw_fmt fmt, size_t cols, int glu,
                        gw_linear_shape *s) {
    const size_t slot = (size_t)GW_LINEAR_CLASSES * GW_STRIP_BLOCKS * GW_ACT_BLOCK;
    int slots = (int)((cols + slot - 1) / slot);
    s->row_words = 0;
    if (gw_hip_has_copies(d)) {
        for (s->span = GW_LINEAR_PIECES; s->span > 0; s->span /= 2) {
            if (fits(d, fmt, s, glu)) {
                return 1;
            }
        }
        return 0;
    }
    s->depth = 1;
    for (int n = 2; n <= slots; n++) {
        s->span = (slots + n - 1) / n;
        s->row_words = s->span * GW_LINEAR_PIECE + (36 - s->span * GW_LINEAR_PIECE % 32) % 32;
        if (fits_so(d, fmt, s, glu)) {
            return 1;
        }
    }
    return 0;
}

static int quant_shape(const struct gw_device *d, gw_fmt fmt, int rows, size_t cols, int glu,
                       int behind, gw_linear_shape *s) {
    size_t span = GW_STRIP_BLOCKS * GW_ACT_BLOCK;
    int words = (int)((cols + span - 1) / span * GW_ACT_GROUP_WORDS);
    int columns = gw_hip_is_wide(d) ? 8 : 16; /* of a matrix instruction */
    const gw_linear_shape none = {.groups = GW_LINEAR_THREADS / d->warp / GW_LINEAR_CLASSES,
                                  .behind = behind};
    const struct {
        int rows, most; /* for more rows than .rows; that the kernel can have */
        const char *variant, *pieces;
    } ways[] = {{gw_hip_has_copies(d) ? 8 : INT32_MAX, GW_LINEAR_MANY, "_many", NULL},
                {4, columns, "_wide", "_pieces"},
                {1, 4, "_four", NULL}, /* half of the columns of an instruction, or less */
                {1, columns, NULL, "_pieces"}};
    for (size_t i = 0; gw_hip_has_matrices(d) && i < sizeof ways / sizeof ways[0]; i++) {
        if (rows <= ways[i].rows) {
            continue;
        }
        for (int pieces = 0; pieces < 2; pieces++) {
            *s = none;
            s->variant = pieces ? ways[i].pieces : ways[i].variant;
            s->most = ways[i].most;
            /* Fewer would read weights more than once. Many have a place each, alive or not. */
            s->width = i > 0 && rows < s->most ? rows : s->most;
            s->row_words = words + (36 - words % 32) % 32; /* rows 4 banks apart */
            if (s->variant != NULL && (pieces ? pieces_shape(d, fmt, cols, glu, s)
                                              : fits(d, fmt, s, glu))) {
                return 1;
            }
        }
    }
    *s = none;
    s->variant = "";
    s->width = s->most = 1;
    s->row_words = words;
    return fits(d, fmt, s, glu);
}

int gw_hip_shape(const struct gw_device *d, const gw_tensor *w, int rows, int glu, int behind,
                 gw_linear_shape *s) {
    size_t cols = gw_hip_width(w);
    return gw_format_of(w->fmt)->is_float ? float_shape(d, w->fmt, rows, cols, glu, behind, s)
                                          : quant_shape(d, w->fmt, rows, cols, glu, behind, s);
}

int gw_hip_stand_alone(unsigned units, unsigned items, unsigned grid, unsigned blocks) {
    unsigned last = grid > 0 ? items % grid : 0;
    unsigned early = grid == 0 || grid > units ? 0 : units - (last > 0 ? last : grid);
    return blocks <= units && (blocks <= early || blocks > 2 * early);
}
