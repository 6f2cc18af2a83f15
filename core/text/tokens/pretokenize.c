/* core/text/tokens/pretokenize.c - see pretokenize.h. The only user of PCRE2. */
#include "core/text/tokens/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/text/buffer.h"
#include "core/text/tokens/known.h"
#include "core/text/tokens/pattern.h"

typedef struct split {
    pcre2_code *code;
    gw_split_rule rule;
    int invert;
} split;

struct gw_splitter {
    split *splits;
    size_t n;
};

/* ---- patterns ---------------------------------------------------------------------------- */

static gw_status compile(const char *where, const gw_vocab_split *from, split *to) {
    gw_bytes spelled = {0};
    gw_status status = from->literal ? gw_bytes_add(&spelled, from->pattern, strlen(from->pattern))
                                     : gw_pattern_spell(from->pattern, &spelled);
    if (status == GW_OK) {
        int error;
        PCRE2_SIZE at;
        uint32_t options =
            PCRE2_UTF | PCRE2_UCP | (from->literal ? PCRE2_LITERAL : PCRE2_MULTILINE);
        if (from->literal) {
            options &= ~(uint32_t)PCRE2_UCP;
        }
        to->code = pcre2_compile((PCRE2_SPTR)spelled.data, spelled.n, options, &error, &at, NULL);
        if (to->code == NULL) {
            char why[128] = "";
            pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
            status = gw_fail(GW_E_UNSUPPORTED, where, "pre-tokenizer pattern \"%.60s\": %s",
                             from->pattern, why);
        } else {
            (void)pcre2_jit_compile(to->code, PCRE2_JIT_COMPLETE); /* interpreted where it fails */
        }
        to->rule = from->rule;
        to->invert = from->invert;
    }
    free(spelled.data);
    return status;
}

gw_status gw_splitter_new(const char *where, const gw_vocab *vocab, gw_splitter **out) {
    const gw_known_pretokenizer own = {vocab->splits, vocab->n_splits, 0}, *from = &own;
    if (vocab->pre[0] != '\0') {
        GW_TRY(gw_known_find(where, vocab->pre, &from));
    }
    gw_splitter *splitter = calloc(1, sizeof *splitter);
    split *splits = calloc(from->n + 1, sizeof *splits);
    if (splitter == NULL || splits == NULL) {
        free(splitter);
        free(splits);
        return gw_fail(GW_E_NOMEM, where, "no memory for the pre-tokenizer");
    }
    splitter->splits = splits;
    for (size_t i = 0; i < from->n; i++) {
        gw_status status = compile(where, &from->splits[i], &splits[i]);
        if (status != GW_OK) {
            gw_splitter_free(splitter);
            return status;
        }
        splitter->n++;
    }
    *out = splitter;
    return GW_OK;
}

void gw_splitter_free(gw_splitter *splitter) {
    if (splitter == NULL) {
        return;
    }
    for (size_t i = 0; i < splitter->n; i++) {
        pcre2_code_free(splitter->splits[i].code);
    }
    free(splitter->splits);
    free(splitter);
}

/* ---- cutting ----------------------------------------------------------------------------- */

typedef struct spans {
    gw_span *data;
    size_t n, capacity;
} spans;

struct gw_split_work {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    spans now, next;
    int joined; /* the last span of `next` was a match (rules that join neighbours) */
};

enum { MATCH_LIMIT = 20000000, HEAP_LIMIT_KIB = 256 * 1024, JIT_STACK_MAX = 8 << 20 };

gw_status gw_split_work_new(gw_split_work **out) {
    gw_split_work *work = calloc(1, sizeof *work);
    if (work != NULL) {
        work->match = pcre2_match_data_create(1, NULL);
        work->context = pcre2_match_context_create(NULL);
        work->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, NULL);
    }
    if (work == NULL || work->match == NULL || work->context == NULL) {
        gw_split_work_free(work);
        return gw_fail(GW_E_NOMEM, NULL, "no memory for the pre-tokenizer");
    }
    pcre2_set_match_limit(work->context, MATCH_LIMIT);
    pcre2_set_heap_limit(work->context, HEAP_LIMIT_KIB);
    if (work->stack != NULL) { /* NULL where PCRE2 was built without JIT */
        pcre2_jit_stack_assign(work->context, NULL, work->stack);
    }
    *out = work;
    return GW_OK;
}

void gw_split_work_free(gw_split_work *work) {
    if (work == NULL) {
        return;
    }
    pcre2_match_data_free(work->match);
    pcre2_match_context_free(work->context);
    pcre2_jit_stack_free(work->stack);
    free(work->now.data);
    free(work->next.data);
    free(work);
}

static gw_status add_span(spans *list, size_t start, size_t end) {
    if (list->n == list->capacity) {
        void *data = list->data;
        gw_status status =
            gw_array_reserve(&data, &list->capacity, list->n + 1, sizeof *list->data);
        list->data = data;
        GW_TRY(status);
    }
    gw_span span = {(uint32_t)start, (uint32_t)(end - start)};
    list->data[list->n++] = span;
    return GW_OK;
}

/* One stretch of a piece that starts in list->data[first]: a match or what lies between two. */
static gw_status add_stretch(gw_split_work *work, const split *by, size_t first, size_t start,
                             size_t end, int matched) {
    if (start == end) {
        return GW_OK;
    }
    spans *list = &work->next;
    int is_match = matched != by->invert;
    int had_match = list->n > first && work->joined;
    int was_between = list->n > first && !work->joined;
    work->joined = is_match;
    gw_span *last = list->n > first ? &list->data[list->n - 1] : NULL;
    switch (by->rule) {
    case GW_SPLIT_REMOVED:
        return is_match ? GW_OK : add_span(list, start, end);
    case GW_SPLIT_WITH_PREVIOUS:
        if (is_match && was_between) {
            last->bytes += (uint32_t)(end - start);
            return GW_OK;
        }
        return add_span(list, start, end);
    case GW_SPLIT_WITH_NEXT:
        if (!is_match && had_match) {
            last->bytes += (uint32_t)(end - start);
            return GW_OK;
        }
        return add_span(list, start, end);
    case GW_SPLIT_CONTIGUOUS:
        if (last != NULL && (is_match ? had_match : was_between)) {
            last->bytes += (uint32_t)(end - start);
            return GW_OK;
        }
        return add_span(list, start, end);
    case GW_SPLIT_ISOLATED:
    default:
        return add_span(list, start, end);
    }
}

static int match_at(const split *by, gw_split_work *work, const char *text, size_t n, size_t at) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int found =
        pcre2_match(by->code, subject, n, at, PCRE2_NO_UTF_CHECK, work->match, work->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(by->code, subject, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            work->match, work->context);
    }
    return found;
}

static gw_status cut(const split *by, gw_split_work *work, const char *text, gw_span piece) {
    const char *subject = text + piece.start;
    size_t first = work->next.n, at = 0, done = 0;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(work->match);
    work->joined = 0;
    while (at < piece.bytes) {
        int found = match_at(by, work, subject, piece.bytes, at);
        if (found == PCRE2_ERROR_NOMATCH) {
            break;
        }
        if (found < 0) {
            return gw_fail(GW_E_LIMIT, NULL, "a pre-tokenizer pattern failed on the text (%d)",
                           found);
        }
        if (range[1] <= range[0]) { /* an empty match cuts where it is (\K games aside) */
            size_t here = range[0] > done && range[1] == range[0] ? range[0] : done;
            GW_TRY(add_stretch(work, by, first, piece.start + done, piece.start + here, 0));
            done = here;
            at = range[1] > at ? range[1] : at;
            do {
                at++;
            } while (at < piece.bytes && ((uint8_t)subject[at] & 0xC0) == 0x80);
            continue;
        }
        size_t start = range[0] < done ? done : range[0];
        size_t end = range[1] < start ? start : range[1];
        GW_TRY(add_stretch(work, by, first, piece.start + done, piece.start + start, 0));
        GW_TRY(add_stretch(work, by, first, piece.start + start, piece.start + end, 1));
        at = done = end;
    }
    return add_stretch(work, by, first, piece.start + done, (size_t)piece.start + piece.bytes, 0);
}

gw_status gw_splitter_run(const gw_splitter *splitter, gw_split_work *work, const char *text,
                          size_t n, const gw_span **out, size_t *count) {
    work->now.n = 0;
    if (n > 0) {
        GW_TRY(add_span(&work->now, 0, n));
    }
    for (size_t i = 0; i < splitter->n; i++) {
        work->next.n = 0;
        for (size_t k = 0; k < work->now.n; k++) {
            GW_TRY(cut(&splitter->splits[i], work, text, work->now.data[k]));
        }
        spans swap = work->now;
        work->now = work->next;
        work->next = swap;
    }
    *out = work->now.data;
    *count = work->now.n;
    return GW_OK;
}
