/* apps/bench_exchange.c - `godwit bench --exchange`: what cards hand to one another, alone. */
#include <stdlib.h>
#include <string.h>

#include "apps/bench.h"
#include "apps/output.h"
#include "include/godwit_cards.h"

enum { ROWS_MOST = 64 };

/* WIDTH[,ROWS,...]: numbers of 1 and more; how many there are, 0 when it is anything else. */
static size_t parse_numbers(const char *text, int32_t *out, size_t room) {
    size_t n = 0;
    for (const char *at = text; n < room; at++) {
        char *end = NULL;
        long value = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (value < 1 || value > 1 << 20 || (*end != ',' && *end != '\0')) {
            return 0;
        }
        out[n++] = (int32_t)value;
        at = end;
        if (*at == '\0') {
            return n;
        }
    }
    return 0;
}

/* act8 takes a third of the words. */
static void print_row(const gw_exchange_result *r, double flag) {
    out_print("| %d | %.2f | %.1f |", (int)r->n, 1e6 * r->f32_seconds, r->f32_seconds / (2 * flag));
    if (r->act8_seconds > 0) {
        out_print(" %.2f | %.1f |\n", 1e6 * r->act8_seconds, r->act8_seconds / (2 * flag));
    } else {
        out_text(" | |\n");
    }
}

int bench_exchange(const app_options *o) {
    static const int32_t usual[] = {1, 2, 4, 8, 16, 32, 64, 128};
    int32_t numbers[ROWS_MOST + 1];
    gw_exchange_result results[ROWS_MOST];
    double flag = 0;
    size_t n = parse_numbers(o->exchange, numbers, ROWS_MOST + 1);
    if (n == 0) {
        app_error("--exchange: '%.60s' is not WIDTH[,ROWS,...]", o->exchange);
        return APP_USAGE;
    }
    if (n == 1) {
        memcpy(numbers + 1, usual, sizeof usual);
        n += sizeof usual / sizeof usual[0];
    }
    gw_status status = gw_time_exchanges(o->device, numbers[0], numbers + 1, n - 1, results, &flag);
    if (status != GW_OK) {
        return app_fail(status);
    }
    out_print("rows of %d floats on %s; a word is there after %.2f us\n\n", (int)numbers[0],
              o->device, 1e6 * flag);
    out_text(
        "| rows | f32 us | of two words | act8 us | of two words |\n|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i + 1 < n; i++) {
        print_row(&results[i], flag);
    }
    return out_flush() == 0 ? APP_OK : APP_FAILURE;
}
