/* core/quantize/safe_out.c - a safetensors file, from its header to its last byte. */
#include "core/quantize/safe_out.h"

#include <stdlib.h>
#include <string.h>

gw_status gw_safe_out_new(gw_safe_out *o) {
    *o = (gw_safe_out){.header = json_object()};
    return o->header != NULL ? GW_OK : gw_fail(GW_E_NOMEM, NULL, "no memory for a list of tensors");
}

gw_status gw_safe_out_add(gw_safe_out *o, const char *name, const char *dtype, const int64_t *dim,
                          int n_dim, uint64_t bytes) {
    json_t *shape = json_array();
    for (int i = 0; i < n_dim; i++) {
        json_array_append_new(shape, json_integer(dim[i]));
    }
    json_t *entry = json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape, "data_offsets",
                              (json_int_t)o->bytes, (json_int_t)(o->bytes + bytes));
    if (entry == NULL || json_object_set_new(o->header, name, entry) != 0) {
        return gw_fail(GW_E_NOMEM, name, "no memory for a list of tensors");
    }
    o->bytes += bytes;
    return GW_OK;
}

gw_status gw_safe_out_begin(gw_safe_out *o, const char *path, json_t *metadata) {
    if (metadata != NULL) {
        json_object_set(o->header, "__metadata__", metadata);
    }
    char *text = json_dumps(o->header, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text == NULL) {
        return gw_fail(GW_E_NOMEM, path, "no memory for a list of tensors");
    }
    uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
    unsigned char size[8];
    for (int i = 0; i < 8; i++) {
        size[i] = (unsigned char)(padded >> 8 * i & 255u);
    }
    gw_status status = gw_save_begin(&o->save, path, 0666, 8 + padded + o->bytes);
    o->begun = status == GW_OK;
    status = status == GW_OK ? gw_save_write(&o->save, size, 8) : status;
    status = status == GW_OK ? gw_save_write(&o->save, text, length) : status;
    status = status == GW_OK ? gw_save_write(&o->save, "       ", padded - length) : status;
    free(text);
    return status;
}

gw_status gw_safe_out_write(gw_safe_out *o, const void *data, size_t bytes) {
    o->written += bytes;
    return gw_save_write(&o->save, data, bytes);
}

gw_status gw_safe_out_end(gw_safe_out *o) {
    o->begun = 0;
    gw_status status = gw_save_end(&o->save);
    gw_safe_out_drop(o);
    return status;
}

void gw_safe_out_drop(gw_safe_out *o) {
    if (o->begun) {
        gw_save_drop(&o->save);
    }
    json_decref(o->header);
    *o = (gw_safe_out){0};
}
