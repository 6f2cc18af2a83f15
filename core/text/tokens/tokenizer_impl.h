/* core/text/tokens/tokenizer_impl.h - the tokenizer from inside: shared by tokenizer.c, build.c,
 * pieces.c, decode.c and encode_*.c. */
#ifndef GW_TEXT_TOKENIZER_IMPL_H
#define GW_TEXT_TOKENIZER_IMPL_H

#include "core/base/hash.h"
#include "core/text/buffer.h"
#include "core/text/tokens/merge.h"
#include "core/text/tokens/pairs.h"
#include "core/text/tokens/pretokenize.h"
#include "core/text/tokens/steps.h"
#include "core/text/tokens/tokenizer.h"
#include "core/text/tokens/trie.h"
#include "core/text/tokens/word_cache.h"

typedef struct gw_encoding gw_encoding;

/* The tokens of a word, n > 0 bytes. */
typedef gw_status (*gw_word_fn)(gw_encoding *e, const char *word, size_t n);

/* What tokens stand for in a decoded text, one after the other. */
typedef struct gw_pieces {
    gw_bytes text;
    size_t *at; /* [n_tokens + 1] where */
} gw_pieces;

/* What of the decoder is no matter of one token. */
typedef struct gw_joining {
    int own_first;        /* the first token stands for something else: `first`            */
    int words;            /* pieces begin with a space, which counts behind a word's end   */
    uint8_t *ends_word;   /* [n_tokens] of words                                           */
    int ctc;              /* a repeated token counts once                                  */
    char strip;           /* the character that is stripped                                */
    uint32_t start, stop; /* how often at most                                             */
} gw_joining;

struct gw_tokenizer {
    const gw_vocab *vocab;
    /* SPM_BPE: texts that a join may give. RANK_BPE: every text. BYTE_BPE with ignore_merges:
     * decoded texts. BYTE_RANKS: texts of ranks. WORDLEVEL: every word. */
    gw_map *words;
    gw_pairs *pairs;          /* RANK_BPE, BYTE_BPE: the merge list by ids               */
    uint32_t *rank;           /* SPM_BPE [n_tokens]: 0 for the best score                */
    size_t word_max;          /* SPM_BPE, BYTE_RANKS: bytes of the longest word          */
    int cut_words;            /* no token crosses from a letter into a U+2581            */
    int32_t byte_id[256];     /* -1: none                                                */
    int has_bytes;            /* some are tokens                                         */
    int32_t (*edge_id)[256];  /* BYTE_BPE with affixes [4]: 1 inside, 2 at the word's end */
    gw_trie *added;           /* tokens looked for in the text as it comes               */
    gw_trie *added_normal;    /* ... in the normalised text                              */
    gw_trie *inline_user;     /* SPM: user-defined pieces, part of the text              */
    gw_trie *begins, *inside; /* UNIGRAM, LONGEST: every token. WORDPIECE: at a word's start, within
                               */
    double unk_score;         /* UNIGRAM */
    double user_score;        /* SPM_UNIGRAM: of a byte of a user-defined piece          */
    gw_change *normal;        /* the normalizer, vocab->n_normal of them                 */
    gw_splitter *splitter;
    gw_word_fn put_word;
    gw_pieces whole; /* BYTE_BPE with ignore_merges: texts of `words` */
    gw_pieces inner, first;
    gw_joining joining;
};

typedef struct gw_lattice_node { /* the best way to a byte of a word */
    double score;
    int32_t id;
    uint32_t from; /* UINT32_MAX: none */
} gw_lattice_node;

/* One call of gw_tokenizer_encode. */
struct gw_encoding {
    const gw_tokenizer *t;
    int special;                /* parse special tokens                              */
    int after_unk;              /* the last symbol was unknown (SPM joins them)      */
    int joined;                 /* the stretch goes on with a text: no space before it */
    const gw_text_rules *rules; /* of a conversation; NULL: any token may come out of a text */
    gw_ids ids;
    gw_merger merger;
    gw_split_work *work;
    gw_word_cache *cache; /* NULL: the text is short */
    gw_bytes normal, scratch, valid, letter;
    gw_lattice_node *lattice;
    size_t lattice_capacity;
};

/* May this token come out of a text? */
static inline int gw_encoding_allows(const gw_encoding *e, int32_t id) {
    if (e->rules == NULL) {
        return 1;
    }
    for (size_t i = 0; i < e->rules->n_barred; i++) {
        if (e->rules->barred[i] == id) {
            return 0;
        }
    }
    return e->t->vocab->tokens[id].kind != GW_TOKEN_CONTROL;
}

/* One stretch of text between added tokens; first: it begins the whole text. n > 0. */
gw_status gw_encode_spm(gw_encoding *e, const char *text, size_t n, int first);
gw_status gw_encode_stretch(gw_encoding *e, const char *text, size_t n, int first);

gw_status gw_put_bpe_word(gw_encoding *e, const char *word, size_t n);     /* encode_bpe.c     */
gw_status gw_put_ranks_word(gw_encoding *e, const char *word, size_t n);   /* encode_bpe.c     */
gw_status gw_put_unigram_word(gw_encoding *e, const char *word, size_t n); /* encode_unigram.c */
gw_status gw_put_wordpiece_word(gw_encoding *e, const char *word, size_t n);
gw_status gw_put_longest(gw_encoding *e, const char *text, size_t n); /* encode_wordpiece.c */
gw_status gw_put_wordlevel_word(gw_encoding *e, const char *word, size_t n);

/* A symbol that is no token, as SentencePiece puts it (encode_spm.c). */
gw_status gw_put_spm_unknown(gw_encoding *e, const char *text, size_t n);

/* A word through the cache and `fn`; one that gives the id `never` (-1: any) is not kept. */
gw_status gw_put_cached(gw_encoding *e, const char *word, size_t n, gw_word_fn fn, int32_t never);

/* The normalizer over a text; *out is the text or lies in one of the two. */
gw_status gw_normalize_steps(const gw_tokenizer *t, gw_regex_work *work, const char *text, size_t n,
                             int place, gw_bytes *a, gw_bytes *b, const char **out,
                             size_t *out_bytes);

typedef gw_status (*gw_stretch_fn)(gw_encoding *e, const char *text, size_t n, int first);

/* Cut text at the words of `trie`: their ids are appended, what lies between goes to `fn`. */
gw_status gw_encode_added(gw_encoding *e, const gw_trie *trie, const char *text, size_t n,
                          int first, gw_stretch_fn fn);

/* Fills inner, first and joining (pieces.c). GW_E_UNSUPPORTED: a decoder that works on more than
 * one token in a way that is not built. */
gw_status gw_pieces_build(gw_tokenizer *t);
void gw_pieces_free(gw_tokenizer *t);

/* Appends the bytes behind GPT-2's letters; a text that has other characters as it is. */
gw_status gw_letters_to_bytes(const char *text, size_t n, gw_bytes *out);

#endif
