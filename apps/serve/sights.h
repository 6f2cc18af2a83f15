/* apps/serve/sights.h - what pictures become for one model that sees. A worker decodes them, one at
 * a time in the whole server, since one may take half a GiB until it has been made smaller; the
 * thread of the model's engine encodes them, between its passes. What was made last is kept, known
 * by the digest of the file. */
#ifndef GW_APPS_SERVE_SIGHTS_H
#define GW_APPS_SERVE_SIGHTS_H

#include <stdatomic.h>

#include "apps/serve/picture.h"
#include "include/godwit_image.h"
#include "include/godwit_see.h"

typedef struct sights sights;

/* images is taken over. wake: another picture is to be encoded. NULL: no memory. */
sights *sights_new(gw_images *images, void (*wake)(void *user), void *user);
void sights_free(sights *s); /* accepts NULL; nobody waits for it */
const gw_images *sights_images(const sights *s);

/* On a worker: the picture's look, by which its text is known; its file is let go. salt: one that
 * was kept counts for the same alone. for_text: it will not be encoded. 0 or -1 and *f. */
int sights_look(sights *s, picture *p, uint64_t salt, int for_text, fault *f);
/* On a worker, which waits: the rows of a look that was not made for its text alone. *gone other
 * than 0, from any thread: they are not needed any more, and encoding ends. */
int sights_see(sights *s, look *l, const atomic_int *gone, fault *f);

gw_patches *look_patches(const look *l);
gw_sight *look_sight(const look *l); /* NULL: not encoded */
uint64_t look_bytes(const look *l);  /* that it takes */
void look_free(look *l);             /* accepts NULL */

/* On the engine's thread: encodes one that waits; how many wait still. between: that of
 * gw_model_see_between, so that texts do not wait for a whole picture. */
size_t sights_serve(sights *s, gw_model *gw, gw_between_fn between, void *user);
/* ... which ends: those that wait fail, and all that come, until it begins again. */
void sights_close(sights *s);
void sights_open(sights *s);

#endif
