/* core/text/template/memory.c - what a rendering holds: memory by limit, texts with their marks,
 * texts that grow.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/template/render.h"
#include "core/text/utf8.h"

enum { CHUNK = 32 << 10 };

struct gw_tpl_chunk {
    gw_tpl_chunk *next;
    size_t used, room; /* of a text: of the marks as well */
    max_align_t at[];
};

_Noreturn void gw_tpl_raise(gw_tpl *r, gw_status status, const char *fmt, ...) {
    char message[1600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    r->status = r->input != NULL ? gw_fail(status, r->input, "%s", message)
                                 : gw_fail(status, r->t->where, "line %d: %s", r->line, message);
    longjmp(r->failed, 1);
}

_Noreturn void gw_tpl_raise_undefined(gw_tpl *r, gw_tv v) {
    int n = v.n > 200 ? 200 : (int)v.n;
    switch (v.part) {
    case GW_TPL_NO_NAME:
        gw_tpl_raise(r, GW_E_TYPE, "'%.*s' is undefined", n, v.text);
    case GW_TPL_NO_MEMBER:
        gw_tpl_raise(r, GW_E_TYPE, "'%s' has no attribute '%.*s'",
                     gw_tv_type_repr((gw_tv){.kind = (uint8_t)v.owner}), n, v.text);
    case GW_TPL_NO_ACCESS:
        gw_tpl_raise(r, GW_E_FORBIDDEN, "access to attribute '%.*s' of '%s' object is unsafe.", n,
                     v.text, gw_tv_type((gw_tv){.kind = (uint8_t)v.owner}));
    default:
        gw_tpl_raise(r, GW_E_TYPE, "%.*s", n, v.text);
    }
}

void gw_tpl_charge(gw_tpl *r, size_t n) {
    r->steps += n;
    if (r->steps > r->steps_max) {
        gw_tpl_raise(r, GW_E_LIMIT, "the template takes more than %llu steps",
                     (unsigned long long)r->steps_max);
    }
}

void gw_tpl_deeper(gw_tpl *r) {
    if (++r->nested > GW_TPL_NESTED) {
        gw_tpl_raise(r, GW_E_LIMIT,
                     "calls and operations nest too deeply (a recursion without end?)");
    }
}

void gw_tpl_back(gw_tpl *r) { r->nested--; }

/* ---- memory ---------------------------------------------------------------------------------- */

static void hold(gw_tpl *r, size_t bytes) {
    if (bytes > r->memory_max - r->memory) {
        gw_tpl_raise(r, GW_E_LIMIT, "the template needs more than %zu MiB of memory",
                     r->memory_max >> 20);
    }
    r->memory += bytes;
}

/* Room for `bytes` in the newest chunk of the list; marks: as much again behind them. */
static gw_tpl_chunk *room_for(gw_tpl *r, gw_tpl_chunk **list, size_t bytes, int marks) {
    gw_tpl_chunk *c = *list;
    if (c != NULL && bytes <= c->room - c->used) {
        return c;
    }
    size_t room = bytes < CHUNK / 4 ? CHUNK : bytes + CHUNK / 4;
    size_t all = sizeof *c + (marks ? 2 : 1) * room;
    hold(r, all);
    c = malloc(all);
    if (c == NULL) {
        gw_tpl_raise(r, GW_E_NOMEM, "no memory");
    }
    *c = (gw_tpl_chunk){.next = *list, .room = room};
    *list = c;
    return c;
}

void *gw_tpl_alloc(gw_tpl *r, size_t bytes) {
    size_t align = sizeof(max_align_t);
    if (bytes > r->memory_max) {
        hold(r, bytes);
    }
    bytes = (bytes + align - 1) / align * align;
    gw_tpl_chunk *c = room_for(r, &r->chunks, bytes, 0);
    char *at = (char *)c->at + c->used;
    c->used += bytes;
    return memset(at, 0, bytes);
}

void *gw_tpl_array(gw_tpl *r, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    return gw_tpl_alloc(r, bytes);
}

/* ---- texts ----------------------------------------------------------------------------------- */

gw_tv gw_tv_text(const char *text, size_t n) {
    return (gw_tv){.kind = GW_TV_TEXT, .text = text, .n = (uint32_t)n};
}

gw_tv gw_tv_words(const char *text) { return gw_tv_text(text, strlen(text)); }

gw_tv gw_tv_cut(gw_tv text, size_t from, size_t n) {
    text.text += from;
    text.n = (uint32_t)n;
    if (text.typed != NULL) {
        text.typed += from;
    }
    return text;
}

int gw_tv_same_text(gw_tv text, const char *word) {
    return text.kind == GW_TV_TEXT && text.n == strlen(word) &&
           memcmp(text.text, word, text.n) == 0;
}

static char *chunk_text(gw_tpl_chunk *c) { return (char *)c->at; }
static uint8_t *chunk_marks(gw_tpl_chunk *c) { return (uint8_t *)c->at + c->room; }

static void copy_marks(uint8_t *to, gw_tv text) {
    if (text.typed != NULL) {
        memcpy(to, text.typed, text.n);
    } else {
        memset(to, text.all_typed, text.n);
    }
}

static int all_alike(gw_tv a, gw_tv b) {
    return a.typed == NULL && b.typed == NULL && (a.all_typed != 0) == (b.all_typed != 0);
}

/* A chunk of its own for a text that may go on growing, behind the newest one. */
static gw_tpl_chunk *room_to_grow(gw_tpl *r, size_t n) {
    size_t room = n + n / 2;
    hold(r, sizeof(gw_tpl_chunk) + 2 * room);
    gw_tpl_chunk *c = malloc(sizeof *c + 2 * room);
    if (c == NULL) {
        gw_tpl_raise(r, GW_E_NOMEM, "no memory");
    }
    *c = (gw_tpl_chunk){.next = r->texts != NULL ? r->texts->next : NULL, .room = room};
    if (r->texts != NULL) {
        r->texts->next = c;
    } else {
        r->texts = c;
    }
    r->growing[r->grown++ % GW_TPL_GROWING] = c;
    return c;
}

/* The chunk at whose end the text stands, with room for n more; NULL: none. */
static gw_tpl_chunk *chunk_behind(const gw_tpl *r, gw_tv text, size_t n) {
    gw_tpl_chunk *c = r->texts;
    for (size_t i = 0; i <= GW_TPL_GROWING; c = i < GW_TPL_GROWING ? r->growing[i] : NULL, i++) {
        if (c != NULL && text.text + text.n == chunk_text(c) + c->used && n <= c->room - c->used) {
            return c;
        }
    }
    return NULL;
}

/* A text that ends where its chunk does is lengthened there: what others see of it stays as it is,
 * and a text that grows piece by piece is not copied each time. */
gw_tv gw_tv_join2(gw_tpl *r, gw_tv a, gw_tv b) {
    enum { LONG = 2048 };
    if (a.n == 0 || b.n == 0) {
        return a.n == 0 ? b : a;
    }
    size_t n = (size_t)a.n + b.n;
    gw_tpl_chunk *c = chunk_behind(r, a, b.n);
    int grows = c != NULL;
    gw_tpl_charge(r, (grows ? b.n : n) / 64);
    if (!grows) {
        c = n < LONG ? room_for(r, &r->texts, n, 1) : room_to_grow(r, n);
        memcpy(chunk_text(c) + c->used, a.text, a.n);
    }
    size_t begin = grows ? (size_t)(a.text - chunk_text(c)) : c->used;
    memcpy(chunk_text(c) + begin + a.n, b.text, b.n);
    c->used = begin + n;
    gw_tv out = gw_tv_text(chunk_text(c) + begin, n);
    if (all_alike(a, b)) {
        out.all_typed = a.all_typed;
        return out;
    }
    uint8_t *marks = chunk_marks(c) + begin;
    if (a.typed != marks) {
        copy_marks(marks, a);
    }
    copy_marks(marks + a.n, b);
    out.typed = marks;
    return out;
}

/* ---- texts that are built -------------------------------------------------------------------- */

gw_tpl_out *gw_tpl_out_open(gw_tpl *r) {
    gw_tpl_out *out = r->outs;
    while (out != NULL && out->used) {
        out = out->next;
    }
    if (out == NULL) {
        hold(r, sizeof *out);
        out = calloc(1, sizeof *out);
        if (out == NULL) {
            gw_tpl_raise(r, GW_E_NOMEM, "no memory");
        }
        out->next = r->outs;
        r->outs = out;
    }
    out->used = 1;
    out->n = out->n_typed = 0;
    return out;
}

static void out_room(gw_tpl *r, gw_tpl_out *out, size_t n) {
    if (n > SIZE_MAX / 8 - out->n || out->n + n > UINT32_MAX) {
        hold(r, SIZE_MAX / 2);
    }
    size_t need = out->n + n;
    gw_tpl_charge(r, n / 32);
    if (need <= out->room) {
        return;
    }
    size_t room = out->room * 2 > need ? out->room * 2 : need + 256;
    hold(r, 2 * (room - out->room));
    char *data = realloc(out->data, room);
    if (data != NULL) {
        out->data = data;
    }
    uint8_t *typed = realloc(out->typed, room);
    if (typed != NULL) {
        out->typed = typed;
    }
    if (data == NULL || typed == NULL) {
        gw_tpl_raise(r, GW_E_NOMEM, "no memory");
    }
    out->room = room;
}

void gw_tpl_out_add(gw_tpl *r, gw_tpl_out *out, const char *text, size_t n, int typed) {
    out_room(r, out, n);
    if (n > 0) {
        memcpy(out->data + out->n, text, n);
        memset(out->typed + out->n, typed != 0, n);
    }
    out->n += n;
    out->n_typed += typed ? n : 0;
}

void gw_tpl_out_words(gw_tpl *r, gw_tpl_out *out, const char *words) {
    gw_tpl_out_add(r, out, words, strlen(words), 0);
}

void gw_tpl_out_text(gw_tpl *r, gw_tpl_out *out, gw_tv text) {
    if (text.typed == NULL) {
        gw_tpl_out_add(r, out, text.text, text.n, text.all_typed);
        return;
    }
    out_room(r, out, text.n);
    memcpy(out->data + out->n, text.text, text.n);
    memcpy(out->typed + out->n, text.typed, text.n);
    for (size_t i = 0; i < text.n; i++) {
        out->n_typed += text.typed[i];
    }
    out->n += text.n;
}

void gw_tpl_out_char(gw_tpl *r, gw_tpl_out *out, uint32_t cp, int typed) {
    char c[4];
    gw_tpl_out_add(r, out, c, gw_utf8_put(cp, c), typed);
}

void gw_tpl_out_repeat(gw_tpl *r, gw_tpl_out *out, gw_tv text, size_t times) {
    size_t n;
    if (__builtin_mul_overflow(times, (size_t)text.n, &n)) {
        n = SIZE_MAX;
    }
    if (n == 0) {
        return;
    }
    out_room(r, out, n);
    for (size_t i = 0; i < times; i++) {
        gw_tpl_out_text(r, out, text);
    }
}

gw_tv gw_tpl_out_close(gw_tpl *r, gw_tpl_out *out) {
    size_t n = out->n;
    gw_tpl_chunk *c = room_for(r, &r->texts, n, 1);
    gw_tv text = gw_tv_text(chunk_text(c) + c->used, n);
    if (n > 0) {
        memcpy(chunk_text(c) + c->used, out->data, n);
    }
    text.all_typed = n > 0 && out->n_typed == n;
    if (out->n_typed > 0 && out->n_typed < n) {
        memcpy(chunk_marks(c) + c->used, out->typed, n);
        text.typed = chunk_marks(c) + c->used;
    }
    c->used += n;
    out->used = 0;
    return text;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void free_chunks(gw_tpl_chunk *c) {
    while (c != NULL) {
        gw_tpl_chunk *next = c->next;
        free(c);
        c = next;
    }
}

void gw_tpl_release(gw_tpl *r) {
    free_chunks(r->chunks);
    free_chunks(r->texts);
    for (gw_tpl_out *out = r->outs, *next; out != NULL; out = next) {
        next = out->next;
        free(out->data);
        free(out->typed);
        free(out);
    }
}
