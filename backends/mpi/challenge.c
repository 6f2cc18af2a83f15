/* backends/mpi/challenge.c - a worker and whoever runs the command find out that they are one build
 * and know one secret, which neither sends. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "backends/mpi/link.h"
#include "core/base/clock.h"
#include "core/base/sha256.h"

static const double patience = 4.0; /* for all of it */

/* What each side says first. Both nonces go into both proofs, so that none can be used again. */
typedef struct hello {
    char magic[8];
    uint32_t order, zero;
    char build[64];
    unsigned char nonce[32];
} hello;
enum { ORDER = 0x01020304, SWAPPED = 0x04030201 };
static const char magic[8] = "godwit1";

typedef enum verdict_code { GRANTED, SECRET, BUILD, BUSY } verdict_code;
typedef struct verdict {
    uint32_t code, zero;
    unsigned char proof[32]; /* the worker's, where it grants */
} verdict;

void gw_mpi_hmac(const void *key, size_t key_bytes, const void *text, size_t bytes,
                 unsigned char mac[32]) {
    unsigned char block[64] = {0}, inner[64], outer[64];
    gw_sha256 h;
    gw_sha256_begin(&h);
    if (key_bytes > sizeof block) {
        gw_sha256_add(&h, key, key_bytes);
        gw_sha256_end(&h, block);
    } else {
        memcpy(block, key, key_bytes);
    }
    for (size_t i = 0; i < sizeof block; i++) {
        inner[i] = block[i] ^ 0x36;
        outer[i] = block[i] ^ 0x5c;
    }
    gw_sha256_begin(&h);
    gw_sha256_add(&h, inner, sizeof inner);
    gw_sha256_add(&h, text, bytes);
    gw_sha256_end(&h, mac);
    gw_sha256_begin(&h);
    gw_sha256_add(&h, outer, sizeof outer);
    gw_sha256_add(&h, mac, 32);
    gw_sha256_end(&h, mac);
}

void gw_mpi_build(char out[64]) {
    snprintf(out, 64, GW_VERSION " %zu %zu %zu %zu %d %d", sizeof(gw_node), sizeof(gw_step),
             sizeof(gw_device_info), sizeof(gw_mpi_self), (int)GW_OP_COUNT, (int)GW_FMT_COUNT);
}

/* ---- bytes by a time ------------------------------------------------------------------------- */

static gw_status wait_before(int fd, short what, double end) {
    struct pollfd wait = {.fd = fd, .events = what};
    double left = end - gw_seconds_now();
    int ready = left > 0.0 ? poll(&wait, 1, (int)(1000.0 * left) + 1) : 0;
    return ready > 0 || (ready < 0 && errno == EINTR)
               ? GW_OK
               : gw_fail(GW_E_DEVICE, "mpi", "it does not answer");
}

gw_status gw_mpi_give_before(int fd, const void *bytes, size_t n, double end) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done > 0) {
            at += done;
            n -= (size_t)done;
        } else if (errno != EAGAIN && errno != EINTR) {
            return gw_fail(GW_E_DEVICE, "mpi", "%s", strerror(errno));
        } else {
            GW_TRY(wait_before(fd, POLLOUT, end));
        }
    }
    return GW_OK;
}

gw_status gw_mpi_get_before(int fd, void *bytes, size_t n, double end) {
    char *at = bytes;
    while (n > 0) {
        ssize_t done = recv(fd, at, n, MSG_DONTWAIT);
        if (done > 0) {
            at += done;
            n -= (size_t)done;
        } else if (done == 0 || (errno != EAGAIN && errno != EINTR)) {
            return gw_fail(GW_E_DEVICE, "mpi", "the connection has ended");
        } else {
            GW_TRY(wait_before(fd, POLLIN, end));
        }
    }
    return GW_OK;
}

/* ---- the two sides --------------------------------------------------------------------------- */

static gw_status hello_new(hello *h) {
    *h = (hello){.order = ORDER};
    memcpy(h->magic, magic, sizeof magic);
    gw_mpi_build(h->build);
    return getrandom(h->nonce, sizeof h->nonce, 0) == (ssize_t)sizeof h->nonce
               ? GW_OK
               : gw_fail(GW_E_IO, "mpi", "no random numbers: %s", strerror(errno));
}

/* side: "client" or "worker"; first: of the one that proves. */
static void prove(const gw_mpi_secret *secret, const char *side, const hello *first,
                  const hello *second, unsigned char mac[32]) {
    struct {
        char side[8];
        hello first, second;
    } text = {.first = *first, .second = *second};
    snprintf(text.side, sizeof text.side, "%s", side);
    gw_mpi_hmac(secret->at, secret->bytes, &text, sizeof text, mac);
}

/* In a time that does not depend on where they differ. */
static int are_equal(const unsigned char a[32], const unsigned char b[32]) {
    unsigned differ = 0;
    for (int i = 0; i < 32; i++) {
        differ |= (unsigned)(a[i] ^ b[i]);
    }
    return differ == 0;
}

static int is_hello(const hello *h) {
    return memcmp(h->magic, magic, sizeof magic) == 0 && (h->order == ORDER || h->order == SWAPPED);
}

static int is_same_build(const hello *a, const hello *b) {
    return a->order == b->order && memcmp(a->build, b->build, sizeof a->build) == 0;
}

static gw_status refuse(int fd, verdict_code code, const char *why) {
    verdict v = {.code = code};
    (void)gw_mpi_give_before(fd, &v, sizeof v, gw_seconds_now() + 1.0);
    return gw_fail(GW_E_ARGUMENT, "mpi", "%s", why);
}

gw_status gw_mpi_challenge(int fd, const gw_mpi_secret *secret, int (*busy)(void *), void *user) {
    double end = gw_seconds_now() + patience;
    hello mine, theirs;
    unsigned char proof[32], want[32];
    verdict v = {.code = GRANTED};
    GW_TRY(hello_new(&mine));
    GW_TRY(gw_mpi_give_before(fd, &mine, sizeof mine, end));
    GW_TRY(gw_mpi_get_before(fd, &theirs, sizeof theirs, end));
    GW_TRY(gw_mpi_get_before(fd, proof, sizeof proof, end));
    if (!is_hello(&theirs)) {
        return gw_fail(GW_E_ARGUMENT, "mpi", "it is no godwit");
    }
    if (!is_same_build(&mine, &theirs)) {
        return refuse(fd, BUILD, "it is another build of godwit");
    }
    prove(secret, "client", &theirs, &mine, want);
    if (!are_equal(want, proof)) {
        return refuse(fd, SECRET, "it has another secret");
    }
    if (busy(user)) {
        return refuse(fd, BUSY, "another client is served");
    }
    prove(secret, "worker", &mine, &theirs, v.proof);
    return gw_mpi_give_before(fd, &v, sizeof v, end);
}

static gw_status check_worker(const hello *mine, const hello *theirs, const char *called) {
    if (!is_hello(theirs)) {
        return gw_fail(GW_E_DEVICE, "mpi", "%s: no godwit worker listens there", called);
    }
    if (theirs->order == SWAPPED) {
        return gw_fail(GW_E_UNSUPPORTED, "mpi", "%s has the other byte order", called);
    }
    if (!is_same_build(mine, theirs)) {
        return gw_fail(GW_E_UNSUPPORTED, "mpi",
                       "%s is another build of godwit (%.24s, here %.24s): both must be the same",
                       called, theirs->build, mine->build);
    }
    return GW_OK;
}

static gw_status check_verdict(const verdict *v, const char *called) {
    static const char *const why[] = {
        [GRANTED] = "", [SECRET] = "it has another secret (--secret-file)",
        [BUILD] = "it is another build of godwit", [BUSY] = "it serves another client"};
    if (v->code > BUSY) {
        return gw_fail(GW_E_DEVICE, "mpi", "%s gives an answer that is not understood", called);
    }
    return v->code == GRANTED
               ? GW_OK
               : gw_fail(GW_E_DEVICE, "mpi", "%s refuses: %s", called, why[v->code]);
}

gw_status gw_mpi_prove(int fd, const gw_mpi_secret *secret, const char *called) {
    double end = gw_seconds_now() + patience;
    hello mine, theirs;
    unsigned char proof[32], want[32];
    verdict v;
    GW_TRY(hello_new(&mine));
    if (gw_mpi_get_before(fd, &theirs, sizeof theirs, end) != GW_OK) {
        return gw_fail(GW_E_DEVICE, "mpi", "%s does not speak as a godwit worker does", called);
    }
    theirs.build[sizeof theirs.build - 1] = '\0';
    GW_TRY(check_worker(&mine, &theirs, called));
    prove(secret, "client", &mine, &theirs, proof);
    if (gw_mpi_give_before(fd, &mine, sizeof mine, end) != GW_OK ||
        gw_mpi_give_before(fd, proof, sizeof proof, end) != GW_OK ||
        gw_mpi_get_before(fd, &v, sizeof v, end) != GW_OK) {
        return gw_fail(GW_E_DEVICE, "mpi", "%s has ended the connection", called);
    }
    GW_TRY(check_verdict(&v, called));
    prove(secret, "worker", &theirs, &mine, want);
    return are_equal(want, v.proof)
               ? GW_OK
               : gw_fail(GW_E_DEVICE, "mpi", "%s does not know the secret", called);
}
