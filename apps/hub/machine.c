/* apps/hub/machine.c - the memories of this machine, as choice.h describes them. */
#include <stdio.h>
#include <string.h>

#include "apps/caches.h"
#include "apps/common.h"
#include "apps/hub/choice.h"
#include "apps/roof.h"
#include "core/base/os.h"

/* Nobody named a device: the built-in model is put on a card, since which one works is found out by
 * trying. Its gw_model_info.device; "" without a built-in model. */
static int card_that_works(char *text, size_t room) {
    gw_model_options options = {.device = "auto", .offload_layers = "all"};
    gw_model *model = NULL;
    gw_model_info info;
    if (!app_has_builtin_model()) {
        return APP_OK;
    }
    int code = app_builtin_model(&options.memory, &options.memory_bytes);
    if (code != APP_OK) {
        return code;
    }
    gw_status status = gw_model_open(&options, &model);
    if (status != GW_OK) {
        return app_fail(status);
    }
    gw_model_describe(model, &info);
    snprintf(text, room, "%s", info.device);
    gw_model_free(model);
    return APP_OK;
}

static void add_device(const app_options *o, const gw_device_info *d, hub_machine *out) {
    gw_roof roof = {0};
    int is_cpu = strcmp(d->id, "cpu") == 0;
    if (out->n == GW_DEVICES_MAX) {
        return;
    }
    (void)roof_of_device(d->id, is_cpu ? o->threads : 0, 0, &roof, NULL); /* else not known */
    uint64_t room = d->free_bytes;
    if (!is_cpu && o->vram_budget > 0 && (room == 0 || o->vram_budget < room)) {
        room = o->vram_budget;
    }
    snprintf(out->at[out->n].id, sizeof out->at[0].id, "%s", is_cpu ? "main memory" : d->id);
    out->at[out->n].room = room;
    out->at[out->n++].gbps = roof.read_gbps;
}

/* The row that a word of --device means: its id, the first of its kind, a part of its name. */
static size_t named_row(const gw_device_info *rows, size_t n, const char *word, size_t bytes) {
    for (size_t i = 0; i < n; i++) {
        const char *id = rows[i].id;
        if (strncmp(id, word, bytes) == 0 && (id[bytes] == '\0' || id[bytes] == ':')) {
            return i;
        }
    }
    for (size_t i = 0; i < n; i++) {
        for (const char *at = rows[i].name; *at != '\0'; at++) {
            if (strncasecmp(at, word, bytes) == 0) {
                return i;
            }
        }
    }
    return n;
}

static int add_named(const app_options *o, const gw_device_info *rows, size_t n, hub_machine *out) {
    for (const char *at = o->device;;) {
        size_t bytes = strcspn(at, ","), i = bytes > 0 ? named_row(rows, n, at, bytes) : n;
        if (i == n) {
            app_error("--device: '%.*s' is not on this machine: 'godwit devices' lists what is",
                      bytes < 60 ? (int)bytes : 60, at);
            return APP_FAILURE;
        }
        add_device(o, &rows[i], out);
        if (at[bytes] == '\0') {
            return APP_OK;
        }
        at += bytes + 1;
    }
}

int choice_machine(const app_options *o, hub_machine *out) {
    enum { ROWS = 32 };
    gw_device_info rows[ROWS];
    char used[2048] = "", part[40];
    size_t n = gw_devices(rows, ROWS), others = 0, cpu = ROWS;
    *out = (hub_machine){.caches = cache_bytes()};
    n = n < ROWS ? n : ROWS;
    if (o->device != NULL && strcmp(o->device, "auto") != 0) {
        return add_named(o, rows, n, out);
    }
    for (size_t i = 0; i < n; i++) {
        int is_cpu = strcmp(rows[i].id, "cpu") == 0;
        cpu = is_cpu ? i : cpu;
        others += !is_cpu && strcmp(rows[i].id, "ref") != 0;
    }
    int code = others > 0 ? card_that_works(used, sizeof used) : APP_OK;
    hub_machine home = {.n = 0};
    if (code == APP_OK && cpu < ROWS) {
        add_device(o, &rows[cpu], &home);
    }
    for (size_t i = 0; i < n && code == APP_OK; i++) {
        snprintf(part, sizeof part, "%.31s (", rows[i].id);
        if (i != cpu && strstr(used, part) != NULL) {
            add_device(o, &rows[i], out);
            double gbps = out->at[out->n - 1].gbps; /* a slower card is not chosen by itself */
            out->n -= gbps > 0 && gbps < home.at[0].gbps;
        }
    }
    if (home.n > 0 && out->n < GW_DEVICES_MAX) {
        out->at[out->n++] = home.at[0]; /* last: it takes what the cards do not hold */
    }
    return code;
}
