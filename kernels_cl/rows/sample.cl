/* kernels_cl/rows/sample.cl - SAMPLE. On processors an item does a row as core/tensor/sample.h has
 * it. On teams a group looks at a piece of the row and lists what can still be drawn there: the
 * piece's k largest, or with all tokens in the draw its winner; then one group draws from the list.
 * count: how many are listed, and whether a logit is no number; 0 between launches.
 */
#define SAMPLE_ARGS STEP, IN(x), IN(choice), OUT(ids), OUT(list), OUT(count), const int n

#ifdef GW_ITEM

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sample(SAMPLE_ARGS) {
    const int row = (int)get_global_id(1);
    (void)count_buf;
    (void)count_off;
    if (row >= LIVE) {
        return;
    }
    WRITES(int, ids)[row] = gw_choose(READS(float, x) + (size_t)row * n, n, READS(gw_choice, choice)[row],
                                      STEP_POS(row), WRITES(gw_listed, list) + (size_t)row * n);
}

#else

#define PIECE 2048
#define EACH (PIECE / GROUP) /* of an item */
/* clang-format off */
#define LOCALS(X)                                                                                  \
    X(float, scores, GROUP) X(int, tokens, GROUP) X(int, counts, 32) X(int, total, 1)              \
    X(int, bad, 1) X(gw_listed, ranked, GW_CHOICE_RANKED) X(gw_listed, found, GW_CHOICE_RANKED)    \
    X(float, mass, GW_CHOICE_RANKED) X(int, kept, 1)
/* clang-format on */
LOCALS_TYPE

/* The larger score, of equal ones the lower token, of all items; in all of them. */
static inline int group_best(float score, int token, __local float *scores, __local int *tokens,
                             int id) {
    scores[id] = score;
    tokens[id] = token;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int h = GROUP / 2; h > 0; h /= 2) {
        if (id < h && (scores[id + h] > scores[id] ||
                       (scores[id + h] == scores[id] && tokens[id + h] < tokens[id]))) {
            scores[id] = scores[id + h];
            tokens[id] = tokens[id + h];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return tokens[0];
}

#ifdef GW_CHOICE_NARROWS
/* What is listed from key `least` on, ranked; how many of these top-p leaves, 0: they are too many
 * to say. kept: for counting. All items call it. */
static inline int rank_listed(const gw_choice c, __global const gw_listed *listed, int n,
                              uint least, __local gw_listed *found, __local gw_listed *ranked,
                              __local float *mass, __local int *kept, int id) {
    if (id == 0) {
        kept[0] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < n; i += GROUP) {
        const gw_listed l = listed[i];
        const int at = l.key >= least ? atomic_add(kept, 1) : GW_CHOICE_RANKED;
        if (at < GW_CHOICE_RANKED) {
            found[at] = l;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int all = kept[0] <= GW_CHOICE_RANKED ? kept[0] : 0;
    for (int i = id; i < all; i += GROUP) {
        const gw_listed l = found[i];
        int before = 0;
        for (int j = 0; j < all; j++) {
            before += gw_listed_before(found[j], l);
        }
        ranked[before] = l;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = id; i < all; i += GROUP) {
        mass[i] = gw_exp(gw_key_float(ranked[i].key) - gw_key_float(ranked[0].key));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id == 0) {
        float own[GW_CHOICE_RANKED];
        for (int i = 0; i < all; i++) {
            own[i] = mass[i];
        }
        kept[0] = all > 0 ? gw_masses_reaching(own, all, c.top_p) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return kept[0];
}
#endif

KERNEL(GROUP) sample_pieces(SAMPLE_ARGS) {
    LOCALS_HERE
    const int row = GROUP_ID(1), id = LOCAL_ID;
    const int first = GROUP_ID(0) * PIECE, end = min(n, first + PIECE);
    (void)ids_buf;
    (void)ids_off;
    (void)total;
    (void)ranked;
    (void)found;
    (void)mass;
    (void)kept;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const float *logit = READS(float, x) + (size_t)row * n;
    __global gw_listed *listed = WRITES(gw_listed, list) + (size_t)row * n;
    __global int *counter = WRITES(int, count) + 2 * row;
    const gw_choice c = READS(gw_choice, choice)[row];
    uint key[EACH]; /* 0: behind the end of the row */
    if (id < 32) {
        counts[id] = 0;
    }
    if (id == 0) {
        bad[0] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < EACH; j++) {
        const int at = first + id + j * GROUP;
        key[j] = at < end ? gw_float_key(logit[at]) : 0;
        if (at < end && (key[j] < GW_KEY_LEAST || key[j] > GW_KEY_MOST)) {
            bad[0] = 1;
        }
    }
    if (gw_choice_filters(c, n)) {
        uint least = 0;
        for (int b = 31; b >= 0; b--) {
            int larger = 0;
            for (int j = 0; j < EACH; j++) {
                larger += key[j] >= (least | 1u << b);
            }
            if (larger > 0) {
                atomic_add(&counts[b], larger);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            least |= counts[b] >= c.top_k ? 1u << b : 0u;
        }
        int kept = 0;
        for (int j = 0; j < EACH; j++) {
            kept += key[j] >= max(least, 1u);
        }
        int at = kept > 0 ? atomic_add(counter, kept) : 0;
        for (int j = 0; j < EACH; j++) {
            if (key[j] >= max(least, 1u)) {
                listed[at].key = key[j];
                listed[at].token = first + id + j * GROUP;
                at++;
            }
        }
    } else {
        float most = -INFINITY;
        int best = end - 1;
        for (int j = 0; j < EACH; j++) {
            const int token = first + id + j * GROUP;
            const float y = token < end ? gw_choice_score(c, logit[token], STEP_POS(row), token)
                                        : -INFINITY;
            if (y > most) {
                most = y;
                best = token;
            }
        }
        best = group_best(most, best, scores, tokens, id);
        if (id == 0) {
            const int place = atomic_add(counter, 1);
            listed[place].key = gw_float_key(logit[best]);
            listed[place].token = best;
        }
    }
    if ((id == 0) & bad[0]) { /* not &&: common.cl, `again` */
        atomic_or(counter + 1, 1);
    }
}

KERNEL(GROUP) sample_join(SAMPLE_ARGS) {
    LOCALS_HERE
    const int row = GROUP_ID(1), id = LOCAL_ID;
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const gw_listed *listed = READS(gw_listed, list) + (size_t)row * n;
    __global int *counter = WRITES(int, count) + 2 * row;
    const gw_choice c = READS(gw_choice, choice)[row];
    if (id < 32) {
        counts[id] = 0;
    }
    if (id == 0) {
        total[0] = counter[0];
        bad[0] = counter[1];
        counter[0] = counter[1] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint least = 0;
    for (int b = 31; b >= 0 && gw_choice_filters(c, n); b--) {
        int larger = 0;
        for (int i = id; i < total[0]; i += GROUP) {
            larger += listed[i].key >= (least | 1u << b);
        }
        if (larger > 0) {
            atomic_add(&counts[b], larger);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        least |= counts[b] >= c.top_k ? 1u << b : 0u;
    }
    float most = -INFINITY;
    int best = n, left = total[0];
    const int narrows = gw_choice_narrows(c);
    if (narrows) {
#ifdef GW_CHOICE_NARROWS
        left = gw_choice_filters(c, n)
                   ? rank_listed(c, listed, total[0], least, found, ranked, mass, kept, id)
                   : 0;
#else
        left = 0;
#endif
    }
    for (int i = id; i < left; i += GROUP) {
        gw_listed l;
        if (narrows) {
            l = ranked[i];
        } else {
            l = listed[i];
        }
        if (l.key >= least && !(narrows && mass[i] < c.min_p)) {
            const float y = gw_choice_score(c, gw_key_float(l.key), STEP_POS(row), l.token);
            if (y > most || (y == most && l.token < best)) {
                most = y;
                best = l.token;
            }
        }
    }
    best = group_best(most, best, scores, tokens, id);
    if (id == 0) {
        WRITES(int, ids)[row] = !bad[0] && gw_key_counts(gw_float_key(scores[0])) ? best : -1;
    }
}

#endif
