/* core/base/digest.h - SHA-256 of a file or of weights, and the SHA-1 by which git names a file. A
 * library computes them, opened at run time (OpenSSL's libcrypto, GnuTLS: one of both is what
 * libcurl speaks TLS with); without any, SHA-256 alone is computed here, slowly. Any thread. */
#ifndef GW_BASE_DIGEST_H
#define GW_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/sha256.h"

typedef struct gw_digest {
    int kind; /* 0: ours, 1: libcrypto, 2: GnuTLS; -1: none */
    int bytes;
    void *state;
    gw_sha256 own;
} gw_digest;

/* is_git: SHA-1 of "blob SIZE\0" and the file. 0; -1: this machine cannot compute it. Ends with
 * gw_digest_end or gw_digest_drop. */
int gw_digest_begin(gw_digest *d, int is_git, uint64_t size);
void gw_digest_add(gw_digest *d, const void *data, size_t bytes);
int gw_digest_end(gw_digest *d, unsigned char raw[64]); /* how many bytes it has */
void gw_digest_drop(gw_digest *d);

#endif
