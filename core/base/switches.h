/* core/base/switches.h - words of an environment variable that tests set in a backend, as
 * "no-graph,fail-alloc=3": a table of words, each with what it sets.
 */
#ifndef GW_BASE_SWITCHES_H
#define GW_BASE_SWITCHES_H

#include <stddef.h>

#include "core/base/status.h"

typedef enum gw_switch_kind {
    GW_SWITCH_SET,    /* an int becomes least                        */
    GW_SWITCH_INT,    /* an int, in [least, most]                    */
    GW_SWITCH_CAPPED, /* an int of at least least; most if it is more */
    GW_SWITCH_BYTES,  /* a uint64_t, not 0                           */
    GW_SWITCH_TEXT,   /* a char [64]                                 */
} gw_switch_kind;

/* A word that takes a value ends with '='. Several rows of one word: all of them are set. */
typedef struct gw_switch {
    const char *word;
    gw_switch_kind kind;
    size_t at; /* offset in what is set */
    int least, most;
} gw_switch;

/* Takes the words of the variable; unset or empty: nothing. Words that begin with fail- simulate
 * faults and need a build with tests (hooks.h). GW_E_ARGUMENT, and nothing is said of later words:
 * an unknown word, or a value out of range. */
gw_status gw_switches_read(const char *variable, const gw_switch *rows, size_t n, void *set);

#endif
