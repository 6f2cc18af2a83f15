/* apps/serve/listen.h - the sockets that clients connect to, those that systemd hands over, and
 * what it wants to be told. */
#ifndef GW_APPS_SERVE_LISTEN_H
#define GW_APPS_SERVE_LISTEN_H

#include "apps/serve/server.h"

/* Opens --host and --port, or takes what LISTEN_FDS passes (sd_listen_fds(3)). Says where on
 * standard error. Exit code. */
int listen_open(server *s);
void listen_close(server *s);
/* No more connections for now; conn.c enables the listeners again. */
void listen_pause(server *s);

/* One or more lines "KEY=value" for the service manager (sd_notify(3)); nothing without one. */
void notify_manager(const char *lines);

#endif
