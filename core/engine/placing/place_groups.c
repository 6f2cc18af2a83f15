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
static gw_status make_group(gw_place *p, unsigned members, int n) {
    gw_group g = {.n = 0};
    double sum = 0.0;
    int several = __builtin_popcount(members) > 1;
    if (__builtin_popcount(members) > GW_MAX_CARDS) {
        return gw_fail(GW_E_ARGUMENT, "split-mode",
                       "at most %d devices compute a layer together; --split-mode hybrid makes "
                       "groups of more",
                       GW_MAX_CARDS);
    }
    for (int i = 0; i < p->n_listed; i++) {
        if (members >> i & 1) {
            if (several && !(p->listed_share[i] > 0.0)) {
                return gw_fail(GW_E_ARGUMENT, "split", "a share of a layer is more than 0");
            }
            g.device[g.n] = p->listed[i];
            g.share[g.n++] = p->equal ? 1.0 : p->listed_share[i];
            sum += p->listed_share[i];
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

gw_status gw_place_arrange(gw_place *p, const gw_arrangement *way) {
    p->grouped = 0;
    for (int d = 0; d < GW_MAX_DEVICES; d++) {
        if (p->group[d].link != NULL) {
            p->devices[d].backend->unlink(p->group[d].link);
        }
        p->group[d] = (gw_group){.n = 1, .device = {d}, .share = {1.0}};
    }
    for (int n = 0; n < way->n; n++) {
        GW_TRY(make_group(p, way->group[n], n));
    }
    return GW_OK;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static int is_apart(const gw_arrangement *way) {
    int apart = 1;
    for (int n = 0; n < way->n; n++) {
        apart &= __builtin_popcount(way->group[n]) == 1;
    }
    return apart;
}

/* "0,1;2,3" */
static void write_groups(const gw_arrangement *way, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (int n = 0; n < way->n; n++) {
        for (int i = 0, before = 0; i < GW_MAX_DEVICES; i++) {
            if (way->group[n] >> i & 1 && used < room) {
                const char *between = before++ > 0 ? "," : n > 0 ? ";" : "";
                used += (size_t)snprintf(out + used, room - used, "%s%d", between, i);
            }
        }
    }
}

static void name_way(gw_arrangement *way) {
    char groups[sizeof way->name - 8];
    write_groups(way, groups, sizeof groups);
    int apart = is_apart(way), whole = way->n == 1 && !apart;
    snprintf(way->name, sizeof way->name, "%s%s",
             apart   ? "layer"
             : whole ? "tensor"
                     : "hybrid ",
             apart || whole ? "" : groups);
}

static gw_arrangement each_alone(const gw_place *p) {
    gw_arrangement way = {.n = p->n_listed};
    for (int i = 0; i < way.n; i++) {
        way.group[i] = 1u << i;
    }
    name_way(&way);
    return way;
}

static gw_arrangement all_together(const gw_place *p) {
    gw_arrangement way = {.group = {(1u << p->n_listed) - 1}, .n = 1};
    name_way(&way);
    return way;
}

static gw_status read_groups(const gw_place *p, const char *groups, gw_arrangement *way) {
    unsigned all = 0, members;
    for (const char *at = groups; way->n == 0 || *at != '\0'; way->n++) {
        GW_TRY(read_group(groups, &at, p->n_listed, &members));
        if ((all & members) != 0) {
            return gw_fail(GW_E_ARGUMENT, "groups", "'%.40s' has a place in two groups", groups);
        }
        all |= members;
        way->group[way->n] = members;
    }
    if (all + 1 != 1u << p->n_listed) {
        return gw_fail(GW_E_ARGUMENT, "groups", "'%.40s' leaves out some of the %d devices", groups,
                       p->n_listed);
    }
    return GW_OK;
}

/* How fast the link between two of the devices asked for is; 0: they have none of their own. */
static int rank_of(const gw_place *p, int i, int j) {
    const gw_plan_device *a = &p->devices[p->listed[i]], *b = &p->devices[p->listed[j]];
    return a->backend == b->backend && a->backend->link_rank != NULL
               ? a->backend->link_rank(a->device, b->device)
               : 0;
}

/* Of the devices in `left` those that one of them, place i, is to compute layers with: up to `most`
 * whose links to it, and to one another, are as fast as its fastest. */
static unsigned nearest(const gw_place *p, unsigned left, int i, int most) {
    unsigned members = 1u << i;
    int fastest = 0, n = 1;
    for (int j = 0; j < p->n_listed; j++) {
        int rank = j != i && (left >> j & 1) ? rank_of(p, i, j) : 0;
        fastest = rank > fastest ? rank : fastest;
    }
    for (int j = 0; j < p->n_listed && fastest > 0; j++) {
        int fits = (left & ~members) >> j & 1 && n < most;
        for (int k = 0; fits && k < p->n_listed; k++) {
            fits = !(members >> k & 1) || rank_of(p, j, k) >= fastest;
        }
        members |= fits ? 1u << j : 0u;
        n += fits;
    }
    return members;
}

/* Cards whose links are the fastest are one, up to `most` of them. */
static gw_arrangement by_links(const gw_place *p, int most) {
    gw_arrangement way = {.n = 0};
    unsigned left = (1u << p->n_listed) - 1;
    for (int i = 0; i < p->n_listed; i++) {
        unsigned members = left >> i & 1 ? nearest(p, left, i, most) : 0;
        left &= ~members;
        way.group[way.n] = members;
        way.n += members != 0;
    }
    name_way(&way);
    return way;
}

int gw_place_arrangements(const gw_place *p, gw_arrangement out[GW_ARRANGEMENTS]) {
    const gw_arrangement ways[GW_ARRANGEMENTS] = {all_together(p), each_alone(p),
                                                  by_links(p, GW_MAX_CARDS), by_links(p, 2)};
    const int possible[GW_ARRANGEMENTS] = {p->n_listed <= GW_MAX_CARDS, 1, 1, p->n_listed >= 4};
    int n = 0;
    for (int i = 0; i < GW_ARRANGEMENTS; i++) {
        int known = 0;
        for (int k = 0; k < n; k++) {
            known |= strcmp(out[k].name, ways[i].name) == 0;
        }
        if (possible[i] && !known) {
            out[n++] = ways[i];
        }
    }
    return n;
}

/* Without --groups. */
static gw_status find_groups(gw_place *p) {
    char text[64], note[128];
    gw_arrangement way = by_links(p, GW_MAX_CARDS);
    GW_TRY(gw_place_arrange(p, &way));
    write_groups(&way, text, sizeof text);
    snprintf(note, sizeof note,
             p->grouped ? "groups by the driver's table of links: %s"
                        : "no two of the devices have a link of their own: each has layers",
             text);
    gw_place_add_note(p, note);
    return GW_OK;
}

gw_status gw_place_group_devices(gw_place *p, const gw_model_options *o) {
    gw_arrangement way = {.n = 0};
    split_mode mode;
    p->equal = o->split == NULL;
    p->n_listed = p->n_asked;
    memcpy(p->listed, p->asked, sizeof p->listed);
    memcpy(p->listed_share, p->share, sizeof p->listed_share);
    for (int d = 0; d < GW_MAX_DEVICES; d++) {
        p->group[d] = (gw_group){.n = 1, .device = {d}, .share = {1.0}};
    }
    GW_TRY(read_mode(o->split_mode, &mode));
    if (o->groups != NULL && mode != MODE_HYBRID) {
        return gw_fail(GW_E_ARGUMENT, "groups", "are for --split-mode hybrid");
    }
    if (mode == MODE_HYBRID && o->groups != NULL) {
        GW_TRY(read_groups(p, o->groups, &way));
        return gw_place_arrange(p, &way);
    }
    if (mode == MODE_HYBRID) {
        return find_groups(p);
    }
    if (mode == MODE_TENSOR && p->n_asked > 1) {
        way = all_together(p);
        return gw_place_arrange(p, &way);
    }
    p->by_forecast = mode == MODE_AUTO && p->n_asked > 1;
    return GW_OK;
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
