/* core/model/stored.c - bytes of a tensor as they are stored. */
#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "core/model/checkpoint_parts.h"
#include "core/model/packed.h"

gw_status gw_stored_read(const gw_stored *t, size_t at, size_t bytes, void *dst) {
    if (t->packed != NULL) {
        size_t row = t->bytes / (size_t)t->packed->rows;
        gw_packed_rows(t->packed, t->fmt, NULL, (int64_t)(at / row), (int64_t)(bytes / row), row,
                       dst);
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
