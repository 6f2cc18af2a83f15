/* core/engine/placing/place.c - finds and opens the devices that were asked for. */
#include "core/engine/placing/place.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = 256 };

/* ---- notes ----------------------------------------------------------------------------------- */

static void add_with(char *out, size_t room, const char *text, const char *between) {
    size_t used = strlen(out);
    snprintf(out + used, room - used, "%s%s", used > 0 ? between : "", text);
}

static void add_text(char *out, size_t room, const char *text) { add_with(out, room, text, "; "); }

void gw_place_add_note(gw_place *p, const char *text) {
    if (text[0] != '\0') {
        add_text(p->note, sizeof p->note, text);
    }
}

/* ---- finding --------------------------------------------------------------------------------- */

typedef struct found {
    const gw_backend *backend;
    int ordinal;
} found;

/* Does `text` hold `part`, whatever the case? */
static int holds(const char *text, const char *part, size_t bytes) {
    for (const char *at = text; *at != '\0'; at++) {
        size_t i = 0;
        while (i < bytes && at[i] != '\0' &&
               tolower((unsigned char)at[i]) == tolower((unsigned char)part[i])) {
            i++;
        }
        if (i == bytes) {
            return 1;
        }
    }
    return 0;
}

/* "cpu (AMD EPYC, avx2), opencl:0 (...)": what is there. */
static void list_devices(const gw_backend *const *backends, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; backends[i] != NULL; i++) {
        int n = backends[i]->device_count();
        for (int k = 0; k < n; k++) {
            gw_device_info info;
            backends[i]->describe(NULL, k, &info);
            int wrote = snprintf(out + used, room - used, "%s%s (%.48s)", used ? ", " : "", info.id,
                                 info.name);
            used += wrote > 0 && (size_t)wrote < room - used ? (size_t)wrote : 0;
            out[used] = '\0';
        }
    }
}

/* What other programs call devices: the one that is meant here, and what it needs; NULL: none. */
static const char *words_of_others(const char *name, size_t bytes) {
    static const struct {
        const char *word, *meant;
    } rows[] = {
        {"cuda", "NVIDIA cards are hip:N here, through the driver's libcuda.so.1"},
        {"nvidia", "NVIDIA cards are hip:N here, through the driver's libcuda.so.1"},
        {"rocm", "AMD cards are hip:N here, through libamdhip64.so"},
        {"amd", "AMD cards are hip:N here, through libamdhip64.so"},
        {"gpu", "graphics cards are hip:N (NVIDIA, AMD) and opencl:N here; each needs its driver"},
        {"metal", "there is no Metal here; graphics cards are hip:N and opencl:N"},
        {"mps", "there is no Metal here; graphics cards are hip:N and opencl:N"},
        {"vulkan", "there is no Vulkan here; graphics cards are hip:N (NVIDIA, AMD) and opencl:N"},
        {"sycl", "there is no SYCL here; Intel's cards are opencl:N"},
        {"xpu", "there is no SYCL here; Intel's cards are opencl:N"},
        {"intel", "Intel's cards are opencl:N here"},
        {"none", "no card is --device cpu here"},
    };
    size_t n = 0; /* CUDA0, cuda:1, "Vulkan 0" are such words with a number */
    while (n < bytes && isalpha((unsigned char)name[n])) {
        n++;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (n == strlen(rows[i].word) && holds(name, rows[i].word, n) &&
            strspn(name + n, ": 0123456789") >= bytes - n) {
            return rows[i].meant;
        }
    }
    return NULL;
}

static gw_status not_there(const gw_backend *const *backends, const char *name, size_t bytes) {
    char list[LIST + 64];
    list_devices(backends, list, sizeof list);
    const char *meant = words_of_others(name, bytes);
    if (meant != NULL) {
        return gw_fail(GW_E_DEVICE, "device", "'%.*s' is no name here: %s; there are %s",
                       bytes < 40 ? (int)bytes : 40, name, meant, list);
    }
    return gw_fail(GW_E_DEVICE, "device", "'%.*s' is not on this machine; there are %s",
                   bytes < 40 ? (int)bytes : 40, name, list);
}

/* "opencl", "opencl:1": 1 when the name is of this backend; *ordinal. */
static int is_named(const gw_backend *b, const char *name, size_t bytes, int *ordinal) {
    size_t n = strlen(b->name), at = n + 1;
    if (bytes < n || memcmp(name, b->name, n) != 0 || (bytes > n && name[n] != ':')) {
        return 0;
    }
    long value = 0;
    for (; at < bytes && isdigit((unsigned char)name[at]) && value < 1000; at++) {
        value = value * 10 + (name[at] - '0');
    }
    *ordinal = (int)value;
    return bytes == n || (bytes > n + 1 && at == bytes);
}

static gw_status find_device(const gw_backend *const *backends, const char *name, size_t bytes,
                             found *out) {
    int ordinal;
    for (size_t i = 0; backends[i] != NULL; i++) {
        if (is_named(backends[i], name, bytes, &ordinal)) {
            if (ordinal >= backends[i]->device_count()) {
                return not_there(backends, name, bytes);
            }
            *out = (found){backends[i], ordinal};
            return GW_OK;
        }
    }
    for (size_t i = 0; bytes > 0 && backends[i] != NULL; i++) {
        int n = backends[i]->device_count();
        for (int k = 0; k < n; k++) {
            gw_device_info info;
            backends[i]->describe(NULL, k, &info);
            if (holds(info.name, name, bytes)) {
                *out = (found){backends[i], k};
                return GW_OK;
            }
        }
    }
    return not_there(backends, name, bytes);
}

/* ---- opening --------------------------------------------------------------------------------- */

static gw_status open_one(gw_place *p, const gw_model_options *o, const found *f) {
    gw_device_options options = {
        .threads = o->threads, .blas = o->blas, .exact = o->exact, .no_graph = o->no_graph};
    gw_plan_device *d = &p->devices[p->n_devices];
    gw_device_info *info = &p->info[p->n_devices];
    GW_TRY(f->backend->open(f->ordinal, &options, &d->device));
    d->backend = f->backend;
    f->backend->describe(d->device, f->ordinal, info);
    p->n_devices++;
    return GW_OK;
}

static gw_status ask(gw_place *p, const gw_model_options *o, const found *f) {
    int index = p->n_devices;
    char id[sizeof p->info[0].id];
    gw_device_info info;
    f->backend->describe(NULL, f->ordinal, &info);
    snprintf(id, sizeof id, "%s", info.id);
    if (strcmp(id, p->info[0].id) == 0) {
        index = 0;
    }
    for (int i = 0; i < p->n_asked; i++) {
        if (strcmp(id, p->info[p->asked[i]].id) == 0) {
            return gw_fail(GW_E_ARGUMENT, "device", "%s is named twice", id);
        }
    }
    if (index == GW_MAX_DEVICES) {
        return gw_fail(GW_E_ARGUMENT, "device", "at most %d devices share a model",
                       GW_MAX_DEVICES - 1);
    }
    if (index > 0) {
        GW_TRY(open_one(p, o, f));
    }
    p->asked[p->n_asked++] = index;
    return GW_OK;
}

static gw_status ask_list(gw_place *p, const gw_model_options *o,
                          const gw_backend *const *backends) {
    for (const char *at = o->device;;) {
        size_t n = strcspn(at, ",");
        found f;
        GW_TRY(find_device(backends, at, n, &f));
        GW_TRY(ask(p, o, &f));
        if (at[n] == '\0') {
            return GW_OK;
        }
        at += n + 1;
    }
}

static int list_cards(const gw_backend *b, int *ordinals, int room) {
    if (b->cards != NULL) {
        return b->cards(ordinals, room);
    }
    int n = b->by_name_only ? 0 : b->device_count();
    n = n < room ? n : room;
    for (int k = 0; k < n; k++) {
        ordinals[k] = k;
    }
    return n;
}

/* Nobody named a device: the first card that opens; where several are to compute together, all of
 * its backend that do. */
static void ask_card(gw_place *p, const gw_model_options *o, const gw_backend *const *backends,
                     int skip) {
    enum { CARDS = 32 };
    for (size_t i = 1; backends[i] != NULL; i++) {
        int ordinals[CARDS], n = list_cards(backends[i], ordinals, CARDS);
        for (int k = 0; k < n; k++) {
            found f = {backends[i], ordinals[k]};
            if (p->tried++ < skip) {
                continue;
            }
            if (ask(p, o, &f) == GW_OK) {
                int together = o->split_mode != NULL && strcmp(o->split_mode, "layer") != 0;
                for (int more = k + 1; together && more < n; more++) {
                    f.ordinal = ordinals[more];
                    if (ask(p, o, &f) != GW_OK) {
                        gw_place_add_note(p, gw_error_text());
                    }
                }
                return;
            }
            gw_place_add_note(p, gw_error_text());
        }
    }
}

static gw_status read_split(gw_place *p, const char *split) {
    const char *at = split;
    for (int i = 0; i < p->n_asked; i++) {
        char *end = NULL;
        double x = isdigit((unsigned char)*at) || *at == '.' ? strtod(at, &end) : -1.0;
        int last = i + 1 == p->n_asked;
        if (end == NULL || !(x >= 0.0 && x < 1e9) || *end != (last ? '\0' : ',')) {
            return gw_fail(GW_E_ARGUMENT, "split", "'%.40s' is not a list of %d share%s", split,
                           p->n_asked, p->n_asked == 1 ? "" : "s");
        }
        p->share[i] = x;
        at = end + 1;
    }
    double sum = 0.0;
    for (int i = 0; i < p->n_asked; i++) {
        sum += p->share[i];
    }
    return sum > 0.0 ? GW_OK : gw_fail(GW_E_ARGUMENT, "split", "all shares are zero");
}

static int wants_layers_moved(const gw_model_options *o) {
    return o->offload_layers != NULL && strcmp(o->offload_layers, "0") != 0;
}

/* Where cards are looked for and none works. */
static void stay_home(gw_place *p, const gw_model_options *o) {
    char text[160] = "";
    if (wants_layers_moved(o)) {
        snprintf(text, sizeof text, "no device to offload layers to: the %s computes",
                 p->info[0].id);
    } else if (p->tried > 0) {
        snprintf(text, sizeof text, "the %s computes", p->info[0].id);
    }
    gw_place_add_note(p, text);
}

static gw_status share_out(gw_place *place, const gw_model_options *options) {
    for (int i = 0; i < place->n_asked; i++) {
        uint64_t room = place->info[place->asked[i]].free_bytes;
        place->share[i] = room > 0 ? (double)room : 1.0;
    }
    GW_TRY(options->split != NULL ? read_split(place, options->split) : GW_OK);
    return gw_place_group_devices(place, options);
}

static gw_status read_fetching(gw_place *p, const char *text) {
    static const char *const names[] = {"auto", "on", "off"};
    for (int i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            p->fetching = (gw_fetching)i;
            return GW_OK;
        }
    }
    return text == NULL
               ? GW_OK
               : gw_fail(GW_E_ARGUMENT, "prompt-offload", "'%.40s' is none of auto, on, off", text);
}

int gw_place_fetches(const gw_place *p) {
    int d = p->n_asked > 0 ? p->asked[0] : 0;
    d = d == 0 && p->n_asked > 1 ? p->asked[1] : d;
    int can = d > 0 && !p->grouped && p->fetching != GW_FETCH_NEVER;
    return can && p->devices[d].backend->fetch_weight != NULL ? d : 0;
}

gw_status gw_place_open(const gw_model_options *options, const gw_backend *const *backends,
                        const gw_passed *passed, gw_place *place) {
    memset(place, 0, sizeof *place);
    gw_place_add_note(place, passed->why);
    GW_TRY(read_fetching(place, options->prompt_offload));
    GW_TRY(gw_place_read_hosting(place, options->kv_host_layers));
    found home = {backends[0], 0};
    int named = options->device != NULL && strcmp(options->device, "auto") != 0;
    int wanted =
        options->offload_layers == NULL ? options->device != NULL : wants_layers_moved(options);
    place->automatic = options->device != NULL && !named;
    GW_TRY(open_one(place, options, &home));
    if (named) {
        GW_TRY(ask_list(place, options, backends));
    } else if (wanted) {
        ask_card(place, options, backends, passed->cards);
    }
    if (place->n_asked == 0) {
        place->asked[place->n_asked++] = 0;
        if (!named && wanted) {
            stay_home(place, options);
        }
        if (!named) {
            place->share[0] = 1.0;
            return GW_OK; /* a split is for cards */
        }
    }
    if (place->n_asked == 1 && place->asked[0] == 0 && named && wants_layers_moved(options)) {
        return gw_fail(GW_E_ARGUMENT, "offload-layers", "%s is where layers are without it",
                       place->info[0].id);
    }
    return share_out(place, options);
}

int gw_place_pass_over(const gw_place *place, const gw_model_options *options, gw_status status,
                       gw_passed *passed) {
    const char *layers = options->offload_layers;
    int named = options->device != NULL && !place->automatic;
    int strict = layers != NULL && strcmp(layers, "auto") != 0; /* so many, or an error */
    if (named || place->n_devices < 2 || status == GW_E_CANCELLED || status == GW_E_ARGUMENT ||
        (strict && status != GW_E_DEVICE)) {
        return 0;
    }
    passed->cards = place->tried;
    add_text(passed->why, sizeof passed->why, gw_error_text());
    return 1;
}

void gw_place_close(gw_place *place) {
    for (int d = 0; d < place->n_devices; d++) {
        if (place->group[d].link != NULL) {
            place->devices[d].backend->unlink(place->group[d].link);
        }
    }
    for (int i = 0; i < place->n_devices; i++) {
        place->devices[i].backend->close(place->devices[i].device);
    }
    free(place->where);
    memset(place, 0, sizeof *place);
}

/* ---- description ----------------------------------------------------------------------------- */

static const char *note_of(const gw_plan_device *d) {
    return d->backend->note != NULL ? d->backend->note(d->device) : "";
}

void gw_place_add_notes(gw_place *p) {
    for (int d = 0; d < p->n_devices; d++) {
        const char *text = note_of(&p->devices[d]);
        int used = 0;
        for (int at = 0; at < (p->n_layers + 1) * p->n_blocks; at++) {
            used |= p->where[at] == d;
        }
        if (text[0] != '\0' && used) {
            gw_place_add_note(p, text);
        }
        p->noted |= text[0] != '\0' ? 1u << d : 0u;
    }
}

const char *gw_place_fault(const gw_place *p) {
    for (int d = 0; d < p->n_devices; d++) {
        if ((p->noted >> d & 1) == 0 && note_of(&p->devices[d])[0] != '\0') {
            return note_of(&p->devices[d]);
        }
    }
    return p->fault;
}

/* Layers whose last block runs on the device: what has no kernel there is no move of the layer. */
static int count_layers(const gw_place *p, int device) {
    int layers = 0;
    for (int l = 0; l < p->n_layers; l++) {
        layers += p->where[l * p->n_blocks + p->last_block] == device;
    }
    return layers;
}

void gw_place_text(const gw_place *p, char *out, size_t room) {
    int head = p->where[p->n_layers * p->n_blocks + p->n_blocks - 1];
    out[0] = '\0';
    for (int k = 0; k < p->n_devices; k++) {
        int d = (k + 1) % p->n_devices, layers = count_layers(p, d); /* home last */
        int all = layers == p->n_layers && head == d;
        char line[256], what[48] = "", threads[32] = "";
        gw_group group = gw_place_group(p, d);
        for (int c = 1; c < group.n && (layers > 0 || head == d); c++) {
            snprintf(line, sizeof line, "%s (%.127s)", p->info[group.device[c - 1]].id,
                     p->info[group.device[c - 1]].name);
            add_with(out, room, line, c > 1 ? " + " : "; ");
        }
        if (!all) {
            snprintf(what, sizeof what, ": %d layer%s%s", layers, layers == 1 ? "" : "s",
                     head == d ? " and the head" : "");
        }
        if (d == 0) {
            snprintf(threads, sizeof threads, ", %d thread%s", p->info[0].threads,
                     p->info[0].threads == 1 ? "" : "s");
        }
        if (layers > 0 || head == d) {
            int last = group.device[group.n - 1];
            snprintf(line, sizeof line, "%s (%.127s)%s%s", p->info[last].id, p->info[last].name,
                     threads, what);
            add_with(out, room, line, group.n > 1 ? " + " : "; ");
        }
    }
}

void gw_place_chosen(const gw_place *p, char *out, size_t room) {
    int d = p->asked[0];
    out[0] = '\0';
    if (!p->automatic || d == 0) {
        return;
    }
    const gw_device_info *card = &p->info[d];
    int layers = count_layers(p, d);
    if (p->offloaded == 0) {
        snprintf(out, room, "on the CPU: %s %.100s; --device %s for the card",
                 p->none_fits ? "not one layer fits on" : "faster here than", card->name, card->id);
    } else if (layers == p->n_layers) {
        snprintf(out, room, "on %.100s, all %d layers; --device cpu for the CPU", card->name,
                 layers);
    } else {
        snprintf(out, room, "on %.100s, %d of %d layers; --device cpu for the CPU alone",
                 card->name, layers, p->n_layers);
    }
}
