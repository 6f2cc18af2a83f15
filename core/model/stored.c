/* core/model/stored.c - bytes of a tensor as they are stored, and matrices whose codes and scales
 * are two tensors. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/model/checkpoint_parts.h"
#include "core/tensor/blocks.h"

/* Blocks [first, first + n): nibbles 2 j and 2 j + 1 of a byte go to bytes 2 j and 2 j + 1 mod 16
 * of a block that has weights j and j + 16 side by side. */
static void join_blocks(const gw_stored *t, size_t first, size_t n, unsigned char *dst) {
    const unsigned char *code = (const unsigned char *)t->data + 16 * first;
    for (size_t b = 0; b < n; b++, code += 16, dst += sizeof(gw_block_mxfp4)) {
        dst[0] = t->scales[first + b];
        for (int j = 0; j < 16; j++) {
            int low = code[j / 2] >> j % 2 * 4 & 15, high = code[8 + j / 2] >> j % 2 * 4 & 15;
            dst[1 + j] = (unsigned char)(low | high << 4);
        }
    }
}

gw_status gw_stored_read(const gw_stored *t, size_t at, size_t bytes, void *dst) {
    if (t->scales != NULL) {
        join_blocks(t, at / sizeof(gw_block_mxfp4), bytes / sizeof(gw_block_mxfp4), dst);
        return GW_OK;
    }
    if (t->fd < 0) {
        memcpy(dst, (const unsigned char *)t->data + at, bytes);
        return GW_OK;
    }
    unsigned char *out = dst;
    while (bytes > 0) {
        ssize_t got = pread(t->fd, out, bytes, (off_t)(t->at + at));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return gw_fail(GW_E_IO, t->name, "cannot read: %s", strerror(errno));
        }
        if (got == 0) {
            return gw_fail(GW_E_TRUNCATED, t->name, "the file became shorter while it was read");
        }
        out += got;
        at += (size_t)got;
        bytes -= (size_t)got;
    }
    return GW_OK;
}

/* ---- codes and scales apart ------------------------------------------------------------------ */

static const gw_stored *find_bytes(const gw_checkpoint *c, const char *name) {
    for (size_t i = 0; i < c->n_bytes; i++) {
        if (strcmp(c->bytes[i].name, name) == 0) {
            return &c->bytes[i];
        }
    }
    return NULL;
}

/* X_blocks [.., rows, n, 16] with X_scales [.., rows, n]: a matrix of MXFP4, n blocks a row. */
static int join(const gw_stored *codes, const gw_stored *scales, gw_stored *out) {
    int last = codes->n_dim - 1;
    if (scales == NULL || last < 2 || scales->n_dim != last || codes->dim[last] != 16) {
        return 0;
    }
    for (int i = 0; i < last; i++) {
        if (codes->dim[i] != scales->dim[i]) {
            return 0;
        }
    }
    *out = *codes;
    out->fmt = GW_FMT_MXFP4;
    out->n_dim = last;
    out->dim[last - 1] = codes->dim[last - 1] * GW_ACT_BLOCK;
    out->bytes = codes->bytes / 16 * sizeof(gw_block_mxfp4);
    out->fd = -1;
    out->scales = scales->data;
    return 1;
}

gw_status gw_checkpoint_join_codes(gw_checkpoint *c) {
    static const char codes[] = "_blocks", scales[] = "_scales";
    for (size_t i = 0; i < c->n_bytes; i++) {
        const char *name = c->bytes[i].name;
        size_t n = strlen(name) - (sizeof codes - 1);
        char other[200];
        gw_stored whole;
        if (!gw_text_ends(name, codes) || n + sizeof scales > sizeof other) {
            continue;
        }
        snprintf(other, sizeof other, "%.*s%s", (int)n, name, scales);
        if (join(&c->bytes[i], find_bytes(c, other), &whole)) {
            GW_TRY(gw_checkpoint_replace(c, &whole));
        }
    }
    return GW_OK;
}
