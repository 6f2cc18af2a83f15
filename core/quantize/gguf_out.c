/* core/quantize/gguf_out.c - the bytes of a GGUF file's head. */
#include "core/quantize/gguf_out.h"

#include <stdlib.h>
#include <string.h>

void gw_bytes_put(gw_bytes *b, const void *data, size_t n) {
    if (b->failed || b->passed) {
        return;
    }
    if (n > b->room - b->n) {
        size_t room = b->room * 2 > b->n + n ? b->room * 2 : b->n + n + 256;
        unsigned char *more = realloc(b->at, room);
        if (more == NULL) {
            b->failed = 1;
            return;
        }
        b->at = more;
        b->room = room;
    }
    if (n > 0) {
        memcpy(b->at + b->n, data, n);
    }
    b->n += n;
}

void gw_bytes_number(gw_bytes *b, uint64_t value, int bytes) {
    unsigned char raw[8];
    for (int i = 0; i < 8; i++) {
        raw[i] = (unsigned char)(value >> 8 * i & 255u);
    }
    gw_bytes_put(b, raw, (size_t)bytes);
}

void gw_bytes_text(gw_bytes *b, const char *text, size_t n) {
    gw_bytes_number(b, n, 8);
    gw_bytes_put(b, text, n);
}

void gw_bytes_free(gw_bytes *b) {
    free(b->at);
    *b = (gw_bytes){0};
}

static void begin(gw_bytes *b, const char *key, gw_gguf_type type) {
    b->passed = 0;
    for (size_t i = 0; b->skip != NULL && b->skip[i] != NULL; i++) {
        b->passed |= strcmp(b->skip[i], key) == 0;
    }
    b->pairs += !b->passed;
    gw_bytes_text(b, key, strlen(key));
    gw_bytes_number(b, (uint64_t)type, 4);
}

void gw_pair_text(gw_bytes *b, const char *key, const char *text, size_t n) {
    begin(b, key, GW_GGUF_TEXT);
    gw_bytes_text(b, text, n);
}

void gw_pair_u32(gw_bytes *b, const char *key, uint32_t value) {
    begin(b, key, GW_GGUF_U32);
    gw_bytes_number(b, value, 4);
}

void gw_pair_u16(gw_bytes *b, const char *key, uint16_t value) {
    begin(b, key, GW_GGUF_U16);
    gw_bytes_number(b, value, 2);
}

void gw_pair_i32(gw_bytes *b, const char *key, int32_t value) {
    begin(b, key, GW_GGUF_I32);
    gw_bytes_number(b, (uint32_t)value, 4);
}

void gw_pair_f32(gw_bytes *b, const char *key, float value) {
    begin(b, key, GW_GGUF_F32);
    gw_bytes_number(b, GW_F32_BITS(value), 4);
}

void gw_pair_bool(gw_bytes *b, const char *key, int value) {
    begin(b, key, GW_GGUF_BOOL);
    gw_bytes_number(b, value != 0, 1);
}

void gw_pair_array(gw_bytes *b, const char *key, gw_gguf_type type, uint64_t count) {
    begin(b, key, GW_GGUF_ARRAY);
    gw_bytes_number(b, (uint64_t)type, 4);
    gw_bytes_number(b, count, 8);
}

void gw_pair_copy(gw_bytes *b, const gw_gguf_pair *p) {
    b->pairs++;
    gw_bytes_text(b, p->key.text, (size_t)p->key.bytes);
    gw_bytes_number(b, (uint64_t)(p->is_array ? GW_GGUF_ARRAY : p->type), 4);
    if (p->is_array) {
        gw_bytes_number(b, (uint64_t)p->type, 4);
        gw_bytes_number(b, p->count, 8);
    } else if (p->type == GW_GGUF_TEXT) {
        gw_bytes_number(b, p->value.size, 8);
    }
    gw_bytes_put(b, p->value.data, (size_t)p->value.size);
}

void gw_gguf_head(gw_bytes *out, const gw_bytes *pairs, const gw_gguf_place *list, size_t n) {
    gw_bytes_put(out, "GGUF", 4);
    gw_bytes_number(out, 3, 4);
    gw_bytes_number(out, n, 8);
    gw_bytes_number(out, pairs->pairs, 8);
    gw_bytes_put(out, pairs->at, pairs->n);
    for (size_t i = 0; i < n; i++) {
        gw_bytes_text(out, list[i].name, strlen(list[i].name));
        gw_bytes_number(out, (uint64_t)list[i].n_dim, 4);
        for (int d = list[i].n_dim; d-- > 0;) { /* the file counts from the contiguous one */
            gw_bytes_number(out, (uint64_t)list[i].dim[d], 8);
        }
        gw_bytes_number(out, (uint64_t)gw_format_of(list[i].fmt)->gguf_type, 4);
        gw_bytes_number(out, list[i].at, 8);
    }
    static const unsigned char zeros[GW_GGUF_ALIGN];
    gw_bytes_put(out, zeros, (GW_GGUF_ALIGN - out->n % GW_GGUF_ALIGN) % GW_GGUF_ALIGN);
    out->failed |= pairs->failed;
}
