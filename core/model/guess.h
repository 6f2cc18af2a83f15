/* core/model/guess.h - what a file that is no model really is, for a helpful message. */
#ifndef GW_MODEL_GUESS_H
#define GW_MODEL_GUESS_H

#include <stdint.h>

/* A clause such as "it is a web page; ...": a constant string, never NULL. Reads only the first few
 * hundred of the `size` bytes. */
const char *gw_guess_file(const void *data, uint64_t size);

#endif
