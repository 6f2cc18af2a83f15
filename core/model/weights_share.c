/* core/model/weights_share.c - the part of a weight that one card of a group has. */
#include <string.h>

#include "core/model/weights_parts.h"

/* How the blocks that use the entry cut it. */
static gw_status find_cut(const gw_weights *w, const gw_entry *e, const gw_group *group,
                          gw_cut *cut, gw_cut_rows *rows) {
    int64_t n = e->t.dim[0];
    int used = 0;
    *cut = GW_CUT_WHOLE;
    for (int b = 0; b < w->bp.n_blocks; b++) {
        const gw_spec_block *block = &w->bp.block[b];
        for (int k = 0; k < GW_SPEC_ARGS && gw_block_runs(block, &w->hp, e->layer); k++) {
            int r = block->weight[k];
            int layers = r >= 0 && w->bp.weight[r].per_layer && e->layer < w->hp.n_layers;
            size_t l = layers ? (size_t)e->layer : 0;
            if (r < 0 || &w->entries[w->start[r] + l] != e) {
                continue;
            }
            gw_cut_rows found = {0};
            gw_cut own = gw_cut_of(&w->bp, &w->hp, group, e->layer, b, k, n, &found);
            if (used++ > 0 && own != *cut) {
                return gw_fail(GW_E_UNSUPPORTED, e->t.name,
                               "is used in ways that cards share differently; use --split-mode "
                               "layer");
            }
            *cut = own;
            *rows = found;
        }
    }
    return GW_OK;
}

gw_status gw_entry_share_of(const gw_weights *w, const gw_entry *e, const gw_group *group, int card,
                            gw_entry_share *out) {
    gw_cut cut = GW_CUT_WHOLE;
    gw_cut_rows rows = {0};
    memset(out, 0, sizeof *out);
    if (group->n > 1) {
        GW_TRY(find_cut(w, e, group, &cut, &rows));
    }
    out->t = e->t;
    out->parts = 1;
    out->span = out->count = e->t.dim[0];
    if (cut != GW_CUT_WHOLE) {
        out->parts = rows.parts;
        out->span = rows.span;
        out->first = rows.first[card];
        out->count = rows.count[card];
        out->t.dim[0] = out->parts * out->count;
    }
    return GW_OK;
}

static gw_status rows_of_share(const gw_weight_source *src, int64_t first, int64_t n, void *dst) {
    const gw_entry_share *s = src->state;
    size_t bytes = 0;
    GW_TRY(gw_row_bytes(s->t.fmt, (uint64_t)s->t.dim[1], &bytes));
    for (int64_t done = 0; done < n;) {
        int64_t row = first + done, in_part = row % s->count, left = s->count - in_part;
        int64_t some = n - done < left ? n - done : left;
        int64_t from = row / s->count * s->span + s->first + in_part;
        char *to = (char *)dst + (size_t)done * bytes;
        if (s->whole.map != NULL) {
            memcpy(to, (const char *)s->whole.map + (size_t)from * bytes, (size_t)some * bytes);
        } else {
            GW_TRY(s->whole.rows(&s->whole, from, some, to));
        }
        done += some;
    }
    return GW_OK;
}

gw_weight_source gw_entry_share_source(const gw_entry *e, gw_entry_share *share) {
    size_t bytes = 0;
    share->whole = gw_entry_source(e);
    if (share->count == share->span) {
        return share->whole;
    }
    gw_weight_source src = {
        .rows = rows_of_share, .state = share, .keep_rows = share->whole.keep_rows};
    if (share->whole.map != NULL && share->parts == 1 &&
        gw_row_bytes(e->t.fmt, (uint64_t)e->t.dim[1], &bytes) == GW_OK) {
        src.map = (const char *)share->whole.map + (size_t)share->first * bytes;
        src.fd = share->whole.fd;
        src.at = share->whole.at + (uint64_t)share->first * bytes;
    }
    return src;
}

void gw_entry_share_values(const gw_entry_share *share, float *values) {
    for (int p = 0; p < share->parts && share->count < share->span; p++) {
        memmove(values + p * share->count, values + p * share->span + share->first,
                (size_t)share->count * sizeof *values);
    }
}
