/* core/engine/batch/pictures.c - pages of prompts with pictures are known by what the pictures
 * hold: in place of placeholder tokens stand numbers below 0, one for each picture that was ever
 * read here.
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

static gw_status name_one(gw_picture_keys *keys, const gw_views *v, const gw_view *x,
                          int32_t *out) {
    gw_picture_key key;
    memset(&key, 0, sizeof key);
    memcpy(key.digest, x->sight->digest, sizeof key.digest);
    key.n_patches = x->sight->n_patches;
    key.ahead = x->pos - x->first;
    key.rows = v->whole > 0 ? x->n : 0;
    for (int32_t i = keys->n - 1; i >= 0; i--) {
        if (memcmp(&keys->at[i], &key, sizeof key) == 0) {
            *out = i;
            return GW_OK;
        }
    }
    if (keys->n == keys->room) {
        int32_t room = keys->room < 1 << 28 ? 2 * keys->room + 64 : keys->room;
        gw_picture_key *more =
            room > keys->room ? realloc(keys->at, (size_t)room * sizeof *more) : NULL;
        if (more == NULL) {
            return gw_fail(GW_E_NOMEM, "cache", "no memory for the names of %d pictures", room);
        }
        keys->at = more;
        keys->room = room;
    }
    keys->at[keys->n] = key;
    *out = keys->n++;
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
