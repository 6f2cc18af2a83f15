/* include/godwit_fill.h - text between a prefix and a suffix ("fill in the middle", FIM), by models
 * that were trained for it: the prompt for it. Threads as in godwit.h.
 */
#ifndef GODWIT_FILL_H
#define GODWIT_FILL_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_fill_file { /* another file of the project */
    const char *name;         /* NULL: none */
    const char *text;
    size_t bytes;
} gw_fill_file;

typedef struct gw_fill {
    const char *prefix, *suffix; /* never become special tokens, whatever they spell */
    size_t prefix_bytes, suffix_bytes;
    const char *begun; /* what the text between begins with; NULL: nothing */
    size_t begun_bytes;
    const gw_fill_file *files; /* [n_files], the most telling last; borrowed for the call */
    size_t n_files;
    const char *name; /* of the file that is filled in; NULL: unknown */
    const char *repo; /* NULL: unknown */
    size_t room;      /* most tokens of the prompt; 0: as many as it takes */
} gw_fill;

/* What the model lacks for it, as words of a message ("no prefix token"); NULL: nothing. */
const char *gw_fill_lacks(const gw_model *model);

/* ids: out, malloc'd [*n], gw_free: a prompt after which the model writes what belongs between
 * prefix and suffix, and then an end token. What does not fit in `room` is cut: files from the
 * first one on, then the beginning of the prefix and the end of the suffix, of which the prefix
 * keeps three quarters of the room or what the suffix does not need; *cut: so many tokens (NULL:
 * not asked). GW_E_UNSUPPORTED: gw_fill_lacks. GW_E_LIMIT: not even `begun` fits. */
gw_status gw_fill_in(const gw_model *model, const gw_fill *fill, int32_t **ids, size_t *n,
                     size_t *cut);

#ifdef __cplusplus
}
#endif

#endif
