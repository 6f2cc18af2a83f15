/* tests/test_ban.c - banned strings: against re-sampling done the plain way, over random strings
 * and tokens that cut them anywhere; what is refused; ways that all lead to a banned string. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "core/engine/sampling/ban.h"
#include "core/engine/run/model.h"

#define MODEL "tests/data/tales-2m-q4_0.gguf"

enum { TOKENS = 60, POOL = 200, BYTES = 4096 };

static gw_model *model;
static int32_t n_vocab, pool[POOL];
static size_t n_pool;

static void ok(gw_status status) {
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
}

/* Short tokens over few characters: strings come true across them in many ways. */
static int open_model(void **state) {
    (void)state;
    gw_model_options options = {.path = MODEL, .vocab_only = 1};
    if (gw_model_open(&options, &model) != GW_OK) {
        return 1;
    }
    n_vocab = gw_model_n_vocab(model);
    for (int32_t id = 0; id < n_vocab && n_pool < POOL; id++) {
        const char *text;
        size_t n, good = 0;
        gw_tokenizer_piece(gw_model_tokenizer(model), id, 0, &text, &n);
        while (good < n && strchr("aeh t\xC3\xA9\xE2\x82\xAC", text[good]) != NULL &&
               text[good] != '\0') {
            good++;
        }
        if (n > 0 && n <= 3 && good == n) {
            pool[n_pool++] = id;
        }
    }
    return n_pool < 20;
}

static int close_model(void **state) {
    (void)state;
    gw_model_free(model);
    return 0;
}

static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* A model of sorts: what comes depends on the last two tokens and on how many there are. */
static void think(const int32_t *tokens, size_t n, uint32_t world, float *logits) {
    uint32_t last = n > 0 ? (uint32_t)tokens[n - 1] : 0,
             before = n > 1 ? (uint32_t)tokens[n - 2] : 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        logits[id] = -INFINITY;
    }
    for (size_t i = 0; i < n_pool; i++) {
        uint32_t x =
            mix(world + mix(last + mix(before + mix((uint32_t)(n / 3) + mix((uint32_t)i)))));
        logits[pool[i]] = (float)(x % 4096) / 512.0f;
    }
    logits[gw_token_eos(model)] = 2.0f;
}

typedef struct world {
    const char *bans[6];
    size_t n_bans;
    char text[6][16];
    uint32_t number;
    gw_sampler_options sampler;
    int narrow; /* few letters: strings overlap, and places are gone back to more than once */
    int tiny;   /* two tokens are left, and most of what they can spell is banned: ways end */
} world;

static gw_sampler *new_sampler(const world *w) {
    gw_sampler *s = NULL;
    ok(gw_sampler_new(model, &w->sampler, &s));
    return s;
}

static void prune(const world *w, float *logits) {
    if (w->tiny) {
        logits[gw_token_eos(model)] = -INFINITY;
    }
    for (size_t i = 2; w->tiny && i < n_pool; i++) {
        logits[pool[i]] = -INFINITY;
    }
    for (size_t i = 0; w->narrow && i < n_pool; i++) {
        const char *text;
        size_t n, good = 0;
        gw_tokenizer_piece(gw_model_tokenizer(model), pool[i], 0, &text, &n);
        while (good < n && strchr("aet\xC3\xA9", text[good]) != NULL) {
            good++;
        }
        logits[pool[i]] = good == n && n < 3 ? logits[pool[i]] : -INFINITY;
    }
}

/* ---- the plain way --------------------------------------------------------------------------- */

/* The text of tokens [n], and where the bytes of each end. */
static size_t write_all(const int32_t *tokens, size_t n, char *text, size_t *end) {
    gw_stream *stream = NULL;
    size_t all = 0;
    ok(gw_stream_new(model, &stream));
    for (size_t i = 0; i < n; i++) {
        const char *part;
        size_t bytes;
        ok(gw_stream_push(stream, tokens[i], &part, &bytes));
        memcpy(text + all, part, bytes);
        all += bytes;
        end[i] = all;
    }
    gw_stream_free(stream);
    return all;
}

typedef struct plain {
    int32_t tokens[TOKENS + 1];
    size_t n, final; /* tokens that stay whatever comes */
    uint8_t *gone;   /* [TOKENS + 1, n_vocab] taken back at a place */
    int takes;
    gw_status status;
} plain;

static int spells_one(const world *w, int32_t id) {
    const char *piece;
    size_t n;
    gw_tokenizer_piece(gw_model_tokenizer(model), id, 0, &piece, &n);
    for (size_t i = 0; i < w->n_bans; i++) {
        size_t bytes = strlen(w->bans[i]);
        for (size_t at = 0; at + bytes <= n; at++) {
            if (memcmp(piece + at, w->bans[i], bytes) == 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* What may come at place i of the text, as scores. */
static void allow(const world *w, const plain *p, size_t i, float *logits) {
    think(p->tokens, i, w->number, logits);
    prune(w, logits);
    for (size_t k = 0; k < n_pool; k++) {
        if (p->gone[i * (size_t)n_vocab + (size_t)pool[k]] || spells_one(w, pool[k])) {
            logits[pool[k]] = -INFINITY;
        }
    }
}

/* By a sampler that never had to forget: mirostat learns from every choice, so all are made anew.
 */
static gw_status choose(const world *w, const plain *p, int32_t *token) {
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    gw_sampler *s = new_sampler(w);
    assert_non_null(logits);
    for (size_t i = 0; i < p->n; i++) {
        if (w->sampler.mirostat != 0) {
            allow(w, p, i, logits);
            ok(gw_sampler_pick(s, logits, (int32_t)i, token));
            assert_int_equal(*token, p->tokens[i]);
        }
        ok(gw_sampler_accept(s, p->tokens[i]));
    }
    allow(w, p, p->n, logits);
    gw_status status = gw_sampler_pick(s, logits, (int32_t)p->n, token);
    gw_sampler_free(s);
    free(logits);
    return status;
}

/* Of the strings that are whole in text [n] and end behind `from` the one that ends first, then the
 * shortest; n: none. */
static size_t first_banned(const world *w, const char *text, size_t n, size_t from) {
    size_t begin = n;
    for (size_t end = from + 1; end <= n && begin == n; end++) {
        size_t least = n + 1;
        for (size_t i = 0; i < w->n_bans; i++) {
            size_t bytes = strlen(w->bans[i]);
            if (bytes <= end && bytes < least &&
                memcmp(text + end - bytes, w->bans[i], bytes) == 0) {
                least = bytes;
                begin = end - bytes;
            }
        }
    }
    return begin;
}

/* Can more text make a banned string that begins at byte `at`? */
static int may_become(const world *w, const char *text, size_t n, size_t at) {
    for (size_t i = 0; i < w->n_bans; i++) {
        if (strlen(w->bans[i]) > n - at && memcmp(text + at, w->bans[i], n - at) == 0) {
            return 1;
        }
    }
    return 0;
}

static void judge(const world *w, plain *p) {
    char text[BYTES];
    size_t end[TOKENS + 1], n = write_all(p->tokens, p->n, text, end);
    size_t begin = first_banned(w, text, n, p->n > 1 ? end[p->n - 2] : 0);
    if (begin < n) {
        size_t at = p->final;
        while (end[at] <= begin) {
            at++;
        }
        p->gone[at * (size_t)n_vocab + (size_t)p->tokens[at]] = 1;
        memset(p->gone + (at + 1) * (size_t)n_vocab, 0, (TOKENS - at) * (size_t)n_vocab);
        p->n = at;
        p->status = p->takes++ == GW_BAN_TAKES ? GW_E_LIMIT : GW_OK;
        return;
    }
    size_t open = 0;
    while (open < n && !may_become(w, text, n, open)) {
        open++;
    }
    size_t before = p->final;
    while (p->final < p->n && end[p->final] <= open) {
        p->final++;
    }
    p->takes = p->final > before ? 0 : p->takes;
}

static void go_the_plain_way(const world *w, plain *p) {
    p->gone = calloc((size_t)n_vocab, TOKENS + 1);
    assert_non_null(p->gone);
    while (p->status == GW_OK && p->n < TOKENS) {
        int32_t token = -1;
        p->status = choose(w, p, &token);
        if (p->status != GW_OK || token == gw_token_eos(model)) {
            break;
        }
        p->tokens[p->n++] = token;
        judge(w, p);
    }
    free(p->gone);
}

/* ---- the subject ----------------------------------------------------------------------------- */

typedef struct subject {
    int32_t tokens[TOKENS + 1];
    size_t n, shown; /* as a caller would hand them out */
    gw_status status;
    int backs;
} subject;

static void go_with_ban(const world *w, subject *x) {
    gw_ban *ban = NULL;
    gw_sampler *s = new_sampler(w);
    float *logits = malloc((size_t)n_vocab * sizeof *logits);
    assert_non_null(logits);
    ok(gw_ban_new(model, w->bans, w->n_bans, 0, &ban));
    ok(gw_sampler_ban(s, ban));
    ok(gw_ban_begin(ban, NULL));
    while (x->status == GW_OK && x->n < TOKENS) {
        int32_t token = -1;
        size_t back = 0;
        think(x->tokens, x->n, w->number, logits);
        prune(w, logits);
        x->status = gw_sampler_pick(s, logits, (int32_t)x->n, &token);
        if (x->status != GW_OK || token == gw_token_eos(model)) {
            break;
        }
        ok(gw_sampler_accept(s, token));
        x->tokens[x->n++] = token;
        x->status = gw_ban_push(ban, token, (int32_t)x->n - 1, &back);
        if (back > 0) {
            assert_in_range(back, 1, x->n - x->shown); /* nothing that was shown */
            ok(gw_sampler_rewind(s, back));
            x->n -= back;
            x->backs++;
        }
        if (x->status == GW_OK) {
            size_t shown = x->n - gw_ban_held(ban);
            assert_true(shown >= x->shown);
            x->shown = shown;
        }
    }
    x->n = x->status == GW_E_LIMIT ? x->shown + gw_ban_held(ban) : x->n;
    gw_sampler_free(s);
    gw_ban_free(ban);
    free(logits);
}

static void no_ban_in(const world *w, const subject *x) {
    char text[BYTES];
    size_t end[TOKENS + 1], n = write_all(x->tokens, x->n, text, end);
    for (size_t i = 0; i < w->n_bans; i++) {
        size_t bytes = strlen(w->bans[i]);
        for (size_t at = 0; at + bytes <= n; at++) {
            assert_memory_not_equal(text + at, w->bans[i], bytes);
        }
    }
}

static void make_world(world *w, uint32_t number) {
    static const char *const letters[] = {
        "a", "e", "h", "t", " ", "\xC3\xA9", "\xE2\x82\xAC", "\xEF\xBF\xBD"};
    uint32_t x = mix(number);
    *w = (world){.number = number,
                 .n_bans = 1 + x % 6,
                 .narrow = number % 10 != 9 && number % 10 >= 4,
                 .tiny = number % 10 == 9};
    gw_sampler_defaults(&w->sampler);
    w->sampler.seed = number;
    w->sampler.temperature = number % 2 ? 1.0f : 0.0f;
    w->sampler.top_k = number % 3 ? 0 : 20;
    w->sampler.top_p = 1;
    w->sampler.min_p = 0;
    w->sampler.repeat_penalty = number % 4 < 2 ? 1.0f : 1.2f;
    w->sampler.mirostat = number % 7 == 0 ? 2 : 0;
    for (size_t i = 0; i < w->n_bans; i++) {
        static const size_t few[] = {0, 1, 3, 5};
        size_t n = 2 + mix(x + (uint32_t)i) % (w->narrow ? 4 : 2);
        for (size_t j = 0; j < n; j++) {
            x = mix(x + 1);
            strcat(w->text[i],
                   letters[w->narrow ? few[x % 4] : x % (j > 0 && number % 4 != 3 ? 5 : 8)]);
        }
        w->bans[i] = w->text[i];
    }
    w->n_bans = w->tiny ? 3 + x % 2 : w->n_bans;
    for (size_t i = 0; w->tiny && i < w->n_bans; i++) { /* two of the two */
        w->text[i][0] = '\0';
        for (size_t half = 0; half < 2; half++) {
            const char *piece;
            size_t n;
            gw_tokenizer_piece(gw_model_tokenizer(model), pool[i >> half & 1], 0, &piece, &n);
            strncat(w->text[i], piece, n);
        }
        w->bans[i] = w->text[i];
    }
}

static void equals_sampling_again(void **state) {
    (void)state;
    int backs = 0, failed = 0;
    for (uint32_t number = 0; number < 80; number++) {
        world w;
        make_world(&w, number);
        plain p = {0};
        subject x = {0};
        go_the_plain_way(&w, &p);
        go_with_ban(&w, &x);
        assert_int_equal(x.status, p.status);
        assert_int_equal(x.n, p.n);
        assert_memory_equal(x.tokens, p.tokens, p.n * sizeof *p.tokens);
        no_ban_in(&w, &x);
        backs += x.backs;
        failed += x.status != GW_OK;
    }
    print_message("taken back %d times, %d ways without an end\n", backs, failed);
    assert_true(backs > 150 && failed > 0 && failed < 40); /* or nothing was tested */
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuses(const char *const *texts, size_t n, gw_status status, const char *says) {
    gw_ban *ban = NULL;
    assert_int_equal(gw_ban_new(model, texts, n, 0, &ban), status);
    assert_non_null(strstr(gw_error_text(), says));
    assert_null(ban);
}

static void limits(void **state) {
    (void)state;
    static char most[GW_BAN_BYTES + 1], over[GW_BAN_BYTES + 2];
    static const char *many[GW_BAN_MAX + 1];
    memset(most, 'x', GW_BAN_BYTES);
    memset(over, 'x', GW_BAN_BYTES + 1);
    const char *empty = "", *just = most, *beyond = over;
    for (size_t i = 0; i <= GW_BAN_MAX; i++) {
        many[i] = "ab";
    }
    refuses(&empty, 1, GW_E_ARGUMENT, "0 bytes");
    refuses(&beyond, 1, GW_E_ARGUMENT, "1001 bytes");
    refuses(many, GW_BAN_MAX + 1, GW_E_LIMIT, "1025");
    refuses(many, 0, GW_E_LIMIT, "0 banned strings");
    gw_ban *ban = NULL;
    ok(gw_ban_new(model, &just, 1, 0, &ban));
    gw_ban_free(ban);
    ok(gw_ban_new(model, many, GW_BAN_MAX, 0, &ban));
    gw_ban_free(ban);
}

/* Each of the tokens that may come begins the string, and the one behind it ends it: after so many
 * of them an error, and not before. */
static void gives_up(void **state) {
    (void)state;
    const char *banned = "zq";
    gw_ban *ban = NULL;
    ok(gw_ban_new(model, &banned, 1, 0, &ban));
    ok(gw_ban_begin(ban, NULL));
    int32_t z = -1, q = -1;
    for (int32_t id = 0; id < n_vocab; id++) {
        const char *text;
        size_t n;
        gw_tokenizer_piece(gw_model_tokenizer(model), id, 0, &text, &n);
        z = n == 1 && *text == 'z' ? id : z;
        q = n == 1 && *text == 'q' ? id : q;
    }
    assert_true(z >= 0 && q >= 0);
    gw_status status = GW_OK;
    int rounds = 0;
    for (; status == GW_OK && rounds < 2 * GW_BAN_TAKES; rounds++) {
        size_t back = 0;
        ok(gw_ban_push(ban, z, 5, &back));
        assert_int_equal(back, 0);
        assert_int_equal(gw_ban_held(ban), 1);
        status = gw_ban_push(ban, q, 6, &back);
        assert_true(status != GW_OK || back == 2);
        assert_int_equal(gw_ban_held(ban), 0);
    }
    assert_int_equal(status, GW_E_LIMIT);
    assert_int_equal(rounds, GW_BAN_TAKES + 1);
    assert_non_null(strstr(gw_error_text(), "position 5"));
    gw_ban_free(ban);
}

/* What was taken back at places that are passed does not add up. */
static void goes_on_for_ever(void **state) {
    (void)state;
    const char *banned = "ta";
    int32_t t = -1, a = -1;
    for (size_t i = 0; i < n_pool; i++) {
        const char *text;
        size_t n;
        gw_tokenizer_piece(gw_model_tokenizer(model), pool[i], 0, &text, &n);
        t = n == 1 && *text == 't' ? pool[i] : t;
        a = n == 1 && *text == 'a' ? pool[i] : a;
    }
    assert_true(t >= 0 && a >= 0);
    gw_ban *ban = NULL;
    ok(gw_ban_new(model, &banned, 1, 0, &ban));
    ok(gw_ban_begin(ban, NULL));
    for (int32_t pos = 0; pos < 3 * GW_BAN_TAKES; pos++) {
        size_t back = 0;
        ok(gw_ban_push(ban, t, pos, &back));
        ok(gw_ban_push(ban, a, pos + 1, &back));
        assert_int_equal(back, 2);
        ok(gw_ban_push(ban, a, pos, &back));
        assert_int_equal(gw_ban_held(ban), 0);
    }
    gw_ban_free(ban);
}

/* A string that begins in a token that can no longer be taken back is prevented at the next one. */
static void released_tokens_stay(void **state) {
    (void)state;
    const char *banned = "aaaa";
    int32_t a = -1;
    for (size_t i = 0; i < n_pool; i++) {
        const char *text;
        size_t n;
        gw_tokenizer_piece(gw_model_tokenizer(model), pool[i], 0, &text, &n);
        a = n == 1 && *text == 'a' ? pool[i] : a;
    }
    assert_true(a >= 0);
    gw_ban *ban = NULL;
    size_t back = 9;
    ok(gw_ban_new(model, &banned, 1, 0, &ban));
    ok(gw_ban_begin(ban, NULL));
    for (int32_t pos = 0; pos < 3; pos++) {
        ok(gw_ban_push(ban, a, pos, &back));
        assert_int_equal(back, 0);
    }
    assert_int_equal(gw_ban_held(ban), 3);
    ok(gw_ban_release(ban, 1));
    assert_int_equal(gw_ban_held(ban), 1);
    ok(gw_ban_push(ban, a, 3, &back));
    assert_int_equal(back, 2);
    gw_candidate at[2] = {{.token = a}, {.token = a + 1}};
    gw_candidates list = {.at = at, .n = 2};
    assert_int_equal(gw_ban_filter(ban, &list, 3), 0); /* learnt of the place before, not of this */
    assert_int_equal(gw_ban_filter(ban, &list, 2), 1);
    assert_int_equal(at[0].token, a + 1);
    ok(gw_ban_begin(ban, NULL)); /* another text: everything may come */
    at[0].token = a;
    list = (gw_candidates){.at = at, .n = 1};
    assert_int_equal(gw_ban_filter(ban, &list, 2), 0);
    gw_ban_free(ban);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_sampling_again),
        cmocka_unit_test(limits),
        cmocka_unit_test(gives_up),
        cmocka_unit_test(goes_on_for_ever),
        cmocka_unit_test(released_tokens_stay),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
