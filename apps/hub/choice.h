/* apps/hub/choice.h - which of several quantizations of one model: by what the devices here hold
 * and how fast they read it. Nothing of it is here yet: the size and the bits of each are known. */
#ifndef GW_HUB_CHOICE_H
#define GW_HUB_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "apps/options.h"

enum { HUB_WHY = 512, HUB_CHOICES = 256 };

typedef struct hub_choice {
    uint64_t bytes; /* of all its parts */
    double bits;    /* of a weight, about, by its name; 0: not known */
    int is_usual;   /* Q4_K_M */
} hub_choice;

/* The memories that a model is put into, in the order in which they are filled. */
typedef struct hub_machine {
    struct {
        char id[32];
        uint64_t room; /* bytes that may be used; 0: not known */
        double gbps;   /* reading; 0: not known */
    } at[GW_DEVICES_MAX];
    size_t n;
    uint64_t caches; /* bytes of the processor's; a model in them has another speed */
} hub_machine;

/* Where `godwit run` would put a model with these options (--device, --vram-budget); measures the
 * speed of each memory when it is not known yet. Exit code, the error said. */
int choice_machine(const app_options *o, hub_machine *out);

/* The index of the one to take, and why in `why` [HUB_WHY]. Of those that fit and have four bits or
 * more, those with 4/5 of the fastest one's speed are near it: Q4_K_M, else the largest of them.
 * None has four bits: the largest that fits; none fits: the smallest. m NULL: every one fits.
 * n: 1..HUB_CHOICES. */
size_t choice_best(const hub_machine *m, const hub_choice *rows, size_t n, char *why);

#endif
