/* core/text/answer/answer_reader.c - marks in a text that comes in pieces, headers of messages, and
 * the list of parts; see answer_reader.h. */
#include "core/text/answer/answer_reader.h"

#include <stdio.h>

enum { TAIL = 200 }; /* symbols of the prompt that are looked at */

/* ---- life ------------------------------------------------------------------------------------ */

static void add_symbols(gw_reader *r, const uint16_t *symbols, size_t n, gw_mark_action action,
                        int in) {
    if (n > 0 && n < GW_HOLD_MAX / 2 && r->n_marks < GW_MARKS_MAX) {
        r->marks[r->n_marks++] = (gw_mark){symbols, n, (uint8_t)action, (uint8_t)in};
    }
}

static void add_mark(gw_reader *r, const gw_pattern *p, gw_mark_action action, int in) {
    size_t n;
    const uint16_t *symbols = gw_pattern_mark(p, &n);
    add_symbols(r, symbols, n, action, in);
}

/* The tokens of a pattern that begin no other mark. */
static void add_inner_marks(gw_reader *r, const gw_pattern *p) {
    for (size_t i = 0; i < p->n_symbols; i++) {
        size_t n = 1;
        int is_known = p->symbols[i] != GW_SYMBOL_OPENS;
        while (!is_known && p->symbols[i + n - 1] != GW_SYMBOL_CLOSES) {
            n++;
        }
        for (size_t k = 0; k < r->n_marks && !is_known; k++) {
            is_known = r->marks[k].n >= n &&
                       memcmp(r->marks[k].symbols, p->symbols + i, n * sizeof *p->symbols) == 0;
        }
        if (!is_known && r->n_marks < GW_MARKS_MAX) {
            r->marks[r->n_marks++] =
                (gw_mark){p->symbols + i, n, GW_MARK_INNER, GW_IN_TEXT | GW_IN_REASONING};
        }
    }
}

/* Calls begin inside of reasoning only by a token: what spells a mark there is a thought. */
static void add_call_marks(gw_reader *r) {
    const gw_pattern *both[2] = {&r->begin, &r->call};
    for (int i = 0; i < 2; i++) {
        const gw_step *first = gw_pattern_first(both[i]);
        if (first != NULL) {
            int token = both[i]->symbols[first->at] == GW_SYMBOL_OPENS;
            add_symbols(r, both[i]->symbols + first->at, first->n,
                        i == 0 ? GW_MARK_BEGIN : GW_MARK_CALL,
                        GW_IN_TEXT | (token ? GW_IN_REASONING : 0));
        }
    }
    add_mark(r, &r->end, GW_MARK_DROP, GW_IN_TEXT);
    add_inner_marks(r, &r->call);
    add_inner_marks(r, &r->param);
}

static void add_headers(gw_reader *r, const gw_marks *marks) {
    static const struct {
        const char *text;
        gw_mark_action action;
        int in;
    } headers[] = {{"{<|start|>}", GW_MARK_START, 7},     {"{<|channel|>}", GW_MARK_CHANNEL, 7},
                   {"{<|message|>}", GW_MARK_MESSAGE, 7}, {"{<|constrain|>}", GW_MARK_DROP, 7},
                   {"{<|end|>}", GW_MARK_STOP, 7},        {"{<|call|>}", GW_MARK_STOP, 7},
                   {"{<|return|>}", GW_MARK_STOP, 7},     {"{<|eom|>}", GW_MARK_STOP, 7},
                   {"{<|eot|>}", GW_MARK_STOP, 7}};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        gw_pattern_read(headers[i].text, marks, &r->header[i]);
        add_mark(r, &r->header[i], headers[i].action, headers[i].in);
    }
}

static int is_header_form(const gw_reader *r) {
    return r->reasoning_form != NULL && r->reasoning_form->kind != GW_REASONING_TAGS;
}

static int is_harmony(const gw_reader *r) {
    return r->reasoning_form != NULL && r->reasoning_form->kind == GW_REASONING_HARMONY;
}

gw_status gw_reader_new(const gw_reader_options *options, gw_reader **out) {
    gw_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for reading an answer");
    }
    r->tools = options->tools != NULL && options->tools->call != NULL ? options->tools : NULL;
    r->reasoning_form = options->reasoning;
    r->list = options->list;
    r->id_seed = options->id_seed;
    r->whole_calls = options->whole_calls;
    if (r->tools != NULL) {
        gw_pattern_read(r->tools->begin, &options->marks, &r->begin);
        gw_pattern_read(r->tools->call, &options->marks, &r->call);
        gw_pattern_read(r->tools->end, &options->marks, &r->end);
        gw_pattern_read(r->tools->param, &options->marks, &r->param);
    }
    if (r->reasoning_form != NULL && !is_header_form(r)) {
        gw_pattern_read(r->reasoning_form->open, &options->marks, &r->open);
        gw_pattern_read(r->reasoning_form->close, &options->marks, &r->close);
        add_mark(r, &r->open, GW_MARK_OPEN, GW_IN_TEXT);
        add_mark(r, &r->close, GW_MARK_CLOSE, GW_IN_REASONING);
        for (int i = 0; i < 4 && r->reasoning_form->drop[i] != NULL; i++) {
            gw_pattern_read(r->reasoning_form->drop[i], &options->marks, &r->drop[i]);
            add_mark(r, &r->drop[i], GW_MARK_DROP, GW_IN_TEXT);
        }
    } else if (r->reasoning_form != NULL) {
        add_headers(r, &options->marks);
    }
    if (r->tools != NULL && !(is_harmony(r) && strcmp(r->tools->name, "harmony") == 0)) {
        add_call_marks(r);
    }
    gw_status status = gw_reader_reset(r);
    if (status != GW_OK) {
        gw_reader_free(r);
        return status;
    }
    *out = r;
    return GW_OK;
}

void gw_reader_free(gw_reader *r) {
    if (r != NULL) {
        gw_bytes *all[] = {&r->tail, &r->space, &r->head, &r->raw,       &r->name, &r->id,
                           &r->key,  &r->value, &r->keys, &r->arguments, &r->text};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            free(all[i]->data);
        }
        free(r->parts);
        free(r->out);
        free(r);
    }
}

gw_status gw_reader_reset(gw_reader *r) {
    gw_call_reset(r);
    r->calling = 0;
    r->raw.n = r->tail.n = r->space.n = r->head.n = r->text.n = 0;
    r->n_hold = r->n_calls = r->n_parts = 0;
    r->where = is_header_form(r) ? GW_IN_HEADER : GW_IN_TEXT;
    r->cut = r->forced = 0;
    r->eat = r->skip = r->broken = r->began = r->failed = r->in_call_text = 0;
    r->bare = r->tools != NULL && (r->tools->flags & GW_TOOLS_BARE) != 0;
    r->start = GW_START_TEXT;
    return GW_OK;
}

void gw_reader_add(gw_reader *r, gw_bytes *to, const void *from, size_t n) {
    r->failed |= gw_bytes_add(to, from, n) != GW_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Texts of one kind that follow each other are one part; CALL: r->name and r->id. */
void gw_reader_emit(gw_reader *r, gw_part_kind kind, const char *text, size_t n) {
    gw_reader_part *last = r->n_parts > 0 ? &r->parts[r->n_parts - 1] : NULL;
    int joins = kind == GW_PART_TEXT || kind == GW_PART_REASONING || kind == GW_PART_ARGUMENTS;
    size_t call = r->n_calls;
    if (joins && last != NULL && last->kind == kind && last->call == call) {
        gw_reader_add(r, &r->text, text, n);
        last->bytes += n;
        return;
    }
    void *parts = r->parts;
    gw_status status =
        gw_array_reserve(&parts, &r->parts_capacity, r->n_parts + 1, sizeof *r->parts);
    r->parts = parts;
    if (status != GW_OK) {
        r->failed = 1;
        return;
    }
    gw_reader_add(r, &r->text, "", 1); /* ends the part before */
    gw_reader_part part = {.kind = kind, .call = call};
    if (kind == GW_PART_CALL) {
        part.name = r->text.n;
        gw_reader_add(r, &r->text, r->name.data, r->name.n);
        gw_reader_add(r, &r->text, "", 1);
        part.id = r->text.n;
        gw_reader_add(r, &r->text, r->id.data, r->id.n);
    } else {
        part.at = r->text.n;
        part.bytes = n;
        gw_reader_add(r, &r->text, text, n);
    }
    r->parts[r->n_parts++] = part;
}

static gw_status hand_out(gw_reader *r, const gw_part **parts, size_t *n_parts) {
    void *out = r->out;
    gw_reader_add(r, &r->text, "", 1);
    r->failed |= gw_array_reserve(&out, &r->out_capacity, r->n_parts + 1, sizeof *r->out) != GW_OK;
    r->out = out;
    if (r->failed) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for the parts of an answer");
    }
    for (size_t i = 0; i < r->n_parts; i++) {
        const gw_reader_part *p = &r->parts[i];
        const char *text = r->text.data;
        int call = p->kind == GW_PART_CALL;
        r->out[i] = (gw_part){.kind = p->kind,
                              .text = call ? "" : text + p->at,
                              .bytes = p->bytes,
                              .call = p->call,
                              .name = call ? text + p->name : NULL,
                              .id = call ? text + p->id : NULL};
    }
    *parts = r->out;
    *n_parts = r->n_parts;
    return GW_OK;
}

/* ---- plain text ------------------------------------------------------------------------------ */

static void flush_space(gw_reader *r) {
    gw_reader_emit(r, r->where == GW_IN_REASONING ? GW_PART_REASONING : GW_PART_TEXT, r->space.data,
                   r->space.n);
    r->space.n = 0;
}

static void plain_text(gw_reader *r, unsigned c) {
    char byte = (char)c;
    if (gw_symbol_is_space(c)) {
        if (!r->eat) {
            gw_reader_add(r, &r->space, &byte, 1);
        }
        return;
    }
    if (r->space.n > 0) {
        flush_space(r);
    }
    r->eat = 0;
    r->bare = r->bare && r->where == GW_IN_REASONING;
    gw_reader_emit(r, r->where == GW_IN_REASONING ? GW_PART_REASONING : GW_PART_TEXT, &byte, 1);
}

/* A header is "", " to=NAME", "assistant to=NAME", a channel's name ...; anything else is an answer
 * that has none. */
static int may_be_header(const gw_bytes *head) {
    static const char *const words[] = {"assistant", "to=", " to="};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]) < head->n ? strlen(words[i]) : head->n;
        if (memcmp(words[i], head->data, n) == 0) {
            return head->n < 300;
        }
    }
    return head->n < 300 && memchr(head->data, 1, head->n) != NULL;
}

static void plain_header(gw_reader *r, unsigned c) {
    char byte = (char)c;
    gw_reader_add(r, &r->head, &byte, 1);
    if (!may_be_header(&r->head)) {
        r->where = GW_IN_TEXT;
        for (size_t i = 0; i < r->head.n; i++) {
            if (r->head.data[i] != 1) {
                plain_text(r, (unsigned char)r->head.data[i]);
            }
        }
        r->head.n = 0;
    }
}

/* ---- headers --------------------------------------------------------------------------------- */

/* The word behind `before` in the header. */
static size_t word_behind(const gw_bytes *head, const char *before, const char **word) {
    size_t n = strlen(before), k = 0;
    for (size_t i = 0; i + n <= head->n; i++) {
        if (memcmp(head->data + i, before, n) == 0) {
            *word = head->data + i + n;
            while (i + n + k < head->n && strchr(" \n\t<\x01", (*word)[k]) == NULL) {
                k++;
            }
            return k;
        }
    }
    return 0;
}

static int is_word(const char *word, size_t n, const char *text) {
    return n == strlen(text) && memcmp(word, text, n) == 0;
}

static void end_header(gw_reader *r) {
    const char *to = "", *channel = "";
    size_t n_to = word_behind(&r->head, "to=", &to);
    size_t n_channel = word_behind(&r->head, "\x01", &channel);
    int reasons = is_harmony(r) ? is_word(channel, n_channel, "analysis") && n_to == 0
                                : is_word(to, n_to, "self");
    r->space.n = 0;
    r->where = reasons ? GW_IN_REASONING : GW_IN_TEXT;
    r->eat = 0;
    if (is_harmony(r) && n_to > 0 && r->tools != NULL && strcmp(r->tools->name, "harmony") == 0) {
        int prefix = n_to > 10 && memcmp(to, "functions.", 10) == 0;
        gw_call_of(r, to + (prefix ? 10 : 0), n_to - (prefix ? 10 : 0));
    }
    r->head.n = 0;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void act(gw_reader *r, const gw_mark *mark) {
    switch (mark->action) {
    case GW_MARK_OPEN:
        r->space.n = 0;
        r->where = GW_IN_REASONING;
        r->eat = 1;
        break;
    case GW_MARK_CLOSE:
        r->space.n = 0;
        r->where = GW_IN_TEXT;
        r->eat = 1;
        break;
    case GW_MARK_DROP:
        break;
    case GW_MARK_INNER:
        for (size_t i = 1; i + 1 < mark->n && r->broken; i++) {
            plain_text(r, mark->symbols[i]);
        }
        break;
    case GW_MARK_BEGIN:
    case GW_MARK_CALL:
        gw_call_begin(r, mark);
        break;
    case GW_MARK_START:
    case GW_MARK_CHANNEL:
        if (r->where != GW_IN_HEADER || mark->action == GW_MARK_START) {
            r->space.n = r->head.n = 0;
        }
        r->where = GW_IN_HEADER;
        gw_reader_add(r, &r->head, mark->action == GW_MARK_CHANNEL ? "\x01" : "", 1);
        r->head.n -= mark->action == GW_MARK_START;
        break;
    case GW_MARK_MESSAGE:
        if (r->where == GW_IN_HEADER) {
            end_header(r);
        }
        break;
    default: /* STOP */
        r->space.n = r->head.n = 0;
        r->where = GW_IN_HEADER;
    }
}

enum { NO_MARK = -1, PART_OF_MARK = -2 };

static int find_mark(const gw_reader *r) {
    int found = NO_MARK;
    for (size_t i = 0; i < r->n_marks; i++) {
        const gw_mark *m = &r->marks[i];
        if ((m->in & r->where) == 0 || m->n < r->n_hold ||
            memcmp(m->symbols, r->hold, r->n_hold * sizeof *r->hold) != 0) {
            continue;
        }
        if (m->n == r->n_hold) {
            return (int)i;
        }
        found = PART_OF_MARK;
    }
    return found;
}

/* A call that begins with its object. */
static int begins_bare(gw_reader *r, unsigned c) {
    if (!r->bare || r->where != GW_IN_TEXT || (c != '{' && c != '[')) {
        return 0;
    }
    gw_call_begin(r, NULL);
    return 1;
}

/* The first of the symbols that are held is no part of a mark. */
static void release(gw_reader *r) {
    unsigned c = r->hold[0];
    uint16_t rest[GW_HOLD_MAX];
    size_t n = r->n_hold - 1;
    memmove(r->hold, r->hold + 1, n * sizeof *r->hold);
    r->n_hold = n;
    if (c == GW_SYMBOL_OPENS) {
        r->skip = 1;
        size_t i = 0;
        while (i < n && r->hold[i] != GW_SYMBOL_CLOSES) {
            i++;
        }
        r->skip = i == n;
        i += i < n;
        memmove(r->hold, r->hold + i, (n - i) * sizeof *r->hold);
        r->n_hold = n - i;
    } else if (c == GW_SYMBOL_CLOSES || (c == ';' && r->bare && r->n_calls > 0)) {
        return; /* between two calls */
    } else if (begins_bare(r, c)) {
        memcpy(rest, r->hold, n * sizeof *rest);
        r->n_hold = 0;
        gw_call_symbol(r, c);
        for (size_t i = 0; i < n; i++) {
            gw_reader_symbol(r, rest[i]);
        }
    } else if (r->where == GW_IN_HEADER) {
        plain_header(r, c);
    } else {
        plain_text(r, c);
    }
}

/* How the answer begins, from the end of its prompt. */
static void look_at_prompt(gw_reader *r);

void gw_reader_symbol(gw_reader *r, unsigned c) {
    if (r->calling) {
        gw_call_symbol(r, c);
        return;
    }
    if (r->skip) {
        r->skip = c != GW_SYMBOL_CLOSES;
        return;
    }
    r->hold[r->n_hold++] = (uint16_t)c;
    while (r->n_hold > 0 && !r->calling) {
        int found = find_mark(r);
        if (found == PART_OF_MARK && r->n_hold < GW_HOLD_MAX) {
            return;
        }
        if (found >= 0) {
            r->n_hold = 0;
            act(r, &r->marks[found]);
            return;
        }
        release(r);
    }
}

/* ---- the prompt ------------------------------------------------------------------------------ */

gw_status gw_reader_prompt(gw_reader *r, const char *text, size_t n, int token) {
    uint16_t symbol = GW_SYMBOL_OPENS;
    if (token) {
        GW_TRY(gw_bytes_add(&r->tail, &symbol, sizeof symbol));
    }
    size_t from = n > TAIL ? n - TAIL : 0;
    for (size_t i = from; i < n; i++) {
        symbol = (unsigned char)text[i];
        GW_TRY(gw_bytes_add(&r->tail, &symbol, sizeof symbol));
    }
    symbol = GW_SYMBOL_CLOSES;
    GW_TRY(token ? gw_bytes_add(&r->tail, &symbol, sizeof symbol) : GW_OK);
    size_t most = TAIL * sizeof symbol;
    if (r->tail.n > most) {
        memmove(r->tail.data, r->tail.data + (r->tail.n - most), most);
        r->tail.n = most;
    }
    return GW_OK;
}

/* Do the n symbols end with the mark? */
static int ends_with(const uint16_t *symbols, size_t n, const uint16_t *mark, size_t bytes) {
    return bytes > 0 && bytes <= n &&
           memcmp(symbols + (n - bytes), mark, bytes * sizeof *symbols) == 0;
}

static int ends_with_mark(const uint16_t *symbols, size_t n, const gw_pattern *p) {
    size_t bytes;
    const uint16_t *mark = gw_pattern_mark(p, &bytes);
    return ends_with(symbols, n, mark, bytes);
}

static int ends_with_text(const uint16_t *symbols, size_t n, const char *text) {
    size_t k = strlen(text);
    for (size_t i = 0; i < k; i++) {
        if (n < k || symbols[n - k + i] != (unsigned char)text[i]) {
            return 0;
        }
    }
    return 1;
}

static void look_at_prompt(gw_reader *r) {
    uint16_t symbols[TAIL];
    size_t n = r->tail.n / sizeof *symbols;
    if (n > 0) {
        memcpy(symbols, r->tail.data, n * sizeof *symbols);
    }
    r->began = 1;
    while (n > 0 && gw_symbol_is_space(symbols[n - 1])) {
        n--;
    }
    if (is_header_form(r)) {
        /* behind "<|start|>assistant" or a message that has ended a header follows; behind the
         * header of a message that is to go on, its text */
        r->start = GW_START_HEADER;
        if (ends_with_mark(symbols, n, &r->header[2])) {
            int reasons = 0;
            size_t k = n - r->header[2].n_symbols;
            reasons = ends_with_text(symbols, k, "analysis") || ends_with_text(symbols, k, "self");
            r->where = reasons ? GW_IN_REASONING : GW_IN_TEXT;
            r->start = reasons ? GW_START_REASONING : GW_START_TEXT;
        }
        return;
    }
    if (ends_with_mark(symbols, n, &r->open)) {
        r->where = GW_IN_REASONING;
        r->eat = 1;
        r->start = GW_START_REASONING;
    } else if (r->tools != NULL && (r->tools->flags & GW_TOOLS_OPENED) != 0 &&
               ends_with(symbols, n, r->call.symbols + gw_pattern_first(&r->call)->at,
                         gw_pattern_first(&r->call)->n)) {
        for (size_t i = 0; i < r->n_marks; i++) {
            if (r->marks[i].action == GW_MARK_CALL) {
                gw_call_begin(r, &r->marks[i]);
                r->raw.n = 0; /* it is the prompt's */
            }
        }
        r->start = GW_START_CALL;
    } else if (ends_with_mark(symbols, n, &r->close)) {
        r->eat = 1;
    }
}

gw_answer_start gw_reader_start(const gw_reader *r) {
    gw_reader *w = (gw_reader *)(uintptr_t)r;
    if (!r->began) {
        look_at_prompt(w);
    }
    return r->start;
}

/* ---- pushing --------------------------------------------------------------------------------- */

static void begin_push(gw_reader *r) {
    r->n_parts = r->text.n = 0;
    if (!r->began) {
        look_at_prompt(r);
    }
}

gw_status gw_reader_push(gw_reader *r, const char *text, size_t n, int token, const gw_part **parts,
                         size_t *n_parts) {
    begin_push(r);
    if (token) {
        gw_reader_symbol(r, GW_SYMBOL_OPENS);
    }
    for (size_t i = 0; i < n; i++) {
        gw_reader_symbol(r, (unsigned char)text[i]);
    }
    if (token) {
        gw_reader_symbol(r, GW_SYMBOL_CLOSES);
    }
    return hand_out(r, parts, n_parts);
}

void gw_reader_cut(gw_reader *r, int forced) {
    r->cut = 1;
    r->forced = forced;
}

/* Is what is held the beginning of a call's mark? One symbol alone may be any text. */
static int holds_call_mark(const gw_reader *r) {
    for (size_t i = 0; i < r->n_marks; i++) {
        const gw_mark *m = &r->marks[i];
        int calls = m->action == GW_MARK_BEGIN || m->action == GW_MARK_CALL;
        if (calls && (m->in & r->where) != 0 && m->n >= r->n_hold &&
            memcmp(m->symbols, r->hold, r->n_hold * sizeof *r->hold) == 0) {
            return r->forced || r->n_hold > 1;
        }
    }
    return 0;
}

gw_status gw_reader_end(gw_reader *r, const char *text, size_t n, const gw_part **parts,
                        size_t *n_parts) {
    begin_push(r);
    for (size_t i = 0; i < n; i++) {
        gw_reader_symbol(r, (unsigned char)text[i]);
    }
    if (r->calling) {
        gw_call_end_of_text(r);
    }
    if (r->cut && r->n_hold > 0 && holds_call_mark(r)) {
        r->n_hold = 0;
    }
    while (r->n_hold > 0 && !r->calling) {
        release(r);
    }
    if (r->calling) { /* it began with the last symbol */
        gw_call_end_of_text(r);
    }
    if (r->where == GW_IN_HEADER && !r->cut && r->head.n > 0 &&
        memchr(r->head.data, 1, r->head.n) == NULL) {
        gw_reader_emit(r, GW_PART_TEXT, r->head.data, r->head.n);
    }
    r->head.n = 0;
    if (r->space.n > 0) {
        flush_space(r);
    }
    return hand_out(r, parts, n_parts);
}
