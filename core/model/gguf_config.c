/* core/model/gguf_config.c - GGUF metadata as facts for the number lines of a spec: one JSON object
 * with the keys of the architecture. */
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "core/model/config.h"

enum { MOST_ELEMENTS = 4096 }; /* of an array: one for each layer */

static int is_text(gw_gguf_view view, const char *text) {
    return view.bytes == strlen(text) && memcmp(view.text, text, (size_t)view.bytes) == 0;
}

/* GGUF files that are no model by themselves (gguf-py, constants.py: GGUFType and MODEL_ARCH): what
 * they are, and what is meant instead. */
static gw_status refuse_other_kinds(const gw_gguf *g) {
    static const struct {
        const char *key, *value, *says;
    } rows[] = {
        {"general.type", "adapter",
         "is an adapter (LoRA), not a model: merge it into the model it was made for"},
        {"general.type", "mmproj",
         "is the image part of a model (mmproj), not a model: name the model's own .gguf file"},
        {"general.architecture", "clip",
         "is the image part of a model (mmproj), not a model: name the model's own .gguf file"},
        {"general.type", "imatrix",
         "is an importance matrix, not a model: it is for quantize --imatrix"},
        {"general.architecture", "imatrix",
         "is an importance matrix, not a model: it is for quantize --imatrix"},
        {"general.type", "controlvector", "is a control vector, not a model"},
        {"general.architecture", "controlvector", "is a control vector, not a model"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gw_gguf_view value = {"", 0};
        int found = 0;
        if (gw_gguf_text(g, rows[i].key, &value, &found) == GW_OK && found &&
            is_text(value, rows[i].value)) {
            return gw_fail(GW_E_METADATA, gw_gguf_where(g), "%s", rows[i].says);
        }
    }
    return GW_OK;
}

gw_status gw_config_gguf_architecture(const gw_gguf *g, int needed, char *out, size_t capacity) {
    gw_gguf_view name = {"", 0};
    int found;
    GW_TRY(needed >= 0 ? refuse_other_kinds(g) : GW_OK);
    GW_TRY(gw_gguf_text(g, "general.architecture", &name, &found));
    if ((needed && !found) || name.bytes >= capacity ||
        memchr(name.text, 0, (size_t)name.bytes) != NULL) {
        return gw_fail(GW_E_METADATA, gw_gguf_where(g), "general.architecture is %s",
                       found ? "not the name of an architecture" : "missing");
    }
    memcpy(out, name.text, (size_t)name.bytes);
    out[name.bytes] = '\0';
    return GW_OK;
}

/* Infinity and NaN as folders have them. */
static json_t *real_of(double x) {
    json_t *v = json_real(x);
    return v != NULL ? v
                     : json_pack("{s:s}", "__float__",
                                 x > 0.0   ? "Infinity"
                                 : x < 0.0 ? "-Infinity"
                                           : "NaN");
}

static json_t *number_of(gw_gguf_type type, gw_reader *r) {
    static const uint8_t bytes[GW_GGUF_TYPES] = {
        [GW_GGUF_U8] = 1,  [GW_GGUF_I8] = 1,  [GW_GGUF_U16] = 2, [GW_GGUF_I16] = 2,
        [GW_GGUF_U32] = 4, [GW_GGUF_I32] = 4, [GW_GGUF_F32] = 4, [GW_GGUF_BOOL] = 1,
        [GW_GGUF_U64] = 8, [GW_GGUF_I64] = 8, [GW_GGUF_F64] = 8};
    const uint8_t *p = gw_reader_take(r, bytes[type]);
    if (p == NULL) {
        return json_null();
    }
    uint64_t bits = gw_load_le(p, bytes[type]);
    uint32_t low = (uint32_t)bits;
    int shift = 64 - 8 * bytes[type];
    float f;
    double d;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &bits, sizeof d);
    switch (type) {
    case GW_GGUF_F32:
        return real_of((double)f);
    case GW_GGUF_F64:
        return real_of(d);
    case GW_GGUF_BOOL:
        return json_boolean(bits != 0);
    case GW_GGUF_I8:
    case GW_GGUF_I16:
    case GW_GGUF_I32:
    case GW_GGUF_I64:
        return json_integer((int64_t)(bits << shift) >> shift);
    default: /* beyond 63 bits: as large as can be, and out of every range */
        return json_integer(bits > INT64_MAX ? INT64_MAX : (int64_t)bits);
    }
}

static json_t *value_of(const gw_gguf_pair *p) {
    gw_reader r = p->value;
    if (p->type == GW_GGUF_TEXT) {
        return p->is_array ? NULL : json_stringn((const char *)r.data, (size_t)r.size);
    }
    if (!p->is_array) {
        return number_of(p->type, &r);
    }
    json_t *list = p->count <= MOST_ELEMENTS && p->type != GW_GGUF_ARRAY ? json_array() : NULL;
    for (uint64_t i = 0; list != NULL && i < p->count; i++) {
        json_array_append_new(list, number_of(p->type, &r));
    }
    return list;
}

/* What only tensors say: rows of the table of token types, of the output head, of a classifier and
 * of a projector's first matrix; whether q and k, or what goes into a projector, are normed, norms
 * have biases, what goes into matrices is clipped, and of mmproj files whether up and down have
 * changed names. */
static void add_rows(const gw_gguf *g, json_t *facts) {
    static const struct {
        const char *tensor, *key;
    } rows[] = {{"token_types.weight", "token_types"},
                {"output.weight", "head_rows"},
                {"cls.output.weight", "classes"},
                {"mm.1.weight", "vision.middle"},
                {"mm.input_norm.weight", "vision.input_norm"},
                {"v.blk.0.attn_q_norm.weight", "vision.qk_norm"},
                {"v.blk.0.ln1.bias", "vision.ln1_bias"},
                {"v.blk.0.attn_q.input_max", "vision.clipped"},
                {"v.blk.0.ffn_down.weight", "vision.ffn_down"}};
    for (size_t i = 0; i < gw_gguf_tensors(g); i++) {
        const gw_stored *t = gw_gguf_tensor(g, i);
        if (strcmp(t->name, "markov_w1.weight") == 0 && t->n_dim == 2) {
            json_object_set_new(facts, "markov_rank", json_integer(t->dim[1]));
        }
        if (strncmp(t->name, "blk.", 4) == 0 && gw_text_ends(t->name, ".attn_q_norm.weight")) {
            json_object_set_new(facts, "qk_norm", json_integer(1));
        }
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            if (strcmp(t->name, rows[k].tensor) == 0) {
                int64_t n = t->n_dim > 1 ? t->dim[0] : 1;
                json_object_set_new(facts, rows[k].key, json_integer(n));
            }
        }
    }
}

/* One embedding row per token: the list of tokens states the vocabulary's size. */
static gw_status add_vocab_size(const gw_gguf *g, json_t *facts) {
    gw_gguf_array tokens;
    int found;
    GW_TRY(gw_gguf_list(g, "tokenizer.ggml.tokens", GW_GGUF_TEXT, &tokens, &found));
    int64_t n = found && tokens.count <= INT64_MAX ? (int64_t)tokens.count : -1;
    for (size_t i = 0; i < gw_gguf_tensors(g) && n < 0; i++) {
        const gw_stored *t = gw_gguf_tensor(g, i);
        if (strcmp(t->name, "token_embd.weight") == 0 && t->n_dim == 2 &&
            json_object_get(facts, "vocab_size") == NULL) {
            n = t->dim[0];
        }
    }
    if (n >= 0) {
        json_object_set_new(facts, "vocab_size", json_integer(n));
    }
    return GW_OK;
}

/* The token that stands for those of a block to be drafted is one of the tokenizer's. */
static gw_status add_mask(const gw_gguf *g, json_t *facts) {
    int64_t id = 0;
    int found = 0;
    GW_TRY(gw_gguf_int(g, "tokenizer.ggml.mask_token_id", &id, &found));
    if (found && json_object_get(facts, "mask_token_id") == NULL) {
        json_object_set_new(facts, "mask_token_id", json_integer(id));
    }
    return GW_OK;
}

gw_status gw_config_gguf_facts(const gw_gguf *g, const char *architecture, json_t **out) {
    json_t *facts = json_object();
    size_t prefix = strlen(architecture);
    for (size_t i = 0; facts != NULL && i < gw_gguf_pairs(g); i++) {
        gw_gguf_pair p = gw_gguf_pair_at(g, i);
        char key[96];
        if (p.key.bytes <= prefix + 1 || p.key.bytes - prefix - 1 >= sizeof key ||
            memcmp(p.key.text, architecture, prefix) != 0 || p.key.text[prefix] != '.') {
            continue;
        }
        size_t n = (size_t)p.key.bytes - prefix - 1;
        memcpy(key, p.key.text + prefix + 1, n);
        key[n] = '\0';
        json_t *value = value_of(&p);
        if (value != NULL) {
            json_object_set_new(facts, key, value);
        }
    }
    if (facts == NULL) {
        return gw_fail(GW_E_NOMEM, gw_gguf_where(g), "no memory for the metadata");
    }
    add_rows(g, facts);
    gw_status status = add_vocab_size(g, facts);
    status = status == GW_OK && strcmp(architecture, "dflash") == 0 ? add_mask(g, facts) : status;
    if (status != GW_OK) {
        json_decref(facts);
        return status;
    }
    *out = facts;
    return GW_OK;
}
