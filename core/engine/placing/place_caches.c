/* core/engine/placing/place_caches.c - layers whose caches lie in main memory while their cards
 * read them over their links: which ones, and what that takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/engine/placing/cache_time.h"
#include "core/model/build.h"

gw_status gw_place_read_hosting(gw_place *p, const char *text) {
    p->hosting = GW_HOST_AUTO;
    p->hosted = 0;
    if (text == NULL || strcmp(text, "auto") == 0) {
        return GW_OK;
    }
    p->hosting = GW_HOST_COUNT;
    if (strcmp(text, "none") == 0 || strcmp(text, "all") == 0) {
        p->hosted = text[0] == 'a' ? INT32_MAX : 0;
        return GW_OK;
    }
    char *end = NULL;
    long value = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    if (end == NULL || *end != '\0' || value < 0) {
        return gw_fail(GW_E_ARGUMENT, "kv-host-layers",
                       "'%.40s' is neither a number of layers nor one of auto, all, none", text);
    }
    p->hosted = value > INT32_MAX ? INT32_MAX : (int32_t)value;
    return GW_OK;
}

/* ---- which ----------------------------------------------------------------------------------- */

/* Can caches of the layers at this device lie in main memory? */
static int can_host(const gw_place *p, int at) {
    gw_group group = gw_place_group(p, at);
    int can = 1;
    for (int c = 0; c < group.n; c++) {
        can = can && p->devices[group.device[c]].backend->alloc_mapped != NULL;
    }
    return can;
}

/* The largest cache that can still go, of device d alone (-1: of any); 0: there is none. */
static uint64_t largest_left(const gw_place *p, const gw_place_caches *c, int d,
                             const unsigned char *host, int *layer) {
    uint64_t most = 0;
    for (int l = 0; l < p->n_layers; l++) {
        int own = d < 0 || gw_place_part(p, c->at[l], d) > 0.0;
        if (!host[l] && own && c->bytes[l] > most && can_host(p, c->at[l])) {
            most = c->bytes[l];
            *layer = l;
        }
    }
    return most;
}

/* Of the layers with caches of so many bytes `n`, evenly; how many there are. */
static int host_alike(const gw_place *p, const gw_place_caches *c, uint64_t bytes, int n,
                      unsigned char *host) {
    int count = 0, i = 0;
    for (int l = 0; l < p->n_layers; l++) {
        count += c->bytes[l] == bytes && can_host(p, c->at[l]);
    }
    n = n < count ? n : count;
    for (int l = 0; l < p->n_layers; l++) {
        if (c->bytes[l] == bytes && can_host(p, c->at[l])) {
            host[l] = (unsigned char)((i + 1) * n / count > i * n / count);
            i++;
        }
    }
    return n;
}

static uint64_t on_card(const gw_place *p, const gw_place_caches *c, int d,
                        const unsigned char *host) {
    uint64_t sum = 0;
    for (int l = 0; l < p->n_layers; l++) {
        double part = gw_place_part(p, c->at[l], d);
        sum += part > 0.0 && !host[l] ? gw_place_part_bytes(c->bytes[l], part) : 0;
    }
    return sum;
}

void gw_place_host_caches(const gw_place *p, const gw_place_caches *c, unsigned char *host) {
    int layer = 0;
    memset(host, 0, (size_t)p->n_layers);
    for (int left = p->hosting == GW_HOST_COUNT ? p->hosted : 0; left > 0;) {
        uint64_t bytes = largest_left(p, c, -1, host, &layer);
        left = bytes > 0 ? left - host_alike(p, c, bytes, left, host) : 0;
    }
    for (int d = 0; d < p->n_devices && p->hosting == GW_HOST_AUTO; d++) {
        while (c->room[d] < UINT64_MAX && on_card(p, c, d, host) > c->room[d] &&
               largest_left(p, c, d, host, &layer) > 0) {
            host[layer] = 1;
        }
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

void gw_place_host_sizes(const gw_place *p, const gw_place_sizes *sizes, const gw_where *where,
                         gw_place_use *use) {
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    gw_place_caches c = {.bytes = sizes->cache, .at = sizes->cache_at};
    memset(sizes->host, 0, (size_t)p->n_layers);
    if (sizes->sees) {
        return; /* a tower has none */
    }
    for (int l = 0; l < p->n_layers; l++) {
        sizes->cache_at[l] = gw_graph_cache_device(bp, sizes->hp, where, l);
    }
    for (int d = 0; d < p->n_devices; d++) { /* `kv` has states, too, which stay */
        uint64_t caches = on_card(p, &c, d, sizes->host), need = use[d].weights + use[d].scratch;
        need += use[d].kv > caches ? use[d].kv - caches : 0;
        c.room[d] = sizes->room[d] == 0     ? UINT64_MAX
                    : sizes->room[d] > need ? sizes->room[d] - need
                                            : 0;
    }
    gw_place_host_caches(p, &c, sizes->host);
    for (int l = 0; l < p->n_layers; l++) {
        gw_group group = gw_place_group(p, c.at[l]);
        for (int i = 0; i < group.n && sizes->host[l]; i++) {
            int d = group.device[i];
            uint64_t bytes = gw_place_part_bytes(c.bytes[l], gw_place_part(p, c.at[l], d));
            use[d].kv -= bytes < use[d].kv ? bytes : use[d].kv;
            use[d].kv_host += bytes;
            use[d].host_layers++;
        }
    }
}

/* Caches in main memory, of cards and of the layers at home; *cards: those of cards. Weights do not
 * count: those at home may be pages of a file, which the system takes back. */
static uint64_t home_bytes(const gw_place *p, const gw_place_use *use, uint64_t *cards) {
    *cards = 0;
    for (int d = 1; d < p->n_devices; d++) {
        *cards += use[d].kv_host;
    }
    return *cards + use[0].kv;
}

int gw_place_home_fits(const gw_place *p, const gw_place_sizes *sizes, const gw_place_use *use) {
    uint64_t cards;
    return sizes->room[0] == 0 || home_bytes(p, use, &cards) <= sizes->room[0];
}

int gw_place_hosting_fits(const gw_place *p, const gw_place_sizes *sizes, const gw_place_use *use) {
    uint64_t cards;
    (void)home_bytes(p, use, &cards);
    return cards == 0 || gw_place_home_fits(p, sizes, use);
}

gw_status gw_place_refuse_hosting(const gw_place *p, const gw_place_sizes *sizes,
                                  const gw_place_use *use) {
    char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
    uint64_t cards;
    return gw_fail(GW_E_NOMEM, "context",
                   "caches of %d tokens need %s of main memory, where layers of cards and of the "
                   "%s have theirs, and %s are free; a shorter context or a smaller "
                   "--kv-type may fit",
                   sizes->n_ctx, gw_text_size(home_bytes(p, use, &cards), 4, need), p->info[0].id,
                   gw_text_size(sizes->room[0], 4, have));
}

/* ---- a model as it is placed ------------------------------------------------------------------
 */

/* A number of layers is given, and the cards have caches that cannot go. */
static gw_status refuse_hosting(const gw_place *p, const gw_place_sizes *sizes) {
    for (int l = 0; l < p->n_layers && p->hosting == GW_HOST_COUNT && p->hosted > 0; l++) {
        int d = sizes->cache_at[l];
        if (d > 0 && sizes->cache[l] > 0 && !can_host(p, d)) {
            return gw_fail(GW_E_UNSUPPORTED, "kv-host-layers",
                           "%s cannot read caches in main memory; --offload-layers N moves layers "
                           "with theirs",
                           p->info[d].id);
        }
    }
    return GW_OK;
}

/* "caches of 12 of 32 layers in main memory, 6.0 GB of 16 GB: with the context full a token takes
 * 240 ms to read all of them"; seconds 0: it is not known. */
static void note_hosting(gw_place *p, const gw_place_sizes *sizes, const gw_place_use *use,
                         double seconds) {
    char away[GW_SIZE_TEXT], all[GW_SIZE_TEXT], time[96] = "", text[256];
    uint64_t sum = 0, host = 0;
    int layers = 0, hosted = 0;
    for (int l = 0; l < p->n_layers; l++) {
        int counts = sizes->cache[l] > 0 && sizes->cache_at[l] > 0;
        layers += counts;
        hosted += counts && sizes->host[l];
    }
    for (int d = 1; d < p->n_devices; d++) {
        host += use[d].kv_host;
        sum += use[d].kv + use[d].kv_host;
    }
    if (seconds > 1e-6) { /* less is noise */
        snprintf(time, sizeof time,
                 ": with the context full a token takes %.3g ms to read all of them",
                 1e3 * seconds);
    }
    snprintf(text, sizeof text, "caches of %d of %d layers in main memory, %s of %s%s", hosted,
             layers, gw_text_size(host, 4, away), gw_text_size(sum, 4, all), time);
    gw_place_add_note(p, hosted > 0 ? text : "");
}

gw_status gw_place_keep_caches(gw_place *p, const gw_place_sizes *sizes, const gw_place_use *use) {
    gw_cache_time times[GW_MAX_DEVICES];
    uint64_t host = 0;
    GW_TRY(refuse_hosting(p, sizes));
    for (int d = 0; d < p->n_devices; d++) {
        uint64_t need = use[d].weights + use[d].scratch;
        p->scratch_room[d] = use[d].scratch;
        p->kept_room[d] = sizes->room[d] == 0     ? UINT64_MAX
                          : sizes->room[d] > need ? sizes->room[d] - need
                                                  : 0;
        host += use[d].kv_host;
    }
    gw_status status = host > 0 ? gw_cache_times(p, sizes, times) : GW_OK;
    if (host > 0 && status != GW_E_CANCELLED) { /* heads that draft, and encoders, are not timed */
        note_hosting(p, sizes, use, status == GW_OK ? gw_cache_seconds(p, sizes, times) : 0.0);
        status = GW_OK;
    }
    return status;
}
