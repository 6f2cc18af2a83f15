/* tests/test_hip_compile.c - NVRTC and hiprtc, where they are installed, build kernels, each on its
 * own and once, as backends/hip/program.c asks for them, and what hiprtc makes for gfx90a keeps its
 * values in registers; no card is needed. The emulator tells which kernels there are. As many
 * processes as processors: hiprtc takes one thread only.
 * GODWIT_HIP_KINDS=1: not every kernel, but each kind of them in some weight format, and each
 * format. tools/test hip-all has every kernel, and compiles all with hipcc and nvcc, too.
 * GODWIT_HIP_ARCH=sm_61,gfx1100: whole files for those processors in place of that, which have the
 * kernels that backends/hip/places.c says, and no others.
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
enum { MOST_ARCHS = 64, ARCH = 16 };

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

/* sm_90a where the common processor has no such kernel and a compiler knows that one; NULL:
 * nowhere. */
static const char *arch_of(const char *kernel, const gw_hip_compiler *compiler, int nvidia) {
    const char *common = nvidia ? "sm_80" : "gfx90a";
    if (gw_hip_arch_has(common, kernel)) {
        return common;
    }
    int newer = nvidia && gw_hip_compiler_major(compiler) >= 12;
    return newer && gw_hip_arch_has("sm_90a", kernel) ? "sm_90a" : NULL;
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

/* GODWIT_HIP_ARCH: processors of arch.h, with commas; those of one of the two compilers. */
static int list_archs(int nvidia, char archs[MOST_ARCHS][ARCH]) {
    const char *p = getenv("GODWIT_HIP_ARCH");
    int n = 0;
    while (p != NULL && *p != '\0') {
        size_t length = strcspn(p, ",");
        if ((strncmp(p, "sm_", 3) == 0) == nvidia && n < MOST_ARCHS && length < ARCH) {
            snprintf(archs[n++], ARCH, "%.*s", (int)length, p);
        }
        p += length + (p[length] == ',');
    }
    return n;
}

/* A file for a processor makes those of its kernels that places.c says, and no others. */
static int check_file(const gw_hip_compiler *compiler, const char *file, const char *arch) {
    void *code = NULL;
    size_t bytes = 0;
    int bad = 0;
    if (gw_hip_compile_file(compiler, file, arch, &code, &bytes) != GW_OK) {
        fprintf(stderr, "%s\n", gw_error_text());
        return 1;
    }
    for (int i = 0; i < n_kernels; i++) {
        const char *of = gw_hip_file_of(kernels[i]);
        const int made = has(code, bytes, kernels[i]);
        const int meant = of != NULL && strcmp(of, file) == 0 && gw_hip_arch_has(arch, kernels[i]);
        if (made != meant) {
            fprintf(stderr, "%s for %s has %s %s; backends/hip/places.c says otherwise\n", file,
                    arch, made ? "the kernel" : "no kernel", kernels[i]);
            bad++;
        }
    }
    free(code);
    return bad;
}

/* Whether kernel i is the first of its file. */
static int begins_file(int i) {
    const char *file = gw_hip_file_of(kernels[i]);
    for (int j = 0; j < i && file != NULL; j++) {
        const char *other = gw_hip_file_of(kernels[j]);
        if (other != NULL && strcmp(other, file) == 0) {
            return 0;
        }
    }
    return file != NULL;
}

/* Every `of`-th file, for all processors that are named. */
static int build_files(int nvidia, int first, int of) {
    char archs[MOST_ARCHS][ARCH];
    const gw_hip_compiler *compiler = gw_hip_compiler_open(nvidia);
    const int n = list_archs(nvidia, archs);
    int bad = 0, files = 0;
    for (int i = 0; i < n_kernels && compiler != NULL; i++) {
        const int mine = begins_file(i) && files++ % of == first;
        for (int a = 0; a < n && mine; a++) {
            bad += check_file(compiler, gw_hip_file_of(kernels[i]), archs[a]);
        }
    }
    return compiler == NULL ? NOT_HERE : bad < 100 ? bad : 100;
}

static void build_all(int nvidia) {
    pid_t workers[WORKERS];
    char archs[MOST_ARCHS][ARCH];
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    int bad = 0, absent = 0, named = getenv("GODWIT_HIP_ARCH") != NULL;
    if (named && list_archs(nvidia, archs) == 0) {
        skip();
    }
    n = n < 1 ? 1 : n > WORKERS ? WORKERS : n;
    for (int i = 0; i < n; i++) {
        workers[i] = fork();
        assert_true(workers[i] >= 0);
        if (workers[i] == 0) {
            _exit((named ? build_files : build)(nvidia, i, (int)n));
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

static void test_who_has_a_kernel(void **state) {
    static const char *const has_not[][2] = {
        {"sm_61", "gw_gemm_q4_0"},
        {"sm_75", "gw_linear_q4_0_wide"},
        {"gfx90a", "gw_linear_q4_0_many"},
        {"sm_90", "gw_gemm_group_q4_0"},
        {"gfx1030", "gw_narrow"},
        {"gfx942", "gw_attend_digits_group_128"},
        {"sm_90a", "norm"},
    };
    static const char *const has_it[][2] = {
        {"sm_61", "gw_gemm_plain_q4_0"},   {"sm_75", "gw_attend_digits_128"},
        {"gfx90a", "gw_linear_q4_0_wide"}, {"sm_90a", "gw_gemm_group_q4_0"},
        {"gfx1100", "gw_narrow"},          {"sm_120", "gw_linear_q4_0_many"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof has_not / sizeof has_not[0]; i++) {
        assert_false(gw_hip_arch_has(has_not[i][0], has_not[i][1]));
    }
    for (size_t i = 0; i < sizeof has_it / sizeof has_it[0]; i++) {
        assert_true(gw_hip_arch_has(has_it[i][0], has_it[i][1]));
    }
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
        cmocka_unit_test(test_who_has_a_kernel),
        cmocka_unit_test(test_what_is_no_kernel),
    };
    return cmocka_run_group_tests(tests, list_kernels, NULL);
}
