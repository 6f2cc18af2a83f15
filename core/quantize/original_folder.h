/* core/quantize/original_folder.h - what original_folder.c and original_vocab.c share. */
#ifndef GW_QUANTIZE_ORIGINAL_FOLDER_H
#define GW_QUANTIZE_ORIGINAL_FOLDER_H

#include "core/quantize/mixture.h"
#include "core/quantize/original.h"

/* The tokenizer and chat templates as GGUF's pairs. GW_E_UNSUPPORTED: a tokenizer that has no form
 * there. */
gw_status gw_original_take_vocab(gw_original *s);

#endif
