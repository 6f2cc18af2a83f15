/* apps/hub/cache.h - the folder in which Hugging Face's own tools keep what they download, in their
 * layout (huggingface_hub, "Understand caching"), so that all share it:
 *   models--USER--REPO/blobs/DIGEST               what was downloaded, whole
 *   models--USER--REPO/snapshots/COMMIT/PATH      links to blobs
 *   models--USER--REPO/refs/REVISION              the commit of a revision
 *   .locks/models--USER--REPO/DIGEST.lock         held (flock) while a blob is made
 * A blob appears by a rename when its digest was found right; a revision when all its files did. */
#ifndef GW_HUB_CACHE_H
#define GW_HUB_CACHE_H

#include <stddef.h>
#include <stdint.h>

enum { HUB_PATH = 2048, HUB_NAME = 256 };

/* What people call a model of a hub: user/repo[:quant], hf:..., an address of its page or file. */
typedef struct hub_name {
    char repo[HUB_NAME];     /* user/repo */
    char quant[HUB_NAME];    /* of the name, in any case, or a file; "": any */
    char revision[HUB_NAME]; /* "main" */
    char address[HUB_PATH];  /* of a file that is on no hub; then the rest is empty */
} hub_name;

/* Is it such a name, and not that of a file or folder here? Then it is in *out. */
int hub_name_of(const char *text, hub_name *out);

/* Paths, in out[HUB_PATH]; 0, or -1: too long. */
int cache_root(char *out); /* HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME or ~/.cache */
int cache_repo(const char *repo, char *out);
int cache_join(char *out, const char *a, const char *b);

/* The snapshot of a revision that is in the cache: 1, its folder in out; 0: none. */
int cache_snapshot(const char *repo, const char *revision, char *out);

int cache_folders(const char *path); /* mkdir -p of its folder; 0, or -1 with the error said */
/* snapshots/COMMIT/PATH -> the blob; refs/REVISION. 0, or -1 with the error said. */
int cache_link(const char *repo, const char *commit, const char *path, const char *blob);
int cache_set_ref(const char *repo, const char *revision, const char *commit);

/* The lock of a blob: a descriptor to close; -1: said, or a signal came. Waits for others. */
int cache_lock(const char *repo, const char *blob);

#endif
