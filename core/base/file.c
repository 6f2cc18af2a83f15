/* core/base/file.c - opening and mapping. */
#include "core/base/file.h"

#include <errno.h>
#include <string.h>

#include "core/base/os.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weights are used as they lie in files, which are little-endian");

static gw_status refuse(const char *where, mode_t mode) {
    return gw_fail(GW_E_IO, where, "is a %s; a regular file is needed",
                   S_ISDIR(mode)    ? "folder"
                   : S_ISFIFO(mode) ? "pipe"
                   : S_ISSOCK(mode) ? "socket"
                                    : "device");
}

gw_status gw_file_open(const char *path, const char *where, gw_file *out) {
    struct stat st;
    if (stat(path, &st) != 0) {
        return gw_fail(GW_E_IO, where, "cannot open: %s", strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) { /* before open, which has effects on some devices */
        return refuse(where, st.st_mode);
    }
    gw_file file = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (file.fd < 0) {
        return gw_fail(GW_E_IO, where, "cannot open: %s", strerror(errno));
    }
    gw_status status = GW_OK;
    if (fstat(file.fd, &st) != 0) {
        status = gw_fail(GW_E_IO, where, "cannot look at it: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = refuse(where, st.st_mode);
    } else if ((uint64_t)st.st_size > SIZE_MAX / 2) {
        status = gw_fail(GW_E_LIMIT, where, "is too large for the address space");
    } else {
        file.size = (uint64_t)st.st_size;
        file.mtime_s = (int64_t)st.st_mtim.tv_sec;
        file.mtime_ns = (int64_t)st.st_mtim.tv_nsec;
        if (file.size > 0) {
            void *map = mmap(NULL, (size_t)file.size, PROT_READ, MAP_PRIVATE, file.fd, 0);
            if (map == MAP_FAILED) {
                status = gw_fail(errno == ENOMEM ? GW_E_NOMEM : GW_E_IO, where, "cannot map: %s",
                                 strerror(errno));
            } else {
                file.data = map;
            }
        }
    }
    if (status != GW_OK) {
        close(file.fd);
        return status;
    }
    *out = file;
    return GW_OK;
}

void gw_file_close(gw_file *file) {
    if (file->data != NULL) {
        munmap((void *)(uintptr_t)file->data, (size_t)file->size);
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    *file = (gw_file){.fd = -1};
}

int gw_file_unchanged(const gw_file *file) {
    struct stat st;
    return fstat(file->fd, &st) == 0 && (uint64_t)st.st_size == file->size &&
           (int64_t)st.st_mtim.tv_sec == file->mtime_s &&
           (int64_t)st.st_mtim.tv_nsec == file->mtime_ns;
}

gw_path_kind gw_path_look(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        return GW_PATH_NONE;
    }
    return S_ISREG(st.st_mode)   ? GW_PATH_FILE
           : S_ISDIR(st.st_mode) ? GW_PATH_FOLDER
                                 : GW_PATH_OTHER;
}
