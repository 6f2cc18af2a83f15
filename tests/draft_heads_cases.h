/* tests/draft_heads_cases.h - heads of EAGLE-3, DFlash and DSpark (tests/draft_heads.py) on a
 * device: what they draft is what speculators drafts, token by token, whatever their spelling;
 * texts are those without drafts, for one and for many. */
#ifndef GW_TESTS_DRAFT_HEADS_CASES_H
#define GW_TESTS_DRAFT_HEADS_CASES_H

#include <jansson.h>
#include <unistd.h>

#include "tests/draft_rig.h"
#include "core/engine/drafting/draft_chain.h"
#include "core/engine/run/session_hidden.h"

enum { HC_CTX = 96, HC_D = 256, HC_STEPS = 4, HC_WIDE = 4 * HC_D };

static char hc_folder[64];

static inline int hc_make(void **state) {
    (void)state;
    return rig_make(hc_folder, "draft_heads.py", "", "", "models/tales-2m");
}

static inline int hc_remove(void **state) {
    (void)state;
    return rig_remove(hc_folder);
}

/* A head, for tales-2m, or for the silent model (1) or the one that counts (2); head NULL: that
 * model. */
static inline gw_model *hc_open_for(int silent, const char *head, const char *device,
                                    const char *layers) {
    char path[128], own[128];
    const char *target = shared_path("models/tales-2m");
    snprintf(own, sizeof own, "%s/%s", hc_folder, silent == 2 ? "ring" : "silent");
    target = silent != 0 ? own : target;
    snprintf(path, sizeof path, "%s/%s", hc_folder, head != NULL ? head : "");
    gw_model_options o = {.path = head != NULL ? path : target,
                          .target = head != NULL ? target : NULL,
                          .device = device,
                          .offload_layers = layers,
                          .threads = 1,
                          .exact = 1};
    gw_model *m = NULL;
    ok(gw_model_open(&o, &m));
    return m;
}

static inline gw_model *hc_open(const char *head, const char *device, const char *layers) {
    return hc_open_for(0, head, device, layers);
}

/* ---- against speculators --------------------------------------------------------------------- */

typedef struct hc_states {
    float target[HC_CTX][3 * HC_D]; /* of the target, after each position */
    float own[HC_D];                /* of the head, after its last row     */
    int32_t own_pos;                /* from there on states are the head's */
} hc_states;

static inline gw_status hc_keep(void *user, gw_session *s, int32_t pos, int32_t n) {
    return gw_session_hidden_read(s, 0, n, ((hc_states *)user)->target[pos], 3 * HC_D);
}

static inline gw_status hc_keep_own(void *user, gw_session *s, int32_t pos, int32_t n) {
    (void)pos;
    return gw_session_hidden_read(s, n - 1, 1, ((hc_states *)user)->own, HC_D);
}

static inline int hc_give(void *user, int32_t pos, int32_t n, float *rows) {
    const hc_states *h = user;
    memset(rows, 0, (size_t)n * HC_WIDE * sizeof *rows);
    for (int32_t i = 0; i < n; i++) {
        int32_t at = pos + i - 1;
        if (at >= 0 && at < h->own_pos) {
            memcpy(rows + (size_t)i * HC_WIDE, h->target[at], sizeof h->target[at]);
        } else if (at >= 0) {
            memcpy(rows + (size_t)i * HC_WIDE + 3 * HC_D, h->own, sizeof h->own);
        }
    }
    return 0;
}

static inline int32_t hc_drafted(gw_session *head) {
    const gw_model *m = gw_session_model(head);
    return gw_model_draft_tokens(m)[largest(gw_session_logits(head, 0), gw_model_n_vocab(m))];
}

/* Steps after every position; later steps take the text's tokens and the head's own states. */
static inline void hc_text(gw_session *target, gw_session *head, hc_states *h, const json_t *given,
                           const char *golden, const char *name) {
    size_t n, wrong = 0, checked = 0;
    int32_t *ids = json_ids(json_object_get(given, "ids"), &n);
    const json_t *want = json_object_get(given, golden);
    ok(gw_session_rewind(target, 0));
    ok(gw_session_rewind(head, 0));
    ok(gw_session_prefill(target, ids, 9));
    for (size_t i = 9; i < n; i++) {
        ok(gw_session_decode(target, ids + i, 1));
    }
    h->own_pos = (int32_t)n;
    ok(gw_session_prefill(head, ids, 1));
    for (size_t p = 1; p < n; p++) {
        h->own_pos = (int32_t)n;
        ok(gw_session_rewind(head, (int32_t)p));
        ok(gw_session_prefill(head, ids + p, 1));
        h->own_pos = (int32_t)p;
        for (size_t k = 0; k < HC_STEPS && p + k < n; k++) {
            if (k > 0) {
                ok(gw_session_decode(head, ids + p + k, 1));
            }
            const json_t *is = json_array_get(json_array_get(want, k), p - 1);
            wrong += hc_drafted(head) != (int32_t)json_integer_value(is);
            checked++;
        }
    }
    print_message("  %s: %zu drafts are those of speculators\n", name, checked - wrong);
    if (wrong > 0 || checked < 150) {
        fail_msg("%s: %zu of %zu drafts are not those of speculators", name, wrong, checked);
    }
    free(ids);
}

static inline void hc_goldens(const char *device, const char *const (*heads)[2], size_t n) {
    static hc_states h;
    json_t *all = json_load_file("tests/data/draft-heads/goldens.json", 0, NULL);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++) {
        gw_model *m = hc_open(NULL, device, NULL), *model = hc_open(heads[i][0], device, NULL);
        gw_session_options o = {.n_ctx = HC_CTX, .chunk = 5, .kv_type = "f32"};
        gw_session *target = NULL, *head = NULL;
        int32_t layer[GW_TAPS];
        int taps = 0;
        ok(gw_session_new(m, &o, &target));
        ok(gw_session_new(model, &o, &head));
        ok(gw_model_taps(model, m, layer, &taps));
        assert_int_equal(taps, 3);
        ok(gw_session_hidden_tap(target, layer, taps));
        ok(gw_session_hidden_open(head));
        assert_int_equal(gw_session_hidden_width(target), 3 * HC_D);
        gw_session_hidden_watch(target, hc_keep, &h);
        gw_session_hidden_watch(head, hc_keep_own, &h);
        gw_session_hidden_source(head, hc_give, &h);
        const json_t *texts = json_object_get(all, "texts");
        for (size_t t = 0; t < json_array_size(texts); t++) {
            hc_text(target, head, &h, json_array_get(texts, t), heads[i][1], heads[i][0]);
        }
        gw_session_free(head);
        gw_session_free(target);
        gw_model_free(model);
        gw_model_free(m);
    }
    json_decref(all);
}

/* ---- blocks, against speculators ------------------------------------------------------------- */

typedef struct hc_block_states {
    float target[HC_CTX][2 * HC_D]; /* of the target, at each position */
    int wide;                       /* floats of it that the model takes */
} hc_block_states;

static inline gw_status hc_keep_streams(void *user, gw_session *s, int32_t pos, int32_t n) {
    hc_block_states *h = user;
    return gw_session_hidden_read(s, 0, n, h->target[pos], 2 * HC_D);
}

static inline int hc_give_streams(void *user, int32_t pos, int32_t n, float *rows) {
    const hc_block_states *h = user;
    const size_t width = (size_t)h->wide + 1;
    memset(rows, 0, (size_t)n * width * sizeof *rows);
    for (int32_t i = 0; i < n; i++) {
        memcpy(rows + (size_t)i * width, h->target[pos + i], (size_t)h->wide * sizeof *rows);
    }
    return 0;
}

/* Tokens [rows] of the block that has run, after the token `before`; with a chain each by the
 * one before it, and how sure the head is of it is what speculators says. */
static inline void hc_said(gw_session *head, gw_chain *chain, int32_t before, const json_t *want,
                           int32_t *said) {
    const gw_model *m = gw_session_model(head);
    const gw_draft_block b = gw_model_draft_block(m);
    const int32_t *means = gw_model_draft_tokens(m), n = b.rows - b.first;
    static float outs[GW_DECODE_MAX * HC_D];
    gw_chain_row row = {.before = before};
    if (chain != NULL) {
        ok(gw_session_hidden_read(head, b.first, n, outs, HC_D));
        gw_chain_begin(chain, 0);
    }
    for (int32_t i = 0; i < n; i++) {
        const float *logits = gw_session_logits(head, (size_t)(b.first + i));
        if (chain != NULL) {
            row.hidden = outs + (size_t)i * HC_D;
            ok(gw_chain_step(chain, &row, 1));
            ok(gw_chain_logits(chain, 0, logits, &logits));
            double sure = json_real_value(json_array_get(want, (size_t)(n + i)));
            assert_true(fabs((double)row.trust - sure) < 2e-4);
        }
        said[i] = largest(logits, gw_model_n_vocab(m));
        said[i] = means != NULL ? means[said[i]] : said[i];
        row.before = said[i];
    }
}

/* The block after every position, its states read one by one or by nines. */
static inline void hc_blocks_of(gw_session *target, gw_session *head, gw_chain *chain,
                                const json_t *given, const char *golden, int from,
                                const char *name) {
    const gw_draft_block b = gw_model_draft_block(gw_session_model(head));
    size_t n, wrong = 0, checked = 0;
    int32_t *ids = json_ids(json_object_get(given, "ids"), &n), rows[GW_DECODE_MAX];
    int32_t said[GW_DECODE_MAX];
    const json_t *want = json_object_get(given, golden);
    ok(gw_session_rewind(target, 0));
    ok(gw_session_rewind(head, 0));
    ok(gw_session_prefill(target, ids, n));
    for (size_t p = 0; p < n; p++) {
        const size_t some = p % 9 == 0 ? 9 : 1;
        for (int32_t i = 0; i < b.rows; i++) {
            rows[i] = i == 0 ? ids[p] : b.mask;
        }
        if (p > 0) {
            size_t at = p - (some < p ? some : p);
            ok(gw_session_rewind(head, (int32_t)at));
            ok(some > 1 ? gw_session_prefill(head, ids + at, p - at)
                        : gw_session_decode(head, ids + at, p - at));
        }
        gw_session_hidden_mark(head, 1);
        ok(gw_session_decode(head, rows, (size_t)b.rows));
        gw_session_hidden_mark(head, 0);
        hc_said(head, chain, ids[p], json_array_get(want, p), said);
        for (int32_t i = 0; i < b.rows - b.first; i++) {
            const json_t *is = json_array_get(json_array_get(want, p), (size_t)(i + from));
            wrong += said[i] != (int32_t)json_integer_value(is);
            checked++;
        }
        ok(gw_session_rewind(head, (int32_t)p));
    }
    print_message("  %s: %zu of %zu tokens of blocks are those of speculators\n", name,
                  checked - wrong, checked);
    if (wrong > 0 || checked < 250) {
        fail_msg("%s: %zu of %zu tokens are not those of speculators", name, wrong, checked);
    }
    free(ids);
}

static inline void hc_blocks(const char *device) {
    /* what it is and whose blocks it says; without the anchor's row they begin one later */
    static const struct {
        const char *name, *golden;
        int from;
    } heads[] = {
        {"blocks", "blocks", 0},       {"anchored", "anchored", 0}, {"z-lab", "anchored", 1},
        {"block.gguf", "anchored", 1}, {"chained", "chained", 0},   {"gated", "gated", 0},
        {"joint", "joint", 0},         {"deepspec", "chained", 0},  {"chain.gguf", "chained", 0}};
    static hc_block_states h;
    (void)shared_path("models/tales-2m");
    json_t *all = json_load_file("tests/data/draft-heads/goldens.json", 0, NULL);
    assert_non_null(all);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        gw_model *m = hc_open(NULL, device, NULL), *model = hc_open(heads[i].name, device, NULL);
        gw_session_options o = {.n_ctx = HC_CTX, .chunk = 5, .kv_type = "f32"};
        gw_session *target = NULL, *head = NULL;
        gw_chain *chain = NULL;
        int32_t layer[GW_TAPS];
        int taps = 0;
        ok(gw_session_new(m, &o, &target));
        ok(gw_session_new(model, &o, &head));
        ok(gw_chain_new(model, 1, &chain));
        assert_int_equal(chain != NULL, i >= 4);
        ok(chain != NULL ? gw_session_hidden_open(head) : GW_OK);
        ok(gw_model_taps(model, m, layer, &taps));
        assert_int_equal(taps, i == 0 || strcmp(heads[i].name, "gated") == 0 ? 2 : 1);
        ok(gw_session_hidden_tap(target, layer, taps));
        h.wide = gw_session_hidden_width(target);
        gw_session_hidden_watch(target, hc_keep_streams, &h);
        gw_session_hidden_source(head, hc_give_streams, &h);
        const json_t *texts = json_object_get(all, "texts");
        for (size_t t = 0; t < json_array_size(texts); t++) {
            hc_blocks_of(target, head, chain, json_array_get(texts, t), heads[i].golden,
                         heads[i].from, heads[i].name);
        }
        gw_chain_free(chain);
        gw_session_free(head);
        gw_session_free(target);
        gw_model_free(model);
        gw_model_free(m);
    }
    json_decref(all);
}

/* ---- texts ----------------------------------------------------------------------------------- */

typedef struct hc_case {
    const char *head, *length, *layers; /* layers: of the target, on the device */
    int sampler, prompts, silent;
} hc_case;

/* Ids of the silent model, which has no tokenizer, are drawn. */
static inline void hc_prompts(const gw_model *m, int silent, prompt_list *out) {
    uint32_t x = 5;
    if (!silent) {
        read_prompts(m, out);
        return;
    }
    for (int i = 0; i < PROMPTS_MAX * PROMPT_MAX; i++) {
        x = x * 1664525u + 1013904223u;
        out->ids[i / PROMPT_MAX][i % PROMPT_MAX] = 3 + (int32_t)(x >> 8) % 300;
        out->n[i / PROMPT_MAX] = 20 + (size_t)(i / PROMPT_MAX) % 20;
    }
}

/* GODWIT_DRAFT_PROMPTS above 1: so many instead of `usual`. */
static inline int hc_prompts_wanted(int usual) {
    const char *wish = getenv("GODWIT_DRAFT_PROMPTS");
    const int n = wish != NULL ? atoi(wish) : 0;
    return n <= 1 ? usual : n < PROMPTS_MAX ? n : PROMPTS_MAX;
}

/* The texts are the CPU's without drafts. */
static inline gw_draft_stats hc_check(const char *device, const hc_case *c) {
    gw_model *cpu = hc_open_for(c->silent, NULL, "cpu", NULL);
    gw_model *m = hc_open_for(c->silent, NULL, device, c->layers);
    gw_model *head = hc_open_for(c->silent, c->head, device, NULL);
    gw_session *plain = open_session(cpu, HC_CTX), *s = open_session(m, HC_CTX);
    gw_drafter *d = new_drafter(s, head, 0, c->length);
    const named_sampler *row = &sampler_table[c->sampler];
    static prompt_list prompts;
    gw_draft_stats stats;
    hc_prompts(cpu, c->silent, &prompts);
    for (int i = 0; i < hc_prompts_wanted(c->prompts); i++) {
        text want, got;
        size_t n = prompts.n[i] < 40 ? prompts.n[i] : 40;
        plain_text(cpu, plain, row, 7, prompts.ids[i], n, 32, &want);
        drafted_text(m, s, d, row, 7, prompts.ids[i], n, 32, GW_DECODE_MAX, &got);
        if (want.n != got.n || memcmp(want.ids, got.ids, want.n * sizeof *want.ids) != 0) {
            fail_msg("%s, %s, %s: another text after prompt %d", c->head, c->length, row->name, i);
        }
    }
    gw_drafter_stats(d, &stats);
    print_message("  %s, %s, %s: %d of %d drafts accepted\n", c->head, c->length, row->name,
                  (int)stats.accepted, (int)stats.drafted);
    assert_true(strncmp(c->length, "fixed", 5) != 0 || stats.drafted > 20);
    gw_drafter_free(d);
    gw_session_free(s);
    gw_session_free(plain);
    gw_model_free(head);
    gw_model_free(m);
    gw_model_free(cpu);
    return stats;
}

static inline double hc_share(const gw_draft_stats *s) {
    return s->drafted > 0 ? (double)s->accepted / (double)s->drafted : 0.0;
}

#endif
