/* tests/test_hip_compile.c - NVRTC and hiprtc, where they are installed, build kernels, each on its
 * own and once, as backends/hip/program.c asks for them, and what hiprtc makes for gfx90a keeps its
 * values in registers; no card is needed. The emulator tells which kernels there are. As many
 * processes as processors: hiprtc takes one thread only.
 * GODWIT_HIP_KINDS=1: not every kernel, but each kind of them in some weight format, and each
 * format. tools/test hip-all has every kernel, and compiles all with hipcc and nvcc, too.
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
#include "core/tensor/formats.h"

enum { MOST = 1000, LENGTH = 64, FEWEST = 200, WORKERS = 64, NOT_HERE = 255 };

static char kernels[MOST][LENGTH];
static int n_kernels;

/* Sizes in a name, as of gw_attend_f16_h8_v4, are numbers in one template. */
static void drop_numbers(char *name) {
    char *to = name;
    for (const char *c = name; *c != '\0'; c++) {
        if (*c < '0' || *c > '9') {
            *to++ = *c;
        }
    }
    *to = '\0';
}

/* Name without the weight format, which stands between underscores or behind the last, and without
 * sizes; the format, or GW_FMT_COUNT. */
static gw_fmt split_name(const char *name, char kind[LENGTH]) {
    for (int f = 0; f < GW_FMT_COUNT; f++) {
        char part[LENGTH];
        snprintf(part, sizeof part, "_%s", gw_format_of((gw_fmt)f)->name);
        for (char *c = part; *c != '\0'; c++) {
            *c = *c == '-' ? '_' : *c;
        }
        const char *at = strstr(name, part), *behind = at != NULL ? at + strlen(part) : NULL;
        if (at != NULL && (*behind == '_' || *behind == '\0')) {
            snprintf(kind, LENGTH, "%.*s_%s", (int)(at - name), name, behind);
            drop_numbers(kind);
            return (gw_fmt)f;
        }
    }
    snprintf(kind, LENGTH, "%s", name);
    return GW_FMT_COUNT;
}

/* One of each kind, in the format that came least often before; then one of each format that no
 * kind took. */
static void keep_kinds(void) {
    static char kinds[MOST][LENGTH], kept[MOST][LENGTH];
    static gw_fmt format_of[MOST];
    int n_kept = 0, times[GW_FMT_COUNT + 1] = {0};
    for (int i = 0; i < n_kernels; i++) {
        format_of[i] = split_name(kernels[i], kinds[i]);
    }
    for (int i = 0; i < n_kernels; i++) {
        int best = i;
        for (int j = 0; j < i && best >= 0; j++) {
            best = strcmp(kinds[j], kinds[i]) == 0 ? -1 : best; /* not the first of its kind */
        }
        for (int j = i; j < n_kernels && best >= 0; j++) {
            if (strcmp(kinds[j], kinds[i]) == 0 && times[format_of[j]] < times[format_of[best]]) {
                best = j;
            }
        }
        if (best >= 0) {
            times[format_of[best]]++;
            memcpy(kept[n_kept++], kernels[best], LENGTH);
        }
    }
    for (int i = 0; i < n_kernels; i++) {
        if (times[format_of[i]] == 0) {
            times[format_of[i]]++;
            memcpy(kept[n_kept++], kernels[i], LENGTH);
        }
    }
    print_message("%d of %d kernels\n", n_kept, n_kernels);
    memcpy(kernels, kept, sizeof kernels);
    n_kernels = n_kept;
}

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
    if (n_kernels <= FEWEST) {
        return -1;
    }
    if (getenv("GODWIT_HIP_KINDS") != NULL) {
        keep_kinds();
    }
    return 0;
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

/* Registers that code for AMD puts into memory, by its notes: MessagePack, in which a small number
 * is a byte itself, a larger one has 0xcc before a byte or 0xcd before two. -1: the notes do not
 * say. */
static int spilled(const char *code, size_t bytes) {
    static const char key[] = ".vgpr_spill_count";
    const size_t n = sizeof key - 1;
    int most = -1;
    for (size_t i = 0; i + n + 3 <= bytes; i++) {
        if (memcmp(code + i, key, n) == 0) {
            const unsigned char *v = (const unsigned char *)code + i + n;
            int count = v[0] < 0x80 ? v[0] : v[0] == 0xcc ? v[1] : v[1] << 8 | v[2];
            most = count > most ? count : most;
        }
    }
    return most;
}

/* Where a kernel can be made: those on matrix instructions of four waves for one processor alone.
 * NULL: nowhere. */
static const char *arch_of(const char *kernel, const gw_hip_compiler *compiler, int nvidia) {
    static const char *const four[] = {"gw_gemm_group_", "gw_gemm_wide_", "gw_spread",
                                       "gw_attend_digits_group_"};
    for (size_t i = 0; i < sizeof four / sizeof four[0]; i++) {
        if (strncmp(kernel, four[i], strlen(four[i])) == 0) {
            return nvidia && gw_hip_compiler_major(compiler) >= 12 ? "sm_90a" : NULL;
        }
    }
    const char *other = getenv("GODWIT_HIP_ARCH"); /* of arch.h, for one of the two compilers */
    const int theirs = other != NULL && (strncmp(other, "sm_", 3) == 0) == nvidia;
    return theirs ? other : nvidia ? "sm_80" : "gfx90a";
}

/* Every `of`-th kernel; how many do not build. The parent never opens a compiler before it forks.
 */
static int build(int nvidia, int first, int of) {
    const gw_hip_compiler *compiler = gw_hip_compiler_open(nvidia);
    int bad = 0;
    for (int i = first; i < n_kernels && compiler != NULL; i += of) {
        void *code = NULL;
        size_t bytes = 0;
        const char *arch = arch_of(kernels[i], compiler, nvidia);
        if (arch == NULL) {
            continue;
        }
        if (gw_hip_compile_kernel(compiler, kernels[i], arch, &code, &bytes) != GW_OK) {
            fprintf(stderr, "%s\n", gw_error_text());
            bad++;
        } else if (!has(code, bytes, kernels[i])) {
            fprintf(stderr, "the code of %s for %s has no such kernel\n", kernels[i], arch);
            bad++;
        } else if (!nvidia && spilled(code, bytes) != 0) {
            fprintf(stderr, "%s for %s: %d registers spilled (-1: not said)\n", kernels[i], arch,
                    spilled(code, bytes));
            bad++;
        }
        free(code);
    }
    return compiler == NULL ? NOT_HERE : bad < 100 ? bad : 100;
}

static void build_all(int nvidia) {
    pid_t workers[WORKERS];
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    int bad = 0, absent = 0;
    n = n < 1 ? 1 : n > WORKERS ? WORKERS : n;
    for (int i = 0; i < n; i++) {
        workers[i] = fork();
        assert_true(workers[i] >= 0);
        if (workers[i] == 0) {
            _exit(build(nvidia, i, (int)n));
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
    build_all(1);
}

static void test_hiprtc(void **state) {
    (void)state;
    build_all(0);
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
