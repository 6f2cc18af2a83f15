/* core/text/tokens/vocab_json_pipeline.c - normalizer and pre-tokenizer of a tokenizer.json as the
 * steps of gw_vocab. A step that none of them expresses is refused, never passed over. */
#include "core/text/tokens/vocab_json.h"

#include <string.h>

#include "core/text/tokens/base64.h"
#include "core/text/tokens/known.h"
#include "core/text/tokens/normalize.h"
#include "core/text/pattern.h"

enum { DEPTH_MAX = 8, STEPS_MAX = 256 };

gw_status gw_json_step_refused(const char *where, const char *what, const char *type) {
    return gw_fail(GW_E_UNSUPPORTED, where, "%s \"%.40s\" of tokenizer.json is not supported", what,
                   type);
}

static gw_status walk(const char *where, const json_t *step, const char *members, int depth,
                      gw_json_step_fn fn, void *context) {
    const char *type = "";
    json_t *list = NULL, *one;
    size_t i;
    if (!json_is_object(step)) {
        return gw_fail(GW_E_TYPE, where, "a step of tokenizer.json is not an object");
    }
    GW_TRY(gw_json_text(where, step, "type", &type));
    if (strcmp(type, "Sequence") != 0) {
        return fn(where, step, type, context);
    }
    if (depth == DEPTH_MAX) {
        return gw_fail(GW_E_LIMIT, where, "more than %d Sequences within another", (int)DEPTH_MAX);
    }
    GW_TRY(gw_json_array(where, step, members, &list));
    if (json_array_size(list) > STEPS_MAX) {
        return gw_fail(GW_E_LIMIT, where, "%zu %s", json_array_size(list), members);
    }
    json_array_foreach(list, i, one) { GW_TRY(walk(where, one, members, depth + 1, fn, context)); }
    return GW_OK;
}

gw_status gw_json_steps(const char *where, const json_t *root, const char *key, const char *members,
                        gw_json_step_fn fn, void *context) {
    json_t *object = NULL;
    GW_TRY(gw_json_object(where, root, key, &object));
    return object == NULL ? GW_OK : walk(where, object, members, 0, fn, context);
}

gw_status gw_json_pattern(const char *where, const json_t *step, const char **text, int *literal) {
    const json_t *pattern = json_object_get(step, "pattern");
    const char *plain =
        json_string_value(json_is_string(pattern) ? pattern : json_object_get(pattern, "String"));
    *literal = plain != NULL;
    *text = plain != NULL ? plain : json_string_value(json_object_get(pattern, "Regex"));
    return *text != NULL && **text != '\0'
               ? GW_OK
               : gw_fail(GW_E_METADATA, where, "a step of tokenizer.json has no pattern");
}

/* ---- normalizer -------------------------------------------------------------------------- */

static gw_status read_charsmap(const char *where, const json_t *step, gw_vocab *v) {
    const char *text = "";
    gw_bytes map = {0};
    GW_TRY(gw_json_text(where, step, "precompiled_charsmap", &text));
    gw_status status = gw_base64_read(text, strlen(text), &map)
                           ? GW_OK
                           : gw_fail(GW_E_METADATA, where, "precompiled_charsmap is no base64");
    if (status == GW_OK && map.n > 0) { /* empty: nothing changes */
        gw_vocab_step how = {.kind = GW_CHANGE_CHARSMAP, .text = map.data, .text_bytes = map.n};
        status = gw_vocab_add_step(v, &v->normal, &v->n_normal, &how);
    }
    free(map.data);
    return status;
}

static gw_status read_bert(const char *where, const json_t *step, gw_vocab *v) {
    int clean = 1, han = 1, lower = 1, accents = 0;
    GW_TRY(gw_json_bool(where, step, "clean_text", &clean));
    GW_TRY(gw_json_bool(where, step, "handle_chinese_chars", &han));
    GW_TRY(gw_json_bool(where, step, "lowercase", &lower));
    accents = lower;
    GW_TRY(gw_json_bool(where, step, "strip_accents", &accents));
    return gw_vocab_add_normal(v, GW_CHANGE_BERT,
                               (clean ? GW_CHANGE_CLEAN : 0u) | (han ? GW_CHANGE_HAN : 0u) |
                                   (lower ? GW_CHANGE_LOWER : 0u) |
                                   (accents ? GW_CHANGE_ACCENTS : 0u),
                               NULL, NULL);
}

static gw_status read_replace(const char *where, const json_t *step, gw_vocab *v) {
    const char *text = NULL, *to = "";
    int literal = 0;
    GW_TRY(gw_json_pattern(where, step, &text, &literal));
    GW_TRY(gw_json_text(where, step, "content", &to));
    return gw_vocab_add_normal(v, GW_CHANGE_REPLACE, literal ? 0 : GW_CHANGE_PATTERN, text, to);
}

static gw_status read_normal(const char *where, const json_t *step, const char *type,
                             void *context) {
    static const struct {
        const char *type;
        gw_change_kind kind;
    } PLAIN[] = {{"NFC", GW_CHANGE_NFC},
                 {"NFD", GW_CHANGE_NFD},
                 {"NFKC", GW_CHANGE_NFKC},
                 {"NFKD", GW_CHANGE_NFKD},
                 {"Lowercase", GW_CHANGE_LOWERCASE},
                 {"StripAccents", GW_CHANGE_STRIP_MARKS},
                 {"Nmt", GW_CHANGE_NMT},
                 {"ByteLevel", GW_CHANGE_LETTERS}};
    gw_vocab *v = context;
    const char *text = "";
    for (size_t i = 0; i < sizeof PLAIN / sizeof PLAIN[0]; i++) {
        if (strcmp(type, PLAIN[i].type) == 0) {
            return gw_vocab_add_normal(v, PLAIN[i].kind, 0, NULL, NULL);
        }
    }
    if (strcmp(type, "Strip") == 0) {
        int left = 1, right = 1;
        GW_TRY(gw_json_bool(where, step, "strip_left", &left));
        GW_TRY(gw_json_bool(where, step, "strip_right", &right));
        return gw_vocab_add_normal(v, GW_CHANGE_STRIP,
                                   (left ? GW_CHANGE_LEFT : 0u) | (right ? GW_CHANGE_RIGHT : 0u),
                                   NULL, NULL);
    }
    if (strcmp(type, "Prepend") == 0) {
        GW_TRY(gw_json_text(where, step, "prepend", &text));
        return gw_vocab_add_normal(v, GW_CHANGE_PREPEND, 0, text, NULL);
    }
    if (strcmp(type, "Replace") == 0) {
        return read_replace(where, step, v);
    }
    if (strcmp(type, "Precompiled") == 0) {
        return read_charsmap(where, step, v);
    }
    return strcmp(type, "BertNormalizer") == 0
               ? read_bert(where, step, v)
               : gw_json_step_refused(where, "the normalizer", type);
}

/* ---- pre-tokenizer ----------------------------------------------------------------------- */

typedef struct cutting { /* state of the walk over the pre-tokenizers */
    gw_vocab *v;
    size_t letters;    /* split + 1 that spells bytes as letters; 0: none yet */
    int after_letters; /* what follows it means something else over bytes     */
} cutting;

static gw_status add_cut(gw_vocab *v, const char *pattern, gw_split_rule rule, int literal,
                         int invert) {
    char *copy = gw_arena_copy(v->arena, pattern, strlen(pattern));
    return copy == NULL
               ? gw_fail(GW_E_NOMEM, NULL, "no memory for the pre-tokenizer")
               : gw_vocab_add_split(v, (gw_vocab_split){copy, rule, literal, invert, NULL});
}

static gw_status add_change(gw_vocab *v, gw_change_kind kind, unsigned flags, const char *text,
                            const char *to) {
    gw_vocab_step *change = NULL;
    size_t n = 0;
    gw_vocab_step step = {.kind = kind,
                          .flags = flags,
                          .text = text,
                          .to = to,
                          .text_bytes = text != NULL ? strlen(text) : 0,
                          .to_bytes = to != NULL ? strlen(to) : 0};
    GW_TRY(gw_vocab_add_step(v, &change, &n, &step));
    return gw_vocab_add_split(v, (gw_vocab_split){NULL, GW_SPLIT_ISOLATED, 0, 0, change});
}

static gw_status read_rule(const char *where, const json_t *step, gw_split_rule *rule) {
    static const char *const NAMES[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = NAMES[*rule];
    GW_TRY(gw_json_text(where, step, "behavior", &name));
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, NAMES[i]) == 0) {
            *rule = (gw_split_rule)i;
            return GW_OK;
        }
    }
    return gw_json_step_refused(where, "the split behavior", name);
}

/* Behind a ByteLevel, a pattern sees letters instead of bytes. Patterns over visible ASCII only,
 * without negation, mean the same on the plain text. */
static int survives_byte_level(const char *pattern) {
    for (const char *p = pattern; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~' || strchr("\\.^$|()", *p) != NULL) {
            return 0;
        }
    }
    return 1;
}

static gw_status read_split(const char *where, const json_t *step, cutting *c) {
    const char *text = NULL;
    gw_split_rule rule = GW_SPLIT_ISOLATED;
    int invert = 0, literal = 0;
    GW_TRY(read_rule(where, step, &rule));
    GW_TRY(gw_json_bool(where, step, "invert", &invert));
    GW_TRY(gw_json_pattern(where, step, &text, &literal));
    c->after_letters |= c->letters > 0 && (invert || !survives_byte_level(text));
    return add_cut(c->v, text, rule, literal, invert);
}

static gw_status read_byte_level(const char *where, const json_t *step, cutting *c) {
    int prefix = 1, regex = 1;
    GW_TRY(gw_json_bool(where, step, "add_prefix_space", &prefix));
    GW_TRY(gw_json_bool(where, step, "use_regex", &regex));
    c->after_letters |= c->letters > 0;
    GW_TRY(prefix ? add_change(c->v, GW_CHANGE_PREPEND, GW_CHANGE_IF_NONE, " ", NULL) : GW_OK);
    GW_TRY(regex ? add_cut(c->v, GW_PATTERN_GPT2, GW_SPLIT_ISOLATED, 0, 0) : GW_OK);
    GW_TRY(add_change(c->v, GW_CHANGE_LETTERS, 0, NULL, NULL));
    c->letters = c->v->n_splits;
    return GW_OK;
}

static gw_status read_metaspace(const char *where, const json_t *step, cutting *c) {
    int prefix = 1, split = 1;
    const char *mark = GW_SPACE_MARK;
    GW_TRY(gw_json_bool(where, step, "add_prefix_space", &prefix));
    GW_TRY(gw_json_bool(where, step, "split", &split));
    GW_TRY(gw_json_text(where, step, "replacement", &mark));
    const char *scheme = prefix ? "always" : "never";
    GW_TRY(gw_json_text(where, step, "prepend_scheme", &scheme));
    if (*mark == '\0') {
        return gw_fail(GW_E_METADATA, where, "a Metaspace of tokenizer.json has no replacement");
    }
    c->after_letters |= c->letters > 0;
    GW_TRY(add_change(c->v, GW_CHANGE_REPLACE, 0, " ", mark));
    if (strcmp(scheme, "never") != 0) {
        unsigned first = strcmp(scheme, "first") == 0 ? GW_CHANGE_FIRST : 0;
        GW_TRY(add_change(c->v, GW_CHANGE_PREPEND, GW_CHANGE_IF_NONE | first, mark, NULL));
    }
    return split ? add_cut(c->v, mark, GW_SPLIT_WITH_NEXT, 1, 0) : GW_OK;
}

static gw_status read_scripts(gw_vocab *v) {
    gw_bytes pattern = {0};
    gw_status status = gw_pattern_scripts(&pattern);
    status = status == GW_OK ? gw_bytes_add(&pattern, "", 1) : status;
    status = status == GW_OK ? add_cut(v, pattern.data, GW_SPLIT_REMOVED, 0, 1) : status;
    free(pattern.data);
    return status;
}

#define PUNCTUATION "[\\p{P}$+<=>^`|~]"

static gw_status read_cut(const char *where, const json_t *step, const char *type, void *context) {
    cutting *c = context;
    gw_split_rule rule = GW_SPLIT_ISOLATED;
    if (strcmp(type, "ByteLevel") == 0) {
        return read_byte_level(where, step, c);
    }
    if (strcmp(type, "Split") == 0) {
        return read_split(where, step, c);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return read_metaspace(where, step, c);
    }
    c->after_letters |= c->letters > 0;
    if (strcmp(type, "Digits") == 0) {
        int individual = 0;
        GW_TRY(gw_json_bool(where, step, "individual_digits", &individual));
        return add_cut(c->v, "\\p{N}", individual ? GW_SPLIT_ISOLATED : GW_SPLIT_CONTIGUOUS, 0, 0);
    }
    if (strcmp(type, "Punctuation") == 0) {
        GW_TRY(read_rule(where, step, &rule));
        return add_cut(c->v, PUNCTUATION, rule, 0, 0);
    }
    if (strcmp(type, "Whitespace") == 0) {
        return add_cut(c->v, GW_PATTERN_WORDS, GW_SPLIT_REMOVED, 0, 1);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        return add_cut(c->v, "\\s+", GW_SPLIT_REMOVED, 0, 0);
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {
        GW_TRY(add_cut(c->v, "\\s+", GW_SPLIT_REMOVED, 0, 0));
        return add_cut(c->v, PUNCTUATION, GW_SPLIT_ISOLATED, 0, 0);
    }
    if (strcmp(type, "UnicodeScripts") == 0) {
        return read_scripts(c->v);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        const char *delimiter = "";
        GW_TRY(gw_json_text(where, step, "delimiter", &delimiter));
        return *delimiter != '\0' ? add_cut(c->v, delimiter, GW_SPLIT_REMOVED, 1, 0)
                                  : gw_fail(GW_E_METADATA, where,
                                            "a CharDelimiterSplit of tokenizer.json has no "
                                            "delimiter");
    }
    return gw_json_step_refused(where, "the pre-tokenizer", type);
}

static int spells_letters(const gw_vocab *v) {
    for (size_t i = 0; i < v->n_normal; i++) {
        if (v->normal[i].kind == GW_CHANGE_LETTERS) {
            return 1;
        }
    }
    return 0;
}

/* Byte-level BPE works on the bytes themselves: the step that spells them is left out, which is
 * faster, unless what follows it would see the difference. */
static void leave_out_letters(const cutting *c, gw_vocab *v) {
    if (v->kind != GW_VOCAB_RANK_BPE || c->letters == 0 || c->after_letters || spells_letters(v)) {
        return;
    }
    size_t at = c->letters - 1;
    memmove(v->splits + at, v->splits + at + 1, (v->n_splits - at - 1) * sizeof *v->splits);
    v->n_splits--;
    v->kind = GW_VOCAB_BYTE_BPE;
}

gw_status gw_vocab_json_pipeline(const char *where, const json_t *root, gw_vocab *v) {
    cutting c = {.v = v};
    GW_TRY(gw_json_steps(where, root, "normalizer", "normalizers", read_normal, v));
    GW_TRY(gw_json_steps(where, root, "pre_tokenizer", "pretokenizers", read_cut, &c));
    leave_out_letters(&c, v);
    v->n_splits = gw_known_linear(v->splits, v->n_splits);
    GW_TRY(gw_vocab_json_decoder(where, root, v));
    return gw_vocab_json_frame(where, root, v);
}
