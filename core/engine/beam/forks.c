/* core/engine/beam/forks.c - which pages of the cache a running text has. Texts that were one share
 * whole pages; the page that they are about to write in is copied. */
#include <string.h>

#include "core/engine/beam/beam.h"

static void drop_pages(gw_beam *b, gw_beam_fork *f) {
    for (; f->n_pages > 0; f->n_pages--) {
        int32_t page = f->pages[f->n_pages - 1];
        if (--b->refs[page] == 0) {
            b->free[b->n_free++] = page;
        }
    }
}

static int32_t take_page(gw_beam *b) { /* there are as many as all texts can have */
    int32_t page = b->free[--b->n_free];
    b->refs[page] = 1;
    return page;
}

gw_status gw_beam_reserve(gw_beam *b, gw_beam_fork *f, int32_t pos) {
    int32_t need = pos / GW_PAGE + 1, before = f->n_pages;
    while (f->n_pages < need) {
        f->pages[f->n_pages++] = take_page(b);
    }
    return need > before ? gw_rows_map(b->session, f->slot, before, f->pages + before,
                                       need - before)
                         : GW_OK;
}

void gw_beam_drop(gw_beam *b, gw_beam_lane *lane) {
    for (int i = 0; i < b->o.n_beams; i++) {
        drop_pages(b, &lane->fork[i]);
    }
}

/* to, without pages and in a slot of its own, becomes as `from`, which has positions before pos. */
static gw_status copy_fork(gw_beam *b, const gw_beam_fork *from, gw_beam_fork *to, int32_t pos) {
    int32_t whole = pos / GW_PAGE, last = pos % GW_PAGE > 0, source = 0, copy = 0;
    for (; to->n_pages < whole; to->n_pages++) {
        to->pages[to->n_pages] = from->pages[to->n_pages];
        b->refs[to->pages[to->n_pages]]++;
    }
    if (last) {
        source = from->pages[whole];
        copy = take_page(b);
        to->pages[to->n_pages++] = copy;
    }
    GW_TRY(gw_rows_copy(b->session, from->slot, to->slot, pos, source, copy, b->room));
    return to->n_pages > 0 ? gw_rows_map(b->session, to->slot, 0, to->pages, to->n_pages) : GW_OK;
}

gw_status gw_beam_fork_all(gw_beam *b, gw_beam_lane *lane, const int *parent, int n, int32_t pos) {
    int beams = b->o.n_beams, taken[GW_BEAMS_MAX] = {0}, first[GW_BEAMS_MAX], free = 0;
    for (int i = 0; i < n; i++) { /* the first child stays where its parent is */
        first[i] = !taken[parent[i]];
        taken[parent[i]] = 1;
        if (first[i]) {
            lane->next[i] = lane->fork[parent[i]];
        }
    }
    for (int i = 0; i < beams; i++) {
        if (!taken[i]) {
            drop_pages(b, &lane->fork[i]);
        }
    }
    for (int i = 0; i < beams; i++) { /* the others, and nobody, where no child stays */
        if (i < n && first[i]) {
            continue;
        }
        while (taken[free]) {
            free++;
        }
        lane->next[i] = lane->fork[free++];
    }
    for (int i = 0; i < n; i++) {
        if (!first[i]) {
            GW_TRY(copy_fork(b, &lane->fork[parent[i]], &lane->next[i], pos));
        }
    }
    gw_beam_fork *before = lane->fork;
    lane->fork = lane->next;
    lane->next = before;
    return GW_OK;
}
