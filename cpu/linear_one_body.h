/* cpu/linear_one_body.h - one activation row times strips; after linear_body.h's passes of several.
 *
 * A core of a Sapphire Rapids reads 12 GB/s from one place however it is asked, 17 from four to
 * eight: probably it can wait for few lines at once that it asked for itself, and its prefetcher
 * adds some for every page being read. A Zen 5 reads one place fastest, a Zen 4 one place that it
 * is not asked for. So there are three ways, with the same bits: one_F, asking or not, reads a
 * strip block after block and keeps the lanes in memory; places_F reads some strips from several
 * places at once. The blocks of lane l are l, l + 32, ..:
 * a strip's 32 blocks from each multiple of 32 on are a segment, and block l of every segment in
 * turn is lane l, complete, in a register.
 */

/* Blocks `sub` and sub + 1 of a group, or of two groups of one block each. */
#define TWO(name)                                                                                  \
    V_FN void two_##name(const unsigned char *group, const unsigned char *head, int sub,           \
                         const gw_xblock *x, v_lanes *lanes) {                                     \
        SIZES(name);                                                                               \
        const shape f = SHAPE(name);                                                              \
        if (two_at_once(GW_STRIP_FMT_##name, group, sub, x, lanes)) {                              \
            return;                                                                                \
        }                                                                                          \
        for (int j = 0; j < 2; j++, x++) {                                                         \
            V_SPREAD(x);                                                                           \
            for (int h = 0; h < GW_STRIP_ROWS; h += V_ROWS) {                                      \
                v_block u;                                                                         \
                v_float *a = &lanes->of[j][h / V_ROWS];                                            \
                unpack_##name(&u, group, head, SUBS > 1 ? sub + j : 0, h);                         \
                *a = ADD_ONE(f, &u, x, *a);                                                        \
            }                                                                                      \
            group += SUBS > 1 ? 0 : GROUP;                                                         \
        }                                                                                          \
    }

/* n lanes, 1 or 2; the second is +0 where there is one. */
V_FN void load_lanes(v_lanes *lanes, const float *a, const int n, int clear) {
    for (int i = 0; i < 2 * GW_STRIP_ROWS / V_ROWS; i++) {
        v_float *lane = &lanes->of[i * V_ROWS / GW_STRIP_ROWS][i % (GW_STRIP_ROWS / V_ROWS)];
        *lane = clear || i >= n * GW_STRIP_ROWS / V_ROWS ? v_zero() : v_fload(a + i * V_ROWS);
    }
}

V_FN void store_lanes(const v_lanes *lanes, float *a, const int n) {
    for (int i = 0; i < n * GW_STRIP_ROWS / V_ROWS; i++) {
        v_fstore(a + i * V_ROWS,
                 lanes->of[i * V_ROWS / GW_STRIP_ROWS][i % (GW_STRIP_ROWS / V_ROWS)]);
    }
}

/* ---- block after block ----------------------------------------------------------------------- */

/* Weights of these formats that are read in the order of their addresses need not be asked for on
 * a Zen 4: its prefetchers then bring as much as memory gives, where asking, which they do not
 * learn from, brings two thirds. Codes in planes, bits of several blocks in each, are read all at
 * the first block and not at the next ones. */
V_FN int in_order(gw_fmt fmt) {
    return fmt != GW_FMT_Q2_K && fmt != GW_FMT_Q3_K && fmt != GW_FMT_Q5_K && fmt != GW_FMT_Q6_K;
}

/* acc [lanes][16] += a strip times x. */
typedef void one_fn(const unsigned char *strip, size_t blocks, const gw_xblock *x, float *acc,
                    stream from);

/* The blocks of a group are unrolled, so that shifts are constants. */
#define ONE(name)                                                                                  \
    static void one_##name(const unsigned char *strip, size_t blocks, const gw_xblock *x,          \
                           float *restrict acc, stream from) {                                     \
        SIZES(name);                                                                               \
        enum { STEP = SUBS > 1 ? SUBS : 2, EACH = PAIR * SPAN };                                   \
        const size_t whole = blocks / STEP * STEP;                                                 \
        for (size_t b = 0; b < whole; b += STEP) {                                                 \
            const unsigned char *group = strip + HEAD + b / SUBS * GROUP;                          \
            float *a = acc + (b / SPAN & (LANES - 1)) * GW_STRIP_ROWS;                             \
            if (from.ahead != 0) {                                                                 \
                fetch_group(group, GROUP, from);                                                   \
                if (SUBS == 1) {                                                                   \
                    fetch_group(group + GROUP, GROUP, from);                                       \
                }                                                                                  \
            }                                                                                      \
            V_UNROLL                                                                               \
            for (int sub = 0; sub < STEP; sub += EACH, a += PAIR * GW_STRIP_ROWS) {                \
                v_lanes lanes;                                                                     \
                load_lanes(&lanes, a, PAIR, 0);                                                    \
                if (SPAN > 1) {                                                                    \
                    add_one_span(group, sub, x + b + sub, lanes.of[0]);                            \
                } else {                                                                           \
                    two_##name(group, strip, sub, x + b + sub, &lanes);                            \
                }                                                                                  \
                store_lanes(&lanes, a, PAIR);                                                      \
            }                                                                                      \
        }                                                                                          \
        pass_##name(strip, whole, blocks, x, 1, acc, LANES - 1, from);                             \
    }

/* ---- several places at once ------------------------------------------------------------------ */

/* Where lines 0, 1, .. of all places lie from the first one's line 0: line after line, place after
 * place; of a strip's last place `shift` bytes further. */
enum { MOST_LINES = 17 }; /* of a turn: Q8_0 */
typedef struct weave {
    size_t strips, each, shift, at[MOST_LINES * GW_TILE];
} weave;

/* A range of rows keeps its weaves from round to round, since memory rests while they are made: for
 * lanes of all segments, before and after the last one's place goes on, and for lanes that the last
 * segment lacks. */
enum { WHOLE, WHOLE_ON, FEWER, WEAVES };

/* The lanes of one activation row are joined while they are completed, two at a time. */
V_FN int joins_lanes(size_t rows, size_t blocks) { return rows == 1 && blocks % 2 == 0; }

/* acc [strips][lanes][count][16] = `strips` strips of `bytes` bytes times x [blocks][count], `part`
 * segments of each at once; then the caller reads at `then` in the same way. Where
 * joins_lanes the sum of the lanes is lane 0. */
typedef void places_fn(const unsigned char *strip, size_t strips, size_t bytes, size_t blocks,
                       size_t part, const gw_xblock *x, size_t count, float *acc,
                       const unsigned char *then, weave *woven);

V_FN void weave_lines(weave *w, size_t strips, size_t bytes, size_t each, size_t segment,
                      size_t lines, size_t shift) {
    if (w->strips == strips && w->each == each && w->shift == shift) {
        return;
    }
    size_t *to = w->at;
    w->strips = strips;
    w->each = each;
    w->shift = shift;
    for (size_t line = 0; line < lines; line++) {
        for (size_t s = 0; s < strips; s++) {
            for (size_t j = 0; j < each; j++) {
                *to++ = s * bytes + j * segment + line * 64 + (j + 1 < each ? 0 : shift);
            }
        }
    }
}

/* The n lanes from `lane` on are complete, two or that of a span, and so are those before them: the
 * part of gw_join_lanes that needs no later lane, so that all of it does not wait for the last one.
 * As a binary counter carries: the sum of a pair joins that of the pair before it if it is an odd
 * one, that of four lanes the four before them, and so on; it is left in the first lane that is in
 * it, at last in lane 0 of acc [lanes][16]. A span's lane has +0 for a second, all that its
 * neighbours have. */
V_FN void join_pair(const v_lanes *lanes, float *acc, size_t lane, const size_t n) {
    for (int h = 0; h < GW_STRIP_ROWS / V_ROWS; h++) {
        float *at = acc + lane * GW_STRIP_ROWS + h * V_ROWS;
        v_float sum = v_add(lanes->of[0][h], lanes->of[1][h]);
        for (size_t below = n; (lane & below) != 0; below *= 2) {
            at -= below * GW_STRIP_ROWS;
            sum = v_add(v_fload(at), sum);
        }
        v_fstore(at, sum);
    }
}

/* A turn is two blocks of one place. In a turn as many lines are asked for, AHEAD turns early
 * (four, within 2 .. 3.5 KB; two are as good in Q4_0, three worse in Q6_K), but of all places one
 * after the other: a whole turn at once would keep the other places waiting. Lines FURTHER turns
 * behind those are asked for into the second-level cache: then the nearer ones come from there, and
 * the few that a core can wait for at once no longer wait for memory. That took decode from 92 to
 * 95 .. 97% of what reading alone reaches; one to twelve turns are alike. Several rows compute too
 * long to gain by it. Where a segment ends, its place goes on `onward` bytes from the segment's
 * beginning. A span is two turns too, its sums kept for the second one: with turns of four blocks
 * six places took a fifth longer on a Sapphire Rapids and on a Zen 5. */
#define PLACES(name)                                                                               \
    V_FN void places_any_##name(const unsigned char *strip, size_t strips, size_t bytes,           \
                                size_t blocks, size_t part, const gw_xblock *x, size_t count,      \
                                float *restrict acc, const unsigned char *then, weave *woven,      \
                                const int one) {                                                   \
        SIZES(name);                                                                               \
        enum {                                                                                     \
            STEP = SUBS > 1 ? SUBS : 2,                                                            \
            TURNS = GW_LANES / 2,                                                                  \
            SEGMENT = GW_LANES / SUBS * GROUP,                                                     \
            BYTES = SEGMENT / TURNS,                                                               \
            AHEAD = BYTES * 4 < 2048   ? 2048 / BYTES                                              \
                    : BYTES * 4 > 3584 ? 3584 / BYTES                                              \
                                       : 4,                                                        \
            FURTHER = 2,                                                                           \
            LINES = (STEP / SUBS * GROUP + 63) / 64,                                               \
            MOST = (2 * LINES + STEP - 1) / STEP                                                   \
        };                                                                                         \
        const size_t segments = (blocks + GW_LANES - 1) / GW_LANES;                                \
        const size_t last = (blocks - (segments - 1) * GW_LANES) / 2; /* turns of the last one */  \
        const int joins = joins_lanes(count, blocks);                                              \
        v_held spans[GW_TILE]; /* of all places */                                                 \
        _Static_assert((int)MOST <= (int)MOST_LINES, "a weave holds a turn's lines");              \
        for (size_t from = 0; from < segments; from += part) {                                     \
            const size_t to = segments - from < part ? segments : from + part;                     \
            const size_t onward = to < segments                                                    \
                                      ? part * SEGMENT                                             \
                                      : (uintptr_t)then - (uintptr_t)strip - from * SEGMENT;       \
            for (size_t g = 0; g < GW_LANES; g += STEP) {                                          \
                V_UNROLL                                                                           \
                for (int sub = 0; sub < STEP; sub += 2) {                                          \
                    const size_t block = g + (size_t)sub, turn = block / 2, lane = block / SPAN;   \
                    const int begins = SPAN > 1 && sub % SPAN == 0;                                \
                    const size_t own =                                                             \
                        block + 2 <= blocks ? (blocks - block - 2) / GW_LANES + 1 : 0;             \
                    const size_t end = own < to ? own : to;                                        \
                    const size_t ask = (size_t)(sub / 2 + AHEAD) % (STEP / 2);                     \
                    const size_t line = LINES * ask * 2 / STEP;                                    \
                    const size_t lines = LINES * (ask + 1) * 2 / STEP - line;                      \
                    const size_t skip =                                                            \
                        (size_t)(sub / 2 + AHEAD) / (STEP / 2) * STEP / SUBS * GROUP;              \
                    const size_t jump = turn + AHEAD >= TURNS ? onward - SEGMENT : 0;              \
                    const size_t jump_last = turn + AHEAD >= last ? onward - last * BYTES : 0;     \
                    const unsigned char *head = strip;                                             \
                    const uintptr_t ahead = (uintptr_t)strip + HEAD + from * SEGMENT +             \
                                            g / SUBS * GROUP + skip + line * 64 + jump;            \
                    const size_t further =                                                         \
                        (turn + AHEAD + FURTHER >= TURNS ? onward - SEGMENT : 0) - jump +          \
                        FURTHER * BYTES;                                                           \
                    const size_t shift = end == segments ? jump_last - jump : 0;                   \
                    weave *w = &woven[end < to ? FEWER : shift != 0 ? WHOLE_ON : WHOLE];           \
                    if (end > from) {                                                              \
                        weave_lines(w, strips, bytes, end - from, SEGMENT, MOST, shift);           \
                    }                                                                              \
                    const size_t *next = w->at;                                                    \
                    float *sums = acc;                                                             \
                    v_held *held = spans;                                                          \
                    for (size_t s = 0; s < strips; s++, head += bytes) {                           \
                        const unsigned char *group =                                               \
                            head + HEAD + from * SEGMENT + g / SUBS * GROUP;                       \
                        float *a = sums + lane * count * GW_STRIP_ROWS;                            \
                        v_lanes lanes;                                                             \
                        if (one) {                                                                 \
                            load_lanes(&lanes, a, PAIR, from == 0);                                \
                        } else if (from == 0 && !begins) {                                         \
                            const size_t floats = PAIR * count * GW_STRIP_ROWS;                    \
                            memset(a, 0, floats * sizeof *a);                                      \
                        }                                                                          \
                        for (size_t j = from; j < end; j++, group += SEGMENT) {                    \
                            const size_t b = j * GW_LANES + block;                                 \
                            fetch_woven(ahead, further, next, lines, one);                         \
                            next += lines;                                                         \
                            if (one && begins) {                                                   \
                                begin_span(group, sub, x + b, held++);                             \
                            } else if (one && SPAN > 1) {                                          \
                                end_span(group, sub, x + b, held++, lanes.of[0]);                  \
                            } else if (one) {                                                      \
                                two_##name(group, head, sub, x + b, &lanes);                       \
                            } else if (!begins) {                                                  \
                                pass_##name(head, b / SPAN * SPAN, b + 2, x, count, sums,          \
                                            LANES - 1, (stream){0});                               \
                            }                                                                      \
                        }                                                                          \
                        if (joins && to == segments && !begins) {                                  \
                            join_pair(&lanes, sums, lane, PAIR);                                   \
                        } else if (one && !begins) {                                               \
                            store_lanes(&lanes, a, PAIR);                                          \
                        }                                                                          \
                        sums += LANES * count * GW_STRIP_ROWS;                                     \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (size_t s = 0; blocks % 2 != 0 && s < strips; s++) {                                   \
            pass_##name(strip + s * bytes, blocks - 1, blocks, x, count,                           \
                        acc + s * LANES * count * GW_STRIP_ROWS, LANES - 1, (stream){0});          \
        }                                                                                          \
    }                                                                                              \
    static void places_##name(const unsigned char *strip, size_t strips, size_t bytes,             \
                              size_t blocks, size_t part, const gw_xblock *x, size_t count,        \
                              float *acc, const unsigned char *then, weave *woven) {               \
        if (count == 1) {                                                                          \
            places_any_##name(strip, strips, bytes, blocks, part, x, 1, acc, then, woven, 1);      \
        } else {                                                                                   \
            places_any_##name(strip, strips, bytes, blocks, part, x, count, acc, then, woven, 0);  \
        }                                                                                          \
    }

#if !defined(V_ONE_PLACE)
#define ONE_ROW(name, NAME, weights, bytes, head) TWO(name) ONE(name) PLACES(name)
GW_STRIP_BLOCK_FORMATS(ONE_ROW)
#endif

/* The formats of planes.h, and levels that read from one place: a pass of one row. */
#define PLAIN_ROW(name, NAME, weights, bytes, head)                                                \
    static void one_##name(const unsigned char *strip, size_t blocks, const gw_xblock *x,          \
                           float *restrict acc, stream from) {                                     \
        SIZES(name);                                                                               \
        pass_##name(strip, 0, blocks, x, 1, acc, LANES - 1, from);                                 \
    }                                                                                              \
    static places_fn *const places_##name = NULL;
#if defined(V_ONE_PLACE)
GW_STRIP_BLOCK_FORMATS(PLAIN_ROW)
#endif
GW_STRIP_PLANE_FORMATS(PLAIN_ROW)
