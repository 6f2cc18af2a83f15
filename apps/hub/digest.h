/* apps/hub/digest.h - SHA-256 of a file, and the SHA-1 by which git names one, while it arrives. A
 * library computes them, opened at run time (OpenSSL's libcrypto, GnuTLS: one of both is what
 * libcurl speaks TLS with); without any, SHA-256 alone is computed here, slowly. */
#ifndef GW_HUB_DIGEST_H
#define GW_HUB_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/sha256.h"

typedef struct digest {
    int kind; /* 0: ours, 1: libcrypto, 2: GnuTLS; -1: none */
    int bytes;
    void *state;
    gw_sha256 own;
} digest;

/* is_git: SHA-1 of "blob SIZE\0" and the file. 0; -1: this machine cannot compute it. Ends with
 * digest_end or digest_drop. */
int digest_begin(digest *d, int is_git, uint64_t size);
void digest_add(digest *d, const void *data, size_t bytes);
void digest_end(digest *d, char hex[65]); /* lower-case digits and NUL */
void digest_drop(digest *d);

#endif
