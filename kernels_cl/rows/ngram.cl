/* kernels_cl/rows/ngram.cl - NGRAM: rows of a table by hash of a token and those before it, and the
 * tokens that a sequence has at last (docs/arithmetic.md, section 5).
 *
 * state [slots, entries, hashes' size - 1]: tokens before, + 1. flags, bit 0: there are ids.
 */
#if defined(FORMAT_F32)
#define ELEMENT float
#define WIDEN(x) (x)
#elif defined(FORMAT_F16)
#define ELEMENT ushort
#define WIDEN(x) gw_f16_to_f32(x)
#else
#define ELEMENT ushort
#define WIDEN(x) gw_bf16_to_f32(x)
#endif

/* Into v: the token of a row. */
#define TOKEN_OF(row, v)                                                                           \
    int v = STEP_TOKEN(row);                                                                       \
    v = max(v < 0 && (flags & 1) ? READS(int, ids)[row] : v, 0)
/* Into v: the row before, of the same sequence; -1: none in this step. */
#define ROW_BEFORE(row, v)                                                                         \
    int v = (row) - 1;                                                                             \
    while (v >= 0 && STEP_SLOT(v) != STEP_SLOT(row)) {                                             \
        v--;                                                                                       \
    }
#define ENTRY_AT(slot, pos)                                                                        \
    (WRITES(float, state) + ((size_t)(slot) * entries + (pos) % entries) * (g->size - 1))

/* Rows [first, first + rows) of the table are in this buffer; others are left to other launches.
 * Items: columns. */
KERNEL_OF_ANY_SIZE ngram(STEP, IN(table), IN(ids), IN(hashes), OUT(state), OUT(out),
                         const int wide, const int width, const int entries, const int flags,
                         const ulong first, const ulong rows) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    __global const gw_ngram *g = READS(gw_ngram, hashes);
    for (int c = ITEM_ID; c < width; c += ITEM_COUNT) {
        const int n = c / wide, length = n / g->heads + 2;
        TOKEN_OF(row, own);
        gw_u64 mixed = gw_ngram_mixed(g, 0, 0, own);
        int here = row, ended = 0, past = 0; /* past: taken from the state */
        for (int i = 1; i < length; i++) {
            ROW_BEFORE(here, before);
            int token = -1;
            if (past == 0 && before >= 0) {
                TOKEN_OF(before, earlier);
                here = before;
                token = earlier;
            } else {
                const int pos = STEP_POS(here);
                token = pos > 0 ? (int)ENTRY_AT(STEP_SLOT(here), pos)[past] - 1 : -1;
                past++;
            }
            ended |= token < 0 || token == g->end;
            mixed = gw_ngram_mixed(g, mixed, i, ended ? g->end : token);
        }
        const gw_u64 at = (gw_u64)gw_ngram_row(g, mixed, n) - first;
        if (at < rows) { /* below first it wraps */
            WRITES(float, out)[(size_t)row * width + c] =
                WIDEN(READS(ELEMENT, table)[at * wide + c % wide]);
        }
    }
}

/* One item, that of a sequence's last row, writes what is known behind its rows: an entry may be
 * the one that the first of them still need, which it has read before. */
KERNEL_OF_ANY_SIZE ngram_note(STEP, IN(ids), IN(hashes), OUT(state), const int entries,
                              const int flags) {
    const int row = GROUP_ID(1), live = LIVE;
    AWAIT;
    if (row >= live || ITEM_ID != 0) {
        return;
    }
    const int slot = STEP_SLOT(row);
    for (int later = row + 1; later < live; later++) {
        if (STEP_SLOT(later) == slot) {
            return;
        }
    }
    __global const gw_ngram *g = READS(gw_ngram, hashes);
    const int kept = g->size - 1;
    int start = row, behind = 0; /* rows between them; more than these are not kept */
    ROW_BEFORE(row, before);
    while (before >= 0 && behind < entries + kept) {
        start = before;
        behind++;
        ROW_BEFORE(start, earlier);
        before = earlier;
    }
    const int pos = before < 0 ? STEP_POS(start) : 0;
    float last[GW_NGRAM_SIZE - 1];
    for (int k = 0; k < GW_NGRAM_SIZE - 1; k++) {
        last[k] = pos > 0 && k < kept ? ENTRY_AT(slot, pos)[k] : 0.0f;
    }
    for (int at = start; at <= row; at++) {
        if (STEP_SLOT(at) != slot) {
            continue;
        }
        TOKEN_OF(at, own);
        for (int k = GW_NGRAM_SIZE - 2; k > 0; k--) {
            last[k] = last[k - 1];
        }
        last[0] = (float)(own + 1);
        if (behind < entries - 1) {
            __global float *to = ENTRY_AT(slot, STEP_POS(at) + 1);
            for (int k = 0; k < kept; k++) {
                to[k] = last[k];
            }
        }
        behind--;
    }
}
