/* core/text/grammar/grammar_source.c - rules, alternatives and items; characters as bytes of UTF-8.
 */
#include "core/text/grammar/grammar_source.h"

gw_status gw_source_open(gw_source *s, const char *where) {
    *s = (gw_source){.where = where, .blamed = GW_NONE};
    s->known_sets = gw_map_new();
    s->known_classes = gw_map_new();
    s->arena = gw_arena_new();
    return s->known_sets != NULL && s->known_classes != NULL && s->arena != NULL
               ? GW_OK
               : gw_fail(GW_E_NOMEM, where, "no memory");
}

void gw_source_close(gw_source *s) {
    free(s->rules);
    free(s->alts);
    free(s->items);
    free(s->sets);
    gw_map_free(s->known_sets);
    gw_map_free(s->known_classes);
    gw_arena_free(s->arena);
    *s = (gw_source){0};
}

/* ---- lists ----------------------------------------------------------------------------------- */

gw_status gw_source_add_rule(gw_source *s, uint32_t owner, uint32_t *out) {
    void *rules = s->rules;
    gw_status status =
        gw_array_reserve(&rules, &s->rules_capacity, s->n_rules + 1, sizeof *s->rules);
    s->rules = rules;
    GW_TRY(status);
    *out = (uint32_t)s->n_rules++;
    s->rules[*out] = (gw_source_rule){.owner = owner == GW_NONE ? *out : s->rules[owner].owner,
                                      .defined = 1,
                                      .first = GW_NONE,
                                      .last = GW_NONE};
    return GW_OK;
}

gw_status gw_source_add_alt(gw_source *s, uint32_t rule, uint32_t *out) {
    void *alts = s->alts;
    gw_status status = gw_array_reserve(&alts, &s->alts_capacity, s->n_alts + 1, sizeof *s->alts);
    s->alts = alts;
    GW_TRY(status);
    *out = (uint32_t)s->n_alts++;
    s->alts[*out] = (gw_source_alt){.rule = rule, .first = GW_NONE, .next = GW_NONE};
    gw_source_rule *r = &s->rules[rule];
    if (r->last == GW_NONE) {
        r->first = *out;
    } else {
        s->alts[r->last].next = *out;
    }
    r->last = *out;
    return GW_OK;
}

gw_status gw_source_add_item(gw_source *s, uint32_t alt, uint32_t after, gw_source_item item,
                             uint32_t *out) {
    void *items = s->items;
    gw_status status =
        gw_array_reserve(&items, &s->items_capacity, s->n_items + 1, sizeof *s->items);
    s->items = items;
    GW_TRY(status);
    *out = (uint32_t)s->n_items++;
    item.next = GW_NONE;
    s->items[*out] = item;
    if (after == GW_NONE) {
        s->alts[alt].first = *out;
    } else {
        s->items[after].next = *out;
    }
    return GW_OK;
}

gw_status gw_source_set(gw_source *s, const gw_byte_set *set, uint32_t *out) {
    size_t known;
    if (gw_map_find(s->known_sets, set, sizeof *set, &known)) {
        *out = (uint32_t)known;
        return GW_OK;
    }
    void *sets = s->sets;
    gw_status status = gw_array_reserve(&sets, &s->sets_capacity, s->n_sets + 1, sizeof *s->sets);
    s->sets = sets;
    GW_TRY(status);
    char *key = gw_arena_copy(s->arena, set, sizeof *set);
    if (key == NULL ||
        gw_map_add(s->known_sets, key, sizeof *set, s->n_sets, NULL) == GW_MAP_NOMEM) {
        return gw_fail(GW_E_NOMEM, s->where, "no memory");
    }
    *out = (uint32_t)s->n_sets;
    s->sets[s->n_sets++] = *set;
    return GW_OK;
}

/* ---- characters ------------------------------------------------------------------------------ */

static void set_range(gw_byte_set *set, unsigned low, unsigned high) {
    for (unsigned b = low; b <= high; b++) {
        set->bits[b >> 6] |= (uint64_t)1 << (b & 63);
    }
}

/* Sequences of byte sets, each a way to spell some of the characters. */
typedef struct spelling {
    gw_byte_set at[4];
    int n;
} spelling;

typedef struct class_work {
    gw_source *s;
    uint32_t rule;
    spelling last; /* not written yet: the next one may join it */
} class_work;

static gw_status write_spelling(class_work *w) {
    uint32_t alt = 0, tail = GW_NONE;
    if (w->last.n == 0) {
        return GW_OK;
    }
    GW_TRY(gw_source_add_alt(w->s, w->rule, &alt));
    for (int i = 0; i < w->last.n; i++) {
        gw_source_item item = {.min = 1, .max = 1};
        GW_TRY(gw_source_set(w->s, &w->last.at[i], &item.arg));
        GW_TRY(gw_source_add_item(w->s, alt, tail, item, &tail));
    }
    w->last.n = 0;
    return GW_OK;
}

/* Two spellings that differ in one place only are one. */
static gw_status join_spelling(class_work *w, const spelling *next) {
    int differ = 0, at = 0;
    for (int i = 0; i < next->n && w->last.n == next->n; i++) {
        if (memcmp(&w->last.at[i], &next->at[i], sizeof next->at[i]) != 0) {
            differ++;
            at = i;
        }
    }
    if (w->last.n == next->n && differ <= 1) {
        for (int k = 0; k < 4; k++) {
            w->last.at[at].bits[k] |= next->at[at].bits[k];
        }
        return GW_OK;
    }
    GW_TRY(write_spelling(w));
    w->last = *next;
    return GW_OK;
}

static int encode(uint32_t cp, unsigned char out[4]) {
    if (cp < 0x80) {
        out[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (unsigned char)(0xC0 | cp >> 6);
        out[1] = (unsigned char)(0x80 | (cp & 63));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (unsigned char)(0xE0 | cp >> 12);
        out[1] = (unsigned char)(0x80 | (cp >> 6 & 63));
        out[2] = (unsigned char)(0x80 | (cp & 63));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | cp >> 18);
    out[1] = (unsigned char)(0x80 | (cp >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (cp >> 6 & 63));
    out[3] = (unsigned char)(0x80 | (cp & 63));
    return 4;
}

/* Where the range has to be cut so that its bytes vary independently: the last character of its
 * first part. */
static uint32_t first_part(uint32_t low, uint32_t high) {
    static const uint32_t lengths[] = {0x7F, 0x7FF, 0xD7FF, 0xFFFF};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (low <= lengths[i] && high > lengths[i]) {
            high = lengths[i];
        }
    }
    for (int bits = low < 0x80      ? 0
                    : low < 0x800   ? 6
                    : low < 0x10000 ? 12
                                    : 18;
         bits > 0; bits -= 6) {
        uint32_t block = ((uint32_t)1 << bits) - 1;
        if ((low & ~block) == (high & ~block)) {
            continue; /* the same leading bytes */
        }
        if ((low & block) != 0) {
            return low | block;
        }
        if ((high & block) != block) {
            high = (high & ~block) - 1;
        }
        return high;
    }
    return high;
}

/* Surrogates are no characters. */
static gw_status add_range(class_work *w, uint32_t low, uint32_t high) {
    while (low <= high) {
        uint32_t to = first_part(low, high);
        if (low >= 0xD800 && low <= 0xDFFF) {
            low = 0xE000;
            continue;
        }
        unsigned char a[4], b[4];
        spelling next = {.n = encode(low, a)};
        encode(to, b);
        for (int i = 0; i < next.n; i++) {
            set_range(&next.at[i], a[i], b[i]);
        }
        GW_TRY(join_spelling(w, &next));
        low = to + 1;
    }
    return GW_OK;
}

gw_status gw_source_class(gw_source *s, uint32_t owner, const gw_code_range *ranges, size_t n,
                          gw_source_item *out) {
    *out = (gw_source_item){.min = 1, .max = 1};
    if (ranges[n - 1].high < 0x80) {
        gw_byte_set set = {{0}};
        for (size_t i = 0; i < n; i++) {
            set_range(&set, ranges[i].low, ranges[i].high);
        }
        return gw_source_set(s, &set, &out->arg);
    }
    size_t known, bytes = n * sizeof *ranges;
    out->is_rule = 1;
    if (gw_map_find(s->known_classes, ranges, bytes, &known)) {
        out->arg = (uint32_t)known;
        return GW_OK;
    }
    class_work w = {.s = s};
    GW_TRY(gw_source_add_rule(s, owner, &w.rule));
    for (size_t i = 0; i < n; i++) {
        GW_TRY(add_range(&w, ranges[i].low, ranges[i].high));
    }
    GW_TRY(write_spelling(&w));
    char *key = gw_arena_copy(s->arena, ranges, bytes);
    if (key == NULL || gw_map_add(s->known_classes, key, bytes, w.rule, NULL) == GW_MAP_NOMEM) {
        return gw_fail(GW_E_NOMEM, s->where, "no memory");
    }
    out->arg = w.rule;
    return GW_OK;
}

/* ---- long repetitions ------------------------------------------------------------------------ */

enum { RUN = 256, LONG = 1024 };

typedef struct runs { /* rules of RUN times the same thing */
    gw_source *s;
    gw_map *known;
} runs;

static gw_status add_run(runs *r, uint32_t owner, const gw_source_item *x, uint32_t *rule) {
    uint32_t key[2] = {x->is_rule, x->arg}, alt, tail;
    size_t known;
    if (gw_map_find(r->known, key, sizeof key, &known)) {
        *rule = (uint32_t)known;
        return GW_OK;
    }
    char *copy = gw_arena_copy(r->s->arena, key, sizeof key);
    gw_source_item item = {.is_rule = x->is_rule, .arg = x->arg, .min = RUN, .max = RUN};
    GW_TRY(gw_source_add_rule(r->s, owner, rule));
    GW_TRY(gw_source_add_alt(r->s, *rule, &alt));
    GW_TRY(gw_source_add_item(r->s, alt, GW_NONE, item, &tail));
    return copy == NULL || gw_map_add(r->known, copy, sizeof key, *rule, NULL) == GW_MAP_NOMEM
               ? gw_fail(GW_E_NOMEM, r->s->where, "no memory")
               : GW_OK;
}

/* min + s + RUN q times: min (runs, then single ones), and then at most s; or s, up to q - 1 runs
 * and up to RUN single ones. */
static gw_status shorten(runs *r, uint32_t owner, uint32_t at) {
    gw_source *s = r->s;
    gw_source_item x = s->items[at];
    uint32_t run, rule, alt, tail = GW_NONE;
    uint32_t more = x.max == GW_NONE ? 0 : x.max - x.min, left = more % RUN, q = more / RUN;
    gw_source_item one = {.is_rule = x.is_rule, .arg = x.arg};
    GW_TRY(add_run(r, owner, &x, &run));
    gw_source_item many = {.is_rule = 1, .arg = run};
    GW_TRY(gw_source_add_rule(s, owner, &rule));
    for (int side = 0; side < 2; side++) {
        const uint32_t parts[2][2] = {{0, left}, {left, left}};
        GW_TRY(gw_source_add_alt(s, rule, &alt));
        many.min = many.max = x.min / RUN;
        GW_TRY(gw_source_add_item(s, alt, GW_NONE, many, &tail));
        one.min = one.max = x.min % RUN;
        if (x.max == GW_NONE) {
            one.max = GW_NONE;
            GW_TRY(gw_source_add_item(s, alt, tail, one, &tail));
            break;
        }
        GW_TRY(gw_source_add_item(s, alt, tail, one, &tail));
        one.min = parts[side][0];
        one.max = parts[side][1];
        GW_TRY(gw_source_add_item(s, alt, tail, one, &tail));
        if (side == 1) {
            many.min = one.min = 0;
            many.max = q - 1;
            one.max = RUN;
            GW_TRY(gw_source_add_item(s, alt, tail, many, &tail));
            GW_TRY(gw_source_add_item(s, alt, tail, one, &tail));
        }
        if (q == 0) {
            break;
        }
    }
    gw_source_item *item = &s->items[at];
    item->is_rule = 1;
    item->arg = rule;
    item->min = item->max = 1;
    return GW_OK;
}

gw_status gw_source_shorten(gw_source *s) {
    runs r = {.s = s, .known = gw_map_new()};
    gw_status status = r.known != NULL ? GW_OK : gw_fail(GW_E_NOMEM, s->where, "no memory");
    size_t n = s->n_alts;
    for (uint32_t a = 0; a < n && status == GW_OK; a++) {
        for (uint32_t i = s->alts[a].first; i != GW_NONE && status == GW_OK; i = s->items[i].next) {
            const gw_source_item *x = &s->items[i];
            if (x->min > LONG || (x->max != GW_NONE && x->max > LONG)) {
                status = shorten(&r, s->alts[a].rule, i);
            }
        }
    }
    gw_map_free(r.known);
    return status;
}
