/* core/engine/run/session_file.c - a session's tokens and cache to a file and back, or to another
 * session.
 *
 * File, in the machine's byte order (a little-endian one; others refuse the version):
 *   head    72 bytes: magic, version, identity of the model, format and shape of the cache, counts
 *   words   u64 [layers]: in which arithmetic the layer's prompt was computed
 *   tokens  i32 [tokens]
 *   check   u64 of head, words and tokens
 *   sights  where pictures stand in the timeline: session_pictures.h
 *   cache   for every page of 64 positions: K and V of every layer, as on the device; positions
 *           that are not of the timeline are zero, and pages that a layer with a window has let go
 *   states  where the model has recurrent blocks or windows: of every token a byte, 1 where it was
 *           computed as a generated one; and every recurrent block's state behind the last token
 *   check   u64 of everything before it
 *
 * A check is SipHash-1-3 chained over pieces: it finds damage; it does not stop a forger, whose
 * numbers could change a text but harm nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/os.h"
#include "core/base/save.h"
#include "core/base/size.h"
#include "core/engine/run/session_pictures.h"
#include "core/engine/run/session_state.h"
#include "include/godwit_bind.h"

enum { VERSION = 12 }; /* of the format and of the arithmetic (docs/arithmetic.md) */
static const char magic[8] = {'G', 'W', 'C', 'A', 'C', 'H', 'E', '\n'};

typedef struct head {
    char magic[8];
    uint32_t version, fmt;
    uint64_t model[2];
    int32_t n_layers, kv_heads, d_head, page, tokens, prompted;
    int32_t floor;    /* of the cache: gw_kv */
    int32_t pictures; /* runs of rows of pictures */
    uint64_t bytes;   /* of the whole file */
} head;
_Static_assert(sizeof(head) == 72, "the head has no gaps");

/* ---- which model ---------------------------------------------------------------------------- */

typedef struct digest {
    uint64_t h, pieces;
} digest;

static void digest_add(digest *d, const void *data, size_t n) {
    uint64_t key[2] = {d->h, d->pieces++};
    d->h = gw_hash_bytes(key, data, n);
}

static void digest_text(digest *d, const char *text) { digest_add(d, text, strlen(text)); }

/* Everything of a tensor but most of its values: another training run changes all of them, so that
 * a few pieces spread over it tell. */
static void digest_tensor(digest *d, const gw_stored *t) {
    enum { PIECES = 8, PIECE = 256 };
    digest_text(d, t->name);
    digest_text(d, gw_format_of(t->fmt)->name);
    digest_add(d, t->dim, (size_t)t->n_dim * sizeof t->dim[0]);
    size_t piece = t->bytes < PIECE ? t->bytes : PIECE;
    for (size_t i = 0; i < PIECES; i++) {
        digest_add(d, (const char *)t->data + (t->bytes - piece) / (PIECES - 1) * i, piece);
    }
}

/* The blueprint with all numbers filled in: what every layer computes, and how. */
static void digest_blueprint(digest *d, const gw_model *m) {
    const gw_hparams *hp = &m->hp;
    const gw_blueprint *bp = gw_weights_blueprint(m->weights);
    digest_text(d, hp->family);
    for (int i = 0; i < bp->n_blocks; i++) {
        const gw_spec_block *b = &bp->block[i];
        const int words[] = {(int)b->kind,  (int)b->section, b->layer_kind, b->in,
                             b->side,       b->out,          (int)b->flags, (int)b->act,
                             b->act_number, b->plus,         (int)b->score, b->weight[0],
                             b->weight[1],  b->weight[2],    b->weight[3],  b->weight[4],
                             b->weight[5],  b->more};
        digest_add(d, words, sizeof words);
    }
    for (int l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        const int32_t words[] = {y->kind,      y->n_heads, y->n_kv_heads, y->d_head,   y->v_head,
                                 y->d_ff,      y->window,  y->chunk,      y->rope,     y->q_factor,
                                 y->n_experts, y->n_used,  y->d_expert,   y->cache_of, y->v_first};
        const float reals[] = {y->attn_scale, y->attn_cap};
        digest_add(d, words, sizeof words);
        digest_add(d, reals, sizeof reals);
        digest_add(d, hp->values + (size_t)l * (size_t)hp->n_values,
                   (size_t)hp->n_values * sizeof *hp->values);
    }
    for (int r = 0; r < hp->n_ropes; r++) {
        const gw_rope *y = &hp->rope[r];
        const int64_t words[] = {y->dim,     y->turning,      y->style,
                                 y->scaling, y->original_ctx, y->truncate};
        const double reals[] = {y->base,      y->factor,    y->low_freq,    y->high_freq,
                                y->beta_fast, y->beta_slow, y->attn_factor, y->long_attn_factor};
        digest_add(d, words, sizeof words);
        digest_add(d, reals, sizeof reals);
    }
    digest_text(d, m->converted);
}

/* The model, and the adapters that the text has. */
static void identify(const gw_session *s, uint64_t out[2]) {
    const gw_model *m = s->model;
    uint64_t lora = gw_lora_row_digest(m, &s->adapting.own);
    digest d = {.h = VERSION};
    digest_blueprint(&d, m);
    for (size_t i = 0; i < gw_checkpoint_count(m->checkpoint); i++) {
        digest_tensor(&d, gw_checkpoint_at(m->checkpoint, i));
    }
    if (lora != 0) {
        digest_add(&d, &lora, sizeof lora);
    }
    out[0] = d.h;
    digest_text(&d, "second word");
    out[1] = d.h;
}

/* ---- which arithmetic ----------------------------------------------------------------------- */

/* Of every layer a word of the kernels that its prompts run through: 0 where all of them compute as
 * docs/arithmetic.md says, on whatever device. malloc'd; NULL without memory. */
static uint64_t *arithmetic_of(const gw_session *s) {
    const int32_t n_layers = s->model->hp.n_layers;
    uint64_t *words = calloc((size_t)n_layers, sizeof *words);
    for (int p = s->first_prompt_pass; words != NULL && p < s->n_prompt_passes; p++) {
        for (size_t i = 0; i < gw_plan_size(s->passes[p].plan); i++) {
            const gw_node *node = gw_plan_node(s->passes[p].plan, i);
            const gw_plan_device *d = &s->model->place.devices[node->device];
            char name[GW_ARITHMETIC_BYTES] = "";
            if (d->backend->arithmetic != NULL) {
                d->backend->arithmetic(d->device, node, name);
            }
            int layer = node->layer < 0 ? 0 : node->layer < n_layers ? node->layer : n_layers - 1;
            digest word = {.h = words[layer], .pieces = 1};
            if (name[0] != '\0') {
                digest_text(&word, node->what);
                digest_text(&word, name);
                words[layer] = word.h;
            }
        }
    }
    return words;
}

static gw_status no_memory(const char *path) {
    return gw_fail(GW_E_NOMEM, path, "no memory to read or write it");
}

/* ---- shape ---------------------------------------------------------------------------------- */

static int32_t pages_of(int32_t tokens) { return tokens / GW_PAGE + (tokens % GW_PAGE != 0); }

/* May tokens have to run again, each in the order it had? */
static int runs_again(const gw_session *s) {
    return s->states.any || gw_kv_windowed(&s->model->hp);
}

static gw_status describe(const gw_session *s, const char *path, int32_t tokens, head *out) {
    const gw_hparams *hp = &s->model->hp;
    uint64_t cells = gw_kv_pages_bytes(&s->kv), all;
    uint64_t words = (uint64_t)hp->n_layers * sizeof(uint64_t);
    if (tokens > 0) {
        words += (runs_again(s) ? (uint64_t)tokens : 0) +
                 (s->states.any ? gw_states_all_entries(&s->states) : 0);
    }
    if (!gw_size_mul(cells, (uint64_t)pages_of(tokens), &cells) ||
        !gw_size_add(cells, sizeof(head) + words + 4 * (uint64_t)tokens + 16, &all) ||
        all > INT64_MAX) {
        return gw_fail(GW_E_OVERFLOW, path, "%d tokens do not fit a file", (int)tokens);
    }
    *out = (head){.version = VERSION,
                  .fmt = gw_kv_number(s->kv.fmt),
                  .n_layers = hp->n_layers,
                  .kv_heads = hp->layer[0].n_kv_heads,
                  .d_head = hp->layer[0].d_head,
                  .page = GW_PAGE,
                  .tokens = tokens,
                  .bytes = all};
    memcpy(out->magic, magic, sizeof magic);
    identify(s, out->model);
    return GW_OK;
}

/* ---- saving --------------------------------------------------------------------------------- */

typedef struct writer {
    gw_save file;
    digest check;
} writer;

static gw_status put(writer *w, const void *data, size_t n) {
    digest_add(&w->check, data, n);
    return gw_save_write(&w->file, data, n);
}

static gw_status put_more(void *user, const void *data, size_t n) { return put(user, data, n); }

static gw_status put_pages(gw_session *s, writer *w, char *room) {
    for (int32_t page = 0; page < pages_of(s->pos); page++) {
        for (int i = 0; i < GW_KV_PARTS * s->model->hp.n_layers; i++) {
            GW_TRY(gw_session_check_cancel(s));
            GW_TRY(gw_kv_read_page(&s->kv, i / GW_KV_PARTS, i % GW_KV_PARTS, page, room));
            if (s->pos - page * GW_PAGE < GW_PAGE) {
                gw_kv_blank(&s->kv, i / GW_KV_PARTS, i % GW_KV_PARTS, s->pos - page * GW_PAGE,
                            room);
            }
            GW_TRY(put(w, room, gw_kv_page_bytes(&s->kv, i / GW_KV_PARTS, i % GW_KV_PARTS)));
        }
    }
    return GW_OK;
}

/* room: the largest page or state. */
static gw_status put_states(gw_session *s, writer *w, char *room) {
    if (runs_again(s)) {
        GW_TRY(put(w, s->generated, (size_t)s->pos));
    }
    for (int i = 0; i < s->states.n && s->states.any && s->pos > 0; i++) {
        GW_TRY(gw_states_read(&s->states, i, s->pos, room));
        GW_TRY(put(w, room, gw_states_entry_bytes(&s->states, i)));
    }
    return GW_OK;
}

static char *room_for_pieces(const gw_session *s) {
    size_t page = gw_kv_largest_page(&s->kv), state = gw_states_largest_entry(&s->states);
    return malloc(page > state ? page : state);
}

/* words [layers]; room: the largest page or state. */
static gw_status put_all(gw_session *s, writer *w, const head *h, const uint64_t *words,
                         char *room) {
    GW_TRY(put(w, h, sizeof *h));
    GW_TRY(put(w, words, (size_t)h->n_layers * sizeof *words));
    GW_TRY(put(w, s->tokens, (size_t)s->pos * sizeof *s->tokens));
    GW_TRY(gw_save_write(&w->file, &w->check.h, sizeof w->check.h));
    GW_TRY(gw_pictures_put(&s->views, put_more, w));
    GW_TRY(put_pages(s, w, room));
    GW_TRY(put_states(s, w, room));
    return gw_save_write(&w->file, &w->check.h, sizeof w->check.h);
}

/* Pages of a source text are not among those of the positions that are saved. */
static gw_status refuse_source(const gw_session *s, const char *path) {
    return s->model->hp.n_source == 0
               ? GW_OK
               : gw_fail(GW_E_UNSUPPORTED, path,
                         "%s reads a source text, whose state is not kept in a file",
                         s->model->name);
}

gw_status gw_session_save(gw_session *s, const char *path) {
    head h;
    GW_TRY(refuse_source(s, path));
    GW_TRY(gw_session_return(s));
    GW_TRY(describe(s, path, s->pos, &h));
    h.prompted = s->prompted;
    h.pictures = s->views.n;
    h.bytes += gw_pictures_bytes(&s->views);
    h.floor = s->kv.floor < s->pos ? s->kv.floor : s->pos;
    char *room = room_for_pieces(s);
    uint64_t *words = arithmetic_of(s);
    writer w = {.file = {.fd = -1, .slot = -1}};
    gw_status status = room != NULL && words != NULL ? gw_save_begin(&w.file, path, 0600, h.bytes)
                                                     : no_memory(path);
    if (status == GW_OK) {
        status = put_all(s, &w, &h, words, room);
        if (status == GW_OK) {
            status = gw_save_end(&w.file);
        } else {
            gw_save_drop(&w.file);
        }
    }
    free(words);
    free(room);
    return status;
}

/* ---- loading -------------------------------------------------------------------------------- */

typedef struct source {
    const char *path;
    int fd;
    digest check;
} source;

/* The next n bytes; the file may have become shorter than it said. */
static gw_status take(source *in, void *data, size_t n) {
    char *at = data;
    for (size_t left = n; left > 0;) {
        ssize_t got = read(in->fd, at, left);
        if (got == 0) {
            return gw_fail(GW_E_TRUNCATED, in->path, "ends %zu bytes too early", left);
        }
        if (got < 0 && errno != EINTR) {
            return gw_fail(GW_E_IO, in->path, "cannot read: %s", strerror(errno));
        }
        at += got > 0 ? got : 0;
        left -= got > 0 ? (size_t)got : 0;
    }
    return GW_OK;
}

static gw_status take_checked(source *in, void *data, size_t n) {
    GW_TRY(take(in, data, n));
    digest_add(&in->check, data, n);
    return GW_OK;
}

static gw_status take_more(void *user, void *data, size_t n) { return take_checked(user, data, n); }

static gw_status take_check(source *in) {
    uint64_t check;
    GW_TRY(take(in, &check, sizeof check));
    return check == in->check.h ? GW_OK
                                : gw_fail(GW_E_SYNTAX, in->path, "is damaged: its check is wrong");
}

/* Words of the file against those that this session would write. */
static gw_status compare(const gw_session *s, const char *path, const head *got, uint64_t size) {
    head want;
    if (memcmp(got->magic, magic, sizeof magic) != 0) {
        return gw_fail(GW_E_MAGIC, path, "is no prompt cache of godwit");
    }
    if (got->version != VERSION) {
        return gw_fail(GW_E_VERSION, path, "is a prompt cache of version %u, this program reads %d",
                       (unsigned)got->version, VERSION);
    }
    if (got->tokens < 0 || got->prompted < 0 || got->prompted > got->tokens || got->floor < 0 ||
        got->floor > got->tokens || got->pictures < 0 || got->pictures > got->tokens) {
        return gw_fail(GW_E_METADATA, path, "is damaged: %d tokens, %d of a prompt",
                       (int)got->tokens, (int)got->prompted);
    }
    GW_TRY(describe(s, path, got->tokens, &want));
    if (got->n_layers != want.n_layers || got->kv_heads != want.kv_heads ||
        got->d_head != want.d_head || memcmp(got->model, want.model, sizeof want.model) != 0) {
        return gw_fail(GW_E_METADATA, path,
                       "belongs to another model, or to this one with other weights");
    }
    if (got->fmt != want.fmt || got->page != want.page) {
        char holds[GW_KV_NAME], has[GW_KV_NAME];
        gw_kv_pair of;
        return gw_fail(GW_E_TYPE, path, "holds a cache in %s, this session has %s (kv-type)",
                       gw_kv_of_number(got->fmt, &of) ? gw_kv_name(of, holds)
                                                      : "an unknown format",
                       gw_kv_name(s->kv.fmt, has));
    }
    if (got->tokens > s->n_ctx) {
        return gw_fail(GW_E_CONTEXT, path, "holds %d tokens, the context %d", (int)got->tokens,
                       (int)s->n_ctx);
    }
    if (got->pictures > 0 && s->seeing.parts == 0) {
        return gw_fail(GW_E_UNSUPPORTED, path,
                       "holds %d runs of rows of pictures, and the model was opened without its "
                       "vision tower",
                       (int)got->pictures);
    }
    if (got->pictures > 0 && size == got->bytes && size > want.bytes) {
        return GW_OK; /* pictures say themselves how much they take */
    }
    if (got->bytes != want.bytes || size != want.bytes) {
        return gw_fail(size < want.bytes ? GW_E_TRUNCATED : GW_E_BOUNDS, path,
                       "has %llu bytes where %d tokens take %llu", (unsigned long long)size,
                       (int)got->tokens, (unsigned long long)want.bytes);
    }
    return GW_OK;
}

static gw_status compare_arithmetic(const gw_session *s, source *in) {
    const size_t n = (size_t)s->model->hp.n_layers;
    uint64_t *mine = arithmetic_of(s), *words = calloc(n, sizeof *words);
    gw_status status = mine != NULL && words != NULL ? take_checked(in, words, n * sizeof *words)
                                                     : no_memory(in->path);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        if (words[i] != mine[i]) {
            status = gw_fail(GW_E_METADATA, in->path,
                             "the prompt went through layer %zu in another arithmetic than it "
                             "would here (16-bit matrix units, which --exact leaves out, a BLAS "
                             "library or device ref)",
                             i);
        }
    }
    free(mine);
    free(words);
    return status;
}

static gw_status take_pages(gw_session *s, source *in, int32_t tokens, char *room) {
    for (int32_t page = 0; page < pages_of(tokens); page++) {
        for (int i = 0; i < GW_KV_PARTS * s->model->hp.n_layers; i++) {
            GW_TRY(gw_session_check_cancel(s));
            GW_TRY(
                take_checked(in, room, gw_kv_page_bytes(&s->kv, i / GW_KV_PARTS, i % GW_KV_PARTS)));
            GW_TRY(gw_kv_write_page(&s->kv, i / GW_KV_PARTS, i % GW_KV_PARTS, page, room));
        }
    }
    return GW_OK;
}

static gw_status take_states(gw_session *s, source *in, int32_t tokens, char *room) {
    if (runs_again(s)) {
        GW_TRY(take_checked(in, s->generated, (size_t)tokens));
        for (int32_t i = 0; i < tokens; i++) {
            s->generated[i] = s->generated[i] != 0;
        }
    }
    for (int i = 0; i < s->states.n && s->states.any && tokens > 0; i++) {
        GW_TRY(take_checked(in, room, gw_states_entry_bytes(&s->states, i)));
        GW_TRY(gw_states_write(&s->states, i, tokens, room));
    }
    s->states.low = s->states.high = tokens;
    return GW_OK;
}

static void empty(gw_session *s) {
    gw_views_cut(&s->views, 0);
    s->pos = s->prompted = 0;
    s->n_logits = 0;
    s->ahead = 0;
    gw_session_forget_states(s, 0);
}

/* Pages and states are there: the session is at that position. */
static void stand_at(gw_session *s, int32_t tokens, int32_t prompted, int32_t floor) {
    gw_kv_note(&s->kv, tokens, 0);
    s->kv.floor = s->kv.floor > floor ? s->kv.floor : floor;
    s->pos = tokens;
    s->prompted = prompted;
}

/* From here on the session changes: an error leaves it empty. */
static gw_status take_body(gw_session *s, source *in, const head *h) {
    head want;
    empty(s);
    GW_TRY(describe(s, in->path, h->tokens, &want));
    GW_TRY(take_checked(in, s->tokens, (size_t)h->tokens * sizeof *s->tokens));
    GW_TRY(take_check(in));
    for (int32_t i = 0; i < h->tokens; i++) {
        if (s->tokens[i] < 0 || s->tokens[i] >= s->model->hp.n_vocab) {
            return gw_fail(GW_E_METADATA, in->path, "token %d is %d, outside 0..%d", (int)i,
                           (int)s->tokens[i], (int)s->model->hp.n_vocab - 1);
        }
    }
    GW_TRY(h->pictures > 0 ? gw_pictures_take(s, in->path, h->pictures, h->tokens,
                                              h->bytes - want.bytes, take_more, in)
                           : GW_OK);
    char *room = room_for_pieces(s);
    if (room == NULL) {
        return gw_fail(GW_E_NOMEM, in->path, "no memory to read it");
    }
    gw_status status = take_pages(s, in, h->tokens, room);
    status = status == GW_OK ? take_states(s, in, h->tokens, room) : status;
    free(room);
    GW_TRY(status);
    GW_TRY(take_check(in));
    stand_at(s, h->tokens, h->prompted, h->floor);
    return GW_OK;
}

gw_status gw_session_load(gw_session *s, const char *path) {
    GW_TRY(refuse_source(s, path));
    struct stat st;
    head h;
    source in = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (in.fd < 0) {
        return gw_fail(GW_E_IO, path, "cannot open: %s", strerror(errno));
    }
    gw_status status = GW_OK;
    if (fstat(in.fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        status = gw_fail(GW_E_IO, path, "is no regular file");
    } else if ((uint64_t)st.st_size < sizeof h) {
        status = gw_fail(GW_E_TRUNCATED, path, "has %lld bytes: no prompt cache is so short",
                         (long long)st.st_size);
    }
    if (status == GW_OK) {
        status = take_checked(&in, &h, sizeof h);
    }
    if (status == GW_OK) {
        status = compare(s, path, &h, (uint64_t)st.st_size);
    }
    if (status == GW_OK) {
        status = compare_arithmetic(s, &in);
    }
    if (status == GW_OK) {
        status = take_body(s, &in, &h);
        if (status != GW_OK) {
            empty(s); /* pictures may be there already */
        }
    }
    close(in.fd);
    return status;
}

/* ---- to another session -----------------------------------------------------------------------
 */

static gw_status check_pair(const gw_session *to, const gw_session *from) {
    if (to->model != from->model) {
        return gw_fail(GW_E_ARGUMENT, "session", "a copy needs two sessions of one model");
    }
    if (!gw_kv_same(to->kv.fmt, from->kv.fmt)) {
        char own[GW_KV_NAME], other[GW_KV_NAME];
        return gw_fail(GW_E_TYPE, "session", "the cache is in %s, that of the copy in %s (kv-type)",
                       gw_kv_name(from->kv.fmt, own), gw_kv_name(to->kv.fmt, other));
    }
    if (from->pos > to->n_ctx) {
        return gw_fail(GW_E_CONTEXT, "session", "%d tokens, but the context of the copy holds %d",
                       (int)from->pos, (int)to->n_ctx);
    }
    return refuse_source(from, "session");
}

/* room: the largest page or state. */
static gw_status copy_pieces(gw_session *to, gw_session *from, char *room) {
    for (int32_t page = 0; page < pages_of(from->pos); page++) {
        for (int i = 0; i < GW_KV_PARTS * from->model->hp.n_layers; i++) {
            GW_TRY(gw_session_check_cancel(to));
            GW_TRY(gw_kv_read_page(&from->kv, i / GW_KV_PARTS, i % GW_KV_PARTS, page, room));
            GW_TRY(gw_kv_write_page(&to->kv, i / GW_KV_PARTS, i % GW_KV_PARTS, page, room));
        }
    }
    if (runs_again(from)) {
        memcpy(to->generated, from->generated, (size_t)from->pos);
    }
    for (int i = 0; i < from->states.n && from->states.any && from->pos > 0; i++) {
        GW_TRY(gw_states_read(&from->states, i, from->pos, room));
        GW_TRY(gw_states_write(&to->states, i, from->pos, room));
    }
    to->states.low = to->states.high = from->pos;
    return GW_OK;
}

gw_status gw_session_copy(gw_session *to, gw_session *from) {
    if (to == from) {
        return GW_OK;
    }
    GW_TRY(check_pair(to, from));
    char *room = room_for_pieces(from);
    if (room == NULL) {
        return gw_fail(GW_E_NOMEM, "session", "no memory to copy it");
    }
    gw_status status = gw_session_return(from);
    if (status == GW_OK) {
        empty(to);
        memcpy(to->tokens, from->tokens, (size_t)from->pos * sizeof *to->tokens);
        status = gw_views_copy(&to->views, &from->views);
        status = status == GW_OK ? copy_pieces(to, from, room) : status;
    }
    if (status == GW_OK) {
        to->adapting.own = from->adapting.own;
        status = gw_adapting_fill(to, &to->adapting.own);
    }
    if (status == GW_OK) {
        stand_at(to, from->pos, from->prompted,
                 from->kv.floor < from->pos ? from->kv.floor : from->pos);
    }
    free(room);
    return status;
}
