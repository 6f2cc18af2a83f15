/* core/model/llama2c.c - checkpoints of llama2.c (one file of numbers, no names): the first form of
 * seven integers, and those that begin with "ak42": version 1 in float32, 2 in int8 with scales of
 * groups. They become the tensors and the configuration that a Hugging Face folder would have.
 *
 * Layout: export.py and run.c of llama2.c. Rows of wq and wk lie as Meta's, whose rope turns
 * neighbours; here halves of a head turn, so these rows are read in another order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/reader.h"
#include "core/base/text.h"
#include "core/model/checkpoint_parts.h"
#include "core/model/packed.h"

enum { PLAIN_HEAD = 28, HEAD = 256, MAGIC = 0x616b3432 };

typedef struct shape {
    int64_t d, f, layers, heads, kv_heads, v, context;
    int version, tied;
    int64_t group; /* version 2 */
} shape;

typedef struct layout {
    gw_checkpoint *c; /* NULL: only the size is asked for */
    const gw_file *file;
    const char *path;
    shape s;
    uint64_t at;
} layout;

static int64_t integer(const uint8_t *p, int i) {
    return (int32_t)(uint32_t)gw_load_le(p + 4 * i, 4);
}

/* 0: not what llama2.c writes. */
static int read_shape(const uint8_t *p, uint64_t size, shape *s) {
    memset(s, 0, sizeof *s);
    if (size < PLAIN_HEAD) {
        return 0;
    }
    if (gw_load_le(p, 4) == MAGIC) {
        s->version = (int)integer(p, 1);
        if (size < HEAD || s->version < 1 || s->version > 2) {
            return 0;
        }
        s->tied = p[36] != 0;
        s->group = s->version == 2 ? (int32_t)(uint32_t)gw_load_le(p + 37, 4) : 0;
        p += 8;
    }
    int64_t *const to[] = {&s->d, &s->f, &s->layers, &s->heads, &s->kv_heads, &s->v, &s->context};
    for (int i = 0; i < 7; i++) {
        *to[i] = integer(p, i);
    }
    if (s->version == 0) {
        s->tied = s->v > 0;
        s->v = s->v < 0 ? -s->v : s->v;
    }
    for (int i = 0; i < 7; i++) {
        if (*to[i] < 1 || *to[i] > 1 << 24) {
            return 0;
        }
    }
    return s->layers < 4096 && s->d % s->heads == 0 && s->heads % s->kv_heads == 0 &&
           s->d / s->heads % 2 == 0 &&
           (s->version < 2 || (s->group > 0 && s->d % s->group == 0 && s->f % s->group == 0));
}

/* One tensor; rows 0: a vector. heads: of rows that are read in another order. */
static gw_status add(layout *l, const char *name, int layer, int64_t rows, int64_t cols,
                     int64_t heads) {
    char full[96];
    int coded = l->s.version == 2 && rows > 0;
    int64_t n = (rows > 0 ? rows : 1) * cols;
    uint64_t at = l->at, bytes = (uint64_t)n * (coded ? 1 : sizeof(float));
    l->at += bytes + (coded ? (uint64_t)(n / l->s.group) * sizeof(float) : 0);
    if (l->c == NULL) {
        return GW_OK;
    }
    if (layer >= 0) {
        snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    } else {
        snprintf(full, sizeof full, "%s", name);
    }
    gw_stored t = {.name = gw_arena_copy(l->c->arena, full, strlen(full)),
                   .fmt = GW_FMT_F32,
                   .n_dim = rows > 0 ? 2 : 1,
                   .dim = {rows > 0 ? rows : cols, cols},
                   .data = (const uint8_t *)l->file->data + at,
                   .bytes = (size_t)n * sizeof(float),
                   .fd = l->file->fd,
                   .at = at};
    if (coded || heads > 0) {
        gw_packed *p = gw_arena_alloc(l->c->arena, sizeof *p);
        if (p == NULL) {
            return gw_checkpoint_nomem(l->c);
        }
        *p = (gw_packed){.kind = coded ? GW_CODES_I8 : GW_CODES_FLOATS,
                         .bits = 8,
                         .rows = rows,
                         .each = rows,
                         .cols = cols,
                         .codes = t.data,
                         .stride = (size_t)cols * (coded ? 1 : sizeof(float)),
                         .high = 1,
                         .span = coded ? l->s.group : cols,
                         .heads = heads};
        if (coded) {
            p->scale = (gw_numbers){(const uint8_t *)t.data + n, GW_NUMBER_F32, cols / l->s.group};
            t.fmt = gw_packed_fmt(p);
            GW_TRY(gw_matrix_bytes(t.fmt, (uint64_t)rows, (uint64_t)cols, &t.bytes));
        }
        t.packed = p;
        t.code_bytes = bytes;
        t.fd = -1;
    }
    return t.name != NULL ? gw_checkpoint_add(l->c, l->path, &t) : gw_checkpoint_nomem(l->c);
}

static gw_status add_each(layout *l, const char *name, int64_t rows, int64_t cols, int64_t heads) {
    for (int i = 0; i < l->s.layers; i++) {
        GW_TRY(add(l, name, i, rows, cols, heads));
    }
    return GW_OK;
}

static gw_status walk(layout *l) {
    const shape *s = &l->s;
    const int64_t kv = s->d / s->heads * s->kv_heads;
    const int old = s->version == 0;
    static const char attn_norm[] = "input_layernorm.weight";
    static const char ffn_norm[] = "post_attention_layernorm.weight";
    l->at = old ? PLAIN_HEAD : HEAD;
    if (old) {
        GW_TRY(add(l, "model.embed_tokens.weight", -1, s->v, s->d, 0));
    }
    GW_TRY(add_each(l, attn_norm, 0, s->d, 0));
    if (!old) {
        GW_TRY(add_each(l, ffn_norm, 0, s->d, 0));
        GW_TRY(add(l, "model.norm.weight", -1, 0, s->d, 0));
        GW_TRY(add(l, "model.embed_tokens.weight", -1, s->v, s->d, 0));
    }
    GW_TRY(add_each(l, "self_attn.q_proj.weight", s->d, s->d, s->heads));
    GW_TRY(add_each(l, "self_attn.k_proj.weight", kv, s->d, s->kv_heads));
    GW_TRY(add_each(l, "self_attn.v_proj.weight", kv, s->d, 0));
    GW_TRY(add_each(l, "self_attn.o_proj.weight", s->d, s->d, 0));
    if (old) {
        GW_TRY(add_each(l, ffn_norm, 0, s->d, 0));
    }
    GW_TRY(add_each(l, "mlp.gate_proj.weight", s->f, s->d, 0));
    GW_TRY(add_each(l, "mlp.down_proj.weight", s->d, s->f, 0));
    GW_TRY(add_each(l, "mlp.up_proj.weight", s->f, s->d, 0));
    if (old) {
        GW_TRY(add(l, "model.norm.weight", -1, 0, s->d, 0));
        l->at += (uint64_t)(s->context * (s->d / s->heads)) * sizeof(float); /* cosines, sines */
    }
    return s->tied ? GW_OK : add(l, "lm_head.weight", -1, s->v, s->d, 0);
}

int gw_is_llama2c(const char *path) {
    gw_file file;
    layout l = {0};
    if (!gw_text_ends(path, ".bin") || gw_file_open(path, path, &file) != GW_OK) {
        return 0;
    }
    int known = file.data != NULL && read_shape(file.data, file.size, &l.s);
    int named =
        known && l.s.version > 0; /* what is wrong with its size is said when it is opened */
    known = known && walk(&l) == GW_OK && l.at == file.size;
    gw_file_close(&file);
    return known || named;
}

gw_status gw_llama2c_load(gw_checkpoint *c, const char *path) {
    gw_file file;
    layout l = {.file = &file, .path = path};
    GW_TRY(gw_checkpoint_map(c, path, &file));
    if (file.data == NULL || !read_shape(file.data, file.size, &l.s)) {
        return gw_fail(GW_E_MAGIC, path, "is no checkpoint of llama2.c");
    }
    GW_TRY(walk(&l));
    if (l.at != file.size) {
        return gw_fail(GW_E_TRUNCATED, path,
                       "has %" PRIu64 " bytes, its header asks for %" PRIu64
                       "; is the download complete?",
                       (uint64_t)file.size, l.at);
    }
    l.c = c;
    GW_TRY(walk(&l));
    const char *slash = gw_os_last_slash(path);
    c->where = slash != NULL ? gw_arena_copy(c->arena, path, (size_t)(slash - path) + 1) : "./";
    c->config = json_pack("{s:[s],s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:b,s:i,s:i}",
                          "architectures", "LlamaForCausalLM", "hidden_size", (json_int_t)l.s.d,
                          "intermediate_size", (json_int_t)l.s.f, "num_hidden_layers",
                          (json_int_t)l.s.layers, "num_attention_heads", (json_int_t)l.s.heads,
                          "num_key_value_heads", (json_int_t)l.s.kv_heads, "vocab_size",
                          (json_int_t)l.s.v, "max_position_embeddings", (json_int_t)l.s.context,
                          "rms_norm_eps", 1e-5, "rope_theta", 10000.0, "tie_word_embeddings",
                          l.s.tied, "bos_token_id", 1, "eos_token_id", 2);
    return c->where != NULL && c->config != NULL ? GW_OK : gw_checkpoint_nomem(c);
}
