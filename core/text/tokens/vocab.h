/* core/text/tokens/vocab.h - a vocabulary as plain data, whatever file it came from. */
#ifndef GW_TEXT_VOCAB_H
#define GW_TEXT_VOCAB_H

#include "core/base/arena.h"
#include "core/base/status.h"

typedef enum gw_vocab_kind {
    GW_VOCAB_SPM_BPE,     /* SentencePiece BPE: merge by score, U+2581 for space, byte fallback   */
    GW_VOCAB_BYTE_BPE,    /* byte-level BPE: merge by rank, GPT-2 byte alphabet                   */
    GW_VOCAB_RANK_BPE,    /* plain or SentencePiece-style text with an explicit merge list
                             (tokenizer.json of Llama-2 kind, GGUF gemma4)                        */
    GW_VOCAB_BYTE_RANKS,  /* byte strings without merges: neighbours that make a token join, the
                             smallest score first (tekken.json, tiktoken)                       */
    GW_VOCAB_UNIGRAM,     /* the likeliest way to cut a word (Kudo 2018, arXiv:1804.10959)      */
    GW_VOCAB_SPM_UNIGRAM, /* the same with SentencePiece's normalizer, a text in one, in float  */
    GW_VOCAB_WORDPIECE,   /* the longest token from the left (BERT)                             */
    GW_VOCAB_WORDLEVEL,   /* a word is a token or unknown                                       */
    GW_VOCAB_LONGEST      /* byte strings: the longest token from the left, of the whole text
                             (RWKV)                                                             */
} gw_vocab_kind;

/* Normalized and decoded as SentencePiece does, not by steps. */
#define GW_VOCAB_IS_SPM(kind) ((kind) == GW_VOCAB_SPM_BPE || (kind) == GW_VOCAB_SPM_UNIGRAM)

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
    double score;           /* SPM, UNIGRAM: log probability; BYTE_RANKS: rank      */
    uint8_t special;        /* found in text only under GW_TEXT_SPECIAL; gw_vocab_check sets it for
                               CONTROL and UNKNOWN tokens; USER tokens without it always are */
    uint8_t single_word;    /* an added token that must not touch a letter or digit */
    uint8_t normalized;     /* an added token looked for in the normalised text     */
    uint8_t added_only;     /* an added token that the model itself does not know   */
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

typedef enum gw_change_kind { /* changes a text: normalizers, and pre-tokenizers that do so */
                              GW_CHANGE_NFC,
                              GW_CHANGE_NFD,
                              GW_CHANGE_NFKC,
                              GW_CHANGE_NFKD,
                              GW_CHANGE_LOWERCASE,
                              GW_CHANGE_STRIP_MARKS, /* category M goes (StripAccents) */
                              GW_CHANGE_STRIP,    /* white space at the ends: LEFT, RIGHT       */
                              GW_CHANGE_PREPEND,  /* `text` in front of a text that is not empty */
                              GW_CHANGE_REPLACE,  /* `text` (PATTERN: expression) becomes `to`  */
                              GW_CHANGE_NMT,      /* controls go, odd spaces become spaces      */
                              GW_CHANGE_BERT,     /* CLEAN, HAN, ACCENTS, LOWER, in this order  */
                              GW_CHANGE_CHARSMAP, /* `text` is a precompiled_charsmap           */
                              GW_CHANGE_LETTERS,  /* bytes become GPT-2's letters               */
                              /* Decoders: how the texts of tokens become one text. */
                              GW_CHANGE_FROM_LETTERS, /* the reverse (ByteLevel) */
                              GW_CHANGE_FROM_BYTES, /* <0xHH> is a byte (ByteFallback)            */
                              GW_CHANGE_FROM_MARKS, /* `text` is a space, none at the start (FIRST)
                                                     */
                              GW_CHANGE_JOIN_PIECES, /* spaces but before `text` (WordPiece), CLEAN
                                                      */
                              GW_CHANGE_JOIN_WORDS, /* `text` ends a word (BPEDecoder)            */
                              GW_CHANGE_CTC,  /* repeats and `text` go, `to` is a space; CLEAN */
                              GW_CHANGE_FUSE, /* what follows works on the whole            */
                              GW_CHANGE_STRIP_COUNT /* at most start, stop times `text` at the ends
                                                     */
} gw_change_kind;

enum { /* flags of steps */
       GW_CHANGE_LEFT = 1,
       GW_CHANGE_RIGHT = 2,
       GW_CHANGE_PATTERN = 4,
       GW_CHANGE_IF_NONE = 8, /* PREPEND: unless the text begins with it                    */
       GW_CHANGE_FIRST = 16,  /* PREPEND: only at the beginning of the whole text           */
       GW_CHANGE_LINES = 32,  /* PREPEND: unless the text is of newlines                    */
       GW_CHANGE_CLEAN = 64,
       GW_CHANGE_HAN = 128, /* Chinese characters get spaces around them                  */
       GW_CHANGE_ACCENTS = 256,
       GW_CHANGE_LOWER = 512
};

typedef struct gw_vocab_step {
    gw_change_kind kind;
    unsigned flags;
    const char *text, *to; /* NUL-terminated beyond their bytes */
    size_t text_bytes, to_bytes;
    uint32_t start, stop; /* STRIP_COUNT */
} gw_vocab_step;

typedef struct gw_vocab_split { /* a step of the pre-tokenizer */
    const char *pattern;        /* regular expression, NUL-terminated */
    gw_split_rule rule;
    int literal;                 /* the pattern is plain text                  */
    int invert;                  /* matches and what lies between change roles */
    const gw_vocab_step *change; /* not NULL: each piece changes so, nothing is cut */
} gw_vocab_split;

enum { GW_FRAME_TEXT = -1, GW_FRAME_PAIR = -2 };
typedef enum gw_fill_mark { /* of models that fill in text: fill.h */
                            GW_FILL_PREFIX,
                            GW_FILL_SUFFIX,
                            GW_FILL_MIDDLE,
                            GW_FILL_PAD,
                            GW_FILL_REPO,
                            GW_FILL_FILE,
                            GW_FILL_MARKS
} gw_fill_mark;

typedef struct gw_vocab_part { /* of what a text or a pair becomes: [CLS] A [SEP] B [SEP] */
    int32_t id;                /* a token, or GW_FRAME_TEXT, GW_FRAME_PAIR                  */
    int32_t type;              /* type id of its tokens                                   */
} gw_vocab_part;

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
    int32_t fill[GW_FILL_MARKS]; /* -1: none; gw_vocab_check finds those that no key named */
    int fill_suffix_first;       /* settled by gw_vocab_check: the suffix, then the prefix */
    int add_bos, add_eos;
    gw_vocab_part *single, *pair; /* the post-processor's templates; n 0: bos and eos as add_bos and
                                     add_eos say, `sep` between two texts */
    size_t n_single, n_pair;
    int32_t sep;           /* between the end of a text and its pair; -1: none         */
    gw_vocab_step *normal; /* normalizer, n_normal steps; not SPM                      */
    size_t n_normal;
    gw_vocab_step *decode; /* decoder, n_decode steps; not SPM. None: of BYTE_BPE
                              FROM_LETTERS, of RANK_BPE FROM_MARKS, else as they are      */
    size_t n_decode;
    int spaced_decode;       /* no decoder at all: tokens come with a space between      */
    int add_space_prefix;    /* SPM: a space before the text, and behind a special token */
    int space_first_only;    /* SPM: ... only at the very beginning                      */
    int remove_extra_spaces; /* SPM: its normalizer collapses them                       */
    int strip_start;         /* SPM, settled by gw_vocab_check: decoding drops 0 nothing, 1 one
                                leading space, 2 every leading space of the first token  */
    const uint8_t *charsmap; /* SPM: precompiled_charsmap; NULL: identity                */
    size_t charsmap_bytes;
    int byte_fallback;
    int byte_unk;              /* BYTE_BPE: a byte without a token is unknown, not dropped */
    int fuse_unk;              /* neighbouring unknown characters are one unk token       */
    int ignore_merges;         /* a word that is a token is taken whole (Llama-3)         */
    const char *inside_prefix; /* BPE, WORDPIECE: of tokens inside a word ("##"); NULL: "" */
    const char *word_suffix;   /* BPE: of tokens that end a word ("</w>"); NULL: ""       */
    size_t word_max;           /* WORDPIECE: a word of more characters is unknown; 0: 100 */
    char note[160];            /* what of the file is not used, for people; "": nothing    */
    gw_arena *arena; /* owner of tokens, merges, splits and every text; NULL: borrowed    */
} gw_vocab;

/* A vocabulary without tokens: every id is -1. */
void gw_vocab_init(gw_vocab *vocab);
/* Frees the arena and empties *vocab; accepts NULL. */
void gw_vocab_free(gw_vocab *vocab);

/* Readers. Each checks counts, ids, byte tokens, scores, merges (GW_E_METADATA, GW_E_DUPLICATE,
 * GW_E_LIMIT ... name the token). *out is written on GW_OK only and freed by gw_vocab_free; the
 * bytes may go away after the call. GW_E_UNSUPPORTED names what is not built here. */
gw_status gw_vocab_read_sentencepiece(const char *where, const void *bytes, size_t n,
                                      gw_vocab *out);
gw_status gw_vocab_read_tokenizer_json(const char *where, const void *bytes, size_t n,
                                       gw_vocab *out);
/* tokenizer.bin of llama2.c: SentencePiece BPE. */
gw_status gw_vocab_read_llama2c(const char *where, const void *bytes, size_t n, gw_vocab *out);
/* tekken.json of Mistral, v1 to v13. */
gw_status gw_vocab_read_tekken(const char *where, const void *bytes, size_t n, gw_vocab *out);
/* Lines of base64 and a rank. Special tokens and pre-tokenizer are the caller's to add
 * (gw_vocab_grow), then gw_vocab_check. */
gw_status gw_vocab_read_tiktoken(const char *where, const void *bytes, size_t n, gw_vocab *out);
/* vocab.txt of BERT: a token a line, "##" inside of words; in lower case.
 * gw_vocab_bert settles what tokenizer_config.json says otherwise. */
gw_status gw_vocab_read_vocab_txt(const char *where, const void *bytes, size_t n, gw_vocab *out);

/* RWKV's: lines of an id, from 1 on, a string or bytes as Python writes them, and how many bytes.
 */
gw_status gw_vocab_read_rwkv(const char *where, const void *bytes, size_t n, gw_vocab *out);
/* What stands between Python's quotes; characters 1: \x and \u are code points, 0: \x is a byte.
 * out has room for n bytes. Returns how many there are. */
size_t gw_vocab_unescape(const char *text, size_t n, int characters, char *out);

/* Normalizer and pre-tokenizer of BERT. accents: 1 they go, 0 they stay, -1 as lower says. */
gw_status gw_vocab_bert(const char *where, gw_vocab *vocab, int lower, int accents, int han);
/* Room for tokens up to n_tokens; new ones are unused and have no text. */
gw_status gw_vocab_grow(const char *where, gw_vocab *vocab, size_t n_tokens);
/* Appends to a list of steps in the vocabulary's arena, text and to copied (NULL: none). */
gw_status gw_vocab_add_step(gw_vocab *vocab, gw_vocab_step **list, size_t *n,
                            const gw_vocab_step *step);
/* The same of texts that end in a zero, to the normalizer's steps or the decoder's. */
gw_status gw_vocab_add_normal(gw_vocab *vocab, gw_change_kind kind, unsigned flags,
                              const char *text, const char *to);
gw_status gw_vocab_add_decode(gw_vocab *vocab, gw_change_kind kind, unsigned flags,
                              const char *text, const char *to);
/* Appends to the pre-tokenizer; the pattern and the step are borrowed. */
gw_status gw_vocab_add_split(gw_vocab *vocab, gw_vocab_split split);

/* For whoever fills a vocab by hand (core/model/gguf_vocab.c): checks and completes it. Byte tokens
 * get their value from "<0xHH>", token kind 0 counts as NORMAL. */
gw_status gw_vocab_check(const char *where, gw_vocab *vocab);
/* One more id that ends a text; less than 0, there already or no room: nothing. */
void gw_vocab_add_end(gw_vocab *vocab, int32_t id);

#endif
