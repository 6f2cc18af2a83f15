/* tests/fuzz/fuzz_pickle.c - a file that torch.save wrote; without the archive, the pickle alone.
 */
#include "core/base/arena.h"
#include "core/model/pickle.h"
#include "core/model/torch_file.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gw_arena *arena = gw_arena_new();
    if ((n >= 2 && data[0] == 'P' && data[1] == 'K') || gw_pickle_is_old(data, n)) {
        gw_safetensor *list = NULL;
        size_t count = 0;
        gw_status status = gw_torch_parse("fuzz", data, n, -1, arena, &list, &count);
        fuzz_judge(status);
        for (size_t i = 0; status == GW_OK && i < count; i++) {
            const gw_stored *t = &list[i].stored;
            const uint8_t *at = t->data;
            if (t->bytes > 0 && (at < data || t->bytes > (size_t)(data + n - at))) {
                abort();
            }
        }
    } else {
        gw_pickled *list = NULL;
        size_t count = 0;
        fuzz_judge(gw_pickle_read("fuzz", data, n, arena, &list, &count));
    }
    gw_arena_free(arena);
    return 0;
}
