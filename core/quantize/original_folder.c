/* core/quantize/original_folder.c - a folder's model in GGUF's names and order. */
#include "core/quantize/original.h"

gw_status gw_original_take_folder(gw_original *s) {
    return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(s->checkpoint),
                   "is a folder; give a GGUF file of the model");
}
