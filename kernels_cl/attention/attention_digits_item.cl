/* kernels_cl/attention/attention_digits_item.cl - ATTENTION in digits on processors (digits.cl): an
 * item has a row, the heads of a KV head and a group of pages. Products of 16 bits by 8:
 * 256 high high + low high is number times high.
 */

/* 16 digits as integers. */
#define DIGITS(p) convert_int16(vload16(0, (p)))
static inline int sum_of(int16 v) {
    const int8 a = v.lo + v.hi;
    const int4 b = a.lo + a.hi;
    return (b.s0 + b.s2) + (b.s1 + b.s3);
}

/* Numbers of x [n] and their high digits; returns their scale. */
static inline float cut_row(const float *x, int n, int *number, int *high) {
    uint size = 0;
    for (int i = 0; i < n; i++) {
        size = max(size, gw_digits_size(x[i]));
    }
    const float amax = gw_digits_amax(size), inverse = gw_digits_inverse(amax);
    for (int i = 0; i < n; i++) {
        number[i] = gw_digits_of(x[i], inverse);
        high[i] = gw_digits_high(number[i]);
    }
    return gw_digits_scale(amax);
}

/* Numbers times two rows of digits, n of each. */
static inline int multiply(const int *number, const int *high, __global const char *by, int n) {
    int16 sum = 0;
    for (int i = 0; i < n; i += 16) {
        sum += vload16(0, number + i) * DIGITS(by + i) + vload16(0, high + i) * DIGITS(by + n + i);
    }
    return sum_of(sum);
}

/* One head, one page: joined to o, which is a state of E values, maximum, sum. by: the scale of q
 * times 256 and that of scores. */
static inline void add_page(__global float *o, const int *number, const int *high, float by,
                            __global const uchar *keys, __global const uchar *values) {
    __global const float *scales = (__global const float *)(keys + KEY_DIGITS);
    __global const float *channels = (__global const float *)(values + E * VALUE_ROW);
    float p[GW_PAGE], x[GW_PAGE], top = -INFINITY, was, now;
    int weight[GW_PAGE], weight_high[GW_PAGE], sum = 0;
    for (int r = 0; r < GW_PAGE; r++) {
        const int s = multiply(number, high, (__global const char *)keys + r * KEY_ROW, E);
        p[r] = (float)s * (by * scales[r]);
        top = p[r] > top ? p[r] : top;
    }
    for (int r = 0; r < GW_PAGE; r++) {
        const float weight_here = gw_digits_exp(p[r] - top);
        sum += gw_digits_of(weight_here, (float)GW_DIGITS_TOP);
        x[POSITION_OF(r)] = weight_here * scales[GW_PAGE + r];
    }
    const float scale = cut_row(x, GW_PAGE, weight, weight_high) * 256.0f;
    float before = o[E];
    join_tops(&before, top, &was, &now);
    o[E] = before;
    o[E + 1] = fma((float)sum * GW_DIGITS_PART, now, o[E + 1] * was);
    for (int i = 0; i < E; i++) {
        const int s = multiply(weight, weight_high, (__global const char *)values + i * VALUE_ROW,
                               GW_PAGE);
        o[i] = fma((float)s * (scale * channels[i]), now, o[i] * was);
    }
}

/* Groups: groups of pages, KV heads, rows from row0 on. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void
attend_digits(STEP, IN(q), IN(pages), IN(keys), IN(values), OUT(part), const int row0,
              const int rows, const int heads, const int kv_heads, const int page_stride,
              const int groups, const float scale) {
    const int number = GROUP_ID(0), g = GROUP_ID(1), row = row0 + GROUP_ID(2);
    const int group = heads / kv_heads, first = number * GW_DIGITS_GROUP;
    if (row >= min(LIVE, row0 + rows)) {
        return;
    }
    const int end = min(OWN_PAGE(row), first + GW_DIGITS_GROUP);
    for (int h = g * group; h < (g + 1) * group && first < end; h++) {
        __global const float *query = READS(float, q) + ((size_t)row * heads + h) * E;
        __global float *o = GROUP_SUMS(row - row0, h, number);
        float x[E];
        int numbers[E], high[E];
        for (int i = 0; i < E; i++) {
            x[i] = query[i];
            o[i] = 0.0f;
        }
        o[E] = -INFINITY;
        o[E + 1] = 0.0f;
        const float by = cut_row(x, E, numbers, high) * 256.0f * scale;
        for (int p = first; p < end; p++) {
            const int page = READS(int, pages)[(size_t)STEP_SLOT(row) * page_stride + p];
            const size_t at = (size_t)page * kv_heads + g;
            add_page(o, numbers, high, by, READS(uchar, keys) + at * KEY_BYTES,
                     READS(uchar, values) + at * VALUE_BYTES);
        }
    }
}
