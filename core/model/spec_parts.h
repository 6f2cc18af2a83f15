/* core/model/spec_parts.h - what the spec*.c files share: lines, words, the reader. Nobody else
 * includes this. */
#ifndef GW_MODEL_SPEC_PARTS_H
#define GW_MODEL_SPEC_PARTS_H

#include "core/model/spec.h"

typedef struct gw_spec_word {
    const char *at;
    size_t n;
} gw_spec_word;

enum { GW_SPEC_LINE_WORDS = 40 };

typedef struct gw_spec_line {
    gw_spec_word word[GW_SPEC_LINE_WORDS];
    int n;
    const char *end; /* of the text before a comment */
} gw_spec_line;

/* Split the line at text into words up to a comment. Returns the start of the next line, or NULL
 * when the line has too many words. */
const char *gw_spec_split(const char *text, gw_spec_line *out);
int gw_spec_is(gw_spec_word w, const char *s);

/* Two passes: the first declares names, so that expressions may use those of later lines. */
typedef struct gw_spec_reader {
    const char *name; /* of the file that is read */
    int line;         /* from 1 */
    int pass, depth;
    int file;             /* number of the file, from 1: an inherited one is lower */
    int section;          /* gw_section, -1 before the first */
    int kind;             /* of the layer section */
    int own[GW_SECTIONS]; /* has this file begun a section of its own? */
    int families;
    unsigned defined; /* values, one bit each, in this section */
    gw_blueprint *out;
} gw_spec_reader;

gw_status gw_spec_fail(const gw_spec_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
gw_status gw_spec_copy(const gw_spec_reader *r, gw_spec_word w, char *dst, size_t room,
                       const char *what);
/* An expression of one word, or of a word and all behind it. */
gw_status gw_spec_expr(const gw_spec_reader *r, gw_spec_word w, int positions, int lists,
                       gw_expr *out);
gw_status gw_spec_rest(const gw_spec_reader *r, const gw_spec_line *l, int at, int positions,
                       int lists, gw_expr *out);
int gw_spec_role(const gw_blueprint *bp, gw_spec_word w); /* -1: not declared */
int gw_spec_number_of(const gw_blueprint *bp, const char *name, size_t n);
/* 1 and *out, or 0. */
int gw_activation_named(const char *text, size_t n, gw_act_kind *out);

/* spec_numbers.c, spec_weights.c, spec_blocks.c: lines of one kind. */
gw_status gw_spec_read_number(gw_spec_reader *r, const gw_spec_line *l);
gw_status gw_spec_read_rope(gw_spec_reader *r, const gw_spec_line *l);
gw_status gw_spec_read_factor(gw_spec_reader *r, const gw_spec_line *l);
gw_status gw_spec_read_value(gw_spec_reader *r, const gw_spec_line *l);
gw_status gw_spec_read_weight(gw_spec_reader *r, const gw_spec_line *l);
gw_status gw_spec_read_stored(gw_spec_reader *r, const gw_spec_line *l);
/* *found 0: the line begins with no block's name. */
gw_status gw_spec_read_block(gw_spec_reader *r, const gw_spec_line *l, int *found);
gw_status gw_spec_enter(gw_spec_reader *r, const gw_spec_line *l, gw_section section);
gw_status gw_spec_check_end(const gw_spec_reader *r);

#endif
