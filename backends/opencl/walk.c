/* backends/opencl/walk.c - the launches of a segment as one: a program made of the texts of all its
 * kernels, and a list of ops with their arguments in device memory that every group walks
 * (kernels_cl/walk.cl).
 *
 * The list holds addresses. OpenCL 1.2 does not say that a buffer stays where it is; the drivers
 * that get here leave it there, and what they say of every buffer at freeze time is asked twice.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/base/list.h"
#include "core/base/waits.h"

enum {
    HEAD_SLOTS = 5, /* walk.cl: op, groups along x, y and z, pages */
    SLOTS = HEAD_SLOTS + GW_CL_MOST_ARGS + 3,
    MOST_VARIANTS = 48,
    MOST_OPS = 64,
    ROUNDS = 100,       /* of the test that all groups run at once */
    LEAST_LAUNCHES = 4, /* fewer are no gain */
    OPTION_BYTES = 128
};

typedef struct gw_cl_walk {
    cl_kernel kernel;
    cl_mem list, ticket; /* ticket: arrivals so far, and whether the test has failed */
    size_t list_bytes;
    cl_uint from, entries, groups;
} gw_cl_walk;

enum { ARG_LIST, ARG_ENTRIES, ARG_STEP, ARG_TICKET, ARG_FROM }; /* of walk() */

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct text {
    char *at;
    size_t used, room;
    int failed;
} text;

static void add_bytes(text *t, const char *s, size_t n) {
    if (t->used + n + 1 > t->room) {
        size_t room = 2 * t->room + n + 4096;
        char *grown = realloc(t->at, room);
        if (grown == NULL) {
            t->failed = 1;
            return;
        }
        t->at = grown;
        t->room = room;
    }
    memcpy(t->at + t->used, s, n);
    t->used += n;
    t->at[t->used] = '\0';
}

static void add_text(text *t, const char *s) { add_bytes(t, s, strlen(s)); }

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...) {
    char piece[512];
    va_list args;
    va_start(args, format);
    vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    add_text(t, piece);
}

/* "-DA=1 -DB" as lines that define, or undefine, each name. GROUP is the whole program's. */
static void add_options(text *t, const char *options, int define) {
    for (const char *p = strstr(options, "-D"); p != NULL; p = strstr(p, "-D")) {
        p += 2;
        int all = (int)strcspn(p, " "), name = (int)strcspn(p, " =");
        if (name == 5 && memcmp(p, "GROUP", 5) == 0) {
            continue;
        }
        if (define) {
            int value = all > name ? name + 1 : name;
            add(t, "#define %.*s %.*s\n", name, p, all - value, p + value);
        } else {
            add(t, "#undef %.*s\n", name, p);
        }
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Texts, each with its options, and the kernels taken out of them. */
typedef struct ops {
    const char *variant[MOST_VARIANTS]; /* keys of programs: "SOURCE OPTIONS" */
    int n_variants;
    struct {
        int variant;
        const char *name;
        const gw_cl_launch *launch; /* one of those that do it */
    } op[MOST_OPS];
    int n;
} ops;

static int walks(const gw_cl_launch *l) {
    static const char *const sources[] = {"decode_team ", "attention_team ", "rope_kv ",
                                          "embed ",       "rows ",           "sample "};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (strncmp(l->program->key, sources[i], strlen(sources[i])) == 0) {
            return l->n_args <= GW_CL_MOST_ARGS;
        }
    }
    return 0;
}

/* The number of the launch's op, new ones at the end; -1: it cannot be walked. */
static int op_of(ops *o, const gw_cl_launch *l) {
    int variant = 0;
    if (!walks(l)) {
        return -1;
    }
    while (variant < o->n_variants && strcmp(o->variant[variant], l->program->key) != 0) {
        variant++;
    }
    if (variant == MOST_VARIANTS) {
        return -1;
    }
    o->variant[variant] = l->program->key;
    o->n_variants += variant == o->n_variants;
    for (int i = 0; i < o->n; i++) {
        if (o->op[i].variant == variant && strcmp(o->op[i].name, l->name) == 0) {
            return i;
        }
    }
    if (o->n == MOST_OPS) {
        return -1;
    }
    o->op[o->n].variant = variant;
    o->op[o->n].name = l->name;
    o->op[o->n].launch = l;
    return o->n++;
}

static void add_variant(text *t, int number, const char *key) {
    char source[64];
    snprintf(source, sizeof source, "%.*s", (int)strcspn(key, " "), key);
    add(t, "#define VARIANT %d\n", number);
    add_options(t, key, 1);
    add_text(t, gw_cl_text("kernels_cl/planes.cl"));
    add_text(t, gw_cl_text("kernels_cl/lanes.cl"));
    add_text(t, gw_cl_kernels("attention"));
    add_text(t, gw_cl_kernels(source));
    add_text(t, gw_cl_text("kernels_cl/walk_end.cl"));
    add_options(t, key, 0);
    add_text(t, "#undef VARIANT\n");
}

/* case 3: linear_decode_1(grid, slots, &memory.v1, step, NUMBER(1), ...); */
static void add_case(text *t, int number, int variant, const gw_cl_launch *l) {
    static const char *const reads[] = {[GW_CL_ARG_MEM] = "ADDRESS",
                                        [GW_CL_ARG_ULONG] = "WIDE",
                                        [GW_CL_ARG_INT] = "NUMBER",
                                        [GW_CL_ARG_FLOAT] = "REAL"};
    add(t, "case %d: %s_%d(grid, slots, &memory.v%d, step", number, l->name, variant, variant);
    for (cl_uint i = 1; i < l->n_args; i++) {
        add(t, ", %s(%u)", reads[l->args[i].kind], i);
    }
    add_text(t, "); break; ");
}

static gw_status build(struct gw_segment *segment, const ops *o, const gw_cl_program **out) {
    struct gw_device *device = segment->device;
    static const char *const shared[] = {
        "core/tensor/dialect.h", "core/tensor/arith.h",  "core/tensor/format_list.h",
        "core/tensor/blocks.h",  "core/tensor/e4m3.h",   "core/tensor/nvfp4.h",
        "core/tensor/planes.h",  "core/tensor/sample.h", "kernels_cl/exchange.cl",
        "kernels_cl/common.cl",  "kernels_cl/walk.cl"};
    char options[OPTION_BYTES];
    text t = {0};
    add_text(&t, "#pragma OPENCL FP_CONTRACT OFF\n");
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        add_text(&t, gw_cl_text(shared[i]));
    }
    for (int i = 0; i < o->n_variants; i++) {
        add_variant(&t, i, o->variant[i]);
    }
    add_text(&t, "#define WALK_LOCALS");
    for (int i = 0; i < o->n_variants; i++) {
        add(&t, " locals_%d v%d;", i, i);
    }
    add_text(&t, "\n#define WALK_OPS ");
    for (int i = 0; i < o->n; i++) {
        add_case(&t, i, o->op[i].variant, o->op[i].launch);
    }
    add_text(&t, "\n");
    add_text(&t, gw_cl_text("kernels_cl/walk.cl"));
    snprintf(options, sizeof options, "-DWALK -DGROUP=%d -DSLOTS=%d -DSTEP_WORDS=%zu",
             device->group, SLOTS, segment->staging_bytes / sizeof(cl_int));
    device->fail_build = device->fail_walk ? 1 : device->fail_build;
    gw_status status = t.failed ? gw_fail(GW_E_NOMEM, "opencl", "no memory for a program")
                                : gw_cl_program_of(device, t.at, options, out);
    free(t.at);
    return status;
}

/* ---- the list -------------------------------------------------------------------------------- */

typedef struct addresses {
    cl_mem *mem;
    size_t n, capacity;
} addresses;

static gw_status find_place(addresses *a, cl_mem mem, size_t *place) {
    size_t i = 0;
    while (i < a->n && a->mem[i] != mem) {
        i++;
    }
    if (i == a->n) {
        cl_mem *grown = gw_list_grown(a->mem, a->n, &a->capacity, sizeof *grown);
        if (grown == NULL) {
            return gw_fail(GW_E_NOMEM, "opencl", "no memory for %zu addresses", a->n + 1);
        }
        a->mem = grown;
        a->mem[a->n++] = mem;
    }
    *place = i;
    return GW_OK;
}

/* The launch in slots; a buffer as its place among the addresses. */
static gw_status fill_entry(const gw_cl_launch *l, int op, const struct gw_device *device,
                            addresses *a, cl_ulong *slots) {
    size_t x = l->global[0] / l->local[0], walkers = (size_t)device->walkers;
    if (l->local[0] < GW_CL_GROUP) { /* items along x that share nothing: in groups of this size */
        x = gw_cl_groups(l->global[0], (size_t)device->group);
    } else if (l->page_groups > 0) { /* as many as come at once: each takes pages in turn */
        size_t most = walkers / (l->global[1] * l->global[2]);
        x = most < 1 ? 1 : most < x ? most : x;
    }
    slots[0] = (cl_ulong)op;
    slots[1] = x;
    slots[2] = l->n_dim > 1 ? l->global[1] : 1;
    slots[3] = l->n_dim > 2 ? l->global[2] : 1;
    slots[4] = l->page_groups > 0;
    for (cl_uint i = 0; i < l->n_args; i++) {
        slots[HEAD_SLOTS + i] = l->args[i].value;
        if (l->args[i].kind == GW_CL_ARG_MEM) {
            size_t place = 0;
            GW_TRY(find_place(a, l->args[i].mem, &place));
            slots[HEAD_SLOTS + i] = place;
        }
    }
    return GW_OK;
}

/* Where the device has each buffer. out [n] */
static gw_status ask(struct gw_device *device, cl_program program, const addresses *a,
                     cl_ulong *out) {
    const gw_cl_driver *cl = device->cl;
    const size_t one = 1;
    cl_int error = CL_SUCCESS;
    cl_mem found = NULL;
    cl_kernel kernel = cl->CreateKernel(program, "address", &error);
    GW_TRY(gw_cl_check(error, "address"));
    gw_status status = gw_cl_new_mem(device, a->n * sizeof *out, &found);
    for (size_t i = 0; i < a->n && status == GW_OK && error == CL_SUCCESS; i++) {
        cl_int at = (cl_int)i;
        error = cl->SetKernelArg(kernel, 0, sizeof found, &found);
        error = error == CL_SUCCESS ? cl->SetKernelArg(kernel, 1, sizeof at, &at) : error;
        error =
            error == CL_SUCCESS ? cl->SetKernelArg(kernel, 2, sizeof a->mem[i], &a->mem[i]) : error;
        error = error == CL_SUCCESS ? cl->EnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &one,
                                                               &one, 0, NULL, NULL)
                                    : error;
    }
    if (status == GW_OK && error == CL_SUCCESS) {
        error = cl->EnqueueReadBuffer(device->queue, found, CL_TRUE, 0, a->n * sizeof *out, out, 0,
                                      NULL, NULL);
    }
    cl->ReleaseKernel(kernel);
    if (found != NULL) {
        cl->ReleaseMemObject(found);
        device->reserved -= a->n * sizeof *out;
    }
    return status != GW_OK ? status : gw_cl_check(error, "asking for addresses");
}

/* Places to addresses. *same: the device said the same twice. */
static gw_status resolve(struct gw_segment *segment, cl_program program, const addresses *a,
                         cl_ulong *slots, int *same) {
    cl_ulong *first = calloc(2 * a->n, sizeof *first), *second = first + a->n;
    if (first == NULL) {
        return gw_fail(GW_E_NOMEM, "opencl", "no memory for %zu addresses", a->n);
    }
    gw_status status = ask(segment->device, program, a, first);
    status = status == GW_OK ? ask(segment->device, program, a, second) : status;
    *same = status == GW_OK && memcmp(first, second, a->n * sizeof *first) == 0;
    for (size_t l = 0; l < segment->n && *same; l++) {
        cl_ulong *entry = slots + l * SLOTS + HEAD_SLOTS;
        for (cl_uint i = 0; i < segment->launches[l].n_args; i++) {
            if (segment->launches[l].args[i].kind == GW_CL_ARG_MEM) {
                entry[i] = first[entry[i]];
            }
        }
    }
    free(first);
    return status;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Do all groups run at the same time? */
static gw_status all_meet(struct gw_device *device, gw_cl_walk *walk, cl_program program,
                          int *met) {
    static const cl_uint zero[2] = {0, 0};
    const gw_cl_driver *cl = device->cl;
    cl_int error = CL_SUCCESS, rounds = ROUNDS;
    cl_uint counts[2] = {0, 1};
    size_t local = (size_t)device->group, global = local * walk->groups;
    cl_kernel kernel = cl->CreateKernel(program, "meet", &error);
    GW_TRY(gw_cl_check(error, "meet"));
    error = cl->EnqueueWriteBuffer(device->queue, walk->ticket, CL_TRUE, 0, sizeof zero, zero, 0,
                                   NULL, NULL);
    const struct {
        size_t bytes;
        const void *value;
    } args[] = {
        {sizeof walk->ticket, &walk->ticket}, {sizeof zero[0], zero}, {sizeof rounds, &rounds}};
    for (cl_uint i = 0; i < 3 && error == CL_SUCCESS; i++) {
        error = cl->SetKernelArg(kernel, i, args[i].bytes, args[i].value);
    }
    error = error == CL_SUCCESS ? cl->EnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global,
                                                           &local, 0, NULL, NULL)
                                : error;
    error = error == CL_SUCCESS
                ? GW_WAITED(cl->EnqueueReadBuffer(device->queue, walk->ticket, CL_TRUE, 0,
                                                  sizeof counts, counts, 0, NULL, NULL))
                : error;
    cl->ReleaseKernel(kernel);
    walk->from = counts[0];
    *met = counts[1] == 0 && counts[0] == ROUNDS * walk->groups;
    return gw_cl_check(error, "testing groups that meet");
}

static gw_status prepare(struct gw_segment *segment, gw_cl_walk *walk, const cl_ulong *slots) {
    const gw_cl_driver *cl = segment->device->cl;
    GW_TRY(gw_cl_new_mem(segment->device, walk->list_bytes, &walk->list));
    cl_int error = cl->EnqueueWriteBuffer(segment->device->queue, walk->list, CL_TRUE, 0,
                                          walk->list_bytes, slots, 0, NULL, NULL);
    const struct {
        cl_uint at;
        size_t bytes;
        const void *value;
    } args[] = {{ARG_LIST, sizeof walk->list, &walk->list},
                {ARG_ENTRIES, sizeof walk->entries, &walk->entries},
                {ARG_TICKET, sizeof walk->ticket, &walk->ticket}};
    for (size_t i = 0; i < sizeof args / sizeof args[0] && error == CL_SUCCESS; i++) {
        error = cl->SetKernelArg(walk->kernel, args[i].at, args[i].bytes, args[i].value);
    }
    return gw_cl_check(error, "setting an argument");
}

/* *works: 0 where the device cannot do it after all. */
static gw_status make(struct gw_segment *segment, gw_cl_walk *walk, const ops *o, addresses *a,
                      cl_ulong *slots, int *works) {
    struct gw_device *device = segment->device;
    const gw_cl_program *program;
    cl_int error = CL_SUCCESS;
    *works = 0;
    gw_status status = build(segment, o, &program);
    if (status != GW_OK) { /* else the launches one by one are there */
        return device->must_walk ? status : GW_OK;
    }
    walk->kernel = device->cl->CreateKernel(program->program, "walk", &error);
    GW_TRY(gw_cl_check(error, "walk"));
    GW_TRY(gw_cl_new_mem(device, 2 * sizeof(cl_uint), &walk->ticket));
    GW_TRY(all_meet(device, walk, program->program, works));
    if (*works) {
        GW_TRY(resolve(segment, program->program, a, slots, works));
    }
    if (!*works && device->must_walk) {
        return gw_fail(GW_E_DEVICE, "opencl", "%u groups do not run at the same time on %s",
                       walk->groups, device->name);
    }
    return *works ? prepare(segment, walk, slots) : GW_OK;
}

gw_status gw_cl_walk_new(struct gw_segment *segment) {
    struct gw_device *device = segment->device;
    ops o = {.n = 0};
    addresses a = {0};
    int works = 0;
    if (device->walkers == 0 || segment->rows > device->walk_rows ||
        (!device->walk_all && segment->n < LEAST_LAUNCHES)) {
        return GW_OK;
    }
    gw_status status = GW_OK;
    cl_ulong *slots = calloc(segment->n * SLOTS, sizeof *slots);
    segment->walk = calloc(1, sizeof *segment->walk);
    if (slots == NULL || segment->walk == NULL) {
        status = gw_fail(GW_E_NOMEM, "opencl", "no memory for a list of %zu ops", segment->n);
        goto done;
    }
    segment->walk->groups = (cl_uint)device->walkers;
    segment->walk->entries = (cl_uint)segment->n;
    segment->walk->list_bytes = segment->n * SLOTS * sizeof *slots;
    for (size_t i = 0; i < segment->n; i++) {
        int op = op_of(&o, &segment->launches[i]);
        if (op < 0) {
            const char *what = segment->launches[i].name;
            status = device->must_walk ? gw_fail(GW_E_UNSUPPORTED, "opencl",
                                                 "%s is no part of a step in one launch", what)
                                       : GW_OK;
            goto done;
        }
        GW_TRY_DONE(fill_entry(&segment->launches[i], op, device, &a, slots + i * SLOTS));
    }
    GW_TRY_DONE(make(segment, segment->walk, &o, &a, slots, &works));
done:
    if (!works) {
        gw_cl_walk_free(segment);
    }
    free(a.mem);
    free(slots);
    return status;
}

void gw_cl_walk_free(struct gw_segment *segment) {
    gw_cl_walk *walk = segment->walk;
    struct gw_device *device = segment->device;
    if (walk == NULL) {
        return;
    }
    if (walk->kernel != NULL) {
        device->cl->ReleaseKernel(walk->kernel);
    }
    if (walk->list != NULL) {
        device->cl->ReleaseMemObject(walk->list);
        device->reserved -= walk->list_bytes;
    }
    if (walk->ticket != NULL) {
        device->cl->ReleaseMemObject(walk->ticket);
        device->reserved -= 2 * sizeof(cl_uint);
    }
    free(walk);
    segment->walk = NULL;
}

/* ---- replay ---------------------------------------------------------------------------------- */

cl_int gw_cl_walk_enqueue(struct gw_segment *segment, const cl_int *step) {
    struct gw_device *device = segment->device;
    gw_cl_walk *walk = segment->walk;
    size_t local = (size_t)device->group, global = local * walk->groups;
    if (device->fail_enqueue > 0 && --device->fail_enqueue == 0) {
        return CL_OUT_OF_RESOURCES;
    }
    cl_int error = device->cl->SetKernelArg(walk->kernel, ARG_STEP, segment->staging_bytes, step);
    if (error == CL_SUCCESS) {
        error = device->cl->SetKernelArg(walk->kernel, ARG_FROM, sizeof walk->from, &walk->from);
    }
    if (error == CL_SUCCESS) {
        error = device->cl->EnqueueNDRangeKernel(device->queue, walk->kernel, 1, NULL, &global,
                                                 &local, 0, NULL, NULL);
    }
    walk->from += walk->entries * walk->groups;
    return error;
}
