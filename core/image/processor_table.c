/* core/image/processor_table.c - kinds of processors: whose pixels, which filter, which sizes, as
 * their classes in transformers 5.24 have them where a file does not say (merge and temporal: 1,
 * scale: 1/255). That version resizes with torchvision in each of its own classes; Kimi-VL's
 * published code uses Pillow. */
#include <string.h>

#include "core/image/processor.h"

#define CLIP_MEAN                                                                                  \
    { 0.48145466F, 0.4578275F, 0.40821073F }
#define CLIP_STD                                                                                   \
    { 0.26862954F, 0.26130258F, 0.27577711F }
#define HALVES                                                                                     \
    { 0.5F, 0.5F, 0.5F }

/* clang-format off */
static const gw_processor kinds[] = {
    {.kind = "qwen2_vl", .temporal = 2, .size = GW_SIZE_SMART, .filter = GW_FILTER_BICUBIC,
     .order = GW_PATCHES_BY_BLOCK, .patch = 14, .merge = 2, .min_pixels = 3136, .max_pixels = 1003520,
     .mean = CLIP_MEAN, .std = CLIP_STD},
    {.kind = "glm4v", .temporal = 2, .size = GW_SIZE_FRAMES, .filter = GW_FILTER_BICUBIC,
     .order = GW_PATCHES_BY_BLOCK, .patch = 14, .merge = 2, .min_pixels = 12544, .max_pixels = 11760000,
     .mean = CLIP_MEAN, .std = CLIP_STD},
    {.kind = "gemma3", .size = GW_SIZE_FIXED, .filter = GW_FILTER_BILINEAR, .patch = 14,
     .merge = 4, .side_h = 224, .side_w = 224, .mean = HALVES, .std = HALVES},
    {.kind = "siglip", .size = GW_SIZE_FIXED, .filter = GW_FILTER_BICUBIC, .patch = 16,
     .side_h = 224, .side_w = 224, .mean = HALVES, .std = HALVES},
    {.kind = "gemma4", .size = GW_SIZE_BUDGET, .filter = GW_FILTER_BICUBIC,
     .values = GW_VALUES_PIXELS, .formula = GW_FORMULA_SCALE, .patch = 16, .merge = 3,
     .max_tokens = 280, .std = {1, 1, 1}},
    {.kind = "pixtral", .size = GW_SIZE_LONGEST, .filter = GW_FILTER_BICUBIC, .patch = 16,
     .longest = 1024, .mean = CLIP_MEAN, .std = CLIP_STD},
    {.kind = "idefics3", .size = GW_SIZE_SPLIT, .filter = GW_FILTER_LANCZOS, .patch = 14,
     .longest = 1456, .side_h = 364, .side_w = 364, .split = 1, .mean = HALVES, .std = HALVES},
    {.kind = "internvl", .size = GW_SIZE_ASPECT, .filter = GW_FILTER_BICUBIC, .patch = 14,
     .merge = 2, .side_h = 384, .side_w = 384, .min_tiles = 1, .max_tiles = 12, .thumbnail = 1,
     .mean = CLIP_MEAN, .std = CLIP_STD},
    {.kind = "internvl_chat", .pixels = GW_PIXELS_PIL, .size = GW_SIZE_ASPECT,
     .filter = GW_FILTER_BICUBIC, .formula = GW_FORMULA_PLAIN, .patch = 14, .merge = 2,
     .side_h = 448, .side_w = 448, .min_tiles = 1, .max_tiles = 12, .split = 1, .thumbnail = 1,
     .mean = {0.485F, 0.456F, 0.406F}, .std = {0.229F, 0.224F, 0.225F}},
    {.kind = "lfm2_vl", .size = GW_SIZE_LFM2, .filter = GW_FILTER_BILINEAR,
     .values = GW_VALUES_PIXELS, .patch = 16, .merge = 2, .side_h = 512, .side_w = 512,
     .min_tokens = 64, .max_tokens = 256, .min_tiles = 2, .max_tiles = 10, .split = 1, .thumbnail = 1,
     .tolerance = 2.0, .mean = HALVES, .std = HALVES},
    {.kind = "llama4", .size = GW_SIZE_CANVAS, .filter = GW_FILTER_BILINEAR,
     .formula = GW_FORMULA_BF16, .patch = 14, .merge = 2, .side_h = 336, .side_w = 336,
     .max_tiles = 16, .mean = HALVES, .std = HALVES},
    {.kind = "kimi_k25", .size = GW_SIZE_KIMI, .filter = GW_FILTER_BICUBIC, .patch = 14,
     .merge = 2, .max_patches = 16384, .max_side = 512, .mean = HALVES, .std = HALVES},
    {.kind = "kimi_vl", .pixels = GW_PIXELS_PIL, .size = GW_SIZE_KIMI,
     .filter = GW_FILTER_BICUBIC, .formula = GW_FORMULA_PLAIN, .patch = 14, .merge = 2,
     .max_patches = 4096, .max_side = 512, .mean = HALVES, .std = HALVES},
};

/* Names of classes, and projectors of mmproj files. */
static const struct {
    const char *name, *kind;
} classes[] = {
    {"Qwen2VLImageProcessor", "qwen2_vl"},   {"Qwen2_5_VLImageProcessor", "qwen2_vl"},
    {"Qwen3VLImageProcessor", "qwen2_vl"},   {"Gemma3ImageProcessor", "gemma3"},
    {"SiglipImageProcessor", "siglip"},      {"Gemma4ImageProcessor", "gemma4"},
    {"PixtralImageProcessor", "pixtral"},    {"Idefics3ImageProcessor", "idefics3"},
    {"SmolVLMImageProcessor", "idefics3"},   {"GotOcr2ImageProcessor", "internvl"},
    {"Lfm2VlImageProcessor", "lfm2_vl"},     {"Llama4ImageProcessor", "llama4"},
    {"InternVLChatModel", "internvl_chat"},
    {"Kimi_K25ImageProcessor", "kimi_k25"},  {"KimiVLImageProcessor", "kimi_vl"},
    {"Glm4vImageProcessor", "glm4v"},        {"Glm46VImageProcessor", "glm4v"},
}, projectors[] = {
    {"qwen2vl_merger", "qwen2_vl"}, {"qwen2.5vl_merger", "qwen2_vl"}, {"qwen3vl_merger", "qwen2_vl"},
    {"gemma3", "gemma3"},           {"gemma4v", "gemma4"},            {"gemma4uv", "gemma4"},
    {"pixtral", "pixtral"},         {"lightonocr", "pixtral"},        {"idefics3", "idefics3"},
    {"internvl", "internvl"},       {"lfm2", "lfm2_vl"},              {"llama4", "llama4"},
    {"kimivl", "kimi_vl"},          {"kimik25", "kimi_k25"},          {"glm4v", "glm4v"},
};
/* clang-format on */

static int take(const char *kind, gw_processor *out) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].kind, kind) == 0) {
            *out = kinds[i];
            out->merge = out->merge != 0 ? out->merge : 1;
            out->temporal = out->temporal != 0 ? out->temporal : 1;
            out->scale = 1.0 / 255;
            return 1;
        }
    }
    return 0;
}

int gw_processor_of_class(const char *name, gw_processor *out) {
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        size_t n = strlen(classes[i].name);
        const char *rest = name + n;
        if (strncmp(name, classes[i].name, n) == 0 &&
            (*rest == '\0' || strcmp(rest, "Fast") == 0 || strcmp(rest, "Pil") == 0)) {
            return take(classes[i].kind, out);
        }
    }
    return 0;
}

int gw_processor_of_projector(const char *name, gw_processor *out) {
    for (size_t i = 0; i < sizeof projectors / sizeof projectors[0]; i++) {
        if (strcmp(name, projectors[i].name) == 0) {
            return take(projectors[i].kind, out);
        }
    }
    return 0;
}

/* ---- what the rules can compute with -----------------------------------------------------------
 */

static int within(int64_t value, int64_t low, int64_t high) {
    return value >= low && value <= high;
}

static const char *odd_number(const gw_processor *p) {
    int tiles = p->size == GW_SIZE_SPLIT || p->size == GW_SIZE_ASPECT || p->size == GW_SIZE_LFM2 ||
                p->size == GW_SIZE_CANVAS;
    int64_t multiple = (int64_t)p->patch * p->merge;
    if (!within(p->patch, 1, 256)) {
        return "patch_size";
    }
    if (!within(p->merge, 1, 16)) {
        return "merge_size";
    }
    if (!within(p->temporal, 1, 8)) {
        return "temporal_patch_size";
    }
    if ((tiles || p->size == GW_SIZE_FIXED) &&
        (!within(p->side_w, multiple, 8192) || !within(p->side_h, multiple, 8192))) {
        return "size";
    }
    if ((p->size == GW_SIZE_LONGEST || p->size == GW_SIZE_SPLIT) && !within(p->longest, 1, 65535)) {
        return "longest_edge";
    }
    if ((p->size == GW_SIZE_SMART || p->size == GW_SIZE_FRAMES) &&
        !(within(p->min_pixels, 0, p->max_pixels) && within(p->max_pixels, 1, GW_PICTURE_PIXELS))) {
        return "min_pixels or max_pixels";
    }
    if ((p->size == GW_SIZE_BUDGET || p->size == GW_SIZE_LFM2) &&
        !(within(p->max_tokens, 1, 1 << 20) && within(p->min_tokens, 0, p->max_tokens))) {
        return "number of tokens";
    }
    if (p->size == GW_SIZE_KIMI &&
        !(within(p->max_patches, 1, 1 << 20) && within(p->max_side, 1, 4096))) {
        return "number of patches";
    }
    if (tiles && p->size != GW_SIZE_SPLIT &&
        !(within(p->max_tiles, 1, GW_MOST_TILES) && within(p->min_tiles, 0, p->max_tiles))) {
        return "number of tiles";
    }
    return NULL;
}

gw_status gw_processor_check(const char *where, const gw_processor *p) {
    const char *odd = odd_number(p);
    if (odd != NULL) {
        return gw_fail(GW_E_METADATA, where, "%s of the %s image processor is not possible", odd,
                       p->kind);
    }
    if (p->filter < GW_FILTER_LANCZOS || p->filter >= GW_FILTER_COUNT) {
        return gw_fail(GW_E_UNSUPPORTED, where, "resample %d: 1 to 5 are known", (int)p->filter);
    }
    for (int c = 0; c < 3; c++) {
        if (!(p->std[c] > 0 && p->std[c] < 1e6F && p->mean[c] > -1e6F && p->mean[c] < 1e6F)) {
            return gw_fail(GW_E_METADATA, where, "image_mean or image_std is not possible");
        }
    }
    if (!(p->scale > 1e-6 && p->scale < 1e6 && p->tolerance >= 0)) {
        return gw_fail(GW_E_METADATA, where, "rescale_factor is not possible");
    }
    return GW_OK;
}
