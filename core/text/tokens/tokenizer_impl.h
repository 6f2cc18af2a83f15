/* core/text/tokens/tokenizer_impl.h - the tokenizer from inside: shared by tokenizer.c and
 * encode_*.c. */
#ifndef GW_TEXT_TOKENIZER_IMPL_H
#define GW_TEXT_TOKENIZER_IMPL_H

#include "core/base/hash.h"
#include "core/text/buffer.h"
#include "core/text/tokens/merge.h"
#include "core/text/tokens/pairs.h"
#include "core/text/tokens/pretokenize.h"
#include "core/text/tokens/tokenizer.h"
#include "core/text/tokens/trie.h"

struct gw_tokenizer {
    const gw_vocab *vocab;
    /* SPM: texts that a join may give. RANK: every text. BYTE with ignore_merges: decoded texts. */
    gw_map *words;
    gw_pairs *pairs;       /* RANK, BYTE: the merge list by ids               */
    uint32_t *rank;        /* SPM [n_tokens]: 0 for the best score            */
    size_t word_max;       /* SPM: bytes of the longest word                  */
    int cut_words;         /* SPM: no word crosses from a letter into a space */
    int32_t byte_id[256];  /* -1: none */
    gw_trie *added;        /* tokens looked for in the text as it comes      */
    gw_trie *added_normal; /* ... in the normalised text                     */
    gw_trie *inline_user;  /* SPM: user-defined pieces, part of the text     */
    gw_splitter *splitter;
    gw_bytes text; /* what each token stands for, one after the other      */
    size_t *at;    /* [n_tokens + 1] where                                 */
};

/* One call of gw_tokenizer_encode. */
typedef struct gw_encoding {
    const gw_tokenizer *t;
    int special;                /* parse special tokens                              */
    int after_unk;              /* the last symbol was unknown (SPM joins them)      */
    int joined;                 /* the stretch goes on with a text: no space before it */
    const gw_text_rules *rules; /* of a conversation; NULL: any token may come out of a text */
    gw_ids ids;
    gw_merger merger;
    gw_split_work *work;
    gw_bytes normal, scratch;
} gw_encoding;

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
gw_status gw_encode_bpe(gw_encoding *e, const char *text, size_t n, int first);

/* Normalise as the added tokens of the second kind need it (their own texts, too). */
gw_status gw_bpe_normalize(const gw_vocab *vocab, const char *text, size_t n, int first,
                           gw_bytes *scratch, gw_bytes *out);

typedef gw_status (*gw_stretch_fn)(gw_encoding *e, const char *text, size_t n, int first);

/* Cut text at the words of `trie`: their ids are appended, what lies between goes to `fn`. */
gw_status gw_encode_added(gw_encoding *e, const gw_trie *trie, const char *text, size_t n,
                          int first, gw_stretch_fn fn);

#endif
