/* core/image/processor.c - the settings of a folder: preprocessor_config.json or
 * processor_config.json, and config.json for what they do not say. */
#include "core/image/processor.h"

#include <math.h>
#include <string.h>

#include "core/base/json.h"

typedef struct reading {
    const char *where;
    const json_t *settings; /* of the image processor */
    gw_processor p;
} reading;

/* ---- values ---------------------------------------------------------------------------------- */

/* An integer of 31 bits; unchanged where there is none. */
static gw_status small(const char *where, const json_t *object, const char *key, int32_t *out) {
    int64_t value = *out;
    GW_TRY(gw_json_int(where, object, key, &value));
    if (value < 0 || value > INT32_MAX) {
        return gw_fail(GW_E_METADATA, where, "%s is %lld", key, (long long)value);
    }
    *out = (int32_t)value;
    return GW_OK;
}

/* A side: 14, [14, 14] or {"height": 14, "width": 14}, all equal. */
static gw_status side(const char *where, const json_t *object, const char *key, int32_t *out) {
    const json_t *value = object != NULL ? json_object_get(object, key) : NULL;
    int32_t w = *out, h = *out;
    if (value == NULL || json_is_null(value)) {
        return GW_OK;
    }
    if (json_is_object(value)) {
        GW_TRY(small(where, value, "height", &h));
        GW_TRY(small(where, value, "width", &w));
    } else if (json_is_array(value) && json_array_size(value) == 2) {
        h = (int32_t)json_integer_value(json_array_get(value, 0));
        w = (int32_t)json_integer_value(json_array_get(value, 1));
    } else {
        GW_TRY(small(where, object, key, &w));
        h = w;
    }
    if (w != h) {
        return gw_fail(GW_E_UNSUPPORTED, where, "%s is %d x %d; only squares are read", key, (int)h,
                       (int)w);
    }
    *out = w;
    return GW_OK;
}

static gw_status triple(const reading *r, const char *key, float out[3]) {
    const json_t *list = json_object_get(r->settings, key);
    if (list == NULL || json_is_null(list)) {
        return GW_OK;
    }
    float value[3];
    for (size_t c = 0; c < 3; c++) {
        const json_t *item = json_is_array(list) ? json_array_get(list, c) : list;
        if (!json_is_number(item) || (json_is_array(list) && json_array_size(list) != 3)) {
            return gw_fail(GW_E_TYPE, r->where, "%s is not three numbers", key);
        }
        value[c] = (float)json_number_value(item);
    }
    memcpy(out, value, sizeof value);
    return GW_OK;
}

static gw_status flag(const reading *r, const char *key, int *out) {
    return gw_json_bool(r->where, r->settings, key, out);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static gw_status read_smart(reading *r, const json_t *size) {
    gw_processor *p = &r->p;
    GW_TRY(gw_json_int(r->where, size, "shortest_edge", &p->min_pixels));
    GW_TRY(gw_json_int(r->where, size, "longest_edge", &p->max_pixels));
    for (int i = 0; i < 2; i++) { /* older spellings count more */
        const json_t *from = i == 0 ? size : r->settings;
        GW_TRY(gw_json_int(r->where, from, "min_pixels", &p->min_pixels));
        GW_TRY(gw_json_int(r->where, from, "max_pixels", &p->max_pixels));
    }
    return GW_OK;
}

/* "size": {"height": .., "width": ..}, or one number. */
static gw_status read_sides(reading *r, const json_t *size) {
    if (json_is_integer(json_object_get(r->settings, "size"))) {
        GW_TRY(small(r->where, r->settings, "size", &r->p.side_h));
        r->p.side_w = r->p.side_h;
        return GW_OK;
    }
    GW_TRY(small(r->where, size, "height", &r->p.side_h));
    return small(r->where, size, "width", &r->p.side_w);
}

static gw_status read_tiles(reading *r) {
    gw_processor *p = &r->p;
    GW_TRY(flag(r, "do_image_splitting", &p->split));
    GW_TRY(flag(r, "crop_to_patches", &p->split));
    GW_TRY(flag(r, "use_thumbnail", &p->thumbnail));
    if (p->size == GW_SIZE_ASPECT || p->size == GW_SIZE_CANVAS) {
        GW_TRY(small(r->where, r->settings, "min_patches", &p->min_tiles));
        return small(r->where, r->settings, "max_patches", &p->max_tiles);
    }
    GW_TRY(small(r->where, r->settings, "min_tiles", &p->min_tiles));
    return small(r->where, r->settings, "max_tiles", &p->max_tiles);
}

static gw_status read_lfm2(reading *r) {
    gw_processor *p = &r->p;
    GW_TRY(small(r->where, r->settings, "downsample_factor", &p->merge));
    GW_TRY(small(r->where, r->settings, "encoder_patch_size", &p->patch));
    GW_TRY(small(r->where, r->settings, "min_image_tokens", &p->min_tokens));
    GW_TRY(small(r->where, r->settings, "max_image_tokens", &p->max_tokens));
    GW_TRY(small(r->where, r->settings, "tile_size", &p->side_h));
    p->side_w = p->side_h;
    return gw_json_real(r->where, r->settings, "max_pixels_tolerance", &p->tolerance);
}

static gw_status read_size(reading *r) {
    gw_processor *p = &r->p;
    json_t *size = NULL, *largest = NULL;
    if (json_is_object(json_object_get(r->settings, "size"))) {
        GW_TRY(gw_json_object(r->where, r->settings, "size", &size));
    }
    switch (p->size) {
    case GW_SIZE_SMART:
    case GW_SIZE_FRAMES:
        return read_smart(r, size);
    case GW_SIZE_FIXED:
    case GW_SIZE_ASPECT:
    case GW_SIZE_CANVAS:
        GW_TRY(read_sides(r, size));
        return read_tiles(r);
    case GW_SIZE_LONGEST:
        return small(r->where, size, "longest_edge", &p->longest);
    case GW_SIZE_BUDGET:
        GW_TRY(small(r->where, r->settings, "pooling_kernel_size", &p->merge));
        return small(r->where, r->settings, "max_soft_tokens", &p->max_tokens);
    case GW_SIZE_KIMI:
        GW_TRY(small(r->where, r->settings, "in_token_limit", &p->max_patches));
        GW_TRY(small(r->where, r->settings, "max_patches", &p->max_patches));
        GW_TRY(side(r->where, r->settings, "merge_kernel_size", &p->merge));
        return small(r->where, size, "max_height", &p->max_side);
    case GW_SIZE_SPLIT:
        GW_TRY(small(r->where, size, "longest_edge", &p->longest));
        GW_TRY(gw_json_object(r->where, r->settings, "max_image_size", &largest));
        GW_TRY(small(r->where, largest, "longest_edge", &p->side_h));
        p->side_w = p->side_h;
        return read_tiles(r);
    case GW_SIZE_LFM2:
        GW_TRY(read_lfm2(r));
        return read_tiles(r);
    }
    return GW_OK;
}

/* InternVLProcessor cuts pictures into tiles whatever its image processor's settings say. */
static gw_status read_wrapper(reading *r, const json_t *outer) {
    const char *name = NULL;
    GW_TRY(gw_json_text(r->where, r->settings, "processor_class", &name));
    GW_TRY(gw_json_text(r->where, outer, "processor_class", &name));
    r->p.split |= name != NULL && strcmp(name, "InternVLProcessor") == 0;
    return GW_OK;
}

/* ---- values of pixels ------------------------------------------------------------------------ */

static gw_status read_values(reading *r) {
    gw_processor *p = &r->p;
    int64_t filter = p->filter;
    int normalize = p->formula != GW_FORMULA_SCALE, rescale = 1, resize = 1, pan = 0;
    GW_TRY(gw_json_int(r->where, r->settings, "resample", &filter));
    p->filter = filter > 0 && filter < GW_FILTER_COUNT ? (gw_filter)filter : GW_FILTER_COUNT;
    if (p->filter == GW_FILTER_COUNT) {
        return gw_fail(GW_E_UNSUPPORTED, r->where,
                       "resample is %lld; 1 to 5, filters that smooth, are known",
                       (long long)filter);
    }
    GW_TRY(gw_json_real(r->where, r->settings, "rescale_factor", &p->scale));
    GW_TRY(triple(r, "image_mean", p->mean));
    GW_TRY(triple(r, "image_std", p->std));
    GW_TRY(flag(r, "do_normalize", &normalize));
    GW_TRY(flag(r, "do_rescale", &rescale));
    GW_TRY(flag(r, "do_resize", &resize));
    GW_TRY(flag(r, "do_pan_and_scan", &pan));
    if (!rescale || !resize || pan) {
        return gw_fail(GW_E_UNSUPPORTED, r->where, "%s is not known here",
                       pan        ? "do_pan_and_scan true"
                       : !rescale ? "do_rescale false"
                                  : "do_resize false");
    }
    if (!normalize) {
        p->formula = GW_FORMULA_SCALE;
    } else if (p->formula == GW_FORMULA_SCALE) {
        p->formula = GW_FORMULA_FOLDED;
    }
    return GW_OK;
}

/* InternVL's first form cuts pictures by code of its own, for which config.json has the numbers. */
static const char *own_code(const json_t *config) {
    const json_t *list = json_object_get(config, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    return name != NULL && strcmp(name, "InternVLChatModel") == 0 ? name : NULL;
}

static gw_status read_chat_model(reading *r, const json_t *config) {
    gw_processor *p = &r->p;
    GW_TRY(small(r->where, config, "force_image_size", &p->side_h));
    p->side_w = p->side_h;
    GW_TRY(small(r->where, config, "min_dynamic_patch", &p->min_tiles));
    GW_TRY(small(r->where, config, "max_dynamic_patch", &p->max_tiles));
    GW_TRY(gw_json_bool(r->where, config, "dynamic_image_size", &p->split));
    return gw_json_bool(r->where, config, "use_thumbnail", &p->thumbnail);
}

/* ---- what only config.json says ----------------------------------------------------------------
 */

/* Patch and merge sizes: the processor's own, then the wrapping processor's, then the model's. */
static gw_status read_patches(reading *r, const json_t *outer, const json_t *config) {
    gw_processor *p = &r->p;
    json_t *vision = NULL;
    int64_t per_tile = 0;
    double ratio = 0;
    int32_t factor = 0;
    if (config != NULL) {
        GW_TRY(gw_json_object(r->where, config, "vision_config", &vision));
    }
    GW_TRY(side(r->where, vision, "patch_size", &p->patch));
    if (vision != NULL) {
        GW_TRY(small(r->where, vision, "spatial_merge_size", &p->merge));
    }
    if (config != NULL) {
        GW_TRY(small(r->where, config, "spatial_merge_size", &p->merge));
        GW_TRY(small(r->where, config, "scale_factor", &factor));                /* Idefics 3 */
        GW_TRY(gw_json_int(r->where, config, "mm_tokens_per_image", &per_tile)); /* Gemma 3 */
        GW_TRY(gw_json_real(r->where, config, "downsample_ratio", &ratio));      /* InternVL */
    }
    if (vision != NULL && p->size == GW_SIZE_CANVAS) {
        GW_TRY(gw_json_real(r->where, vision, "pixel_shuffle_ratio", &ratio));
    }
    if (strcmp(p->kind, "internvl_chat") == 0) {
        GW_TRY(read_chat_model(r, config));
    }
    if (p->size == GW_SIZE_SPLIT && factor > 0) {
        p->merge = factor;
    }
    if (ratio > 0 && ratio <= 1 && (p->size == GW_SIZE_ASPECT || p->size == GW_SIZE_CANVAS)) {
        p->merge = (int32_t)lrint(1 / ratio);
    }
    GW_TRY(side(r->where, outer, "patch_size", &p->patch));
    GW_TRY(side(r->where, r->settings, "patch_size", &p->patch));
    GW_TRY(small(r->where, outer, "spatial_merge_size", &p->merge));
    GW_TRY(small(r->where, r->settings, "merge_size", &p->merge));
    GW_TRY(small(r->where, r->settings, "temporal_patch_size", &p->temporal));
    if (p->size == GW_SIZE_FIXED && per_tile > 0 && p->patch > 0) {
        p->merge = (int32_t)lrint(p->side_w / p->patch / sqrt((double)per_tile));
    }
    return GW_OK;
}

gw_status gw_processor_from_folder(const char *where, const json_t *settings, const json_t *config,
                                   gw_processor *out) {
    const char *name = NULL;
    json_t *nested = NULL;
    GW_TRY(gw_json_object(where, settings, "image_processor", &nested));
    reading r = {.where = where, .settings = nested != NULL ? nested : settings};
    GW_TRY(gw_json_text(where, r.settings, "image_processor_type", &name));
    name = name != NULL ? name : own_code(config);
    if (name == NULL || !gw_processor_of_class(name, &r.p)) {
        return gw_fail(GW_E_UNSUPPORTED, where, "image_processor_type %.60s is not known here",
                       name != NULL ? name : "(none)");
    }
    GW_TRY(read_size(&r));
    GW_TRY(read_wrapper(&r, settings));
    GW_TRY(read_values(&r));
    GW_TRY(read_patches(&r, settings, config));
    GW_TRY(gw_processor_check(where, &r.p));
    *out = r.p;
    return GW_OK;
}
