/* tests/fuzz/fuzz_http.c - what comes over a socket: heads cut anywhere, bodies in chunks. However
 * the bytes are cut, the outcome is the same. */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/http.c"

/* Where the head ends when the bytes come in pieces of `step`; *status of the fault. */
static size_t scan(const char *at, size_t n, size_t step, int *status) {
    http_scan state = {0};
    http_fault fault = {0};
    size_t end = 0;
    for (size_t have = 0; end == 0 && fault.status == 0 && have < n;) {
        have = n - have < step ? n : have + step;
        end = http_scan_head(&state, at, have, &fault);
    }
    *status = fault.status;
    return end;
}

/* The body of chunks that come in pieces of `step`: its bytes, and how it ended. */
static size_t unchunk(const char *at, size_t n, size_t step, char *body, int *outcome) {
    http_chunks chunks = {0};
    http_fault fault = {0};
    size_t total = 0;
    char *piece = malloc(step + 1);
    for (size_t i = 0; i < n && !chunks.done && fault.status == 0;) {
        size_t part = n - i < step ? n - i : step, used = 0, got = 0;
        memcpy(piece, at + i, part);
        if (http_chunks_read(&chunks, piece, part, &used, &got, &fault) != 0) {
            break;
        }
        memcpy(body + total, piece, got);
        total += got;
        i += used;
        if (used != part && !chunks.done) {
            abort(); /* it stops only at the end */
        }
    }
    free(piece);
    *outcome = chunks.done ? -1 : fault.status;
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const char *at = (const char *)data + 1;
    size_t n = size - 1, step = (size_t)(data[0] % 7) + 1;
    int whole, cut;
    size_t end = scan(at, n, n + 1, &whole);
    if (scan(at, n, step, &cut) != end || whole != cut) {
        abort();
    }
    http_head head;
    http_fault fault = {0};
    if (end > 0 && http_head_read(&head, at, end, &fault) == 0) {
        if (head.path[0] != '/' && strcmp(head.path, "*") != 0) {
            abort();
        }
        if (head.chunked && head.length >= 0) {
            abort();
        }
        http_head_field(&head, "Host");
    } else if (end > 0 && fault.status == 0) {
        abort();
    }
    if (end > 0) {
        http_head_free(&head);
    }
    const char *rest = at + end;
    size_t left = n - end;
    char *one = malloc(left + 1), *other = malloc(left + 1);
    int outcome, again;
    size_t got = unchunk(rest, left, left + 1, one, &outcome);
    size_t same = unchunk(rest, left, step, other, &again);
    if (outcome != again || (outcome <= 0 && (got != same || memcmp(one, other, got) != 0))) {
        abort();
    }
    free(one);
    free(other);
    return 0;
}
