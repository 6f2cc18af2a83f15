/* core/engine/run/session_rows.h - a session's plans as the engine of many sequences: each row has
 * the sequence and the position that it is given, and sees the pages that its sequence's row of the
 * page table names. What the sequences hold is the caller's matter. For core/engine/batch.
 *
 * The session is one of gw_session_make with sharing; no other gw_session function but _free,
 * _profile, _kernel_times and _n_ctx is meant for it.
 */
#ifndef GW_ENGINE_SESSION_ROWS_H
#define GW_ENGINE_SESSION_ROWS_H

#include "core/engine/run/session_state.h"

/* token goes to position pos of the sequence slot; rows of a sequence side by side and rising.
 * last: of its source text the last position, else of what is read at once with it; less: how many
 * positions learned ones count less. */
typedef struct gw_row {
    int32_t token, pos, slot, last, less;
    gw_glance seen;          /* of a picture, in rows of prompts */
    const gw_lora_row *lora; /* NULL: as texts have it that choose nothing */
} gw_row;

/* Pages of slot from its entry `first` on. */
gw_status gw_rows_map(gw_session *s, int32_t slot, int32_t first, const int32_t *pages, int32_t n);

/* Of a session whose sharing has sources: the source text of the n slots from `slot` on is in these
 * pages of the source's own caches. */
gw_status gw_rows_map_source(gw_session *s, int32_t slot, int32_t n, const int32_t *pages,
                             int32_t n_pages);
/* Read it, for them all: tokens [n]. */
gw_status gw_rows_source(gw_session *s, int32_t slot, const int32_t *tokens, int32_t n);
/* What slot `from` holds of position pos becomes that of slot `to`: the page that it lies in (of
 * the pool, copied; the same number on both sides: shared, nothing to do), and what recurrent
 * blocks keep. room: gw_rows_copy_bytes. */
gw_status gw_rows_copy(gw_session *s, int32_t from, int32_t to, int32_t pos, int32_t page_from,
                       int32_t page_to, void *room);
size_t gw_rows_copy_bytes(const gw_session *s);

/* A page of the cache, all layers of it, and host memory of gw_rows_page_bytes. */
size_t gw_rows_page_bytes(const gw_session *s);
gw_status gw_rows_page_save(gw_session *s, int32_t page, void *out);
gw_status gw_rows_page_load(gw_session *s, int32_t page, const void *in);

/* What recurrent blocks know of a slot before position pos, as one block of host memory; 0 bytes:
 * there is none. _load: rows of the slot may follow at pos, and there alone. */
size_t gw_rows_state_bytes(const gw_session *s);
gw_status gw_rows_state_save(gw_session *s, int32_t slot, int32_t pos, void *out);
gw_status gw_rows_state_load(gw_session *s, int32_t slot, int32_t pos, const void *in);

/* Rows in decode order, up to the sharing's widest. rules [n] of gw_session_draws: the device draws
 * a token behind each of them, ids [n], less than 0 where it cannot; a row that is not in need of
 * one may have any rule. Both NULL: none. Then of any row gw_rows_fetch and gw_rows_logits. */
gw_status gw_rows_decode(gw_session *s, const gw_row *rows, int32_t n, const gw_choice *rules,
                         int32_t *ids);
/* The draw alone, behind rows that have run. */
gw_status gw_rows_draw(gw_session *s, const gw_choice *rules, int32_t *ids);
/* The same of a single row, without logits. more: the row of what is drawn follows if it can, so
 * the device need not wait for the host; there is a page for it. 0 of gw_rows_steps: not here. */
gw_status gw_rows_step(gw_session *s, const gw_row *row, const gw_choice *rule, int more,
                       int32_t *id);
int gw_rows_steps(const gw_session *s);
gw_status gw_rows_fetch(gw_session *s, int32_t i);
/* Rows of prompts, up to the chunk, without logits; those of rows [at, at + n) follow with
 * gw_rows_head, n at most GW_HEAD_TILE, as long as no other pass has run. GW_E_CANCELLED when the
 * session's cancel flag is raised. */
gw_status gw_rows_prefill(gw_session *s, const gw_row *rows, int32_t n);
gw_status gw_rows_head(gw_session *s, int32_t at, int32_t n);
/* Row i of the last head, or one that was fetched; NULL when its logits are not finite. */
const float *gw_rows_logits(const gw_session *s, int32_t i);

#endif
