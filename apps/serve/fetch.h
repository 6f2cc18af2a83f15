/* apps/serve/fetch.h - files at http(s) addresses that a request names: only from addresses that
 * anybody on the internet could ask. The rule is applied to each connection as it is opened, so
 * that neither names, nor redirects, nor spellings of numbers lead around it. */
#ifndef GW_APPS_SERVE_FETCH_H
#define GW_APPS_SERVE_FETCH_H

#include <stddef.h>

#include "apps/serve/fault.h"

struct sockaddr;

/* Once, before threads: 0, or -1 where libcurl is missing, which was said. */
int fetch_open(void);
/* On a worker, which waits: at most 32 MiB, 20 seconds and three redirects. where: how messages
 * name it. free(*file). 0 or -1 and *f. */
int fetch_file(const char *url, const char *where, char **file, size_t *bytes, fault *f);
/* 0: loopback, private, link-local, shared, reserved, of a cloud's own services, or no internet
 * address at all. */
int fetch_is_public(const struct sockaddr *address);

#endif
