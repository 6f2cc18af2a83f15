/* core/plan/product.h - one product alone, timed on a device: y[n, rows] = x[n, cols] W^T. */
#ifndef GW_PLAN_PRODUCT_H
#define GW_PLAN_PRODUCT_H

#include "core/plan/backend.h"

/* gw_time_products of godwit.h on an open device. GW_E_ARGUMENT: a shape or format that cannot be;
 * GW_E_UNSUPPORTED: the device has no kernel. */
gw_status gw_product_time(const gw_backend *backend, struct gw_device *device,
                          const gw_product *product, const int32_t *n, size_t count,
                          gw_product_result *results);

#endif
