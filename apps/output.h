/* apps/output.h - every byte a command writes is checked.
 *
 * Standard output: buffered; the first failure is reported once ("cannot write: ..."; a reader that
 * went away is no news and not reported) and all later writes fail. Files: written under a
 * temporary name beside the target, synced and renamed, so that the target is whole or untouched.
 */
#ifndef GW_APPS_OUTPUT_H
#define GW_APPS_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include "apps/terminal.h"

/* Give the standard streams that are closed a descriptor on which their use fails, so that no file
 * opened later takes their place. Call first. */
void output_setup(void);

/* All return 0, or -1 once standard output has failed. */
int out_write(const void *data, size_t bytes);
int out_text(const char *text);
int out_print(const char *fmt, ...) APP_PRINTF(1, 2);
int out_flush(void);
int out_failed(void);
int out_close(void); /* flush and close: the last chance of an error to show itself */

typedef struct out_file {
    struct gw_save *save; /* NULL when writing straight to a device or pipe: then path and fd */
    char *path;
    int fd;
    int standard; /* it is where standard output or standard error goes */
} out_file;

/* bytes: how many will come (asked of the disk first), 0 unknown. 0 or -1, error line printed. */
int out_file_open(out_file *f, const char *path, uint64_t bytes);
int out_file_write(out_file *f, const void *data, size_t bytes);
int out_file_commit(out_file *f);   /* the target now exists, on disk */
void out_file_discard(out_file *f); /* after a failure; harmless after commit */

/* Would writing to out destroy in, or a file of the folder in? */
int out_would_destroy(const char *out, const char *in);

#endif
