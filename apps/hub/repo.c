/* apps/hub/repo.c - see repo.h. */
#include "apps/hub/repo.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/hub/net.h"
#include "apps/model_name.h"
#include "core/base/os.h"

enum { FILES = 20000 };

/* ---- the list -------------------------------------------------------------------------------- */

/* A path that stays within its folder, of characters that a file system takes. */
static int is_sound(const char *path) {
    if (path[0] == '/' || path[0] == '\0' || strlen(path) > 512) {
        return 0;
    }
    for (const char *at = path; *at != '\0';) {
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.')) {
            return 0;
        }
        for (size_t i = 0; i < n; i++) {
            if ((unsigned char)at[i] < 32 || at[i] == '\\') {
                return 0;
            }
        }
        at += n + (at[n] == '/');
    }
    return 1;
}

static int is_hex(const char *text, size_t n) {
    return text != NULL && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static int add_file(hub_repo *out, const json_t *one) {
    hub_file *f = &out->files[out->n];
    const char *path = json_string_value(json_object_get(one, "rfilename"));
    const json_t *lfs = json_object_get(one, "lfs");
    const json_t *size = json_object_get(json_is_object(lfs) ? lfs : one, "size");
    const char *sha = json_string_value(json_object_get(lfs, "sha256"));
    const char *blob = json_string_value(json_object_get(one, "blobId"));
    if (path == NULL || !is_sound(path)) {
        return -1;
    }
    if (!json_is_integer(size) || json_integer_value(size) < 0 ||
        !(json_is_object(lfs) ? is_hex(sha, 64) : is_hex(blob, 40))) {
        return 0; /* a file without a digest is none that can be trusted */
    }
    f->is_git = !json_is_object(lfs);
    snprintf(f->digest, sizeof f->digest, "%s", f->is_git ? blob : sha);
    f->size = (uint64_t)json_integer_value(size);
    f->path = strdup(path);
    out->n += f->path != NULL;
    return 0;
}

static int parse(const char *text, size_t bytes, const hub_name *name, hub_repo *out) {
    json_t *all = json_loadb(text, bytes, 0, NULL);
    const char *commit = json_string_value(json_object_get(all, "sha"));
    json_t *list = json_object_get(all, "siblings");
    size_t n = json_array_size(list);
    int bad = commit == NULL || strlen(commit) < 7 || strlen(commit) > 64 ||
              strspn(commit, "0123456789abcdef") != strlen(commit) || n == 0 || n > FILES;
    if (!bad) {
        snprintf(out->commit, sizeof out->commit, "%s", commit);
        out->files = calloc(n, sizeof *out->files);
        bad = out->files == NULL;
    }
    for (size_t i = 0; i < n && !bad; i++) {
        bad = add_file(out, json_array_get(list, i)) != 0;
    }
    json_decref(all);
    if (bad) {
        app_error("%s: the hub's list of files is not understood", name->repo);
        return APP_FAILURE;
    }
    return APP_OK;
}

int repo_list(const hub_name *name, hub_repo *out) {
    const char *endpoint = getenv("HF_ENDPOINT");
    endpoint = endpoint == NULL || endpoint[0] == '\0' ? "https://huggingface.co" : endpoint;
    int cut = (int)strlen(endpoint);
    while (cut > 0 && endpoint[cut - 1] == '/') {
        cut--;
    }
    char url[HUB_PATH];
    *out = (hub_repo){.n = 0};
    snprintf(url, sizeof url, "%.*s/api/models/%s/revision/%s?blobs=true", cut, endpoint,
             name->repo, name->revision);
    char *text = NULL;
    size_t bytes = 0;
    int code = net_get(url, name->repo, &text, &bytes);
    code = code == APP_OK ? parse(text, bytes, name, out) : code;
    free(text);
    if (code != APP_OK) {
        repo_free(out);
    }
    return code;
}

void repo_free(hub_repo *r) {
    for (size_t i = 0; i < r->n; i++) {
        free(r->files[i].path);
    }
    free(r->files);
    *r = (hub_repo){.n = 0};
}

/* ---- which of them --------------------------------------------------------------------------- */

static int ends(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcasecmp(text + n - k, end) == 0;
}

static const char *base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int holds(const char *text, const char *part) {
    size_t n = strlen(part);
    for (; *text != '\0'; text++) {
        if (strncasecmp(text, part, n) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A .gguf file that is a model by itself. */
static int is_model(const char *path) {
    const char *name = base(path);
    return ends(path, ".gguf") && !model_name_is_image_part(path) && !holds(name, "imatrix") &&
           !holds(name, "ggml-vocab") && strncasecmp(name, "mtp-", 4) != 0 && !holds(name, "lora");
}

/* "-00002-of-00005.gguf": its number, and the bytes of the name in front; 0: no part. */
static int part_of(const char *path, size_t *front) {
    int k = 0, n = 0, used = 0;
    size_t bytes = strlen(path);
    *front = bytes;
    if (bytes > 20 && sscanf(path + bytes - 20, "-%5d-of-%5d.gguf%n", &k, &n, &used) == 2 &&
        used == 20) {
        *front = bytes - 20;
        return k;
    }
    return 0;
}

size_t quant_of(const char *path, const char **at) {
    const char *name = base(path), *found = NULL;
    size_t bytes = 0;
    for (const char *p = name; *p != '\0'; p++) {
        static const char *const fronts[] = {"IQ",  "TQ",   "Q",     "BF16", "F16",
                                             "F32", "FP16", "MXFP4", "NVFP4"};
        int begins = p == name || !isalnum((unsigned char)p[-1]);
        for (size_t i = 0; begins && i < sizeof fronts / sizeof fronts[0]; i++) {
            size_t n = strlen(fronts[i]);
            int digit = n > 2 || isdigit((unsigned char)p[n]);
            if (strncasecmp(p, fronts[i], n) == 0 && digit) {
                size_t all = n + strspn(p + n, "0123456789_abcdefghijklmnopqrstuvwxyz"
                                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
                found = p;
                bytes = all;
                break;
            }
        }
    }
    *at = found != NULL ? found : name;
    return found != NULL ? bytes : 0;
}

/* Bits of a weight, about, by the name of the quantization; 0: not known. */
static double bits_of(const char *path) {
    const char *at;
    size_t n = quant_of(path, &at);
    if (n == 0) {
        return 0;
    }
    const char *digit = at + strcspn(at, "0123456789");
    double bits = strtod(digit, NULL);
    return bits == 16 || bits == 32 ? bits : bits > 0 && bits <= 8 ? bits : 4;
}

/* Does the name or its quantization match what was asked for? */
static int is_asked(const char *path, const char *quant) {
    const char *at;
    size_t n = quant_of(path, &at), front, asked = strlen(quant);
    (void)part_of(path, &front);
    if (strcasecmp(path, quant) == 0 || strcasecmp(base(path), quant) == 0) {
        return 1;
    }
    if (n > 0 && n == asked && strncasecmp(at, quant, n) == 0) {
        return 1;
    }
    return ends(quant, ".gguf") && strncasecmp(path, quant, front) == 0 &&
           front + 20 == asked; /* another part of the same */
}

static int same_model(const char *a, const char *b) {
    size_t n, m;
    (void)part_of(a, &n);
    (void)part_of(b, &m);
    return n == m && strncmp(a, b, n) == 0;
}

static uint64_t size_of(const hub_repo *r, size_t first) {
    uint64_t all = 0;
    for (size_t i = 0; i < r->n; i++) {
        all += same_model(r->files[i].path, r->files[first].path) ? r->files[i].size : 0;
    }
    return all;
}

static int begins_model(const hub_repo *r, size_t i) {
    size_t front;
    return is_model(r->files[i].path) && part_of(r->files[i].path, &front) <= 1;
}

static int is_half(const char *path) { return holds(path, "f16") && !holds(path, "bf16"); }

/* One of several that nobody named. */
static int choose_unnamed(const hub_repo *r, const app_options *o, const size_t *at, size_t n,
                          size_t *best, char *why) {
    hub_choice rows[HUB_CHOICES];
    hub_machine machine;
    for (size_t i = 0; i < n; i++) {
        const char *path = r->files[at[i]].path, *quant;
        size_t bytes = quant_of(path, &quant);
        rows[i] = (hub_choice){.bytes = size_of(r, at[i]),
                               .bits = bits_of(path),
                               .is_usual = bytes == 6 && strncasecmp(quant, "Q4_K_M", 6) == 0};
    }
    int code = o != NULL ? choice_machine(o, &machine) : APP_OK;
    if (code == APP_OK) {
        *best = at[choice_best(o != NULL ? &machine : NULL, rows, n, why)];
    }
    return code;
}

static int choose_gguf(hub_repo *r, const hub_name *name, const app_options *o, size_t *first,
                       char *why) {
    size_t best = SIZE_MAX, n = 0, all[HUB_CHOICES];
    char list[600] = "", size[32], reason[HUB_WHY] = "";
    for (size_t i = 0; i < r->n; i++) {
        const char *at;
        if (!begins_model(r, i) || n == HUB_CHOICES) {
            continue;
        }
        all[n++] = i;
        size_t bytes = quant_of(r->files[i].path, &at), used = strlen(list);
        if (used + bytes + 4 < sizeof list && bytes > 0) {
            snprintf(list + used, sizeof list - used, "%s%.*s", used ? ", " : "", (int)bytes, at);
        }
        if (name->quant[0] != '\0' ? is_asked(r->files[i].path, name->quant) : n == 1) {
            best = i;
        }
    }
    if (best == SIZE_MAX) {
        app_error("%s has no %.60s; there are %s", name->repo, name->quant,
                  list[0] != '\0' ? list : "other files");
        return APP_FAILURE;
    }
    int unnamed = name->quant[0] == '\0' && n > 1;
    int code = unnamed ? choose_unnamed(r, o, all, n, &best, reason) : APP_OK;
    if (code != APP_OK) {
        return code;
    }
    snprintf(why, HUB_WHY, "%.160s, %s%s%.280s%s", r->files[best].path,
             app_bytes(size_of(r, best), size), unnamed ? ": " : "", reason,
             unnamed ? "; :QUANT names another" : "");
    const char *image = NULL;
    for (size_t i = 0; i < r->n; i++) {
        hub_file *f = &r->files[i];
        f->wanted = same_model(f->path, r->files[best].path);
        int better = image == NULL || (is_half(f->path) && !is_half(image));
        if (ends(f->path, ".gguf") && model_name_is_image_part(f->path) && better) {
            image = f->path;
        }
    }
    for (size_t i = 0; i < r->n; i++) {
        r->files[i].wanted |= image == r->files[i].path;
    }
    *first = best;
    return APP_OK;
}

static int has(const hub_repo *r, const char *end, int in_front) {
    for (size_t i = 0; i < r->n; i++) {
        const char *path = r->files[i].path;
        if (ends(path, end) && (!in_front || strchr(path, '/') == NULL)) {
            return 1;
        }
    }
    return 0;
}

/* What the engine reads of a folder; weights in one form, and no other program's. */
static int is_part_of_folder(const hub_repo *r, const char *path) {
    static const char *const small[] = {".json",     ".txt",   ".model", ".jinja",
                                        ".tiktoken", ".vocab", ".spm"};
    static const char *const others[] = {"onnx/",   "openvino/", "original/",  ".git",
                                         "coreml/", "tf_model",  "flax_model", "runs/",
                                         "assets/", "images/"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strncasecmp(path, others[i], strlen(others[i])) == 0) {
            return 0;
        }
    }
    if (ends(path, ".safetensors")) {
        int own = strncmp(base(path), "consolidated", 12) == 0;
        return !own || !has(r, "model.safetensors", 0);
    }
    if (ends(path, ".bin")) {
        return !has(r, ".safetensors", 1) && holds(base(path), "pytorch_model");
    }
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        if (ends(path, small[i])) {
            return 1;
        }
    }
    return 0;
}

int repo_choose(hub_repo *r, const hub_name *name, const app_options *o, size_t *first, char *why) {
    int models = 0;
    *first = SIZE_MAX;
    for (size_t i = 0; i < r->n; i++) {
        r->files[i].wanted = 0;
        models += begins_model(r, i);
    }
    if (models > 0) {
        return choose_gguf(r, name, o, first, why);
    }
    uint64_t all = 0;
    int weights = 0;
    for (size_t i = 0; i < r->n; i++) {
        hub_file *f = &r->files[i];
        f->wanted = is_part_of_folder(r, f->path);
        all += f->wanted ? f->size : 0;
        weights |= f->wanted && (ends(f->path, ".safetensors") || ends(f->path, ".bin"));
    }
    if (name->quant[0] != '\0' || !weights) {
        app_error("%s has no %s", name->repo,
                  name->quant[0] != '\0' ? name->quant
                                         : "model that is known here (.gguf files, or "
                                           "a folder of safetensors)");
        return APP_FAILURE;
    }
    char size[32];
    snprintf(why, HUB_WHY, "the folder, %s", app_bytes(all, size));
    return APP_OK;
}
