/* backends/hip/crossing.c - what crosses to and from other devices a token at a time: through
 * pinned memory, with one wait for all of it. A transfer on its own costs the host 10 us and more,
 * and a model with its experts in main memory has three a layer.
 */
#include <stdlib.h>
#include <string.h>

#include "backends/hip/hip.h"

/* A result of a few rows; of prompts, memory counts and the wait does not. */
enum { LANDED_BYTES = 1 << 18 };
enum { SLOTS = 16, SLOT_BYTES = 1 << 16 };

/* ---- results --------------------------------------------------------------------------------- */

/* A result of a segment, and where it is in pinned memory behind each of its runs. */
struct gw_hip_landed {
    gw_hip_ptr at;
    size_t bytes;
    void *host;
};

gw_status gw_hip_land(struct gw_segment *segment, const gw_node *node) {
    struct gw_device *device = segment->device;
    size_t bytes = 0, n = segment->n_landed;
    if (!node->crosses || device->link != NULL || segment->rows > GW_DECODE_MAX) {
        return GW_OK;
    }
    GW_TRY(gw_matrix_bytes(node->out->fmt, (uint64_t)node->out->dim[0],
                           (uint64_t)node->out->dim[node->out->n_dim - 1], &bytes));
    if (node->out->n_dim != 2 || bytes == 0 || bytes > LANDED_BYTES) {
        return GW_OK;
    }
    struct gw_hip_landed *grown = realloc(segment->landed, (n + 1) * sizeof *grown);
    if (grown == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a plan");
    }
    segment->landed = grown;
    grown[n] = (struct gw_hip_landed){.at = gw_hip_at(node->out), .bytes = bytes};
    GW_TRY(gw_hip_host_new(device, bytes, &grown[n].host));
    segment->n_landed++;
    return GW_OK;
}

gw_hip_error gw_hip_send_landed(struct gw_segment *segment) {
    struct gw_device *device = segment->device;
    gw_hip_error error = GW_HIP_OK;
    for (size_t i = 0; i < segment->n_landed && error == GW_HIP_OK; i++) {
        const struct gw_hip_landed *l = &segment->landed[i];
        error = device->driver->Read(l->host, l->at, l->bytes, device->stream);
    }
    device->landed = segment;
    return error;
}

const void *gw_hip_landed_at(const struct gw_device *device, gw_hip_ptr at, size_t bytes) {
    const struct gw_segment *s = device->landed;
    for (size_t i = 0; s != NULL && i < s->n_landed; i++) {
        const struct gw_hip_landed *l = &s->landed[i];
        if (at >= l->at && at + bytes <= l->at + l->bytes) {
            return (const char *)l->host + (at - l->at);
        }
    }
    return NULL;
}

void gw_hip_landed_free(struct gw_segment *segment) {
    struct gw_device *device = segment->device;
    for (size_t i = 0; i < segment->n_landed; i++) {
        device->driver->HostFree(segment->landed[i].host);
    }
    free(segment->landed);
    device->landed = device->landed == segment ? NULL : device->landed;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Pinned memory of small writes on their way, slot by slot. */
struct gw_hip_slots {
    unsigned char *at;
    int next, used[SLOTS];
    uint64_t waits[SLOTS]; /* device->waits when it was used: equal means it may still be read */
};

gw_status gw_hip_slots_new(struct gw_device *device) {
    if (device->slots != NULL) {
        return GW_OK;
    }
    void *at = NULL;
    struct gw_hip_slots *slots = calloc(1, sizeof *slots);
    if (slots == NULL) {
        return gw_fail(GW_E_NOMEM, "hip", "no memory for a plan");
    }
    gw_status status = gw_hip_host_new(device, (size_t)SLOTS * SLOT_BYTES, &at);
    if (status != GW_OK) {
        free(slots);
        return status;
    }
    slots->at = at;
    device->slots = slots;
    return GW_OK;
}

int gw_hip_fits_slot(const struct gw_device *device, size_t bytes) {
    return device->slots != NULL && device->link == NULL && bytes <= SLOT_BYTES;
}

gw_status gw_hip_send(struct gw_device *device, gw_hip_ptr to, const void *src, size_t bytes) {
    struct gw_hip_slots *s = device->slots;
    int i = s->next;
    if (s->used[i] && s->waits[i] == device->waits) {
        GW_TRY(gw_hip_wait(device));
    }
    unsigned char *slot = s->at + (size_t)i * SLOT_BYTES;
    memcpy(slot, src, bytes);
    s->used[i] = 1;
    s->waits[i] = device->waits;
    s->next = (i + 1) % SLOTS;
    return gw_hip_check(device->driver, device->driver->Write(to, slot, bytes, device->stream),
                        "writing a buffer");
}

void gw_hip_slots_free(struct gw_device *device) {
    if (device->slots != NULL) {
        device->driver->HostFree(device->slots->at);
        free(device->slots);
        device->slots = NULL;
    }
}
