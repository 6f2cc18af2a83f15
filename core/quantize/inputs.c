/* core/quantize/inputs.c - see inputs.h. Every sum runs over rows in their order, so that it does
 * not depend on threads; X^T X in float over the rows of a pass, the passes in double. */
#include "core/quantize/inputs.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/clones.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/os.h"
#include "core/engine/run/model_state.h"
#include "core/quantize/make.h"
#include "core/quantize/safe_out.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

enum { TILE_I = 4, TILE_J = 16, WINDOW = 512, PRIOR = 64 };

typedef float v8 __attribute__((vector_size(32), aligned(4)));

/* One input: what several matrices may read. */
typedef struct stage {
    int64_t cols, experts;
    double *sums, *counts; /* [experts, cols], [experts] */
    double *products;      /* [experts, cols, cols], of j >= i; NULL: not collected */
    float *xtx;            /* the same at the end, both triangles; in products' place */
} stage;

typedef struct entry {
    const char *name; /* of the weight, as GGUF has it */
    stage *at;
} entry;

struct gw_inputs {
    gw_arena *arena;
    const gw_original *original;
    gw_map *names; /* name as the model has it -> entry */
    entry *list;
    stage *stages;
    size_t n, n_stages, room;
    int discover; /* the first pass: who reads what */
    int with_output, as_seen, failed;
    int64_t windows, n_ctx;
};

void gw_inputs_free(gw_inputs *in) {
    if (in == NULL) {
        return;
    }
    for (size_t i = 0; i < in->n_stages; i++) {
        free(in->stages[i].sums);
        free(in->stages[i].counts);
        free(in->stages[i].products);
    }
    gw_map_free(in->names);
    gw_arena_free(in->arena);
    free(in);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static entry *find(const gw_inputs *in, const char *name) {
    size_t i;
    return name != NULL && gw_map_find(in->names, name, strlen(name), &i) ? &in->list[i] : NULL;
}

/* A matrix of this name reads an input of `cols` columns; the others of the node share it. */
static void meet_weight(gw_inputs *in, const gw_tensor *w, int64_t cols, stage **shared) {
    const gw_original_tensor *t = NULL;
    for (size_t i = 0; i < in->original->n && t == NULL; i++) {
        const gw_original_tensor *o = &in->original->list[i];
        t = strcmp(o->seen_as, w->name) == 0 ? o : NULL;
    }
    int wanted = t != NULL && t->n_dim >= 2 && t->cols == cols && gw_mixture_takes(t->name, 2) &&
                 (in->with_output || (strcmp(t->name, "output.weight") != 0 &&
                                      strcmp(t->name, "token_embd.weight") != 0));
    if (!wanted || find(in, w->name) != NULL) {
        return;
    }
    if (*shared == NULL) {
        stage *s = &in->stages[in->n_stages++];
        s->cols = cols;
        s->experts = t->n_dim == 3 ? t->dim[0] : 1;
        s->sums = calloc((size_t)(s->cols * s->experts), sizeof *s->sums);
        s->counts = calloc((size_t)s->experts, sizeof *s->counts);
        in->failed |= s->sums == NULL || s->counts == NULL;
        *shared = s;
    }
    const char *name = in->as_seen ? t->seen_as : t->name;
    const char *own = gw_arena_copy(in->arena, name, strlen(name));
    in->list[in->n] = (entry){own != NULL ? own : "", *shared};
    in->failed |= own == NULL;
    in->failed |=
        gw_map_add(in->names, t->seen_as, strlen(t->seen_as), in->n, NULL) == GW_MAP_NOMEM;
    in->n++;
}

static void add_row(stage *s, int64_t expert, const float *x) {
    double *sums = s->sums + expert * s->cols;
    for (int64_t c = 0; c < s->cols; c++) {
        sums[c] += (double)x[c] * (double)x[c];
    }
    s->counts[expert] += 1.0;
}

/* x [rows, cols] over experts: row r of the input is for the experts of its route; of DOWN each
 * expert has a row of its own. */
static void add_routed(stage *s, const gw_node *node, const gw_observed *seen) {
    int64_t used = node->in[1]->dim[1] / 2;
    int own = node->op == GW_OP_EXPERTS_DOWN;
    for (int64_t r = 0; r < seen->rows; r++) {
        for (int64_t k = 0; k < used; k++) {
            int64_t e = (int64_t)seen->route[r * 2 * used + k];
            if (e >= 0 && e < s->experts) {
                add_row(s, e, seen->x + (own ? r * used + k : r) * s->cols);
            }
        }
    }
}

/* Products of columns [i, i + 4) with [j, j + 16), summed over rows, added to out. */
GW_CLONES static void add_tile(const float *const *x, int64_t cols, int rows, double *out,
                               int64_t i, int64_t j) {
    v8 sum[TILE_I][2] = {0};
    for (int r = 0; r < rows; r++) {
        const float *row = x[r];
        v8 a, b;
        memcpy(&a, row + j, sizeof a);
        memcpy(&b, row + j + 8, sizeof b);
        for (int k = 0; k < TILE_I; k++) {
            float left = row[i + k];
            v8 v = {left, left, left, left, left, left, left, left};
            sum[k][0] = sum[k][0] + v * a;
            sum[k][1] = sum[k][1] + v * b;
        }
    }
    for (int k = 0; k < TILE_I; k++) {
        for (int l = 0; l < 8; l++) {
            out[(i + k) * cols + j + l] += (double)sum[k][0][l];
            out[(i + k) * cols + j + 8 + l] += (double)sum[k][1][l];
        }
    }
}

/* The same for what is left at the edges. */
static void add_edge(const float *const *x, int64_t cols, int rows, double *out, int64_t i,
                     int64_t i_end, int64_t j, int64_t j_end) {
    for (; i < i_end; i++) {
        for (int64_t c = j; c < j_end; c++) {
            float sum = 0.0f;
            for (int r = 0; r < rows; r++) {
                sum += x[r][i] * x[r][c];
            }
            out[i * cols + c] += (double)sum;
        }
    }
}

/* Rows of tiles first, first + step, ... of the products of these rows. */
static void add_tiles(const float *const *x, int64_t cols, int rows, double *out, int64_t first,
                      int64_t step) {
    for (int64_t t = first; t * TILE_I < cols && rows > 0; t += step) {
        int64_t i = t * TILE_I, i_end = i + TILE_I < cols ? i + TILE_I : cols;
        for (int64_t j = i / TILE_J * TILE_J; j < cols; j += TILE_J) {
            if (i + TILE_I <= cols && j + TILE_J <= cols) {
                add_tile(x, cols, rows, out, i, j);
            } else {
                add_edge(x, cols, rows, out, i, i_end, j, j + TILE_J < cols ? j + TILE_J : cols);
            }
        }
    }
}

/* Rows of tiles in turn among the threads. */
static void add_products(stage *s, const gw_observed *seen) {
    const float *x[WINDOW];
    for (int from = 0; from < seen->rows; from += WINDOW) {
        int n = seen->rows - from < WINDOW ? seen->rows - from : WINDOW;
        for (int r = 0; r < n; r++) {
            x[r] = seen->x + (int64_t)(from + r) * s->cols;
        }
        add_tiles(x, s->cols, n, s->products, seen->id, seen->team);
    }
}

/* Experts in turn among the threads, each with the rows that are sent to it, in their order. */
static void add_routed_products(stage *s, const gw_node *node, const gw_observed *seen) {
    int64_t used = node->in[1]->dim[1] / 2;
    int own = node->op == GW_OP_EXPERTS_DOWN;
    const float *x[WINDOW];
    for (int64_t e = seen->id; e < s->experts; e += seen->team) {
        double *out = s->products + e * s->cols * s->cols;
        int n = 0;
        for (int64_t r = 0; r < seen->rows; r++) {
            for (int64_t k = 0; k < used; k++) {
                if ((int64_t)seen->route[r * 2 * used + k] == e) {
                    x[n++] = seen->x + (own ? r * used + k : r) * s->cols;
                }
                if (n == WINDOW) {
                    add_tiles(x, s->cols, n, out, 0, 1);
                    n = 0;
                }
            }
        }
        add_tiles(x, s->cols, n, out, 0, 1);
    }
}

static void observe(void *user, const gw_node *node, const gw_observed *seen) {
    gw_inputs *in = user;
    int experts = node->op == GW_OP_EXPERTS_GLU || node->op == GW_OP_EXPERTS_DOWN;
    int matrices = node->op == GW_OP_LINEAR ? 3 : node->op == GW_OP_EXPERTS_DOWN ? 1 : 2;
    if (in->discover) {
        stage *shared = NULL;
        for (int k = 0; k < matrices && seen->id == 0; k++) {
            if (node->w[k] != NULL && node->w[k]->n_dim == 2) {
                meet_weight(in, node->w[k], node->w[k]->dim[1], &shared);
            }
        }
        return;
    }
    stage *done[3] = {NULL, NULL, NULL};
    for (int k = 0; k < matrices; k++) {
        const entry *e = node->w[k] != NULL ? find(in, node->w[k]->name) : NULL;
        stage *s = e != NULL ? e->at : NULL;
        if (s == NULL || s == done[0] || s == done[1]) {
            continue;
        }
        done[k] = s;
        if (seen->id == 0 && experts) {
            add_routed(s, node, seen);
        }
        for (int r = 0; seen->id == 0 && !experts && r < seen->rows; r++) {
            add_row(s, 0, seen->x + (int64_t)r * s->cols);
        }
        if (s->products != NULL && experts) {
            add_routed_products(s, node, seen);
        } else if (s->products != NULL) {
            add_products(s, seen);
        }
    }
}

/* ---- the model on the text ------------------------------------------------------------------ */

static gw_status read_text(const char *path, char **text, size_t *n) {
    gw_file file;
    GW_TRY(gw_file_open(path, path, &file));
    *text = malloc((size_t)file.size + 1);
    if (*text != NULL && file.size > 0) {
        memcpy(*text, file.data, (size_t)file.size);
    }
    *n = (size_t)file.size;
    gw_file_close(&file);
    return *text != NULL ? GW_OK : gw_fail(GW_E_NOMEM, path, "no memory for the text");
}

static uint64_t free_memory(void) {
    uint64_t bytes = gw_os_memory_free();
    return bytes > 0 ? bytes : (uint64_t)1 << 30;
}

/* X^T X where there is room for it, in the order of the model. */
static gw_status take_products(gw_inputs *in, const gw_inputs_wish *wish) {
    uint64_t room = wish->memory > 0 ? wish->memory : free_memory() / 2;
    for (size_t i = 0; i < in->n_stages; i++) {
        stage *s = &in->stages[i];
        uint64_t bytes = (uint64_t)(s->experts * s->cols) * (uint64_t)s->cols * sizeof(double);
        const char *name = "";
        for (size_t k = 0; k < in->n; k++) {
            name = in->list[k].at == s ? in->list[k].name : name;
        }
        if (bytes > room) {
            if (wish->say != NULL) {
                char line[300];
                snprintf(line, sizeof line,
                         "%s: importance alone is used (its X^T X does not fit --memory)", name);
                wish->say(wish->say_user, line);
            }
            continue;
        }
        s->products = calloc((size_t)(s->experts * s->cols * s->cols), sizeof *s->products);
        if (s->products == NULL) {
            return gw_fail(GW_E_NOMEM, name, "no memory for X^T X of %lld columns",
                           (long long)s->cols);
        }
        room -= bytes;
    }
    return GW_OK;
}

/* What an expert has seen, and as if it had seen PRIOR rows more of what all have. */
static void add_prior(stage *s) {
    int64_t n = s->cols * s->cols;
    double rows = 0.0;
    for (int64_t e = 0; e < s->experts; e++) {
        rows += s->counts[e];
    }
    for (int64_t i = 0; i < n && s->experts > 1 && rows > 0.0; i++) {
        double sum = 0.0;
        for (int64_t e = 0; e < s->experts; e++) {
            sum += s->products[e * n + i];
        }
        for (int64_t e = 0; e < s->experts; e++) {
            s->products[e * n + i] += PRIOR * sum / rows;
        }
    }
}

/* To floats, both triangles, in the same memory: element k lies at or before where it was. */
static void settle(stage *s) {
    if (s->products == NULL) {
        return;
    }
    int64_t n = s->cols;
    add_prior(s);
    for (int64_t e = 0; e < s->experts; e++) {
        double *p = s->products + e * n * n;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < i; j++) {
                p[i * n + j] = p[j * n + i];
            }
        }
    }
    s->xtx = (float *)(void *)s->products;
    for (int64_t k = 0; k < s->experts * n * n; k++) {
        float value = (float)s->products[k];
        memcpy((char *)s->products + (size_t)k * sizeof value, &value, sizeof value);
    }
}

static gw_status check_sums(const gw_inputs *in) {
    for (size_t k = 0; k < in->n; k++) {
        const stage *s = in->list[k].at;
        for (int64_t c = 0; c < s->cols * s->experts; c++) {
            if (!(s->sums[c] < 1e300)) {
                return gw_fail(GW_E_NUMERIC, in->list[k].name,
                               "input %lld is not finite on this text: the weights before it are "
                               "broken",
                               (long long)(c % s->cols));
            }
        }
    }
    return GW_OK;
}

static gw_status run_windows(gw_inputs *in, gw_session *session, int32_t *ids,
                             const gw_inputs_wish *wish, int32_t bos) {
    for (int64_t w = 0; w < in->windows; w++) {
        int32_t *window = ids + w * in->n_ctx;
        if (wish->cancel != NULL && *wish->cancel) {
            return gw_fail(GW_E_CANCELLED, wish->text, "interrupted");
        }
        window[0] = bos >= 0 ? bos : window[0];
        GW_TRY(gw_session_rewind(session, 0));
        GW_TRY(gw_session_prefill(session, window, (size_t)in->n_ctx));
        if (in->discover) { /* now it is known what there is */
            GW_TRY(in->failed ? gw_fail(GW_E_NOMEM, wish->text, "no memory for sums") : GW_OK);
            in->discover = 0;
            GW_TRY(wish->xtx ? take_products(in, wish) : GW_OK);
            w--;
        }
    }
    return GW_OK;
}

static gw_status run_model(gw_inputs *in, gw_model *model, const gw_inputs_wish *wish) {
    gw_session *session = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t bytes = 0, n = 0;
    gw_status status = GW_OK;
    const gw_plan_device *home = &model->place.devices[0];
    if (home->backend->observe == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, home->backend->name, "does not show its inputs");
    }
    GW_TRY_DONE(read_text(wish->text, &text, &bytes));
    GW_TRY_DONE(gw_tokenize(model, text, bytes, GW_TEXT_BOS, &ids, &n));
    in->n_ctx = wish->n_ctx > 0 ? wish->n_ctx : WINDOW;
    in->windows = (int64_t)n / in->n_ctx;
    in->windows = wish->windows > 0 && wish->windows < in->windows ? wish->windows : in->windows;
    if (in->windows == 0) {
        GW_TRY_DONE(gw_fail(GW_E_ARGUMENT, wish->text,
                            "has %zu tokens, a window needs %lld: give a longer text", n,
                            (long long)in->n_ctx));
    }
    home->backend->observe(home->device, observe, in);
    const gw_session_options options = {.n_ctx = (int32_t)in->n_ctx,
                                        .chunk = (int32_t)in->n_ctx < WINDOW ? (int32_t)in->n_ctx
                                                                             : WINDOW,
                                        .kv_type = "f32",
                                        .cancel = wish->cancel};
    GW_TRY_DONE(gw_session_new(model, &options, &session));
    gw_vocab const *vocab = gw_model_vocab(model);
    (void)vocab;
    GW_TRY_DONE(run_windows(in, session, ids, wish,
                            n > 0 && ids[0] == gw_token_bos(model) ? gw_token_bos(model) : -1));
    status = check_sums(in);
done:
    gw_session_free(session);
    home->backend->observe(home->device, NULL, NULL);
    gw_free(ids);
    free(text);
    return status;
}

gw_status gw_inputs_collect(const gw_original *original, const gw_backend *const *backends,
                            const gw_inputs_wish *wish, gw_inputs **out) {
    gw_inputs *in = calloc(1, sizeof *in);
    gw_model *model = NULL;
    gw_status status = GW_OK;
    const gw_model_options options = {.path = gw_checkpoint_path(original->checkpoint),
                                      .weights = "float",
                                      .threads = wish->threads,
                                      .n_ctx = wish->n_ctx > 0 ? wish->n_ctx : WINDOW,
                                      .chunk = WINDOW,
                                      .kv_type = "f32",
                                      .cancel = wish->cancel};
    if (in == NULL) {
        return gw_fail(GW_E_NOMEM, wish->text, "no memory for sums");
    }
    in->original = original;
    in->with_output = wish->with_output;
    in->as_seen = wish->as_seen;
    in->discover = 1;
    in->arena = gw_arena_new();
    in->names = gw_map_new();
    in->list =
        in->arena != NULL ? gw_arena_array(in->arena, original->n + 1, sizeof *in->list) : NULL;
    in->stages =
        in->arena != NULL ? gw_arena_array(in->arena, original->n + 1, sizeof *in->stages) : NULL;
    if (in->names == NULL || in->list == NULL || in->stages == NULL) {
        GW_TRY_DONE(gw_fail(GW_E_NOMEM, wish->text, "no memory for sums"));
    }
    GW_TRY_DONE(gw_engine_open(&options, backends, &model));
    GW_TRY_DONE(run_model(in, model, wish));
    for (size_t i = 0; i < in->n_stages; i++) {
        settle(&in->stages[i]);
    }
done:
    gw_model_free(model);
    if (status != GW_OK) {
        gw_inputs_free(in);
        return status;
    }
    *out = in;
    return GW_OK;
}

/* ---- what was collected --------------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *slash = gw_os_last_slash(path);
    return slash != NULL ? slash + 1 : path;
}

gw_status gw_inputs_imatrix(const gw_inputs *in, const char *text, gw_imatrix *out) {
    gw_imatrix m = {.arena = gw_arena_new(), .chunks = in->windows, .chunk_size = in->n_ctx};
    m.list = m.arena != NULL ? gw_arena_array(m.arena, in->n + 1, sizeof *m.list) : NULL;
    snprintf(m.dataset, sizeof m.dataset, "%s", base_name(text));
    for (size_t i = 0; m.list != NULL && i < in->n; i++) {
        const stage *s = in->list[i].at;
        int64_t n = s->cols * s->experts;
        gw_imatrix_entry *e = &m.list[i];
        e->name = gw_arena_copy(m.arena, in->list[i].name, strlen(in->list[i].name));
        e->cols = s->cols;
        e->experts = s->experts;
        e->sums = gw_arena_array(m.arena, (size_t)n, sizeof *e->sums);
        e->counts = gw_arena_array(m.arena, (size_t)s->experts, sizeof *e->counts);
        if (e->name == NULL || e->sums == NULL || e->counts == NULL) {
            m.list = NULL;
            break;
        }
        for (int64_t k = 0; k < n; k++) {
            e->sums[k] = (float)s->sums[k];
        }
        for (int64_t k = 0; k < s->experts; k++) {
            e->counts[k] = (float)s->counts[k];
        }
        m.n++;
    }
    if (m.list == NULL) {
        gw_imatrix_free(&m);
        return gw_fail(GW_E_NOMEM, text, "no memory for the importance matrix");
    }
    *out = m;
    return GW_OK;
}

float *gw_inputs_find(const gw_inputs *in, const char *name, int64_t cols, int64_t expert) {
    for (size_t i = 0; i < in->n; i++) {
        const stage *s = in->list[i].at;
        if (strcmp(in->list[i].name, name) == 0 && s->cols == cols) {
            return s->xtx != NULL && expert < s->experts ? s->xtx + expert * cols * cols : NULL;
        }
    }
    return NULL;
}

gw_status gw_inputs_write_xtx(const gw_inputs *in, const char *path) {
    gw_safe_out out;
    char name[300];
    gw_status status = GW_OK;
    GW_TRY(gw_safe_out_new(&out));
    for (size_t i = 0; i < in->n; i++) {
        const stage *s = in->list[i].at;
        int64_t dim[2] = {s->cols, s->cols};
        snprintf(name, sizeof name, "%s.xtx", in->list[i].name);
        if (s->xtx != NULL && s->experts == 1) {
            GW_TRY_DONE(gw_safe_out_add(&out, name, "F32", dim, 2,
                                        (uint64_t)(s->cols * s->cols) * sizeof(float)));
        }
    }
    GW_TRY_DONE(gw_safe_out_begin(&out, path, NULL));
    for (size_t i = 0; i < in->n; i++) {
        const stage *s = in->list[i].at;
        if (s->xtx != NULL && s->experts == 1) {
            GW_TRY_DONE(
                gw_safe_out_write(&out, s->xtx, (size_t)(s->cols * s->cols) * sizeof(float)));
        }
    }
    return gw_safe_out_end(&out);
done:
    gw_safe_out_drop(&out);
    return status;
}
