/* core/image/exif.c - the orientation that a camera wrote (Exif 2.32, section 4.6; TIFF 6.0). */
#include <string.h>

#include "core/image/decode.h"

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, ENTRY = 12 };

typedef struct tiff {
    const uint8_t *data;
    size_t n;
    int big; /* most significant byte first */
} tiff;

static uint32_t number(const tiff *t, size_t at, int bytes) {
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) {
        v |= (uint32_t)t->data[at + (size_t)i] << 8 * (t->big ? bytes - 1 - i : i);
    }
    return v;
}

int gw_exif_orientation(const uint8_t *data, size_t n) {
    if (n >= 6 && memcmp(data, "Exif\0", 6) == 0) {
        data += 6;
        n -= 6;
    }
    if (n < 8 || (memcmp(data, "II*\0", 4) != 0 && memcmp(data, "MM\0*", 4) != 0)) {
        return 1;
    }
    tiff t = {data, n, data[0] == 'M'};
    size_t at = number(&t, 4, 4);
    if (at > n - 2) {
        return 1;
    }
    size_t count = number(&t, at, 2);
    at += 2;
    for (size_t i = 0; i < count && n - at >= ENTRY; i++, at += ENTRY) {
        if (number(&t, at, 2) == TAG_ORIENTATION) {
            uint32_t value = number(&t, at + 8, 2);
            int fits = number(&t, at + 2, 2) == TYPE_SHORT && number(&t, at + 4, 4) == 1;
            return fits && value >= 1 && value <= 8 ? (int)value : 1;
        }
    }
    return 1;
}
