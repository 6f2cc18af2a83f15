/* tests/test_picture.c - pictures: decoding against Pillow, resizing against Pillow and
 * torchvision, patches against transformers (tests/data/pictures/make.py wrote what they give), and
 * files that are cut, damaged or declare what they do not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/sha256.h"
#include "core/image/marks.h"
#include "core/image/patches.h"
#include "core/text/chat/inserted.h"

#define DATA "tests/data/pictures/"

static void digest_of(const void *data, size_t bytes, char hex[65]) {
    unsigned char digest[32];
    gw_picture_name(data, bytes, digest);
    gw_sha256_hex(digest, hex);
}

/* The picture of make.py's made(). */
static uint8_t *made(uint32_t seed, uint32_t width, uint32_t height) {
    uint8_t *rgb = malloc((size_t)3 * width * height), *at = rgb;
    assert_non_null(rgb);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            for (uint32_t c = 0; c < 3; c++) {
                uint32_t v = (x * 73856093u) ^ (y * 19349663u) ^ (c * 83492791u);
                v ^= seed * 2654435761u;
                v ^= v >> 15;
                v *= 2246822519u;
                v ^= v >> 13;
                v >>= 24;
                v = seed % 3 == 1   ? (v >> 7) * 255
                    : seed % 3 == 2 ? (x * 255 / width + y + c * 40 + (v >> 5)) & 255
                                    : v;
                *at++ = (uint8_t)v;
            }
        }
    }
    return rgb;
}

/* ---- resizing ---- */

static void test_resize(void **state) {
    (void)state;
    FILE *f = fopen(DATA "resize.txt", "r");
    char rule[16], expected[65], hex[65];
    int filter, n = 0;
    uint32_t seed, w, h, to_w, to_h;
    assert_non_null(f);
    while (fscanf(f, "%15s %d %u %u %u %u %u %64s", rule, &filter, &seed, &w, &h, &to_w, &to_h,
                  expected) == 8) {
        uint8_t *rgb = made(seed, w, h), *out = malloc((size_t)3 * to_w * to_h);
        assert_non_null(out);
        memset(out, 0xa5, (size_t)3 * to_w * to_h);
        gw_pixel_rule of = rule[0] == 'p' ? GW_PIXELS_PIL : GW_PIXELS_TORCHVISION;
        assert_int_equal(gw_resize("made", rgb, (int32_t)w, (int32_t)h, (gw_filter)filter, of,
                                   (int32_t)to_w, (int32_t)to_h, out),
                         GW_OK);
        digest_of(out, (size_t)3 * to_w * to_h, hex);
        if (strcmp(hex, expected) != 0) {
            fail_msg("%s %d: %u x %u to %u x %u, seed %u", rule, filter, w, h, to_w, to_h, seed);
        }
        free(rgb);
        free(out);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 600);
}

/* ---- processors ---- */

static gw_processor processor_of(const char *line) {
    json_t *root = NULL;
    gw_processor p;
    assert_int_equal(gw_json_parse("processors.txt", line, strlen(line), &root), GW_OK);
    gw_status status = gw_processor_from_folder("made", json_object_get(root, "settings"),
                                                json_object_get(root, "config"), &p);
    if (status != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    json_decref(root);
    return p;
}

static void check_patches(const gw_processor *p, const char *line) {
    uint32_t seed, w, h, tiles, tokens;
    char expected[65], words[65], hex[65], *text = NULL;
    gw_patches made_of = {0}, plan = {0};
    assert_int_equal(
        sscanf(line, "= %u %u %u %u %u %64s %64s", &seed, &w, &h, &tiles, &tokens, expected, words),
        7);
    gw_picture picture = {.width = (int32_t)w, .height = (int32_t)h, .rgb = made(seed, w, h)};
    picture.digest[5] = 77;
    if (gw_patches_make("made", p, &picture, &made_of) != GW_OK) {
        fail_msg("%s %u x %u: %s", p->kind, w, h, gw_error_text());
    }
    digest_of(made_of.values, (size_t)made_of.n * (size_t)made_of.width * sizeof(float), hex);
    if (strcmp(hex, expected) != 0 || made_of.n_tiles != (int32_t)tiles ||
        made_of.tokens != tokens) {
        fail_msg("%s %u x %u, seed %u: %d tiles, %d tokens", p->kind, w, h, seed,
                 (int)made_of.n_tiles, (int)made_of.tokens);
    }
    assert_memory_equal(made_of.digest, picture.digest, sizeof picture.digest);
    gw_status status = gw_marks_text("made", p, &made_of, &text);
    if (words[0] == '-') {
        assert_int_equal(status, GW_E_UNSUPPORTED);
    } else {
        assert_int_equal(status, GW_OK);
        digest_of(text, strlen(text), hex);
        if (strcmp(hex, words) != 0) {
            fail_msg("%s %u x %u: other words than the processor's: %.200s", p->kind, w, h, text);
        }
        free(text);
    }
    assert_int_equal(gw_patches_plan("made", p, (int32_t)w, (int32_t)h, &plan), GW_OK);
    assert_null(plan.values);
    assert_int_equal(plan.n, made_of.n);
    assert_int_equal(plan.tokens, made_of.tokens);
    for (int32_t i = 0; i < plan.n_tiles; i++) {
        assert_memory_equal(&plan.tile[i], &made_of.tile[i], /* what follows is padding */
                            offsetof(gw_tile, at_column) + sizeof plan.tile[i].at_column);
    }
    gw_patches_free(&plan);
    gw_patches_free(&made_of);
    gw_picture_free(&picture);
}

/* No tile has more patches than is foretold, and some has nearly as many. */
static void check_most(const gw_processor *p) {
    static const int32_t sides[] = {1,    2,    13,   60,   128,  250,  337,  511,   768,  1000,
                                    1023, 1500, 2047, 3000, 4096, 6000, 9000, 12000, 20000};
    enum { SIDES = sizeof sides / sizeof sides[0] };
    const int64_t most = gw_patches_most(p);
    int64_t found = 0;
    for (int i = 0; i < SIDES * SIDES; i++) {
        gw_patches plan = {0};
        const int32_t w = sides[i / SIDES], h = sides[i % SIDES];
        if (w > 200 * h || h > 200 * w || gw_patches_plan("x", p, w, h, &plan) != GW_OK) {
            continue;
        }
        for (int32_t k = 0; k < plan.n_tiles; k++) {
            const int64_t n = (int64_t)plan.tile[k].rows * plan.tile[k].columns;
            found = n > found ? n : found;
        }
        gw_patches_free(&plan);
    }
    if (found > most || most > (p->size == GW_SIZE_KIMI ? 4 : 2) * found) {
        fail_msg("%s: %lld patches are foretold, %lld were made", p->kind, (long long)most,
                 (long long)found);
    }
}

static void test_processors(void **state) {
    (void)state;
    static char line[4096];
    FILE *f = fopen(DATA "processors.txt", "r");
    gw_processor p = {0};
    int kinds = 0, pictures = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (line[0] == '{') {
            p = processor_of(line);
            check_most(&p);
            kinds++;
        } else {
            check_patches(&p, line);
            pictures++;
        }
    }
    fclose(f);
    assert_int_equal(kinds, 21);
    assert_int_equal(pictures, 126);
}

/* A mark that was typed stays; those of the template are replaced in their order. */
static void test_inserts(void **state) {
    (void)state;
    static const char given[] = "a<i>b<i>c<i>d";
    char *texts[] = {"", "ONE<i>", ""};
    for (int n = 1; n <= 3; n++) {
        gw_template_text text = {.text = strdup(given), .bytes = sizeof given - 1, .n_typed = 1};
        text.typed = malloc(2 * sizeof *text.typed);
        assert_non_null(text.typed);
        text.typed[0] = 4; /* b<i>c */
        text.typed[1] = 9;
        gw_chat_inserts inserts = {"<i>", "", "", texts, (size_t)n};
        gw_status status = gw_chat_insert(&text, &inserts, NULL);
        if (n == 2) {
            assert_int_equal(status, GW_OK);
            assert_string_equal(text.text, "ab<i>cONE<i>d");
            assert_int_equal(text.bytes, 13);
            assert_true(text.typed[0] == 1 && text.typed[1] == 6);
        } else {
            assert_int_equal(status, GW_E_ARGUMENT);
            assert_string_equal(text.text, given);
            assert_non_null(strstr(gw_error_text(), "2 pictures"));
        }
        free(text.text);
        free(text.typed);
    }
}

/* What a processor of a folder refuses, and the word its message has. */
static void test_settings_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        gw_status status;
        const char *word;
    } cases[] = {
        {"{}", GW_E_UNSUPPORTED, "(none)"},
        {"{\"image_processor_type\":\"MllamaImageProcessor\"}", GW_E_UNSUPPORTED, "Mllama"},
        {"{\"image_processor_type\":7}", GW_E_TYPE, "image_processor_type"},
        {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"patch_size\":0}", GW_E_METADATA,
         "patch_size"},
        {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"merge_size\":-1}", GW_E_METADATA,
         "merge_size"},
        {"{\"image_processor_type\":\"Qwen2VLImageProcessorFast\",\"size\":"
         "{\"longest_edge\":4611686018427387904}}",
         GW_E_METADATA, "max_pixels"},
        {"{\"image_processor_type\":\"PixtralImageProcessor\",\"size\":{\"longest_edge\":0}}",
         GW_E_METADATA, "longest_edge"},
        {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"do_pan_and_scan\":true}",
         GW_E_UNSUPPORTED, "pan"},
        {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"resample\":0}", GW_E_UNSUPPORTED,
         "resample"},
        {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"image_std\":[0,1,1]}", GW_E_METADATA,
         "image_std"},
        {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"image_mean\":[1,2]}", GW_E_TYPE,
         "image_mean"},
        {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"rescale_factor\":0}", GW_E_METADATA,
         "rescale"},
        {"{\"image_processor_type\":\"Llama4ImageProcessor\",\"max_patches\":1000000}",
         GW_E_METADATA, "tiles"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = NULL;
        gw_processor p = {.patch = 99};
        assert_int_equal(gw_json_parse("t", cases[i].text, strlen(cases[i].text), &root), GW_OK);
        gw_status status = gw_processor_from_folder("folder/settings.json", root, NULL, &p);
        if (status != cases[i].status || strstr(gw_error_text(), cases[i].word) == NULL ||
            p.patch != 99) {
            fail_msg("%s: %s", cases[i].text, status == GW_OK ? "taken" : gw_error_text());
        }
        json_decref(root);
    }
}

static gw_processor mmproj(const char *text) {
    json_t *root = NULL;
    gw_processor p;
    assert_int_equal(gw_json_parse("t", text, strlen(text), &root), GW_OK);
    if (gw_processor_from_mmproj("mmproj.gguf", root, &p) != GW_OK) {
        fail_msg("%s", gw_error_text());
    }
    json_decref(root);
    return p;
}

static void test_mmproj(void **state) {
    (void)state;
    gw_processor p = mmproj(
        "{\"projector_type\":\"qwen3vl_merger\",\"vision.patch_size\":16,\"vision.image_size\":768,"
        "\"vision.spatial_merge_size\":2,\"vision.image_mean\":[0.5,0.5,0.5],"
        "\"vision.image_std\":[0.5,0.5,0.5]}");
    assert_string_equal(p.kind, "qwen2_vl");
    assert_int_equal(p.patch, 16);
    assert_int_equal(p.max_pixels, 16777216);
    assert_true(p.mean[0] == 0.5F && p.temporal == 2 && p.order == GW_PATCHES_BY_BLOCK);
    p = mmproj("{\"vision.projector_type\":\"qwen2.5vl_merger\",\"vision.patch_size\":14,"
               "\"vision.image_max_pixels\":100000}");
    assert_int_equal(p.max_pixels, 100000);
    assert_int_equal(p.min_pixels, 3136);
    p = mmproj(
        "{\"projector_type\":\"gemma3\",\"vision.patch_size\":14,\"vision.image_size\":896}");
    assert_true(p.side_w == 896 && p.merge == 4 && p.filter == GW_FILTER_BILINEAR);
    p = mmproj(
        "{\"projector_type\":\"pixtral\",\"vision.patch_size\":14,\"vision.image_size\":1540,"
        "\"vision.spatial_merge_size\":2}");
    assert_true(p.longest == 1540 && p.merge == 2);
    p = mmproj(
        "{\"projector_type\":\"idefics3\",\"vision.patch_size\":16,\"vision.image_size\":512,"
        "\"vision.preproc_image_size\":1536,\"vision.projector.scale_factor\":4}");
    assert_true(p.longest == 1536 && p.side_w == 512 && p.merge == 4 && p.split);
    p = processor_of(
        "{\"settings\":{\"image_processor_type\":\"GotOcr2ImageProcessorFast\",\"crop_to_patches\":"
        "false,\"processor_class\":\"InternVLProcessor\"},\"config\":{}}");
    assert_true(p.split); /* that class says true */
    json_t *none = json_object();
    assert_int_equal(gw_processor_from_mmproj("mmproj.gguf", none, &p), GW_E_UNSUPPORTED);
    json_decref(none);
}

/* Pictures that rules refuse, and the longest they take. */
static void test_shapes(void **state) {
    (void)state;
    gw_processor p = processor_of(
        "{\"settings\":{\"image_processor_type\":\"Qwen2VLImageProcessor\"},\"config\":{}}");
    gw_patches plan = {0};
    assert_int_equal(gw_patches_plan("x", &p, 1, 201, &plan), GW_E_LIMIT);
    assert_int_equal(gw_patches_plan("x", &p, 201, 1, &plan), GW_E_LIMIT);
    assert_int_equal(gw_patches_plan("x", &p, 65535, 2048, &plan), GW_OK);
    assert_true(plan.tokens <= 1280 && plan.tokens > 1000);
    gw_patches_free(&plan);
    p = processor_of(
        "{\"settings\":{\"image_processor_type\":\"SmolVLMImageProcessor\",\"size\":"
        "{\"longest_edge\":65535}},\"config\":{\"vision_config\":{\"patch_size\":14}}}");
    assert_int_equal(gw_patches_plan("x", &p, 4000, 4000, &plan), GW_OK); /* 4096 is the most */
    assert_int_equal(plan.tile_rows, 12);
    gw_patches_free(&plan);
}

/* ---- files ---- */

static gw_file file_of(const char *name) {
    char path[128];
    gw_file file;
    snprintf(path, sizeof path, DATA "%s", name);
    assert_int_equal(gw_file_open(path, path, &file), GW_OK);
    return file;
}

/* Without its last bytes no file is taken. */
static void check_cut(const char *name, const uint8_t *data, size_t n) {
    for (size_t cut = 0; cut<n; cut += n> 400 ? 1 + cut % 7 : 1) {
        uint8_t *copy = malloc(cut + 1); /* a read behind the end is one of another allocation */
        gw_picture picture = {0};
        assert_non_null(copy);
        memcpy(copy, data, cut);
        gw_status status = gw_picture_decode(name, copy, cut, 0, &picture);
        if (status == GW_OK || strchr(gw_error_text(), '\n') != NULL || picture.rgb != NULL) {
            fail_msg("%s: taken with %zu of %zu bytes", name, cut, n);
        }
        free(copy);
    }
}

static void test_decode(void **state) {
    (void)state;
    FILE *f = fopen(DATA "decode.txt", "r");
    char name[64], expected[65], hex[65];
    int w, h, n = 0;
    assert_non_null(f);
    while (fscanf(f, "%63s %d %d %64s", name, &w, &h, expected) == 4) {
        gw_file file = file_of(name);
        gw_picture picture = {0};
        uint8_t own[GW_PICTURE_DIGEST];
        gw_status status = gw_picture_decode(name, file.data, file.size, 0, &picture);
        if (status == GW_E_UNSUPPORTED && strstr(gw_error_text(), "this build has no") != NULL) {
            gw_file_close(&file); /* a build without that library says which one */
            n++;
            continue;
        }
        if (status != GW_OK) {
            fail_msg("%s", gw_error_text());
        }
        digest_of(picture.rgb, (size_t)3 * (size_t)picture.width * (size_t)picture.height, hex);
        if (picture.width != w || picture.height != h || strcmp(hex, expected) != 0) {
            fail_msg("%s: other pixels than Pillow's", name);
        }
        gw_picture_name(file.data, file.size, own);
        assert_memory_equal(own, picture.digest, sizeof own);
        check_cut(name, file.data, file.size);
        gw_picture_free(&picture);
        gw_file_close(&file);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 37);
}

static uint32_t crc_of(const uint8_t *data, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++) {
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
        }
    }
    return ~crc;
}

static void put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

/* Headers that declare more than there is, or more than is read. */
static void test_lying_headers(void **state) {
    (void)state;
    static const struct {
        uint32_t width, height;
        gw_status status;
    } cases[] = {
        {0x7fffffff, 0x7fffffff, GW_E_LIMIT}, {65535, 65535, GW_E_LIMIT}, {65536, 1, GW_E_LIMIT},
        {12000, 12000, GW_E_LIMIT},           {0, 5, GW_E_SYNTAX},        {9, 8000, GW_E_SYNTAX}};
    gw_picture picture = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_file file = file_of("rgb.png");
        uint8_t copy[1024];
        assert_true(file.size <= sizeof copy);
        memcpy(copy, file.data, file.size);
        put32(copy + 16, cases[i].width);
        put32(copy + 20, cases[i].height);
        put32(copy + 29, crc_of(copy + 12, 17));
        gw_status status = gw_picture_decode("png", copy, file.size, 0, &picture);
        if (status != cases[i].status && status != GW_E_UNSUPPORTED) {
            fail_msg("%u x %u: %s", cases[i].width, cases[i].height, gw_error_text());
        }
        gw_file_close(&file);
    }
    gw_file file = file_of("rgb.jpg");
    uint8_t copy[1024];
    memcpy(copy, file.data, file.size);
    uint8_t *frame = memmem(copy, file.size, "\xff\xc0\x00\x11\x08", 5);
    assert_non_null(frame);
    memcpy(frame + 5, "\xff\xdc\xff\xdc", 4); /* 65500 x 65500 */
    gw_status status = gw_picture_decode("jpeg", copy, file.size, 0, &picture);
    assert_true(status == GW_E_LIMIT || status == GW_E_UNSUPPORTED);
    memcpy(frame + 5, "\x20\x00\x00\x25", 4); /* 8192 rows, of which 23 are there */
    status = gw_picture_decode("jpeg", copy, file.size, 0, &picture);
    assert_true(status == GW_E_SYNTAX || status == GW_E_UNSUPPORTED);
    status = gw_picture_decode("jpeg", file.data, file.size, 100, &picture);
    assert_true(status == GW_E_LIMIT || status == GW_E_UNSUPPORTED);
    gw_file_close(&file);
    assert_null(picture.rgb);
}

static void test_other_formats(void **state) {
    (void)state;
    static const struct {
        const char *data;
        size_t n;
        const char *word;
    } cases[] = {{"GIF89a......", 12, "GIF"},        {"BM..........", 12, "BMP"},
                 {"....ftypheic", 12, "HEIC"},       {"....ftypavif", 12, "AVIF"},
                 {"hello, world", 12, "no picture"}, {"", 0, "no picture"},
                 {"RIFF....WAVE", 12, "no picture"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_picture picture = {0};
        assert_int_equal(gw_picture_decode("a.bin", cases[i].data, cases[i].n, 0, &picture),
                         GW_E_MAGIC);
        assert_non_null(strstr(gw_error_text(), cases[i].word));
        assert_non_null(strstr(gw_error_text(), "JPEG, PNG and WebP"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize),        cmocka_unit_test(test_processors),
        cmocka_unit_test(test_inserts),       cmocka_unit_test(test_settings_refused),
        cmocka_unit_test(test_mmproj),        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_decode),        cmocka_unit_test(test_lying_headers),
        cmocka_unit_test(test_other_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
