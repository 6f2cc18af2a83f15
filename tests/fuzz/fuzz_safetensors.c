/* tests/fuzz/fuzz_safetensors.c - a safetensors file. */
#include "core/base/arena.h"
#include "core/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gw_arena *arena = gw_arena_new();
    gw_safetensor *list = NULL;
    size_t count = 0;
    gw_status status = gw_safetensors_parse("fuzz", data, n, -1, arena, &list, &count);
    fuzz_judge(status);
    for (size_t i = 0; status == GW_OK && i < count; i++) {
        const uint8_t *at = list[i].stored.data;
        if (list[i].stored.bytes > 0 &&
            (at < data || list[i].stored.bytes > (size_t)(data + n - at))) {
            abort();
        }
    }
    gw_arena_free(arena);
    return 0;
}
