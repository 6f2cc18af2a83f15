/* core/engine/sampling/ban.c - banned strings: which of the last tokens may still have to be taken
 * back, and which tokens were, at which place.
 *
 * The text that is searched is what a stream gives out for the tokens, so that it is the text that
 * people see. A token that was released is never taken back: a string that begins in it and would
 * still come true is prevented at the first token that can be.
 */
#include "core/engine/sampling/ban.h"

#include <stdlib.h>
#include <string.h>

#include "core/engine/run/model_state.h"
#include "core/text/buffer.h"

typedef struct held_token {
    int32_t id, pos;
    size_t start; /* of its bytes in the text */
} held_token;

typedef struct taken_back { /* in the order of (pos, id) */
    int32_t pos, id;
} taken_back;

struct gw_ban {
    const gw_tokenizer *tokenizer;
    int32_t n_vocab;
    int keep_special;
    gw_bytes words; /* one after the other, in the order of their first bytes */
    size_t at[GW_BAN_MAX + 1], n, longest;
    size_t first[257];          /* words that begin with a byte              */
    uint64_t *whole;            /* [n_vocab bits] tokens that spell one alone */
    gw_text_stream *base, *now; /* decoding before the held tokens, and behind them */
    gw_bytes text;              /* up to longest - 1 bytes before them, then theirs */
    held_token held[GW_BAN_HELD];
    size_t n_held;
    taken_back barred[GW_BAN_TAKES];
    size_t n_barred;
    int takes; /* since a token was last released */
};

/* ---- the strings ----------------------------------------------------------------------------- */

static int by_first_byte(const void *a, const void *b) {
    unsigned x = **(const unsigned char *const *)a, y = **(const unsigned char *const *)b;
    return (x > y) - (x < y);
}

static gw_status check_texts(const char *const *texts, size_t n) {
    if (n == 0 || n > GW_BAN_MAX) {
        return gw_fail(GW_E_LIMIT, "ban", "%zu banned strings; 1 to %d are allowed", n, GW_BAN_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        size_t bytes = strlen(texts[i]);
        if (bytes == 0 || bytes > GW_BAN_BYTES) {
            return gw_fail(GW_E_ARGUMENT, "ban",
                           "a banned string has %zu bytes; 1 to %d are allowed", bytes,
                           GW_BAN_BYTES);
        }
    }
    return GW_OK;
}

static gw_status take_words(gw_ban *b, const char *const *texts, size_t n) {
    gw_status status = GW_OK;
    const char **sorted = malloc(n * sizeof *sorted);
    if (sorted == NULL) {
        return gw_fail(GW_E_NOMEM, "ban", "no memory");
    }
    memcpy(sorted, texts, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_first_byte);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        size_t bytes = strlen(sorted[i]);
        status = gw_bytes_add(&b->words, sorted[i], bytes);
        b->at[i + 1] = b->words.n;
        b->longest = bytes > b->longest ? bytes : b->longest;
        b->first[(unsigned char)sorted[i][0] + 1]++;
    }
    b->n = n;
    for (int byte = 0; byte < 256; byte++) {
        b->first[byte + 1] += b->first[byte];
    }
    free(sorted);
    return status;
}

/* Words that begin with a byte: [from, to). */
typedef struct word_range {
    size_t from, to;
} word_range;

static word_range beginning_with(const gw_ban *b, char byte) {
    return (word_range){b->first[(unsigned char)byte], b->first[(unsigned char)byte + 1]};
}

/* The banned string that is whole first in text [n], with its end behind `before`; of several the
 * shortest: it costs the fewest tokens. *start: where it begins. */
static int find(const gw_ban *b, const char *text, size_t n, size_t before, size_t *start) {
    size_t end = n + 1;
    for (size_t s = before > b->longest - 1 ? before - (b->longest - 1) : 0; s < n; s++) {
        word_range words = beginning_with(b, text[s]);
        for (size_t i = words.from; i < words.to; i++) {
            size_t bytes = b->at[i + 1] - b->at[i], e = s + bytes;
            if (e > before && e <= n && e <= end &&
                memcmp(text + s, b->words.data + b->at[i], bytes) == 0) {
                end = e; /* a later beginning of the same end is a shorter string */
                *start = s;
            }
        }
    }
    return end <= n;
}

/* Where the end of text [n] begins that may become a banned string; n: nowhere. */
static size_t unsafe(const gw_ban *b, const char *text, size_t n) {
    for (size_t s = n > b->longest - 1 ? n - (b->longest - 1) : 0; s < n; s++) {
        word_range words = beginning_with(b, text[s]);
        for (size_t i = words.from; i < words.to; i++) {
            if (b->at[i + 1] - b->at[i] > n - s &&
                memcmp(text + s, b->words.data + b->at[i], n - s) == 0) {
                return s;
            }
        }
    }
    return n;
}

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status find_whole(gw_ban *b) {
    b->whole = calloc(((size_t)b->n_vocab + 63) / 64 + 1, sizeof *b->whole);
    if (b->whole == NULL) {
        return gw_fail(GW_E_NOMEM, "ban", "no memory for %d tokens", (int)b->n_vocab);
    }
    for (int32_t id = 0; id < b->n_vocab; id++) {
        const char *piece;
        size_t bytes, start;
        gw_tokenizer_piece(b->tokenizer, id, 0, &piece, &bytes);
        if (find(b, piece, bytes, 0, &start)) {
            b->whole[id / 64] |= (uint64_t)1 << (id % 64);
        }
    }
    return GW_OK;
}

gw_status gw_ban_make(const gw_tokenizer *tokenizer, int32_t n_vocab, const char *const *texts,
                      size_t n, int keep_special, gw_ban **out) {
    gw_status status;
    GW_TRY(check_texts(texts, n));
    gw_ban *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return gw_fail(GW_E_NOMEM, "ban", "no memory");
    }
    b->tokenizer = tokenizer;
    b->n_vocab = n_vocab;
    b->keep_special = keep_special;
    GW_TRY_DONE(take_words(b, texts, n));
    GW_TRY_DONE(find_whole(b));
    GW_TRY_DONE(gw_text_stream_new(tokenizer, &b->base));
    GW_TRY_DONE(gw_text_stream_new(tokenizer, &b->now));
    *out = b;
    return GW_OK;
done:
    gw_ban_free(b);
    return status;
}

gw_status gw_ban_new(const gw_model *model, const char *const *texts, size_t n, int keep_special,
                     gw_ban **out) {
    if (model->tokenizer == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, model->name,
                       "the model has no tokenizer, so no text can be banned");
    }
    return gw_ban_make(model->tokenizer, gw_model_n_vocab(model), texts, n, keep_special, out);
}

void gw_ban_free(gw_ban *b) {
    if (b != NULL) {
        gw_text_stream_free(b->base);
        gw_text_stream_free(b->now);
        free(b->words.data);
        free(b->whole);
        free(b->text.data);
        free(b);
    }
}

int32_t gw_ban_vocab(const gw_ban *b) { return b->n_vocab; }

gw_status gw_ban_start(gw_ban *b, const gw_text_stream *stream) {
    GW_TRY(gw_text_stream_copy(b->base, stream));
    GW_TRY(gw_text_stream_copy(b->now, stream));
    b->n_held = b->n_barred = 0;
    b->text.n = 0;
    b->takes = 0;
    return GW_OK;
}

gw_status gw_ban_begin(gw_ban *ban, const gw_stream *stream) {
    return gw_ban_start(ban, stream != NULL ? gw_stream_text(stream) : NULL);
}

/* ---- which tokens may come ------------------------------------------------------------------- */

size_t gw_ban_filter(const gw_ban *b, gw_candidates *c, int32_t pos) {
    size_t n = 0, at = 0;
    while (at < b->n_barred && b->barred[at].pos < pos) {
        at++;
    }
    for (size_t i = 0; i < c->n; i++) {
        int32_t id = c->at[i].token;
        while (at < b->n_barred && b->barred[at].pos == pos && b->barred[at].id < id) {
            at++;
        }
        int barred = at < b->n_barred && b->barred[at].pos == pos && b->barred[at].id == id;
        c->at[n] = c->at[i];
        n += !(b->whole[id / 64] >> (id % 64) & 1) && !barred;
    }
    size_t gone = c->n - n;
    c->n = n;
    c->ranked = 0;
    return gone;
}

/* What was learnt of places behind this one came of a text that is no more. */
static gw_status bar(gw_ban *b, int32_t pos, int32_t id) {
    while (b->n_barred > 0 && b->barred[b->n_barred - 1].pos > pos) {
        b->n_barred--;
    }
    if (b->takes == GW_BAN_TAKES || b->n_barred == GW_BAN_TAKES) {
        return gw_fail(GW_E_LIMIT, "banned strings",
                       "%d ways to go on from position %d all lead to one; ban less",
                       b->takes == GW_BAN_TAKES ? b->takes : (int)b->n_barred, (int)pos);
    }
    size_t at = b->n_barred;
    while (at > 0 && b->barred[at - 1].pos == pos && b->barred[at - 1].id > id) {
        at--;
    }
    memmove(&b->barred[at + 1], &b->barred[at], (b->n_barred - at) * sizeof *b->barred);
    b->barred[at] = (taken_back){.pos = pos, .id = id};
    b->n_barred++;
    b->takes++;
    return GW_OK;
}

/* ---- the text -------------------------------------------------------------------------------- */

size_t gw_ban_held(const gw_ban *b) { return b->n_held; }

/* The first n of the held tokens stay whatever comes. */
static gw_status let_go(gw_ban *b, size_t n) {
    const char *text;
    size_t bytes;
    for (size_t i = 0; i < n; i++) {
        GW_TRY(gw_text_stream_push(b->base, b->held[i].id, &text, &bytes));
    }
    int32_t passed = n > 0 ? b->held[n - 1].pos : -1;
    size_t out = 0;
    while (out < b->n_barred && b->barred[out].pos <= passed) {
        out++;
    }
    memmove(b->barred, b->barred + out, (b->n_barred - out) * sizeof *b->barred);
    b->n_barred -= out;
    b->n_held -= n;
    memmove(b->held, b->held + n, b->n_held * sizeof *b->held);
    b->takes = n > 0 ? 0 : b->takes;
    size_t own = b->n_held > 0 ? b->held[0].start : b->text.n, kept = b->longest - 1;
    size_t cut = own > kept ? own - kept : 0;
    if (cut > 0) {
        memmove(b->text.data, b->text.data + cut, b->text.n - cut);
        b->text.n -= cut;
    }
    for (size_t i = 0; i < b->n_held; i++) {
        b->held[i].start -= cut;
    }
    return GW_OK;
}

gw_status gw_ban_release(gw_ban *ban, size_t most) {
    return ban->n_held > most ? let_go(ban, ban->n_held - most) : GW_OK;
}

/* Add what is shown of a token. */
static gw_status spell(gw_ban *b, int32_t id) {
    const char *text;
    size_t bytes;
    GW_TRY(gw_text_stream_push(b->now, id, &text, &bytes));
    if (bytes == 0 && b->keep_special) {
        gw_tokenizer_piece(b->tokenizer, id, 0, &text, &bytes);
        if (bytes == 0) {
            gw_tokenizer_piece(b->tokenizer, id, 1, &text, &bytes);
        } else {
            bytes = 0; /* no special token: it only waits for the rest of a character */
        }
    }
    return gw_bytes_add(&b->text, text, bytes);
}

/* Decoding and text as they were before held token n. */
static gw_status restore(gw_ban *b, size_t n) {
    const char *text;
    size_t bytes;
    b->text.n = b->held[n].start;
    b->n_held = n;
    GW_TRY(gw_text_stream_copy(b->now, b->base));
    for (size_t i = 0; i < n; i++) {
        GW_TRY(gw_text_stream_push(b->now, b->held[i].id, &text, &bytes));
    }
    return GW_OK;
}

static gw_status release_safe(gw_ban *b) {
    size_t n = 0, from = unsafe(b, b->text.data, b->text.n);
    while (n < b->n_held && (n + 1 < b->n_held ? b->held[n + 1].start : b->text.n) <= from) {
        n++;
    }
    return n > 0 ? let_go(b, n) : GW_OK;
}

gw_status gw_ban_push(gw_ban *ban, int32_t token, int32_t pos, size_t *back) {
    GW_TRY(gw_ban_release(ban, GW_BAN_HELD - 1));
    size_t before = ban->text.n, start = 0;
    GW_TRY(spell(ban, token));
    ban->held[ban->n_held++] = (held_token){.id = token, .pos = pos, .start = before};
    if (!find(ban, ban->text.data, ban->text.n, before, &start)) {
        *back = 0;
        return release_safe(ban);
    }
    size_t first = ban->n_held - 1, gone = 1;
    while (first > 0 && ban->held[first].start > start) {
        first--;
        gone++;
    }
    held_token begins = ban->held[first];
    GW_TRY(restore(ban, first));
    GW_TRY(bar(ban, begins.pos, begins.id));
    *back = gone;
    return GW_OK;
}
