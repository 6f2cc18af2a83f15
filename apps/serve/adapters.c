/* apps/serve/adapters.c - see adapters.h. */
#include "apps/serve/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "apps/lora.h"
#include "apps/terminal.h"

static int put_new(adapters *all, const lora_spec *spec) {
    adapter one = {.path = strdup(spec->path), .scale = spec->scale};
    one.name = spec->name[0] != '\0' ? strdup(spec->name) : NULL;
    if (one.path == NULL || (spec->name[0] != '\0' && one.name == NULL)) {
        app_error("out of memory");
        free(one.path);
        free(one.name);
        return APP_FAILURE;
    }
    adapters_put(all, all->n, one);
    return APP_OK;
}

int adapters_read(const app_options *o, adapters *out) {
    int code = lora_check(o) == 0 ? APP_OK : APP_USAGE;
    if (code == APP_OK && o->lora.n > GW_LORA_MOST) {
        app_error("--lora: %zu adapters; a model has at most %d", o->lora.n, (int)GW_LORA_MOST);
        code = APP_USAGE;
    }
    out->unapplied = o->lora_unapplied;
    for (size_t i = 0; i < o->lora.n && code == APP_OK; i++) {
        lora_spec spec;
        code = lora_read(o, i, &spec) == 0 ? put_new(out, &spec) : APP_USAGE;
    }
    return code;
}

void adapters_free(adapters *all) {
    for (int32_t i = 0; i < all->n; i++) {
        free(all->at[i].name);
        free(all->at[i].path);
    }
    all->n = 0;
}

static int is_called(const adapter *a, const char *name) {
    return name != NULL && a->name != NULL && strcmp(a->name, name) == 0;
}

int32_t adapters_find(const adapters *all, const char *name) {
    for (int32_t i = 0; i < all->n; i++) {
        if (!all->at[i].gone && is_called(&all->at[i], name)) {
            return i;
        }
    }
    return -1;
}

int adapters_lost(const adapters *all, const char *name) {
    int lost = 0;
    for (int32_t i = 0; i < all->n; i++) {
        lost |= all->at[i].gone && is_called(&all->at[i], name);
    }
    return lost && adapters_find(all, name) < 0;
}

int32_t adapters_room(const adapters *all, const char *name) {
    int32_t free_one = all->n < GW_LORA_MOST ? all->n : -1;
    for (int32_t i = all->n - 1; i >= 0; i--) {
        if (all->at[i].gone) {
            free_one = i;
            if (is_called(&all->at[i], name)) {
                break; /* its old number */
            }
        }
    }
    return free_one;
}

void adapters_put(adapters *all, int32_t number, adapter one) {
    adapter *to = &all->at[number];
    if (number < all->n) {
        free(to->name);
        free(to->path);
    } else {
        all->n = number + 1;
    }
    *to = one;
}

size_t adapters_files(const adapters *all, int32_t instead, const adapter *one, gw_lora_file *files,
                      int32_t *numbers) {
    size_t n = 0;
    for (int32_t i = 0; i < GW_LORA_MOST; i++) {
        const adapter *a = i == instead ? one : i < all->n ? &all->at[i] : NULL;
        if (a != NULL && !a->gone) {
            int chosen = all->unapplied || a->name != NULL;
            files[n] = (gw_lora_file){
                .path = a->path, .name = a->name, .scale = chosen ? 0.0f : a->scale};
            numbers[n++] = i;
        }
    }
    return n;
}
