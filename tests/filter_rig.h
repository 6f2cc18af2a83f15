/* tests/filter_rig.h - a filter of the sampler against a plain definition of it: which tokens stay,
 * in which order, with keys untouched. For test_sampler.c and test_samplers.c. */
#ifndef GW_TESTS_FILTER_RIG_H
#define GW_TESTS_FILTER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "core/engine/sampling/sampler.h"

enum { FILTER_VOCAB_MAX = 3002 };

typedef struct filter_rule {
    const char *name;
    /* kept[i]: does the definition keep token i? Returns how near it came to another answer. */
    double (*plain)(int n, double p, char *kept);
    void (*stage)(gw_candidates *c, float p);
    double low, high; /* of p */
} filter_rule;

/* Over logits [n], which plain() reads too. rank: so many are ranked already; list: room for n.
 * Returns how many stay; 0 when the definition came nearer than `limit`: then float and double may
 * differ, and both be right. */
static inline size_t filter_judge(const filter_rule *f, const float *logits, int n, float p,
                                  size_t rank, double limit, gw_candidate *list) {
    static char kept[FILTER_VOCAB_MAX], got[FILTER_VOCAB_MAX];
    assert_in_range(n, 1, FILTER_VOCAB_MAX);
    if (f->plain(n, (double)p, kept) < limit) {
        return 0;
    }
    gw_candidates c = {.at = list};
    gw_candidates_fill(&c, logits, n);
    if (rank > 0) {
        gw_candidates_rank(&c, rank);
    }
    f->stage(&c, p);
    memset(got, 0, sizeof got);
    for (size_t i = 0; i < c.n; i++) {
        got[c.at[i].token] = 1;
        assert_true(c.at[i].key == c.at[i].logit);
        assert_true(i + 1 >= c.ranked || c.at[i].logit >= c.at[i + 1].logit);
    }
    if (memcmp(got, kept, (size_t)n) != 0) {
        fail_msg("%s %g of %d, %zu ranked", f->name, (double)p, n, rank);
    }
    return c.n;
}

#endif
