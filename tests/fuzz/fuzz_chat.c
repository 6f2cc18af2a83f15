/* tests/fuzz/fuzz_chat.c - a chat form, a conversation, a stop string: no message becomes a
 * token of the form, and a text is cut at the same place however it comes. */
#include "core/text/chat/chat.h"
#include "tests/fuzz/fuzz.h"

static const char *const markers[] = {"<s>",
                                      "</s>",
                                      "<|im_start|>",
                                      "<|im_end|>",
                                      "<|eot_id|>",
                                      "<|start_header_id|>",
                                      "<|end_header_id|>",
                                      "[INST]",
                                      "[/INST]",
                                      "<|user|>",
                                      "<|assistant|>",
                                      "<|end|>",
                                      "<start_of_turn>",
                                      "<end_of_turn>"};
enum { MARKERS = sizeof markers / sizeof markers[0], TOKENS = 1 + MARKERS + 256 };

static gw_vocab_token tokens[TOKENS];
static char bytes_text[256][8];

/* <unk>, the markers, 256 byte tokens. kind: of the markers but <s> and </s>. */
static gw_vocab small_vocab(uint8_t kind) {
    gw_vocab v;
    gw_vocab_init(&v);
    v.kind = GW_VOCAB_SPM_BPE;
    tokens[0] = (gw_vocab_token){.text = "<unk>", .bytes = 5, .kind = GW_TOKEN_UNKNOWN};
    for (size_t i = 0; i < MARKERS; i++) {
        tokens[1 + i] = (gw_vocab_token){.text = markers[i],
                                         .bytes = (uint32_t)strlen(markers[i]),
                                         .kind = i < 2 ? GW_TOKEN_CONTROL : kind};
    }
    static const char hex[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; b++) {
        const char text[8] = {'<', '0', 'x', hex[b / 16], hex[b % 16], '>', 0, 0};
        memcpy(bytes_text[b], text, sizeof text);
        tokens[1 + MARKERS + b] =
            (gw_vocab_token){.text = bytes_text[b], .bytes = 6, .kind = GW_TOKEN_BYTE};
    }
    v.tokens = tokens;
    v.n_tokens = TOKENS;
    v.unk = 0;
    v.bos = 1;
    v.eos = 2;
    v.add_bos = 1;
    v.byte_fallback = 1;
    return v;
}

static size_t markers_in(const gw_chat *chat, const gw_chat_message *m, size_t n, int *failed) {
    int32_t *ids = NULL;
    size_t count = 0, found = 0;
    gw_status status = gw_chat_render(chat, m, n, 0, &ids, &count);
    fuzz_judge(status);
    *failed = status != GW_OK;
    for (size_t i = 0; status == GW_OK && i < count; i++) {
        if (ids[i] < 0 || ids[i] >= TOKENS) {
            abort();
        }
        found += ids[i] >= 1 && ids[i] <= MARKERS;
    }
    free(ids);
    return found;
}

static void fuzz_stop(const char *stop_text, const char *text, size_t n) {
    gw_stop *stop = NULL;
    size_t shown[2] = {0, 0};
    int hit[2] = {-1, -1};
    gw_status status = gw_stop_new(&stop_text, 1, &stop);
    fuzz_judge(status);
    for (int way = 0; way < 2 && status == GW_OK; way++) {
        gw_stop_reset(stop);
        for (size_t at = 0, step = way == 0 ? n + 1 : 1; at <= n && status == GW_OK; at += step) {
            size_t part = way == 0 ? n : at < n, safe_bytes = 0;
            const char *safe = "";
            status =
                gw_stop_push(stop, text + at, part, at + part >= n, &safe, &safe_bytes, &hit[way]);
            shown[way] += safe_bytes;
        }
    }
    if (status == GW_OK && (shown[0] != shown[1] || hit[0] != hit[1])) {
        abort();
    }
    gw_stop_free(stop);
}

/* A byte of choices; then texts that end in NUL: template, stop string, messages. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    enum { TEXTS = 8 };
    static const char *const roles[] = {"user", "assistant", "system"};
    static const char *const names[] = {NULL,    "chatml", "llama3", "llama2",
                                        "gemma", "phi3",   "zephyr", "mistral"};
    if (n < 2 || n > 1 << 14) {
        return 0;
    }
    char *copy = malloc(n);
    const char *text[TEXTS] = {NULL};
    size_t count = 0;
    memcpy(copy, data + 1, n - 1);
    copy[n - 1] = '\0';
    for (size_t at = 0; at < n && count < TEXTS; at += strlen(copy + at) + 1) {
        text[count++] = copy + at;
    }
    gw_vocab vocab = small_vocab(data[0] & 1 ? GW_TOKEN_USER : GW_TOKEN_CONTROL);
    gw_tokenizer *t = NULL;
    gw_chat *chat = NULL;
    if (gw_vocab_check("fuzz", &vocab) != GW_OK || gw_tokenizer_new(&vocab, &t) != GW_OK) {
        abort();
    }
    gw_status status =
        gw_chat_bind(&vocab, t, names[(data[0] >> 1) % 8], NULL, 0, &chat);
    fuzz_judge(status);
    if (status == GW_OK && count > 2) {
        gw_chat_message typed[TEXTS], calm[TEXTS];
        int failed = 0, calm_failed = 0;
        for (size_t i = 2; i < count; i++) {
            const char *role = roles[i == 2 && (data[0] & 64) ? 2 : (i + (data[0] >> 7)) % 2];
            typed[i - 2] = (gw_chat_message){role, text[i], strlen(text[i])};
            calm[i - 2] = (gw_chat_message){role, "x", 1};
        }
        size_t a = markers_in(chat, typed, count - 2, &failed);
        size_t b = markers_in(chat, calm, count - 2, &calm_failed);
        if (failed != calm_failed || a != b) {
            abort();
        }
        fuzz_stop(text[1], text[2], strlen(text[2]));
    }
    gw_chat_free(chat);
    gw_tokenizer_free(t);
    free(copy);
    return 0;
}
