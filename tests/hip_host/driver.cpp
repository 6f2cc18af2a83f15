/* tests/hip_host/driver.cpp - the cu* entry points that backends/hip/driver.h names, over fibres.
 *
 * The library is a driver and holds the kernels too: a module is made of no image, a function is a
 * kernel of this library by its name. GODWIT_EMULATOR_DEVICES: so many cards (1), which reach one
 * another's memory unless GODWIT_EMULATOR_PEERS is 0; GODWIT_EMULATOR_LINKS: a letter for each
 * card, and cards of one letter have the fastest links, those of '-' none of their own. Streams do
 * everything at once, except while they are captured, and where a kernel waits for another card:
 * then it and what follows stay in the stream until that has gone on; GODWIT_EMULATOR_QUEUE: as
 * many launches at most, and a call that finds no room waits for it: for ever, where only later
 * calls could make some, which here is a fault; GODWIT_EMULATOR_SILENT: the card that was opened
 * last does nothing any more, and kernels that wait for it are told so when the host waits for
 * them, as if their patience had ended. Device memory is the host's, filled with NaN when it is
 * handed out, with a fence before and behind every piece that is looked at after each launch (under
 * the address sanitizer: exactly as large as asked for). A fault of a kernel is one line on stderr
 * and CUDA_ERROR_LAUNCH_FAILED.
 */
#include "fibres.hpp"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define ENTRY extern "C" __attribute__((visibility("default")))

namespace {

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719
};

enum { FENCE = 256, FENCE_BYTE = 0xa5 };
const size_t MEMORY = (size_t)4 << 30;

struct function {
    std::string name;
    void (*kernel)(const void *);
    size_t params;
};
typedef std::function<int()> action;
typedef std::vector<action> graph;
struct stream {
    graph *captured;
    std::deque<action> left; /* to be done */
    int error;               /* of what was done, for the next call that asks */
};
struct event {
    timespec at;
    size_t recorded, done; /* how often: asked for, and reached by a stream */
};
enum { WAITS = -1 /* of an action: not yet */, CARDS = 8 };
struct progress { /* of a launch: blocks that have ended, and that have begun */
    size_t done, tried;
};
bool moved; /* some stream, since this was last false */
int contexts[CARDS];
std::vector<stream *> streams;

int setting(const char *name, int absent) {
    const char *text = getenv(name);
    return text != nullptr && *text != '\0' ? atoi(text) : absent;
}
int cards(void) {
    int n = setting("GODWIT_EMULATOR_DEVICES", 1);
    return n < 1 ? 1 : n > CARDS ? (int)CARDS : n;
}

std::map<uintptr_t, size_t> pieces; /* start, bytes */
size_t used;
std::map<std::string, size_t> ran; /* name, launches */
char last_fault[600];
char stuck[200]; /* what waited last */

#ifdef __SANITIZE_ADDRESS__
const size_t around = 0;
#else
const size_t around = FENCE;
#endif

bool fence_holds(const unsigned char *p) {
    for (size_t i = 0; i < around; i++) {
        if (p[i] != FENCE_BYTE) {
            return false;
        }
    }
    return true;
}

const char *broken_fence(void) {
    for (const auto &piece : pieces) {
        if (!fence_holds((unsigned char *)piece.first - around)) {
            return "wrote before the start of a buffer";
        }
        if (!fence_holds((unsigned char *)piece.first + piece.second)) {
            return "wrote behind the end of a buffer";
        }
    }
    return nullptr;
}

bool inside(uint64_t at, size_t bytes) {
    auto next = pieces.upper_bound((uintptr_t)at);
    if (next == pieces.begin()) {
        return false;
    }
    --next;
    return at - next->first <= next->second && bytes <= next->second - (at - next->first);
}

/* All streams as far as they come: until each is empty or waits for a card that is stuck, too. */
void go_on(void) {
    for (moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < streams.size(); i++) {
            stream *s = streams[i];
            if (i > 0 && i + 1 == streams.size() && setting("GODWIT_EMULATOR_SILENT", 0)) {
                s->left.clear();
            }
            while (!s->left.empty()) {
                int error = s->left.front()();
                if (error == WAITS) {
                    break;
                }
                moved = true;
                s->left.pop_front();
                if (error != OK) {
                    s->error = error;
                    s->left.clear();
                }
            }
        }
    }
}

/* What went wrong in a stream since the last call. */
int take_error(stream *s) {
    int error = s->error;
    s->error = OK;
    return error;
}

/* The end of a stream. */
int finish(stream *s) {
    go_on();
    if (setting("GODWIT_EMULATOR_SILENT", 0)) {
        gw_emulator_impatient = true;
        go_on();
        gw_emulator_impatient = false;
    }
    if (s != nullptr && s->error == OK && !s->left.empty()) {
        snprintf(last_fault, sizeof last_fault, "%s waits for what no other card sends", stuck);
        fprintf(stderr, "emulator: %s\n", last_fault);
        s->error = LAUNCH_FAILED;
        s->left.clear();
    }
    return s != nullptr ? take_error(s) : OK;
}

/* Room for what was put into the stream last. */
int make_room(stream *s) {
    const int most = setting("GODWIT_EMULATOR_QUEUE", 0);
    if (most > 0 && s->left.size() > (size_t)most) {
        go_on();
        if (s->left.size() > (size_t)most) {
            snprintf(last_fault, sizeof last_fault,
                     "%s waits for another card, and there is no room behind it in the queue",
                     stuck);
            fprintf(stderr, "emulator: %s\n", last_fault);
            s->left.clear();
            return LAUNCH_FAILED;
        }
    }
    return OK;
}

/* Now, or when the graph being captured is replayed. */
int act(stream *s, action what) {
    if (s == nullptr) {
        return what();
    }
    if (s->captured != nullptr) {
        s->captured->push_back(std::move(what));
        return OK;
    }
    s->left.push_back(std::move(what));
    go_on();
    int full = make_room(s), error = take_error(s);
    return full != OK ? full : error;
}

int run_kernel(const function *f, gw_emulator_launch launch, progress *p) {
    ran[f->name] += p->tried == 0;
    const char *wrong = gw_emulator_run(launch, &p->done);
    if (wrong == gw_emulator_waits) {
        moved = moved || p->done + 1 > p->tried; /* a block has sent what it sends */
        p->tried = p->done + 1;
        snprintf(stuck, sizeof stuck, "block %zu of %s", p->done, f->name.c_str());
        return WAITS;
    }
    *p = progress(); /* of the next replay */
    wrong = wrong != nullptr ? wrong : broken_fence();
    if (wrong != nullptr) {
        snprintf(last_fault, sizeof last_fault, "%s: %s", f->name.c_str(), wrong);
        fprintf(stderr, "emulator: %s\n", last_fault);
        return LAUNCH_FAILED;
    }
    return OK;
}

int start(function *f, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
          stream *s, void **params) {
    if (f == nullptr || params == nullptr || grid[0] == 0 || grid[1] == 0 || grid[2] == 0 ||
        grid[1] > 65535 || grid[2] > 65535) {
        return INVALID_VALUE;
    }
    /* Exactly as large as the kernel's struct, and a copy, as a driver makes. */
    std::shared_ptr<void> copy(malloc(f->params), free);
    memcpy(copy.get(), params[0], f->params);
    gw_emulator_launch launch = {f->name.c_str(),
                                 f->kernel,
                                 copy.get(),
                                 {grid[0], grid[1], grid[2]},
                                 {block[0], block[1], block[2]},
                                 shared_bytes};
    std::shared_ptr<progress> so_far(new progress());
    return act(s, [f, launch, copy, so_far]() { return run_kernel(f, launch, so_far.get()); });
}

} // namespace

ENTRY const int gw_emulated_warp = GW_EMULATOR_LANES;
/* The kernels are those of GW_EMULATOR_PROCESSOR. GODWIT_EMULATOR_PROCESSOR: another one, whose row
 * of kernels_hip/arch.h then tells the backend which of them to use. */
extern "C" {
__attribute__((visibility("default"))) char gw_emulated_processor[16] = GW_EMULATOR_PROCESSOR;
}
static const bool processor_told = []() {
    const char *other = getenv("GODWIT_EMULATOR_PROCESSOR");
    if (other != nullptr) {
        snprintf(gw_emulated_processor, sizeof gw_emulated_processor, "%s", other);
    }
    return other != nullptr;
}();

/* What the last fault was; "" before the first. */
ENTRY const char *gw_emulator_fault(void) { return last_fault; }

/* Launches so far of the kernels whose names begin with this. */
ENTRY size_t gw_emulator_ran(const char *beginning) {
    size_t launches = 0;
    for (auto k = ran.lower_bound(beginning); k != ran.end() && k->first.rfind(beginning, 0) == 0;
         k++) {
        launches += k->second;
    }
    return launches;
}

ENTRY int cuInit(unsigned) { return OK; }
ENTRY int cuDriverGetVersion(int *version) {
    *version = 12000;
    return OK;
}

ENTRY int cuDeviceGetCount(int *n) {
    *n = cards();
    return OK;
}
ENTRY int cuDeviceGet(int *device, int index) {
    *device = index;
    return index >= 0 && index < cards() ? OK : INVALID_VALUE;
}
ENTRY int cuDeviceCanAccessPeer(int *can, int, int) {
    *can = setting("GODWIT_EMULATOR_PEERS", 1) != 0;
    return OK;
}
/* 1: 0 is the fastest link; 3: 1 where there is one. */
ENTRY int cuDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
    const char *links = getenv("GODWIT_EMULATOR_LINKS");
    const int n = links != nullptr ? (int)strlen(links) : 0;
    const char a = device < n ? links[device] : '0', b = peer < n ? links[peer] : '0';
    *value = attribute == 1 ? a != b : a != '-' && b != '-';
    return OK;
}
ENTRY int cuCtxEnablePeerAccess(void *, unsigned) { return OK; }
ENTRY int cuDeviceGetName(char *name, int room, int) {
    snprintf(name, (size_t)room, "emulator of %s, waves of %d", gw_emulated_processor,
             GW_EMULATOR_LANES);
    return OK;
}
static bool is_nvidia() { return strncmp(gw_emulated_processor, "sm_", 3) == 0; }
/* Cards with matrix instructions of four waves have more shared memory than others. */
static bool without_groups() {
    const char *settings = getenv("GODWIT_HIP");
    return settings != nullptr && strstr(settings, "no-group") != nullptr;
}

ENTRY int cuDeviceGetAttribute(int *value, int attribute, int) {
    switch (attribute) {
    case 8:  /* shared memory of a block */
    case 97: /* the same, where it is asked for */
        *value = is_nvidia() ? (without_groups() ? 99 : 227) << 10 : 64 << 10;
        break;
    case 10: /* warp size */
        *value = GW_EMULATOR_LANES;
        break;
    case 16: /* multiprocessors */
        *value = 12;
        break;
    default:
        *value = 0;
        break;
    }
    return OK;
}
ENTRY int cuDeviceTotalMem_v2(size_t *bytes, int) {
    *bytes = MEMORY;
    return OK;
}
ENTRY int cuMemGetInfo_v2(size_t *unused, size_t *total) {
    *total = MEMORY;
    *unused = MEMORY - used;
    return OK;
}
ENTRY int cuGetErrorName(int error, const char **name) {
    *name = error == OUT_OF_MEMORY    ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == INVALID_VALUE  ? "CUDA_ERROR_INVALID_VALUE"
            : error == INVALID_HANDLE ? "CUDA_ERROR_INVALID_HANDLE"
            : error == NOT_FOUND      ? "CUDA_ERROR_NOT_FOUND"
            : error == LAUNCH_FAILED  ? "CUDA_ERROR_LAUNCH_FAILED"
                                      : nullptr;
    return *name != nullptr ? OK : INVALID_VALUE;
}

ENTRY int cuDevicePrimaryCtxRetain(void **out, int device) {
    *out = &contexts[device];
    return OK;
}
ENTRY int cuDevicePrimaryCtxRelease_v2(int) { return OK; }
ENTRY int cuCtxSetCurrent(void *) { return OK; }

/* ---- memory ---------------------------------------------------------------------------------- */

ENTRY int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
    if (bytes == 0) {
        return INVALID_VALUE;
    }
    if (bytes > MEMORY - used) {
        return OUT_OF_MEMORY;
    }
    void *at = nullptr;
    if (posix_memalign(&at, 256, bytes + 2 * around) != 0) {
        return OUT_OF_MEMORY;
    }
    unsigned char *start = (unsigned char *)at;
    memset(start, FENCE_BYTE, around);
    memset(start + around, 0xff, bytes);
    memset(start + around + bytes, FENCE_BYTE, around);
    *out = (uint64_t)(uintptr_t)(start + around);
    pieces[(uintptr_t)*out] = bytes;
    used += bytes;
    return OK;
}
ENTRY int cuMemFree_v2(uint64_t at) {
    go_on();
    auto piece = pieces.find((uintptr_t)at);
    if (piece == pieces.end()) {
        return INVALID_VALUE;
    }
    used -= piece->second;
    pieces.erase(piece);
    free((unsigned char *)(uintptr_t)at - around);
    return OK;
}
ENTRY int cuMemHostAlloc(void **out, size_t bytes, unsigned) {
    *out = malloc(bytes);
    return *out != nullptr ? OK : OUT_OF_MEMORY;
}
ENTRY int cuMemFreeHost(void *at) {
    free(at);
    return OK;
}
ENTRY int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, stream *s) {
    if (!inside(to, bytes)) {
        return INVALID_VALUE;
    }
    return act(s, [=]() {
        memcpy((void *)(uintptr_t)to, from, bytes);
        return OK;
    });
}
ENTRY int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, stream *s) {
    if (!inside(from, bytes)) {
        return INVALID_VALUE;
    }
    return act(s, [=]() {
        memcpy(to, (const void *)(uintptr_t)from, bytes);
        return OK;
    });
}
ENTRY int cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, stream *s) {
    if (!inside(at, bytes)) {
        return INVALID_VALUE;
    }
    return act(s, [=]() {
        memset((void *)(uintptr_t)at, value, bytes);
        return OK;
    });
}

/* ---- streams, events, graphs ----------------------------------------------------------------- */

ENTRY int cuStreamCreate(stream **out, unsigned) {
    *out = new stream{nullptr, {}, OK};
    streams.push_back(*out);
    return OK;
}
ENTRY int cuStreamDestroy_v2(stream *s) {
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] == s) {
            streams.erase(streams.begin() + (long)i);
            break;
        }
    }
    delete s;
    return OK;
}
ENTRY int cuStreamSynchronize(stream *s) { return finish(s); }
ENTRY int cuStreamWaitEvent(stream *s, event *e, unsigned) {
    size_t upto = e->recorded;
    return act(s, [e, upto]() { return e->done < upto ? (int)WAITS : (int)OK; });
}
ENTRY int cuMemcpyPeerAsync(uint64_t to, int *, uint64_t from, int *, size_t bytes, stream *s) {
    if (!inside(to, bytes) || !inside(from, bytes)) {
        return INVALID_VALUE;
    }
    return act(s, [=]() {
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
        return OK;
    });
}
ENTRY int cuEventCreate(event **out, unsigned) {
    *out = new event();
    return OK;
}
ENTRY int cuEventDestroy_v2(event *e) {
    delete e;
    return OK;
}
ENTRY int cuEventRecord(event *e, stream *s) {
    e->recorded++;
    return act(s, [e]() {
        e->done++;
        clock_gettime(CLOCK_MONOTONIC, &e->at);
        return OK;
    });
}
ENTRY int cuEventSynchronize(event *e) {
    go_on();
    return e->done < e->recorded ? LAUNCH_FAILED : OK;
}
ENTRY int cuEventElapsedTime(float *milliseconds, const event *from, const event *to) {
    *milliseconds = 1e3f * (float)(to->at.tv_sec - from->at.tv_sec) +
                    1e-6f * (float)(to->at.tv_nsec - from->at.tv_nsec);
    return OK;
}
ENTRY int cuStreamBeginCapture_v2(stream *s, int) {
    if (s == nullptr || s->captured != nullptr) {
        return INVALID_VALUE;
    }
    s->captured = new graph;
    return OK;
}
ENTRY int cuStreamEndCapture(stream *s, graph **out) {
    *out = s->captured;
    s->captured = nullptr;
    return *out != nullptr ? OK : INVALID_VALUE;
}
ENTRY int cuGraphDestroy(graph *g) {
    delete g;
    return OK;
}
ENTRY int cuGraphInstantiateWithFlags(graph **out, const graph *g, unsigned long long) {
    *out = new graph(*g);
    return OK;
}
ENTRY int cuGraphExecDestroy(graph *g) {
    delete g;
    return OK;
}
ENTRY int cuGraphLaunch(graph *g, stream *s) {
    if (s == nullptr) {
        return INVALID_HANDLE;
    }
    for (const action &what : *g) {
        s->left.push_back(what);
        if (make_room(s) != OK) {
            return LAUNCH_FAILED;
        }
    }
    go_on();
    return take_error(s);
}

/* ---- modules --------------------------------------------------------------------------------- */

ENTRY int cuModuleLoadData(std::vector<function *> **out, const void *) {
    *out = new std::vector<function *>;
    return OK;
}
ENTRY int cuModuleUnload(std::vector<function *> *module) {
    for (function *f : *module) {
        delete f;
    }
    delete module;
    return OK;
}
ENTRY int cuModuleGetFunction(function **out, std::vector<function *> *module, const char *name) {
    Dl_info here;
    void *library = dladdr((void *)&cuModuleGetFunction, &here) != 0
                        ? dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                        : nullptr;
    void *kernel = nullptr, *params = nullptr;
    if (library != nullptr) {
        kernel = dlsym(library, name);
        params = dlsym(library, (std::string(name) + "_params").c_str());
        dlclose(library);
    }
    if (kernel == nullptr || params == nullptr) {
        return NOT_FOUND;
    }
    *out = new function{name, (void (*)(const void *))kernel, (size_t) * (const int *)params};
    module->push_back(*out);
    return OK;
}
ENTRY int cuFuncSetAttribute(function *, int, int) { return OK; }
ENTRY int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, function *, int, size_t) {
    *blocks = 2;
    return OK;
}

ENTRY int cuLaunchKernel(function *f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, stream *s, void **params, void **) {
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return start(f, grid, block, shared_bytes, s, params);
}

/* As CUlaunchConfig. */
struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    stream *stream_;
    void *attributes;
    unsigned n_attributes;
};
ENTRY int cuLaunchKernelEx(const launch_config *c, function *f, void **params, void **) {
    return start(f, c->grid, c->block, c->shared_bytes, c->stream_, params);
}
