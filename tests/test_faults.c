/* tests/test_faults.c - a life of the library (open, feed, decode, save, load, draft under rules)
 * with each allocation, mapping, file operation and thread start failing in turn: every time an
 * error or a result, never a crash, and nothing left allocated, mapped or open. Calls are caught by
 * the linker (--wrap, tests/CMakeLists.txt), those of jansson by its own hooks. */
#include "tests/reference_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/godwit.h"

static const char *model_path = "tests/data/tales-2m-q4_0.gguf";

typedef enum fault_kind { MEMORY, MAPS, FILES, KINDS } fault_kind;

/* Single-threaded: nothing here runs while a team works. */
static struct {
    int on, tripped, spares; /* spares: nothing fails, and is not counted */
    fault_kind kind;
    size_t at, seen[KINDS]; /* the call to fail, counted from 1; calls so far */
    size_t live_maps, live_files;
} fault;

enum { SLOTS = 1 << 16 };
static void *live[SLOTS]; /* allocations of the life that goes on */
static size_t n_live;

static int fails(fault_kind kind) {
    if (!fault.on || fault.spares) {
        return 0;
    }
    fault.seen[kind]++;
    int now = fault.kind == kind && fault.seen[kind] == fault.at;
    fault.tripped |= now;
    return now;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t slot_of(const void *p) {
    size_t i = ((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15u >> 48;
    while (live[i % SLOTS] != NULL && live[i % SLOTS] != p) {
        i++;
    }
    return i % SLOTS;
}

static void *keep(void *p) {
    if (p != NULL && fault.on) {
        live[slot_of(p)] = p;
        n_live++;
    }
    return p;
}

/* Linear probing: what stands behind a freed place moves up. */
static void drop(void *p) {
    if (p == NULL || live[slot_of(p)] != p) {
        return;
    }
    size_t i = slot_of(p);
    live[i] = NULL;
    n_live--;
    for (size_t j = (i + 1) % SLOTS; live[j] != NULL; j = (j + 1) % SLOTS) {
        void *moved = live[j];
        live[j] = NULL;
        live[slot_of(moved)] = moved;
    }
}

#define WRAPPED(type, name, args)                                                                  \
    type __real_##name args;                                                                       \
    type __wrap_##name args;                                                                       \
    type __wrap_##name args

WRAPPED(void *, malloc, (size_t n)) { return fails(MEMORY) ? NULL : keep(__real_malloc(n)); }
WRAPPED(void *, calloc, (size_t n, size_t size)) {
    return fails(MEMORY) ? NULL : keep(__real_calloc(n, size));
}
WRAPPED(void *, aligned_alloc, (size_t align, size_t n)) {
    return fails(MEMORY) ? NULL : keep(__real_aligned_alloc(align, n));
}
WRAPPED(char *, strdup, (const char *s)) { return fails(MEMORY) ? NULL : keep(__real_strdup(s)); }
WRAPPED(char *, strndup, (const char *s, size_t n)) {
    return fails(MEMORY) ? NULL : keep(__real_strndup(s, n));
}
WRAPPED(void *, realloc, (void *old, size_t n)) {
    if (fails(MEMORY)) {
        return NULL;
    }
    drop(old);
    return keep(__real_realloc(old, n));
}
WRAPPED(void, free, (void *p)) {
    drop(p);
    __real_free(p);
}

/* ---- mappings and files ---------------------------------------------------------------------- */

WRAPPED(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset)) {
    if (fails(MAPS)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *p = __real_mmap(at, n, prot, flags, fd, offset);
    fault.live_maps += fault.on && p != MAP_FAILED;
    return p;
}
WRAPPED(int, munmap, (void *at, size_t n)) {
    fault.live_maps -= fault.on != 0;
    return __real_munmap(at, n);
}

static int no_file(void) {
    errno = EIO;
    return -1;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    if (fails(FILES)) {
        return no_file();
    }
    int fd = __real_open(path, flags, 0600);
    fault.live_files += fault.on && fd >= 0;
    return fd;
}
WRAPPED(int, close, (int fd)) { /* closes, and may still report what was written late */
    fault.live_files -= fault.on != 0;
    int result = __real_close(fd);
    return fails(FILES) ? no_file() : result;
}
WRAPPED(ssize_t, read, (int fd, void *to, size_t n)) {
    return fails(FILES) ? no_file() : __real_read(fd, to, n);
}
WRAPPED(ssize_t, pread, (int fd, void *to, size_t n, off_t at)) {
    return fails(FILES) ? no_file() : __real_pread(fd, to, n, at);
}
WRAPPED(ssize_t, write, (int fd, const void *from, size_t n)) {
    return fails(FILES) ? no_file() : __real_write(fd, from, n);
}
WRAPPED(int, fstat, (int fd, struct stat *st)) {
    return fails(FILES) ? no_file() : __real_fstat(fd, st);
}
WRAPPED(int, stat, (const char *path, struct stat *st)) {
    return fails(FILES) ? no_file() : __real_stat(path, st);
}
WRAPPED(int, fsync, (int fd)) { return fails(FILES) ? no_file() : __real_fsync(fd); }
WRAPPED(int, rename, (const char *from, const char *to)) {
    return fails(FILES) ? no_file() : __real_rename(from, to);
}
WRAPPED(int, posix_fallocate, (int fd, off_t at, off_t n)) {
    return fails(FILES) ? ENOSPC : __real_posix_fallocate(fd, at, n);
}

/* ---- threads: the program's own name comes before the C library's ---------------------------- */

static int threads_left = -1; /* that may be started; -1: any number */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user) {
    if (threads_left == 0) {
        return EAGAIN;
    }
    threads_left -= threads_left > 0;
    return __real_pthread_create(thread, attributes, run, user);
}

/* ---- one life -------------------------------------------------------------------------------- */

static gw_status talk(gw_model *m, gw_session *s, gw_sampler *sampler, const char *path) {
    int32_t *ids = NULL, token = 0, dropped = 0;
    size_t n = 0;
    gw_status status = gw_tokenize(m, "Once upon a time", 16, GW_TEXT_BOS, &ids, &n);
    if (status == GW_OK) {
        status = gw_session_prefill(s, ids, n);
    }
    gw_free(ids);
    if (status == GW_OK) {
        status = gw_sampler_pick(sampler, gw_session_logits(s, 0), gw_session_pos(s), &token);
    }
    if (status == GW_OK) {
        status = gw_session_decode(s, &token, 1);
    }
    if (status == GW_OK) {
        status = gw_session_save(s, path);
    }
    if (status == GW_OK) {
        status = gw_session_load(s, path);
    }
    return status == GW_OK ? gw_session_shift(s, 1, &dropped) : status;
}

typedef struct rules {
    gw_grammar *grammar;
    gw_ban *ban;
    gw_drafter *drafter;
    gw_stop *stop;
    gw_chat *chat;
} rules;

static gw_status make_rules(gw_model *m, gw_session *s, rules *r) {
    static const char schema[] = "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}";
    static const char *const texts[] = {"3, 1", "77"};
    const gw_drafter_options drafts = {.lookup = 1, .length = "fixed:2"};
    gw_status status =
        gw_grammar_new(m, GW_GRAMMAR_JSON_SCHEMA, schema, sizeof schema - 1, NULL, &r->grammar);
    if (status == GW_OK) {
        status = gw_ban_new(m, texts, 2, 0, &r->ban);
    }
    if (status == GW_OK) {
        status = gw_stop_new(texts, 2, &r->stop);
    }
    if (status == GW_OK) {
        status = gw_drafter_new(s, &drafts, &r->drafter);
    }
    return status == GW_OK ? gw_chat_new(m, "chatml", &r->chat) : status;
}

static gw_status answer(const rules *r, gw_session *s, gw_sampler *sampler, gw_stream *stream) {
    int32_t tokens[GW_DECODE_MAX], *ids = NULL;
    const char *text;
    size_t n = 0, back = 0, bytes;
    const gw_chat_message message = {"user", "Hello", 5};
    gw_status status = gw_chat_render(r->chat, &message, 1, 0, &ids, &n);
    gw_free(ids);
    if (status == GW_OK) {
        status = gw_drafter_prompt(r->drafter, gw_session_tokens(s), (size_t)gw_session_pos(s));
    }
    if (status == GW_OK) {
        status = gw_ban_begin(r->ban, stream);
    }
    for (int i = 0; i < 3 && status == GW_OK; i++) {
        status = gw_drafter_next(r->drafter, sampler, tokens, 4, &n);
        for (size_t j = 0; j < n && status == GW_OK && back == 0; j++) {
            int hit;
            status = gw_ban_push(r->ban, tokens[j], gw_session_pos(s) + (int32_t)j, &back);
            if (status == GW_OK) {
                status = gw_stream_push(stream, tokens[j], &text, &bytes);
            }
            if (status == GW_OK) {
                status = gw_stop_push(r->stop, text, bytes, 0, &text, &bytes, &hit);
            }
        }
    }
    return status;
}

/* What else takes memory while a text is written. */
static gw_status write_by_rules(gw_model *m, gw_session *s, gw_sampler *sampler,
                                gw_stream *stream) {
    rules r = {0};
    gw_status status = make_rules(m, s, &r);
    if (status == GW_OK) {
        status = gw_sampler_constrain(sampler, r.grammar);
    }
    if (status == GW_OK) {
        status = gw_sampler_ban(sampler, r.ban);
    }
    if (status == GW_OK) {
        status = answer(&r, s, sampler, stream);
    }
    (void)gw_sampler_constrain(sampler, NULL);
    (void)gw_sampler_ban(sampler, NULL);
    gw_chat_free(r.chat);
    gw_drafter_free(r.drafter);
    gw_stop_free(r.stop);
    gw_ban_free(r.ban);
    gw_grammar_free(r.grammar);
    return status;
}

static gw_status live_once(const char *path) {
    gw_model *m = NULL;
    gw_session *s = NULL;
    gw_sampler *sampler = NULL;
    gw_stream *stream = NULL;
    gw_model_options o = {.path = model_path, .device = "cpu", .threads = 1};
    gw_session_options so = {.n_ctx = 32, .chunk = 8};
    gw_sampler_options sampling;
    gw_sampler_defaults(&sampling);
    gw_status status = gw_model_open(&o, &m);
    if (status == GW_OK) {
        status = gw_session_new(m, &so, &s);
    }
    if (status == GW_OK) {
        status = gw_sampler_new(m, &sampling, &sampler);
    }
    if (status == GW_OK) {
        status = gw_stream_new(m, &stream);
    }
    if (status == GW_OK) {
        status = talk(m, s, sampler, path);
    }
    if (status == GW_OK) {
        status = write_by_rules(m, s, sampler, stream);
    }
    gw_stream_free(stream);
    gw_sampler_free(sampler);
    gw_session_free(s);
    gw_model_free(m);
    return status;
}

/* ---- many requests at once ------------------------------------------------------------------- */

enum { SERVED = 70 }; /* tokens of a prompt: a page and some more */

static void note_error(void *user, const gw_event *e) {
    if (e->kind == GW_EVENT_DONE && e->finish == GW_FINISH_ERROR) {
        *(gw_status *)user = e->status;
    }
}

static gw_status serve_one(gw_batch *b, int32_t first) {
    static const char *const texts[] = {"3, 1", "77"};
    int32_t ids[SERVED];
    gw_status status = GW_OK;
    gw_request *r = NULL;
    size_t work = 1;
    for (int32_t i = 0; i < SERVED; i++) {
        ids[i] = first + i;
    }
    const gw_request_options o = {.tokens = ids,
                                  .n_tokens = SERVED,
                                  .max_tokens = 2,
                                  .n = 2,
                                  .logprobs = 3,
                                  .stops = texts,
                                  .n_stops = 2,
                                  .bans = texts,
                                  .n_bans = 1,
                                  .event = note_error,
                                  .user = &status};
    gw_status asked = gw_batch_submit(b, &o, &r);
    while (asked == GW_OK && work > 0) {
        asked = gw_batch_step(b, &work);
    }
    gw_request_free(r);
    return asked != GW_OK ? asked : status;
}

/* In a cache for one of them, so that pages go to main memory and come back. */
static gw_status serve_life(const char *path) {
    static const int32_t prompts[] = {3, 200, 3};
    const gw_model_options o = {.path = model_path, .device = "cpu", .threads = 1};
    const gw_batch_options bo = {.n_ctx = 128,
                                 .parallel = 2,
                                 .chunk = 64,
                                 .cache_tokens = 128,
                                 .cache_host_bytes = 1 << 20,
                                 .draft_lookup = 1,
                                 .read_ahead = 1};
    gw_model *m = NULL;
    gw_batch *b = NULL;
    gw_batch_stats s;
    (void)path;
    fault.spares = 1; /* test_memory */
    gw_status status = gw_model_open(&o, &m);
    assert_int_equal(status, GW_OK);
    fault.spares = 0;
    status = gw_batch_new(m, &bo, &b);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts && status == GW_OK; i++) {
        status = serve_one(b, prompts[i]);
    }
    if (status == GW_OK) {
        gw_batch_get_stats(b, &s);
        assert_int_equal(s.pages_used, 0);
        assert_true(s.host_fetched > 0);
    }
    gw_batch_free(b);
    gw_model_free(m);
    return status;
}

static gw_status (*life)(const char *path) = live_once;

static void begin(fault_kind kind, size_t at) {
    memset(&fault, 0, sizeof fault);
    memset(live, 0, sizeof live);
    n_live = 0;
    fault.kind = kind;
    fault.at = at;
    fault.on = 1;
}

/* The life with call `at` of a kind failing; the calls there were. */
static size_t one_fault(fault_kind kind, size_t at, const char *path) {
    begin(kind, at);
    gw_status status = life(path);
    fault.on = 0;
    if (n_live != 0 || fault.live_maps != 0 || fault.live_files != 0) {
        fail_msg("kind %d, call %zu: %zu allocations, %zu mappings, %zu files left (%s)", kind, at,
                 n_live, fault.live_maps, fault.live_files, gw_error_text());
    }
    if (status != GW_OK && (!fault.tripped || gw_error_text()[0] == '\0')) {
        fail_msg("kind %d, call %zu: an error without a fault: %s", kind, at, gw_error_text());
    }
    return fault.seen[kind];
}

static void every_call(fault_kind kind) {
    const char *folder = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%s/godwit-%d-fault", folder ? folder : "/tmp", (int)getpid());
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    one_fault(kind, 0, path); /* warms up what is made once per process */
    size_t calls = one_fault(kind, 0, path), tripped = 0;
    for (size_t at = 1; at <= calls; at++) {
        one_fault(kind, at, path);
        tripped += fault.tripped != 0;
    }
    unlink(path);
    print_message("  %zu calls\n", calls);
    assert_true(calls > 0 && tripped == calls);
}

static void test_memory(void **state) {
    (void)state;
    every_call(MEMORY);
}
static void test_memory_of_a_batch(void **state) {
    (void)state;
    life = serve_life;
    every_call(MEMORY);
    life = live_once;
}
static void test_maps(void **state) {
    (void)state;
    every_call(MAPS);
}
static void test_files(void **state) {
    (void)state;
    every_call(FILES);
}

/* The readers of a folder: JSON and safetensors. */
static void test_folder(void **state) {
    (void)state;
    const char *gguf = model_path;
    model_path = shared_path("badfiles/hf-valid-base");
    for (fault_kind kind = MEMORY; kind < KINDS; kind++) {
        every_call(kind);
    }
    model_path = gguf;
}

static void test_threads(void **state) {
    (void)state;
    for (int may = 0; may < 4; may++) { /* those that were started stay: it takes many */
        gw_model *m = NULL;
        gw_model_options o = {.path = model_path, .device = "cpu", .threads = 40};
        threads_left = may;
        assert_int_equal(gw_model_open(&o, &m), GW_E_NOMEM);
        assert_non_null(strstr(gw_error_text(), "thread"));
        threads_left = -1;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),  cmocka_unit_test(test_maps),
        cmocka_unit_test(test_files),   cmocka_unit_test(test_folder),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_memory_of_a_batch),
    };
    cmocka_set_test_filter(getenv("GODWIT_TEST"));
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
