/* core/engine/placing/place_layers.c - what a model needs on each device, and how many layers go
 * there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/engine/placing/cache_time.h"
#include "core/engine/placing/gauge.h"
#include "core/engine/run/state.h"
#include "core/tensor/digits.h"
#include "core/tensor/sample.h"
#include "core/model/build.h"

enum { CHUNK_DEFAULT = 512, LOGIT_ROWS = 32, ATTENTION_WORK = 64 << 20 };

/* ---- which blocks a device has kernels for ----------------------------------------------------
 */

/* Clear accepts [..] of every block of this graph that the device declines. */
static void ask_kernels(const gw_plan_device *device, const gw_graph *g, int n_layers, int n_blocks,
                        gw_where *accepts) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        int row = g->nodes[i].layer < 0 ? n_layers : g->nodes[i].layer;
        if (g->blocks[i] >= 0 && gw_plan_kernel(device, &g->nodes[i]) == NULL) {
            accepts[row * n_blocks + g->blocks[i]] = 0;
        }
    }
}

/* Tensors of a graph that is only looked at: formats and shapes. */
typedef struct outline {
    gw_tensor stream[GW_MAX_DEVICES], table[GW_MAX_DEVICES];
    gw_tensor rope[GW_MAX_DEVICES][GW_MAX_ROPES], factor[GW_MAX_DEVICES][GW_MAX_FACTORS];
    gw_tensor *k, *v, *paged, *state;
    gw_tensor kept[GW_SPEC_VALUES];
} outline;

static gw_status draw_outline(const gw_hparams *hp, const gw_blueprint *bp, gw_kv_pair kv_fmt,
                              int rows, outline *o) {
    gw_tensor stream = {
        .fmt = GW_FMT_F32, .n_dim = 2, .dim = {rows, (int64_t)hp->n_streams * hp->d_model}};
    gw_tensor table = {.fmt = GW_FMT_I32, .n_dim = 2, .dim = {1, 1}};
    for (int d = 0; d < GW_MAX_DEVICES; d++) {
        o->stream[d] = stream;
        for (int r = 0; r < GW_MAX_ROPES; r++) {
            o->rope[d][r] = (gw_tensor){
                .fmt = GW_FMT_F32, .n_dim = 3, .dim = {GW_PAGE, 2, hp->rope[r].dim / 2}};
        }
        for (int f = 0; f < GW_MAX_FACTORS; f++) {
            o->factor[d][f] = (gw_tensor){.fmt = GW_FMT_F32, .n_dim = 1, .dim = {GW_PAGE}};
        }
        o->table[d] = table;
    }
    o->k = calloc((size_t)hp->n_layers, sizeof *o->k);
    o->v = calloc((size_t)hp->n_layers, sizeof *o->v);
    o->paged = calloc((size_t)hp->n_layers, sizeof *o->paged);
    o->state = calloc((size_t)hp->n_layers * (size_t)bp->n_blocks, sizeof *o->state);
    if (o->k == NULL || o->v == NULL || o->paged == NULL || o->state == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %d layers", hp->n_layers);
    }
    for (int i = 0; i < hp->n_layers * bp->n_blocks; i++) {
        int64_t width = (int64_t)gw_block_state(bp, hp, i / bp->n_blocks, i % bp->n_blocks);
        o->state[i] = (gw_tensor){
            .fmt = GW_FMT_F32, .n_dim = 3, .dim = {1, GW_STATE_ENTRIES, width > 0 ? width : 1}};
    }
    for (int v = 0; v < bp->n_values; v++) {
        double width = bp->width[v].n > 0 ? gw_spec_value(bp, hp, 0, bp->width[v]) : 1.0;
        o->kept[v] = (gw_tensor){
            .fmt = GW_FMT_F32, .n_dim = 2, .dim = {rows, width >= 1.0 ? (int64_t)width : 1}};
    }
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        const int32_t e = gw_kv_width(y, kv_fmt, 0), ev = gw_kv_width(y, kv_fmt, 1);
        o->k[l] = (gw_tensor){.fmt = kv_fmt.k, .n_dim = 4, .dim = {1, y->n_kv_heads, e, GW_PAGE}};
        o->v[l] = (gw_tensor){.fmt = kv_fmt.v, .n_dim = 4, .dim = {1, y->n_kv_heads, GW_PAGE, ev}};
        o->paged[l] = (gw_tensor){.fmt = GW_FMT_F32, .n_dim = 2, .dim = {1, gw_layer_paged(y)}};
    }
    return GW_OK;
}

/* Of a vision tower: merge x merge patches become a row of the decoder; 0: it is none. */
static double merge_of(const gw_blueprint *bp, const gw_hparams *hp) {
    double merge = gw_spec_named_number(bp, hp, "merge", 0.0);
    return merge >= 1.0 && merge <= 16.0 ? merge : 0.0;
}

/* The head; of a vision tower it reads the stream in wider rows, as what goes to the decoder from
 * other layers does (spec.h). */
static void draw_ends(gw_graph *graph, gw_graph_inputs *in, const gw_blueprint *bp) {
    const gw_hparams *hp = in->hp;
    double merge = merge_of(bp, hp);
    gw_tensor folded;
    if (merge == 0.0) {
        gw_graph_head(graph, in, 1);
        return;
    }
    folded = in->stream[0];
    folded.dim[1] = (int64_t)(merge * merge) * hp->d_model;
    in->stream = &folded;
    in->logits.dim[1] = (int64_t)gw_spec_named_number(bp, hp, "d_out", 1.0);
    memset(graph->streams, 0, sizeof graph->streams);
    memset(graph->stream, 0, sizeof graph->stream);
    for (int l = 0; hp->deep_kind > 0 && l < hp->n_layers; l++) {
        gw_graph_deep(graph, in, l);
    }
    gw_graph_head(graph, in, 0);
    in->stream = NULL; /* ours; nodes have views of it */
}

static gw_status probe_order(const gw_plan_device *device, const gw_weights *weights,
                             const gw_hparams *hp, gw_kv_pair kv_fmt, gw_order order,
                             gw_where *accepts) {
    enum { ROWS = GW_DECODE_MAX };
    outline o = {.k = NULL};
    gw_graph graph = {0};
    gw_status status;
    GW_TRY_DONE(draw_outline(hp, gw_weights_blueprint(weights), kv_fmt, ROWS, &o));
    gw_graph_inputs in = {.hp = hp,
                          .weights = weights,
                          .outline = 1,
                          .rope = o.rope[0],
                          .q_factor = o.factor[0],
                          .page_table = o.table,
                          .k = o.k,
                          .v = o.v,
                          .paged = o.paged,
                          .state = o.state,
                          .kept = o.kept,
                          .stream = o.stream,
                          .rows = ROWS,
                          .order = order};
    in.logits = (gw_tensor){.fmt = GW_FMT_F32, .n_dim = 2, .dim = {ROWS, hp->n_vocab}};
    GW_TRY_DONE(gw_graph_new(&in, &graph));
    gw_graph_body(&graph, &in, 0, hp->n_layers);
    draw_ends(&graph, &in, gw_weights_blueprint(weights));
    GW_TRY_DONE(gw_graph_check(&graph));
    ask_kernels(device, &graph, hp->n_layers, gw_weights_blueprint(weights)->n_blocks, accepts);
done:
    gw_graph_free(&graph);
    free(o.k);
    free(o.v);
    free(o.paged);
    free(o.state);
    return status;
}

static int is_cache_block(gw_block_kind kind) {
    return kind == GW_BLOCK_ROPE_KV || kind == GW_BLOCK_ATTENTION || kind == GW_BLOCK_COMPRESS ||
           kind == GW_BLOCK_CHOOSE || kind == GW_BLOCK_LISTED;
}

/* Fill accepts with what the device runs in both orders; what appends to a cache and what reads it
 * stay together. The weights have the device's layouts. */
static gw_status probe(const gw_plan_device *device, const gw_weights *weights,
                       const gw_hparams *hp, gw_kv_pair kv_fmt, gw_where *accepts) {
    const gw_blueprint *bp = gw_weights_blueprint(weights);
    memset(accepts, 1, (size_t)(hp->n_layers + 1) * (size_t)bp->n_blocks);
    GW_TRY(probe_order(device, weights, hp, kv_fmt, GW_ORDER_DECODE, accepts));
    GW_TRY(probe_order(device, weights, hp, kv_fmt, GW_ORDER_PREFILL, accepts));
    for (int l = 0; l < hp->n_layers; l++) {
        gw_where *row = accepts + l * bp->n_blocks, both = 1;
        for (int b = 0; b < bp->n_blocks; b++) {
            both = is_cache_block(bp->block[b].kind) ? both & row[b] : both;
        }
        for (int b = 0; b < bp->n_blocks; b++) {
            row[b] = is_cache_block(bp->block[b].kind) ? both : row[b];
        }
    }
    return GW_OK;
}

/* Attention over another layer's cache runs where that cache is. */
static void join_caches(const gw_blueprint *bp, const gw_hparams *hp, gw_where *where) {
    for (int l = 0; l < hp->n_layers; l++) {
        int from = hp->layer[l].cache_of;
        int d = from < l ? gw_graph_block_device(bp, hp, where, from, GW_BLOCK_ATTENTION) : 0;
        for (int b = 0; b < bp->n_blocks && from < l; b++) {
            int at = l * bp->n_blocks + b;
            where[at] = bp->block[b].kind == GW_BLOCK_ATTENTION ? (gw_where)d : where[at];
        }
    }
}

gw_status gw_place_session(const gw_place *place, const gw_weights *weights, const gw_hparams *hp,
                           gw_kv_pair kv_fmt, gw_where *where) {
    const gw_blueprint *bp = gw_weights_blueprint(weights);
    size_t n = (size_t)(place->n_layers + 1) * (size_t)place->n_blocks;
    gw_where *accepts = malloc(n);
    gw_status status = GW_OK;
    if (accepts == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %d layers", place->n_layers);
    }
    memcpy(where, place->where, n);
    for (int d = 1; d < place->n_devices && status == GW_OK; d++) {
        status = probe(&place->devices[d], weights, hp, kv_fmt, accepts);
        for (size_t i = 0; i < n && status == GW_OK; i++) {
            int cache = is_cache_block(bp->block[i % (size_t)place->n_blocks].kind);
            where[i] = cache && where[i] == d && !accepts[i] ? 0 : where[i];
        }
    }
    join_caches(bp, hp, where);
    free(accepts);
    if (status == GW_OK && place->grouped && memcmp(where, place->where, n) != 0) {
        char name[GW_KV_NAME];
        return gw_fail(GW_E_UNSUPPORTED, "kv-type",
                       "a device that shares layers has no attention over a cache of %s; use "
                       "--split-mode layer",
                       gw_kv_name(kv_fmt, name));
    }
    return status;
}

/* ---- sizes ------------------------------------------------------------------------------------
 */

int32_t gw_place_context(const gw_model_options *o, const gw_hparams *hp) {
    if (o->n_ctx > 0) {
        return o->n_ctx;
    }
    return o->n_ctx < 0 && -o->n_ctx < hp->n_ctx ? -o->n_ctx : hp->n_ctx;
}

uint64_t gw_place_room(const gw_place *place, const gw_model_options *options, int d) {
    const gw_place_taken *x = &place->taken[d];
    uint64_t room = place->info[d].free_bytes, budget = d > 0 ? options->vram_budget : 0;
    room = room == 0 || room > x->ahead ? room - (room > 0 ? x->ahead : 0) : 1;
    budget = budget == 0 || budget > x->all ? budget - (budget > 0 ? x->all : 0) : 1;
    return budget > 0 && (room == 0 || budget < room) ? budget : room;
}

gw_status gw_place_measure(gw_place *place, gw_weights *weights, const gw_hparams *hp,
                           const gw_model_options *options, gw_place_sizes *out) {
    const gw_blueprint *bp = gw_weights_blueprint(weights);
    size_t n = (size_t)(hp->n_layers + 1) * (size_t)bp->n_blocks;
    place->n_layers = hp->n_layers;
    place->n_blocks = bp->n_blocks;
    for (int b = 0; b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        int counts = block->section == GW_SECTION_LAYER && block->kind != GW_BLOCK_EXPERTS;
        place->last_block = counts ? b : place->last_block;
    }
    place->cpu_experts = options->cpu_experts;
    gw_place_sizes s = {.weights = weights, .hp = hp, .n_ctx = gw_place_context(options, hp)};
    gw_status status;
    s.chunk = options->chunk > 0 ? options->chunk : CHUNK_DEFAULT;
    s.chunk = s.chunk > s.n_ctx ? s.n_ctx : s.chunk;
    s.blas = options->blas ? GW_BLAS_BYTES : 0;
    s.sees = merge_of(bp, hp) > 0.0;
    s.picture_parts = place->picture_parts;
    for (int32_t l = 0; l < hp->n_layers; l++) {
        s.has_experts |= hp->layer[l].n_experts > 0;
    }
    for (int b = 0; b < bp->n_blocks; b++) {
        s.has_tables |= bp->block[b].kind == GW_BLOCK_NGRAM;
    }
    GW_TRY(gw_kv_format(options->kv_type, &s.kv_fmt));
    GW_TRY(s.sees ? GW_OK : gw_kv_check(hp, bp, s.kv_fmt));
    GW_TRY(gw_kv_bytes(hp, s.kv_fmt, (gw_kv_size){1, s.n_ctx, 0, s.chunk}, &s.kv_table));
    s.cache = calloc((size_t)hp->n_layers, sizeof *s.cache);
    s.host = calloc((size_t)hp->n_layers, sizeof *s.host);
    s.cache_at = calloc((size_t)hp->n_layers, sizeof *s.cache_at);
    if (s.cache == NULL || s.host == NULL || s.cache_at == NULL) {
        status = gw_fail(GW_E_NOMEM, "plan", "no memory for %d layers", hp->n_layers);
        goto done;
    }
    for (int l = 0; l < hp->n_layers; l++) {
        s.cache[l] =
            gw_kv_layer_bytes(&hp->layer[l], s.kv_fmt, (gw_kv_size){1, s.n_ctx, 0, s.chunk});
    }
    for (int d = 0; d < place->n_devices; d++) {
        s.bytes[d] = calloc(n, sizeof *s.bytes[d]);
        s.accepts[d] = calloc(n, sizeof *s.accepts[d]);
        if (s.bytes[d] == NULL || s.accepts[d] == NULL) {
            status = gw_fail(GW_E_NOMEM, "plan", "no memory for %d layers", hp->n_layers);
            goto done;
        }
        s.room[d] = gw_place_room(place, options, d);
        GW_TRY_DONE(gw_weights_size(weights, &place->devices[d], s.bytes[d], &s.vectors));
        GW_TRY_DONE(probe(&place->devices[d], weights, hp, s.kv_fmt, s.accepts[d]));
    }
    *out = s;
    return GW_OK;
done:
    gw_place_sizes_free(&s);
    return status;
}

void gw_place_sizes_free(gw_place_sizes *sizes) {
    for (int d = 0; d < GW_MAX_DEVICES; d++) {
        free(sizes->bytes[d]);
        free(sizes->accepts[d]);
    }
    free(sizes->cache);
    free(sizes->host);
    free(sizes->cache_at);
    memset(sizes, 0, sizeof *sizes);
}

/* ---- spreading --------------------------------------------------------------------------------
 */

/* The device of layer number i of the n that are offloaded: shares of the whole, rounded. */
static int device_of(const gw_place *p, int i, int n) {
    double sum = 0.0, upto = 0.0;
    for (int k = 0; k < p->n_asked; k++) {
        sum += p->share[k];
    }
    int last = 0;
    for (int k = 0; k < p->n_asked; k++) {
        upto += p->share[k];
        last = p->share[k] > 0.0 ? k : last;
        if (p->share[k] > 0.0 && i < (int)(upto / sum * n + 0.5)) {
            return p->asked[k];
        }
    }
    return p->asked[last];
}

double gw_place_used(const gw_place_sizes *sizes, int device, int at) {
    double bytes = (double)sizes->bytes[device][at];
    if (!sizes->has_experts && !sizes->has_tables) {
        return bytes;
    }
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    if (bp->block[at % bp->n_blocks].kind == GW_BLOCK_NGRAM) {
        return 0.0; /* some rows of many */
    }
    const gw_layer *y = &sizes->hp->layer[at / bp->n_blocks];
    int is_experts = bp->block[at % bp->n_blocks].kind == GW_BLOCK_EXPERTS;
    return is_experts && y->n_experts > 0 ? bytes * y->n_used / y->n_experts : bytes;
}

/* Experts that are asked to, and tables of which a token reads one row, beside the embedding: those
 * of n-grams where they do not fit. */
static int stays_home(const gw_place *place, const gw_blueprint *bp, const gw_spec_block *b,
                      int layer) {
    return b->kind == GW_BLOCK_EXPERTS ? layer < place->cpu_experts
           : b->kind == GW_BLOCK_NGRAM ? place->tables_home
                                       : gw_block_stays_home(bp, b);
}

/* Have all cards of the group kernels for the block? */
static int all_accept(const gw_place *place, const gw_place_sizes *sizes, int device, int at) {
    gw_group group = gw_place_group(place, device);
    int all = 1;
    for (int c = 0; c < group.n; c++) {
        all &= sizes->accepts[group.device[c]][at];
    }
    return all;
}

void gw_place_spread(const gw_place *place, const gw_place_sizes *sizes, int n, gw_where *where) {
    const gw_hparams *hp = sizes->hp;
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    for (int row = 0; row <= hp->n_layers; row++) {
        for (int b = 0; b < bp->n_blocks; b++) {
            int layer = row < hp->n_layers                         ? row
                        : bp->block[b].section == GW_SECTION_START ? 0
                                                                   : hp->n_layers - 1;
            int i = layer - (hp->n_layers - n), at = row * bp->n_blocks + b;
            int home = stays_home(place, bp, &bp->block[b], row);
            int d = i < 0 || home ? 0 : device_of(place, i, n);
            where[at] = all_accept(place, sizes, d, at) ? (gw_where)d : 0;
        }
    }
    join_caches(bp, hp, where);
}

/* ---- what fits --------------------------------------------------------------------------------
 */

/* Attention in digits, whose pages may be many times a row's: the digits of a layer's whole cache,
 * as wide as kernels have them, with their scales and padding; and every row's own page. */
static uint64_t bound_digits(const gw_layer *y, uint64_t rows, uint64_t pages) {
    uint64_t e = ((uint64_t)y->d_head + GW_DIGITS_LEAST - 1) / GW_DIGITS_LEAST * GW_DIGITS_LEAST;
    uint64_t wide = e <= 64 ? 64 : e <= 128 ? 128 : 256;
    if (e > GW_DIGITS_MOST || y->v_head != y->d_head) {
        return 0;
    }
    uint64_t page = (uint64_t)y->n_kv_heads * (4 * GW_PAGE * wide + 40 * (GW_PAGE + wide));
    return pages * page + rows * (uint64_t)y->n_heads * (e + 2) * sizeof(float);
}

uint64_t gw_place_kernel_bytes(const gw_hparams *hp, uint64_t rows, uint64_t pages) {
    uint64_t attention = 0, digits = 0;
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        uint64_t work = (uint64_t)y->n_heads * pages * ((uint64_t)y->v_head + 2) * sizeof(float);
        uint64_t cut = bound_digits(y, rows, pages);
        attention = work > attention ? work : attention;
        digits = cut > digits ? cut : digits;
    }
    uint64_t at_once = attention * rows < ATTENTION_WORK ? attention * rows : ATTENTION_WORK;
    return (attention > at_once ? attention : at_once) + digits;
}

/* Of pictures: their rows next to those of text, and angles of a pass's rows. */
static uint64_t bound_pictures(const gw_place_sizes *s, uint64_t rows, uint64_t width) {
    uint64_t row = (uint64_t)s->picture_parts * (uint64_t)s->hp->d_model + 1 + width;
    return s->picture_parts > 0 ? rows * row * sizeof(float) : 0;
}

/* Every output of a layer at once, which no plan needs; the products' and attention's own room. A
 * vision tower counts its own (tower_pass.c). */
static uint64_t bound_scratch(const gw_place_sizes *s, int head) {
    const gw_hparams *hp = s->hp;
    uint64_t rows = s->chunk > GW_DECODE_MAX ? (uint64_t)s->chunk : GW_DECODE_MAX;
    uint64_t pages = s->kv_table / sizeof(int32_t), row = 0, width = 0;
    if (s->sees) {
        return 0;
    }
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const gw_layer *y = &hp->layer[l];
        uint64_t d = (uint64_t)hp->d_model, q = (uint64_t)y->n_heads * (uint64_t)y->d_head;
        uint64_t kv = (uint64_t)y->n_kv_heads * (uint64_t)y->d_head, f = (uint64_t)y->d_ff;
        uint64_t experts = (uint64_t)y->n_used * (uint64_t)y->d_expert;
        uint64_t one = (4 + 4 * (uint64_t)hp->n_streams - 2) * d + 3 * q + 2 * kv +
                       3 * (f + experts) + (uint64_t)y->n_heads;
        row = one > row ? one : row;
    }
    for (int r = 0; r < hp->n_ropes; r++) {
        width += (uint64_t)hp->rope[r].dim;
    }
    const gw_blueprint *bp = gw_weights_blueprint(s->weights);
    for (int v = 0; v < bp->n_values; v++) {
        row += bp->width[v].n > 0 ? (uint64_t)gw_spec_value(bp, hp, 0, bp->width[v]) : 0;
    }
    uint64_t rope = (uint64_t)s->n_ctx * width * sizeof(float);
    uint64_t each = LOGIT_ROWS * sizeof(float) + sizeof(gw_listed); /* and the draw's list */
    uint64_t logits = head ? each * (uint64_t)hp->n_vocab : 0;
    enum { STEPS = 1 << 20 }; /* step blocks and roundings */
    return rows * row * sizeof(float) + gw_place_kernel_bytes(hp, rows, pages) + rope +
           s->kv_table + logits + s->blas + bound_pictures(s, rows, width) + STEPS;
}

/* What a device needs for its part of a block. */
static void add_use(const gw_place *place, const gw_place_sizes *sizes, int d, double part, int at,
                    gw_place_use *use) {
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    const gw_spec_block *block = &bp->block[at % bp->n_blocks];
    int layer = at / bp->n_blocks, outside = layer == sizes->hp->n_layers;
    int runs = gw_block_runs(block, sizes->hp, layer);
    double weights = block->kind == GW_BLOCK_EMBED ? 1.0 : part; /* a table is whole everywhere */
    use->weights += (uint64_t)((double)sizes->bytes[d][at] * weights);
    int caches = block->kind == GW_BLOCK_ATTENTION || block->kind == GW_BLOCK_LISTED;
    if (!outside && runs && caches && !sizes->sees) {
        uint64_t kv = sizes->cache[layer];
        use->kv += gw_place_part_bytes(kv, part);
    }
    if (!outside && runs) {
        use->kv += gw_states_block_bytes(bp, sizes->hp, layer, block->index, 1, GW_STATE_ENTRIES);
    }
    use->layers += !outside && at % bp->n_blocks == place->last_block;
    use->head |= outside && block->section == GW_SECTION_HEAD;
}

/* Room for what lies in main memory, while prompts of it are computed on the card: the matrices of
 * a layer, and its cache. */
static uint64_t fetch_room(const gw_place *place, const gw_place_sizes *sizes,
                           const gw_where *where) {
    const gw_hparams *hp = sizes->hp;
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    int d = gw_place_fetches(place);
    uint64_t sum = 0, caches = 0;
    for (int b = 0; d > 0 && b < bp->n_blocks; b++) {
        const gw_spec_block *block = &bp->block[b];
        uint64_t most = 0;
        for (int l = 0; block->section == GW_SECTION_LAYER && l < hp->n_layers; l++) {
            int at = l * bp->n_blocks + b;
            int moves = where[at] == 0 && gw_block_runs(block, hp, l) &&
                        !gw_block_stays_home(bp, block) && sizes->accepts[d][at];
            uint64_t kv = sizes->cache[l];
            most = moves && sizes->bytes[d][at] > most ? sizes->bytes[d][at] : most;
            caches = moves && block->kind == GW_BLOCK_ATTENTION && kv > caches ? kv : caches;
        }
        sum += most;
    }
    return sum + caches;
}

/* Room for what is read of a cache in 4 or 5 bits: one layer's pages in q8_0, its queries and
 * results (backends: cells.c). */
static uint64_t unpacked_room(const gw_place_sizes *s) {
    const gw_kv_size size = {1, s->n_ctx, 0, s->chunk};
    const int k = gw_cache_bits(s->kv_fmt.k) > 0, v = gw_cache_bits(s->kv_fmt.v) > 0;
    uint64_t most = 0;
    for (int l = 0; (k || v) && l < s->hp->n_layers; l++) {
        gw_layer layer = s->hp->layer[l], *y = &layer;
        uint64_t rows = (uint64_t)s->chunk * (uint64_t)y->n_heads *
                        (uint64_t)(y->d_head + y->v_head) * sizeof(float);
        y->d_head = k ? y->d_head : 0;
        y->v_head = v ? y->v_head : 0;
        const gw_kv_pair q8_0 = {GW_FMT_Q8_0, GW_FMT_Q8_0};
        uint64_t room = gw_kv_layer_bytes(y, q8_0, size) + rows;
        most = y->has_cache && room > most ? room : most;
    }
    return most;
}

int gw_place_fits(const gw_place *place, const gw_place_sizes *sizes, const gw_where *where,
                  gw_place_use *use, int *tight) {
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    int n_layers = sizes->hp->n_layers, fits = 1, fetches = gw_place_fetches(place);
    memset(use, 0, (size_t)place->n_devices * sizeof *use);
    for (int at = 0; at < (n_layers + 1) * bp->n_blocks; at++) {
        gw_group group = gw_place_group(place, where[at]);
        for (int c = 0; c < group.n; c++) {
            add_use(place, sizes, group.device[c], gw_place_part(place, where[at], group.device[c]),
                    at, &use[group.device[c]]);
        }
    }
    for (int d = 0; d < place->n_devices; d++) {
        use[d].weights += sizes->vectors; /* on every device */
        use[d].scratch = bound_scratch(sizes, use[d].head);
        use[d].scratch += d > 0 && d == fetches ? fetch_room(place, sizes, where) : 0;
        use[d].scratch += d > 0 ? unpacked_room(sizes) : 0;
    }
    gw_place_host_sizes(place, sizes, where, use);
    if (!gw_place_hosting_fits(place, sizes, use)) {
        fits = 0;
        if (tight != NULL) {
            *tight = 0;
        }
    }
    for (int d = 0; d < place->n_devices; d++) {
        uint64_t need = use[d].weights + use[d].kv + use[d].scratch;
        if (use[d].layers == 0 && !use[d].head && d > 0) {
            use[d].scratch = sizes->kv_table; /* open, but idle */
        } else if (d > 0 && sizes->room[d] > 0 && need > sizes->room[d]) {
            fits = 0;
            if (tight != NULL) {
                *tight = d;
            }
        }
    }
    return fits;
}

/* The largest N that fits; -1: none. */
static int largest_fit(const gw_place *place, const gw_place_sizes *sizes, gw_where *room) {
    gw_place_use use[GW_MAX_DEVICES];
    for (int n = sizes->hp->n_layers; n >= 0; n--) {
        gw_place_spread(place, sizes, n, room);
        if (gw_place_fits(place, sizes, room, use, NULL)) {
            return n;
        }
    }
    return -1;
}

/* ---- deciding ---------------------------------------------------------------------------------
 */

static gw_status refuse(const gw_place *place, const gw_place_sizes *sizes, const gw_place_use *use,
                        int n, int d, gw_where *room) {
    char need[GW_SIZE_TEXT], weights[GW_SIZE_TEXT], kv[GW_SIZE_TEXT], scratch[GW_SIZE_TEXT];
    char have[GW_SIZE_TEXT], away[GW_SIZE_TEXT], host[48] = "", fits[64];
    if (d == 0) {
        return gw_place_refuse_hosting(place, sizes, use);
    }
    if (use[d].kv_host > 0) {
        snprintf(host, sizeof host, " and %s in main memory",
                 gw_text_size(use[d].kv_host, 4, away));
    }
    int most = largest_fit(place, sizes, room);
    snprintf(fits, sizeof fits, "%d layers is the most that fits", most);
    return gw_fail(
        GW_E_NOMEM, place->info[d].id,
        "offloading %d layers needs %s (weights %s, cache of %d tokens %s%s, scratch %s), "
        "%s %s; %s",
        n, gw_text_size(use[d].weights + use[d].kv + use[d].scratch, 4, need),
        gw_text_size(use[d].weights, 4, weights), sizes->n_ctx, gw_text_size(use[d].kv, 4, kv),
        host, gw_text_size(use[d].scratch, 4, scratch), gw_text_size(sizes->room[d], 4, have),
        sizes->room[d] < place->info[d].free_bytes ? "may be used" : "are free",
        most > 0 ? fits : "not one layer fits");
}

static gw_status read_count(const char *text, int n_layers, int *n) {
    if (strcmp(text, "all") == 0) {
        *n = n_layers;
        return GW_OK;
    }
    char *end = NULL;
    long value = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    if (end == NULL || *end != '\0' || value < 0) {
        return gw_fail(GW_E_ARGUMENT, "offload-layers",
                       "'%.40s' is neither a number of layers nor 'all' nor 'auto'", text);
    }
    *n = value > n_layers ? n_layers : (int)value;
    return GW_OK;
}

/* Say what had to stay at home for want of a kernel. */
static void note_declined(gw_place *place, const gw_place_sizes *sizes) {
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    int n_layers = sizes->hp->n_layers, count = 0, device = 0;
    for (int l = 0; l < n_layers; l++) {
        int i = l - (n_layers - place->offloaded);
        int d = i < 0 ? 0 : device_of(place, i, place->offloaded);
        for (int b = 0; b < bp->n_blocks; b++) {
            int at = l * bp->n_blocks + b;
            int home = stays_home(place, bp, &bp->block[b], l);
            int runs = gw_block_runs(&bp->block[b], sizes->hp, l);
            int follows =
                bp->block[b].kind == GW_BLOCK_ATTENTION && sizes->hp->layer[l].cache_of < l;
            int declined = runs && !home && !follows && d != place->where[at];
            count += declined;
            device = declined ? d : device;
        }
    }
    if (count > 0) {
        char text[256];
        snprintf(text, sizeof text,
                 "%s has no kernel for %d block%s of the offloaded layers: the %s runs them",
                 place->info[device].id, count, count == 1 ? "" : "s", place->info[0].id);
        gw_place_add_note(place, text);
    }
}

/* Say which experts stay in main memory while the rest of their layer does not. */
static void note_experts(gw_place *place, const gw_place_sizes *sizes) {
    int n_layers = sizes->hp->n_layers, count = 0;
    for (int l = n_layers - place->offloaded; l < n_layers && l < place->cpu_experts; l++) {
        count += sizes->hp->layer[l].n_experts > 0 && place->where[l * place->n_blocks] != 0;
    }
    if (count > 0) {
        char text[128];
        snprintf(text, sizeof text, "experts of %d layer%s stay in main memory: the %s runs them",
                 count, count == 1 ? "" : "s", place->info[0].id);
        gw_place_add_note(place, text);
    }
}

/* Say that tables do. */
static void note_tables(gw_place *place, const gw_place_sizes *sizes) {
    const gw_blueprint *bp = gw_weights_blueprint(sizes->weights);
    int n_layers = sizes->hp->n_layers, count = 0;
    for (int at = (n_layers - place->offloaded) * bp->n_blocks; at < n_layers * bp->n_blocks;
         at++) {
        const gw_spec_block *b = &bp->block[at % bp->n_blocks];
        count += b->kind == GW_BLOCK_NGRAM && gw_block_runs(b, sizes->hp, at / bp->n_blocks);
    }
    if (count > 0 && place->tables_home) {
        char text[128];
        snprintf(text, sizeof text, "tables of n-grams stay in main memory: the %s reads them",
                 place->info[0].id);
        gw_place_add_note(place, text);
    }
}

/* Tables of n-grams go with their layers where n layers and they fit, and no group of cards shares
 * the layers. */
static void place_tables(gw_place *place, const gw_place_sizes *sizes, int n) {
    gw_place_use use[GW_MAX_DEVICES];
    place->tables_home = 0;
    if (sizes->has_tables) {
        gw_place_spread(place, sizes, n, place->where);
        place->tables_home =
            place->grouped || !gw_place_fits(place, sizes, place->where, use, NULL);
    }
}

/* The N that is fastest. Where caches would lie in main memory, what reading them takes is
 * measured, too. */
static gw_status choose_count(gw_place *place, const gw_place_sizes *sizes, int *n) {
    gw_place_use use[GW_MAX_DEVICES];
    gw_gauge speeds[GW_GAUGES];
    gw_cache_time times[GW_MAX_DEVICES];
    int whole = 1;
    for (int i = 1; i <= place->n_layers; i++) {
        gw_place_spread(place, sizes, i, place->where);
        (void)gw_place_fits(place, sizes, place->where, use, NULL);
        for (int d = 0; d < place->n_devices; d++) {
            whole = whole && use[d].kv_host == 0;
        }
    }
    GW_TRY(gw_gauge_all(place, sizes, speeds));
    gw_status status = whole ? GW_OK : gw_cache_times(place, sizes, times);
    if (status != GW_OK && status != GW_E_CANCELLED && place->hosting == GW_HOST_AUTO) {
        place->hosting = GW_HOST_NONE; /* the card gets no such memory: fewer layers, as they fit */
        whole = 1;
        status = GW_OK;
    }
    GW_TRY(status);
    *n = gw_gauge_best(place, sizes, speeds, whole ? NULL : times, place->where,
                       &place->cpu_experts);
    return GW_OK;
}

gw_status gw_place_layers(gw_place *place, const gw_place_sizes *sizes,
                          const gw_model_options *options) {
    gw_place_use use[GW_MAX_DEVICES];
    int tight = 0, n = place->n_layers;
    place->where = calloc((size_t)(n + 1) * (size_t)place->n_blocks, sizeof *place->where);
    if (place->where == NULL) {
        return gw_fail(GW_E_NOMEM, "plan", "no memory for %d layers", n);
    }
    GW_TRY(place->by_forecast ? gw_place_choose(place, sizes, place->where) : GW_OK);
    place->tables_home = place->grouped;
    const char *asked = options->offload_layers;
    int automatic = asked != NULL ? strcmp(asked, "auto") == 0 : place->automatic;
    const gw_hparams *hp = sizes->hp;
    int reads = hp->n_source > 0; /* a source: on one device, or at home */
    if (asked != NULL && !automatic) {
        GW_TRY(read_count(asked, n, &n));
    }
    place_tables(place, sizes, n);
    if (automatic && reads) {
        gw_place_spread(place, sizes, n, place->where);
        n = gw_place_fits(place, sizes, place->where, use, &tight) ? n : 0;
        place->none_fits = n == 0;
    } else if (automatic && (place->n_asked > 1 || place->asked[0] != 0)) {
        GW_TRY(choose_count(place, sizes, &n));
        n = n < 0 ? 0 : n;
        place->none_fits = n == 0 && largest_fit(place, sizes, place->where) <= 0;
    }
    if (reads && hp->n_source < hp->n_layers && n > 0 &&
        (n < place->n_layers || place->n_asked > 1)) {
        return gw_fail(GW_E_UNSUPPORTED, "offload-layers",
                       "a model that reads a source text runs on one device as a whole: all or 0");
    }
    gw_place_spread(place, sizes, n, place->where);
    int fits = gw_place_fits(place, sizes, place->where, use, &tight);
    if (!fits && place->fetching == GW_FETCH_AUTO && gw_place_fetches(place) > 0) {
        place->fetching = GW_FETCH_NEVER; /* the layers that were asked for come first */
        fits = gw_place_fits(place, sizes, place->where, use, &tight);
        gw_place_add_note(place, fits && n < place->n_layers
                                     ? "no room to compute prompts of layers in main memory too"
                                     : "");
    }
    if (!fits) {
        return refuse(place, sizes, use, n, tight, place->where);
    }
    place->offloaded = n;
    GW_TRY(gw_place_keep_caches(place, sizes, use));
    note_experts(place, sizes);
    note_tables(place, sizes);
    note_declined(place, sizes);
    gw_place_add_notes(place);
    return GW_OK;
}
