/* core/base/digest.c - see digest.h. */
#include "core/base/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/os_threads.h"

enum { OURS, CRYPTO, GNUTLS };
enum { GNUTLS_SHA1 = 3, GNUTLS_SHA256 = 6 }; /* gnutls_digest_algorithm_t */

static struct {
    /* libcrypto: EVP */
    void *(*new)(void);
    void (*free)(void *);
    int (*init)(void *, const void *, void *);
    int (*update)(void *, const void *, size_t);
    int (*final)(void *, unsigned char *, unsigned *);
    const void *(*sha1)(void), *(*sha256)(void);
    /* GnuTLS */
    int (*hash_init)(void **, int);
    int (*hash)(void *, const void *, size_t);
    void (*deinit)(void *, void *);
} lib;

static int symbol(void *library, const char *name, void *to) {
    void *found = library != NULL ? dlsym(library, name) : NULL;
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

static void open_libraries(void) {
    void *c = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    c = c != NULL ? c : dlopen("libcrypto.so.1.1", RTLD_NOW | RTLD_LOCAL);
    if (!(symbol(c, "EVP_MD_CTX_new", &lib.new) && symbol(c, "EVP_MD_CTX_free", &lib.free) &&
          symbol(c, "EVP_DigestInit_ex", &lib.init) && symbol(c, "EVP_DigestUpdate", &lib.update) &&
          symbol(c, "EVP_DigestFinal_ex", &lib.final) && symbol(c, "EVP_sha1", &lib.sha1) &&
          symbol(c, "EVP_sha256", &lib.sha256))) {
        lib.new = NULL;
    }
    void *g = lib.new == NULL ? dlopen("libgnutls.so.30", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!(symbol(g, "gnutls_hash_init", &lib.hash_init) && symbol(g, "gnutls_hash", &lib.hash) &&
          symbol(g, "gnutls_hash_deinit", &lib.deinit))) {
        lib.hash_init = NULL;
    }
}

int gw_digest_begin(gw_digest *d, int is_git, uint64_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, open_libraries);
    *d = (gw_digest){.kind = -1, .bytes = is_git ? 20 : 32};
    if (lib.new != NULL && (d->state = lib.new()) != NULL &&
        lib.init(d->state, is_git ? lib.sha1() : lib.sha256(), NULL) == 1) {
        d->kind = CRYPTO;
    } else if (lib.hash_init != NULL &&
               lib.hash_init(&d->state, is_git ? GNUTLS_SHA1 : GNUTLS_SHA256) == 0) {
        d->kind = GNUTLS;
    } else if (!is_git) {
        d->kind = OURS;
        gw_sha256_begin(&d->own);
    } else {
        return -1;
    }
    if (is_git) {
        char head[40];
        int n = snprintf(head, sizeof head, "blob %" PRIu64, size);
        gw_digest_add(d, head, (size_t)n + 1);
    }
    return 0;
}

void gw_digest_add(gw_digest *d, const void *data, size_t bytes) {
    if (d->kind == CRYPTO) {
        lib.update(d->state, data, bytes);
    } else if (d->kind == GNUTLS) {
        lib.hash(d->state, data, bytes);
    } else if (d->kind == OURS) {
        gw_sha256_add(&d->own, data, bytes);
    }
}

int gw_digest_end(gw_digest *d, unsigned char raw[64]) {
    if (d->kind == OURS) {
        gw_sha256_end(&d->own, raw);
    } else if (d->kind == CRYPTO) {
        lib.final(d->state, raw, NULL);
        lib.free(d->state);
    } else {
        lib.deinit(d->state, raw);
    }
    d->kind = -1;
    return d->bytes;
}

void gw_digest_drop(gw_digest *d) {
    unsigned char raw[64];
    if (d->kind > OURS) {
        (void)gw_digest_end(d, raw);
    }
    d->kind = -1;
}
