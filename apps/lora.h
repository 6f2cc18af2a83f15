/* apps/lora.h - adapters as --lora names them. */
#ifndef GW_APPS_LORA_H
#define GW_APPS_LORA_H

#include "apps/options.h"
#include "include/godwit_lora.h"

/* [NAME=]PATH[:SCALE]. A name has no slash; what follows the last colon is a scale where it is a
 * number, else part of the path. */
typedef struct lora_spec {
    char name[GW_LORA_NAME], path[4096]; /* name: "" where there is none */
    float scale;
} lora_spec;

/* The i-th --lora. 0, or -1 with the line printed. */
int lora_read(const app_options *o, size_t i, lora_spec *out);

/* What --lora says, [o->lora.n], to be freed; NULL: an option, whose line was printed, or no
 * memory. */
gw_lora_file *lora_list(const app_options *o);

/* The adapters of --lora for a model that is open; nothing where there are none. GW_E_ARGUMENT: an
 * option, whose line was printed; else the status of gw_model_adapt. */
gw_status lora_open(const app_options *o, gw_model *model);

/* The options alone, before a model is opened: 0, or -1 with the line printed. */
int lora_check(const app_options *o);

#endif
