/* apps/sampling.c - see sampling.h. */
#include "apps/sampling.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "apps/terminal.h"
#include "include/godwit_bind.h"

#define ROW(names, option, field)                                                                  \
    { names, offsetof(app_options, option), offsetof(gw_sampler_options, field), 0 }

const sampling_row sampling_table[] = {
    ROW("temperature", temperature, temperature),
    {"top_k", offsetof(app_options, top_k), offsetof(gw_sampler_options, top_k), 1},
    ROW("top_p", top_p, top_p),
    ROW("min_p", min_p, min_p),
    ROW("typical_p", typical, typical_p),
    ROW("tfs_z", tfs, tfs_z),
    ROW("repeat_penalty repetition_penalty", repeat_penalty, repeat_penalty),
    ROW("presence_penalty", presence_penalty, presence_penalty),
    ROW("frequency_penalty", frequency_penalty, frequency_penalty),
    ROW("repeat_last_n", repeat_last_n, repeat_last_n),
    ROW("dynatemp_range", dynatemp_range, dynatemp_range),
    ROW("dynatemp_exponent", dynatemp_exp, dynatemp_exponent),
    ROW("top_n_sigma", top_n_sigma, top_n_sigma),
    ROW("xtc_probability", xtc_probability, xtc_probability),
    ROW("xtc_threshold", xtc_threshold, xtc_threshold),
    ROW("mirostat", mirostat, mirostat),
    ROW("mirostat_tau", mirostat_ent, mirostat_tau),
    ROW("mirostat_eta", mirostat_lr, mirostat_eta),
    ROW("dry_multiplier", dry_multiplier, dry_multiplier),
    ROW("dry_base", dry_base, dry_base),
    ROW("dry_allowed_length", dry_allowed_length, dry_allowed_length),
    ROW("dry_penalty_last_n", dry_last_n, dry_last_n),
    ROW("fsd_alpha", fsd, fsd_alpha),
    ROW("fsd_n", fsd_n, fsd_n),
    ROW("fsd_k", fsd_k, fsd_k),
    ROW("fsd_random", fsd_random, fsd_random),
    {NULL, 0, 0, 0},
};

const app_option *sampling_option(const sampling_row *row) {
    const app_option *o = app_option_table;
    while (o->offset != row->option || (o->kind != KIND_INT && o->kind != KIND_REAL)) {
        o++;
    }
    return o;
}

static void put(const sampling_row *row, const app_option *o, double value,
                gw_sampler_options *out) {
    char *to = (char *)out + row->field;
    if (o->kind == KIND_INT) {
        int32_t whole = (int32_t)value;
        memcpy(to, &whole, sizeof whole);
    } else {
        float real = (float)value;
        memcpy(to, &real, sizeof real);
    }
}

int sampling_set(const sampling_row *row, double value, gw_sampler_options *out) {
    const app_option *o = sampling_option(row);
    value = row->or_minus_one && value == -1.0 ? 0.0 : value;
    if (!(value >= o->min && value <= o->max) || (o->kind == KIND_INT && value != floor(value))) {
        return 0;
    }
    put(row, o, value, out);
    return 1;
}

/* "none" alone: no breaker. */
static void set_breakers(const app_options *o, gw_sampler_options *out) {
    out->dry_breakers = o->dry_breakers.at; /* NULL: the usual ones */
    out->n_dry_breakers = o->dry_breakers.n;
    if (o->dry_breakers.n == 1 && strcmp(o->dry_breakers.at[0], "none") == 0) {
        out->n_dry_breakers = 0;
    }
}

void sampling_of_options(const app_options *o, gw_sampler_options *out) {
    gw_sampler_defaults(out);
    for (const sampling_row *row = sampling_table; row->names != NULL; row++) {
        const app_option *option = sampling_option(row);
        const char *from = (const char *)o + row->option;
        double real = 0;
        int32_t whole = 0;
        if (option->kind == KIND_INT) {
            memcpy(&whole, from, sizeof whole);
        } else {
            memcpy(&real, from, sizeof real);
        }
        put(row, option, option->kind == KIND_INT ? whole : real, out);
    }
    out->seed = o->seed;
    out->order = o->samplers;
    out->bias = o->bias;
    out->n_bias = o->n_bias;
    set_breakers(o, out);
}

static double value_of(const sampling_row *row, const app_option *o, const gw_sampler_options *at) {
    const char *from = (const char *)at + row->field;
    int32_t whole = 0;
    float real = 0.0f;
    if (o->kind == KIND_INT) {
        memcpy(&whole, from, sizeof whole);
        return whole;
    }
    memcpy(&real, from, sizeof real);
    return (double)real;
}

void sampling_of_model(const app_options *o, const gw_model *model, uint32_t given,
                       gw_sampler_options *out, char *text, size_t room) {
    size_t used = 0;
    given |= o->sampling_given;
    if (text != NULL && room > 0) {
        text[0] = '\0';
    }
    for (size_t i = 0; sampling_table[i].names != NULL; i++) {
        const sampling_row *row = &sampling_table[i];
        char name[32];
        double value = 0.0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(row->names, " "), row->names);
        if ((given >> i & 1) != 0 || !gw_model_sampling(model, name, &value)) {
            continue;
        }
        const app_option *option = sampling_option(row);
        double before = value_of(row, option, out);
        if (sampling_set(row, value, out) && before != value_of(row, option, out) && text != NULL &&
            used < room) {
            int n =
                snprintf(text + used, room - used, "%s%s %g", used > 0 ? ", " : "", name, value);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

void sampling_note(const app_options *o, const gw_model *model) {
    gw_sampler_options sampler;
    char text[256];
    sampling_of_options(o, &sampler);
    sampling_of_model(o, model, 0, &sampler, text, sizeof text);
    if (text[0] != '\0') {
        app_note("sampling as the model's files recommend: %s; options override it", text);
    }
}
