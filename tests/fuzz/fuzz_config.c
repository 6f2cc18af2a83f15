/* tests/fuzz/fuzz_config.c - config.json of a folder. */
#include <stdlib.h>

#include "core/base/json.h"
#include "core/model/config.h"
#include "core/model/spec.h"
#include "tests/fuzz/fuzz.h"

static gw_status read_config(const json_t *root, gw_blueprint *bp, gw_arena *arena) {
    gw_hparams hparams;
    const gw_spec *spec = NULL;
    char architecture[64];
    gw_facts facts = gw_config_hf_facts("fuzz", root);
    GW_TRY(gw_config_hf_architecture("fuzz", root, 1, architecture, sizeof architecture));
    GW_TRY(gw_spec_find("fuzz", architecture, &spec));
    GW_TRY(gw_blueprint_read(gw_spec_family(spec), gw_spec_text(spec), bp));
    return gw_config_read(&facts, bp, arena, &hparams);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_t *root = NULL;
    gw_arena *arena = gw_arena_new();
    gw_blueprint *bp = malloc(sizeof *bp);
    size_t bytes = 0;
    char *plain = gw_config_plain_json((const char *)data, n, &bytes);
    gw_status status = arena == NULL || bp == NULL || plain == NULL
                           ? GW_E_NOMEM
                           : gw_json_parse("fuzz", plain, bytes, &root);
    if (status == GW_OK) {
        status = read_config(root, bp, arena);
    }
    free(plain);
    free(bp);
    gw_arena_free(arena);
    fuzz_judge(status);
    json_decref(root);
    return 0;
}
