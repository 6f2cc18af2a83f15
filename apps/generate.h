/* apps/generate.h - what the commands that write one text do alike: open what it takes, make passes
 * with or without drafts, and hand on the pieces of a gw_writer. */
#ifndef GW_APPS_GENERATE_H
#define GW_APPS_GENERATE_H

#include "apps/common.h"
#include "apps/speculation.h"
#include "include/godwit_see.h"

typedef struct app_generator {
    const app_options *o;
    gw_model *model;
    gw_model_info info;
    gw_session *session;
    app_draft draft;          /* drafter NULL: one token per pass */
    gw_grammar *grammar;      /* NULL: any text */
    const gw_chat *chat;      /* or NULL: which tokens end the text */
    gw_writer *writer;        /* of the text that is written */
    gw_status failed;         /* of a pass: no more of this text */
    const char *ended;        /* why the text has no more pieces: generator_next */
    int32_t pending;          /* the last token, not yet in the session; -1: none */
    int32_t begin;            /* tokens of the session that were read as a prompt */
    int32_t bans, taken_back; /* how often a banned string came up; tokens that went with them */
    int32_t passes;
    int shifts;      /* where the context ends, the text goes on without its older half */
    int32_t limit;   /* most tokens of a text that shifts, though -n names none; 0: no limit */
    int32_t keep;    /* tokens that a context shift leaves alone */
    int32_t shifted; /* tokens that it has dropped */
} app_generator;

/* The context in tokens that -c asks for. */
int32_t generator_n_ctx(const app_generator *g);
/* Grammar, drafter and a first writer for the session as the options say; chat may be NULL. Exit
 * code; generator_close in any case. */
int generator_open(app_generator *g, const gw_chat *chat);
void generator_close(app_generator *g); /* the session and the model as well */

/* Append prompt tokens to the session, a slice at a time; the drafter learns them. */
gw_status generator_read(app_generator *g, const int32_t *tokens, size_t n, app_progress *progress);
/* The same with pictures, at once. */
gw_status generator_read_seen(app_generator *g, const int32_t *tokens, size_t n,
                              const gw_seen_rows *seen, size_t n_seen);
/* The drafter learns tokens that the session holds already. */
gw_status generator_know(app_generator *g, const int32_t *tokens, size_t n);

/* A text of the grammar (NULL: any) begins behind all that the session holds. mid_text: as in
 * gw_request_options. Exit code. */
int generator_begin(app_generator *g, const gw_grammar *grammar, int mid_text);
/* The next piece of the text, of at most `most` more tokens, by as many passes as it takes; *there
 * 0: there is none, and g->ended says why. A full context is shifted. An error comes when the
 * tokens before it are handed out. */
gw_status generator_next(app_generator *g, size_t most, gw_piece *piece, int *there);
/* No more is asked for: what is held back follows. */
gw_status generator_over(app_generator *g);
/* Has a stop string come true? */
int generator_stopped(const app_generator *g);

#endif
