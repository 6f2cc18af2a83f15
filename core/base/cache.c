/* core/base/cache.c - files of the cache: a header (magic, key, length, checksum) and the bytes;
 * who may have written them; which of them go.
 */
#include "core/base/cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/save.h"
#include "core/base/text.h"

enum { PATH_BYTES = 1024 };
static const uint64_t magic = 0x3130485354444f47u; /* "GODTSH01" */
static const uint64_t most = (uint64_t)1 << 30;    /* bytes of an entry */

typedef struct header {
    uint64_t magic, key, bytes, check;
} header;

/* FNV-1a with a final mix; not against malice: the folder is the user's own. */
uint64_t gw_cache_hash(uint64_t seed, const void *data, size_t bytes) {
    const unsigned char *p = data;
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    h ^= h >> 32;
    return h * 0x9e3779b97f4a7c15u;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Its path, made when it is not there; 0 when there can be none. */
static int folder_path(char *out) {
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int used;
    if (base != NULL && gw_os_is_absolute(base)) {
        used = snprintf(out, PATH_BYTES, "%s", base);
    } else if (home != NULL && gw_os_is_absolute(home)) {
        used = snprintf(out, PATH_BYTES, "%s/.cache", home);
    } else {
        return 0;
    }
    if (used < 0 || used >= PATH_BYTES - 64) {
        return 0;
    }
    if (mkdir(out, 0700) != 0 && errno != EEXIST) {
        return 0;
    }
    snprintf(out + used, PATH_BYTES - (size_t)used, "/godwit");
    return mkdir(out, 0700) == 0 || errno == EEXIST;
}

/* Nobody but this user can have written it. */
static int is_own(int fd, mode_t kind) {
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* The folder, opened, or -1; out: its path. What is opened in it is in this very folder, whatever
 * has its name by then. */
static int open_folder(char *out) {
    if (!folder_path(out)) {
        return -1;
    }
    int fd = open(out, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && !is_own(fd, S_IFDIR)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void entry_name(const char *kind, uint64_t key, char *out, size_t room) {
    snprintf(out, room, "%.32s-%016" PRIx64 ".bin", kind, key);
}

/* ---- what goes ------------------------------------------------------------------------------- */

/* An entry, or what a process that died was writing. */
static int is_entry(const char *name) { return gw_text_ends(name, ".bin"); }
static int is_unfinished(const char *name) { return strstr(name, ".bin.") != NULL; }

/* Removes what is too old. The bytes of the entries that stay; oldest: the longest unread. */
static uint64_t sweep(int folder, DIR *list, char oldest[256]) {
    uint64_t bytes = 0;
    time_t now = time(NULL), first = 0;
    const time_t day = 24 * 3600;
    rewinddir(list);
    for (struct dirent *e; (e = readdir(list)) != NULL;) {
        struct stat st;
        int entry = is_entry(e->d_name), unfinished = is_unfinished(e->d_name);
        if ((!entry && !unfinished) || fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode)) {
            continue;
        }
        if (now - st.st_mtime > (unfinished ? day : GW_CACHE_DAYS * day)) {
            unlinkat(folder, e->d_name, 0);
        } else if (entry) {
            bytes += (uint64_t)st.st_size;
            if (first == 0 || st.st_mtime < first) {
                first = st.st_mtime;
                snprintf(oldest, 256, "%s", e->d_name);
            }
        }
    }
    return bytes;
}

static void prune(int folder) {
    int own = dup(folder);
    DIR *list = own >= 0 ? fdopendir(own) : NULL;
    if (list == NULL) {
        if (own >= 0) {
            close(own);
        }
        return;
    }
    char oldest[256] = "";
    while (sweep(folder, list, oldest) > GW_CACHE_BYTES && unlinkat(folder, oldest, 0) == 0) {
    }
    closedir(list);
}

/* ---- entries --------------------------------------------------------------------------------- */

static int take(int fd, void *data, size_t bytes) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return 0;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return 1;
}

static void *read_entry(int fd, uint64_t key, size_t *bytes) {
    header h;
    struct stat info;
    if (!take(fd, &h, sizeof h) || h.magic != magic || h.key != key || h.bytes == 0 ||
        h.bytes > most || fstat(fd, &info) != 0 || (uint64_t)info.st_size != h.bytes + sizeof h) {
        return NULL;
    }
    void *data = malloc((size_t)h.bytes);
    if (data != NULL && (!take(fd, data, (size_t)h.bytes) ||
                         gw_cache_hash(key, data, (size_t)h.bytes) != h.check)) {
        free(data);
        data = NULL;
    }
    *bytes = (size_t)h.bytes;
    return data;
}

/* Reading counts as a use: once a day is often enough. */
static void mark_used(int fd) {
    struct stat st;
    if (fstat(fd, &st) == 0 && time(NULL) - st.st_mtime > 24 * 3600) {
        (void)futimens(fd, NULL);
    }
}

void *gw_cache_read(const char *kind, uint64_t key, size_t *bytes) {
    char path[PATH_BYTES], name[64];
    void *data = NULL;
    int folder = open_folder(path);
    if (folder < 0) {
        return NULL;
    }
    entry_name(kind, key, name, sizeof name);
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        data = is_own(fd, S_IFREG) ? read_entry(fd, key, bytes) : NULL;
        if (data != NULL) {
            mark_used(fd);
        }
        close(fd);
    }
    close(folder);
    return data;
}

void gw_cache_write(const char *kind, uint64_t key, const void *data, size_t bytes) {
    char path[PATH_BYTES + 64];
    gw_save file;
    int folder = bytes > 0 && bytes <= most ? open_folder(path) : -1;
    if (folder < 0) {
        return;
    }
    header h = {
        .magic = magic, .key = key, .bytes = bytes, .check = gw_cache_hash(key, data, bytes)};
    size_t used = strlen(path);
    path[used++] = '/';
    entry_name(kind, key, path + used, sizeof path - used);
    if (gw_save_begin(&file, path, 0600, 0) == GW_OK) {
        if (gw_save_write(&file, &h, sizeof h) == GW_OK &&
            gw_save_write(&file, data, bytes) == GW_OK) {
            (void)gw_save_end(&file);
        }
        gw_save_drop(&file);
    }
    prune(folder);
    close(folder);
}
