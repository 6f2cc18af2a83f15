/* core/quantize/rules.h - how the scale and zero of an int4 group come from its values, when the
 * group is of any size and its codes go to a folder.
 */
#ifndef GW_QUANTIZE_RULES_H
#define GW_QUANTIZE_RULES_H

#include "core/quantize/encode.h"

typedef enum gw_int4_rule {
    GW_RULE_RANGE,    /* w = zero + scale q, zero binary16: INT4_Gn                             */
    GW_RULE_INTEGER,  /* w = scale (q - zero), zero 0 .. 15, range with 0 in it                 */
    GW_RULE_SYMMETRIC /* w = scale (q - 8), scale = 2 max|w| / 15                               */
} gw_int4_rule;

/* The coding of groups of `group` columns, at most GW_CODED_BLOCK; short ones at the end of a row.
 * In gw_coded: d is the scale, m the zero (binary16, or the integer). It has no pack. */
gw_coding gw_rule_coding(gw_int4_rule rule, int group);

#endif
