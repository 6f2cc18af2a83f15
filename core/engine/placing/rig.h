/* core/engine/placing/rig.h - a session of some sample layers on one device, or on cards that
 * compute a layer together, to be timed. */
#ifndef GW_ENGINE_RIG_H
#define GW_ENGINE_RIG_H

#include "core/engine/placing/place.h"
#include "core/engine/run/session_state.h"

/* Positions of timed tokens: early in a text, for later ones cost more attention. */
enum { GW_RIG_FIRST = 16, GW_RIG_LAST = 80 };

/* What is measured: a device, or cards that compute a layer together, numbered from 0 here. */
typedef struct gw_subject {
    int d; /* in the place; of cards the one that stands for them */
    gw_group group;
    gw_plan_device devices[GW_MAX_CARDS];
    gw_device_info info[GW_MAX_CARDS];
} gw_subject;

gw_subject gw_subject_of(const gw_place *place, const gw_group *group);

typedef struct gw_rig {
    gw_model model; /* not opened: sample layers on one device */
    gw_session *session;
    int32_t rows;  /* of its prompts */
    int32_t token; /* drawn last */
    double spread; /* of its times: the slower quarter over the faster one, the most seen */
} gw_rig;

/* How long its context is and where the cache lies; NULL: short, on the device. */
typedef struct gw_rig_cache {
    int32_t n_ctx;
    int in_host;
} gw_rig_cache;

/* The first so many layers of weights, a sample that outlives it. gw_rig_close in any case. */
gw_status gw_rig_open(const gw_subject *of, const gw_place_sizes *sizes, gw_weights *weights,
                      int layers, const gw_rig_cache *cache, gw_rig *r);
void gw_rig_close(gw_rig *r);

#endif
