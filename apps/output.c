/* apps/output.c - checked writes to standard output and to files. */
#include "apps/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/save.h"
#include "include/godwit.h"

/* ---- standard output ------------------------------------------------------------------------- */

static struct {
    char buffer[1 << 16];
    size_t used;
    int failed;
} out;

void output_setup(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (!gw_os_is_open(fd)) {
            /* the lowest free number is fd; the wrong direction on purpose */
            (void)gw_os_open_null(fd == 0 ? O_WRONLY : O_RDONLY);
        }
    }
}

static int write_all(int fd, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -1;
        }
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int out_fail(void) {
    if (!out.failed && errno != EPIPE) {
        app_error("cannot write: %s", strerror(errno));
    }
    out.failed = 1;
    return -1;
}

int out_failed(void) { return out.failed; }

int out_flush(void) {
    if (out.failed) {
        return -1;
    }
    size_t n = out.used;
    out.used = 0;
    return write_all(STDOUT_FILENO, out.buffer, n) == 0 ? 0 : out_fail();
}

int out_write(const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0 && !out.failed) {
        size_t room = sizeof out.buffer - out.used, n = bytes < room ? bytes : room;
        memcpy(out.buffer + out.used, at, n);
        out.used += n;
        at += n;
        bytes -= n;
        if (out.used == sizeof out.buffer) {
            out_flush();
        }
    }
    return out.failed ? -1 : 0;
}

int out_text(const char *text) { return out_write(text, strlen(text)); }

int out_print(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0) {
        errno = ENOMEM;
        return out_fail();
    }
    int result = out_write(text, (size_t)n);
    free(text);
    return result;
}

int out_close(void) {
    out_flush();
    if (!out.failed && close(STDOUT_FILENO) != 0 && errno != EINTR) {
        out_fail();
    }
    return out.failed ? -1 : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int file_fail(out_file *f, const char *what) {
    app_error("%s: cannot %s: %s", f->path, what, strerror(errno));
    return -1;
}

/* The standard stream that writes to this very file (/dev/stdout, > file), or -1. To be renamed
 * over it would take the name from the stream, and /dev/stdout from everybody. */
static int standard_stream(const struct stat *file) {
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat at;
        if (fstat(fd, &at) == 0 && at.st_dev == file->st_dev && at.st_ino == file->st_ino) {
            return fd;
        }
    }
    return -1;
}

/* Straight to a device, a pipe or a standard stream: there is nothing to rename. */
static int open_stream(out_file *f, const char *path, int stream) {
    f->standard = stream >= 0;
    f->path = strdup(path);
    if (f->path == NULL) {
        app_error("out of memory");
        return -1;
    }
    out_flush(); /* what came before stands before it */
    f->fd = stream >= 0 ? gw_os_duplicate(stream) : open(path, O_WRONLY | O_CLOEXEC);
    if (f->fd < 0) {
        file_fail(f, "write");
        out_file_discard(f);
        return -1;
    }
    return 0;
}

static int save_fail(out_file *f) {
    app_error("%s", gw_error_text());
    free(f->save);
    f->save = NULL;
    return -1;
}

int out_file_open(out_file *f, const char *path, uint64_t bytes) {
    struct stat at;
    int exists = stat(path, &at) == 0, stream = exists ? standard_stream(&at) : -1;
    *f = (out_file){.fd = -1};
    if (stream >= 0 || (exists && !S_ISREG(at.st_mode))) {
        return open_stream(f, path, stream);
    }
    f->save = calloc(1, sizeof *f->save);
    if (f->save == NULL) {
        app_error("out of memory");
        return -1;
    }
    return gw_save_begin(f->save, path, 0666, bytes) == GW_OK ? 0 : save_fail(f);
}

int out_file_write(out_file *f, const void *data, size_t bytes) {
    if (f->save != NULL) {
        if (gw_save_write(f->save, data, bytes) != GW_OK) {
            app_error("%s", gw_error_text());
            return -1;
        }
        return 0;
    }
    return write_all(f->fd, data, bytes) == 0 ? 0 : file_fail(f, "write");
}

int out_file_commit(out_file *f) {
    if (f->save != NULL) {
        if (gw_save_end(f->save) != GW_OK) {
            return save_fail(f);
        }
        out_file_discard(f);
        return 0;
    }
    int result = close(f->fd) == 0 ? 0 : file_fail(f, "write");
    f->fd = -1;
    out_file_discard(f);
    return result;
}

void out_file_discard(out_file *f) {
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->save != NULL) {
        gw_save_drop(f->save);
        free(f->save);
    }
    free(f->path);
    *f = (out_file){.fd = -1};
}

int out_would_destroy(const char *path, const char *in) {
    struct stat target, source;
    if (stat(path, &target) != 0 || stat(in, &source) != 0) {
        return 0;
    }
    if (target.st_dev == source.st_dev && target.st_ino == source.st_ino) {
        return 1;
    }
    DIR *folder = S_ISDIR(source.st_mode) ? opendir(in) : NULL;
    int found = 0;
    if (folder != NULL) {
        for (struct dirent *e; !found && (e = readdir(folder)) != NULL;) {
            found = fstatat(dirfd(folder), e->d_name, &source, 0) == 0 &&
                    target.st_dev == source.st_dev && target.st_ino == source.st_ino;
        }
        closedir(folder);
    }
    return found;
}
