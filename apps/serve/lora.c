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
    int32_t n = (int32_t)gw_model_adapters(m->gw, NULL, 0);
    for (int32_t i = 0; i < pick->n; i++) {
        if (pick->adapter[i] >= n) {
            return fault_set(f, 400, "lora",
                             "lora: there is no adapter %d; GET /lora-adapters "
                             "lists the %d there are",
                             (int)pick->adapter[i], (int)n);
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

void lora_usual(const app_options *o, const model *m, const char *name, gw_lora_pick *out) {
    *out = (gw_lora_pick){0};
    if (lora_named(o, name, out)) {
        return;
    }
    for (int32_t i = 0; i < GW_LORA_MOST && out->n < GW_LORA_AT_ONCE; i++) {
        if (m->lora_scales[i] != 0.0f) {
            out->adapter[out->n] = i;
            out->scale[out->n++] = m->lora_scales[i];
        }
    }
}
