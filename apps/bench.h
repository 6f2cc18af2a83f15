/* apps/bench.h - what a timed test is, between bench.c (runs it) and bench_print.c (prints it). */
#ifndef GW_APPS_BENCH_H
#define GW_APPS_BENCH_H

#include "apps/speculation.h"
#include "include/godwit_image.h"
#include "include/godwit_see.h"

enum { KERNELS_MAX = 256 };

/* --gemm (bench_gemm.c); an exit code. */
int bench_gemm(const app_options *o);

int bench_exchange(const app_options *o); /* --exchange (bench_exchange.c); an exit code */

int bench_image(const app_options *o); /* --image (bench_image.c); an exit code */

int bench_parallel(const app_options *o); /* --parallel (bench_parallel.c); an exit code */

typedef struct bench_result {
    const char *path; /* as given; "built-in" without -m */
    const gw_model *model;
    gw_model_info info;
    int32_t n_prompt, n_gen, batch;
    int32_t n_depth; /* tokens of the text in front, which are not timed */
    const char *kv_type;
    char when[32]; /* UTC, ISO 8601 */
    int32_t n;     /* repetitions */
    double *seconds;
    gw_roof roof;       /* mean over the repetitions, before and after or between tokens */
    double prompt_gops; /* 1e9 operations of the linear layers, prompt */
    /* --forecast: tokens per second expected of prompts of forecast_chunk tokens, and generated;
     * else 0 */
    double forecast_prompt, forecast_token;
    int32_t forecast_chunk;
    /* --ops: one more repetition, timed per kernel */
    gw_kernel_time kernels[KERNELS_MAX];
    size_t n_kernels;
    double profiled_seconds;
    /* --draft: seconds are those of the drafted pass; each was preceded by a plain one */
    const app_draft *draft;
    const char *draft_options[2]; /* --draft-accept, --draft-length */
    double plain_seconds;         /* of all repetitions */
    draft_figures figures;
} bench_result;

/* --image: made-up pictures, one after the other */
typedef struct bench_image_result {
    const char *path;
    gw_model_info info; /* of the decoder */
    gw_eyes eyes;
    gw_image_info picture;
    gw_eyes_time tower; /* of a picture: all but the time */
    int32_t width, height, pictures;
    int32_t n;                               /* repetitions, of all pictures each                 */
    double *prepare_seconds, *tower_seconds; /* [n] of a picture, mean over a repetition          */
    gw_roof roof;                            /* of the tower's device, mean over the repetitions */
} bench_image_result;

typedef struct bench_printer {
    const char *format; /* md, csv, json, jsonl */
    int show_batch, show_forecast;
    size_t rows;
    char device[256]; /* named behind the table; "": the CPU */
} bench_printer;

void bench_print_begin(bench_printer *p);
void bench_print_row(bench_printer *p, const bench_result *r);
void bench_print_end(bench_printer *p);
/* The whole table, of one row. */
void bench_print_image(const char *format, const bench_image_result *r);
/* The kernels of r as a table of its own, for md. */
void bench_print_kernels(const bench_result *r);

#endif
