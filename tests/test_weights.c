/* tests/test_weights.c - weights by role, on tiny GGUF images made here: the same numbers in other
 * formats give the same logits; what is missing, misshapen or out of place is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/model/checkpoint.h"
#include "core/model/weights_parts.h"
#include "core/tensor/formats.h"

enum { D = 64, HEADS = 2, E = 32, F = 96, V = 40, MAX_TENSORS = 24, ROOM = 1 << 20 };

/* ---- a GGUF image ------------------------------------------------------------------------------
 */

typedef struct part {
    const char *name;
    gw_fmt fmt;
    int64_t rows, cols; /* rows 0: a vector */
} part;

typedef struct image {
    part parts[MAX_TENSORS];
    int n;
    unsigned char *bytes;
    size_t used;
} image;

static void put(image *m, const void *data, size_t n) {
    assert_true(m->used + n <= ROOM);
    memcpy(m->bytes + m->used, data, n);
    m->used += n;
}
static void put_u32(image *m, uint32_t x) { put(m, &x, sizeof x); }
static void put_u64(image *m, uint64_t x) { put(m, &x, sizeof x); }
static void put_text(image *m, const char *s) {
    put_u64(m, strlen(s));
    put(m, s, strlen(s));
}
static void put_count(image *m, const char *key, uint32_t value) {
    put_text(m, key);
    put_u32(m, 4); /* u32 */
    put_u32(m, value);
}
static void pad(image *m) {
    while (m->used % 32 != 0) {
        put(m, "", 1);
    }
}

/* Weight i of a tensor is number(name, i) / 64: exact in f32, f16 and, with a scale of 2^-6, q8_0.
 */
static int number(const char *name, int64_t i) {
    uint32_t x = 17;
    for (const char *c = name; *c != '\0'; c++) {
        x = x * 31 + (unsigned char)*c;
    }
    x += (uint32_t)i * 2654435761u;
    return (int)(x >> 13) % 127 - 63;
}

static size_t part_bytes(const part *p) {
    size_t bytes = 0;
    assert_int_equal(
        gw_matrix_bytes(p->fmt, p->rows ? (uint64_t)p->rows : 1, (uint64_t)p->cols, &bytes), GW_OK);
    return bytes;
}

static void put_values(image *m, const part *p) {
    int64_t n = (p->rows ? p->rows : 1) * p->cols;
    int is_norm = strstr(p->name, "norm") != NULL;
    for (int64_t i = 0; i < n; i++) {
        int q = is_norm ? 64 : number(p->name, i);
        float x = (float)q / 64.0f;
        if (p->fmt == GW_FMT_F32) {
            put(m, &x, sizeof x);
        } else if (p->fmt == GW_FMT_F16) {
            gw_u16 half = gw_f32_to_f16(x);
            put(m, &half, sizeof half);
        } else { /* q8_0 */
            gw_u16 scale = 0x2400;
            int8_t byte = (int8_t)q;
            if (i % 32 == 0) {
                put(m, &scale, sizeof scale);
            }
            put(m, &byte, 1);
        }
    }
}

static void add(image *m, const char *name, gw_fmt fmt, int64_t rows, int64_t cols) {
    assert_true(m->n < MAX_TENSORS);
    m->parts[m->n++] = (part){name, fmt, rows, cols};
}

static part *find(image *m, const char *name) {
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->parts[i].name, name) == 0) {
            return &m->parts[i];
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* One Llama layer in f32; the tests change parts before it is written. */
static image base_image(void) {
    image m = {0};
    add(&m, "token_embd.weight", GW_FMT_F32, V, D);
    add(&m, "blk.0.attn_norm.weight", GW_FMT_F32, 0, D);
    add(&m, "blk.0.attn_q.weight", GW_FMT_F32, HEADS * E, D);
    add(&m, "blk.0.attn_k.weight", GW_FMT_F32, E, D);
    add(&m, "blk.0.attn_v.weight", GW_FMT_F32, E, D);
    add(&m, "blk.0.attn_output.weight", GW_FMT_F32, D, HEADS * E);
    add(&m, "blk.0.ffn_norm.weight", GW_FMT_F32, 0, D);
    add(&m, "blk.0.ffn_gate.weight", GW_FMT_F32, F, D);
    add(&m, "blk.0.ffn_up.weight", GW_FMT_F32, F, D);
    add(&m, "blk.0.ffn_down.weight", GW_FMT_F32, D, F);
    add(&m, "output_norm.weight", GW_FMT_F32, 0, D);
    return m;
}

static void write_image(image *m) {
    m->bytes = malloc(ROOM);
    assert_non_null(m->bytes);
    put(m, "GGUF", 4);
    put_u32(m, 3);
    put_u64(m, (uint64_t)m->n);
    put_u64(m, 9);
    put_text(m, "general.architecture");
    put_u32(m, 8);
    put_text(m, "llama");
    put_count(m, "llama.context_length", 64);
    put_count(m, "llama.embedding_length", D);
    put_count(m, "llama.block_count", 1);
    put_count(m, "llama.feed_forward_length", F);
    put_count(m, "llama.attention.head_count", HEADS);
    put_count(m, "llama.attention.head_count_kv", 1);
    put_count(m, "llama.vocab_size", V);
    put_text(m, "llama.attention.layer_norm_rms_epsilon");
    put_u32(m, 6);
    put(m, &(float){1e-5f}, sizeof(float));
    uint64_t at = 0;
    for (int i = 0; i < m->n; i++) {
        const part *p = &m->parts[i];
        put_text(m, p->name);
        put_u32(m, p->rows ? 2 : 1);
        put_u64(m, (uint64_t)p->cols);
        if (p->rows) {
            put_u64(m, (uint64_t)p->rows);
        }
        put_u32(m, (uint32_t)gw_format_of(p->fmt)->gguf_type);
        put_u64(m, at);
        at += (part_bytes(p) + 31) / 32 * 32;
    }
    for (int i = 0; i < m->n; i++) {
        pad(m);
        put_values(m, &m->parts[i]);
    }
    pad(m);
}

/* ---- running it --------------------------------------------------------------------------------
 */

static gw_status try_open(image *m, const gw_model_options *with, gw_model **model) {
    gw_model_options o = *with;
    write_image(m);
    o.memory = m->bytes;
    o.memory_bytes = m->used;
    return gw_model_open(&o, model);
}

/* Logits of a few tokens, some as a prompt, one as a decode step. */
static void logits_with(image m, const gw_model_options *with, float *out) {
    static const int32_t ids[] = {1, 7, 39, 20, 3};
    gw_model *model = NULL;
    gw_session *s = NULL;
    if (try_open(&m, with, &model) != GW_OK || gw_session_new(model, NULL, &s) != GW_OK ||
        gw_session_prefill(s, ids, 4) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    memcpy(out, gw_session_logits(s, 0), V * sizeof(float));
    assert_int_equal(gw_session_decode(s, ids + 4, 1), GW_OK);
    memcpy(out + V, gw_session_logits(s, 0), V * sizeof(float));
    gw_session_free(s);
    gw_model_free(model);
    free(m.bytes);
}

static void same_logits(const image *a, const image *b, int same) {
    static const char *const devices[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        const gw_model_options o = {.device = devices[i]};
        float x[2 * V], y[2 * V];
        logits_with(*a, &o, x);
        logits_with(*b, &o, y);
        assert_int_equal(memcmp(x, y, sizeof x) == 0, same);
    }
}

/* Matrices of one product that mix float and quantized formats are all read as floats. */
static void test_mixed_products(void **state) {
    (void)state;
    image plain = base_image(), mixed = base_image();
    find(&mixed, "blk.0.attn_k.weight")->fmt = GW_FMT_F16;
    find(&mixed, "blk.0.attn_v.weight")->fmt = GW_FMT_Q8_0;
    find(&mixed, "blk.0.ffn_up.weight")->fmt = GW_FMT_Q8_0;
    same_logits(&plain, &mixed, 1);
}

static void test_half_vectors(void **state) {
    (void)state;
    image plain = base_image(), half = base_image();
    find(&half, "blk.0.attn_norm.weight")->fmt = GW_FMT_F16;
    find(&half, "output_norm.weight")->fmt = GW_FMT_F16;
    same_logits(&plain, &half, 1);
}

static void test_biases(void **state) {
    (void)state;
    image plain = base_image(), one = base_image(), two = base_image();
    add(&one, "blk.0.attn_q.bias", GW_FMT_F32, 0, HEADS * E);
    add(&one, "blk.0.attn_output.bias", GW_FMT_F32, 0, D);
    add(&two, "blk.0.attn_q.bias", GW_FMT_F16, 0, HEADS * E);
    add(&two, "blk.0.attn_output.bias", GW_FMT_F16, 0, D);
    same_logits(&one, &two, 1);
    same_logits(&plain, &one, 0);
}

/* Without output.weight the embedding is the head; a q8_0 head of the same numbers is another
 * product (its input is quantized), an f16 one is not. */
static void test_head(void **state) {
    (void)state;
    image tied = base_image(), half = base_image(), own = base_image();
    find(&half, "token_embd.weight")->fmt = GW_FMT_F16;
    same_logits(&tied, &half, 1);
    add(&own, "output.weight", GW_FMT_F32, V, D);
    same_logits(&tied, &own, 0);
    image quantized = base_image(), plain = base_image();
    find(&quantized, "token_embd.weight")->fmt = GW_FMT_Q8_0;
    same_logits(&quantized, &plain, 0);
}

/* Conversion while loading: the same bytes with any number of threads, and a little away from the
 * floats they were made of. */
static void test_convert(void **state) {
    (void)state;
    static const char *const formats[] = {"int8", "int4-g32", "int4-g64"};
    const image m = base_image();
    float plain[2 * V], one[2 * V], two[2 * V];
    logits_with(m, &(gw_model_options){.device = "cpu"}, plain);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        gw_model_options o = {.device = "cpu", .weights = formats[i], .threads = 1};
        logits_with(m, &o, one);
        o.threads = 3;
        logits_with(m, &o, two);
        assert_memory_equal(one, two, sizeof one);
        double diff = 0.0, norm = 0.0;
        for (int k = 0; k < 2 * V; k++) {
            diff += ((double)one[k] - plain[k]) * ((double)one[k] - plain[k]);
            norm += (double)plain[k] * plain[k];
        }
        assert_true(diff > 0.0 && diff < norm * (i == 0 ? 0.001 : 0.2));
    }
}

/* ---- refusals ----------------------------------------------------------------------------------
 */

static void refused(image m, gw_status want, const char *says, const char *also) {
    gw_model *model = NULL;
    gw_status status = try_open(&m, &(gw_model_options){.device = "cpu"}, &model);
    if (status != want || strstr(gw_error_text(), says) == NULL ||
        strstr(gw_error_text(), also) == NULL) {
        fail_msg("status %d, not %d: %s", (int)status, (int)want, gw_error_text());
    }
    assert_null(model);
    free(m.bytes);
}

static void test_refusals(void **state) {
    (void)state;
    for (int i = 1; i < base_image().n;
         i++) { /* the embedding is looked at by the reader already */
        image m = base_image();
        char name[80];
        snprintf(name, sizeof name, "%s", m.parts[i].name);
        memmove(&m.parts[i], &m.parts[i + 1], (size_t)(m.n - i - 1) * sizeof *m.parts);
        m.n--;
        refused(m, GW_E_METADATA, name, "missing");
    }
    image m = base_image();
    find(&m, "blk.0.ffn_down.weight")->rows = 32;
    refused(m, GW_E_METADATA, "[32, 96]", "[64, 96]");
    m = base_image();
    find(&m, "blk.0.attn_norm.weight")->cols = 32;
    refused(m, GW_E_METADATA, "[32]", "[64]");
    m = base_image();
    find(&m, "blk.0.ffn_norm.weight")->fmt = GW_FMT_Q8_0;
    refused(m, GW_E_TYPE, "blk.0.ffn_norm.weight", "q8_0");
    m = base_image();
    add(&m, "blk.0.attn_sinks.weight", GW_FMT_F32, 0, F);
    refused(m, GW_E_UNSUPPORTED, "blk.0.attn_sinks.weight", "llama");
}

/* What lies outside the layers, or is no weight, is carried and not refused. */
static void test_extra(void **state) {
    (void)state;
    image plain = base_image(), extra = base_image();
    add(&extra, "something.else", GW_FMT_F32, 0, 8);
    add(&extra, "blk.0.attn_rot_embd", GW_FMT_F32, 0, 8);
    add(&extra, "blk.7.attn_q.weight", GW_FMT_F32, 4, 8); /* a layer that is not run */
    same_logits(&plain, &extra, 1);
}

static gw_entry *entry_of(gw_weights *w, const char *name) {
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        if (gw_entry_there(&w->entries[i]) && strcmp(w->entries[i].t.name, name) == 0) {
            return &w->entries[i];
        }
    }
    fail_msg("no entry %s", name);
    return NULL;
}

/* Where the columns of down lie in another order, rows of gate and up do so instead: rows as they
 * are read are those that the order names. Not where a change of theirs is not by rows alone. */
static void test_order_of_rows(void **state) {
    (void)state;
    for (int experts = 0; experts < 2; experts++) {
        image m = base_image();
        gw_checkpoint *c = NULL;
        gw_weights *w = NULL;
        int32_t order[F];
        float natural[F * D], row[D];
        write_image(&m);
        assert_int_equal(gw_checkpoint_open(NULL, m.bytes, m.used, &c), GW_OK);
        const gw_weights_options o = {.where = "image"};
        assert_int_equal(gw_weights_open(c, gw_checkpoint_blueprint(c), &o, &w), GW_OK);
        gw_entry *up = entry_of(w, "blk.0.ffn_up.weight"),
                 *gate = entry_of(w, "blk.0.ffn_gate.weight"),
                 *down = entry_of(w, "blk.0.ffn_down.weight"),
                 *out = entry_of(w, "blk.0.attn_output.weight");
        gw_weight_source src = gw_entry_source(up);
        assert_int_equal(src.rows(&src, 0, F, natural), GW_OK);
        for (int i = 0; i < F; i++) {
            order[i] = i * 35 % F;
        }
        down->column = out->column = order;
        up->experts = experts;
        gw_weights_order(w);
        assert_ptr_equal(out->column, order); /* heads stay where they are */
        assert_ptr_equal(down->column, experts ? order : NULL);
        assert_ptr_equal(up->row, experts ? NULL : order);
        assert_ptr_equal(gate->row, experts ? NULL : order);
        src = gw_entry_source(up);
        assert_true(experts || src.map == NULL);
        for (int i = 0; i < F; i++) {
            int from = experts ? i : order[i];
            assert_int_equal(src.rows(&src, i, 1, row), GW_OK);
            assert_memory_equal(row, natural + from * D, sizeof row);
        }
        gw_weights_free(w);
        gw_checkpoint_free(c);
        free(m.bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_products), cmocka_unit_test(test_half_vectors),
        cmocka_unit_test(test_biases),         cmocka_unit_test(test_head),
        cmocka_unit_test(test_convert),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_extra),          cmocka_unit_test(test_order_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
