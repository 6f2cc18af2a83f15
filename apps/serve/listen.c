/* apps/serve/listen.c - listening sockets and systemd: see listen.h. */
#include "apps/serve/listen.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/conn.h"
#include "core/base/os.h"
#include "core/base/os_net.h"

#if defined(_WIN32)
enum { ADDRESS_IN_USE = WSAEADDRINUSE, CONNECTION_REFUSED = WSAECONNREFUSED };
#else
enum { ADDRESS_IN_USE = EADDRINUSE, CONNECTION_REFUSED = ECONNREFUSED };
#endif
enum { BACKLOG = 1024, FIRST_PASSED = 3 };

/* ---- accepting ------------------------------------------------------------------------------- */

void listen_pause(server *s) {
    s->paused = 1;
    for (int i = 0; i < s->n_listeners; i++) {
        evconnlistener_disable(s->listeners[i]);
    }
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                      int length, void *user) {
    server *s = user;
    (void)listener, (void)length;
    conn_open(s, fd, from);
    if (s->n_conns >= s->conns_max && !conn_give_way(s)) {
        listen_pause(s);
    }
}

/* No descriptor or no memory for another one: where nobody gives way the tick tries again. */
static void on_accept_error(struct evconnlistener *listener, void *user) {
    (void)listener;
    if (!conn_give_way(user)) {
        listen_pause(user);
    }
}

static int add_listener(server *s, int fd, int ours) {
    if (s->n_listeners == LISTENERS_MAX) {
        return APP_OK;
    }
    unsigned flags = LEV_OPT_CLOSE_ON_EXEC | (ours ? LEV_OPT_CLOSE_ON_FREE : 0);
    (void)evutil_make_socket_nonblocking(fd);
    struct evconnlistener *listener =
        evconnlistener_new(loop_base(s->loop), on_accept, s, flags, ours ? BACKLOG : 0, fd);
    if (listener == NULL) {
        app_error("cannot listen: %s", evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
        return APP_FAILURE;
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
    s->listeners[s->n_listeners++] = listener;
    return APP_OK;
}

/* ---- sockets of our own ---------------------------------------------------------------------- */

static int is_loopback(const struct sockaddr *at) {
    if (at->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)at;
        return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    }
    if (at->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)at;
        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    }
    return 1;
}

static void say_where(int fd) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&at, &n) != 0) {
        return;
    }
    if (at.ss_family == AF_UNIX) {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&at;
        app_note("listening on unix:%s", un->sun_path);
    } else if (getnameinfo((struct sockaddr *)&at, n, host, sizeof host, port, sizeof port,
                           NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        int six = at.ss_family == AF_INET6;
        app_note("listening on http://%s%s%s:%s", six ? "[" : "", host, six ? "]" : "", port);
    }
}

static int open_unix(server *s, const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof at.sun_path) {
        app_error("--host: '%.40s...' is too long for a socket's name", path);
        return APP_USAGE;
    }
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        connect(fd, (struct sockaddr *)&at, sizeof at) != 0 &&
        EVUTIL_SOCKET_ERROR() == CONNECTION_REFUSED) {
        unlink(path); /* of a server that is no more */
    }
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, BACKLOG) != 0) {
        app_error("%s: cannot listen: %s", path,
                  evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
        if (fd >= 0) {
            evutil_closesocket(fd);
        }
        return APP_FAILURE;
    }
    say_where(fd);
    return add_listener(s, fd, 1);
}

static int open_address(server *s, const struct addrinfo *a) {
    int on = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
#if defined(_WIN32) /* where the other one lets two programs have one port */
    setsockopt(fd, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, (const char *)&on, sizeof on);
#else
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
#endif
    if (a->ai_family == AF_INET6) { /* next to a listener of IPv4 */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        int error = EVUTIL_SOCKET_ERROR();
        evutil_closesocket(fd);
        EVUTIL_SET_SOCKET_ERROR(error);
        return -1;
    }
    s->loopback &= is_loopback(a->ai_addr);
    say_where(fd);
    return add_listener(s, fd, 1);
}

static int open_own(server *s) {
    const char *host = s->o->host;
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    size_t n = strlen(host);
    if (n > 5 && strcmp(host + n - 5, ".sock") == 0) {
        return open_unix(s, host);
    }
    snprintf(port, sizeof port, "%d", (int)s->o->port);
    int error = getaddrinfo(host, port, &hints, &list);
    if (error != 0) {
        app_error("--host: '%.100s' is no address of this machine: %s", host, gai_strerror(error));
        return APP_USAGE;
    }
    int opened = 0, why = 0;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        int code = open_address(s, a);
        opened += code == APP_OK;
        why = code == -1 ? EVUTIL_SOCKET_ERROR() : why;
    }
    freeaddrinfo(list);
    if (opened == 0) {
        app_error("cannot listen on %s, port %s: %s%s", host, port,
                  evutil_socket_error_to_string(why),
                  why == ADDRESS_IN_USE ? " (--port names another)" : "");
        return APP_FAILURE;
    }
    return APP_OK;
}

/* ---- the service manager --------------------------------------------------------------------- */

/* The number of sockets that were passed to this process. */
static int passed_sockets(void) {
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (pid == NULL || count == NULL || strtol(pid, NULL, 10) != (long)getpid()) {
        return 0;
    }
    long n = strtol(count, NULL, 10);
    return n > 0 && n <= LISTENERS_MAX ? (int)n : 0;
}

int listen_open(server *s) {
    int passed = passed_sockets(), code = APP_OK;
    s->loopback = 1;
    for (int fd = FIRST_PASSED; fd < FIRST_PASSED + passed && code == APP_OK; fd++) {
        struct sockaddr_storage at;
        socklen_t n = sizeof at;
        if (getsockname(fd, (struct sockaddr *)&at, &n) == 0) {
            s->loopback &= is_loopback((struct sockaddr *)&at);
        }
        say_where(fd);
        code = add_listener(s, fd, 0);
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return passed > 0 ? code : open_own(s);
}

void listen_close(server *s) {
    for (int i = 0; i < s->n_listeners; i++) {
        evconnlistener_free(s->listeners[i]);
    }
    s->n_listeners = 0;
}

void notify_manager(const char *lines) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof at.sun_path) {
        return;
    }
    size_t n = strlen(path);
    memcpy(at.sun_path, path, n);
    if (path[0] == '@') {
        at.sun_path[0] = '\0'; /* a name that is no file */
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        ssize_t sent =
            sendto(fd, lines, strlen(lines), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&at,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
        (void)sent; /* a manager that does not listen misses it */
        evutil_closesocket(fd);
    }
}
