/* core/text/regex.c - see regex.h. */
#include "core/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/text/buffer.h"
#include "core/text/pattern.h"

struct gw_regex {
    pcre2_code *code;
    int compiled;  /* to machine code */
    char *literal; /* NULL: an expression */
    size_t n_literal;
};

struct gw_regex_work {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

enum { MATCH_LIMIT = 20000000, HEAP_LIMIT_KIB = 256 * 1024, JIT_STACK_MAX = 64 << 20 };

gw_status gw_regex_new(const char *where, const char *pattern, int literal, gw_regex **out) {
    gw_bytes spelled = {0};
    gw_status status = GW_OK;
    gw_regex *regex = calloc(1, sizeof *regex);
    GW_TRY_DONE(regex == NULL ? gw_fail(GW_E_NOMEM, where, "no memory for a pattern") : GW_OK);
    if (literal) {
        regex->n_literal = strlen(pattern);
        regex->literal = strdup(pattern);
        GW_TRY_DONE(regex->literal == NULL ? gw_fail(GW_E_NOMEM, where, "no memory for a pattern")
                                           : GW_OK);
    } else {
        int error;
        PCRE2_SIZE at;
        GW_TRY_DONE(gw_pattern_spell(pattern, &spelled));
        regex->code = pcre2_compile((PCRE2_SPTR)(spelled.n > 0 ? spelled.data : ""), spelled.n,
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, NULL);
        if (regex->code == NULL) {
            char why[128] = "";
            pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
            GW_TRY_DONE(gw_fail(GW_E_UNSUPPORTED, where, "pattern \"%.60s\": %s", pattern, why));
        }
        /* interpreted where it fails */
        regex->compiled = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    }
    *out = regex;
    regex = NULL;
done:
    free(spelled.data);
    gw_regex_free(regex);
    return status;
}

void gw_regex_free(gw_regex *regex) {
    if (regex != NULL) {
        pcre2_code_free(regex->code);
        free(regex->literal);
        free(regex);
    }
}

gw_status gw_regex_work_new(gw_regex_work **out) {
    gw_regex_work *work = calloc(1, sizeof *work);
    if (work != NULL) {
        work->match = pcre2_match_data_create(1, NULL);
        work->context = pcre2_match_context_create(NULL);
        work->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, NULL);
    }
    if (work == NULL || work->match == NULL || work->context == NULL) {
        gw_regex_work_free(work);
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

void gw_regex_work_free(gw_regex_work *work) {
    if (work != NULL) {
        pcre2_match_data_free(work->match);
        pcre2_match_context_free(work->context);
        pcre2_jit_stack_free(work->stack);
        free(work);
    }
}

static void find_literal(const gw_regex *regex, const char *text, size_t n, size_t at, int *found,
                         size_t *start, size_t *end) {
    const char *hit = at < n ? memmem(text + at, n - at, regex->literal, regex->n_literal) : NULL;
    *found = hit != NULL;
    if (*found) {
        *start = (size_t)(hit - text);
        *end = *start + regex->n_literal;
    }
}

gw_status gw_regex_find(const gw_regex *regex, gw_regex_work *work, const char *text, size_t n,
                        size_t at, int *found, size_t *start, size_t *end) {
    if (regex->literal != NULL) {
        find_literal(regex, text, n, at, found, start, end);
        return GW_OK;
    }
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int result = regex->compiled
                     ? pcre2_jit_match(regex->code, subject, n, at, 0, work->match, work->context)
                     : PCRE2_ERROR_JIT_STACKLIMIT;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
        result = pcre2_match(regex->code, subject, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             work->match, work->context);
    }
    *found = result >= 0;
    if (result >= 0) {
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(work->match);
        *start = range[0];
        *end = range[1];
        return GW_OK;
    }
    return result == PCRE2_ERROR_NOMATCH
               ? GW_OK
               : gw_fail(GW_E_LIMIT, NULL, "a pre-tokenizer pattern failed on the text (%d)",
                         result);
}
