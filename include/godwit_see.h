/* include/godwit_see.h - pictures in prompts. */
#ifndef GODWIT_SEE_H
#define GODWIT_SEE_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of models opened with option images. A sight is what a picture becomes for a model: rows that
 * stand in a text where placeholder tokens are. It is made once for a picture: it keeps those
 * that were made last. Takes turns as everything that computes. */
typedef struct gw_patches gw_patches; /* core/image/patches.h */
typedef struct gw_sight gw_sight;

typedef struct gw_eyes {
    int32_t token;        /* the placeholder; -1: the model names none           */
    int32_t patch, merge; /* side of a patch; merge x merge patches give one row */
    int32_t most_patches; /* of a tile                                           */
    int32_t width;        /* of a row: of the decoder                            */
    int32_t layers, d_model;
    uint64_t weight_bytes; /* of the tower */
} gw_eyes;

/* 0: it has no eyes, or they are shut. Those of a model that sleeps (godwit_sleep.h) see nothing:
 * GW_E_ARGUMENT. */
int gw_model_eyes(const gw_model *model, gw_eyes *out);
/* One more holder of the sight, until gw_sight_free. GW_E_METADATA: the processor makes others
 * than the tower reads; GW_E_LIMIT: too many. */
gw_status gw_model_see(gw_model *model, const gw_patches *patches, gw_sight **out);
/* The same in parts of the tower of up to four layers: between two of them, and before the first,
 * nothing of it is at work and `between` is called on this thread, which may compute something else
 * of the model, a gw_batch_step for one. Other than 0 from it: GW_E_CANCELLED, and the picture can
 * be seen from its beginning at any time. */
typedef int (*gw_between_fn)(void *user);
gw_status gw_model_see_between(gw_model *model, const gw_patches *patches, gw_between_fn between,
                               void *user, gw_sight **out);
void gw_sight_free(gw_sight *sight);

/* What a vision tower would take where gw_model_open puts it, before the layers are placed in what
 * is left; no weights are loaded. options: as for opening, with images. GW_E_UNSUPPORTED: the model
 * has no tower. */
typedef struct gw_eyes_need {
    char device[32];  /* id of the device of its head                                       */
    char format[32];  /* of its weights, as in gw_model_info                                */
    int32_t patches;  /* of the largest tile that the model's processor makes, at most
                         most_patches; 0: its settings are not known, and memory for pictures
                         is taken as they come                                              */
    uint64_t weights; /* bytes                                                              */
    uint64_t scratch; /* activations, keys and values of one layer, tables; an upper bound  */
} gw_eyes_need;
gw_status gw_eyes_forecast_sized(const gw_model_options *options, size_t size, gw_eyes_need *out);
static inline gw_status gw_eyes_forecast(const gw_model_options *options, gw_eyes_need *out) {
    return gw_eyes_forecast_sized(options, sizeof *options, out);
}

/* What one run of the tower over the patches takes, whatever sights are kept. */
typedef struct gw_eyes_time {
    double seconds, gops; /* gops: 1e9 operations of its linear layers */
    int is_float;         /* most of those are; 0: of integers         */
    /* Of the tower, as in gw_model_info: on cards without room for it, it is on the CPU. */
    const char *device, *format;
} gw_eyes_time;
gw_status gw_model_time_eyes(gw_model *model, const gw_patches *patches, gw_eyes_time *out);
/* gw_model_measure_roof of the device that the tower is on. */
gw_status gw_model_measure_eyes_roof(const gw_model *model, gw_roof *out);

int32_t gw_sight_rows(const gw_sight *sight); /* of all tiles, in their order */
/* Row i as the decoder reads it, [width]. */
const float *gw_sight_row(const gw_sight *sight, int32_t i);

/* Rows [first, first + n) of a sight stand at tokens [at, at + n) of a prompt. */
typedef struct gw_seen_rows {
    gw_sight *sight;
    int32_t first, n;
    size_t at;
} gw_seen_rows;

/* Where the rows of the sights go, in order: to the tokens that are the model's placeholder. *out:
 * gw_free. GW_E_ARGUMENT: there are more or fewer of them. */
gw_status gw_see_places(const gw_model *model, const int32_t *tokens, size_t n,
                        gw_sight *const *sights, size_t n_sights, gw_seen_rows **out,
                        size_t *n_out);
/* gw_session_prefill of a prompt with pictures: seen [n_seen] by rising `at`. The session holds the
 * sights as long as they are in its timeline. */
gw_status gw_session_prefill_seen(gw_session *s, const int32_t *tokens, size_t n,
                                  const gw_seen_rows *seen, size_t n_seen);
/* A session with pictures is saved with the rows that it holds, and loaded where the model was
 * opened with its vision tower (else GW_E_UNSUPPORTED).
 *
 * Of the session's first n tokens, which a prompt with seen [n_seen] begins with as well: how many
 * stand with the same pictures. A picture counts as a whole, or not at all. */
size_t gw_session_same_seen(const gw_session *s, const gw_seen_rows *seen, size_t n_seen, size_t n);

#ifdef __cplusplus
}
#endif

#endif
