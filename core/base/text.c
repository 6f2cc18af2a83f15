/* core/base/text.c - prefixes and suffixes, texts that grow in a fixed room. */
#include "core/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

int gw_text_is_utf8(const void *text, size_t n) { return gw_utf8_span(text, n) == n; }

const char *gw_text_size(uint64_t bytes, int digits, char out[GW_SIZE_TEXT]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    char number[16];
    double x = (double)bytes;
    int unit = 0;
    if (bytes < 1000) {
        snprintf(out, GW_SIZE_TEXT, "%d B", (int)bytes);
        return out;
    }
    do { /* 999.96 is 1e+03 in three digits: 1 of the next unit */
        x /= 1000;
        unit++;
        snprintf(number, sizeof number, "%.*g", digits, x);
    } while (strtod(number, NULL) >= 1000 && unit < 6);
    snprintf(out, GW_SIZE_TEXT, "%.8s %s", number, units[unit]);
    return out;
}

int gw_text_starts(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

int gw_text_ends(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

int gw_text_append(char *out, size_t room, const char *fmt, ...) {
    size_t used = strlen(out);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(out + used, room - used, fmt, args);
    va_end(args);
    return n >= 0 && (size_t)n < room - used;
}
