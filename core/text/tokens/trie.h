/* core/text/tokens/trie.h - finds the longest of many words that begins at a place of a text. */
#ifndef GW_TEXT_TRIE_H
#define GW_TEXT_TRIE_H

#include "core/base/status.h"

enum { GW_TRIE_WORD_MAX = 1000 }; /* bytes; bounds the work at one place of a text */

typedef struct gw_trie gw_trie;

gw_trie *gw_trie_new(void); /* NULL: no memory */
void gw_trie_free(gw_trie *trie);
size_t gw_trie_count(const gw_trie *trie); /* words in it */

/* n in 1..GW_TRIE_WORD_MAX. A word that is there already keeps its id. special: see below. */
gw_status gw_trie_add(gw_trie *trie, const char *word, size_t n, int32_t id, int special);

/* Length of the longest word at the beginning of text [n], 0 when there is none; special words
 * count only when asked for. *id is written on a match. */
size_t gw_trie_match(const gw_trie *trie, const char *text, size_t n, int special, int32_t *id);

#endif
