/* include/godwit_sleep.h - the part of godwit.h for models whose weights leave their cards for a
 * while and stay in main memory; it comes with godwit.h, and only so. */
#ifndef GODWIT_SLEEP_H
#define GODWIT_SLEEP_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_sleep_info {
    int asleep;
    uint64_t kept;        /* bytes of main memory that it took to sleep, until it is freed  */
    double sleep_seconds; /* of the last gw_model_sleep that moved something; 0: none has   */
    double wake_seconds;  /* of the last gw_model_wake                                      */
} gw_sleep_info;

/* The weights and activations of the model, and of its eyes, give back the memory of their devices;
 * the weights stay in main memory as the devices have them, pinned where the driver gives such
 * memory. Tokenizer, description and chat go on working. No session, batch, encoder or beam search
 * of the model may exist; new ones are refused until gw_model_wake. Of a model that sleeps: nothing
 * is done. An error leaves it awake, unless gw_model_wake after it fails.
 *   GW_E_UNSUPPORTED  it was opened without its weights
 *   GW_E_NOMEM        main memory does not have room for them; GW_E_DEVICE */
gw_status gw_model_sleep(gw_model *model);

/* The weights are where they were, bit by bit. Of a model that is awake: nothing is done. Returns
 * when they are there.
 *   GW_E_NOMEM   a device has not that much memory any more: it sleeps on
 *   GW_E_DEVICE */
gw_status gw_model_wake(gw_model *model);

void gw_model_sleep_info(const gw_model *model, gw_sleep_info *out);

#ifdef __cplusplus
}
#endif

#endif
