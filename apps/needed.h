/* apps/needed.h - of a model of an unknown family: the blocks that it consists of, told by names of
 * its tensors and of its numbers. */
#ifndef GODWIT_APPS_NEEDED_H
#define GODWIT_APPS_NEEDED_H

#include "include/godwit.h"

typedef struct app_needed {
    const char *block;
    const char *by;   /* what of a spec computes it, NULL: nothing */
    const char *seen; /* the tensor or number that tells */
} app_needed;

enum { APP_NEEDED_MOST = 64 };

/* Is word[n] in a list of words that blanks part, or the same with "+experts" after it? */
int app_has_word(const char *list, const char *word, size_t n);

/* Whether a model of this architecture would be looked for in vain among the families. */
int app_unknown_family(const char *architecture);

/* Fills out with the blocks of a model, and returns how many. */
size_t app_needed_blocks(const gw_meta *meta, size_t n_meta, const gw_tensor_info *tensors,
                         size_t n_tensors, app_needed out[APP_NEEDED_MOST]);

#endif
