/* apps/serve/job_pictures.c - the pictures of a request: fetched, decoded, encoded, and their
 * places in its prompts; on a worker. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/serve/account.h"
#include "apps/serve/chat_text.h"
#include "apps/serve/fetch.h"
#include "apps/serve/job_parts.h"

static int no_memory(job *j) { return fault_set(&j->f, 503, NULL, "out of memory"); }

/* ---- looks ----------------------------------------------------------------------------------- */

uint64_t job_looks_bytes(const job *j) {
    uint64_t sum = 0;
    for (size_t i = 0; i < j->ask.pictures.n; i++) {
        const look *l = j->ask.pictures.at[i].look;
        sum += l != NULL ? look_bytes(l) : 0;
    }
    return sum;
}

/* was: what the request held without them. */
static int hold_looks(job *j, uint64_t was) {
    uint64_t bytes = was + job_looks_bytes(j);
    if (account_set(j->s->account, &j->hold, bytes) != 0) {
        fault_set(&j->f, 503, NULL, "too many pictures are held at once: try again later");
        j->f.retry_after = 5;
        return -1;
    }
    return 0;
}

static int fetch(job *j, picture *p) {
    if (!j->s->o->allow_image_urls) {
        return fault_set(&j->f, 400, NULL,
                         "%s: pictures are not fetched from addresses here: send a data URI "
                         "(data:image/TYPE;base64,...), or start the server with "
                         "--allow-image-urls",
                         p->field);
    }
    return fetch_file(p->url, p->field, &p->file, &p->bytes, &j->f);
}

static int look_at(job *j, picture *p, int for_text) {
    const model *m = j->m;
    if (job_is_gone(j)) {
        return fault_set(&j->f, 503, NULL, "the client has left");
    }
    if (m->sights == NULL) {
        return fault_set(&j->f, 400, NULL,
                         "%s: a picture cannot be read: this model takes text%s%s", p->field,
                         m->blind[0] != '\0' ? ": " : "", m->blind);
    }
    if (p->file == NULL && fetch(j, p) != 0) {
        return -1;
    }
    return sights_look(m->sights, p, j->salt, for_text, &j->f);
}

int job_look(job *j, int for_text) {
    picture_list *l = &j->ask.pictures;
    uint64_t was = j->hold.bytes;
    for (size_t i = 0; i < l->n; i++) {
        picture *p = &l->at[i];
        if (p->look != NULL || p->dropped) {
            continue;
        }
        if (look_at(j, p, for_text) != 0) {
            if (j->f.status != 400 || !p->of_a_result) {
                snprintf(j->f.param, sizeof j->f.param, "%.*s", (int)strcspn(p->field, "[."),
                         p->field);
                return -1;
            }
            j->f = (fault){0};
            p->dropped = 1;
        } else if (!for_text && hold_looks(j, was) != 0) {
            return -1;
        }
    }
    return 0;
}

int job_chat_text(job *j, int for_text, gw_chat_text *out) {
    if (j->m->chat == NULL) {
        return fault_set(&j->f, 400, NULL, "%s", j->m->chat_fault);
    }
    return job_look(j, for_text) != 0 ? -1 : chat_text_write(j->m, &j->ask, out, &j->f);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int place(job *j, ask_prompt *p) {
    gw_sight **sight = calloc(p->n_pictures + 1, sizeof *sight);
    for (size_t i = 0; sight != NULL && i < p->n_pictures; i++) {
        look *l = j->ask.pictures.at[p->pictures[i]].look;
        if (job_is_gone(j) || sights_see(j->m->sights, l, &j->gone, &j->f) != 0) {
            free(sight);
            return j->f.status != 0 ? -1 : fault_set(&j->f, 503, NULL, "the client has left");
        }
        sight[i] = look_sight(l);
    }
    gw_status status = sight == NULL ? GW_E_NOMEM
                                     : gw_see_places(j->m->gw, p->ids, p->n, sight, p->n_pictures,
                                                     &p->seen, &p->n_seen);
    free(sight);
    return status == GW_OK ? 0 : fault_of_status(&j->f, status, NULL);
}

int job_see(job *j) {
    uint64_t was = j->hold.bytes - job_looks_bytes(j);
    for (size_t i = 0; i < j->ask.n_prompts; i++) {
        if (j->ask.prompts[i].n_pictures > 0 && place(j, &j->ask.prompts[i]) != 0) {
            return -1;
        }
    }
    return j->ask.pictures.n > 0 ? hold_looks(j, was) : 0;
}

int job_take_order(job *j, const size_t *order, size_t n) {
    ask_prompt *p = &j->ask.prompts[j->ask.n_prompts - 1];
    if (n == 0) {
        return 0;
    }
    p->pictures = malloc(n * sizeof *p->pictures);
    if (p->pictures == NULL) {
        return no_memory(j);
    }
    memcpy(p->pictures, order, n * sizeof *order);
    p->n_pictures = n;
    return 0;
}

/* ---- prompts of texts and pictures ----------------------------------------------------------- */

typedef struct tokens {
    int32_t *ids;
    size_t n;
} tokens;

static int append(job *j, tokens *t, const char *text, size_t bytes, int flags) {
    int32_t *more = NULL, *grown;
    size_t n = 0;
    flags |= t->ids == NULL ? GW_TEXT_BOS : 0;
    gw_status status = gw_tokenize(j->m->gw, text, bytes, flags, &more, &n);
    if (status != GW_OK) {
        return fault_of_status(&j->f, status, "prompt");
    }
    grown = realloc(t->ids, (t->n + n + 1) * sizeof *grown);
    if (grown != NULL) {
        t->ids = grown;
        memcpy(grown + t->n, more, n * sizeof *more);
        t->n += n;
    }
    gw_free(more);
    return grown != NULL ? 0 : no_memory(j);
}

static int append_picture(job *j, tokens *t, const picture *p) {
    char *text = NULL;
    gw_status status = gw_image_text(sights_images(j->m->sights), look_patches(p->look), &text);
    int code = status == GW_OK ? append(j, t, text, strlen(text), GW_TEXT_SPECIAL)
                               : fault_of_status(&j->f, status, "prompt");
    gw_free(text);
    return code;
}

static const char media[] =
    "<__media__>"; /* where a picture stands, as llama-server's clients say */
enum { MEDIA = sizeof media - 1 };

/* The text with the pictures from number `first` on at its places. */
static int join(job *j, const json_t *text, size_t first, tokens *t) {
    const picture_list *l = &j->ask.pictures;
    const char *from = json_string_value(text), *end = from + json_string_length(text), *at;
    int special = j->ask.no_special ? 0 : GW_TEXT_SPECIAL;
    for (size_t i = first; i < l->n; i++) {
        at = memmem(from, (size_t)(end - from), media, MEDIA);
        if ((at > from && append(j, t, from, (size_t)(at - from), special) != 0) ||
            append_picture(j, t, &l->at[i]) != 0) {
            return -1;
        }
        from = at + MEDIA;
    }
    return append(j, t, from, (size_t)(end - from), special | GW_TEXT_OPEN);
}

static size_t count_places(const json_t *text) {
    const char *from = json_string_value(text), *end = from + json_string_length(text);
    size_t n = 0;
    while ((from = memmem(from, (size_t)(end - from), media, MEDIA)) != NULL) {
        from += MEDIA;
        n++;
    }
    return n;
}

int job_read_pictures(job *j, const json_t *given, int32_t **ids, size_t *n) {
    picture_list *l = &j->ask.pictures;
    const json_t *text = json_object_get(given, "prompt_string");
    const json_t *data = json_object_get(given, "multimodal_data"), *one;
    size_t first = l->n, i;
    char field[64];
    if (!json_is_string(text) || (data != NULL && !json_is_array(data))) {
        return fault_set(
            &j->f, 400, "prompt",
            "prompt: an object has \"prompt_string\", a text, and \"multimodal_data\", "
            "a list of files in base64");
    }
    if (count_places(text) != json_array_size(data)) {
        return fault_set(&j->f, 400, "prompt",
                         "prompt: prompt_string has %zu places %s for the %zu pictures of "
                         "multimodal_data",
                         count_places(text), media, json_array_size(data));
    }
    json_array_foreach(data, i, one) {
        snprintf(field, sizeof field, "prompt.multimodal_data[%zu]", i);
        if (picture_add_file(l, one, field, &j->f) != 0) {
            return -1;
        }
    }
    tokens t = {0};
    if (job_look(j, 0) != 0 || join(j, text, first, &t) != 0) {
        free(t.ids);
        return -1;
    }
    *ids = t.ids;
    *n = t.n;
    return 0;
}
