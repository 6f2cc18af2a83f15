/* apps/foreign.h - options of llama.cpp that mean nothing here, or something else. */
#ifndef GW_APPS_FOREIGN_H
#define GW_APPS_FOREIGN_H

#include "apps/options.h"

/* A word in the place of the command that belongs to another program, an option or a model: 1 with
 * the error printed, which names the right word; 0: none of these. */
int foreign_command(const char *word);

/* The option argv[*i] of llama.cpp, name [bytes] without its value: -1 when it is none. Else 0,
 * with *i on the last argument used and perhaps a line in o->notes, or APP_USAGE with the error
 * printed, which says what to use instead. */
int foreign_take(app_options *o, const app_command *command, const char *name, size_t bytes,
                 int argc, char **argv, int *i);

#endif
