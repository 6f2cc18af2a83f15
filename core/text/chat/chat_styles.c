/* core/text/chat/chat_styles.c - THE table of chat forms, and how a model's own is recognised.
 *
 * Each row is the form that the model's publisher documents (model card, tokenizer_config.json);
 * docs/chat.md names them.
 */
#include <string.h>

#include "core/text/chat/chat.h"

#define U_BAR "\xEF\xBD\x9C"   /* U+FF5C, DeepSeek's bar */
#define U_SPACE "\xE2\x96\x81" /* U+2581, its space */

static const char coder_preset[] =
    "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by "
    "Deepseek Company, and you only answer questions related to computer science. For politically "
    "sensitive questions, security and privacy issues, and other non-computer science questions, "
    "you will refuse to answer\n";

enum { TRIM_ALL = GW_CHAT_TRIM_SYSTEM | GW_CHAT_TRIM_USER | GW_CHAT_TRIM_ANSWER };

enum {
    CHATML,
    LLAMA2,
    LLAMA3,
    MISTRAL_V1,
    MISTRAL_V3,
    MISTRAL_V3_TEKKEN,
    MISTRAL_V7,
    MISTRAL_V7_TEKKEN,
    ZEPHYR,
    GEMMA,
    PHI3,
    PHI4,
    DEEPSEEK_CODER,
    DEEPSEEK2,
    DEEPSEEK3,
    PLAIN,
    STYLES
};

static const gw_chat_style styles[STYLES] = {
    [CHATML] = {"chatml", "", "{<|im_start|>}system\n%{<|im_end|>}\n", "",
                "{<|im_start|>}user\n%{<|im_end|>}\n", "{<|im_start|>}assistant\n", "%",
                "{<|im_end|>}", "\n", "", "", 0},
    [LLAMA2] = {"llama2", "", NULL, "<<SYS>>\n%\n<</SYS>>\n\n", "{bos}[INST] % [/INST]", "", " % ",
                "{eos}", "", "", "", GW_CHAT_TRIM_WHOLE | GW_CHAT_TRIM_ANSWER},
    [LLAMA3] = {"llama3", "{bos}",
                "{<|start_header_id|>}system{<|end_header_id|>}\n\n%{<|eot_id|>}", "",
                "{<|start_header_id|>}user{<|end_header_id|>}\n\n%{<|eot_id|>}",
                "{<|start_header_id|>}assistant{<|end_header_id|>}\n\n", "%", "{<|eot_id|>}", "",
                "", "", TRIM_ALL},
    [MISTRAL_V1] = {"mistral-v1", "{bos}", NULL, "%\n\n", "[INST] % [/INST]", "", " %", "{eos}", "",
                    "", "", 0},
    [MISTRAL_V3] = {"mistral-v3", "{bos}", NULL, "%\n\n", "{[INST]} %{[/INST]}", "", " %", "{eos}",
                    "", "", "", GW_CHAT_TRIM_ANSWER},
    [MISTRAL_V3_TEKKEN] = {"mistral-v3-tekken", "{bos}", NULL, "%\n\n", "{[INST]}%{[/INST]}", "",
                           "%", "{eos}", "", "", "", 0},
    [MISTRAL_V7] = {"mistral-v7", "{bos}", "{[SYSTEM_PROMPT]} %{[/SYSTEM_PROMPT]}", "",
                    "{[INST]} %{[/INST]}", "", " %", "{eos}", "", "", "", 0},
    [MISTRAL_V7_TEKKEN] = {"mistral-v7-tekken", "{bos}", "{[SYSTEM_PROMPT]}%{[/SYSTEM_PROMPT]}", "",
                           "{[INST]}%{[/INST]}", "", "%", "{eos}", "", "", "", 0},
    [ZEPHYR] = {"zephyr", "", "{<|system|>}\n%{eos}\n", "", "{<|user|>}\n%{eos}\n",
                "{<|assistant|>}\n", "%", "{eos}", "\n", "", "", 0},
    [GEMMA] = {"gemma", "{bos}", NULL, "%\n\n", "{<start_of_turn>}user\n%{<end_of_turn>}\n",
               "{<start_of_turn>}model\n", "%", "{<end_of_turn>}", "\n", "", "",
               GW_CHAT_TRIM_USER | GW_CHAT_TRIM_ANSWER},
    [PHI3] = {"phi3", "", "{<|system|>}\n%{<|end|>}\n", "", "{<|user|>}\n%{<|end|>}\n",
              "{<|assistant|>}\n", "%", "{<|end|>}", "\n", "", "", GW_CHAT_STRIP},
    [PHI4] = {"phi4", "", "{<|im_start|>}system{<|im_sep|>}%{<|im_end|>}", "",
              "{<|im_start|>}user{<|im_sep|>}%{<|im_end|>}", "{<|im_start|>}assistant{<|im_sep|>}",
              "%", "{<|im_end|>}", "", "", "", 0},
    [DEEPSEEK_CODER] = {"deepseek-coder", "{bos}", "%", "", "### Instruction:\n%\n",
                        "### Response:\n", "%\n", "{<|EOT|>}", "\n", coder_preset, "", 0},
    [DEEPSEEK2] = {"deepseek2", "{bos}", "%\n\n", "", "User: %\n\n", "Assistant:", " %", "{eos}",
                   "", "", "", 0},
    [DEEPSEEK3] = {"deepseek3", "{bos}", "%", "", "{<" U_BAR "User" U_BAR ">}%",
                   "{<" U_BAR "Assistant" U_BAR ">}", "%",
                   "{<" U_BAR "end" U_SPACE "of" U_SPACE "sentence" U_BAR ">}", "", "", "", 0},
    [PLAIN] = {"plain", "", "%\n\n", "", "User: %\n", "Assistant:", " %", "", "\n", "",
               "\nUser:", 0},
};

/* ---- names ------------------------------------------------------------------------------- */

const gw_chat_style *gw_chat_style_at(size_t i) { return i < STYLES ? &styles[i] : NULL; }

const char *gw_chat_style_name(size_t i) {
    static const char *const families[] = {"mistral", "deepseek"};
    return i < STYLES ? styles[i].name : i < STYLES + 2 ? families[i - STYLES] : NULL;
}

int32_t gw_chat_marker(const gw_vocab *vocab, const char *spelling, size_t bytes) {
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        const gw_vocab_token *t = &vocab->tokens[i];
        if (t->bytes == bytes && t->kind != GW_TOKEN_UNUSED && t->kind != GW_TOKEN_BYTE &&
            memcmp(t->text, spelling, bytes) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

static int has(const gw_vocab *vocab, const char *spelling) {
    return gw_chat_marker(vocab, spelling, strlen(spelling)) >= 0;
}

static const gw_chat_style *mistral(const gw_vocab *vocab) {
    int tekken = vocab->kind == GW_VOCAB_BYTE_BPE;
    if (has(vocab, "[SYSTEM_PROMPT]")) {
        return &styles[tekken ? MISTRAL_V7_TEKKEN : MISTRAL_V7];
    }
    if (has(vocab, "[INST]")) {
        return &styles[tekken ? MISTRAL_V3_TEKKEN : MISTRAL_V3];
    }
    return &styles[MISTRAL_V1];
}

static const gw_chat_style *deepseek(const gw_vocab *vocab) {
    return &styles[has(vocab, "<" U_BAR "User" U_BAR ">") ? DEEPSEEK3
                   : has(vocab, "<|EOT|>")                ? DEEPSEEK_CODER
                                                          : DEEPSEEK2];
}

/* Equal but for dashes and case. */
static int same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        a += strspn(a, "-");
        b += strspn(b, "-");
        char c = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
        if (c != *b) {
            return 0;
        }
        if (c == '\0') {
            return 1;
        }
    }
}

const gw_chat_style *gw_chat_style_named(const char *name, const gw_vocab *vocab) {
    if (same_name(name, "mistral")) {
        return mistral(vocab);
    }
    if (same_name(name, "deepseek")) {
        return deepseek(vocab);
    }
    for (size_t i = 0; i < STYLES; i++) {
        if (same_name(name, styles[i].name)) {
            return &styles[i];
        }
    }
    return NULL;
}

/* ---- recognition ------------------------------------------------------------------------- */

typedef struct jinja {
    const char *text;
    size_t bytes;
} jinja;

static int says(const jinja *t, const char *word) {
    return memmem(t->text, t->bytes, word, strlen(word)) != NULL;
}

/* The markers decide; more telling ones come first. */
const gw_chat_style *gw_chat_style_of_template(const char *text, size_t bytes,
                                               const gw_vocab *vocab) {
    jinja t = {text, bytes};
    if (says(&t, "<|im_start|>")) {
        return &styles[says(&t, "<|im_sep|>") ? PHI4 : CHATML];
    }
    if (says(&t, "<|start_header_id|>") && says(&t, "<|eot_id|>")) {
        return &styles[LLAMA3];
    }
    if (says(&t, "[INST]")) {
        return says(&t, "<<SYS>>") ? &styles[LLAMA2] : mistral(vocab);
    }
    if (says(&t, "<start_of_turn>")) {
        return &styles[GEMMA];
    }
    if (says(&t, "<" U_BAR "Assistant" U_BAR ">")) {
        return &styles[DEEPSEEK3];
    }
    if (says(&t, "### Instruction:") && says(&t, "<|EOT|>")) {
        return &styles[DEEPSEEK_CODER];
    }
    if (says(&t, "<|assistant|>") && says(&t, "<|user|>") && !says(&t, "[gMASK]")) {
        return says(&t, "<|end|>")                                  ? &styles[PHI3]
               : says(&t, "eos_token") || says(&t, "<|endoftext|>") ? &styles[ZEPHYR]
                                                                    : NULL;
    }
    if (says(&t, "User: ") && says(&t, "Assistant:") && says(&t, "eos_token")) {
        return &styles[DEEPSEEK2];
    }
    return NULL;
}

const gw_chat_style *gw_chat_style_of_vocab(const gw_vocab *vocab) {
    if (has(vocab, "<|im_start|>") && has(vocab, "<|im_end|>")) {
        return &styles[has(vocab, "<|im_sep|>") ? PHI4 : CHATML];
    }
    if (has(vocab, "<|start_header_id|>") && has(vocab, "<|eot_id|>")) {
        return &styles[LLAMA3];
    }
    if (has(vocab, "<start_of_turn>") && has(vocab, "<end_of_turn>")) {
        return &styles[GEMMA];
    }
    if (has(vocab, "<" U_BAR "User" U_BAR ">")) {
        return &styles[DEEPSEEK3];
    }
    if (has(vocab, "<|assistant|>") && has(vocab, "<|end|>")) {
        return &styles[PHI3];
    }
    return has(vocab, "[INST]") ? mistral(vocab) : &styles[PLAIN];
}
