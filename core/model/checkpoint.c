/* core/model/checkpoint.c - opening each container, the list of tensors, access. */
#include "core/model/checkpoint.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/list.h"
#include "core/base/os.h"
#include "core/base/text.h"
#include "core/model/checkpoint_parts.h"
#include "core/model/config.h"
#include "core/model/sentence.h"
#include "core/model/spec.h"

gw_status gw_checkpoint_nomem(const gw_checkpoint *c) {
    return gw_fail(GW_E_NOMEM, c->where, "no memory to open the model");
}

/* ---- lists ------------------------------------------------------------------------------- */

gw_status gw_checkpoint_map(gw_checkpoint *c, const char *path, gw_file *out) {
    const char *name = gw_arena_copy(c->arena, path, strlen(path));
    if (name == NULL) {
        return gw_checkpoint_nomem(c);
    }
    size_t capacity = c->files_capacity;
    gw_file *files = gw_list_grown(c->files, c->n_files, &c->files_capacity, sizeof *files);
    if (files == NULL) {
        return gw_checkpoint_nomem(c);
    }
    c->files = files;
    if (capacity != c->files_capacity) {
        void *names = realloc(c->file_names, c->files_capacity * sizeof *c->file_names);
        if (names == NULL) {
            c->files_capacity = capacity;
            return gw_checkpoint_nomem(c);
        }
        c->file_names = names;
    }
    GW_TRY(gw_file_open(path, path, &c->files[c->n_files]));
    c->file_names[c->n_files] = name;
    *out = c->files[c->n_files++];
    return GW_OK;
}

static gw_status add_name(gw_checkpoint *c, const char *where, gw_map *map, const char *name,
                          size_t index) {
    size_t at;
    if (gw_map_find(c->names, name, strlen(name), &at) ||
        gw_map_find(c->unusable_names, name, strlen(name), &at)) {
        return gw_fail(GW_E_DUPLICATE, where, "tensor %s is also in another part of the model",
                       name);
    }
    return gw_map_add(map, name, strlen(name), index, NULL) == GW_MAP_ADDED
               ? GW_OK
               : gw_checkpoint_nomem(c);
}

gw_status gw_checkpoint_add(gw_checkpoint *c, const char *where, const gw_stored *t) {
    gw_stored *list = gw_list_grown(c->list, c->n, &c->capacity, sizeof *list);
    if (list == NULL) {
        return gw_checkpoint_nomem(c);
    }
    c->list = list;
    GW_TRY(add_name(c, where, c->names, t->name, c->n));
    c->list[c->n++] = *t;
    return GW_OK;
}

gw_status gw_checkpoint_replace(gw_checkpoint *c, const gw_stored *t) {
    gw_stored *list = gw_list_grown(c->list, c->n, &c->capacity, sizeof *list);
    if (list == NULL) {
        return gw_checkpoint_nomem(c);
    }
    c->list = list;
    size_t at;
    if (gw_map_find(c->names, t->name, strlen(t->name), &at)) { /* codes in the type of floats */
        c->list[at] = *t;
        return GW_OK;
    }
    if (gw_map_add(c->names, t->name, strlen(t->name), c->n, NULL) != GW_MAP_ADDED) {
        return gw_checkpoint_nomem(c);
    }
    c->list[c->n++] = *t;
    return GW_OK;
}

gw_status gw_checkpoint_add_unusable(gw_checkpoint *c, const char *where, const gw_stored *t,
                                     const char *why) {
    struct gw_unusable *list =
        gw_list_grown(c->unusable, c->n_unusable, &c->unusable_capacity, sizeof *list);
    if (list == NULL) {
        return gw_checkpoint_nomem(c);
    }
    c->unusable = list;
    GW_TRY(add_name(c, where, c->unusable_names, t->name, c->n_unusable));
    c->unusable[c->n_unusable++] = (struct gw_unusable){*t, why};
    return GW_OK;
}

const char *gw_checkpoint_join(gw_checkpoint *c, const char *folder, const char *name) {
    size_t n = strlen(folder), m = strlen(name);
    char *out = gw_arena_alloc(c->arena, n + m + 2);
    if (out != NULL) {
        int slash = n > 0 && folder[n - 1] != '/';
        memcpy(out, folder, n);
        if (slash) {
            out[n] = '/';
        }
        memcpy(out + n + (size_t)slash, name, m + 1);
    }
    return out;
}

/* ---- hyper-parameters -------------------------------------------------------------------- */

/* The explicit per-frequency factors of GGUF files: for the ropes that turn so many pairs. */
static gw_status read_divisors(gw_checkpoint *c, const char *name, int which) {
    const gw_stored *t = gw_checkpoint_find(c, name);
    if (t == NULL) {
        return GW_OK;
    }
    size_t n = t->n_dim == 1 ? (size_t)t->dim[0] : 0;
    float *copy = gw_arena_array(c->arena, n + 1, sizeof *copy); /* stored at any alignment */
    if (copy == NULL) {
        return gw_checkpoint_nomem(c);
    }
    int fits = 0;
    for (int r = 0; r < c->hparams.n_ropes; r++) {
        gw_rope *rope = &c->hparams.rope[r];
        if (n > 0 && (size_t)rope->dim / 2 == n && t->fmt == GW_FMT_F32) {
            rope->divisors = which == 1 ? rope->divisors : copy;
            rope->long_divisors = which == 1 ? copy : rope->long_divisors;
            fits = 1;
        }
    }
    if (!fits) {
        return gw_fail(GW_E_METADATA, c->where, "%s must be [%d] in F32", name,
                       c->hparams.rope[0].dim / 2);
    }
    memcpy(copy, t->data, n * sizeof *copy);
    for (size_t i = 0; i < n; i++) {
        if (!(copy[i] > 0.0f && copy[i] <= 1e30f)) {
            return gw_fail(GW_E_METADATA, c->where, "%s [%zu] is %g", name, i, (double)copy[i]);
        }
    }
    return GW_OK;
}

/* The text model inside an image model by its type: "Mistral3ForConditionalGeneration+mistral4". */
static const gw_spec *spec_inside(const gw_checkpoint *c) {
    char name[160];
    const gw_facts text = gw_config_hf_facts(c->where, c->config);
    const char *type =
        text.outer != NULL ? json_string_value(json_object_get(text.object, "model_type")) : NULL;
    int n = type != NULL ? snprintf(name, sizeof name, "%s+%s", c->architecture, type) : 0;
    return n > 0 && (size_t)n < sizeof name ? gw_spec_of(name) : NULL;
}

/* One architecture may have several families. GGUF files have that of a dense family and experts:
 * "llama+experts" in a spec. */
static const gw_spec *spec_by_parts(const gw_checkpoint *c) {
    char name[80], key[96];
    int64_t experts = 0;
    int found = 0;
    if (c->container != GW_CONTAINER_GGUF) {
        return spec_inside(c);
    }
    snprintf(key, sizeof key, "%s.expert_count", c->architecture);
    snprintf(name, sizeof name, "%s+experts", c->architecture);
    int known = gw_gguf_int(c->gguf[0], key, &experts, &found) == GW_OK && found && experts > 0;
    return known ? gw_spec_of(name) : NULL; /* what is wrong with the number is said later */
}

/* Of a family's spec, that of a part of its checkpoints: layers that predict one token more (mtp),
 * or what a head adds to a block's logits (chain). */
static gw_status find_part(const char *where, const char *part, const gw_spec **spec) {
    char name[64];
    int n = snprintf(name, sizeof name, "%s-%s", gw_spec_family(*spec), part);
    const gw_spec *found = n > 0 && (size_t)n < sizeof name ? gw_spec_named(name, (size_t)n) : NULL;
    if (found == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, where,
                       "no layers that predict one token more (MTP) are known of the family %s",
                       gw_spec_family(*spec));
    }
    *spec = found;
    return GW_OK;
}

/* The spec of a vision tower: by the architecture of a folder's model, or the projector of a file.
 */
static gw_status find_tower(const gw_checkpoint *c, const char *where, const gw_spec **spec) {
    char name[80];
    gw_gguf_view kind = {"", 0};
    snprintf(name, sizeof name, "%s", c->architecture);
    if (c->container == GW_CONTAINER_GGUF) {
        int found = 0;
        if (strcmp(c->architecture, "clip") != 0) {
            return gw_fail(GW_E_UNSUPPORTED, where,
                           "is a model of architecture '%.40s', no vision tower (mmproj)",
                           c->architecture);
        }
        GW_TRY(gw_gguf_text(c->gguf[0], "clip.vision.projector_type", &kind, &found));
        GW_TRY(found ? GW_OK : gw_gguf_text(c->gguf[0], "clip.projector_type", &kind, &found));
        snprintf(name, sizeof name, "%.*s", (int)(kind.bytes < 64 ? kind.bytes : 64), kind.text);
    }
    *spec = gw_spec_tower(name);
    return *spec != NULL
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, where,
                         "no vision tower is known of '%.64s', so pictures cannot be read", name);
}

static gw_status read_blueprint(gw_checkpoint *c, const char *where, const gw_spec_given *given) {
    const gw_spec *spec = NULL;
    c->blueprint = malloc(sizeof *c->blueprint);
    if (c->blueprint == NULL) {
        return gw_checkpoint_nomem(c);
    }
    if (given != NULL && given->text != NULL) {
        return gw_blueprint_read(given->name, given->text, c->blueprint);
    }
    if (given != NULL && given->sees) {
        GW_TRY(find_tower(c, where, &spec));
        return gw_blueprint_read(gw_spec_family(spec), gw_spec_text(spec), c->blueprint);
    }
    spec = spec_by_parts(c);
    if (spec == NULL) {
        GW_TRY(gw_spec_find(where, c->architecture, &spec));
    }
    if (given != NULL && (given->predicts || given->chains)) {
        GW_TRY(find_part(where, given->chains ? "chain" : "mtp", &spec));
    }
    return gw_blueprint_read(gw_spec_family(spec), gw_spec_text(spec), c->blueprint);
}

static gw_status read_hparams(gw_checkpoint *c, const gw_spec_given *given) {
    int hf = c->container == GW_CONTAINER_HF;
    const char *where = hf ? gw_checkpoint_join(c, c->where, "config.json") : c->where;
    if (where == NULL) {
        return gw_checkpoint_nomem(c);
    }
    GW_TRY(read_blueprint(c, where, given));
    json_t *metadata = NULL;
    gw_facts facts = {.where = where};
    if (hf) {
        facts = gw_config_hf_facts(where, c->config);
        GW_TRY(gw_config_refuse_quantized(&facts));
    } else {
        GW_TRY(gw_config_gguf_facts(c->gguf[0], c->architecture, &metadata));
        facts.object = metadata;
    }
    gw_status status = gw_config_read(&facts, c->blueprint, c->arena, &c->hparams);
    json_decref(metadata);
    GW_TRY(status);
    if (!hf) {
        GW_TRY(read_divisors(c, "rope_freqs.weight", 0));
        GW_TRY(read_divisors(c, "rope_factors_short.weight", 0));
        GW_TRY(read_divisors(c, "rope_factors_long.weight", 1));
    }
    c->has_hparams = 1;
    return GW_OK;
}

/* ---- open and close ---------------------------------------------------------------------- */

/* "models/a.gguf" -> "a"; a folder's own name. */
static const char *name_of(gw_checkpoint *c, const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    if (end - start > 5 && memcmp(path + end - 5, ".gguf", 5) == 0) {
        end -= 5;
    }
    return gw_arena_copy(c->arena, path + start, end - start);
}

/* What a file says of itself is shown on terminals: without controls, those of Latin 1 as well. */
static gw_status clean_name(gw_checkpoint *c) {
    char *text = (char *)gw_arena_copy(c->arena, c->name, strlen(c->name));
    if (text == NULL) {
        return gw_checkpoint_nomem(c);
    }
    for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
        int high = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;
        p[0] = p[0] < 0x20 || p[0] == 0x7f || high ? '?' : p[0];
        if (high) {
            p[1] = '?';
            p++;
        }
    }
    c->name = text;
    return GW_OK;
}

static gw_status name_it(gw_checkpoint *c, const char *path) {
    gw_gguf_view title = {"", 0};
    if (c->container == GW_CONTAINER_GGUF) {
        GW_TRY(gw_gguf_text(c->gguf[0], "general.name", &title, NULL));
    }
    int titled = title.bytes > 0 && title.bytes < 200 &&
                 memchr(title.text, 0, (size_t)title.bytes) == NULL &&
                 gw_text_is_utf8(title.text, (size_t)title.bytes);
    c->name = titled         ? gw_arena_copy(c->arena, title.text, (size_t)title.bytes)
              : path != NULL ? name_of(c, path)
                             : "(memory)";
    return c->name != NULL ? clean_name(c) : gw_checkpoint_nomem(c);
}

enum { OPEN_ALL, OPEN_VOCAB, OPEN_WEIGHTS };

/* "models/a/tokenizer.json": the folder, and which of its files. */
static gw_status look_for_vocab_file(gw_checkpoint *c, const char *path) {
    const char *slash = gw_os_last_slash(path), *name = slash != NULL ? slash + 1 : path;
    if (gw_path_look(path) != GW_PATH_FILE || !gw_hf_is_vocab_file(name)) {
        return GW_OK;
    }
    size_t folder = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    c->vocab_file = gw_arena_copy(c->arena, name, strlen(name));
    c->where = gw_arena_copy(c->arena, slash == NULL ? "." : path, folder);
    return c->vocab_file != NULL && c->where != NULL ? GW_OK : gw_checkpoint_nomem(c);
}

/* A folder without config.json of an embedding model: its first module's part is the model. */
static gw_status enter_part(gw_checkpoint *c) {
    char part[1024];
    int found = 0, tabled = 0;
    const char *config = gw_checkpoint_join(c, c->where, "config.json");
    if (config == NULL) {
        return gw_checkpoint_nomem(c);
    }
    GW_TRY(gw_sentence_first(c->where, part, sizeof part, &tabled, &found));
    if (!found || (gw_path_look(config) != GW_PATH_NONE && !tabled)) {
        return GW_OK;
    }
    c->tabled = tabled;
    c->root = c->where;
    c->where = part[0] != '\0' ? gw_checkpoint_join(c, c->where, part) : c->where;
    return c->where != NULL ? GW_OK : gw_checkpoint_nomem(c);
}

static gw_status load(gw_checkpoint *c, const char *path, const void *memory, size_t bytes,
                      int what, const gw_spec_given *given) {
    int vocab_only = what == OPEN_VOCAB;
    if (what == OPEN_WEIGHTS) {
        c->container = GW_CONTAINER_WEIGHTS;
        c->vocab_state = GW_VOCAB_NONE;
        GW_TRY(gw_weights_file_load(c, path));
        return name_it(c, path);
    }
    if (vocab_only && path != NULL) {
        GW_TRY(look_for_vocab_file(c, path));
    }
    if (c->vocab_file != NULL || (path != NULL && gw_path_look(path) == GW_PATH_FOLDER)) {
        c->container = GW_CONTAINER_HF;
        GW_TRY(c->vocab_file == NULL ? enter_part(c) : GW_OK);
        vocab_only |= c->tabled;
        GW_TRY(gw_hf_load(c, path, vocab_only && (given == NULL || !given->bare)));
        GW_TRY(gw_config_hf_architecture(c->where, c->config, !vocab_only, c->architecture,
                                         sizeof c->architecture));
    } else if (path != NULL && gw_is_llama2c(path)) {
        c->container = GW_CONTAINER_HF;
        GW_TRY(gw_llama2c_load(c, path));
        GW_TRY(
            gw_config_hf_architecture(path, c->config, 1, c->architecture, sizeof c->architecture));
    } else {
        c->container = GW_CONTAINER_GGUF;
        GW_TRY(gw_gguf_load(c, path, memory, bytes));
        const int sees = given != NULL && given->sees;
        GW_TRY(gw_config_gguf_architecture(c->gguf[0], sees ? -1 : !vocab_only, c->architecture,
                                           sizeof c->architecture));
    }
    GW_TRY(name_it(c, path));
    GW_TRY(vocab_only ? GW_OK : read_hparams(c, given));
    return given != NULL && given->lender != NULL ? gw_checkpoint_borrow(c, given->lender) : GW_OK;
}

static gw_status open_any(const char *asked, const void *memory, size_t bytes, int what,
                          const gw_spec_given *given, gw_checkpoint **out) {
    char only[PATH_MAX];
    const char *path = asked;
    if ((path == NULL) == (memory == NULL)) {
        return gw_fail(GW_E_ARGUMENT, NULL, "a path or an image in memory is needed");
    }
    if (path != NULL && gw_path_look(path) == GW_PATH_FOLDER) {
        GW_TRY(gw_folder_gguf(path, only, sizeof only));
        path = only[0] != '\0' ? only : path;
    }
    gw_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return gw_fail(GW_E_NOMEM, path, "no memory to open the model");
    }
    c->arena = gw_arena_new();
    c->names = gw_map_new();
    c->unusable_names = gw_map_new();
    c->where =
        path != NULL && c->arena != NULL ? gw_arena_copy(c->arena, path, strlen(path)) : "(memory)";
    gw_status status = c->arena && c->names && c->unusable_names && c->where
                           ? load(c, path, memory, bytes, what, given)
                           : gw_fail(GW_E_NOMEM, path, "no memory to open the model");
    if (status != GW_OK) {
        gw_checkpoint_free(c);
        return status;
    }
    *out = c;
    return GW_OK;
}

gw_status gw_checkpoint_open(const char *path, const void *memory, size_t bytes,
                             gw_checkpoint **out) {
    return open_any(path, memory, bytes, OPEN_ALL, NULL, out);
}

gw_status gw_checkpoint_open_as(const char *path, const void *memory, size_t bytes,
                                const gw_spec_given *given, gw_checkpoint **out) {
    return open_any(path, memory, bytes, given->bare ? OPEN_VOCAB : OPEN_ALL, given, out);
}

gw_status gw_checkpoint_open_vocab(const char *path, const void *memory, size_t bytes,
                                   gw_checkpoint **out) {
    return open_any(path, memory, bytes, OPEN_VOCAB, NULL, out);
}

gw_status gw_checkpoint_open_weights(const char *path, gw_checkpoint **out) {
    return open_any(path, NULL, 0, OPEN_WEIGHTS, NULL, out);
}

int gw_is_weights_file(const char *path) {
    return gw_path_look(path) == GW_PATH_FILE &&
           (gw_text_ends(path, ".safetensors") || gw_is_torch_name(path)) && !gw_is_llama2c(path);
}

void gw_checkpoint_free(gw_checkpoint *c) {
    if (c == NULL) {
        return;
    }
    if (c->vocab_state == GW_VOCAB_READ) {
        gw_vocab_free(&c->vocab);
    }
    gw_checkpoint_free(c->lender);
    for (size_t i = 0; i < c->n_gguf; i++) {
        gw_gguf_free(c->gguf[i]);
    }
    for (size_t i = 0; i < c->n_files; i++) {
        gw_file_close(&c->files[i]);
    }
    json_decref(c->config);
    json_decref(c->generation);
    gw_map_free(c->names);
    gw_map_free(c->unusable_names);
    gw_arena_free(c->arena);
    free(c->blueprint);
    free(c->gguf);
    free(c->files);
    free((void *)c->file_names);
    free(c->unusable);
    free(c->list);
    free(c);
}

/* ---- access ------------------------------------------------------------------------------ */

gw_container gw_checkpoint_container(const gw_checkpoint *c) { return c->container; }
const char *gw_checkpoint_name(const gw_checkpoint *c) { return c->name; }
const char *gw_checkpoint_path(const gw_checkpoint *c) { return c->where; }
const char *gw_checkpoint_root(const gw_checkpoint *c) {
    return c->root != NULL ? c->root : c->where;
}
int gw_checkpoint_is_table(const gw_checkpoint *c) { return c->tabled; }
const char *gw_checkpoint_architecture(const gw_checkpoint *c) { return c->architecture; }
size_t gw_checkpoint_count(const gw_checkpoint *c) { return c->n; }
const gw_stored *gw_checkpoint_at(const gw_checkpoint *c, size_t i) { return &c->list[i]; }

const gw_hparams *gw_checkpoint_hparams(const gw_checkpoint *c) {
    return c->has_hparams ? &c->hparams : NULL;
}

int gw_checkpoint_drafts(const gw_checkpoint *c) {
    return c->has_hparams &&
           (gw_spec_named_number(c->blueprint, &c->hparams, "target_states", -1.0) >= 0.0 ||
            gw_spec_named_number(c->blueprint, &c->hparams, "chain_rank", -1.0) >= 0.0);
}

const gw_blueprint *gw_checkpoint_blueprint(const gw_checkpoint *c) {
    return c->has_hparams ? c->blueprint : NULL;
}

uint64_t gw_checkpoint_file_bytes(const gw_checkpoint *c) {
    uint64_t total = c->memory_bytes;
    for (size_t i = 0; i < c->n_files; i++) {
        total += c->files[i].size;
    }
    return total;
}

const gw_stored *gw_checkpoint_find(const gw_checkpoint *c, const char *name) {
    size_t i;
    return gw_map_find(c->names, name, strlen(name), &i) ? &c->list[i] : NULL;
}

const gw_stored *gw_checkpoint_integers(const gw_checkpoint *c, const char *name) {
    size_t i;
    int found = gw_map_find(c->unusable_names, name, strlen(name), &i);
    int wide = found && strcmp(c->unusable[i].why, "I64") == 0;
    if (!wide && !(found && strcmp(c->unusable[i].why, "I32") == 0)) {
        return NULL;
    }
    const gw_stored *from = &c->unusable[i].stored;
    size_t each = wide ? sizeof(int64_t) : sizeof(int32_t), n = from->bytes / each;
    gw_stored *t = gw_arena_array(c->arena, 1, sizeof *t);
    float *values = gw_arena_array(c->arena, n + 1, sizeof *values);
    if (t == NULL || values == NULL) {
        return NULL;
    }
    for (size_t k = 0; k < n; k++) {
        int64_t x = 0;
        int32_t half = 0;
        memcpy(wide ? (void *)&x : (void *)&half, (const char *)from->data + k * each, each);
        values[k] = wide ? (float)x : (float)half;
    }
    *t = *from;
    t->fmt = GW_FMT_F32;
    t->data = values;
    t->bytes = n * sizeof *values;
    t->fd = -1;
    return t;
}

/* Of whatever type of number it is. */
static int sampling_of_gguf(const gw_gguf *g, const char *key, double *out) {
    char name[80];
    snprintf(name, sizeof name, "general.sampling.%s", key);
    for (size_t i = 0; i < gw_gguf_pairs(g); i++) {
        gw_gguf_pair p = gw_gguf_pair_at(g, i);
        if (p.key.bytes != strlen(name) || memcmp(p.key.text, name, p.key.bytes) != 0) {
            continue;
        }
        int64_t whole = 0;
        int real = p.type == GW_GGUF_F32 || p.type == GW_GGUF_F64;
        if (p.is_array || p.type == GW_GGUF_TEXT || p.type == GW_GGUF_BOOL) {
            return 0;
        }
        gw_status status =
            real ? gw_gguf_real(g, name, out, NULL) : gw_gguf_int(g, name, &whole, NULL);
        *out = real ? *out : (double)whole;
        return status == GW_OK;
    }
    return 0;
}

int gw_checkpoint_sampling(const gw_checkpoint *c, const char *gguf, const char *hf, double *out) {
    double value = 0.0;
    const json_t *stated = hf != NULL ? json_object_get(c->generation, hf) : NULL;
    int found = c->container == GW_CONTAINER_GGUF
                    ? gguf != NULL && sampling_of_gguf(c->gguf[0], gguf, &value)
                    : json_is_number(stated);
    value = json_is_number(stated) ? json_number_value(stated) : value;
    if (found && isfinite(value)) {
        *out = value;
    }
    return found && isfinite(value);
}

const char *gw_checkpoint_unusable(const gw_checkpoint *c, const char *name) {
    size_t i;
    return gw_map_find(c->unusable_names, name, strlen(name), &i) ? c->unusable[i].why : NULL;
}

gw_status gw_checkpoint_unchanged(const gw_checkpoint *c) {
    for (size_t i = 0; i < c->n_files; i++) {
        if (!gw_file_unchanged(&c->files[i])) {
            return gw_fail(GW_E_IO, c->file_names[i], "changed while it was in use; load it again");
        }
    }
    return GW_OK;
}

gw_status gw_checkpoint_set_pretokenizer(gw_checkpoint *c, const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof c->vocab.pre) {
        return gw_fail(GW_E_ARGUMENT, "pretokenizer", "'%.60s' is no name", name);
    }
    c->pretokenizer = gw_arena_copy(c->arena, name, n);
    return c->pretokenizer != NULL ? GW_OK : gw_checkpoint_nomem(c);
}

gw_status gw_checkpoint_vocab(gw_checkpoint *c, const gw_vocab **out) {
    if (c->vocab_state == GW_VOCAB_UNREAD) {
        int found = 0;
        gw_vocab vocab;
        gw_vocab_init(&vocab);
        GW_TRY(c->container == GW_CONTAINER_HF
                   ? gw_hf_vocab(c, &vocab, &found)
                   : gw_gguf_vocab(c->gguf[0], c->pretokenizer, &vocab, &found));
        if (found) {
            c->vocab = vocab;
        }
        if (found && c->pretokenizer != NULL) {
            snprintf(c->vocab.pre, sizeof c->vocab.pre, "%s", c->pretokenizer);
        }
        c->vocab_state = found ? GW_VOCAB_READ : GW_VOCAB_NONE;
    }
    *out = c->vocab_state == GW_VOCAB_READ ? &c->vocab : NULL;
    return GW_OK;
}

gw_status gw_checkpoint_chat_template(gw_checkpoint *c, const char *name, const char **text,
                                      size_t *bytes) {
    *text = NULL;
    *bytes = 0;
    if (c->container == GW_CONTAINER_HF) {
        return gw_hf_chat_template(c, name, text, bytes);
    }
    gw_gguf_view view = {NULL, 0};
    char key[96] = "tokenizer.chat_template";
    if (c->container == GW_CONTAINER_WEIGHTS) {
        return GW_OK;
    }
    if (name != NULL && strcmp(name, "default") != 0) {
        int n = snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
        if (n < 0 || (size_t)n >= sizeof key) {
            return GW_OK; /* no name of a template */
        }
    }
    GW_TRY(gw_gguf_text(c->gguf[0], key, &view, NULL));
    *text = view.text;
    *bytes = (size_t)view.bytes;
    return GW_OK;
}
