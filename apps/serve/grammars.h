/* apps/serve/grammars.h - compiled grammars of requests, kept for the next turn: an agent sends the
 * same tools each time. Any thread. */
#ifndef GW_APPS_SERVE_GRAMMARS_H
#define GW_APPS_SERVE_GRAMMARS_H

#include "include/godwit.h"

typedef struct grammars grammars;

/* What says which grammar it is: a digest of all that it is made of. */
typedef struct grammar_key {
    const void *model;
    unsigned char digest[32];
} grammar_key;

typedef struct kept_grammar {
    gw_grammar *grammar; /* NULL: any text */
    char *note;          /* malloc'd; what of the schemas it does not keep, or NULL */
} kept_grammar;

grammars *grammars_new(void);
void grammars_free(grammars *g); /* accepts NULL */
/* In use until grammars_release. NULL: there is none. */
const kept_grammar *grammars_find(grammars *g, const grammar_key *key);
/* Takes made over, whatever happens. NULL: no memory. */
const kept_grammar *grammars_add(grammars *g, const grammar_key *key, kept_grammar made);
void grammars_release(grammars *g, const kept_grammar *kept); /* accepts NULL */
/* A model goes, with all that is compiled for it; nobody uses it. */
void grammars_forget(grammars *g, const void *model);
void grammars_tick(grammars *g); /* those unused for a while go */

#endif
