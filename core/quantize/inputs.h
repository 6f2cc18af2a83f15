/* core/quantize/inputs.h - what a model's matrices are multiplied with on a text: sums of squares
 * for importance, and X^T X for error feedback.
 *
 * Matrices that read the same input (q, k and v; gate and up) share what is collected. Of experts
 * each has the rows that are sent to it, and X^T X as if it had seen 64 rows more of what all have.
 */
#ifndef GW_QUANTIZE_INPUTS_H
#define GW_QUANTIZE_INPUTS_H

#include "core/plan/backend.h"
#include "core/quantize/imatrix.h"
#include "core/quantize/original.h"
#include "core/quantize/quantize.h"

/* Windows of a text that quantizing reads where nobody says how many. */
enum { GW_CALIBRATE_WINDOWS = 192 };

typedef struct gw_inputs gw_inputs;

typedef struct gw_inputs_wish {
    const char *text; /* its file */
    int32_t windows, n_ctx;
    int threads;
    int with_output;
    int as_seen;     /* names are the model's own, not GGUF's */
    int xtx;         /* X^T X too, ... */
    uint64_t memory; /* ... as much as fits; 0: half of what is free */
    const volatile int *cancel;
    gw_line_fn say;
    void *say_user;
} gw_inputs_wish;

/* Runs the float model over windows of the text. GW_E_NUMERIC names matrix and column where an
 * input is not finite. */
gw_status gw_inputs_collect(const gw_original *original, const gw_backend *const *backends,
                            const gw_inputs_wish *wish, gw_inputs **out);
void gw_inputs_free(gw_inputs *inputs); /* accepts NULL */

/* As an importance matrix of its own; added to one that is there. */
gw_status gw_inputs_imatrix(const gw_inputs *inputs, const char *text, gw_imatrix *out);
/* X^T X of a matrix, or of one of its experts, [cols, cols], borrowed; NULL: none was collected. */
float *gw_inputs_find(const gw_inputs *inputs, const char *name, int64_t cols, int64_t expert);
/* All of X^T X but experts' as a safetensors file. */
gw_status gw_inputs_write_xtx(const gw_inputs *inputs, const char *path);

gw_status gw_quantize_model(const gw_quantize_options *o, gw_parallel_fn parallel,
                            const gw_backend *const *backends);
gw_status gw_calibrate_model(const gw_calibrate_options *o, const gw_backend *const *backends);

#endif
