/* include/godwit_quantize.h - the part of godwit.h that makes smaller models; it comes with
 * godwit.h, and only so. */
#ifndef GODWIT_QUANTIZE_H
#define GODWIT_QUANTIZE_H

#include "godwit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A line for people: a table before the work, one line a layer while it runs, what was made. */
typedef void (*gw_line_fn)(void *user, const char *line);

typedef struct gw_quantize_options {
    const char *model;   /* a .gguf file or a folder                                              */
    const char *out;     /* the file to make; a folder for a type that is made as a folder        */
    const char *type;    /* "q4_k_m", "iq4_xs", "int4-g128", "copy", ...: any case                */
    int threads;         /* 0: the physical cores this process may use                            */
    const char *imatrix; /* importance matrix of godwit calibrate or llama-imatrix, or NULL */
    const char *const *rules; /* [n_rules] "RE=TYPE": the first that matches a name              */
    size_t n_rules;
    const char *output_type, *embedding_type;    /* of the head, of the token embedding; NULL     */
    const char *const *include, *const *exclude; /* importance of weights with such a part of the
                                                   name alone; without those                     */
    size_t n_include, n_exclude;
    const char *const *overrides; /* "KEY=TYPE:VALUE" of the metadata                            */
    size_t n_overrides;
    int pure, leave_output, allow_requantize, keep_split, no_fallback, allow_nan, dry_run, resume;
    uint64_t split_max; /* most bytes of a part; 0: one file                                     */
    uint64_t memory;    /* most bytes held at once; 0: half of what is free                      */
    const char *report; /* a JSON file, or NULL                                                  */
    const char *recipe; /* the command, for the metadata                                         */
    /* Error feedback (GPTQ) by the inputs of the float model on a text. */
    const char *calibrate; /* the text's file; NULL: none                                        */
    int gptq;              /* 1: with `calibrate` or X^T X                                       */
    double damp;           /* 0: 0.01                                                            */
    const char *order; /* "static", "none", "group"; NULL: static for int4, falling groups else */
    const char *rule;  /* of --tensors: "range", "integer", "symmetric"; NULL: range         */
    int32_t windows, n_ctx; /* of the calibration text: most of them, 0: all; 0: 512             */
    uint64_t fit;           /* bits by measured loss under so many bytes; 0: by type              */
    gw_line_fn say;         /* may be NULL */
    void *say_user;
    gw_progress_fn progress; /* may be NULL */
    void *progress_user;
    const volatile int *cancel; /* polled per slab; may be NULL */
    int32_t fit_ctx; /* with fit: a cache of so many positions (f16) has room beside it; 0: none  */
    const char *prune; /* layers that are left out, as in "20,21,22"; NULL: none                  */
    const struct gw_lora_file *lora; /* [n_lora] adapters that are merged (godwit_lora.h)        */
    size_t n_lora;
} gw_quantize_options;

/* Makes options->out. It is there whole, or not at all. The bytes depend on the model, the type,
 * the importance and the rules alone. GW_E_ARGUMENT: type, rule, option; GW_E_NUMERIC names tensor,
 * row and value of a weight that is not finite; GW_E_IO, GW_E_METADATA, ... */
gw_status gw_quantize_sized(const gw_quantize_options *options, size_t size);
static inline gw_status gw_quantize(const gw_quantize_options *options) {
    return gw_quantize_sized(options, sizeof *options);
}

typedef struct gw_calibrate_options {
    const char *model;
    const char *text; /* the file of a text; NULL: only in_files                                */
    const char *out;  /* the importance matrix: GGUF, or the older form where it ends in .dat   */
    const char *xtx;  /* a safetensors file of NAME.xtx [cols, cols] besides, or NULL           */
    const char *const *in_files; /* [n_in] importance matrices that are added                    */
    size_t n_in;
    int threads;
    int32_t windows, n_ctx; /* most windows, 0: all of the text; tokens of one, 0: 512           */
    int with_output;        /* the output head too                                               */
    uint64_t memory;        /* bound on X^T X; 0: half of what is free                           */
    gw_line_fn say;
    void *say_user;
    const volatile int *cancel;
    gw_line_fn show; /* is given a table of what the matrix holds, line by line, and `out` may be
                        NULL; NULL: none                                                         */
    void *show_user;
} gw_calibrate_options;

/* Sums of squares of what each matrix of the float model is multiplied with on the text, by column
 * and expert, as llama-imatrix has them. */
gw_status gw_calibrate_sized(const gw_calibrate_options *options, size_t size);
static inline gw_status gw_calibrate(const gw_calibrate_options *options) {
    return gw_calibrate_sized(options, sizeof *options);
}

/* For checks: each float matrix NAME of the safetensors file options->model as NAME.bytes [rows,
 * bytes of a row] u8 and NAME.decoded [rows, cols] f32. Beside it in the file may stand
 * NAME.importance f32 [cols], and NAME.xtx f32 [cols, cols]: then with error feedback, and int4
 * types also as NAME.codes u8, .scales f16, .zeros (f16, u8 for integer and symmetric) and .g_idx
 * i32 (order group). */
gw_status gw_quantize_tensors_sized(const gw_quantize_options *options, size_t size);
static inline gw_status gw_quantize_tensors(const gw_quantize_options *options) {
    return gw_quantize_tensors_sized(options, sizeof *options);
}

#ifdef __cplusplus
}
#endif

#endif
