/* core/model/lora_bank.c - see lora_bank.h. */
#include "core/model/lora_bank.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/weights_parts.h"

enum { PARTS = 3 };

struct gw_lora_bank {
    const gw_weights *weights;
    int places, at_once, rank; /* rank: R */
    gw_lora_product *products; /* [n_layers, n_blocks] */
    gw_lora_experts *experts;  /* the same */
    uint64_t bytes;
};

/* What fills the tensors of one block. */
typedef struct making {
    gw_lora_bank *bank;
    gw_lora *const *adapters; /* [places - 1] */
    unsigned char **used;
    gw_lora_factors *factors; /* [places - 1, PARTS] of the block's matrices */
    int64_t first[PARTS + 1]; /* rows of the stacked matrices */
    int part[PARTS];          /* of a matrix that is changed; -1 */
    int parts;
    int64_t columns; /* k */
    int of_experts;  /* the matrix that rows_of_experts are made of, */
    int64_t each;    /* rows of one expert of it,                    */
    int rank;        /* and the largest rank of its factors          */
} making;

/* 8, 16, or a multiple of 32: lanes of a decode sum are joined neighbours first, so a sum is the
 * same whichever aligned group of lanes it stands in. */
static int padded(int rank) { return rank <= 8 ? 8 : rank <= 16 ? 16 : (rank + 31) / 32 * 32; }

/* The largest rank of what is not of experts together. */
static int rank_of_linears(const gw_lora *l) {
    int rank = 1;
    for (size_t i = 0; i < gw_lora_count(l); i++) {
        const gw_lora_pair *p = gw_lora_at(l, i);
        rank = p->experts == 0 && p->rank > rank ? p->rank : rank;
    }
    return rank;
}

static const gw_lora_factors *factors_at(const making *m, int64_t place, int part) {
    for (int k = 0; place > 0 && k < PARTS; k++) {
        if (m->part[k] == part) {
            return &m->factors[(place - 1) * PARTS + k];
        }
    }
    return NULL;
}

/* Rows [first, first + n) of A over all places. */
static gw_status rows_of_a(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const making *m = src->state;
    int64_t rank = m->bank->rank, wide = m->parts * rank;
    memset(dst, 0, (size_t)(n * m->columns) * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = first + i, r = row % rank;
        const gw_lora_factors *f = factors_at(m, row / wide, (int)(row % wide / rank));
        if (f != NULL && r < f->rank) {
            memcpy((float *)dst + i * m->columns, f->a + r * m->columns,
                   (size_t)m->columns * sizeof(float));
        }
    }
    return GW_OK;
}

/* The same of B. */
static gw_status rows_of_b(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const making *m = src->state;
    int64_t rank = m->bank->rank, wide = m->parts * rank, high = m->first[PARTS];
    memset(dst, 0, (size_t)(n * wide) * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (first + i) % high;
        int k = 0;
        while (row >= m->first[k + 1]) {
            k++;
        }
        const gw_lora_factors *f =
            m->part[k] < 0 ? NULL : factors_at(m, (first + i) / high, m->part[k]);
        if (f != NULL && f->rank > 0) {
            memcpy((float *)dst + i * wide + m->part[k] * rank,
                   f->b + (row - m->first[k]) * f->rank, (size_t)f->rank * sizeof(float));
        }
    }
    return GW_OK;
}

/* Of adapters of experts: row r of A of expert x of the place's adapter, or of B. */
static gw_status rows_of_experts(const making *m, int is_b, int64_t first, int64_t n, float *dst) {
    int64_t high = is_b ? m->each : m->rank, columns = is_b ? m->rank : m->columns;
    int64_t experts = m->first[1] / m->each;
    memset(dst, 0, (size_t)(n * columns) * sizeof *dst);
    for (int64_t i = 0; i < n; i++, dst += columns) {
        int64_t row = first + i, x = row / high % experts, r = row % high;
        const gw_lora_factors *f = &m->factors[row / high / experts * PARTS + m->of_experts];
        if (is_b && f->rank > 0) {
            memcpy(dst, f->b + (x * high + r) * f->rank, (size_t)f->rank * sizeof *dst);
        } else if (!is_b && r < f->rank) {
            memcpy(dst, f->a + (x * f->rank + r) * columns, (size_t)columns * sizeof *dst);
        }
    }
    return GW_OK;
}

static gw_status rows_of_expert_a(const gw_weight_source *src, int64_t first, int64_t n,
                                  void *dst) {
    return rows_of_experts(src->state, 0, first, n, dst);
}

static gw_status rows_of_expert_b(const gw_weight_source *src, int64_t first, int64_t n,
                                  void *dst) {
    return rows_of_experts(src->state, 1, first, n, dst);
}

static gw_status load(making *m, int device, gw_tensor *t, int64_t rows, int64_t columns,
                      gw_status (*from)(const gw_weight_source *, int64_t, int64_t, void *)) {
    const gw_plan_device *d = &m->bank->weights->devices[device];
    const gw_weight_source src = {.state = m,
                                  .rows = from,
                                  .thin = from == rows_of_b,
                                  .keep_rows =
                                      from == rows_of_expert_a || from == rows_of_expert_b};
    int is_a = from == rows_of_a || from == rows_of_expert_a;
    gw_tensor made = {
        .name = is_a ? "lora A" : "lora B", .fmt = GW_FMT_F32, .n_dim = 2, .dim = {rows, columns}};
    GW_TRY(d->backend->load_weight(d->device, &made, &src));
    made.device = device;
    *t = made;
    m->bank->bytes += (uint64_t)rows * (uint64_t)columns * sizeof(float);
    return GW_OK;
}

/* Factors of all matrices of the block; rows that an absent matrix would have are none. */
static gw_status find_factors(making *m, const gw_spec_block *b, int layer) {
    const gw_weights *w = m->bank->weights;
    m->parts = 0;
    m->columns = 0;
    m->first[0] = 0;
    for (int k = 0; k < PARTS; k++) {
        int there = k < gw_block_matrices(b);
        const gw_tensor *t =
            there ? gw_weights_get(w, b->weight[k], layer, GW_WEIGHTS_WHOLE) : NULL;
        int changed = 0;
        m->first[k + 1] = m->first[k] + (t != NULL ? t->dim[0] : 0);
        m->columns = t != NULL ? t->dim[1] : m->columns;
        for (int a = 0; t != NULL && a < m->bank->places - 1; a++) {
            gw_lora_factors *f = &m->factors[a * PARTS + k];
            GW_TRY(gw_lora_factors_of(w, m->adapters[a], b, k, layer, m->used[a], f));
            changed |= f->rank > 0;
        }
        m->part[k] = changed ? m->parts++ : -1;
    }
    return GW_OK;
}

static void free_factors(making *m) {
    for (int i = 0; i < (m->bank->places - 1) * PARTS; i++) {
        free(m->factors[i].a);
        free(m->factors[i].b);
        m->factors[i] = (gw_lora_factors){0};
    }
}

/* One matrix of experts, where an adapter changes it. */
static gw_status make_experts_matrix(making *m, const gw_spec_block *b, int k, int layer,
                                     int device) {
    const gw_weights *w = m->bank->weights;
    const gw_tensor *t = gw_weights_get(w, b->weight[k], layer, GW_WEIGHTS_WHOLE);
    gw_lora_experts *e = &m->bank->experts[layer * w->bp.n_blocks + b->index];
    int64_t places = m->bank->places - 1;
    m->of_experts = k;
    m->each = m->rank = 0;
    for (int a = 0; t != NULL && a < places; a++) {
        gw_lora_factors *f = &m->factors[a * PARTS + k];
        GW_TRY(gw_lora_factors_of(w, m->adapters[a], b, k, layer, m->used[a], f));
        m->each = f->rank > 0 ? f->each : m->each;
        m->rank = f->rank > m->rank ? f->rank : m->rank;
    }
    if (m->rank == 0) {
        return GW_OK;
    }
    m->first[1] = t->dim[0];
    m->columns = t->dim[1];
    int64_t most = m->rank > m->each ? m->rank : m->each; /* rows of an expert, of A or of B */
    if (places * (t->dim[0] / m->each) * most > INT32_MAX) {
        return gw_fail(GW_E_LIMIT, "lora", "%d adapters of experts have too many rows",
                       (int)places);
    }
    GW_TRY(load(m, device, &e->a[k], places * (t->dim[0] / m->each) * m->rank, m->columns,
                rows_of_expert_a));
    return load(m, device, &e->b[k], places * t->dim[0], m->rank, rows_of_expert_b);
}

static gw_status make_experts(making *m, const gw_spec_block *b, int layer, int device) {
    gw_status status = GW_OK;
    for (int k = 0; k < PARTS && status == GW_OK; k++) {
        status = make_experts_matrix(m, b, k, layer, device);
        free_factors(m);
    }
    return status;
}

static gw_status make_product(making *m, const gw_spec_block *b, int layer, int device) {
    gw_lora_bank *bank = m->bank;
    gw_status status = find_factors(m, b, layer);
    if (status == GW_OK && m->parts > 0) {
        gw_lora_product *p = &bank->products[layer * bank->weights->bp.n_blocks + b->index];
        int64_t wide = (int64_t)m->parts * bank->rank;
        for (int k = 0; k < PARTS; k++) {
            p->end[k] = (int)m->first[k + 1];
            p->part[k] = m->part[k];
        }
        status = load(m, device, &p->a, bank->places * wide, m->columns, rows_of_a);
        if (status == GW_OK) {
            status = load(m, device, &p->b, bank->places * m->first[PARTS], wide, rows_of_b);
        }
    }
    free_factors(m);
    return status;
}

static gw_status make_all(making *m, const gw_where *where) {
    const gw_weights *w = m->bank->weights;
    for (int l = 0; l < w->hp.n_layers; l++) {
        for (int i = 0; i < w->bp.n_blocks; i++) {
            const gw_spec_block *b = &w->bp.block[i];
            if (gw_lora_takes(b) && gw_block_runs(b, &w->hp, l)) {
                int device = where[l * w->bp.n_blocks + i];
                GW_TRY(b->kind == GW_BLOCK_EXPERTS ? make_experts(m, b, l, device)
                                                   : make_product(m, b, l, device));
            }
        }
    }
    for (int a = 0; a < m->bank->places - 1; a++) {
        GW_TRY(gw_lora_all_used(w, m->adapters[a], m->used[a]));
    }
    return GW_OK;
}

static gw_status check_family(const gw_weights *w, const gw_lora *l) {
    const char *own = gw_checkpoint_architecture(w->checkpoint), *its = gw_lora_architecture(l);
    if (gw_checkpoint_container(w->checkpoint) == GW_CONTAINER_GGUF && its[0] != '\0' &&
        strcmp(own, its) != 0) {
        return gw_fail(GW_E_METADATA, gw_lora_path(l),
                       "is an adapter for the architecture %s, the model's is %s", its, own);
    }
    for (size_t i = 0; i < w->start[w->bp.n_weights]; i++) {
        if (w->entries[i].row != NULL) {
            return gw_fail(GW_E_UNSUPPORTED, gw_lora_path(l),
                           "the model's values stand in an order of their own between gate, up and "
                           "down (act-order): load it with --weights float");
        }
    }
    return GW_OK;
}

gw_status gw_lora_bank_new(const gw_weights *w, gw_lora *const *adapters, int n, int at_once,
                           const gw_where *where, gw_lora_bank **out) {
    gw_lora_bank *bank = calloc(1, sizeof *bank);
    making m = {.bank = bank, .adapters = adapters};
    gw_status status = GW_OK;
    m.used = calloc((size_t)n + 1, sizeof *m.used);
    m.factors = calloc((size_t)n * PARTS + 1, sizeof *m.factors);
    int room = bank != NULL && m.used != NULL && m.factors != NULL;
    if (room) {
        *bank = (gw_lora_bank){.weights = w, .places = n + 1, .at_once = at_once, .rank = 8};
        bank->products =
            calloc((size_t)w->hp.n_layers * (size_t)w->bp.n_blocks + 1, sizeof *bank->products);
        bank->experts =
            calloc((size_t)w->hp.n_layers * (size_t)w->bp.n_blocks + 1, sizeof *bank->experts);
        room = bank->products != NULL && bank->experts != NULL;
    }
    for (int a = 0; a < n && room; a++) {
        int rank = padded(rank_of_linears(adapters[a]));
        bank->rank = rank > bank->rank ? rank : bank->rank;
        m.used[a] = calloc(gw_lora_count(adapters[a]) + 1, 1);
        room = m.used[a] != NULL;
    }
    if (!room) {
        status = gw_fail(GW_E_NOMEM, "lora", "no memory for %d adapters", n);
    }
    for (int a = 0; a < n && status == GW_OK; a++) {
        status = check_family(w, adapters[a]);
    }
    status = status == GW_OK ? make_all(&m, where) : status;
    for (int a = 0; m.used != NULL && a < n; a++) {
        free(m.used[a]);
    }
    free(m.used);
    free(m.factors);
    if (status != GW_OK) {
        gw_lora_bank_free(bank);
        return status;
    }
    *out = bank;
    return GW_OK;
}

static void release(const gw_weights *w, const gw_tensor *t) {
    if (t->buf != NULL) {
        w->devices[t->device].backend->release(t->buf);
    }
}

void gw_lora_bank_free(gw_lora_bank *bank) {
    if (bank == NULL) {
        return;
    }
    const gw_weights *w = bank->weights;
    for (int i = 0; i < w->hp.n_layers * w->bp.n_blocks; i++) {
        if (bank->products != NULL) {
            release(w, &bank->products[i].a);
            release(w, &bank->products[i].b);
        }
        for (int k = 0; bank->experts != NULL && k < PARTS; k++) {
            release(w, &bank->experts[i].a[k]);
            release(w, &bank->experts[i].b[k]);
        }
    }
    free(bank->products);
    free(bank->experts);
    free(bank);
}

const gw_lora_product *gw_lora_bank_at(const gw_lora_bank *bank, int layer, int block) {
    if (bank == NULL || layer < 0 || layer >= bank->weights->hp.n_layers) {
        return NULL;
    }
    const gw_lora_product *p = &bank->products[layer * bank->weights->bp.n_blocks + block];
    return p->b.n_dim > 0 ? p : NULL;
}

const gw_lora_experts *gw_lora_bank_experts(const gw_lora_bank *bank, int layer, int block) {
    if (bank == NULL || layer < 0 || layer >= bank->weights->hp.n_layers) {
        return NULL;
    }
    const gw_lora_experts *e = &bank->experts[layer * bank->weights->bp.n_blocks + block];
    return e->a[0].n_dim > 0 || e->a[1].n_dim > 0 || e->a[2].n_dim > 0 ? e : NULL;
}

int gw_lora_bank_places(const gw_lora_bank *bank) { return bank->places; }
int gw_lora_bank_at_once(const gw_lora_bank *bank) { return bank->at_once; }
int gw_lora_bank_rank(const gw_lora_bank *bank) { return bank->rank; }
uint64_t gw_lora_bank_bytes(const gw_lora_bank *bank) { return bank->bytes; }
