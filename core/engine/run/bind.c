/* core/engine/run/bind.c - what bindings ask of the library: see godwit_bind.h. */
#include "include/godwit_bind.h"

#include <string.h>

#include "core/engine/run/model_state.h"
#include "core/engine/run/session_state.h"
#include "include/godwit_encoder.h"
#include "include/godwit_lora.h"
#include "include/godwit_writer.h"

const char *gw_version(void) { return GW_VERSION; }

size_t gw_struct_size(const char *name) {
    static const struct {
        const char *name;
        size_t size;
    } rows[] = {{"gw_model_options", sizeof(gw_model_options)},
                {"gw_session_options", sizeof(gw_session_options)},
                {"gw_sampler_options", sizeof(gw_sampler_options)},
                {"gw_writer_options", sizeof(gw_writer_options)},
                {"gw_answer_options", sizeof(gw_answer_options)},
                {"gw_encoder_options", sizeof(gw_encoder_options)},
                {"gw_batch_options", sizeof(gw_batch_options)},
                {"gw_request_options", sizeof(gw_request_options)},
                {"gw_event", sizeof(gw_event)},
                {"gw_lora_file", sizeof(gw_lora_file)},
                {"gw_lora_info", sizeof(gw_lora_info)},
                {"gw_lora_pick", sizeof(gw_lora_pick)}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].size;
        }
    }
    return 0;
}

typedef struct rows_out {
    float *out;
    size_t width;
} rows_out;

static int keep_row(void *user, size_t row, const float *logits) {
    const rows_out *to = user;
    memcpy(to->out + row * to->width, logits, to->width * sizeof *logits);
    return 0;
}

gw_status gw_session_prefill_logits(gw_session *s, const int32_t *tokens, size_t n, size_t n_vocab,
                                    float *out) {
    if (n_vocab != (size_t)s->model->hp.n_vocab) {
        return gw_fail(GW_E_ARGUMENT, "logits", "rows of %zu, but the model has %d tokens", n_vocab,
                       (int)s->model->hp.n_vocab);
    }
    rows_out to = {out, n_vocab};
    return gw_session_prefill_rows(s, tokens, n, 0, keep_row, &to);
}
