/* core/engine/batch/ahead.c - answers read ahead: the next turn of a conversation sends an answer
 * back as part of its prompt, and positions of an answer were computed in decode order, so they do
 * not serve there. While nothing else is to be done they are read again, as a prompt is, into pages
 * that the next turn will find. A step reads a few pages and keeps none: what is named stays in the
 * cache until the room is wanted. */
#include <stdlib.h>
#include <string.h>

#include "core/engine/batch/batch_state.h"

void gw_ahead_add(gw_batch *b, gw_seq *s) {
    gw_ahead *a = &b->ahead;
    int32_t n = s->n < b->n_ctx ? s->n : b->n_ctx;
    int32_t whole = n / GW_PAGE * GW_PAGE, known = s->r->n_prompt / GW_PAGE * GW_PAGE;
    if (!b->o.read_ahead || s->choice != 0 || s->r->no_cache || whole == known || b->o.no_sharing ||
        b->session->states.any || s->r->views.n > 0) {
        return;
    }
    if (a->n == GW_AHEAD) { /* the oldest one waits for the least */
        free(a->at[0].tokens);
        memmove(a->at, a->at + 1, (GW_AHEAD - 1) * sizeof *a->at);
        a->n--;
    }
    a->at[a->n++] =
        (gw_ahead_text){.tokens = s->tokens, .n = whole, .root = s->r->root, .lora = s->r->lora};
    s->tokens = NULL; /* the request ends, and nobody asks for them any more */
}

void gw_ahead_drop(gw_batch *b, int32_t at) {
    gw_ahead *a = &b->ahead;
    free(a->at[at].tokens);
    memmove(a->at + at, a->at + at + 1, (size_t)(a->n - at - 1) * sizeof *a->at);
    a->n--;
}

void gw_ahead_close(gw_batch *b) {
    while (b->ahead.n > 0) {
        gw_ahead_drop(b, b->ahead.n - 1);
    }
    free(b->ahead.pages);
}

static int32_t free_slot(const gw_batch *b) {
    int32_t slot = 0;
    while (slot < b->parallel && b->slot[slot] != NULL) {
        slot++;
    }
    return slot < b->parallel ? slot : -1;
}

/* Reads positions [pos, end) of the text, whose pages are there, on behalf of a free slot. */
static gw_status read_pages(gw_batch *b, const gw_ahead_text *t, int32_t slot, int32_t pos,
                            int32_t end) {
    for (int32_t i = 0; i < end - pos; i++) {
        b->rows[i] =
            (gw_row){.token = t->tokens[pos + i], .pos = pos + i, .slot = slot, .lora = &t->lora};
    }
    GW_TRY(gw_batch_map(b, slot, 0, b->ahead.pages, end / GW_PAGE));
    GW_TRY(gw_rows_prefill(b->session, b->rows, end - pos));
    return gw_drafts_read(b, b->rows, end - pos);
}

gw_status gw_ahead_step(gw_batch *b) {
    gw_ahead *a = &b->ahead;
    int32_t slot = free_slot(b), most = gw_batch_prompt_rows(b) / GW_PAGE, n = 0, found;
    while (slot < 0 && a->n > 0) { /* slow readers have them all: whoever steps shall rest */
        gw_ahead_drop(b, a->n - 1);
    }
    if (a->n == 0) {
        return GW_OK;
    }
    gw_ahead_text *t = &a->at[a->n - 1]; /* the latest: its next turn comes first */
    gw_page_name name = t->root;
    gw_status status = GW_OK;
    for (int32_t page = 0; page >= 0 && n * GW_PAGE < t->n;) {
        const int32_t *tokens = t->tokens + n * GW_PAGE;
        page = gw_pages_find(b->pages, name, tokens);
        GW_TRY(page < 0 && gw_host_pays(b) ? gw_host_find(b, name, tokens, &page) : GW_OK);
        if (page >= 0) {
            name = gw_pages_name(b->pages, page);
            a->pages[n++] = page;
        }
    }
    for (found = n; n * GW_PAGE < t->n && n < found + most; n++) {
        int32_t page = gw_pages_take(b->pages);
        if (page < 0) {
            break;
        }
        a->pages[n] = page;
    }
    if (n > found) {
        status = read_pages(b, t, slot, found * GW_PAGE, n * GW_PAGE);
        b->stats.read_ahead += (uint64_t)(n - found) * GW_PAGE;
    }
    for (int32_t i = found; i < n && status == GW_OK; i++) {
        gw_drafts_page(b, a->pages[i], gw_drafts_follow(b, slot));
        name = gw_pages_publish(b->pages, a->pages[i], name, t->tokens + i * GW_PAGE);
    }
    int done = n * GW_PAGE >= t->n || n == found;
    while (n > 0) {
        gw_pages_drop(b->pages, a->pages[--n]);
    }
    if (done) {
        gw_ahead_drop(b, a->n - 1);
    }
    return status;
}
