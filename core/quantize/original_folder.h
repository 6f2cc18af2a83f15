/* core/quantize/original_folder.h - what the original_*.c files of a folder share. */
#ifndef GW_QUANTIZE_ORIGINAL_FOLDER_H
#define GW_QUANTIZE_ORIGINAL_FOLDER_H

#include "core/quantize/mixture.h"
#include "core/quantize/original.h"

/* The tokenizer and chat templates as GGUF's pairs. GW_E_UNSUPPORTED: a tokenizer that has no form
 * there. */
gw_status gw_original_take_vocab(gw_original *s);
/* original_numbers.c: hyper-parameters and the scaling of positions as pairs, by the keys of the
 * spec that the file will be read by; divisors of frequencies as tensors of the list. */
gw_status gw_original_take_numbers(gw_original *s);
gw_status gw_original_take_divisors(gw_original *s);
/* Where row `row` of the GGUF order stands in the folder's: pairs of a rotation side by side, there
 * half a head apart. */
int64_t gw_original_row_before(const gw_original_tensor *t, int64_t row);
/* Rows of a tensor whose state is floats. */
gw_status gw_original_given(const gw_original_tensor *t, int64_t first, int64_t n, float *out);
/* GW_E_UNSUPPORTED: `what` named `of` has no form in GGUF here. */
gw_status gw_original_no_form(const gw_original *s, const char *what, const char *of);

#endif
