/* core/model/families.c - the embedded specs as a list of names: include/godwit_families.h. */
#include "include/godwit_families.h"

#include "core/model/spec.h"

int gw_family_at(size_t i, gw_family *out) {
    const gw_spec *spec;
    for (size_t at = 0; (spec = gw_spec_at(at)) != NULL; at++) {
        gw_family f;
        gw_spec_words(spec, "gguf", f.gguf, sizeof f.gguf);
        gw_spec_words(spec, "hf", f.hf, sizeof f.hf);
        if (f.gguf[0] == '\0' && f.hf[0] == '\0') {
            continue; /* a predictor, opened by its family's name alone */
        }
        if (i-- == 0) {
            gw_spec_words(spec, "family", f.name, sizeof f.name);
            *out = f;
            return 1;
        }
    }
    return 0;
}
