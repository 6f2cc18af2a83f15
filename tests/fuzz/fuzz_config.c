/* tests/fuzz/fuzz_config.c - config.json of a folder. */
#include "core/base/json.h"
#include "core/model/config.h"
#include "core/model/spec.h"
#include "tests/fuzz/fuzz.h"

static gw_status read_config(const json_t *root) {
    gw_config config;
    gw_hparams hparams;
    const gw_spec *spec = NULL;
    gw_config_defaults(&config);
    GW_TRY(gw_config_hf_architecture("fuzz", root, 1, config.architecture,
                                     sizeof config.architecture));
    GW_TRY(gw_spec_find("fuzz", config.architecture, &spec));
    GW_TRY(gw_config_from_hf("fuzz", root, &config));
    return gw_config_settle("fuzz", gw_spec_family(spec), &config, &hparams);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_t *root = NULL;
    gw_status status = gw_json_parse("fuzz", data, n, &root);
    if (status == GW_OK) {
        status = read_config(root);
    }
    fuzz_judge(status);
    json_decref(root);
    return 0;
}
