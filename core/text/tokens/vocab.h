/* core/text/tokens/vocab.h - a vocabulary as plain data, whatever file it came from. */
#ifndef GW_TEXT_VOCAB_H
#define GW_TEXT_VOCAB_H

#include "core/base/arena.h"
#include "core/base/status.h"

typedef enum gw_vocab_kind {
    GW_VOCAB_SPM_BPE,  /* SentencePiece BPE: merge by score, U+2581 for space, byte fallback   */
    GW_VOCAB_BYTE_BPE, /* byte-level BPE: merge by rank, GPT-2 byte alphabet                   */
    GW_VOCAB_RANK_BPE  /* plain or SentencePiece-style text with an explicit merge list
                          (tokenizer.json of Llama-2 kind, GGUF gemma4)                        */
} gw_vocab_kind;

typedef enum gw_token_kind { /* numbers as in GGUF */
                             GW_TOKEN_NORMAL = 1,
                             GW_TOKEN_UNKNOWN = 2,
                             GW_TOKEN_CONTROL = 3,
                             GW_TOKEN_USER = 4,
                             GW_TOKEN_UNUSED = 5,
                             GW_TOKEN_BYTE = 6
} gw_token_kind;

typedef struct gw_vocab_token {
    const char *text; /* bytes as stored in the file, not NUL-terminated */
    uint32_t bytes;
    uint8_t kind;           /* gw_token_kind                                     */
    uint8_t lstrip, rstrip; /* an added token that swallows spaces (tokenizer.json) */
    uint8_t byte;           /* kind BYTE: its value; settled by gw_vocab_check   */
    float score;            /* SPM                                               */
    uint8_t special;        /* found in text only under GW_TEXT_SPECIAL; gw_vocab_check sets it for
                               CONTROL and UNKNOWN tokens; USER tokens without it always are */
    uint8_t single_word;    /* an added token that must not touch a letter or digit */
    uint8_t normalized;     /* an added token looked for in the normalised text     */
} gw_vocab_token;

typedef struct gw_vocab_merge { /* rank = index; texts as stored */
    const char *left, *right;
    uint32_t left_bytes, right_bytes;
} gw_vocab_merge;

typedef enum gw_split_rule {                    /* what becomes of the matches of a pattern */
                             GW_SPLIT_ISOLATED, /* each is a piece, and so is what lies between */
                             GW_SPLIT_REMOVED,  /* only what lies between is left               */
                             GW_SPLIT_WITH_PREVIOUS, /* a match ends the piece before it */
                             GW_SPLIT_WITH_NEXT, /* a match begins the piece after it            */
                             GW_SPLIT_CONTIGUOUS /* neighbouring matches are one piece           */
} gw_split_rule;

typedef struct gw_vocab_split {
    const char *pattern; /* regular expression, NUL-terminated */
    gw_split_rule rule;
    int literal; /* the pattern is plain text                  */
    int invert;  /* matches and what lies between change roles */
} gw_vocab_split;

typedef struct gw_vocab {
    gw_vocab_kind kind;
    gw_vocab_token *tokens;
    size_t n_tokens;
    gw_vocab_merge *merges;
    size_t n_merges;
    /* Pre-tokenizer: a known name ("gpt-2", "llama-bpe", ...: known.h), or, where `pre` is empty,
     * n_splits patterns applied one after the other. */
    char pre[48];
    gw_vocab_split *splits;
    size_t n_splits;
    int32_t bos, eos, unk, pad; /* -1: none */
    int32_t end[16];            /* every id that ends a text (eos, end of turn); n_end of them;
                                   gw_vocab_check adds eos and known ends of a turn */
    int n_end;
    int add_bos, add_eos;
    int add_space_prefix; /* a space before the text, and again after a special token  */
    int space_if_none;    /* ... where the text does not begin with one                */
    int space_first_only; /* ... only at the very beginning                            */
    int space_lines;      /* RANK_BPE: ... and at the beginning of every line           */
    int escape_spaces;    /* RANK_BPE: a space is written U+2581 (SPM always does)     */
    int strip_start;      /* decoding drops: 0 nothing, 1 one leading space, 2 every leading space
                             of the first token. gw_vocab_check settles it for SPM     */
    int remove_extra_spaces; /* SPM normalizer                                            */
    int byte_fallback;
    int fuse_unk;            /* neighbouring unknown characters are one unk token              */
    int ignore_merges;       /* a word that is a token is taken whole (Llama-3)                */
    int nfc;                 /* normalise to NFC first (Qwen2)                                 */
    int nfkc;                /* normalise to NFKC first                                        */
    const uint8_t *charsmap; /* SentencePiece precompiled_charsmap; NULL: identity       */
    size_t charsmap_bytes;
    char note[160];  /* what of the file is not used, for people; "": nothing    */
    gw_arena *arena; /* owner of tokens, merges, splits and every text; NULL: borrowed    */
} gw_vocab;

/* A vocabulary without tokens: every id is -1. */
void gw_vocab_init(gw_vocab *vocab);
/* Frees the arena and empties *vocab; accepts NULL. */
void gw_vocab_free(gw_vocab *vocab);

/* Readers. Each checks counts, ids, byte tokens, scores, merges (GW_E_METADATA, GW_E_DUPLICATE,
 * GW_E_LIMIT ... name the token). *out is written on GW_OK only and freed by gw_vocab_free; the
 * bytes may go away after the call. GW_E_UNSUPPORTED names what is not built here (Unigram,
 * WordPiece, a normalizer). */
gw_status gw_vocab_read_sentencepiece(const char *where, const void *bytes, size_t n,
                                      gw_vocab *out);
gw_status gw_vocab_read_tokenizer_json(const char *where, const void *bytes, size_t n,
                                       gw_vocab *out);

/* For whoever fills a vocab by hand (core/model/gguf_vocab.c): checks and completes it. Byte tokens
 * get their value from "<0xHH>", token kind 0 counts as NORMAL. */
gw_status gw_vocab_check(const char *where, gw_vocab *vocab);

#endif
