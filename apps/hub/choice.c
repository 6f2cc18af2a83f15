/* apps/hub/choice.c - see choice.h. */
#include "apps/hub/choice.h"

#include <stdio.h>
#include <string.h>

#include "apps/common.h"

typedef struct forecast {
    int fits, known;
    double rate;           /* tokens per second if each reads every weight; !known: 1 / bytes */
    size_t first, devices; /* the memories it is in */
    uint64_t held;         /* of it in the first of them */
} forecast;

/* What a text needs next to the weights is not in the list of files: a context of some thousand
 * tokens and scratch take about a gigabyte, more of a large model, less of a tiny one. */
static uint64_t reserve(uint64_t bytes) {
    uint64_t half = bytes / 2, most = 1000000000;
    return bytes / 8 + (half < most ? half : most);
}

static forecast predict(const hub_machine *m, uint64_t bytes) {
    forecast f = {.rate = 1.0 / (double)(bytes + 1), .fits = m == NULL || m->n == 0};
    uint64_t left = bytes, taken = reserve(bytes);
    double seconds = 0;
    int known = 1;
    for (size_t i = 0; m != NULL && i < m->n && left > 0; i++) {
        uint64_t room = m->at[i].room > 0 ? m->at[i].room : UINT64_MAX;
        uint64_t here = room > taken ? room - taken : 0;
        here = here < left ? here : left;
        taken = here > 0 ? 0 : taken; /* a card without room for a layer is not used */
        if (here == 0) {
            continue;
        }
        f.first = f.devices == 0 ? i : f.first;
        f.held = f.devices == 0 ? here : f.held;
        f.devices++;
        known = known && m->at[i].gbps > 0;
        seconds += known ? (double)here / (1e9 * m->at[i].gbps) : 0;
        left -= here;
    }
    f.fits |= left == 0;
    f.known = f.fits && known && seconds > 0;
    f.rate = f.known ? 1.0 / seconds : f.rate;
    return f;
}

static void say(const hub_machine *m, const forecast *f, uint64_t size, size_t n, const char *rule,
                char *why) {
    char held[32], room[32], where[160] = "", rate[64] = "";
    if (m != NULL && m->n > 0) {
        size_t at = f->fits ? f->first : 0;
        uint64_t bytes = m->at[at].room;
        snprintf(where, sizeof where, "; %s%s%s (%s free)",
                 f->devices > 1 ? app_bytes(f->held, held) : "",
                 f->devices > 1 ? " of it in " : "in ", m->at[at].id,
                 bytes > 0 ? app_bytes(bytes, room) : "?");
        if (f->known && size > m->caches) { /* caches are faster than the memory */
            snprintf(rate, sizeof rate, ", about %.*f tokens/s", f->rate < 10, f->rate);
        }
    }
    snprintf(why, HUB_WHY, "of %zu %s%s%s", n, rule, where, rate);
}

size_t choice_best(const hub_machine *m, const hub_choice *rows, size_t n, char *why) {
    forecast of[HUB_CHOICES];
    double fastest = 0;
    size_t best = n, small = n, low = n;
    for (size_t i = 0; i < n; i++) {
        of[i] = predict(m, rows[i].bytes);
        int good = rows[i].bits >= 4;
        fastest = of[i].fits && good && of[i].rate > fastest ? of[i].rate : fastest;
        if (of[i].fits && !good && (low == n || rows[i].bytes > rows[low].bytes)) {
            low = i;
        }
        small = small == n || rows[i].bytes < rows[small].bytes ? i : small;
    }
    for (size_t i = 0; i < n; i++) {
        int near = of[i].fits && rows[i].bits >= 4 && of[i].rate >= 0.8 * fastest;
        int before = best == n ||
                     (rows[i].is_usual != rows[best].is_usual ? rows[i].is_usual
                                                              : rows[i].bytes > rows[best].bytes);
        best = near && before ? i : best;
    }
    const char *rule = "the smallest: none fits";
    if (best < n) {
        rule = rows[best].is_usual ? "Q4_K_M, as usual: near the fastest that fits"
                                   : "the largest near the fastest of four bits or more that fits";
    } else if (low < n) {
        rule = rows[low].bits > 0 ? "the largest that fits: under four bits, texts are worse"
                                  : "the largest that fits";
    }
    best = best < n ? best : low < n ? low : small;
    say(m, &of[best], rows[best].bytes, n, rule, why);
    return best;
}
