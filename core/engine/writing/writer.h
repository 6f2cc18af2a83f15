/* core/engine/writing/writer.h - what the engine asks of a gw_writer besides godwit_writer.h:
 * choices that a device makes, and drafts.
 */
#ifndef GW_ENGINE_WRITER_H
#define GW_ENGINE_WRITER_H

#include "core/tensor/sample.h"
#include "include/godwit.h"

/* 1 when a device can choose in place of gw_writer_pick, by *rule, without the logits: first is 1,
 * so that the row before counts. */
int gw_writer_rule(const gw_writer *writer, gw_choice *rule);
/* 1 when a token that was chosen so is not the writer's choice: then the logits are needed. */
int gw_writer_refuses(const gw_writer *writer, int32_t token);

/* A draft: what the sampler would pick at pos from another model's logits [n]; -1: nothing. It
 * counts as text for the drafts behind it, until gw_writer_forget takes all of them back: before
 * anything else is done with the writer. */
gw_status gw_writer_draft(gw_writer *writer, const float *logits, int32_t n, int32_t pos,
                          int32_t *token);
void gw_writer_forget(gw_writer *writer);

#endif
