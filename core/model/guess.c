/* core/model/guess.c - a table of first bytes. */
#include "core/model/guess.h"

#include <string.h>

#include "core/base/os.h"
#include "core/base/reader.h"

static const struct {
    const char *start;
    unsigned bytes; /* 0: text, any case */
    const char *is;
} known[] = {
    {"<!doctype html", 0, "it is a web page: the download gave a page instead of the file"},
    {"<html", 0, "it is a web page: the download gave a page instead of the file"},
    {"<?xml", 0, "it is an XML page: the download gave an error instead of the file"},
    {"version https://git-lfs", 0,
     "it is a git-lfs pointer and not the file itself: run `git lfs pull`"},
    {"PK\003\004", 4, "it is a zip archive, perhaps a PyTorch checkpoint: give the model's folder"},
    {"\x80\002", 2, "it is a Python pickle, perhaps an old PyTorch checkpoint"},
    {"FUGG", 4, "the magic is that of a big-endian GGUF; convert the file to little-endian"},
    {"ggml", 4, "it is a GGML file from before GGUF: convert it again from its source"},
    {"lmgg", 4, "it is a GGML file from before GGUF: convert it again from its source"},
    {"fmgg", 4, "it is a GGML file from before GGUF: convert it again from its source"},
    {"tjgg", 4, "it is a GGJT file from before GGUF: convert it again from its source"},
    {"algg", 4, "it is an adapter (LoRA) from before GGUF, not a model"},
    {"\x1f\x8b", 2, "it is compressed with gzip: unpack it first"},
    {"\x28\xb5\x2f\xfd", 4, "it is compressed with zstd: unpack it first"},
    {"{", 1, "it is JSON: give the model's folder instead"},
    {"\0\0\0\0", 4, "it starts with zeros: the download is not finished, or the disk lost it"},
};

static int is_safetensors(const void *data, uint64_t size) {
    gw_reader r = gw_reader_of(data, size);
    uint64_t header;
    const uint8_t *brace;
    return gw_reader_u64(&r, &header) && header <= gw_reader_left(&r) &&
           (brace = gw_reader_take(&r, 1)) != NULL && *brace == '{';
}

const char *gw_guess_file(const void *data, uint64_t size) {
    if (is_safetensors(data, size)) {
        return "it is a safetensors file: give the folder that holds it and its config.json";
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = known[i].bytes != 0 ? known[i].bytes : strlen(known[i].start);
        gw_reader r = gw_reader_of(data, size);
        const uint8_t *p = gw_reader_take(&r, n);
        if (p != NULL &&
            (known[i].bytes != 0 ? memcmp(p, known[i].start, n) == 0
                                 : strncasecmp((const char *)p, known[i].start, n) == 0)) {
            return known[i].is;
        }
    }
    return "the first bytes are of no kind known here";
}
