/* core/text/tokens/pretokenize.c - see pretokenize.h. */
#include "core/text/tokens/pretokenize.h"

#include "core/text/buffer.h"
#include "core/text/tokens/known.h"
#include "core/text/tokens/steps.h"

typedef struct split {
    gw_regex *regex; /* NULL: a change */
    gw_split_rule rule;
    int invert;
    gw_change change;
} split;

struct gw_splitter {
    split *splits;
    size_t n;
};

/* ---- patterns ---------------------------------------------------------------------------- */

static gw_status compile(const char *where, const gw_vocab_split *from, split *to) {
    to->rule = from->rule;
    to->invert = from->invert;
    return from->change != NULL ? gw_change_new(where, from->change, &to->change)
                                : gw_regex_new(where, from->pattern, from->literal, &to->regex);
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
        gw_regex_free(splitter->splits[i].regex);
        gw_change_free(&splitter->splits[i].change);
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
    gw_regex_work *regex;
    spans now, next;
    gw_bytes text, changed; /* what steps made of the text, and of that */
    int joined;             /* the last span of `next` was a match (rules that join neighbours) */
    int at_start;           /* the first span begins where the text does that changes have made */
};

gw_status gw_split_work_new(gw_split_work **out) {
    gw_split_work *work = calloc(1, sizeof *work);
    gw_status status = work != NULL ? gw_regex_work_new(&work->regex)
                                    : gw_fail(GW_E_NOMEM, NULL, "no memory for the pre-tokenizer");
    if (status != GW_OK) {
        gw_split_work_free(work);
        return status;
    }
    *out = work;
    return GW_OK;
}

gw_regex_work *gw_split_work_regex(gw_split_work *work) { return work->regex; }

void gw_split_work_free(gw_split_work *work) {
    if (work == NULL) {
        return;
    }
    gw_regex_work_free(work->regex);
    free(work->now.data);
    free(work->next.data);
    free(work->text.data);
    free(work->changed.data);
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

static gw_status cut(const split *by, gw_split_work *work, const char *text, gw_span piece) {
    const char *subject = text + piece.start;
    size_t first = work->next.n, at = 0, done = 0, start = 0, end = 0;
    work->joined = 0;
    while (at < piece.bytes) {
        int found;
        GW_TRY(
            gw_regex_find(by->regex, work->regex, subject, piece.bytes, at, &found, &start, &end));
        if (!found) {
            break;
        }
        if (end <= start) { /* an empty match cuts where it is (\K games aside) */
            size_t here = start > done && end == start ? start : done;
            GW_TRY(add_stretch(work, by, first, piece.start + done, piece.start + here, 0));
            work->joined = by->rule == GW_SPLIT_CONTIGUOUS ? !by->invert : work->joined;
            done = here;
            at = end > at ? end : at;
            do {
                at++;
            } while (at < piece.bytes && ((uint8_t)subject[at] & 0xC0) == 0x80);
            continue;
        }
        start = start < done ? done : start;
        end = end < start ? start : end;
        GW_TRY(add_stretch(work, by, first, piece.start + done, piece.start + start, 0));
        GW_TRY(add_stretch(work, by, first, piece.start + start, piece.start + end, 1));
        at = done = end;
    }
    return add_stretch(work, by, first, piece.start + done, (size_t)piece.start + piece.bytes, 0);
}

/* Every piece becomes another text; the spans then lie in these, one after the other. */
static gw_status change(const gw_change *step, gw_split_work *work, const char **text, int place) {
    work->changed.n = 0;
    work->at_start = work->at_start && work->now.n > 0 && work->now.data[0].start == 0;
    for (size_t k = 0; k < work->now.n; k++) {
        gw_span *piece = &work->now.data[k];
        size_t begin = work->changed.n;
        int here = (k == 0 && work->at_start ? place : place & ~GW_PLACE_FIRST) &
                   (k == 0 ? ~0 : ~GW_PLACE_JOINED);
        GW_TRY(gw_change_run(step, work->regex, *text + piece->start, piece->bytes, here,
                             &work->changed));
        if (work->changed.n > UINT32_MAX) {
            return gw_fail(GW_E_LIMIT, NULL, "a text of %zu bytes is too long", work->changed.n);
        }
        *piece = (gw_span){(uint32_t)begin, (uint32_t)(work->changed.n - begin)};
    }
    gw_bytes swap = work->text;
    work->text = work->changed;
    work->changed = swap;
    *text = work->text.n > 0 ? work->text.data : "";
    return GW_OK;
}

gw_status gw_splitter_run(const gw_splitter *splitter, gw_split_work *work, const char *text,
                          size_t n, int place, const char **from, const gw_span **out,
                          size_t *count) {
    work->now.n = 0;
    work->at_start = 1;
    if (n > 0) {
        GW_TRY(add_span(&work->now, 0, n));
    }
    for (size_t i = 0; i < splitter->n; i++) {
        if (splitter->splits[i].regex == NULL) {
            GW_TRY(change(&splitter->splits[i].change, work, &text, place));
            continue;
        }
        work->next.n = 0;
        for (size_t k = 0; k < work->now.n; k++) {
            GW_TRY(cut(&splitter->splits[i], work, text, work->now.data[k]));
        }
        spans swap = work->now;
        work->now = work->next;
        work->next = swap;
    }
    *from = text;
    *out = work->now.data;
    *count = work->now.n;
    return GW_OK;
}
