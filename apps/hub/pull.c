/* apps/hub/pull.c - see pull.h. */
#include "apps/hub/pull.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/hub/hasher.h"
#include "apps/hub/net.h"
#include "apps/hub/repo.h"
#include "apps/signals.h"
#include "core/base/os.h"

int hub_is_offline(void) {
    static const char *const names[] = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"};
    for (size_t i = 0; i < 2; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && (strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0 ||
                              strcasecmp(value, "yes") == 0 || strcasecmp(value, "on") == 0)) {
            return 1;
        }
    }
    return 0;
}

/* ---- one blob -------------------------------------------------------------------------------- */

typedef struct blob {
    int fd;
    char part[HUB_PATH];       /* DIGEST.incomplete */
    const char *what, *digest; /* digest: NULL: nobody says it */
    hasher hash;
    int is_git, has_digest;
    uint64_t size;
    off_t at, begun; /* bytes that are written; of these, on their way to the disk */
} blob;

/* The disk writes while more comes: else all of it would be left to fsync. */
static void begin_write_back(blob *b) {
#ifdef SYNC_FILE_RANGE_WRITE
    if (b->at - b->begun >= 8 << 20) {
        (void)sync_file_range(b->fd, b->begun, b->at - b->begun, SYNC_FILE_RANGE_WRITE);
        b->begun = b->at;
    }
#endif
}

/* The digest is computed meanwhile, and after it. */
static int take(void *user, const void *data, size_t bytes) {
    blob *b = user;
    hasher_add(&b->hash, data, bytes);
    for (const char *at = data; bytes > 0;) {
        ssize_t n = write(b->fd, at, bytes);
        if (n < 0 && errno != EINTR) {
            app_error("%s: cannot write: %s", b->part, strerror(errno));
            (void)hasher_done(&b->hash, UINT64_MAX);
            return -1;
        }
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
        b->at += n > 0 ? n : 0;
    }
    begin_write_back(b);
    return 0;
}

static uint64_t taken(void *user, uint64_t least) {
    blob *b = user;
    return hasher_done(&b->hash, least);
}

static void begin_digest(blob *b) {
    hasher_drop(&b->hash);
    if (b->digest == NULL) {
        hasher_begin_none(&b->hash);
    } else {
        b->has_digest = hasher_begin(&b->hash, b->is_git, b->size) == 0;
    }
}

static int restart(void *user) {
    blob *b = user;
    hasher_drop(&b->hash);
    if (ftruncate(b->fd, 0) != 0 || lseek(b->fd, 0, SEEK_SET) != 0) {
        app_error("%s: cannot be begun again: %s", b->part, strerror(errno));
        return -1;
    }
    b->at = b->begun = 0;
    begin_digest(b);
    return 0;
}

/* What an earlier process left is read for its digest. Bytes that are there; UINT64_MAX: a fault
 * that was said, or a signal. */
static uint64_t take_over(blob *b) {
    const size_t half = 1 << 20; /* one is read while the other one is hashed */
    uint64_t have = 0;
    char *buffer = malloc(2 * half), *at = buffer;
    for (ssize_t n; buffer != NULL && *signals_cancel() == 0 && (n = read(b->fd, at, half)) > 0;) {
        hasher_add(&b->hash, at, (size_t)n);
        (void)hasher_done(&b->hash, have);
        have += (uint64_t)n;
        at = at == buffer ? buffer + half : buffer;
    }
    (void)hasher_done(&b->hash, have);
    free(buffer);
    b->at = b->begun = (off_t)have;
    if (*signals_cancel() != 0) {
        return UINT64_MAX;
    }
    if (have > b->size) { /* of another file */
        return restart(b) == 0 ? 0 : UINT64_MAX;
    }
    return have;
}

/* The whole file is in b->part: is it the one that was promised? */
static int is_right(blob *b) {
    char got[65] = "";
    if (!b->has_digest) {
        return 1; /* a small file, by its size: no library here computes SHA-1 */
    }
    hasher_end(&b->hash, got);
    return strcmp(got, b->digest) == 0;
}

static int fetch_blob(const char *url, const hub_file *f, blob *b, app_progress *p, uint64_t before,
                      uint64_t total) {
    for (int tries = 0; tries < 2; tries++) {
        begin_digest(b);
        lseek(b->fd, 0, SEEK_SET);
        net_file file = {.url = url,
                         .what = f->path,
                         .size = f->size,
                         .take = take,
                         .taken = taken,
                         .restart = restart,
                         .user = b,
                         .progress = p,
                         .before = before,
                         .total = total};
        file.from = take_over(b);
        int code = file.from == UINT64_MAX ? signals_exit_code(APP_FAILURE) : APP_OK;
        if (code == APP_OK && file.from < f->size) {
            code = net_fetch(&file);
        }
        if (code != APP_OK) {
            return code;
        }
        if (is_right(b)) {
            return APP_OK;
        }
        if (ftruncate(b->fd, 0) != 0) {
            break;
        }
    }
    app_error("%s: what came is not the file that the hub names (its digest is another), twice",
              f->path);
    return APP_FAILURE;
}

/* Under the blob's lock: the blob, whole and checked, under its name. */
static int make_blob(const char *url, const hub_file *f, const char *path, app_progress *p,
                     uint64_t before, uint64_t total) {
    blob b = {.what = f->path, .digest = f->digest, .is_git = f->is_git, .size = f->size};
    snprintf(b.part, sizeof b.part, "%.2000s.incomplete", path);
    b.fd = open(b.part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (b.fd < 0) {
        app_error("%s: cannot open: %s", b.part, strerror(errno));
        return APP_FAILURE;
    }
    int code = fetch_blob(url, f, &b, p, before, total);
    hasher_drop(&b.hash);
    struct stat st;
    if (code == APP_OK && (fsync(b.fd) != 0 || fstat(b.fd, &st) != 0 ||
                           (uint64_t)st.st_size != f->size || rename(b.part, path) != 0)) {
        app_error("%s: cannot be finished: %s", b.part, strerror(errno));
        code = APP_FAILURE;
    }
    close(b.fd);
    return code;
}

static int is_whole(const char *path, uint64_t size) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
}

/* ---- a model --------------------------------------------------------------------------------- */

static int blob_path(const char *repo, const hub_file *f, char *out) {
    char folder[HUB_PATH], name[80];
    snprintf(name, sizeof name, "blobs/%s", f->digest);
    return cache_repo(repo, folder) == 0 ? cache_join(out, folder, name) : -1;
}

static void url_of(const hub_name *name, const hub_repo *r, const hub_file *f, char *out) {
    const char *endpoint = getenv("HF_ENDPOINT");
    endpoint = endpoint == NULL || endpoint[0] == '\0' ? "https://huggingface.co" : endpoint;
    size_t cut = strlen(endpoint), used;
    while (cut > 0 && endpoint[cut - 1] == '/') {
        cut--;
    }
    used = (size_t)snprintf(out, HUB_PATH, "%.*s/%s/resolve/%s/", (int)cut, endpoint, name->repo,
                            r->commit);
    for (const char *at = f->path; *at != '\0' && used + 4 < HUB_PATH; at++) {
        int plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                    (*at >= '0' && *at <= '9') || strchr("-_./~", *at) != NULL;
        used += (size_t)snprintf(out + used, HUB_PATH - used, plain ? "%c" : "%%%02X",
                                 (unsigned char)*at);
    }
}

/* Bytes that are still to come, and the room on the disk. */
static int check_disk(const hub_name *name, const hub_repo *r, uint64_t *left) {
    char path[HUB_PATH], part[HUB_PATH], need[32], room[32];
    *left = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct stat st;
        if (!r->files[i].wanted || blob_path(name->repo, &r->files[i], path) != 0 ||
            is_whole(path, r->files[i].size)) {
            continue;
        }
        snprintf(part, sizeof part, "%.2000s.incomplete", path);
        uint64_t have = stat(part, &st) == 0 ? (uint64_t)st.st_size : 0;
        *left += have < r->files[i].size ? r->files[i].size - have : 0;
    }
    struct statvfs disk;
    if (cache_repo(name->repo, path) != 0 || cache_join(path, path, "blobs/x") != 0 ||
        cache_folders(path) != 0) {
        return APP_FAILURE;
    }
    *strrchr(path, '/') = '\0';
    if (statvfs(path, &disk) == 0) {
        uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
        if (*left > 0 && free_bytes < *left + (16u << 20)) {
            app_error("%s: %s are to come, and the disk of %s has %s free", name->repo,
                      app_bytes(*left, need), path, app_bytes(free_bytes, room));
            return APP_FAILURE;
        }
    }
    return APP_OK;
}

static int pull_file(const hub_name *name, const hub_repo *r, const hub_file *f, app_progress *p,
                     uint64_t *before, uint64_t total) {
    char path[HUB_PATH], url[HUB_PATH];
    if (blob_path(name->repo, f, path) != 0) {
        return APP_FAILURE;
    }
    if (!is_whole(path, f->size)) {
        int lock = cache_lock(name->repo, f->digest);
        int code = lock >= 0 ? APP_OK : signals_exit_code(APP_FAILURE);
        if (code == APP_OK && !is_whole(path, f->size)) { /* nor did another process make it */
            url_of(name, r, f, url);
            char size[32];
            if (f->size > (16u << 20)) {
                app_note("downloading %s, %s", f->path, app_bytes(f->size, size));
            }
            code = make_blob(url, f, path, p, *before, total);
            *before += f->size;
        }
        if (lock >= 0) {
            close(lock);
        }
        if (code != APP_OK) {
            return code;
        }
    }
    return cache_link(name->repo, r->commit, f->path, f->digest) == 0 ? APP_OK : APP_FAILURE;
}

static int pull_repo(const hub_name *name, const app_options *o, char *out) {
    hub_repo r;
    size_t first = SIZE_MAX;
    char why[HUB_WHY], folder[HUB_PATH];
    int code = repo_list(name, &r);
    if (code != APP_OK) {
        return code;
    }
    uint64_t left = 0, before = 0;
    code = repo_choose(&r, name, o, &first, why);
    if (code == APP_OK) {
        app_note("%s: %s", name->repo, why);
        code = check_disk(name, &r, &left);
    }
    app_progress progress;
    progress_begin(&progress, "downloading");
    for (size_t i = 0; i < r.n && code == APP_OK; i++) {
        if (r.files[i].wanted) {
            code = pull_file(name, &r, &r.files[i], &progress, &before, left);
        }
    }
    progress_end(&progress);
    if (code == APP_OK && (cache_set_ref(name->repo, name->revision, r.commit) != 0 ||
                           !cache_snapshot(name->repo, r.commit, folder))) {
        code = APP_FAILURE;
    }
    if (code == APP_OK && first != SIZE_MAX) {
        code = cache_join(out, folder, r.files[first].path) == 0 ? APP_OK : APP_FAILURE;
    } else if (code == APP_OK) {
        snprintf(out, HUB_PATH, "%s", folder);
    }
    repo_free(&r);
    return code;
}

/* ---- an address ------------------------------------------------------------------------------ */

/* $XDG_CACHE_HOME/godwit/files/DIGEST-OF-ADDRESS/NAME */
static int address_path(const char *address, char *out) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    size_t end = strcspn(address, "?#"), slash = end;
    while (slash > 0 && address[slash - 1] != '/') {
        slash--;
    }
    char hex[65];
    unsigned char raw[32];
    gw_sha256 h;
    gw_sha256_begin(&h);
    gw_sha256_add(&h, address, strlen(address));
    gw_sha256_end(&h, raw);
    gw_sha256_hex(raw, hex);
    int own = cache != NULL && gw_os_is_absolute(cache);
    int n = snprintf(out, HUB_PATH, "%s%s/godwit/files/%.16s/%.*s",
                     own    ? cache
                     : home ? home
                            : "",
                     own ? "" : "/.cache", hex, (int)(end - slash), address + slash);
    if (end == slash || n >= HUB_PATH || address[slash] == '.') {
        app_error("%.200s: the address names no file", address);
        return -1;
    }
    return 0;
}

/* Nobody says its digest: it comes in one go, and is named when the server ended it as it promised.
 */
static int pull_address(const char *address, char *out) {
    if (address_path(address, out) != 0 || cache_folders(out) != 0) {
        return APP_FAILURE;
    }
    blob b = {.what = address};
    snprintf(b.part, sizeof b.part, "%.2000s.%d", out, (int)getpid());
    b.fd = open(b.part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (b.fd < 0) {
        app_error("%s: cannot open: %s", b.part, strerror(errno));
        return APP_FAILURE;
    }
    app_note("downloading %s; nobody names its digest", address);
    begin_digest(&b);
    net_file file = {.url = address,
                     .what = address,
                     .size = UINT64_MAX,
                     .take = take,
                     .taken = taken,
                     .restart = restart,
                     .user = &b};
    int code = net_fetch(&file);
    hasher_drop(&b.hash);
    if (code == APP_OK && (fsync(b.fd) != 0 || rename(b.part, out) != 0)) {
        app_error("%s: cannot be finished: %s", b.part, strerror(errno));
        code = APP_FAILURE;
    }
    close(b.fd);
    if (code != APP_OK) {
        unlink(b.part);
    }
    return code;
}

int hub_pull(const hub_name *name, const app_options *o, char out[HUB_PATH]) {
    if (hub_is_offline()) {
        app_error("%s: not in the cache, and HF_HUB_OFFLINE forbids to download",
                  name->repo[0] != '\0' ? name->repo : name->address);
        return APP_FAILURE;
    }
    return name->repo[0] != '\0' ? pull_repo(name, o, out) : pull_address(name->address, out);
}

/* ---- what is here ---------------------------------------------------------------------------- */

/* The .gguf files of a snapshot, two folders deep, as a list to choose from. */
static void list_snapshot(const char *folder, const char *front, hub_repo *r, int depth) {
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char path[HUB_PATH], own[HUB_PATH];
        struct stat st;
        if (e->d_name[0] == '.' || r->n >= 1000 ||
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path ||
            stat(path, &st) != 0) {
            continue;
        }
        snprintf(own, sizeof own, "%.1000s%.1000s", front, e->d_name);
        if (S_ISDIR(st.st_mode) && depth < 2) {
            snprintf(own, sizeof own, "%.1000s%.1000s/", front, e->d_name);
            list_snapshot(path, own, r, depth + 1);
        } else if (S_ISREG(st.st_mode)) {
            hub_file *grown = realloc(r->files, (r->n + 1) * sizeof *grown);
            if (grown != NULL) {
                r->files = grown;
                grown[r->n] = (hub_file){.path = strdup(own), .size = (uint64_t)st.st_size};
                r->n += grown[r->n].path != NULL;
            }
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Are all parts that the index of a folder names there? */
static int shards_are_here(const char *folder) {
    static const char *const names[] = {"model.safetensors.index.json",
                                        "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < 2; i++) {
        char path[HUB_PATH], part[HUB_PATH];
        const char *key;
        json_t *value;
        if (cache_join(path, folder, names[i]) != 0 || access(path, F_OK) != 0) {
            continue;
        }
        json_t *all = json_load_file(path, 0, NULL), *map = json_object_get(all, "weight_map");
        int whole = json_is_object(map);
        json_object_foreach(map, key, value) {
            const char *file = json_string_value(value);
            whole = whole && file != NULL && cache_join(part, folder, file) == 0 &&
                    access(part, F_OK) == 0;
        }
        json_decref(all);
        return whole;
    }
    return 1;
}

static int parts_are_here(const hub_repo *r, size_t first) {
    const char *path = r->files[first].path;
    size_t bytes = strlen(path);
    int parts = 1, n = 0;
    if (bytes > 20) {
        (void)sscanf(path + bytes - 20, "-%*5d-of-%5d.gguf", &parts);
    }
    for (size_t i = 0; i < r->n; i++) {
        n += r->files[i].wanted && strstr(r->files[i].path, "mmproj") == NULL;
    }
    return n >= parts;
}

int hub_find(const hub_name *name, char out[HUB_PATH]) {
    char folder[HUB_PATH], why[HUB_WHY], path[HUB_PATH];
    if (name->address[0] != '\0') {
        return address_path(name->address, out) == 0 && access(out, F_OK) == 0;
    }
    if (!cache_snapshot(name->repo, name->revision, folder)) {
        return 0;
    }
    hub_repo r = {.n = 0};
    size_t first = SIZE_MAX;
    int models = 0, found = 0;
    list_snapshot(folder, "", &r, 0);
    for (size_t i = 0; i < r.n; i++) {
        const char *at, *end = strrchr(r.files[i].path, '.');
        size_t n = quant_of(r.files[i].path, &at);
        models += end != NULL && strcasecmp(end, ".gguf") == 0;
        found |= name->quant[0] == '\0' || strcasecmp(r.files[i].path, name->quant) == 0 ||
                 (n == strlen(name->quant) && strncasecmp(at, name->quant, n) == 0);
    }
    if (models > 0 && found && repo_choose(&r, name, NULL, &first, why) == APP_OK) {
        found = first != SIZE_MAX && parts_are_here(&r, first) &&
                cache_join(out, folder, r.files[first].path) == 0;
    } else {
        int weights = 0;
        for (size_t i = 0; i < r.n; i++) {
            const char *end = strrchr(r.files[i].path, '.');
            weights |=
                end != NULL && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".bin") == 0);
        }
        found = models == 0 && name->quant[0] == '\0' && weights && shards_are_here(folder) &&
                cache_join(path, folder, "config.json") == 0 && access(path, F_OK) == 0;
        if (found) {
            snprintf(out, HUB_PATH, "%s", folder);
        }
    }
    repo_free(&r);
    return found;
}
