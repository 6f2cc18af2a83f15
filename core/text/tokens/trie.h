/* core/text/tokens/trie.h - finds the longest of many words that begins at a place of a text. */
#ifndef GW_TEXT_TRIE_H
#define GW_TEXT_TRIE_H

#include "core/base/status.h"

enum { GW_TRIE_WORD_MAX = 1000 }; /* bytes; bounds the work at one place of a text */

typedef struct gw_trie gw_trie;

gw_trie *gw_trie_new(void); /* NULL: no memory */
void gw_trie_free(gw_trie *trie);
size_t gw_trie_count(const gw_trie *trie); /* words in it */

/* n > 0, at most GW_TRIE_WORD_MAX where places of a text are tried one by one. A word that is there
 * already keeps its id. special: see below. */
gw_status gw_trie_add(gw_trie *trie, const char *word, size_t n, int32_t id, int special);

/* Length of the longest word at the beginning of text [n], 0 when there is none; special words
 * count only when asked for. *id is written on a match. */
size_t gw_trie_match(const gw_trie *trie, const char *text, size_t n, int special, int32_t *id);

/* Byte by byte: the node behind `node` (0: the root), 0 when there is none; the word that ends at a
 * node whatever its kind, -1: none. */
uint32_t gw_trie_step(const gw_trie *trie, uint32_t node, uint8_t byte);
int32_t gw_trie_word(const gw_trie *trie, uint32_t node);

#endif
