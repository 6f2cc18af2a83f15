/* core/text/tokens/base64.c - see base64.h. */
#include "core/text/tokens/base64.h"

static int value_of(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

int gw_base64_read(const char *text, size_t n, gw_bytes *out) {
    uint32_t bits = 0;
    unsigned held = 0;
    for (int padding = 0; n > 0 && text[n - 1] == '=' && padding < 2; padding++) {
        n--;
    }
    if (n % 4 == 1 || gw_bytes_reserve(out, n / 4 * 3 + 3) != GW_OK) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        int value = value_of(text[i]);
        if (value < 0) {
            return 0;
        }
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out->data[out->n++] = (char)(bits >> held & 0xFF);
        }
    }
    return 1;
}
