/* core/text/tokens/vocab_llama2c.c - tokenizer.bin of llama2.c: the longest token's length, then of
 * each token a score (float), its length and its bytes, spaces as spaces. A SentencePiece BPE
 * vocabulary, whose kinds of tokens follow from their places and forms.
 */
#include <string.h>

#include "core/base/reader.h"
#include "core/tensor/arith.h"
#include "core/text/tokens/vocab.h"

enum { TOKENS_MAX = 1 << 22 };

/* U+2581 for every space, in the arena. */
static const char *with_marks(gw_arena *arena, const char *text, size_t n, uint32_t *bytes) {
    char *out = gw_arena_alloc(arena, 3 * n + 1), *to = out;
    for (size_t i = 0; out != NULL && i < n; i++) {
        if (text[i] == ' ') {
            memcpy(to, "\xe2\x96\x81", 3);
            to += 3;
        } else {
            *to++ = text[i];
        }
    }
    *bytes = out != NULL ? (uint32_t)(to - out) : 0;
    return out;
}

static gw_status read_token(const char *where, gw_reader *r, gw_vocab *v, size_t i) {
    static const char *const frame[] = {"<unk>", "<s>", "</s>"};
    gw_vocab_token *t = &v->tokens[i];
    uint32_t score, bytes;
    const uint8_t *text = NULL;
    if (gw_reader_u32(r, &score) && gw_reader_u32(r, &bytes)) {
        text = gw_reader_take(r, bytes);
    }
    if (text == NULL) {
        return gw_fail(GW_E_TRUNCATED, where, "ends inside token %zu", i);
    }
    *t = (gw_vocab_token){.score = (double)GW_F32_FROM_BITS(score), .kind = GW_TOKEN_NORMAL};
    t->text = with_marks(v->arena, (const char *)text, bytes, &t->bytes);
    if (i < 3) {
        t->kind = i == 0 ? GW_TOKEN_UNKNOWN : GW_TOKEN_CONTROL;
        t->text = frame[i];
        t->bytes = (uint32_t)strlen(frame[i]);
    } else if (i < 259 && t->bytes == 6 && memcmp(text, "<0x", 3) == 0) {
        t->kind = GW_TOKEN_BYTE;
    }
    return t->text != NULL ? GW_OK : gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
}

static size_t count_tokens(gw_reader r) {
    size_t n = 0;
    uint32_t score, bytes;
    while (gw_reader_u32(&r, &score) && gw_reader_u32(&r, &bytes) &&
           gw_reader_take(&r, bytes) != NULL) {
        n++;
    }
    return gw_reader_left(&r) == 0 ? n : n + 1; /* what is cut off is named when it is read */
}

/* A vocabulary without a token for every byte has none for any. */
static void settle_bytes(gw_vocab *v) {
    size_t n = 0;
    for (size_t i = 0; i < v->n_tokens; i++) {
        n += v->tokens[i].kind == GW_TOKEN_BYTE;
    }
    v->byte_fallback = n == 256;
    for (size_t i = 0; !v->byte_fallback && i < v->n_tokens; i++) {
        uint8_t kind = v->tokens[i].kind;
        v->tokens[i].kind = kind == GW_TOKEN_BYTE ? GW_TOKEN_NORMAL : kind;
    }
}

gw_status gw_vocab_read_llama2c(const char *where, const void *bytes, size_t n, gw_vocab *out) {
    gw_reader r = gw_reader_of(bytes, n);
    uint32_t longest;
    gw_vocab v;
    gw_vocab_init(&v);
    if (!gw_reader_u32(&r, &longest) || gw_reader_left(&r) == 0) {
        return gw_fail(GW_E_TRUNCATED, where, "is no tokenizer of llama2.c");
    }
    size_t count = count_tokens(r);
    if (count < 3 || count > TOKENS_MAX) {
        return gw_fail(GW_E_METADATA, where, "has %zu tokens", count);
    }
    v.arena = gw_arena_new();
    v.tokens = v.arena != NULL ? gw_arena_array(v.arena, count, sizeof *v.tokens) : NULL;
    gw_status status =
        v.tokens != NULL ? GW_OK : gw_fail(GW_E_NOMEM, where, "no memory for the vocabulary");
    for (size_t i = 0; i < count && status == GW_OK; i++) {
        status = read_token(where, &r, &v, i);
    }
    v.kind = GW_VOCAB_SPM_BPE;
    v.n_tokens = count;
    v.unk = 0;
    v.bos = 1;
    v.eos = 2;
    v.add_bos = v.add_space_prefix = 1;
    settle_bytes(&v);
    status = status == GW_OK ? gw_vocab_check(where, &v) : status;
    if (status != GW_OK) {
        gw_vocab_free(&v);
        return status;
    }
    *out = v;
    return GW_OK;
}
