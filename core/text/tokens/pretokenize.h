/* core/text/tokens/pretokenize.h - cuts a text into the words that a tokenizer works on.
 *
 * A splitter is a list of steps: patterns, of which each cuts every piece that the one before left,
 * and changes of every piece (steps.h). Those that a name stands for are in known.h. \s means
 * White_Space exactly, which PCRE2's own \s does not.
 */
#ifndef GW_TEXT_PRETOKENIZE_H
#define GW_TEXT_PRETOKENIZE_H

#include "core/text/regex.h"
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

/* Pieces of text [n], which must be well-formed UTF-8 and under 4 GiB; place: of the text
 * (steps.h). *from is what the spans lie in: the text, or what steps made of it. *spans and *from
 * belong to the scratch (or are the text) and live until its next use. GW_E_LIMIT: a pattern
 * backtracks without end. */
gw_status gw_splitter_run(const gw_splitter *splitter, gw_split_work *work, const char *text,
                          size_t n, int place, const char **from, const gw_span **spans,
                          size_t *count);

/* The expressions' own scratch, for other steps of the same thread. */
gw_regex_work *gw_split_work_regex(gw_split_work *work);

#endif
