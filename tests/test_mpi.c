/* tests/test_mpi.c - what ranks tell one another: nodes and steps come out as they went in, and
 * bytes that are cut off or changed are an error or other numbers, never a read beyond them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/mpi/link.h"
#include "core/base/sha256.h"

enum { PLACES = 3 };

/* Nothing looks into a buffer: its address is all that counts. */
static char buffers[PLACES];
static struct gw_buffer *place(int i) { return i > 0 ? (void *)&buffers[i] : NULL; }
static uint64_t number_of(const struct gw_buffer *b) {
    return (uint64_t)((const char *)(const void *)b - buffers);
}

typedef struct sample {
    gw_tensor x, w, y, z;
    gw_node node[2];
} sample;

/* A product and a norm of what it makes. */
static void fill(sample *s) {
    memset(s, 0, sizeof *s);
    s->x = (gw_tensor){.name = "x", .fmt = GW_FMT_ACT8, .n_dim = 2, .dim = {4, 64}};
    s->w = (gw_tensor){.name = "w", .fmt = GW_FMT_Q4_0, .layout = 7, .n_dim = 2, .dim = {96, 64}};
    s->y = (gw_tensor){.name = "y", .fmt = GW_FMT_F32, .n_dim = 2, .dim = {4, 96}};
    s->z = (gw_tensor){.name = NULL, .fmt = GW_FMT_F32, .n_dim = 2, .dim = {4, 96}};
    s->x.buf = place(1);
    s->w.buf = place(2);
    s->w.offset = 4096;
    s->y.buf = s->z.buf = place(1);
    s->node[0] = (gw_node){.op = GW_OP_LINEAR, .what = "product", .layer = -1, .out = &s->y};
    s->node[0].args.linear.order = GW_ORDER_PREFILL;
    s->node[0].in[0] = &s->x;
    s->node[0].w[0] = &s->w;
    s->node[1] = (gw_node){.op = GW_OP_NORM, .layer = 5, .out = &s->z};
    s->node[1].args.norm.eps = 0.5f;
    s->node[1].in[0] = &s->y;
}

static gw_status take(gw_wire *w, gw_wire_nodes *out) {
    struct gw_buffer *places[PLACES];
    for (int i = 0; i < PLACES; i++) {
        places[i] = place(i);
    }
    return gw_wire_take_nodes(w, places, PLACES, out);
}

static void test_nodes(void **state) {
    sample s;
    gw_wire w = {.at = NULL};
    gw_wire_nodes got;
    const int64_t kernels[] = {11, 12};
    (void)state;
    fill(&s);
    gw_wire_put_nodes(&w, s.node, 2, kernels, number_of);
    assert_int_equal(take(&w, &got), GW_OK);
    assert_int_equal(w.taken, w.n);
    const gw_node *a = &got.node[0], *b = &got.node[1];
    assert_int_equal(got.n, 2);
    assert_int_equal(got.n_tensors, 4);
    assert_ptr_equal(a->out, b->in[0]);
    assert_null(a->in[1]);
    assert_int_equal(got.kernel[1], 12);
    assert_int_equal(a->op, GW_OP_LINEAR);
    assert_int_equal(a->args.linear.order, GW_ORDER_PREFILL);
    assert_int_equal(a->layer, -1);
    assert_string_equal(a->what, "product");
    assert_string_equal(a->w[0]->name, "w");
    assert_int_equal(a->w[0]->layout, 7);
    assert_int_equal(a->w[0]->dim[0], 96);
    assert_int_equal(a->w[0]->offset, 4096);
    assert_ptr_equal(a->w[0]->buf, place(2));
    assert_true(b->args.norm.eps == 0.5f);
    gw_wire_nodes_free(&got);
    gw_wire_free(&w);
}

/* Nodes of two layers are one question where they differ in places alone. */
static void test_without_places(void **state) {
    sample s, t;
    gw_wire a = {.at = NULL}, b = {.at = NULL}, c = {.at = NULL};
    (void)state;
    fill(&s);
    fill(&t);
    t.w.buf = place(1);
    t.w.offset = 0;
    t.w.name = "another";
    gw_wire_put_nodes(&a, s.node, 1, NULL, NULL);
    gw_wire_put_nodes(&b, t.node, 1, NULL, NULL);
    t.w.layout = 8;
    gw_wire_put_nodes(&c, t.node, 1, NULL, NULL);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    assert_int_equal(a.n, c.n);
    assert_memory_not_equal(a.at, c.at, a.n);
    gw_wire_free(&a);
    gw_wire_free(&b);
    gw_wire_free(&c);
}

/* In memory of exactly their size, so that a sanitizer sees the first byte beyond. */
static gw_status take_copy(const unsigned char *bytes, size_t n) {
    gw_wire_nodes got;
    gw_wire w = {.at = malloc(n + (n == 0)), .n = n, .room = n};
    assert_non_null(w.at);
    memcpy(w.at, bytes, n);
    gw_status status = take(&w, &got);
    if (status == GW_OK) {
        gw_wire_nodes_free(&got);
    }
    gw_wire_free(&w);
    return status;
}

static void test_wrong_bytes(void **state) {
    sample s;
    gw_wire w = {.at = NULL};
    uint64_t random = 5;
    int errors = 0;
    (void)state;
    fill(&s);
    gw_wire_put_nodes(&w, s.node, 2, NULL, number_of);
    for (size_t n = 0; n < w.n; n++) {
        assert_int_equal(take_copy(w.at, n), GW_E_METADATA);
    }
    for (int i = 0; i < 4000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(random >> 33) % w.n;
        unsigned char before = w.at[at];
        w.at[at] ^= (unsigned char)(1 + (random >> 25) % 255);
        errors += take_copy(w.at, w.n) != GW_OK;
        w.at[at] = before;
    }
    assert_true(errors > 100);
    gw_wire_free(&w);
}

static void test_steps(void **state) {
    static gw_step step, got;
    gw_wire w = {.at = NULL};
    (void)state;
    step = (gw_step){.n = 2, .pick = 1, .n_pick = 3, .pos_max = 9};
    for (int i = 0; i < 3; i++) {
        step.token[i] = i + 1;
        step.less[i] = 10 * i;
    }
    gw_wire_put_step(&w, &step);
    for (size_t n = 0; n < w.n; n += 4) {
        gw_wire part = {.at = w.at, .n = n, .room = n};
        gw_wire_take_step(&part, &got);
        assert_true(part.failed);
    }
    gw_wire_take_step(&w, &got);
    assert_false(w.failed);
    assert_int_equal(got.n_pick, 3);
    assert_int_equal(got.pos_max, 9);
    assert_memory_equal(got.token, step.token, 3 * sizeof *got.token);
    assert_memory_equal(got.less, step.less, 3 * sizeof *got.less);
    gw_wire_free(&w);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* RFC 4231, cases 1, 2 and 6. */
static void test_hmac(void **state) {
    static const struct {
        const char *key;
        size_t bytes;
        const char *text, *mac;
    } cases[] = {
        {"\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", 20,
         "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 4, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {NULL, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char mac[32], large[131];
        char hex[65];
        memset(large, 0xaa, sizeof large);
        gw_mpi_hmac(cases[i].key != NULL ? (const void *)cases[i].key : large, cases[i].bytes,
                    cases[i].text, strlen(cases[i].text), mac);
        gw_sha256_hex(mac, hex);
        assert_string_equal(hex, cases[i].mac);
    }
}

enum { WEIGHT_ROWS = 1700, WEIGHT_ROW = 15001 }; /* 25 MB: no piece ends with a row */

static gw_status rows_of(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const unsigned char *all = src->state;
    memcpy(dst, all + (size_t)first * WEIGHT_ROW, (size_t)n * WEIGHT_ROW);
    return GW_OK;
}

static gw_status no_rows(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    (void)src, (void)first, (void)n, (void)dst;
    return gw_fail(GW_E_IO, "weight", "cannot be read");
}

/* As its definition has it, and by no library. */
static void digest_alone(const unsigned char *bytes, size_t n, unsigned char out[GW_MPI_DIGEST]) {
    const size_t piece = 1 << 20;
    gw_sha256 whole, one;
    gw_sha256_begin(&whole);
    for (size_t at = 0; at < n; at += piece) {
        unsigned char leaf[GW_MPI_DIGEST];
        gw_sha256_begin(&one);
        gw_sha256_add(&one, bytes + at, n - at < piece ? n - at : piece);
        gw_sha256_end(&one, leaf);
        gw_sha256_add(&whole, leaf, sizeof leaf);
    }
    gw_sha256_end(&whole, out);
}

/* One digest however the bytes come, and another of any other bytes. */
static void test_digest(void **state) {
    const size_t n = (size_t)WEIGHT_ROWS * WEIGHT_ROW;
    unsigned char *all = malloc(n), mapped[GW_MPI_DIGEST], made[GW_MPI_DIGEST];
    (void)state;
    assert_non_null(all);
    for (size_t i = 0; i < n; i++) {
        all[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    const gw_weight_source map = {.map = all}, rows = {.rows = rows_of, .state = all};
    const gw_weight_source none = {.rows = no_rows};
    assert_int_equal(gw_mpi_digest_rows(&map, WEIGHT_ROWS, WEIGHT_ROW, mapped), GW_OK);
    assert_int_equal(gw_mpi_digest_rows(&rows, WEIGHT_ROWS, WEIGHT_ROW, made), GW_OK);
    assert_memory_equal(mapped, made, sizeof made);
    digest_alone(all, n, made);
    assert_memory_equal(mapped, made, sizeof made);
    assert_int_equal(gw_mpi_digest_rows(&none, 2, WEIGHT_ROW, made), GW_E_IO);
    all[n - 1] ^= 1;
    gw_mpi_digest(all, n, made);
    assert_memory_not_equal(mapped, made, sizeof made);
    all[n - 1] ^= 1;
    gw_mpi_digest(all, n - 1, made);
    assert_memory_not_equal(mapped, made, sizeof made);
    free(all);
}

/* ---- digests of files that are known --------------------------------------------------------- */

enum { FILE_ROWS = 3, FILE_ROW = 700000 };

static unsigned char in_file[FILE_ROWS * FILE_ROW], not_in_file[FILE_ROWS * FILE_ROW];

/* Whose digest a source with a place in the file gets: 'f' of the file's bytes, and 'o' of others,
 * which tells that its own were read. */
static int whose(int fd, uint64_t at) {
    unsigned char own[GW_MPI_DIGEST], other[GW_MPI_DIGEST], got[GW_MPI_DIGEST];
    const gw_weight_source src = {.map = not_in_file, .fd = fd, .at = at};
    digest_alone(in_file, sizeof in_file, own);
    digest_alone(not_in_file, sizeof not_in_file, other);
    assert_int_equal(gw_mpi_digest_source(&src, FILE_ROWS, FILE_ROW, got), GW_OK);
    int is_own = memcmp(got, own, sizeof own) == 0;
    assert_true(is_own || memcmp(got, other, sizeof other) == 0);
    return is_own ? 'f' : 'o';
}

static void learn(int fd) {
    unsigned char got[GW_MPI_DIGEST];
    const gw_weight_source src = {.map = in_file, .fd = fd, .at = 0};
    assert_int_equal(gw_mpi_digest_source(&src, FILE_ROWS, FILE_ROW, got), GW_OK);
    gw_mpi_digests_save();
}

/* The one entry of the cache folder: byte `at` of it is another one, or it is cut off there. */
static void spoil_entry(const char *cache, off_t at, int cut) {
    char path[512];
    snprintf(path, sizeof path, "%s/godwit", cache);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int found = 0;
    for (struct dirent *d; (d = readdir(folder)) != NULL;) {
        if (strncmp(d->d_name, "digests-", 8) == 0) {
            snprintf(path, sizeof path, "%s/godwit/%s", cache, d->d_name);
            found++;
        }
    }
    closedir(folder);
    assert_int_equal(found, 1);
    int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    assert_true(fd >= 0);
    assert_int_equal(cut ? ftruncate(fd, at) : pread(fd, &byte, 1, at) - 1, 0);
    byte ^= 1;
    assert_int_equal(cut ? 1 : pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* A digest comes from the cache as long as the file is as it was. */
static void test_known(void **state) {
    char folder[] = "/tmp/godwit-known-XXXXXX", path[64], command[64];
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    (void)state;
    for (size_t i = 0; i < sizeof in_file; i++) {
        in_file[i] = (unsigned char)(i * 2654435761u >> 13);
        not_in_file[i] = (unsigned char)(i * 2246822519u >> 11);
    }
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    snprintf(path, sizeof path, "%s/file", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, in_file, sizeof in_file), sizeof in_file);
    assert_int_equal(futimens(fd, old), 0); /* how old it says it is does not count */
    learn(fd);
    assert_int_equal(whose(fd, 0), 'o'); /* changed a moment ago: not kept */
    sleep(4);
    snprintf(command, sizeof command, "rm -rf %s/godwit", folder);
    for (int damage = 0; damage < 3; damage++) { /* to the file it is of, a digest, its end */
        learn(fd);
        assert_int_equal(whose(fd, 0), 'f');
        gw_mpi_digests_save();
        spoil_entry(folder, damage == 0 ? 48 : 150, damage == 2);
        assert_int_equal(whose(fd, 0), 'o');
        gw_mpi_digests_save();
        assert_int_equal(system(command), 0);
    }
    learn(fd);
    assert_int_equal(whose(fd, 64), 'o'); /* another part of it */
    gw_mpi_digests_save();
    assert_int_equal(whose(fd, 0), 'f');
    assert_int_equal(pwrite(fd, "x", 1, 5), 1); /* the same size and, said to be, time */
    assert_int_equal(futimens(fd, old), 0);
    assert_int_equal(whose(fd, 0), 'o');
    gw_mpi_digests_save();
    close(fd);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void keep_bytes(unsigned char fill, size_t n, unsigned char digest[GW_MPI_DIGEST], int add) {
    unsigned char bytes[1000];
    memset(bytes, fill, n);
    gw_mpi_digest(bytes, n, digest);
    if (add) {
        gw_mpi_keep_add(digest, bytes, n);
    }
}

static int is_kept(const unsigned char digest[GW_MPI_DIGEST], size_t n) {
    const void *map = gw_mpi_keep_find(digest, n);
    if (map != NULL) {
        unsigned char own[GW_MPI_DIGEST];
        gw_mpi_digest(map, n, own);
        assert_memory_equal(own, digest, sizeof own);
        assert_int_equal(munmap((void *)(uintptr_t)map, n), 0);
    }
    return map != NULL;
}

/* What was used longest ago goes; nothing of a wrong digest or size comes. */
static void test_keep(void **state) {
    char folder[] = "/tmp/godwit-keep-XXXXXX", path[64];
    unsigned char a[GW_MPI_DIGEST], b[GW_MPI_DIGEST], c[GW_MPI_DIGEST], d[GW_MPI_DIGEST];
    const struct timespec tick = {.tv_nsec = 20000000};
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x/y", folder);
    assert_false(gw_mpi_keeps());
    assert_int_equal(gw_mpi_keep_open(path, 2500), GW_OK);
    assert_true(gw_mpi_keeps());
    keep_bytes('a', 1000, a, 1);
    nanosleep(&tick, NULL);
    keep_bytes('b', 1000, b, 1);
    assert_true(is_kept(b, 1000) && !is_kept(b, 999) && !is_kept(b, 0));
    nanosleep(&tick, NULL);
    assert_true(is_kept(a, 1000)); /* b is the older one now */
    keep_bytes('c', 1000, c, 1);
    assert_true(is_kept(a, 1000) && is_kept(c, 1000) && !is_kept(b, 1000));
    keep_bytes('d', 400, d, 0);
    gw_mpi_keep_add(d, "of another digest", 17);
    assert_false(is_kept(d, 17));
    gw_mpi_keep_close();
    assert_false(gw_mpi_keeps() || is_kept(a, 1000));
    assert_int_equal(gw_mpi_keep_open(path, 900), GW_OK); /* less than a weight */
    keep_bytes('b', 1000, b, 1);
    assert_true(!is_kept(b, 1000) && is_kept(a, 1000));
    gw_mpi_keep_close();
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(gw_mpi_keep_open(path, 900), GW_E_IO);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_addresses(void **state) {
    static const char *const wrong[] = {"",      "host", "host:", ":7",    "host:70000",
                                        "::1:7", "h:7x", "h:-1",  "[::1]", "h:123456"};
    char host[80], port[16];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(gw_mpi_split_address(wrong[i], host, port), GW_E_ARGUMENT);
    }
    assert_int_equal(gw_mpi_split_address("[::1]:7717", host, port), GW_OK);
    assert_string_equal(host, "::1");
    assert_string_equal(port, "7717");
    assert_int_equal(gw_mpi_split_address("a.b:0", host, port), GW_OK);
    assert_string_equal(host, "a.b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),       cmocka_unit_test(test_without_places),
        cmocka_unit_test(test_wrong_bytes), cmocka_unit_test(test_steps),
        cmocka_unit_test(test_hmac),        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_known),       cmocka_unit_test(test_keep),
        cmocka_unit_test(test_addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
