/* core/text/tokens/pretokenize.h - cuts a text into the words that byte pair encoding works on.
 *
 * A splitter is a list of patterns; each cuts every piece that the one before left. Those that a
 * name stands for are in known.h. \s means White_Space exactly, which PCRE2's own \s does not.
 */
#ifndef GW_TEXT_PRETOKENIZE_H
#define GW_TEXT_PRETOKENIZE_H

#include "core/text/tokens/vocab.h"

typedef struct gw_span {
    uint32_t start, bytes;
} gw_span;

typedef struct gw_splitter gw_splitter;

/* GW_E_UNSUPPORTED: an unknown name (the message lists the known ones) or a pattern that PCRE2
 * refuses. Read-only afterwards, any thread. */
gw_status gw_splitter_new(const char *where, const gw_vocab *vocab, gw_splitter **out);
void gw_splitter_free(gw_splitter *splitter);

/* Scratch of one thread. */
typedef struct gw_split_work gw_split_work;
gw_status gw_split_work_new(gw_split_work **out);
void gw_split_work_free(gw_split_work *work);

/* Pieces of text [n], which must be well-formed UTF-8 and under 4 GiB. *spans belongs to the
 * scratch and lives until its next use. GW_E_LIMIT: a pattern backtracks without end. */
gw_status gw_splitter_run(const gw_splitter *splitter, gw_split_work *work, const char *text,
                          size_t n, const gw_span **spans, size_t *count);

#endif
