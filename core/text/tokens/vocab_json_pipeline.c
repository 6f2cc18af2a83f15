/* core/text/tokens/vocab_json_pipeline.c - the steps around the model of a tokenizer.json, reduced
 * to the switches of gw_vocab. A step that none of them expresses is refused, never passed over. */
#include "core/text/tokens/vocab_json.h"

#include <string.h>

#include "core/text/tokens/known.h"
#include "core/text/tokens/normalize.h"

static gw_status unsupported(const char *where, const char *what, const char *type) {
    return gw_fail(GW_E_UNSUPPORTED, where, "%s \"%.40s\" of tokenizer.json is not supported", what,
                   type);
}

/* The steps of root[key]: the members of its Sequence, or itself alone. */
typedef struct steps {
    const json_t *single, *list;
    size_t n;
} steps;

static gw_status open_steps(const char *where, const json_t *root, const char *key,
                            const char *members, steps *out) {
    json_t *object = NULL, *list = NULL;
    const char *type = "";
    memset(out, 0, sizeof *out);
    GW_TRY(gw_json_object(where, root, key, &object));
    if (object == NULL) {
        return GW_OK;
    }
    GW_TRY(gw_json_text(where, object, "type", &type));
    out->single = object;
    out->n = 1;
    if (strcmp(type, "Sequence") == 0) {
        GW_TRY(gw_json_array(where, object, members, &list));
        out->list = list;
        out->n = json_array_size(list);
    }
    return GW_OK;
}

static gw_status step_at(const char *where, const steps *s, size_t i, const json_t **step,
                         const char **type) {
    *step = s->list != NULL ? json_array_get(s->list, i) : s->single;
    *type = "";
    if (!json_is_object(*step)) {
        return gw_fail(GW_E_TYPE, where, "a step of tokenizer.json is not an object");
    }
    return gw_json_text(where, *step, "type", type);
}

/* The String pattern of a step, NULL when it is none. */
static const char *literal_of(const json_t *step) {
    const json_t *pattern = json_object_get(step, "pattern");
    return json_string_value(json_object_get(pattern, "String"));
}

static int is_text(const char *text, const char *want) {
    return text != NULL && strcmp(text, want) == 0;
}

/* ---- normalizer -------------------------------------------------------------------------- */

static gw_status read_normalizer(const char *where, const json_t *root, gw_vocab *v) {
    steps s;
    GW_TRY(open_steps(where, root, "normalizer", "normalizers", &s));
    for (size_t i = 0; i < s.n; i++) {
        const json_t *step;
        const char *type, *text = NULL;
        GW_TRY(step_at(where, &s, i, &step, &type));
        if (strcmp(type, "NFC") == 0) {
            v->nfc = 1;
        } else if (strcmp(type, "NFKC") == 0) {
            v->nfkc = 1;
        } else if (strcmp(type, "Prepend") == 0) {
            GW_TRY(gw_json_text(where, step, "prepend", &text));
            if (!is_text(text, GW_SPACE_MARK)) {
                return unsupported(where, "another prefix than U+2581 of the normalizer", type);
            }
            v->add_space_prefix = 1;
        } else if (strcmp(type, "Replace") == 0) {
            GW_TRY(gw_json_text(where, step, "content", &text));
            if (!is_text(text, GW_SPACE_MARK) || !is_text(literal_of(step), " ")) {
                return unsupported(where, "another replacement than of spaces by the normalizer",
                                   type);
            }
            v->escape_spaces = 1;
        } else {
            return unsupported(where, "the normalizer", type);
        }
    }
    return GW_OK;
}

/* ---- pre-tokenizer ----------------------------------------------------------------------- */

typedef struct cutting { /* state of the walk over the pre-tokenizers */
    int byte_level;      /* a ByteLevel was seen: text is in the byte alphabet from here on */
    size_t done;         /* steps before this one */
} cutting;

static void add_split(gw_vocab *v, const char *pattern, gw_split_rule rule, int literal,
                      int invert) {
    gw_vocab_split split = {pattern, rule, literal, invert};
    v->splits[v->n_splits++] = split;
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
    return unsupported(where, "the split behavior", name);
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

static gw_status read_split(const char *where, const json_t *step, const cutting *c, gw_vocab *v) {
    const json_t *pattern = json_object_get(step, "pattern");
    const char *literal = literal_of(step),
               *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *text = literal != NULL ? literal : regex;
    gw_split_rule rule = GW_SPLIT_ISOLATED;
    int invert = 0;
    GW_TRY(read_rule(where, step, &rule));
    GW_TRY(gw_json_bool(where, step, "invert", &invert));
    if (text == NULL || *text == '\0') {
        return gw_fail(GW_E_METADATA, where, "a Split of the pre-tokenizer has no pattern");
    }
    if (c->byte_level && (invert || !survives_byte_level(text))) {
        return unsupported(where, "behind ByteLevel, the split", text);
    }
    char *copy = gw_arena_copy(v->arena, text, strlen(text));
    if (copy == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for the pre-tokenizer");
    }
    add_split(v, copy, rule, literal != NULL, invert);
    return GW_OK;
}

static gw_status read_byte_level(const char *where, const json_t *step, cutting *c, gw_vocab *v) {
    int prefix = 1, regex = 1;
    GW_TRY(gw_json_bool(where, step, "add_prefix_space", &prefix));
    GW_TRY(gw_json_bool(where, step, "use_regex", &regex));
    if (c->byte_level || (prefix && c->done > 0)) {
        return unsupported(where, "behind other steps, the pre-tokenizer", "ByteLevel");
    }
    c->byte_level = 1;
    v->kind = GW_VOCAB_BYTE_BPE;
    if (prefix) {
        v->add_space_prefix = v->space_if_none = 1;
    }
    if (regex) {
        add_split(v, GW_PATTERN_GPT2, GW_SPLIT_ISOLATED, 0, 0);
    }
    return GW_OK;
}

static gw_status read_metaspace(const char *where, const json_t *step, const cutting *c,
                                gw_vocab *v) {
    int prefix = 1, split = 1;
    const char *mark = GW_SPACE_MARK;
    GW_TRY(gw_json_bool(where, step, "add_prefix_space", &prefix));
    GW_TRY(gw_json_bool(where, step, "split", &split));
    GW_TRY(gw_json_text(where, step, "replacement", &mark));
    const char *scheme = prefix ? "always" : "never";
    GW_TRY(gw_json_text(where, step, "prepend_scheme", &scheme));
    if (c->done > 0 || strcmp(mark, GW_SPACE_MARK) != 0) {
        return unsupported(where, "behind other steps or with another mark, the pre-tokenizer",
                           "Metaspace");
    }
    v->escape_spaces = 1;
    if (strcmp(scheme, "never") != 0) {
        v->add_space_prefix = v->space_if_none = 1;
        v->space_first_only = strcmp(scheme, "first") == 0;
    }
    if (split) {
        add_split(v, GW_SPACE_MARK, GW_SPLIT_WITH_NEXT, 1, 0);
    }
    return GW_OK;
}

static gw_status read_cut(const char *where, const json_t *step, const char *type, cutting *c,
                          gw_vocab *v) {
    if (strcmp(type, "ByteLevel") == 0) {
        return read_byte_level(where, step, c, v);
    }
    if (strcmp(type, "Split") == 0) {
        return read_split(where, step, c, v);
    }
    if (c->byte_level) {
        return unsupported(where, "behind ByteLevel, the pre-tokenizer", type);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return read_metaspace(where, step, c, v);
    }
    if (strcmp(type, "Digits") == 0) {
        int individual = 0;
        GW_TRY(gw_json_bool(where, step, "individual_digits", &individual));
        add_split(v, "\\p{N}", individual ? GW_SPLIT_ISOLATED : GW_SPLIT_CONTIGUOUS, 0, 0);
        return GW_OK;
    }
    if (strcmp(type, "Punctuation") == 0) {
        gw_split_rule rule = GW_SPLIT_ISOLATED;
        GW_TRY(read_rule(where, step, &rule));
        add_split(v, "[\\p{P}$+<=>^`|~]", rule, 0, 0);
        return GW_OK;
    }
    if (strcmp(type, "Whitespace") == 0) {
        add_split(v, GW_PATTERN_WORDS, GW_SPLIT_REMOVED, 0, 1);
        return GW_OK;
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        add_split(v, "\\s", GW_SPLIT_REMOVED, 0, 0);
        return GW_OK;
    }
    return unsupported(where, "the pre-tokenizer", type);
}

static gw_status read_pre_tokenizer(const char *where, const json_t *root, gw_vocab *v) {
    enum { CUTS_MAX = 64 };
    steps s;
    cutting c = {0, 0};
    GW_TRY(open_steps(where, root, "pre_tokenizer", "pretokenizers", &s));
    if (s.n > CUTS_MAX) {
        return gw_fail(GW_E_LIMIT, where, "%zu pre-tokenizers", s.n);
    }
    v->kind = GW_VOCAB_RANK_BPE;
    v->splits = gw_arena_array(v->arena, s.n + 1, sizeof *v->splits);
    if (v->splits == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory for the pre-tokenizer");
    }
    for (; c.done < s.n; c.done++) {
        const json_t *step;
        const char *type;
        GW_TRY(step_at(where, &s, c.done, &step, &type));
        GW_TRY(read_cut(where, step, type, &c, v));
    }
    if (v->kind == GW_VOCAB_BYTE_BPE && v->escape_spaces) {
        return unsupported(where, "with ByteLevel, replacing spaces", "Replace");
    }
    return GW_OK;
}

/* ---- decoder ----------------------------------------------------------------------------- */

static gw_status read_decoder(const char *where, const json_t *root, gw_vocab *v) {
    steps s;
    GW_TRY(open_steps(where, root, "decoder", "decoders", &s));
    for (size_t i = 0; i < s.n; i++) {
        const json_t *step;
        const char *type;
        GW_TRY(step_at(where, &s, i, &step, &type));
        if (strcmp(type, "Strip") == 0) {
            int64_t start = 0, stop = 0;
            GW_TRY(gw_json_int(where, step, "start", &start));
            GW_TRY(gw_json_int(where, step, "stop", &stop));
            if (start < 0 || start > 1 || stop != 0) {
                return unsupported(where, "with these counts, the decoder", type);
            }
            v->strip_start = (int)start;
        } else if (strcmp(type, "Metaspace") == 0) {
            const char *scheme = "always";
            GW_TRY(gw_json_text(where, step, "prepend_scheme", &scheme));
            v->strip_start = strcmp(scheme, "never") != 0 ? 2 : 0;
        } else if (strcmp(type, "ByteLevel") != 0 && strcmp(type, "ByteFallback") != 0 &&
                   strcmp(type, "Fuse") != 0 && strcmp(type, "Replace") != 0) {
            return unsupported(where, "the decoder", type);
        }
    }
    return GW_OK;
}

/* ---- post-processor ---------------------------------------------------------------------- */

static gw_status template_id(const char *where, const json_t *step, const char *name, int32_t *id) {
    const json_t *token = json_object_get(json_object_get(step, "special_tokens"), name);
    const json_t *ids = json_object_get(token, "ids");
    const json_t *one = json_array_get(ids, 0);
    if (json_array_size(ids) != 1 || !json_is_integer(one) || json_integer_value(one) < 0 ||
        json_integer_value(one) > INT32_MAX) {
        return gw_fail(GW_E_METADATA, where, "the template token \"%.40s\" has no single id", name);
    }
    *id = (int32_t)json_integer_value(one);
    return GW_OK;
}

static gw_status read_template(const char *where, const json_t *step, gw_vocab *v) {
    json_t *single = NULL, *one;
    size_t i;
    int before = 1;
    GW_TRY(gw_json_array(where, step, "single", &single));
    json_array_foreach(single, i, one) {
        const json_t *special = json_object_get(one, "SpecialToken");
        const char *name = json_string_value(json_object_get(special, "id"));
        if (name == NULL) {
            before = 0;
            continue;
        }
        int *add = before ? &v->add_bos : &v->add_eos;
        if (*add) {
            return unsupported(where, "with two tokens on one side, the template around", name);
        }
        *add = 1;
        GW_TRY(template_id(where, step, name, before ? &v->bos : &v->eos));
    }
    return GW_OK;
}

/* RobertaProcessing, BertProcessing: "cls" and "sep" are [text, id]. */
static gw_status read_cls_sep(const char *where, const json_t *step, gw_vocab *v) {
    const json_t *cls = json_array_get(json_object_get(step, "cls"), 1);
    const json_t *sep = json_array_get(json_object_get(step, "sep"), 1);
    if (!json_is_integer(cls) || !json_is_integer(sep) || json_integer_value(cls) < 0 ||
        json_integer_value(sep) < 0 || json_integer_value(cls) > INT32_MAX ||
        json_integer_value(sep) > INT32_MAX) {
        return gw_fail(GW_E_METADATA, where, "the post-processor has no ids for cls and sep");
    }
    v->bos = (int32_t)json_integer_value(cls);
    v->eos = (int32_t)json_integer_value(sep);
    v->add_bos = v->add_eos = 1;
    return GW_OK;
}

static gw_status read_post_processor(const char *where, const json_t *root, gw_vocab *v) {
    steps s;
    GW_TRY(open_steps(where, root, "post_processor", "processors", &s));
    for (size_t i = 0; i < s.n; i++) {
        const json_t *step;
        const char *type;
        GW_TRY(step_at(where, &s, i, &step, &type));
        if (strcmp(type, "TemplateProcessing") == 0) {
            GW_TRY(read_template(where, step, v));
        } else if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
            GW_TRY(read_cls_sep(where, step, v));
        } else if (strcmp(type, "ByteLevel") != 0) {
            return unsupported(where, "the post-processor", type);
        }
    }
    return GW_OK;
}

gw_status gw_vocab_json_pipeline(const char *where, const json_t *root, gw_vocab *v) {
    GW_TRY(read_normalizer(where, root, v));
    GW_TRY(read_pre_tokenizer(where, root, v));
    GW_TRY(read_decoder(where, root, v));
    return read_post_processor(where, root, v);
}
