/* tests/hip_host/fibres.cpp - a block as fibres: barriers, shuffles, matrix instructions.
 *
 * A fibre that has to wait hands over to the next one that is ready; the last one to arrive makes
 * the others ready. When nobody is ready and not all have ended, the threads have diverged: the
 * block is given up and the fault says who waits where. One operating system thread runs all this.
 */
#include "kernels_hip/device.h"
#include "fibres.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <map>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define UNPOISON(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define UNPOISON(at, bytes) (void)0
#endif

gw_emulator_index gw_emulator_thread, gw_emulator_block, gw_emulator_threads, gw_emulator_blocks;

#ifndef __SANITIZE_ADDRESS__
/* Bounds of the section of all __shared__ variables; absent when no kernel has any. */
extern "C" char __start_gw_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_gw_shared[] __attribute__((weak, visibility("hidden")));
#endif

namespace {

enum { TEAM = 32, MOST = 1024, STACK = 256 << 10, NAMES = 16 };
enum kind {
    BARRIER,
    SYNC_SOME,
    SHUFFLE,
    BALLOT,
    SYNC_TEAM,
    SYNC_WAVE,
    MMA_INT8,
    MMA_F16,
    MMA_BF16,
    KINDS
};
const char *const kind_names[KINDS] = {"a barrier",   "a barrier of some", "a shuffle",
                                       "a ballot",    "a team barrier",    "a wave barrier",
                                       "an int8 mma", "an f16 mma",        "a bf16 mma"};

struct copy {
    void *to;
    unsigned char bytes[16];
    int group;
};

struct fibre {
#ifdef __x86_64__
    void *stack_pointer;
#else
    ucontext_t context;
#endif
    char *stack;
    unsigned index;
    std::vector<copy> copies;
    int groups; /* committed */
};

/* Threads that meet: a block, a team or a wave. */
struct meeting {
    unsigned size, arrived;
    kind what;
    const char *file;
    int line;
    std::vector<unsigned> waiting;
};

struct registers {
    unsigned a[GW_MMA_A], b[GW_MMA_B];
    int c[GW_MMA_C];
};

/* Gates by where they are in shared memory, who waits at one, and what is to come there. */
struct gate_state {
    int arrivals, arrived;
    long expected;   /* bytes */
    unsigned rounds; /* that have ended */
};
struct gate_waiter {
    const void *gate;
    unsigned index;
};
struct fetched {
    const void *gate;
    void *to;
    std::vector<unsigned char> bytes;
};

fibre fibres[MOST];
meeting block_meeting, some_meeting[NAMES];
meeting team_meeting[MOST / TEAM], wave_meeting[MOST / GW_EMULATOR_LANES];
uint32_t sent[MOST], received[MOST]; /* of shuffles; a team's slots are its own */
registers wave_in[MOST];
std::map<const void *, gate_state> gates;
std::vector<gate_waiter> at_gates;
std::vector<fetched> fetches;
int wave_out[MOST][GW_MMA_C];

const gw_emulator_launch *launch;
fibre *running;
unsigned threads, ended;
unsigned ready[MOST], ready_from, ready_count;
unsigned char *dynamic_shared;
int reverse;
char fault[400];
bool waits; /* for what another card has not sent yet */

#ifdef __x86_64__
void *scheduler;
extern "C" void gw_emulator_switch(void **save, void *to);
asm(R"(
    .text
    .globl gw_emulator_switch
    .hidden gw_emulator_switch
    .type gw_emulator_switch, @function
gw_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size gw_emulator_switch, .-gw_emulator_switch
)");
void enter(fibre *f) { gw_emulator_switch(&scheduler, f->stack_pointer); }
void leave(fibre *f) {
    void *unused;
    gw_emulator_switch(f != nullptr ? &f->stack_pointer : &unused, scheduler);
}
void hand_over(fibre *from, fibre *to) {
    void *unused;
    gw_emulator_switch(from != nullptr ? &from->stack_pointer : &unused, to->stack_pointer);
}
#else
ucontext_t scheduler;
void enter(fibre *f) { swapcontext(&scheduler, &f->context); }
void leave(fibre *f) {
    ucontext_t unused;
    swapcontext(f != nullptr ? &f->context : &unused, &scheduler);
}
void hand_over(fibre *from, fibre *to) {
    ucontext_t unused;
    swapcontext(from != nullptr ? &from->context : &unused, &to->context);
}
#endif

void make_ready(unsigned index) { ready[(ready_from + ready_count++) % MOST] = index; }

void set_running(fibre *f) {
    running = f;
    gw_emulator_thread = {f->index, 0, 0};
}

/* Goes on with another fibre, or with the scheduler when nobody can. from: NULL when it has ended.
 */
void next(fibre *from) {
    if (ready_count == 0) {
        leave(from);
    } else {
        fibre *to = &fibres[ready[ready_from]];
        ready_from = (ready_from + 1) % MOST;
        ready_count--;
        if (to != from) {
            set_running(to);
            hand_over(from, to);
        }
    }
}

void give_up(void) { /* never returns: nobody resumes the fibres of this block */
    ready_count = 0;
    leave(running);
}

void main_of_fibre(void) {
    launch->kernel(launch->params);
    ended++;
    next(nullptr);
}

void prepare(unsigned index) {
    fibre *f = &fibres[index];
    if (f->stack == nullptr) {
        char *map = (char *)mmap(nullptr, STACK + 4096, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) {
            perror("emulator: stacks");
            exit(1);
        }
        mprotect(map, 4096, PROT_NONE);
        f->stack = map + 4096;
    }
    UNPOISON(f->stack, STACK);
    f->index = index;
    f->copies.clear();
    f->groups = 0;
#ifdef __x86_64__
    void **top = (void **)(f->stack + STACK - 56);
    *top = nullptr; /* what looks like a return address: 8 past a multiple of 16, as after a call */
    *--top = (void *)main_of_fibre;
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    f->stack_pointer = top;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    makecontext(&f->context, main_of_fibre, 0);
#endif
}

/* True for the last one to arrive, which then does what there is to do and calls release(). */
bool arrive(meeting *m, kind what, const char *file, int line) {
    if (m->arrived == 0) {
        m->what = what;
        m->file = file;
        m->line = line;
    } else if (m->what != what || m->line != line ||
               (m->file != file && strcmp(m->file, file) != 0)) {
        snprintf(fault, sizeof fault,
                 "thread %u of block %u,%u,%u is at %s (%s:%d), others of its %s at %s (%s:%d)",
                 running->index, gw_emulator_block.x, gw_emulator_block.y, gw_emulator_block.z,
                 kind_names[what], file, line, m == &block_meeting ? "block" : "wave",
                 kind_names[m->what], m->file, m->line);
        give_up();
    }
    return ++m->arrived == m->size;
}

void wait_for_others(meeting *m) {
    m->waiting.push_back(running->index);
    next(running);
}

void release(meeting *m) {
    if (reverse) {
        for (size_t i = m->waiting.size(); i-- > 0;) {
            make_ready(m->waiting[i]);
        }
    } else {
        for (unsigned index : m->waiting) {
            make_ready(index);
        }
    }
    m->waiting.clear();
    m->arrived = 0;
}

void poison_shared(void) {
#ifndef __SANITIZE_ADDRESS__
    if (__start_gw_shared != nullptr) {
        memset(__start_gw_shared, 0xff, (size_t)(__stop_gw_shared - __start_gw_shared));
    }
#endif
    memset(dynamic_shared, 0xff, launch->shared_bytes);
}

void describe_divergence(void) {
    const meeting *m = &block_meeting;
    for (unsigned i = 0; i < NAMES && m->arrived == 0; i++) {
        m = &some_meeting[i];
    }
    for (unsigned i = 0; i < threads / TEAM && m->arrived == 0; i++) {
        m = &team_meeting[i];
    }
    for (unsigned i = 0; i < threads / GW_EMULATOR_LANES && m->arrived == 0; i++) {
        m = &wave_meeting[i];
    }
    int n = snprintf(fault, sizeof fault, "block %u,%u,%u diverged: ", gw_emulator_block.x,
                     gw_emulator_block.y, gw_emulator_block.z);
    if (m->arrived > 0) {
        n += snprintf(fault + n, sizeof fault - n, "%u of %u threads wait at %s (%s:%d), ",
                      m->arrived, m->size, kind_names[m->what], m->file, m->line);
    }
    if (!at_gates.empty()) {
        n += snprintf(fault + n, sizeof fault - n, "%zu wait at gates, ", at_gates.size());
    }
    snprintf(fault + n, sizeof fault - n, "%u have ended", ended);
}

void reset(meeting *m, unsigned size) {
    m->size = size;
    m->arrived = 0;
    m->file = "";
    m->line = 0;
    m->waiting.clear();
}

bool run_block(void) {
    reset(&block_meeting, threads);
    for (meeting &m : some_meeting) {
        reset(&m, 0);
    }
    at_gates.clear();
    gates.clear();
    fetches.clear();
    for (unsigned i = 0; i < threads / TEAM; i++) {
        reset(&team_meeting[i], TEAM);
    }
    for (unsigned i = 0; i < threads / GW_EMULATOR_LANES; i++) {
        reset(&wave_meeting[i], GW_EMULATOR_LANES);
    }
    ended = 0;
    ready_from = ready_count = 0;
    poison_shared();
    for (unsigned i = 0; i < threads; i++) {
        prepare(i);
        make_ready(reverse ? threads - 1 - i : i);
    }
    fibre *first = &fibres[ready[0]];
    ready_from = 1;
    ready_count--;
    set_running(first);
    enter(first);
    if (ended != threads && fault[0] == '\0') {
        describe_divergence();
    } else if (!fetches.empty() && fault[0] == '\0') {
        snprintf(fault, sizeof fault, "block %u,%u,%u ended before %zu fetches came",
                 gw_emulator_block.x, gw_emulator_block.y, gw_emulator_block.z, fetches.size());
    }
    return fault[0] == '\0';
}

} // namespace

const char *const gw_emulator_waits = "waits for another card";
bool gw_emulator_impatient;

const char *gw_emulator_run(const gw_emulator_launch &what, size_t *done) {
    const char *order = getenv("GODWIT_EMULATOR_ORDER");
    launch = &what;
    threads = what.block[0];
    fault[0] = '\0';
    waits = false;
    if (threads == 0 || threads > MOST || threads % TEAM != 0 || what.block[1] != 1 ||
        what.block[2] != 1) {
        snprintf(fault, sizeof fault, "a block of %u,%u,%u threads", what.block[0], what.block[1],
                 what.block[2]);
        return fault;
    }
    reverse = order != nullptr && strcmp(order, "reverse") == 0;
    dynamic_shared = (unsigned char *)aligned_alloc(1024, (what.shared_bytes + 1023) / 1024 * 1024);
    gw_emulator_threads = {what.block[0], 1, 1};
    gw_emulator_blocks = {what.grid[0], what.grid[1], what.grid[2]};
    size_t blocks = (size_t)what.grid[0] * what.grid[1] * what.grid[2];
    for (size_t &i = *done; i < blocks; i++) {
        size_t b = reverse ? blocks - 1 - i : i;
        gw_emulator_block = {(unsigned)(b % what.grid[0]),
                             (unsigned)(b / what.grid[0] % what.grid[1]),
                             (unsigned)(b / what.grid[0] / what.grid[1])};
        if (!run_block()) {
            break;
        }
    }
    free(dynamic_shared);
    return waits ? gw_emulator_waits : fault[0] != '\0' ? fault : nullptr;
}

/* ---- what kernels call ----------------------------------------------------------------------- */

void *gw_emulator_shared(void) { return dynamic_shared; }

void gw_emulator_barrier(const char *file, int line) {
    if (arrive(&block_meeting, BARRIER, file, line)) {
        release(&block_meeting);
    } else {
        wait_for_others(&block_meeting);
    }
}

void gw_emulator_sync_some(int id, unsigned size) {
    meeting *m = &some_meeting[id];
    m->size = size;
    if (arrive(m, SYNC_SOME, "", id)) {
        release(m);
    } else {
        wait_for_others(m);
    }
}

int gw_emulator_card_wait(void) {
    if (gw_emulator_impatient) {
        return 1;
    }
    waits = true;
    snprintf(fault, sizeof fault, "%s", gw_emulator_waits);
    give_up();
    return 0;
}

void gw_emulator_word_wait(const unsigned *word) {
    if (*word == 0) {
        snprintf(fault, sizeof fault,
                 "thread %u of block %u,%u,%u waits for a word that no block has written",
                 running->index, gw_emulator_block.x, gw_emulator_block.y, gw_emulator_block.z);
        give_up();
    }
}

static gate_state *gate_at(const void *gate) {
    auto found = gates.find(gate);
    if (found == gates.end()) {
        snprintf(fault, sizeof fault, "thread %u of block %u,%u,%u is at a gate that nobody made",
                 running->index, gw_emulator_block.x, gw_emulator_block.y, gw_emulator_block.z);
        give_up();
    }
    return &found->second;
}

static bool is_waited_for(const void *gate) {
    for (const gate_waiter &w : at_gates) {
        if (w.gate == gate) {
            return true;
        }
    }
    return false;
}

/* Ends the round when all have arrived and, if somebody waits, all is fetched. */
static void end_round(const void *gate, gate_state *state, bool waits) {
    if (state->arrived < state->arrivals) {
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < fetches.size(); i++) {
        fetched &f = fetches[i];
        if (waits && f.gate == gate) {
            memcpy(f.to, f.bytes.data(), f.bytes.size());
            state->expected -= (long)f.bytes.size();
        } else {
            std::swap(fetches[kept++], f);
        }
    }
    fetches.resize(kept);
    if (state->expected != 0) {
        return;
    }
    state->arrived = 0;
    state->rounds++;
    kept = 0;
    for (const gate_waiter &w : at_gates) {
        if (w.gate == gate) {
            make_ready(w.index);
        } else {
            at_gates[kept++] = w;
        }
    }
    at_gates.resize(kept);
}

void gw_emulator_gate_make(const void *gate, int arrivals) { gates[gate] = {arrivals, 0, 0, 0}; }

void gw_emulator_gate_arrive(const void *gate) {
    gate_state *state = gate_at(gate);
    state->arrived++;
    end_round(gate, state, is_waited_for(gate));
}

void gw_emulator_gate_wait(const void *gate, int parity) {
    gate_state *state = gate_at(gate);
    while ((int)(state->rounds & 1) == parity) {
        end_round(gate, state, true);
        if ((int)(state->rounds & 1) == parity) {
            at_gates.push_back({gate, running->index});
            next(running);
        }
    }
}

void gw_emulator_fetch_begin(const void *gate, int bytes) {
    gate_at(gate)->expected += bytes;
    gw_emulator_gate_arrive(gate);
}

void gw_emulator_fetch(const void *to, const void *from, int bytes, const void *gate) {
    const unsigned char *data = (const unsigned char *)from;
    gate_state *state = gate_at(gate);
    if ((((uintptr_t)to | (uintptr_t)from | (unsigned)bytes) & 15) != 0) {
        snprintf(fault, sizeof fault, "thread %u of block %u,%u,%u fetches %d bytes from %p to %p",
                 running->index, gw_emulator_block.x, gw_emulator_block.y, gw_emulator_block.z,
                 bytes, from, to);
        give_up();
    }
    fetches.push_back(
        {gate, (void *)(uintptr_t)to, std::vector<unsigned char>(data, data + bytes)});
    end_round(gate, state, is_waited_for(gate));
}

/* Values of the team as sent are in received[] afterwards, until its next exchange. */
static const uint32_t *meet_team(kind what, uint32_t bits) {
    unsigned first = running->index / TEAM * TEAM;
    meeting *m = &team_meeting[running->index / TEAM];
    sent[running->index] = bits;
    if (arrive(m, what, "", 0)) {
        memcpy(received + first, sent + first, TEAM * sizeof *sent);
        release(m);
    } else {
        wait_for_others(m);
    }
    return received + first;
}

uint32_t gw_emulator_exchange(uint32_t bits, int from) {
    return meet_team(SHUFFLE, bits)[from & (TEAM - 1)];
}

unsigned gw_emulator_ballot(int yes) {
    const uint32_t *all = meet_team(BALLOT, yes != 0);
    unsigned mask = 0;
    for (int i = 0; i < TEAM; i++) {
        mask |= all[i] << i;
    }
    return mask;
}

void gw_emulator_sync_team(void) { (void)meet_team(SYNC_TEAM, 0); }

void gw_emulator_copy_async(void *shared, const void *global) {
    copy c = {shared, {0}, running->groups};
    memcpy(c.bytes, global, sizeof c.bytes);
    running->copies.push_back(c);
}

void gw_emulator_copy_commit(void) { running->groups++; }

void gw_emulator_copy_wait(int groups) {
    size_t kept = 0;
    for (copy &c : running->copies) {
        if (c.group < running->groups - groups) {
            memcpy(c.to, c.bytes, sizeof c.bytes);
        } else {
            running->copies[kept++] = c;
        }
    }
    running->copies.resize(kept);
}

/* ---- matrix instructions --------------------------------------------------------------------- */

/* Where the manuals put an element: lane, register, part of the register. The inverse of the map in
 * device.h, written down on its own. */
struct place {
    int lane, reg, part;
};

#if GW_WMMA /* 16x16x16: two of i8, which are all of k one after the other; one of f16 and bf16 */
enum { COLS = 16 };
#if GW_MATRIX == GW_MATRIX_WMMA_11 /* lanes 16 to 31 have what lanes 0 to 15 have */
enum { REPEATED = 1 };
static place place_a(int i, int k, int per) { return {i, k / per, k % per}; }
static place place_c(int i, int j) { return {i % 2 * 16 + j, i / 2, 0}; }
#else
enum { REPEATED = 0 };
static place place_a(int i, int k, int per) {
    return per == 4 ? place{i + k / 8 % 2 * 16, k / 16 * 2 + k / 4 % 2, k % 4}
                    : place{i + k / 4 % 2 * 16, k / 8 * 2 + k / 2 % 2, k % 2};
}
static place place_c(int i, int j) { return {i / 8 * 16 + j, i % 8, 0}; }
#endif
static place place_b(int k, int j, int per) { return place_a(j, k, per); }
#elif GW_EMULATOR_LANES == 32 /* PTX: mma.m16n8k32 for 8 bits, mma.m16n8k16 for 16 bits */
enum { COLS = 8 };
static place place_a(int i, int k, int per) { /* per: elements of a register */
    return {i % 8 * 4 + k % (4 * per) / per, i / 8 + 2 * (k / (4 * per)), k % per};
}
static place place_b(int k, int j, int per) {
    return {j * 4 + k % (4 * per) / per, k / (4 * per), k % per};
}
static place place_c(int i, int j) { return {i % 8 * 4 + j / 2, i / 8 * 2 + j % 2, 0}; }
enum { REPEATED = 0 };
#else /* MFMA 16x16x16: i8, a register per instruction; f16 and bf16, two registers */
enum { COLS = 16 };
static place place_a(int i, int k, int per) {
    return per == 4 ? place{i + 16 * (k % 16 / 4), k / 16, k % 4}
                    : place{i + 16 * (k / 4), k % 4 / 2, k % 2};
}
static place place_b(int k, int j, int per) { return place_a(j, k, per); }
static place place_c(int i, int j) { return {i / 4 * 16 + j, i % 4, 0}; }
enum { REPEATED = 0 };
#endif

/* What a part of a register is. */
struct of_int8 {
    typedef int number;
    enum { PER = 4, DEPTH = 32 };
    static int widen(unsigned part) { return (int8_t)part; }
};
struct of_f16 {
    typedef float number;
    enum { PER = 2, DEPTH = 16 };
    static float widen(unsigned part) { return gw_f16_to_f32((gw_u16)part); }
};
struct of_bf16 : of_f16 {
    static float widen(unsigned part) { return gw_bf16_to_f32((gw_u16)part); }
};

static unsigned part_of(unsigned word, int part, int per) { return word >> (32 / per) * part; }

/* Both matrices are laid out first: most of what the emulator does is this product. */
template <typename OF> static void multiply(unsigned first) {
    typename OF::number x[16][OF::DEPTH], y[OF::DEPTH][COLS], sums[COLS];
    const registers *in = wave_in + first;
    for (int lane = 0; lane < 16 && REPEATED; lane++) {
        if (memcmp(in[lane].a, in[lane + 16].a, sizeof in->a) != 0 ||
            memcmp(in[lane].b, in[lane + 16].b, sizeof in->b) != 0) {
            snprintf(fault, sizeof fault,
                     "thread %u of block %u,%u,%u and the one 16 further on have other operands "
                     "of a matrix instruction",
                     first + (unsigned)lane, gw_emulator_block.x, gw_emulator_block.y,
                     gw_emulator_block.z);
            give_up();
        }
    }
    for (int k = 0; k < OF::DEPTH; k++) {
        for (int i = 0; i < 16; i++) {
            place a = place_a(i, k, OF::PER);
            x[i][k] = OF::widen(part_of(in[a.lane].a[a.reg], a.part, OF::PER));
        }
        for (int j = 0; j < COLS; j++) {
            place b = place_b(k, j, OF::PER);
            y[k][j] = OF::widen(part_of(in[b.lane].b[b.reg], b.part, OF::PER));
        }
    }
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < COLS; j++) {
            place c = place_c(i, j);
            memcpy(&sums[j], &in[c.lane].c[c.reg], sizeof sums[j]);
        }
        for (int k = 0; k < OF::DEPTH; k++) { /* in the order of k */
            for (int j = 0; j < COLS; j++) {
                sums[j] += x[i][k] * y[k][j];
            }
        }
        for (int j = 0; j < COLS; j++) {
            place c = place_c(i, j);
            memcpy(&wave_out[first + c.lane][c.reg], &sums[j], sizeof sums[j]);
        }
    }
}

/* Word a[0] of lane a[1] to each lane of the wave. */
static void hand_words(unsigned first) {
    for (unsigned i = first; i < first + GW_EMULATOR_LANES; i++) {
        wave_out[i][0] = (int)wave_in[first + wave_in[i].a[1] % GW_EMULATOR_LANES].a[0];
    }
}

static void meet_wave(kind what, int *c, const unsigned *a, const unsigned *b) {
    unsigned me = running->index;
    meeting *m = &wave_meeting[me / GW_EMULATOR_LANES];
    memcpy(wave_in[me].a, a, GW_MMA_A * sizeof *a);
    memcpy(wave_in[me].b, b, GW_MMA_B * sizeof *b);
    memcpy(wave_in[me].c, c, sizeof wave_in[me].c);
    if (arrive(m, what, "", 0)) {
        const unsigned first = me / GW_EMULATOR_LANES * GW_EMULATOR_LANES;
        if (what == MMA_INT8) {
            multiply<of_int8>(first);
        } else if (what == MMA_F16) {
            multiply<of_f16>(first);
        } else if (what == MMA_BF16) {
            multiply<of_bf16>(first);
        } else {
            hand_words(first);
        }
        release(m);
    } else {
        wait_for_others(m);
    }
    memcpy(c, wave_out[me], sizeof wave_out[me]);
}

/* The width of a matrix instruction is the wave's; this one multiplies nothing. */
unsigned gw_emulator_wave_word(unsigned v, int from) {
    int c[GW_MMA_C] = {};
    const unsigned a[GW_MMA_A] = {v, (unsigned)from};
    static_assert(GW_MMA_B <= GW_MMA_A && GW_MMA_A >= 2, "what is copied of it");
    meet_wave(SYNC_WAVE, c, a, a);
    return (unsigned)c[0];
}
void gw_emulator_sync_wave(void) { (void)gw_emulator_wave_word(0, 0); }

void gw_emulator_mma_int8(int *c, const unsigned *a, const unsigned *b) {
    meet_wave(MMA_INT8, c, a, b);
}
void gw_emulator_mma_half(float *c, const unsigned *a, const unsigned *b, int bf16) {
    int bits[GW_MMA_C];
    memcpy(bits, c, sizeof bits);
    meet_wave(bf16 ? MMA_BF16 : MMA_F16, bits, a, b);
    memcpy(c, bits, sizeof bits);
}
