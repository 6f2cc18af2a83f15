/* core/engine/run/tower.c - opens a vision tower; pictures become sights, which are kept for a
 * while. */
#include "core/engine/run/tower.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/engine/run/describe.h"
#include "core/engine/run/tower_state.h"
#include "core/model/mmproj.h"
#include "include/godwit_image.h"

/* ---- opening -------------------------------------------------------------------------------- */

double gw_tower_number(const gw_tower *t, const char *name, int layer, double absent) {
    return gw_spec_layer_number(t->bp, &t->model->hp, name, layer, absent);
}

static int value_named(const gw_blueprint *bp, const char *name) {
    for (int v = 0; v < bp->n_values; v++) {
        if ((bp->all_given >> v & 1) && strcmp(bp->value[v], name) == 0) {
            return v;
        }
    }
    return -1;
}

static int32_t width_of(const gw_tower *t, int value) {
    double x = value >= 0 ? gw_spec_value(t->bp, &t->model->hp, 0, t->bp->width[value]) : 0.0;
    return x >= 1.0 && x < 0x1p24 ? (int32_t)x : 0;
}

/* What sees, and what is handed on from layers. */
static gw_status measure(gw_tower *t) {
    const gw_hparams *hp = &t->model->hp;
    t->patches = value_named(t->bp, "patches");
    t->places = value_named(t->bp, "places");
    t->merge = (int32_t)gw_tower_number(t, "merge", 0, 1.0);
    t->patch = (int32_t)gw_tower_number(t, "patch", 0, 0.0);
    t->d_out = (int32_t)gw_tower_number(t, "d_out", 0, 0.0);
    t->window = (int32_t)gw_tower_number(t, "window_side", 0, 0.0);
    t->by_block = gw_tower_number(t, "by_block", 0, 1.0) != 0.0;
    t->patch_less = (float)gw_tower_number(t, "patch_less", 0, 0.0);
    t->patch_times = (float)gw_tower_number(t, "patch_times", 0, 1.0);
    t->grid = (gw_grid_kind)(int)gw_tower_number(t, "grid", 0, 0.0);
    t->pixels = width_of(t, t->patches);
    if (t->pixels == 0 || t->merge < 1 || t->merge > 16 || t->d_out < 1 || t->window < 0 ||
        (int)t->grid < 0 || t->grid >= GW_GRID_KINDS) {
        return gw_fail(GW_E_METADATA, t->model->name,
                       "the vision tower has patches of %d values, groups of %d x %d, %d columns",
                       t->pixels, t->merge, t->merge, t->d_out);
    }
    for (int l = 0; l < hp->n_layers; l++) {
        for (int b = 0; b < t->bp->n_blocks; b++) {
            const gw_spec_block *block = &t->bp->block[b];
            if (block->section == GW_SECTION_LAYER && block->layer_kind == hp->deep_kind - 1 &&
                gw_block_runs(block, hp, l)) {
                t->n_deep++;
                break;
            }
        }
    }
    return t->n_deep < GW_TOWER_ENDS
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, t->model->name,
                         "%d layers of the vision tower go to the decoder", t->n_deep);
}

static gw_status read_role(gw_tower *t, const char *role, float **out, int64_t *rows) {
    for (int r = 0; r < t->bp->n_weights; r++) {
        if (strcmp(t->bp->weight[r].role, role) == 0) {
            return gw_weights_values(t->model->weights, r, out, rows);
        }
    }
    return GW_OK;
}

/* Positions stay with the host: the table of patches, what is added to each of its rows, and the
 * class token with its own position, which the table of the file has at class_at. */
static gw_status read_places(gw_tower *t) {
    const size_t d = (size_t)t->model->hp.d_model;
    int64_t n = 0;
    GW_TRY(read_role(t, "table", &t->table, &t->entries));
    GW_TRY(read_role(t, "place_b", &t->place_b, &n));
    GW_TRY(read_role(t, "class", &t->class_row, &n));
    if (t->class_row == NULL) {
        return GW_OK;
    }
    const int64_t at = (int64_t)gw_tower_number(t, "class_at", 0, 0.0);
    if (t->table == NULL || t->places < 0 || t->window > 0 || at < 0 || at >= t->entries) {
        return gw_fail(GW_E_METADATA, t->model->name,
                       "the class token of the vision tower has no position");
    }
    float *own = t->table + (size_t)at * d;
    for (size_t c = 0; c < d; c++) {
        t->class_row[c] += own[c];
    }
    memmove(own, own + d, (size_t)(t->entries - 1 - at) * d * sizeof *own);
    t->entries--;
    return GW_OK;
}

/* Patches of the largest tile that the processor makes of a picture; 0: its settings are not known.
 */
static int32_t most_patches(const gw_model_options *o) {
    gw_images *images = NULL;
    const int folder = o->path != NULL && gw_path_look(o->path) == GW_PATH_FOLDER;
    if (o->path == NULL || gw_images_open(o->path, folder ? NULL : o->path, &images) != GW_OK) {
        return 0;
    }
    const int64_t most = gw_images_most_patches(images);
    gw_images_free(images);
    return most < GW_ROWS_MAX ? (int32_t)most : GW_ROWS_MAX;
}

/* Does it fit the devices with the memory of the largest tile? */
static gw_status check_room(const gw_tower *t, const gw_model_options *o) {
    const gw_place *place = &t->model->place;
    for (int d = 1; d < place->n_devices; d++) {
        const uint64_t all = t->use[d].weights + gw_tower_scratch(t, d);
        const uint64_t room = gw_place_room(place, o, d);
        char need[GW_SIZE_TEXT], have[GW_SIZE_TEXT];
        if (room > 0 && all > room) {
            return gw_fail(GW_E_NOMEM, place->info[d].id,
                           "the vision tower needs %s, for pictures of %d patches too; %s may be "
                           "used",
                           gw_text_size(all, 4, need), (int)t->most, gw_text_size(room, 4, have));
        }
    }
    return GW_OK;
}

/* Weights matched and placed, and what they and pictures take; nothing is loaded. */
static gw_status place(gw_tower *t, const gw_model_options *o, const gw_backend *const *backends,
                       gw_weights_options *how) {
    const gw_spec_given given = {.sees = 1};
    gw_passed passed = {0};
    gw_place_sizes sizes = {0};
    gw_place_use use[GW_MAX_DEVICES];
    gw_model *m = t->model;
    GW_TRY(gw_checkpoint_open_as(o->path, o->memory, o->memory_bytes, &given, &m->checkpoint));
    snprintf(m->name, sizeof m->name, "%s", gw_checkpoint_name(m->checkpoint));
    GW_TRY(gw_model_prepare(m, o, backends, &passed, how));
    t->bp = gw_weights_blueprint(m->weights);
    GW_TRY(measure(t));
    GW_TRY(read_places(t));
    GW_TRY(gw_place_measure(&m->place, m->weights, &m->hp, o, &sizes));
    gw_status status = gw_place_layers(&m->place, &sizes, o);
    if (status == GW_OK) {
        (void)gw_place_fits(&m->place, &sizes, m->place.where, use, NULL);
    }
    gw_place_sizes_free(&sizes);
    GW_TRY(status);
    t->where = calloc((size_t)(m->hp.n_layers + 1) * (size_t)t->bp->n_blocks, sizeof *t->where);
    if (t->where == NULL) {
        return gw_fail(GW_E_NOMEM, "image", "no memory for %d layers", m->hp.n_layers);
    }
    gw_describe_format(gw_weights_format(m->weights), m->format, sizeof m->format);
    gw_place_text(&m->place, m->device_text, sizeof m->device_text);
    const gw_kv_pair f32 = {GW_FMT_F32, GW_FMT_F32};
    GW_TRY(gw_place_session(&m->place, m->weights, &m->hp, f32, t->where));
    t->most = most_patches(o);
    GW_TRY(t->most > 0 ? gw_tower_need(t) : GW_OK);
    for (int d = 0; d < m->place.n_devices; d++) {
        t->use[d].weights = use[d].weights;
    }
    return check_room(t, o);
}

static int on_card(const gw_tower *t) {
    return t->model->place.n_devices > 1 && t->model->place.offloaded > 0;
}

/* On cards, memory for pictures is taken with that for weights: layers of the decoder are placed in
 * what is left. */
static gw_status load(gw_tower *t, const gw_model_options *o, const gw_backend *const *backends,
                      int load_weights) {
    gw_weights_options how;
    gw_model *m = t->model;
    GW_TRY(place(t, o, backends, &how));
    if (!load_weights) {
        return GW_OK;
    }
    GW_TRY(gw_weights_load(m->weights, m->place.devices, m->place.n_devices, m->place.where,
                           gw_place_groups(&m->place), &how));
    return gw_tower_return(t);
}

static gw_status open_on(const gw_model_options *o, const gw_backend *const *backends,
                         int load_weights, gw_tower **out) {
    gw_tower *t = calloc(1, sizeof *t);
    if (t != NULL) {
        t->model = calloc(1, sizeof *t->model);
        t->eye_token = -1;
        t->most_kept = GW_TOWER_KEPT_BYTES;
    }
    gw_status status = t != NULL && t->model != NULL
                           ? load(t, o, backends, load_weights)
                           : gw_fail(GW_E_NOMEM, "image", "no memory for the vision tower");
    if (status != GW_OK) {
        gw_tower_free(t);
        return status;
    }
    *out = t;
    return GW_OK;
}

gw_status gw_tower_open(const gw_model_options *options, const gw_backend *const *backends,
                        int load_weights, gw_tower **out) {
    gw_model_options o = {.path = options->mmproj != NULL ? options->mmproj : options->path,
                          .memory = options->mmproj != NULL ? NULL : options->memory,
                          .memory_bytes = options->memory_bytes,
                          .device = options->device,
                          .threads = options->threads,
                          .no_graph = options->no_graph,
                          .exact = options->exact,
                          .blas = options->blas,
                          .vram_budget = options->vram_budget,
                          .cancel = options->cancel,
                          .progress = options->progress,
                          .progress_user = options->progress_user};
    char near[PATH_MAX];
    if (options->mmproj == NULL && options->path != NULL) {
        GW_TRY(gw_folder_mmproj(options->path, near, sizeof near));
        o.path = near[0] != '\0' ? near : options->path;
    }
    int named = options->device != NULL && strcmp(options->device, "cpu") != 0;
    int card = named || (options->device == NULL && options->offload_layers != NULL);
    o.offload_layers = card ? "all" : NULL;
    gw_status status = open_on(&o, backends, load_weights, out);
    if (card && (status == GW_E_NOMEM || status == GW_E_DEVICE)) { /* no room next to the decoder */
        o.device = o.offload_layers = NULL;
        status = open_on(&o, backends, load_weights, out);
    }
    return status;
}

void gw_tower_rest(gw_tower *t) {
    for (int i = 0; i < GW_TOWER_SIZES; i++) {
        gw_tower_pass_free(&t->pass[i]);
    }
    gw_tower_room_free(t, &t->room);
}

gw_status gw_tower_return(gw_tower *t) {
    return on_card(t) && t->most > 0 ? gw_tower_reserve(t) : GW_OK;
}

gw_model *gw_tower_model(gw_tower *t) { return t->model; }

/* Of devices that both have, by their names. */
void gw_tower_taken(const gw_tower *t, int loaded, gw_place *place) {
    const gw_place *own = &t->model->place;
    for (int i = 1; i < own->n_devices; i++) {
        const uint64_t all = t->use[i].weights + gw_tower_scratch(t, i);
        for (int d = 1; d < place->n_devices; d++) {
            if (strcmp(own->info[i].id, place->info[d].id) == 0 && on_card(t)) {
                place->taken[d] = (gw_place_taken){all, loaded ? 0 : all};
            }
        }
    }
    place->picture_parts = 1 + t->n_deep;
}

gw_status gw_engine_eyes_forecast(const gw_model_options *options,
                                  const gw_backend *const *backends, gw_eyes_need *out) {
    gw_tower *t = NULL;
    GW_TRY(gw_tower_open(options, backends, 0, &t));
    const int head = gw_graph_head_device(t->bp, &t->model->hp, t->where);
    *out = (gw_eyes_need){.patches = t->most};
    snprintf(out->device, sizeof out->device, "%s", t->model->place.info[head].id);
    snprintf(out->format, sizeof out->format, "%s", t->model->format);
    for (int d = 0; d < t->model->place.n_devices; d++) {
        out->weights += d == head || d > 0 ? t->use[d].weights : 0;
        out->scratch += d == head || d > 0 ? gw_tower_scratch(t, d) : 0;
    }
    gw_tower_free(t);
    return GW_OK;
}

void gw_tower_free(gw_tower *t) {
    if (t == NULL) {
        return;
    }
    if (t->model != NULL) {
        gw_tower_rest(t);
    }
    for (int i = 0; i < GW_TOWER_KEPT; i++) {
        gw_sight_free(t->kept[i]);
    }
    gw_model_free(t->model);
    free(t->where);
    free(t->table);
    free(t->place_b);
    free(t->class_row);
    free(t);
}

/* Of a GGUF file, which does not name it; -1: it is no token there. */
static int32_t spelled(const gw_tower *t, const gw_model *decoder) {
    const gw_spec *tower = gw_spec_named(t->bp->family, strlen(t->bp->family));
    char text[64] = "";
    if (tower != NULL && decoder->tokenizer != NULL) {
        gw_spec_words(tower, "placeholder", text, sizeof text);
    }
    return text[0] != '\0' ? gw_model_special(decoder, text) : -1;
}

/* Widths of rows agree by chance. A family that is not one of ours (--spec) may have any tower. */
static gw_status check_family(const gw_tower *t, const gw_model *decoder) {
    const gw_spec *tower = gw_spec_named(t->bp->family, strlen(t->bp->family));
    const char *family = gw_weights_blueprint(decoder->weights)->family;
    if (tower == NULL || gw_spec_named(family, strlen(family)) == NULL ||
        gw_spec_sees_for(tower, family)) {
        return GW_OK;
    }
    return gw_fail(GW_E_METADATA, gw_checkpoint_path(t->model->checkpoint),
                   "is a vision tower of another family (%s) than the model %s (%s): --mmproj "
                   "names the file that was published with the model",
                   t->bp->family, gw_checkpoint_name(decoder->checkpoint), family);
}

gw_status gw_tower_check(gw_tower *t, const gw_model *decoder) {
    const gw_hparams *hp = &decoder->hp;
    const gw_blueprint *bp = gw_weights_blueprint(decoder->weights);
    GW_TRY(check_family(t, decoder));
    if (t->d_out != hp->d_model) {
        return gw_fail(
            GW_E_METADATA, t->model->name,
            "gives the decoder rows of %d values, it has %d%s%s: they do not belong together",
            t->d_out, hp->d_model, decoder->name[0] != '\0' ? ", " : "", decoder->name);
    }
    if (hp->n_streams > 1 || hp->n_source > 0 || t->n_deep > hp->n_layers) {
        return gw_fail(GW_E_UNSUPPORTED, decoder->name, "cannot read pictures yet");
    }
    double token = gw_spec_named_number(bp, hp, "image_token", -1.0);
    t->eye_token = token >= 0.0 && token < hp->n_vocab ? (int32_t)token : spelled(t, decoder);
    return GW_OK;
}

int gw_tower_deep(const gw_tower *t) { return t->n_deep; }

void gw_tower_describe(const gw_tower *t, gw_eyes *out) {
    gw_model_info info;
    uint64_t bytes[GW_FMT_COUNT];
    gw_describe_files(t->model->checkpoint, &info, bytes);
    *out = (gw_eyes){.token = t->eye_token,
                     .patch = t->patch,
                     .merge = t->merge,
                     .most_patches = GW_ROWS_MAX,
                     .width = t->d_out,
                     .layers = t->model->hp.n_layers,
                     .d_model = t->model->hp.d_model,
                     .weight_bytes = info.weight_bytes};
}

/* ---- sights --------------------------------------------------------------------------------- */

void gw_sight_free(gw_sight *s) {
    if (s != NULL && atomic_fetch_sub(&s->holders, 1) == 1) {
        free(s->tile);
        free(s->rows);
        free(s);
    }
}

int32_t gw_sight_rows(const gw_sight *s) { return s->n_rows; }
const float *gw_sight_row(const gw_sight *s, int32_t i) {
    return i >= 0 && i < s->n_rows ? s->rows + (size_t)i * (size_t)s->width : NULL;
}

void gw_sight_at(const gw_sight *s, int32_t i, int32_t *tile, int32_t *row, int32_t *column) {
    int32_t t = 0;
    while (t + 1 < s->n_tiles && i >= s->tile[t + 1].first) {
        t++;
    }
    *tile = t;
    *row = (i - s->tile[t].first) / s->tile[t].columns;
    *column = (i - s->tile[t].first) % s->tile[t].columns;
}

/* What a model's own files make of a picture, and its tower does not take. */
static gw_status disagree(const gw_tower *t, const gw_patches *p, const gw_tile *x) {
    const char *where = p->settings[0] != '\0' ? p->settings : "image";
    if (x == NULL) {
        return gw_fail(GW_E_METADATA, where,
                       "makes patches of %d values, the vision tower of %s reads %d: they do not "
                       "belong together",
                       p->width, t->model->name, t->pixels);
    }
    return gw_fail(GW_E_METADATA, where,
                   "makes %d tokens of %d x %d patches, the vision tower of %s joins %d x %d: they "
                   "do not belong together",
                   x->tokens, x->rows, x->columns, t->model->name, t->merge, t->merge);
}

static gw_status check_patches(const gw_tower *t, const gw_patches *p) {
    if (p->values == NULL || p->n_tiles < 1) {
        return gw_fail(GW_E_ARGUMENT, "image", "no patches");
    }
    const int made = p->temporal > 0; /* by a processor, which counts tokens */
    if (p->width < t->pixels || p->width % t->pixels != 0 ||
        (made && p->width != t->pixels && p->width != (int64_t)p->temporal * t->pixels)) {
        return disagree(t, p, NULL);
    }
    for (int32_t i = 0; i < p->n_tiles; i++) {
        const gw_tile *x = &p->tile[i];
        if (x->rows < 1 || x->columns < 1 || x->first < 0 ||
            x->first + (int64_t)x->rows * x->columns > p->n) {
            return gw_fail(GW_E_ARGUMENT, "image", "a tile of %d x %d patches", x->rows,
                           x->columns);
        }
        if (x->rows % t->merge != 0 || x->columns % t->merge != 0 ||
            (made && (int64_t)x->tokens * t->merge * t->merge != (int64_t)x->rows * x->columns)) {
            return disagree(t, p, x);
        }
        if ((int64_t)x->rows * x->columns + gw_tower_more(t) > GW_ROWS_MAX) {
            return gw_fail(GW_E_LIMIT, "image",
                           "a picture of %d x %d patches; at most %d are seen at once: make it "
                           "smaller",
                           x->rows, x->columns, GW_ROWS_MAX);
        }
    }
    return GW_OK;
}

static int is_of(const gw_sight *s, const gw_patches *p) {
    int same = memcmp(s->digest, p->digest, sizeof s->digest) == 0 && s->n_patches == p->n &&
               s->n_tiles == p->n_tiles;
    return same;
}

/* Keeps the sight as the last one; one that was kept already moves there. */
static void keep(gw_tower *t, gw_sight *s, int from) {
    for (int i = from; i > 0; i--) {
        t->kept[i] = t->kept[i - 1];
    }
    t->kept[0] = s;
}

static uint64_t sight_bytes(const gw_sight *s) {
    return sizeof *s + (uint64_t)s->n_tiles * sizeof *s->tile +
           (uint64_t)s->n_rows * (uint64_t)s->width * sizeof *s->rows;
}

/* Of those that are kept the oldest go, until the rest takes no more than it may. */
static void bound_kept(gw_tower *t) {
    uint64_t bytes = 0;
    for (int i = 0; i < GW_TOWER_KEPT; i++) {
        bytes += t->kept[i] != NULL ? sight_bytes(t->kept[i]) : 0;
        if (i > 0 && bytes > t->most_kept) {
            gw_sight_free(t->kept[i]);
            t->kept[i] = NULL;
        }
    }
}

static gw_status new_sight(const gw_tower *t, const gw_patches *p, gw_sight **out) {
    gw_sight *s = calloc(1, sizeof *s);
    const int32_t group = t->merge * t->merge;
    if (s != NULL) {
        atomic_init(&s->holders, 1);
        s->n_tiles = p->n_tiles;
        s->n_patches = p->n;
        s->width = t->d_out * (1 + t->n_deep);
        memcpy(s->digest, p->digest, sizeof s->digest);
        s->tile = calloc((size_t)p->n_tiles, sizeof *s->tile);
        for (int32_t i = 0; s->tile != NULL && i < p->n_tiles; i++) {
            const gw_tile *x = &p->tile[i];
            s->tile[i] = (gw_sight_tile){s->n_rows, x->rows / t->merge, x->columns / t->merge};
            s->n_rows += x->rows * x->columns / group;
        }
        s->rows = malloc((size_t)s->n_rows * (size_t)s->width * sizeof *s->rows);
    }
    if (s == NULL || s->tile == NULL || s->rows == NULL) {
        gw_sight_free(s);
        return gw_fail(GW_E_NOMEM, "image", "no memory for %lld patches", (long long)p->n);
    }
    *out = s;
    return GW_OK;
}

gw_status gw_tower_see(gw_tower *t, const gw_patches *p, gw_between_fn between, void *user,
                       gw_sight **out) {
    gw_sight *s = NULL;
    gw_status status = GW_OK;
    GW_TRY(check_patches(t, p));
    for (int i = 0; i < GW_TOWER_KEPT; i++) {
        if (t->kept[i] != NULL && is_of(t->kept[i], p)) {
            s = t->kept[i];
            keep(t, s, i);
            atomic_fetch_add(&s->holders, 1);
            *out = s;
            return GW_OK;
        }
    }
    GW_TRY(new_sight(t, p, &s));
    for (int32_t i = 0; i < p->n_tiles && status == GW_OK; i++) {
        status = gw_tower_run(t, p, i, between, user,
                              s->rows + (size_t)s->tile[i].first * (size_t)s->width);
    }
    if (status != GW_OK) {
        gw_sight_free(s);
        return status;
    }
    gw_sight_free(t->kept[GW_TOWER_KEPT - 1]);
    keep(t, s, GW_TOWER_KEPT - 1);
    bound_kept(t);
    atomic_fetch_add(&s->holders, 1);
    *out = s;
    return GW_OK;
}

gw_status gw_tower_time(gw_tower *t, const gw_patches *p, gw_eyes_time *out) {
    gw_sight *s = NULL;
    gw_tower_ops ops = {.floats = 0.0};
    GW_TRY(check_patches(t, p));
    GW_TRY(new_sight(t, p, &s));
    *out = (gw_eyes_time){.device = t->model->device_text, .format = t->model->format};
    double start = gw_seconds_now();
    gw_status status = GW_OK;
    for (int32_t i = 0; i < p->n_tiles && status == GW_OK; i++) {
        status = gw_tower_run(t, p, i, NULL, NULL,
                              s->rows + (size_t)s->tile[i].first * (size_t)s->width);
    }
    out->seconds = gw_seconds_now() - start;
    for (int32_t i = 0; i < p->n_tiles && status == GW_OK; i++) {
        status = gw_tower_count(t, p, i, &ops);
    }
    out->gops = 1e-9 * (ops.floats + ops.integers);
    out->is_float = ops.floats > ops.integers;
    gw_sight_free(s);
    return status;
}

gw_status gw_tower_roof(const gw_tower *t, gw_roof *out) {
    return gw_model_measure_roof(t->model, out);
}
