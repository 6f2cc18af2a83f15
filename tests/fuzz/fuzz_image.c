/* tests/fuzz/fuzz_image.c - a picture's file through decoding, a processor and its patches. The
 * first byte chooses the processor and its limits; what is decoded is small, so that a run is about
 * readers and not about filters. */
#include <stdint.h>
#include <string.h>

#include "core/image/patches.h"
#include "core/image/processor.h"
#include "tests/fuzz/fuzz.h"

enum { PIXELS = 1 << 14 };

static const char *const kinds[] = {
    "Qwen2VLImageProcessor", "Gemma3ImageProcessor",  "Gemma4ImageProcessor",
    "PixtralImageProcessor", "SmolVLMImageProcessor", "GotOcr2ImageProcessor",
    "Lfm2VlImageProcessor",  "Llama4ImageProcessor",  "Kimi_K25ImageProcessor",
    "KimiVLImageProcessor",
};

static void must(int holds) {
    if (!holds) {
        abort();
    }
}

/* Small sizes: patches of some hundred tokens. */
static gw_processor processor_of(uint8_t choice) {
    gw_processor p = {0};
    gw_processor_of_class(kinds[choice % (sizeof kinds / sizeof kinds[0])], &p);
    p.min_pixels = 3136;
    p.max_pixels = p.max_pixels > 0 ? 12544 : 0;
    p.max_tokens = p.max_tokens > 0 ? 20 : 0;
    p.min_tokens = p.min_tokens > 0 ? 4 : 0;
    p.longest = p.longest > 0 ? 120 : 0;
    p.side_w = p.side_h = p.side_w > 0 ? 64 : 0;
    p.max_patches = p.max_patches > 0 ? 100 : 0;
    p.max_side = p.max_side > 0 ? 64 : 0;
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_picture picture = {0};
    gw_patches patches = {0};
    gw_status status =
        size > 0 ? gw_picture_decode("picture", data + 1, size - 1, PIXELS, &picture) : GW_E_MAGIC;
    if (size == 0 || status != GW_OK) {
        fuzz_judge(size == 0 ? GW_OK : status);
        return 0;
    }
    must((int64_t)picture.width * picture.height <= PIXELS);
    gw_processor p = processor_of(data[0]);
    must(gw_processor_check("settings", &p) == GW_OK);
    status = gw_patches_make("picture", &p, &picture, &patches);
    fuzz_judge(status);
    if (status == GW_OK) {
        int64_t n = 0;
        for (int32_t i = 0; i < patches.n_tiles; i++) {
            must(patches.tile[i].first == n);
            n += (int64_t)patches.tile[i].rows * patches.tile[i].columns;
        }
        must(n == patches.n);
        for (int64_t i = 0; i < patches.n * patches.width; i++) { /* reads all of it */
            must(patches.values[i] > -1e3F && patches.values[i] < 1e3F);
        }
    }
    gw_patches_free(&patches);
    gw_picture_free(&picture);
    return 0;
}
