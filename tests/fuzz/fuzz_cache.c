/* tests/fuzz/fuzz_cache.c - a prompt cache as a file. With an odd first byte its checks and
 * identity are made right, so that what stands behind them is reached. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/engine/run/session_file.c" /* its statics make a head and a check */
#include "tests/fuzz/fuzz.h"

enum { CTX = 128 };

static gw_session *open_session(void) {
    gw_model *m = NULL;
    gw_session *s = NULL;
    gw_model_options o = {.path = getenv("GODWIT_FUZZ_MODEL"), .device = "cpu", .threads = 1};
    gw_session_options so = {.n_ctx = CTX, .chunk = 8};
    if (o.path == NULL) {
        o.path = "tests/data/tales-2m-q4_0.gguf";
    }
    if (gw_model_open(&o, &m) != GW_OK || gw_session_new(m, &so, &s) != GW_OK) {
        fprintf(stderr, "%s\n", gw_error_text());
        abort();
    }
    return s;
}

/* A file whose tokens and cells are the input's bytes, over and over, behind a true head. */
static void write_true(const gw_session *s, int fd, const uint8_t *data, size_t n) {
    head h;
    digest check = {0};
    int32_t tokens = data[0] % (CTX + 2);
    if (describe(s, "fuzz", tokens, &h) != GW_OK) {
        abort();
    }
    h.prompted = (int32_t)data[1] - 1;
    char *body = malloc(h.bytes);
    size_t words = (size_t)h.n_layers * sizeof(uint64_t), text = (size_t)tokens * sizeof(int32_t);
    size_t start = sizeof h + words, cells = h.bytes - start - text - 16;
    for (size_t i = 0; i < h.bytes; i++) {
        body[i] = (char)data[i % n];
    }
    for (int32_t i = 0; i < tokens && data[1] % 4 != 0; i++) { /* in range, mostly */
        int32_t id = i % 4096;
        memcpy(body + start + 4 * (size_t)i, &id, sizeof id);
    }
    memcpy(body, &h, sizeof h);
    memset(body + sizeof h, data[1] % 8 == 7, words); /* the arithmetic of the CPU, mostly */
    digest_add(&check, body, sizeof h);
    digest_add(&check, body + sizeof h, words);
    digest_add(&check, body + start, text);
    memcpy(body + start + text, &check.h, 8);
    for (size_t at = 0; at < cells; at += gw_kv_page_bytes(&s->kv, 0, 0)) {
        digest_add(&check, body + start + text + 8 + at, gw_kv_page_bytes(&s->kv, 0, 0));
    }
    memcpy(body + h.bytes - 8, &check.h, 8);
    if (write(fd, body, h.bytes) != (ssize_t)h.bytes) {
        abort();
    }
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static gw_session *s;
    static int32_t next = 5;
    char path[64];
    if (s == NULL) {
        s = open_session();
    }
    int fd = memfd_create("cache", MFD_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    if (n > 2 && data[0] % 2 == 1) {
        write_true(s, fd, data + 1, n - 1);
    } else if (n > 1 && write(fd, data + 1, n - 1) != (ssize_t)(n - 1)) {
        abort();
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    gw_status status = gw_session_load(s, path);
    fuzz_judge(status);
    int32_t pos = gw_session_pos(s);
    if (pos < 0 || pos > CTX || gw_session_prompted(s) > pos) {
        abort();
    }
    if (status == GW_OK && pos > 0 && pos < 12) { /* any cells: logits or an error, nothing else */
        fuzz_judge(gw_session_decode(s, &next, 1));
    }
    close(fd);
    return 0;
}
