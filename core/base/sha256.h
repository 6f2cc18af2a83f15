/* core/base/sha256.h - SHA-256 (FIPS 180-4) of a stream. */
#ifndef GW_BASE_SHA256_H
#define GW_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct gw_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} gw_sha256;

void gw_sha256_begin(gw_sha256 *h);
void gw_sha256_add(gw_sha256 *h, const void *data, size_t bytes);
void gw_sha256_end(gw_sha256 *h, unsigned char digest[32]);
void gw_sha256_hex(const unsigned char digest[32], char hex[65]); /* lower case and NUL */

#endif
