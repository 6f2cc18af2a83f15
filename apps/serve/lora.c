/* apps/serve/lora.c - see lora.h. */
#include "apps/serve/lora.h"

#include <math.h>

int lora_read_list(const json_t *list, const char *field, gw_lora_pick *out, fault *f) {
    *out = (gw_lora_pick){0};
    if (!json_is_array(list)) {
        return fault_set(f, 400, "lora", "%s: expected a list of {\"id\": N, \"scale\": X}", field);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *id = json_object_get(one, "id");
        const json_t *scale = json_object_get(one, "scale");
        double x = json_number_value(scale);
        json_int_t number = json_integer_value(id);
        if (!json_is_integer(id) || !json_is_number(scale) || number < 0 ||
            number >= GW_LORA_MOST || !(fabs(x) <= 1e6)) {
            return fault_set(f, 400, "lora",
                             "%s: entry %zu has no id of an adapter and a scale from -1000000 to "
                             "1000000",
                             field, i);
        }
        if ((float)x == 0.0f) {
            continue;
        }
        if (out->n == GW_LORA_AT_ONCE) {
            return fault_set(f, 400, "lora", "%s: a text has at most %d adapters at once", field,
                             (int)GW_LORA_AT_ONCE);
        }
        out->adapter[out->n] = (int32_t)number;
        out->scale[out->n++] = (float)x;
    }
    return 0;
}

int lora_check_pick(const model *m, const gw_lora_pick *pick, fault *f) {
    for (int32_t i = 0; i < pick->n; i++) {
        if (m->lora_at[pick->adapter[i]] < 0) {
            return fault_set(f, 400, "lora",
                             "lora: there is no adapter %d; GET /lora-adapters "
                             "lists the %d there are",
                             (int)pick->adapter[i], (int)gw_model_adapters(m->gw, NULL, 0));
        }
        for (int32_t k = 0; k < i; k++) {
            if (pick->adapter[k] == pick->adapter[i]) {
                return fault_set(f, 400, "lora", "lora: adapter %d stands twice",
                                 (int)pick->adapter[i]);
            }
        }
    }
    if (pick->n > gw_model_adapters_at_once(m->gw)) {
        return fault_set(f, 400, "lora",
                         "lora: a text has at most %d of the adapters at once: the server's option "
                         "--lora-at-once N allows more",
                         (int)gw_model_adapters_at_once(m->gw));
    }
    return 0;
}

static void usual(const adapters *all, const model *m, const char *name, gw_lora_pick *out) {
    const int32_t named = adapters_find(all, name);
    *out = (gw_lora_pick){0};
    if (named >= 0) {
        *out = (gw_lora_pick){.n = 1, .adapter = {named}, .scale = {all->at[named].scale}};
        return;
    }
    for (int32_t i = 0; i < GW_LORA_MOST && out->n < GW_LORA_AT_ONCE; i++) {
        if (m->lora_scales[i] != 0.0f && m->lora_at[i] >= 0) {
            out->adapter[out->n] = i;
            out->scale[out->n++] = m->lora_scales[i];
        }
    }
}

int lora_of_request(const models *all, const model *m, const char *name,
                    const gw_lora_pick *chosen, gw_lora_pick *out, fault *f) {
    gw_lora_pick pick;
    if (chosen != NULL) {
        pick = *chosen;
    } else {
        usual(models_adapters(all), m, name, &pick);
    }
    if (lora_check_pick(m, &pick, f) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < pick.n; i++) {
        pick.adapter[i] = m->lora_at[pick.adapter[i]];
    }
    *out = pick;
    return 0;
}
