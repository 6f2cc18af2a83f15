/* tests/test_save.c - files written beside their target: permissions, several at once, and what a
 * signal handler removes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/save.h"

static char folder[] = "/tmp/godwit-save-XXXXXX";

static int enter_folder(void **state) {
    (void)state;
    return mkdtemp(folder) != NULL ? chdir(folder) : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

static int files(void) {
    DIR *d = opendir(".");
    assert_non_null(d);
    int n = -2; /* "." and ".." */
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

static int mode_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (int)(st.st_mode & 0777);
}

/* The umask of the process decides, and is not touched. */
static void test_permissions(void **state) {
    (void)state;
    gw_save s;
    mode_t before = umask(027);
    assert_int_equal(gw_save_begin(&s, "open", 0666, 4), GW_OK);
    assert_int_equal(mode_of(s.temporary), 0640); /* at every moment */
    assert_int_equal(gw_save_write(&s, "text", 4), GW_OK);
    assert_int_equal(gw_save_end(&s), GW_OK);
    assert_int_equal(gw_save_begin(&s, "private", 0600, 0), GW_OK);
    assert_int_equal(gw_save_end(&s), GW_OK);
    assert_int_equal(mode_of("open"), 0640);
    assert_int_equal(mode_of("private"), 0600);
    assert_int_equal(umask(before), 027);
    unlink("open");
    unlink("private");
}

/* A handler that ends the process leaves what is finished and nothing else. */
static void test_abandoned(void **state) {
    (void)state;
    enum { MANY = 6 };
    gw_save s[MANY];
    char name[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "file%d", i);
        assert_int_equal(gw_save_begin(&s[i], name, 0600, 100), GW_OK);
    }
    assert_int_equal(gw_save_end(&s[0]), GW_OK);
    gw_save_drop(&s[1]);
    assert_int_equal(files(), MANY - 1);
    gw_save_abandon();
    assert_int_equal(files(), 1);
    assert_int_equal(access("file0", F_OK), 0);
    for (int i = 2; i < MANY; i++) {
        gw_save_drop(&s[i]);
    }
    unlink("file0");
}

/* More than a handler keeps in mind: all are written. */
static void test_many(void **state) {
    (void)state;
    enum { MANY = 40 };
    gw_save s[MANY];
    char name[16];
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, "file%d", i);
            assert_int_equal(gw_save_begin(&s[i], name, 0600, 0), GW_OK);
        }
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(gw_save_end(&s[i]), GW_OK);
        }
        assert_int_equal(files(), MANY);
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "file%d", i);
        unlink(name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permissions),
        cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, enter_folder, remove_folder);
}
