/* core/engine/batch/snapshots.c - see snapshots.h. */
#include "core/engine/batch/snapshots.h"

#include <stdlib.h>

#include "core/engine/batch/batch_state.h"

gw_status gw_snapshots_open(gw_batch *b) {
    gw_snapshots *x = &b->snapshots;
    x->bytes = gw_rows_state_bytes(b->session);
    if (x->bytes == 0 || b->o.no_sharing) {
        return GW_OK;
    }
    double pages = (double)gw_kv_pages_bytes(&b->session->kv) * (double)b->stats.pages;
    double fit = pages / (double)x->bytes;
    int32_t most = fit < GW_SNAPSHOTS_MOST ? (int32_t)fit : GW_SNAPSHOTS_MOST;
    most = most > 2 ? most : 2;
    x->at = calloc((size_t)most, sizeof *x->at);
    if (x->at == NULL) {
        return gw_fail(GW_E_NOMEM, "batch", "no memory for %d snapshots", (int)most);
    }
    x->most = most;
    return GW_OK;
}

void gw_snapshots_close(gw_batch *b) {
    for (int32_t i = 0; i < b->snapshots.n; i++) {
        free(b->snapshots.at[i].state);
    }
    free(b->snapshots.at);
}

static gw_snapshot *find(const gw_batch *b, gw_page_name name) {
    for (int32_t i = 0; i < b->snapshots.n; i++) {
        if (b->snapshots.at[i].name == name) {
            return &b->snapshots.at[i];
        }
    }
    return NULL;
}

int gw_snapshots_has(const gw_batch *b, gw_page_name name) { return find(b, name) != NULL; }

/* One token of a prompt is always read. */
static int32_t last_edge(int32_t n_prompt) { return (n_prompt - 1) / GW_PAGE; }

int32_t gw_snapshots_within(int32_t n_prompt, int32_t pages) {
    int32_t last = last_edge(n_prompt);
    return pages >= last ? last : pages / GW_SNAPSHOT_PAGES * GW_SNAPSHOT_PAGES;
}

int32_t gw_snapshots_stop(const gw_batch *b, const gw_seq *s) {
    const int32_t every = GW_SNAPSHOT_PAGES * GW_PAGE;
    int32_t last = last_edge(s->r->n_prompt) * GW_PAGE, next = (s->pos / every + 1) * every;
    if (b->snapshots.most == 0 || s->pos >= last) {
        return s->r->n_prompt;
    }
    return next < last ? next : last;
}

static gw_snapshot *place(gw_snapshots *x) {
    gw_snapshot *oldest = x->n > 0 ? &x->at[0] : NULL;
    if (x->n < x->most) {
        void *state = malloc(x->bytes);
        if (state != NULL) {
            x->at[x->n] = (gw_snapshot){.state = state};
            return &x->at[x->n++];
        }
    }
    for (int32_t i = 1; i < x->n; i++) {
        oldest = x->at[i].used < oldest->used ? &x->at[i] : oldest;
    }
    return oldest;
}

gw_status gw_snapshots_save(gw_batch *b, const gw_seq *s) {
    gw_snapshots *x = &b->snapshots;
    int32_t page = s->pos / GW_PAGE;
    int wanted = page == last_edge(s->r->n_prompt) || page % GW_SNAPSHOT_PAGES == 0;
    if (x->most == 0 || s->pos % GW_PAGE != 0 || page == 0 || s->n_named != page || !wanted) {
        return GW_OK;
    }
    gw_snapshot *to = find(b, s->name);
    if (to == NULL) {
        to = place(x);
        if (to == NULL) {
            return GW_OK;
        }
        to->name = 0; /* while it is overwritten */
        GW_TRY(gw_rows_state_save(b->session, s->slot, s->pos, to->state));
        to->name = s->name;
    }
    to->used = ++x->uses;
    return GW_OK;
}

gw_status gw_snapshots_load(gw_batch *b, const gw_seq *s) {
    gw_snapshot *from = find(b, s->name);
    if (from == NULL) {
        return gw_fail(GW_E_ARGUMENT, "batch", "a page has no snapshot");
    }
    from->used = ++b->snapshots.uses;
    return gw_rows_state_load(b->session, s->slot, s->pos, from->state);
}
