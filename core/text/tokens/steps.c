/* core/text/tokens/steps.c - see steps.h. What each does is what the Hugging Face tokenizers
 * library does under the same name. */
#include "core/text/tokens/steps.h"

#include <utf8proc.h>

#include "core/text/tokens/normalize.h"
#include "core/text/utf8.h"

gw_status gw_change_new(const char *where, const gw_vocab_step *how, gw_change *out) {
    memset(out, 0, sizeof *out);
    out->how = how;
    return how->kind != GW_CHANGE_REPLACE
               ? GW_OK
               : gw_regex_new(where, how->text, !(how->flags & GW_CHANGE_PATTERN), &out->regex);
}

void gw_change_free(gw_change *step) {
    gw_regex_free(step->regex);
    step->regex = NULL;
}

/* ---- characters -------------------------------------------------------------------------- */

static gw_status put_char(gw_bytes *out, uint32_t cp) {
    char text[4];
    return gw_bytes_add(out, text, gw_utf8_put(cp, text));
}

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

static gw_status put_lower(gw_bytes *out, uint32_t cp) {
    if (cp == 0x130) { /* the one character whose lower case is two */
        return gw_bytes_add(out, "i\xCC\x87", 3);
    }
    return put_char(out, cp < 0x80 ? cp + (cp >= 'A' && cp <= 'Z' ? 32 : 0)
                                   : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

static gw_status lowercase(const char *text, size_t n, gw_bytes *out) {
    GW_TRY(gw_bytes_reserve(out, n));
    for (size_t at = 0; at < n;) {
        uint32_t cp = 0;
        size_t length = gw_utf8_next(text + at, n - at, &cp);
        GW_TRY(put_lower(out, cp));
        at += length;
    }
    return GW_OK;
}

static int is_mark(uint32_t cp) {
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

/* Without its marks; only those that take no space (Mn) when `narrow`. */
static gw_status strip_marks(const char *text, size_t n, int narrow, gw_bytes *out) {
    GW_TRY(gw_bytes_reserve(out, n));
    for (size_t at = 0; at < n;) {
        uint32_t cp = 0;
        size_t length = gw_utf8_next(text + at, n - at, &cp);
        int drop = cp >= 0x300 && (narrow ? category(cp) == UTF8PROC_CATEGORY_MN : is_mark(cp));
        GW_TRY(drop ? GW_OK : gw_bytes_add(out, text + at, length));
        at += length;
    }
    return GW_OK;
}

static gw_status strip(const char *text, size_t n, unsigned flags, gw_bytes *out) {
    size_t begin = 0, end = n, length;
    uint32_t cp = 0;
    while (flags & GW_CHANGE_LEFT && begin < end &&
           (length = gw_utf8_next(text + begin, end - begin, &cp)) > 0 && gw_utf8_is_space(cp)) {
        begin += length;
    }
    while (flags & GW_CHANGE_RIGHT && end > begin) {
        size_t at = end - 1;
        while (at > begin && ((uint8_t)text[at] & 0xC0) == 0x80) {
            at--;
        }
        if (gw_utf8_next(text + at, end - at, &cp) == 0 || !gw_utf8_is_space(cp)) {
            break;
        }
        end = at;
    }
    return gw_bytes_add(out, text + begin, end - begin);
}

/* ---- Nmt, BertNormalizer ----------------------------------------------------------------- */

static gw_status nmt(const char *text, size_t n, gw_bytes *out) {
    for (size_t at = 0; at < n;) {
        uint32_t cp = 0;
        size_t length = gw_utf8_next(text + at, n - at, &cp);
        int control = (cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) ||
                      cp == 0x7F || cp == 0x8F || cp == 0x9F;
        int space = cp == 9 || cp == 10 || cp == 0xC || cp == 0xD || cp == 0x1680 ||
                    (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 ||
                    cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD;
        if (!control) {
            GW_TRY(space ? gw_bytes_add(out, " ", 1) : gw_bytes_add(out, text + at, length));
        }
        at += length;
    }
    return GW_OK;
}

static int is_han(uint32_t cp) {
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B73F) ||
           (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

/* Controls, formats, private use; what is not assigned stays. */
static int is_control(uint32_t cp) {
    if (cp == '\t' || cp == '\n' || cp == '\r' || (cp >= 0x20 && cp < 0x7F)) {
        return 0;
    }
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
        return 1;
    default:
        return 0;
    }
}

/* Controls, and spaces around Chinese characters. */
static gw_status bert_clean(const char *text, size_t n, unsigned flags, gw_bytes *out) {
    GW_TRY(gw_bytes_reserve(out, n));
    for (size_t at = 0; at < n;) {
        uint32_t cp = 0;
        size_t length = gw_utf8_next(text + at, n - at, &cp);
        const char *from = text + at;
        at += length;
        if (flags & GW_CHANGE_CLEAN) {
            if (cp == 0 || cp == 0xFFFD || is_control(cp)) {
                continue;
            }
            if (gw_utf8_is_space(cp)) {
                GW_TRY(gw_bytes_add(out, " ", 1));
                continue;
            }
        }
        size_t han = flags & GW_CHANGE_HAN && is_han(cp) ? 1 : 0;
        GW_TRY(gw_bytes_add(out, " ", han));
        GW_TRY(gw_bytes_add(out, from, length));
        GW_TRY(gw_bytes_add(out, " ", han));
    }
    return GW_OK;
}

static int is_ascii(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((uint8_t)text[i] >= 0x80) {
            return 0;
        }
    }
    return 1;
}

static gw_status bert(const char *text, size_t n, unsigned flags, gw_bytes *out) {
    gw_bytes clean = {0}, apart = {0}, bare = {0};
    gw_status status;
    GW_TRY_DONE(bert_clean(text, n, flags, &clean));
    const gw_bytes *now = &clean;
    if (flags & GW_CHANGE_ACCENTS && !is_ascii(clean.data, clean.n)) {
        GW_TRY_DONE(gw_normalize_unicode(clean.data, clean.n, 0, &apart));
        GW_TRY_DONE(strip_marks(apart.data, apart.n, 1, &bare));
        now = &bare;
    }
    GW_TRY_DONE(flags & GW_CHANGE_LOWER ? lowercase(now->data, now->n, out)
                                        : gw_bytes_add(out, now->data, now->n));
done:
    free(clean.data);
    free(apart.data);
    free(bare.data);
    return status;
}

/* ---- Precompiled ------------------------------------------------------------------------- */

/* What the map says of a chunk: the rule of the *shortest* beginning that has one replaces it
 * whole. So does the library, and so its ids come about. */
static int mapped(const gw_vocab_step *how, const char *chunk, size_t n, const char **to,
                  size_t *to_bytes) {
    return gw_charsmap_match((const uint8_t *)how->text, how->text_bytes, chunk, n, 1, to,
                             to_bytes) > 0;
}

static size_t cluster_end(const char *text, size_t n, size_t at) {
    utf8proc_int32_t state = 0;
    uint32_t before = 0, cp = 0;
    if (at + 1 < n && (uint8_t)text[at] < 0x80 && (uint8_t)text[at + 1] < 0x80) {
        return at + 1 + (text[at] == '\r' && text[at + 1] == '\n'); /* the only such cluster */
    }
    size_t end = at + gw_utf8_next(text + at, n - at, &before), length;
    while (
        end < n && (length = gw_utf8_next(text + end, n - end, &cp)) > 0 &&
        !utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)cp, &state)) {
        end += length;
        before = cp;
    }
    return end;
}

/* Clusters of less than 6 bytes as a whole, others by characters. */
static gw_status charsmap(const gw_vocab_step *how, const char *text, size_t n, gw_bytes *out) {
    enum { WHOLE = 6 };
    const char *to = "";
    size_t to_bytes = 0;
    for (size_t at = 0; at < n;) {
        size_t end = cluster_end(text, n, at);
        if (end - at < WHOLE && mapped(how, text + at, end - at, &to, &to_bytes)) {
            GW_TRY(gw_bytes_add(out, to, to_bytes));
            at = end;
        }
        while (at < end) {
            size_t length = gw_utf8_next(text + at, end - at, NULL);
            int has = mapped(how, text + at, length, &to, &to_bytes);
            GW_TRY(gw_bytes_add(out, has ? to : text + at, has ? to_bytes : length));
            at += length;
        }
    }
    return GW_OK;
}

/* ---- the rest ---------------------------------------------------------------------------- */

static gw_status prepend(const gw_vocab_step *how, const char *text, size_t n, int place,
                         gw_bytes *out) {
    int there = n >= how->text_bytes && memcmp(text, how->text, how->text_bytes) == 0;
    int skip = n == 0 || place & GW_PLACE_JOINED || (how->flags & GW_CHANGE_IF_NONE && there) ||
               (how->flags & GW_CHANGE_FIRST && !(place & GW_PLACE_FIRST)) ||
               (how->flags & GW_CHANGE_LINES && n > 0 && text[0] == '\n');
    GW_TRY(skip ? GW_OK : gw_bytes_add(out, how->text, how->text_bytes));
    return gw_bytes_add(out, text, n);
}

static gw_status replace(const gw_change *step, gw_regex_work *work, const char *text, size_t n,
                         gw_bytes *out) {
    const gw_vocab_step *how = step->how;
    size_t at = 0, start = 0, end = 0;
    int found = 1;
    GW_TRY(gw_bytes_reserve(out, n));
    while (at < n) {
        GW_TRY(gw_regex_find(step->regex, work, text, n, at, &found, &start, &end));
        if (!found) {
            break;
        }
        start = start < at ? at : start;
        GW_TRY(gw_bytes_add(out, text + at, start - at));
        if (end <= start) { /* an empty match: on by a character */
            size_t length = gw_utf8_next(text + start, n - start, NULL);
            GW_TRY(gw_bytes_add(out, how->to, how->to_bytes));
            GW_TRY(gw_bytes_add(out, text + start, length));
            at = start + length;
            if (length == 0) {
                return GW_OK;
            }
            continue;
        }
        GW_TRY(gw_bytes_add(out, how->to, how->to_bytes));
        at = end;
    }
    return gw_bytes_add(out, text + at, n - at);
}

static gw_status letters(const char *text, size_t n, gw_bytes *out) {
    GW_TRY(gw_bytes_reserve(out, 2 * n));
    for (size_t i = 0; i < n; i++) {
        out->n += gw_utf8_put(gw_byte_letter((uint8_t)text[i]), out->data + out->n);
    }
    return GW_OK;
}

gw_status gw_change_run(const gw_change *step, gw_regex_work *work, const char *text, size_t n,
                        int place, gw_bytes *out) {
    const gw_vocab_step *how = step->how;
    switch (how->kind) {
    case GW_CHANGE_NFC:
        return gw_normalize_unicode(text, n, GW_FORM_COMPOSED, out);
    case GW_CHANGE_NFD:
        return gw_normalize_unicode(text, n, 0, out);
    case GW_CHANGE_NFKC:
        return gw_normalize_unicode(text, n, GW_FORM_COMPOSED | GW_FORM_COMPATIBLE, out);
    case GW_CHANGE_NFKD:
        return gw_normalize_unicode(text, n, GW_FORM_COMPATIBLE, out);
    case GW_CHANGE_LOWERCASE:
        return lowercase(text, n, out);
    case GW_CHANGE_STRIP_MARKS:
        return strip_marks(text, n, 0, out);
    case GW_CHANGE_STRIP:
        return strip(text, n, how->flags, out);
    case GW_CHANGE_PREPEND:
        return prepend(how, text, n, place, out);
    case GW_CHANGE_REPLACE:
        return replace(step, work, text, n, out);
    case GW_CHANGE_NMT:
        return nmt(text, n, out);
    case GW_CHANGE_BERT:
        return bert(text, n, how->flags, out);
    case GW_CHANGE_CHARSMAP:
        return charsmap(how, text, n, out);
    case GW_CHANGE_LETTERS:
        return letters(text, n, out);
    default:
        return gw_fail(GW_E_ARGUMENT, NULL, "step %d changes no text", (int)how->kind);
    }
}
