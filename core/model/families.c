/* core/model/families.c - the embedded specs as a list of names: include/godwit_families.h. */
#include "include/godwit_families.h"

#include "core/model/spec.h"

int gw_family_at(size_t i, gw_family *out) {
    /* Who goes through all of them goes on from the last one: specs never change. */
    static _Thread_local size_t next_i, next_at;
    const int goes_on = i > 0 && i == next_i;
    const size_t asked = i;
    const gw_spec *spec;
    i = goes_on ? 0 : i;
    for (size_t at = goes_on ? next_at : 0; (spec = gw_spec_at(at)) != NULL; at++) {
        gw_family f;
        gw_spec_words(spec, "gguf", f.gguf, sizeof f.gguf);
        gw_spec_words(spec, "hf", f.hf, sizeof f.hf);
        if (f.gguf[0] == '\0' && f.hf[0] == '\0') {
            continue; /* a predictor, opened by its family's name alone */
        }
        if (i-- == 0) {
            gw_spec_words(spec, "family", f.name, sizeof f.name);
            *out = f;
            next_i = asked + 1;
            next_at = at + 1;
            return 1;
        }
    }
    return 0;
}
