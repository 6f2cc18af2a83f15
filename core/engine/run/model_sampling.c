/* core/engine/run/model_sampling.c - how a model's publisher recommends to sample:
 * general.sampling.* of a GGUF file, generation_config.json of a folder. */
#include <string.h>

#include "core/engine/run/model_state.h"
#include "include/godwit_bind.h"

static const struct {
    const char *name, *gguf, *hf; /* NULL: has no such key */
} rows[] = {{"temperature", "temp", "temperature"},
            {"top_k", "top_k", "top_k"},
            {"top_p", "top_p", "top_p"},
            {"min_p", "min_p", "min_p"},
            {"typical_p", NULL, "typical_p"},
            {"repeat_penalty", "penalty_repeat", "repetition_penalty"},
            {"repeat_last_n", "penalty_last_n", NULL},
            {"xtc_probability", "xtc_probability", NULL},
            {"xtc_threshold", "xtc_threshold", NULL},
            {"mirostat", "mirostat", NULL},
            {"mirostat_tau", "mirostat_tau", NULL},
            {"mirostat_eta", "mirostat_eta", NULL}};

int gw_model_sampling(const gw_model *model, const char *name, double *value) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return gw_checkpoint_sampling(model->checkpoint, rows[i].gguf, rows[i].hf, value);
        }
    }
    return 0;
}
