/* core/base/nodes.h - NUMA nodes: processors that have memory of their own. A worker of a team
 * stays on one, so that the system can keep near it what it reads in every pass; where there is one
 * node, nothing is bound.
 */
#ifndef GW_BASE_NODES_H
#define GW_BASE_NODES_H

enum { GW_NODES_MOST = 64 };

typedef struct gw_nodes gw_nodes;

/* Nodes in the folder `root` (/sys/devices/system/node) that have processors which this thread may
 * run on; NULL: fewer than two, or not known. Freed by gw_nodes_free. */
gw_nodes *gw_nodes_read(const char *root);
void gw_nodes_free(gw_nodes *nodes); /* accepts NULL */
int gw_nodes_count(const gw_nodes *nodes);

/* Which of them [0, count) thread `id` of a team of `team` belongs to: neighbours together, as many
 * on each as it has processors. */
int gw_nodes_of(const gw_nodes *nodes, int id, int team);
/* The calling thread runs on the node's processors alone from now on, if the system lets it. */
void gw_nodes_bind(const gw_nodes *nodes, int node);

#endif
