/* core/text/tokens/vocab_sentencepiece.c - reads a tokenizer.model: the protobuf message ModelProto
 * of SentencePiece (sentencepiece_model.proto), of which a few fields matter here. */
#include "core/text/tokens/vocab.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/base/reader.h"

/* ---- protobuf ---------------------------------------------------------------------------- */

typedef struct field {
    uint64_t number, value; /* value: of varints and fixed numbers */
    unsigned wire;          /* 0 varint, 1 eight bytes, 2 a stretch of bytes, 5 four bytes */
    gw_reader body;         /* of wire type 2 */
} field;

static int read_varint(gw_reader *r, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *p = gw_reader_take(r, 1);
        if (p == NULL) {
            return 0;
        }
        value |= (uint64_t)(*p & 0x7F) << shift;
        if (*p < 0x80) {
            *out = value;
            return 1;
        }
    }
    return 0;
}

static gw_status read_field(const char *where, gw_reader *r, field *f) {
    uint64_t at = r->at, key, length;
    if (!read_varint(r, &key)) {
        return gw_fail(GW_E_TRUNCATED, where, "ends inside a field at byte %llu of a message",
                       (unsigned long long)at);
    }
    f->number = key >> 3;
    f->wire = (unsigned)(key & 7);
    int ok = 0;
    switch (f->wire) {
    case 0:
        ok = read_varint(r, &f->value);
        break;
    case 1:
        ok = gw_reader_u64(r, &f->value);
        break;
    case 2:
        if (read_varint(r, &length)) {
            const uint8_t *p = gw_reader_take(r, length);
            ok = p != NULL;
            f->body = gw_reader_of(p, ok ? length : 0);
        }
        break;
    case 5: {
        uint32_t four = 0;
        ok = gw_reader_u32(r, &four);
        f->value = four;
        break;
    }
    default:
        return gw_fail(GW_E_SYNTAX, where, "not a SentencePiece model: wire type %u", f->wire);
    }
    return ok ? GW_OK
              : gw_fail(GW_E_TRUNCATED, where, "field %llu ends beyond its message",
                        (unsigned long long)f->number);
}

enum { PIECES_MAX = 1 << 21 };

/* ---- the messages ------------------------------------------------------------------------ */

typedef struct model { /* with the defaults of the format */
    uint64_t n_pieces, type, suffix;
    gw_reader names[4]; /* unk, bos, eos, pad */
    int escape;
} model;

static gw_status want_wire(const char *where, const field *f, unsigned wire, const char *what) {
    return f->wire == wire ? GW_OK
                           : gw_fail(GW_E_TYPE, where, "%s has the wire type %u, %u is meant", what,
                                     f->wire, wire);
}

static gw_status read_trainer(const char *where, gw_reader body, model *m, gw_vocab *v) {
    field f = {0};
    while (gw_reader_left(&body) > 0) {
        GW_TRY(read_field(where, &body, &f));
        switch (f.number) {
        case 3:
            GW_TRY(want_wire(where, &f, 0, "the model type"));
            m->type = f.value;
            break;
        case 24:
            m->suffix = f.value;
            break;
        case 35:
            v->byte_fallback = f.value != 0;
            break;
        case 45:
        case 46:
        case 47:
        case 48:
            GW_TRY(want_wire(where, &f, 2, "the name of a special token"));
            m->names[f.number - 45] = f.body;
            break;
        default:
            break;
        }
    }
    return GW_OK;
}

static gw_status read_normalizer(const char *where, gw_reader body, model *m, gw_vocab *v) {
    field f = {0};
    while (gw_reader_left(&body) > 0) {
        GW_TRY(read_field(where, &body, &f));
        switch (f.number) {
        case 2:
            GW_TRY(want_wire(where, &f, 2, "the character map"));
            if (f.body.size > 0) {
                v->charsmap_bytes = (size_t)f.body.size;
                v->charsmap = (uint8_t *)gw_arena_copy(v->arena, f.body.data, v->charsmap_bytes);
                if (v->charsmap == NULL) {
                    return gw_fail(GW_E_NOMEM, where, "no memory for the character map");
                }
            }
            break;
        case 3:
            v->add_space_prefix = f.value != 0;
            break;
        case 4:
            v->remove_extra_spaces = f.value != 0;
            break;
        case 5:
            m->escape = f.value != 0;
            break;
        default:
            break;
        }
    }
    return GW_OK;
}

static gw_status read_piece(const char *where, gw_reader body, gw_vocab *v) {
    gw_vocab_token *t = &v->tokens[v->n_tokens];
    field f = {0};
    t->kind = GW_TOKEN_NORMAL;
    while (gw_reader_left(&body) > 0) {
        GW_TRY(read_field(where, &body, &f));
        if (f.number == 1) {
            GW_TRY(want_wire(where, &f, 2, "a piece"));
            if (f.body.size > UINT32_MAX) {
                return gw_fail(GW_E_LIMIT, where, "piece %zu is too long", v->n_tokens);
            }
            t->bytes = (uint32_t)f.body.size;
            t->text = gw_arena_copy(v->arena, f.body.data, t->bytes);
            if (t->text == NULL) {
                return gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
            }
        } else if (f.number == 2) {
            GW_TRY(want_wire(where, &f, 5, "a score"));
            uint32_t bits = (uint32_t)f.value;
            float score;
            memcpy(&score, &bits, sizeof bits);
            t->score = (double)score;
        } else if (f.number == 3) {
            GW_TRY(want_wire(where, &f, 0, "the type of a piece"));
            if (f.value < GW_TOKEN_NORMAL || f.value > GW_TOKEN_BYTE) {
                return gw_fail(GW_E_METADATA, where, "piece %zu has the unknown type %llu",
                               v->n_tokens, (unsigned long long)f.value);
            }
            t->kind = (uint8_t)f.value;
        }
    }
    if (t->bytes == 0) {
        return gw_fail(GW_E_METADATA, where, "piece %zu has no text", v->n_tokens);
    }
    v->n_tokens++;
    return GW_OK;
}

/* First walk: how many pieces there are, and the two specs. */
static gw_status read_specs(const char *where, gw_reader r, model *m, gw_vocab *v) {
    field f = {0};
    while (gw_reader_left(&r) > 0) {
        GW_TRY(read_field(where, &r, &f));
        if (f.number > 100000 || f.number == 0) {
            return gw_fail(GW_E_SYNTAX, where, "not a SentencePiece model: field %llu",
                           (unsigned long long)f.number);
        }
        if (f.number >= 1 && f.number <= 3) {
            GW_TRY(want_wire(where, &f, 2, "a message of the model"));
        }
        m->n_pieces += f.number == 1;
        if (f.number == 2) {
            GW_TRY(read_trainer(where, f.body, m, v));
        } else if (f.number == 3) {
            GW_TRY(read_normalizer(where, f.body, m, v));
        }
    }
    static const char *const TYPES[] = {"0", "Unigram", "BPE", "word", "character"};
    if (m->n_pieces == 0) {
        return gw_fail(GW_E_METADATA, where, "the SentencePiece model has no pieces");
    }
    if (m->n_pieces > PIECES_MAX) {
        return gw_fail(GW_E_LIMIT, where, "%llu pieces; at most %d are handled",
                       (unsigned long long)m->n_pieces, (int)PIECES_MAX);
    }
    if (m->type != 1 && m->type != 2) {
        return gw_fail(
            GW_E_UNSUPPORTED, where,
            "a SentencePiece model of type %s; only BPE and Unigram models are supported",
            m->type < 5 ? TYPES[m->type] : "unknown");
    }
    v->kind = m->type == 1 ? GW_VOCAB_SPM_UNIGRAM : GW_VOCAB_SPM_BPE;
    if (m->suffix != 0 || !m->escape) {
        return gw_fail(GW_E_UNSUPPORTED, where, "a SentencePiece model with %s is not supported",
                       m->suffix != 0 ? "treat_whitespace_as_suffix" : "escape_whitespaces off");
    }
    return GW_OK;
}

/* Second walk. */
static gw_status read_pieces(const char *where, gw_reader r, const model *m, gw_vocab *v) {
    field f = {0};
    v->tokens = gw_arena_array(v->arena, (size_t)m->n_pieces, sizeof *v->tokens);
    if (v->tokens == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for %llu pieces",
                       (unsigned long long)m->n_pieces);
    }
    while (gw_reader_left(&r) > 0) {
        GW_TRY(read_field(where, &r, &f));
        if (f.number == 1) {
            GW_TRY(read_piece(where, f.body, v));
        }
    }
    return GW_OK;
}

static gw_status find_special(const char *where, const model *m, gw_vocab *v) {
    int32_t *ids[4] = {&v->unk, &v->bos, &v->eos, &v->pad};
    gw_map *map = gw_map_new();
    if (map == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
    }
    gw_status status = GW_OK;
    for (size_t i = 0; i < v->n_tokens; i++) {
        const gw_vocab_token *t = &v->tokens[i];
        gw_map_result added = gw_map_add(map, t->text, t->bytes, i, NULL);
        if (added == GW_MAP_NOMEM) {
            GW_TRY_DONE(gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary"));
        }
        if (added == GW_MAP_PRESENT) {
            GW_TRY_DONE(gw_fail(GW_E_DUPLICATE, where, "piece %zu, \"%.*s\", occurs twice", i,
                                t->bytes > 40 ? 40 : (int)t->bytes, t->text));
        }
        if (t->kind == GW_TOKEN_UNKNOWN) {
            v->unk = (int32_t)i;
        }
    }
    for (size_t k = 1; k < 4; k++) {
        size_t id;
        if (gw_map_find(map, m->names[k].data, (size_t)m->names[k].size, &id) &&
            v->tokens[id].kind == GW_TOKEN_CONTROL) {
            *ids[k] = (int32_t)id;
        }
    }
    v->add_bos = v->bos >= 0;
done:
    gw_map_free(map);
    return status;
}

gw_status gw_vocab_read_sentencepiece(const char *where, const void *bytes, size_t n,
                                      gw_vocab *out) {
    model m = {.type = 1, .escape = 1};
    m.names[0] = gw_reader_of("<unk>", 5);
    m.names[1] = gw_reader_of("<s>", 3);
    m.names[2] = gw_reader_of("</s>", 4);
    m.names[3] = gw_reader_of("<pad>", 5);
    gw_vocab v;
    gw_vocab_init(&v);
    v.kind = GW_VOCAB_SPM_BPE;
    v.add_space_prefix = v.remove_extra_spaces = 1;
    gw_status status = GW_OK;
    v.arena = gw_arena_new();
    if (v.arena == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
    }
    gw_reader all = gw_reader_of(bytes, n);
    GW_TRY_DONE(n == 0 ? gw_fail(GW_E_TRUNCATED, where, "the SentencePiece model is empty")
                       : GW_OK);
    GW_TRY_DONE(read_specs(where, all, &m, &v));
    GW_TRY_DONE(read_pieces(where, all, &m, &v));
    GW_TRY_DONE(find_special(where, &m, &v));
    GW_TRY_DONE(gw_vocab_check(where, &v));
    *out = v;
done:
    if (status != GW_OK) {
        gw_vocab_free(&v);
    }
    return status;
}
