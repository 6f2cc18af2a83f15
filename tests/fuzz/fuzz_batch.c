/* tests/fuzz/fuzz_batch.c - the engine of many requests over a model that is made up: what a row
 * computes is a hash of its token, its order of sums and the row before it, found through the page
 * table as a kernel finds it. So rows that see another's pages, pages that were let go too early,
 * prompts that were shared with positions of an answer, and states that nobody knows any more are
 * caught where they happen; and every text is compared with one that is made alone, by the same
 * sampler. Requests come, are cancelled and are held as the bytes say; times are made up as well.
 *
 * The batch's own files are compiled with the names below (CMakeLists.txt): only what is under them
 * is replaced. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "core/engine/batch/batch_state.h"
#include "tests/fuzz/fuzz.h"

enum { VOCAB_MOST = 65536, REQUESTS = 12, TEXT = 300, STEPS = 50000, SLOTS = 12 };

static void give_up(const char *why) {
    fprintf(stderr, "fuzz_batch: %s\n", why);
    abort();
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static const uint8_t *data_at;
static size_t data_left;

static uint32_t byte(void) {
    data_left -= data_left > 0;
    return data_left > 0 ? *data_at++ : 0;
}

static uint32_t below(uint32_t n) { return (byte() | byte() << 8) % n; }

static uint64_t mix(uint64_t a, uint64_t b) { /* splitmix64's finish */
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- the made-up model ----------------------------------------------------------------------- */

enum { ROOT = 12345 };
static gw_model *model;
static int32_t n_vocab;
static double clock_now, row_cost;
static int with_states, makes, any_broken;

int fuzz_clock_gettime(clockid_t which, struct timespec *out) {
    (void)which;
    clock_now += 1e-5;
    out->tv_sec = (time_t)clock_now;
    out->tv_nsec = (long)((clock_now - (double)out->tv_sec) * 1e9);
    return 0;
}

static uint64_t next_hash(uint64_t before, int32_t token, int decoded) {
    return mix(before, (uint64_t)(uint32_t)token << 1 | (uint64_t)decoded);
}

/* Most often one token is far ahead, and two models agree on it three times of four. */
static void fill_logits(uint64_t hash, int32_t token, int is_draft, float *out) {
    uint64_t x = hash;
    for (int32_t i = 0; i < n_vocab; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        out[i] = (float)(x >> 54) * (1.0f / 256.0f);
    }
    uint64_t ahead = mix((uint64_t)(uint32_t)token, 99);
    if (!is_draft || mix(ahead, hash) % 4 != 0) {
        out[ahead % (uint64_t)(uint32_t)n_vocab] += 9.0f;
    }
}

static int is_broken(uint64_t hash) { return any_broken && hash % 211 == 0; }

typedef struct cell {
    uint64_t hash, before;
    int32_t token;
} cell;

typedef struct made_up {
    gw_session s;
    int is_draft;
    int32_t slots, entries, rows;
    int64_t pages;
    int32_t *table;                      /* [slots, entries] */
    cell *at;                            /* [pages, GW_PAGE] */
    cell state[SLOTS][GW_STATE_ENTRIES]; /* the row that was last at each */
    int32_t state_pos[SLOTS][GW_STATE_ENTRIES];
    cell row[GW_CHUNK_MAX];
    float *logits; /* [GW_HEAD_TILE or GW_PARALLEL_MAX, n_vocab] */
} made_up;

gw_status fuzz_session_make(gw_model *m, const gw_session_options *o, const gw_sharing *sharing,
                            gw_session **out) {
    made_up *u = calloc(1, sizeof *u);
    u->is_draft = makes++ > 0;
    u->slots = sharing->slots;
    u->pages = sharing->pages;
    u->entries = (o->n_ctx - 1) / GW_PAGE + 1;
    u->table = malloc((size_t)u->slots * (size_t)u->entries * sizeof *u->table);
    memset(u->table, 0xff, (size_t)u->slots * (size_t)u->entries * sizeof *u->table);
    u->at = calloc((size_t)u->pages * GW_PAGE, sizeof *u->at);
    u->logits = malloc((size_t)GW_PARALLEL_MAX * (size_t)n_vocab * sizeof(float));
    u->s.model = m;
    u->s.sharing = *sharing;
    u->s.n_widths = gw_session_widths(sharing->widest > 0 ? sharing->widest : GW_DECODE_MAX);
    u->s.n_ctx = o->n_ctx;
    u->s.chunk = o->chunk > 0 ? o->chunk : 64;
    u->s.states.any = with_states && !u->is_draft;
    u->s.states.entries =
        sharing->state_entries > 0 ? sharing->state_entries : GW_STATE_ENTRIES;
    *out = &u->s;
    return GW_OK;
}

void fuzz_session_free(gw_session *s) {
    made_up *u = (made_up *)s;
    if (u != NULL) {
        free(u->table);
        free(u->at);
        free(u->logits);
        free(u);
    }
}

gw_status fuzz_session_draw_rows(gw_session *s) {
    (void)s;
    return GW_OK;
}

int fuzz_session_draws(const gw_session *s, const gw_choice *rule) {
    (void)s;
    (void)rule;
    return 0;
}

gw_status fuzz_rows_draw(gw_session *s, const gw_choice *rules, int32_t *ids) {
    (void)s;
    (void)rules;
    (void)ids;
    give_up("drawn where nothing draws");
    return GW_OK;
}

gw_status fuzz_rows_map(gw_session *s, int32_t slot, int32_t first, const int32_t *pages,
                        int32_t n) {
    made_up *u = (made_up *)s;
    for (int32_t i = 0; i < n; i++) {
        if (slot < 0 || slot >= u->slots || first + i >= u->entries || pages[i] < 0 ||
            pages[i] >= u->pages) {
            give_up("a page that is none");
        }
        u->table[slot * u->entries + first + i] = pages[i];
    }
    return GW_OK;
}

static cell *cell_of(const made_up *u, int32_t slot, int32_t pos) {
    int32_t page = u->table[slot * u->entries + pos / GW_PAGE];
    if (page < 0) {
        give_up("a position without a page");
    }
    return &u->at[(size_t)page * GW_PAGE + (size_t)(pos % GW_PAGE)];
}

/* All that attention looks at must be one text. */
static uint64_t hash_before(const made_up *u, const gw_row *r) {
    uint64_t hash = ROOT;
    for (int32_t p = 0; p < r->pos; p++) {
        const cell *c = cell_of(u, r->slot, p);
        if (c->before != hash) {
            give_up(u->is_draft ? "the draft model sees another text" : "a row sees another text");
        }
        hash = c->hash;
    }
    if (u->s.states.any && r->pos > 0) {
        int entry = (r->pos - 1) % u->s.states.entries;
        if (u->state_pos[r->slot][entry] != r->pos - 1 || u->state[r->slot][entry].hash != hash) {
            give_up("a state that is not known");
        }
    }
    return hash;
}

size_t fuzz_rows_state_bytes(const gw_session *s) { return s->states.any ? sizeof(cell) : 0; }

gw_status fuzz_rows_state_save(gw_session *s, int32_t slot, int32_t pos, void *out) {
    made_up *u = (made_up *)s;
    int entry = (pos - 1) % s->states.entries;
    if (pos < 1 || u->state_pos[slot][entry] != pos - 1) {
        give_up("a state is kept that is not known");
    }
    memcpy(out, &u->state[slot][entry], sizeof(cell));
    return GW_OK;
}

gw_status fuzz_rows_state_load(gw_session *s, int32_t slot, int32_t pos, const void *in) {
    made_up *u = (made_up *)s;
    memset(u->state_pos[slot], 0xff, sizeof u->state_pos[slot]);
    memcpy(&u->state[slot][(pos - 1) % s->states.entries], in, sizeof(cell));
    u->state_pos[slot][(pos - 1) % s->states.entries] = pos - 1;
    return GW_OK;
}

static void run_rows(made_up *u, const gw_row *rows, int32_t n, int decoded) {
    for (int32_t i = 0; i < n; i++) {
        const gw_row *r = &rows[i];
        if (r->pos < 0 || r->pos >= u->s.n_ctx || r->token < 0 || r->token >= n_vocab) {
            give_up("a row that is none");
        }
        uint64_t before = hash_before(u, r);
        cell c = {.before = before, .token = r->token};
        c.hash = next_hash(before, r->token, decoded && !u->is_draft);
        *cell_of(u, r->slot, r->pos) = u->row[i] = c;
        u->state[r->slot][r->pos % u->s.states.entries] = c;
        u->state_pos[r->slot][r->pos % u->s.states.entries] = r->pos;
    }
    u->rows = n;
    clock_now += 1e-4 + row_cost * n;
}

gw_status fuzz_rows_decode(gw_session *s, const gw_row *rows, int32_t n, const gw_choice *rules,
                           int32_t *ids) {
    if (rules != NULL || ids != NULL) {
        give_up("drawn where nothing draws");
    }
    if (n < 1 || n > GW_PARALLEL_MAX || n > s->sharing.widest) {
        give_up("a pass of too many rows");
    }
    run_rows((made_up *)s, rows, n, 1);
    return GW_OK;
}

gw_status fuzz_rows_prefill(gw_session *s, const gw_row *rows, int32_t n) {
    if (n < 1 || n > s->chunk) {
        give_up("a chunk of too many rows");
    }
    run_rows((made_up *)s, rows, n, 0);
    return GW_OK;
}

enum { PAGE_BYTES = GW_PAGE * sizeof(cell) };

size_t fuzz_rows_page_bytes(const gw_session *s) {
    (void)s;
    return PAGE_BYTES;
}

static cell *page_of(gw_session *s, int32_t page) {
    made_up *u = (made_up *)s;
    if (page < 0 || page >= u->pages) {
        give_up("a page that is none is copied");
    }
    return &u->at[(size_t)page * GW_PAGE];
}

gw_status fuzz_rows_page_save(gw_session *s, int32_t page, void *out) {
    memcpy(out, page_of(s, page), PAGE_BYTES);
    return GW_OK;
}

gw_status fuzz_rows_page_load(gw_session *s, int32_t page, const void *in) {
    memcpy(page_of(s, page), in, PAGE_BYTES);
    return GW_OK;
}

size_t fuzz_rows_copy_bytes(const gw_session *s) {
    (void)s;
    return 1;
}

gw_status fuzz_rows_copy(gw_session *s, int32_t from, int32_t to, int32_t pos, int32_t page_from,
                         int32_t page_to, void *room) {
    const made_up *u = (made_up *)s;
    (void)room;
    if (s->states.any || from == to || from < 0 || from >= u->slots || to < 0 || to >= u->slots ||
        u->table[from * u->entries + pos / GW_PAGE] != page_from || page_to == page_from ||
        page_to < 0 || page_to >= u->pages) {
        give_up("a page that cannot be copied");
    }
    memcpy(&u->at[(size_t)page_to * GW_PAGE], &u->at[(size_t)page_from * GW_PAGE],
           GW_PAGE * sizeof(cell));
    return GW_OK;
}

static void show_row(made_up *u, int32_t row, int32_t at) {
    if (row >= u->rows) {
        give_up("logits of a row that did not run");
    }
    fill_logits(u->row[row].hash, u->row[row].token, u->is_draft,
                u->logits + (size_t)at * (size_t)n_vocab);
    if (is_broken(u->row[row].hash)) {
        u->logits[(size_t)at * (size_t)n_vocab] = NAN;
    }
}

gw_status fuzz_rows_fetch(gw_session *s, int32_t i) {
    show_row((made_up *)s, i, i);
    return GW_OK;
}

gw_status fuzz_rows_head(gw_session *s, int32_t at, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        show_row((made_up *)s, at + i, i);
    }
    return GW_OK;
}

const float *fuzz_rows_logits(const gw_session *s, int32_t i) {
    const float *x = ((const made_up *)s)->logits + (size_t)i * (size_t)n_vocab;
    return x[0] == x[0] ? x : NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

typedef struct request {
    int32_t prompt[TEXT], n_prompt, max_tokens, got[2][TEXT], n[2];
    int n_choices, ended[2], done, cancelled, ban, gone;
    gw_finish finish[2];
    gw_sampler_options sampler;
    gw_request *handle;
} request;

static request *all;
static int n_all;
static const char *const bans[] = {"e", " the", "st"};

static void listen(void *user, const gw_event *e) {
    request *r = user;
    if (r->done) {
        give_up("an event behind the last one");
    }
    if (e->kind == GW_EVENT_TOKEN) {
        if (r->ended[e->choice] || r->n[e->choice] == TEXT || e->index != r->n[e->choice]) {
            give_up("a token out of turn");
        }
        r->got[e->choice][r->n[e->choice]++] = e->token;
    }
    if (e->kind == GW_EVENT_END) {
        r->ended[e->choice]++;
        r->finish[e->choice] = e->finish;
    }
    r->done = e->kind == GW_EVENT_DONE;
}

static gw_writer *new_writer(const request *r, int choice) {
    gw_sampler_options sampler = r->sampler;
    uint64_t seed = sampler.seed + (uint64_t)choice * 0x9e3779b97f4a7c15u;
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
    sampler.seed = choice == 0 ? sampler.seed : seed ^ (seed >> 31);
    gw_writer_options o = {.sampler = &sampler, .bans = bans, .n_bans = r->ban ? 3 : 0};
    gw_writer *w = NULL;
    if (gw_writer_new(model, &o, &w) != GW_OK ||
        gw_writer_begin(w, r->prompt, (size_t)r->n_prompt) != GW_OK) {
        abort();
    }
    return w;
}

/* The text that it has alone, as far as it went. */
static void compare(const request *r, int choice, int32_t n_ctx) {
    static float logits[VOCAB_MOST];
    int32_t text[TEXT + 8], n = r->n_prompt, made = 0, stop = -1;
    uint64_t hash[TEXT + 8];
    gw_writer *w = new_writer(r, choice);
    gw_finish finish = GW_FINISH_CANCELLED;
    gw_status status = GW_OK;
    hash[0] = ROOT;
    for (int32_t i = 0; i < n; i++) {
        text[i] = r->prompt[i];
        hash[i + 1] = next_hash(hash[i], text[i], 0);
    }
    int over = r->max_tokens == 0;
    finish = over ? GW_FINISH_LENGTH : finish;
    while (!over) {
        int32_t token = 0;
        size_t back = 0;
        for (int32_t i = r->n_prompt; i < n; i++) {
            hash[i + 1] = next_hash(hash[i], text[i], 1);
        }
        fill_logits(hash[n], text[n - 1], 0, logits);
        if (is_broken(hash[n])) {
            finish = GW_FINISH_ERROR;
            break;
        }
        status = gw_writer_pick(w, logits, n, &token);
        status = status == GW_OK ? gw_writer_take(w, token, n, &back) : status;
        if (status != GW_OK) {
            finish = GW_FINISH_ERROR;
            break;
        }
        if (back > 0) {
            n -= (int32_t)back - 1;
            continue;
        }
        text[n++] = token;
        gw_piece piece;
        int there = 1;
        while (there) {
            status = gw_writer_piece(w, &piece, &there);
            if (status == GW_OK && there) {
                if (made < r->n[choice] && r->got[choice][made] != piece.token) {
                    give_up("another text");
                }
                made++;
            }
        }
        over = gw_writer_ended(w, &stop);
        finish = over ? GW_FINISH_STOP : finish;
        size_t held = gw_writer_held(w);
        if (!over && ((r->max_tokens > 0 && made + (int32_t)held >= r->max_tokens) || n > n_ctx)) {
            made += (int32_t)held;
            finish = GW_FINISH_LENGTH;
            over = 1;
        }
        if (r->finish[choice] == GW_FINISH_CANCELLED && made > r->n[choice]) {
            break;
        }
    }
    gw_writer_free(w);
    if (r->finish[choice] == GW_FINISH_CANCELLED) {
        return;
    }
    if (finish != r->finish[choice] || (finish != GW_FINISH_ERROR && made != r->n[choice])) {
        give_up("another end");
    }
}

static void make_prompt(request *r, int32_t n_ctx) {
    uint32_t from = byte() % 4, n = 1 + below((uint32_t)n_ctx);
    const request *before = n_all > 0 && byte() % 3 == 0 ? &all[byte() % (uint32_t)n_all] : NULL;
    int32_t at = 0;
    if (before != NULL) { /* its next turn */
        for (; at < before->n_prompt; at++) {
            r->prompt[at] = before->prompt[at];
        }
        for (int32_t i = 0; i < before->n[0] && at < TEXT; i++) {
            r->prompt[at++] = before->got[0][i];
        }
        n = (uint32_t)at + 1 + byte() % 20;
        n = n < (uint32_t)n_ctx ? n : (uint32_t)n_ctx;
    }
    uint32_t fork = below((uint32_t)n_ctx + 1), own = byte();
    for (; at < (int32_t)n; at++) { /* a stem, then its own */
        uint64_t x = mix(from + (at >= (int32_t)fork ? 100 + own : 0), (uint64_t)at);
        r->prompt[at] = 3 + (int32_t)(x % (uint64_t)(n_vocab - 3));
    }
    r->n_prompt = (int32_t)n;
}

static void submit(gw_batch *b) {
    if (n_all == REQUESTS) {
        return;
    }
    request *r = &all[n_all];
    uint32_t kind = byte();
    make_prompt(r, b->n_ctx);
    gw_sampler_defaults(&r->sampler);
    r->sampler.seed = byte();
    r->sampler.temperature = kind & 1 ? 1.0f : 0.0f;
    r->sampler.repeat_penalty = kind & 2 ? 1.2f : 1.0f;
    r->ban = (kind & 12) == 12;
    r->n_choices = kind & 16 ? 2 : 1;
    int32_t most = (int32_t)(byte() % 40);
    r->max_tokens = (kind & 32) != 0 && most > 30 ? -1 : most;
    gw_request_options o = {.tokens = r->prompt,
                            .n_tokens = (size_t)r->n_prompt,
                            .sampler = &r->sampler,
                            .max_tokens = r->max_tokens,
                            .n = r->n_choices,
                            .bans = bans,
                            .n_bans = r->ban ? 3 : 0,
                            .prompt_logprobs = kind & 64 && !any_broken,
                            .no_cache = (kind & 128) != 0,
                            .salt = byte() % 2,
                            .client = byte() % 3,
                            .priority = (int32_t)(byte() % 3),
                            .event = listen,
                            .user = r};
    gw_status status = gw_batch_submit(b, &o, &r->handle);
    fuzz_judge(status);
    n_all += status == GW_OK;
    if (status != GW_OK) {
        memset(r, 0, sizeof *r);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void step(gw_batch *b, size_t *work) {
    if (gw_batch_step(b, work) != GW_OK) {
        give_up("a step failed");
    }
    if (!gw_pages_check(b->pages)) {
        give_up("pages that do not add up");
    }
}

static void act(gw_batch *b) {
    uint32_t what = byte();
    request *r = n_all > 0 ? &all[byte() % (uint32_t)n_all] : NULL;
    size_t work = 1;
    if (what % 8 < 2) {
        submit(b);
    } else if (what % 8 == 2 && r != NULL && !r->gone) {
        r->cancelled = 1;
        gw_request_cancel(r->handle);
    } else if (what % 8 == 3 && r != NULL && !r->gone) {
        gw_request_hold(r->handle, (int)(what >> 3 & 1));
    } else if (what == 4 && r != NULL && !r->gone) { /* goes on without a handle, not on hold */
        gw_request_hold(r->handle, 0);
        gw_request_free(r->handle);
        r->gone = 1;
    } else {
        for (uint32_t i = 0; i <= what >> 4 && work > 0; i++) {
            step(b, &work);
        }
    }
}

static int left(void) {
    int n = 0;
    for (int i = 0; i < n_all; i++) {
        n += !all[i].done;
    }
    return n;
}

static void finish(gw_batch *b) {
    size_t work = 1;
    for (int i = 0; i < n_all; i++) {
        if (!all[i].gone) {
            gw_request_hold(all[i].handle, 0);
        }
    }
    for (int i = 0; left() > 0; i++) {
        step(b, &work);
        if (i == STEPS || (work == 0 && left() > 0)) {
            give_up("nothing gets done any more");
        }
    }
    for (int i = 0; work > 0 && i < STEPS; i++) { /* what is read ahead */
        step(b, &work);
    }
    gw_batch_stats s;
    gw_batch_get_stats(b, &s);
    if (work > 0 || s.pages_used != 0 || s.running != 0 || s.waiting != 0 ||
        s.waiting_tokens != 0 || s.requests != (uint64_t)n_all) {
        give_up("something is left");
    }
    for (int i = 0; i < n_all; i++) {
        for (int c = 0; c < all[i].n_choices; c++) {
            if (all[i].ended[c] != 1 ||
                (all[i].finish[c] == GW_FINISH_CANCELLED && !all[i].cancelled)) {
                give_up("a choice that did not end once, as it should");
            }
            compare(&all[i], c, b->n_ctx);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const lengths[] = {NULL, "fixed:1", "fixed:4", "fixed:15"};
    const gw_model_options mo = {.path = "tests/data/tales-2m-q4_0.gguf", .threads = 1};
    if (model == NULL && gw_model_open(&mo, &model) != GW_OK) {
        give_up(gw_error_text());
    }
    n_vocab = gw_model_n_vocab(model);
    data_at = data;
    data_left = size + 1;
    all = calloc(REQUESTS, sizeof *all);
    n_all = makes = 0;
    clock_now = 1.0;
    uint32_t flags = byte();
    with_states = (flags & 1) != 0;
    any_broken = (flags & 2) != 0;
    row_cost = flags & 4 ? 1e-3 : 1e-6;
    gw_batch_options o = {.n_ctx = 8 + (int32_t)below(TEXT - 90),
                          .chunk = 1 + (int32_t)(byte() % 200),
                          .parallel = 1 + (int32_t)(byte() % SLOTS),
                          .queue = 4 + (int32_t)(byte() % 20),
                          .no_sharing = (flags & 8) != 0,
                          .draft_model = flags & 16 ? model : NULL,
                          .draft_lookup = (flags & 32) != 0,
                          .draft_length = lengths[byte() % 4],
                          .read_ahead = (flags & 64) != 0};
    o.disorder = flags & 128 ? 1 + byte() : 0;
    /* Who is preempted every few passes, as disorder has it, never reads a prompt row by row. */
    o.chunk = o.disorder != 0 && o.chunk < 32 ? 32 : o.chunk;
    uint32_t room = byte();
    o.cache_tokens = o.n_ctx + 64 * (int32_t)(room % 12);
    o.cache_host_bytes = (uint64_t)(room / 12 % 4) * 3 * (flags & 16 ? 2 : 1) * PAGE_BYTES;
    gw_batch *b = NULL;
    gw_status status = gw_batch_new(model, &o, &b);
    fuzz_judge(status);
    if (status == GW_OK) {
        for (int i = 0; i < 120 && data_left > 1; i++) {
            act(b);
        }
        finish(b);
        gw_batch_free(b);
    }
    for (int i = 0; i < n_all; i++) {
        if (!all[i].gone) {
            gw_request_free(all[i].handle);
        }
    }
    free(all);
    return 0;
}
