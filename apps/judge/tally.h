/* apps/judge/tally.h - what is known of every scored token, and the figures made of it.
 *
 * Definitions (nats, sums in double): nll = -ln p(token); kl = sum over the vocabulary of
 * p_base (ln p_base - ln p), nothing clipped; dp = p(token) - p_base(token). A mean's error is the
 * standard error of independent values. A quantile is linear between order statistics. They are
 * those of llama.cpp's perplexity tool, whose figures can be set beside them.
 */
#ifndef GW_APPS_JUDGE_TALLY_H
#define GW_APPS_JUDGE_TALLY_H

#include <stddef.h>
#include <stdint.h>

typedef struct tally_row {
    double nll;
    double base_nll, kl; /* with a base */
    int same_top;        /* both find the same token the most probable; lowest id among equals */
} tally_row;

/* Which logits are not finite or have no largest is NAN in nll. logits, base [n]. */
void tally_score(const float *logits, int32_t n, int32_t token, const float *base, tally_row *out);

/* A row of llama.cpp's file of a base model: ln p = scale code + least. Those of at most -16 are
 * unknown (the file holds nothing below) and count for nothing. codes [n] */
typedef struct tally_codes {
    float scale, least;
    const uint16_t *at;
} tally_codes;
void tally_score_codes(const float *logits, int32_t n, int32_t token, const tally_codes *base,
                       tally_row *out);
/* The codes of a row, for such a file; codes [n]. */
void tally_encode(const float *logits, int32_t n, uint16_t *codes, tally_codes *out);

typedef struct tally {
    tally_row *at; /* [n] */
    size_t n, room;
    double nll;     /* sum of n, while they come */
    uint64_t bytes; /* of the text that the scored tokens stand for */
} tally;

/* Room for so many more rows; 0, or -1: no memory. */
int tally_reserve(tally *t, size_t more);
void tally_free(tally *t);

enum { TALLY_QUANTILES = 11 };
extern const double tally_quantiles[TALLY_QUANTILES]; /* 0 (least) .. 1 (largest) */

typedef struct tally_figures {
    size_t n;
    uint64_t bytes;
    double ppl, ppl_error, bits_per_byte;
    int has_base;
    double base_ppl, base_ppl_error;
    double log_ratio, log_ratio_error; /* mean ln of the two perplexities' ratio */
    double kl, kl_error, kl_at[TALLY_QUANTILES];
    double same_top, same_top_error; /* share */
    double dp, dp_error, dp_rms, dp_rms_error, dp_at[TALLY_QUANTILES];
} tally_figures;

/* n > 0. 0, or -1: no memory. */
int tally_sum_up(const tally *t, int has_base, tally_figures *out);

#endif
