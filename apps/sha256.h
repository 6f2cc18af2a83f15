/* apps/sha256.h - SHA-256 (FIPS 180-4) of a stream. */
#ifndef GW_APPS_SHA256_H
#define GW_APPS_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} sha256;

void sha256_begin(sha256 *h);
void sha256_add(sha256 *h, const void *data, size_t bytes);
void sha256_end(sha256 *h, char hex[65]); /* 64 lower-case digits and NUL */

#endif
