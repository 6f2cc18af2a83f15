/* core/base/cache.c - files of the cache: a header (magic, key, length, checksum) and the bytes,
 * written under another name and then renamed.
 */
#include "core/base/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The folder, made when it is not there; 0 when there can be none. */
static int folder(char *out) {
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int used;
    if (base != NULL && base[0] == '/') {
        used = snprintf(out, PATH_BYTES, "%s", base);
    } else if (home != NULL && home[0] == '/') {
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

static int file_name(const char *kind, uint64_t key, char *out, size_t room) {
    char at[PATH_BYTES];
    if (!folder(at)) {
        return 0;
    }
    int used = snprintf(out, room, "%s/%.32s-%016" PRIx64 ".bin", at, kind, key);
    return used > 0 && (size_t)used < room;
}

static int transfer(int fd, void *data, size_t bytes, int writing) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = writing ? write(fd, at, bytes) : read(fd, at, bytes);
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
    if (!transfer(fd, &h, sizeof h, 0) || h.magic != magic || h.key != key || h.bytes == 0 ||
        h.bytes > most || fstat(fd, &info) != 0 || (uint64_t)info.st_size != h.bytes + sizeof h) {
        return NULL;
    }
    void *data = malloc((size_t)h.bytes);
    if (data != NULL && (!transfer(fd, data, (size_t)h.bytes, 0) ||
                         gw_cache_hash(key, data, (size_t)h.bytes) != h.check)) {
        free(data);
        data = NULL;
    }
    *bytes = (size_t)h.bytes;
    return data;
}

void *gw_cache_read(const char *kind, uint64_t key, size_t *bytes) {
    char path[PATH_BYTES + 64];
    if (!file_name(kind, key, path, sizeof path)) {
        return NULL;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    void *data = read_entry(fd, key, bytes);
    close(fd);
    return data;
}

void gw_cache_write(const char *kind, uint64_t key, const void *data, size_t bytes) {
    char path[PATH_BYTES + 64], temporary[PATH_BYTES + 80];
    if (bytes == 0 || bytes > most || !file_name(kind, key, path, sizeof path)) {
        return;
    }
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    if (fd < 0) {
        return;
    }
    header h = {
        .magic = magic, .key = key, .bytes = bytes, .check = gw_cache_hash(key, data, bytes)};
    void *copy;
    memcpy(&copy, &data, sizeof copy); /* transfer only reads it when writing */
    int good = transfer(fd, &h, sizeof h, 1) && transfer(fd, copy, bytes, 1) && fsync(fd) == 0;
    good = close(fd) == 0 && good;
    if (!good || rename(temporary, path) != 0) {
        unlink(temporary);
    }
}
