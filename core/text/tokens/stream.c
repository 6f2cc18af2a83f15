/* core/text/tokens/stream.c - see stream.h. */
#include "core/text/tokens/stream.h"

#include "core/text/buffer.h"
#include "core/text/tokens/decode.h"
#include "core/text/utf8.h"

struct gw_text_stream {
    const gw_tokenizer *t;
    gw_decode_state state;
    gw_bytes held; /* the beginning of a character, at most 3 bytes between calls */
    gw_bytes out;
};

gw_status gw_text_stream_new(const gw_tokenizer *t, gw_text_stream **out) {
    gw_text_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for a text stream");
    }
    s->t = t;
    *out = s;
    return GW_OK;
}

void gw_text_stream_free(gw_text_stream *s) {
    if (s != NULL) {
        free(s->held.data);
        free(s->out.data);
        free(s);
    }
}

gw_status gw_text_stream_copy(gw_text_stream *s, const gw_text_stream *from) {
    s->held.n = 0;
    s->state = (gw_decode_state){0};
    if (from != NULL) {
        GW_TRY(gw_bytes_add(&s->held, from->held.data, from->held.n));
        s->state = from->state;
    }
    return GW_OK;
}

/* Move whole characters from held to out; with `all`, what remains becomes U+FFFD. */
static gw_status move(gw_text_stream *s, int all) {
    size_t at = 0;
    while (at < s->held.n) {
        const char *p = s->held.data + at;
        size_t left = s->held.n - at, good = gw_utf8_span(p, left);
        GW_TRY(gw_bytes_add(&s->out, p, good));
        at += good;
        if (good < left) {
            int open;
            size_t bad = gw_utf8_bad(p + good, left - good, &open);
            if (open && !all) {
                break;
            }
            GW_TRY(gw_bytes_add(&s->out, "\xEF\xBF\xBD", 3));
            at += bad;
        }
    }
    if (at > 0) {
        memmove(s->held.data, s->held.data + at, s->held.n - at);
        s->held.n -= at;
    }
    return GW_OK;
}

gw_status gw_text_stream_push(gw_text_stream *s, int32_t id, const char **text, size_t *bytes) {
    s->out.n = 0;
    if (id >= 0) {
        const char *piece = "";
        size_t n = 0;
        GW_TRY(gw_decode_next(s->t, &s->state, id, 0, &piece, &n));
        GW_TRY(gw_bytes_add(&s->held, piece, n));
    }
    GW_TRY(move(s, id < 0));
    GW_TRY(gw_bytes_add(&s->out, "", 1));
    *text = s->out.data;
    *bytes = s->out.n - 1;
    return GW_OK;
}
