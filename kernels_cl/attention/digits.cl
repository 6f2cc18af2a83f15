/* kernels_cl/attention/digits.cl - what the kernels of attention in digits share
 * (docs/arithmetic.md, section 5, "Attention in digits"): where digits of k and v lie, numbers of
 * digits, the state of a softmax.
 *
 * E: width of a head. Digits of a page and KV head, in scratch, as they shall lie in local memory:
 *   keys    a row of each position: E high digits, E low ones, 16 bytes that bring eight
 *           neighbours to different banks; then the 64 scales of these rows, and the 64 scales of
 *           the values' digits
 *   values  a row of each channel: its 64 high digits, 64 low ones, 16 bytes; then all c
 * Rows of keys, and both scales, are in an order in which the weights that a lane gets from a
 * product of queries and keys are four neighbours of what the next product takes: row r is of
 * position POSITION_OF(r).
 */
#define KEY_ROW (2 * E + 16)
#define KEY_DIGITS (KEY_ROW * GW_PAGE)
#define KEY_BYTES (KEY_DIGITS + 2 * GW_PAGE * 4)
#define VALUE_ROW (2 * GW_PAGE + 16)
#define VALUE_BYTES (E * (VALUE_ROW + 4))
#define POSITION_OF(r) (((r) & 49) | ((r) & 6) << 1 | ((r) & 8) >> 2)
#define ROW_OF_POSITION(j) (((j) & 49) | ((j) & 12) >> 1 | ((j) & 2) << 2)

/* What a row sees in digits: pages before its own. */
#define OWN_PAGE(row) ((int)STEP_POS(row) / GW_PAGE)

#ifndef GW_ITEM
/* The integer n next to x * inverse as a word, NUMBER_ZERO + n: its second byte is the high digit,
 * its lowest byte the low one with the top bit turned. One addition, as in act8_code. Any digits of
 * a NaN. */
#define NUMBER_ZERO 0x4b400080u /* bits of 1.5 * 2^23 + 128 */
static inline uint number_of(float x, float inverse) {
    return as_uint(x * inverse + 12583040.0f);
}
/* Digits of four numbers. */
static inline uint low_digits(const uint *n) {
    return four_bytes(n[0], n[1], n[2], n[3]) ^ 0x80808080u;
}
static inline uint high_digits(const uint *n) {
#ifdef GW_NV
    uint r;
    __asm__("{ .reg .b32 low, high; prmt.b32 low, %1, %2, 0x51; prmt.b32 high, %3, %4, 0x51; "
            "prmt.b32 %0, low, high, 0x5410; }"
            : "=r"(r) : "r"(n[0]), "r"(n[1]), "r"(n[2]), "r"(n[3]));
    return r;
#else
    return four_bytes(n[0] >> 8, n[1] >> 8, n[2] >> 8, n[3] >> 8);
#endif
}
#endif

/* Sums of pages with maximum `more` join a state with maximum *top: what the state has is to be
 * multiplied by *was, the sums by *now. */
static inline void join_tops(float *top, float more, float *was, float *now) {
    const float most = more > *top ? more : *top;
    *was = gw_digits_exp(*top - most);
    *now = gw_digits_exp(more - most);
    *top = most;
}

/* Sums of a group of pages: E values, their maximum, their sum. */
#define GROUP_SUMS(row_, head, number)                                                             \
    (WRITES(float, part) +                                                                         \
     (((size_t)(row_) * heads + (head)) * groups + (number)) * (E + 2))
