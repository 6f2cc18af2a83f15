/* apps/common.h - what several commands do alike: open a model, read a text, report an error. */
#ifndef GW_APPS_COMMON_H
#define GW_APPS_COMMON_H

#include "apps/options.h"
#include "apps/terminal.h"

/* Print the library's error text and return the exit code for the status: 2 for an argument, 128 +
 * signal when a signal caused the cancellation (nothing is printed then), else 1. */
int app_fail(gw_status status);

/* What the sessions of a model will ask for, so that its layers can be placed; as in
 * gw_model_options. */
typedef struct app_need {
    int32_t n_ctx, batch;
    int is_draft;  /* the model drafts for another, of which has been said where it runs */
    int predictor; /* as in gw_model_options */
    const char *target;
    int images;    /* its vision tower is opened too */
    /* ... only if it has one that can be opened: *eyes, else NULL and why in blind, where somebody
     * may wonder. NULL: no. */
    struct gw_images **eyes;
    char *blind; /* [PICTURES_BLIND], pictures.h */
} app_need;

/* The model options of o for the model at path (NULL: the built-in one). Exit code. */
int app_model_options(const app_options *o, const char *path, int32_t threads, const app_need *need,
                      gw_model_options *out);

/* Says what came up since it was opened (gw_model_info.fault), and frees it. NULL: nothing. */
void app_close_model(gw_model *model);
/* The model at path (NULL: the built-in one) with the model options of o. need NULL: only the
 * vocabulary is opened. Exit code. */
int app_open_model(const app_options *o, const char *path, int32_t threads, const app_need *need,
                   gw_model **model);
/* Is the word somewhere in the text, in whatever case? */
int app_mentions(const char *text, const char *word);
/* Of a model that drafts for another one (target_width): what people call its kind. */
const char *app_head_kind(const gw_model_info *info);
/* The image of the built-in model. Exit code. */
int app_has_builtin_model(void);
int app_builtin_model(const void **memory, size_t *bytes);
int app_open_session(const app_options *o, gw_model *model, int32_t n_ctx, int32_t batch,
                     gw_session **session);

typedef struct app_text {
    char *at; /* malloc'd, NUL-terminated */
    size_t bytes;
} app_text;

/* How the chats of o are written: template, arguments, date. model NULL: none. Exit code. */
int app_open_chat(const app_options *o, const gw_model *model, gw_chat **chat);

/* Everything of a file; "-" is standard input. Exit code. */
int app_read_file(const char *path, app_text *out);
/* The same of at most `most` bytes; what: the word for it in messages. */
int app_read_bytes(const char *path, const char *what, size_t most, app_text *out);
/* The text of -p or -f; `otherwise` when neither is given (NULL: that is a usage error). One
 * line end (LF or CR LF) at the end of a file is dropped if `trim`: editors add it. */
int app_read_prompt(const app_options *o, const char *otherwise, int trim, app_text *out);

/* Does a pipe or a file wait at standard input? Not a terminal, and not /dev/null. */
int app_stdin_is_piped(void);
/* A line about special tokens in a text that was tokenized with these flags, where one is due. */
void app_note_tokens(const gw_model *model, const app_text *text, int flags, const int32_t *ids,
                     size_t n);

/* The tokens of a text; flags of gw_tokenize. Exit code; ids are freed with gw_free. */
int app_tokenize(const gw_model *model, const app_text *text, int flags, int32_t **ids, size_t *n);

/* Token ids given by the user against the vocabulary. Exit code. */
int app_check_ids(const gw_model *model, const char *option, const app_ints *ids);

/* Does the model put bos before a text? */
int app_adds_bos(const gw_model *model);

/* Index of the largest of x [n], lowest first; -1 when none is finite, or one is NaN or +inf. */
int32_t app_argmax(const float *x, int32_t n);

/* "12.9 MB", decimal units. */
const char *app_bytes(uint64_t bytes, char text[32]);

/* The secret of --secret-file, without its line end; free it. Exit code. */
int worker_secret(const app_options *o, app_text *out);

extern const app_command *const app_commands[]; /* ends with NULL */

/* What `godwit help --man` and the like write; shell: the argument behind, or NULL. Exit code. */
int manual_write(const char *what, const char *shell);

extern const app_command command_run, command_bench, command_perplexity, command_logits,
    command_tokenize, command_devices, command_chat, command_inspect, command_doctor, command_plan,
    command_embed, command_rerank, command_template, command_serve, command_evaluate,
    command_quantize, command_calibrate, command_pull, command_ls, command_rm,
    command_worker;

#endif
