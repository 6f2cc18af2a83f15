/* core/engine/placing/place_groups.c - which devices compute a layer together. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine/placing/place.h"

typedef enum split_mode { MODE_LAYER, MODE_TENSOR, MODE_HYBRID, MODE_AUTO, MODES } split_mode;

static gw_status read_mode(const char *text, split_mode *out) {
    static const char *const names[MODES] = {"layer", "tensor", "hybrid", "auto"};
    *out = MODE_LAYER;
    for (int i = 0; text != NULL && i < MODES; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (split_mode)i;
            return GW_OK;
        }
    }
    return text == NULL ? GW_OK
                        : gw_fail(GW_E_ARGUMENT, "split-mode",
                                  "'%.40s' is none of layer, tensor, hybrid, auto", text);
}

/* Places in the list of devices that are one group: [from, *end) of the text; a bit each. */
static gw_status read_group(const char *groups, const char **at, int n, unsigned *out) {
    *out = 0;
    for (;;) {
        char *end = NULL;
        long i = isdigit((unsigned char)**at) ? strtol(*at, &end, 10) : -1;
        if (end == NULL || i >= n || (*end != ',' && *end != ';' && *end != '\0')) {
            return gw_fail(GW_E_ARGUMENT, "groups",
                           "'%.40s' is no list like 0,1;2,3 of places 0 to %d in --device", groups,
                           n - 1);
        }
        if (*out >> i & 1) {
            return gw_fail(GW_E_ARGUMENT, "groups", "'%.40s' names place %ld twice", groups, i);
        }
        *out |= 1u << i;
        *at = end + (*end != '\0');
        if (*end != ',') {
            return GW_OK;
        }
    }
}

/* Cards of one backend that reach one another; what they cannot goes through the host. */
static int link_cards(gw_place *p, gw_group *g) {
    struct gw_device *cards[GW_MAX_CARDS];
    const gw_backend *backend = p->devices[g->device[0]].backend;
    for (int c = 0; c < g->n; c++) {
        cards[c] = p->devices[g->device[c]].device;
        if (p->devices[g->device[c]].backend != backend || backend->link == NULL) {
            return 0;
        }
    }
    return backend->link(cards, g->n, &g->link) == GW_OK;
}

/* The devices at the places of `members` become group number n of those that stand for one. */
static gw_status make_group(gw_place *p, const gw_place *as_asked, unsigned members, int equal,
                            int n) {
    gw_group g = {.n = 0};
    double sum = 0.0;
    if (__builtin_popcount(members) > GW_MAX_CARDS) {
        return gw_fail(GW_E_ARGUMENT, "split-mode",
                       "at most %d devices compute a layer together; --split-mode hybrid makes "
                       "groups of more",
                       GW_MAX_CARDS);
    }
    for (int i = 0; i < as_asked->n_asked; i++) {
        if (members >> i & 1) {
            g.device[g.n] = as_asked->asked[i];
            g.share[g.n++] = equal ? 1.0 : as_asked->share[i];
            sum += as_asked->share[i];
        }
    }
    if (g.n > 1 && g.device[0] == 0) { /* what only the CPU has kernels for stands at home alone */
        int device = g.device[1];
        double share = g.share[1];
        g.device[1] = 0;
        g.share[1] = g.share[0];
        g.device[0] = device;
        g.share[0] = share;
    }
    p->asked[n] = g.device[0];
    p->share[n] = sum;
    p->n_asked = n + 1;
    if (g.n > 1) {
        p->grouped = 1;
        (void)link_cards(p, &g);
    }
    p->group[g.device[0]] = g;
    return GW_OK;
}

static gw_status read_groups(gw_place *p, const gw_place *as_asked, const char *groups, int equal) {
    unsigned all = 0, members;
    int n = 0;
    for (const char *at = groups; n == 0 || *at != '\0'; n++) {
        GW_TRY(read_group(groups, &at, as_asked->n_asked, &members));
        if ((all & members) != 0) {
            return gw_fail(GW_E_ARGUMENT, "groups", "'%.40s' has a place in two groups", groups);
        }
        all |= members;
        GW_TRY(make_group(p, as_asked, members, equal, n));
    }
    if (all + 1 != 1u << as_asked->n_asked) {
        return gw_fail(GW_E_ARGUMENT, "groups", "'%.40s' leaves out some of the %d devices", groups,
                       as_asked->n_asked);
    }
    return GW_OK;
}

/* How fast the link between two of the devices asked for is; 0: they have none of their own. */
static int rank_of(const gw_place *p, int i, int j) {
    const gw_plan_device *a = &p->devices[p->asked[i]], *b = &p->devices[p->asked[j]];
    return a->backend == b->backend && a->backend->link_rank != NULL
               ? a->backend->link_rank(a->device, b->device)
               : 0;
}

/* Of the devices in `left` those that one of them, place i, is to compute layers with: all whose
 * links to it, and to one another, are as fast as its fastest. */
static unsigned nearest(const gw_place *p, unsigned left, int i) {
    unsigned members = 1u << i;
    int fastest = 0, n = 1;
    for (int j = 0; j < p->n_asked; j++) {
        int rank = j != i && (left >> j & 1) ? rank_of(p, i, j) : 0;
        fastest = rank > fastest ? rank : fastest;
    }
    for (int j = 0; j < p->n_asked && fastest > 0; j++) {
        int fits = (left & ~members) >> j & 1 && n < GW_MAX_CARDS;
        for (int k = 0; fits && k < p->n_asked; k++) {
            fits = !(members >> k & 1) || rank_of(p, j, k) >= fastest;
        }
        members |= fits ? 1u << j : 0u;
        n += fits;
    }
    return members;
}

/* Without --groups: cards whose links are the fastest are one. */
static gw_status find_groups(gw_place *p, const gw_place *as_asked, int equal) {
    unsigned left = (1u << as_asked->n_asked) - 1;
    char text[64] = "", note[128];
    for (int n = 0, i = 0; left != 0; i++) {
        unsigned members = left >> i & 1 ? nearest(as_asked, left, i) : 0;
        left &= ~members;
        for (int j = 0; j < as_asked->n_asked; j++) {
            size_t used = strlen(text);
            const char *between = (members & ((1u << j) - 1)) != 0 ? "," : used > 0 ? ";" : "";
            if (members >> j & 1) {
                snprintf(text + used, sizeof text - used, "%s%d", between, j);
            }
        }
        GW_TRY(members != 0 ? make_group(p, as_asked, members, equal, n++) : GW_OK);
    }
    snprintf(note, sizeof note,
             p->grouped ? "groups by the driver's table of links: %s"
                        : "no two of the devices have a link of their own: each has layers",
             text);
    gw_place_add_note(p, note);
    return GW_OK;
}

gw_status gw_place_group_devices(gw_place *p, const gw_model_options *o) {
    const gw_place as_asked = *p;
    split_mode mode;
    for (int d = 0; d < GW_MAX_DEVICES; d++) {
        p->group[d] = (gw_group){.n = 1, .device = {d}, .share = {1.0}};
    }
    GW_TRY(read_mode(o->split_mode, &mode));
    if (o->groups != NULL && mode != MODE_HYBRID) {
        return gw_fail(GW_E_ARGUMENT, "groups", "are for --split-mode hybrid");
    }
    if (mode == MODE_HYBRID && o->groups == NULL) {
        return find_groups(p, &as_asked, o->split == NULL);
    }
    if (mode == MODE_HYBRID) {
        return read_groups(p, &as_asked, o->groups, o->split == NULL);
    }
    if (mode == MODE_LAYER || p->n_asked < 2) {
        return GW_OK;
    }
    for (int i = 0; i < p->n_asked; i++) {
        if (!(p->share[i] > 0.0)) {
            return gw_fail(GW_E_ARGUMENT, "split", "a share of a layer is more than 0");
        }
    }
    GW_TRY(make_group(p, &as_asked, (1u << p->n_asked) - 1, o->split == NULL, 0));
    p->may_ungroup = mode == MODE_AUTO;
    p->n_ungrouped = as_asked.n_asked;
    memcpy(p->ungrouped, as_asked.asked, sizeof p->ungrouped);
    memcpy(p->ungrouped_share, as_asked.share, sizeof p->ungrouped_share);
    return GW_OK;
}

void gw_place_ungroup(gw_place *p) {
    gw_group *g = &p->group[p->asked[0]];
    if (g->link != NULL) {
        p->devices[g->device[0]].backend->unlink(g->link);
    }
    *g = (gw_group){.n = 1, .device = {g->device[0]}, .share = {1.0}};
    p->grouped = p->may_ungroup = 0;
    p->n_asked = p->n_ungrouped;
    memcpy(p->asked, p->ungrouped, sizeof p->asked);
    memcpy(p->share, p->ungrouped_share, sizeof p->share);
}

double gw_place_part(const gw_place *place, int at, int d) {
    gw_group g = gw_place_group(place, at);
    double sum = 0.0, own = 0.0;
    for (int c = 0; c < g.n; c++) {
        sum += g.share[c];
        own = g.device[c] == d ? g.share[c] : own;
    }
    return g.n > 1 ? own / sum : at == d ? 1.0 : 0.0;
}
