/* core/image/marks.h - how pictures stand in the text that a model reads, as its published
 * processor (transformers 5.24) writes it: a chat template puts one mark for each picture, and the
 * processor replaces it by the tokens that take the picture's features and what stands around them.
 */
#ifndef GW_IMAGE_MARKS_H
#define GW_IMAGE_MARKS_H

#include "core/image/patches.h"

typedef struct gw_marks {
    const char *mark; /* what a template writes for a picture, a special token            */
    const char *before, *after; /* around it where there is no template */
    const char *row; /* the token that takes a row of features; as often as there are some */
} gw_marks;

/* NULL: how pictures stand in a text is not known for this processor. */
const gw_marks *gw_marks_of(const gw_processor *p);

/* What replaces the mark. *out: malloc'd, NUL-terminated. GW_E_NOMEM, GW_E_UNSUPPORTED. */
gw_status gw_marks_text(const char *where, const gw_processor *p, const gw_patches *patches,
                        char **out);

#endif
