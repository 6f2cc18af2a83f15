/* apps/serve/fill.c - see fill.h. */
#include "apps/serve/fill.h"

#include <stdlib.h>
#include <string.h>

#include "include/godwit_fill.h"

enum { FILES_MAX = 1024 };

/* ---- requests -------------------------------------------------------------------------------- */

/* A member that is a text; NULL: it is not there. */
static int read_text(const json_t *body, const char *name, const json_t **out, fault *f) {
    const json_t *value = json_object_get(body, name);
    if (value != NULL && !json_is_null(value) && !json_is_string(value)) {
        return fault_set(f, 400, name, "%s: a text is needed", name);
    }
    *out = json_is_string(value) ? value : NULL;
    return 0;
}

static int check_file(const json_t *file, size_t number, fault *f) {
    const json_t *name = json_object_get(file, "filename");
    if (!json_is_string(json_object_get(file, "text")) ||
        (name != NULL && !json_is_null(name) && !json_is_string(name))) {
        return fault_set(f, 400, "input_extra",
                         "input_extra[%zu]: {\"text\": TEXT, \"filename\": TEXT} is needed",
                         number);
    }
    return 0;
}

static int read_files(ask *a, const json_t *body, fault *f) {
    const json_t *list = json_object_get(body, "input_extra"), *file;
    size_t i;
    if (list == NULL || json_is_null(list)) {
        return 0;
    }
    if (!json_is_array(list) || json_array_size(list) > FILES_MAX) {
        return fault_set(f, 400, "input_extra", "input_extra: a list of at most %d files is needed",
                         FILES_MAX);
    }
    json_array_foreach(list, i, file) {
        if (check_file(file, i, f) != 0) {
            return -1;
        }
    }
    a->fill.files = list;
    return 0;
}

int fill_read_infill(ask *a, const json_t *body, fault *f) {
    if (read_text(body, "input_prefix", &a->fill.prefix, f) != 0 ||
        read_text(body, "input_suffix", &a->fill.suffix, f) != 0 ||
        read_text(body, "prompt", &a->fill.begun, f) != 0 || read_files(a, body, f) != 0) {
        return -1;
    }
    if (a->fill.prefix == NULL || a->fill.suffix == NULL) {
        const char *name = a->fill.prefix == NULL ? "input_prefix" : "input_suffix";
        return fault_set(f, 400, name, "%s: a text is needed", name);
    }
    return 0;
}

int fill_read_suffix(ask *a, const json_t *body, fault *f) {
    const json_t *suffix = NULL, *prompt = json_object_get(body, "prompt");
    if (read_text(body, "suffix", &suffix, f) != 0) {
        return -1;
    }
    if (suffix == NULL || json_string_length(suffix) == 0) {
        return 0;
    }
    if (!json_is_string(prompt)) {
        return fault_set(f, 400, "prompt", "prompt: a text is needed where there is a \"suffix\"");
    }
    a->fill.prefix = prompt;
    a->fill.suffix = suffix;
    return 0;
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* Tokens of the prompt, so that the answer has its room: what was asked for, or a quarter. */
static size_t room_of(const job *j) {
    int64_t n_ctx = j->m->n_ctx, answer = j->ask.max_tokens;
    answer = answer < 0 || answer > n_ctx / 2 ? n_ctx / 4 : answer;
    return (size_t)(n_ctx - answer > 1 ? n_ctx - answer : 1);
}

int fill_prompt(job *j, int32_t **ids, size_t *n) {
    const ask *a = &j->ask;
    const char *lacks = gw_fill_lacks(j->m->gw);
    if (lacks != NULL) {
        return fault_set(&j->f, 501, "suffix",
                         "%s cannot fill in text before a suffix: its vocabulary has %s", j->m->id,
                         lacks);
    }
    size_t n_files = json_array_size(a->fill.files), i;
    gw_fill_file *files = calloc(n_files + 1, sizeof *files);
    const json_t *file;
    if (files == NULL) {
        return fault_set(&j->f, 503, NULL, "out of memory");
    }
    json_array_foreach(a->fill.files, i, file) {
        const json_t *text = json_object_get(file, "text");
        files[i] = (gw_fill_file){.name = json_string_value(json_object_get(file, "filename")),
                                  .text = json_string_value(text),
                                  .bytes = json_string_length(text)};
    }
    const gw_fill fill = {.prefix = json_string_value(a->fill.prefix),
                          .prefix_bytes = json_string_length(a->fill.prefix),
                          .suffix = json_string_value(a->fill.suffix),
                          .suffix_bytes = json_string_length(a->fill.suffix),
                          .begun = json_string_value(a->fill.begun),
                          .begun_bytes = json_string_length(a->fill.begun),
                          .files = files,
                          .n_files = n_files,
                          .room = room_of(j)};
    gw_status status = gw_fill_in(j->m->gw, &fill, ids, n, &j->n_cut);
    free(files);
    return status == GW_OK ? 0 : fault_of_status(&j->f, status, "prompt");
}
