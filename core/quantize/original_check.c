/* core/quantize/original_check.c - see original_check.h. */
#include "core/quantize/original_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/model/rope.h"
#include "core/model/weights_parts.h"
#include "core/text/tokens/tokenizer.h"

/* A model as its container states it. */
typedef struct side {
    const gw_blueprint *bp;
    const gw_hparams *hp;
} side;

typedef struct pair {
    const gw_original *s;
    side from, made;
} pair;

/* ---- what is said --------------------------------------------------------------------------- */

/* The key of config.json that a number comes from, through what it is computed of; else its name.
 */
static const char *key_of(const gw_blueprint *bp, int number, int depth) {
    const gw_spec_number *x = &bp->number[number];
    if (x->n_hf > 0) {
        return x->hf[0];
    }
    for (int i = 0; i < x->absent.n && depth > 0; i++) {
        const gw_expr_step *step = &bp->pool.step[x->absent.first + i];
        if (step->op == GW_EXPR_NUMBER || step->op == GW_EXPR_HAS || step->op == GW_EXPR_GIVEN) {
            return key_of(bp, step->to, depth - 1);
        }
    }
    return x->name;
}

static const char *key_behind(const gw_blueprint *bp, gw_expr e, const char *otherwise) {
    for (int i = 0; i < e.n; i++) {
        const gw_expr_step *step = &bp->pool.step[e.first + i];
        if (step->op == GW_EXPR_NUMBER) {
            return key_of(bp, step->to, 4);
        }
    }
    return otherwise;
}

static gw_status differs(const pair *p, const char *key, int layer, double from, double made) {
    char where[32] = "";
    if (layer >= 0) {
        snprintf(where, sizeof where, " of layer %d", layer);
    }
    return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(p->s->checkpoint),
                   "GGUF's keys of %s cannot say %s%s: it is %g here and would be read back as %g; "
                   "use the folder, or a GGUF file of its publisher",
                   p->s->architecture, key, where, from, made);
}

/* Keys of GGUF are floats. */
static int same(double a, double b) {
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-6 * (fabs(a) + fabs(b));
}

/* ---- numbers -------------------------------------------------------------------------------- */

static gw_status compare_reserved(const pair *p, gw_reserved which, int layer, double from,
                                  double made) {
    return same(from, made)
               ? GW_OK
               : differs(p, key_of(p->from.bp, p->from.bp->reserved[which], 4), layer, from, made);
}

static gw_status compare_model(const pair *p) {
    const gw_hparams *a = p->from.hp, *b = p->made.hp;
    const struct {
        gw_reserved which;
        double from, made;
    } rows[] = {{GW_NUM_LAYERS, a->n_layers, b->n_layers},
                {GW_NUM_D_MODEL, a->d_model, b->d_model},
                {GW_NUM_VOCAB, a->n_vocab, b->n_vocab},
                {GW_NUM_CONTEXT, a->n_ctx, b->n_ctx},
                {GW_NUM_EPS, (double)a->norm_eps, (double)b->norm_eps},
                {GW_NUM_SOURCE, a->n_source, b->n_source},
                {GW_NUM_UNCOUNTED, a->uncounted, b->uncounted},
                {GW_NUM_STREAMS, a->n_streams, b->n_streams}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        GW_TRY(compare_reserved(p, rows[i].which, -1, rows[i].from, rows[i].made));
    }
    return GW_OK;
}

static gw_status compare_layer(const pair *p, int l) {
    const gw_layer *a = &p->from.hp->layer[l], *b = &p->made.hp->layer[l];
    const struct {
        gw_reserved which;
        double from, made;
    } rows[] = {{GW_NUM_KIND, a->kind, b->kind},
                {GW_NUM_HEADS, a->n_heads, b->n_heads},
                {GW_NUM_KV_HEADS, a->n_kv_heads, b->n_kv_heads},
                {GW_NUM_D_HEAD, a->d_head, b->d_head},
                {GW_NUM_V_HEAD, a->v_head, b->v_head},
                {GW_NUM_V_FIRST, a->v_first, b->v_first},
                {GW_NUM_FF, a->d_ff, b->d_ff},
                {GW_NUM_WINDOW, a->window, b->window},
                {GW_NUM_CHUNK, a->chunk, b->chunk},
                {GW_NUM_ROPE, a->rope, b->rope},
                {GW_NUM_Q_FACTOR, a->q_factor, b->q_factor},
                {GW_NUM_ATTN_SCALE, (double)a->attn_scale, (double)b->attn_scale},
                {GW_NUM_ATTN_CAP, (double)a->attn_cap, (double)b->attn_cap},
                {GW_NUM_EXPERTS, a->n_experts, b->n_experts},
                {GW_NUM_USED, a->n_used, b->n_used},
                {GW_NUM_EXPERT_FF, a->d_expert, b->d_expert},
                {GW_NUM_CAUSAL, a->causal, b->causal}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        GW_TRY(compare_reserved(p, rows[i].which, l, rows[i].from, rows[i].made));
    }
    return compare_reserved(p, GW_NUM_WINDOW, l, a->cache_of, b->cache_of);
}

static double factor_at(const side *m, int layer, double position) {
    int i = m->hp->layer[layer].q_factor;
    return i < 0 ? 1.0 : gw_spec_value_at(m->bp, m->hp, m->bp->factor[i].value, position);
}

static gw_status compare_factors(const pair *p, int l) {
    int i = p->from.hp->layer[l].q_factor;
    for (double at = 1.0; at < 1 << 24; at *= 2.0) {
        double from = factor_at(&p->from, l, at - 1.0), made = factor_at(&p->made, l, at - 1.0);
        if (!same(from, made)) {
            return differs(p, key_behind(p->from.bp, p->from.bp->factor[i].value, "a factor of q"),
                           l, from, made);
        }
    }
    return GW_OK;
}

/* Angles and magnitude of a rope in a context of n positions. */
static gw_status compare_rope(const pair *p, int i, int32_t n) {
    const gw_rope *a = &p->from.hp->rope[i], *b = &p->made.hp->rope[i];
    if (a->dim != b->dim) {
        return differs(p, "rope dimensions", -1, a->dim, b->dim);
    }
    size_t half = (size_t)a->dim / 2;
    double *freq = calloc(2 * half + 1, sizeof *freq), from = 0.0, made = 0.0;
    gw_status status = freq != NULL ? GW_OK : gw_fail(GW_E_NOMEM, NULL, "no memory for rope");
    if (status == GW_OK && a->dim > 0) {
        gw_rope_frequencies(a, n, freq, &from);
        gw_rope_frequencies(b, n, freq + half, &made);
        status =
            same(from, made) ? GW_OK : differs(p, "the attention factor of rope", -1, from, made);
    }
    for (size_t k = 0; k < half && status == GW_OK; k++) {
        if (!same(freq[k], freq[half + k])) {
            status = differs(p, "the scaling of rope", -1, freq[k], freq[half + k]);
        }
    }
    free(freq);
    return status;
}

/* ---- blocks --------------------------------------------------------------------------------- */

static gw_status other_family(const pair *p) {
    return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(p->s->checkpoint),
                   "a %s model has other blocks than GGUF's %s; use the folder, or a GGUF file of "
                   "its publisher",
                   p->from.bp->family, p->s->architecture);
}

static const char *role_of(const gw_blueprint *bp, int weight) {
    return weight < 0 ? "" : bp->weight[weight].role;
}

static double act_of(const side *m, const gw_spec_block *b, int layer) {
    return b->act_number < 0
               ? (double)b->act
               : m->hp->values[(size_t)layer * (size_t)m->hp->n_values + (size_t)b->act_number];
}

static gw_status compare_block(const pair *p, int layer, int block) {
    const gw_spec_block *a = &p->from.bp->block[block], *b = &p->made.bp->block[block];
    int row = layer < p->from.hp->n_layers ? layer : 0; /* numbers outside the layers */
    if (a->kind != b->kind || a->flags != b->flags || a->score != b->score || a->in != b->in ||
        a->out != b->out || (a->act_number < 0) != (b->act_number < 0)) {
        return other_family(p);
    }
    for (int i = 0; i < GW_SPEC_ARGS; i++) {
        if (strcmp(role_of(p->from.bp, a->weight[i]), role_of(p->made.bp, b->weight[i])) != 0) {
            return other_family(p);
        }
    }
    double from = act_of(&p->from, a, row), made = act_of(&p->made, b, row);
    if (!same(from, made)) {
        return differs(p,
                       a->act_number < 0 ? "an activation" : key_of(p->from.bp, a->act_number, 4),
                       layer, from, made);
    }
    for (int i = 0; i < GW_SPEC_EXPRS; i++) {
        from = a->number[i].n > 0 ? gw_spec_value(p->from.bp, p->from.hp, row, a->number[i]) : 0.0;
        made = b->number[i].n > 0 ? gw_spec_value(p->made.bp, p->made.hp, row, b->number[i]) : 0.0;
        if (!same(from, made)) {
            return differs(p, key_behind(p->from.bp, a->number[i], "a number"), layer, from, made);
        }
    }
    return GW_OK;
}

static gw_status compare_blocks(const pair *p) {
    if (p->from.bp->n_blocks != p->made.bp->n_blocks ||
        p->from.bp->n_ropes != p->made.bp->n_ropes) {
        return other_family(p);
    }
    for (int l = 0; l <= p->from.hp->n_layers; l++) {
        for (int b = 0; b < p->from.bp->n_blocks; b++) {
            int runs = gw_block_runs(&p->from.bp->block[b], p->from.hp, l);
            if (runs != gw_block_runs(&p->made.bp->block[b], p->made.hp, l)) {
                return differs(p, key_behind(p->from.bp, p->from.bp->block[b].when, "a block"), l,
                               runs, !runs);
            }
            GW_TRY(runs ? compare_block(p, l, b) : GW_OK);
        }
    }
    return GW_OK;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* Words, numbers, several scripts, runs of spaces, line ends, contractions, composed accents. */
static const char sample[] =
    "The sea, it's 12345 miles wide!  I'LL go\t\tthere.\r\n\r\n   def f(x_1):\n\n\n    return x+=1 "
    "// "
    "\xd0\x9c\xd0\xbe\xd1\x80\xd0\xb5 \xe6\xb5\xb7\xe3\x81\xae\xe6\xb0\xb4 "
    "cr\xc3\xa8me bru\xcc\x82l\xc3\xa9\x65 \xf0\x9f\x8c\x8a \xc2\xa0 \xd8\xa8\xd8\xad\xd8\xb1 "
    "\xe0\xb8\x97\xe0\xb8\xb0 <b>&amp;</b> e.g. 3.14 \xef\xac\x81 ";

static gw_status ids_of(const gw_vocab *v, int32_t **ids, size_t *n) {
    gw_tokenizer *t = NULL;
    GW_TRY(gw_tokenizer_new(v, &t));
    gw_status status = gw_tokenizer_encode(t, sample, sizeof sample - 1, GW_TEXT_BOS, ids, n);
    gw_tokenizer_free(t);
    return status;
}

/* Every token that ends the folder's texts. */
static gw_status compare_ends(const gw_original *s, const gw_vocab *a, const gw_vocab *b) {
    for (int i = 0; i < a->n_end; i++) {
        int there = 0;
        for (int k = 0; k < b->n_end; k++) {
            there |= a->end[i] == b->end[k];
        }
        if (!there) {
            return gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(s->checkpoint),
                           "GGUF has keys for three tokens that end a text; token %d would be one "
                           "more; use the folder",
                           a->end[i]);
        }
    }
    return GW_OK;
}

static gw_status compare_vocabs(const gw_original *s, gw_checkpoint *made) {
    const gw_vocab *a = NULL, *b = NULL;
    int32_t *from = NULL, *to = NULL;
    size_t n = 0, m = 0;
    GW_TRY(gw_checkpoint_vocab(s->checkpoint, &a));
    GW_TRY(gw_checkpoint_vocab(made, &b));
    if (a == NULL || b == NULL) {
        return GW_OK;
    }
    gw_status status = ids_of(a, &from, &n);
    status = status == GW_OK ? ids_of(b, &to, &m) : status;
    if (status == GW_OK && (n != m || memcmp(from, to, n * sizeof *from) != 0)) {
        status = gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(s->checkpoint),
                         "GGUF's tokenizer keys cannot say how its tokenizer cuts texts: a sample "
                         "becomes other tokens; use the folder, or a GGUF file of its publisher");
    }
    free(from);
    free(to);
    return status == GW_OK ? compare_ends(s, a, b) : status;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static gw_status compare(const gw_original *s, gw_checkpoint *made) {
    pair p = {
        .s = s,
        .from = {gw_checkpoint_blueprint(s->checkpoint), gw_checkpoint_hparams(s->checkpoint)},
        .made = {gw_checkpoint_blueprint(made), gw_checkpoint_hparams(made)}};
    const gw_weights_options options = {.where = gw_checkpoint_path(s->checkpoint), .as_stored = 1};
    gw_weights *w = NULL;
    GW_TRY(compare_model(&p));
    for (int l = 0; l < p.from.hp->n_layers; l++) {
        GW_TRY(compare_layer(&p, l));
        GW_TRY(compare_factors(&p, l));
    }
    GW_TRY(compare_blocks(&p));
    for (int i = 0; i < p.from.bp->n_ropes; i++) {
        GW_TRY(compare_rope(&p, i, 1));
        GW_TRY(compare_rope(&p, i, p.from.hp->n_ctx));
    }
    GW_TRY(compare_vocabs(s, made));
    GW_TRY(gw_weights_open(made, p.made.bp, &options, &w));
    gw_weights_free(w);
    return GW_OK;
}

static gw_status not_opened(const gw_original *s, gw_status status) {
    char why[400];
    snprintf(why, sizeof why, "%s", gw_error_text());
    return status == GW_E_NOMEM
               ? status
               : gw_fail(GW_E_UNSUPPORTED, gw_checkpoint_path(s->checkpoint),
                         "GGUF's keys of %s cannot say what this folder says: read back, %s",
                         s->architecture, why);
}

gw_status gw_original_check_file(const gw_original *s, const char *path) {
    gw_checkpoint *made = NULL;
    gw_status status = gw_checkpoint_open(path, NULL, 0, &made);
    if (status == GW_OK) {
        status = compare(s, made);
        gw_checkpoint_free(made);
        return status;
    }
    return not_opened(s, status);
}

/* Floats for whatever is in a format of a folder. */
static void place(const gw_original *s, gw_gguf_place *list) {
    uint64_t at = 0;
    for (size_t i = 0; i < s->n; i++) {
        const gw_original_tensor *t = &s->list[i];
        list[i] = (gw_gguf_place){.name = t->name,
                                  .n_dim = t->n_dim > 0 ? t->n_dim : 1,
                                  .fmt = t->fmt <= GW_FMT_BF16 ? t->fmt : GW_FMT_F32,
                                  .at = at};
        memcpy(list[i].dim, t->dim, sizeof list[i].dim);
        list[i].dim[0] = t->n_dim > 0 ? list[i].dim[0] : 1;
        size_t bytes = 0; /* the sizes were checked when the folder was opened */
        (void)gw_matrix_bytes(list[i].fmt, (uint64_t)t->rows, (uint64_t)t->cols, &bytes);
        list[i].bytes = bytes;
        at += (bytes + GW_GGUF_ALIGN - 1) / GW_GGUF_ALIGN * GW_GGUF_ALIGN;
    }
}

/* The few tensors that are read when a file is opened: divisors of frequencies. */
static gw_status fill(const gw_original *s, const gw_gguf_place *list, unsigned char *data) {
    for (size_t i = 0; i < s->n; i++) {
        if (strncmp(list[i].name, "rope_f", 6) == 0) {
            float *to = (float *)(void *)(data + list[i].at);
            GW_TRY(s->list[i].read(&s->list[i], 0, s->list[i].rows, to));
        }
    }
    return GW_OK;
}

static gw_status check_image(const gw_original *s, const gw_gguf_place *list,
                             const gw_bytes *head) {
    const gw_gguf_place *last = s->n > 0 ? &list[s->n - 1] : NULL;
    size_t size = head->n + (last != NULL ? (size_t)(last->at + last->bytes) : 0);
    gw_checkpoint *made = NULL;
    unsigned char *image = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (image == MAP_FAILED) {
        return gw_fail(GW_E_NOMEM, gw_checkpoint_path(s->checkpoint),
                       "no room for addresses of %zu bytes, to see how its GGUF form is read",
                       size);
    }
    memcpy(image, head->at, head->n);
    gw_status status = fill(s, list, image + head->n);
    if (status == GW_OK) {
        status = gw_checkpoint_open(NULL, image, size, &made);
        status = status == GW_OK ? compare(s, made) : not_opened(s, status);
    }
    gw_checkpoint_free(made);
    munmap(image, size);
    return status;
}

gw_status gw_original_check_form(const gw_original *s) {
    gw_gguf_place *list = calloc(s->n + 1, sizeof *list);
    gw_bytes head = {0};
    gw_status status = GW_OK;
    if (list != NULL) {
        place(s, list);
        gw_gguf_head(&head, &s->pairs, list, s->n);
    }
    if (list == NULL || head.failed) {
        status = gw_fail(GW_E_NOMEM, gw_checkpoint_path(s->checkpoint), "no memory for its head");
    } else {
        status = check_image(s, list, &head);
    }
    free(list);
    gw_bytes_free(&head);
    return status;
}
