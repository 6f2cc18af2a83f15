/* tests/tokenizer_subject.h - a tokenizer from any kind of shared file, for the tests of core/text.
 * Folder of the data: environment GODWIT_SHARED, else ../shared. */
#ifndef TESTS_TOKENIZER_SUBJECT_H
#define TESTS_TOKENIZER_SUBJECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/file.h"
#include "core/model/checkpoint.h"
#include "core/text/tokens/tokenizer.h"

static inline const char *shared_path(const char *name) {
    static char path[4096];
    const char *root = getenv("GODWIT_SHARED");
    snprintf(path, sizeof path, "%s/%s", root != NULL ? root : "../shared", name);
    return path;
}

/* A file of the shared data; a test without it is skipped, loudly. */
static inline gw_file open_shared(const char *name) {
    gw_file file;
    if (gw_file_open(shared_path(name), name, &file) != GW_OK) {
        print_message("SKIP: %s (set GODWIT_SHARED)\n", gw_error_text());
        skip();
    }
    return file;
}

static inline void must(gw_status status) {
    if (status != GW_OK) {
        print_error("%s\n", gw_error_text());
    }
    assert_int_equal(status, GW_OK);
}

/* A tokenizer from any kind of file. */
typedef struct subject {
    gw_vocab own;
    const gw_vocab *vocab;
    gw_checkpoint *checkpoint;
    gw_tokenizer *t;
} subject;

static inline void load(const char *name, subject *s) {
    memset(s, 0, sizeof *s);
    gw_file file = open_shared(name);
    s->vocab = &s->own;
    size_t n = strlen(name);
    if (strcmp(name + n - 5, ".gguf") == 0) {
        must(gw_checkpoint_open_vocab(shared_path(name), NULL, 0, &s->checkpoint));
        must(gw_checkpoint_vocab(s->checkpoint, &s->vocab));
    } else if (strstr(name, "/tekken.json") != NULL) {
        must(gw_vocab_read_tekken(name, file.data, file.size, &s->own));
    } else if (strcmp(name + n - 5, ".json") == 0) {
        must(gw_vocab_read_tokenizer_json(name, file.data, file.size, &s->own));
    } else {
        must(gw_vocab_read_sentencepiece(name, file.data, file.size, &s->own));
    }
    gw_file_close(&file);
    must(gw_tokenizer_new(s->vocab, &s->t));
}

static inline void unload(subject *s) {
    gw_tokenizer_free(s->t);
    if (s->checkpoint != NULL) {
        gw_checkpoint_free(s->checkpoint);
    } else {
        gw_vocab_free(&s->own);
    }
}

#endif
