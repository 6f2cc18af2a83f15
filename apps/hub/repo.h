/* apps/hub/repo.h - the files of a model on a hub, and which of them are needed. */
#ifndef GW_HUB_REPO_H
#define GW_HUB_REPO_H

#include "apps/hub/cache.h"
#include "apps/hub/choice.h"

typedef struct hub_file {
    char *path;
    uint64_t size;
    char digest[65]; /* SHA-256 of a large file, else the SHA-1 that git names it by */
    int is_git;
    int wanted;
} hub_file;

typedef struct hub_repo {
    char commit[65];
    hub_file *files;
    size_t n;
} hub_repo;

/* Asks the hub. Exit code, the error said. Free with repo_free. */
int repo_list(const hub_name *name, hub_repo *out);
void repo_free(hub_repo *r);

/* Marks what is needed: of .gguf files one quantization with all its parts, and the image part
 * beside it; else a folder's configuration, tokenizer and weights. quant "": the one that is chosen
 * for the devices that o names (choice.h), NULL: as if all of them had room. *first: the index of
 * the file to open; SIZE_MAX: the folder. Says what was chosen in `why` [HUB_WHY]. Exit code, the
 * error said. */
int repo_choose(hub_repo *r, const hub_name *name, const app_options *o, size_t *first, char *why);

/* The part of a .gguf file's name that says how it is quantized, "Q4_K_M": its bytes, 0: none. */
size_t quant_of(const char *path, const char **at);

#endif
