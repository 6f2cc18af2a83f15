/* bench/bench_tokenizer.c - texts to tokens, one thread.
 *
 * usage: bench_tokenizer TOKENIZER TEXT_FILE [rounds]   a line: bytes, tokens, seconds of the best
 *        bench_tokenizer --worst TOKENIZER...             a megabyte of what is hard, each kind
 * TOKENIZER: a folder, a GGUF file or a tokenizer's file. Seconds are those of the thread.
 * Build: cc -O2 -pthread -I. bench/bench_tokenizer.c build/X/libgodwit.a, and its libraries.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "include/godwit.h"

enum { MEGABYTE = 1 << 20 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(void) {
    fprintf(stderr, "bench_tokenizer: %s\n", gw_error_text());
    return 1;
}

static gw_model *open_tokenizer(const char *path) {
    gw_model *model = NULL;
    gw_model_options options = {.path = path, .vocab_only = 1};
    return gw_model_open(&options, &model) == GW_OK ? model : NULL;
}

/* The best of several rounds; -1: it failed. */
static double seconds_of(const gw_model *model, const char *text, size_t bytes, int rounds,
                         size_t *n) {
    double best = -1;
    for (int i = 0; i < rounds; i++) {
        int32_t *ids = NULL;
        double start = now();
        if (gw_tokenize(model, text, bytes, 0, &ids, n) != GW_OK) {
            return -1;
        }
        double seconds = now() - start;
        best = best < 0 || seconds < best ? seconds : best;
        gw_free(ids);
    }
    return best;
}

static char *read_text(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        rewind(file);
        text = size >= 0 ? malloc((size_t)size + 1) : NULL;
        *bytes = text != NULL ? fread(text, 1, (size_t)size, file) : 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

/* Units that are repeated to a megabyte; the last two: nothing repeats, merges cascade. */
static const char *const HARD[] = {"a", " ", "\n", " \n", "\xF0\x9F\xA6\x99", "\xE4\xB8\xAD",
                                   "\xCC\x81\xCC\xA7", "1", "'", "e\xCC\x81", "ab ", "\xE2\x96\x81",
                                   "\xE2\x80\x8D", "<", NULL, ""};

static void fill(char *text, size_t kind) {
    const char *unit = HARD[kind];
    unsigned state = 1;
    size_t n = unit != NULL ? strlen(unit) : 0;
    for (size_t i = 0; i < MEGABYTE; i++) {
        state = state * 1664525u + 1013904223u;
        text[i] = n > 0          ? unit[i % n]
                  : unit == NULL ? (char)('a' + (state >> 24) % 26)
                                 : (char)('a' + (state >> 31)); /* of two letters */
    }
    for (size_t i = MEGABYTE - 4; i < MEGABYTE; i++) {
        text[i] = '.'; /* no character is cut */
    }
}

static int worst(int count, char **paths) {
    char *text = malloc(MEGABYTE);
    int failed = text == NULL;
    for (int i = 0; i < count && !failed; i++) {
        gw_model *model = open_tokenizer(paths[i]);
        double slowest = 0;
        size_t which = 0;
        failed = model == NULL;
        for (size_t k = 0; k < sizeof HARD / sizeof HARD[0] && !failed; k++) {
            size_t n;
            fill(text, k);
            double seconds = seconds_of(model, text, MEGABYTE, 1, &n);
            failed = seconds < 0;
            which = seconds > slowest ? k : which;
            slowest = seconds > slowest ? seconds : slowest;
        }
        printf("%-70s %7.3f s of \"%s\"\n", paths[i], slowest,
               HARD[which] == NULL      ? "any letters"
               : HARD[which][0] == '\0' ? "two letters"
                                        : HARD[which]);
        gw_model_free(model);
    }
    free(text);
    return failed ? fail() : 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "--worst") == 0) {
        return worst(argc - 2, argv + 2);
    }
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER TEXT_FILE [rounds]\n");
        return 2;
    }
    size_t bytes = 0, n = 0;
    char *text = read_text(argv[2], &bytes);
    gw_model *model = open_tokenizer(argv[1]);
    double seconds = text != NULL && model != NULL
                         ? seconds_of(model, text, bytes, argc > 3 ? atoi(argv[3]) : 5, &n)
                         : -1;
    printf("%zu %zu %.6f\n", bytes, n, seconds);
    gw_model_free(model);
    free(text);
    return seconds < 0 ? fail() : 0;
}
