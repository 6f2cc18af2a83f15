/* core/model/families.c - the embedded specs as a list of names: include/godwit_families.h. */
#include "include/godwit_families.h"

#include <string.h>

#include "core/model/spec.h"
#include "core/model/spec_parts.h"

/* Appends the words of every line `key ...` of a spec. */
static void words_of(const gw_spec *spec, const char *key, char *out, size_t room) {
    gw_spec_line l;
    size_t used = 0;
    out[0] = '\0';
    for (const char *p = gw_spec_text(spec); p != NULL && *p != '\0';) {
        p = gw_spec_split(p, &l);
        for (int i = 1; p != NULL && i < l.n && gw_spec_is(l.word[0], key); i++) {
            size_t n = l.word[i].n;
            if (used + n + 2 > room) {
                return;
            }
            if (used > 0) {
                out[used++] = ' ';
            }
            memcpy(out + used, l.word[i].at, n);
            used += n;
            out[used] = '\0';
        }
    }
}

int gw_family_at(size_t i, gw_family *out) {
    const gw_spec *spec;
    for (size_t at = 0; (spec = gw_spec_at(at)) != NULL; at++) {
        gw_family f;
        words_of(spec, "gguf", f.gguf, sizeof f.gguf);
        words_of(spec, "hf", f.hf, sizeof f.hf);
        if (f.gguf[0] == '\0' && f.hf[0] == '\0') {
            continue; /* a predictor, opened by its family's name alone */
        }
        if (i-- == 0) {
            words_of(spec, "family", f.name, sizeof f.name);
            *out = f;
            return 1;
        }
    }
    return 0;
}
