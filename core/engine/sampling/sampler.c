/* core/engine/sampling/sampler.c - chooses tokens from logits: stages in the user's order, then one
 * draw.
 */
#include "core/engine/sampling/sampler.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/options.h"
#include "core/base/text.h"
#include "core/engine/sampling/ban.h"
#include "core/engine/sampling/constraint.h"
#include "core/engine/run/model.h"
#include "core/engine/sampling/sampler_text.h"

enum { STAGES = 13 };

struct gw_sampler {
    gw_sampler_options o;
    int32_t n_vocab;
    gw_candidate *candidates; /* [n_vocab] */
    float *bias;              /* [n_vocab] or NULL */
    int only_forbids;         /* each of them is 0 or -infinity */
    gw_history text;
    int n_ahead;        /* tokens of the text that are only there for now */
    gw_constraint form; /* what the text may look like                    */
    const gw_ban *ban;  /* what may not come, or NULL                     */
    size_t banned;      /* tokens that it left no token of the last list without */
    int n_stages;
    int stages[STAGES]; /* rows of stage_table that are on, in the order they run */
};

/* ---- the stages ------------------------------------------------------------------------------ */

typedef struct stage_call {
    gw_sampler *s;
    gw_candidates *c;
    int32_t pos;
} stage_call;

static int coin(const stage_call *x, uint32_t sequence, float probability) {
    return gw_sampler_uniform(x->s->o.seed, sequence, x->pos) < probability;
}

static void run_penalties(const stage_call *x) {
    const gw_sampler_options *o = &x->s->o;
    gw_stage_penalties(x->c, x->s->text.counts, o->repeat_penalty, o->presence_penalty,
                       o->frequency_penalty);
}
static void run_dry(const stage_call *x) {
    const gw_sampler_options *o = &x->s->o;
    gw_stage_dry(x->c, &x->s->text, o->dry_multiplier, o->dry_base, o->dry_allowed_length,
                 o->dry_last_n);
}
static void run_bias(const stage_call *x) { gw_stage_bias(x->c, x->s->bias); }
static void run_fsd(const stage_call *x) {
    const gw_sampler_options *o = &x->s->o;
    if (x->s->text.written >= o->fsd_random || !coin(x, GW_SEQUENCE_FSD, 0.5f)) {
        gw_stage_fsd(x->c, &x->s->text, o->fsd_alpha, o->fsd_n, o->fsd_k);
    }
}
static void run_top_n_sigma(const stage_call *x) {
    gw_stage_top_n_sigma(x->c, x->s->o.top_n_sigma);
}
static void run_top_k(const stage_call *x) { gw_stage_top_k(x->c, x->s->o.top_k); }
static void run_tail_free(const stage_call *x) { gw_stage_tail_free(x->c, x->s->o.tfs_z); }
static void run_typical(const stage_call *x) { gw_stage_typical(x->c, x->s->o.typical_p); }
static void run_top_p(const stage_call *x) { gw_stage_top_p(x->c, x->s->o.top_p); }
static void run_min_p(const stage_call *x) { gw_stage_min_p(x->c, x->s->o.min_p); }
static void run_xtc(const stage_call *x) {
    if (coin(x, GW_SEQUENCE_XTC, x->s->o.xtc_probability)) {
        gw_stage_xtc(x->c, x->s->o.xtc_threshold);
    }
}
static void run_temperature(const stage_call *x) {
    const gw_sampler_options *o = &x->s->o;
    if (o->dynatemp_range > 0) {
        gw_stage_dynamic_temperature(x->c, o->temperature, o->dynatemp_range, o->dynatemp_exponent);
    } else {
        gw_stage_temperature(x->c, o->temperature);
    }
}
static void run_mirostat(const stage_call *x) {
    gw_history *text = &x->s->text;
    gw_stage_mirostat(x->c, x->s->o.mirostat, text->mu, x->s->n_vocab, text->surprise);
}

static int on_penalties(const gw_sampler *s) { return s->text.counts != NULL; }
static int on_dry(const gw_sampler *s) { return s->text.reach != NULL; }
static int on_bias(const gw_sampler *s) { return s->bias != NULL; }
static int on_fsd(const gw_sampler *s) { return s->o.fsd_alpha > 0; }
static int on_top_n_sigma(const gw_sampler *s) { return s->o.top_n_sigma > 0; }
static int on_top_k(const gw_sampler *s) { return s->o.top_k > 0; }
static int on_tail_free(const gw_sampler *s) { return s->o.tfs_z < 1; }
static int on_typical(const gw_sampler *s) { return s->o.typical_p < 1; }
static int on_top_p(const gw_sampler *s) { return s->o.top_p < 1; }
static int on_min_p(const gw_sampler *s) { return s->o.min_p > 0; }
static int on_xtc(const gw_sampler *s) { return s->o.xtc_probability > 0; }
static int on_temperature(const gw_sampler *s) {
    return s->o.temperature > 0 && (s->o.temperature != 1 || s->o.dynatemp_range > 0);
}
static int on_mirostat(const gw_sampler *s) { return s->o.mirostat != 0; }

enum {
    SHORTENS = 1,
    MOVES = 2
}; /* drops candidates whatever happens; may unseat the best, or has
      to see every list */

/* Rows in the order that is used when none is asked for. */
static const struct {
    const char *name, *others; /* other spellings, each between spaces */
    int (*on)(const gw_sampler *s);
    void (*run)(const stage_call *x);
    int effect;
} stage_table[STAGES] = {
    {"penalties", "", on_penalties, run_penalties, MOVES},
    {"dry", "", on_dry, run_dry, MOVES},
    {"bias", " logit-bias ", on_bias, run_bias, MOVES},
    {"fsd", "", on_fsd, run_fsd, MOVES},
    {"top-n-sigma", "", on_top_n_sigma, run_top_n_sigma, SHORTENS},
    {"top-k", "", on_top_k, run_top_k, SHORTENS},
    {"tail-free", " tfs tfs-z ", on_tail_free, run_tail_free, SHORTENS},
    {"typical", " typ-p typical-p ", on_typical, run_typical, SHORTENS | MOVES},
    {"top-p", "", on_top_p, run_top_p, SHORTENS},
    {"min-p", "", on_min_p, run_min_p, SHORTENS},
    {"xtc", "", on_xtc, run_xtc, MOVES},
    {"temperature", " temp ", on_temperature, run_temperature, 0},
    {"mirostat", "", on_mirostat, run_mirostat, SHORTENS | MOVES},
};

#define MIROSTAT_ORDER "penalties;dry;bias;temperature;mirostat"

static int find_stage(const char *text, size_t bytes) {
    char name[24] = " ";
    if (bytes == 0 || bytes + 3 > sizeof name) {
        return STAGES;
    }
    for (size_t i = 0; i < bytes; i++) { /* '_' is as good as '-' */
        name[i + 1] = text[i];
        if (text[i] == '_') {
            name[i + 1] = '-';
        }
    }
    int row = 0;
    name[bytes + 1] = '\0';
    while (row < STAGES && strcmp(stage_table[row].name, name + 1) != 0) {
        row++;
    }
    if (row < STAGES || strchr(name + 1, ' ') != NULL) {
        return row;
    }
    name[bytes + 1] = ' ';
    name[bytes + 2] = '\0';
    row = 0;
    while (row < STAGES && strstr(stage_table[row].others, name) == NULL) {
        row++;
    }
    return row;
}

static gw_status unknown_stage(const char *at, size_t bytes) {
    enum { NAME_BYTES = 24 }; /* with its comma; a longer one, or many, end the list earlier */
    char names[STAGES * NAME_BYTES] = "";
    for (int row = 0; row < STAGES; row++) {
        gw_text_append(names, sizeof names, "%s%s", row > 0 ? ", " : "", stage_table[row].name);
    }
    return gw_fail(GW_E_ARGUMENT, "sampler order",
                   "unknown stage '%.*s'; there are %s, separated by ';'",
                   bytes < 40 ? (int)bytes : 40, at, names);
}

/* Rows that are on, in the order asked for. */
static gw_status parse_order(const char *order, gw_sampler *s) {
    unsigned seen = 0;
    if (order == NULL && s->o.mirostat != 0) {
        order = MIROSTAT_ORDER;
    }
    for (int row = 0; order == NULL && row < STAGES; row++) {
        if (stage_table[row].on(s)) {
            s->stages[s->n_stages++] = row;
        }
    }
    for (const char *at = order; at != NULL && *at != '\0';) {
        at += strspn(at, " ");
        size_t n = strcspn(at, ";");
        int row = find_stage(at, n);
        if (row == STAGES) {
            return unknown_stage(at, n);
        }
        if (seen & 1u << row) {
            return gw_fail(GW_E_ARGUMENT, "sampler order", "stage '%s' occurs twice",
                           stage_table[row].name);
        }
        seen |= 1u << row;
        if (stage_table[row].on(s)) {
            s->stages[s->n_stages++] = row;
        }
        at += n;
        at += *at == ';';
    }
    return GW_OK;
}

static int any_effect(const gw_sampler *s, int effect) {
    for (int i = 0; i < s->n_stages; i++) {
        if (stage_table[s->stages[i]].effect & effect) {
            return 1;
        }
    }
    return 0;
}

/* ---- options --------------------------------------------------------------------------------- */

static gw_status check_reals(const gw_sampler_options *o) {
    const struct {
        const char *name;
        float value, min, max;
    } ranges[] = {
        {"temperature", o->temperature, 0, 1000},
        {"top_p", o->top_p, 0, 1},
        {"min_p", o->min_p, 0, 1},
        {"typical_p", o->typical_p, 0, 1},
        {"repeat_penalty", o->repeat_penalty, 0.001f, 1000},
        {"presence_penalty", o->presence_penalty, -1000, 1000},
        {"frequency_penalty", o->frequency_penalty, -1000, 1000},
        {"dynatemp_range", o->dynatemp_range, 0, 1000},
        {"dynatemp_exponent", o->dynatemp_exponent, 0, 100},
        {"top_n_sigma", o->top_n_sigma, -1, 1000},
        {"tfs_z", o->tfs_z, 0, 1},
        {"xtc_probability", o->xtc_probability, 0, 1},
        {"xtc_threshold", o->xtc_threshold, 0, 1},
        {"mirostat_tau", o->mirostat_tau, 0, 100},
        {"mirostat_eta", o->mirostat_eta, 0, 10},
        {"dry_multiplier", o->dry_multiplier, 0, 1000},
        {"dry_base", o->dry_base, 1, 1000},
        {"fsd_alpha", o->fsd_alpha, 0, 1},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max)) {
            return gw_fail(GW_E_ARGUMENT, ranges[i].name, "%g is not between %g and %g",
                           (double)ranges[i].value, (double)ranges[i].min, (double)ranges[i].max);
        }
    }
    return GW_OK;
}

static gw_status check_options(const gw_sampler_options *o, int32_t n_vocab) {
    const struct {
        const char *name;
        int32_t value, min, max;
    } ranges[] = {
        {"top_k", o->top_k, 0, INT32_MAX},
        {"repeat_last_n", o->repeat_last_n, -1, 1 << 24},
        {"mirostat", o->mirostat, 0, 2},
        {"dry_allowed_length", o->dry_allowed_length, 1, 1 << 20},
        {"dry_last_n", o->dry_last_n, -1, GW_HISTORY_ALL},
        {"fsd_n", o->fsd_n, 1, GW_FSD_N_MAX},
        {"fsd_k", o->fsd_k, 1, GW_FSD_K_MAX},
        {"fsd_random", o->fsd_random, 0, INT32_MAX},
    };
    GW_TRY(check_reals(o));
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max) {
            return gw_fail(GW_E_ARGUMENT, ranges[i].name, "%d is not between %d and %d",
                           (int)ranges[i].value, (int)ranges[i].min, (int)ranges[i].max);
        }
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].token < 0 || o->bias[i].token >= n_vocab) {
            return gw_fail(GW_E_ARGUMENT, "logit bias", "token %d is not between 0 and %d",
                           (int)o->bias[i].token, (int)n_vocab - 1);
        }
        if (!(o->bias[i].bias < INFINITY)) { /* NaN too; -infinity forbids the token */
            return gw_fail(GW_E_ARGUMENT, "logit bias", "the bias of token %d is not a number",
                           (int)o->bias[i].token);
        }
    }
    return GW_OK;
}

static gw_sampler_options defaults(void) {
    return (gw_sampler_options){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .typical_p = 1.0f,
        .repeat_penalty = 1.0f,
        .repeat_last_n = 64,
        .dynatemp_exponent = 1.0f,
        .tfs_z = 1.0f,
        .xtc_threshold = 0.1f,
        .mirostat_tau = 5.0f,
        .mirostat_eta = 0.1f,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_last_n = -1,
        .fsd_n = 3,
        .fsd_k = 6,
    };
}

void gw_sampler_defaults_sized(gw_sampler_options *out, size_t size) {
    const gw_sampler_options own = defaults();
    memset(out, 0, size);
    memcpy(out, &own, size < sizeof own ? size : sizeof own);
}

/* ---- life ------------------------------------------------------------------------------------ */

static gw_status take_buffers(gw_sampler *s, const gw_pieces *pieces) {
    size_t n = (size_t)s->n_vocab;
    s->candidates = calloc(n, sizeof *s->candidates);
    if (s->o.n_bias > 0) {
        s->bias = calloc(n, sizeof *s->bias);
    }
    if (s->candidates == NULL || (s->o.n_bias > 0 && s->bias == NULL)) {
        return gw_fail(GW_E_NOMEM, "sampler", "no memory for %zu tokens", n);
    }
    s->only_forbids = 1;
    for (size_t i = 0; i < s->o.n_bias; i++) {
        s->only_forbids &= s->o.bias[i].bias == -INFINITY;
        s->bias[s->o.bias[i].token] += s->o.bias[i].bias;
    }
    return gw_history_open(&s->text, s->n_vocab, &s->o, pieces);
}

static void piece_of(const void *tokenizer, int32_t id, const char **text, size_t *bytes) {
    gw_tokenizer_piece(tokenizer, id, 0, text, bytes);
}

gw_status gw_sampler_new_sized(const gw_model *model, const gw_sampler_options *options,
                               size_t size, gw_sampler **out) {
    gw_sampler_options own = defaults();
    GW_TRY(gw_options_take(&own, sizeof own, options, size, "sampler"));
    gw_pieces pieces = {.piece = piece_of, .vocab = gw_model_tokenizer(model)};
    return gw_sampler_make(gw_model_n_vocab(model), &own, pieces.vocab != NULL ? &pieces : NULL,
                           out);
}

gw_status gw_sampler_make(int32_t n_vocab, const gw_sampler_options *options,
                          const gw_pieces *pieces, gw_sampler **out) {
    GW_TRY(check_options(options, n_vocab));
    gw_sampler *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, "sampler", "no memory");
    }
    s->o = *options;
    if (s->o.temperature < GW_GREEDY_BELOW) {
        s->o.temperature = 0.0f;
    }
    s->n_vocab = n_vocab;
    gw_status status = take_buffers(s, pieces);
    if (status == GW_OK) {
        status = parse_order(options->order, s);
    }
    s->o.order = NULL; /* the caller's; not kept */
    s->o.bias = NULL;
    s->o.dry_breakers = NULL;
    if (status != GW_OK) {
        gw_sampler_free(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

void gw_sampler_free(gw_sampler *s) {
    if (s != NULL) {
        gw_history_free(&s->text);
        gw_constraint_free(&s->form);
        free(s->candidates);
        free(s->bias);
        free(s);
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* The largest logit, lowest token first; -1 when none is finite or the largest is infinite. */
static int32_t best_of(const float *logits, int32_t n) {
    float most = gw_logits_top(logits, (size_t)n);
    int32_t best = 0;
    if (!(most > -INFINITY && most < INFINITY)) {
        return -1;
    }
    while (logits[best] != most) {
        best++;
    }
    return best;
}

/* The list that the first stage is given; top-k, as a rule, wants no more than it keeps. */
static gw_status offer(gw_sampler *s, const float *logits, int32_t n, int32_t pos,
                       gw_candidates *c) {
    int free = s->form.matcher == NULL && s->ban == NULL;
    s->banned = 0;
    if (free && s->n_stages > 0 && stage_table[s->stages[0]].run == run_top_k &&
        gw_candidates_fill_top(c, logits, n, (size_t)s->o.top_k)) {
        return GW_OK;
    }
    gw_candidates_fill(c, logits, n);
    GW_TRY(gw_constraint_apply(&s->form, c));
    s->banned = s->ban != NULL ? gw_ban_filter(s->ban, c, pos) : 0;
    s->banned = c->n == 0 ? s->banned : 0;
    return GW_OK;
}

gw_status gw_sampler_narrow(gw_sampler *s, const float *logits, int32_t n, int32_t pos,
                            gw_candidates *out) {
    gw_candidates c = {.at = s->candidates};
    if (best_of(logits, n) < 0) {
        return gw_fail(GW_E_NUMERIC, "logits",
                       "no finite largest value at position %d: the weights or the numbers of "
                       "this model are broken",
                       (int)pos);
    }
    GW_TRY(offer(s, logits, n, pos, &c));
    stage_call call = {.s = s, .c = &c, .pos = pos};
    for (int i = 0; i < s->n_stages && c.n > 0; i++) {
        stage_table[s->stages[i]].run(&call);
    }
    s->text.offered = 1;
    *out = c;
    return GW_OK;
}

gw_status gw_sampler_blame(const gw_sampler *s, int32_t pos) {
    if (s->banned > 0) {
        return gw_fail(
            GW_E_NUMERIC, "banned strings", "%s %zu tokens at position %d, and each leads to one",
            s->form.matcher != NULL ? "the grammar allows" : "there are", s->banned, (int)pos);
    }
    return gw_constraint_blame(&s->form, pos);
}

gw_status gw_sampler_choose(const gw_sampler *s, const gw_candidates *c, int32_t pos,
                            int32_t *token) {
    size_t chosen =
        s->o.temperature > 0.0f ? gw_candidates_draw(c, s->o.seed, pos) : gw_candidates_best(c);
    if (chosen == c->n) {
        return gw_sampler_blame(s, pos);
    }
    *token = c->at[chosen].token;
    return GW_OK;
}

gw_status gw_sampler_pick(gw_sampler *s, const float *logits, int32_t pos, int32_t *token) {
    int plain = !(s->o.temperature > 0.0f) && s->form.matcher == NULL && s->ban == NULL &&
                !any_effect(s, MOVES);
    int32_t best = plain ? best_of(logits, s->n_vocab) : -1;
    if (best >= 0) {
        *token = best;
        return GW_OK;
    }
    gw_candidates c;
    GW_TRY(gw_sampler_narrow(s, logits, s->n_vocab, pos, &c));
    return gw_sampler_choose(s, &c, pos, token);
}

/* The place of a stage in what a device can do, from 1 on; 0: none. */
static int place_of(const gw_sampler *s, int row) {
    void (*run)(const stage_call *) = stage_table[row].run;
    return run == run_top_k                                       ? 1
           : run == run_top_p                                     ? 2
           : run == run_min_p                                     ? 3
           : run == run_temperature && !(s->o.dynatemp_range > 0) ? 4
                                                                  : 0;
}

/* A draw goes on with top-k, top-p, min-p and then temperature, if with anything; the most probable
 * token is what it is as long as no stage may move it. Stage `but` counts as if it were not there.
 */
static int rule_without(const gw_sampler *s, void (*but)(const stage_call *), gw_choice *out) {
    gw_choice c = {
        .seed_low = (gw_u32)s->o.seed, .seed_high = (gw_u32)(s->o.seed >> 32), .first = 1};
    int drawn = s->o.temperature > 0.0f, moved = 0, last = 0;
    if (s->form.matcher != NULL || s->ban != NULL) {
        return 0;
    }
    c.temperature = drawn ? 1.0f : 0.0f;
    for (int i = 0; i < s->n_stages; i++) {
        int place = place_of(s, s->stages[i]);
        if (stage_table[s->stages[i]].run == but) {
            continue;
        }
        moved |= stage_table[s->stages[i]].effect & MOVES;
        if (!drawn) {
            continue;
        }
        if (place <= last) {
            return 0;
        }
        c.top_k = place == 1 ? s->o.top_k : c.top_k;
        c.top_p = place == 2 ? fmaxf(s->o.top_p, FLT_MIN) : c.top_p; /* one token at least */
        c.min_p = place == 3 ? s->o.min_p : c.min_p;
        c.temperature = place == 4 ? s->o.temperature : c.temperature;
        last = place;
    }
    *out = c;
    return drawn ? !gw_choice_narrows(c) ||
                       (gw_choice_filters(c, s->n_vocab) && c.top_k <= GW_CHOICE_RANKED)
                 : !moved;
}

int gw_sampler_rule(const gw_sampler *s, gw_choice *out) { return rule_without(s, NULL, out); }

/* A token that is forbidden has no say in which of the others has the best score; but it may be one
 * of those that a narrowed list keeps. */
int gw_sampler_rule_unless(const gw_sampler *s, gw_choice *out) {
    if (s->bias == NULL || !s->only_forbids) {
        return gw_sampler_rule(s, out);
    }
    return rule_without(s, run_bias, out) && !gw_choice_narrows(*out) && out->top_k == 0;
}

int gw_sampler_forbids(const gw_sampler *s, int32_t token) {
    return s->bias != NULL && s->bias[token] == -INFINITY;
}

/* ---- the text -------------------------------------------------------------------------------- */

gw_status gw_sampler_accept(gw_sampler *s, int32_t token) {
    if (token < 0 || token >= s->n_vocab) {
        return gw_fail(GW_E_ARGUMENT, "token", "%d is not between 0 and %d", (int)token,
                       (int)s->n_vocab - 1);
    }
    GW_TRY(gw_constraint_accept(&s->form, token));
    gw_history_push(&s->text, token);
    return GW_OK;
}

gw_status gw_sampler_rewind(gw_sampler *s, size_t n) {
    if (!gw_history_reaches(&s->text, n)) {
        return gw_fail(GW_E_ARGUMENT, "sampler",
                       "the last %zu of %lld tokens cannot be forgotten any more", n,
                       (long long)s->text.n);
    }
    GW_TRY(gw_constraint_rewind(&s->form, n));
    for (; n > 0; n--) {
        gw_history_pop(&s->text);
    }
    return GW_OK;
}

void gw_sampler_ahead(gw_sampler *s, int32_t token) {
    gw_constraint_ahead(&s->form, token);
    gw_history_push(&s->text, token);
    s->n_ahead++;
}

void gw_sampler_back(gw_sampler *s) {
    gw_constraint_back(&s->form);
    for (; s->n_ahead > 0; s->n_ahead--) {
        gw_history_pop(&s->text);
    }
}

gw_status gw_sampler_ban(gw_sampler *s, const gw_ban *ban) {
    if (ban != NULL && gw_ban_vocab(ban) != s->n_vocab) {
        return gw_fail(GW_E_ARGUMENT, "ban", "made for %d tokens, this model has %d",
                       (int)gw_ban_vocab(ban), (int)s->n_vocab);
    }
    s->ban = ban;
    return GW_OK;
}

gw_constraint *gw_sampler_constraint(gw_sampler *s) { return &s->form; }
int32_t gw_sampler_vocab(const gw_sampler *s) { return s->n_vocab; }
uint64_t gw_sampler_seed(const gw_sampler *s) { return s->o.seed; }
int gw_sampler_is_greedy(const gw_sampler *s) { return !(s->o.temperature > 0.0f); }
int gw_sampler_filters(const gw_sampler *s) { return any_effect(s, SHORTENS); }
