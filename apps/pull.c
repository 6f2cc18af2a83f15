/* apps/pull.c - `godwit pull`, `ls` and `rm`: models of a hub, in the cache that its own tools use.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/hub/pull.h"
#include "apps/hub/repo.h"
#include "apps/model_name.h"
#include "apps/output.h"
#include "core/base/os.h"

static int one_name(const char *text, const app_options *o, hub_name *name) {
    if (!hub_name_of(text, name)) {
        app_error("%.200s is no name of a model on a hub: USER/REPO, USER/REPO:QUANT or an address",
                  text);
        return APP_USAGE;
    }
    if (o->revision != NULL) {
        snprintf(name->revision, sizeof name->revision, "%s", o->revision);
    }
    return APP_OK;
}

static int needs_names(const app_options *o, const char *example) {
    if (o->models.n == 0) {
        app_error("no name: as in 'godwit %s'", example);
        return APP_USAGE;
    }
    return APP_OK;
}

static int run_pull(const app_options *o) {
    int code = needs_names(o, "pull USER/REPO:Q4_K_M");
    for (size_t i = 0; i < o->models.n && code == APP_OK; i++) {
        hub_name name;
        char path[HUB_PATH];
        code = one_name(o->models.at[i], o, &name);
        code = code == APP_OK ? hub_pull(&name, o, path) : code;
        if (code == APP_OK) {
            out_print("%s\n", path);
        }
    }
    return out_failed() ? APP_FAILURE : code;
}

/* ---- ls -------------------------------------------------------------------------------------- */

typedef int (*visit)(void *user, const char *folder, const char *name);

/* Each entry of a folder but those that begin with a dot, in the order of names. */
static int each(const char *folder, visit f, void *user) {
    struct dirent **rows = NULL;
    int n = scandir(folder, &rows, NULL, alphasort), code = APP_OK;
    for (int i = 0; i < n; i++) {
        if (rows[i]->d_name[0] != '.' && code == APP_OK) {
            code = f(user, folder, rows[i]->d_name);
        }
        free(rows[i]);
    }
    free(rows);
    return code;
}

static int add_size(void *user, const char *folder, const char *name) {
    char path[HUB_PATH];
    struct stat st;
    if (cache_join(path, folder, name) != 0 || stat(path, &st) != 0) {
        return APP_OK;
    }
    if (S_ISDIR(st.st_mode)) {
        return each(path, add_size, user);
    }
    *(uint64_t *)user += (uint64_t)st.st_size;
    return APP_OK;
}

static int print_model(void *user, const char *folder, const char *name) {
    char path[HUB_PATH], size[32];
    struct stat st;
    const char *repo = user, *at, *end = strrchr(name, '.');
    if (cache_join(path, folder, name) != 0 || stat(path, &st) != 0) {
        return APP_OK;
    }
    if (S_ISDIR(st.st_mode)) {
        return each(path, print_model, user);
    }
    if (model_name_is_image_part(name)) {
        return APP_OK; /* it belongs to the models next to it */
    }
    if (end != NULL && strcmp(end, ".gguf") == 0) {
        size_t n = quant_of(name, &at);
        out_print("| %s%s%.*s | %s | %s |\n", repo, n > 0 ? ":" : "", (int)n, at,
                  app_bytes((uint64_t)st.st_size, size), path);
    } else if (strcmp(name, "config.json") == 0) {
        uint64_t bytes = 0;
        each(folder, add_size, &bytes);
        out_print("| %s | %s | %s |\n", repo, app_bytes(bytes, size), folder);
    }
    return APP_OK;
}

/* models--USER--REPO */
static int print_repo(void *user, const char *root, const char *name) {
    int *n = user;
    char repo[HUB_NAME], snapshot[HUB_PATH];
    const char *rest = strncmp(name, "models--", 8) == 0 ? name + 8 : NULL;
    const char *cut = rest != NULL ? strstr(rest, "--") : NULL;
    (void)root;
    if (cut == NULL) {
        return APP_OK;
    }
    snprintf(repo, sizeof repo, "%.*s/%s", (int)(cut - rest), rest, cut + 2);
    if (!cache_snapshot(repo, "main", snapshot)) {
        return APP_OK;
    }
    *n += 1;
    return each(snapshot, print_model, repo);
}

static int run_ls(const app_options *o) {
    char root[HUB_PATH];
    (void)o;
    if (cache_root(root) != 0) {
        return APP_FAILURE;
    }
    out_text("| model | size | path |\n|---|---:|---|\n");
    int n = 0, code = each(root, print_repo, &n);
    if (n == 0 && code == APP_OK) {
        app_note("no model in %s: 'godwit pull USER/REPO' downloads one", root);
    }
    return out_failed() ? APP_FAILURE : code;
}

/* ---- rm -------------------------------------------------------------------------------------- */

typedef struct removal {
    const hub_name *name;
    size_t links, left; /* left: files that stay, but for image parts, which are for others */
    int alone;          /* nothing stays that image parts are for: they go, too */
    uint64_t bytes;
    char blobs[HUB_PATH];
} removal;

/* A link of a snapshot goes when it is asked for. */
static int remove_link(void *user, const char *folder, const char *name) {
    removal *r = user;
    char path[HUB_PATH];
    const char *at, *quant = r->name->quant;
    struct stat st;
    if (cache_join(path, folder, name) != 0 || lstat(path, &st) != 0) {
        return APP_OK;
    }
    if (S_ISDIR(st.st_mode)) {
        int code = each(path, remove_link, user);
        rmdir(path); /* when it is empty */
        return code;
    }
    size_t n = quant_of(name, &at);
    int part = model_name_is_image_part(name);
    int asked = quant[0] == '\0' || strcmp(name, quant) == 0 ||
                (part ? r->alone : n == strlen(quant) && strncasecmp(at, quant, n) == 0);
    if (!asked) {
        r->left += !part;
        return APP_OK;
    }
    if (unlink(path) != 0) {
        app_error("%s: cannot remove: %s", path, strerror(errno));
        return APP_FAILURE;
    }
    r->links++;
    return APP_OK;
}

/* Does a link of any snapshot still lead to the blob? */
typedef struct search {
    struct stat blob;
    int found;
} search;

static int look_for(void *user, const char *folder, const char *name) {
    search *s = user;
    char path[HUB_PATH];
    struct stat st;
    if (s->found || cache_join(path, folder, name) != 0 || lstat(path, &st) != 0) {
        return APP_OK;
    }
    if (S_ISDIR(st.st_mode)) {
        return each(path, look_for, user);
    }
    s->found = stat(path, &st) == 0 && st.st_dev == s->blob.st_dev && st.st_ino == s->blob.st_ino;
    return APP_OK;
}

static int remove_blob(void *user, const char *folder, const char *name) {
    removal *r = user;
    char path[HUB_PATH], snapshots[HUB_PATH];
    search s = {0};
    if (cache_repo(r->name->repo, snapshots) != 0 ||
        cache_join(snapshots, snapshots, "snapshots") != 0 || cache_join(path, folder, name) != 0) {
        return APP_FAILURE;
    }
    if (stat(path, &s.blob) != 0) {
        return APP_OK;
    }
    each(snapshots, look_for, &s);
    if (!s.found && strstr(name, ".incomplete") == NULL) {
        r->bytes += (uint64_t)s.blob.st_size;
        unlink(path);
    }
    return APP_OK;
}

static int remove_any(void *user, const char *folder, const char *name) {
    char path[HUB_PATH];
    struct stat st;
    if (cache_join(path, folder, name) == 0 && lstat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            each(path, remove_any, user);
            rmdir(path);
        } else {
            unlink(path);
        }
    }
    return APP_OK;
}

static int remove_model(const hub_name *name) {
    char folder[HUB_PATH], part[HUB_PATH], size[32];
    removal r = {.name = name};
    if (cache_repo(name->repo, folder) != 0 || cache_join(part, folder, "snapshots") != 0) {
        return APP_FAILURE;
    }
    int code = each(part, remove_link, &r);
    if (code == APP_OK && r.links == 0) {
        app_error("%s%s%s is not in the cache ('godwit ls' lists what is)", name->repo,
                  name->quant[0] != '\0' ? ":" : "", name->quant);
        return APP_FAILURE;
    }
    if (code == APP_OK && r.left == 0) {
        r.alone = 1;
        code = each(part, remove_link, &r);
    }
    if (code == APP_OK && cache_join(part, folder, "blobs") == 0) {
        each(part, remove_blob, &r);
    }
    if (code == APP_OK && r.left == 0) { /* nothing of it is used any more */
        each(folder, remove_any, NULL);
        rmdir(folder);
    }
    if (code == APP_OK) {
        app_note("removed %s%s%s, %s", name->repo, name->quant[0] != '\0' ? ":" : "", name->quant,
                 app_bytes(r.bytes, size));
    }
    return code;
}

static int run_rm(const app_options *o) {
    int code = needs_names(o, "rm USER/REPO:Q4_K_M");
    for (size_t i = 0; i < o->models.n && code == APP_OK; i++) {
        hub_name name;
        code = one_name(o->models.at[i], o, &name);
        if (code == APP_OK && name.address[0] != '\0') {
            char path[HUB_PATH];
            if (!hub_find(&name, path) || unlink(path) != 0) {
                app_error("%s is not in the cache", name.address);
                code = APP_FAILURE;
            }
        } else if (code == APP_OK) {
            code = remove_model(&name);
        }
    }
    return code;
}

const app_command command_pull = {
    .name = "pull",
    .bit = CMD_PULL,
    .usage = "USER/REPO[:QUANT] ... [OPTIONS]",
    .summary = "download models of Hugging Face, or of a mirror",
    .detail =
        "Puts them where Hugging Face's own tools put them (HF_HOME, HF_HUB_CACHE, else\n"
        "~/.cache/huggingface/hub), and shares what these have put there. A download that was cut\n"
        "off goes on where it ended; a file is used when its digest was found right. Of a\n"
        "repository of .gguf files one quantization is taken: :QUANT, or of those with four bits "
        "or\n"
        "more that fit here Q4_K_M, unless another is much faster ('Which quantization' in\n"
        "docs/pull.md). Prints the path, which -m takes; -m USER/REPO does, too.\n"
        "HF_TOKEN, HF_ENDPOINT (a mirror) and HF_HUB_OFFLINE mean what they mean to those tools.\n"
        "Needs libcurl, which is opened when it is needed.\n",
    .examples = "  godwit pull user/repo-GGUF:Q4_K_M\n"
                "  HF_ENDPOINT=https://mirror.example godwit pull user/repo\n",
    .operand = "--model",
    .run = run_pull,
};

const app_command command_ls = {
    .name = "ls",
    .bit = CMD_LS,
    .usage = "[OPTIONS]",
    .summary = "models that were downloaded",
    .detail = "Lists the models in the cache that Hugging Face's tools and 'godwit pull' share.\n",
    .examples = "  godwit ls\n",
    .run = run_ls,
};

const app_command command_rm = {
    .name = "rm",
    .bit = CMD_RM,
    .usage = "USER/REPO[:QUANT] ... [OPTIONS]",
    .summary = "remove models that were downloaded",
    .detail = "Removes a model, or one quantization of it, and what no other revision needs.\n",
    .examples = "  godwit rm user/repo-GGUF:Q4_K_M\n",
    .operand = "--model",
    .run = run_rm,
};
