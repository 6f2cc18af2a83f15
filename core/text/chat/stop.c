/* core/text/chat/stop.c - stop strings in a text that comes in pieces; see godwit.h.
 *
 * Byte by byte: held is the longest end of the text that begins a stop string, so it never grows
 * beyond the longest of them.
 */
#include <stdlib.h>
#include <string.h>

#include "core/text/buffer.h"

enum { STOPS_MAX = 64, STOP_BYTES_MAX = 1000 };

struct gw_stop {
    gw_bytes words; /* one after the other */
    size_t at[STOPS_MAX + 1];
    size_t n;
    char held[STOP_BYTES_MAX + 1];
    size_t n_held;
    gw_bytes out;
    int hit;
};

gw_status gw_stop_new(const char *const *texts, size_t n, gw_stop **out) {
    if (n > STOPS_MAX) {
        return gw_fail(GW_E_LIMIT, "stop", "%zu stop strings; at most %d are allowed", n,
                       STOPS_MAX);
    }
    gw_stop *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, "stop", "no memory");
    }
    gw_status status = GW_OK;
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        size_t bytes = strlen(texts[i]);
        status = bytes == 0 || bytes > STOP_BYTES_MAX
                     ? gw_fail(GW_E_ARGUMENT, "stop",
                               "a stop string has %zu bytes; 1 to %d are "
                               "allowed",
                               bytes, STOP_BYTES_MAX)
                     : gw_bytes_add(&s->words, texts[i], bytes);
        s->at[i + 1] = s->words.n;
    }
    s->n = n;
    s->hit = -1;
    if (status != GW_OK) {
        gw_stop_free(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

void gw_stop_free(gw_stop *stop) {
    if (stop != NULL) {
        free(stop->words.data);
        free(stop->out.data);
        free(stop);
    }
}

void gw_stop_reset(gw_stop *stop) {
    stop->n_held = 0;
    stop->hit = -1;
}

/* The longest end of held [n] that is the beginning of word i, all of the word included. */
static size_t ending(const gw_stop *s, size_t i) {
    const char *word = s->words.data + s->at[i];
    size_t bytes = s->at[i + 1] - s->at[i], n = s->n_held < bytes ? s->n_held : bytes;
    while (n > 0 && memcmp(s->held + s->n_held - n, word, n) != 0) {
        n--;
    }
    return n;
}

static gw_status release(gw_stop *s, size_t n) {
    GW_TRY(gw_bytes_add(&s->out, s->held, n));
    memmove(s->held, s->held + n, s->n_held - n);
    s->n_held -= n;
    return GW_OK;
}

/* One more byte; of the strings that are whole now the longest counts. */
static gw_status take(gw_stop *s, char byte) {
    size_t keep = 0, longest = 0;
    s->held[s->n_held++] = byte;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = ending(s, i);
        keep = n > keep ? n : keep;
        if (n == s->at[i + 1] - s->at[i] && n > longest) {
            longest = n;
            s->hit = (int)i;
        }
    }
    if (s->hit >= 0) {
        GW_TRY(release(s, s->n_held - longest));
        s->n_held = 0;
        return GW_OK;
    }
    return release(s, s->n_held - keep);
}

gw_status gw_stop_push(gw_stop *stop, const char *text, size_t bytes, int last, const char **safe,
                       size_t *safe_bytes, int *hit) {
    stop->out.n = 0;
    for (size_t i = 0; i < bytes && stop->hit < 0; i++) {
        GW_TRY(take(stop, text[i]));
    }
    if (last && stop->hit < 0) {
        GW_TRY(release(stop, stop->n_held));
    }
    GW_TRY(gw_bytes_add(&stop->out, "", 1));
    *safe = stop->out.data;
    *safe_bytes = stop->out.n - 1;
    *hit = stop->hit;
    return GW_OK;
}
