/* core/engine/batch/pictures.c - pages of prompts with pictures are known by what the pictures
 * hold: in place of placeholder tokens stand numbers below 0, one for each picture that is known
 * here.
 */
#include <stdlib.h>
#include <string.h>

#include "core/engine/batch/batch_state.h"

const int32_t *gw_seq_page(const gw_seq *s, int32_t page, int32_t *room) {
    const gw_views *v = &s->r->views;
    const int32_t first = page * GW_PAGE, end = first + GW_PAGE;
    if (v->n == 0) {
        return s->tokens + first;
    }
    memcpy(room, s->tokens + first, GW_PAGE * sizeof *room);
    for (int32_t i = 0; i < v->n; i++) {
        const gw_view *x = &v->view[i];
        int32_t from = x->pos > first ? x->pos : first;
        int32_t to = x->pos + x->n < end ? x->pos + x->n : end;
        for (int32_t p = from; p < to; p++) {
            room[p - first] = -2 - s->r->pictures[i];
        }
    }
    return room;
}

/* Room for one more key: grown, or that of the picture that was read longest ago. */
static gw_status free_key(gw_picture_keys *keys, int32_t *out) {
    if (keys->n == GW_PICTURE_KEYS) {
        *out = 0;
        for (int32_t i = 1; i < keys->n; i++) {
            *out = keys->used[i] < keys->used[*out] ? i : *out;
        }
        return GW_OK;
    }
    if (keys->n == keys->room) {
        const int32_t room = 2 * keys->room + 64;
        gw_picture_key *at = realloc(keys->at, (size_t)room * sizeof *at);
        keys->at = at != NULL ? at : keys->at;
        int32_t *name = realloc(keys->name, (size_t)room * sizeof *name);
        keys->name = name != NULL ? name : keys->name;
        uint64_t *used = realloc(keys->used, (size_t)room * sizeof *used);
        keys->used = used != NULL ? used : keys->used;
        if (at == NULL || name == NULL || used == NULL) {
            return gw_fail(GW_E_NOMEM, "cache", "no memory for the names of %d pictures", room);
        }
        keys->room = room;
    }
    *out = keys->n++;
    return GW_OK;
}

static gw_status name_one(gw_picture_keys *keys, const gw_views *v, const gw_view *x,
                          int32_t *out) {
    gw_picture_key key;
    int32_t at = 0;
    memset(&key, 0, sizeof key);
    memcpy(key.digest, x->sight->digest, sizeof key.digest);
    key.n_patches = x->sight->n_patches;
    key.ahead = x->pos - x->first;
    key.rows = v->whole > 0 ? x->n : 0;
    while (at < keys->n && memcmp(&keys->at[at], &key, sizeof key) != 0) {
        at++;
    }
    if (at == keys->n) {
        if (keys->next == INT32_MAX - 2) {
            return gw_fail(GW_E_LIMIT, "cache", "%d pictures were read; open the model anew",
                           (int)keys->next);
        }
        GW_TRY(free_key(keys, &at));
        keys->at[at] = key;
        keys->name[at] = keys->next++;
    }
    keys->used[at] = keys->asked++;
    *out = keys->name[at];
    return GW_OK;
}

gw_status gw_batch_name_pictures(gw_batch *b, gw_request *r) {
    if (r->views.n == 0 || r->pictures != NULL) {
        return GW_OK;
    }
    int32_t *names = malloc((size_t)r->views.n * sizeof *names);
    gw_status status = names != NULL
                           ? GW_OK
                           : gw_fail(GW_E_NOMEM, "cache", "no memory for %d pictures", r->views.n);
    for (int32_t i = 0; i < r->views.n && status == GW_OK; i++) {
        status = name_one(&b->pictures, &r->views, &r->views.view[i], &names[i]);
    }
    if (status != GW_OK) {
        free(names);
        return status;
    }
    r->pictures = names;
    return GW_OK;
}

gw_status gw_request_see(gw_request *r, const gw_batch *b, const gw_request_options *o) {
    if (o->n_seen > 0 && b->session->seeing.parts == 0) {
        return gw_fail(GW_E_UNSUPPORTED, "image", "the model was opened without eyes");
    }
    r->views.grid = b->session->views.grid;
    r->views.whole = b->session->views.whole;
    return gw_views_add(&r->views, o->seen, o->n_seen, 0, o->n_tokens);
}

void gw_request_unsee(gw_request *r) {
    gw_views_free(&r->views);
    free(r->pictures);
    r->pictures = NULL;
}
