/* core/text/tokens/vocab_json_decode.c - decoder and post-processor of a tokenizer.json. */
#include "core/text/tokens/vocab_json.h"

#include <string.h>

#include "core/text/tokens/normalize.h"

/* ---- decoder ----------------------------------------------------------------------------- */

static gw_status read_strip(const char *where, const json_t *step, gw_vocab *v) {
    int64_t start = 0, stop = 0;
    const char *text = " ";
    GW_TRY(gw_json_text(where, step, "content", &text));
    GW_TRY(gw_json_int(where, step, "start", &start));
    GW_TRY(gw_json_int(where, step, "stop", &stop));
    if (start < 0 || start > UINT32_MAX || stop < 0 || stop > UINT32_MAX) {
        return gw_json_step_refused(where, "with these counts, the decoder", "Strip");
    }
    gw_vocab_step how = {.kind = GW_CHANGE_STRIP_COUNT,
                         .text = text,
                         .text_bytes = strlen(text),
                         .start = (uint32_t)start,
                         .stop = (uint32_t)stop};
    return gw_vocab_add_step(v, &v->decode, &v->n_decode, &how);
}

static gw_status read_ctc(const char *where, const json_t *step, gw_vocab *v) {
    const char *pad = "<pad>", *space = "|";
    int clean = 1;
    GW_TRY(gw_json_text(where, step, "pad_token", &pad));
    GW_TRY(gw_json_text(where, step, "word_delimiter_token", &space));
    GW_TRY(gw_json_bool(where, step, "cleanup", &clean));
    return gw_vocab_add_decode(v, GW_CHANGE_CTC, clean ? GW_CHANGE_CLEAN : 0, pad, space);
}

static gw_status read_marks(const char *where, const json_t *step, gw_vocab *v) {
    const char *mark = GW_SPACE_MARK;
    int prefix = 1;
    GW_TRY(gw_json_text(where, step, "replacement", &mark));
    GW_TRY(gw_json_bool(where, step, "add_prefix_space", &prefix));
    const char *scheme = prefix ? "always" : "never";
    GW_TRY(gw_json_text(where, step, "prepend_scheme", &scheme));
    return gw_vocab_add_decode(v, GW_CHANGE_FROM_MARKS,
                               strcmp(scheme, "never") != 0 ? GW_CHANGE_FIRST : 0, mark, NULL);
}

static gw_status read_decoder(const char *where, const json_t *step, const char *type,
                              void *context) {
    gw_vocab *v = context;
    const char *text = NULL, *to = "";
    int flag = 1;
    if (strcmp(type, "ByteLevel") == 0) {
        return gw_vocab_add_decode(v, GW_CHANGE_FROM_LETTERS, 0, NULL, NULL);
    }
    if (strcmp(type, "ByteFallback") == 0) {
        return gw_vocab_add_decode(v, GW_CHANGE_FROM_BYTES, 0, NULL, NULL);
    }
    if (strcmp(type, "Fuse") == 0) {
        return gw_vocab_add_decode(v, GW_CHANGE_FUSE, 0, NULL, NULL);
    }
    if (strcmp(type, "Strip") == 0) {
        return read_strip(where, step, v);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return read_marks(where, step, v);
    }
    if (strcmp(type, "CTC") == 0) {
        return read_ctc(where, step, v);
    }
    if (strcmp(type, "Replace") == 0) {
        GW_TRY(gw_json_pattern(where, step, &text, &flag));
        GW_TRY(gw_json_text(where, step, "content", &to));
        return gw_vocab_add_decode(v, GW_CHANGE_REPLACE, flag ? 0 : GW_CHANGE_PATTERN, text, to);
    }
    if (strcmp(type, "WordPiece") == 0) {
        text = "##";
        GW_TRY(gw_json_text(where, step, "prefix", &text));
        GW_TRY(gw_json_bool(where, step, "cleanup", &flag));
        return gw_vocab_add_decode(v, GW_CHANGE_JOIN_PIECES, flag ? GW_CHANGE_CLEAN : 0, text,
                                   NULL);
    }
    if (strcmp(type, "BPEDecoder") == 0) {
        text = "</w>";
        GW_TRY(gw_json_text(where, step, "suffix", &text));
        return gw_vocab_add_decode(v, GW_CHANGE_JOIN_WORDS, 0, text, NULL);
    }
    return gw_json_step_refused(where, "the decoder", type);
}

gw_status gw_vocab_json_decoder(const char *where, const json_t *root, gw_vocab *v) {
    v->spaced_decode = !gw_json_has(root, "decoder");
    return gw_json_steps(where, root, "decoder", "decoders", read_decoder, v);
}

/* ---- post-processor ---------------------------------------------------------------------- */

enum { PARTS_MAX = 64 };

typedef struct frame {
    gw_vocab_part parts[PARTS_MAX];
    size_t n;
} frame;

static gw_status put(const char *where, frame *f, int64_t id, int64_t type) {
    if (f->n == PARTS_MAX || id > INT32_MAX || type < 0 || type > INT32_MAX) {
        return gw_fail(GW_E_LIMIT, where,
                       "the post-processor has too many parts, or a number in "
                       "it is too large");
    }
    f->parts[f->n++] = (gw_vocab_part){(int32_t)id, (int32_t)type};
    return GW_OK;
}

static gw_status keep(const char *where, const frame *f, gw_vocab *v, gw_vocab_part **out,
                      size_t *n) {
    *out = gw_arena_array(v->arena, f->n + 1, sizeof **out);
    if (*out == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for the post-processor");
    }
    memcpy(*out, f->parts, f->n * sizeof **out);
    *n = f->n;
    return GW_OK;
}

static gw_status put_special(const char *where, const json_t *step, const json_t *special,
                             int64_t type, frame *f) {
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *ids =
        name == NULL ? NULL
                     : json_object_get(
                           json_object_get(json_object_get(step, "special_tokens"), name), "ids");
    json_t *id;
    size_t i;
    if (json_array_size(ids) == 0) {
        return gw_fail(GW_E_METADATA, where, "the template token \"%.40s\" has no id",
                       name != NULL ? name : "");
    }
    json_array_foreach(ids, i, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0) {
            return gw_fail(GW_E_METADATA, where, "the template token \"%.40s\" has no id", name);
        }
        GW_TRY(put(where, f, json_integer_value(id), type));
    }
    return GW_OK;
}

static gw_status read_template(const char *where, const json_t *step, const char *key, frame *f) {
    json_t *list = NULL, *one;
    size_t i;
    GW_TRY(gw_json_array(where, step, key, &list));
    json_array_foreach(list, i, one) {
        const json_t *special = json_object_get(one, "SpecialToken");
        const json_t *sequence = json_object_get(one, "Sequence");
        int64_t type = 0;
        GW_TRY(gw_json_int(where, special != NULL ? special : sequence, "type_id", &type));
        if (special != NULL) {
            GW_TRY(put_special(where, step, special, type, f));
            continue;
        }
        const char *name = json_string_value(json_object_get(sequence, "id"));
        if (name == NULL || (strcmp(name, "A") != 0 && strcmp(name, "B") != 0)) {
            return gw_fail(GW_E_METADATA, where,
                           "part %zu of the template is neither a token nor a text", i);
        }
        GW_TRY(put(where, f, *name == 'A' ? GW_FRAME_TEXT : GW_FRAME_PAIR, type));
    }
    return GW_OK;
}

/* RobertaProcessing, BertProcessing: "cls" and "sep" are [text, id]. */
static gw_status read_cls_sep(const char *where, const json_t *step, int roberta, frame *single,
                              frame *pair) {
    const json_t *cls = json_array_get(json_object_get(step, "cls"), 1);
    const json_t *sep = json_array_get(json_object_get(step, "sep"), 1);
    if (!json_is_integer(cls) || !json_is_integer(sep) || json_integer_value(cls) < 0 ||
        json_integer_value(sep) < 0 || json_integer_value(cls) > INT32_MAX ||
        json_integer_value(sep) > INT32_MAX) {
        return gw_fail(GW_E_METADATA, where, "the post-processor has no ids for cls and sep");
    }
    int64_t begin = json_integer_value(cls), end = json_integer_value(sep);
    frame *both[2] = {single, pair};
    for (size_t k = 0; k < 2; k++) {
        GW_TRY(put(where, both[k], begin, 0));
        GW_TRY(put(where, both[k], GW_FRAME_TEXT, 0));
        GW_TRY(put(where, both[k], end, 0));
    }
    GW_TRY(roberta ? put(where, pair, end, 0) : GW_OK);
    GW_TRY(put(where, pair, GW_FRAME_PAIR, !roberta));
    return put(where, pair, end, !roberta);
}

/* The first token in front is bos, the last one behind is eos. */
static void find_ends(gw_vocab *v) {
    size_t n = v->n_single;
    if (n > 0 && v->single[0].id >= 0) {
        v->bos = v->single[0].id;
        v->add_bos = 1;
    }
    if (n > 1 && v->single[n - 1].id >= 0) {
        v->eos = v->single[n - 1].id;
        v->add_eos = 1;
    }
}

static gw_status read_frame(const char *where, const json_t *step, const char *type,
                            void *context) {
    gw_vocab *v = context;
    frame single = {.n = 0}, pair = {.n = 0};
    if (strcmp(type, "ByteLevel") == 0) {
        return GW_OK; /* only offsets */
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        GW_TRY(read_template(where, step, "single", &single));
        GW_TRY(read_template(where, step, "pair", &pair));
    } else if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        GW_TRY(read_cls_sep(where, step, *type == 'R', &single, &pair));
    } else {
        return gw_json_step_refused(where, "the post-processor", type);
    }
    if (v->n_single > 0) {
        return gw_json_step_refused(where, "behind another, the post-processor", type);
    }
    GW_TRY(keep(where, &single, v, &v->single, &v->n_single));
    GW_TRY(keep(where, &pair, v, &v->pair, &v->n_pair));
    find_ends(v);
    return GW_OK;
}

gw_status gw_vocab_json_frame(const char *where, const json_t *root, gw_vocab *v) {
    return gw_json_steps(where, root, "post_processor", "processors", read_frame, v);
}
