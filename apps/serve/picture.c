/* apps/serve/picture.c - pictures in JSON: see picture.h. */
#include "apps/serve/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/random.h"
#include "apps/serve/sights.h"
#include "apps/serve/text.h"
#include "core/base/os.h"
#include "core/text/tokens/base64.h"

void picture_list_free(picture_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        free(l->at[i].file);
        free(l->at[i].url);
        look_free(l->at[i].look);
    }
    free(l->at);
    free(l->order);
    *l = (picture_list){0};
}

/* ---- from JSON ------------------------------------------------------------------------------- */

static int no_memory(fault *f) { return fault_set(f, 503, NULL, "out of memory"); }

static int new_picture(picture_list *l, const char *field, fault *f) {
    if (l->n == PICTURES_MAX) {
        return fault_set(f, 400, NULL, "%s: more than %d pictures", field, PICTURES_MAX);
    }
    picture *grown = realloc(l->at, (l->n + 1) * sizeof *grown);
    if (grown == NULL) {
        return no_memory(f);
    }
    l->at = grown;
    grown[l->n] = (picture){0};
    snprintf(grown[l->n].field, sizeof grown[l->n].field, "%s", field);
    l->n++;
    return 0;
}

/* Without the blanks and line ends that programs put in. NULL: no memory. */
static char *one_line(const char *text, size_t *bytes) {
    char *line = malloc(*bytes + 1);
    size_t n = 0;
    for (size_t i = 0; line != NULL && i < *bytes; i++) {
        if (strchr(" \r\n\t", text[i]) == NULL) {
            line[n++] = text[i];
        }
    }
    *bytes = line != NULL ? n : *bytes;
    return line;
}

static int take_base64(picture_list *l, const char *text, size_t bytes, const char *field,
                       fault *f) {
    gw_bytes file = {0};
    char *line = strpbrk(text, " \r\n\t") != NULL ? one_line(text, &bytes) : NULL;
    int good = gw_base64_read(line != NULL ? line : text, bytes, &file) && file.n > 0;
    free(line);
    if (!good) {
        fault_set(f, 400, NULL, "%s: a picture's file in base64 is needed", field);
    } else if (new_picture(l, field, f) == 0) {
        l->at[l->n - 1].file = file.data;
        l->at[l->n - 1].bytes = file.n;
        return 0;
    }
    free(file.data);
    return -1;
}

static int take_data_uri(picture_list *l, const char *text, size_t bytes, const char *field,
                         fault *f) {
    static const char coded[] = ";base64";
    enum { HEAD = sizeof coded - 1 };
    const char *comma = memchr(text, ',', bytes);
    if (comma == NULL || comma - text < HEAD || strncasecmp(comma - HEAD, coded, HEAD) != 0) {
        return fault_set(f, 400, NULL,
                         "%s: a data URI of a picture begins with data:image/TYPE;base64,", field);
    }
    return take_base64(l, comma + 1, bytes - (size_t)(comma + 1 - text), field, f);
}

static int take_url(picture_list *l, const char *text, const char *field, fault *f) {
    if (strncasecmp(text, "http://", 7) != 0 && strncasecmp(text, "https://", 8) != 0) {
        return fault_set(f, 400, NULL,
                         "%s: a data URI (data:image/TYPE;base64,...) or an address with http is "
                         "needed",
                         field);
    }
    if (new_picture(l, field, f) != 0) {
        return -1;
    }
    l->at[l->n - 1].url = strdup(text);
    return l->at[l->n - 1].url != NULL ? 0 : no_memory(f);
}

static int take_address(picture_list *l, const json_t *text, const char *field, fault *f) {
    const char *at = json_string_value(text);
    if (at == NULL) {
        return fault_set(f, 400, NULL, "%s: the url of a picture is needed", field);
    }
    return strncasecmp(at, "data:", 5) == 0
               ? take_data_uri(l, at, json_string_length(text), field, f)
               : take_url(l, at, field, f);
}

static int take_file(picture_list *l, const json_t *text, const char *field, fault *f) {
    const char *at = json_string_value(text);
    if (at == NULL) {
        return fault_set(f, 400, NULL, "%s: a picture's file in base64 is needed", field);
    }
    return strncasecmp(at, "data:", 5) == 0
               ? take_data_uri(l, at, json_string_length(text), field, f)
               : take_base64(l, at, json_string_length(text), field, f);
}

/* A fault is about the member of the request that the field is in. */
static int about(const char *field, fault *f) {
    snprintf(f->param, sizeof f->param, "%.*s", (int)strcspn(field, "[."), field);
    return -1;
}

int picture_add_file(picture_list *l, const json_t *text, const char *field, fault *f) {
    return take_file(l, text, field, f) == 0 ? 0 : about(field, f);
}

/* {"image_url": {"url": TEXT}} of chat completions; {"image_url": TEXT} of responses. */
static int take_openai(picture_list *l, const json_t *part, const char *field, fault *f) {
    const json_t *url = json_object_get(part, "image_url");
    char name[96];
    snprintf(name, sizeof name, "%s.image_url", field);
    if (json_object_get(part, "file_id") != NULL && !json_is_string(url)) {
        return fault_set(f, 400, NULL,
                         "%s: file_id is not supported here: send the picture in image_url", field);
    }
    return take_address(l, json_is_object(url) ? json_object_get(url, "url") : url, name, f);
}

/* {"source": {"type": "base64", "data": TEXT}} or {"type": "url", "url": TEXT}. */
static int take_source(picture_list *l, const json_t *part, const char *field, fault *f) {
    const json_t *source = json_object_get(part, "source");
    const char *type = json_string_value(json_object_get(source, "type"));
    char name[96];
    snprintf(name, sizeof name, "%s.source", field);
    if (type != NULL && strcmp(type, "base64") == 0) {
        return take_file(l, json_object_get(source, "data"), name, f);
    }
    if (type != NULL && strcmp(type, "url") == 0) {
        return take_address(l, json_object_get(source, "url"), name, f);
    }
    return fault_set(f, 400, NULL, "%s.type: base64 or url is needed, not '%.40s'", name,
                     type != NULL ? type : "?");
}

/* Ollama's "images" of a message, each made a part by its route. */
static int take_image(picture_list *l, const json_t *part, const char *field, fault *f) {
    (void)field;
    return take_file(l, json_object_get(part, "file"),
                     json_string_value(json_object_get(part, "field")), f);
}

static const struct {
    const char *type;
    int (*take)(picture_list *l, const json_t *part, const char *field, fault *f);
} kinds[] = {{"image_url", take_openai},
             {"input_image", take_openai},
             {"image", take_source},
             {"images", take_image}};

static size_t kind_of(const char *type) {
    size_t i = 0;
    while (i < sizeof kinds / sizeof kinds[0] && strcmp(kinds[i].type, type) != 0) {
        i++;
    }
    return i;
}

int picture_is(const char *type) { return kind_of(type) < sizeof kinds / sizeof kinds[0]; }

int picture_add(picture_list *l, const json_t *part, const char *type, const char *field,
                char mark[PICTURE_MARK], fault *f) {
    if (kinds[kind_of(type)].take(l, part, field, f) != 0) {
        return about(field, f);
    }
    if (l->mark[0] == '\0') {
        uint64_t secret;
        random_bytes(&secret, sizeof secret);
        snprintf(l->mark, sizeof l->mark, "\002%016llx:", (unsigned long long)secret);
    }
    snprintf(mark, PICTURE_MARK, "%s%zu\003", l->mark, l->n - 1);
    return 0;
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* The next mark of a text: its picture and where it ends; NULL: there is none. */
static const char *next_mark(const picture_list *l, const char *from, const char *end,
                             size_t *number, const char **next) {
    size_t n = strlen(l->mark);
    const char *at = n > 0 && from != NULL ? memmem(from, (size_t)(end - from), l->mark, n) : NULL;
    char *after = NULL;
    if (at == NULL) {
        return NULL;
    }
    *number = strtoul(at + n, &after, 10); /* a JSON text ends with NUL */
    if (*number >= l->n || *after != '\003') {
        return NULL;
    }
    *next = after + 1;
    return at;
}

static void add_text(json_t *parts, const char *from, const char *to) {
    if (to > from) {
        json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text",
                                               json_stringn_nocheck(from, (size_t)(to - from))));
    }
}

static void add_picture(picture_list *l, json_t *parts, size_t number) {
    static const char named[] = "[image: not shown]";
    size_t *grown = NULL;
    if (l->at[number].dropped) {
        add_text(parts, named, named + sizeof named - 1);
    } else if ((grown = realloc(l->order, (l->n_order + 1) * sizeof *grown)) != NULL) {
        l->order = grown;
        grown[l->n_order++] = number;
        json_array_append_new(parts, json_pack("{s:s}", "type", "image"));
    }
}

json_t *picture_parts(picture_list *l, const json_t *text) {
    const char *from = json_string_value(text), *next = NULL;
    const char *end = from != NULL ? from + json_string_length(text) : NULL;
    json_t *parts = NULL;
    size_t number = 0;
    for (const char *at; (at = next_mark(l, from, end, &number, &next)) != NULL; from = next) {
        parts = parts != NULL ? parts : json_array();
        add_text(parts, from, at);
        add_picture(l, parts, number);
    }
    if (parts != NULL) {
        add_text(parts, from, end);
    }
    return parts;
}

json_t *picture_take_marks(const picture_list *l, const json_t *text, json_t **rest) {
    const char *from = json_string_value(text), *next = NULL;
    const char *end = from != NULL ? from + json_string_length(text) : NULL;
    text_buffer marks = {0}, others = {0};
    size_t number = 0;
    for (const char *at; (at = next_mark(l, from, end, &number, &next)) != NULL; from = next) {
        text_add(&others, from, (size_t)(at - from));
        text_add(&marks, at, (size_t)(next - at));
    }
    json_t *taken = marks.n > 0 ? json_stringn_nocheck(marks.at, marks.n) : NULL;
    if (taken != NULL) {
        text_add(&others, from, (size_t)(end - from));
        *rest = json_stringn_nocheck(others.n > 0 ? others.at : "", others.n);
    }
    free(marks.at);
    free(others.at);
    return taken;
}
