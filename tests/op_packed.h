/* tests/op_packed.h - pages of caches in every format (core/plan/op.h) for op_cases.h. */
#ifndef GW_TESTS_OP_PACKED_H
#define GW_TESTS_OP_PACKED_H

#include <math.h>
#include <string.h>

#include "core/plan/op.h"
#include "core/tensor/arith.h"
#include "core/tensor/cells.h"
#include "tests/op_list.h"

static inline int oc_v_dim(const op_case *c) { return c->v_dim > 0 ? c->v_dim : c->e; }
static inline int oc_most(const op_case *c) { return oc_v_dim(c) > c->e ? oc_v_dim(c) : c->e; }

/* The format of keys, or of values. */
static inline gw_fmt oc_kv(const op_case *c, int is_k) { return is_k || !c->two ? c->kv : c->kv_v; }

/* Value i of position pos of a page in 4 or 5 bits, e wide. */
static inline void oc_fill_packed(unsigned char *p, int bits, int e, int is_k, int pos, int i,
                                  float x) {
    int levels = 1 << bits, code = (int)((x / (is_k ? 4.0f : 2.0f) + 0.5f) * (float)levels);
    code = code < 0 ? 0 : code >= levels ? levels - 1 : code;
    gw_u16 scale = gw_f32_to_f16(0.01f * (1.0f + (float)(i / 32)) * (pos % 3 ? 1 : -1));
    unsigned char *low = p + gw_cells_code_at(e, is_k, pos, i);
    *low = (unsigned char)(i % 2 == 0 ? (*low & 0xf0) | (code & 15)
                                      : (*low & 0x0f) | (code & 15) << 4);
    if (bits == 5) {
        unsigned char *high = p + GW_PAGE / 2 * e + gw_cells_bit_at(e, is_k, pos, i);
        *high = (unsigned char)((*high & ~(1 << i % 8)) | (code >> 4) << i % 8);
    }
    memcpy(p + GW_PAGE * e * bits / 8 + 2 * gw_cells_scale_at(e, is_k, pos, i), &scale, 2);
}

/* To a cache: value i of position pos of a head of a page, which are counted together. In q8_0 any
 * codes, any scales: core/plan/op.h. */
static inline void oc_fill(const op_case *c, void *cache, int is_k, size_t head, int pos, int i,
                           float x) {
    int e = is_k ? c->e : oc_v_dim(c), at = is_k ? i * GW_PAGE + pos : pos * e + i;
    const gw_format *f = gw_format_of(oc_kv(c, is_k));
    unsigned char *p =
        (unsigned char *)cache + head * GW_PAGE * (size_t)e / f->block_elems * f->block_bytes;
    if (gw_cache_bits(oc_kv(c, is_k)) > 0) {
        oc_fill_packed(p, gw_cache_bits(oc_kv(c, is_k)), e, is_k, pos, i, x);
    } else if (oc_kv(c, is_k) == GW_FMT_Q8_0) {
        gw_u16 scale = gw_f32_to_f16(is_k ? 0.01f * (1.0f + fabsf(x)) : 0.01f);
        float code = fminf(fmaxf(x * (is_k ? 60.0f : 127.0f), -127.0f), 127.0f);
        p[at] = (unsigned char)(gw_i8)code;
        memcpy(p + GW_PAGE * e + 2 * gw_cells_scale_at(e, is_k, pos, i), &scale, 2);
    } else if (oc_kv(c, is_k) == GW_FMT_F16) {
        ((gw_u16 *)(void *)p)[at] = gw_f32_to_f16(x);
    } else {
        ((float *)(void *)p)[at] = x;
    }
}

/* The number of value i of position pos, of a page in 4 or 5 bits. */
static inline double oc_packed(const unsigned char *p, int bits, int e, int is_k, int pos, int i) {
    int code = p[gw_cells_code_at(e, is_k, pos, i)] >> 4 * (i % 2) & 15;
    if (bits == 5) {
        code += 16 * (p[GW_PAGE / 2 * e + gw_cells_bit_at(e, is_k, pos, i)] >> i % 8 & 1);
    }
    gw_u16 d;
    memcpy(&d, p + GW_PAGE * e * bits / 8 + 2 * gw_cells_scale_at(e, is_k, pos, i), sizeof d);
    return (double)gw_f16_to_f32(d) * (code - (1 << (bits - 1)));
}

/* The number at index i = element of [pages, g, e, P] (K) or [pages, g, P, e] (V). */
static inline double oc_cached(const op_case *c, const void *cache, int is_k, size_t i) {
    gw_fmt fmt = oc_kv(c, is_k);
    if (fmt == GW_FMT_F16) {
        return gw_f16_to_f32(((const gw_u16 *)cache)[i]);
    }
    if (fmt == GW_FMT_F32) {
        return ((const float *)cache)[i];
    }
    size_t e = (size_t)(is_k ? c->e : oc_v_dim(c)), page = GW_PAGE * e, at = i % page, scale;
    int bits = gw_cache_bits(fmt);
    if (bits > 0) {
        const unsigned char *own =
            (const unsigned char *)cache + i / page * (page / 32) * (4 * (size_t)bits + 2);
        return oc_packed(own, bits, (int)e, is_k, (int)(is_k ? at % GW_PAGE : at / e),
                         (int)(is_k ? at / GW_PAGE : at % e));
    }
    const unsigned char *p = (const unsigned char *)cache + i / page * page * 34 / 32;
    scale = is_k ? at / GW_PAGE / 32 * GW_PAGE + at % GW_PAGE : at / e * (e / 32) + at % e / 32;
    gw_u16 d;
    memcpy(&d, p + page + 2 * scale, sizeof d);
    return (double)gw_f16_to_f32(d) * (double)(gw_i8)p[at];
}

#endif
