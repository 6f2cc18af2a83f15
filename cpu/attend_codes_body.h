/* cpu/attend_codes_body.h - attention of generated tokens over caches in 4 and 5 bits, in integers
 * (docs/arithmetic.md, section 5, "Attention in codes"). Template: NAME, VT; included by every
 * level, whose compiler makes vectors of the loops over 32 and 64.
 */
#include "core/tensor/cells.h"

/* A query of the KV head: its blocks as int8. */
typedef struct NAME(codes_query) {
    gw_act8 block[GW_CODES_MOST / 32];
} NAME(codes_query);

/* Sums of a page, or of a group of pages, of a query. */
typedef struct NAME(codes_sums) {
    float top, sum, o[GW_CODES_MOST];
} NAME(codes_sums);

/* s[j]: products of a query and the page's keys, as codes of q8_0. */
VT static void NAME(score_codes)(float *s, const gw_i8 *codes, const gw_u16 *scales,
                                 const NAME(codes_query) * q, size_t e) {
    for (size_t j = 0; j < GW_PAGE; j++) {
        s[j] = 0.0f;
    }
    for (size_t b = 0; b < e / 32; b++, scales += GW_PAGE) {
        gw_i32 t[GW_PAGE] = {0};
        for (size_t i = 0; i < 32; i++, codes += GW_PAGE) {
            gw_i32 x = q->block[b].q[i];
            for (size_t j = 0; j < GW_PAGE; j++) {
                t[j] += x * codes[j];
            }
        }
        for (size_t j = 0; j < GW_PAGE; j++) {
            float by = q->block[b].scale * gw_f16_to_f32(scales[j]);
            s[j] = GW_FMA(by, (float)t[j], s[j]);
        }
    }
}

/* o[e] = sums of the page's values, weighed by p, which is 0 where nothing is seen. */
VT static void NAME(mix_codes)(float *o, const float *p, const gw_i8 *codes, const gw_u16 *scales,
                               size_t e, size_t from, size_t end) {
    for (size_t b = 0; b < e / 32; b++) {
        gw_i32 sum[32] = {0};
        float w[GW_PAGE] = {0.0f};
        gw_u32 top = 0;
        for (size_t j = from; j < end; j++) {
            w[j] = p[j] * gw_f16_to_f32(scales[j * (e / 32) + b]);
            gw_u32 size = GW_F32_BITS(w[j]) & 0x7fffffffu;
            top = size > top ? size : top;
        }
        float inverse = gw_codes_inverse(top);
        for (size_t j = from; j < end; j++) {
            gw_i32 n = gw_codes_of(w[j], inverse);
            const gw_i8 *c = codes + j * e + 32 * b;
            for (size_t i = 0; i < 32; i++) {
                sum[i] += n * c[i];
            }
        }
        for (size_t i = 0; i < 32; i++) {
            o[32 * b + i] = (float)sum[i] * gw_codes_scale(top);
        }
    }
}

/* Of positions [from, end) that a row sees of a page: k and v as pages of q8_0. */
VT static void NAME(page_of_codes)(const gw_cpu_attention *job, NAME(codes_sums) * out,
                                   const NAME(codes_query) * q, const void *k, const void *v,
                                   size_t from, size_t end) {
    const size_t e = (size_t)job->e;
    const gw_i8 *keys = k, *values = v;
    float p[GW_PAGE];
    NAME(score_codes)(p, keys, (const gw_u16 *)(const void *)(keys + GW_PAGE * e), q, e);
    out->top = -INFINITY;
    for (size_t j = from; j < end; j++) {
        p[j] = p[j] * job->scale;
        out->top = p[j] > out->top ? p[j] : out->top;
    }
    for (size_t j = 0; j < GW_PAGE; j++) {
        p[j] = j >= from && j < end ? gw_exp(p[j] - out->top) : 0.0f;
    }
    NAME(mix_codes)(out->o, p, values, (const gw_u16 *)(const void *)(values + GW_PAGE * e), e,
                    from, end);
    for (size_t h = GW_PAGE / 2; h > 0; h /= 2) {
        for (size_t j = 0; j < h; j++) {
            p[j] = p[j] + p[j + h];
        }
    }
    out->sum = p[0];
}

/* Steps 4 and 5 of Attention: parts in increasing order. start: what L and O begin with. */
VT static void NAME(join_codes)(NAME(codes_sums) * to, const NAME(codes_sums) * part, size_t n,
                                size_t step, size_t e, float top, float start) {
    for (size_t i = 0; i < n; i++) {
        top = part[i * step].top > top ? part[i * step].top : top;
    }
    to->top = top;
    to->sum = start;
    for (size_t c = 0; c < e; c++) {
        to->o[c] = start;
    }
    for (size_t i = 0; i < n; i++) {
        float by = gw_exp(part[i * step].top - top);
        to->sum = GW_FMA(part[i * step].sum, by, to->sum);
        for (size_t c = 0; c < e; c++) {
            to->o[c] = GW_FMA(part[i * step].o[c], by, to->o[c]);
        }
    }
}

/* Row `row` of a part: its heads share the pages that are unpacked. */
VT static void NAME(attend_codes_row)(const gw_cpu_attention *job,
                                      const gw_cpu_attention_part *part, int row, float *out,
                                      void *scratch) {
    const size_t e = (size_t)job->e, heads = (size_t)part->heads;
    const size_t bytes = gw_cpu_page_bytes(job->k_fmt, e);
    const size_t first_head = (size_t)(part->g * job->group);
    int lo = gw_cpu_first_seen(job->pos[row], job->window, job->chunk), pos = job->pos[row];
    float *k = scratch, *v = k + GW_CPU_CELLS_ROOM(e), q[GW_CODES_MOST];
    NAME(codes_query) *query = (NAME(codes_query) *)(void *)(v + GW_CPU_CELLS_ROOM(e));
    NAME(codes_sums) *page = (NAME(codes_sums) *)(void *)(query + heads);
    NAME(codes_sums) *group = page + GW_PAGE_GROUP * heads, all;
    size_t n_groups = 0;
    for (size_t h = 0; h < heads; h++) {
        size_t head = first_head + (size_t)part->head + h;
        gw_cpu_take_query(job, q, job->q + (size_t)row * job->q_stride + head * e);
        for (size_t b = 0; b < e / 32; b++) {
            gw_act8_encode(&query[h].block[b], q + 32 * b);
        }
    }
    for (int base = lo / GW_PAGE; base <= pos / GW_PAGE; base += GW_PAGE_GROUP, n_groups++) {
        int n = pos / GW_PAGE - base + 1 < GW_PAGE_GROUP ? pos / GW_PAGE - base + 1 : GW_PAGE_GROUP;
        for (int i = 0; i < n; i++) {
            int p = base + i, from = lo - p * GW_PAGE, end = pos + 1 - p * GW_PAGE;
            size_t at = (size_t)job->pages[(size_t)job->slot[row] * job->page_stride + (size_t)p];
            at = (at * (size_t)job->kv_heads + (size_t)part->g) * bytes;
            gw_cpu_unpack(k, (const char *)job->k + at, job->k_bits, e, 1);
            gw_cpu_unpack(v, (const char *)job->v + at, job->v_bits, e, 0);
            for (size_t h = 0; h < heads; h++) {
                NAME(page_of_codes)
                (job, &page[(size_t)i * heads + h], &query[h], k, v, from > 0 ? (size_t)from : 0,
                 end < GW_PAGE ? (size_t)end : GW_PAGE);
            }
        }
        for (size_t h = 0; h < heads; h++) {
            NAME(join_codes)
            (&group[n_groups * heads + h], page + h, (size_t)n, heads, e, -INFINITY, 0.0f);
        }
    }
    for (size_t h = 0; h < heads; h++) {
        const float *sink = job->sinks != NULL ? job->sinks + first_head + (size_t)part->head + h
                                               : NULL;
        NAME(join_codes)
        (&all, group + h, n_groups, heads, e, sink != NULL ? *sink : -INFINITY, -0.0f);
        float total = sink != NULL ? all.sum + gw_exp(*sink - all.top) : all.sum;
        for (size_t c = 0; c < e; c++) {
            out[h * e + c] = all.o[c] / total;
        }
    }
}

VT static void NAME(attend_codes)(const gw_cpu_attention *job, const gw_cpu_attention_part *part,
                                  void *scratch) {
    for (int i = 0; i < part->rows; i++) {
        NAME(attend_codes_row)
        (job, part, part->row + i, part->out + (size_t)i * part->out_stride, scratch);
    }
}
