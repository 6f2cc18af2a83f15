/* tests/test_hip_compile.c - NVRTC and hiprtc, where they are installed, build every kernel, each
 * on its own and once, as backends/hip/program.c asks for them; no card is needed. The emulator
 * tells which kernels there are. As many processes as processors: hiprtc takes one thread only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/hip/compiler.h"

enum { MOST = 1000, LENGTH = 64, FEWEST = 200, WORKERS = 64, NOT_HERE = 255 };

static char kernels[MOST][LENGTH];
static int n_kernels;

/* NAME is a kernel where NAME_params is a symbol, too. */
static int list_kernels(void **state) {
    static const char tail[] = "_params";
    char line[512];
    (void)state;
    FILE *symbols = popen("nm -D --defined-only " GODWIT_EMULATORS "libgodwit_emu32.so", "r");
    assert_non_null(symbols);
    while (n_kernels < MOST && fgets(line, sizeof line, symbols) != NULL) {
        char *name = strrchr(line, ' ') + 1;
        size_t n = strcspn(name, "\n");
        if (n > sizeof tail && n < LENGTH &&
            memcmp(name + n - (sizeof tail - 1), tail, sizeof tail - 1) == 0 &&
            strncmp(name, "gw_test_", 8) != 0) { /* the emulator's own */
            snprintf(kernels[n_kernels++], LENGTH, "%.*s", (int)(n - (sizeof tail - 1)), name);
        }
    }
    assert_int_equal(pclose(symbols), 0);
    return n_kernels > FEWEST ? 0 : -1;
}

/* Is there a symbol of that name, or one that ends in it? */
static int has(const char *code, size_t bytes, const char *kernel) {
    size_t n = strlen(kernel) + 1;
    for (size_t i = 0; i + n <= bytes; i++) {
        if (memcmp(code + i, kernel, n) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Every `of`-th kernel; how many do not build. The parent never opens a compiler before it forks.
 */
static int build(int nvidia, const char *arch, int first, int of) {
    const gw_hip_compiler *compiler = gw_hip_compiler_open(nvidia);
    int bad = 0;
    for (int i = first; i < n_kernels && compiler != NULL; i += of) {
        void *code = NULL;
        size_t bytes = 0;
        if (gw_hip_compile_kernel(compiler, kernels[i], arch, &code, &bytes) != GW_OK) {
            fprintf(stderr, "%s\n", gw_error_text());
            bad++;
        } else if (!has(code, bytes, kernels[i])) {
            fprintf(stderr, "the code of %s for %s has no such kernel\n", kernels[i], arch);
            bad++;
        }
        free(code);
    }
    return compiler == NULL ? NOT_HERE : bad < 100 ? bad : 100;
}

static void build_all(int nvidia, const char *arch) {
    pid_t workers[WORKERS];
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    int bad = 0, absent = 0;
    n = n < 1 ? 1 : n > WORKERS ? WORKERS : n;
    for (int i = 0; i < n; i++) {
        workers[i] = fork();
        assert_true(workers[i] >= 0);
        if (workers[i] == 0) {
            _exit(build(nvidia, arch, i, (int)n));
        }
    }
    for (int i = 0; i < n; i++) {
        int status = 0;
        assert_int_equal(waitpid(workers[i], &status, 0), workers[i]);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        absent += code == NOT_HERE;
        bad += code == NOT_HERE ? 0 : code;
    }
    if (absent == n) {
        print_message("%s is not here\n", nvidia ? "NVRTC" : "hiprtc");
        skip();
    }
    assert_int_equal(bad + absent, 0);
}

static void test_nvrtc(void **state) {
    (void)state;
    build_all(1, "sm_80");
}

static void test_hiprtc(void **state) {
    (void)state;
    build_all(0, "gfx90a");
}

static void test_what_is_no_kernel(void **state) {
    void *code = NULL;
    size_t bytes = 0;
    (void)state;
    const gw_hip_compiler *compiler = gw_hip_compiler_open(1);
    if (compiler == NULL) {
        skip();
    }
    assert_int_equal(gw_hip_compile_kernel(compiler, "norm", "sm_80", &code, &bytes), GW_E_DEVICE);
    assert_non_null(strstr(gw_error_text(), "no file has the kernel norm"));
    assert_null(code);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvrtc),
        cmocka_unit_test(test_hiprtc),
        cmocka_unit_test(test_what_is_no_kernel),
    };
    return cmocka_run_group_tests(tests, list_kernels, NULL);
}
