/* apps/serve/http.h - reads HTTP/1.1 requests, strictly (RFC 9112): what two programs could read in
 * two ways is refused. Knows bytes only: no sockets, no clocks.
 *
 * Refused with 400: a line that does not end with CR LF, a CR or NUL anywhere else, a name that is
 * no token or has white space behind it, a folded line, no Host or two, a length that is repeated,
 * signed or a list, a length beside a coding, any coding but `chunked`, chunk sizes that are no
 * plain hexadecimal number. Nothing behind a refused head is read as a request.
 */
#ifndef GW_APPS_SERVE_HTTP_H
#define GW_APPS_SERVE_HTTP_H

#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_HEAD_MAX = 65536, /* bytes of a head */
    HTTP_FIELDS_MAX = 100,
    HTTP_TRAILER_MAX = 8192,     /* bytes behind the last chunk */
    HTTP_CHUNK_LINE_MAX = 1024,  /* of a chunk's size and extensions */
    HTTP_BODY_MAX = 64 * 1048576 /* bytes */
};

typedef struct http_fault {
    int status;       /* 0: none */
    const char *what; /* one line */
} http_fault;

/* Where a head ends. Begin with zeros; `scanned` and `state` go on where the last call stopped. */
typedef struct http_scan {
    size_t scanned;
    int state;
} http_scan;

/* The bytes that have come so far, at [n]. The length of the head with its empty line, 0 when more
 * must come; *fault when nothing that comes can make it one. An empty line before the request is
 * part of it. */
size_t http_scan_head(http_scan *scan, const char *at, size_t n, http_fault *fault);

typedef struct http_field {
    const char *name, *value; /* NUL-terminated; the value without white space around it */
} http_field;

typedef struct http_head {
    char *bytes; /* malloc'd: what the rest points into */
    const char *method, *query;
    const char *target; /* as it came */
    char *path;         /* percent-decoded; never NULL */
    int minor;          /* of HTTP/1.minor */
    int64_t length;     /* of the body; -1: none was given */
    int chunked, keep_alive, expects_continue;
    size_t n_fields;
    http_field fields[HTTP_FIELDS_MAX];
} http_head;

/* A whole head, at [n] as http_scan_head found it. 0, or -1 and *fault; http_head_free in both
 * cases. */
int http_head_read(http_head *head, const char *at, size_t n, http_fault *fault);
void http_head_free(http_head *head);
/* The value of the first field of that name, in any case; NULL: none. */
const char *http_head_field(const http_head *head, const char *name);

/* A body in chunks. Begin with zeros. */
typedef struct http_chunks {
    int state;
    uint64_t left, total; /* of this chunk; of the body so far */
    size_t line, trailer; /* bytes of the size line, of the trailers */
    int digits, done;
} http_chunks;

/* Reads from at [n], of which *used are taken; what of it belongs to the body is moved to the front
 * of at, *body bytes. 0, or -1 and *fault. Behind the last chunk `done` is set and nothing more is
 * taken. */
int http_chunks_read(http_chunks *chunks, char *at, size_t n, size_t *used, size_t *body,
                     http_fault *fault);

const char *http_reason(int status); /* "Not Found" */

#endif
