/* apps/options.c - parses arguments and GODWIT_ARG_... variables by the option table. */
#include "apps/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/foreign.h"
#include "apps/sampling.h"
#include "apps/terminal.h"
#include "core/base/os.h"

/* ---- the nearest name ------------------------------------------------------------------------ */

/* Edits (insert, delete, change, swap of neighbours) from a to b; long words count as far. */
static int edits(const char *a, size_t na, const char *b, size_t nb) {
    enum { LONG = 40 };
    int d[3][LONG + 1];
    if (na > LONG || nb > LONG) {
        return LONG;
    }
    for (size_t j = 0; j <= nb; j++) {
        d[0][j] = (int)j;
    }
    for (size_t i = 1; i <= na; i++) {
        int *now = d[i % 3], *last = d[(i + 2) % 3], *older = d[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = older[j - 2] + 1 < best ? older[j - 2] + 1 : best;
            }
            now[j] = best;
        }
    }
    return d[na % 3][nb];
}

void nearest_try(app_nearest *n, const char *candidate, size_t bytes) {
    size_t word = strlen(n->word);
    int far = 1 + (int)word / 3, distance = edits(n->word, word, candidate, bytes);
    if (word >= 3 && bytes > word && memcmp(candidate, n->word, word) == 0) {
        distance = distance < far ? distance : far; /* the beginning of a name is near it */
    }
    if (distance <= far && (n->best == NULL || distance < n->distance)) {
        n->best = candidate;
        n->best_bytes = bytes;
        n->distance = distance;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Steps through the space-separated names: at points to the next one; 0 at the end. */
static size_t next_name(const char **at) {
    *at += strspn(*at, " ");
    return strcspn(*at, " ");
}

static const app_option *find_option(unsigned command, const char *name, size_t bytes) {
    for (const app_option *o = app_option_table; o->names != NULL; o++) {
        const char *at = o->names;
        for (size_t n; (o->commands & command) != 0 && (n = next_name(&at)) != 0; at += n) {
            if (n == bytes && memcmp(at, name, n) == 0) {
                return o;
            }
        }
    }
    return NULL;
}

static void *field(app_options *o, const app_option *row) { return (char *)o + row->offset; }

/* ---- values: 0, or APP_USAGE with the error printed ------------------------------------------ */

static int refuse_range(const app_option *row, const char *shown, const char *text) {
    app_error("%s: '%s' is not a whole number from %.0f to %.0f", shown, text, row->min, row->max);
    return APP_USAGE;
}

/* The integer at *at; moves *at past it. */
static int take_int(const app_option *row, const char **at, int32_t *value) {
    const char *s = *at;
    if (!isdigit((unsigned char)s[s[0] == '-' || s[0] == '+'])) {
        return -1;
    }
    char *end;
    errno = 0;
    long long x = strtoll(s, &end, 10);
    if (errno != 0 || (double)x < row->min || (double)x > row->max) {
        return -1;
    }
    *at = end;
    *value = (int32_t)x;
    return 0;
}

static int set_int(const app_option *row, const char *shown, const char *text, int32_t *value) {
    const char *at = text;
    if (take_int(row, &at, value) != 0 || *at != '\0') {
        return refuse_range(row, shown, text);
    }
    return 0;
}

static int set_ints(const app_option *row, const char *shown, const char *text, app_ints *list) {
    size_t commas = 0;
    for (const char *c = text; *c != '\0'; c++) {
        commas += *c == ',';
    }
    int32_t *values = calloc(commas + 1, sizeof *values);
    if (values == NULL) {
        app_error("out of memory");
        return APP_USAGE;
    }
    const char *at = text;
    for (size_t i = 0; i <= commas; i++) {
        at += i > 0; /* the comma */
        at += strspn(at, " ");
        if (take_int(row, &at, &values[i]) != 0 || *at != (i < commas ? ',' : '\0')) {
            free(values);
            app_error("%s: '%.60s' is not a list of whole numbers from %.0f to %.0f, separated by "
                      "commas",
                      shown, text, row->min, row->max);
            return APP_USAGE;
        }
    }
    free(list->at);
    *list = (app_ints){.at = values, .n = commas + 1};
    return 0;
}

static int set_real(const app_option *row, const char *shown, const char *text, double *value) {
    char *end = NULL;
    double x = isspace((unsigned char)text[0]) ? NAN : strtod(text, &end);
    if (end == text || end == NULL || *end != '\0' || !(x >= row->min && x <= row->max)) {
        app_error("%s: '%s' is not a number from %g to %g", shown, text, row->min, row->max);
        return APP_USAGE;
    }
    *value = x;
    return 0;
}

static int set_seed(const char *shown, const char *text, uint64_t *value) {
    if (strcmp(text, "-1") == 0) {
        if (getrandom(value, sizeof *value, 0) != (ssize_t)sizeof *value) {
            *value = (uint64_t)(app_seconds() * 1e9);
        }
        *value >>= 32; /* short enough to be typed again */
        return 0;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long x = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0) {
        app_error("%s: '%s' is not a whole number from 0 to %" PRIu64 ", or -1", shown, text,
                  UINT64_MAX);
        return APP_USAGE;
    }
    *value = x;
    return 0;
}

/* "900M", "6G", "1.5GB": powers of 1000; "6Gi", "6GiB": of 1024. */
static int set_bytes(const app_option *row, const char *shown, const char *text, uint64_t *value) {
    static const char units[] = "kmgt";
    char *end = NULL;
    double x = isdigit((unsigned char)text[0]) ? strtod(text, &end) : NAN, unit = 1000.0;
    const char *found =
        end != NULL && *end != '\0' ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (found != NULL) {
        end++;
        unit = *end == 'i' ? 1024.0 : unit;
        end += *end == 'i';
        x *= pow(unit, (double)(found - units + 1));
    } else if (row->kind == KIND_MIB && end != NULL && *end == '\0') {
        x *= 1048576.0;
    }
    end += end != NULL && (*end == 'B' || *end == 'b');
    if (end == NULL || *end != '\0' || !(x >= row->min && x <= row->max)) {
        app_error("%s: '%s' is not a size such as 6G, 900M or 1500000000", shown, text);
        return APP_USAGE;
    }
    *value = (uint64_t)x;
    return 0;
}

static int is_choice(const app_option *row, const char *text, size_t bytes) {
    for (const char *at = row->value;;) {
        size_t n = strcspn(at, "|");
        if (n == bytes && memcmp(at, text, n) == 0) {
            return 1;
        }
        if (at[n] == '\0') {
            return 0;
        }
        at += n + 1;
    }
}

static int set_choice(const app_option *row, const char *shown, const char *text,
                      const char **value) {
    size_t first = row->kind == KIND_PAIR ? strcspn(text, ",") : strlen(text);
    const char *second = text[first] == ',' ? text + first + 1 : text;
    if (!is_choice(row, text, first) || !is_choice(row, second, strlen(second))) {
        app_error(row->kind == KIND_PAIR ? "%s: '%s' is not one of %s, and no two of them as K,V"
                                         : "%s: '%s' is not one of %s",
                  shown, text, row->value);
        return APP_USAGE;
    }
    *value = text;
    return 0;
}

static int add_text(app_texts *list, const char *text) {
    const char **at = realloc(list->at, (list->n + 1) * sizeof *at);
    if (at == NULL) {
        app_error("out of memory");
        return APP_USAGE;
    }
    list->at = at;
    list->at[list->n++] = text;
    return 0;
}

/* ID=X; also llama.cpp's ID+X and ID-X. */
static int add_bias(const app_option *row, const char *shown, const char *text, app_options *o) {
    gw_logit_bias entry;
    const char *at = text;
    char *end = NULL;
    double x = NAN;
    if (take_int(row, &at, &entry.token) == 0 && (*at == '=' || *at == '+' || *at == '-')) {
        at += *at == '=';
        x = isspace((unsigned char)at[0]) ? NAN : strtod(at, &end);
    }
    if (end == NULL || end == at || *end != '\0' || !(x <= 1e6)) {
        app_error("%s: '%s' is not TOKEN=X with a token id and a number (or -inf)", shown, text);
        return APP_USAGE;
    }
    gw_logit_bias *bias = realloc(o->bias, (o->n_bias + 1) * sizeof *bias);
    if (bias == NULL) {
        app_error("out of memory");
        return APP_USAGE;
    }
    entry.bias = (float)x;
    o->bias = bias;
    o->bias[o->n_bias++] = entry;
    return 0;
}

/* shown: the option or variable as the user wrote it. text: NULL for a flag. */
static int set_value(app_options *o, const app_option *row, const char *shown, const char *text) {
    void *to = field(o, row);
    for (size_t i = 0; sampling_table[i].names != NULL; i++) {
        o->sampling_given |= sampling_table[i].option == row->offset ? 1u << i : 0u;
    }
    switch (row->kind) {
    case KIND_FLAG:
        *(int *)to = 1;
        return 0;
    case KIND_INT:
        return set_int(row, shown, text, to);
    case KIND_INTS:
        return set_ints(row, shown, text, to);
    case KIND_REAL:
        return set_real(row, shown, text, to);
    case KIND_SEED:
        return set_seed(shown, text, to);
    case KIND_BYTES:
    case KIND_MIB:
        return set_bytes(row, shown, text, to);
    case KIND_TEXT:
        *(const char **)to = text;
        return 0;
    case KIND_TEXTS:
        return add_text(to, text);
    case KIND_CHOICE:
    case KIND_PAIR:
    case KIND_MODE:
        return set_choice(row, shown, text, to);
    case KIND_BIAS:
        return add_bias(row, shown, text, o);
    }
    return APP_USAGE;
}

int options_note(app_options *o, const char *fmt, ...) {
    enum { LINE = 256 };
    const char **at = realloc(o->notes.at, (o->notes.n + 1) * sizeof *at);
    char *line = malloc(LINE);
    o->notes.at = at != NULL ? at : o->notes.at;
    if (at == NULL || line == NULL) {
        free(line);
        app_error("out of memory");
        return APP_USAGE;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, LINE, fmt, args);
    va_end(args);
    o->notes.at[o->notes.n++] = line;
    return 0;
}

/* ---- sources --------------------------------------------------------------------------------- */

/* "--top-k" -> "GODWIT_ARG_TOP_K": the first long name. */
static void variable_name(const app_option *row, char *name, size_t capacity) {
    const char *at = row->names;
    size_t n;
    while ((n = next_name(&at)) != 0 && strncmp(at, "--", 2) != 0) {
        at += n;
    }
    size_t k = (size_t)snprintf(name, capacity, "GODWIT_ARG_");
    for (size_t i = 2; i < n && k + 1 < capacity; i++) {
        name[k++] = at[i] == '-' ? '_' : (char)toupper((unsigned char)at[i]);
    }
    name[k] = '\0';
}

static int from_environment(app_options *o, unsigned command) {
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        char name[64];
        variable_name(row, name, sizeof name);
        const char *text = getenv(name);
        if ((row->commands & command) == 0 || text == NULL || text[0] == '\0' ||
            strcmp(name, "GODWIT_ARG_") == 0 || row->offset == offsetof(app_options, help)) {
            continue;
        }
        if (row->kind == KIND_FLAG) {
            if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
                app_error("%s: '%s' is not 0 or 1", name, text);
                return APP_USAGE;
            }
            *(int *)field(o, row) = text[0] == '1';
        } else if (set_value(o, row, name, text) != 0) {
            return APP_USAGE;
        }
    }
    return 0;
}

/* Variables that look like options and are none. */
static int note_unknown_variables(app_options *o) {
    for (char **at = environ; *at != NULL; at++) {
        char name[64], known[64], best[64] = "";
        size_t n = strcspn(*at, "=");
        if (strncmp(*at, "GODWIT_ARG_", 11) != 0 || n >= sizeof name) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)n, *at);
        int distance = 0;
        for (const app_option *row = app_option_table; row->names != NULL; row++) {
            app_nearest one = {.word = name + 11};
            variable_name(row, known, sizeof known);
            nearest_try(&one, known + 11, strlen(known + 11));
            if (one.best != NULL && (best[0] == '\0' || one.distance < distance)) {
                snprintf(best, sizeof best, "%s", known);
                distance = one.distance;
            }
        }
        if (strcmp(best, name) == 0) {
            continue;
        }
        if (options_note(o, "the variable %s is no option%s%s", name,
                         best[0] != '\0' ? ": did you mean " : "", best) != 0) {
            return APP_USAGE;
        }
    }
    return 0;
}

static int unknown_option(const app_command *command, const char *name, size_t bytes) {
    char *word = strndup(name, bytes);
    app_nearest nearest = {.word = word != NULL ? word : ""};
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        const char *at = row->names;
        for (size_t n; (row->commands & command->bit) != 0 && (n = next_name(&at)) != 0; at += n) {
            nearest_try(&nearest, at, n);
        }
    }
    if (nearest.best != NULL) {
        app_error("unknown option '%.60s': did you mean '%.*s'? ('godwit %s --help' lists them)",
                  nearest.word, (int)nearest.best_bytes, nearest.best, command->name);
    } else {
        app_error("unknown option '%.60s' ('godwit %s --help' lists them)", nearest.word,
                  command->name);
    }
    free(word);
    return APP_USAGE;
}

/* A word that follows no option: the model, once; of commands that take several, each. Those of
 * quantize are told apart when all are known. */
static int take_operand(app_options *o, const app_command *command, const char *word,
                        unsigned char *given) {
    const app_option *row =
        command->operand != NULL && word[0] != '-'
            ? find_option(command->bit, command->operand, strlen(command->operand))
            : NULL;
    int used = row != NULL && row->kind == KIND_TEXT && given[row - app_option_table];
    if (row != NULL && command->bit == CMD_QUANTIZE) {
        return add_text(&o->words, word);
    }
    if (row == NULL || used) {
        app_error("unexpected argument '%.60s': every value follows an option, as in -m PATH or "
                  "-p TEXT",
                  word);
        return APP_USAGE;
    }
    given[row - app_option_table] = 1;
    return set_value(o, row, command->operand, word);
}

static int is_number(const char *word) { return word[strspn(word, "0123456789")] == '\0'; }

/* The words of quantize: TYPE, or IN OUT TYPE of which options gave the first ones, perhaps with a
 * number of threads behind, as llama-quantize has them. */
static int place_words(app_options *o, const app_command *command) {
    const char **at = o->words.at;
    size_t n = o->words.n, first = 0;
    if (n == 0) {
        return 0;
    }
    if (n > 1 && is_number(at[n - 1]) && o->threads == 0) {
        const app_option *row = find_option(command->bit, "--threads", 9);
        if (set_value(o, row, "the number of threads", at[--n]) != 0) {
            return APP_USAGE;
        }
    }
    if (n > 1 && o->model == NULL && o->tensors == NULL) {
        o->model = at[first++];
    }
    if (n - first > 1 && o->out == NULL) {
        o->out = at[first++];
    }
    if (n - first != 1 || o->type != NULL) {
        app_error("unexpected argument '%.60s': godwit quantize IN OUT TYPE, or -m IN -o OUT TYPE",
                  at[n - 1]);
        return APP_USAGE;
    }
    o->type = at[first];
    return 0;
}

/* Is the word after an option with a mode its value? */
static int is_mode(const app_option *row, const char *word) {
    size_t n = strlen(word);
    for (const char *at = row->value;; at++) {
        size_t k = strcspn(at, "|");
        if (k == n && memcmp(at, word, n) == 0) {
            return 1;
        }
        at += k;
        if (*at == '\0') {
            return 0;
        }
    }
}

/* One argument and perhaps its value; *i moves on to the last one used. given: by row. */
static int parse_argument(app_options *o, const app_command *command, int argc, char **argv, int *i,
                          unsigned char *given) {
    char *arg = argv[*i];
    if (arg[0] != '-' || arg[1] == '\0') {
        return take_operand(o, command, arg, given);
    }
    size_t bytes = strcspn(arg, "=");
    for (size_t k = 2; k < bytes && arg[1] == '-'; k++) {
        arg[k] = arg[k] == '_' ? '-' : arg[k]; /* --top_k */
    }
    const app_option *row = find_option(command->bit, arg, bytes);
    if (row == NULL) {
        int code = foreign_take(o, command, arg, bytes, argc, argv, i);
        return code >= 0 ? code : unknown_option(command, arg, bytes);
    }
    const char *value = arg[bytes] == '=' ? arg + bytes + 1 : NULL;
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", bytes < 60 ? (int)bytes : 60, arg);
    if (row->kind == KIND_FLAG) {
        if (value != NULL) {
            app_error("%s takes no value", shown);
            return APP_USAGE;
        }
    } else if (value == NULL && row->kind == KIND_MODE &&
               (*i + 1 >= argc || !is_mode(row, argv[*i + 1]))) {
        value = "text"; /* the one mode that needs no word */
    } else if (value == NULL) {
        if (*i + 1 >= argc) {
            app_error("%s needs a value: %s", shown, row->value);
            return APP_USAGE;
        }
        value = argv[++*i];
    }
    if (row->kind == KIND_TEXTS && !given[row - app_option_table]) {
        ((app_texts *)field(o, row))->n = 0; /* the first argument replaces the environment */
    }
    given[row - app_option_table] = 1;
    return set_value(o, row, shown, value);
}

/* What was said of keys or values alone and what was said of both becomes one word, or two with a
 * comma. */
static int settle_kv_type(app_options *o, const app_command *command) {
    const char *comma = o->kv_type != NULL ? strchr(o->kv_type, ',') : NULL;
    if (o->kv_type == NULL || (o->kv_type_k == NULL && o->kv_type_v == NULL && comma == NULL)) {
        return 0;
    }
    char pair[32];
    const char *k = o->kv_type_k != NULL ? o->kv_type_k : o->kv_type;
    const char *v = o->kv_type_v != NULL ? o->kv_type_v : comma != NULL ? comma + 1 : o->kv_type;
    size_t n = strcspn(k, ",");
    int same = n == strlen(v) && memcmp(k, v, n) == 0;
    if (!same && (command->bit & CMD_ENCODE) != 0) {
        app_error("--kv-type: keys in %s and values in %s, but an encoder has one format for both: "
                  "--kv-type %s or --kv-type %s",
                  k, v, k, v);
        return APP_USAGE;
    }
    snprintf(pair, sizeof pair, "%.*s%s%s", (int)n, k, same ? "" : ",", same ? "" : v);
    o->kv_type = strdup(pair);
    return o->kv_type == NULL || add_text(&o->owned, o->kv_type) != 0 ? APP_USAGE : 0;
}

/* given: [rows of the table] */
static int parse_all(app_options *o, const app_command *command, int argc, char **argv,
                     unsigned char *given) {
    *o = (app_options){0};
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        if ((row->commands & command->bit) != 0 && row->preset != NULL &&
            set_value(o, row, row->names, row->preset) != 0) {
            return APP_USAGE;
        }
    }
    o->sampling_given = 0;           /* presets do not count */
    for (int i = 0; i < argc; i++) { /* help works in spite of mistakes */
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            o->help = i + 1 < argc && strcmp(argv[i + 1], "all") == 0 ? 2 : 1;
            return 0;
        }
    }
    if (note_unknown_variables(o) != 0 || from_environment(o, command->bit) != 0) {
        return APP_USAGE;
    }
    for (int i = 0; i < argc; i++) {
        if (parse_argument(o, command, argc, argv, &i, given) != 0) {
            return APP_USAGE;
        }
    }
    return settle_kv_type(o, command) != 0 ? APP_USAGE : place_words(o, command);
}

int options_parse(app_options *o, const app_command *command, int argc, char **argv) {
    size_t rows = 0;
    while (app_option_table[rows].names != NULL) {
        rows++;
    }
    unsigned char *given = calloc(rows + 1, 1);
    if (given == NULL) {
        *o = (app_options){0};
        app_error("out of memory");
        return APP_USAGE;
    }
    int result = parse_all(o, command, argc, argv, given);
    free(given);
    return result;
}

void options_free(app_options *o) {
    for (const app_option *row = app_option_table; row->names != NULL; row++) {
        if (row->kind == KIND_INTS && row->commands != 0) {
            app_ints *list = field(o, row);
            free(list->at);
            *list = (app_ints){0};
        } else if (row->kind == KIND_TEXTS) {
            app_texts *list = field(o, row);
            free(list->at);
            *list = (app_texts){0};
        }
    }
    for (size_t i = 0; i < o->notes.n; i++) {
        free((void *)(uintptr_t)o->notes.at[i]);
    }
    free(o->notes.at);
    free(o->words.at);
    for (size_t i = 0; i < o->owned.n; i++) {
        free((void *)(uintptr_t)o->owned.at[i]);
    }
    free(o->owned.at);
    free(o->bias);
    *o = (app_options){0};
}
