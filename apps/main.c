/* apps/main.c - the godwit command: finds the subcommand, parses its options, runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/foreign.h"
#include "apps/model_name.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/signals.h"
#include "apps/terminal.h"
#include "core/base/os.h"
#include "include/godwit_hosts.h"

const app_command *const app_commands[] = {&command_run,        &command_chat,
                                           &command_serve,      &command_bench,
                                           &command_perplexity, &command_evaluate,
                                           &command_logits,     &command_embed,
                                           &command_rerank,     &command_tokenize,
                                           &command_template,   &command_inspect,
                                           &command_quantize,   &command_calibrate,
                                           &command_devices,    &command_doctor,
                                           &command_plan,       &command_pull,
                                           &command_ls,         &command_rm,
                                           &command_worker,     NULL};

static int help_overview(void) {
    out_text("godwit " GW_VERSION " - runs transformer language models\n\n"
             "usage: godwit COMMAND [OPTIONS]\n\ncommands:\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print("  %-12s %s\n", app_commands[i]->name, app_commands[i]->summary);
    }
    out_text(
        "\n'godwit COMMAND --help' shows the options used most and examples, --help all every\n"
        "option. 'godwit run' alone tells a story with the built-in model; a model of yours is\n"
        "'godwit chat -m MODEL': a .gguf file, a Hugging Face folder, or USER/REPO there.\n");
    return out_close() == 0 ? APP_OK : APP_FAILURE;
}

static const app_command *find_command(const char *name) {
    static const struct {
        const char *word, *name;
    } others[] = {{"list", "ls"},
                  {"show", "inspect"},
                  {"remove", "rm"},
                  {"download", "pull"},
                  {"get", "pull"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        name = strcmp(name, others[i].word) == 0 ? others[i].name : name;
    }
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        if (strcmp(app_commands[i]->name, name) == 0) {
            return app_commands[i];
        }
    }
    return NULL;
}

static int unknown_command(const char *name) {
    if (foreign_command(name)) {
        return APP_USAGE;
    }
    app_nearest nearest = {.word = name};
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        nearest_try(&nearest, app_commands[i]->name, strlen(app_commands[i]->name));
    }
    if (nearest.best != NULL) {
        app_error("unknown command '%.60s': did you mean '%s'? ('godwit --help' lists them)", name,
                  nearest.best);
    } else {
        app_error("unknown command '%.60s' ('godwit --help' lists them)", name);
    }
    return APP_USAGE;
}

/* One of several processes (docs/hosts.md): rank 0 runs the command, the others compute for it. */
static int run_among_hosts(const app_command *command, const app_options *options) {
    int rank = 0, code;
    gw_status status = gw_hosts_join(options->device, options->threads, signals_cancel(), &rank);
    if (status == GW_OK && rank != 0) {
        status = gw_hosts_serve();
        code = status == GW_OK ? APP_OK : app_fail(status);
    } else if (status == GW_OK) {
        code = command->run(options);
    } else { /* what all find alike is said once */
        code = rank == 0 ? app_fail(status) : APP_FAILURE;
    }
    const char *lost = gw_hosts_leave(signals_caught() != 0);
    if (lost[0] != '\0' && code != APP_FAILURE) {
        app_error("%s", lost); /* told to end because of that, by the launcher */
        return APP_FAILURE;
    }
    return code;
}

/* The devices of workers compute, too. */
static int run_with_workers(const app_command *command, const app_options *options) {
    app_text secret = {.at = NULL};
    int code = worker_secret(options, &secret);
    if (code != APP_OK) {
        return code;
    }
    gw_status status = gw_hosts_connect(options->workers, secret.at, secret.bytes);
    free(secret.at);
    code = status == GW_OK ? command->run(options) : app_fail(status);
    (void)gw_hosts_leave(0); /* what was lost has been said */
    return code;
}

static int run_command(const app_command *command, int argc, char **argv) {
    app_options options;
    int code = options_parse(&options, command, argc, argv);
    if (code == APP_OK && options.help) {
        code = help_command(command, options.help == 2);
    } else if (code == APP_OK && (code = model_names_resolve(&options, command)) == APP_OK) {
        terminal_setup(options.quiet);
        for (size_t i = 0; i < options.notes.n; i++) {
            app_note("%s", options.notes.at[i]);
        }
        double start = app_seconds();
        int several = gw_hosts_asked() > 1;
        code = several                   ? run_among_hosts(command, &options)
               : options.workers != NULL ? run_with_workers(command, &options)
                                         : command->run(&options);
        int failed = several && code == APP_FAILURE; /* and that was said */
        code = signals_exit_code(code);
        if (signals_caught() != 0 && !failed) {
            app_note("interrupted after %.2f s", app_seconds() - start);
        }
        if (out_close() != 0 && code == APP_OK) {
            code = APP_FAILURE;
        }
    }
    options_free(&options);
    return code;
}

static int is_word_for_version(const char *name) {
    static const char *const words[] = {"--version", "-V", "-v", "version"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(name, words[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* godwit help COMMAND [all] */
static int is_all(int argc, char **argv) { return argc > 3 && strcmp(argv[3], "all") == 0; }

int main(int argc, char **argv) {
    gw_os_start(&argc, &argv);
    output_setup();
    signals_setup();
    terminal_setup(0);
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        app_error("no command: 'godwit --help' lists them, 'godwit run' tells a story");
        return APP_USAGE;
    }
    if (is_word_for_version(name)) {
        out_text("godwit " GW_VERSION "\n");
        return out_close() == 0 ? APP_OK : APP_FAILURE;
    }
    if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0 ||
        (strcmp(name, "help") == 0 && argc == 2)) {
        return help_overview();
    }
    int is_help = strcmp(name, "help") == 0;
    if (is_help && strncmp(argv[2], "--", 2) == 0) {
        return manual_write(argv[2], argc > 3 ? argv[3] : NULL);
    }
    const app_command *command = find_command(is_help ? argv[2] : name);
    if (command == NULL) {
        return unknown_command(is_help ? argv[2] : name);
    }
    return is_help ? help_command(command, is_all(argc, argv))
                   : run_command(command, argc - 2, argv + 2);
}
