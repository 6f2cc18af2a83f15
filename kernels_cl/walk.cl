/* kernels_cl/walk.cl - a whole step in one launch: every group walks the same list of ops, takes
 * its share of each one's groups and waits for all others before the next (backends/opencl/walk.c
 * writes the list, and the text between WALK_OPS and this).
 *
 * An entry of the list has SLOTS 64-bit words: op, groups along x, y and z, and 1 where x follows
 * the pages of the step; then the arguments in order. The first of them, the step, is not read there:
 * it comes with the launch, so that nothing has to be copied to the device for a token.
 */
#ifdef WALK_OPS

#define HEAD_SLOTS 5
#define ADDRESS(i) ((__global void *)slots[i])
#define NUMBER(i) ((int)slots[i])
#define WIDE(i) (slots[i])
#define REAL(i) as_float((uint)slots[i])

typedef struct step_words {
    int word[STEP_WORDS];
} step_words;

/* Groups: as many as run at the same time. ticket: what all groups have arrived at so far, `from`
 * before this launch. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) OF_TEAMS
void walk(__global const ulong *list, const int entries, const step_words words,
          __global uint *ticket, const uint from) {
    __local ulong entry[2][SLOTS] __attribute__((aligned(16)));
    __local int step[STEP_WORDS];
    __local union {
        WALK_LOCALS
    } memory __attribute__((aligned(16)));
    const int id = own_id(), groups = (int)get_num_groups(0);
    walker state, *grid = &state;
    state.ticket = ticket;
    state.due = from;
    if (id < SLOTS) {
        entry[0][id] = list[id];
    }
    if (id == 0) {
        UNROLL
        for (int i = 0; i < STEP_WORDS; i++) {
            step[i] = words.word[i];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 0; n < entries; n++) {
        __local const ulong *slots = entry[n & 1];
        state.next_at = &entry[(n + 1) & 1][id];
        state.next = id < SLOTS && n + 1 < entries ? list[(n + 1) * SLOTS + id] : 0;
        const int op = NUMBER(0), y = NUMBER(2), z = NUMBER(3);
        const int x = slots[4] ? min(NUMBER(1), step[3] / GW_PAGE + 1) : NUMBER(1);
        state.count = x;
        state.awaited = 0;
        slots += HEAD_SLOTS;
        for (int i = (int)get_group_id(0); i < x * y * z; i += groups) {
            state.x = i;
            state.y = state.z = 0;
            if (y * z > 1) { /* else without divisions, which take long */
                state.x = i % x;
                state.y = i / x % y;
                state.z = i / x / y;
            }
            switch (op) {
                WALK_OPS
            default:
                break;
            }
            if (i + groups < x * y * z) { /* else grid_arrive() has one */
                barrier(CLK_LOCAL_MEM_FENCE);
            }
        }
        grid_await(grid);
        state.due += (uint)groups;
        grid_arrive(grid);
    }
}

/* out[at] = where the device has a buffer. */
__kernel void address(__global ulong *out, const int at, __global uchar *of) {
    out[at] = (ulong)of;
}

/* Do `groups` groups of this size run at the same time? Each comes `rounds` times to where all meet
 * and gives up after some tenths of a second: ticket[1] is 1 then. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) OF_TEAMS
void meet(__global uint *ticket, const uint from, const int rounds) {
    __local union {
        WALK_LOCALS
    } memory __attribute__((aligned(16)));
    __local int stop;
    uint due = from;
    (void)memory;
    if (get_local_id(0) == 0) {
        stop = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int n = 0; n < rounds && !stop; n++) {
        due += (uint)get_num_groups(0);
        if (get_local_id(0) == 0) {
            arrive(ticket);
            if (!meets(ticket, due, 1u << 18)) {
                stop = 1;
                ticket[1] = 1;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#elif defined(WALK)

/* What a group knows: what it waits for, which of the op's groups it is, how many are along x. */
typedef struct walker {
    __global uint *ticket;
    uint due;
    int x, y, z, count, awaited;
    ulong next; /* this item's part of the entry that follows, and where it goes */
    __local ulong *next_at;
} walker;

/* Of the item. A compiler that knew it for the same in all ops would compute what follows from it
 * for all of them before the first, and keep it in registers that none has to spare. */
static inline int own_id(void) {
#ifdef GW_NV
    int id;
    __asm__ volatile("mov.u32 %0, %%tid.x;" : "=r"(id));
    return id;
#else
    return (int)get_local_id(0);
#endif
}

/* One item of a group says that the group's writes are done (behind a barrier). */
static inline void arrive(__global uint *ticket) {
#ifdef GW_NV
    __asm__ volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"((ulong)ticket) : "memory");
#else
    *ticket += 1; /* the only group */
#endif
}

/* One item waits until `due` arrivals: then it, and behind a barrier its group, sees what was
 * written before them. 0: not after `most` looks. */
static inline int meets(__global const uint *ticket, uint due, uint most) {
#ifdef GW_NV
    for (uint i = 0; i < most; i++) {
        uint now;
        __asm__ volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(now) : "l"((ulong)ticket) : "memory");
        if ((int)(now - due) >= 0) {
            return 1;
        }
    }
    return 0;
#else
    return (int)(*ticket - due) >= 0;
#endif
}

/* All items of a group: all groups have done the ops before this one. A group that never comes is a
 * fault of the device: a trap after some seconds, and the host finds the device lost. */
static inline void grid_await(walker *grid) {
    if (grid->awaited) {
        return;
    }
    grid->awaited = 1;
    if (own_id() < SLOTS) { /* a register less from here on */
        *grid->next_at = grid->next;
    }
#ifdef GW_NV
    if (get_local_id(0) == 0 && !meets(grid->ticket, grid->due, 1u << 22)) {
        __asm__ volatile("trap;");
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

static inline void grid_arrive(walker *grid) {
#ifdef GW_NV
    barrier(CLK_LOCAL_MEM_FENCE); /* PTX: arrive() releases what the group wrote before it */
#else
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#endif
    if (get_local_id(0) == 0) {
        arrive(grid->ticket);
    }
}

/* The names of the op texts that follow, apart for each one. */
#define NAMED3(name, variant) name##_##variant
#define NAMED2(name, variant) NAMED3(name, variant)
#define NAMED(name) NAMED2(name, VARIANT)
#define locals NAMED(locals)
/* planes.cl, lanes.cl */
#define wblock NAMED(wblock)
#define wraw NAMED(wraw)
#define level_word NAMED(level_word)
#define head_scale NAMED(head_scale)
#define low_row NAMED(low_row)
#define fetch NAMED(fetch)
#define widen NAMED(widen)
#define element_at NAMED(element_at)
#define unpack_codes NAMED(unpack_codes)
#define unpack NAMED(unpack)
#define dot_half NAMED(dot_half)
#define add_term NAMED(add_term)
#define add_block NAMED(add_block)
#define add_span NAMED(add_span)
#define stage NAMED(stage)
#define share NAMED(share)
#define take NAMED(take)
#define put NAMED(put)
#define settle NAMED(settle)
#define add_pair NAMED(add_pair)
#define join_spans NAMED(join_spans)
#define put_normed NAMED(put_normed)
#define scale_normed NAMED(scale_normed)
/* decode_team.cl */
#define norm_to_tile NAMED(norm_to_tile)
#define linear_decode NAMED(linear_decode)
#define glu_decode NAMED(glu_decode)
/* attention.cl, attention_team.cl, rope_kv.cl */
#define in_piece NAMED(in_piece)
#define mixed_value NAMED(mixed_value)
#define q8_scale NAMED(q8_scale)
#define q8_code NAMED(q8_code)
#define turning NAMED(turning)
#define normed_value NAMED(normed_value)
#define turned_value NAMED(turned_value)
#define join_heads NAMED(join_heads)
#define join_parts NAMED(join_parts)
#define stage_page NAMED(stage_page)
#define put_heads NAMED(put_heads)
#define attend NAMED(attend)
#define attend_join NAMED(attend_join)
#define put_q8 NAMED(put_q8)
#define put_block NAMED(put_block)
#define rope_kv NAMED(rope_kv)
/* embed.cl, rows.cl, sample.cl */
#define block_weights NAMED(block_weights)
#define embed NAMED(embed)
#define pick NAMED(pick)
#define quantize NAMED(quantize)
#define align_spans NAMED(align_spans)
#define glu_join NAMED(glu_join)
#define vector_of NAMED(vector_of)
#define fold16 NAMED(fold16)
#define sum_of_squares NAMED(sum_of_squares)
#define norm NAMED(norm)
#define group_best NAMED(group_best)
#define rank_listed NAMED(rank_listed)
#define sample_pieces NAMED(sample_pieces)
#define sample_join NAMED(sample_join)

#endif
