/* backends/hip/places.c - which file of kernels_hip a kernel is in, and on which processors it is:
 * the one place that says so. tests/test_hip_compile.c holds it to what the texts make.
 */
#include <string.h>

#include "backends/hip/compiler.h"
#include "backends/hip/processor.h"

/* What a processor has that runs the kernels of a row: anything; matrix instructions, and copies
 * besides; or matrix instructions of four waves, which only the code of sm_90a has. */
typedef enum need { EVERY, MATRIX, COPIES, GROUP } need;

/* The first row that fits a kernel's name. */
/* clang-format off */
static const struct {
    const char *kernel;
    need need;
    const char *file;
} places[] = {
    {"gw_*_many",                  COPIES, "kernels_hip/linear/linear_many.hip"},
    {"gw_experts_many_*",          MATRIX, "kernels_hip/experts/experts_many.hip"},
    {"gw_*_wide",                  MATRIX, "kernels_hip/linear/linear_wide.hip"},
    {"gw_linear_*_four",           MATRIX, "kernels_hip/linear/linear_four.hip"},
    {"gw_glu_*_four",              MATRIX, "kernels_hip/linear/linear_four.hip"},
    {"gw_linear_*_pieces",         MATRIX, "kernels_hip/linear/linear_pieces.hip"},
    {"gw_glu_*_pieces",            MATRIX, "kernels_hip/linear/linear_pieces.hip"},
    {"gw_linear_f*",               EVERY,  "kernels_hip/linear/linear_float.hip"}, /* f32, f16 */
    {"gw_glu_f*",                  EVERY,  "kernels_hip/linear/linear_float.hip"},
    {"gw_linear_bf16*",            EVERY,  "kernels_hip/linear/linear_float.hip"},
    {"gw_glu_bf16*",               EVERY,  "kernels_hip/linear/linear_float.hip"},
    {"gw_linear_e4m3*",            EVERY,  "kernels_hip/linear/linear_float.hip"},
    {"gw_glu_e4m3*",               EVERY,  "kernels_hip/linear/linear_float.hip"},
    {"gw_linear_nvfp4*",           EVERY,  "kernels_hip/linear/linear_float.hip"},
    {"gw_glu_nvfp4*",              EVERY,  "kernels_hip/linear/linear_float.hip"},
    {"gw_linear_*",                EVERY,  "kernels_hip/linear/linear.hip"},
    {"gw_glu_*",                   EVERY,  "kernels_hip/linear/linear.hip"},
    {"gw_gemm_large_*",            MATRIX, "kernels_hip/gemm/gemm_large.hip"},
    {"gw_gemm_group_*",            GROUP,  "kernels_hip/gemm/gemm_group.hip"},
    {"gw_gemm_wide_*",             GROUP,  "kernels_hip/gemm/gemm_wide.hip"},
    {"gw_spread*",                 GROUP,  "kernels_hip/gemm/gemm_group.hip"},
    {"gw_gemm_half_*",             MATRIX, "kernels_hip/gemm/gemm_half.hip"},
    {"gw_narrow",                  MATRIX, "kernels_hip/gemm/gemm_half.hip"},
    {"gw_gemm_ordered_*",          EVERY,  "kernels_hip/gemm/gemm_float.hip"},
    {"gw_gemm_join",               EVERY,  "kernels_hip/gemm/gemm_float.hip"},
    {"gw_gemm_plain_*",            EVERY,  "kernels_hip/gemm/gemm.hip"},
    {"gw_gemm_*",                  MATRIX, "kernels_hip/gemm/gemm.hip"},
    {"gw_attend_block_*",          EVERY,  "kernels_hip/attention/attend_block.hip"},
    {"gw_attend_rows_*",           EVERY,  "kernels_hip/attention/attend_rows.hip"},
    {"gw_attend_split_*",          EVERY,  "kernels_hip/attention/attend_split.hip"},
    {"gw_attend_join_*",           EVERY,  "kernels_hip/attention/attend_join.hip"},
    {"gw_attend_group_*",          EVERY,  "kernels_hip/attention/attend_group.hip"},
    {"gw_attend_prompt_half_*",    MATRIX, "kernels_hip/attention/attend_prompt_half.hip"},
    {"gw_attend_prompt_*",         EVERY,  "kernels_hip/attention/attend_prompt.hip"},
    {"gw_latent_*",                EVERY,  "kernels_hip/attention/attend_latent.hip"},
    {"gw_attend_more_*",           EVERY,  "kernels_hip/attention/attend_more.hip"},
    {"gw_attend_digits_make_*",    EVERY,  "kernels_hip/attention/attend_digits_make.hip"},
    {"gw_attend_digits_join",      EVERY,  "kernels_hip/attention/attend_digits_make.hip"},
    {"gw_attend_digits_group_*",   GROUP,  "kernels_hip/attention/attend_digits_group.hip"},
    {"gw_attend_digits_*",         EVERY,  "kernels_hip/attention/attend_digits.hip"},
    {"gw_attend_codes_*",          EVERY,  "kernels_hip/attention/attend_codes.hip"},
    {"gw_attend_*",                EVERY,  "kernels_hip/attention/attention.hip"},
    {"gw_cells_*",                 EVERY,  "kernels_hip/attention/cells.hip"},
    {"gw_experts_sum_*",           EVERY,  "kernels_hip/experts/experts_sum.hip"},
    {"gw_experts_each_*",          EVERY,  "kernels_hip/experts/experts_sum.hip"},
    {"gw_experts_gemm_*",          MATRIX, "kernels_hip/experts/experts_gemm.hip"},
    {"gw_experts_glu_*",           EVERY,  "kernels_hip/experts/experts_decode.hip"},
    {"gw_experts_down_*",          EVERY,  "kernels_hip/experts/experts_decode.hip"},
    {"gw_experts_*",               EVERY,  "kernels_hip/experts/experts.hip"},
    {"gw_lora_expert_*",           EVERY,  "kernels_hip/experts/adapters_expert.hip"},
    {"gw_lora_*",                  EVERY,  "kernels_hip/experts/adapters.hip"},
    {"gw_router_*",                EVERY,  "kernels_hip/rows/router.hip"},
    {"gw_exchange_*",              EVERY,  "kernels_hip/rows/exchange.hip"},
    {"gw_listed_*",                EVERY,  "kernels_hip/rows/listed.hip"},
    {"gw_ngram_*",                 EVERY,  "kernels_hip/rows/ngram.hip"},
    {"gw_more_*",                  EVERY,  "kernels_hip/rows/more.hip"},
    {"gw_state_prompt_*",          EVERY,  "kernels_hip/rows/state_prompt.hip"},
    {"gw_state_step_*",            EVERY,  "kernels_hip/rows/state_step.hip"},
    {"gw_gates_*",                 EVERY,  "kernels_hip/rows/gates.hip"},
    {"gw_state_*",                 EVERY,  "kernels_hip/rows/state.hip"},
    {"gw_sample",                  EVERY,  "kernels_hip/rows/sample.hip"},
    {"gw_roof_*",                  EVERY,  "kernels_hip/roof.hip"},
    {"gw_pack_*",                  EVERY,  "kernels_hip/pack.hip"},
    {"gw_*",                       EVERY,  "kernels_hip/rows/rows.hip"},
};
/* clang-format on */
enum { PLACES = sizeof places / sizeof places[0] };

/* Is name of the pattern, whose stars stand for any characters? */
static int fits(const char *pattern, const char *name) {
    const char *star = NULL, *tried = NULL; /* the last star, and where what follows it was tried */
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            tried = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++tried;
        } else {
            return 0;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

static size_t place_of(const char *kernel) {
    size_t i = 0;
    while (i < PLACES && !fits(places[i].kernel, kernel)) {
        i++;
    }
    return i;
}

const char *gw_hip_file_of(const char *kernel) {
    size_t i = place_of(kernel);
    return i < PLACES ? places[i].file : NULL;
}

int gw_hip_arch_has(const char *arch, const char *kernel) {
    int known;
    const gw_hip_processor *p = gw_hip_processor_of(arch, &known);
    size_t i = place_of(kernel);
    switch (i < PLACES ? places[i].need : GROUP) {
    case EVERY:
        return 1;
    case MATRIX:
        return p->matrix != GW_MATRIX_NONE;
    case COPIES:
        return p->matrix != GW_MATRIX_NONE && p->copies;
    default:
        return i < PLACES && strcmp(arch, "sm_90a") == 0;
    }
}
