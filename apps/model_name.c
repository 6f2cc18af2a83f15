/* apps/model_name.c - see model_name.h. */
#include "apps/model_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/hub/pull.h"
#include "core/base/os.h"

/* ---- names that are none --------------------------------------------------------------------- */

static int explain(const char *name) {
    size_t n = strlen(name);
    if (name[0] == '~') {
        app_error("%.200s: no such file or folder: ~ was not expanded; leave out the quotes, or "
                  "write $HOME%s",
                  name, name[1] == '/' ? name + 1 : "/...");
    } else if (n > 0 && strpbrk(name, "/") == NULL &&
               !(n > 5 && strcmp(name + n - 5, ".gguf") == 0)) {
        app_error("%.200s: no such file or folder; a model is a .gguf file, a Hugging Face folder, "
                  "or a name there: USER/REPO ('godwit pull USER/REPO' downloads it)",
                  name);
    } else {
        return APP_OK;
    }
    return APP_FAILURE;
}

/* ---- names that are some --------------------------------------------------------------------- */

static int keep_text(app_options *o, const char *text, const char **to) {
    char *copy = strdup(text);
    const char **at = realloc(o->owned.at, (o->owned.n + 1) * sizeof *at);
    o->owned.at = at != NULL ? at : o->owned.at;
    if (copy == NULL || at == NULL) {
        free(copy);
        app_error("out of memory");
        return APP_FAILURE;
    }
    o->owned.at[o->owned.n++] = copy;
    *to = copy;
    return APP_OK;
}

static int resolve(app_options *o, const char **model, int may_pull) {
    hub_name name;
    char path[HUB_PATH];
    if (*model != NULL && **model == '\0') {
        app_error("the name of the model is empty: -m takes a .gguf file, a Hugging Face folder or "
                  "USER/REPO");
        return APP_USAGE;
    }
    if (*model == NULL || access(*model, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
        return APP_OK;
    }
    if (!hub_name_of(*model, &name)) {
        return explain(*model);
    }
    if (hub_find(&name, path)) {
        return keep_text(o, path, model);
    }
    if (!may_pull) {
        app_error("%.200s is not in the cache: 'godwit pull %.200s' downloads it, or --hf-repo",
                  *model, *model);
        return APP_FAILURE;
    }
    int code = hub_pull(&name, o, path);
    return code == APP_OK ? keep_text(o, path, model) : code;
}

/* --hf-repo, --hf-file and --model-url as one name. */
static int asked_name(app_options *o, const char **name) {
    char text[HUB_PATH];
    if (o->hf_repo == NULL && o->hf_file != NULL) {
        app_error("--hf-file names a file of --hf-repo USER/REPO");
        return APP_USAGE;
    }
    if (o->hf_repo == NULL) {
        *name = o->model_url;
        return APP_OK;
    }
    const char *colon = strchr(o->hf_repo, ':');
    int repo =
        o->hf_file != NULL && colon != NULL ? (int)(colon - o->hf_repo) : (int)strlen(o->hf_repo);
    snprintf(text, sizeof text, "hf:%.*s%s%s", repo, o->hf_repo, o->hf_file != NULL ? ":" : "",
             o->hf_file != NULL ? o->hf_file : "");
    hub_name parsed;
    if (!hub_name_of(text, &parsed)) {
        app_error("--hf-repo: '%.200s' is not USER/REPO or USER/REPO:QUANT", o->hf_repo);
        return APP_USAGE;
    }
    return keep_text(o, text, name);
}

int model_names_resolve(app_options *o, const app_command *command) {
    const char *asked = NULL;
    if ((command->bit & (CMD_PULL | CMD_LS | CMD_RM)) != 0) {
        return APP_OK;
    }
    if (o->offline) {
        setenv("HF_HUB_OFFLINE", "1", 1);
    }
    int may_pull = command->bit != CMD_SERVE, several = o->models.at != NULL || o->models.n > 0;
    int code = asked_name(o, &asked);
    code = code == APP_OK ? resolve(o, &asked, 1) : code;
    if (code == APP_OK && asked != NULL) {
        if (o->model != NULL || several) {
            app_error("--hf-repo, --model-url and -m exclude each other: which model is meant?");
            return APP_USAGE;
        }
        if ((command->bit & (CMD_BENCH | CMD_EVALUATE | CMD_SERVE)) != 0) {
            o->models.at = calloc(1, sizeof *o->models.at);
            if (o->models.at == NULL) {
                app_error("out of memory");
                return APP_FAILURE;
            }
            o->models.at[o->models.n++] = asked;
        } else {
            o->model = asked;
        }
        return APP_OK;
    }
    code = code == APP_OK ? resolve(o, &o->model, may_pull) : code;
    for (size_t i = 0; i < o->models.n && code == APP_OK; i++) {
        code = resolve(o, &o->models.at[i], may_pull);
    }
    return code == APP_OK ? resolve(o, &o->base, may_pull) : code;
}

int model_name_is_image_part(const char *path) {
    const char *slash = gw_os_last_slash(path);
    for (const char *at = slash != NULL ? slash + 1 : path; *at != '\0'; at++) {
        if (strncasecmp(at, "mmproj", 6) == 0) {
            return 1;
        }
    }
    return 0;
}
