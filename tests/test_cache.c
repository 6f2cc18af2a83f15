/* tests/test_cache.c - entries kept on disk: whose folder and files count, what goes when there is
 * too much, and numbers from a file that nobody can have measured.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cache.h"
#include "core/engine/placing/gauge.h"

static char base[] = "/tmp/godwit-cache-XXXXXX";

static int enter(void **state) {
    (void)state;
    return mkdtemp(base) != NULL && setenv("XDG_CACHE_HOME", base, 1) == 0 ? chdir(base) : -1;
}

static int leave(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", base);
    return chdir("/") == 0 ? system(command) : -1;
}

static int is_there(uint64_t key) {
    size_t n = 0;
    char *data = gw_cache_read("test", key, &n);
    int there = data != NULL && n == 5 && memcmp(data, "bytes", 5) == 0;
    assert_true(there || data == NULL);
    free(data);
    return there;
}

static void put(uint64_t key) { gw_cache_write("test", key, "bytes", 5); }

static const char *path_of(unsigned key) {
    static char path[64];
    snprintf(path, sizeof path, "godwit/test-%016x.bin", key);
    return path;
}

static void test_kept(void **state) {
    (void)state;
    struct stat st;
    put(1);
    assert_true(is_there(1));
    assert_false(is_there(2));
    assert_int_equal(stat("godwit", &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(path_of(1), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* A folder that others can write to, that is another's or a link: nothing is read from it and
 * nothing written. */
static void test_folders_of_others(void **state) {
    (void)state;
    put(1);
    const mode_t open_to[] = {0770, 0707, 0777};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod("godwit", open_to[i]), 0);
        assert_false(is_there(1));
        put(2);
    }
    assert_int_equal(chmod("godwit", 0755), 0);
    assert_true(is_there(1));
    assert_false(is_there(2));
    if (geteuid() == 0) {
        assert_int_equal(chown("godwit", 12345, 12345), 0);
        assert_false(is_there(1));
        assert_int_equal(chown("godwit", 0, 0), 0);
    }
    assert_int_equal(rename("godwit", "elsewhere"), 0);
    assert_int_equal(symlink("elsewhere", "godwit"), 0);
    assert_false(is_there(1));
    put(2);
    assert_int_equal(unlink("godwit"), 0);
    assert_int_equal(rename("elsewhere", "godwit"), 0);
    assert_true(is_there(1));
    assert_false(is_there(2));
}

static void test_files_of_others(void **state) {
    (void)state;
    put(1);
    assert_int_equal(chmod(path_of(1), 0620), 0);
    assert_false(is_there(1));
    assert_int_equal(chmod(path_of(1), 0644), 0);
    assert_true(is_there(1));
    assert_int_equal(rename(path_of(1), "real"), 0);
    assert_int_equal(symlink("../real", path_of(1)), 0);
    assert_false(is_there(1));
    assert_int_equal(unlink(path_of(1)), 0);
    assert_int_equal(mkfifo(path_of(1), 0600), 0);
    assert_false(is_there(1)); /* and does not wait for a writer */
    assert_int_equal(unlink(path_of(1)), 0);
    assert_int_equal(unlink("real"), 0);
}

/* A file of the folder, `days` old and of so many bytes, which take no room on the disk. */
static void make(const char *name, int days, off_t bytes) {
    char path[96];
    snprintf(path, sizeof path, "godwit/%s", name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    struct timespec when[2] = {{.tv_sec = time(NULL) - days * 24 * 3600}};
    when[1] = when[0];
    assert_int_equal(futimens(fd, when), 0);
    close(fd);
}

static int has(const char *name) {
    char path[96];
    snprintf(path, sizeof path, "godwit/%s", name);
    return access(path, F_OK) == 0;
}

static void test_pruned(void **state) {
    (void)state;
    const off_t third = (off_t)(GW_CACHE_BYTES / 3);
    put(1);
    make("old.bin", GW_CACHE_DAYS + 1, 10);
    make("young.bin", GW_CACHE_DAYS - 1, 10);
    make("half.bin.00beef", 2, 10);
    make("now.bin.00beef", 0, 10);
    make("notes.txt", GW_CACHE_DAYS + 1, 10);
    put(2);
    assert_false(has("old.bin"));
    assert_true(has("young.bin"));
    assert_false(has("half.bin.00beef")); /* of a process that died */
    assert_true(has("now.bin.00beef"));   /* of one that may still write */
    assert_true(has("notes.txt"));        /* not ours */
    make("a.bin", 3, third);
    make("b.bin", 5, third);
    make("c.bin", 4, third);
    put(3); /* a little more than a cache may have: the longest unread go */
    assert_false(has("young.bin"));
    assert_false(has("b.bin"));
    assert_true(has("a.bin") && has("c.bin"));
    assert_true(is_there(1) && is_there(2) && is_there(3));
    unlink("godwit/a.bin");
    unlink("godwit/c.bin");
}

/* What was read lately stays, however long ago it was written. */
static void test_reading_is_use(void **state) {
    (void)state;
    struct timespec when[2] = {{.tv_sec = time(NULL) - (GW_CACHE_DAYS - 1) * 24 * 3600}};
    struct stat st;
    put(1);
    when[1] = when[0];
    assert_int_equal(utimensat(AT_FDCWD, path_of(1), when, 0), 0);
    assert_true(is_there(1));
    assert_int_equal(stat(path_of(1), &st), 0);
    assert_true(time(NULL) - st.st_mtime < 3600);
}

/* Speeds come from the same folder: a number of points is a bound of an array. */
static void test_speeds(void **state) {
    (void)state;
    const gw_gauge good = {.n_points = 2,
                           .at = {1, 2},
                           .token_body = {0.1, 0.2},
                           .token_layer = 0.1,
                           .weight_bytes = 100.0};
    assert_true(gw_gauge_is_sound(&good));
    gw_gauge g = good;
    for (int n = -1; n <= GW_GAUGE_POINTS + 1; n++) {
        g.n_points = n;
        assert_int_equal(gw_gauge_is_sound(&g), n == 1 || n == 2); /* others are at no layer */
    }
    g.n_points = 1 << 20;
    assert_false(gw_gauge_is_sound(&g));
    g = good;
    g.at[1] = 1;
    assert_false(gw_gauge_is_sound(&g));
    g = good;
    g.token_body[1] = (double)NAN;
    assert_false(gw_gauge_is_sound(&g));
    g = good;
    g.send_prompt = -1.0;
    assert_false(gw_gauge_is_sound(&g));
    g = good;
    g.weight_bytes = 0.0;
    assert_false(gw_gauge_is_sound(&g));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_folders_of_others),
        cmocka_unit_test(test_files_of_others),
        cmocka_unit_test(test_pruned),
        cmocka_unit_test(test_reading_is_use),
        cmocka_unit_test(test_speeds),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
