/* core/quantize/original_check.h - does a GGUF file mean what the folder means that it was made of?
 *
 * Both are opened by their specs, and what the model would compute is compared: hyper-parameters of
 * every layer, angles of positions, blocks with their numbers, weights, and the ids of a text.
 */
#ifndef GW_QUANTIZE_ORIGINAL_CHECK_H
#define GW_QUANTIZE_ORIGINAL_CHECK_H

#include "core/quantize/original.h"

/* The folder's GGUF form, before anything is written: an image of its head, whose data is memory
 * that is never touched. GW_E_UNSUPPORTED says what GGUF's keys cannot say. */
gw_status gw_original_check_form(const gw_original *s);
/* The same of a whole file. */
gw_status gw_original_check_file(const gw_original *s, const char *path);

#endif
