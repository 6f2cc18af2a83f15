/* core/quantize/quantize.h - what makes models: the bodies of include/godwit_quantize.h. */
#ifndef GW_QUANTIZE_QUANTIZE_H
#define GW_QUANTIZE_QUANTIZE_H

#include "core/base/status.h"
#include "core/quantize/gptq.h"
#include "core/quantize/rules.h"

/* fn(user, i) once for every i < n, on any thread. threads 0: the caller's choice. */
typedef void (*gw_parallel_fn)(int threads, int64_t n, void (*fn)(void *user, int64_t i),
                               void *user);

gw_status gw_quantize_tensor_file(const gw_quantize_options *o, gw_parallel_fn parallel);

/* "static", "none", "group", and the default of a coding for NULL. GW_E_ARGUMENT. */
gw_status gw_gptq_order_named(const char *name, const gw_coding *coding, gw_gptq_order *out);
gw_status gw_int4_rule_named(const char *name, gw_int4_rule *out);
/* Columns of a group when the format is INT4_Gn, else 0. */
int gw_int4_group(gw_fmt fmt);

#endif
