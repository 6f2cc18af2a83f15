/* core/text/template/text.c - operations on texts that methods and filters share. Each byte of a
 * result carries the mark of the byte that it came from.
 */
#include <string.h>
#include <utf8proc.h>

#include "core/text/template/render.h"
#include "core/text/utf8.h"

/* ---- escaping -------------------------------------------------------------------------------- */

gw_tv gw_tpl_escape(gw_tpl *r, gw_tv v) {
    gw_tv text = gw_tv_soft(r, v);
    if (text.safe) {
        return text;
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    size_t from = 0;
    for (size_t at = 0; at < text.n; at++) {
        const char *word = text.text[at] == '&'    ? "&amp;"
                           : text.text[at] == '<'  ? "&lt;"
                           : text.text[at] == '>'  ? "&gt;"
                           : text.text[at] == '"'  ? "&#34;"
                           : text.text[at] == '\'' ? "&#39;"
                                                   : NULL;
        if (word != NULL) {
            gw_tpl_out_text(r, out, gw_tv_cut(text, from, at - from));
            gw_tpl_out_add(r, out, word, strlen(word), gw_tv_typed_at(text, at));
            from = at + 1;
        }
    }
    gw_tpl_out_text(r, out, gw_tv_cut(text, from, text.n - from));
    gw_tv escaped = gw_tpl_out_close(r, out);
    escaped.safe = 1;
    return escaped;
}

/* ---- stripping ------------------------------------------------------------------------------- */

static int in_set(gw_tv set, const char *c, size_t n, uint32_t cp) {
    return set.kind == GW_TV_TEXT ? memmem(set.text, set.n, c, n) != NULL : gw_tpl_is_space(cp);
}

gw_tv gw_tpl_strip(gw_tpl *r, gw_tv text, gw_tv chars, int front, int back) {
    size_t from = 0, to = text.n;
    uint32_t cp = 0;
    if (gw_tv_given(chars) && chars.kind != GW_TV_NONE && chars.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "strip arg must be None or str, not %s", gw_tv_type(chars));
    }
    size_t cost = chars.kind == GW_TV_TEXT ? chars.n / 16 + 1 : 1;
    while (front && from < to) {
        size_t n = gw_utf8_next(text.text + from, to - from, &cp);
        if (n == 0 || !in_set(chars, text.text + from, n, cp)) {
            break;
        }
        from += n;
    }
    while (back && to > from) {
        size_t n = 1;
        while (n < 4 && n < to - from && ((unsigned char)text.text[to - n] & 0xC0) == 0x80) {
            n++;
        }
        if (gw_utf8_next(text.text + to - n, n, &cp) != n ||
            !in_set(chars, text.text + to - n, n, cp)) {
            break;
        }
        to -= n;
    }
    gw_tpl_charge(r, (from + text.n - to) / 16 * cost);
    return gw_tv_cut(text, from, to - from);
}

/* ---- replacing ------------------------------------------------------------------------------- */

gw_tv gw_tpl_replace(gw_tpl *r, gw_tv text, gw_tv old, gw_tv new, int64_t count) {
    gw_tpl_charge(r, text.n / 16 + 1);
    if (count == 0 || (old.n > 0 && memmem(text.text, text.n, old.text, old.n) == NULL)) {
        return text;
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    size_t at = 0;
    for (; count != 0; count--) {
        size_t begin = at, end;
        if (old.n == 0) { /* before each character, and at the end */
            gw_tpl_out_text(r, out, new);
            if (at == text.n) {
                break;
            }
            end = at + gw_utf8_next(text.text + at, text.n - at, NULL);
            end += end == at; /* no UTF-8 */
            gw_tpl_out_text(r, out, gw_tv_cut(text, at, end - at));
            gw_tpl_charge(r, 4);
            at = end;
            continue;
        }
        const char *hit = memmem(text.text + at, text.n - at, old.text, old.n);
        if (hit == NULL) {
            break;
        }
        end = (size_t)(hit - text.text);
        gw_tpl_out_text(r, out, gw_tv_cut(text, begin, end - begin));
        gw_tpl_out_text(r, out, new);
        gw_tpl_charge(r, 4);
        at = end + old.n;
    }
    gw_tpl_out_text(r, out, gw_tv_cut(text, at, text.n - at));
    return gw_tpl_out_close(r, out);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The end of a line at `at`: its bytes, 0 when there is none. */
static size_t line_end(gw_tv text, size_t at) {
    uint32_t cp = 0;
    size_t n = gw_utf8_next(text.text + at, text.n - at, &cp);
    if (cp == '\r') {
        return at + 1 < text.n && text.text[at + 1] == '\n' ? 2 : 1;
    }
    int ends = (cp >= '\n' && cp <= '\f') || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 ||
               cp == 0x2028 || cp == 0x2029;
    return ends ? n : 0;
}

gw_tv gw_tpl_lines(gw_tpl *r, gw_tv text, int keep) {
    gw_tv list = gw_tv_list(r, 0);
    size_t from = 0, at = 0;
    gw_tpl_charge(r, text.n / 8);
    while (at < text.n) {
        size_t end = line_end(text, at);
        if (end > 0) {
            gw_tpl_add(r, list, gw_tv_cut(text, from, at - from + (keep ? end : 0)));
            at += end;
            from = at;
        } else {
            at++;
        }
    }
    if (from < text.n) {
        gw_tpl_add(r, list, gw_tv_cut(text, from, text.n - from));
    }
    return list;
}

/* ---- upper and lower case -------------------------------------------------------------------- */

static int is_cased(uint32_t cp) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* Characters that become several: the unconditional rows of SpecialCasing.txt that texts have. */
static const struct {
    uint32_t cp;
    const char *upper, *title;
} special[] = {{0xDF, "SS", "Ss"},
               {0x149, "\xCA\xBCN", "\xCA\xBCN"},
               {0x1F0, "J\xCC\x8C", "J\xCC\x8C"},
               {0x390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
               {0x3B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
               {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
               {0x1E96, "H\xCC\xB1", "H\xCC\xB1"},
               {0x1E97, "T\xCC\x88", "T\xCC\x88"},
               {0x1E98, "W\xCC\x8A", "W\xCC\x8A"},
               {0x1E99, "Y\xCC\x8A", "Y\xCC\x8A"},
               {0x1E9A, "A\xCA\xBE", "A\xCA\xBE"},
               {0xFB00, "FF", "Ff"},
               {0xFB01, "FI", "Fi"},
               {0xFB02, "FL", "Fl"},
               {0xFB03, "FFI", "Ffi"},
               {0xFB04, "FFL", "Ffl"},
               {0xFB05, "ST", "St"},
               {0xFB06, "ST", "St"}};

static void put_case(gw_tpl *r, gw_tpl_out *out, uint32_t cp, int how, int typed) {
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    if (how == GW_TPL_LOWER) {
        if (cp == 0x130) { /* the one that becomes two */
            gw_tpl_out_add(r, out, "i\xCC\x87", 3, typed);
            return;
        }
        gw_tpl_out_char(r, out, (uint32_t)utf8proc_tolower(c), typed);
        return;
    }
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        if (special[i].cp == cp) {
            const char *word = how == GW_TPL_UPPER ? special[i].upper : special[i].title;
            gw_tpl_out_add(r, out, word, strlen(word), typed);
            return;
        }
    }
    c = how == GW_TPL_UPPER ? utf8proc_toupper(c) : utf8proc_totitle(c);
    gw_tpl_out_char(r, out, (uint32_t)c, typed);
}

/* A sigma that ends a word has a form of its own. */
static int ends_word(gw_tv text, size_t at, int after_cased) {
    uint32_t cp = 0;
    size_t next = at + 2;
    if (!after_cased) {
        return 0;
    }
    return gw_utf8_next(text.text + next, text.n - next, &cp) == 0 || !is_cased(cp);
}

gw_tv gw_tpl_case(gw_tpl *r, gw_tv text, int how) {
    gw_tpl_out *out = gw_tpl_out_open(r);
    int after = 0; /* the character before has upper and lower case */
    gw_tpl_charge(r, text.n / 4);
    for (size_t at = 0; at < text.n;) {
        uint32_t cp = 0;
        size_t n = gw_utf8_next(text.text + at, text.n - at, &cp);
        int typed = gw_tv_typed_at(text, at), now = how;
        if (n == 0) { /* no UTF-8: as it is */
            gw_tpl_out_text(r, out, gw_tv_cut(text, at++, 1));
            continue;
        }
        if (how == GW_TPL_TITLE) {
            now = after ? GW_TPL_LOWER : GW_TPL_TITLE;
        } else if (how == GW_TPL_CAPITAL) {
            now = at > 0 ? GW_TPL_LOWER : GW_TPL_TITLE;
        } else if (how == GW_TPL_SWAP) {
            now = utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LU ? GW_TPL_LOWER
                                                                                  : GW_TPL_UPPER;
        }
        if (how == GW_TPL_FOLD) {
            utf8proc_int32_t folded[8];
            int class = 0;
            utf8proc_ssize_t many = utf8proc_decompose_char((utf8proc_int32_t)cp, folded, 8,
                                                            UTF8PROC_CASEFOLD, &class);
            for (utf8proc_ssize_t i = 0; i < many && i < 8; i++) {
                gw_tpl_out_char(r, out, (uint32_t)folded[i], typed);
            }
        } else if (now == GW_TPL_LOWER && cp == 0x3A3 && ends_word(text, at, after)) {
            gw_tpl_out_char(r, out, 0x3C2, typed);
        } else {
            put_case(r, out, cp, now, typed);
        }
        after = is_cased(cp);
        at += n;
    }
    gw_tv cased = gw_tpl_out_close(r, out);
    cased.safe = text.safe;
    return cased;
}

/* ---- joining and padding --------------------------------------------------------------------- */

gw_tv gw_tpl_join(gw_tpl *r, gw_tv separator, gw_tv items, int strict) {
    gw_tpl_walk w = gw_tpl_walk_over(r, items);
    gw_tpl_out *out = gw_tpl_out_open(r);
    int safe = separator.safe;
    for (size_t i = 0; i < w.n; i++) {
        gw_tv item = gw_tpl_walk_at(&w, i);
        if (strict && item.kind != GW_TV_TEXT) {
            gw_tpl_raise(r, GW_E_TYPE, "sequence item %zu: expected str instance, %s found", i,
                         gw_tv_type(item));
        }
        if (i > 0) {
            gw_tpl_out_text(r, out, separator);
        }
        gw_tpl_out_text(r, out, safe ? gw_tpl_escape(r, item) : gw_tv_str(r, item));
        gw_tpl_charge(r, 1);
    }
    gw_tv joined = gw_tpl_out_close(r, out);
    joined.safe = (uint8_t)safe;
    return joined;
}

gw_tv gw_tpl_pad(gw_tpl *r, gw_tv text, int64_t width, gw_tv fill, int how) {
    int64_t n = (int64_t)gw_tv_chars(r, text), more = width - n;
    if (gw_tv_chars(r, fill) != 1) {
        gw_tpl_raise(r, GW_E_TYPE, "The fill character must be exactly one character long");
    }
    if (more <= 0) {
        return text;
    }
    /* as str.center of Python: the odd one stands left when the width is odd */
    int64_t left = how == '<' ? 0 : how == '>' ? more : more / 2 + (more & width & 1);
    gw_tpl_out *out = gw_tpl_out_open(r);
    gw_tpl_out_repeat(r, out, fill, (size_t)left);
    gw_tpl_out_text(r, out, text);
    gw_tpl_out_repeat(r, out, fill, (size_t)(more - left));
    gw_tv padded = gw_tpl_out_close(r, out);
    padded.safe = text.safe;
    return padded;
}
