/* apps/roof.h - the speed of a device's memory as all commands name it. */
#ifndef GW_APPS_ROOF_H
#define GW_APPS_ROOF_H

#include "include/godwit.h"

/* What the device of that id can do, with so many threads (0: the default): the fastest figures of
 * all measurements on this machine so far, since whatever disturbs one makes it slower. Kept in the
 * cache folder; measured when nothing is kept, or always with `anew`; *now: what was measured this
 * time, zeros when nothing was (may be NULL). A device is known by id, name and detail. */
gw_status roof_of_device(const char *id, int threads, int anew, gw_roof *roof, gw_roof *now);

#endif
