/* core/quantize/gguf_out.h - the head of a GGUF file (version 3): pairs, then tensors and places.
 *
 * A gw_bytes grows; when there is no memory it says so at the end (failed), and keeps what it had.
 */
#ifndef GW_QUANTIZE_GGUF_OUT_H
#define GW_QUANTIZE_GGUF_OUT_H

#include "core/model/gguf.h"

enum { GW_GGUF_ALIGN = 32 };

typedef struct gw_bytes {
    unsigned char *at;
    size_t n, room;
    uint64_t pairs;
    int failed;
    const char *const *skip; /* keys whose pairs are passed over, NULL at the end; may be NULL */
    int passed;              /* the pair that was begun is one of them */
} gw_bytes;

void gw_bytes_put(gw_bytes *b, const void *data, size_t n);
void gw_bytes_number(gw_bytes *b, uint64_t value, int bytes); /* little-endian */
void gw_bytes_free(gw_bytes *b);

/* Pairs. Keys are NUL-terminated; values as named. */
void gw_pair_text(gw_bytes *b, const char *key, const char *text, size_t n);
void gw_pair_u32(gw_bytes *b, const char *key, uint32_t value);
void gw_pair_u16(gw_bytes *b, const char *key, uint16_t value);
void gw_pair_i32(gw_bytes *b, const char *key, int32_t value);
void gw_pair_f32(gw_bytes *b, const char *key, float value);
void gw_pair_bool(gw_bytes *b, const char *key, int value);
/* Then the elements, with gw_bytes_number or gw_bytes_text. */
void gw_pair_array(gw_bytes *b, const char *key, gw_gguf_type type, uint64_t count);
void gw_bytes_text(gw_bytes *b, const char *text, size_t n);
void gw_pair_copy(gw_bytes *b, const gw_gguf_pair *p); /* as it is in a file */

typedef struct gw_gguf_place {
    const char *name;
    int n_dim;
    int64_t dim[4]; /* C order */
    gw_fmt fmt;
    uint64_t bytes, at; /* at: of the data, from where it begins; a multiple of the alignment */
} gw_gguf_place;

/* The head of a file with these pairs and tensors, up to where data begins. */
void gw_gguf_head(gw_bytes *out, const gw_bytes *pairs, const gw_gguf_place *list, size_t n);

#endif
