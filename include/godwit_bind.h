/* include/godwit_bind.h - the part of godwit.h for tools and for bindings of other languages: what
 * the loaded library is, and calls that save a binding a loop or a copy.
 *
 * Errors, ownership and thread rules are those of godwit.h. Bindings of other languages use the
 * `_sized` functions of godwit.h: its inline ones are not symbols of the library.
 */
#ifndef GODWIT_BIND_H
#define GODWIT_BIND_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that was loaded, "0.1.0": GW_VERSION is that of the header. */
const char *gw_version(void);

/* Sizes of the option structs of this build, for a binding that lays them out itself: 0 for a name
 * that is not known. name: "gw_model_options", "gw_session_options", "gw_sampler_options",
 * "gw_writer_options", "gw_answer_options", "gw_encoder_options", "gw_batch_options",
 * "gw_request_options", "gw_event", "gw_lora_file", "gw_lora_info", "gw_lora_pick". */
size_t gw_struct_size(const char *name);

/* gw_session_prefill, and the logits of all n tokens: out [n, n_vocab], the caller's, written row
 * by row without a call for each. n_vocab: as gw_model_describe says, GW_E_ARGUMENT when it is not.
 */
gw_status gw_session_prefill_logits(gw_session *s, const int32_t *tokens, size_t n, size_t n_vocab,
                                    float *out);

/* `to` becomes a session with the tokens and the cache of `from`, to go on from there on its own
 * with the same bits: a fork of its text, with its adapters (godwit_lora.h). Both are of one model
 * and kv_type; the context of `to` holds the tokens. Like a loaded session it has no logits until
 * its next pass: those of `from` are still there. GW_E_ARGUMENT, _TYPE, _CONTEXT, and
 * GW_E_UNSUPPORTED for source texts: `to` is unchanged; any other error leaves it empty. */
gw_status gw_session_copy(gw_session *to, gw_session *from);

/* Waits until gw_batch_step has something to do, or for so many seconds (below 0: without limit);
 * *work: as there, 0 when the time is over or gw_batch_drain was called. Called by the thread that
 * steps. It needs no turn among what computes, so a caller's lock is not held meanwhile. */
gw_status gw_batch_wait(gw_batch *batch, double seconds, size_t *work);

/* gw_self_test of some devices: ids of gw_devices separated by commas, or "all"; NULL: the CPU and
 * graphics cards, so what is used without being named. Before each case there is a report with
 * kernel "" and failed 0, whose fault says which case it is; non-zero stops there, too. */
gw_status gw_self_test_of(const char *devices, int threads, gw_check_fn report, void *user);

/* How the publisher recommends to sample, where the model's files say so: general.sampling.* of a
 * GGUF file, generation_config.json of a folder. name: "temperature", "top_k", "top_p", "min_p",
 * "typical_p", "repeat_penalty", "repeat_last_n", "xtc_probability", "xtc_threshold", "mirostat",
 * "mirostat_tau", "mirostat_eta". 1 and *value, or 0: nothing is said. Any thread. */
int gw_model_sampling(const gw_model *model, const char *name, double *value);

#ifdef __cplusplus
}
#endif
#endif
