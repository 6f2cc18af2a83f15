/* core/engine/run/session_next.c - a token by the device alone: its plan ends with the draw, and
 * its embedding reads what was drawn, so that a step can begin before the host knows its token. The
 * host reads ids one step late; a step too many is one that nothing looks at. And the tokens behind
 * all rows of a pass, drawn where the logits are, so that only ids are read.
 */
#include <string.h>

#include "core/engine/sampling/sampler.h"
#include "core/engine/run/session_hidden.h"
#include "core/engine/run/session_rows.h"

/* Of `sampled`: ids of as many rows as have logits, then a choice for each. */
enum { CHOICE_AT = 1024, RULES_AT_ONCE = 16 };
_Static_assert((int)CHOICE_AT >= (int)GW_PARALLEL_MAX * (int)sizeof(int32_t), "ids of every row");
_Static_assert(sizeof(gw_choice) == GW_CHOICE_WORDS * sizeof(int32_t), "words without gaps");

/* Most rows behind which tokens are drawn at once. */
static int drawn_rows(const gw_session *s) {
    return s->sharing.widest > GW_DECODE_MAX ? (int)s->logit_rows : GW_DECODE_MAX;
}

static const gw_plan_device *head_of(const gw_session *s) {
    return &s->model->place.devices[s->head_device];
}

/* Does the head's device draw, and embed what it has drawn? */
static int has_kernel(gw_session *s) {
    gw_tensor logits = {.fmt = GW_FMT_F32, .n_dim = 2, .dim = {1, s->model->hp.n_vocab}};
    gw_tensor ids = s->ids_of_rows, choice = s->choice_of_rows;
    gw_group group = gw_place_group(&s->model->place, s->head_device);
    ids.dim[0] = choice.dim[0] = 1;
    gw_node node = {.op = GW_OP_SAMPLE, .in = {&logits, &choice}, .out = &ids};
    int all = 1;
    for (int c = 0; c < group.n; c++) {
        all &= gw_plan_kernel(&s->model->place.devices[group.device[c]], &node) != NULL;
    }
    return all;
}

/* Room for ids and choices on device d, of one row and of many. */
static gw_status make_sampled(gw_session *s, int d) {
    const gw_plan_device *to = &s->model->place.devices[d];
    GW_TRY(to->backend->alloc(to->device, CHOICE_AT + s->logit_rows * sizeof(gw_choice),
                              &s->sampled[d]));
    s->ids[d] = s->ids_of_rows;
    s->choice[d] = s->choice_of_rows;
    s->ids[d].dim[0] = s->choice[d].dim[0] = 1;
    s->ids[d].buf = s->choice[d].buf = s->sampled[d];
    s->ids[d].device = s->choice[d].device = d;
    s->choice[d].offset = CHOICE_AT;
    return GW_OK;
}

/* To the choices of all cards that draw. */
static gw_status write_rules(gw_session *s, size_t at, const gw_choice *rules, size_t bytes) {
    for (int d = 0; d < s->model->place.n_devices; d++) {
        const gw_backend *backend = s->model->place.devices[d].backend;
        GW_TRY(s->sampled[d] != NULL ? backend->write(s->sampled[d], CHOICE_AT + at, rules, bytes)
                                     : GW_OK);
    }
    return GW_OK;
}

/* All that reads tokens on the device that draws: it need not wait for the host. */
static int embeds_there(const gw_session *s) {
    const gw_blueprint *bp = gw_weights_blueprint(s->model->weights);
    int there = 1;
    for (int i = 0; i < (s->model->hp.n_layers + 1) * bp->n_blocks; i++) {
        const gw_spec_block *b = &bp->block[i % bp->n_blocks];
        int reads = b->kind == GW_BLOCK_EMBED || b->kind == GW_BLOCK_NGRAM;
        there &= !reads || !gw_block_runs(b, &s->model->hp, i / bp->n_blocks) ||
                 s->where[i] == s->head_device;
    }
    return there;
}

gw_status gw_next_new(gw_session *s) {
    const gw_plan_device *head = head_of(s);
    gw_group group = gw_place_group(&s->model->place, s->head_device);
    s->ids_of_rows = (gw_tensor){.name = "ids", .fmt = GW_FMT_I32, .n_dim = 2};
    s->ids_of_rows.dim[0] = drawn_rows(s);
    s->ids_of_rows.dim[1] = 1;
    s->choice_of_rows = (gw_tensor){.name = "choice", .fmt = GW_FMT_I32, .n_dim = 2};
    s->choice_of_rows.dim[0] = drawn_rows(s);
    s->choice_of_rows.dim[1] = GW_CHOICE_WORDS;
    if (!has_kernel(s)) {
        return GW_OK;
    }
    for (int c = 0; c < group.n; c++) { /* each embeds what it has drawn */
        GW_TRY(make_sampled(s, group.device[c]));
    }
    s->ids_of_rows.buf = s->choice_of_rows.buf = s->sampled[s->head_device];
    s->ids_of_rows.device = s->choice_of_rows.device = s->head_device;
    s->choice_of_rows.offset = CHOICE_AT;
    for (int i = 0; i < 2 && head->backend->post_new != NULL && embeds_there(s); i++) {
        GW_TRY(head->backend->post_new(head->device, &s->post[i]));
    }
    return GW_OK;
}

void gw_next_free(gw_session *s) {
    for (int i = 0; i < 2; i++) {
        if (s->post[i] != NULL) {
            head_of(s)->backend->post_free(s->post[i]);
        }
    }
    for (int d = 0; d < s->model->place.n_devices; d++) {
        if (s->sampled[d] != NULL) {
            s->model->place.devices[d].backend->release(s->sampled[d]);
        }
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Of the token, or (-1) of the one drawn last, at position pos of a sequence; its id follows by the
 * next post. */
static gw_status start(gw_session *s, int32_t token, int32_t pos, int32_t slot, int32_t less) {
    gw_session_set_step(s, &token, 1, pos);
    s->step.slot[0] = slot;
    s->step.less[0] += less;
    GW_TRY(gw_session_hidden_ask(s, pos));
    GW_TRY(gw_pass_run(s, s->next, gw_plan_start));
    s->turn = !s->turn;
    return s->post[0] == NULL
               ? GW_OK
               : head_of(s)->backend->post(s->post[s->turn], s->sampled[s->head_device], 0);
}

static gw_status take(gw_session *s, int turn, int32_t *id) {
    const gw_backend *head = head_of(s)->backend;
    return s->post[0] != NULL ? head->collect(s->post[turn], id)
                              : head->read(s->sampled[s->head_device], 0, id, sizeof *id);
}

/* The rule of the first n rows. */
static gw_status set_rule(gw_session *s, const gw_choice *rule, int32_t n) {
    gw_choice rules[RULES_AT_ONCE];
    if (n <= s->n_ruled && memcmp(&s->rule, rule, sizeof *rule) == 0) {
        return GW_OK;
    }
    s->ahead = 0;
    s->n_ruled = s->n_rules = 0; /* whatever a write that fails has left */
    for (int32_t i = 0; i < RULES_AT_ONCE; i++) {
        rules[i] = *rule;
    }
    for (int32_t i = 0; i < n; i += RULES_AT_ONCE) {
        size_t some = (size_t)(n - i < RULES_AT_ONCE ? n - i : RULES_AT_ONCE) * sizeof *rule;
        GW_TRY(write_rules(s, (size_t)i * sizeof *rule, rules, some));
    }
    s->rule = *rule;
    s->n_ruled = n;
    return GW_OK;
}

/* The id behind `token`, and with `more` the step after it on its way. */
static gw_status draw(gw_session *s, const gw_choice *rule, int32_t token, int more, int32_t *id) {
    GW_TRY(set_rule(s, rule, 1));
    if (!s->ahead || s->ahead_token != token) {
        GW_TRY(start(s, token, s->pos, 0, 0));
    }
    /* While passes are timed, only what was asked for runs and is counted. */
    more = more && s->post[0] != NULL && s->pos + 1 < s->n_ctx && !s->profiling &&
           s->hidden.watch == NULL;
    int turn = s->turn;
    if (more) {
        GW_TRY(start(s, -1, s->pos + 1, 0, 0));
    }
    GW_TRY(take(s, turn, id));
    s->ahead = more;
    s->ahead_token = *id;
    return GW_OK;
}

/* The same on the host; also finds the words for what makes a draw impossible. */
static gw_status pick(gw_session *s, gw_sampler *sampler, int32_t token, int32_t shifted,
                      int32_t *next) {
    int32_t id, pos = s->pos;
    GW_TRY(gw_session_decode(s, &token, 1));
    gw_status status = gw_sampler_pick(sampler, gw_session_logits(s, 0), s->pos + shifted, &id);
    if (status != GW_OK) {
        (void)gw_session_rewind(s, pos); /* it is there */
        return status;
    }
    *next = id;
    return GW_OK;
}

gw_status gw_session_step(gw_session *s, const gw_choice *rule, int32_t token, int more,
                          int32_t *id) {
    int32_t drawn = -1;
    GW_TRY(gw_session_check_tokens(s, &token, 1));
    GW_TRY(gw_session_check_cancel(s));
    GW_TRY(gw_session_return(s));
    s->n_logits = 0;
    gw_status status = draw(s, rule, token, more, &drawn);
    if (status != GW_OK) {
        s->ahead = 0;
        (void)gw_plan_wait(s->next->plan); /* nothing is still at work */
        return status;
    }
    if (drawn >= 0) {
        s->generated[s->pos] = 1;
        s->tokens[s->pos++] = token;
        GW_TRY(gw_session_hidden_tell(s, s->pos - 1));
    }
    *id = drawn;
    return GW_OK;
}

gw_status gw_session_next(gw_session *s, gw_sampler *sampler, int32_t token, int32_t shifted,
                          int32_t *next) {
    gw_choice rule;
    int32_t id = -1;
    if (gw_sampler_rule(sampler, &rule) && gw_session_draws(s, &rule)) {
        rule.first += shifted;
        GW_TRY(gw_session_step(s, &rule, token, 1, &id));
    }
    if (id < 0) {
        return pick(s, sampler, token, shifted, next);
    }
    *next = id;
    return GW_OK;
}

int gw_session_steps(const gw_session *s) { return s->next != NULL; }

int gw_session_draws(const gw_session *s, const gw_choice *rule) {
    const gw_plan_device *head = head_of(s);
    return s->next != NULL && (!gw_choice_narrows(*rule) || head->backend->narrows == NULL ||
                               head->backend->narrows(head->device));
}
int gw_session_steps_ahead(const gw_session *s) { return s->post[0] != NULL; }

gw_status gw_session_settle(gw_session *s) {
    int ahead = s->ahead;
    s->ahead = 0;
    return ahead ? gw_plan_wait(s->next->plan) : GW_OK;
}

gw_status gw_session_step_row(gw_session *s, const gw_choice *rule, const gw_row *row, int more,
                              int32_t *id) {
    GW_TRY(set_rule(s, rule, 1));
    if (!s->ahead || s->ahead_token != row->token || s->step.pos[0] != row->pos ||
        s->step.slot[0] != row->slot || s->step.less[0] != row->less) {
        GW_TRY(start(s, row->token, row->pos, row->slot, row->less));
    }
    more = more && s->post[0] != NULL && !s->profiling;
    int turn = s->turn;
    if (more) {
        GW_TRY(start(s, -1, row->pos + 1, row->slot, row->less));
    }
    GW_TRY(take(s, turn, id));
    s->ahead = more;
    s->ahead_token = *id;
    return GW_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

gw_status gw_session_draw_rows(gw_session *s) {
    if (s->next == NULL || s->draw != NULL) {
        return GW_OK;
    }
    gw_pass *pass = &s->passes[s->n_passes++];
    gw_layer_range none = {0, 0};
    GW_TRY(gw_pass_build(s, pass, drawn_rows(s), GW_ORDER_DECODE, GW_PASS_DRAW, none));
    GW_TRY(gw_plan_ready(pass->plan, NULL));
    s->draw = pass;
    gw_session_number_rows(s);
    return GW_OK;
}

gw_status gw_session_draw_ids(gw_session *s, int32_t *ids) {
    gw_status status = gw_pass_run(s, s->draw, gw_plan_start);
    gw_status waited = gw_plan_wait(s->draw->plan); /* for the pass before it too */
    GW_TRY(status);
    GW_TRY(waited);
    return head_of(s)->backend->read(s->sampled[s->head_device], 0, ids,
                                     (size_t)s->step.n * sizeof *ids);
}

gw_status gw_session_draw_end(gw_session *s, const gw_choice *rule, int32_t *ids, int *drawn) {
    gw_status status = set_rule(s, rule, s->step.n);
    if (status != GW_OK) {
        (void)gw_plan_wait(s->draw->plan);
        return status;
    }
    GW_TRY(gw_session_draw_ids(s, ids));
    *drawn = 1;
    for (int32_t i = 0; i < s->step.n; i++) {
        *drawn &= ids[i] >= 0;
    }
    if (!*drawn) {
        return gw_session_take_rows(s);
    }
    gw_session_keep_rows(s);
    return gw_session_hidden_tell(s, s->pos - s->step.n);
}

gw_status gw_session_set_rules(gw_session *s, const gw_choice *rules, int32_t n) {
    size_t bytes = (size_t)n * sizeof *rules;
    s->n_ruled = 0; /* of those that are all equal */
    if (n <= s->n_rules && memcmp(s->rules, rules, bytes) == 0) {
        return GW_OK;
    }
    s->n_rules = 0; /* whatever a write that fails has left */
    GW_TRY(write_rules(s, 0, rules, bytes));
    memcpy(s->rules, rules, bytes);
    s->n_rules = n;
    return GW_OK;
}
