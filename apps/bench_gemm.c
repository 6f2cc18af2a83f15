/* apps/bench_gemm.c - `godwit bench --gemm`: one product alone, for some numbers of rows. */
#include <stdlib.h>
#include <string.h>

#include "apps/bench.h"
#include "apps/output.h"

enum { ROWS_MOST = 64, FORMAT_ROOM = 24 };

typedef struct gemm_spec {
    char format[FORMAT_ROOM];
    int64_t k, n;
    int32_t m[ROWS_MOST];
    size_t n_m;
} gemm_spec;

/* A number of 1..most at *at, which moves behind it and the comma that may follow. 0: there is
 * none. */
static int64_t take_number(const char **at, int64_t most) {
    char *end;
    if (**at < '0' || **at > '9') {
        return 0;
    }
    long long value = strtoll(*at, &end, 10);
    *at = *end == ',' ? end + 1 : end;
    return (*end == ',' || *end == '\0') && value <= most ? value : 0;
}

/* FORMAT:K=14336,N=21504[,M=1,16,...]; 0 when it is anything else. */
static int parse_spec(const char *text, gemm_spec *s) {
    static const int32_t usual[] = {1, 2, 4, 8, 16, 32, 64, 128, 320};
    const char *at = strchr(text, ':');
    *s = (gemm_spec){.k = 0};
    if (at == NULL || at - text >= FORMAT_ROOM) {
        return 0;
    }
    memcpy(s->format, text, (size_t)(at - text));
    at++;
    while (*at != '\0') {
        char key = 'M';
        if (*at == 'K' || *at == 'N' || *at == 'M') {
            key = *at;
            if (at[1] != '=') {
                return 0;
            }
            at += 2;
        } else if (s->n_m == 0) {
            return 0; /* only the numbers of rows are a list */
        }
        int64_t value = take_number(&at, key == 'M' ? GW_CHUNK_MAX : 1 << 20);
        if (value < 1 || (key == 'M' && s->n_m == ROWS_MOST)) {
            return 0;
        }
        if (key == 'M') {
            s->m[s->n_m++] = (int32_t)value;
        } else {
            *(key == 'K' ? &s->k : &s->n) = value;
        }
    }
    if (s->n_m == 0) {
        memcpy(s->m, usual, sizeof usual);
        s->n_m = sizeof usual / sizeof usual[0];
    }
    return s->k > 0 && s->n > 0;
}

/* Share of the roof: of whatever of the two alone would take longer. */
static void print_row(const gw_product_result *r, const gw_roof *roof) {
    double peak = r->is_float ? roof->f32_gflops : roof->int8_gops;
    double read = roof->read_gbps > 0 ? r->bytes * 1e-9 / roof->read_gbps : 0;
    double count = peak > 0 ? r->ops * 1e-9 / peak : 0;
    double least = read > count ? read : count;
    out_print("| %d | %s | %.2f | %.1f | %.3f |", (int)r->n, r->kernel, 1e6 * r->seconds,
              1e-9 * r->bytes / r->seconds, 1e-12 * r->ops / r->seconds);
    if (least > 0) {
        out_print(" %.2f | %.0f%% of %s |\n", 1e6 * least, 100 * least / r->seconds,
                  read >= count ? "reading"
                  : r->is_float ? "f32"
                                : "int8");
    } else {
        out_text(" | |\n");
    }
}

int bench_gemm(const app_options *o) {
    gemm_spec s;
    gw_product_result results[ROWS_MOST];
    gw_roof roof = {0};
    int threads = o->thread_list.n > 0 ? o->thread_list.at[0] : 0;
    if (!parse_spec(o->gemm, &s)) {
        app_error("--gemm: '%.60s' is not FORMAT:K=COLUMNS,N=ROWS[,M=1,16,...]", o->gemm);
        return APP_USAGE;
    }
    gw_product product = {s.format, s.n, s.k};
    gw_status status = gw_time_products(o->device, threads, &product, s.m, s.n_m, results, &roof);
    if (status != GW_OK) {
        return app_fail(status);
    }
    out_print("%s, K = %lld, N = %lld", s.format, (long long)s.k, (long long)s.n);
    out_print("; reads %.1f GB/s", roof.read_gbps);
    if (roof.int8_gops > 0) {
        out_print(", int8 %.0f GOP/s, f32 %.0f GFLOP/s", roof.int8_gops, roof.f32_gflops);
    }
    out_text("\n\n| M | kernel | us | GB/s | TOP/s | least us | share of the roof |\n"
             "|---:|---|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < s.n_m; i++) {
        print_row(&results[i], &roof);
    }
    return out_flush() == 0 ? APP_OK : APP_FAILURE;
}
