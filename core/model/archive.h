/* core/model/archive.h - the directory of a zip archive whose entries are stored as they are.
 *
 * Format: PKWARE's APPNOTE.TXT, with the 64-bit extension. Nothing is unpacked: what is compressed
 * or encrypted is refused, and so is an archive whose directory and entries disagree.
 */
#ifndef GW_MODEL_ARCHIVE_H
#define GW_MODEL_ARCHIVE_H

#include "core/base/arena.h"
#include "core/base/status.h"

typedef struct gw_archive_entry {
    const char *name;    /* NUL-terminated, in the arena, without NUL inside */
    const uint8_t *data; /* [bytes], inside the memory given                 */
    uint64_t at, bytes;  /* at: offset of data                               */
} gw_archive_entry;

/* The memory and the arena (which holds names and the list) must outlive the result; names occur
 * once. GW_E_MAGIC, GW_E_TRUNCATED (no directory), GW_E_ARCHIVE, GW_E_FORBIDDEN, GW_E_LIMIT. */
gw_status gw_archive_read(const char *where, const void *data, uint64_t size, gw_arena *arena,
                          gw_archive_entry **out, size_t *n);

#endif
