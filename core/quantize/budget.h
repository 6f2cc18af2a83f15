/* core/quantize/budget.h - `--fit SIZE`: which matrix gets how many bits, so that the file is not
 * larger than SIZE and the model's answers change least.
 *
 * Each matrix of the layers is put alone into two formats, and the Kullback-Leibler divergence of
 * the model's answers from the float model's is measured on windows of the text; in other formats
 * it goes by how far the weights are off. Sums of these are close to the divergence of all
 * together. The choice of least sum under the budget is found by a price per byte, and measured
 * against the best single format that fits. The float model lies in memory meanwhile.
 */
#ifndef GW_QUANTIZE_BUDGET_H
#define GW_QUANTIZE_BUDGET_H

#include "core/plan/backend.h"
#include "core/quantize/make.h"

/* Changes `to` of m's items; they have been chosen for a type already, and head and embedding stay
 * as they are. GW_E_ARGUMENT: no text, or not even the smallest formats fit. */
gw_status gw_fit_budget(gw_making *m, const gw_backend *const *backends);

#endif
