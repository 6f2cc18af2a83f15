/* kernels_hip/gemm/gemm_record.h - the term of four blocks of 32 by one thread, which has a row of
 * a record: for kernels without matrix instructions.
 */
#ifndef GW_KERNELS_HIP_GEMM_RECORD_H
#define GW_KERNELS_HIP_GEMM_RECORD_H

#include "kernels_hip/gemm/gemm_format.h"

template <class F> struct row_record {
    quarter<F> quarters[4];
    scales<F> scale;

    __device__ inline row_record(const unsigned char *record, int row) {
#pragma unroll
        for (int t = 0; t < 4; t++) {
            load_quarter<F>(quarters[t], record, row, t);
        }
        load_scales<F>(scale, record, row);
    }
    /* Of formats that are WHOLE. act: the blocks of a token, as they are in memory. */
    __device__ inline float term(const unsigned *act, float acc) const {
        float row[F::PROMPT_ROW], token[F::TOKEN];
        unsigned top = 0;
        int sum = F::SCALED ? 0 : MAGIC_BITS, of_codes = 0, minimums = 0;
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            top = gw_larger(top, act[i * (int)GW_ACT_WORDS] & 0x7fffffffu);
        }
        const float scale_of_all = GW_F32_FROM_BITS(top), inverse = gw_span_inverse(top);
#pragma unroll
        for (int i = 0; i < BLOCKS; i++, act += GW_ACT_WORDS) {
            const unsigned part = (unsigned)gw_span_part(GW_F32_FROM_BITS(act[0]), inverse);
            int products[2] = {0, 0}, all[2] = {0, 0}; /* of halves */
#pragma unroll
            for (int w = 0; w < 8; w++) {
                const int x = (int)gw_span_word(act[2 + w], part), h = w / 4;
                products[h] = gw_dp4a((int)codes<F>(quarters[w % 4], i, h), x, products[h]);
                all[h] = gw_dp4a(x, 0x01010101, all[h]);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int half = F::HALVES ? h : 0;
                sum += products[h] * (F::SCALED ? integer_scale<F>(scale, i, half) : 1);
                minimums += F::MINIMUMS ? all[h] * integer_minimum<F>(scale, i, half) : 0;
                of_codes += all[h];
            }
        }
        prompt_row<F>(scale, 0, row);
        token_numbers<F>(scale_of_all, (unsigned)of_codes & 0xffffu, token);
        return prompt_term<F>(sum, (float)minimums, row, token, acc);
    }
};

#endif
