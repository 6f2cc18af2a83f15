/* core/image/processor_mmproj.c - the settings of an mmproj file. Such a file names a projector and
 * some numbers; filters and limits that it does not state are those of the published checkpoints.
 */
#include <math.h>
#include <string.h>

#include "core/base/json.h"
#include "core/image/processor.h"

/* What published checkpoints have and their classes' defaults do not. */
static void published(const char *projector, gw_processor *p) {
    if (strcmp(projector, "qwen3vl_merger") == 0) { /* Qwen3-VL, Qwen3.5 */
        p->patch = 16;
        p->min_pixels = 65536;
        p->max_pixels = 16777216;
    } else if (p->size == GW_SIZE_SMART) { /* Qwen2-VL, Qwen2.5-VL */
        p->min_pixels = 3136;
        p->max_pixels = 12845056;
    } else if (p->size == GW_SIZE_FRAMES) { /* GLM-4.1V, GLM-4.5V */
        p->max_pixels = 9633792;
    } else if (p->size == GW_SIZE_SPLIT) { /* SmolVLM */
        p->longest = 2048;
    } else if (p->size == GW_SIZE_ASPECT) { /* InternVL 3 */
        p->split = 1;
    }
}

static gw_status number(const char *where, const json_t *keys, const char *key, int32_t *out) {
    int64_t value = *out;
    GW_TRY(gw_json_int(where, keys, key, &value));
    if (value < 0 || value > INT32_MAX) {
        return gw_fail(GW_E_METADATA, where, "clip.%s is %lld", key, (long long)value);
    }
    *out = (int32_t)value;
    return GW_OK;
}

static gw_status triple(const char *where, const json_t *keys, const char *key, float out[3]) {
    json_t *list = NULL;
    GW_TRY(gw_json_array(where, keys, key, &list));
    if (list == NULL) {
        return GW_OK;
    }
    for (size_t c = 0; c < 3; c++) {
        const json_t *item = json_array_get(list, c);
        if (!json_is_number(item)) {
            return gw_fail(GW_E_TYPE, where, "clip.%s is not three numbers", key);
        }
        out[c] = (float)json_number_value(item);
    }
    return GW_OK;
}

static gw_status read_sizes(const char *where, const json_t *keys, gw_processor *p) {
    int32_t image = 0, whole = 0, low = 0, high = 0;
    GW_TRY(number(where, keys, "vision.patch_size", &p->patch));
    GW_TRY(number(where, keys, "vision.spatial_merge_size", &p->merge));
    GW_TRY(number(where, keys, "vision.projector.scale_factor", &p->merge));
    GW_TRY(number(where, keys, "vision.image_size", &image));
    GW_TRY(number(where, keys, "vision.preproc_image_size", &whole));
    GW_TRY(number(where, keys, "vision.preproc_min_tiles", &p->min_tiles));
    GW_TRY(number(where, keys, "vision.preproc_max_tiles", &p->max_tiles));
    GW_TRY(number(where, keys, "vision.image_min_pixels", &low));
    GW_TRY(number(where, keys, "vision.image_max_pixels", &high));
    if (p->size == GW_SIZE_SMART || p->size == GW_SIZE_FRAMES) {
        int64_t times = p->size == GW_SIZE_FRAMES ? p->temporal : 1;
        p->min_pixels = low > 0 ? low * times : p->min_pixels;
        p->max_pixels = high > 0 ? high * times : p->max_pixels;
    }
    if (p->size == GW_SIZE_LONGEST && image > 0) {
        p->longest = image;
    }
    if (p->size == GW_SIZE_SPLIT && whole > 0) {
        p->longest = whole;
    }
    if (image > 0 && p->size != GW_SIZE_LFM2) { /* its tiles are 512 whatever the table's size */
        p->side_w = p->side_h = image;
    }
    if (p->size == GW_SIZE_FIXED && p->patch > 0 && strcmp(p->kind, "gemma3") == 0) {
        p->merge = (int32_t)lrint(p->side_w / p->patch / 16.0); /* 16 x 16 tokens */
    }
    return GW_OK;
}

gw_status gw_processor_from_mmproj(const char *where, const json_t *keys, gw_processor *out) {
    const char *projector = NULL;
    GW_TRY(gw_json_text(where, keys, "projector_type", &projector));
    GW_TRY(gw_json_text(where, keys, "vision.projector_type", &projector));
    gw_processor p;
    if (projector == NULL || !gw_processor_of_projector(projector, &p)) {
        return gw_fail(GW_E_UNSUPPORTED, where, "clip.projector_type %.60s is not known here",
                       projector != NULL ? projector : "(none)");
    }
    published(projector, &p);
    GW_TRY(read_sizes(where, keys, &p));
    GW_TRY(triple(where, keys, "vision.image_mean", p.mean));
    GW_TRY(triple(where, keys, "vision.image_std", p.std));
    GW_TRY(gw_processor_check(where, &p));
    *out = p;
    return GW_OK;
}
