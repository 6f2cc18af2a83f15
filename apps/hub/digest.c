/* apps/hub/digest.c - see digest.h. */
#include "apps/hub/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"

enum { OURS, CRYPTO, GNUTLS };
enum { GNUTLS_SHA1 = 3, GNUTLS_SHA256 = 6 }; /* gnutls_digest_algorithm_t */

typedef struct libraries {
    int looked;
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
} libraries;

static int symbol(void *library, const char *name, void *to) {
    void *found = library != NULL ? dlsym(library, name) : NULL;
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

static const libraries *look(void) {
    static libraries l;
    if (!l.looked) {
        l.looked = 1;
        void *c = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
        c = c != NULL ? c : dlopen("libcrypto.so.1.1", RTLD_NOW | RTLD_LOCAL);
        if (!(symbol(c, "EVP_MD_CTX_new", &l.new) && symbol(c, "EVP_MD_CTX_free", &l.free) &&
              symbol(c, "EVP_DigestInit_ex", &l.init) && symbol(c, "EVP_DigestUpdate", &l.update) &&
              symbol(c, "EVP_DigestFinal_ex", &l.final) && symbol(c, "EVP_sha1", &l.sha1) &&
              symbol(c, "EVP_sha256", &l.sha256))) {
            l.new = NULL;
        }
        void *g = l.new == NULL ? dlopen("libgnutls.so.30", RTLD_NOW | RTLD_LOCAL) : NULL;
        if (!(symbol(g, "gnutls_hash_init", &l.hash_init) && symbol(g, "gnutls_hash", &l.hash) &&
              symbol(g, "gnutls_hash_deinit", &l.deinit))) {
            l.hash_init = NULL;
        }
    }
    return &l;
}

int digest_begin(digest *d, int is_git, uint64_t size) {
    const libraries *l = look();
    *d = (digest){.kind = -1, .bytes = is_git ? 20 : 32};
    if (l->new != NULL && (d->state = l->new ()) != NULL &&
        l->init(d->state, is_git ? l->sha1() : l->sha256(), NULL) == 1) {
        d->kind = CRYPTO;
    } else if (l->hash_init != NULL &&
               l->hash_init(&d->state, is_git ? GNUTLS_SHA1 : GNUTLS_SHA256) == 0) {
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
        digest_add(d, head, (size_t)n + 1);
    }
    return 0;
}

void digest_add(digest *d, const void *data, size_t bytes) {
    const libraries *l = look();
    if (d->kind == CRYPTO) {
        l->update(d->state, data, bytes);
    } else if (d->kind == GNUTLS) {
        l->hash(d->state, data, bytes);
    } else if (d->kind == OURS) {
        gw_sha256_add(&d->own, data, bytes);
    }
}

void digest_end(digest *d, char hex[65]) {
    const libraries *l = look();
    unsigned char raw[64] = {0};
    if (d->kind == OURS) {
        gw_sha256_end(&d->own, raw);
        gw_sha256_hex(raw, hex);
        return;
    }
    if (d->kind == CRYPTO) {
        l->final(d->state, raw, NULL);
        l->free(d->state);
    } else {
        l->deinit(d->state, raw);
    }
    for (int i = 0; i < d->bytes; i++) {
        snprintf(hex + 2 * (size_t)i, 3, "%02x", raw[i]);
    }
    d->kind = -1;
}

void digest_drop(digest *d) {
    char hex[65];
    if (d->kind > OURS) {
        digest_end(d, hex);
    }
    d->kind = -1;
}
