/* core/text/tokens/normalize.h - what happens to a text before it is cut: Unicode forms, spaces. */
#ifndef GW_TEXT_NORMALIZE_H
#define GW_TEXT_NORMALIZE_H

#include "core/text/buffer.h"
#include "core/text/tokens/trie.h"
#include "core/text/tokens/vocab.h"

#define GW_SPACE_MARK "\xE2\x96\x81" /* U+2581, how SentencePiece writes a space */

enum { GW_FORM_COMPOSED = 1, GW_FORM_COMPATIBLE = 2 }; /* NFC 1, NFD 0, NFKC 3, NFKD 2 */

/* Append a normal form of text [n], well-formed UTF-8. Linear, whatever the text. */
gw_status gw_normalize_unicode(const char *text, size_t n, int form, gw_bytes *out);

/* SentencePiece's normalizer: charsmap, extra spaces, dummy prefix, U+2581 for spaces. Words of
 * `user` are left as they are. Bytes that are not UTF-8 pass (keep_bytes) or become U+FFFD. */
gw_status gw_normalize_sentencepiece(const gw_vocab *vocab, const gw_trie *user, const char *text,
                                     size_t n, int keep_bytes, gw_bytes *out);

/* 1 when the charsmap is well formed: a length, a double array, texts that end in NUL. */
int gw_charsmap_valid(const uint8_t *map, size_t bytes);

/* The longest rule that begins at text [n], or the shortest: returns its length (0: none) and the
 * replacement. The map must be valid. */
size_t gw_charsmap_match(const uint8_t *map, size_t bytes, const char *text, size_t n, int shortest,
                         const char **replacement, size_t *replacement_bytes);

#endif
