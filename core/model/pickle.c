/* core/model/pickle.c - see pickle.h. A stack machine over notes: a value says what was made, never
 * makes it. Instructions are those of protocol 2 (Python's pickletools lists them). */
#include "core/model/pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/reader.h"
#include "core/base/text.h"

enum { STREAM_MAX = 64 << 20, VALUES_MAX = 4 << 20 };

typedef enum kind { OTHER, MARK, INT, TEXT, TUPLE, LIST, DICT, GLOBAL, STORAGE, TENSOR } kind;

typedef struct value {
    uint8_t kind;
    uint32_t n;     /* TEXT: bytes; TUPLE: members; GLOBAL: its row; STORAGE: row of its class;
                       TENSOR: 1 when it says its type */
    int64_t number; /* INT; TEXT: place in the stream; TUPLE, STORAGE, TENSOR: first member */
} value;

/* Values of which one copy serves all uses. Members of lists are not kept: no tensor needs them. */
enum { THE_OTHER, THE_MARK, THE_EMPTY, THE_LIST, THE_FALSE, N_FIXED };

typedef struct pair {
    uint32_t dict, key, value;
} pair;

typedef struct machine {
    const char *where;
    gw_reader code;
    value *values;
    uint32_t *stack, *members, *memo; /* of values; in the memo 0 is an empty slot */
    pair *pairs;                      /* of all dicts, as they were set */
    size_t n_values, n_stack, n_members, n_memo, n_pairs;
    size_t values_room, stack_room, members_room, memo_room, pairs_room;
    uint32_t *listed; /* what lists hold, in order; only where a list is looked for */
    size_t n_listed, listed_room;
    int lists, more; /* listed is wanted; something may follow the end */
    int stopped;
} machine;

/* ---- names ------------------------------------------------------------------------------- */

typedef enum meaning {
    MAKES_DICT,
    MAKES_TENSOR,
    MAKES_TYPED, /* a tensor that says its type besides: its storage is of bytes */
    MAKES_PARAMETER,
    MAKES_OTHER,
    IS_STORAGE
} meaning;

static const struct {
    const char *module, *name;
    meaning means;
    const char *dtype;
} GLOBALS[] = {
    {"collections", "OrderedDict", MAKES_DICT, NULL},
    {"torch._utils", "_rebuild_tensor_v2", MAKES_TENSOR, NULL},
    {"torch._utils", "_rebuild_tensor_v3", MAKES_TYPED, NULL},
    {"torch._utils", "_rebuild_tensor", MAKES_TENSOR, NULL},
    {"torch._utils", "_rebuild_parameter", MAKES_PARAMETER, NULL},
    {"torch", "Size", MAKES_OTHER, NULL},
    {"torch", "device", MAKES_OTHER, NULL},
    {"torch", "float32", MAKES_OTHER, "F32"},
    {"torch", "float16", MAKES_OTHER, "F16"},
    {"torch", "bfloat16", MAKES_OTHER, "BF16"},
    {"torch", "float64", MAKES_OTHER, "F64"},
    {"torch", "float8_e4m3fn", MAKES_OTHER, "F8_E4M3"},
    {"torch", "float8_e5m2", MAKES_OTHER, "F8_E5M2"},
    {"torch", "int64", MAKES_OTHER, "I64"},
    {"torch", "int32", MAKES_OTHER, "I32"},
    {"torch", "int16", MAKES_OTHER, "I16"},
    {"torch", "int8", MAKES_OTHER, "I8"},
    {"torch", "uint8", MAKES_OTHER, "U8"},
    {"torch", "uint16", MAKES_OTHER, "U16"},
    {"torch", "uint32", MAKES_OTHER, "U32"},
    {"torch", "uint64", MAKES_OTHER, "U64"},
    {"torch", "bool", MAKES_OTHER, "BOOL"},
    {"torch.storage", "UntypedStorage", IS_STORAGE, "U8"},
    {"torch", "FloatStorage", IS_STORAGE, "F32"},
    {"torch", "HalfStorage", IS_STORAGE, "F16"},
    {"torch", "BFloat16Storage", IS_STORAGE, "BF16"},
    {"torch", "DoubleStorage", IS_STORAGE, "F64"},
    {"torch", "LongStorage", IS_STORAGE, "I64"},
    {"torch", "IntStorage", IS_STORAGE, "I32"},
    {"torch", "ShortStorage", IS_STORAGE, "I16"},
    {"torch", "CharStorage", IS_STORAGE, "I8"},
    {"torch", "ByteStorage", IS_STORAGE, "U8"},
    {"torch", "BoolStorage", IS_STORAGE, "BOOL"},
};
enum { N_GLOBALS = sizeof GLOBALS / sizeof GLOBALS[0] };

/* ---- the machine ------------------------------------------------------------------------- */

static gw_status nomem(const machine *m) {
    return gw_fail(GW_E_NOMEM, m->where, "no memory for the list of tensors");
}

static gw_status wrong(const machine *m, const char *what) {
    return gw_fail(GW_E_SYNTAX, m->where, "%s before byte %" PRIu64 " of the pickle", what,
                   m->code.at);
}

static gw_status take(machine *m, uint64_t n, const uint8_t **out) {
    *out = gw_reader_take(&m->code, n);
    return *out != NULL
               ? GW_OK
               : gw_fail(GW_E_TRUNCATED, m->where,
                         "the pickle ends inside its instruction before byte %" PRIu64, m->code.at);
}

static gw_status push(machine *m, uint32_t i) {
    uint32_t *stack = gw_list_grown(m->stack, m->n_stack, &m->stack_room, sizeof *stack);
    if (stack == NULL) {
        return nomem(m);
    }
    m->stack = stack;
    m->stack[m->n_stack++] = i;
    return GW_OK;
}

static gw_status push_new(machine *m, kind k, uint32_t n, int64_t number) {
    if (m->n_values >= VALUES_MAX) {
        return gw_fail(GW_E_LIMIT, m->where, "the pickle makes more than %d values",
                       (int)VALUES_MAX);
    }
    value *values = gw_list_grown(m->values, m->n_values, &m->values_room, sizeof *values);
    if (values == NULL) {
        return nomem(m);
    }
    m->values = values;
    m->values[m->n_values] = (value){(uint8_t)k, n, number};
    return push(m, (uint32_t)m->n_values++);
}

static gw_status pop(machine *m, uint32_t *out) {
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == THE_MARK) {
        return wrong(m, "an instruction finds nothing to work on");
    }
    *out = m->stack[--m->n_stack];
    return GW_OK;
}

/* The values behind the last mark stay where they are, above the new top of the stack. */
static gw_status pop_marked(machine *m, const uint32_t **first, size_t *n) {
    size_t at = m->n_stack;
    while (at > 0 && m->stack[at - 1] != THE_MARK) {
        at--;
    }
    if (at == 0) {
        return wrong(m, "an instruction misses its mark");
    }
    *first = m->stack + at;
    *n = m->n_stack - at;
    m->n_stack = at - 1;
    return GW_OK;
}

static const value *top(const machine *m, kind k) {
    const value *v = m->n_stack > 0 ? &m->values[m->stack[m->n_stack - 1]] : NULL;
    return v != NULL && v->kind == k ? v : NULL;
}

/* ---- instructions ------------------------------------------------------------------------ */

static gw_status do_fixed(machine *m, int which) { return push(m, (uint32_t)which); }

static gw_status do_protocol(machine *m, int unused) {
    const uint8_t *p;
    (void)unused;
    GW_TRY(take(m, 1, &p));
    return *p == 2 ? GW_OK
                   : gw_fail(GW_E_VERSION, m->where, "pickle protocol %u; PyTorch writes 2",
                             (unsigned)*p);
}

static gw_status do_new(machine *m, int what) { return push_new(m, (kind)what, 0, 0); }

/* Little-endian of so many bytes; of four and more with a sign. */
static gw_status do_int(machine *m, int bytes) {
    const uint8_t *p;
    GW_TRY(take(m, (uint64_t)bytes, &p));
    uint64_t v = gw_load_le(p, (size_t)bytes);
    return push_new(m, INT, 0, bytes == 4 ? (int32_t)(uint32_t)v : (int64_t)v);
}

static gw_status do_long(machine *m, int unused) {
    const uint8_t *p;
    (void)unused;
    GW_TRY(take(m, 1, &p));
    size_t n = *p;
    if (n > 8) {
        return gw_fail(GW_E_LIMIT, m->where, "the pickle has an integer of %zu bytes", n);
    }
    GW_TRY(take(m, n, &p));
    uint64_t v = n > 0 ? gw_load_le(p, n) : 0;
    if (n > 0 && n < 8 && p[n - 1] & 0x80) {
        v |= UINT64_MAX << (8 * n);
    }
    return push_new(m, INT, 0, (int64_t)v);
}

static gw_status do_float(machine *m, int unused) {
    const uint8_t *p;
    (void)unused;
    GW_TRY(take(m, 8, &p));
    return push(m, THE_OTHER);
}

/* Behind its length of so many bytes. */
static gw_status do_text(machine *m, int bytes) {
    const uint8_t *p;
    GW_TRY(take(m, (uint64_t)bytes, &p));
    uint64_t n = gw_load_le(p, (size_t)bytes);
    if (n > gw_reader_left(&m->code)) {
        return gw_fail(GW_E_LIMIT, m->where,
                       "the pickle declares a text of %" PRIu64 " bytes, %" PRIu64 " are left", n,
                       gw_reader_left(&m->code));
    }
    int64_t at = (int64_t)m->code.at;
    GW_TRY(take(m, n, &p));
    return push_new(m, TEXT, (uint32_t)n, at);
}

static gw_status make_tuple(machine *m, const uint32_t *first, size_t n) {
    int64_t begin = (int64_t)m->n_members;
    for (size_t i = 0; i < n; i++) {
        uint32_t *members =
            gw_list_grown(m->members, m->n_members, &m->members_room, sizeof *members);
        if (members == NULL) {
            return nomem(m);
        }
        m->members = members;
        m->members[m->n_members++] = first[i];
    }
    return push_new(m, TUPLE, (uint32_t)n, begin);
}

static gw_status do_tuple(machine *m, int n) {
    uint32_t last[3];
    for (int i = n; i-- > 0;) {
        GW_TRY(pop(m, &last[i]));
    }
    return make_tuple(m, last, (size_t)n);
}

static gw_status do_tuple_marked(machine *m, int unused) {
    const uint32_t *first;
    size_t n;
    (void)unused;
    GW_TRY(pop_marked(m, &first, &n));
    return make_tuple(m, first, n);
}

static gw_status do_append(machine *m, int marked) {
    const uint32_t *first;
    uint32_t one;
    size_t n;
    if (marked) {
        GW_TRY(pop_marked(m, &first, &n));
    } else {
        GW_TRY(pop(m, &one));
        first = &one;
        n = 1;
    }
    for (size_t i = 0; m->lists && i < n; i++) {
        uint32_t *listed = gw_list_grown(m->listed, m->n_listed, &m->listed_room, sizeof *listed);
        if (listed == NULL) {
            return nomem(m);
        }
        m->listed = listed;
        m->listed[m->n_listed++] = first[i];
    }
    return top(m, LIST) != NULL ? GW_OK : wrong(m, "something is appended to what is no list");
}

static gw_status set_pair(machine *m, uint32_t key, uint32_t v) {
    pair *pairs = gw_list_grown(m->pairs, m->n_pairs, &m->pairs_room, sizeof *pairs);
    if (pairs == NULL) {
        return nomem(m);
    }
    m->pairs = pairs;
    m->pairs[m->n_pairs++] = (pair){m->stack[m->n_stack - 1], key, v};
    return GW_OK;
}

static gw_status do_set(machine *m, int marked) {
    const uint32_t *first;
    uint32_t one[2];
    size_t n = 2;
    if (marked) {
        GW_TRY(pop_marked(m, &first, &n));
    } else {
        GW_TRY(pop(m, &one[1]));
        GW_TRY(pop(m, &one[0]));
        first = one;
    }
    if (top(m, DICT) == NULL || n % 2 != 0) {
        return wrong(m, "something is set in what is no dict, or has no key");
    }
    for (size_t i = 0; i < n; i += 2) {
        GW_TRY(set_pair(m, first[i], first[i + 1]));
    }
    return GW_OK;
}

static gw_status do_put(machine *m, int bytes) {
    const uint8_t *p;
    GW_TRY(take(m, (uint64_t)bytes, &p));
    uint64_t slot = gw_load_le(p, (size_t)bytes);
    if (slot >= m->code.size) { /* a slot takes an instruction */
        return gw_fail(GW_E_LIMIT, m->where,
                       "memo slot %" PRIu64 " of a pickle of %" PRIu64 " bytes", slot,
                       m->code.size);
    }
    if (m->n_stack == 0 || m->stack[m->n_stack - 1] == THE_MARK) {
        return wrong(m, "nothing is there to keep");
    }
    while (m->n_memo <= slot) {
        uint32_t *memo = gw_list_grown(m->memo, m->n_memo, &m->memo_room, sizeof *memo);
        if (memo == NULL) {
            return nomem(m);
        }
        m->memo = memo;
        m->memo[m->n_memo++] = UINT32_MAX;
    }
    m->memo[slot] = m->stack[m->n_stack - 1];
    return GW_OK;
}

static gw_status do_get(machine *m, int bytes) {
    const uint8_t *p;
    GW_TRY(take(m, (uint64_t)bytes, &p));
    uint64_t slot = gw_load_le(p, (size_t)bytes);
    if (slot >= m->n_memo || m->memo[slot] == UINT32_MAX) {
        return wrong(m, "an empty memo slot is read");
    }
    return push(m, m->memo[slot]);
}

/* A line of the stream, without its end. */
static gw_status take_line(machine *m, const char **line, int *n) {
    const uint8_t *rest = m->code.data + m->code.at;
    const uint8_t *end = memchr(rest, '\n', gw_reader_left(&m->code));
    const uint8_t *p;
    if (end == NULL) {
        return gw_fail(GW_E_TRUNCATED, m->where, "the pickle ends inside a name");
    }
    GW_TRY(take(m, (uint64_t)(end - rest) + 1, &p));
    *line = (const char *)p;
    *n = end - rest < 80 ? (int)(end - rest) : 80;
    return GW_OK;
}

static int is_line(const char *line, int n, const char *want) {
    return strlen(want) == (size_t)n && memcmp(line, want, (size_t)n) == 0;
}

static gw_status do_global(machine *m, int unused) {
    const char *module, *name;
    int module_n, name_n;
    (void)unused;
    GW_TRY(take_line(m, &module, &module_n));
    GW_TRY(take_line(m, &name, &name_n));
    for (uint32_t i = 0; i < N_GLOBALS; i++) {
        if (is_line(module, module_n, GLOBALS[i].module) &&
            is_line(name, name_n, GLOBALS[i].name)) {
            return push_new(m, GLOBAL, i, 0);
        }
    }
    return gw_fail(
        GW_E_FORBIDDEN, m->where,
        "the pickle asks for %.*s.%.*s, which no table of tensors needs; nothing was run", module_n,
        module, name_n, name);
}

/* The members of a tuple of at least so many; NULL: it is none. */
static const uint32_t *parts(const machine *m, uint32_t i, uint32_t least) {
    const value *v = &m->values[i];
    return v->kind == TUPLE && v->n > 0 && v->n >= least ? m->members + v->number : NULL;
}

/* ("storage", class, key, device, elements) */
static gw_status do_storage(machine *m, int unused) {
    uint32_t i;
    (void)unused;
    GW_TRY(pop(m, &i));
    const uint32_t *part = parts(m, i, 5);
    if (part == NULL || m->values[part[1]].kind != GLOBAL ||
        GLOBALS[m->values[part[1]].n].means != IS_STORAGE || m->values[part[2]].kind != TEXT ||
        m->values[part[4]].kind != INT || m->values[part[4]].number < 0) {
        return gw_fail(GW_E_TYPE, m->where, "a storage is not described as PyTorch does it");
    }
    if (m->values[i].n > 5 && m->values[part[5]].kind == TUPLE) {
        return gw_fail(GW_E_UNSUPPORTED, m->where,
                       "a storage is part of another, as PyTorch wrote before 0.4; save the model "
                       "again");
    }
    return push_new(m, STORAGE, m->values[part[1]].n, m->values[i].number);
}

/* (storage, offset, size, stride, ...): looked at when it is listed. (tensor, ...): a parameter. */
static gw_status do_call(machine *m, int unused) {
    uint32_t args_at, callee_at;
    (void)unused;
    GW_TRY(pop(m, &args_at));
    GW_TRY(pop(m, &callee_at));
    value args = m->values[args_at], callee = m->values[callee_at];
    const uint32_t *part;
    if (args.kind != TUPLE || callee.kind != GLOBAL) {
        return wrong(m, "a call is of no known name or without arguments");
    }
    switch (GLOBALS[callee.n].means) {
    case MAKES_DICT:
        return args.n == 0 ? push_new(m, DICT, 0, 0)
                           : gw_fail(GW_E_TYPE, m->where, "an OrderedDict is made from something");
    case MAKES_TENSOR:
        part = parts(m, args_at, 4);
        if (part == NULL || m->values[part[0]].kind != STORAGE || m->values[part[1]].kind != INT ||
            m->values[part[2]].kind != TUPLE || m->values[part[3]].kind != TUPLE) {
            return gw_fail(GW_E_TYPE, m->where, "a tensor is not described as PyTorch does it");
        }
        return push_new(m, TENSOR, 0, args.number);
    case MAKES_TYPED:
        part = parts(m, args_at, 7);
        if (part == NULL || m->values[part[0]].kind != STORAGE || m->values[part[1]].kind != INT ||
            m->values[part[2]].kind != TUPLE || m->values[part[3]].kind != TUPLE ||
            m->values[part[6]].kind != GLOBAL || GLOBALS[m->values[part[6]].n].dtype == NULL) {
            return gw_fail(GW_E_TYPE, m->where, "a tensor is not described as PyTorch does it");
        }
        return push_new(m, TENSOR, 1, args.number);
    case MAKES_PARAMETER:
        part = parts(m, args_at, 1);
        return part != NULL && m->values[part[0]].kind == TENSOR
                   ? push(m, part[0])
                   : gw_fail(GW_E_TYPE, m->where, "a parameter is made of no tensor");
    case MAKES_OTHER:
        return push(m, THE_OTHER);
    case IS_STORAGE:
    default:
        return gw_fail(GW_E_FORBIDDEN, m->where, "the pickle calls %s", GLOBALS[callee.n].name);
    }
}

/* Attributes: of an OrderedDict, where nobody needs them. */
static gw_status do_build(machine *m, int unused) {
    uint32_t state;
    (void)unused;
    GW_TRY(pop(m, &state));
    return top(m, DICT) != NULL ? GW_OK
                                : gw_fail(GW_E_FORBIDDEN, m->where,
                                          "the pickle gives attributes to what is no dict");
}

static gw_status do_stop(machine *m, int unused) {
    (void)unused;
    m->stopped = 1;
    if (m->n_stack != 1 || m->stack[0] == THE_MARK) {
        return wrong(m, "not one value is left at the end");
    }
    return m->more || gw_reader_left(&m->code) == 0 ? GW_OK : wrong(m, "something follows the end");
}

static const struct {
    uint8_t code;
    int argument;
    gw_status (*run)(machine *m, int argument);
} INSTRUCTIONS[] = {
    {0x80, 0, do_protocol},
    {'N', THE_OTHER, do_fixed},
    {0x88, THE_OTHER, do_fixed},
    {0x89, THE_FALSE, do_fixed},
    {'(', THE_MARK, do_fixed},
    {')', THE_EMPTY, do_fixed},
    {']', THE_LIST, do_fixed},
    {'}', DICT, do_new},
    {'K', 1, do_int},
    {'M', 2, do_int},
    {'J', 4, do_int},
    {0x8a, 0, do_long},
    {'G', 0, do_float},
    {'X', 4, do_text},
    {'T', 4, do_text}, /* of Python 2 */
    {'U', 1, do_text},
    {0x85, 1, do_tuple},
    {0x86, 2, do_tuple},
    {0x87, 3, do_tuple},
    {'t', 0, do_tuple_marked},
    {'a', 0, do_append},
    {'e', 1, do_append},
    {'s', 0, do_set},
    {'u', 1, do_set},
    {'q', 1, do_put},
    {'r', 4, do_put},
    {'h', 1, do_get},
    {'j', 4, do_get},
    {'c', 0, do_global},
    {'Q', 0, do_storage},
    {'R', 0, do_call},
    {'b', 0, do_build},
    {'.', 0, do_stop},
};
enum { N_INSTRUCTIONS = sizeof INSTRUCTIONS / sizeof INSTRUCTIONS[0] };

static gw_status step(machine *m) {
    const uint8_t *code;
    if (gw_reader_left(&m->code) == 0) {
        return gw_fail(GW_E_TRUNCATED, m->where, "the pickle has no end");
    }
    GW_TRY(take(m, 1, &code));
    for (size_t i = 0; i < N_INSTRUCTIONS; i++) {
        if (INSTRUCTIONS[i].code == *code) {
            return INSTRUCTIONS[i].run(m, INSTRUCTIONS[i].argument);
        }
    }
    return gw_fail(GW_E_FORBIDDEN, m->where,
                   "the pickle has instruction 0x%02x at byte %" PRIu64
                   ", which no table of tensors needs; nothing was run",
                   (unsigned)*code, m->code.at - 1);
}

/* ---- the table --------------------------------------------------------------------------- */

static gw_status text_of(const machine *m, const value *v, gw_arena *arena, const char **out) {
    const char *text = (const char *)m->code.data + v->number;
    if (!gw_text_is_utf8(text, v->n) || memchr(text, 0, v->n) != NULL) {
        return gw_fail(GW_E_ENCODING, m->where, "a name in the pickle is not UTF-8");
    }
    *out = gw_arena_copy(arena, text, v->n);
    return *out != NULL ? GW_OK : nomem(m);
}

static gw_status numbers_of(const machine *m, const value *tuple, const char *name, uint64_t *out) {
    for (uint32_t i = 0; i < tuple->n; i++) {
        const value *v = &m->values[m->members[tuple->number + i]];
        if (v->kind != INT || v->number < 0) {
            return gw_fail(GW_E_TYPE, m->where,
                           "size or stride %u of tensor %s is no natural number", (unsigned)i,
                           name);
        }
        out[i] = (uint64_t)v->number;
    }
    return GW_OK;
}

static gw_status list_tensor(const machine *m, const value *t, gw_arena *arena, gw_pickled *p) {
    const uint32_t *part = m->members + t->number;
    const value *storage = &m->values[part[0]], *offset = &m->values[part[1]];
    const value *size = &m->values[part[2]], *stride = &m->values[part[3]];
    const uint32_t *id = m->members + storage->number;
    if (offset->number < 0 || size->n != stride->n) {
        return gw_fail(GW_E_TYPE, m->where,
                       "tensor %s has offset %" PRId64 ", %u sizes and %u strides", p->name,
                       offset->number, (unsigned)size->n, (unsigned)stride->n);
    }
    if (size->n > GW_PICKLE_RANK_MAX) {
        return gw_fail(GW_E_LIMIT, m->where, "tensor %s has %u dimensions", p->name,
                       (unsigned)size->n);
    }
    p->n_dim = (int)size->n;
    GW_TRY(numbers_of(m, size, p->name, p->size));
    GW_TRY(numbers_of(m, stride, p->name, p->stride));
    p->offset = (uint64_t)offset->number;
    p->dtype = GLOBALS[t->n > 0 ? m->values[part[6]].n : storage->n].dtype;
    p->in_bytes = t->n > 0;
    p->elements = (uint64_t)m->values[id[4]].number;
    return text_of(m, &m->values[id[2]], arena, &p->storage);
}

static gw_status list_dict(const machine *m, uint32_t dict, gw_arena *arena, gw_pickled *list,
                           size_t *n) {
    for (size_t i = 0; i < m->n_pairs; i++) {
        const value *key = &m->values[m->pairs[i].key], *v = &m->values[m->pairs[i].value];
        if (m->pairs[i].dict != dict) {
            continue;
        }
        if (m->pairs[i].value == dict) {
            return gw_fail(GW_E_METADATA, m->where, "the table of tensors contains itself");
        }
        if (key->kind != TEXT) {
            return gw_fail(GW_E_TYPE, m->where, "the name of a tensor is no text");
        }
        if (v->kind == TENSOR) {
            GW_TRY(text_of(m, key, arena, &list[*n].name));
            GW_TRY(list_tensor(m, v, arena, &list[*n]));
            (*n)++;
        }
    }
    return GW_OK;
}

/* The dict of that name in a dict; the dict itself when there is none. */
static uint32_t member(const machine *m, uint32_t dict, const char *name) {
    for (size_t i = 0; i < m->n_pairs; i++) {
        const value *key = &m->values[m->pairs[i].key];
        if (m->pairs[i].dict == dict && key->kind == TEXT && key->n == strlen(name) &&
            memcmp(m->code.data + key->number, name, key->n) == 0 &&
            m->values[m->pairs[i].value].kind == DICT) {
            return m->pairs[i].value;
        }
    }
    return dict;
}

static gw_status list_all(const machine *m, gw_arena *arena, gw_pickled **out, size_t *count) {
    static const char *const INSIDE[] = {"state_dict", "model", "module"};
    uint32_t root = m->stack[0];
    size_t n = 0;
    gw_pickled *list = gw_arena_array(arena, m->n_pairs, sizeof *list);
    if (list == NULL) {
        return nomem(m);
    }
    if (m->values[root].kind != DICT) {
        return gw_fail(GW_E_METADATA, m->where, "is no table of named tensors");
    }
    GW_TRY(list_dict(m, root, arena, list, &n));
    for (size_t i = 0; n == 0 && i < sizeof INSIDE / sizeof INSIDE[0]; i++) {
        uint32_t inside = member(m, root, INSIDE[i]);
        GW_TRY(inside != root ? list_dict(m, inside, arena, list, &n) : GW_OK);
    }
    *out = list;
    *count = n;
    return GW_OK;
}

static gw_status make_fixed(machine *m) {
    static const kind FIXED[N_FIXED] = {[THE_OTHER] = OTHER,
                                        [THE_MARK] = MARK,
                                        [THE_EMPTY] = TUPLE,
                                        [THE_LIST] = LIST,
                                        [THE_FALSE] = OTHER};
    for (int i = 0; i < N_FIXED; i++) {
        GW_TRY(push_new(m, FIXED[i], 0, 0));
    }
    m->n_stack = 0;
    return GW_OK;
}

static gw_status run(machine *m) {
    gw_status status = make_fixed(m);
    while (status == GW_OK && !m->stopped) {
        status = step(m);
    }
    return status;
}

static void release(machine *m) {
    free(m->values);
    free(m->stack);
    free(m->members);
    free(m->memo);
    free(m->pairs);
    free(m->listed);
}

gw_status gw_pickle_read(const char *where, const void *bytes, uint64_t n, gw_arena *arena,
                         gw_pickled **out, size_t *count) {
    machine m = {.where = where, .code = gw_reader_of(bytes, n)};
    if (n > STREAM_MAX) {
        return gw_fail(GW_E_LIMIT, where, "a pickle of %" PRIu64 " bytes", n);
    }
    gw_status status = run(&m);
    status = status == GW_OK ? list_all(&m, arena, out, count) : status;
    release(&m);
    return status;
}

/* ---- the form before zip archives --------------------------------------------------------- */

/* The stream at *at of a file; moves on behind it. */
static machine machine_at(const char *where, const uint8_t *data, uint64_t size, uint64_t at) {
    uint64_t left = size - at;
    return (machine){.where = where,
                     .code = gw_reader_of(data + at, left < STREAM_MAX ? left : STREAM_MAX),
                     .more = 1};
}

/* Nothing but whether numbers lie in this byte order matters of the machine that wrote. */
static gw_status read_system(const char *where, const uint8_t *data, uint64_t size, uint64_t *at) {
    machine m = machine_at(where, data, size, *at);
    gw_status status = run(&m);
    for (size_t i = 0; status == GW_OK && i < m.n_pairs; i++) {
        const value *key = &m.values[m.pairs[i].key];
        if (key->kind == TEXT && key->n == 13 && m.pairs[i].value == THE_FALSE &&
            memcmp(m.code.data + key->number, "little_endian", 13) == 0) {
            status = gw_fail(GW_E_VERSION, where,
                             "holds big-endian data; save the model on a little-endian machine");
        }
    }
    *at += m.code.at;
    release(&m);
    return status;
}

/* Types of the storages, by their keys. */
static gw_status list_storages(const machine *m, gw_arena *arena, gw_map *names,
                               const char ***types, size_t *n) {
    const char **list = gw_arena_array(arena, m->n_values, sizeof *list);
    *n = 0;
    for (size_t i = 0; list != NULL && i < m->n_values; i++) {
        const char *key;
        if (m->values[i].kind != STORAGE) {
            continue;
        }
        GW_TRY(text_of(m, &m->values[m->members[m->values[i].number + 2]], arena, &key));
        gw_map_result added = gw_map_add(names, key, strlen(key), *n, NULL);
        if (added == GW_MAP_NOMEM) {
            return nomem(m);
        }
        if (added == GW_MAP_ADDED) {
            list[(*n)++] = GLOBALS[m->values[i].n].dtype;
        }
    }
    *types = list;
    return list != NULL ? GW_OK : nomem(m);
}

/* The keys in the order of the data, each with its type. */
static gw_status read_keys(const char *where, const uint8_t *data, uint64_t size, uint64_t *at,
                           const gw_map *names, const char *const *types, gw_arena *arena,
                           gw_pickled_storage **out, size_t *n) {
    machine m = machine_at(where, data, size, *at);
    m.lists = 1;
    gw_status status = run(&m);
    gw_pickled_storage *list =
        status == GW_OK ? gw_arena_array(arena, m.n_listed, sizeof *list) : NULL;
    status = status == GW_OK && list == NULL ? nomem(&m) : status;
    for (size_t i = 0; status == GW_OK && i < m.n_listed; i++) {
        const value *key = &m.values[m.listed[i]];
        size_t which;
        status = key->kind == TEXT ? text_of(&m, key, arena, &list[i].key)
                                   : gw_fail(GW_E_TYPE, where, "the key of a storage is no text");
        if (status == GW_OK && !gw_map_find(names, list[i].key, strlen(list[i].key), &which)) {
            status =
                gw_fail(GW_E_METADATA, where, "storage %.40s belongs to no tensor", list[i].key);
        }
        list[i].dtype = status == GW_OK ? types[which] : NULL;
    }
    *at += m.code.at;
    *out = list;
    *n = m.n_listed;
    release(&m);
    return status;
}

/* 0x1950a86a20f9469cfc6c, then 1001: the first two streams. */
static const uint8_t OLD[] = {0x80, 2,    0x8a, 10,  0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a,
                              0xa8, 0x50, 0x19, '.', 0x80, 2,    'M',  0xe9, 3,    '.'};

int gw_pickle_is_old(const void *data, uint64_t size) {
    return size >= sizeof OLD && memcmp(data, OLD, sizeof OLD) == 0;
}

gw_status gw_pickle_read_old(const char *where, const void *bytes, uint64_t size, gw_arena *arena,
                             gw_pickled **out, size_t *count, gw_pickled_storage **storages,
                             size_t *n_storages, uint64_t *at) {
    const uint8_t *data = bytes;
    const char **types = NULL;
    size_t n = 0;
    *at = sizeof OLD;
    GW_TRY(read_system(where, data, size, at));
    gw_map *names = gw_map_new();
    machine m = machine_at(where, data, size, *at);
    gw_status status = names != NULL ? run(&m) : nomem(&m);
    status = status == GW_OK ? list_all(&m, arena, out, count) : status;
    status = status == GW_OK ? list_storages(&m, arena, names, &types, &n) : status;
    *at += m.code.at;
    release(&m);
    status = status == GW_OK
                 ? read_keys(where, data, size, at, names, types, arena, storages, n_storages)
                 : status;
    gw_map_free(names);
    return status;
}
