/* core/base/os_windows_net.h - sockets of Windows, and what POSIX adds to their names. Included by
 * core/base/os_net.h alone. Sockets are no files: they are closed by evutil_closesocket. */
#ifndef GW_BASE_OS_WINDOWS_NET_H
#define GW_BASE_OS_WINDOWS_NET_H

#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>

#include <afunix.h>
#include <ws2tcpip.h>

/* windows.h, which comes along, has these as macros; here they are names like others. */
#undef near
#undef far
#undef ERROR
#undef small
#undef interface

#define SOCK_CLOEXEC 0
#define MSG_NOSIGNAL 0
#define MSG_DONTWAIT 0
#define SHUT_WR SD_SEND

#endif
