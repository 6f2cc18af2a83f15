/* core/base/save.h - writing a file so that the target is whole or untouched: a temporary name
 * beside it, fsync, rename, fsync of the folder. Targets that are no regular file are refused.
 *
 * Every file that this project leaves behind is written so. Different saves may be under way on
 * different threads.
 */
#ifndef GW_BASE_SAVE_H
#define GW_BASE_SAVE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/os.h"
#include "core/base/status.h"

typedef struct gw_save {
    char *path, *temporary;
    int fd;
    int slot; /* in the list of gw_save_abandon; -1: it was full */
} gw_save;

/* mode: 0600, or 0666 for what the umask decides. bytes: how many will come, asked of the disk
 * first; 0: not known. GW_E_IO, GW_E_NOMEM; path is what messages name. Every begun save ends with
 * gw_save_end or gw_save_drop. */
gw_status gw_save_begin(gw_save *s, const char *path, mode_t mode, uint64_t bytes);
gw_status gw_save_write(gw_save *s, const void *data, size_t bytes);
gw_status gw_save_end(gw_save *s); /* the file exists now, on disk; on error it is dropped */
void gw_save_drop(gw_save *s);     /* nothing remains; harmless after gw_save_end          */

/* Asks for the entry of a file in its folder to be on disk: after a rename that the caller made. */
void gw_save_sync_folder(const char *path);

/* Removes the temporary files of all saves under way. For a signal handler that ends the process:
 * safe to call there, and nowhere else. */
void gw_save_abandon(void);

#endif
