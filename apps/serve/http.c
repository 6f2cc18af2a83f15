/* apps/serve/http.c - heads and chunked bodies: see http.h. */
#include "apps/serve/http.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/os.h"

static int refuse(http_fault *fault, int status, const char *what) {
    *fault = (http_fault){.status = status, .what = what};
    return -1;
}

/* ---- where a head ends ----------------------------------------------------------------------- */

enum { SCAN_FIRST, SCAN_FIRST_CR, SCAN_LINE, SCAN_CR, SCAN_NEW_LINE, SCAN_LAST_CR };

size_t http_scan_head(http_scan *scan, const char *at, size_t n, http_fault *fault) {
    for (; scan->scanned < n; scan->scanned++) {
        char c = at[scan->scanned];
        int after_cr =
            scan->state == SCAN_FIRST_CR || scan->state == SCAN_CR || scan->state == SCAN_LAST_CR;
        if (scan->scanned >= HTTP_HEAD_MAX) {
            refuse(fault, 431, "the request's head is longer than 64 KiB");
            return 0;
        }
        if (c == '\0') {
            refuse(fault, 400, "a NUL in the request's head");
            return 0;
        }
        if (after_cr != (c == '\n')) {
            refuse(fault, 400, "a line of the request's head does not end with CR LF");
            return 0;
        }
        switch (scan->state) {
        case SCAN_FIRST: /* an empty line may come before the request */
            scan->state = c == '\r' ? SCAN_FIRST_CR : SCAN_LINE;
            break;
        case SCAN_FIRST_CR:
            scan->state = SCAN_LINE;
            break;
        case SCAN_LINE:
            scan->state = c == '\r' ? SCAN_CR : SCAN_LINE;
            break;
        case SCAN_CR:
            scan->state = SCAN_NEW_LINE;
            break;
        case SCAN_NEW_LINE:
            scan->state = c == '\r' ? SCAN_LAST_CR : SCAN_LINE;
            break;
        default:
            return ++scan->scanned;
        }
    }
    return 0;
}

/* ---- characters ------------------------------------------------------------------------------ */

/* RFC 9110, 5.6.2 */
static int is_token_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static int is_token(const char *text) {
    const char *at = text;
    while (is_token_char(*at)) {
        at++;
    }
    return at > text && *at == '\0';
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* In place. -1: a percent sign without two digits, or one that stands for a NUL. */
static int percent_decode(char *text) {
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        char c = *at;
        if (c == '%') {
            int high = hex_value(at[1]), low = high < 0 ? -1 : hex_value(at[2]);
            if (low < 0 || high * 16 + low == 0) {
                return -1;
            }
            c = (char)(high * 16 + low);
            at += 2;
        }
        *to++ = c;
    }
    *to = '\0';
    return 0;
}

/* ---- the request line ------------------------------------------------------------------------ */

/* "METHOD TARGET HTTP/1.x" with one space between. */
static int read_request_line(http_head *head, char *line, http_fault *fault) {
    char *target = strchr(line, ' ');
    char *version = target != NULL ? strchr(target + 1, ' ') : NULL;
    if (version == NULL || strchr(version + 1, ' ') != NULL) {
        return refuse(fault, 400, "the request line is not METHOD TARGET HTTP/1.1");
    }
    *target++ = *version++ = '\0';
    if (!is_token(line)) {
        return refuse(fault, 400, "the method is no token");
    }
    if (strncmp(version, "HTTP/", 5) != 0 || strlen(version) != 8 || version[6] != '.' ||
        version[5] < '0' || version[5] > '9' || version[7] < '0' || version[7] > '9') {
        return refuse(fault, 400, "the request line is not METHOD TARGET HTTP/1.1");
    }
    if (version[5] != '1') {
        return refuse(fault, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    }
    for (const char *c = target; *c != '\0'; c++) {
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f || *c == '#') {
            return refuse(fault, 400, "a character in the request's target that may not be there");
        }
    }
    head->method = line;
    head->target = target;
    head->minor = version[7] - '0';
    return 0;
}

/* The path and the query of "/path?query", "http://host/path?query" or "*". */
static int read_target(http_head *head, http_fault *fault) {
    const char *from = head->target;
    if (strncasecmp(from, "http://", 7) == 0) {
        from += 7 + strcspn(from + 7, "/?");
    } else if (from[0] != '/' && strcmp(from, "*") != 0) {
        return refuse(fault, 400, "the request's target is no path");
    }
    size_t n = strcspn(from, "?");
    head->query = from + n + (from[n] == '?');
    head->path = n > 0 ? strndup(from, n) : strdup("/");
    if (head->path == NULL) {
        return refuse(fault, 503, "out of memory");
    }
    if (percent_decode(head->path) != 0) {
        return refuse(fault, 400, "a percent sign in the path without two hexadecimal digits");
    }
    return 0;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static int read_field(http_head *head, char *line, http_fault *fault) {
    char *colon = strchr(line, ':');
    if (line[0] == ' ' || line[0] == '\t') {
        return refuse(fault, 400, "a folded line in the request's head");
    }
    if (colon == NULL) {
        return refuse(fault, 400, "a line of the request's head without a colon");
    }
    *colon = '\0';
    if (!is_token(line)) {
        return refuse(fault, 400, "a field's name is no token");
    }
    if (head->n_fields == HTTP_FIELDS_MAX) {
        return refuse(fault, 431, "more than 100 fields in the request's head");
    }
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t')) {
        value[--n] = '\0';
    }
    for (const char *c = value; *c != '\0'; c++) {
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f) {
            return refuse(fault, 400, "a control character in a field of the request's head");
        }
    }
    head->fields[head->n_fields++] = (http_field){.name = line, .value = value};
    return 0;
}

const char *http_head_field(const http_head *head, const char *name) {
    for (size_t i = 0; i < head->n_fields; i++) {
        if (strcasecmp(head->fields[i].name, name) == 0) {
            return head->fields[i].value;
        }
    }
    return NULL;
}

static int count_field(const http_head *head, const char *name) {
    int count = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        count += strcasecmp(head->fields[i].name, name) == 0;
    }
    return count;
}

/* Is word an element of one of the comma lists of that name? */
static int has_word(const http_head *head, const char *name, const char *word) {
    for (size_t i = 0; i < head->n_fields; i++) {
        if (strcasecmp(head->fields[i].name, name) != 0) {
            continue;
        }
        for (const char *at = head->fields[i].value; *at != '\0';) {
            at += strspn(at, " \t,");
            size_t n = strcspn(at, " \t,");
            if (n == strlen(word) && strncasecmp(at, word, n) == 0) {
                return 1;
            }
            at += n;
        }
    }
    return 0;
}

static int read_length(http_head *head, const char *text, http_fault *fault) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || text[n] != '\0') {
        return refuse(fault, 400, "Content-Length is no plain number");
    }
    if (n > 15) {
        return refuse(fault, 413, "the body is longer than 64 MiB");
    }
    head->length = strtoll(text, NULL, 10);
    return 0;
}

/* How the body is cut out of what comes. */
static int read_framing(http_head *head, http_fault *fault) {
    int lengths = count_field(head, "Content-Length");
    int codings = count_field(head, "Transfer-Encoding");
    head->length = -1;
    if (lengths > 1) {
        return refuse(fault, 400, "more than one Content-Length");
    }
    if (codings > 1 || (codings == 1 && lengths == 1)) {
        return refuse(fault, 400, "more than one way is said to find the end of the body");
    }
    if (codings == 1) {
        if (head->minor == 0) {
            return refuse(fault, 400, "HTTP/1.0 knows no Transfer-Encoding");
        }
        if (strcasecmp(http_head_field(head, "Transfer-Encoding"), "chunked") != 0) {
            return refuse(fault, 400, "a Transfer-Encoding that is not 'chunked'");
        }
        head->chunked = 1;
    }
    return lengths == 1 ? read_length(head, http_head_field(head, "Content-Length"), fault) : 0;
}

static int read_rest(http_head *head, http_fault *fault) {
    int hosts = count_field(head, "Host");
    if (hosts > 1 || (hosts == 0 && head->minor > 0)) {
        return refuse(fault, 400, hosts > 1 ? "more than one Host" : "no Host");
    }
    const char *expect = http_head_field(head, "Expect");
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0) {
        return refuse(fault, 417, "only '100-continue' can be expected here");
    }
    head->expects_continue = expect != NULL && head->minor > 0;
    head->keep_alive = head->minor > 0 ? !has_word(head, "Connection", "close")
                                       : has_word(head, "Connection", "keep-alive");
    return read_framing(head, fault);
}

int http_head_read(http_head *head, const char *at, size_t n, http_fault *fault) {
    *head = (http_head){.length = -1, .method = "", .target = "", .query = ""};
    if (n >= 2 && at[0] == '\r') { /* the empty line that may come before */
        at += 2;
        n -= 2;
    }
    head->bytes = strndup(at, n);
    if (head->bytes == NULL) {
        return refuse(fault, 503, "out of memory");
    }
    char *line = head->bytes;
    for (int first = 1; line[0] != '\r' && line[0] != '\0'; first = 0) {
        char *end = strstr(line, "\r\n");
        if (end == NULL) {
            return refuse(fault, 400, "the request's head does not end");
        }
        *end = '\0';
        if ((first ? read_request_line(head, line, fault) : read_field(head, line, fault)) != 0) {
            return -1;
        }
        line = end + 2;
    }
    if (head->method[0] == '\0') {
        return refuse(fault, 400, "the request line is not METHOD TARGET HTTP/1.1");
    }
    return read_target(head, fault) != 0 ? -1 : read_rest(head, fault);
}

void http_head_free(http_head *head) {
    free(head->bytes);
    free(head->path);
    *head = (http_head){.length = -1};
}

/* ---- chunks ---------------------------------------------------------------------------------- */

enum {
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER,
    CHUNK_TRAILER_LINE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF
};

/* One byte of a chunk's size line. */
static int size_byte(http_chunks *c, char byte, http_fault *fault) {
    int digit = hex_value(byte);
    if (++c->line > HTTP_CHUNK_LINE_MAX) {
        return refuse(fault, 400, "the line of a chunk's size is too long");
    }
    if (c->state == CHUNK_SIZE && digit >= 0) {
        if (++c->digits > 15) {
            return refuse(fault, 413, "the body is longer than 64 MiB");
        }
        c->left = c->left * 16 + (uint64_t)digit;
        return 0;
    }
    if (c->digits == 0) {
        return refuse(fault, 400, "a chunk without a size");
    }
    if (byte == '\r') {
        c->state = CHUNK_SIZE_LF;
    } else if (c->state == CHUNK_SIZE && byte == ';') {
        c->state = CHUNK_EXTENSION;
    } else if (c->state == CHUNK_SIZE || byte == '\n' || byte == '\0') {
        return refuse(fault, 400, "a chunk's size is no plain hexadecimal number");
    }
    return 0;
}

/* One byte that is none of the data. */
static int frame_byte(http_chunks *c, char byte, http_fault *fault) {
    static const struct {
        char byte;
        int next;
    } only[] = {[CHUNK_DATA_CR] = {'\r', CHUNK_DATA_LF},
                [CHUNK_DATA_LF] = {'\n', CHUNK_SIZE},
                [CHUNK_TRAILER_LF] = {'\n', CHUNK_TRAILER},
                [CHUNK_END_LF] = {'\n', CHUNK_TRAILER}};
    switch (c->state) {
    case CHUNK_SIZE:
    case CHUNK_EXTENSION:
        return size_byte(c, byte, fault);
    case CHUNK_SIZE_LF:
        if (byte != '\n') {
            break;
        }
        c->total += c->left;
        if (c->total > HTTP_BODY_MAX) {
            return refuse(fault, 413, "the body is longer than 64 MiB");
        }
        c->state = c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
        c->digits = 0;
        c->line = 0;
        return 0;
    case CHUNK_TRAILER:
    case CHUNK_TRAILER_LINE:
        if (++c->trailer > HTTP_TRAILER_MAX) {
            return refuse(fault, 431, "the trailers are longer than 8 KiB");
        }
        if (byte == '\n' || byte == '\0') {
            break;
        }
        if (byte == '\r') {
            c->state = c->state == CHUNK_TRAILER ? CHUNK_END_LF : CHUNK_TRAILER_LF;
        } else {
            c->state = CHUNK_TRAILER_LINE;
        }
        return 0;
    default:
        if (byte != only[c->state].byte) {
            break;
        }
        c->done = c->state == CHUNK_END_LF;
        c->state = only[c->state].next;
        return 0;
    }
    return refuse(fault, 400, "a line of the chunked body does not end with CR LF");
}

int http_chunks_read(http_chunks *c, char *at, size_t n, size_t *used, size_t *body,
                     http_fault *fault) {
    size_t i = 0, kept = 0;
    while (i < n && !c->done) {
        if (c->state != CHUNK_DATA) {
            if (frame_byte(c, at[i++], fault) != 0) {
                return -1;
            }
            continue;
        }
        size_t part = n - i < c->left ? n - i : (size_t)c->left;
        memmove(at + kept, at + i, part);
        kept += part;
        i += part;
        c->left -= part;
        c->state = c->left == 0 ? CHUNK_DATA_CR : CHUNK_DATA;
    }
    *used = i;
    *body = kept;
    return 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *http_reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } rows[] = {{200, "OK"},
                {204, "No Content"},
                {304, "Not Modified"},
                {400, "Bad Request"},
                {401, "Unauthorized"},
                {403, "Forbidden"},
                {404, "Not Found"},
                {405, "Method Not Allowed"},
                {408, "Request Timeout"},
                {413, "Content Too Large"},
                {415, "Unsupported Media Type"},
                {417, "Expectation Failed"},
                {429, "Too Many Requests"},
                {431, "Request Header Fields Too Large"},
                {500, "Internal Server Error"},
                {501, "Not Implemented"},
                {503, "Service Unavailable"},
                {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].status == status) {
            return rows[i].reason;
        }
    }
    return "Error";
}
