/* core/base/save.c - temporary name, write, fsync, rename, fsync of the folder. */
#include "core/base/save.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"

static gw_status refuse(const gw_save *s, const char *what, int error) {
    return gw_fail(error == ENOMEM ? GW_E_NOMEM : GW_E_IO, s->path, "cannot %s: %s", what,
                   strerror(error));
}

/* The folder that holds path: "." when it names none. */
static char *folder_of(const char *path) {
    const char *slash = gw_os_last_slash(path);
    return slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* ---- what a signal has to remove ------------------------------------------------------------- */

/* Global because a signal handler can be handed nothing; texts stand here so that none is freed
 * while the handler reads it. */
enum { SLOTS = 16 };
static struct {
    _Atomic int taken, named;
    char path[PATH_MAX];
} under_way[SLOTS];

static int note_temporary(const char *path) {
    for (int i = 0; i < SLOTS && strlen(path) < PATH_MAX; i++) {
        int nobody = 0;
        if (atomic_compare_exchange_strong(&under_way[i].taken, &nobody, 1)) {
            strcpy(under_way[i].path, path);
            atomic_store(&under_way[i].named, 1);
            return i;
        }
    }
    return -1;
}

static void forget_temporary(gw_save *s) {
    if (s->slot >= 0) {
        atomic_store(&under_way[s->slot].named, 0);
        atomic_store(&under_way[s->slot].taken, 0);
    }
    s->slot = -1;
}

void gw_save_abandon(void) {
    for (int i = 0; i < SLOTS; i++) {
        if (atomic_load(&under_way[i].named)) {
            unlink(under_way[i].path);
        }
    }
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* A new file under a name of this process and moment; the umask applies to mode. */
static int create_beside(gw_save *s, size_t room, mode_t mode) {
    static _Atomic unsigned calls;
    int fd = -1;
    for (int tries = 0; tries < 100; tries++) {
        unsigned number = atomic_fetch_add(&calls, 1) + (unsigned)getpid() * 0x9e3779b1u;
        snprintf(s->temporary, room, "%s.%06x", s->path, number & 0xffffffu);
        fd = open(s->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST) {
            break;
        }
    }
    return fd;
}

/* A full disk is to be known before the work is done; other answers are from file systems that
 * cannot say. */
static int reserve(int fd, uint64_t bytes) {
    int error = bytes == 0 || bytes > INT64_MAX ? 0 : posix_fallocate(fd, 0, (off_t)bytes);
    return error == ENOSPC || error == EFBIG || error == EDQUOT ? error : 0;
}

gw_status gw_save_begin(gw_save *s, const char *path, mode_t mode, uint64_t bytes) {
    struct stat st;
    *s = (gw_save){.fd = -1, .slot = -1};
    size_t room = strlen(path) + 32;
    s->path = strdup(path);
    s->temporary = calloc(room, 1);
    if (s->path == NULL || s->temporary == NULL) {
        gw_save_drop(s);
        return gw_fail(GW_E_NOMEM, path, "no memory to write it");
    }
    gw_status status = GW_OK;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        status = gw_fail(GW_E_IO, path, "is no regular file: it is not replaced");
    } else {
        s->fd = create_beside(s, room, mode);
        if (s->fd < 0) {
            status = refuse(s, "create a file beside it", errno);
            s->temporary[0] = '\0';
        } else {
            s->slot = note_temporary(s->temporary);
        }
    }
    int full = s->fd >= 0 ? reserve(s->fd, bytes) : 0;
    if (full != 0) {
        status = refuse(s, "write", full);
    }
    if (status != GW_OK) {
        gw_save_drop(s);
    }
    return status;
}

gw_status gw_save_write(gw_save *s, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(s->fd, at, bytes);
        if (n < 0 && errno != EINTR) {
            return refuse(s, "write", errno);
        }
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return GW_OK;
}

/* After the rename the file is there; whether the folder's entry is on disk is only asked. */
void gw_save_sync_folder(const char *path) {
    char *folder = folder_of(path);
    int fd = folder != NULL ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

gw_status gw_save_end(gw_save *s) {
    gw_status status = GW_OK;
    int failed = fsync(s->fd) != 0 ? errno : 0;
    failed = close(s->fd) != 0 && failed == 0 ? errno : failed;
    s->fd = -1;
    if (failed != 0) {
        status = refuse(s, "write to the disk", failed);
    } else if (rename(s->temporary, s->path) != 0) {
        status = refuse(s, "rename to it", errno);
    } else {
        forget_temporary(s);
        free(s->temporary);
        s->temporary = NULL;
        gw_save_sync_folder(s->path);
    }
    gw_save_drop(s);
    return status;
}

void gw_save_drop(gw_save *s) {
    if (s->fd >= 0) {
        close(s->fd);
    }
    if (s->temporary != NULL && s->temporary[0] != '\0') {
        unlink(s->temporary);
    }
    forget_temporary(s);
    free(s->temporary);
    free(s->path);
    *s = (gw_save){.fd = -1, .slot = -1};
}
