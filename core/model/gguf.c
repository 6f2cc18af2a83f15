/* core/model/gguf.c - parsing and checking one GGUF image; typed access to its metadata.
 *
 * Every read goes through the reader. A length is first compared with what is left: more than the
 * whole file is a limit error, more than the rest of it says that the file is cut off.
 */
#include "core/model/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/size.h"
#include "core/base/text.h"
#include "core/model/guess.h"

enum {
    KEY_BYTES_MAX = 65535,          /* as specified                                             */
    NAME_BYTES_MAX = 1024,          /* specified are 64; longer ones are in use                 */
    PAIR_BYTES_MIN = 8 + 1 + 4 + 1, /* key length, a byte of key, type, a byte     */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 4 + 8, /* name length, a byte, rank, type, offset     */
    ALIGNMENT_DEFAULT = 32
};

typedef struct pair {
    const char *key; /* in the file */
    size_t key_bytes;
    uint32_t type, element;
    uint64_t count;  /* of an array */
    gw_reader value; /* the bytes of a scalar, of a text, or of the elements */
} pair;

struct gw_gguf {
    const char *where;
    gw_arena *arena;
    gw_map *keys;
    pair *pairs;
    size_t n_pairs;
    gw_stored *tensors;
    size_t n_tensors;
};

typedef struct parser {
    gw_gguf *g;
    gw_reader r;
    int fd;
    uint64_t alignment;
} parser;

static const uint8_t type_bytes[GW_GGUF_TYPES] = {
    [GW_GGUF_U8] = 1,  [GW_GGUF_I8] = 1,  [GW_GGUF_U16] = 2, [GW_GGUF_I16] = 2,
    [GW_GGUF_U32] = 4, [GW_GGUF_I32] = 4, [GW_GGUF_F32] = 4, [GW_GGUF_BOOL] = 1,
    [GW_GGUF_U64] = 8, [GW_GGUF_I64] = 8, [GW_GGUF_F64] = 8, /* text and array have no fixed size */
};

/* ---- reading, with the two ways of running out ------------------------------------------- */

static gw_status runs_out(const parser *p, uint64_t need, const char *what) {
    if (need > p->r.size && need > 8) { /* up to 8 is ours: a number of the format */
        return gw_fail(GW_E_LIMIT, p->g->where,
                       "%s at byte %" PRIu64 " declares %" PRIu64 " bytes; the file has %" PRIu64,
                       what, p->r.at, need, p->r.size);
    }
    return gw_fail(GW_E_TRUNCATED, p->g->where,
                   "the file ends inside %s at byte %" PRIu64 ": %" PRIu64
                   " bytes are missing; is the download complete?",
                   what, p->r.at, need - gw_reader_left(&p->r));
}

static gw_status take_u32(parser *p, const char *what, uint32_t *out) {
    return gw_reader_u32(&p->r, out) ? GW_OK : runs_out(p, 4, what);
}

static gw_status take_u64(parser *p, const char *what, uint64_t *out) {
    return gw_reader_u64(&p->r, out) ? GW_OK : runs_out(p, 8, what);
}

static gw_status take_text(parser *p, const char *what, uint64_t limit, gw_gguf_view *out) {
    uint64_t n;
    GW_TRY(take_u64(p, what, &n));
    if (n > limit && n <= p->r.size) {
        return gw_fail(GW_E_LIMIT, p->g->where,
                       "%s at byte %" PRIu64 " has %" PRIu64 " bytes; at most %" PRIu64
                       " are allowed",
                       what, p->r.at, n, limit);
    }
    const uint8_t *text = gw_reader_take(&p->r, n);
    if (text == NULL) {
        return runs_out(p, n, what);
    }
    *out = (gw_gguf_view){(const char *)text, n};
    return GW_OK;
}

/* Names (keys, tensors): not empty, UTF-8, without NUL. */
static gw_status take_name(parser *p, const char *what, uint64_t limit, gw_gguf_view *out) {
    gw_gguf_view name;
    GW_TRY(take_text(p, what, limit, &name));
    const char *fault = name.bytes == 0                                    ? "is empty"
                        : memchr(name.text, 0, (size_t)name.bytes) != NULL ? "contains a NUL"
                        : !gw_text_is_utf8(name.text, (size_t)name.bytes)  ? "is not UTF-8"
                                                                           : NULL;
    if (fault != NULL) {
        return gw_fail(GW_E_ENCODING, p->g->where, "%s before byte %" PRIu64 " %s", what, p->r.at,
                       fault);
    }
    *out = name;
    return GW_OK;
}

/* ---- header ------------------------------------------------------------------------------ */

static gw_status parse_magic(parser *p) {
    static const char magic[4] = {'G', 'G', 'U', 'F'};
    size_t have = p->r.size < 4 ? (size_t)p->r.size : 4;
    gw_reader start = p->r;
    if (memcmp(gw_reader_take(&start, have), magic, have) != 0) {
        return gw_fail(GW_E_MAGIC, p->g->where, "is not a GGUF file: %s",
                       gw_guess_file(p->r.data, p->r.size));
    }
    if (have == 0) {
        return gw_fail(GW_E_TRUNCATED, p->g->where, "is empty: 0 bytes");
    }
    uint32_t word, version;
    GW_TRY(take_u32(p, "the magic", &word));
    GW_TRY(take_u32(p, "the header", &version));
    if (version != 0 && (version & 0xffff) == 0) {
        return gw_fail(GW_E_VERSION, p->g->where,
                       "is a big-endian GGUF file; convert it to little-endian");
    }
    if (version != 2 && version != 3) {
        return gw_fail(GW_E_VERSION, p->g->where, "GGUF version %u; 2 and 3 are supported",
                       version);
    }
    return GW_OK;
}

static gw_status check_count(const parser *p, const char *what, uint64_t count, uint64_t smallest) {
    uint64_t left = gw_reader_left(&p->r);
    if (count <= left / smallest) {
        return GW_OK;
    }
    if (count > p->r.size) {
        return gw_fail(GW_E_LIMIT, p->g->where,
                       "%" PRIu64 " %s are declared; a file of %" PRIu64 " bytes cannot hold them",
                       count, what, p->r.size);
    }
    return gw_fail(GW_E_TRUNCATED, p->g->where,
                   "%" PRIu64 " %s are declared: at least %" PRIu64
                   " bytes are missing; is the download complete?",
                   count, what, count * smallest - left);
}

/* ---- metadata ---------------------------------------------------------------------------- */

/* Arrays in an array, which no key of a text has: checked and passed over. Each level has so many
 * elements left; what is deeper than any writer makes is refused. */
static gw_status pass_arrays(parser *p, const gw_gguf_view *key, uint64_t count) {
    enum { DEEPEST = 16 };
    uint64_t left[DEEPEST] = {count}, bytes;
    for (int depth = 0; depth >= 0;) {
        uint32_t type;
        uint64_t n;
        if (left[depth] == 0) {
            depth--;
            continue;
        }
        left[depth]--;
        GW_TRY(take_u32(p, "an array", &type));
        GW_TRY(take_u64(p, "an array", &n));
        if (type == GW_GGUF_ARRAY && depth + 1 < DEEPEST) {
            left[++depth] = n;
            continue;
        }
        if (type >= GW_GGUF_TYPES || type == GW_GGUF_ARRAY) {
            return gw_fail(GW_E_TYPE, p->g->where, "array %.*s has arrays in it of type %u",
                           (int)key->bytes, key->text, type);
        }
        uint64_t each = type_bytes[type];
        if (!gw_size_mul(n, each != 0 ? each : 8, &bytes)) {
            return gw_fail(GW_E_LIMIT, p->g->where, "array %.*s declares %" PRIu64 " elements",
                           (int)key->bytes, key->text, n);
        }
        if (bytes > gw_reader_left(&p->r)) {
            return runs_out(p, bytes, "an array");
        }
        for (uint64_t i = 0; i < n && each == 0; i++) {
            gw_gguf_view text;
            GW_TRY(take_text(p, "a text in an array", UINT64_MAX, &text));
        }
        if (each != 0) {
            gw_reader_take(&p->r, bytes);
        }
    }
    return GW_OK;
}

static gw_status parse_array(parser *p, const gw_gguf_view *key, pair *out) {
    GW_TRY(take_u32(p, "an array", &out->element));
    GW_TRY(take_u64(p, "an array", &out->count));
    if (out->element >= GW_GGUF_TYPES) {
        return gw_fail(GW_E_TYPE, p->g->where,
                       "array %.*s has elements of type %u, which does not exist", (int)key->bytes,
                       key->text, out->element);
    }
    uint64_t bytes, each = type_bytes[out->element];
    if (!gw_size_mul(out->count, each != 0 ? each : 8, &bytes)) {
        return gw_fail(GW_E_LIMIT, p->g->where, "array %.*s declares %" PRIu64 " elements",
                       (int)key->bytes, key->text, out->count);
    }
    if (bytes > gw_reader_left(&p->r)) {
        return runs_out(p, bytes, "an array");
    }
    uint64_t start = p->r.at;
    if (out->element == GW_GGUF_ARRAY) {
        GW_TRY(pass_arrays(p, key, out->count));
        out->value = gw_reader_of(p->r.data + start, p->r.at - start);
        return GW_OK;
    }
    if (each != 0) {
        out->value = gw_reader_of(gw_reader_take(&p->r, bytes), bytes);
        return GW_OK;
    }
    for (uint64_t i = 0; i < out->count; i++) {
        gw_gguf_view text;
        GW_TRY(take_text(p, "a text in an array", UINT64_MAX, &text));
    }
    out->value = gw_reader_of(p->r.data + start, p->r.at - start);
    return GW_OK;
}

static gw_status parse_pair(parser *p) {
    gw_gguf *g = p->g;
    gw_gguf_view key;
    GW_TRY(take_name(p, "a key", KEY_BYTES_MAX, &key));
    pair *out = &g->pairs[g->n_pairs];
    *out = (pair){.key = key.text, .key_bytes = (size_t)key.bytes};
    GW_TRY(take_u32(p, "a value type", &out->type));
    if (out->type >= GW_GGUF_TYPES) {
        return gw_fail(GW_E_TYPE, g->where, "key %.*s has value type %d, which does not exist",
                       (int)key.bytes, key.text, (int)out->type);
    }
    if (out->type == GW_GGUF_ARRAY) {
        GW_TRY(parse_array(p, &key, out));
    } else if (out->type == GW_GGUF_TEXT) {
        gw_gguf_view text;
        GW_TRY(take_text(p, "a text value", UINT64_MAX, &text));
        out->value = gw_reader_of(text.text, text.bytes);
    } else {
        const uint8_t *bytes = gw_reader_take(&p->r, type_bytes[out->type]);
        if (bytes == NULL) {
            return runs_out(p, type_bytes[out->type], "a value");
        }
        out->value = gw_reader_of(bytes, type_bytes[out->type]);
    }
    switch (gw_map_add(g->keys, key.text, (size_t)key.bytes, g->n_pairs, NULL)) {
    case GW_MAP_NOMEM:
        return gw_fail(GW_E_NOMEM, g->where, "no memory for the metadata");
    case GW_MAP_PRESENT:
        return gw_fail(GW_E_DUPLICATE, g->where, "key %.*s occurs twice", (int)key.bytes, key.text);
    case GW_MAP_ADDED:
        break;
    }
    g->n_pairs++;
    return GW_OK;
}

static gw_status parse_pairs(parser *p, uint64_t count) {
    size_t capacity = 0;
    for (uint64_t i = 0; i < count; i++) {
        pair *items = gw_list_grown(p->g->pairs, p->g->n_pairs, &capacity, sizeof *items);
        if (items == NULL) {
            return gw_fail(GW_E_NOMEM, p->g->where, "no memory for the metadata");
        }
        p->g->pairs = items;
        GW_TRY(parse_pair(p));
    }
    return GW_OK;
}

static gw_status read_alignment(parser *p) {
    int64_t alignment = ALIGNMENT_DEFAULT;
    gw_status status = gw_gguf_int(p->g, "general.alignment", &alignment, NULL);
    if (status == GW_E_TYPE) {
        return status;
    }
    if (status != GW_OK || alignment < 1 || alignment > 1 << 30 ||
        (alignment & (alignment - 1)) != 0) {
        return gw_fail(GW_E_ALIGNMENT, p->g->where,
                       "general.alignment is %" PRId64 "; a power of two from 1 to 2^30 is needed",
                       alignment);
    }
    p->alignment = (uint64_t)alignment;
    return GW_OK;
}

/* ---- tensors ----------------------------------------------------------------------------- */

enum { GGUF_I32 = 26, GGUF_I64 = 27 };

static gw_status format_of(const parser *p, const char *name, uint32_t type, gw_fmt *out) {
    const char *repacked = gw_format_repacked((int64_t)(int32_t)type);
    if (repacked != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, p->g->where,
                       "tensor %s is %s: Q4_0 with its rows interleaved for one kind of processor, "
                       "which GGUF has withdrawn; use the model's Q4_0 file, whose rows are "
                       "arranged while it loads",
                       name, repacked);
    }
    if (type >= 97 && type < 400) {
        return gw_fail(GW_E_UNSUPPORTED, p->g->where,
                       "tensor %s has type %u, one of those that only ik_llama.cpp knows; use a "
                       "file in a type of GGUF itself",
                       name, type);
    }
    /* A table of numbers: no weight, and no fault (gguf_split.c); of 64 bits, by its bytes. */
    if (type == GGUF_I32 || type == GGUF_I64) {
        *out = GW_FMT_I32;
        return GW_OK;
    }
    if (gw_format_from_gguf((int64_t)(int32_t)type, out) != GW_OK) {
        return gw_fail(GW_E_TYPE, p->g->where, "tensor %s has type %d, which is no weight format",
                       name, (int)(int32_t)type);
    }
    return GW_OK;
}

/* The shape, to C order, and the bytes it takes. */
static gw_status parse_shape(parser *p, gw_stored *t) {
    uint32_t rank;
    GW_TRY(take_u32(p, "a tensor entry", &rank));
    if (rank > 4) {
        return gw_fail(GW_E_LIMIT, p->g->where,
                       "tensor %s has %u dimensions; at most 4 are allowed", t->name, rank);
    }
    t->n_dim = (int)rank;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t dim;
        GW_TRY(take_u64(p, "a tensor entry", &dim));
        if (dim == 0) {
            return gw_fail(GW_E_LIMIT, p->g->where, "tensor %s has a dimension of 0", t->name);
        }
        if (dim > INT64_MAX || !gw_size_mul(elements, dim, &elements)) {
            return gw_fail(GW_E_OVERFLOW, p->g->where,
                           "tensor %s has a dimension of %" PRIu64
                           ": more elements than 64 bits count",
                           t->name, dim);
        }
        t->dim[rank - 1 - i] = (int64_t)dim;
    }
    return GW_OK;
}

static gw_status size_of_tensor(const parser *p, gw_stored *t) {
    uint64_t cols = t->n_dim > 0 ? (uint64_t)t->dim[t->n_dim - 1] : 1, rows = 1;
    for (int i = 0; i + 1 < t->n_dim; i++) {
        rows *= (uint64_t)t->dim[i]; /* the product of all dimensions fits 64 bits */
    }
    const gw_format *format = gw_format_of(t->fmt);
    if (cols % format->block_elems != 0) {
        return gw_fail(GW_E_TYPE, p->g->where,
                       "tensor %s has rows of %" PRIu64 " values; %s stores blocks of %zu", t->name,
                       cols, format->name, format->block_elems);
    }
    if (gw_matrix_bytes(t->fmt, rows, cols, &t->bytes) != GW_OK) {
        return gw_fail(GW_E_OVERFLOW, p->g->where, "the bytes of tensor %s do not fit 64 bits",
                       t->name);
    }
    return GW_OK;
}

static gw_status parse_tensor(parser *p, gw_map *names) {
    gw_gguf *g = p->g;
    gw_stored *t = &g->tensors[g->n_tensors];
    *t = (gw_stored){.fd = p->fd};
    gw_gguf_view name;
    GW_TRY(take_name(p, "a tensor name", NAME_BYTES_MAX, &name));
    t->name = gw_arena_copy(g->arena, name.text, (size_t)name.bytes);
    gw_map_result added =
        t->name == NULL ? GW_MAP_NOMEM : gw_map_add(names, t->name, (size_t)name.bytes, 0, NULL);
    if (added == GW_MAP_NOMEM) {
        return gw_fail(GW_E_NOMEM, g->where, "no memory for the tensor list");
    }
    if (added == GW_MAP_PRESENT) {
        return gw_fail(GW_E_DUPLICATE, g->where, "tensor %s occurs twice", t->name);
    }
    GW_TRY(parse_shape(p, t));
    uint32_t type;
    GW_TRY(take_u32(p, "a tensor entry", &type));
    GW_TRY(format_of(p, t->name, type, &t->fmt));
    GW_TRY(size_of_tensor(p, t));
    uint64_t bytes = t->bytes;
    if (type == GGUF_I64 && (!gw_size_mul(bytes, 2, &bytes) || bytes > SIZE_MAX)) {
        return gw_fail(GW_E_OVERFLOW, g->where, "the bytes of tensor %s do not fit 64 bits",
                       t->name);
    }
    t->bytes = (size_t)bytes;
    GW_TRY(take_u64(p, "a tensor entry", &t->at)); /* from the start of the data, for now */
    g->n_tensors++;
    return GW_OK;
}

static gw_status parse_tensors(parser *p, uint64_t count) {
    gw_map *names = gw_map_new();
    gw_status status = names != NULL ? GW_OK : gw_fail(GW_E_NOMEM, p->g->where, "no memory");
    size_t capacity = 0;
    for (uint64_t i = 0; i < count && status == GW_OK; i++) {
        gw_stored *items = gw_list_grown(p->g->tensors, p->g->n_tensors, &capacity, sizeof *items);
        if (items == NULL) {
            status = gw_fail(GW_E_NOMEM, p->g->where, "no memory for the tensor list");
        } else {
            p->g->tensors = items;
            status = parse_tensor(p, names);
        }
    }
    gw_map_free(names);
    return status;
}

static gw_status place_tensor(const parser *p, uint64_t data_at, gw_stored *t) {
    uint64_t space = p->r.size - data_at, end;
    if (t->at > space) {
        return gw_fail(GW_E_BOUNDS, p->g->where,
                       "tensor %s starts at byte %" PRIu64 " of %" PRIu64 " bytes of data", t->name,
                       t->at, space);
    }
    if ((t->at & (p->alignment - 1)) != 0) {
        return gw_fail(GW_E_ALIGNMENT, p->g->where,
                       "tensor %s starts at byte %" PRIu64 ", no multiple of %" PRIu64, t->name,
                       t->at, p->alignment);
    }
    if (!gw_size_add(t->at, t->bytes, &end) || end > space) {
        return gw_fail(GW_E_BOUNDS, p->g->where,
                       "tensor %s needs %zu bytes, %" PRIu64
                       " are left: the file is cut off or its table is wrong",
                       t->name, t->bytes, space - t->at);
    }
    gw_reader r = p->r;
    r.at = data_at + t->at;
    t->at = r.at;
    t->data = gw_reader_take(&r, t->bytes);
    return GW_OK;
}

static int by_place(const void *a, const void *b) {
    const gw_stored *x = *(const gw_stored *const *)a, *y = *(const gw_stored *const *)b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static gw_status check_overlap(const gw_gguf *g) {
    if (g->n_tensors == 0) {
        return GW_OK;
    }
    const gw_stored **order = calloc(g->n_tensors, sizeof *order);
    if (order == NULL) {
        return gw_fail(GW_E_NOMEM, g->where, "no memory for the tensor list");
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        order[i] = &g->tensors[i];
    }
    qsort(order, g->n_tensors, sizeof *order, by_place);
    gw_status status = GW_OK;
    for (size_t i = 1; i < g->n_tensors && status == GW_OK; i++) {
        if (order[i - 1]->at + order[i - 1]->bytes > order[i]->at) {
            status = gw_fail(GW_E_BOUNDS, g->where, "tensors %s and %s share bytes",
                             order[i - 1]->name, order[i]->name);
        }
    }
    free(order);
    return status;
}

static gw_status parse_all(parser *p) {
    GW_TRY(parse_magic(p));
    uint64_t n_tensors, n_pairs;
    GW_TRY(take_u64(p, "the header", &n_tensors));
    GW_TRY(take_u64(p, "the header", &n_pairs));
    GW_TRY(check_count(p, "metadata pairs", n_pairs, PAIR_BYTES_MIN));
    GW_TRY(check_count(p, "tensors", n_tensors, TENSOR_BYTES_MIN));
    GW_TRY(parse_pairs(p, n_pairs));
    GW_TRY(read_alignment(p));
    GW_TRY(check_count(p, "tensors", n_tensors, TENSOR_BYTES_MIN));
    GW_TRY(parse_tensors(p, n_tensors));
    uint64_t data_at;
    if (n_tensors == 0) { /* a vocabulary alone may end without padding */
        return GW_OK;
    }
    if (!gw_size_align(p->r.at, p->alignment, &data_at) || data_at > p->r.size) {
        return gw_fail(GW_E_TRUNCATED, p->g->where, "the file ends before the tensor data");
    }
    for (size_t i = 0; i < p->g->n_tensors; i++) {
        GW_TRY(place_tensor(p, data_at, &p->g->tensors[i]));
    }
    return check_overlap(p->g);
}

gw_status gw_gguf_parse(const char *where, const void *data, uint64_t size, int fd, gw_gguf **out) {
    gw_gguf *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return gw_fail(GW_E_NOMEM, where, "no memory");
    }
    g->where = where;
    g->arena = gw_arena_new();
    g->keys = gw_map_new();
    parser p = {.g = g, .r = gw_reader_of(data, size), .fd = fd};
    gw_status status = g->arena != NULL && g->keys != NULL
                           ? parse_all(&p)
                           : gw_fail(GW_E_NOMEM, where, "no memory");
    if (status != GW_OK) {
        gw_gguf_free(g);
        return status;
    }
    *out = g;
    return GW_OK;
}

void gw_gguf_free(gw_gguf *g) {
    if (g == NULL) {
        return;
    }
    gw_map_free(g->keys);
    gw_arena_free(g->arena);
    free(g->pairs);
    free(g->tensors);
    free(g);
}

const char *gw_gguf_where(const gw_gguf *g) { return g->where; }
size_t gw_gguf_tensors(const gw_gguf *g) { return g->n_tensors; }
const gw_stored *gw_gguf_tensor(const gw_gguf *g, size_t i) { return &g->tensors[i]; }

static const char *const type_names[GW_GGUF_TYPES] = {
    "uint8", "int8", "uint16", "int16",  "uint32", "int32", "float",
    "bool",  "text", "array",  "uint64", "int64",  "double"};

size_t gw_gguf_pairs(const gw_gguf *g) { return g->n_pairs; }

gw_gguf_pair gw_gguf_pair_at(const gw_gguf *g, size_t i) {
    const pair *p = &g->pairs[i];
    int list = p->type == GW_GGUF_ARRAY;
    return (gw_gguf_pair){.key = {p->key, p->key_bytes},
                          .type = (gw_gguf_type)(list ? p->element : p->type),
                          .type_name = type_names[list ? p->element : p->type],
                          .is_array = list,
                          .count = list ? p->count : 1,
                          .value = p->value};
}

/* ---- typed getters ----------------------------------------------------------------------- */

static const pair *find(const gw_gguf *g, const char *key, int *found) {
    size_t i;
    int known = gw_map_find(g->keys, key, strlen(key), &i);
    if (found != NULL) {
        *found = known;
    }
    return known ? &g->pairs[i] : NULL;
}

static gw_status wrong(const gw_gguf *g, const char *key, const char *want, const pair *v) {
    int list = v->type == GW_GGUF_ARRAY;
    return gw_fail(GW_E_TYPE, g->where, "%s must be %s; it is %s%s", key, want,
                   list ? "an array of " : "", type_names[list ? v->element : v->type]);
}

gw_status gw_gguf_int(const gw_gguf *g, const char *key, int64_t *out, int *found) {
    const pair *v = find(g, key, found);
    if (v == NULL) {
        return GW_OK;
    }
    int is_signed = v->type == GW_GGUF_I8 || v->type == GW_GGUF_I16 || v->type == GW_GGUF_I32 ||
                    v->type == GW_GGUF_I64;
    if (!is_signed && v->type != GW_GGUF_U8 && v->type != GW_GGUF_U16 && v->type != GW_GGUF_U32 &&
        v->type != GW_GGUF_U64) {
        return wrong(g, key, "an integer", v);
    }
    uint64_t bits = gw_load_le(v->value.data, (size_t)v->value.size);
    int shift = 64 - 8 * (int)v->value.size;
    if (!is_signed && bits > INT64_MAX) {
        return gw_fail(GW_E_METADATA, g->where, "%s is %" PRIu64 ", which is out of range", key,
                       bits);
    }
    *out = is_signed ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
    return GW_OK;
}

gw_status gw_gguf_real(const gw_gguf *g, const char *key, double *out, int *found) {
    const pair *v = find(g, key, found);
    if (v == NULL) {
        return GW_OK;
    }
    if (v->type == GW_GGUF_F32) {
        uint32_t bits = (uint32_t)gw_load_le(v->value.data, 4);
        float value;
        memcpy(&value, &bits, sizeof value);
        *out = (double)value;
    } else if (v->type == GW_GGUF_F64) {
        uint64_t bits = gw_load_le(v->value.data, 8);
        memcpy(out, &bits, sizeof *out);
    } else {
        return wrong(g, key, "a float", v);
    }
    return GW_OK;
}

gw_status gw_gguf_bool(const gw_gguf *g, const char *key, int *out, int *found) {
    const pair *v = find(g, key, found);
    if (v == NULL) {
        return GW_OK;
    }
    if (v->type != GW_GGUF_BOOL) {
        return wrong(g, key, "a bool", v);
    }
    if (v->value.data[0] > 1) {
        return gw_fail(GW_E_TYPE, g->where, "%s is a bool of %d; 0 or 1 is needed", key,
                       v->value.data[0]);
    }
    *out = v->value.data[0];
    return GW_OK;
}

gw_status gw_gguf_text(const gw_gguf *g, const char *key, gw_gguf_view *out, int *found) {
    const pair *v = find(g, key, found);
    if (v == NULL) {
        return GW_OK;
    }
    if (v->type != GW_GGUF_TEXT) {
        return wrong(g, key, "a text", v);
    }
    *out = (gw_gguf_view){(const char *)v->value.data, v->value.size};
    return GW_OK;
}

gw_status gw_gguf_list(const gw_gguf *g, const char *key, gw_gguf_type type, gw_gguf_array *out,
                       int *found) {
    const pair *v = find(g, key, found);
    if (v == NULL) {
        return GW_OK;
    }
    if (v->type != GW_GGUF_ARRAY || v->element != (uint32_t)type) {
        return wrong(g, key,
                     type == GW_GGUF_TEXT  ? "an array of text"
                     : type == GW_GGUF_F32 ? "an array of float"
                                           : "an array of int32",
                     v);
    }
    *out = (gw_gguf_array){v->count, v->value};
    return GW_OK;
}

gw_gguf_view gw_gguf_next_text(gw_gguf_array *list) {
    uint64_t n = 0;
    const uint8_t *text = gw_reader_u64(&list->items, &n) ? gw_reader_take(&list->items, n) : NULL;
    return text != NULL ? (gw_gguf_view){(const char *)text, n} : (gw_gguf_view){"", 0};
}

float gw_gguf_next_f32(gw_gguf_array *list) {
    uint32_t bits = 0;
    gw_reader_u32(&list->items, &bits);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

int32_t gw_gguf_next_i32(gw_gguf_array *list) {
    uint32_t bits = 0;
    gw_reader_u32(&list->items, &bits);
    return (int32_t)bits;
}
