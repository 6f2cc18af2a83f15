/* tests/fuzz/fuzz_stop.c - stop strings: however a text is cut, the same comes out. Banned strings:
 * whatever tokens come, none is in the text that stays. Input: the number of strings, each with its
 * length before it, then the text; its bytes are also the tokens. */
#include <stdio.h>

#include "core/engine/sampling/ban.h"
#include "include/godwit.h"
#include "tests/fuzz/fuzz.h"

enum { STRINGS = 6, BYTES = 256, WORDS = 16, TOKENS = BYTES + WORDS };

typedef struct outcome {
    char *text;
    size_t n;
    int hit;
} outcome;

static outcome run(const char *const *texts, size_t n_texts, const char *text, size_t n,
                   size_t piece) {
    outcome o = {.text = malloc(n + 1), .hit = -1};
    gw_stop *stop = NULL;
    gw_status status = gw_stop_new(texts, n_texts, &stop);
    fuzz_judge(status);
    for (size_t at = 0; status == GW_OK && at <= n && o.hit < 0; at += piece) {
        size_t take = n - at < piece ? n - at : piece, bytes = 0;
        const char *safe = NULL;
        status = gw_stop_push(stop, text + at, take, at + piece > n, &safe, &bytes, &o.hit);
        fuzz_judge(status);
        if (status == GW_OK && bytes > n - o.n) {
            abort();
        }
        if (status == GW_OK && bytes > 0) {
            memcpy(o.text + o.n, safe, bytes);
            o.n += bytes;
        }
    }
    gw_stop_free(stop);
    return o;
}

/* ---- banned strings ---------------------------------------------------------------------------
 */

/* Every byte as a token, and some longer ones. */
static const gw_tokenizer *open_tokenizer(void) {
    static const char *const words[WORDS] = {"ab", "ba",   "aab", "bab", "abab", "a",
                                             "b",  "xx",   " th", "the", "he ",  "e t",
                                             "h",  "\xC3", "ahe", "</s>"};
    static gw_vocab_token tokens[TOKENS];
    static char spelled[BYTES][8];
    static gw_vocab vocab;
    static gw_tokenizer *tokenizer;
    if (tokenizer != NULL) {
        return tokenizer;
    }
    gw_vocab_init(&vocab);
    vocab.kind = GW_VOCAB_SPM_BPE;
    for (int i = 0; i < BYTES; i++) {
        snprintf(spelled[i], sizeof spelled[i], "<0x%02X>", (unsigned)i);
        tokens[i] = (gw_vocab_token){.text = spelled[i], .bytes = 6, .kind = GW_TOKEN_BYTE};
    }
    for (int i = 0; i < WORDS; i++) {
        tokens[BYTES + i] = (gw_vocab_token){
            .text = words[i],
            .bytes = (uint32_t)strlen(words[i]),
            .kind = i == WORDS - 1 ? GW_TOKEN_CONTROL : GW_TOKEN_USER,
        };
    }
    vocab.tokens = tokens;
    vocab.n_tokens = TOKENS;
    vocab.eos = TOKENS - 1;
    if (gw_vocab_check("fuzz", &vocab) != GW_OK || gw_tokenizer_new(&vocab, &tokenizer) != GW_OK) {
        abort();
    }
    return tokenizer;
}

static int allowed(const gw_ban *ban, int32_t id, int32_t pos) {
    gw_candidate one = {.token = id};
    gw_candidates list = {.at = &one, .n = 1};
    return gw_ban_filter(ban, &list, pos) == 0;
}

static void search(const gw_tokenizer *t, const int32_t *ids, size_t n, const char *const *texts,
                   size_t n_texts) {
    gw_text_stream *stream = NULL;
    char *text = malloc(8 * n + 1);
    size_t all = 0;
    fuzz_judge(gw_text_stream_new(t, &stream));
    for (size_t i = 0; i < n; i++) {
        const char *part;
        size_t bytes;
        if (gw_text_stream_push(stream, ids[i], &part, &bytes) != GW_OK || bytes > 8 * n - all) {
            abort();
        }
        memcpy(text + all, part, bytes);
        all += bytes;
    }
    for (size_t i = 0; i < n_texts; i++) {
        size_t bytes = strlen(texts[i]);
        for (size_t at = 0; at + bytes <= all; at++) {
            if (memcmp(text + at, texts[i], bytes) == 0) {
                abort();
            }
        }
    }
    gw_text_stream_free(stream);
    free(text);
}

/* A token that may not come, or is taken back, is passed over; now and then all held ones stay. */
static void ban(const char *const *texts, size_t n_texts, const char *text, size_t n) {
    const gw_tokenizer *t = open_tokenizer();
    gw_ban *b = NULL;
    gw_status status = gw_ban_make(t, TOKENS, texts, n_texts, 0, &b);
    fuzz_judge(status);
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    size_t kept = 0, stays = 0;
    if (status == GW_OK && gw_ban_start(b, NULL) != GW_OK) {
        abort();
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        int32_t byte = (unsigned char)text[i];
        int32_t id = byte < BYTES - WORDS ? byte : byte + WORDS; /* bytes that no text has */
        size_t back = 0;
        if (!allowed(b, id, (int32_t)kept)) {
            continue;
        }
        ids[kept++] = id;
        status = gw_ban_push(b, id, (int32_t)kept - 1, &back);
        fuzz_judge(status);
        if (back > kept - stays) {
            abort(); /* a token that was shown */
        }
        kept -= back;
        if (status == GW_OK && back > 0 && allowed(b, ids[kept], (int32_t)kept)) {
            abort(); /* it would come again */
        }
        if (status == GW_OK && i % 61 == 60) {
            status = gw_ban_release(b, i % 3);
        }
        stays = status == GW_OK ? kept - gw_ban_held(b) : stays;
    }
    if (b != NULL) {
        search(t, ids, status == GW_OK ? kept : stays, texts, n_texts);
    }
    gw_ban_free(b);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *texts[STRINGS];
    size_t count = n > 0 ? data[0] % STRINGS + 1 : 0, at = 1, made = 0;
    for (; made < count && at < n; made++) {
        size_t take = 1 + data[at] % 12u;
        at++;
        take = take < n - at ? take : n - at;
        texts[made] = calloc(take + 1, 1);
        for (size_t i = 0; i < take; i++) {
            texts[made][i] = data[at + i] != 0 ? (char)data[at + i] : 'x';
        }
        at += take;
        if (take == 0) {
            texts[made][0] = '\0'; /* refused */
        }
    }
    const char *text = (const char *)data + (at < n ? at : n);
    size_t bytes = at < n ? n - at : 0;
    outcome whole = run((const char *const *)texts, made, text, bytes, bytes + 1);
    for (size_t piece = 1; piece < 8; piece += 3) {
        outcome cut = run((const char *const *)texts, made, text, bytes, piece);
        if (cut.hit != whole.hit || cut.n != whole.n ||
            (whole.n > 0 && memcmp(cut.text, whole.text, whole.n) != 0)) {
            abort();
        }
        free(cut.text);
    }
    free(whole.text);
    ban((const char *const *)texts, made, text, bytes);
    while (made > 0) {
        free(texts[--made]);
    }
    return 0;
}
