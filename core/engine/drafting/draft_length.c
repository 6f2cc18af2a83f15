/* core/engine/drafting/draft_length.c - the length policies and the cost model behind them. */
#include "core/engine/drafting/draft_length.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/status.h"

/* Seconds that drafting may lose: this many single steps and this share of all time. Probing, when
 * drafts are not expected to pay, gets half of the share. What a draft is worth is found out at the
 * beginning, where its model has read all but a few tokens: later a probe has to read all that was
 * generated without it. */
static const double LEDGER_STEPS = 2, LEDGER_SHARE = 0.01;
/* A probe costs more than that where drafts come all at once. */
static const double LEDGER_STEPS_WHOLE = 3;
/* Gains that can be lost again. */
static const double LEDGER_CAP_STEPS = 4;
/* Of the first single step behind drafts, what of its time is theirs: at most that many steps. */
static const double SLOWER_AFTER = 0.5;
/* Of a pass, more than this many times the expected time is the machine's doing, not the draft's.
 */
static const double INTERRUPTED = 1.3;
/* What drafts must promise over single steps: the estimates are not better than that. From the
 * second on the gain is safe, and single steps need be timed only seldom. */
static const double WORTH_IT = 1.03, SAFE = 1.3;
/* The share of an old observation that is left after a new one; of an old pass in the rate. */
static const double FADE = 0.96, RATE_FADE = 0.9;
/* Before anything is known: the chance of a first draft, and how many observations that is worth.
 */
static const double FIRST_CHANCE = 0.6, PRIOR = 3;
/* What one more row adds to a pass until measured. */
static const double ROW_GUESS = 0.06;

enum {
    HEURISTIC_START = 5,
    FORGET_AFTER = 256, /* passes until the time of a width counts as unknown again */
    STEP_EVERY = 16,    /* passes until the time of a single step is taken again    */
    STEP_EVERY_SAFE = 64,
    PROBE_LENGTH = 2,
    WHOLE_ROWS = 8, /* of a probe whose drafts come all at once */
    CALM = 2,      /* single steps in a row that are not the quickest: caches and clocks are warm */
    WARM_MOST = 12 /* single steps after which that is taken for granted */
};

/* ---- times ---------------------------------------------------------------------------------- */

void gw_timing_add(gw_timing *t, double seconds, uint64_t pass) {
    const double rise = 0.15, fall = 0.25, outlier = 1.5;
    if (t->n == 0 || (t->n == 1 && seconds < t->seconds)) {
        t->seconds = seconds;
    } else if (t->n > 1) {
        double most = outlier * t->seconds;
        double weight = seconds < t->seconds ? fall : rise;
        t->seconds += weight * ((seconds < most ? seconds : most) - t->seconds);
    }
    t->n++;
    t->last = pass;
}

static int is_warm(const gw_length *l) { return l->calm >= CALM || l->width[0].n >= WARM_MOST; }

/* A single step must not look slow because it came first: the least counts until it stays. */
static void time_single(gw_length *l, double seconds) {
    gw_timing *t = &l->width[0];
    if (is_warm(l)) {
        gw_timing_add(t, seconds, l->passes);
        return;
    }
    l->calm = t->n > 0 && seconds >= 0.97 * t->seconds ? l->calm + 1 : 0;
    t->seconds = t->n == 0 || seconds < t->seconds ? seconds : t->seconds;
    t->n++;
    t->last = l->passes;
}

static int is_known(const gw_length *l, int width) {
    const gw_timing *t = &l->width[width - 1];
    return t->n > 0 && (width == 1 || l->passes - t->last <= FORGET_AFTER);
}

/* Between measured widths a line; beyond them the line of the widest two; a pass is never dearer
 * than a wider one that was measured. The first of several rows may cost most, so one such width
 * tells nothing of the next. */
double gw_length_width_seconds(const gw_length *l, int width) {
    double first = l->width[0].seconds;
    if (l->width[0].n == 0) {
        return 0;
    }
    int low = 1, before = 1, high = 0;
    double cap = 0;
    for (int w = 2; w <= GW_DECODE_MAX; w++) {
        double seconds = l->width[w - 1].seconds;
        if (!is_known(l, w)) {
            continue;
        }
        before = w <= width ? low : before;
        low = w <= width ? w : low;
        high = w > width && high == 0 ? w : high;
        cap = w >= width && (cap == 0 || seconds < cap) ? seconds : cap;
    }
    double at_low = l->width[low - 1].seconds, value = at_low;
    if (low < width && high > 0) {
        double slope = (l->width[high - 1].seconds - at_low) / (high - low);
        value = at_low + slope * (width - low);
    } else if (low < width) {
        double from = l->width[before - 1].seconds;
        double slope = before > 1 ? (at_low - from) / (low - before) : ROW_GUESS * first;
        value = at_low + (slope > 0 ? slope : 0) * (width - low);
    }
    value = cap > 0 && value > cap ? cap : value;
    return width > 1 && value < first ? first : value;
}

double gw_length_step_seconds(const gw_length *l) {
    double pass = gw_length_width_seconds(l, 1);
    return pass > 0 ? pass + l->pick.seconds : 0;
}

double gw_length_usual_step_seconds(const gw_length *l) {
    double step = gw_length_step_seconds(l);
    return l->expected > 0 ? step * (l->actual / l->expected) : step;
}

/* ---- chances -------------------------------------------------------------------------------- */

/* Few observations lean on the position before. */
double gw_draft_record_chance(const gw_draft_record *r, int j) {
    double chance = FIRST_CHANCE;
    for (int i = 0; i <= j; i++) {
        chance = (r->kept[i] + PRIOR * chance) / (r->tried[i] + PRIOR);
    }
    return chance;
}

static int trust_bin(double trust) {
    int bin = (int)(trust * GW_TRUST_BINS);
    return bin < 0 ? 0 : bin >= GW_TRUST_BINS ? GW_TRUST_BINS - 1 : bin;
}

double gw_draft_record_trust(const gw_draft_record *r, double trust) {
    int bin = trust_bin(trust);
    double middle = (bin + 0.5) / GW_TRUST_BINS;
    return (r->bin_kept[bin] + PRIOR * middle) / (r->bin_tried[bin] + PRIOR);
}

/* ---- the choice ------------------------------------------------------------------------------ */

gw_status gw_length_parse(const char *text, gw_length *out) {
    gw_length l = {.mode = GW_LENGTH_COST};
    if (text != NULL && strcmp(text, "heuristic") == 0) {
        l.mode = GW_LENGTH_HEURISTIC;
        l.k = HEURISTIC_START;
    } else if (text != NULL && strncmp(text, "fixed:", 6) == 0) {
        char *end;
        long k = strtol(text + 6, &end, 10);
        if (text[6] < '0' || text[6] > '9' || *end != '\0' || k < 1 || k > GW_DRAFT_MAX) {
            return gw_fail(GW_E_ARGUMENT, "draft length",
                           "'%.40s' is not fixed:K with K from 1 to %d", text, GW_DRAFT_MAX);
        }
        l.mode = GW_LENGTH_FIXED;
        l.k = (int)k;
    } else if (text != NULL && strcmp(text, "cost") != 0) {
        return gw_fail(GW_E_ARGUMENT, "draft length",
                       "'%.40s' is none of cost, heuristic and fixed:K", text);
    }
    *out = l;
    return GW_OK;
}

/* Expected tokens and seconds of a pass with k drafts. */
typedef struct forecast {
    double tokens, seconds;
} forecast;

/* Reading so many tokens up to the first draft. */
static double read_seconds(const gw_draft_record *r, int behind) {
    double pass = r->read.n > 0 ? r->read.seconds : r->step.seconds;
    if (behind <= GW_DECODE_MAX) {
        return behind > 0 ? pass : 0;
    }
    return behind * (r->catch_up.n > 0 ? r->catch_up.seconds : pass / GW_DECODE_MAX);
}

static double draft_seconds(const gw_draft_record *r, int drafted, int ready, int behind) {
    int steps = drafted - ready - (behind > 0 && drafted > 0);
    double reading = drafted > 0 ? read_seconds(r, behind) : 0;
    return reading + (steps > 0 ? steps * r->step.seconds : 0);
}

static forecast forecast_pass(const gw_length *l, const gw_draft_record *r, int k, int behind,
                              double trust) {
    double alive = 1, tokens = 1;
    for (int j = 0; j < k; j++) {
        int known = j == 0 && trust >= 0;
        alive *= known ? gw_draft_record_trust(r, trust) : gw_draft_record_chance(r, j);
        tokens += alive;
    }
    double drafting = draft_seconds(r, k, behind < 0 ? -behind : 0, behind);
    return (forecast){
        .tokens = tokens,
        .seconds = drafting + gw_length_width_seconds(l, k + 1) + tokens * l->pick.seconds,
    };
}

/* May a pass lose that many seconds, of this part of the share? */
static int affordable(const gw_length *l, const gw_draft_record *r, double loss, double part) {
    double share = part * LEDGER_SHARE * l->elapsed;
    double steps = r->whole ? LEDGER_STEPS_WHOLE : LEDGER_STEPS;
    return l->saved - loss >= -(steps * gw_length_step_seconds(l) + share);
}

/* A pass may be twice as wide as any that was measured: a guess must not reach further. Where
 * drafts come all at once, few of them cannot pay, and the first pass has that many rows. */
static int widest_sensible(const gw_length *l, const gw_draft_record *r) {
    int widest = 1;
    for (int w = 2; w <= GW_DECODE_MAX; w++) {
        widest = is_known(l, w) ? w : widest;
    }
    return r->whole && 2 * widest < WHOLE_ROWS ? WHOLE_ROWS : 2 * widest;
}

static gw_length_plan choose_by_cost(const gw_length *l, const gw_draft_record *r, int limit,
                                     int behind, double trust) {
    double step = gw_length_step_seconds(l);
    gw_length_plan plan = {0};
    if (!is_warm(l) || step <= 0) {
        return plan;
    }
    double single = 1 / step;
    plan.rate = plan.price = WORTH_IT * single;
    int widest = widest_sensible(l, r);
    for (int k = 1; k <= limit && k < widest; k++) {
        forecast f = forecast_pass(l, r, k, behind, trust);
        double rate = f.tokens / f.seconds;
        int worst_fits = affordable(l, r, f.seconds - step, 1);
        if (rate > plan.rate && worst_fits) {
            plan.k = k;
            plan.rate = rate;
        }
    }
    uint64_t since = l->passes - l->width[0].last;
    if (since >= (plan.rate > SAFE * single ? STEP_EVERY_SAFE : STEP_EVERY)) {
        return (gw_length_plan){.rate = single};
    }
    if (plan.k == 0) {
        int few = r->whole ? WHOLE_ROWS - 1 : PROBE_LENGTH;
        int k = limit < few || widest <= few ? 1 : few;
        k = r->whole && limit < few ? limit : k;
        forecast f = forecast_pass(l, r, k, behind, trust);
        plan.k = affordable(l, r, f.seconds - step, 0.5) ? k : 0;
        plan.price = 0; /* a probe is meant to be seen through */
    } else if (plan.k > 0 && r->seconds > 0) {
        double had = r->tokens / r->seconds;
        had = had < plan.rate ? had : plan.rate;
        plan.price = had > single ? had : single;
    }
    return plan;
}

gw_length_plan gw_length_choose(const gw_length *l, const gw_draft_record *r, int limit, int behind,
                                double trust) {
    if (limit <= 0) {
        return (gw_length_plan){0};
    }
    gw_length_plan plan = {.k = l->k < limit ? l->k : limit};
    if (l->mode == GW_LENGTH_COST) {
        plan = choose_by_cost(l, r, limit, behind, trust);
    }
    plan.ready = behind < 0 ? -behind : 0;
    return plan;
}

int gw_length_goes_on(const gw_length *l, const gw_draft_record *r, const gw_length_plan *plan,
                      const float *trust, int n) {
    if (n >= plan->k || l->mode != GW_LENGTH_COST) {
        return n < plan->k;
    }
    double alive = gw_draft_record_chance(r, n);
    for (int i = 0; i < n; i++) {
        alive *= trust[i] < 0 ? gw_draft_record_chance(r, i)
                              : gw_draft_record_trust(r, (double)trust[i]);
    }
    /* One more may not pay where some more do: the first rows of a pass may cost most. */
    double tokens = 0, drafting = 0, now = gw_length_width_seconds(l, n + 1);
    for (int k = n; k < plan->k; k++) {
        tokens += alive;
        drafting += k < plan->ready ? 0 : r->step.seconds;
        double wider = gw_length_width_seconds(l, k + 2) - now;
        double cost = drafting + (wider > 0 ? wider : 0) + tokens * l->pick.seconds;
        if (tokens >= plan->price * cost) {
            return 1;
        }
        alive *= k + 1 < plan->k ? gw_draft_record_chance(r, k + 1) : 0;
    }
    return 0;
}

/* ---- experience ------------------------------------------------------------------------------ */

static void observe(double *tried, double *kept, int yes) {
    *tried = FADE * *tried + 1;
    *kept = FADE * *kept + yes;
}

static void learn_acceptance(gw_draft_record *r, const gw_length_pass *p) {
    for (int j = 0; j < p->drafted && j <= p->accepted; j++) {
        observe(&r->tried[j], &r->kept[j], j < p->accepted);
        if (p->trust[j] >= 0) {
            int bin = trust_bin((double)p->trust[j]);
            observe(&r->bin_tried[bin], &r->bin_kept[bin], j < p->accepted);
        }
    }
}

/* Reading gives the first draft too. Until a step was timed, reading a few tokens stands for it. */
static void time_draft(const gw_length *l, gw_draft_record *r, const gw_length_pass *p) {
    int steps = p->drafted - p->ready - (p->behind > 0);
    if (p->behind > GW_DECODE_MAX) {
        gw_timing_add(&r->catch_up, p->catch_up / p->behind, l->passes);
    } else if (p->behind > 0) {
        gw_timing_add(&r->read, p->catch_up, l->passes);
        if (r->step.n == 0 && !r->whole) {
            gw_timing_add(&r->step, p->catch_up, l->passes);
        }
    }
    if (steps > 0) {
        gw_timing_add(&r->step, p->draft / steps, l->passes);
    }
}

void gw_length_learn(gw_length *l, gw_draft_record *r, const gw_length_pass *p) {
    double actual = p->wasted + p->catch_up + p->draft + p->verify + p->pick;
    double expected = gw_length_width_seconds(l, p->drafted + 1);
    if (r != NULL && p->drafted > 0) {
        expected += draft_seconds(r, p->drafted, p->ready, p->behind);
        learn_acceptance(r, p);
        time_draft(l, r, p);
        r->tokens = RATE_FADE * r->tokens + p->tokens;
        r->seconds = RATE_FADE * r->seconds + actual;
        if (l->mode == GW_LENGTH_HEURISTIC) {
            l->k = p->accepted == p->drafted ? l->k + 2 : l->k - 1;
            l->k = l->k < 1 ? 1 : l->k > GW_DRAFT_MAX ? GW_DRAFT_MAX : l->k;
        }
    }
    double guess = gw_length_width_seconds(l, p->drafted + 1), verify = p->verify;
    if (l->width[p->drafted].n == 0 && guess > 0 && verify > 2 * guess) {
        verify = 2 * guess; /* one sample proves little: an interruption would bar the width */
    }
    l->passes++;
    l->singles = p->drafted == 0 ? l->singles + 1 : 0;
    if (p->drafted == 0 && (l->singles > 1 || !is_warm(l))) {
        time_single(l, verify); /* the first after drafts finds caches as they left them */
    } else if (p->drafted > 0) {
        gw_timing_add(&l->width[p->drafted], verify, l->passes);
    }
    if (p->tokens > 0) {
        gw_timing_add(&l->pick, p->pick / p->tokens, l->passes);
    }
    expected += p->tokens * l->pick.seconds;
    if (expected > 0 && l->passes > 1) {
        l->actual += actual;
        l->expected += expected;
    }
    actual = expected > 0 && actual > INTERRUPTED * expected ? INTERRUPTED * expected : actual;
    double step = gw_length_step_seconds(l);
    l->elapsed += actual;
    double saved = 0;
    if (r != NULL && p->drafted > 0 && step > 0) {
        saved = p->tokens * step - actual;
    } else if (l->singles == 1 && l->passes > 1 && step > 0) { /* drafts have made it slower */
        double most = SLOWER_AFTER * step, late = gw_length_width_seconds(l, 1) - p->verify;
        saved = late > most ? most : late < -most ? -most : late;
    }
    l->saved += saved;
    double most = LEDGER_CAP_STEPS * step;
    l->saved = l->saved < most || step <= 0 ? l->saved : most;
}
