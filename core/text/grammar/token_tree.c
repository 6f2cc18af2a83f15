/* core/text/grammar/token_tree.c - the tokens as a tree of their bytes; see grammar.h. */
#include "core/text/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_BYTES_MAX = 4096 }; /* longer ones are never chosen under a grammar */

int gw_token_is_text(const gw_vocab *vocab, const gw_tokenizer *tokenizer, int32_t id) {
    if (id < 0 || (size_t)id >= vocab->n_tokens) {
        return 0;
    }
    const gw_vocab_token *token = &vocab->tokens[id];
    const char *text;
    size_t bytes;
    gw_tokenizer_piece(tokenizer, id, 0, &text, &bytes);
    return token->kind != GW_TOKEN_CONTROL && token->kind != GW_TOKEN_UNKNOWN && !token->special &&
           bytes > 0 && bytes <= TOKEN_BYTES_MAX && memchr(text, GW_TOKEN_OPENS, bytes) == NULL &&
           memchr(text, GW_TOKEN_CLOSES, bytes) == NULL;
}

typedef struct spelled { /* a token */
    const char *text;
    uint32_t bytes;
    int32_t id;
} spelled;

static int by_bytes(const void *a, const void *b) {
    const spelled *x = a, *y = b;
    int c = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (c != 0) {
        return c;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t shared(const spelled *a, const spelled *b) {
    uint32_t n = 0;
    while (n < a->bytes && n < b->bytes && a->text[n] == b->text[n]) {
        n++;
    }
    return n;
}

/* Node 0.. in the order of the sorted tokens; path [deepest] holds the open ones. */
static void fill(gw_token_tree *tree, const spelled *list, size_t n, uint32_t *path) {
    uint32_t at = 0, depth = 0;
    for (size_t i = 0; i < n; i++) {
        const spelled *token = &list[i];
        uint32_t same = i > 0 ? shared(&list[i - 1], token) : 0;
        while (depth > same) {
            tree->nodes[path[--depth]].end = at;
        }
        while (depth < token->bytes) {
            tree->nodes[at] = (gw_token_node){
                .depth = (uint16_t)depth, .byte = (uint8_t)token->text[depth], .id = -1};
            tree->first[at] = (uint32_t)i;
            path[depth++] = at++;
        }
        gw_token_node *last = &tree->nodes[path[depth - 1]];
        last->several = last->id >= 0;
        last->id = token->id;
        tree->ids[i] = token->id;
    }
    while (depth > 0) {
        tree->nodes[path[--depth]].end = at;
    }
    tree->first[at] = (uint32_t)n;
}

/* What a token is in the tree; bytes 0: it has no place there. */
static gw_status spell(const gw_vocab *vocab, const gw_tokenizer *tokenizer, int32_t id,
                       gw_arena *marks, spelled *out) {
    const char *text;
    size_t bytes;
    *out = (spelled){.id = id};
    if (gw_token_is_text(vocab, tokenizer, id)) {
        gw_tokenizer_piece(tokenizer, id, 0, &out->text, &bytes);
        out->bytes = (uint32_t)bytes;
        return GW_OK;
    }
    const gw_vocab_token *token = &vocab->tokens[id];
    if (token->kind == GW_TOKEN_BYTE || token->bytes == 0 || token->bytes > TOKEN_BYTES_MAX) {
        return GW_OK;
    }
    text = token->text;
    bytes = token->bytes;
    char *word = gw_arena_alloc(marks, bytes + 2);
    if (word == NULL) {
        return gw_fail(GW_E_NOMEM, NULL, "no memory for a tree of tokens");
    }
    word[0] = (char)GW_TOKEN_OPENS;
    memcpy(word + 1, text, bytes);
    word[bytes + 1] = (char)GW_TOKEN_CLOSES;
    out->text = word;
    out->bytes = (uint32_t)bytes + 2;
    return GW_OK;
}

gw_status gw_token_tree_new(const gw_vocab *vocab, const gw_tokenizer *tokenizer, size_t n_tokens,
                            gw_token_tree **out) {
    gw_status status = GW_OK;
    gw_token_tree *tree = calloc(1, sizeof *tree);
    spelled *list = calloc(n_tokens + 1, sizeof *list);
    gw_arena *marks = gw_arena_new();
    uint32_t *path = NULL;
    size_t n = 0, nodes = 0;
    if (tree == NULL || list == NULL || marks == NULL) {
        goto no_memory;
    }
    for (size_t i = 0; i < n_tokens; i++) {
        GW_TRY_DONE(spell(vocab, tokenizer, (int32_t)i, marks, &list[n]));
        tree->deepest = list[n].bytes > tree->deepest ? list[n].bytes : tree->deepest;
        n += list[n].bytes > 0;
    }
    qsort(list, n, sizeof *list, by_bytes);
    for (size_t i = 0; i < n; i++) {
        nodes += list[i].bytes - (i > 0 ? shared(&list[i - 1], &list[i]) : 0);
    }
    tree->nodes = calloc(nodes + 1, sizeof *tree->nodes);
    tree->first = calloc(nodes + 1, sizeof *tree->first);
    tree->ids = calloc(n + 1, sizeof *tree->ids);
    path = calloc(tree->deepest + 1, sizeof *path);
    if (nodes >= UINT32_MAX || tree->nodes == NULL || tree->first == NULL || tree->ids == NULL ||
        path == NULL) {
        goto no_memory;
    }
    tree->n_nodes = (uint32_t)nodes;
    tree->vocab = vocab;
    tree->tokenizer = tokenizer;
    fill(tree, list, n, path);
    *out = tree;
    tree = NULL;
    goto done;
no_memory:
    status = gw_fail(GW_E_NOMEM, NULL, "no memory for a tree of %zu tokens", n_tokens);
done:
    gw_token_tree_free(tree);
    gw_arena_free(marks);
    free(list);
    free(path);
    return status;
}

void gw_token_tree_free(gw_token_tree *tree) {
    if (tree != NULL) {
        free(tree->nodes);
        free(tree->first);
        free(tree->ids);
        free(tree);
    }
}
