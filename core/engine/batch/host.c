/* core/engine/batch/host.c - see host.h. */
#include "core/engine/batch/host.h"

#include <stdlib.h>

#include "core/base/text.h"
#include "core/engine/batch/batch_state.h"

enum { DOUBTS = 64 };

static const double of_late = 0.25; /* the share of the last time in what is expected */

gw_status gw_host_open(gw_batch *b) {
    gw_host *h = &b->host;
    gw_session *draft = b->drafts.model;
    h->own = gw_rows_page_bytes(b->session);
    h->bytes = h->own + (draft != NULL ? gw_rows_page_bytes(draft) : 0);
    if (b->o.cache_host_bytes == 0 || b->o.no_sharing || b->whole || h->bytes == 0) {
        return GW_OK;
    }
    char asked[GW_SIZE_TEXT], other[GW_SIZE_TEXT];
    uint64_t places = b->o.cache_host_bytes / h->bytes;
    int32_t n = places < INT32_MAX / 2 ? (int32_t)places : INT32_MAX / 2;
    (void)gw_text_size(b->o.cache_host_bytes, 4, asked);
    if (n == 0) {
        return gw_fail(GW_E_ARGUMENT, "cache", "%s of main memory are less than a page, %s", asked,
                       gw_text_size(h->bytes, 4, other));
    }
    gw_device_info home;
    const gw_plan_device *to = &b->model->place.devices[0];
    to->backend->describe(to->device, 0, &home);
    if (home.free_bytes > 0 && (uint64_t)n * h->bytes > home.free_bytes) {
        return gw_fail(GW_E_NOMEM, "cache", "%s of main memory for pages, have %s", asked,
                       gw_text_size(home.free_bytes, 4, other));
    }
    h->at = malloc((size_t)n * h->bytes);
    if (h->at == NULL) {
        return gw_fail(GW_E_NOMEM, "cache", "no %s of main memory for pages", asked);
    }
    h->n = n;
    b->stats.host_bytes = (uint64_t)n * h->bytes;
    return GW_OK;
}

void gw_host_close(gw_batch *b) { free(b->host.at); }

static char *place_of(const gw_host *h, int32_t place) { return h->at + (size_t)place * h->bytes; }

/* Is copying a page slower than computing it? False while a time is unmeasured or stale. */
static int is_slower(const gw_host_time *t, double seconds, double row) {
    return t->doubts < DOUBTS && seconds > 0.0 && row > 0.0 && seconds >= row * GW_PAGE;
}

static void took(gw_host_time *t, double seconds) {
    int known = t->seconds > 0.0 && t->doubts < DOUBTS;
    t->seconds = known ? (1.0 - of_late) * t->seconds + of_late * seconds : seconds;
    t->doubts = 0;
}

static int keep(void *user, int32_t page, int32_t place) {
    gw_batch *b = user;
    gw_host *h = &b->host;
    char *to = place_of(h, place);
    double both = h->fetch.seconds > 0.0 ? h->save.seconds + h->fetch.seconds : 0.0;
    if (b->o.disorder == 0 && is_slower(&h->save, both, b->prompt_row_seconds)) {
        h->save.doubts++;
        return 0;
    }
    double start = gw_seconds_now();
    gw_status status = gw_rows_page_save(b->session, page, to);
    if (status == GW_OK && b->drafts.model != NULL) {
        status = gw_rows_page_save(b->drafts.model, page, to + h->own);
    }
    took(&h->save, gw_seconds_now() - start);
    b->stats.host_saved += status == GW_OK;
    return status == GW_OK;
}

void gw_host_begin(gw_batch *b) {
    if (b->host.n > 0) {
        gw_pages_set_host(b->pages, keep, b);
    }
}

int gw_host_pays(gw_batch *b) {
    if (b->host.n == 0) {
        return 0;
    }
    return b->o.disorder != 0
               ? gw_batch_random(b, 4) != 0
               : !is_slower(&b->host.fetch, b->host.fetch.seconds, b->prompt_row_seconds);
}

/* What the place holds becomes the page. */
static gw_status load(gw_batch *b, int32_t page, int32_t place) {
    gw_host *h = &b->host;
    const char *from = place_of(h, place);
    double start = gw_seconds_now();
    GW_TRY(gw_rows_page_load(b->session, page, from));
    if (b->drafts.model != NULL) {
        GW_TRY(gw_rows_page_load(b->drafts.model, page, from + h->own));
    }
    gw_drafts_page_fetched(b, page);
    took(&h->fetch, gw_seconds_now() - start);
    b->stats.host_fetched++;
    return GW_OK;
}

gw_status gw_host_find(gw_batch *b, gw_page_name before, const int32_t *tokens, int32_t *page) {
    int32_t place = 0;
    *page = gw_pages_find(b->pages, before, tokens);
    if (*page >= 0 || b->host.n == 0) {
        return GW_OK;
    }
    *page = gw_pages_fetch(b->pages, before, tokens, &place);
    return *page >= 0 ? load(b, *page, place) : GW_OK;
}
