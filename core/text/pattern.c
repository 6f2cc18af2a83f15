/* core/text/pattern.c - Oniguruma's expressions in PCRE2's words: see pattern.h. */
#include "core/text/pattern.h"

#include <string.h>

#include "core/base/os.h"

#define SPACES                                                                                     \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"        \
    "\\x{205f}\\x{3000}"
#define HEX "0-9A-Fa-f"
/* Oniguruma's word characters: of the numbers in Latin-1 all, of others digits and letters. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define IN_WORD "(?<=[" WORD "])"
#define NOT_IN_WORD "(?<![" WORD "])"

/* Those that the reference library tells apart (Unicode 9), but the ones written out below. */
static const char SCRIPTS[] =
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum "
    "Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid "
    "Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Coptic "
    "Cuneiform Cypriot Cyrillic Deseret Devanagari Duployan Egyptian_Hieroglyphs "
    "Elbasan Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gurmukhi "
    "Hangul Hanunoo Hatran Hebrew Imperial_Aramaic Inherited Inscriptional_Pahlavi "
    "Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li Kharoshthi Khmer Khojki "
    "Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani "
    "Malayalam Mandaic Manichaean Marchen Meetei_Mayek Mende_Kikakui Meroitic_Cursive "
    "Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean "
    "New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian "
    "Old_Permic Old_Persian Old_South_Arabian Old_Turkic Oriya Osage Osmanya "
    "Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang "
    "Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala "
    "Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham "
    "Tai_Viet Takri Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic "
    "Vai Warang_Citi Yi ";

enum { DEPTH_MAX = 16, GROUPS_MAX = 64 };

static gw_status put(gw_bytes *out, const char *text) {
    return gw_bytes_add(out, text, strlen(text));
}

/* Names of Oniguruma that PCRE2 does not have. */
static const char *const PROPERTIES[][2] = {{"letter", "L"},          {"mark", "M"},
                                            {"number", "N"},          {"punctuation", "P"},
                                            {"punct", "P"},           {"symbol", "S"},
                                            {"separator", "Z"},       {"other", "C"},
                                            {"digit", "Nd"},          {"alpha", "Alphabetic"},
                                            {"space", "White_Space"}, {"upper", "Uppercase"},
                                            {"lower", "Lowercase"}};

static int is_script(const char *name, size_t n) {
    static const char MORE[] = "Han Hiragana Katakana Common";
    const char *lists[] = {SCRIPTS, MORE};
    for (size_t k = 0; k < 2; k++) {
        for (const char *p = lists[k]; *p != '\0';) {
            size_t length = strcspn(p, " ");
            if (length == n && strncasecmp(p, name, n) == 0) {
                return 1;
            }
            p += length + (p[length] == ' ');
        }
    }
    return 0;
}

/* How long the "\p{Name}" at p is, 0 when it is none. */
static size_t property(const char *p) {
    size_t n = p[0] == '\\' && (p[1] == 'p' || p[1] == 'P') && p[2] == '{' ? strcspn(p, "}") : 0;
    return n > 0 && p[n] == '}' ? n + 1 : 0;
}

/* A script is the script itself: by its bare name PCRE2 means the characters used with it, too. */
static gw_status put_property(const char *p, size_t n, gw_bytes *out) {
    const char *name = p + 3 + (p[3] == '^');
    size_t bytes = (size_t)(p + n - 1 - name);
    GW_TRY(gw_bytes_add(out, p, (size_t)(name - p)));
    for (size_t i = 0; i < sizeof PROPERTIES / sizeof PROPERTIES[0]; i++) {
        if (strlen(PROPERTIES[i][0]) == bytes && strncasecmp(PROPERTIES[i][0], name, bytes) == 0) {
            GW_TRY(put(out, PROPERTIES[i][1]));
            return put(out, "}");
        }
    }
    GW_TRY(is_script(name, bytes) ? put(out, "sc:") : GW_OK);
    return gw_bytes_add(out, name, bytes + 1);
}

/* "\s" and the like outside of a class; *at on the backslash, left behind the escape. */
static gw_status put_escape(const char **at, gw_bytes *out) {
    const char *p = *at;
    size_t n = p[1] != '\0' ? 2 : 1;
    *at = p + n;
    switch (p[1]) {
    case 's':
        return put(out, "[" SPACES "]");
    case 'S':
        return put(out, "[^" SPACES "]");
    case 'h':
        return put(out, "[" HEX "]");
    case 'H':
        return put(out, "[^" HEX "]");
    case 'w':
        return put(out, "[" WORD "]");
    case 'W':
        return put(out, "[^" WORD "]");
    case 'b':
        return put(out, "(?:" IN_WORD "(?![" WORD "])|" NOT_IN_WORD "(?=[" WORD "]))");
    case 'B':
        return put(out, "(?:" IN_WORD "(?=[" WORD "])|" NOT_IN_WORD "(?![" WORD "]))");
    case 'O':
        return put(out, "(?s:.)");
    case 'v':
        return put(out, "\\x0b"); /* PCRE2's is a class */
    default:
        return gw_bytes_add(out, p, n);
    }
}

/* "\u00e9" at p, which PCRE2 writes \x{00e9}: 6, or 0 when it is none. */
static size_t code_unit(const char *p) {
    return p[0] == '\\' && p[1] == 'u' && strspn(p + 2, "0123456789abcdefABCDEF") >= 4 ? 6 : 0;
}

static gw_status put_code_unit(const char *p, gw_bytes *out) {
    GW_TRY(put(out, "\\x{"));
    GW_TRY(gw_bytes_add(out, p + 2, 4));
    return put(out, "}");
}

static int is_posix(const char *p) { return p[0] == '[' && p[1] == ':' && strstr(p, ":]") != NULL; }

/* Where the class that begins at p ends: behind its bracket, or at the end of the text. *plain: it
 * has neither a class nor an intersection within. */
static const char *class_end(const char *p, int *plain) {
    int depth = 0;
    *plain = 1;
    for (const char *first = NULL; *p != '\0'; p++) {
        if (*p == '\\' && p[1] != '\0') {
            p++;
        } else if (depth > 0 && is_posix(p)) {
            p = strstr(p, ":]") + 1;
        } else if (*p == '[') {
            *plain = *plain && depth == 0;
            depth++;
            p += p[1] == '^';
            first = p + 1;
        } else if (*p == '&' && p[1] == '&') {
            *plain = 0;
        } else if (*p == ']' && p != first && --depth == 0) {
            return p + 1;
        }
    }
    return p;
}

/* "[:word:]" in a class, n bytes at p, as Oniguruma has it for Unicode; what PCRE2 has as well
 * stays as it is. Complements go to `more`, as those of escapes do. */
static gw_status put_posix(const char *p, size_t n, gw_bytes *out, gw_bytes *more) {
    static const struct {
        const char *name, *members;
    } classes[] = {
        {"word", WORD},       {"alpha", "\\p{Alphabetic}"}, {"alnum", "\\p{Alphabetic}\\p{Nd}"},
        {"digit", "\\p{Nd}"}, {"upper", "\\p{Uppercase}"},  {"lower", "\\p{Lowercase}"},
        {"space", SPACES},    {"blank", "\\p{Zs}\\x09"},    {"cntrl", "\\p{Cc}"},
        {"xdigit", HEX},      {"ascii", "\\x00-\\x7f"}};
    int negated = p[2] == '^';
    const char *name = p + 2 + negated;
    size_t bytes = n - 4 - (size_t)negated;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strlen(classes[i].name) == bytes && memcmp(classes[i].name, name, bytes) == 0) {
            GW_TRY(negated ? put(more, "|[^") : GW_OK);
            GW_TRY(put(negated ? more : out, classes[i].members));
            return negated ? put(more, "]") : GW_OK;
        }
    }
    return gw_bytes_add(out, p, n);
}

/* Members of a class from *at on, up to &&, ] or [: appended as they are, with escapes in words
 * that PCRE2 has. Escapes that leave something out cannot stand beside others there: they go to
 * `more`, a list of alternatives. */
static gw_status put_members(const char **at, const char *first, gw_bytes *out, gw_bytes *more) {
    const char *p = *at;
    while (*p != '\0' && !(*p == ']' && p != first) && !(*p == '&' && p[1] == '&')) {
        size_t n = p[0] == '\\' && p[1] != '\0' ? 2 : 1, named = property(p);
        if (named > 0) {
            GW_TRY(put_property(p, named, out));
            p += named;
            continue;
        }
        if (is_posix(p)) {
            n = (size_t)(strstr(p, ":]") + 2 - p);
            GW_TRY(put_posix(p, n, out, more));
            p += n;
            continue;
        }
        if (*p == '[') {
            break;
        }
        if (code_unit(p) > 0) {
            GW_TRY(put_code_unit(p, out));
            p += 6;
            continue;
        }
        if (n == 2 && p[1] == 's') {
            GW_TRY(put(out, SPACES));
        } else if (n == 2 && p[1] == 'h') {
            GW_TRY(put(out, HEX));
        } else if (n == 2 && p[1] == 'w') {
            GW_TRY(put(out, WORD));
        } else if (n == 2 && p[1] == 'v') {
            GW_TRY(put(out, "\\x0b"));
        } else if (n == 2 && p[1] == 'O') { /* no escape there */
            GW_TRY(put(out, "O"));
        } else if (n == 2 && (p[1] == 'S' || p[1] == 'H' || p[1] == 'W')) {
            GW_TRY(put(more, p[1] == 'S'   ? "|[^" SPACES "]"
                             : p[1] == 'H' ? "|[^" HEX "]"
                                           : "|[^" WORD "]"));
        } else {
            GW_TRY(gw_bytes_add(out, p, n));
        }
        p += n;
    }
    *at = p;
    return GW_OK;
}

static gw_status put_class(const char **at, int depth, gw_bytes *out);

/* One side of an intersection as an expression of one character. */
static gw_status put_side(const char **at, const char *first, int depth, gw_bytes *out) {
    gw_bytes members = {0}, more = {0};
    gw_status status = GW_OK;
    while (status == GW_OK && **at != '\0' && !(**at == ']' && *at != first) &&
           !((*at)[0] == '&' && (*at)[1] == '&')) {
        if (**at == '[' && !is_posix(*at)) {
            status = put(&more, "|");
            status = status == GW_OK ? put_class(at, depth + 1, &more) : status;
        } else {
            status = put_members(at, first, &members, &more);
        }
    }
    status = status == GW_OK ? put(out, "(?:") : status;
    if (members.n > 0) {
        status = status == GW_OK ? put(out, "[") : status;
        status = status == GW_OK ? gw_bytes_add(out, members.data, members.n) : status;
        status = status == GW_OK ? put(out, "]") : status;
    }
    size_t skip = members.n == 0 && more.n > 0; /* the first bar */
    if (status == GW_OK && more.n > 0) {
        status = gw_bytes_add(out, more.data + skip, more.n - skip);
    } else if (status == GW_OK && members.n == 0) {
        status = put(out, "(?!)");
    }
    free(members.data);
    free(more.data);
    return status == GW_OK ? put(out, ")") : status;
}

/* The general categories, of which every character has one. */
static const char *const CATEGORIES[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "M",
                                         "N",  "P",  "S",  "Z",  "C"};
enum { N_CATEGORIES = sizeof CATEGORIES / sizeof CATEGORIES[0] };

/* "[\p{Lu}\p{M}&&[^...]]" at p, as one class by what it leaves out: every other category, and what
 * the second side does. One class, where a condition in front of a character would make every
 * repetition remember each of its steps. *n: its length, 0 when it is of another form. */
static gw_status put_difference(const char *p, gw_bytes *out, size_t *n) {
    int named[N_CATEGORIES] = {0}, plain = 1;
    const char *begin = p++;
    gw_bytes more = {0};
    *n = 0;
    for (size_t length; (length = property(p)) > 0 && p[1] == 'p' && p[3] != '^'; p += length) {
        size_t found = 0;
        for (size_t i = 0; i < N_CATEGORIES; i++) {
            const char *name = CATEGORIES[i];
            int is = strncmp(p + 3, name, length - 4) == 0; /* "L" is all that begin so */
            named[i] |= is;
            found += (size_t)is;
        }
        if (found == 0) {
            return GW_OK;
        }
    }
    if (p == begin + 1 || strncmp(p, "&&[^", 4) != 0) {
        return GW_OK;
    }
    const char *inner = p + 4, *end = class_end(p + 2, &plain);
    if (!plain || *end != ']') {
        return GW_OK;
    }
    size_t kept = out->n;
    GW_TRY(put(out, "[^"));
    for (size_t i = 0; i < N_CATEGORIES; i++) {
        if (!named[i]) {
            GW_TRY(put(out, "\\p{"));
            GW_TRY(put(out, CATEGORIES[i]));
            GW_TRY(put(out, "}"));
        }
    }
    gw_status status = put_members(&inner, inner, out, &more);
    int whole = more.n == 0 && inner == end - 1;
    free(more.data);
    GW_TRY(status);
    if (!whole) {
        out->n = kept;
        return GW_OK;
    }
    *n = (size_t)(end + 1 - begin);
    return put(out, "]");
}

/* The class at *at, which is left behind it. One with others within becomes a group: all sides but
 * the last as conditions in front of it. */
static gw_status put_class(const char **at, int depth, gw_bytes *out) {
    int plain, negated = (*at)[1] == '^';
    const char *end = class_end(*at, &plain), *first = *at + 1 + negated;
    gw_bytes rest = {0};
    size_t difference = 0;
    GW_TRY(put_difference(*at, out, &difference));
    if (difference > 0) {
        *at += difference;
        return GW_OK;
    }
    if (depth > DEPTH_MAX) {
        return gw_fail(GW_E_LIMIT, NULL, "more than %d classes within another", (int)DEPTH_MAX);
    }
    if (plain) { /* one class of PCRE2 unless it has \S */
        gw_bytes more = {0};
        const char *p = first;
        gw_status status = put(out, negated ? "[^" : "[");
        size_t open = out->n;
        status = status == GW_OK ? put_members(&p, first, out, &more) : status;
        if (status == GW_OK && more.n > 0) {
            out->n = open - (negated ? 2 : 1);
        } else if (status == GW_OK && *p == ']') {
            status = put(out, "]");
        }
        int whole = more.n == 0;
        free(more.data);
        if (status != GW_OK || whole) {
            *at = end;
            return status;
        }
    }
    const char *p = first;
    GW_TRY(put(out, negated ? "(?:(?!" : "(?:"));
    gw_status status = put_side(&p, first, depth, &rest);
    while (status == GW_OK && p[0] == '&' && p[1] == '&') {
        p += 2;
        status = put(out, "(?=");
        status = status == GW_OK ? gw_bytes_add(out, rest.data, rest.n) : status;
        status = status == GW_OK ? put(out, ")") : status;
        rest.n = 0;
        status = status == GW_OK ? put_side(&p, first, depth, &rest) : status;
    }
    status = status == GW_OK ? gw_bytes_add(out, rest.data, rest.n) : status;
    free(rest.data);
    GW_TRY(status);
    *at = *p == ']' ? p + 1 : end;
    return put(out, negated ? ")(?s:.))" : ")");
}

/* How long the "{2}" or "{1,3}" at p is, 0 when it is none. */
static size_t interval(const char *p) {
    size_t n = strspn(p + (*p == '{'), "0123456789,") + 2;
    return *p == '{' && n > 2 && p[n - 1] == '}' ? n : 0;
}

/* "a{2}+" is "(a{2})+" for Oniguruma, possessive for PCRE2: a group around what begins at `atom`.
 */
static gw_status put_interval(const char *p, size_t n, size_t atom, gw_bytes *out) {
    if (p[n] == '+') {
        GW_TRY(put(out, "(?:"));
        memmove(out->data + atom + 3, out->data + atom, out->n - 3 - atom);
        memcpy(out->data + atom, "(?:", 3);
    }
    GW_TRY(gw_bytes_add(out, p, n));
    return p[n] == '+' ? put(out, ")") : GW_OK;
}

/* How long the options "(?im" at p are where "m" is one of them, 0 else: it lets the dot match line
 * ends, which PCRE2 calls "s"; ^ and $ always see lines. */
static size_t dot_all(const char *p) {
    size_t n = p[0] == '(' && p[1] == '?' ? strspn(p + 2, "imx-") : 0;
    int ends = n > 0 && (p[2 + n] == ':' || p[2 + n] == ')');
    return ends && memchr(p + 2, 'm', n) != NULL ? n + 2 : 0;
}

static gw_status put_options(const char *p, size_t n, gw_bytes *out) {
    for (size_t i = 0; i < n; i++) {
        GW_TRY(gw_bytes_add(out, p[i] == 'm' ? "s" : p + i, 1));
    }
    return GW_OK;
}

gw_status gw_pattern_spell(const char *pattern, gw_bytes *out) {
    size_t groups[GROUPS_MAX], depth = 0, atom = out->n; /* where groups and the last atom begin */
    for (const char *p = pattern; *p != '\0';) {
        size_t n = interval(p);
        if (n > 0) {
            GW_TRY(put_interval(p, n, atom, out));
            p += n;
            continue;
        }
        if (*p == '(' && depth < GROUPS_MAX) {
            groups[depth] = out->n;
        }
        depth += *p == '(';
        depth -= *p == ')' && depth > 0;
        atom = *p != ')' ? out->n : depth < GROUPS_MAX ? groups[depth] : atom;
        if (code_unit(p) > 0) {
            GW_TRY(put_code_unit(p, out));
            p += 6;
        } else if (dot_all(p) > 0) {
            GW_TRY(put_options(p, dot_all(p), out));
            p += dot_all(p);
        } else if (property(p) > 0) {
            n = property(p);
            GW_TRY(put_property(p, n, out));
            p += n;
        } else if (*p == '\\') {
            int named = p[1] != '\0' && strchr("pPx", p[1]) != NULL; /* \p{L}, \x{20}: one atom */
            GW_TRY(put_escape(&p, out));
            n = named && *p == '{' ? strcspn(p, "}") : 0;
            n += n > 0 && p[n] == '}';
            GW_TRY(gw_bytes_add(out, p, n));
            p += n;
        } else if (*p == '[') {
            GW_TRY(put_class(&p, 0, out));
        } else {
            GW_TRY(gw_bytes_add(out, p++, 1));
        }
    }
    return GW_OK;
}

/* ---- scripts ----------------------------------------------------------------------------- */

#define HAN "\\p{sc:Han}\\p{sc:Hiragana}\\p{sc:Katakana}\\x{30fc}"
#define NONE " \\p{sc:Unknown}"

gw_status gw_pattern_scripts(gw_bytes *out) {
    GW_TRY(put(out, "[" HAN "][" HAN NONE "]*|(?![ \\x{30fc}])\\p{sc:Common}"
                    "(?:(?!\\x{30fc})[\\p{sc:Common}" NONE "])*"));
    for (const char *p = SCRIPTS; *p != '\0';) {
        size_t n = strcspn(p, " ");
        GW_TRY(put(out, "|\\p{sc:"));
        GW_TRY(gw_bytes_add(out, p, n));
        GW_TRY(put(out, "}[" NONE "\\p{sc:"));
        GW_TRY(gw_bytes_add(out, p, n));
        GW_TRY(put(out, "}]*"));
        p += n + (p[n] == ' ');
    }
    return GW_OK;
}
