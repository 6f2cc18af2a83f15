/* apps/hub/cache.c - see cache.h. */
#include "apps/hub/cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/signals.h"
#include "apps/terminal.h"
#include "core/base/os.h"

/* ---- names ----------------------------------------------------------------------------------- */

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

/* user/repo at the beginning of text: its bytes; 0: there is none. Dots alone are no names. */
static size_t repo_bytes(const char *text) {
    size_t user = strspn(text, letters);
    if (user == 0 || text[user] != '/' || text[0] == '.') {
        return 0;
    }
    size_t repo = strspn(text + user + 1, letters);
    return repo > 0 && text[user + 1] != '.' && user + 1 + repo < HUB_NAME ? user + 1 + repo : 0;
}

static const char *behind(const char *text, const char *front) {
    size_t n = strlen(front);
    return strncasecmp(text, front, n) == 0 ? text + n : NULL;
}

/* Behind the host of a hub's address, or of "hf:"; NULL: it is another. */
static const char *behind_host(const char *text) {
    static const char *const fronts[] = {
        "https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/", "hf://", "hf:"};
    const char *endpoint = getenv("HF_ENDPOINT");
    size_t n = endpoint != NULL ? strlen(endpoint) : 0;
    if (n > 0 && strncmp(text, endpoint, n) == 0 && (text[n] == '/' || endpoint[n - 1] == '/')) {
        return text + n + (text[n] == '/');
    }
    for (size_t i = 0; i < sizeof fronts / sizeof fronts[0]; i++) {
        const char *rest = behind(text, fronts[i]);
        if (rest != NULL) {
            return rest;
        }
    }
    return NULL;
}

/* user/repo[/resolve|blob|tree/REVISION/FILE]?query */
static int of_page(const char *text, hub_name *out) {
    size_t n = repo_bytes(text);
    if (n == 0) {
        return 0;
    }
    memcpy(out->repo, text, n);
    const char *at = text + n;
    static const char *const words[] = {"/resolve/", "/blob/", "/tree/"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *rest = behind(at, words[i]);
        if (rest != NULL) {
            size_t revision = strcspn(rest, "/?#");
            const char *file = rest + revision + (rest[revision] == '/');
            size_t bytes = rest[revision] == '/' ? strcspn(file, "?#") : 0;
            snprintf(out->revision, HUB_NAME, "%.*s", (int)revision, rest);
            snprintf(out->quant, HUB_NAME, "%.*s", (int)bytes, file);
            return out->revision[0] != '\0';
        }
    }
    if (*at == ':') {
        snprintf(out->quant, HUB_NAME, "%s", at + 1);
        return at[1] != '\0';
    }
    return *at == '\0' || strcmp(at, "/") == 0 || *at == '?' || *at == '#';
}

int hub_name_of(const char *text, hub_name *out) {
    *out = (hub_name){.revision = "main"};
    if (access(text, F_OK) == 0) {
        return 0;
    }
    const char *page = behind_host(text);
    if (page != NULL) {
        return of_page(page, out);
    }
    if (behind(text, "http://") != NULL || behind(text, "https://") != NULL) {
        snprintf(out->address, HUB_PATH, "%s", text);
        return strlen(text) < HUB_PATH;
    }
    size_t n = strlen(text), user = strcspn(text, "/");
    char folder[HUB_NAME];
    snprintf(folder, sizeof folder, "%.*s", (int)user, text);
    return !(n > 5 && strcmp(text + n - 5, ".gguf") == 0 && strchr(text, ':') == NULL) &&
           access(folder, F_OK) != 0 && of_page(text, out) && strchr(text, '?') == NULL;
}

/* ---- paths ----------------------------------------------------------------------------------- */

int cache_join(char *out, const char *a, const char *b) {
    char joined[HUB_PATH];
    int n = snprintf(joined, sizeof joined, "%s/%s", a, b);
    if (n < 0 || n >= HUB_PATH) {
        app_error("%.100s/%.100s: the path is too long", a, b);
        return -1;
    }
    memcpy(out, joined, (size_t)n + 1);
    return 0;
}

int cache_root(char *out) {
    static const struct {
        const char *variable, *below;
    } rows[] = {{"HF_HUB_CACHE", ""},
                {"HUGGINGFACE_HUB_CACHE", ""},
                {"HF_HOME", "/hub"},
                {"XDG_CACHE_HOME", "/huggingface/hub"},
                {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *value = getenv(rows[i].variable);
        if (value != NULL && value[0] != '\0') {
            int n = snprintf(out, HUB_PATH, "%s%s", value, rows[i].below);
            return n < HUB_PATH ? 0 : -1;
        }
    }
    app_error("no place for models: set HF_HOME or HOME");
    return -1;
}

int cache_repo(const char *repo, char *out) {
    char name[2 * HUB_NAME], root[HUB_PATH];
    size_t user = strcspn(repo, "/");
    snprintf(name, sizeof name, "models--%.*s--%s", (int)user, repo, repo + user + 1);
    return cache_root(root) == 0 ? cache_join(out, root, name) : -1;
}

static int join3(char *out, const char *a, const char *b, const char *c) {
    char front[HUB_PATH];
    return cache_join(front, a, b) == 0 ? cache_join(out, front, c) : -1;
}

int cache_snapshot(const char *repo, const char *revision, char *out) {
    char folder[HUB_PATH], path[HUB_PATH], commit[HUB_NAME] = "";
    if (cache_repo(repo, folder) != 0 || join3(path, folder, "refs", revision) != 0) {
        return 0;
    }
    FILE *in = fopen(path, "re");
    if (in != NULL) {
        size_t n = fread(commit, 1, sizeof commit - 1, in);
        fclose(in);
        commit[n] = '\0';
        commit[strcspn(commit, "\r\n ")] = '\0';
    } else {
        snprintf(commit, sizeof commit, "%s", revision); /* a commit itself */
    }
    return commit[0] != '\0' && strchr(commit, '/') == NULL && commit[0] != '.' &&
           join3(out, folder, "snapshots", commit) == 0 && access(out, F_OK) == 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

int cache_folders(const char *path) {
    char copy[HUB_PATH];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *at = strpbrk(copy + 1, GW_OS_SLASHES); at != NULL;
         at = strpbrk(at + 1, GW_OS_SLASHES)) {
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) {
            app_error("%s: cannot make the folder: %s", copy, strerror(errno));
            return -1;
        }
        *at = '/';
    }
    return 0;
}

int cache_link(const char *repo, const char *commit, const char *path, const char *blob) {
    char folder[HUB_PATH], link[HUB_PATH], target[HUB_PATH] = "", aside[HUB_PATH];
    if (cache_repo(repo, folder) != 0 || join3(link, folder, "snapshots", commit) != 0 ||
        cache_join(link, link, path) != 0 || cache_folders(link) != 0) {
        return -1;
    }
    size_t used = (size_t)snprintf(target, sizeof target, "../../");
    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
        used += (size_t)snprintf(target + used, sizeof target - used, "../");
    }
    snprintf(target + used, sizeof target - used, "blobs/%s", blob);
    snprintf(aside, sizeof aside, "%.2000s.%d", link, (int)getpid());
    unlink(aside);
    /* Where a user may make no symbolic links (Windows), the file gets a second name. */
    if ((symlink(target, aside) != 0 &&
         (join3(target, folder, "blobs", blob) != 0 || gw_os_second_name(target, aside) != 0)) ||
        rename(aside, link) != 0) {
        app_error("%s: cannot make the link: %s", link, strerror(errno));
        unlink(aside);
        return -1;
    }
    unlink(aside); /* two names of one file are not renamed */
    return 0;
}

int cache_set_ref(const char *repo, const char *revision, const char *commit) {
    char folder[HUB_PATH], path[HUB_PATH], aside[HUB_PATH];
    if (strcmp(revision, commit) == 0) {
        return 0;
    }
    if (cache_repo(repo, folder) != 0 || join3(path, folder, "refs", revision) != 0 ||
        cache_folders(path) != 0) {
        return -1;
    }
    snprintf(aside, sizeof aside, "%.2000s.%d", path, (int)getpid());
    FILE *out = fopen(aside, "we");
    int failed = out == NULL || fputs(commit, out) < 0;
    failed = (out != NULL && fclose(out) != 0) || failed;
    if (failed || rename(aside, path) != 0) {
        app_error("%s: cannot write: %s", path, strerror(errno));
        unlink(aside);
        return -1;
    }
    return 0;
}

int cache_lock(const char *repo, const char *blob) {
    char root[HUB_PATH], folder[HUB_PATH], path[HUB_PATH], name[HUB_NAME + 8];
    snprintf(name, sizeof name, "%s.lock", blob);
    if (cache_root(root) != 0 || cache_repo(repo, folder) != 0 ||
        join3(path, root, ".locks", strrchr(folder, '/') + 1) != 0 ||
        cache_join(path, path, name) != 0 || cache_folders(path) != 0) {
        return -1;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), said = 0;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            app_error("%s: cannot lock: %s", path, strerror(errno));
            close(fd);
            return -1;
        }
        if (!said) {
            app_note("another process downloads the same file: waiting for it");
            said = 1;
        }
        if (*signals_cancel() != 0) {
            close(fd);
            return -1;
        }
        gw_os_sleep(100);
    }
    if (fd < 0) {
        app_error("%s: cannot open: %s", path, strerror(errno));
    }
    return fd;
}
