/* apps/serve/adapters.h - the adapters of the only model, by the numbers that clients see. A number
 * is kept while its adapter is served; after it was unloaded another one may have it. On the loop's
 * thread; texts of an adapter stay as they are until its number is given away, which no load of a
 * model is under way for.
 */
#ifndef GW_APPS_SERVE_ADAPTERS_H
#define GW_APPS_SERVE_ADAPTERS_H

#include "apps/options.h"
#include "include/godwit_lora.h"

typedef struct adapter {
    char *name; /* NULL: it has none: it is in all texts that choose nothing */
    char *path;
    float scale;
    int gone; /* unloaded: no text has it any more */
} adapter;

typedef struct adapters {
    adapter at[GW_LORA_MOST];
    int32_t n;
    int unapplied; /* none is in texts that choose nothing */
} adapters;

/* Those of --lora. Exit code. */
int adapters_read(const app_options *o, adapters *out);
void adapters_free(adapters *all);

/* Of what is called so and served; -1: there is none. */
int32_t adapters_find(const adapters *all, const char *name);
/* Was one called so, and is none now? */
int adapters_lost(const adapters *all, const char *name);
/* Where one more may stand; -1: there are as many as a model takes. */
int32_t adapters_room(const adapters *all, const char *name);
/* Takes over the texts of `one`. */
void adapters_put(adapters *all, int32_t number, adapter one);

/* For gw_model_adapt: all that are served, and instead of number `instead` (-1: none) `one`. files,
 * numbers [GW_LORA_MOST]: borrowed texts, and whose they are. How many. */
size_t adapters_files(const adapters *all, int32_t instead, const adapter *one, gw_lora_file *files,
                      int32_t *numbers);

#endif
