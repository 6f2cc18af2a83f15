/* core/text/grammar/json_schema_classes.c - sets of characters: ranges, \d \w \s, Unicode
 * properties. */
#include <utf8proc.h>

#include "core/text/grammar/json_schema_regex.h"

gw_status gw_chars_add(gw_chars *set, uint32_t low, uint32_t high) {
    void *grown = set->ranges;
    gw_status status = gw_array_reserve(&grown, &set->capacity, set->n + 1, sizeof *set->ranges);
    set->ranges = grown;
    GW_TRY(status);
    set->ranges[set->n++] = (gw_char_range){low, high};
    return GW_OK;
}

static int by_low(const void *a, const void *b) {
    uint32_t x = ((const gw_char_range *)a)->low, y = ((const gw_char_range *)b)->low;
    return x < y ? -1 : x > y;
}

static void tidy(gw_chars *set) {
    gw_char_range *a = set->ranges;
    size_t n = 0;
    if (set->n > 0) {
        qsort(a, set->n, sizeof *a, by_low);
    }
    for (size_t i = 0; i < set->n; i++) {
        if (n > 0 && a[i].low <= a[n - 1].high + 1) {
            a[n - 1].high = a[i].high > a[n - 1].high ? a[i].high : a[n - 1].high;
        } else {
            a[n++] = a[i];
        }
    }
    set->n = n;
}

gw_status gw_chars_invert(gw_chars *set) {
    gw_chars out = {0};
    uint32_t next = 0;
    gw_status status = GW_OK;
    tidy(set);
    for (size_t i = 0; i < set->n && status == GW_OK; i++) {
        if (set->ranges[i].low > next) {
            status = gw_chars_add(&out, next, set->ranges[i].low - 1);
        }
        next = set->ranges[i].high + 1;
    }
    if (status == GW_OK && next <= GW_CHAR_MAX) {
        status = gw_chars_add(&out, next, GW_CHAR_MAX);
    }
    free(set->ranges);
    *set = out;
    return status;
}

/* Surrogates are no characters. */
gw_status gw_chars_tidy(gw_chars *set) {
    GW_TRY(gw_chars_invert(set));
    GW_TRY(gw_chars_add(set, 0xD800, 0xDFFF));
    return gw_chars_invert(set);
}

static gw_status add_all(gw_chars *set, const gw_char_range *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        GW_TRY(gw_chars_add(set, list[i].low, list[i].high));
    }
    return GW_OK;
}

/* ECMA-262 knows digits and letters of ASCII only, others know those of all scripts; which
 * characters are blanks differs too. Beyond ASCII all of them are of one's opinion or another's. */
static gw_status add_positive(gw_chars *set, int letter, int wide) {
    static const gw_char_range digits[] = {{'0', '9'}},
                               words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                               blanks[] = {{'\t', '\r'}, {' ', ' '}},
                               more[] = {{0x1C, 0x1F},     {0x85, 0x85},     {0xA0, 0xA0},
                                         {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                         {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                         {0xFEFF, 0xFEFF}};
    switch (letter) {
    case 'd':
        GW_TRY(add_all(set, digits, 1));
        break;
    case 'w':
        GW_TRY(add_all(set, words, 4));
        break;
    default:
        GW_TRY(add_all(set, blanks, 2));
        return wide ? add_all(set, more, sizeof more / sizeof more[0]) : GW_OK;
    }
    return wide ? gw_chars_add(set, 0x80, GW_CHAR_MAX) : GW_OK;
}

gw_status gw_chars_shorthand(gw_chars *set, int letter, int wide) {
    gw_chars one = {0};
    if (letter >= 'a') {
        return add_positive(set, letter, wide);
    }
    gw_status status = add_positive(&one, letter | 0x20, !wide);
    status = status == GW_OK ? gw_chars_invert(&one) : status;
    status = status == GW_OK ? add_all(set, one.ranges, one.n) : status;
    free(one.ranges);
    return status;
}

/* ---- Unicode --------------------------------------------------------------------------------- */

/* General categories, in utf8proc's order; a group is known by its first letter. */
static const struct {
    const char *code, *name;
} categories[] = {
    {"Cn", "Unassigned"},
    {"Lu", "Uppercase_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"Mn", "Nonspacing_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"Nd", "Decimal_Number"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"Sm", "Math_Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"So", "Other_Symbol"},
    {"Zs", "Space_Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"Cc", "Control"},
    {"Cf", "Format"},
    {"Cs", "Surrogate"},
    {"Co", "Private_Use"},
};
static const struct {
    const char *code, *name;
} groups[] = {{"L", "Letter"},      {"M", "Mark"},  {"N", "Number"},
              {"P", "Punctuation"}, {"P", "punct"}, {"S", "Symbol"},
              {"Z", "Separator"},   {"C", "Other"}, {"LC", "Cased_Letter"}};

enum { CATEGORIES = sizeof categories / sizeof categories[0], CASED = 3, UNASSIGNED = 1 };

static int is_name(const char *name, size_t n, const char *code, const char *longer) {
    return (strlen(code) == n && memcmp(name, code, n) == 0) ||
           (strlen(longer) == n && memcmp(name, longer, n) == 0);
}

/* Bits of the categories that a name stands for; 0: none. */
static uint32_t named(const char *name, size_t n) {
    uint32_t bits = 0;
    for (int i = 0; i < CATEGORIES; i++) {
        if (is_name(name, n, categories[i].code, categories[i].name)) {
            return (uint32_t)1 << i;
        }
    }
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        if (!is_name(name, n, groups[g].code, groups[g].name)) {
            continue;
        }
        for (int i = 0; i < CATEGORIES; i++) {
            int cased = i >= 1 && i <= CASED;
            bits |= (groups[g].code[1] != '\0' ? cased : categories[i].code[0] == groups[g].code[0])
                        ? (uint32_t)1 << i
                        : 0;
        }
        return bits;
    }
    return 0;
}

gw_status gw_chars_property(gw_chars *set, const char *name, size_t n, int negated, int wide,
                            int *known) {
    static const char *const prefixes[] = {"General_Category=", "gc="};
    for (size_t i = 0; i < 2; i++) {
        size_t m = strlen(prefixes[i]);
        if (n > m && memcmp(name, prefixes[i], m) == 0) {
            name += m;
            n -= m;
        }
    }
    uint32_t bits = named(name, n);
    if (is_name(name, n, "Any", "Any")) {
        bits = UINT32_MAX;
    }
    *known = bits != 0 || is_name(name, n, "ASCII", "ASCII");
    if (bits == 0 && *known) {
        return negated ? gw_chars_add(set, 0x80, GW_CHAR_MAX) : gw_chars_add(set, 0, 0x7F);
    }
    bits = negated ? ~bits : bits;
    bits = wide ? bits | UNASSIGNED : bits & ~(uint32_t)UNASSIGNED;
    uint32_t from = 0;
    int inside = 0;
    for (uint32_t cp = 0; cp <= GW_CHAR_MAX + 1 && *known; cp++) {
        int is = cp <= GW_CHAR_MAX && (bits >> utf8proc_category((utf8proc_int32_t)cp) & 1);
        if (is && !inside) {
            from = cp;
        } else if (!is && inside) {
            GW_TRY(gw_chars_add(set, from, cp - 1));
        }
        inside = is;
    }
    return GW_OK;
}
