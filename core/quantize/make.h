/* core/quantize/make.h - the parts of making a GGUF file: what every tensor becomes (choose.c), and
 * the files, one tensor after the other, from a journal on where there is one (make.c).
 */
#ifndef GW_QUANTIZE_MAKE_H
#define GW_QUANTIZE_MAKE_H

#include "core/quantize/imatrix.h"
#include "core/quantize/mixture.h"
#include "core/quantize/quantize.h"
#include "core/quantize/original.h"

typedef struct gw_item {
    const gw_original_tensor *t;
    gw_fmt to, wanted;                  /* wanted: before its columns were looked at           */
    const gw_imatrix_entry *importance; /* NULL: none */
    int part;                           /* file that it goes to                                 */
    uint64_t at, bytes;                 /* in the data of that file                             */
    size_t row_bytes;
    const char *kept;   /* why it stays as it is; NULL: it is made anew */
    double error, size; /* sums of h (w - q)^2 and of h w^2 */
    uint64_t hash;
    _Atomic uint64_t source; /* digest of the values that it is made of: a sum over rows */
    int by_feedback;
} gw_item;

typedef struct gw_making {
    const gw_quantize_options *o;
    gw_parallel_fn parallel;
    gw_original source;
    gw_imatrix imatrix; /* n 0: none */
    gw_mixture mixture;
    gw_item *list; /* [source.n] */
    int parts;
    struct gw_inputs *inputs; /* X^T X of matrices; NULL: none (inputs.h) */
} gw_making;

void gw_say(const gw_quantize_options *o, const char *fmt, ...) GW_PRINTF(2, 3);

/* Formats of all tensors by mixture, rules and shapes; what is not possible is refused before any
 * work. Says the table. */
gw_status gw_choose_formats(gw_making *m);
/* Importance of the columns of a tensor [experts, cols], malloc'd; *out NULL: it has none. */
gw_status gw_importance_of(const gw_making *m, const gw_item *item, float **out);

/* Bytes of all files for the formats as they are chosen now. */
gw_status gw_gguf_bytes(gw_making *m, uint64_t *out);
/* All files, under their names when all are whole. */
gw_status gw_write_gguf(gw_making *m);
/* report.c: what was made, as JSON. */
gw_status gw_write_report(const gw_making *m, double seconds);

#endif
