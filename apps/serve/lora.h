/* apps/serve/lora.h - which adapters a request has: by the name that it calls the model, by its
 * field lora, or as POST /lora-adapters has set it. Adapters have the numbers of adapters.h. */
#ifndef GW_APPS_SERVE_LORA_H
#define GW_APPS_SERVE_LORA_H

#include <jansson.h>

#include "apps/serve/models.h"

/* [{"id": 0, "scale": 0.5}, ...]; those of scale 0 are none. field: for errors. Any thread. 0, or
 * -1 and *f. */
int lora_read_list(const json_t *list, const char *field, gw_lora_pick *out, fault *f);
/* Has the model these adapters, and so many at once? 0, or -1 and *f. */
int lora_check_pick(const model *m, const gw_lora_pick *pick, fault *f);
/* What a request has, which is one of these: chosen (NULL: it chooses nothing but the model's
 * name), with the numbers that m->gw has for them. On the loop's thread. 0, or -1 and *f. */
int lora_of_request(const models *all, const model *m, const char *name,
                    const gw_lora_pick *chosen, gw_lora_pick *out, fault *f);

#endif
