/* core/text/template/filters_wrap.c - wordwrap and pprint: texts that are broken into lines as
 * Python's textwrap and pprint do it.
 */
#include <string.h>

#include <utf8proc.h>

#include "core/text/template/render.h"
#include "core/text/template/tree.h"
#include "core/text/utf8.h"

/* ---- wordwrap -------------------------------------------------------------------------------- */

typedef struct span {
    size_t from, to; /* characters of the line */
} span;

typedef struct wrapper {
    gw_tpl *r;
    gw_tpl_out *out;
    gw_tv wrap, line;
    const uint32_t *cp; /* [n] */
    const size_t *at;   /* [n + 1] bytes */
    size_t n, lines;
    int64_t width;
    int breaks, hyphens;
} wrapper;

static int is_gap(uint32_t cp) { return cp == ' ' || (cp >= '\t' && cp <= '\r'); }

static int is_letter(const wrapper *w, size_t i) { /* [^\d\W] */
    return i < w->n && gw_tpl_is_word(w->cp[i]) &&
           utf8proc_category((utf8proc_int32_t)w->cp[i]) != UTF8PROC_CATEGORY_ND;
}

static int joins(uint32_t cp) { /* what a dash may follow */
    return gw_tpl_is_word(cp) || (cp < 0x80 && cp != 0 && strchr("!\"'&.,?", (int)cp) != NULL);
}

/* Two dashes or more at i between a word and the next: behind them, else 0. */
static size_t dash_ends(const wrapper *w, size_t i) {
    size_t end = i;
    if (i == 0 || !joins(w->cp[i - 1])) {
        return 0;
    }
    while (end < w->n && w->cp[end] == '-') {
        end++;
    }
    return end >= i + 2 && end < w->n && gw_tpl_is_word(w->cp[end]) ? end : 0;
}

/* Is the '-' at i one that a word may be broken behind? */
static int is_hyphen(const wrapper *w, size_t i) {
    int before = i >= 2 && is_letter(w, i - 1) &&
                 (is_letter(w, i - 2) || (w->cp[i - 2] == '-' && i >= 3 && is_letter(w, i - 3)));
    int behind = is_letter(w, i + 1) &&
                 (is_letter(w, i + 2) ||
                  (i + 2 < w->n && w->cp[i + 2] == '-' && is_letter(w, i + 3)));
    return before && behind;
}

static size_t chunk_end(const wrapper *w, size_t from) {
    size_t i = from;
    if (is_gap(w->cp[from])) {
        while (i < w->n && is_gap(w->cp[i])) {
            i++;
        }
        return i;
    }
    size_t dash = w->hyphens && w->cp[from] == '-' ? dash_ends(w, from) : 0;
    if (dash > 0) {
        return dash;
    }
    for (i = from + 1; i < w->n && !is_gap(w->cp[i]); i++) {
        if (w->hyphens && w->cp[i] == '-') {
            if (is_hyphen(w, i)) {
                return i + 1;
            }
            if (dash_ends(w, i) > 0) {
                return i;
            }
        }
    }
    return i;
}

static int is_blank(const wrapper *w, span s) {
    for (size_t i = s.from; i < s.to; i++) {
        if (!gw_tpl_is_space(w->cp[i])) {
            return 0;
        }
    }
    return 1;
}

/* How much of a chunk that is longer than a line goes behind what the line has. */
static size_t long_part(const wrapper *w, span chunk, size_t left) {
    for (size_t i = chunk.from + left; w->hyphens && i-- > chunk.from + 1;) {
        if (w->cp[i] == '-') {
            for (size_t k = chunk.from; k < i; k++) {
                if (w->cp[k] != '-') {
                    return i + 1;
                }
            }
            break;
        }
    }
    return chunk.from + left;
}

static void put_line(wrapper *w, size_t from, size_t to) {
    if (w->lines++ > 0) {
        gw_tpl_out_text(w->r, w->out, w->wrap);
    }
    gw_tpl_out_text(w->r, w->out, gw_tv_cut(w->line, w->at[from], w->at[to] - w->at[from]));
}

static void wrap_line(wrapper *w) {
    size_t width = (size_t)w->width;
    span next = {0, w->n > 0 ? chunk_end(w, 0) : 0};
    w->lines = 0;
    while (next.from < w->n) {
        span last = {0, 0};
        size_t begin, end, chunks = 0;
        if (w->lines > 0 && is_blank(w, next)) {
            next.from = next.to;
            next.to = next.from < w->n ? chunk_end(w, next.from) : next.from;
        }
        begin = end = next.from;
        while (next.from < w->n && next.to - begin <= width) {
            last = next;
            end = next.to;
            chunks++;
            next.from = end;
            next.to = end < w->n ? chunk_end(w, end) : end;
        }
        if (next.from < w->n && next.to - next.from > width) {
            if (w->breaks) {
                last = (span){next.from, long_part(w, next, width - (end - begin))};
                next.from = end = last.to;
                chunks++;
            } else if (chunks == 0) {
                last = next;
                end = next.to;
                chunks++;
                next.from = end;
                next.to = end < w->n ? chunk_end(w, end) : end;
            }
        }
        if (chunks > 0 && is_blank(w, last)) {
            end = last.from;
            chunks--;
        }
        if (chunks > 0) {
            put_line(w, begin, end);
        }
        gw_tpl_charge(w->r, (end - begin) / 8 + 1);
    }
}

static void decode_line(wrapper *w, gw_tv line) {
    gw_tpl *r = w->r;
    uint32_t *cp = gw_tpl_array(r, line.n + 1, sizeof *cp);
    size_t *at = gw_tpl_array(r, line.n + 1, sizeof *at), n = 0;
    for (size_t byte = 0; byte < line.n; n++) {
        size_t size = gw_utf8_next(line.text + byte, line.n - byte, &cp[n]);
        at[n] = byte;
        byte += size > 0 ? size : 1;
    }
    at[n] = line.n;
    w->line = line;
    w->cp = cp;
    w->at = at;
    w->n = n;
}

/* a: width, break_long_words, wrapstring, break_on_hyphens */
gw_tv gw_tpl_wordwrap(gw_tpl *r, gw_tv v, const gw_tv *a) {
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (v.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "wordwrap: a text is needed, not %s", gw_tv_type(v));
    }
    gw_tv lines = gw_tpl_lines(r, v, 0);
    wrapper w = {.r = r,
                 .width = gw_tv_given(a[0]) ? gw_tpl_int(r, a[0], "width") : 79,
                 .wrap = gw_tv_given(a[2]) && a[2].kind == GW_TV_TEXT ? a[2] : gw_tv_words("\n"),
                 .breaks = !gw_tv_given(a[1]) || gw_tv_truth(r, a[1]),
                 .hyphens = !gw_tv_given(a[3]) || gw_tv_truth(r, a[3])};
    if (w.width < 1 && lines.list->n > 0) {
        gw_tpl_raise(r, GW_E_TYPE, "invalid width %lld (must be > 0)", (long long)w.width);
    }
    w.out = gw_tpl_out_open(r);
    for (size_t i = 0; i < lines.list->n; i++) {
        if (i > 0) {
            gw_tpl_out_text(r, w.out, w.wrap);
        }
        decode_line(&w, lines.list->at[i]);
        wrap_line(&w);
    }
    return gw_tpl_out_close(r, w.out);
}

/* ---- pprint ---------------------------------------------------------------------------------- */

enum { PAGE = 80 }; /* characters of a line */

/* The value with its dicts in the order of their keys; keys of several types: type by type. */
static gw_tv in_order(gw_tpl *r, gw_tv v) {
    if (v.kind != GW_TV_LIST && v.kind != GW_TV_TUPLE && v.kind != GW_TV_DICT) {
        return v;
    }
    gw_tpl_deeper(r);
    size_t n = v.kind == GW_TV_DICT ? v.dict->n : v.list->n;
    gw_tv copy = v.kind == GW_TV_DICT ? gw_tv_dict(r) : gw_tv_list(r, n);
    if (v.kind == GW_TV_DICT) {
        gw_tv entries = gw_tv_list(r, n), keys = gw_tv_list(r, n);
        for (size_t i = 0; i < n; i++) {
            gw_tv key = v.dict->at[i].key;
            const char *type = gw_tv_is_number(key) ? "int" : gw_tv_type(key);
            gw_tpl_add(r, entries, gw_tv_pair(r, key, in_order(r, v.dict->at[i].value)));
            gw_tpl_add(r, keys, gw_tv_pair(r, gw_tv_words(type), key));
        }
        gw_tpl_sort(r, entries.list->at, keys.list->at, n, 0);
        for (size_t i = 0; i < n; i++) {
            const gw_tv *pair = entries.list->at[i].list->at;
            gw_tpl_put(r, copy.dict, pair[0], pair[1]);
        }
    } else {
        copy.kind = v.kind;
        copy.part = v.part;
        for (size_t i = 0; i < n; i++) {
            gw_tpl_add(r, copy, in_order(r, v.list->at[i]));
        }
    }
    gw_tpl_back(r);
    return copy;
}

typedef struct printer {
    gw_tpl *r;
    gw_tpl_out *out;
} printer;

static int64_t width_of(gw_tpl *r, gw_tv text) { return (int64_t)gw_tv_chars(r, text); }

static void new_line(printer *p, int64_t indent) {
    gw_tpl_out_words(p->r, p->out, "\n");
    gw_tpl_out_repeat(p->r, p->out, gw_tv_words(" "), (size_t)indent);
}

/* Where a run of words with the space behind them ends. */
static size_t part_end(gw_tv line, size_t at) {
    int space = 0;
    while (at < line.n) {
        uint32_t cp = 0;
        size_t n = gw_utf8_next(line.text + at, line.n - at, &cp);
        if (gw_tpl_is_space(cp)) {
            space = 1;
        } else if (space) {
            break;
        }
        at += n > 0 ? n : 1;
    }
    return at;
}

/* A text as several literals, one a line: cut behind its own newlines, then between words. */
static void put_text(printer *p, gw_tv text, int64_t indent, int64_t allowance, int outermost) {
    gw_tpl *r = p->r;
    gw_tv lines = gw_tpl_lines(r, text, 1), chunks = gw_tv_list(r, 0);
    int64_t width = PAGE - (indent += outermost);
    allowance += outermost;
    for (size_t i = 0; i < lines.list->n; i++) {
        gw_tv line = lines.list->at[i], shown = gw_tv_repr(r, line);
        int last = i + 1 == lines.list->n;
        if (width_of(r, shown) <= width - (last ? allowance : 0)) {
            gw_tpl_add(r, chunks, shown);
            continue;
        }
        size_t from = 0;
        for (size_t at = 0, end; at < line.n; at = end) {
            end = part_end(line, at);
            gw_tv with = gw_tv_repr(r, gw_tv_cut(line, from, end - from));
            int64_t room = width - (last && end == line.n ? allowance : 0);
            if (width_of(r, with) > room && at > from) {
                gw_tpl_add(r, chunks, gw_tv_repr(r, gw_tv_cut(line, from, at - from)));
                from = at;
            }
        }
        gw_tpl_add(r, chunks, gw_tv_repr(r, gw_tv_cut(line, from, line.n - from)));
    }
    int several = chunks.list->n > 1 && outermost;
    gw_tpl_out_words(r, p->out, several ? "(" : "");
    for (size_t i = 0; i < chunks.list->n; i++) {
        if (i > 0) {
            new_line(p, indent);
        }
        gw_tpl_out_text(r, p->out, chunks.list->at[i]);
    }
    gw_tpl_out_words(r, p->out, several ? ")" : "");
}

/* allowance: characters that come behind the value on its last line. */
static void put_value(printer *p, gw_tv v, int64_t indent, int64_t allowance, int outermost) {
    gw_tpl *r = p->r;
    gw_tv shown = gw_tv_repr(r, v);
    int plain = (v.kind == GW_TV_TEXT && !v.safe && v.n > 0) || v.kind == GW_TV_DICT ||
                v.kind == GW_TV_LIST || (v.kind == GW_TV_TUPLE && v.part != GW_TPL_GROUP);
    if (!plain || width_of(r, shown) <= PAGE - indent - allowance) {
        gw_tpl_out_text(r, p->out, shown);
        return;
    }
    if (v.kind == GW_TV_TEXT) {
        put_text(p, v, indent, allowance, outermost);
        return;
    }
    gw_tpl_deeper(r);
    size_t n = v.kind == GW_TV_DICT ? v.dict->n : v.list->n;
    const char *close = v.kind == GW_TV_DICT ? "}" : v.kind == GW_TV_LIST ? "]" : ")";
    close = v.kind == GW_TV_TUPLE && n == 1 ? ",)" : close;
    gw_tpl_out_words(r, p->out, v.kind == GW_TV_DICT ? "{" : v.kind == GW_TV_LIST ? "[" : "(");
    allowance += (int64_t)strlen(close);
    for (size_t i = 0; i < n; i++) {
        int64_t column = indent + 1, behind = i + 1 == n ? allowance : 1;
        if (i > 0) {
            gw_tpl_out_words(r, p->out, ",");
            new_line(p, column);
        }
        if (v.kind == GW_TV_DICT) {
            gw_tv key = gw_tv_repr(r, v.dict->at[i].key);
            gw_tpl_out_text(r, p->out, key);
            gw_tpl_out_words(r, p->out, ": ");
            column += width_of(r, key) + 2;
        }
        put_value(p, v.kind == GW_TV_DICT ? v.dict->at[i].value : v.list->at[i], column, behind,
                  0);
    }
    gw_tpl_out_words(r, p->out, close);
    gw_tpl_back(r);
}

gw_tv gw_tpl_pprint(gw_tpl *r, gw_tv v, const gw_tv *a) {
    printer p = {.r = r, .out = gw_tpl_out_open(r)};
    (void)a;
    put_value(&p, in_order(r, v), 0, 0, 1);
    return gw_tpl_out_close(r, p.out);
}
