/* bench/bench_grammar.c - what a grammar costs per token: the mask of all tokens and the step to
 * the next one, along a text that the grammar allows.
 *
 * usage: bench_grammar TOKENS SCHEMA TEXT
 * TOKENS: a vocabulary as a list, one token a line in base64 and its rank, as Llama-3 publishes its
 * own (128000 lines). SCHEMA: a JSON schema, or a grammar (*.gbnf). TEXT: cut into the longest
 * allowed tokens. Shown are the first walk through the text, when every mask is new, and the
 * second. Build: cc -O2 -I. bench/bench_grammar.c build/release/libgodwit.a, and its libraries.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/file.h"
#include "core/text/grammar/grammar.h"
#include "core/text/grammar/json_schema.h"

enum { TOKENS_MAX = 1 << 18, STEPS_MAX = 4096 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(gw_status status) {
    if (status != GW_OK) {
        fprintf(stderr, "%s\n", gw_error_text());
        exit(1);
    }
}

static gw_file open_file(const char *path) {
    gw_file file;
    must(gw_file_open(path, path, &file));
    return file;
}

static int sextet(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* A byte in the alphabet of GPT-2: printable ones as they are, the others from U+0100 on. */
static size_t spell(unsigned byte, char *out) {
    unsigned code = byte, other = 256;
    for (unsigned b = 0; b <= byte; b++) {
        int plain = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        code = plain ? b : other;
        other += !plain;
    }
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

static void read_tokens(const char *path, gw_vocab *vocab) {
    gw_file file = open_file(path);
    const char *at = (const char *)file.data, *end = at + file.size;
    gw_vocab_token *tokens = calloc(TOKENS_MAX, sizeof *tokens);
    char *text = malloc(2 * file.size);
    size_t n = 0;
    while (tokens != NULL && text != NULL && at < end && n < TOKENS_MAX) {
        unsigned bits = 0, have = 0;
        tokens[n] = (gw_vocab_token){.text = text, .kind = GW_TOKEN_NORMAL};
        for (int six; at < end && (six = sextet(*at)) >= 0; at++) {
            bits = bits << 6 | (unsigned)six;
            have += 6;
            if (have >= 8) {
                have -= 8;
                text += spell(bits >> have & 255, text);
            }
        }
        tokens[n].bytes = (uint32_t)(text - tokens[n].text);
        n++;
        while (at < end && *at++ != '\n') {
        }
    }
    gw_vocab_init(vocab);
    vocab->kind = GW_VOCAB_BYTE_BPE;
    vocab->tokens = tokens;
    vocab->n_tokens = n;
}

typedef struct walk {
    double mask[STEPS_MAX], step[STEPS_MAX];
    size_t n;
} walk;

/* The longest allowed token that the text goes on with. */
static int32_t choose(const gw_token_mask *mask, const gw_tokenizer *t, size_t n, const char *text,
                      size_t left) {
    int32_t best = -1;
    size_t longest = 0;
    for (size_t id = 0; id < n; id++) {
        const char *piece;
        size_t bytes;
        gw_tokenizer_piece(t, (int32_t)id, 0, &piece, &bytes);
        if ((mask->bits[id / 64] >> id % 64 & 1) && bytes > longest && bytes <= left &&
            memcmp(piece, text, bytes) == 0) {
            best = (int32_t)id;
            longest = bytes;
        }
    }
    return best;
}

static void go(gw_matcher *m, const gw_tokenizer *t, size_t n_tokens, const char *text, size_t n,
               walk *w) {
    gw_matcher_reset(m);
    w->n = 0;
    for (size_t at = 0; at < n && w->n < STEPS_MAX; w->n++) {
        gw_token_mask mask;
        double start = now();
        must(gw_matcher_mask(m, &mask));
        double masked = now();
        int32_t id = choose(&mask, t, n_tokens, text + at, n - at);
        if (id < 0) {
            fprintf(stderr, "the text is not of the grammar at byte %zu\n", at);
            exit(1);
        }
        const char *piece;
        size_t bytes;
        int taken;
        gw_tokenizer_piece(t, id, 0, &piece, &bytes);
        double chosen = now();
        must(gw_matcher_token(m, id, &taken));
        w->step[w->n] = now() - chosen;
        w->mask[w->n] = masked - start;
        at += bytes;
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, walk *w) {
    double sum = 0, steps = 0;
    for (size_t i = 0; i < w->n; i++) {
        sum += w->mask[i];
        steps += w->step[i];
    }
    qsort(w->mask, w->n, sizeof *w->mask, by_size);
    printf("%s: %zu tokens, mask mean %.3f ms, median %.3f, worst %.3f; step mean %.4f ms\n", name,
           w->n, 1e3 * sum / (double)w->n, 1e3 * w->mask[w->n / 2], 1e3 * w->mask[w->n - 1],
           1e3 * steps / (double)w->n);
}

int main(int argc, char **argv) {
    static walk first, second;
    if (argc != 4) {
        fprintf(stderr, "usage: bench_grammar TOKENS SCHEMA TEXT\n");
        return 2;
    }
    gw_vocab vocab;
    gw_tokenizer *tokenizer;
    gw_token_tree *tree;
    gw_program *program;
    gw_matcher *m;
    read_tokens(argv[1], &vocab);
    must(gw_vocab_check(argv[1], &vocab));
    must(gw_tokenizer_new(&vocab, &tokenizer));
    gw_file source = open_file(argv[2]), text = open_file(argv[3]);
    const char *rules = (const char *)source.data, *json = (const char *)text.data;
    size_t n = text.size;
    while (n > 0 && json[n - 1] == '\n') {
        n--;
    }
    double start = now();
    must(strstr(argv[2], ".gbnf") != NULL
             ? gw_grammar_compile(argv[2], rules, source.size, &program)
             : gw_json_schema_compile(rules, source.size, &program));
    double compiled = now();
    must(gw_token_tree_new(&vocab, tokenizer, vocab.n_tokens, &tree));
    double made = now();
    must(gw_matcher_new(program, tree, NULL, 0, (int32_t)vocab.n_tokens, &m));
    printf("%zu tokens, %u nodes in %.0f ms; grammar of %u steps in %.1f ms\n", vocab.n_tokens,
           tree->n_nodes, 1e3 * (made - compiled), program->n_steps, 1e3 * (compiled - start));
    go(m, tokenizer, vocab.n_tokens, json, n, &first);
    go(m, tokenizer, vocab.n_tokens, json, n, &second);
    show("first", &first);
    show("again", &second);
    gw_matcher_free(m);
    gw_token_tree_free(tree);
    gw_program_free(program);
    return 0;
}
