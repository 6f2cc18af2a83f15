/* apps/serve/sights.c - see sights.h. */
#include "apps/serve/sights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/os_threads.h"
#include "core/base/sha256.h"

enum { KEPT_LOOKS = 64, DIGEST = 32 };
static const uint64_t KEPT_BYTES = 256u << 20;

struct look {
    atomic_int holders;
    unsigned char digest[DIGEST];
    gw_patches *patches;
    gw_sight *sight;
    uint64_t bytes;
};

/* A picture that waits for the engine's thread; on the stack of the worker. */
typedef struct waiting {
    struct waiting *next;
    look *look;
    const atomic_int *gone; /* other than 0: nobody waits for the answer any more */
    int done, status;
    char text[256];
} waiting;

struct sights {
    gw_images *images;
    void (*wake)(void *user);
    void *user;
    pthread_mutex_t lock;
    pthread_cond_t served;
    look *kept[KEPT_LOOKS]; /* [n_kept] the last one first */
    size_t n_kept;
    uint64_t bytes; /* of these */
    waiting *first, **end;
    size_t n_waiting;
    int closed;
};

sights *sights_new(gw_images *images, void (*wake)(void *user), void *user) {
    sights *s = calloc(1, sizeof *s);
    if (s == NULL) {
        gw_images_free(images);
        return NULL;
    }
    s->images = images;
    s->wake = wake;
    s->user = user;
    s->end = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->served, NULL);
    return s;
}

void sights_free(sights *s) {
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->n_kept; i++) {
        look_free(s->kept[i]);
    }
    gw_images_free(s->images);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->served);
    free(s);
}

const gw_images *sights_images(const sights *s) { return s->images; }

/* ---- looks ----------------------------------------------------------------------------------- */

gw_patches *look_patches(const look *l) { return l->patches; }
gw_sight *look_sight(const look *l) { return l->sight; }
uint64_t look_bytes(const look *l) { return l->bytes; }

void look_free(look *l) {
    if (l != NULL && atomic_fetch_sub(&l->holders, 1) == 1) {
        gw_image_free(l->patches);
        gw_sight_free(l->sight);
        free(l);
    }
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* Moves the i-th to the front; under the lock. */
static void to_front(sights *s, size_t i) {
    look *l = s->kept[i];
    memmove(s->kept + 1, s->kept, i * sizeof(look *));
    s->kept[0] = l;
}

/* One more holder of it; NULL: it is not known. */
static look *find(sights *s, const unsigned char digest[DIGEST]) {
    look *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_kept && found == NULL; i++) {
        if (memcmp(s->kept[i]->digest, digest, DIGEST) == 0) {
            found = s->kept[i];
            atomic_fetch_add(&found->holders, 1);
            to_front(s, i);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* Under the lock: two requests may have brought the same one, which then is kept once. */
static void keep(sights *s, look *l) {
    for (size_t i = 0; i < s->n_kept; i++) {
        if (memcmp(s->kept[i]->digest, l->digest, DIGEST) == 0) {
            return;
        }
    }
    while (s->n_kept > 0 && (s->n_kept == KEPT_LOOKS || s->bytes + l->bytes > KEPT_BYTES)) {
        look *last = s->kept[--s->n_kept];
        s->bytes -= last->bytes;
        look_free(last);
    }
    if (l->bytes <= KEPT_BYTES) {
        atomic_fetch_add(&l->holders, 1);
        s->bytes += l->bytes;
        s->kept[s->n_kept++] = l;
        to_front(s, s->n_kept - 1);
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

static gw_status decode(const sights *s, const picture *p, gw_patches **out) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    gw_status status = gw_image_read(s->images, p->field, p->file, p->bytes, out);
    pthread_mutex_unlock(&one);
    return status;
}

int sights_look(sights *s, picture *p, uint64_t salt, int for_text, fault *f) {
    unsigned char digest[DIGEST];
    gw_sha256 h;
    gw_sha256_begin(&h);
    gw_sha256_add(&h, &salt, sizeof salt);
    gw_sha256_add(&h, p->file, p->bytes);
    gw_sha256_end(&h, digest);
    look *l = find(s, digest);
    if (l == NULL) {
        gw_patches *patches = NULL;
        gw_status status = decode(s, p, &patches);
        l = status == GW_OK ? calloc(1, sizeof *l) : NULL;
        if (l == NULL) {
            gw_image_free(patches);
            return status != GW_OK ? fault_of_status(f, status, NULL)
                                   : fault_set(f, 503, NULL, "out of memory");
        }
        atomic_init(&l->holders, 1);
        memcpy(l->digest, digest, DIGEST);
        l->patches = patches;
        gw_image_salt(patches, salt);
        if (for_text) {
            gw_image_drop_pixels(patches);
        }
        l->bytes = gw_image_bytes(patches);
    }
    p->look = l;
    free(p->file);
    p->file = NULL;
    return 0;
}

int sights_see(sights *s, look *l, const atomic_int *gone, fault *f) {
    waiting w = {.look = l, .gone = gone};
    pthread_mutex_lock(&s->lock);
    if (l->sight != NULL) {
        pthread_mutex_unlock(&s->lock);
        return 0;
    }
    if (s->closed) {
        w.status = GW_E_CANCELLED;
        snprintf(w.text, sizeof w.text, "the model has stopped");
    } else {
        *s->end = &w;
        s->end = &w.next;
        s->n_waiting++;
        s->wake(s->user);
        while (!w.done) {
            pthread_cond_wait(&s->served, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (w.status == GW_OK) {
        return 0;
    }
    fault_of_status(f, (gw_status)w.status, NULL);
    snprintf(f->text, sizeof f->text, "%s", w.text);
    return -1;
}

/* ---- the engine's thread --------------------------------------------------------------------- */

/* Under the lock. */
static void take_first(sights *s) {
    s->first = s->first->next;
    s->end = s->first != NULL ? s->end : &s->first;
    s->n_waiting--;
}

static uint64_t bytes_of(const gw_sight *sight) {
    uint64_t rows = (uint64_t)gw_sight_rows(sight);
    const float *first = gw_sight_row(sight, 0), *second = gw_sight_row(sight, 1);
    uint64_t width = first != NULL && second != NULL ? (uint64_t)(second - first) : 1 << 16;
    return rows * width * sizeof *first;
}

/* What a picture that is being encoded is stopped by, and lets be computed between its parts. */
typedef struct course {
    const waiting *w;
    gw_between_fn between;
    void *user;
} course;

static int go_on(void *user) {
    const course *c = user;
    return atomic_load(c->w->gone) != 0 || c->between(c->user) != 0;
}

size_t sights_serve(sights *s, gw_model *gw, gw_between_fn between, void *user) {
    pthread_mutex_lock(&s->lock);
    waiting *w = s->first;
    if (w == NULL) {
        pthread_mutex_unlock(&s->lock);
        return 0;
    }
    take_first(s);
    pthread_mutex_unlock(&s->lock);
    gw_sight *sight = NULL;
    course c = {w, between, user};
    gw_status status = gw_model_see_between(gw, w->look->patches, go_on, &c, &sight);
    w->status = (int)status;
    if (status != GW_OK) {
        snprintf(w->text, sizeof w->text, "%s", gw_error_text());
    }
    pthread_mutex_lock(&s->lock);
    if (status == GW_OK) {
        gw_image_drop_pixels(w->look->patches);
        w->look->sight = sight;
        w->look->bytes = gw_image_bytes(w->look->patches) + bytes_of(sight);
        keep(s, w->look);
    }
    w->done = 1;
    size_t more = s->n_waiting;
    pthread_cond_broadcast(&s->served);
    pthread_mutex_unlock(&s->lock);
    return more;
}

void sights_close(sights *s) {
    pthread_mutex_lock(&s->lock);
    s->closed = 1;
    while (s->first != NULL) {
        waiting *w = s->first;
        take_first(s);
        w->status = GW_E_CANCELLED;
        snprintf(w->text, sizeof w->text, "the model has stopped");
        w->done = 1;
    }
    pthread_cond_broadcast(&s->served);
    pthread_mutex_unlock(&s->lock);
}

void sights_open(sights *s) {
    pthread_mutex_lock(&s->lock);
    s->closed = 0;
    pthread_mutex_unlock(&s->lock);
}
