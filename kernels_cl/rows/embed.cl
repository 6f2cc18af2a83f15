/* kernels_cl/rows/embed.cl - EMBED: the row of each token as f32, through the format's own
 * unpacking.
 *
 * GW_FMT_name is defined as 1 for the format of the table; FORMAT is the name. Rows
 * [first, first + rows) of the table are in this buffer; other tokens are left to other launches.
 */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define JOIN3(a, b, c) JOIN(JOIN(a, b), c)

#if defined(FORMAT_F32)
#define ELEMENT float
#define WIDEN(x) (x)
#elif defined(FORMAT_F16)
#define ELEMENT ushort
#define WIDEN(x) gw_f16_to_f32(x)
#elif defined(FORMAT_BF16)
#define ELEMENT ushort
#define WIDEN(x) gw_bf16_to_f32(x)
#elif defined(FORMAT_E4M3)
#define ELEMENT gw_block_e4m3
#define WEIGHT gw_e4m3_weight
#elif defined(FORMAT_NVFP4)
#define ELEMENT gw_block_nvfp4
#define WEIGHT gw_nvfp4_weight
#else
static inline void block_weights(__global const uchar *row, int b, float *w) {
#if defined(FORMAT_INT8)
    gw_int8_weights((__global const gw_row_int8 *)row,
                    (__global const gw_block_int8 *)(row + sizeof(gw_row_int8)) + b, w);
#elif defined(FORMAT_INT4)
    __global const JOIN(gw_block_, FORMAT) *block =
        (__global const JOIN(gw_block_, FORMAT) *)row + b / SUBS;
    gw_int4_weights(&block->head, block->nibbles, b % SUBS, w);
#else
    JOIN3(gw_, FORMAT, _weights)((__global const JOIN(gw_block_, FORMAT) *)row + b / SUBS, b % SUBS,
                                 w);
#endif
}
#endif

#define LOCALS(X) X(int, unused, 1)
#ifdef WALK
LOCALS_TYPE
#endif

KERNEL_OF_ANY_SIZE embed(STEP, IN(table), IN(ids), OUT(out), const int width, const int row_bytes,
                    const int first, const int rows) {
    const int row = GROUP_ID(1);
    AWAIT;
    if (row >= LIVE) {
        return;
    }
    int token = STEP_TOKEN(row);
    if (token < 0) {
        token = max(READS(int, ids)[row], 0);
    }
    const int at = token - first;
    if (at < 0 || at >= rows) {
        return;
    }
    __global const uchar *from = table_buf + table_off + (size_t)at * row_bytes;
    __global float *to = WRITES(float, out) + (size_t)row * width;
#ifdef ELEMENT
    for (int i = ITEM_ID; i < width; i += ITEM_COUNT) {
#ifdef WEIGHT
        to[i] = WEIGHT((__global const ELEMENT *)from, i);
#else
        to[i] = WIDEN(((__global const ELEMENT *)from)[i]);
#endif
    }
#else
    for (int b = ITEM_ID; b < width / 32; b += ITEM_COUNT) {
        float w[32];
        block_weights(from, b, w);
        for (int i = 0; i < 32; i++) {
            to[b * 32 + i] = w[i];
        }
    }
#endif
}
