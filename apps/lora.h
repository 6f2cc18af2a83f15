/* apps/lora.h - adapters as --lora names them. */
#ifndef GW_APPS_LORA_H
#define GW_APPS_LORA_H

#include "apps/options.h"
#include "include/godwit_lora.h"

/* What --lora says, [o->lora.n], to be freed; NULL: an option, whose line was printed, or no
 * memory. by_name as below. */
gw_lora_file *lora_list(const app_options *o, int by_name);

/* The adapters of --lora for a model that is open; nothing where there are none. by_name: those
 * with a name are in no text that does not choose them. GW_E_ARGUMENT: an option, whose line was
 * printed; else the status of gw_model_adapt. */
gw_status lora_open(const app_options *o, gw_model *model, int by_name);

/* What a text has that calls the model by the name of an adapter; 0: there is none of that name. */
int lora_named(const app_options *o, const char *name, gw_lora_pick *out);
/* The i-th --lora's name where it has one, cut to room bytes; 0: it has none. */
int lora_name(const app_options *o, size_t i, char *out, size_t room);
/* The options alone, before a model is opened: 0, or -1 with the line printed. */
int lora_check(const app_options *o);

#endif
