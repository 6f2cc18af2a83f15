/* core/image/processor.h - the table of processors, and the check that all ways to one end in. */
#ifndef GW_IMAGE_PROCESSOR_H
#define GW_IMAGE_PROCESSOR_H

#include "core/image/patches.h"

enum { GW_MOST_TILES = 64 };

/* The settings of a processor's class ("Qwen2VLImageProcessor", also with "Fast" or "Pil" behind
 * it), or of a projector of an mmproj file, where a file states none. 1; 0: of no known kind. */
int gw_processor_of_class(const char *name, gw_processor *out);
int gw_processor_of_projector(const char *name, gw_processor *out);

/* GW_E_METADATA unless every number is one that the rules can compute with. */
gw_status gw_processor_check(const char *where, const gw_processor *p);

#endif
