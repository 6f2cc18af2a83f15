/* apps/model_name.h - what people call a model: a file, a folder, and names that are neither. */
#ifndef GW_APPS_MODEL_NAME_H
#define GW_APPS_MODEL_NAME_H

#include "apps/options.h"

/* Of each model that the options name and that is no file or folder here, and whose name is that of
 * something else (a model of a hub, an address, ~ that no shell expanded, a lone word): the error,
 * which says what to do. Paths that just are not there are the library's to report. Exit code. */
int model_names_check(const app_options *o);

#endif
