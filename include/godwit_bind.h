/* include/godwit_bind.h - the part of godwit.h for tools and for bindings of other languages: what
 * the loaded library is, and calls that save a binding a loop or a copy.
 *
 * Errors, ownership and thread rules are those of godwit.h. Bindings of other languages use the
 * `_sized` functions of godwit.h: its inline ones are not symbols of the library.
 */
#ifndef GODWIT_BIND_H
#define GODWIT_BIND_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gw_self_test of some devices: ids of gw_devices separated by commas, or "all"; NULL: the CPU and
 * graphics cards, so what is used without being named. Before each case there is a report with
 * kernel "" and failed 0, whose fault says which case it is; non-zero stops there, too. */
gw_status gw_self_test_of(const char *devices, int threads, gw_check_fn report, void *user);

#ifdef __cplusplus
}
#endif
#endif
