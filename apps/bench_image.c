/* apps/bench_image.c - `godwit bench --image`: made-up pictures alone, from pixels to patches and
 * from patches to the rows that a decoder reads. */
#include <stdlib.h>
#include <string.h>

#include "apps/bench.h"
#include "apps/output.h"
#include "apps/signals.h"

enum { SIDE_MOST = 65535, PIXELS_MOST = 1 << 27, PICTURES_MOST = 4096 };

/* The number at *at, 1 .. most, which moves to what follows; 0: there is none. */
static int32_t take_number(const char **at, long most) {
    char *end = NULL;
    long value = **at >= '1' && **at <= '9' ? strtol(*at, &end, 10) : 0;
    if (value < 1 || value > most) {
        return 0;
    }
    *at = end;
    return (int32_t)value;
}

/* WIDTHxHEIGHT[,N]; 0 when it is anything else. */
static int parse_size(const char *text, bench_image_result *r) {
    const char *at = text;
    r->width = take_number(&at, SIDE_MOST);
    if (r->width == 0 || *at++ != 'x') {
        return 0;
    }
    r->height = take_number(&at, SIDE_MOST);
    r->pictures = 1;
    if (*at == ',') {
        at++;
        r->pictures = take_number(&at, PICTURES_MOST);
    }
    return r->height > 0 && r->pictures > 0 && *at == '\0' &&
           (int64_t)r->width * r->height <= PIXELS_MOST;
}

/* Pixels of picture `number`: values do not change the work, but a picture that was seen would be
 * known again. */
static void draw(unsigned char *rgb, size_t n, uint32_t number, gw_pixels *pixels) {
    uint32_t x = 2654435761u * (number + 1);
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        rgb[i] = (unsigned char)(x >> 24);
    }
    memcpy(pixels->digest, &number, sizeof number);
}

/* One picture: seconds of both are added. */
static gw_status see(const gw_images *images, gw_model *model, const gw_pixels *pixels,
                     bench_image_result *r, double *prepare, double *tower) {
    gw_patches *patches = NULL;
    double start = app_seconds();
    gw_status status = gw_image_from_pixels(images, "--image", pixels, &patches);
    *prepare += app_seconds() - start;
    if (status == GW_OK) {
        gw_image_describe(patches, &r->picture);
        status = gw_model_time_eyes(model, patches, &r->tower);
        *tower += r->tower.seconds;
    }
    gw_image_free(patches);
    return status;
}

/* A warm-up, which builds the plans, then the repetitions, the roof measured around each. */
static gw_status repeat(const app_options *o, const gw_images *images, gw_model *model,
                        unsigned char *rgb, bench_image_result *r) {
    const size_t n = 3 * (size_t)r->width * (size_t)r->height;
    gw_pixels pixels = {.width = r->width, .height = r->height, .rgb = rgb};
    gw_roof roof = {0};
    double prepare = 0, tower = 0;
    uint32_t number = 0;
    draw(rgb, n, number++, &pixels);
    gw_status status = see(images, model, &pixels, r, &prepare, &tower);
    for (int32_t i = 0; i <= o->repetitions && status == GW_OK; i++) {
        const double share = (i == 0 || i == o->repetitions ? 0.5 : 1.0) / o->repetitions;
        status = gw_model_measure_eyes_roof(model, &roof);
        r->roof.int8_gops += share * roof.int8_gops;
        r->roof.f32_gflops += share * roof.f32_gflops;
        prepare = tower = 0;
        for (int32_t k = 0; k < r->pictures && i < o->repetitions && status == GW_OK; k++) {
            draw(rgb, n, number++, &pixels);
            status = signals_caught() != 0 ? GW_E_CANCELLED
                                           : see(images, model, &pixels, r, &prepare, &tower);
        }
        if (i < o->repetitions) {
            r->prepare_seconds[i] = prepare / r->pictures;
            r->tower_seconds[i] = tower / r->pictures;
        }
    }
    return status;
}

static int time_pictures(const app_options *o, const gw_images *images, gw_model *model,
                         bench_image_result *r) {
    unsigned char *rgb = malloc(3 * (size_t)r->width * (size_t)r->height);
    gw_status status = GW_E_NOMEM;
    r->n = o->repetitions;
    r->prepare_seconds = calloc(2 * (size_t)r->n, sizeof *r->prepare_seconds);
    if (rgb != NULL && r->prepare_seconds != NULL) {
        r->tower_seconds = r->prepare_seconds + r->n;
        gw_model_describe(model, &r->info);
        (void)gw_model_eyes(model, &r->eyes);
        status = repeat(o, images, model, rgb, r);
    }
    if (status == GW_OK) {
        bench_print_image(o->format, r);
    }
    free(rgb);
    free(r->prepare_seconds);
    if (status != GW_OK) {
        return app_fail(status);
    }
    return out_flush() == 0 ? APP_OK : APP_FAILURE;
}

int bench_image(const app_options *o) {
    const char *path = o->models.n > 0 ? o->models.at[0] : NULL;
    const app_need need = {.n_ctx = 1, .images = 1};
    bench_image_result r = {.path = path};
    gw_images *images = NULL;
    gw_model *model = NULL;
    if (!parse_size(o->image_size, &r)) {
        app_error("--image: '%.60s' is not WIDTHxHEIGHT[,N] of at most 134 million pixels",
                  o->image_size);
        return APP_USAGE;
    }
    if (o->models.n > 1 || o->thread_list.n > 1) {
        app_error("--image: one model and one number of threads at a time");
        return APP_USAGE;
    }
    gw_status status = gw_images_open(path, o->mmproj, &images);
    if (status != GW_OK) {
        return app_fail(status);
    }
    int code =
        app_open_model(o, path, o->thread_list.n > 0 ? o->thread_list.at[0] : 0, &need, &model);
    code = code == APP_OK ? time_pictures(o, images, model, &r) : code;
    app_close_model(model);
    gw_images_free(images);
    return code;
}
