/* core/base/file.h - a regular file, mapped read-only.
 *
 * Only regular files are opened: folders, pipes and devices are refused with GW_E_IO before a byte
 * is read. The mapping is private and read-only. If another program shortens a file while it is
 * mapped, touching the lost pages raises SIGBUS, which the godwit program turns into an error line
 * and a library's host may handle as it likes; gw_file_unchanged tells whether size and time of
 * change are still those seen at opening. Replacing a file by rename is always safe.
 */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include <stdint.h>

#include "core/base/status.h"

typedef struct gw_file {
    int fd;           /* for pread; closed by gw_file_close */
    const void *data; /* the mapping; NULL when size is 0   */
    uint64_t size;
    int64_t mtime_s, mtime_ns;
} gw_file;

/* path: opened; where: how messages name it. GW_E_IO, GW_E_LIMIT (does not fit the address space),
 * GW_E_NOMEM. *out is written on GW_OK only. */
gw_status gw_file_open(const char *path, const char *where, gw_file *out);
void gw_file_close(gw_file *file);
int gw_file_unchanged(const gw_file *file);

typedef enum gw_path_kind {
    GW_PATH_NONE,
    GW_PATH_FILE,
    GW_PATH_FOLDER,
    GW_PATH_OTHER
} gw_path_kind;

/* What stands at the path, links followed; NONE also when it cannot be looked up. */
gw_path_kind gw_path_look(const char *path);

#endif
