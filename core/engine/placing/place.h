/* core/engine/placing/place.h - which layer runs where: opens the devices asked for, spreads the
 * layers.
 *
 * The last N blocks, and from N = 1 on the output head with them, run on the devices that were
 * asked for, the rest on the home device, the CPU. Of several devices the first takes the first of
 * these blocks. What a device has no kernel for runs on the CPU. Weights and caches lie where their
 * block runs; only the hidden state crosses.
 */
#ifndef GW_ENGINE_PLACE_H
#define GW_ENGINE_PLACE_H

#include "core/engine/run/kv.h"
#include "core/model/weights.h"

/* Are prompts of layers and experts in main memory computed on a card? */
typedef enum gw_fetching { GW_FETCH_AUTO, GW_FETCH_ALWAYS, GW_FETCH_NEVER } gw_fetching;

/* What a model's vision tower takes of a device: of what may be used in all, and of what was free
 * when the devices were opened and it is yet to take. */
typedef struct gw_place_taken {
    uint64_t all, ahead;
} gw_place_taken;

/* Caches of how many layers of cards lie in main memory: of none, of so many (gw_place.hosted), of
 * as many as the cards have no room for. */
typedef enum gw_hosting { GW_HOST_NONE, GW_HOST_COUNT, GW_HOST_AUTO } gw_hosting;

typedef struct gw_place {
    gw_plan_device devices[GW_MAX_DEVICES]; /* [0]: home */
    gw_device_info info[GW_MAX_DEVICES];    /* as they were when they were opened */
    int n_devices;
    int asked[GW_MAX_DEVICES]; /* indices into devices, in the order asked for */
    double share[GW_MAX_DEVICES];
    int n_asked;
    /* --split-mode tensor, hybrid: by the device that stands for a group in `where`; else n 1. */
    gw_group group[GW_MAX_DEVICES];
    int grouped;     /* some group has several cards */
    int by_forecast; /* --split-mode auto: gw_place_choose arranges them once more */
    int equal;       /* nobody named shares: those of a layer are equal */
    int listed[GW_MAX_DEVICES], n_listed; /* `asked` and `share` while each was alone */
    double listed_share[GW_MAX_DEVICES];
    int n_layers, n_blocks, last_block; /* last_block: of a layer, experts aside */
    int offloaded;                      /* N */
    int cpu_experts;                    /* the experts of the first so many layers stay at home */
    int tables_home;                    /* tables of n-grams do, for want of room */
    gw_where *where;                    /* [(n_layers + 1) * n_blocks] */
    unsigned noted;                     /* bit d: what devices[d] does another way was known */
    int automatic;                      /* device "auto"                                     */
    int tried;                          /* of the cards, when nobody named a device          */
    gw_place_taken taken[GW_MAX_DEVICES];
    int picture_parts; /* of a row of a picture; 0: the model has no tower  */
    int none_fits;     /* not one layer fits where it might be faster       */
    gw_fetching fetching;
    gw_hosting hosting;
    int32_t hosted;                        /* of GW_HOST_COUNT: layers                        */
    uint64_t kept_room[GW_MAX_DEVICES];    /* for states and caches; UINT64_MAX: not known     */
    uint64_t scratch_room[GW_MAX_DEVICES]; /* that a session needs next to them               */
    char note[512];
    char fault[256]; /* what came up in a session; "" */
} gw_place;

/* Cards that were tried and do not work, when nobody named a device. */
typedef struct gw_passed {
    int cards;
    char why[200];
} gw_passed;

/* Opens the home device and those of options->device; when nobody named one, the first card that
 * opens behind those in `passed`. backends: the registry, home first. GW_E_ARGUMENT: a list or
 * split that is not well formed; GW_E_DEVICE: a device that is not there, with a list of those that
 * are. gw_place_close in both cases. */
gw_status gw_place_open(const gw_model_options *options, const gw_backend *const *backends,
                        const gw_passed *passed, gw_place *place);
void gw_place_close(gw_place *place);

/* place_groups.c, of gw_place_open: groups of the devices asked for, as split_mode says; `asked` is
 * then what stands for each. GW_E_ARGUMENT: a mode or list that is not well formed. */
gw_status gw_place_group_devices(gw_place *place, const gw_model_options *options);

/* One way in which the devices asked for share the layers: each group a bit for every place in
 * their list. */
typedef struct gw_arrangement {
    unsigned group[GW_MAX_DEVICES];
    int n;
    char name[64]; /* "layer", "tensor", "hybrid 0,1;2,3" */
} gw_arrangement;

enum { GW_ARRANGEMENTS = 4 };

/* The ways that --split-mode auto weighs, no two alike: all together, where so many can be; each
 * alone; groups by links; of four devices and more also groups of two by links, where more cards
 * are linked alike. Their number. */
int gw_place_arrangements(const gw_place *place, gw_arrangement out[GW_ARRANGEMENTS]);
/* `asked`, `share` and `group` become so. GW_E_ARGUMENT: a share that is none. */
gw_status gw_place_arrange(gw_place *place, const gw_arrangement *way);

/* The device that prompts of what lies in main memory may go to; 0: none. */
int gw_place_fetches(const gw_place *place);

/* The groups [n_devices]; NULL where every device is alone. */
static inline const gw_group *gw_place_groups(const gw_place *place) {
    return place->grouped ? place->group : NULL;
}
/* The group that device d stands for. */
static inline gw_group gw_place_group(const gw_place *place, int d) {
    return place->grouped && place->group[d].n > 1 ? place->group[d]
                                                   : (gw_group){.n = 1, .device = {d}};
}
/* What part device d has of what stands at device `at`: 1, 0, or its share of the group. */
double gw_place_part(const gw_place *place, int at, int d);
static inline uint64_t gw_place_part_bytes(uint64_t bytes, double part) {
    return part < 1.0 ? (uint64_t)((double)bytes * part) : bytes;
}

/* What a model needs on each device, for every block. */
typedef struct gw_place_sizes {
    gw_weights *weights;
    const gw_hparams *hp;
    gw_kv_pair kv_fmt;
    int32_t n_ctx, chunk;
    uint64_t *bytes[GW_MAX_DEVICES];   /* [(n_layers + 1) * n_blocks] of the matrices */
    int sees;                          /* a vision tower, which counts its own memory */
    int picture_parts;                 /* gw_place */
    int has_experts;                   /* some layer has */
    int has_tables;                    /* of n-grams     */
    gw_where *accepts[GW_MAX_DEVICES]; /* the same: has the device kernels for it?    */
    uint64_t vectors, kv_table;
    uint64_t blas;                 /* that a device works with in prompts under --blas */
    uint64_t room[GW_MAX_DEVICES]; /* free, or the budget; 0: unknown             */
    uint64_t *cache;               /* [n_layers] bytes of one sequence's */
    unsigned char *host; /* [n_layers], and where caches stand: of gw_place_host_sizes, last */
    int *cache_at;
} gw_place_sizes;

/* The context in tokens that options ask for. */
int32_t gw_place_context(const gw_model_options *options, const gw_hparams *hp);

/* Bytes that may be used of a device; 0: not known. */
uint64_t gw_place_room(const gw_place *place, const gw_model_options *options, int d);
/* An upper bound of what attention's kernels work with in a pass of so many rows over so many
 * pages.
 */
uint64_t gw_place_kernel_bytes(const gw_hparams *hp, uint64_t rows, uint64_t pages);

/* Sizes of weights that are open but not loaded; also fills the place's counts of blocks. */
gw_status gw_place_measure(gw_place *place, gw_weights *weights, const gw_hparams *hp,
                           const gw_model_options *options, gw_place_sizes *out);
void gw_place_sizes_free(gw_place_sizes *sizes);

/* Bytes on one device. scratch: activations, tables, logits, and an upper bound of what kernels
 * work with. */
typedef struct gw_place_use {
    int layers, head, host_layers;
    uint64_t weights, kv, scratch;
    uint64_t kv_host; /* of its layers' caches in main memory, which kv is without */
} gw_place_use;

/* Bytes of the block layer * n_blocks + b that one token reads: of experts those it is sent to. */
double gw_place_used(const gw_place_sizes *sizes, int device, int at);

/* Where every block runs with N = n layers offloaded; where [(n_layers + 1) * n_blocks]. */
void gw_place_spread(const gw_place *place, const gw_place_sizes *sizes, int n, gw_where *where);
/* use [n_devices]. 1 when it fits everywhere; *tight (may be NULL): a device where it does not, 0
 * where main memory has no room for caches of cards. */
int gw_place_fits(const gw_place *place, const gw_place_sizes *sizes, const gw_where *where,
                  gw_place_use *use, int *tight);

/* place_modes.c. Seconds of one generated token with all layers on the devices asked for, as they
 * are arranged; -1: they do not fit. gauges: gw_gauge_all. */
struct gw_gauge;
double gw_place_token_seconds(const gw_place *place, const gw_place_sizes *sizes,
                              const struct gw_gauge *gauges, gw_where *room);
/* The first of the least of seconds [n] that are not below 0; -1: there are none. */
int gw_place_fastest(const double *seconds, int n);
/* --split-mode auto: times each of gw_place_arrangements, arranges the devices as is fastest for
 * one generated token, and notes it. Alone where all layers fit in no way. room [as where]. */
gw_status gw_place_choose(gw_place *place, const gw_place_sizes *sizes, gw_where *room);

/* Decide N as options ask, "auto" by measuring, and fill place->offloaded and place->where.
 * GW_E_NOMEM says what is needed, what is free and the largest N that fits. */
gw_status gw_place_layers(gw_place *place, const gw_place_sizes *sizes,
                          const gw_model_options *options);

/* place_caches.c: which layers' caches lie in main memory, while their cards read them over their
 * links with the same kernels, to the same bits. */

/* text: "auto", "all", "none" or a number of layers; NULL: auto. GW_E_ARGUMENT. */
gw_status gw_place_read_hosting(gw_place *place, const char *text);
/* Caches of a session: of each layer, and what devices have for them. */
typedef struct gw_place_caches {
    const uint64_t *bytes;         /* [n_layers] 0: the layer has none */
    const int *at;                 /* [n_layers] the device that it stands at */
    uint64_t room[GW_MAX_DEVICES]; /* UINT64_MAX: not known */
} gw_place_caches;
/* host [n_layers]: 1: in main memory. The largest first, for a card reads of a small one, a ring,
 * all of it early in a text; of equal ones the first, but of a given number of layers those that
 * lie evenly between the others, so that all cards have some. */
void gw_place_host_caches(const gw_place *place, const gw_place_caches *caches,
                          unsigned char *host);
/* The same for sizes that were measured, into sizes->host; moves the bytes from use[d].kv to
 * use[d].kv_host, of d's own layers. use [n_devices], of all caches on their devices. */
void gw_place_host_sizes(const gw_place *place, const gw_place_sizes *sizes, const gw_where *where,
                         gw_place_use *use);
/* Has main memory room for the caches that are there, of cards and of the layers at home? */
int gw_place_home_fits(const gw_place *place, const gw_place_sizes *sizes, const gw_place_use *use);
/* The same; yes where there are none of cards: sessions may be shorter than options say. */
int gw_place_hosting_fits(const gw_place *place, const gw_place_sizes *sizes,
                          const gw_place_use *use);
/* Says that it has not. */
gw_status gw_place_refuse_hosting(const gw_place *place, const gw_place_sizes *sizes,
                                  const gw_place_use *use);
/* Of the layers as they are placed and gw_place_fits has them: what sessions may put on the
 * devices, and a sentence about what goes to main memory. GW_E_UNSUPPORTED: a given number cannot.
 */
gw_status gw_place_keep_caches(gw_place *place, const gw_place_sizes *sizes,
                               const gw_place_use *use);

/* Another sentence for the note. */
void gw_place_add_note(gw_place *place, const char *text);
/* The model could not be opened with the card that nobody named, as gw_error_text says: 1 when it
 * is to be tried without, and passed knows the card. */
int gw_place_pass_over(const gw_place *place, const gw_model_options *options, gw_status status,
                       gw_passed *passed);
/* Adds to place->note what the devices that `where` names do another way than asked for. */
void gw_place_add_notes(gw_place *place);
/* Warnings of those devices since the place was opened; "" when there are none. */
const char *gw_place_fault(const gw_place *place);

/* For a session: a copy of place->where in which attention runs at home where its device has no
 * kernel for this kind of cache. where [(n_layers + 1) * n_blocks]. */
gw_status gw_place_session(const gw_place *place, const gw_weights *weights, const gw_hparams *hp,
                           gw_kv_pair kv_fmt, gw_where *where);

/* "opencl:0 (NVIDIA H200): 20 layers and the head; cpu (...), 8 threads: 12 layers" */
void gw_place_text(const gw_place *place, char *out, size_t room);
/* "on NVIDIA H200, all 32 layers; --device cpu for the CPU"; "" when a device was named, or there
 * was nothing to choose. */
void gw_place_chosen(const gw_place *place, char *out, size_t room);

#endif
