/* core/text/answer/answer_pattern.c - see answer_pattern.h. */
#include "core/text/answer/answer_pattern.h"

#include <string.h>

static void put(gw_pattern *p, unsigned symbol) {
    gw_step *last = p->n > 0 ? &p->steps[p->n - 1] : NULL;
    uint8_t kind = gw_symbol_is_space(symbol) ? GW_STEP_SPACE : GW_STEP_TEXT;
    if (p->n_symbols == GW_SYMBOLS_MAX) {
        return;
    }
    if (last == NULL || last->kind != kind) {
        if (p->n == GW_STEPS_MAX) {
            return;
        }
        last = &p->steps[p->n++];
        *last = (gw_step){.kind = kind, .at = (uint16_t)p->n_symbols};
    }
    p->symbols[p->n_symbols++] = (uint16_t)symbol;
    last->n++;
}

/* "{X}": *at stands on X and is left behind the brace. */
static void put_mark(gw_pattern *p, const char **at, const gw_marks *marks) {
    size_t n = strcspn(*at, "}");
    int token = marks->is_token != NULL && marks->is_token(marks->user, *at, n);
    if (token) {
        put(p, GW_SYMBOL_OPENS);
    }
    for (size_t i = 0; i < n; i++) {
        put(p, (unsigned char)(*at)[i]);
    }
    if (token) {
        put(p, GW_SYMBOL_CLOSES);
    }
    *at += n + 1;
}

void gw_pattern_read(const char *text, const gw_marks *marks, gw_pattern *out) {
    static const char letters[] = "nidaolpgykvst";
    static const uint8_t kinds[] = {GW_STEP_NAME,   GW_STEP_ID,   GW_STEP_NUMBER, GW_STEP_ARGUMENTS,
                                    GW_STEP_OBJECT, GW_STEP_LIST, GW_STEP_PARAMS, GW_STEP_GEMMA,
                                    GW_STEP_PYTHON, GW_STEP_KEY,  GW_STEP_VALUE,  GW_STEP_IS_TEXT,
                                    GW_STEP_TYPE};
    out->n = out->n_symbols = 0;
    for (const char *at = text != NULL ? text : ""; *at != '\0';) {
        const char *slot = at[0] == '%' && at[1] != '\0' ? strchr(letters, at[1]) : NULL;
        if (slot != NULL && out->n < GW_STEPS_MAX) {
            out->steps[out->n++] = (gw_step){.kind = kinds[slot - letters]};
            at += 2;
        } else if (at[0] == '{' && at[1] != '{') {
            at++;
            put_mark(out, &at, marks);
        } else {
            put(out, (unsigned char)*at);
            at += at[0] == '{' ? 2 : 1;
        }
    }
}

const gw_step *gw_pattern_first(const gw_pattern *p) {
    for (size_t i = 0; i < p->n && p->steps[i].kind <= GW_STEP_SPACE; i++) {
        if (p->steps[i].kind == GW_STEP_TEXT) {
            return &p->steps[i];
        }
    }
    return NULL;
}

const uint16_t *gw_pattern_mark(const gw_pattern *p, size_t *n) {
    size_t first = 0, last = p->n_symbols;
    while (first < last && gw_symbol_is_space(p->symbols[first])) {
        first++;
    }
    while (last > first && gw_symbol_is_space(p->symbols[last - 1])) {
        last--;
    }
    *n = last - first;
    return p->symbols + first;
}

size_t gw_pattern_find(const gw_pattern *p, gw_step_kind kind) {
    size_t i = 0;
    while (i < p->n && p->steps[i].kind != (uint8_t)kind) {
        i++;
    }
    return i;
}
