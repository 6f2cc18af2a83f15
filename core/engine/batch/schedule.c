/* core/engine/batch/schedule.c - who is admitted, who has pages, who is preempted.
 *
 * Admission is first come, first served within a client and a priority; clients take turns by the
 * tokens of their requests (start-time fair queueing). A sequence is admitted when there is a slot
 * and pages for its prompt and some of its answer, and one more for each that runs. Pages are taken
 * as they are needed, so they can run out: then the newest sequence is preempted. The oldest never
 * is, so something always gets done. */
#include <string.h>

#include "core/engine/batch/batch_state.h"

enum { ANSWER = 128, REST_AFTER = 2, REST_TOKENS = 64 };

static const double aging_seconds = 10.0;

static int32_t page_count(int32_t positions) { return (positions + GW_PAGE - 1) / GW_PAGE; }

uint32_t gw_batch_random(gw_batch *b, uint32_t below) {
    b->random += 0x9e3779b97f4a7c15u; /* splitmix64 (Steele, Lea, Flood 2014) */
    uint64_t x = b->random;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ (x >> 31)) % below);
}

/* ---- the queue ------------------------------------------------------------------------------- */

void gw_seq_enqueue(gw_batch *b, gw_seq *s, int first) {
    s->next = first ? b->first : NULL;
    if (b->first == NULL || first) {
        b->first = s;
        b->last = s->next == NULL ? s : b->last;
    } else {
        b->last->next = s;
        b->last = s;
    }
}

static void remove_behind(gw_batch *b, gw_seq *before) {
    gw_seq **link = before != NULL ? &before->next : &b->first;
    gw_seq *s = *link;
    *link = s->next;
    b->last = b->last == s ? before : b->last;
    s->next = NULL;
}

/* When the client's next request may start, in virtual time. */
static gw_client *client_of(gw_batch *b, uint64_t id) {
    int least = 0;
    for (int i = 0; i < b->n_clients; i++) {
        if (b->clients[i].id == id) {
            return &b->clients[i];
        }
        least = b->clients[i].start < b->clients[least].start ? i : least;
    }
    int at = b->n_clients < GW_CLIENTS ? b->n_clients++ : least;
    b->clients[at] = (gw_client){.id = id, .start = b->virtual_time};
    return &b->clients[at];
}

static double start_of(gw_batch *b, const gw_seq *s) {
    double start = client_of(b, s->r->client)->start;
    return start > b->virtual_time ? start : b->virtual_time;
}

/* Tokens, those of the answer as far as one can know. */
static double cost_of(const gw_seq *s) {
    int32_t most = s->r->max_tokens;
    return (double)s->r->n_prompt + (double)(most >= 0 && most < ANSWER ? most : ANSWER);
}

static void charge(gw_batch *b, const gw_seq *s) {
    double start = start_of(b, s);
    b->virtual_time = start;
    client_of(b, s->r->client)->start = start + cost_of(s);
}

static double level_of(const gw_seq *s, double now) {
    return (double)s->r->priority + (double)(int64_t)((now - s->r->submitted) / aging_seconds);
}

/* 1 when a goes before c, which is in front of it in the queue. */
static int goes_before(gw_batch *b, const gw_seq *a, const gw_seq *c, double now) {
    if ((a->admitted != 0) != (c->admitted != 0)) {
        return a->admitted != 0; /* what was preempted */
    }
    if (a->admitted != 0) {
        return a->admitted < c->admitted;
    }
    double of_a = level_of(a, now), of_c = level_of(c, now);
    return of_a != of_c ? of_a > of_c : start_of(b, a) < start_of(b, c);
}

/* ---- pages ----------------------------------------------------------------------------------- */

void gw_seq_leave(gw_batch *b, gw_seq *s) {
    int32_t at = 0;
    while (s->n_pages > 0) {
        gw_pages_drop(b->pages, s->pages[--s->n_pages]);
    }
    while (b->running[at] != s) {
        at++;
    }
    memmove(b->running + at, b->running + at + 1,
            (size_t)(b->n_running - at - 1) * sizeof(gw_seq *));
    b->n_running--;
    b->slot[s->slot] = NULL;
    gw_drafts_scout_gone(b, s->slot);
    s->slot = -1;
    s->n_named = 0;
    s->drafts.read = 0;
    s->state = GW_SEQ_WAITING;
}

void gw_seq_preempt(gw_batch *b, gw_seq *s) {
    gw_seq_leave(b, s);
    s->pos = 0;
    s->preempted++;
    s->since = 0;
    b->stats.preemptions++;
    gw_seq_enqueue(b, s, 1);
}

void gw_seq_return(const gw_batch *b, gw_seq *s, int32_t pos) {
    s->pos = !b->session->states.any || pos >= s->known ? pos : 0;
}

void gw_seq_advance(const gw_batch *b, gw_seq *s, int32_t end) {
    int32_t oldest = gw_states_oldest(&b->session->states, end - s->pos, end);
    s->known = s->pos == 0 ? 0 : s->known;
    s->known = s->known > oldest ? s->known : oldest;
    s->pos = end;
}

/* The sequence to preempt, or NULL. Paused clients come first, then the most recently admitted; one
 * that was preempted REST_AFTER times and has made fewer than REST_TOKENS tokens since is chosen
 * only if there is no other; the oldest never is, unless its client is paused. */
static gw_seq *victim(gw_batch *b) {
    gw_seq *found = NULL;
    int best = -1;
    for (int32_t i = 0; i < b->n_running; i++) {
        gw_seq *s = b->running[i];
        int held = atomic_load(&s->r->held) != 0;
        int rests = s->preempted >= REST_AFTER && s->since < REST_TOKENS;
        int rank = held ? 2 : !rests;
        if (i > 0 || held) {
            found = rank >= best ? s : found;
            best = rank >= best ? rank : best;
        }
    }
    return found;
}

gw_status gw_batch_map(gw_batch *b, int32_t slot, int32_t first, const int32_t *pages, int32_t n) {
    GW_TRY(gw_rows_map(b->session, slot, first, pages, n));
    return b->drafts.model != NULL ? gw_rows_map(b->drafts.model, slot, first, pages, n) : GW_OK;
}

/* What has come behind its first `from` pages. */
static gw_status map_pages(gw_batch *b, const gw_seq *s, int32_t from) {
    return s->n_pages > from ? gw_batch_map(b, s->slot, from, s->pages + from, s->n_pages - from)
                             : GW_OK;
}

static int32_t reach(const gw_seq *s, int32_t end) {
    return s->n_pages * GW_PAGE < end ? s->n_pages * GW_PAGE : end;
}

gw_status gw_seq_reserve_free(gw_batch *b, gw_seq *s, int32_t end, int32_t *got) {
    int32_t from = s->n_pages;
    gw_pages_count pages = gw_pages_counts(b->pages);
    while (s->n_pages < page_count(end) && pages.all - pages.used - pages.kept > 0) {
        s->pages[s->n_pages++] = gw_pages_take(b->pages);
        pages = gw_pages_counts(b->pages);
    }
    *got = reach(s, end);
    return map_pages(b, s, from);
}

gw_status gw_seq_reserve(gw_batch *b, gw_seq *s, int32_t end, int32_t *got) {
    int32_t need = page_count(end), from = s->n_pages;
    while (s->n_pages < need) {
        int32_t page = gw_pages_take(b->pages);
        if (page >= 0) {
            s->pages[s->n_pages++] = page;
            continue;
        }
        gw_seq *other = victim(b);
        if (other == NULL || other == s) {
            if (other == s && from == s->n_pages) {
                gw_seq_preempt(b, s);
                *got = 0;
                return GW_OK;
            }
            break; /* what there is will do for now */
        }
        gw_seq_preempt(b, other);
    }
    *got = reach(s, end);
    return map_pages(b, s, from);
}

/* Does nobody else look for its pages? */
static int is_private(const gw_batch *b, const gw_request *r) {
    return b->o.no_sharing || (r->no_cache && r->n == 1);
}

/* Whole pages that may be taken from others: one token is always read, and with prompt_logprobs
 * what stands in front of each token of which a row is still wanted. */
static int32_t sharable(const gw_batch *b, const gw_seq *s) {
    const gw_request *r = s->r;
    int wants_rows = r->want_prompt && s->choice == 0 && s->top_rows < r->n_prompt - 1;
    int32_t most = wants_rows ? s->top_rows : r->n_prompt - 1;
    return is_private(b, r) ? 0 : most / GW_PAGE;
}

void gw_seq_publish(gw_batch *b, gw_seq *s) {
    int32_t whole = s->pos / GW_PAGE, most = s->r->n_prompt / GW_PAGE;
    whole = is_private(b, s->r) ? 0 : whole < most ? whole : most;
    int32_t room[GW_PAGE];
    for (; s->n_named < whole; s->n_named++) {
        gw_drafts_page(b, s->pages[s->n_named], s->drafts.read >= (s->n_named + 1) * GW_PAGE);
        s->name = gw_pages_publish(b->pages, s->pages[s->n_named], s->name,
                                   gw_seq_page(s, s->n_named, room));
    }
}

/* May rows of its own follow behind the page of this name, the last of `pages`? Of recurrent blocks
 * it must be known what they know, and a picture whose rows see one another is read as a whole. */
static int goes_on_behind(const gw_batch *b, const gw_seq *s, gw_page_name name, int32_t pages) {
    return (!b->session->states.any || gw_snapshots_has(b, name)) &&
           !gw_views_within(&s->r->views, pages * GW_PAGE);
}

/* Behind the pages that it has, up to `most` that somebody has made; with `fetch` those that are in
 * main memory too. */
static gw_status collect(gw_batch *b, gw_seq *s, int32_t most, int fetch) {
    int32_t found = s->n_pages;
    gw_page_name name = s->name;
    gw_status status = GW_OK;
    int32_t room[GW_PAGE];
    while (found < most) {
        const int32_t *tokens = gw_seq_page(s, found, room);
        int32_t page = fetch ? -1 : gw_pages_find(b->pages, name, tokens);
        status = fetch ? gw_host_find(b, name, tokens, &page) : GW_OK;
        if (page < 0) {
            break;
        }
        name = gw_pages_name(b->pages, page);
        s->pages[found++] = page;
        if (status != GW_OK) {
            break;
        }
        if (goes_on_behind(b, s, name, found)) {
            s->name = name;
            s->n_named = found;
        }
    }
    while (found > s->n_named) {
        gw_pages_drop(b->pages, s->pages[--found]);
    }
    s->n_pages = s->n_named;
    s->pos = s->n_named * GW_PAGE;
    s->drafts.read = gw_drafts_pages_read(b, s->pages, s->n_named) * GW_PAGE;
    return status;
}

/* With what is in main memory. */
static int32_t reach_of(const gw_batch *b, const gw_seq *s, int32_t most) {
    int32_t reach = s->n_named;
    gw_page_name name = s->name;
    int32_t room[GW_PAGE];
    for (int32_t i = reach; i < most && name != 0; i++) {
        name = gw_pages_known(b->pages, name, gw_seq_page(s, i, room));
        reach = name != 0 && goes_on_behind(b, s, name, i + 1) ? i + 1 : reach;
    }
    return reach;
}

/* Pages that somebody has made: those of the cache at once, others when it is admitted. */
static void attach(gw_batch *b, gw_seq *s) {
    int32_t most = sharable(b, s);
    s->name = s->r->root;
    s->n_named = s->n_pages = 0;
    (void)collect(b, s, most, 0);
    s->reach = b->host.n > 0 ? reach_of(b, s, most) : s->n_named;
    s->passed_up = s->reach > s->n_named && !gw_host_pays(b);
    s->reach = s->passed_up ? s->n_named : s->reach;
}

static void detach(gw_batch *b, gw_seq *s) {
    while (s->n_pages > 0) {
        gw_pages_drop(b->pages, s->pages[--s->n_pages]);
    }
    s->pos = s->n_named = s->drafts.read = 0;
}

/* May it have all of its prompt but the last token from another choice of its request? What
 * recurrent blocks knew there may be gone. */
static int forks(const gw_batch *b, const gw_seq *s) {
    return s->r->n > 1 && !is_private(b, s->r) && !b->session->states.any &&
           !gw_views_within(&s->r->views, s->r->n_prompt - 1) &&
           (s->choice != 0 || !s->r->want_prompt);
}

/* Is a running sequence on its way to pages that this one could share? */
static int comes_soon(const gw_batch *b, const gw_seq *s) {
    int32_t most = sharable(b, s);
    for (int32_t i = 0; i < b->n_running; i++) {
        const gw_seq *o = b->running[i];
        int32_t shared = 0, its = o->r->n_prompt / GW_PAGE;
        if (o->r->root != s->r->root || o->pos >= o->r->n_prompt || atomic_load(&o->r->held)) {
            continue;
        }
        if (o->r == s->r && forks(b, s)) {
            return 1;
        }
        int32_t room[2][GW_PAGE];
        while (shared < most && shared < its &&
               memcmp(gw_seq_page(o, shared, room[0]), gw_seq_page(s, shared, room[1]),
                      GW_PAGE * sizeof *s->tokens) == 0) {
            shared++;
        }
        if (b->session->states.any) {
            shared = gw_snapshots_within(o->r->n_prompt, shared);
        }
        if (shared > s->reach) {
            return 1;
        }
    }
    return 0;
}

/* ---- admission ------------------------------------------------------------------------------- */

/* It has its pages; are there enough for what it will want? */
static int has_room(const gw_batch *b, const gw_seq *s) {
    int32_t left = s->r->max_tokens, more = left >= 0 && left < ANSWER ? left : ANSWER;
    int32_t end = s->n + more < b->n_ctx ? s->n + more : b->n_ctx;
    int32_t need = page_count(end) - s->n_pages;
    return b->n_running == 0 || need <= gw_pages_available(b->pages) - b->n_running;
}

/* A choice of the same request that runs and has read the prompt; NULL: none. */
static const gw_seq *reader_of(const gw_request *r) {
    for (int32_t i = 0; i < r->n; i++) {
        const gw_seq *o = &r->seq[i];
        if (o->state == GW_SEQ_RUNNING && o->pos >= r->n_prompt) {
            return o;
        }
    }
    return NULL;
}

/* What stands behind the whole pages of its prompt is copied from another choice, up to the token
 * behind which its own text begins: a page of the cache against as many as 63 rows. */
static gw_status copy_page(gw_batch *b, gw_seq *s) {
    int32_t end = s->r->n_prompt - 1, page = end / GW_PAGE;
    const gw_seq *from = forks(b, s) && s->pos < end ? reader_of(s->r) : NULL;
    int32_t own = from != NULL && s->n_pages == page ? gw_pages_take(b->pages) : -1;
    if (own < 0) {
        return GW_OK;
    }
    s->pages[s->n_pages++] = own;
    gw_session *const of[2] = {b->session, b->drafts.model}; /* which reads prompts beside it */
    for (int i = 0; i < 2 && of[i] != NULL; i++) {
        GW_TRY(gw_rows_copy(of[i], from->slot, s->slot, end - 1, from->pages[page], own,
                            b->copy_room));
    }
    s->drafts.read = from->drafts.read >= end ? end : s->drafts.read;
    s->pos = end;
    return GW_OK;
}

static gw_status start(gw_batch *b, gw_seq *s) {
    gw_request *r = s->r;
    int32_t slot = 0;
    while (b->slot[slot] != NULL) {
        slot++;
    }
    b->slot[slot] = s;
    s->slot = slot;
    s->state = GW_SEQ_RUNNING;
    gw_draft_states_begin(b, slot);
    int32_t at = b->n_running++;
    int again = s->admitted != 0;
    if (!again) {
        s->admitted = ++b->n_admitted;
        charge(b, s);
    }
    for (; at > 0 && b->running[at - 1]->admitted > s->admitted; at--) {
        b->running[at] = b->running[at - 1];
    }
    b->running[at] = s;
    if (s->reach > s->n_named) {
        GW_TRY(collect(b, s, s->reach, 1));
    }
    b->host.fetch.doubts += s->passed_up;
    GW_TRY(copy_page(b, s));
    gw_drafts_scout(b, s);
    GW_TRY(map_pages(b, s, 0));
    if (b->session->states.any && s->pos > 0) {
        GW_TRY(gw_snapshots_load(b, s));
        s->known = s->pos;
    }
    if (!again) {
        b->stats.cached_tokens += (uint64_t)s->pos;
    }
    if (!r->admitted) {
        r->admitted = 1;
        r->n_cached = r->n_read = s->pos;
        r->queued_seconds = gw_seconds_now() - r->submitted;
        atomic_fetch_sub(&b->queued, 1);
        atomic_fetch_sub(&b->queued_tokens, r->n_prompt);
        gw_request_progress(r);
    }
    return GW_OK;
}

/* The next in turn, and what is in front of it in the queue; NULL: nobody. Passed over are those
 * that had better wait for the pages of another. Choices of a request stand side by side and are
 * alike, so the first of them is looked at. */
static gw_seq *next_in_turn(gw_batch *b, uint64_t round, gw_seq **before) {
    gw_seq *best = NULL, *last = NULL;
    double now = gw_seconds_now();
    for (gw_seq *s = b->first; s != NULL; last = s, s = s->next) {
        int alike = last != NULL && last->r == s->r && last->admitted == 0 && s->admitted == 0;
        if (s->r->passed_over == round || atomic_load(&s->r->held) ||
            (alike && b->o.disorder == 0)) {
            continue;
        }
        int better = best == NULL || (b->o.disorder != 0 ? gw_batch_random(b, 2) == 0
                                                         : goes_before(b, s, best, now));
        *before = better ? last : *before;
        best = better ? s : best;
    }
    return best;
}

/* One that has room and nobody reads; NULL: none. */
static gw_seq *held_one(gw_batch *b) {
    gw_seq *s = victim(b);
    return s != NULL && atomic_load(&s->r->held) ? s : NULL;
}

static int preempt_held(gw_batch *b) {
    gw_seq *s = held_one(b);
    if (s != NULL) {
        gw_seq_preempt(b, s);
    }
    return s != NULL;
}

gw_status gw_batch_admit(gw_batch *b) {
    uint64_t round = ++b->n_rounds;
    for (;;) {
        int full = b->n_running == b->parallel && held_one(b) == NULL; /* most often */
        gw_seq *before = NULL, *s = full ? NULL : next_in_turn(b, round, &before);
        if (s == NULL) {
            return GW_OK;
        }
        if (b->n_running == b->parallel) {
            if (!preempt_held(b)) {
                return GW_OK;
            }
            continue;
        }
        GW_TRY(gw_batch_name_pictures(b, s->r));
        attach(b, s);
        if (comes_soon(b, s)) {
            detach(b, s);
            s->r->passed_over = round;
            continue;
        }
        if (!has_room(b, s)) {
            detach(b, s);
            if (!preempt_held(b)) {
                return GW_OK;
            }
            continue;
        }
        remove_behind(b, before);
        GW_TRY(start(b, s));
    }
    return GW_OK;
}

void gw_batch_disturb(gw_batch *b) {
    if (b->n_running > 1 && gw_batch_random(b, 12) == 0) {
        gw_seq_preempt(b, b->running[gw_batch_random(b, (uint32_t)b->n_running)]);
    }
    if (gw_batch_random(b, 8) == 0) {
        for (uint32_t n = gw_batch_random(b, 8); n > 0 && gw_pages_evict(b->pages); n--) {
        }
    }
}
