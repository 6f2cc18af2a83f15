/* core/engine/run/state.c - places the states of recurrent blocks, and knows which are there. */
#include "core/engine/run/state.h"

#include <stdlib.h>
#include <string.h>

uint64_t gw_states_block_bytes(const gw_blueprint *bp, const gw_hparams *hp, int layer, int block,
                               int32_t slots, int32_t entries) {
    uint64_t width = gw_block_state(bp, hp, layer, block);
    return width > 0 ? width * sizeof(float) * (uint64_t)slots *
                           (uint64_t)gw_block_entries(bp, hp, layer, block, entries)
                     : 0;
}

static gw_status new_state(gw_states *s, int d, int i, int32_t slots, uint64_t width,
                           uint64_t bytes) {
    int64_t entries = (int64_t)(bytes / sizeof(float) / width / (uint64_t)slots);
    size_t at = (size_t)d * (size_t)s->n + (size_t)i;
    const gw_plan_device *to = &s->devices[d];
    GW_TRY(to->backend->alloc(to->device, (size_t)bytes, &s->buffer[at]));
    s->t[at] = (gw_tensor){.name = "state",
                           .fmt = GW_FMT_F32,
                           .n_dim = 3,
                           .dim = {slots, entries, (int64_t)width},
                           .buf = s->buffer[at],
                           .device = d};
    s->home[i] = s->home[i] < 0 ? d : s->home[i];
    return GW_OK;
}

gw_status gw_states_new(const gw_plan_device *devices, int n_devices, const gw_where *where,
                        const gw_group *groups, const gw_blueprint *bp, const gw_hparams *hp,
                        int32_t slots, int32_t entries, gw_states *out) {
    gw_states s = {.devices = devices,
                   .n_devices = n_devices,
                   .n = hp->n_layers * bp->n_blocks,
                   .entries = entries};
    gw_status status = GW_OK;
    size_t all = (size_t)n_devices * (size_t)s.n;
    s.t = calloc(all, sizeof *s.t);
    s.buffer = calloc(all, sizeof(struct gw_buffer *));
    s.home = calloc((size_t)s.n, sizeof *s.home);
    if (s.t == NULL || s.buffer == NULL || s.home == NULL) {
        status = gw_fail(GW_E_NOMEM, "context", "no memory for %d layers", hp->n_layers);
    }
    for (int i = 0; i < s.n && status == GW_OK; i++) {
        uint64_t width = gw_block_state(bp, hp, i / bp->n_blocks, i % bp->n_blocks);
        uint64_t bytes =
            gw_states_block_bytes(bp, hp, i / bp->n_blocks, i % bp->n_blocks, slots, entries);
        const gw_group only = {.n = 1, .device = {where[i]}};
        const gw_group *group =
            groups != NULL && groups[where[i]].n > 1 ? &groups[where[i]] : &only;
        s.home[i] = -1;
        s.any |= width > 0;
        for (int c = 0; width > 0 && c < group->n && status == GW_OK; c++) {
            status = new_state(&s, group->device[c], i, slots, width, bytes);
        }
    }
    if (status != GW_OK) {
        gw_states_free(&s);
        return status;
    }
    *out = s;
    return GW_OK;
}

void gw_states_free(gw_states *states) {
    for (int i = 0; states->buffer != NULL && i < states->n_devices * states->n; i++) {
        if (states->buffer[i] != NULL) {
            states->devices[i / states->n].backend->release(states->buffer[i]);
        }
    }
    free(states->buffer);
    free(states->t);
    free(states->home);
    memset(states, 0, sizeof *states);
}

int32_t gw_states_oldest(const gw_states *states, int32_t n, int32_t end) {
    return end - states->entries + 1 + (n >= states->entries);
}

void gw_states_note(gw_states *states, int32_t n, int32_t pos) {
    int32_t oldest = gw_states_oldest(states, n, pos + n);
    int goes_on = pos >= states->low && pos <= states->high; /* else a sequence begins anew */
    int32_t low = goes_on ? states->low : pos;
    states->low = low > oldest ? low : oldest;
    states->high = pos + n;
}

int gw_states_has(const gw_states *states, int32_t pos) {
    return !states->any || pos == 0 || (pos >= states->low && pos <= states->high);
}

static size_t index_on(const gw_states *states, int d, int i) {
    return (size_t)d * (size_t)states->n + (size_t)i;
}

size_t gw_states_entry_bytes(const gw_states *states, int i) {
    int d = states->home[i];
    return d >= 0 ? (size_t)states->t[index_on(states, d, i)].dim[2] * sizeof(float) : 0;
}

size_t gw_states_largest_entry(const gw_states *states) {
    size_t most = 1;
    for (int i = 0; i < states->n; i++) {
        size_t bytes = gw_states_entry_bytes(states, i);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t gw_states_all_entries(const gw_states *states) {
    size_t sum = 0;
    for (int i = 0; i < states->n; i++) {
        sum += gw_states_entry_bytes(states, i);
    }
    return sum;
}

gw_status gw_states_read(const gw_states *states, int i, int32_t pos, void *dst) {
    return gw_states_read_of(states, i, 0, pos, dst);
}

gw_status gw_states_write(gw_states *states, int i, int32_t pos, const void *src) {
    return gw_states_write_of(states, i, 0, pos, src);
}

/* Of state i, which some device has. */
static size_t entry_at(const gw_states *states, int i, int32_t slot, int32_t pos) {
    int64_t entries = states->t[index_on(states, states->home[i], i)].dim[1];
    return (size_t)(slot * entries + pos % entries);
}

gw_status gw_states_read_of(const gw_states *states, int i, int32_t slot, int32_t pos, void *dst) {
    size_t bytes = gw_states_entry_bytes(states, i);
    size_t at = bytes > 0 ? entry_at(states, i, slot, pos) * bytes : 0;
    int d = states->home[i];
    return bytes == 0 ? GW_OK
                      : states->devices[d].backend->read(states->buffer[index_on(states, d, i)], at,
                                                         dst, bytes);
}

gw_status gw_states_write_of(gw_states *states, int i, int32_t slot, int32_t pos,
                             const void *src) {
    size_t bytes = gw_states_entry_bytes(states, i);
    size_t at = bytes > 0 ? entry_at(states, i, slot, pos) * bytes : 0;
    for (int d = 0; bytes > 0 && d < states->n_devices; d++) {
        struct gw_buffer *to = states->buffer[index_on(states, d, i)];
        GW_TRY(to != NULL ? states->devices[d].backend->write(to, at, src, bytes) : GW_OK);
    }
    return GW_OK;
}
