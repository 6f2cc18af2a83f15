/* core/engine/placing/rig.c - opens and closes rigs. */
#include "core/engine/placing/rig.h"

#include <stdlib.h>
#include <string.h>

enum { HOME_ROWS = 128 };

gw_subject gw_subject_of(const gw_place *place, const gw_group *group) {
    gw_subject s = {.d = group->device[0], .group = *group};
    for (int c = 0; c < group->n; c++) {
        s.devices[c] = place->devices[group->device[c]];
        s.info[c] = place->info[group->device[c]];
        s.group.device[c] = c;
    }
    return s;
}

void gw_rig_close(gw_rig *r) {
    gw_session_free(r->session);
    gw_arena_set_free(r->model.arenas);
    free(r->model.place.where);
    memset(r, 0, sizeof *r);
}

gw_status gw_rig_open(const gw_subject *of, const gw_place_sizes *sizes, gw_weights *weights,
                      int layers, const gw_rig_cache *cache, gw_rig *r) {
    gw_place *mine = &r->model.place;
    const gw_blueprint *bp = gw_weights_blueprint(weights);
    r->rows = of->d == 0 && sizes->chunk > HOME_ROWS ? HOME_ROWS : sizes->chunk;
    r->model.hp = *gw_weights_hparams(weights);
    r->model.hp.n_layers = layers;
    r->model.weights = weights;
    mine->n_devices = of->group.n;
    for (int c = 0; c < of->group.n; c++) {
        mine->devices[c] = of->devices[c];
        mine->info[c] = of->info[c];
        mine->group[c] = (gw_group){.n = 1, .device = {c}, .share = {1.0}};
    }
    mine->group[0] = of->group;
    mine->grouped = of->group.n > 1;
    mine->n_layers = mine->offloaded = layers;
    mine->n_blocks = bp->n_blocks;
    mine->hosting = cache != NULL && cache->in_host ? GW_HOST_COUNT : GW_HOST_NONE;
    mine->hosted = layers;
    mine->where = calloc((size_t)(layers + 1) * (size_t)bp->n_blocks, sizeof *mine->where);
    if (mine->where == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %d layers", layers);
    }
    GW_TRY(gw_arena_set_new(mine->devices, mine->n_devices, &r->model.arenas));
    char name[GW_KV_NAME];
    gw_session_options o = {.n_ctx = r->rows > 2 * GW_RIG_LAST ? r->rows : 2 * GW_RIG_LAST,
                            .chunk = r->rows,
                            .kv_type = gw_kv_name(sizes->kv_fmt, name)};
    o.n_ctx = cache != NULL ? cache->n_ctx : o.n_ctx;
    return gw_session_new(&r->model, &o, &r->session);
}
