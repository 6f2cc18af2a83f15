/* apps/pictures.c - the pictures of --image. */
#include "apps/pictures.h"

#include <stdlib.h>

int pictures_read(app_pictures *p, const char *path) {
    app_text file = {0};
    gw_patches **grown = realloc(p->at, (p->n + 1) * sizeof *grown);
    if (grown == NULL) {
        app_error("out of memory");
        return APP_FAILURE;
    }
    p->at = grown;
    int code = app_read_file(path, &file);
    if (code != APP_OK) {
        return code;
    }
    gw_status status = gw_image_read(p->images, path, file.at, file.bytes, &p->at[p->n]);
    free(file.at);
    if (status != GW_OK) {
        return app_fail(status);
    }
    p->n++;
    return APP_OK;
}

int pictures_open(app_pictures *p, const app_options *o) {
    if (o->image_files.n == 0) {
        return APP_OK;
    }
    gw_status status = gw_images_open(o->model, o->mmproj, &p->images);
    int code = status == GW_OK ? APP_OK : app_fail(status);
    for (size_t i = 0; i < o->image_files.n && code == APP_OK; i++) {
        code = pictures_read(p, o->image_files.at[i]);
    }
    return code;
}

void pictures_free(app_pictures *p) {
    for (size_t i = 0; i < p->n; i++) {
        gw_image_free(p->at[i]);
    }
    free(p->at);
    gw_images_free(p->images);
    *p = (app_pictures){0};
}
