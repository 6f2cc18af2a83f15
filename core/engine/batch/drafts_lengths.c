/* core/engine/batch/drafts_lengths.c - how many drafts each sequence has in a pass: as many as
 * promise the most tokens per second, by what passes and drafts took and how many stayed. */
#include "core/engine/batch/batch_state.h"

/* Passes after which the time of a width is no longer believed; after which it is taken anew, by a
 * pass without drafts, that drafts are compared with. */
enum { FORGET_AFTER = 256, MEASURE_AFTER = 64 };
/* Drafts in a pass of a text that tries whether the draft model pays. */
enum { PROBE = 4 };
/* Of drafts, how many of them the common experience is worth against a sequence's own; what is left
 * of a sequence's own experience after a draft, and after a pass without any: what did not pay is
 * tried again some time. */
static const double PRIOR = 3, FADE = 0.9, COOL = 0.98, RECORD_FADE = 0.99;
/* What one more row adds to a pass until measured; what drafts must promise. */
static const double ROW_GUESS = 0.06, WORTH_IT = 1.03;

void gw_drafts_time(gw_batch *b, int32_t rows, double seconds) {
    b->drafts.passes++;
    gw_timing_add(&b->drafts.width[rows - 1], seconds, b->drafts.passes);
}

/* The first pass of a width is not believed: what runs it is made ready then. */
double gw_drafts_pass_seconds(const gw_drafts *d, int32_t rows) {
    int32_t low = 0, high = 0;
    for (int32_t w = 1; w <= GW_PARALLEL_MAX && high == 0; w++) {
        const gw_timing *t = &d->width[w - 1];
        if (t->n > 1 && (d->passes - t->last <= FORGET_AFTER || t->n > FORGET_AFTER)) {
            low = w <= rows ? w : low;
            high = w >= rows ? w : 0;
        }
    }
    if (low == 0 && high == 0) {
        return 0.0;
    }
    double at_low = low > 0 ? d->width[low - 1].seconds : 0.0;
    if (low == 0 || low == high) {
        return d->width[high - 1].seconds;
    }
    if (high == 0) {
        return at_low * (1.0 + ROW_GUESS * (rows - low) / low);
    }
    double rise = d->width[high - 1].seconds - at_low;
    return at_low + (rise > 0 ? rise : 0) * (rows - low) / (high - low);
}

/* That the draft number j of a sequence stays when those before do. */
static double chance(const gw_drafts *d, const gw_seq *s, gw_draft_source source, int j) {
    double common = gw_draft_record_chance(&d->record[source], j);
    return (s->drafts.kept + PRIOR * common) / (s->drafts.tried + PRIOR);
}

int32_t gw_drafts_most(const gw_batch *b, const gw_seq *s, int32_t room) {
    int32_t left = b->n_ctx - s->n, answer = s->r->max_tokens;
    int32_t made = s->n - s->r->n_prompt, wanted = answer - made - 1;
    left = answer > 0 && wanted < left ? wanted : left;
    left = left < room ? left : room;
    left = left < GW_DRAFT_MAX ? left : GW_DRAFT_MAX;
    return left > 0 ? left : 0;
}

/* Its next draft, of those that may have one, with the best chance of all; -1: none is left.
 * most [n]: how many each may have; alive [n]: the chance of its last one. */
static int32_t best_next(const gw_batch *b, int32_t n, const int32_t *most, const double *alive,
                         double *value) {
    int32_t best = -1;
    *value = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const gw_seq *s = b->order[i];
        if (s->drafts.n < most[i]) {
            double v = alive[i] * chance(&b->drafts, s, s->drafts.source, s->drafts.n);
            best = v > *value ? i : best;
            *value = v > *value ? v : *value;
        }
    }
    return best;
}

/* A step of the draft model; 0: not known of late, or by its first ones alone, so it is tried. */
static double step_seconds(const gw_drafts *d) {
    int known = d->step.n > 2 && d->passes - d->step.last <= MEASURE_AFTER;
    return known ? d->step.seconds : 0.0;
}

/* Is it known, of late, what a pass of these rows takes without drafts? */
static int is_measured(const gw_drafts *d, int32_t base) {
    const gw_timing *t = &d->width[base > 0 ? base - 1 : 0];
    return base > 0 && t->n > 1 && d->passes - t->last <= MEASURE_AFTER;
}

/* The best beginning of the list of drafts in falling order of their chances. */
static void choose_lengths(gw_batch *b, int32_t n, const int32_t *most, int32_t base,
                           int32_t room) {
    gw_drafts *d = &b->drafts;
    double alive[GW_PARALLEL_MAX], tokens = n, value, drafting = 0.0;
    int32_t order[GW_PARALLEL_MAX], taken = 0, keep = 0, steps = 0;
    double plain = gw_drafts_pass_seconds(d, base), best = WORTH_IT * n / plain;
    for (int32_t i = 0; i < n; i++) {
        alive[i] = 1.0;
    }
    for (; taken < room; taken++) {
        int32_t i = best_next(b, n, most, alive, &value);
        if (i < 0) {
            break;
        }
        gw_seq *s = b->order[i];
        order[taken] = i;
        alive[i] = value;
        s->drafts.n++;
        if (s->drafts.source == GW_DRAFTS_MODEL && s->drafts.n > steps) {
            steps = d->block.rows > 0 ? 1 : s->drafts.n;
            drafting = steps * step_seconds(d);
        }
        tokens += value;
        double seconds = gw_drafts_pass_seconds(d, base + taken + 1) + drafting;
        if (tokens / seconds > best) {
            best = tokens / seconds;
            keep = taken + 1;
        }
    }
    while (taken > keep) {
        b->order[order[--taken]]->drafts.n--;
    }
}

/* So many each, or what is left of the rows; in disorder any number of them. */
static void fixed_lengths(gw_batch *b, int32_t n, const int32_t *most, int32_t room) {
    for (int32_t i = 0; i < n; i++) {
        int32_t k = most[i] < room ? most[i] : room;
        k = b->o.disorder != 0       ? (int32_t)gw_batch_random(b, (uint32_t)k + 1)
            : k < b->drafts.length.k ? k
                                     : b->drafts.length.k;
        b->order[i]->drafts.n = k;
        room -= k;
    }
}

/* While the draft model rests its scout has some drafts in each pass, whatever they promise. */
static void probe(gw_batch *b, int32_t n, const int32_t *most, int32_t room) {
    gw_seq *scout = NULL;
    int32_t free = room, least = 0;
    for (int32_t i = 0; b->drafts.rest.on && i < n; i++) {
        gw_seq *s = b->order[i];
        free -= s->drafts.n;
        if (s->slot == b->drafts.rest.scout && s->drafts.source == GW_DRAFTS_MODEL) {
            least = most[i] < PROBE ? most[i] : PROBE;
            scout = s;
        }
    }
    for (; scout != NULL && free > 0 && scout->drafts.n < least; free--) {
        scout->drafts.n++;
    }
}

void gw_drafts_choose(gw_batch *b, int32_t n, const int32_t *most, int32_t base, int32_t room) {
    const gw_drafts *d = &b->drafts;
    if (d->length.mode == GW_LENGTH_FIXED || b->o.disorder != 0) {
        fixed_lengths(b, n, most, room);
    } else if (is_measured(d, base)) {
        choose_lengths(b, n, most, base, room);
        probe(b, n, most, room);
    }
    for (int32_t i = 0; i < n; i++) {
        gw_seq_drafts *s = &b->order[i]->drafts;
        s->tried *= s->n == 0 ? COOL : 1.0;
        s->kept *= s->n == 0 ? COOL : 1.0;
    }
}

void gw_drafts_learn(gw_batch *b, gw_seq *s, int32_t kept) {
    gw_draft_record *r = &b->drafts.record[s->drafts.source];
    int32_t n = s->drafts.n;
    if (n == 0) {
        return;
    }
    for (int32_t j = 0; j < n && j <= kept; j++) {
        r->tried[j] = RECORD_FADE * r->tried[j] + 1;
        r->kept[j] = RECORD_FADE * r->kept[j] + (j < kept);
        s->drafts.tried = FADE * s->drafts.tried + 1;
        s->drafts.kept = FADE * s->drafts.kept + (j < kept);
    }
    if (s->drafts.source == GW_DRAFTS_MODEL) {
        b->drafts.rest.drafted += n;
        b->drafts.rest.kept += kept;
    }
    b->stats.drafted += (uint64_t)n;
    b->stats.draft_accepted += (uint64_t)kept;
}
