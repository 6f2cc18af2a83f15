/* core/quantize/parts.h - the files that a model is written to: under names of their own while they
 * grow (OUT.partial), with a journal of what is whole, so that work that was cut off goes on.
 *
 * The journal OUT.partial.journal: a line of what is being made (heads of all files, importance,
 * the options that decide bytes), then one line for each tensor that is on disk, "number hash
 * source", source being a digest of what it was made of. The journal is locked as long as it is
 * written: there is one writer of an output at a time.
 */
#ifndef GW_QUANTIZE_PARTS_H
#define GW_QUANTIZE_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/quantize/gguf_out.h"

typedef struct gw_out_file {
    char *path, *partial;
    int fd;
    gw_bytes head;
    uint64_t bytes; /* of the whole file */
} gw_out_file;

typedef struct gw_parts {
    gw_out_file *list;
    int n;
    char *journal;
    int journal_fd;
    uint64_t identity; /* of what is made */
    uint64_t *hashes;  /* [tensors] of those that the journal names, else 0 */
    uint64_t *sources; /* [tensors] the same of what they were made of      */
} gw_parts;

/* out: the file's name; of several parts NAME-00001-of-0000n.gguf. heads and sizes of list [n] are
 * then the caller's to fill. */
gw_status gw_parts_new(const char *out, int n, gw_parts *p);
/* Opens the files and writes their heads; with resume and a journal of the same identity goes on
 * with those that are there (*resumed 1). GW_E_IO says how much room is needed and left, or that
 * another process writes the same output. */
gw_status gw_parts_begin(gw_parts *p, int resume, size_t tensors, int *resumed);
gw_status gw_parts_write(const gw_parts *p, int part, uint64_t at, const void *data, size_t bytes);
gw_status gw_parts_read(const gw_parts *p, int part, uint64_t at, void *data, size_t bytes);
/* The tensor's bytes are written; source: digest of what they were made of. */
gw_status gw_parts_note(gw_parts *p, size_t tensor, uint64_t hash, uint64_t source);
/* Checks every file with our own reader, then gives them their names. */
gw_status gw_parts_end(gw_parts *p);
/* keep: what is there stays for --resume. */
void gw_parts_free(gw_parts *p, int keep);

/* The hash of bytes that come in pieces: begin with 0, every piece but the last of a multiple of 8
 * bytes. */
uint64_t gw_parts_hash(uint64_t before, const void *data, size_t bytes);

#endif
