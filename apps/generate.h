/* apps/generate.h - what the commands that write text do alike: open what it takes, get the next
 * tokens with or without speculation, turn them into text up to a stop string. */
#ifndef GW_APPS_GENERATE_H
#define GW_APPS_GENERATE_H

#include "apps/common.h"
#include "apps/speculation.h"

typedef struct app_generator {
    const app_options *o;
    gw_model *model;
    gw_model_info info;
    gw_session *session;
    gw_sampler *sampler;
    app_draft draft; /* drafter NULL: one token per pass */
    gw_stream *stream;
    gw_stop *stop;       /* NULL: no stop string */
    gw_grammar *grammar; /* NULL: any text */
    gw_ban *ban;         /* NULL: nothing is banned */
    const gw_chat *chat; /* or NULL: which tokens end the text */
    int32_t pending;     /* the last token, not yet in the session; -1: none */
    int32_t begin;       /* tokens of the session that were read as a prompt */
    int32_t *line;       /* tokens to be handed out; the last ones may still be taken back */
    size_t n_line;
    char *special;            /* the last special token's spelling */
    int32_t bans, taken_back; /* how often a banned string came up; tokens that went with them */
    int32_t passes;
    int32_t keep;    /* tokens that a context shift leaves alone */
    int32_t shifted; /* tokens that it has dropped */
} app_generator;

/* The context in tokens that -c asks for. */
int32_t generator_n_ctx(const app_generator *g);
/* Sampler, grammar, drafter and stream for the session as the options say, with the stop strings of
 * --stop and those of the chat (may be NULL). Exit code; generator_close in any case. */
int generator_open(app_generator *g, const gw_chat *chat);
void generator_close(app_generator *g); /* the session and the model as well */
/* A new sampler that knows nothing of the text so far. Exit code. */
int generator_renew_sampler(app_generator *g);

/* A text of the grammar, if there is one, begins with the next token; fresh: the stream has given
 * out nothing yet. Exit code. */
int generator_begin(app_generator *g, int fresh);
void generator_end(app_generator *g); /* what comes now is no such text */
/* Is the text whole, and does the grammar allow nothing more? */
int generator_finished(const app_generator *g);

/* Append prompt tokens to the session, a slice at a time. Drafter and sampler learn them. */
gw_status generator_read(app_generator *g, const int32_t *tokens, size_t n, app_progress *progress);
/* Drafter and sampler learn tokens that the session holds already. */
gw_status generator_know(app_generator *g, const int32_t *tokens, size_t n);
/* No room for another token, and --context-shift is not asked for? */
int generator_full(const app_generator *g);
/* The next tokens of the text, tokens [n], the generator's until the next call: at most `most`, at
 * least 1, and none that may still become part of a banned string unless nothing comes behind it.
 * A full context is shifted. With an error, too, there may be tokens: those held back before it. */
gw_status generator_next(app_generator *g, size_t most, const int32_t **tokens, size_t *n);
/* The tokens that are still held back, when no more are asked for. */
gw_status generator_rest(app_generator *g, const int32_t **tokens, size_t *n);
/* The text that is certain with this token (-1: at the end of the text); valid until the next call.
 * *stopped when a stop string has come true: what follows is no text any more. Exit code. */
int generator_text(app_generator *g, int32_t id, const char **text, size_t *bytes, int *stopped);

#endif
