/* core/text/answer/answer_call.c - a call along the steps of its form's patterns; see
 * answer_reader.h. */
#include "core/text/answer/answer_reader.h"

enum { BEGIN, CALL, END, PARAM, SECTIONS };

static const gw_pattern *section(const gw_reader *r) {
    const gw_pattern *all[SECTIONS] = {&r->begin, &r->call, &r->end, &r->param};
    return all[r->section];
}

static const gw_step *step_at(const gw_reader *r) {
    const gw_pattern *p = section(r);
    return r->step < p->n ? &p->steps[r->step] : NULL;
}

static const uint16_t *symbols_of(const gw_reader *r, const gw_step *step) {
    return section(r)->symbols + step->at;
}

static void keep_raw(gw_reader *r, unsigned c) {
    char byte = (char)c;
    if (c < GW_SYMBOL_OPENS) {
        gw_reader_add(r, &r->raw, &byte, 1);
    }
}

/* ---- what is found --------------------------------------------------------------------------- */

static void make_id(gw_reader *r) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t x = r->id_seed + (r->n_calls + 1) * 0x9E3779B97F4A7C15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    r->id.n = 0;
    for (int i = 0; i < 9; i++, x /= 62) {
        gw_reader_add(r, &r->id, &letters[x % 62], 1);
    }
}

/* "functions.NAME:3": all of it is the id. */
static void split_numbered(gw_reader *r) {
    static const char prefix[] = "functions.";
    size_t n = r->name.n, digits = 0, skip = sizeof prefix - 1;
    r->id.n = 0;
    gw_reader_add(r, &r->id, r->name.data, r->name.n);
    while (digits < n && r->name.data[n - 1 - digits] >= '0' &&
           r->name.data[n - 1 - digits] <= '9') {
        digits++;
    }
    if (digits > 0 && digits < n && r->name.data[n - 1 - digits] == ':') {
        n -= digits + 1;
    }
    if (n > skip && memcmp(r->name.data, prefix, skip) == 0) {
        memmove(r->name.data, r->name.data + skip, n - skip);
        n -= skip;
    }
    r->name.n = n;
}

int gw_call_name(gw_reader *r) {
    if (r->name.n == 0 ||
        ((r->tools->flags & GW_TOOLS_LISTED) != 0 && r->list != NULL && r->list->n > 0 &&
         gw_tools_find(r->list, r->name.data, r->name.n) == NULL)) {
        return 0;
    }
    r->named = 1;
    if (r->id.n < 9) {
        make_id(r);
    }
    if (!r->whole_calls) {
        gw_reader_emit(r, GW_PART_CALL, NULL, 0);
    }
    if (r->arguments.n > 0 && !r->whole_calls) { /* they came before the name */
        gw_reader_emit(r, GW_PART_ARGUMENTS, r->arguments.data, r->arguments.n);
        r->arguments.n = 0;
    }
    return 1;
}

void gw_call_arguments(gw_reader *r, const char *text, size_t n) {
    if (r->named && !r->whole_calls) {
        gw_reader_emit(r, GW_PART_ARGUMENTS, text, n);
    } else {
        gw_reader_add(r, &r->arguments, text, n);
    }
}

void gw_call_whole(gw_reader *r) {
    if (r->whole_calls) {
        gw_reader_emit(r, GW_PART_CALL, NULL, 0);
        gw_reader_emit(r, GW_PART_ARGUMENTS, r->arguments.data, r->arguments.n);
    }
    gw_reader_emit(r, GW_PART_CALL_END, NULL, 0);
    r->n_calls++;
    r->raw.n = 0;
    r->where = GW_IN_TEXT;
    r->whole = 1;
    r->broken = 0;
    r->named = 0;
    r->arguments.n = r->name.n = r->id.n = r->keys.n = 0;
    r->empty = 1;
}

void gw_call_reset(gw_reader *r) {
    r->section = CALL;
    r->step = r->pos = 0;
    r->whole = r->named = r->streaming = r->doubled = r->line_end = 0;
    r->name.n = r->id.n = r->key.n = r->value.n = r->arguments.n = r->keys.n = 0;
    r->empty = 1;
    r->types = 0;
    r->scan = (gw_scan){0};
    r->object = GW_OBJECT_BEGIN;
    r->listed = r->outer = r->nested = r->escaped = r->is_arguments = r->python = 0;
    r->deep = 0;
    r->quoted = 0;
    r->params = 0;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

void gw_call_begin(gw_reader *r, const gw_mark *mark) {
    gw_call_reset(r);
    r->calling = 1;
    r->unmarked = mark == NULL;
    r->raw.n = 0;
    gw_reader_add(r, &r->raw, r->space.data, r->space.n);
    r->space.n = 0;
    if (mark == NULL) {
        size_t object = gw_pattern_find(&r->call, GW_STEP_OBJECT);
        r->step = object;
        return;
    }
    r->section = mark->action == GW_MARK_BEGIN ? BEGIN : CALL;
    r->step = (size_t)(gw_pattern_first(section(r)) - section(r)->steps) + 1;
    for (size_t i = 0; i < mark->n; i++) {
        keep_raw(r, mark->symbols[i]);
    }
}

void gw_call_of(gw_reader *r, const char *name, size_t n) {
    gw_call_reset(r);
    r->calling = 1;
    r->unmarked = 0;
    r->raw.n = r->space.n = 0;
    gw_reader_add(r, &r->name, name, n);
    r->step = gw_pattern_find(&r->call, GW_STEP_ARGUMENTS);
    if (!gw_call_name(r)) {
        r->calling = 0;
    }
}

void gw_call_break(gw_reader *r) {
    int given = r->named && !r->whole_calls;
    r->calling = 0;
    r->bare = 0;
    r->broken = 1;
    if (given) {
        gw_reader_emit(r, GW_PART_CALL_BROKEN, NULL, 0);
        r->n_calls++;
    }
    gw_part_kind kind = r->where == GW_IN_REASONING ? GW_PART_REASONING : GW_PART_TEXT;
    size_t n = r->raw.n;
    while (n > 0 && gw_symbol_is_space((unsigned char)r->raw.data[n - 1])) {
        n--;
    }
    if (n > 0) {
        gw_reader_emit(r, kind, r->raw.data, n);
        r->eat = 0;
        gw_reader_add(r, &r->space, r->raw.data + n, r->raw.n - n);
    }
    r->raw.n = 0;
    gw_call_reset(r);
}

void gw_call_end_of_text(gw_reader *r) {
    if (r->whole && !r->named && r->name.n == 0) { /* of a whole call only the end is missing */
        r->calling = 0;
        r->raw.n = 0;
        return;
    }
    if (r->cut && (r->named || r->forced || !r->unmarked)) {
        if (r->named && !r->whole_calls) {
            gw_reader_emit(r, (gw_part_kind)GW_PART_CALL_CUT, NULL, 0);
            r->n_calls++;
        }
        r->calling = 0;
        r->raw.n = 0;
        gw_call_reset(r);
        return;
    }
    gw_call_break(r);
}

/* Back to text, where more calls may follow. */
static void leave(gw_reader *r) {
    r->calling = 0;
    r->raw.n = 0;
    r->eat = 1;
    r->bare = (r->tools->flags & GW_TOOLS_BARE) != 0;
    gw_call_reset(r);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void add_argument_text(gw_reader *r, const char *text) {
    gw_call_arguments(r, text, strlen(text));
}

/* The key of the next parameter is known. */
static void begin_value(gw_reader *r) {
    const gw_tool *tool = gw_tools_find(r->list, r->name.data, r->name.n);
    gw_bytes name = {0};
    r->types =
        r->types != 0 ? r->types : gw_answer_types(tool, r->key.n > 0 ? r->key.data : "", r->key.n);
    r->failed |= gw_json_string_add(&name, r->key.data, r->key.n, 1) != GW_OK;
    gw_reader_add(r, &name, ": ", 2);
    size_t n = name.n;
    r->doubled = 0;
    for (size_t i = 0; i + n <= r->keys.n && !r->doubled; i++) {
        r->doubled = memcmp(r->keys.data + i, name.data, n) == 0;
    }
    gw_reader_add(r, &r->keys, name.data, n);
    r->value.n = r->n_value = 0;
    r->line_end = 0;
    r->streaming = r->types == GW_IS_STRING && r->tools->raw_end == NULL;
    if (!r->doubled) {
        add_argument_text(r, r->empty ? "{" : ", ");
        gw_call_arguments(r, name.data, n);
        r->empty = 0;
        if (r->streaming) {
            add_argument_text(r, "\"");
        }
    }
    free(name.data);
}

/* One more byte of the value. The pattern's own line breaks are around it: the first byte is left
 * out when it is one, and the last. */
static void value_byte(gw_reader *r, unsigned c) {
    const gw_pattern *p = section(r);
    int wrapped = r->step > 0 && p->steps[r->step - 1].kind == GW_STEP_SPACE;
    char byte = (char)c;
    r->n_value++;
    if (!r->streaming) {
        gw_reader_add(r, &r->value, &byte, 1);
        return;
    }
    if (r->doubled || (wrapped && r->n_value == 1 && c == '\n')) {
        return;
    }
    gw_bytes escaped = {0};
    if (r->line_end) {
        add_argument_text(r, "\\n");
    }
    r->line_end = wrapped && c == '\n';
    if (!r->line_end) {
        r->failed |= gw_json_string_add(&escaped, &byte, 1, 0) != GW_OK;
        gw_call_arguments(r, escaped.data, escaped.n);
        free(escaped.data);
    }
}

static int starts_with(const gw_bytes *b, const char *text) {
    size_t n = strlen(text);
    return b->n >= n && memcmp(b->data, text, n) == 0;
}

static int is_open_cdata(const gw_reader *r) {
    return r->tools->raw_end != NULL && starts_with(&r->value, "<![CDATA[") &&
           (r->value.n < 12 || memcmp(r->value.data + r->value.n - 3, "]]>", 3) != 0);
}

static void end_value(gw_reader *r) {
    const gw_pattern *p = section(r);
    int wrapped = r->step > 0 && p->steps[r->step - 1].kind == GW_STEP_SPACE;
    const char *text = r->value.n > 0 ? r->value.data : "";
    size_t n = r->value.n;
    unsigned types = r->types;
    r->types = 0;
    if (r->streaming) {
        if (!r->doubled) {
            add_argument_text(r, "\"");
        }
        return;
    }
    if (wrapped && n > 0 && text[0] == '\n') {
        text++;
        n--;
    }
    if (wrapped && n > 0 && text[n - 1] == '\n') {
        n--;
    }
    if (r->tools->raw_end != NULL && starts_with(&r->value, "<![CDATA[")) {
        text += 9;
        n -= 12;
        types = types == GW_IS_ANYTHING ? GW_IS_STRING : types;
    }
    gw_bytes json = {0};
    r->failed |= gw_value_json(text, n, types, &json) != GW_OK;
    if (!r->doubled) {
        gw_call_arguments(r, json.data, json.n);
    }
    free(json.data);
}

static void end_params(gw_reader *r) {
    add_argument_text(r, r->empty ? "{}" : "}");
    gw_call_whole(r);
}

/* ---- one symbol ------------------------------------------------------------------------------ */

typedef enum taken { TAKEN, AGAIN, WRONG } taken;

static void next_step(gw_reader *r) {
    r->step++;
    r->pos = 0;
}

static taken wrong_again(gw_reader *r, const uint16_t *symbols, size_t n, unsigned c) {
    uint16_t again[GW_HOLD_MAX];
    size_t bytes = 0;
    for (size_t i = 0; i < n && i < GW_HOLD_MAX; i++) {
        again[i] = symbols[i];
        bytes += symbols[i] < GW_SYMBOL_OPENS;
    }
    r->raw.n -= bytes < r->raw.n ? bytes : r->raw.n;
    if (r->whole && !r->named) {
        leave(r);
    } else {
        gw_call_break(r);
    }
    for (size_t i = 0; i < n; i++) {
        gw_reader_symbol(r, again[i]);
    }
    gw_reader_symbol(r, c);
    return TAKEN;
}

/* The symbols do not go on with this mark: another one that begins alike, before the arguments,
 * may stand there instead (an id that is left out). */
static int skip_ahead(gw_reader *r, unsigned c) {
    const gw_pattern *p = section(r);
    const gw_step *now = step_at(r);
    for (size_t i = r->step; i < p->n && r->section == CALL; i++) {
        const gw_step *s = &p->steps[i];
        if (s->kind == GW_STEP_ARGUMENTS && r->pos == 0 && c == '{') {
            r->step = i;
            return 1;
        }
        if (s->kind == GW_STEP_TEXT && i > r->step && s->n > r->pos &&
            p->symbols[s->at + r->pos] == c &&
            memcmp(p->symbols + s->at, p->symbols + now->at, r->pos * sizeof *p->symbols) == 0) {
            r->step = i;
            return 1;
        }
        if (s->kind != GW_STEP_TEXT && s->kind != GW_STEP_ID && s->kind != GW_STEP_SPACE) {
            return 0;
        }
    }
    return 0;
}

static taken take_text(gw_reader *r, const gw_step *step, unsigned c) {
    const uint16_t *symbols = symbols_of(r, step);
    if (symbols[r->pos] == c) {
        keep_raw(r, c);
        if (++r->pos == step->n) {
            next_step(r);
        }
        return TAKEN;
    }
    if (r->pos == 0 && gw_symbol_is_space(c)) {
        keep_raw(r, c);
        return TAKEN;
    }
    if (skip_ahead(r, c)) {
        return AGAIN;
    }
    return wrong_again(r, symbols, r->pos, c);
}

static int ends_name(const gw_reader *r, unsigned c) {
    const gw_pattern *p = section(r);
    const gw_step *next = r->step + 1 < p->n ? &p->steps[r->step + 1] : NULL;
    return c >= GW_SYMBOL_OPENS || gw_symbol_is_space(c) || strchr("<>\"{}[]()", (int)c) != NULL ||
           (next != NULL && next->kind == GW_STEP_TEXT && p->symbols[next->at] == c);
}

static taken take_name(gw_reader *r, gw_bytes *to, unsigned c) {
    char byte = (char)c;
    int is_name = to == &r->name;
    if (to->n == 0 && gw_symbol_is_space(c)) {
        keep_raw(r, c);
        return TAKEN;
    }
    if (!ends_name(r, c)) {
        if (to->n == GW_NAME_MAX || c == 0) {
            return WRONG;
        }
        keep_raw(r, c);
        gw_reader_add(r, to, &byte, 1);
        return TAKEN;
    }
    if (is_name && to->n == 0 && (c == '{' || c == '[')) { /* the call as a JSON object instead */
        const gw_pattern *p = section(r);
        size_t i = gw_pattern_find(p, GW_STEP_ARGUMENTS);
        i = i < p->n ? i : gw_pattern_find(p, GW_STEP_PARAMS);
        r->python = -1;
        r->step = i < p->n ? i : r->step;
        return i < p->n ? AGAIN : WRONG;
    }
    if (to->n == 0) {
        return is_name ? WRONG : (next_step(r), AGAIN);
    }
    if (is_name && (r->tools->flags & GW_TOOLS_OPENED) != 0 && starts_with(to, "all") &&
        to->n == 3) {
        leave(r); /* no tool: everybody, that is text */
        r->bare = 0;
        gw_reader_symbol(r, c);
        return TAKEN;
    }
    if (is_name && (r->tools->flags & GW_TOOLS_NUMBERED) != 0) {
        split_numbered(r);
    }
    next_step(r);
    return AGAIN;
}

/* CALL is given out as late as it may be: with the first of the arguments, so that an id behind the
 * name is known. */
static int need_named(gw_reader *r) { return r->named || gw_call_name(r); }

static taken take_params(gw_reader *r, unsigned c) {
    const gw_pattern *p = section(r);
    const gw_step *other = gw_pattern_first(&r->param);
    const uint16_t *a = r->param.symbols + other->at, *b = NULL;
    size_t next = r->step + 1, n_b = 0;
    while (next < p->n && p->steps[next].kind == GW_STEP_SPACE) {
        next++;
    }
    if (next < p->n && p->steps[next].kind == GW_STEP_TEXT) {
        b = p->symbols + p->steps[next].at;
        n_b = p->steps[next].n;
    }
    if (!need_named(r)) {
        return WRONG;
    }
    if (r->pos == 0 && gw_symbol_is_space(c)) {
        keep_raw(r, c);
        return TAKEN;
    }
    /* of two marks that begin alike, as far as they do */
    const uint16_t *now = r->params ? b : a;
    int goes_a = r->pos < other->n && a[r->pos] == c && memcmp(a, now, r->pos * sizeof *a) == 0;
    int goes_b = r->pos < n_b && b[r->pos] == c && memcmp(b, now, r->pos * sizeof *b) == 0;
    if (!goes_a && !goes_b) {
        return wrong_again(r, now, r->pos, c);
    }
    keep_raw(r, c);
    r->params = goes_b && !goes_a;
    r->pos++;
    if (goes_a && r->pos == other->n) {
        r->section = PARAM;
        r->step = (size_t)(other - r->param.steps) + 1;
        r->pos = 0;
        r->key.n = 0;
        r->types = 0;
    } else if (goes_b && r->pos == n_b) {
        r->step = next;
        next_step(r);
        end_params(r);
    }
    return TAKEN;
}

static taken take_key(gw_reader *r, unsigned c) {
    const gw_pattern *p = section(r);
    const gw_step *next = r->step + 1 < p->n ? &p->steps[r->step + 1] : NULL;
    char byte = (char)c;
    if (next != NULL && next->kind == GW_STEP_TEXT && p->symbols[next->at] == c) {
        next_step(r);
        return AGAIN;
    }
    if (c >= GW_SYMBOL_OPENS || r->key.n == GW_NAME_MAX || c == 0) {
        return WRONG;
    }
    keep_raw(r, c);
    gw_reader_add(r, &r->key, &byte, 1);
    return TAKEN;
}

/* string="true", type="number": words that say how the value is meant. */
static taken take_type(gw_reader *r, const gw_step *step, unsigned c) {
    const gw_pattern *p = section(r);
    char byte = (char)c;
    if (c != p->symbols[p->steps[r->step + 1].at]) {
        if (c >= GW_SYMBOL_OPENS || r->value.n == GW_NAME_MAX) {
            return WRONG;
        }
        keep_raw(r, c);
        gw_reader_add(r, &r->value, &byte, 1);
        return TAKEN;
    }
    const char *text = step->kind == GW_STEP_IS_TEXT ? "true" : "string";
    int is_text = starts_with(&r->value, text) && r->value.n == strlen(text);
    r->types = is_text ? GW_IS_STRING : GW_IS_ANYTHING & ~GW_IS_STRING;
    r->value.n = 0;
    next_step(r);
    return AGAIN;
}

/* The value goes on until the mark behind it. */
static taken take_value(gw_reader *r, unsigned c) {
    const gw_pattern *p = section(r);
    size_t next = r->step + 1;
    while (next < p->n && p->steps[next].kind == GW_STEP_SPACE) {
        next++;
    }
    const uint16_t *end = p->symbols + p->steps[next].at;
    size_t n = p->steps[next].n;
    if (!r->is_arguments) {
        begin_value(r);
        r->is_arguments = 1; /* has begun */
    }
    keep_raw(r, c);
    if (end[r->pos] == c) {
        if (++r->pos < n) {
            return TAKEN;
        }
        if (is_open_cdata(r)) {
            for (size_t i = 0; i < n; i++) {
                value_byte(r, end[i]);
            }
            r->pos = 0;
            return TAKEN;
        }
        end_value(r);
        r->is_arguments = 0;
        r->step = next;
        next_step(r);
        return TAKEN;
    }
    /* what was taken for the mark is part of the value; its end may begin the mark again */
    uint16_t seen[GW_HOLD_MAX];
    size_t k = r->pos, from = 0;
    memcpy(seen, end, k * sizeof *seen);
    seen[k++] = (uint16_t)c;
    while (from < k && memcmp(seen + from, end, (k - from) * sizeof *seen) != 0) {
        if (seen[from] < GW_SYMBOL_OPENS) {
            value_byte(r, seen[from]);
        }
        from++;
    }
    r->pos = k - from;
    return TAKEN;
}

static taken take_object(gw_reader *r, unsigned c) {
    int done = 0;
    if (c >= GW_SYMBOL_OPENS) {
        return WRONG;
    }
    size_t calls = r->n_calls;
    int got = gw_object_symbol(r, c, &done);
    if (got < 0) {
        return WRONG;
    }
    if (got > 0 && calls == r->n_calls) {
        keep_raw(r, c);
    }
    if (done) {
        r->python = 0;
        next_step(r);
    }
    return got > 0 ? TAKEN : AGAIN;
}

static taken take_arguments(gw_reader *r, unsigned c) {
    int done = 0;
    if (c >= GW_SYMBOL_OPENS || !need_named(r)) {
        return WRONG;
    }
    if (gw_arguments_symbol(r, c, &done) < 0) {
        return WRONG;
    }
    keep_raw(r, c);
    if (done) {
        gw_call_whole(r);
        next_step(r);
    }
    return TAKEN;
}

static taken take_notation(gw_reader *r, const gw_step *step, unsigned c) {
    int done = 0;
    if (step->kind == GW_STEP_GEMMA && !need_named(r)) {
        return WRONG;
    }
    if (c >= GW_SYMBOL_OPENS) {
        return step->kind == GW_STEP_GEMMA ? TAKEN : WRONG; /* Gemma's quote is a token */
    }
    size_t calls = r->n_calls;
    int got =
        step->kind == GW_STEP_GEMMA ? gw_gemma_symbol(r, c, &done) : gw_python_symbol(r, c, &done);
    if (got < 0) {
        return WRONG;
    }
    if (got > 0 && calls == r->n_calls) {
        keep_raw(r, c);
    }
    if (done) {
        next_step(r);
    }
    return got > 0 ? TAKEN : AGAIN;
}

static taken take_number(gw_reader *r, unsigned c) {
    if (c < '0' || c > '9') {
        next_step(r);
        return AGAIN;
    }
    keep_raw(r, c);
    return TAKEN;
}

static taken take_space(gw_reader *r, unsigned c) {
    const gw_pattern *p = section(r);
    const gw_step *next = r->step + 1 < p->n ? &p->steps[r->step + 1] : NULL;
    if (!gw_symbol_is_space(c) || (next != NULL && next->kind == GW_STEP_VALUE)) {
        next_step(r);
        return AGAIN;
    }
    keep_raw(r, c);
    return TAKEN;
}

static taken take(gw_reader *r, unsigned c) {
    const gw_step *step = step_at(r);
    if (r->python < 0) { /* a JSON object in place of name and arguments */
        return take_object(r, c);
    }
    switch (step->kind) {
    case GW_STEP_TEXT:
        return take_text(r, step, c);
    case GW_STEP_SPACE:
        return take_space(r, c);
    case GW_STEP_NAME:
        return take_name(r, &r->name, c);
    case GW_STEP_ID:
        return take_name(r, &r->id, c);
    case GW_STEP_NUMBER:
        return take_number(r, c);
    case GW_STEP_ARGUMENTS:
        return take_arguments(r, c);
    case GW_STEP_OBJECT:
    case GW_STEP_LIST:
        return take_object(r, c);
    case GW_STEP_PARAMS:
        return take_params(r, c);
    case GW_STEP_KEY:
        return take_key(r, c);
    case GW_STEP_VALUE:
        return take_value(r, c);
    case GW_STEP_IS_TEXT:
    case GW_STEP_TYPE:
        return take_type(r, step, c);
    default:
        return take_notation(r, step, c);
    }
}

/* Behind the last step of a section. */
static void end_section(gw_reader *r) {
    if (r->section == BEGIN) {
        r->section = CALL;
        r->step = r->pos = 0;
    } else if (r->section == PARAM) {
        r->section = CALL;
        r->step = gw_pattern_find(&r->call, GW_STEP_PARAMS);
        r->pos = 0;
        r->params = 0;
    } else {
        leave(r);
    }
}

void gw_call_symbol(gw_reader *r, unsigned c) {
    for (;;) {
        while (r->calling && step_at(r) == NULL) {
            end_section(r);
        }
        if (!r->calling) {
            gw_reader_symbol(r, c);
            return;
        }
        taken got = take(r, c);
        if (got == WRONG) {
            if (r->whole && !r->named && r->name.n == 0) {
                leave(r);
            } else {
                gw_call_break(r);
            }
            gw_reader_symbol(r, c);
            return;
        }
        if (got == TAKEN) {
            return;
        }
    }
}
