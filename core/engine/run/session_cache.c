/* core/engine/run/session_cache.c - the caches and states of a session: whether they fit, which of
 * them lie in main memory, and their memory. */
#include <stdlib.h>

#include "core/base/size.h"
#include "core/base/text.h"
#include "core/engine/run/session_state.h"

static gw_kv_size kv_size(const gw_session *s) {
    const gw_sharing *with = &s->sharing;
    return with->slots > 0 ? (gw_kv_size){with->slots, s->n_ctx, with->pages, 0}
                           : (gw_kv_size){1, s->n_ctx, 0, s->most_rows};
}

/* Of states of recurrent blocks. */
static int32_t entries(const gw_session *s) {
    return s->sharing.state_entries > 0 ? s->sharing.state_entries : GW_STATE_ENTRIES;
}

static uint64_t states_on(const gw_session *s, int d) {
    const gw_hparams *hp = &s->model->hp;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    uint64_t sum = 0;
    for (int i = 0; i < hp->n_layers * bp->n_blocks; i++) {
        uint64_t bytes = gw_states_block_bytes(bp, hp, i / bp->n_blocks, i % bp->n_blocks,
                                               kv_size(s).slots, entries(s));
        sum += gw_place_part(&s->model->place, s->where[i], d) > 0.0 ? bytes : 0;
    }
    return sum;
}

/* 0: not known. */
static uint64_t free_on(const gw_session *s, int d, gw_device_info *info) {
    const gw_plan_device *device = &s->model->place.devices[d];
    device->backend->describe(device->device, 0, info);
    return info->free_bytes > 0 ? info->free_bytes : info->memory_bytes;
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* What kernels make of a layer's whole cache: layers were placed with that of one text, and a pool
 * of many has more pages. */
static uint64_t more_scratch(const gw_session *s) {
    const uint64_t rows = (uint64_t)s->most_rows, own = ((uint64_t)s->n_ctx - 1) / GW_PAGE + 1;
    const uint64_t pool = (uint64_t)kv_size(s).pages;
    return less(gw_place_kernel_bytes(&s->model->hp, rows, pool),
                gw_place_kernel_bytes(&s->model->hp, rows, own));
}

/* Room for the caches of each card: of what layers left to them, and of what is free now. */
static void find_room(const gw_session *s, gw_place_caches *c) {
    const gw_place *place = &s->model->place;
    const uint64_t more = more_scratch(s);
    gw_device_info info;
    for (int d = 0; d < place->n_devices; d++) {
        uint64_t have = free_on(s, d, &info), kept = place->kept_room[d];
        uint64_t unused = have > 0 ? less(less(have, place->scratch_room[d]), more) : UINT64_MAX;
        c->room[d] = d == 0 || (have == 0 && kept == UINT64_MAX)
                         ? UINT64_MAX
                         : less(kept < unused ? kept : unused, states_on(s, d));
    }
}

/* The caches and rope table that device d will hold against what it has. */
static gw_status check_device(const gw_session *s, int d, const gw_place_caches *c,
                              const unsigned char *host, uint64_t tables) {
    const gw_place *place = &s->model->place;
    uint64_t need = tables;
    for (int32_t l = 0; l < s->model->hp.n_layers; l++) {
        double part = host[l] ? (double)(d == 0) : gw_place_part(place, c->at[l], d);
        uint64_t layer = gw_place_part_bytes(c->bytes[l], part);
        if (part > 0.0 && !gw_size_add(need, layer, &need)) {
            return gw_fail(GW_E_OVERFLOW, "context", "%d positions do not fit 64 bits", s->n_ctx);
        }
    }
    need += states_on(s, d);
    gw_device_info info;
    uint64_t have = free_on(s, d, &info);
    if (have > 0 && need > have) {
        char need_text[GW_SIZE_TEXT], have_text[GW_SIZE_TEXT];
        return gw_fail(GW_E_NOMEM, "context",
                       "a context of %d tokens needs %s%s%s, have %s; ask for a shorter one",
                       s->n_ctx, gw_text_size(need, 4, need_text),
                       place->n_devices > 1 ? " on " : "", place->n_devices > 1 ? info.id : "",
                       gw_text_size(have, 4, have_text));
    }
    return GW_OK;
}

/* Places the caches of the layers; host [n_layers]: those in main memory. */
static gw_status place_cache(gw_session *s, gw_kv_pair fmt, uint64_t tables, unsigned char *host) {
    const gw_hparams *hp = &s->model->hp;
    const gw_place *place = &s->model->place;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    int *at = calloc((size_t)hp->n_layers, sizeof *at);
    uint64_t *bytes = calloc((size_t)hp->n_layers, sizeof *bytes);
    gw_place_caches c = {.at = at, .bytes = bytes};
    gw_status status = GW_OK;
    if (at == NULL || bytes == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for %d layers", hp->n_layers);
        goto done;
    }
    for (int32_t l = 0; l < hp->n_layers; l++) {
        at[l] = gw_graph_cache_device(bp, hp, s->where, l);
        bytes[l] = gw_kv_layer_bytes(&hp->layer[l], fmt, kv_size(s));
    }
    find_room(s, &c);
    gw_place_host_caches(place, &c, host);
    for (int32_t l = 0; l < hp->n_layers; l++) {
        s->hosted_caches += host[l];
    }
    for (int d = 0; d < place->n_devices; d++) {
        GW_TRY_DONE(check_device(s, d, &c, host, tables));
    }
    GW_TRY_DONE(gw_kv_new(place->devices, place->n_devices, at, host, gw_place_groups(place), bp,
                          hp, fmt, kv_size(s), &s->kv));
done:
    free(at);
    free(bytes);
    return status;
}

gw_status gw_session_make_cache(gw_session *s, gw_kv_pair fmt) {
    const gw_hparams *hp = &s->model->hp;
    const gw_place *place = &s->model->place;
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    uint64_t table, rope, width = GW_MAX_FACTORS;
    gw_status status;
    for (int r = 0; r < hp->n_ropes; r++) {
        width += (uint64_t)hp->rope[r].dim;
    }
    GW_TRY(gw_kv_bytes(hp, fmt, kv_size(s), &table));
    if (!gw_size_mul((uint64_t)s->n_ctx * sizeof(float), width, &rope) ||
        !gw_size_add(table, rope, &table)) {
        return gw_fail(GW_E_OVERFLOW, "context", "%d positions do not fit 64 bits", s->n_ctx);
    }
    unsigned char *host = calloc((size_t)hp->n_layers, sizeof *host);
    if (host == NULL) {
        return gw_fail(GW_E_NOMEM, "context", "no memory for %d layers", hp->n_layers);
    }
    GW_TRY_DONE(place_cache(s, fmt, table, host));
    GW_TRY_DONE(gw_states_new(place->devices, place->n_devices, s->where, gw_place_groups(place),
                              bp, hp, kv_size(s).slots, entries(s), &s->states));
done:
    free(host);
    return status;
}
