/* tests/op_packed.h - pages of caches in 4 and 5 bits (core/tensor/cells.h) for op_cases.h. */
#ifndef GW_TESTS_OP_PACKED_H
#define GW_TESTS_OP_PACKED_H

#include <string.h>

#include "core/plan/op.h"
#include "core/tensor/arith.h"
#include "core/tensor/cells.h"
#include "tests/op_list.h"

static inline int oc_v_dim(const op_case *c) { return c->v_dim > 0 ? c->v_dim : c->e; }
static inline int oc_most(const op_case *c) { return oc_v_dim(c) > c->e ? oc_v_dim(c) : c->e; }

/* To the caches k and v: value i (head, then the larger width) of position pos. */
static inline void oc_fill_packed(const op_case *c, unsigned char *k, unsigned char *v, size_t page,
                                  int i, int pos, float kx, float vx) {
    int most = oc_most(c), at = i % most, width[2] = {c->e, oc_v_dim(c)};
    int bits = gw_cache_bits(c->kv), levels = 1 << bits;
    size_t head = page * (size_t)c->kv_heads + (size_t)(i / most);
    for (int part = 0; part < 2; part++) {
        int e = width[part], is_k = part == 0;
        unsigned char *p = is_k ? k : v;
        p += head * GW_PAGE * (size_t)e / 32 * (4 * (size_t)bits + 2);
        if (at < e) {
            int code = (int)((is_k ? kx / 4.0f + 0.5f : vx / 2.0f + 0.5f) * (float)levels);
            code = code < 0 ? 0 : code >= levels ? levels - 1 : code;
            gw_u16 scale = gw_f32_to_f16(0.01f * (1.0f + (float)(at / 32)) * (pos % 3 ? 1 : -1));
            unsigned char *low = p + gw_cells_code_at(e, is_k, pos, at);
            *low = (unsigned char)(at % 2 == 0 ? (*low & 0xf0) | (code & 15)
                                               : (*low & 0x0f) | (code & 15) << 4);
            if (bits == 5) {
                unsigned char *high = p + GW_PAGE / 2 * e + gw_cells_bit_at(e, is_k, pos, at);
                *high = (unsigned char)((*high & ~(1 << at % 8)) | (code >> 4) << at % 8);
            }
            memcpy(p + GW_PAGE * e * bits / 8 + 2 * gw_cells_scale_at(e, is_k, pos, at), &scale, 2);
        }
    }
}

/* The number of value i of position pos, of a page in 4 or 5 bits. */
static inline double oc_packed(const op_case *c, const unsigned char *p, int is_k, int pos, int i) {
    int e = is_k ? c->e : oc_v_dim(c), bits = gw_cache_bits(c->kv);
    int code = p[gw_cells_code_at(e, is_k, pos, i)] >> 4 * (i % 2) & 15;
    if (bits == 5) {
        code += 16 * (p[GW_PAGE / 2 * e + gw_cells_bit_at(e, is_k, pos, i)] >> i % 8 & 1);
    }
    gw_u16 d;
    memcpy(&d, p + GW_PAGE * e * bits / 8 + 2 * gw_cells_scale_at(e, is_k, pos, i), sizeof d);
    return (double)gw_f16_to_f32(d) * (code - (1 << (bits - 1)));
}

#endif
