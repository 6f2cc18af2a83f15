/* core/base/nodes.c - see nodes.h. */
#include "core/base/nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/os_threads.h"

#if defined(__linux__)
struct gw_nodes {
    int n, processors; /* of all */
    int first[GW_NODES_MOST + 1]; /* processors of the nodes before */
    cpu_set_t set[GW_NODES_MOST];
};

/* "0-3,8": processors of the list that are in `allowed`; how many. What is no list has none. */
static int read_list(const char *path, const cpu_set_t *allowed, cpu_set_t *out) {
    char line[4096], *at = line;
    FILE *file = fopen(path, "re");
    int found = 0;
    CPU_ZERO(out);
    if (file == NULL) {
        return 0;
    }
    if (fgets(line, sizeof line, file) == NULL) {
        line[0] = '\0';
    }
    fclose(file);
    while (*at >= '0' && *at <= '9') {
        long from = strtol(at, &at, 10), to = from;
        if (*at == '-') {
            to = strtol(at + 1, &at, 10);
        }
        for (long i = from; i <= to && i < CPU_SETSIZE; i++) {
            if (CPU_ISSET((size_t)i, allowed) && !CPU_ISSET((size_t)i, out)) {
                CPU_SET((size_t)i, out);
                found++;
            }
        }
        at += *at == ',';
    }
    return found;
}

gw_nodes *gw_nodes_read(const char *root) {
    cpu_set_t allowed;
    gw_nodes *nodes = calloc(1, sizeof *nodes);
    if (nodes == NULL || sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        free(nodes);
        return NULL; /* also a machine with more processors than the set holds */
    }
    for (int i = 0; i < GW_NODES_MOST; i++) {
        char path[1200];
        int n = snprintf(path, sizeof path, "%s/node%d/cpulist", root, i);
        int found = n > 0 && (size_t)n < sizeof path
                        ? read_list(path, &allowed, &nodes->set[nodes->n])
                        : 0;
        if (found > 0) {
            nodes->processors += found;
            nodes->first[++nodes->n] = nodes->processors;
        }
    }
    if (nodes->n < 2) {
        free(nodes);
        return NULL;
    }
    return nodes;
}

int gw_nodes_of(const gw_nodes *nodes, int id, int team) {
    long at = (long)id * nodes->processors / (team > 0 ? team : 1);
    int node = 0;
    while (node + 1 < nodes->n && at >= nodes->first[node + 1]) {
        node++;
    }
    return node;
}

void gw_nodes_bind(const gw_nodes *nodes, int node) {
    (void)sched_setaffinity(0, sizeof nodes->set[node], &nodes->set[node]);
}

int gw_nodes_count(const gw_nodes *nodes) { return nodes != NULL ? nodes->n : 0; }
#else
gw_nodes *gw_nodes_read(const char *root) {
    (void)root;
    return NULL;
}
int gw_nodes_of(const gw_nodes *nodes, int id, int team) {
    (void)nodes;
    (void)id;
    (void)team;
    return 0;
}
void gw_nodes_bind(const gw_nodes *nodes, int node) {
    (void)nodes;
    (void)node;
}
int gw_nodes_count(const gw_nodes *nodes) {
    (void)nodes;
    return 0;
}
#endif

void gw_nodes_free(gw_nodes *nodes) { free(nodes); }
