/* core/engine/run/state.h - what recurrent blocks (CONV, SCAN) remember of every sequence, beside
 * the KV cache.
 *
 * A block of a layer that has a state keeps `entries` of them for each sequence (layout and
 * meaning: core/plan/op.h), GW_STATE_ENTRIES where nothing else is asked: the states before each of
 * the last `entries` positions. So a pass of decode can be taken back row by row, and rewinding is
 * forgetting a position, as in the KV cache; a position further back is reached by running tokens
 * again, those behind the last of three prompts at whose end states were kept in main memory
 * (session_return.c). Two entries are the least: from one to the next.
 */
#ifndef GW_ENGINE_STATE_H
#define GW_ENGINE_STATE_H

#include "core/model/weights.h"
#include "core/plan/plan.h"

typedef struct gw_states {
    const gw_plan_device *devices;
    int n_devices;
    int n;                     /* layers * blocks                               */
    gw_tensor *t;              /* [n_devices, n]; n_dim 0: not there            */
    struct gw_buffer **buffer; /* [n_devices, n]; NULL: not there               */
    int *home;                 /* [n]: a device that has it; -1: the block has none */
    int any;                   /* some block has one                            */
    int32_t entries;           /* of each, for a sequence                       */
    int32_t low, high;         /* of slot 0: positions whose entries are there  */
} gw_states;

/* Bytes of a block's states in a layer for `slots` sequences; 0: it has none. */
uint64_t gw_states_block_bytes(const gw_blueprint *bp, const gw_hparams *hp, int layer, int block,
                               int32_t slots, int32_t entries);

/* where: of every block, as in gw_where; groups [n_devices]: whose cards each have all states, or
 * NULL. GW_E_NOMEM. The devices outlive the states. */
gw_status gw_states_new(const gw_plan_device *devices, int n_devices, const gw_where *where,
                        const gw_group *groups, const gw_blueprint *bp, const gw_hparams *hp,
                        int32_t slots, int32_t entries, gw_states *out);
void gw_states_free(gw_states *states); /* zeroed or built */

/* Behind n rows of a sequence up to position `end` (of which the last entries - 1 leave one, in the
 * place of the oldest): the first position whose entry is there, if it was before them. */
int32_t gw_states_oldest(const gw_states *states, int32_t n, int32_t end);
/* Slot 0 gets n rows from position pos on: which entries are there from then on. */
void gw_states_note(gw_states *states, int32_t n, int32_t pos);
/* Can rows follow at position pos? */
int gw_states_has(const gw_states *states, int32_t pos);

/* The entry of slot 0 before position pos of state i; 0 bytes: there is none. */
size_t gw_states_entry_bytes(const gw_states *states, int i);
size_t gw_states_largest_entry(const gw_states *states);
size_t gw_states_all_entries(const gw_states *states);
gw_status gw_states_read(const gw_states *states, int i, int32_t pos, void *dst);
gw_status gw_states_write(gw_states *states, int i, int32_t pos, const void *src);
/* The same of any slot. */
gw_status gw_states_read_of(const gw_states *states, int i, int32_t slot, int32_t pos, void *dst);
gw_status gw_states_write_of(gw_states *states, int i, int32_t slot, int32_t pos, const void *src);

#endif
