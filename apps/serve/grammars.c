/* apps/serve/grammars.c - see grammars.h. */
#include "apps/serve/grammars.h"

#include <stdlib.h>
#include <string.h>

#include "apps/terminal.h"
#include "core/base/os_threads.h"

enum { UNUSED_MAX = 16, UNUSED_SECONDS = 900 };

typedef struct entry {
    kept_grammar kept; /* first: what is handed out */
    struct entry *next;
    grammar_key key;
    int users;
    double used;
} entry;

struct grammars {
    pthread_mutex_t lock;
    entry *first; /* the one that was used last of all comes first */
    size_t unused;
};

grammars *grammars_new(void) {
    grammars *g = calloc(1, sizeof *g);
    if (g != NULL) {
        pthread_mutex_init(&g->lock, NULL);
    }
    return g;
}

static void free_entry(entry *e) {
    gw_grammar_free(e->kept.grammar);
    free(e->kept.note);
    free(e);
}

void grammars_free(grammars *g) {
    if (g == NULL) {
        return;
    }
    for (entry *e = g->first, *next; e != NULL; e = next) {
        next = e->next;
        free_entry(e);
    }
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static int same(const grammar_key *a, const grammar_key *b) {
    return a->model == b->model && memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

/* The entry's link; with the lock. */
static entry **find(grammars *g, const grammar_key *key) {
    entry **at = &g->first;
    while (*at != NULL && !same(&(*at)->key, key)) {
        at = &(*at)->next;
    }
    return at;
}

/* To the front, with one user more; with the lock. */
static const kept_grammar *use(grammars *g, entry **at) {
    entry *e = *at;
    *at = e->next;
    e->next = g->first;
    g->first = e;
    g->unused -= e->users == 0;
    e->users++;
    return &e->kept;
}

const kept_grammar *grammars_find(grammars *g, const grammar_key *key) {
    pthread_mutex_lock(&g->lock);
    entry **at = find(g, key);
    const kept_grammar *kept = *at != NULL ? use(g, at) : NULL;
    pthread_mutex_unlock(&g->lock);
    return kept;
}

const kept_grammar *grammars_add(grammars *g, const grammar_key *key, kept_grammar made) {
    entry *e = calloc(1, sizeof *e);
    if (e == NULL) {
        gw_grammar_free(made.grammar);
        free(made.note);
        return NULL;
    }
    e->kept = made;
    e->key = *key;
    pthread_mutex_lock(&g->lock);
    entry **at = find(g, key), *twice = NULL;
    if (*at == NULL) {
        e->next = g->first;
        g->first = e;
        g->unused++;
        at = &g->first;
    } else {
        twice = e; /* somebody was quicker */
    }
    const kept_grammar *kept = use(g, at);
    pthread_mutex_unlock(&g->lock);
    if (twice != NULL) {
        free_entry(twice);
    }
    return kept;
}

/* Takes out what nobody uses and `goes` names: a list. With the lock. */
static entry *take_out(grammars *g, const void *model, double before, size_t most) {
    entry *out = NULL;
    size_t n = 0;
    for (entry **at = &g->first; *at != NULL;) {
        entry *e = *at;
        n += e->users == 0;
        if (e->users == 0 && (e->key.model == model || e->used < before || n > most)) {
            *at = e->next;
            e->next = out;
            out = e;
            g->unused--;
        } else {
            at = &e->next;
        }
    }
    return out;
}

static void free_list(entry *list) {
    for (entry *next; list != NULL; list = next) {
        next = list->next;
        free_entry(list);
    }
}

void grammars_release(grammars *g, const kept_grammar *kept) {
    entry *e = (entry *)(uintptr_t)kept, *out = NULL;
    if (e == NULL) {
        return;
    }
    pthread_mutex_lock(&g->lock);
    e->used = app_seconds();
    g->unused += --e->users == 0;
    if (g->unused > UNUSED_MAX) {
        out = take_out(g, NULL, 0, UNUSED_MAX);
    }
    pthread_mutex_unlock(&g->lock);
    free_list(out);
}

void grammars_forget(grammars *g, const void *model) {
    pthread_mutex_lock(&g->lock);
    entry *out = take_out(g, model, 0, SIZE_MAX);
    pthread_mutex_unlock(&g->lock);
    free_list(out);
}

void grammars_tick(grammars *g) {
    pthread_mutex_lock(&g->lock);
    entry *out = take_out(g, NULL, app_seconds() - UNUSED_SECONDS, SIZE_MAX);
    pthread_mutex_unlock(&g->lock);
    free_list(out);
}
