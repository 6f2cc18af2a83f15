/* apps/serve/fetch.c - see fetch.h. */
#include "apps/serve/fetch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "apps/hub/curl.h"
#include "apps/serve/text.h"
#include "core/base/os_net.h"

enum { MOST_BYTES = 32 << 20, SECONDS = 20, CONNECT_SECONDS = 5, REDIRECTS = 3 };

/* ---- addresses ------------------------------------------------------------------------------- */

/* IANA's special-purpose registry, multicast, and one host that a cloud's machines are served by.
 */
static const struct {
    uint32_t first;
    int bits;
} closed[] = {{0x00000000, 8},  /* this network */
              {0x0A000000, 8},  /* private */
              {0x64400000, 10}, /* shared by customers of a provider */
              {0x7F000000, 8},  /* this machine */
              {0xA83F8110, 32}, /* 168.63.129.16, Azure's own */
              {0xA9FE0000, 16}, /* link-local; clouds describe machines at 169.254.169.254 */
              {0xAC100000, 12}, /* private */
              {0xC0000000, 24}, /* protocols */
              {0xC0000200, 24}, /* documents */
              {0xC0586300, 24}, /* relays to IPv6 */
              {0xC0A80000, 16}, /* private */
              {0xC6120000, 15}, /* benchmarks */
              {0xC6336400, 24}, /* documents */
              {0xCB007100, 24}, /* documents */
              {0xE0000000, 3}}; /* multicast, reserved, broadcast */

static int is_public_4(uint32_t address) {
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++) {
        if ((address ^ closed[i].first) >> (32 - closed[i].bits) == 0) {
            return 0;
        }
    }
    return 1;
}

/* Global unicast is 2000::/3; of that not 2001::/23 (protocols, Teredo), 2001:db8::/32 and
 * 3fff::/20 (documents), 2002::/16 (which holds an address of IPv4). */
static int is_public_6(const uint8_t *a) {
    int document = a[0] == 0x20 && a[1] == 0x01 && a[2] == 0x0d && a[3] == 0xb8;
    int protocol = a[0] == 0x20 && a[1] == 0x01 && a[2] < 2;
    int other = (a[0] == 0x20 && a[1] == 0x02) || (a[0] == 0x3f && a[1] == 0xff && a[2] < 0x10);
    return a[0] >> 5 == 1 && !document && !protocol && !other;
}

int fetch_is_public(const struct sockaddr *address) {
    if (address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        return is_public_4(ntohl(in.sin_addr.s_addr));
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, address, sizeof in);
        return is_public_6(in.sin6_addr.s6_addr);
    }
    return 0;
}

/* ---- transfers ------------------------------------------------------------------------------- */

typedef struct transfer {
    text_buffer file;
    int refused; /* an address that is not public */
    int too_long;
} transfer;

/* curl_sockaddr of libcurl's interface. */
typedef struct socket_address {
    int family, type, protocol;
    unsigned bytes;
    struct sockaddr address;
} socket_address;

static int open_socket(void *user, int purpose, const socket_address *to) {
    transfer *t = user;
    (void)purpose;
    if (!fetch_is_public(&to->address)) {
        t->refused = 1;
        return -1;
    }
    return socket(to->family, to->type | SOCK_CLOEXEC, to->protocol);
}

static size_t take(const char *data, size_t size, size_t count, void *user) {
    transfer *t = user;
    size_t n = size * count;
    t->too_long |= t->file.n + n > MOST_BYTES;
    return !t->too_long && text_add(&t->file, data, n) == 0 ? n : 0;
}

int fetch_open(void) { return curl_open() != NULL ? 0 : -1; }

static void set_up(const curl_library *c, void *easy, const char *url, transfer *t) {
    c->easy_setopt(easy, CURL_URL, url);
    c->easy_setopt(easy, CURL_PROXY, ""); /* it would open connections that nobody looks at */
    c->easy_setopt(easy, CURL_OPEN_SOCKET_FUNCTION, open_socket);
    c->easy_setopt(easy, CURL_OPEN_SOCKET_DATA, t);
    c->easy_setopt(easy, CURL_WRITE_FUNCTION, take);
    c->easy_setopt(easy, CURL_WRITE_DATA, t);
    c->easy_setopt(easy, CURL_PROTOCOLS, (long)(CURL_HTTP | CURL_HTTPS));
    c->easy_setopt(easy, CURL_REDIR_PROTOCOLS, (long)(CURL_HTTP | CURL_HTTPS));
    c->easy_setopt(easy, CURL_REDIRECTS_FOLLOWED, 1L);
    c->easy_setopt(easy, CURL_REDIRECTS_MAX, (long)REDIRECTS);
    c->easy_setopt(easy, CURL_CONNECT_TIMEOUT, (long)CONNECT_SECONDS);
    c->easy_setopt(easy, CURL_TIMEOUT, (long)SECONDS);
    c->easy_setopt(easy, CURL_FAIL_ON_ERROR, 1L);
    c->easy_setopt(easy, CURL_NO_SIGNAL, 1L);
    c->easy_setopt(easy, CURL_USER_AGENT, "godwit/" GW_VERSION);
}

int fetch_file(const char *url, const char *where, char **file, size_t *bytes, fault *f) {
    const curl_library *c = curl_open();
    transfer t = {0};
    void *easy = c != NULL ? c->easy_init() : NULL;
    if (easy == NULL) {
        return fault_set(f, 503, NULL, "out of memory");
    }
    set_up(c, easy, url, &t);
    int result = c->easy_perform(easy);
    c->easy_cleanup(easy);
    if (result == 0 && t.file.n > 0) {
        *file = t.file.at;
        *bytes = t.file.n;
        return 0;
    }
    free(t.file.at);
    if (t.refused) {
        return fault_set(f, 400, NULL, "%s: leads to an address that is not public", where);
    }
    if (t.too_long) {
        return fault_set(f, 400, NULL, "%s: is longer than %d MiB", where, MOST_BYTES >> 20);
    }
    return fault_set(f, 400, NULL, "%s: cannot be fetched: %s", where,
                     result != 0 ? c->easy_strerror(result) : "it is empty");
}
