/* core/engine/run/model.c - opens a model: checkpoint, tokenizer, device, weights; and describes
 * it. */
#include "core/base/os.h"
#include "core/engine/run/model_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/engine/run/describe.h"
#include "core/engine/run/kv.h"
#include "core/engine/run/pair_form.h"
#include "core/engine/run/tower.h"

/* ---- parts ---------------------------------------------------------------------------------- */

/* A model may come without a tokenizer: it can still be fed ids. */
static gw_status open_tokenizer(gw_model *m, int needed) {
    const gw_vocab *vocab = NULL;
    GW_TRY(gw_checkpoint_vocab(m->checkpoint, &vocab));
    if (vocab == NULL && needed) {
        return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_name(m->checkpoint),
                       "the model has no tokenizer");
    }
    if (vocab == NULL) {
        return GW_OK;
    }
    GW_TRY(gw_tokenizer_new(vocab, &m->tokenizer));
    m->vocab = vocab;
    return GW_OK;
}

static gw_status check_options(const gw_model_options *o) {
    if ((o->path == NULL) == (o->memory == NULL)) {
        return gw_fail(GW_E_ARGUMENT, "model", "give either a path or an image in memory");
    }
    if (o->threads < 0 || o->threads > 4096) {
        return gw_fail(GW_E_ARGUMENT, "threads", "%d is outside 0..4096", o->threads);
    }
    return GW_OK;
}

/* A family from outside: a text of at most a megabyte. */
static gw_status open_by_spec(gw_model *m, const gw_model_options *o) {
    enum { MOST = 1 << 20 };
    gw_file file;
    GW_TRY(gw_file_open(o->spec, o->spec, &file));
    char *text = file.size <= MOST ? calloc(1, (size_t)file.size + 1) : NULL;
    gw_status status = GW_OK;
    if (text == NULL) {
        status = gw_fail(file.size > MOST ? GW_E_LIMIT : GW_E_NOMEM, o->spec,
                         "a spec has at most %d bytes", MOST);
    } else if (file.size > 0) {
        memcpy(text, file.data, (size_t)file.size);
    }
    gw_file_close(&file);
    if (status == GW_OK && memchr(text, 0, (size_t)file.size) != NULL) {
        status = gw_fail(GW_E_ENCODING, o->spec, "is no text");
    }
    if (status == GW_OK) {
        const char *slash = gw_os_last_slash(o->spec);
        gw_spec_given given = {.name = slash != NULL ? slash + 1 : o->spec, .text = text};
        status = gw_checkpoint_open_as(o->path, o->memory, o->memory_bytes, &given, &m->checkpoint);
    }
    free(text);
    return status;
}

gw_status gw_model_begin(gw_model *m, const gw_model_options *o) {
    GW_TRY(check_options(o));
    if (o->predictor && o->spec != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, o->spec,
                       "describes a model; layers that predict one token more have no such file");
    }
    if (o->predictor && !o->vocab_only) {
        const int chains = o->predictor == GW_PREDICTOR_CHAIN;
        const gw_spec_given predicts = {.predicts = !chains, .chains = chains};
        return gw_checkpoint_open_as(o->path, o->memory, o->memory_bytes, &predicts,
                                     &m->checkpoint);
    }
    if (o->spec != NULL && !o->vocab_only) {
        return open_by_spec(m, o);
    }
    if (o->vocab_only) {
        return gw_checkpoint_open_vocab(o->path, o->memory, o->memory_bytes, &m->checkpoint);
    }
    const gw_spec_given head = {.lender = o->target};
    return gw_checkpoint_open_as(o->path, o->memory, o->memory_bytes, &head, &m->checkpoint);
}

gw_status gw_model_prepare(gw_model *m, const gw_model_options *o,
                           const gw_backend *const *backends, const gw_passed *passed,
                           gw_weights_options *load) {
    const char *where = o->path != NULL ? o->path : "(memory)";
    m->hp = *gw_checkpoint_hparams(m->checkpoint);
    GW_TRY(gw_model_draft_check(m));
    *load = (gw_weights_options){.where = where,
                                 .convert = o->weights,
                                 .progress = o->progress,
                                 .progress_user = o->progress_user,
                                 .cancel = o->cancel};
    gw_status status = gw_place_open(o, backends, passed, &m->place);
    if (status == GW_OK && m->tower != NULL) {
        gw_tower_taken(m->tower, 1, &m->place);
    }
    if (status == GW_OK) {
        snprintf(m->converted, sizeof m->converted, "%s", o->weights ? o->weights : "");
        status = gw_arena_set_new(m->place.devices, m->place.n_devices, &m->arenas);
    }
    if (status == GW_OK) {
        status = gw_weights_open(m->checkpoint, gw_checkpoint_blueprint(m->checkpoint), load,
                                 &m->weights);
    }
    return status;
}

static gw_status place_layers(gw_model *m, const gw_model_options *o) {
    gw_place_sizes sizes;
    GW_TRY(gw_place_measure(&m->place, m->weights, &m->hp, o, &sizes));
    gw_status status = gw_place_layers(&m->place, &sizes, o);
    gw_place_sizes_free(&sizes);
    return status;
}

gw_status gw_model_load(gw_model *m, const gw_model_options *o, const gw_backend *const *backends,
                        const gw_passed *passed) {
    gw_weights_options load;
    GW_TRY(gw_model_prepare(m, o, backends, passed, &load));
    GW_TRY(place_layers(m, o));
    return gw_weights_load(m->weights, m->place.devices, m->place.n_devices, m->place.where,
                           gw_place_groups(&m->place), &load);
}

/* ---- description ---------------------------------------------------------------------------- */

static void fill_info(gw_model *m) {
    gw_model_info *info = &m->info;
    const gw_hparams *hp = &m->hp;
    uint64_t bytes[GW_FMT_COUNT];
    snprintf(m->name, sizeof m->name, "%s", gw_checkpoint_name(m->checkpoint));
    info->name = m->name;
    info->architecture =
        m->weights != NULL ? hp->family : gw_checkpoint_architecture(m->checkpoint);
    info->format = m->format;
    info->device = m->device_text;
    info->placed = m->placed;
    if (m->vocab != NULL && m->vocab->note[0] != '\0') {
        size_t used = strlen(m->place.note);
        snprintf(m->place.note + used, sizeof m->place.note - used, "%s%s", used > 0 ? "; " : "",
                 m->vocab->note);
    }
    info->note = m->place.note;
    gw_describe_shape(hp, info);
    if (m->weights == NULL) {
        info->n_vocab = m->vocab ? (int32_t)m->vocab->n_tokens : 0;
    }
    gw_describe_files(m->checkpoint, info, bytes);
    if (m->weights == NULL) {
        return;
    }
    gw_describe_head(m->checkpoint, info);
    gw_describe_format(gw_weights_format(m->weights), m->format, sizeof m->format);
    info->decode_bytes = gw_weights_decode_bytes(m->weights);
    info->threads = m->place.info[0].threads;
    gw_place_text(&m->place, m->device_text, sizeof m->device_text);
    gw_place_chosen(&m->place, m->placed, sizeof m->placed);
}

void gw_model_describe(const gw_model *model, gw_model_info *out) {
    *out = model->info;
    out->fault = gw_place_fault(&model->place);
}

/* The device that holds the model. */
static gw_status main_device(const gw_model *model, const gw_plan_device **out) {
    const gw_place *place = &model->place;
    if (place->n_devices == 0) {
        return gw_fail(GW_E_ARGUMENT, "roof", "the model was opened without its weights");
    }
    *out = &place->devices[place->offloaded > 0 ? place->asked[0] : 0];
    return GW_OK;
}

/* Of cards that compute a layer together, all of them. */
gw_status gw_model_measure_roof(const gw_model *model, gw_roof *out) {
    const gw_plan_device *d;
    GW_TRY(main_device(model, &d));
    gw_group group = gw_place_group(&model->place, (int)(d - model->place.devices));
    *out = (gw_roof){0};
    for (int c = 0; c < group.n; c++) {
        const gw_plan_device *card = &model->place.devices[group.device[c]];
        gw_roof own = {0};
        GW_TRY(card->backend->roof != NULL ? card->backend->roof(card->device, &own) : GW_OK);
        out->read_gbps += own.read_gbps;
        out->int8_gops += own.int8_gops;
        out->f32_gflops += own.f32_gflops;
    }
    return GW_OK;
}

gw_status gw_model_read_memory(const gw_model *model, double *gbps) {
    const gw_plan_device *d;
    GW_TRY(main_device(model, &d));
    if (d->backend->read_memory != NULL) {
        return d->backend->read_memory(d->device, gbps);
    }
    *gbps = 0;
    return GW_OK;
}

/* ---- open and free -------------------------------------------------------------------------- */

/* A card that nobody named has taken layers. */
static int found_a_card(const gw_model *m, const gw_model_options *o) {
    return (o->device == NULL || m->place.automatic) && m->place.n_devices > 1 &&
           m->place.offloaded > 0;
}

/* Programs of a device are built for the plans of a session: try one, so that a compiler that fails
 * is known before the model is given out. A card that was chosen by itself must have the memory,
 * too; else that is the session's matter. */
static gw_status try_card(gw_model *m, const gw_model_options *o) {
    if (m->hp.n_source == m->hp.n_layers) { /* an encoder has no sessions */
        return GW_OK;
    }
    gw_session_options few = {.n_ctx = m->place.automatic ? gw_place_context(o, &m->hp) : GW_PAGE,
                              .chunk = o->chunk,
                              .kv_type = o->kv_type,
                              .cancel = o->cancel,
                              .progress = o->progress,
                              .progress_user = o->progress_user};
    gw_session *session = NULL;
    gw_status status = gw_session_new(m, &few, &session);
    gw_session_free(session);
    return status == GW_E_DEVICE || status == GW_E_CANCELLED || m->place.automatic ? status : GW_OK;
}

/* The other part of a head that drafts by blocks with a chain, on the same device. */
static gw_status open_chain(gw_model *m, const gw_model_options *options,
                            const gw_backend *const *backends) {
    gw_model_options own = *options;
    if (m->draft_chain.rank == 0) {
        return GW_OK;
    }
    own.predictor = GW_PREDICTOR_CHAIN;
    own.target = NULL;
    own.progress = NULL;
    return gw_engine_open(&own, backends, &m->chain);
}

static gw_status open_once(gw_model *m, const gw_model_options *options,
                           const gw_backend *const *backends, const gw_passed *passed) {
    GW_TRY(gw_model_begin(m, options));
    if (options->pretokenizer != NULL) {
        GW_TRY(gw_checkpoint_set_pretokenizer(m->checkpoint, options->pretokenizer));
    }
    int vocab_only = options->vocab_only || gw_checkpoint_is_table(m->checkpoint);
    /* A head's tokenizer, if it has one, is its target's. */
    GW_TRY(gw_checkpoint_drafts(m->checkpoint) ? GW_OK : open_tokenizer(m, vocab_only));
    GW_TRY(gw_pair_form_open(m, &m->pairs));
    if (!vocab_only) {
        /* Eyes first: layers are placed in what they leave. */
        GW_TRY(options->images ? gw_tower_open(options, backends, 1, &m->tower) : GW_OK);
        GW_TRY(gw_model_load(m, options, backends, passed));
        GW_TRY(gw_model_draft_open(m));
        GW_TRY(open_chain(m, options, backends));
        GW_TRY(m->tower != NULL ? gw_tower_check(m->tower, m) : GW_OK);
        GW_TRY(found_a_card(m, options) ? try_card(m, options) : GW_OK);
        GW_TRY(gw_checkpoint_unchanged(m->checkpoint));
    }
    fill_info(m);
    return GW_OK;
}

gw_status gw_engine_open(const gw_model_options *options, const gw_backend *const *backends,
                         gw_model **out) {
    double start = gw_seconds_now();
    gw_passed passed = {0};
    gw_status status;
    int again;
    do {
        gw_model *m = calloc(1, sizeof *m);
        if (m == NULL) {
            return gw_fail(GW_E_NOMEM, "model", "no memory for the model");
        }
        status = open_once(m, options, backends, &passed);
        again = status != GW_OK && gw_place_pass_over(&m->place, options, status, &passed);
        if (status == GW_OK) {
            m->info.load_seconds = gw_seconds_now() - start;
            *out = m;
        } else {
            gw_model_free(m);
        }
    } while (again);
    return status;
}

void gw_model_free(gw_model *model) {
    if (model == NULL) {
        return;
    }
    free(model->draft_token);
    gw_model_free(model->chain);
    gw_tower_free(model->tower);
    gw_adapters_free(model->adapters);
    gw_pair_form_free(model->pairs);
    gw_weights_free(model->weights);
    gw_arena_set_free(model->arenas);
    gw_place_close(&model->place);
    gw_tokenizer_free(model->tokenizer);
    gw_checkpoint_free(model->checkpoint);
    free(model);
}

const gw_tokenizer *gw_model_tokenizer(const gw_model *model) { return model->tokenizer; }
const gw_vocab *gw_model_vocab(const gw_model *model) { return model->vocab; }
int gw_model_reads_source(const gw_model *model) {
    return model->hp.n_source > 0 && model->hp.n_source < model->hp.n_layers;
}

int32_t gw_model_n_vocab(const gw_model *model) { return model->info.n_vocab; }

/* ---- eyes ----------------------------------------------------------------------------------- */

int gw_model_eyes(const gw_model *model, gw_eyes *out) {
    if (model->tower == NULL) {
        return 0;
    }
    gw_tower_describe(model->tower, out);
    return 1;
}

/* Can its eyes be used? */
static gw_status check_eyes(const gw_model *model) {
    return model->tower == NULL ? gw_fail(GW_E_UNSUPPORTED, model->name, "was opened without eyes")
                                : gw_model_awake(model);
}

gw_status gw_model_see(gw_model *model, const gw_patches *patches, gw_sight **out) {
    return gw_model_see_between(model, patches, NULL, NULL, out);
}

gw_status gw_model_see_between(gw_model *model, const gw_patches *patches, gw_between_fn between,
                               void *user, gw_sight **out) {
    GW_TRY(check_eyes(model));
    return gw_tower_see(model->tower, patches, between, user, out);
}

gw_status gw_model_time_eyes(gw_model *model, const gw_patches *patches, gw_eyes_time *out) {
    GW_TRY(check_eyes(model));
    return gw_tower_time(model->tower, patches, out);
}

gw_status gw_model_measure_eyes_roof(const gw_model *model, gw_roof *out) {
    GW_TRY(check_eyes(model));
    return gw_tower_roof(model->tower, out);
}

gw_status gw_see_places(const gw_model *model, const int32_t *tokens, size_t n,
                        gw_sight *const *sights, size_t n_sights, gw_seen_rows **out,
                        size_t *n_out) {
    gw_eyes eyes = {.token = -1};
    size_t count = 0, room = 0, sight = 0;
    int32_t row = 0;
    gw_seen_rows *list = NULL;
    (void)gw_model_eyes(model, &eyes);
    for (size_t i = 0; i < n; i++) {
        if (eyes.token < 0 || tokens[i] != eyes.token) {
            continue;
        }
        if (sight == n_sights) {
            free(list);
            return gw_fail(GW_E_ARGUMENT, "image",
                           "the text has more placeholders than its %zu pictures have rows",
                           n_sights);
        }
        gw_seen_rows *last = count > 0 ? &list[count - 1] : NULL;
        if (last != NULL && last->sight == sights[sight] && row > 0 &&
            last->at + (size_t)last->n == i) {
            last->n++;
        } else {
            if (count == room) {
                room = 2 * room + 8;
                gw_seen_rows *more = realloc(list, room * sizeof *more);
                if (more == NULL) {
                    free(list);
                    return gw_fail(GW_E_NOMEM, "image", "no memory for %zu pictures", room);
                }
                list = more;
            }
            list[count++] = (gw_seen_rows){sights[sight], row, 1, i};
        }
        row++;
        if (row == gw_sight_rows(sights[sight])) {
            sight++;
            row = 0;
        }
    }
    if (sight != n_sights) {
        free(list);
        return gw_fail(GW_E_ARGUMENT, "image",
                       "the text has fewer placeholders than its %zu pictures have rows", n_sights);
    }
    *out = list;
    *n_out = count;
    return GW_OK;
}
