/* core/text/template/methods.c - methods of texts: one row each. */
#include <string.h>
#include <utf8proc.h>

#include "core/text/template/render.h"
#include "core/text/utf8.h"

static int none(gw_tv v) { return !gw_tv_given(v) || v.kind == GW_TV_NONE; }

static gw_tv need_text(gw_tpl *r, gw_tv v) {
    if (v.kind == GW_TV_UNDEFINED) {
        gw_tpl_raise_undefined(r, v);
    }
    if (v.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "must be str, not %s", gw_tv_type(v));
    }
    return v;
}

static gw_tv m_upper(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, s, GW_TPL_UPPER);
}
static gw_tv m_lower(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, s, GW_TPL_LOWER);
}
static gw_tv m_title(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, s, GW_TPL_TITLE);
}
static gw_tv m_swap(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, s, GW_TPL_SWAP);
}
static gw_tv m_fold(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, s, GW_TPL_FOLD);
}
static gw_tv m_capital(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, gw_tpl_case(r, s, GW_TPL_CAPITAL);
}
static gw_tv m_strip(gw_tpl *r, gw_tv s, const gw_tv *a) { return gw_tpl_strip(r, s, a[0], 1, 1); }
static gw_tv m_lstrip(gw_tpl *r, gw_tv s, const gw_tv *a) { return gw_tpl_strip(r, s, a[0], 1, 0); }
static gw_tv m_rstrip(gw_tpl *r, gw_tv s, const gw_tv *a) { return gw_tpl_strip(r, s, a[0], 0, 1); }

/* ---- splitting ------------------------------------------------------------------------------- */

static void reverse(gw_tv list) {
    for (size_t i = 0, j = list.list->n; i + 1 < j; i++) {
        gw_tv item = list.list->at[i];
        list.list->at[i] = list.list->at[--j];
        list.list->at[j] = item;
    }
}

static size_t space_at(gw_tv s, size_t at) {
    uint32_t cp;
    size_t n = gw_utf8_next(s.text + at, s.n - at, &cp);
    return n > 0 && gw_tpl_is_space(cp) ? n : 0;
}

/* At white space, at most `limit` times from the front. */
static gw_tv split_words(gw_tpl *r, gw_tv s, int64_t limit) {
    gw_tv list = gw_tv_list(r, 0);
    size_t at = 0, n;
    gw_tpl_charge(r, s.n / 8);
    for (;;) {
        while (at < s.n && (n = space_at(s, at)) > 0) {
            at += n;
        }
        if (at >= s.n) {
            return list;
        }
        size_t from = at;
        if (limit-- == 0) {
            gw_tpl_add(r, list, gw_tv_cut(s, from, s.n - from));
            return list;
        }
        while (at < s.n && space_at(s, at) == 0) {
            at++;
        }
        gw_tpl_add(r, list, gw_tv_cut(s, from, at - from));
    }
}

static gw_tv rsplit_words(gw_tpl *r, gw_tv s, int64_t limit) {
    gw_tv list = gw_tv_list(r, 0);
    for (;;) {
        s = gw_tpl_strip(r, s, gw_tv_none(), 0, 1);
        if (s.n == 0) {
            break;
        }
        if (limit-- == 0) {
            gw_tpl_add(r, list, s);
            break;
        }
        size_t at = s.n;
        while (at > 0) {
            size_t begin = at - 1;
            while (begin > 0 && ((unsigned char)s.text[begin] & 0xC0) == 0x80) {
                begin--;
            }
            if (space_at(s, begin) > 0) {
                break;
            }
            at = begin;
        }
        gw_tpl_charge(r, (s.n - at) / 8);
        gw_tpl_add(r, list, gw_tv_cut(s, at, s.n - at));
        s = gw_tv_cut(s, 0, at);
    }
    reverse(list);
    return list;
}

/* The last place of a word in a text; NULL: none. */
static const char *find_last(gw_tpl *r, gw_tv s, gw_tv word) {
    gw_tpl_charge(r, s.n / 8 * (word.n / 32 + 1));
    for (size_t at = s.n >= word.n ? s.n - word.n + 1 : 0; at-- > 0;) {
        if (s.text[at] == word.text[0] && memcmp(s.text + at, word.text, word.n) == 0) {
            return s.text + at;
        }
    }
    return NULL;
}

static gw_tv separator(gw_tpl *r, gw_tv v) {
    v = need_text(r, v);
    if (v.n == 0) {
        gw_tpl_raise(r, GW_E_TYPE, "empty separator");
    }
    return v;
}

static int64_t limit_of(gw_tpl *r, gw_tv v) {
    int64_t limit = gw_tv_given(v) ? gw_tpl_int(r, v, "maxsplit") : -1;
    return limit < 0 ? INT64_MAX : limit;
}

static gw_tv m_split(gw_tpl *r, gw_tv s, const gw_tv *a) {
    int64_t limit = limit_of(r, a[1]);
    if (none(a[0])) {
        return split_words(r, s, limit);
    }
    gw_tv sep = separator(r, a[0]), list = gw_tv_list(r, 0);
    size_t at = 0;
    gw_tpl_charge(r, s.n / 16);
    for (; limit > 0; limit--) {
        const char *hit = memmem(s.text + at, s.n - at, sep.text, sep.n);
        if (hit == NULL) {
            break;
        }
        gw_tpl_add(r, list, gw_tv_cut(s, at, (size_t)(hit - s.text) - at));
        at = (size_t)(hit - s.text) + sep.n;
    }
    gw_tpl_add(r, list, gw_tv_cut(s, at, s.n - at));
    return list;
}

static gw_tv m_rsplit(gw_tpl *r, gw_tv s, const gw_tv *a) {
    int64_t limit = limit_of(r, a[1]);
    if (none(a[0])) {
        return rsplit_words(r, s, limit);
    }
    gw_tv sep = separator(r, a[0]), list = gw_tv_list(r, 0);
    for (; limit > 0; limit--) {
        const char *hit = find_last(r, s, sep);
        if (hit == NULL) {
            break;
        }
        size_t at = (size_t)(hit - s.text);
        gw_tpl_add(r, list, gw_tv_cut(s, at + sep.n, s.n - at - sep.n));
        s = gw_tv_cut(s, 0, at);
    }
    gw_tpl_add(r, list, s);
    reverse(list);
    return list;
}

static gw_tv m_lines(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return gw_tpl_lines(r, s, gw_tv_given(a[0]) && gw_tpl_int(r, a[0], "keepends") != 0);
}

static gw_tv part_at(gw_tpl *r, gw_tv s, gw_tv sep, const char *hit, int last) {
    gw_tv three = gw_tv_tuple(r, 3);
    size_t at = hit != NULL ? (size_t)(hit - s.text) : last ? 0 : s.n, n = hit != NULL ? sep.n : 0;
    gw_tpl_add(r, three, gw_tv_cut(s, 0, at));
    gw_tpl_add(r, three, hit != NULL ? gw_tv_cut(s, at, n) : gw_tv_words(""));
    gw_tpl_add(r, three, gw_tv_cut(s, at + n, s.n - at - n));
    return three;
}

static gw_tv m_partition(gw_tpl *r, gw_tv s, const gw_tv *a) {
    gw_tv sep = separator(r, a[0]);
    gw_tpl_charge(r, s.n / 16);
    return part_at(r, s, sep, memmem(s.text, s.n, sep.text, sep.n), 0);
}

static gw_tv m_rpartition(gw_tpl *r, gw_tv s, const gw_tv *a) {
    gw_tv sep = separator(r, a[0]);
    return part_at(r, s, sep, find_last(r, s, sep), 1);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* The part of s between characters a[0] and a[1]; *skipped bytes lie before it. ABSENT: it begins
 * behind the end. */
static gw_tv window(gw_tpl *r, gw_tv s, const gw_tv *a, size_t *skipped) {
    int64_t n = (int64_t)gw_tv_chars(r, s), from = 0, to = n;
    *skipped = 0;
    if (none(a[0]) && none(a[1])) {
        return s;
    }
    from = none(a[0]) ? 0 : gw_tpl_int(r, a[0], "start");
    to = none(a[1]) ? n : gw_tpl_int(r, a[1], "end");
    from = from < 0 ? (from + n < 0 ? 0 : from + n) : from;
    to = to < 0 ? (to + n < 0 ? 0 : to + n) : to > n ? n : to;
    if (from > n || from > to) {
        return (gw_tv){.kind = GW_TV_ABSENT};
    }
    *skipped = gw_tpl_at_char(r, s, (size_t)from);
    size_t end = gw_tpl_at_char(r, s, (size_t)to);
    return gw_tv_cut(s, *skipped, end - *skipped);
}

static int affix(gw_tpl *r, gw_tv s, gw_tv word, int back) {
    if (word.kind == GW_TV_TUPLE) {
        for (size_t i = 0; i < word.list->n; i++) {
            if (affix(r, s, need_text(r, word.list->at[i]), back)) {
                return 1;
            }
        }
        return 0;
    }
    word = need_text(r, word);
    return word.n <= s.n && memcmp(s.text + (back ? s.n - word.n : 0), word.text, word.n) == 0;
}

static gw_tv m_starts(gw_tpl *r, gw_tv s, const gw_tv *a) {
    size_t skipped;
    gw_tv part = window(r, s, a + 1, &skipped);
    return gw_tv_bool(gw_tv_given(part) && affix(r, part, a[0], 0));
}

static gw_tv m_ends(gw_tpl *r, gw_tv s, const gw_tv *a) {
    size_t skipped;
    gw_tv part = window(r, s, a + 1, &skipped);
    return gw_tv_bool(gw_tv_given(part) && affix(r, part, a[0], 1));
}

/* Number of the character where a[0] is found, -1: nowhere. */
static int64_t find(gw_tpl *r, gw_tv s, const gw_tv *a, int last) {
    size_t skipped;
    gw_tv word = need_text(r, a[0]), part = window(r, s, a + 1, &skipped);
    const char *hit = NULL;
    if (gw_tv_given(part)) {
        gw_tpl_charge(r, part.n / 16);
        hit = word.n == 0 ? part.text + (last ? part.n : 0)
              : last      ? find_last(r, part, word)
                          : memmem(part.text, part.n, word.text, word.n);
    }
    return hit == NULL ? -1 : (int64_t)gw_tv_chars(r, gw_tv_cut(s, 0, (size_t)(hit - s.text)));
}

static gw_tv m_find(gw_tpl *r, gw_tv s, const gw_tv *a) { return gw_tv_int(find(r, s, a, 0)); }
static gw_tv m_rfind(gw_tpl *r, gw_tv s, const gw_tv *a) { return gw_tv_int(find(r, s, a, 1)); }

static gw_tv found(gw_tpl *r, int64_t at) {
    if (at < 0) {
        gw_tpl_raise(r, GW_E_TYPE, "substring not found");
    }
    return gw_tv_int(at);
}

static gw_tv m_index(gw_tpl *r, gw_tv s, const gw_tv *a) { return found(r, find(r, s, a, 0)); }
static gw_tv m_rindex(gw_tpl *r, gw_tv s, const gw_tv *a) { return found(r, find(r, s, a, 1)); }

static gw_tv m_count(gw_tpl *r, gw_tv s, const gw_tv *a) {
    size_t skipped;
    gw_tv word = need_text(r, a[0]), part = window(r, s, a + 1, &skipped);
    int64_t n = 0;
    if (!gw_tv_given(part)) {
        return gw_tv_int(0);
    }
    if (word.n == 0) {
        return gw_tv_int((int64_t)gw_tv_chars(r, part) + 1);
    }
    gw_tpl_charge(r, part.n / 16);
    for (const char *p = part.text, *end = p + part.n;
         (p = memmem(p, (size_t)(end - p), word.text, word.n)) != NULL; p += word.n) {
        n++;
    }
    return gw_tv_int(n);
}

/* ---- kinds of characters --------------------------------------------------------------------- */

enum {
    ALPHA = 1,
    DIGIT = 2,
    DECIMAL = 4,
    NUMERIC = 8,
    SPACE = 16,
    UPPER = 32,
    LOWER = 64,
    PRINTABLE = 128,
    ASCII = 256,
    WORD = 512
};

static int kinds_of(uint32_t cp) {
    int kinds =
        (cp < 0x80 ? ASCII : 0) | (gw_tpl_is_space(cp) ? SPACE : 0) | (cp == ' ' ? PRINTABLE : 0);
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return kinds | ALPHA | UPPER | PRINTABLE | WORD;
    case UTF8PROC_CATEGORY_LL:
        return kinds | ALPHA | LOWER | PRINTABLE | WORD;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return kinds | ALPHA | PRINTABLE | WORD;
    case UTF8PROC_CATEGORY_ND:
        return kinds | DIGIT | DECIMAL | NUMERIC | PRINTABLE | WORD;
    case UTF8PROC_CATEGORY_NO:
        return kinds | NUMERIC | PRINTABLE |
               ((cp >= 0xB2 && cp <= 0xB3) || cp == 0xB9 || (cp >= 0x2070 && cp <= 0x2089) ? DIGIT
                                                                                           : 0);
    case UTF8PROC_CATEGORY_NL:
        return kinds | NUMERIC | PRINTABLE | WORD;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return kinds;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
        return kinds | PRINTABLE | WORD;
    default:
        return kinds | PRINTABLE;
    }
}

/* Every character is of one of the kinds; of no character: `empty`. */
static gw_tv all_are(gw_tpl *r, gw_tv s, int kinds, int empty) {
    gw_tpl_charge(r, s.n / 8);
    for (size_t at = 0; at < s.n;) {
        uint32_t cp = 0;
        size_t n = gw_utf8_next(s.text + at, s.n - at, &cp);
        if ((kinds_of(cp) & kinds) == 0) {
            return gw_tv_bool(0);
        }
        at += n > 0 ? n : 1;
    }
    return gw_tv_bool(s.n > 0 || empty);
}

/* Some character has case, and all that have are of this one. */
static gw_tv cased(gw_tpl *r, gw_tv s, int kind) {
    int some = 0;
    gw_tpl_charge(r, s.n / 8);
    for (size_t at = 0; at < s.n;) {
        uint32_t cp = 0;
        size_t n = gw_utf8_next(s.text + at, s.n - at, &cp);
        int kinds = kinds_of(cp) & (UPPER | LOWER);
        if (kinds != 0 && kinds != kind) {
            return gw_tv_bool(0);
        }
        some |= kinds;
        at += n > 0 ? n : 1;
    }
    return gw_tv_bool(some != 0);
}

static gw_tv m_isalpha(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, ALPHA, 0);
}
static gw_tv m_isdigit(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, DIGIT, 0);
}
static gw_tv m_isdecimal(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, DECIMAL, 0);
}
static gw_tv m_isnumeric(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, NUMERIC, 0);
}
static gw_tv m_isalnum(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, ALPHA | NUMERIC, 0);
}
static gw_tv m_isspace(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, SPACE, 0);
}
static gw_tv m_isprintable(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, PRINTABLE, 1);
}
static gw_tv m_isascii(gw_tpl *r, gw_tv s, const gw_tv *a) {
    return (void)a, all_are(r, s, ASCII, 1);
}
static gw_tv m_isupper(gw_tpl *r, gw_tv s, const gw_tv *a) { return (void)a, cased(r, s, UPPER); }
static gw_tv m_islower(gw_tpl *r, gw_tv s, const gw_tv *a) { return (void)a, cased(r, s, LOWER); }

static gw_tv m_isidentifier(gw_tpl *r, gw_tv s, const gw_tv *a) {
    (void)a;
    int digit = s.n > 0 && s.text[0] >= '0' && s.text[0] <= '9';
    return digit ? gw_tv_bool(0) : all_are(r, s, WORD, 0);
}

static gw_tv m_istitle(gw_tpl *r, gw_tv s, const gw_tv *a) {
    (void)a;
    return gw_tv_bool(
        gw_tv_equal(r, s, gw_tpl_case(r, s, GW_TPL_TITLE)) &&
        !gw_tv_equal(r, gw_tpl_case(r, s, GW_TPL_UPPER), gw_tpl_case(r, s, GW_TPL_LOWER)));
}

/* ---- changing -------------------------------------------------------------------------------- */

static gw_tv m_replace(gw_tpl *r, gw_tv s, const gw_tv *a) {
    gw_tv old = need_text(r, a[0]), new = need_text(r, a[1]);
    gw_tv out = gw_tpl_replace(r, s, old, s.safe ? gw_tpl_escape(r, new) : new,
                               gw_tv_given(a[2]) ? gw_tpl_int(r, a[2], "count") : -1);
    out.safe = s.safe;
    return out;
}

static gw_tv m_join(gw_tpl *r, gw_tv s, const gw_tv *a) { return gw_tpl_join(r, s, a[0], 1); }

static gw_tv pad(gw_tpl *r, gw_tv s, const gw_tv *a, int how) {
    return gw_tpl_pad(r, s, gw_tpl_int(r, a[0], "width"),
                      gw_tv_given(a[1]) ? need_text(r, a[1]) : gw_tv_words(" "), how);
}

static gw_tv m_center(gw_tpl *r, gw_tv s, const gw_tv *a) { return pad(r, s, a, '^'); }
static gw_tv m_ljust(gw_tpl *r, gw_tv s, const gw_tv *a) { return pad(r, s, a, '<'); }
static gw_tv m_rjust(gw_tpl *r, gw_tv s, const gw_tv *a) { return pad(r, s, a, '>'); }

static gw_tv m_zfill(gw_tpl *r, gw_tv s, const gw_tv *a) {
    size_t sign = s.n > 0 && (s.text[0] == '-' || s.text[0] == '+');
    int64_t width = gw_tpl_int(r, a[0], "width");
    gw_tv rest =
        gw_tpl_pad(r, gw_tv_cut(s, sign, s.n - sign), width - (int64_t)sign, gw_tv_words("0"), '>');
    return gw_tv_join2(r, gw_tv_cut(s, 0, sign), rest);
}

static gw_tv m_removeprefix(gw_tpl *r, gw_tv s, const gw_tv *a) {
    gw_tv word = need_text(r, a[0]);
    return affix(r, s, word, 0) ? gw_tv_cut(s, word.n, s.n - word.n) : s;
}

static gw_tv m_removesuffix(gw_tpl *r, gw_tv s, const gw_tv *a) {
    gw_tv word = need_text(r, a[0]);
    return affix(r, s, word, 1) ? gw_tv_cut(s, 0, s.n - word.n) : s;
}

static gw_tv m_expandtabs(gw_tpl *r, gw_tv s, const gw_tv *a) {
    int64_t size = gw_tv_given(a[0]) ? gw_tpl_int(r, a[0], "tabsize") : 8, column = 0;
    gw_tpl_out *out = gw_tpl_out_open(r);
    for (size_t at = 0; at < s.n; at++) {
        char c = s.text[at];
        if (c == '\t') {
            int64_t more = size > 0 ? size - column % size : 0;
            gw_tpl_out_repeat(r, out, gw_tv_words(" "), (size_t)more);
            column += more;
            continue;
        }
        gw_tpl_out_text(r, out, gw_tv_cut(s, at, 1));
        column = c == '\n' || c == '\r' ? 0 : column + (((unsigned char)c & 0xC0) != 0x80);
    }
    return gw_tpl_out_close(r, out);
}

static gw_tv m_format(gw_tpl *r, gw_tv s, const gw_tv *a) { return gw_tpl_format(r, s, a); }

static gw_tv m_encode(gw_tpl *r, gw_tv s, const gw_tv *a) {
    (void)s;
    (void)a;
    gw_tpl_raise(r, GW_E_UNSUPPORTED, "a chat template has no bytes: encode() is not built");
}

static const gw_tpl_builtin rows[] = {{"capitalize", "", m_capital},
                                      {"casefold", "", m_fold},
                                      {"center", "width fillchar?", m_center},
                                      {"count", "sub start? end?", m_count},
                                      {"encode", "* **", m_encode},
                                      {"endswith", "suffix start? end?", m_ends},
                                      {"expandtabs", "tabsize?", m_expandtabs},
                                      {"find", "sub start? end?", m_find},
                                      {"format", "* **", m_format},
                                      {"index", "sub start? end?", m_index},
                                      {"isalnum", "", m_isalnum},
                                      {"isalpha", "", m_isalpha},
                                      {"isascii", "", m_isascii},
                                      {"isdecimal", "", m_isdecimal},
                                      {"isdigit", "", m_isdigit},
                                      {"isidentifier", "", m_isidentifier},
                                      {"islower", "", m_islower},
                                      {"isnumeric", "", m_isnumeric},
                                      {"isprintable", "", m_isprintable},
                                      {"isspace", "", m_isspace},
                                      {"istitle", "", m_istitle},
                                      {"isupper", "", m_isupper},
                                      {"join", "iterable", m_join},
                                      {"ljust", "width fillchar?", m_ljust},
                                      {"lower", "", m_lower},
                                      {"lstrip", "chars?", m_lstrip},
                                      {"partition", "sep", m_partition},
                                      {"removeprefix", "prefix", m_removeprefix},
                                      {"removesuffix", "suffix", m_removesuffix},
                                      {"replace", "old new count?", m_replace},
                                      {"rfind", "sub start? end?", m_rfind},
                                      {"rindex", "sub start? end?", m_rindex},
                                      {"rjust", "width fillchar?", m_rjust},
                                      {"rpartition", "sep", m_rpartition},
                                      {"rsplit", "sep? maxsplit?", m_rsplit},
                                      {"rstrip", "chars?", m_rstrip},
                                      {"split", "sep? maxsplit?", m_split},
                                      {"splitlines", "keepends?", m_lines},
                                      {"startswith", "prefix start? end?", m_starts},
                                      {"strip", "chars?", m_strip},
                                      {"swapcase", "", m_swap},
                                      {"title", "", m_title},
                                      {"upper", "", m_upper},
                                      {"zfill", "width", m_zfill},
                                      {NULL, NULL, NULL}};

const gw_tpl_builtin *gw_tpl_find_row(const gw_tpl_builtin *row, const char *name, size_t n) {
    for (; row->name != NULL; row++) {
        if (strlen(row->name) == n && memcmp(row->name, name, n) == 0) {
            return row;
        }
    }
    return NULL;
}

const gw_tpl_builtin *gw_tpl_text_method(const char *name, size_t n) {
    return gw_tpl_find_row(rows, name, n);
}
