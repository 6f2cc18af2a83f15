/* tests/op_table.h - the cases of op_cases.h, or of a backend's own table, over every kernel of a
 * device: bits equal to the scalar CPU, and no kernel that no case reaches.
 */
#ifndef GW_TESTS_OP_TABLE_H
#define GW_TESTS_OP_TABLE_H

#include "op_cases.h"

extern const gw_backend gw_backend_cpu;

/* How weights are loaded: bit (keep_rows | mapped << 1) of a set. */
enum {
    OT_PRODUCED = 1 << 0,
    OT_ROWS = 1 << 1,
    OT_MAPPED = 1 << 2,
    OT_EVERY_FORM = 15,
    OT_FORMS = 4,
    OT_MOST_KERNELS = 1024
};

/* A backend's device beside a scalar CPU; ran[i]: a case has reached kernel i. */
typedef struct op_bench {
    const gw_backend *backend;
    struct gw_device *device, *scalar;
    int forms;
    op_result *anchors; /* or NULL: the anchor's result of each case of a table, kept for others */
    const char *elsewhere; /* or NULL: in the names of kernels that another bench runs */
    int (*left_out)(const op_case *c); /* or NULL: is it a case that another bench runs? */
    unsigned char ran[OT_MOST_KERNELS];
} op_bench;

static void ot_open(op_bench *b, const gw_backend *backend, struct gw_device *device, int forms) {
    gw_device_options options = {.threads = 1};
    *b = (op_bench){.backend = backend, .device = device, .forms = forms};
    setenv("GODWIT_CPU", "scalar", 1);
    assert_int_equal(gw_backend_cpu.open(0, &options, &b->scalar), GW_OK);
    unsetenv("GODWIT_CPU");
}

/* The device is the bench's from ot_open on. */
static void ot_close(op_bench *b) {
    b->backend->close(b->device);
    gw_backend_cpu.close(b->scalar);
}

/* The anchor's result: the scalar kernel over rows as stored. */
static void ot_scalar(const op_bench *b, const op_case *c, op_result *r) {
    op_setup s;
    oc_open(&s, c, &gw_backend_cpu, b->scalar, 1, 0);
    const gw_kernel *kernel = oc_find(&s, ".scalar");
    if (kernel == NULL) {
        fail_msg("no scalar kernel takes %s (%s)", gw_op_describe(c->op)->name, c->why);
    }
    oc_run(&s, kernel, r);
    oc_close(&s);
}

static int ot_has_weights(gw_op op) {
    return op == GW_OP_EMBED || op == GW_OP_LINEAR || op == GW_OP_GLU || op == GW_OP_EXPERTS_GLU ||
           op == GW_OP_EXPERTS_DOWN;
}

static int ot_elsewhere(const op_bench *b, const gw_kernel *kernel) {
    return b->elsewhere != NULL && strstr(kernel->name, b->elsewhere) != NULL;
}

/* Every kernel that accepts the case, with its weights loaded in each form. */
static void ot_check_against(op_bench *b, const op_case *c, const op_result *want) {
    op_result got;
    size_t n, count = 0;
    const gw_kernel *kernels = b->backend->kernels(b->device, &n);
    assert_true(n <= OT_MOST_KERNELS);
    for (int form = 0, done = 0; form < OT_FORMS && !done; form++) {
        op_setup asked, s; /* a fresh one for each run: inputs may be overwritten in place */
        if ((b->forms >> form & 1) == 0) {
            continue;
        }
        oc_open(&asked, c, b->backend, b->device, form & 1, form >> 1);
        for (size_t i = 0; i < n; i++) {
            if (!gw_kernel_takes(&kernels[i], &asked.node, b->device)) {
                continue;
            }
            b->ran[i] = 1;
            count++;
            if (ot_elsewhere(b, &kernels[i])) {
                continue;
            }
            oc_open(&s, c, b->backend, b->device, form & 1, form >> 1);
            oc_run(&s, &kernels[i], &got);
            oc_same(kernels[i].name, c, &got, want);
            oc_free_result(&got);
            oc_close(&s);
        }
        oc_close(&asked);
        done = !ot_has_weights(c->op);
    }
    if (count == 0) {
        fail_msg("no kernel takes %s (%s)", gw_op_describe(c->op)->name, c->why);
    }
}

static void ot_check_case(op_bench *b, const op_case *c) {
    op_result want;
    ot_scalar(b, c, &want);
    ot_check_against(b, c, &want);
    oc_free_result(&want);
}

/* Is it of a format that has one product of the first OC_FEW cases, not one of each order? */
static int ot_of_row(const char *kernel) {
    int found = 0;
    for (int fmt = OC_SHARED; fmt < GW_FMT_COUNT; fmt++) {
        found |= strstr(kernel, gw_format_of((gw_fmt)fmt)->name) != NULL;
    }
    return found;
}

/* Cases 0 .. n - 1 of a table; GODWIT_OP_CASES=FIRST-LAST picks a part of it. Over the whole table
 * every kernel must be reached, except those whose names contain `other` (or NULL). */
static void ot_check_table(op_bench *b, op_case (*case_of)(int i), int n, const char *other) {
    const char *part = getenv("GODWIT_OP_CASES");
    int first = 0, last = n - 1;
    size_t count;
    const gw_kernel *kernels = b->backend->kernels(b->device, &count);
    if (part != NULL) {
        assert_int_equal(sscanf(part, "%d-%d", &first, &last), 2);
    }
    for (int i = first; i <= last && i < n; i++) {
        op_case c = case_of(i);
        if (b->left_out != NULL && b->left_out(&c)) {
            continue;
        }
        if (b->anchors == NULL) {
            ot_check_case(b, &c);
            continue;
        }
        if (b->anchors[i].out == NULL) {
            ot_scalar(b, &c, &b->anchors[i]);
        }
        ot_check_against(b, &c, &b->anchors[i]);
    }
    int whole = part == NULL && !TEST_SANITIZED; /* then formats have a product each (op_cases.h) */
    for (size_t i = 0; i < count && whole; i++) {
        int alone = kernels[i].op != GW_OP_EXCHANGE; /* that takes several cards */
        alone &= n != OC_FEW || !ot_of_row(kernels[i].name);
        if (!b->ran[i] && alone && (other == NULL || strstr(kernels[i].name, other) == NULL)) {
            fail_msg("no case reaches kernel %s", kernels[i].name);
        }
    }
}

#endif
