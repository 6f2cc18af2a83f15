/* core/base/os_net.h - sockets and addresses, by POSIX's names. */
#ifndef GW_BASE_OS_NET_H
#define GW_BASE_OS_NET_H

#if defined(_WIN32)
#include "core/base/os_windows_net.h"
#else
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#endif

#if defined(__APPLE__) /* no program is started here that could inherit a socket for long */
#define SOCK_CLOEXEC 0
#endif

/* Once before the first socket. 0, or an error number. */
static inline int gw_os_net_start(void) {
#if defined(_WIN32)
    WSADATA data;
    return WSAStartup(MAKEWORD(2, 2), &data);
#else
    return 0;
#endif
}

#endif
