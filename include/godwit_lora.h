/* include/godwit_lora.h - low-rank adapters (LoRA): several for one model, each text with its own.
 * Threads as in godwit.h.
 */
#ifndef GODWIT_LORA_H
#define GODWIT_LORA_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GW_LORA_MOST = 64,   /* adapters of a model */
    GW_LORA_AT_ONCE = 4, /* of one text         */
    GW_LORA_NAME = 128   /* bytes, with the NUL  */
};

typedef struct gw_lora_file {
    const char *path; /* a PEFT folder, or a GGUF adapter */
    const char *name; /* NULL: the path's last part       */
    float scale;      /* in texts that choose nothing; 0: not in them */
} gw_lora_file;

/* Adapters [n] for a model that is open and has no sessions, batches or encoders: they take the
 * place of those of an earlier call, n 0: of all. They are numbered 0 .. n - 1. at_once: how many a
 * text has at most, each costs every row; 0: as many as have a scale, at least 1. A text without
 * adapters keeps the bits that it has without this call. GW_E_UNSUPPORTED names what is not run
 * (DoRA, biases, experts, embedding, output head, a layer that the model does not have), or that
 * cards share a layer; GW_E_METADATA a shape or rank; GW_E_LIMIT too many; GW_E_ARGUMENT; the
 * classes of files. An error leaves the model as it was. */
gw_status gw_model_adapt(gw_model *model, const gw_lora_file *files, size_t n, int32_t at_once);

typedef struct gw_lora_info {
    char name[GW_LORA_NAME];
    char path[1024];
    int32_t rank; /* the largest of its layers */
    float scale;  /* in texts that choose nothing */
} gw_lora_info;
/* Fills at most `room` rows; how many there are. rows may be NULL. */
size_t gw_model_adapters(const gw_model *model, gw_lora_info *rows, size_t room);
/* at_once of gw_model_adapt; 0: there are none. */
int gw_model_adapters_at_once(const gw_model *model);
/* Bytes that they take on the devices. */
uint64_t gw_model_adapter_bytes(const gw_model *model);

/* Which adapters a text has; n 0: none. */
typedef struct gw_lora_pick {
    int32_t n;
    int32_t adapter[GW_LORA_AT_ONCE]; /* no number twice */
    float scale[GW_LORA_AT_ONCE];
} gw_lora_pick;

/* Those of a session's whole text: at position 0 only (gw_session_rewind). pick NULL: as a text
 * that chooses nothing. GW_E_ARGUMENT: no such adapter, a scale that is not finite, or the session
 * has tokens; GW_E_LIMIT: more than at_once. */
gw_status gw_session_adapt(gw_session *session, const gw_lora_pick *pick);

/* gw_batch_submit of a request with adapters; pick NULL: as a text that chooses nothing. */
gw_status gw_batch_submit_adapted_sized(gw_batch *batch, const gw_request_options *options,
                                        size_t size, const gw_lora_pick *pick, gw_request **out);
static inline gw_status gw_batch_submit_adapted(gw_batch *batch, const gw_request_options *options,
                                                const gw_lora_pick *pick, gw_request **out) {
    return gw_batch_submit_adapted_sized(batch, options, sizeof *options, pick, out);
}

#ifdef __cplusplus
}
#endif

#endif
