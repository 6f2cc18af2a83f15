/* core/text/tokens/normalize.c - see normalize.h. */
#include "core/text/tokens/normalize.h"

#include <utf8proc.h>

#include "core/base/reader.h"
#include "core/text/utf8.h"

/* ---- Unicode forms ----------------------------------------------------------------------- */

typedef struct codes {
    utf8proc_int32_t *data;
    size_t n, capacity;
} codes;

static gw_status codes_reserve(codes *c, size_t more) {
    void *data = c->data;
    gw_status status = gw_array_reserve(&data, &c->capacity, c->n + more, sizeof *c->data);
    c->data = data;
    return status;
}

static gw_status decompose(const char *text, size_t n, int compat, codes *out) {
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (compat) {
        options |= UTF8PROC_COMPAT;
    }
    enum { ONE_MAX = 32 }; /* the longest decomposition has 18 characters */
    size_t length;
    for (size_t at = 0; at < n; at += length) {
        uint32_t cp = 0;
        length = gw_utf8_next(text + at, n - at, &cp);
        if (length == 0) {
            return gw_fail(GW_E_ENCODING, NULL, "a text to normalise is not UTF-8");
        }
        int boundary = 0;
        GW_TRY(codes_reserve(out, ONE_MAX));
        utf8proc_ssize_t got = utf8proc_decompose_char((utf8proc_int32_t)cp, out->data + out->n,
                                                       ONE_MAX, options, &boundary);
        if (got < 0 || got > ONE_MAX) {
            return gw_fail(GW_E_ENCODING, NULL, "U+%04X cannot be normalised", (unsigned)cp);
        }
        out->n += (size_t)got;
    }
    return GW_OK;
}

static unsigned combining(utf8proc_int32_t cp) {
    return cp < 0x300 ? 0 : (unsigned)utf8proc_get_property(cp)->combining_class & 255;
}

/* Put a run of combining marks in the order of their classes, keeping equal ones in place:
 * a counting sort, so that a megabyte of marks is no attack. scratch holds n codes. */
static void order_run(utf8proc_int32_t *run, size_t n, utf8proc_int32_t *scratch) {
    size_t place[257] = {0};
    for (size_t i = 0; i < n; i++) {
        place[combining(run[i]) + 1]++;
    }
    for (size_t i = 1; i < 257; i++) {
        place[i] += place[i - 1];
    }
    for (size_t i = 0; i < n; i++) {
        scratch[place[combining(run[i])]++] = run[i];
    }
    memcpy(run, scratch, n * sizeof *run);
}

static gw_status order_marks(codes *c) {
    utf8proc_int32_t *scratch = NULL;
    for (size_t at = 0; at < c->n;) {
        size_t end = at;
        while (end < c->n && combining(c->data[end]) != 0) {
            end++;
        }
        if (end - at > 1) {
            if (scratch == NULL && (scratch = malloc(c->n * sizeof *scratch)) == NULL) {
                return gw_fail(GW_E_NOMEM, NULL, "no memory to normalise a text");
            }
            order_run(c->data + at, end - at, scratch);
        }
        at = end + 1;
    }
    free(scratch);
    return GW_OK;
}

static gw_status normalize_part(const char *text, size_t n, int form, codes *c, gw_bytes *out) {
    c->n = 0;
    GW_TRY(decompose(text, n, form & GW_FORM_COMPATIBLE, c));
    GW_TRY(order_marks(c));
    utf8proc_ssize_t left = (utf8proc_ssize_t)c->n;
    if (form & GW_FORM_COMPOSED) {
        left = utf8proc_normalize_utf32(c->data, left, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        GW_TRY(left < 0 ? gw_fail(GW_E_ENCODING, NULL, "a text cannot be normalised") : GW_OK);
    }
    GW_TRY(gw_bytes_reserve(out, 4 * (size_t)left));
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        out->n += gw_utf8_put((uint32_t)c->data[i], out->data + out->n);
    }
    return GW_OK;
}

/* Letters that stay as they are unless a mark follows, and join with nothing before them. */
static size_t inert_span(const char *text, size_t n, int form) {
    unsigned limit = form == GW_FORM_COMPOSED ? 0xCC : 0x80; /* NFC: up to U+02FF */
    size_t at = 0;
    while (at < n && (uint8_t)text[at] < limit) {
        at++;
    }
    return at;
}

gw_status gw_normalize_unicode(const char *text, size_t n, int form, gw_bytes *out) {
    codes c = {0};
    gw_status status = GW_OK;
    for (size_t at = 0; at < n && status == GW_OK;) {
        size_t plain = inert_span(text + at, n - at, form), end = at + plain;
        if (end < n && plain > 0) { /* the last of them may take the marks that follow */
            do {
                end--;
            } while (((uint8_t)text[end] & 0xC0) == 0x80);
        }
        status = gw_bytes_add(out, text + at, end - at);
        at = end;
        if (status != GW_OK || at == n) {
            break;
        }
        do {
            size_t length = gw_utf8_next(text + end, n - end, NULL);
            end += length > 0 ? length : 1;
        } while (end < n && inert_span(text + end, n - end, form) == 0);
        status = normalize_part(text + at, end - at, form, &c, out);
        at = end;
    }
    free(c.data);
    return status;
}

/* ---- the charsmap of SentencePiece ------------------------------------------------------- *
 * u32 bytes of the array; the array: u32 units of a double-array trie (Aoe 1989) with bit 8 "a
 * value hangs here", bits 0..7 and 31 the label, bits 10.. the offset, shifted by 8 when bit 9 is
 * set; then the replacements, each ending in NUL. A value is an offset among the replacements. */

enum { RULE_MAX = 1000 }; /* bytes of one rule, on either side */

static uint32_t unit_at(const uint8_t *array, size_t i) {
    return (uint32_t)gw_load_le(array + 4 * i, 4);
}

static uint32_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

int gw_charsmap_valid(const uint8_t *map, size_t bytes) {
    if (bytes < 8) {
        return 0;
    }
    uint64_t array = gw_load_le(map, 4);
    if (array < 4 || array % 4 != 0 || array >= bytes - 4 || map[bytes - 1] != 0) {
        return 0;
    }
    for (size_t at = 4 + (size_t)array; at < bytes;) { /* no replacement may blow up a text */
        size_t length = strlen((const char *)map + at);
        if (length > RULE_MAX) {
            return 0;
        }
        at += length + 1;
    }
    return 1;
}

size_t gw_charsmap_match(const uint8_t *map, size_t bytes, const char *text, size_t n, int shortest,
                         const char **replacement, size_t *replacement_bytes) {
    size_t array_bytes = (size_t)gw_load_le(map, 4), units = array_bytes / 4;
    const uint8_t *array = map + 4;
    const char *texts = (const char *)map + 4 + array_bytes;
    size_t texts_bytes = bytes - 4 - array_bytes, best = 0;
    uint32_t at = unit_offset(unit_at(array, 0));
    for (size_t i = 0; i < n && i < RULE_MAX; i++) {
        uint8_t byte = (uint8_t)text[i];
        at ^= byte;
        if (at >= units) {
            break;
        }
        uint32_t unit = unit_at(array, at);
        if ((unit & 0x800000FFu) != byte) {
            break;
        }
        at ^= unit_offset(unit);
        if (unit >> 8 & 1 && at < units) {
            uint32_t value = unit_at(array, at) & 0x7FFFFFFFu;
            if (value < texts_bytes) {
                best = i + 1;
                *replacement = texts + value;
                *replacement_bytes = strlen(*replacement); /* the last byte of the map is NUL */
                if (shortest) {
                    break;
                }
            }
        }
    }
    return best;
}

/* ---- SentencePiece ----------------------------------------------------------------------- */

/* What the next characters become: returns how many bytes are read, *to what is written. */
static size_t next_normal(const gw_vocab *vocab, const gw_trie *user, const char *text, size_t n,
                          int keep_bytes, const char **to, size_t *to_bytes) {
    int32_t id;
    size_t length = gw_trie_match(user, text, n, 0, &id);
    if (length == 0 && vocab->charsmap != NULL) {
        length =
            gw_charsmap_match(vocab->charsmap, vocab->charsmap_bytes, text, n, 0, to, to_bytes);
        if (length > 0) {
            return length;
        }
    }
    if (length == 0) {
        length = gw_utf8_next(text, n, NULL);
    }
    *to = text;
    *to_bytes = length;
    if (length == 0) {
        *to = keep_bytes ? text : "\xEF\xBF\xBD";
        *to_bytes = keep_bytes ? 1 : 3;
        length = 1;
    }
    return length;
}

static gw_status add_escaped(gw_bytes *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        GW_TRY(text[i] == ' ' ? gw_bytes_add(out, GW_SPACE_MARK, 3)
                              : gw_bytes_add(out, text + i, 1));
    }
    return GW_OK;
}

gw_status gw_normalize_sentencepiece(const gw_vocab *vocab, const gw_trie *user, const char *text,
                                     size_t n, int keep_bytes, gw_bytes *out) {
    int trim = vocab->remove_extra_spaces, after_space = trim;
    size_t at = 0, begin = out->n, to_bytes = 0;
    const char *to = text;
    while (trim && at < n) { /* spaces in front; nothing else means no text at all */
        size_t length = next_normal(vocab, user, text + at, n - at, keep_bytes, &to, &to_bytes);
        if (to_bytes != 1 || *to != ' ') {
            break;
        }
        at += length;
    }
    if (at == n) {
        return GW_OK;
    }
    if (vocab->add_space_prefix) {
        GW_TRY(gw_bytes_add(out, GW_SPACE_MARK, 3));
    }
    while (at < n) {
        at += next_normal(vocab, user, text + at, n - at, keep_bytes, &to, &to_bytes);
        while (after_space && to_bytes > 0 && *to == ' ') {
            to++;
            to_bytes--;
        }
        if (to_bytes > 0) {
            GW_TRY(add_escaped(out, to, to_bytes));
            after_space = trim && to[to_bytes - 1] == ' ';
        }
    }
    while (trim && out->n - begin >= 3 && memcmp(out->data + out->n - 3, GW_SPACE_MARK, 3) == 0) {
        out->n -= 3;
    }
    return GW_OK;
}
