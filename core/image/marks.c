/* core/image/marks.c - marks of pictures, one row for each kind of processor. */
#include "core/image/marks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *at;
    size_t n, room;
    int failed; /* no memory */
} text;

static void add(text *t, const char *more) {
    size_t n = strlen(more);
    if (t->failed) {
        return;
    }
    if (t->room - t->n <= n) {
        size_t room = 2 * (t->room + n) + 64;
        char *at = realloc(t->at, room);
        if (at == NULL) {
            t->failed = 1;
            return;
        }
        t->at = at;
        t->room = room;
    }
    memcpy(t->at + t->n, more, n + 1);
    t->n += n;
}

static void add_times(text *t, const char *more, int64_t times) {
    for (int64_t i = 0; i < times; i++) {
        add(t, more);
    }
}

static void add_place(text *t, const char *fmt, int32_t row, int32_t column) {
    char place[64];
    snprintf(place, sizeof place, fmt, (int)row + 1, (int)column + 1);
    add(t, place);
}

/* ---- what replaces a mark ----------------------------------------------------------------------
 */

static void repeated(text *t, const gw_processor *p, const gw_patches *x) {
    add_times(t, gw_marks_of(p)->row, x->tokens);
}

static void gemma3(text *t, const gw_processor *p, const gw_patches *x) {
    add(t, "\n\n<start_of_image>");
    repeated(t, p, x);
    add(t, "<end_of_image>\n\n");
}

static void gemma4(text *t, const gw_processor *p, const gw_patches *x) {
    add(t, "<|image>");
    repeated(t, p, x);
    add(t, "<image|>");
}

static void internvl(text *t, const gw_processor *p, const gw_patches *x) {
    add(t, "<img>");
    repeated(t, p, x);
    add(t, "</img>");
}

static void pixtral(text *t, const gw_processor *p, const gw_patches *x) {
    int32_t rows = x->tile[0].rows / p->merge, columns = x->tile[0].columns / p->merge;
    for (int32_t r = 0; r < rows; r++) {
        add_times(t, "[IMG]", columns);
        add(t, r == rows - 1 ? "[IMG_END]" : "[IMG_BREAK]");
    }
}

static void idefics3(text *t, const gw_processor *p, const gw_patches *x) {
    static const char around[] = "<fake_token_around_image>";
    const gw_tile *whole = &x->tile[x->n_tiles - 1];
    (void)p;
    for (int32_t i = 0; i < x->tile_rows * x->tile_columns; i++) {
        const gw_tile *tile = &x->tile[i];
        add(t, around);
        add_place(t, "<row_%d_col_%d>", tile->at_row, tile->at_column);
        add_times(t, "<image>", tile->tokens);
        add(t, tile->at_column == x->tile_columns - 1 ? "\n" : "");
    }
    add(t, x->tile_rows > 0 ? "\n" : "");
    add(t, around);
    add(t, "<global-img>");
    add_times(t, "<image>", whole->tokens);
    add(t, around);
}

static void lfm2(text *t, const gw_processor *p, const gw_patches *x) {
    (void)p;
    add(t, "<|image_start|>");
    for (int32_t i = 0; i < x->n_tiles; i++) {
        const gw_tile *tile = &x->tile[i];
        if (tile->at_row >= 0) {
            add_place(t, "<|img_row_%d_col_%d|>", tile->at_row, tile->at_column);
        } else if (x->tile_rows > 0) {
            add(t, "<|img_thumbnail|>");
        }
        add_times(t, "<image>", tile->tokens);
    }
    add(t, "<|image_end|>");
}

static void llama4(text *t, const gw_processor *p, const gw_patches *x) {
    (void)p;
    add(t, "<|image_start|>");
    for (int32_t i = 0; i < x->tile_rows * x->tile_columns; i++) {
        add_times(t, "<|patch|>", x->tile[i].tokens);
        add(t, x->tile[i].at_column < x->tile_columns - 1 ? "<|tile_x_separator|>"
                                                          : "<|tile_y_separator|>");
    }
    add(t, "<|image|>");
    add_times(t, "<|patch|>", x->tile[x->n_tiles - 1].tokens);
    add(t, "<|image_end|>");
}

/* clang-format off */
static const struct {
    const char *kind;
    gw_marks marks;
    void (*write)(text *t, const gw_processor *p, const gw_patches *x);
} table[] = {
    {"qwen2_vl", {"<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"}, repeated},
    {"glm4v",    {"<|image|>", "<|begin_of_image|>", "<|end_of_image|>", "<|image|>"}, repeated},
    {"gemma3",   {"<start_of_image>", "", "", "<image_soft_token>"}, gemma3},
    {"gemma4",   {"<|image|>", "", "", "<|image|>"}, gemma4},
    {"pixtral",  {"[IMG]", "", "", "[IMG]"}, pixtral},
    {"idefics3", {"<image>", "", "", "<image>"}, idefics3},
    {"internvl", {"<IMG_CONTEXT>", "", "\n", "<IMG_CONTEXT>"}, internvl},
    {"internvl_chat", {"<IMG_CONTEXT>", "", "\n", "<IMG_CONTEXT>"}, internvl},
    {"lfm2_vl",  {"<image>", "", "", "<image>"}, lfm2},
    {"llama4",   {"<|image|>", "", "", "<|patch|>"}, llama4},
    {"kimi_vl",  {"<|media_pad|>", "<|media_start|>image<|media_content|>", "<|media_end|>",
                  "<|media_pad|>"}, repeated},
    {"kimi_k25", {"<|media_pad|>", "<|media_begin|>image<|media_content|>", "<|media_end|>",
                  "<|media_pad|>"}, repeated},
};
/* clang-format on */

enum { ROWS = sizeof table / sizeof table[0] };

static int row_of(const gw_processor *p) {
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(table[i].kind, p->kind) == 0) {
            return i;
        }
    }
    return -1;
}

const gw_marks *gw_marks_of(const gw_processor *p) {
    int i = row_of(p);
    return i >= 0 ? &table[i].marks : NULL;
}

gw_status gw_marks_text(const char *where, const gw_processor *p, const gw_patches *patches,
                        char **out) {
    int i = row_of(p);
    text t = {0};
    if (i < 0) {
        return gw_fail(GW_E_UNSUPPORTED, where, "how pictures of %s stand in a text is not known",
                       p->kind);
    }
    add(&t, "");
    table[i].write(&t, p, patches);
    if (t.failed || t.at == NULL) {
        free(t.at);
        return gw_fail(GW_E_NOMEM, where, "no memory for the text of a picture");
    }
    *out = t.at;
    return GW_OK;
}
