/* core/model/mmproj.h - finds the vision tower of a GGUF file, which is a file of its own. */
#ifndef GW_MODEL_MMPROJ_H
#define GW_MODEL_MMPROJ_H

#include "include/godwit.h"

/* The only file next to a GGUF file, or in a folder of them, whose name says that it is a vision
 * tower (mmproj); "" for a Hugging Face folder, which has its tower itself. GW_E_UNSUPPORTED: there
 * is none, or several. */
gw_status gw_folder_mmproj(const char *path, char *out, size_t room);

#endif
