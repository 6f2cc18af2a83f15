/* core/engine/encode/encoder.h - what the files of core/engine/encode share. */
#ifndef GW_ENGINE_ENCODER_H
#define GW_ENGINE_ENCODER_H

#include "core/engine/run/model_state.h"
#include "core/engine/run/tables.h"
#include "core/model/build.h"
#include "core/model/sentence.h"

/* What a pass leaves behind the hidden states. */
typedef enum gw_purpose { GW_PURPOSE_VECTORS, GW_PURPOSE_SCORES, GW_PURPOSES } gw_purpose;

enum { GW_PASS_TEXTS = 256, GW_PASS_SIZES = 3 };

/* A plan over so many rows, with all that it reads and writes. */
typedef struct gw_encoder_pass {
    int rows, pages; /* of the caches, which all layers of a device share */
    gw_graph graph;
    gw_plan *plan;       /* NULL: not built yet */
    double *bytes, *ops; /* of the plan's nodes, while they are timed; NULL: not */
    struct gw_buffer *stream[GW_MAX_DEVICES], *cells[GW_MAX_DEVICES], *table[GW_MAX_DEVICES];
    struct gw_buffer *hidden, *result;
    gw_tensor kept[GW_SPEC_VALUES]; /* values that start gives to layers; buf NULL: none */
    int hidden_device, result_device;
    gw_tensor *k, *v;    /* [n_layers] */
    const gw_tensor *at; /* the hidden states: in `hidden`, or in a stream */
} gw_encoder_pass;

/* How texts of late interaction are written; documents [0], queries [1]. */
typedef struct gw_late_tokens {
    int is;
    int32_t prefix[2], length[2], mask; /* -1: none */
    int expands, sees;
    int32_t *skips; /* [n_skips] */
    size_t n_skips;
} gw_late_tokens;

struct gw_encoder {
    gw_model *model;
    const gw_blueprint *bp;
    gw_where *where;
    gw_tables tables;
    gw_sentence sentence;
    gw_late_tokens late;
    float *judge;          /* [n_judges, hidden] rows of the head: LogitScore; NULL: none */
    const gw_dense *table; /* of vectors, in place of all layers; NULL: there is none */
    gw_encoder_info info;
    int32_t rows; /* of a pass over short texts */
    int layers;   /* of a pass: all but those that serve a decoder */
    gw_fmt kv_fmt;
    int kv_auto; /* the format is not decided yet */
    int timed;   /* nodes of passes are */
    const volatile int *cancel;
    gw_progress_fn progress;
    void *progress_user;
    gw_encoder_pass pass[GW_PURPOSES][GW_PASS_SIZES];
    int32_t *pages; /* [GW_PASS_TEXTS, pages of a text]: a page table on its way */
    float *room[2]; /* rows and vectors through the modules after the model         */
    int by_rows;    /* those begin with rows: the pass's own pooling is not used      */
    int cut_last;   /* the length is that of all values, of which the first are given */
    int32_t full;   /* values before the cut */
    gw_step step;
};

/* pass.c. The pass for texts of n tokens together; built at its first use. */
gw_status gw_encoder_pass_for(gw_encoder *e, gw_purpose purpose, size_t n, gw_encoder_pass **out);
void gw_encoder_pass_free(gw_encoder *e, gw_encoder_pass *p);
/* Run texts, whose tokens fit the pass together; seen: of each so many tokens are attended to. */
gw_status gw_encoder_pass_run(gw_encoder *e, gw_encoder_pass *p,
                              const gw_encoder_text *const *texts, const size_t *seen, int n);

/* judge.c: scores of logits (LogitScore). */
gw_status gw_judges_read(gw_encoder *e);
float gw_judge_row(const gw_encoder *e, const float *row);

/* late.c. The projection that the model's own weights hold, as a module; and for models of late
 * interaction how their texts are written. */
gw_status gw_projection_add(gw_encoder *e, gw_pooling asked);
int gw_late_is(const gw_encoder *e);
gw_status gw_late_open(gw_encoder *e, int32_t n_ctx);

#endif
