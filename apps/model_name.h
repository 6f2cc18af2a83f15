/* apps/model_name.h - what people call a model: a file, a folder, a name on a hub, and names that
 * are none of these. */
#ifndef GW_APPS_MODEL_NAME_H
#define GW_APPS_MODEL_NAME_H

#include "apps/options.h"

/* Each model that the options name by its name on a hub, by --hf-repo or an address becomes the
 * path of its file or folder: in the cache, or after a download (of `serve` only by --hf-repo and
 * --model-url). For other names that are no file or folder here the error says what to do; paths
 * that just are not there are the library's to report. Exit code. */
int model_names_resolve(app_options *o, const app_command *command);

/* Is a .gguf file, by its name, the part of a model that reads pictures (mmproj)? */
int model_name_is_image_part(const char *path);

#endif
