/* core/model/gguf.h - one GGUF file (version 2 or 3) as checked views of its bytes.
 *
 * Format: the GGUF specification of the ggml project. Everything is checked when the file is
 * parsed: counts against what is left, names, types, duplicates, alignment, and that tensor data
 * lies inside the file without overlap. Nothing large is copied: values and arrays stay where they
 * are. Metadata is read by typed getters only.
 */
#ifndef GW_MODEL_GGUF_H
#define GW_MODEL_GGUF_H

#include "core/base/reader.h"
#include "core/model/checkpoint.h"

typedef enum gw_gguf_type { /* numbers as in the file */
                            GW_GGUF_U8,
                            GW_GGUF_I8,
                            GW_GGUF_U16,
                            GW_GGUF_I16,
                            GW_GGUF_U32,
                            GW_GGUF_I32,
                            GW_GGUF_F32,
                            GW_GGUF_BOOL,
                            GW_GGUF_TEXT,
                            GW_GGUF_ARRAY,
                            GW_GGUF_U64,
                            GW_GGUF_I64,
                            GW_GGUF_F64,
                            GW_GGUF_TYPES
} gw_gguf_type;

typedef struct gw_gguf gw_gguf;

/* The memory and `where` must outlive the result. fd: what the tensors' fd becomes, -1: none.
 * Errors: any of the file classes of godwit.h, GW_E_NOMEM, GW_E_UNSUPPORTED (a known tensor
 * type that nothing here decodes). */
gw_status gw_gguf_parse(const char *where, const void *data, uint64_t size, int fd, gw_gguf **out);
void gw_gguf_free(gw_gguf *g);

/* The parts of a checkpoint that is one or several GGUF files; NULL beyond the last. */
const gw_gguf *gw_checkpoint_gguf(const gw_checkpoint *c, size_t part);

const char *gw_gguf_where(const gw_gguf *g);
size_t gw_gguf_tensors(const gw_gguf *g);
const gw_stored *gw_gguf_tensor(const gw_gguf *g, size_t i); /* name and all owned by g */

/* Typed getters. An absent key leaves the result unchanged, with GW_OK and *found = 0; another
 * type is GW_E_TYPE, a value that does not fit GW_E_METADATA. found may be NULL. */
gw_status gw_gguf_int(const gw_gguf *g, const char *key, int64_t *out, int *found);
gw_status gw_gguf_real(const gw_gguf *g, const char *key, double *out, int *found);
gw_status gw_gguf_bool(const gw_gguf *g, const char *key, int *out, int *found);

typedef struct gw_gguf_view {
    const char *text; /* in the file, no NUL behind it */
    uint64_t bytes;
} gw_gguf_view;
gw_status gw_gguf_text(const gw_gguf *g, const char *key, gw_gguf_view *out, int *found);

/* Every pair in the order of the file, for showing. type: of the elements of an array. */
typedef struct gw_gguf_pair {
    gw_gguf_view key;
    gw_gguf_type type;
    const char *type_name;
    int is_array;
    uint64_t count;  /* elements; 1 when it is no array */
    gw_reader value; /* a text's own bytes; the elements of an array */
} gw_gguf_pair;
size_t gw_gguf_pairs(const gw_gguf *g);
gw_gguf_pair gw_gguf_pair_at(const gw_gguf *g, size_t i);

/* An array of exactly this element type: count elements, packed in items. */
typedef struct gw_gguf_array {
    uint64_t count;
    gw_reader items;
} gw_gguf_array;
gw_status gw_gguf_list(const gw_gguf *g, const char *key, gw_gguf_type type, gw_gguf_array *out,
                       int *found);
/* Elements in turn; call at most count times. */
gw_gguf_view gw_gguf_next_text(gw_gguf_array *list);
float gw_gguf_next_f32(gw_gguf_array *list);
int32_t gw_gguf_next_i32(gw_gguf_array *list);

#endif
