/* apps/model_name.c - see model_name.h. */
#include "apps/model_name.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "apps/common.h"

/* user/repo[:quant], where no folder `user` is here. */
static int is_hub_name(const char *name) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t user = strspn(name, letters);
    if (user == 0 || name[user] != '/' || name[0] == '.') {
        return 0;
    }
    const char *repo = name + user + 1;
    size_t n = strspn(repo, letters);
    char folder[256];
    if (n == 0 || (repo[n] != '\0' && repo[n] != ':') || user >= sizeof folder) {
        return 0;
    }
    memcpy(folder, name, user);
    folder[user] = '\0';
    return access(folder, F_OK) != 0 && !(n > 5 && strncmp(repo + n - 5, ".gguf", 5) == 0);
}

static int is_address(const char *name) {
    return strncmp(name, "http://", 7) == 0 || strncmp(name, "https://", 8) == 0 ||
           strncmp(name, "hf:", 3) == 0 || strncmp(name, "huggingface.co/", 15) == 0 ||
           strncmp(name, "hf.co/", 6) == 0;
}

static int check(const char *name) {
    if (name == NULL || access(name, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
        return APP_OK;
    }
    size_t n = strlen(name);
    if (is_address(name) || is_hub_name(name)) {
        app_error("%.200s: no such file or folder: it is a name on a hub (Hugging Face): download "
                  "its .gguf file or its folder, then -m PATH",
                  name);
    } else if (name[0] == '~') {
        app_error("%.200s: no such file or folder: ~ was not expanded; leave out the quotes, or "
                  "write $HOME%s",
                  name, name[1] == '/' ? name + 1 : "/...");
    } else if (n > 0 && strpbrk(name, "/") == NULL &&
               !(n > 5 && strcmp(name + n - 5, ".gguf") == 0)) {
        app_error(
            "%.200s: no such file or folder; a model is a .gguf file or a Hugging Face folder",
            name);
    } else {
        return APP_OK;
    }
    return APP_FAILURE;
}

int model_names_check(const app_options *o) {
    int code = check(o->model);
    for (size_t i = 0; i < o->models.n && code == APP_OK; i++) {
        code = check(o->models.at[i]);
    }
    return code == APP_OK ? check(o->base) : code;
}
