/* tests/fuzz/fuzz_wire.c - nodes and steps out of a message of another rank. */
#include "backends/mpi/mpi.h"
#include "tests/fuzz/fuzz.h"

enum { PLACES = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static char at[PLACES];
    static gw_step step;
    struct gw_buffer *places[PLACES];
    for (int i = 0; i < PLACES; i++) {
        places[i] = i == 0 ? NULL : (struct gw_buffer *)(void *)&at[i]; /* never looked into */
    }
    gw_wire w = {.at = malloc(n + 1), .n = n, .room = n + 1};
    if (w.at == NULL) {
        return 0;
    }
    memcpy(w.at, data, n);
    gw_wire_take_step(&w, &step);
    w.taken = 0;
    w.failed = 0;
    gw_wire_nodes nodes;
    gw_status status = gw_wire_take_nodes(&w, places, PLACES, &nodes);
    fuzz_judge(status);
    for (size_t i = 0; status == GW_OK && i < nodes.n; i++) {
        const gw_node *node = &nodes.node[i];
        const gw_tensor *out = node->out;
        if (out < nodes.tensor || out >= nodes.tensor + nodes.n_tensors ||
            (unsigned)node->op >= GW_OP_COUNT || strlen(node->what) >= 64) {
            abort();
        }
    }
    if (status == GW_OK) {
        gw_wire_nodes_free(&nodes);
    }
    gw_wire_free(&w);
    return 0;
}
