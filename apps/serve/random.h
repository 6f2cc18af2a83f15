/* apps/serve/random.h - bytes that nobody can guess: names of requests, seeds. */
#ifndef GW_APPS_SERVE_RANDOM_H
#define GW_APPS_SERVE_RANDOM_H

#include <stddef.h>

void random_bytes(void *to, size_t n);

#endif
