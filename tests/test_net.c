/* tests/test_net.c - pieces of a large file by a library for requests that is made here: the taker
 * gets them in their order, and none is written again before the taker no longer needs it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "apps/hub/net.c"

/* ---- a library for requests: each call moves each connection by a part, the last one first ----
 */

enum { EASY_MOST = 16, PART = 1 << 20 };

typedef struct request {
    size_t (*head)(char *, size_t, size_t, void *), (*body)(char *, size_t, size_t, void *);
    void *head_data, *body_data, *private;
    uint64_t from, end;
    int live, told, result, failing;
} request;

static struct {
    request all[EASY_MOST];
    uint64_t size;
    int made, runs, most, fail_once; /* most: connections at once */
    uint64_t asked;                  /* bytes */
    char part[PART];
} net;

/* Words that say where they stand, so that no two are alike. */
static void fill(char *to, uint64_t from, size_t n) {
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = from + i;
        memcpy(to + i, &word, 8);
    }
}

static void *easy_init(void) {
    assert_true(net.made < EASY_MOST);
    return &net.all[net.made++];
}

static int easy_setopt(void *easy, int option, ...) {
    request *r = easy;
    va_list list;
    va_start(list, option);
    if (option == CURL_WRITE_FUNCTION) {
        r->body = va_arg(list, size_t(*)(char *, size_t, size_t, void *));
    } else if (option == CURL_HEADER_FUNCTION) {
        r->head = va_arg(list, size_t(*)(char *, size_t, size_t, void *));
    } else if (option == CURL_WRITE_DATA) {
        r->body_data = va_arg(list, void *);
    } else if (option == CURL_HEADER_DATA) {
        r->head_data = va_arg(list, void *);
    } else if (option == CURL_PRIVATE) {
        r->private = va_arg(list, void *);
    } else if (option == CURL_RANGE) {
        const char *range = va_arg(list, const char *);
        uint64_t last;
        if (range != NULL) {
            assert_int_equal(sscanf(range, "%" SCNu64 "-%" SCNu64, &r->from, &last), 2);
            r->end = last + 1;
            net.asked += r->end - r->from;
        }
    }
    va_end(list);
    return 0;
}

static int easy_getinfo(void *easy, int info, ...) {
    va_list list;
    va_start(list, info);
    assert_int_equal(info, CURL_INFO_PRIVATE);
    *va_arg(list, void **) = ((request *)easy)->private;
    va_end(list);
    return 0;
}

static void easy_cleanup(void *easy) { ((request *)easy)->live = 0; }
static const char *easy_strerror(int code) { return code != 0 ? "broken" : "fine"; }
static void *slist_append(void *list, const char *line) { return (void)line, list; }
static void slist_free_all(void *list) { (void)list; }
static void *multi_init(void) { return &net; }
static int multi_cleanup(void *multi) { return multi != &net; }

static int multi_add(void *multi, void *easy) {
    request *r = easy;
    (void)multi;
    r->live = 1;
    r->told = r->result = 0;
    r->failing = net.fail_once != 0 && r->from != 0;
    net.fail_once -= r->failing;
    return 0;
}

static int multi_remove(void *multi, void *easy) {
    (void)multi;
    ((request *)easy)->live = 0;
    return 0;
}

static void say(request *r, const char *format, ...) {
    char line[100];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    assert_int_equal(r->head(line, 1, (size_t)n, r->head_data), n);
}

static int multi_perform(void *multi, int *running) {
    (void)multi;
    int now = 0;
    for (int i = net.made - 1; i >= 0; i--) {
        request *r = &net.all[i];
        if (!r->live) {
            continue;
        }
        now++;
        if (!r->told) {
            say(r, "HTTP/1.1 206 Partial Content\r\n");
            say(r, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", r->from,
                r->end - 1, net.size);
            r->told = 1;
        }
        size_t n = r->end - r->from < PART ? (size_t)(r->end - r->from) : PART;
        fill(net.part, r->from, n);
        r->result = r->failing && r->end - r->from <= PART ? 18 : 0;
        if (r->result == 0 && r->body(net.part, 1, n, r->body_data) != n) {
            r->result = CURL_WRITE_STOPPED;
        }
        memset(net.part, 0xee, n); /* the library's memory is its own */
        r->from += n;
    }
    net.most = now > net.most ? now : net.most;
    *running = now;
    return 0;
}

static curl_message *multi_read(void *multi, int *left) {
    static curl_message message;
    (void)multi;
    *left = 0;
    for (int i = 0; i < net.made; i++) {
        request *r = &net.all[i];
        if (r->live && (r->from == r->end || r->result != 0)) {
            message = (curl_message){.msg = 1, .easy = r, .data.result = r->result};
            return &message;
        }
    }
    return NULL;
}

static int multi_wait(void *multi, void *extra, unsigned n, int ms, int *ready) {
    (void)multi, (void)extra, (void)n, (void)ms;
    return *ready = 0;
}

const curl_library *curl_open(void) {
    static const curl_library library = {.easy_init = easy_init,
                                         .easy_setopt = easy_setopt,
                                         .easy_getinfo = easy_getinfo,
                                         .easy_cleanup = easy_cleanup,
                                         .easy_strerror = easy_strerror,
                                         .slist_append = slist_append,
                                         .slist_free_all = slist_free_all,
                                         .multi_init = multi_init,
                                         .multi_add_handle = multi_add,
                                         .multi_remove_handle = multi_remove,
                                         .multi_perform = multi_perform,
                                         .multi_wait = multi_wait,
                                         .multi_info_read = multi_read,
                                         .multi_cleanup = multi_cleanup};
    return &library;
}

/* ---- what net.c calls besides ------------------------------------------------------------------
 */

static volatile int cancel;
static int errors;

const volatile int *signals_cancel(void) { return &cancel; }
int signals_exit_code(int otherwise) { return cancel ? 130 : otherwise; }
double app_seconds(void) {
    static double now;
    return now += 1000; /* nothing is waited for */
}
void progress_update(app_progress *p, uint64_t done, uint64_t total, const char *what) {
    (void)p, (void)done, (void)total, (void)what;
}
void app_error(const char *format, ...) {
    (void)format;
    errors++;
}

/* ---- a taker that is slow ----------------------------------------------------------------------
 */

typedef struct taker {
    struct {
        const char *data;
        size_t bytes;
    } waiting[64];
    size_t first, n, most; /* most: parts that have waited at once */
    uint64_t given, done;
    size_t lag;       /* parts that are kept, unless they are waited for */
    uint64_t stop_at; /* of bytes: the disk is full, or Ctrl-C */
    int stop_by_signal;
} taker;

/* Reads a part only now: have its bytes stayed? */
static void read_one(taker *t) {
    char want[4096];
    for (size_t at = 0; at < t->waiting[t->first].bytes; at += sizeof want) {
        fill(want, t->done + at, sizeof want);
        assert_memory_equal(t->waiting[t->first].data + at, want, sizeof want);
    }
    t->done += t->waiting[t->first].bytes;
    t->first++;
}

static uint64_t taken(void *user, uint64_t least) {
    taker *t = user;
    while (t->first < t->n && (t->done < least || t->n - t->first > t->lag)) {
        read_one(t);
    }
    return t->done;
}

static int take(void *user, const void *data, size_t bytes) {
    taker *t = user;
    assert_int_equal(bytes % 4096, 0);
    assert_true(t->n < sizeof t->waiting / sizeof *t->waiting);
    t->waiting[t->n].data = data;
    t->waiting[t->n++].bytes = bytes;
    t->given += bytes;
    t->most = t->n - t->first > t->most ? t->n - t->first : t->most;
    if (t->given >= t->stop_at && t->stop_by_signal) {
        cancel = 1;
    } else if (t->given >= t->stop_at) {
        (void)taken(t, UINT64_MAX);
        return -1;
    }
    return 0;
}

static int restart(void *user) { return (void)user, -1; }

static int fetch(taker *t, uint64_t size, uint64_t from) {
    t->given = t->done = from;
    memset(net.all, 0, sizeof net.all);
    net.made = net.most = 0;
    net.asked = 0;
    net.size = size;
    errors = cancel = 0;
    net_file f = {.url = "http://host/file",
                  .what = "file",
                  .from = from,
                  .size = size,
                  .take = take,
                  .taken = taken,
                  .restart = restart,
                  .user = t};
    int code = net_fetch(&f);
    assert_int_equal(t->first, t->n); /* nothing of it is needed any more */
    assert_int_equal(t->done, t->given);
    return code;
}

static const uint64_t SIZE = (100u << 20) + 4096; /* of twelve pieces and a bit */

static void test_memory_stays(void **state) {
    (void)state;
    for (size_t lag = 0; lag <= 16; lag += lag < 2 ? 1 : 7) { /* 16: until nothing is free */
        taker t = {.lag = lag, .stop_at = UINT64_MAX};
        assert_int_equal(fetch(&t, SIZE, 0), APP_OK);
        assert_int_equal(t.done, SIZE);
        assert_int_equal(net.asked, SIZE);
        assert_true(net.most <= CONNECTIONS && t.most <= CONNECTIONS * 2);
        assert_true(lag < 9 || t.most == CONNECTIONS * 2);
    }
    taker t = {.lag = 3, .stop_at = UINT64_MAX};
    assert_int_equal(fetch(&t, SIZE, 5 << 20), APP_OK); /* from where an earlier one ended */
    assert_int_equal(net.asked, SIZE - (5 << 20));
}

static void test_ends(void **state) {
    (void)state;
    taker full = {.lag = 4, .stop_at = 40 << 20};
    assert_int_equal(fetch(&full, SIZE, 0), APP_FAILURE);
    assert_int_equal(full.given, 40 << 20);
    assert_int_equal(errors, 0); /* the taker says it */
    taker stopped = {.lag = 4, .stop_at = 40 << 20, .stop_by_signal = 1};
    assert_int_equal(fetch(&stopped, SIZE, 0), 130);
    assert_in_range(stopped.given, 40 << 20, 72 << 20);
    assert_int_equal(errors, 0);
    net.fail_once = 2; /* pieces that are cut off are requested again */
    taker cut = {.lag = 4, .stop_at = UINT64_MAX};
    assert_int_equal(fetch(&cut, SIZE, 0), APP_OK);
    assert_int_equal(net.asked, SIZE + (16 << 20));
    assert_int_equal(cut.done, SIZE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_stays),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
