/* core/plan/exchange.h - what cards of a group hand to one another: the order of nodes on several
 * cards, and the exchange through the host where no backend has a way of its own. */
#ifndef GW_PLAN_EXCHANGE_H
#define GW_PLAN_EXCHANGE_H

#include "core/plan/backend.h"
#include "core/plan/plan.h"

/* The kernel of an EXCHANGE that the plan itself runs, between the segments of its cards. */
extern const gw_kernel gw_exchange_host;

/* Nodes of several cards of a group stand layer by layer and card by card. Put those of one device
 * side by side, as far as nothing crosses between, so that each has few segments; the nodes of one
 * exchange through the host (kernel &gw_exchange_host) stand side by side, too. Nodes of a plan
 * without exchanges stay as they are. GW_E_NOMEM. */
gw_status gw_exchange_order(gw_node *nodes, size_t n, int n_devices);

/* Bytes that gw_exchange_run works in; 0: no node is an exchange through the host. GW_E_OVERFLOW.
 */
gw_status gw_exchange_room(const gw_node *nodes, size_t n, size_t *bytes);
/* One exchange, nodes [cards]: waits for the cards, reads the first `rows` rows of their shares,
 * and writes what belongs into the output of each. */
gw_status gw_exchange_run(const gw_plan_device *devices, const gw_node *nodes, int64_t rows,
                          void *room);

#endif
