/* apps/serve/job_grammar.c - the grammars of a job's choices: found where an earlier turn had them
 * compiled, else made; on a worker. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/job_parts.h"
#include "apps/serve/text.h"
#include "core/base/sha256.h"

static void add(gw_sha256 *h, const char *text) {
    gw_sha256_add(h, text != NULL ? text : "", (text != NULL ? strlen(text) : 0) + 1);
}

/* All that the grammar depends on, besides the model and how it was loaded. */
static void make_key(const job *j, choice *c, const char *tools) {
    const ask *a = &j->ask;
    gw_sha256 h;
    char numbers[80];
    snprintf(numbers, sizeof numbers, "%d %d %d %d %d %d", c->answer != NULL, a->chat != NULL,
             (int)a->grammar_kind, (int)a->choice, a->one_call,
             c->answer != NULL ? gw_answer_beginning(c->answer) : 0);
    gw_sha256_begin(&h);
    add(&h, numbers);
    add(&h, tools);
    add(&h, a->named);
    add(&h, a->grammar);
    add(&h, a->plain_reasoning ? "none" : j->s->o->reasoning_form);
    add(&h, j->s->o->tool_form);
    c->key.model = j->m;
    gw_sha256_end(&h, c->key.digest);
}

size_t job_find_grammars(job *j) {
    const ask *a = &j->ask;
    const json_t *callable = a->callable != NULL ? a->callable : a->tools;
    char *tools = json_array_size(callable) > 0 ? wide_dump(callable, &a->wide) : NULL;
    size_t missing = 0;
    for (size_t i = 0; i < j->n_choices; i++) {
        choice *c = &j->choices[i];
        if (c->needs_grammar && c->grammar == NULL) {
            make_key(j, c, tools);
            c->grammar = grammars_find(j->s->grammars, &c->key);
            missing += c->grammar == NULL;
        }
    }
    free(tools);
    return missing;
}

/* The lines that the answer has on its schemas, as one: what a header's value may be. */
static char *note_of(const gw_answer *answer) {
    text_buffer out = {0};
    const char *line;
    for (size_t i = 0; (line = gw_answer_note(answer, i)) != NULL && out.n < 400; i++) {
        text_add(&out, "; ", i > 0 ? 2 : 0);
        for (; *line != '\0' && out.n < 400; line++) {
            char byte = *line >= 0x20 && *line < 0x7F ? *line : '?';
            text_add(&out, &byte, 1);
        }
    }
    return out.at;
}

static gw_status make(const job *j, const choice *c, kept_grammar *out) {
    const ask *a = &j->ask;
    int by_answer =
        c->answer != NULL && (a->grammar == NULL || a->grammar_kind == GW_GRAMMAR_JSON_SCHEMA);
    if (!by_answer) {
        return gw_grammar_new(j->m->gw, a->grammar_kind, a->grammar, strlen(a->grammar),
                              a->chat != NULL ? j->m->chat : NULL, &out->grammar);
    }
    gw_status status = gw_answer_grammar(c->answer, j->m->chat, &out->grammar);
    out->note = status == GW_OK ? note_of(c->answer) : NULL;
    return status;
}

int job_make_grammars(job *j) {
    for (size_t i = 0; i < j->n_choices; i++) {
        choice *c = &j->choices[i];
        kept_grammar made = {0};
        if (!c->needs_grammar || c->grammar != NULL) {
            continue;
        }
        c->grammar = grammars_find(j->s->grammars, &c->key); /* made in the meantime, perhaps */
        if (c->grammar != NULL) {
            continue;
        }
        if (job_is_gone(j)) {
            return fault_set(&j->f, 503, NULL, "the client has left");
        }
        gw_status status = make(j, c, &made);
        if (status != GW_OK) {
            return fault_of_status(&j->f, status,
                                   j->ask.grammar != NULL ? j->ask.grammar_field : "tools");
        }
        c->grammar = grammars_add(j->s->grammars, &c->key, made);
        if (c->grammar == NULL) {
            return fault_set(&j->f, 503, NULL, "out of memory");
        }
    }
    return 0;
}

void job_relaxed(const job *j, char *out, size_t room) {
    const kept_grammar *g = j->n_choices > 0 ? j->choices[0].grammar : NULL;
    snprintf(out, room, "%s", g != NULL && g->note != NULL ? g->note : "");
}
