/* apps/main.c - the godwit command: finds the subcommand, parses its options, runs it. */
#include <stdio.h>
#include <string.h>

#include "apps/common.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/signals.h"
#include "apps/terminal.h"
#include "include/godwit_hosts.h"

const app_command *const app_commands[] = {&command_run,
                                           &command_chat,
                                           &command_serve,
                                           &command_bench,
                                           &command_perplexity,
                                           &command_evaluate,
                                           &command_logits,
                                           &command_embed,
                                           &command_rerank,
                                           &command_tokenize,
                                           &command_template,
                                           &command_inspect,
                                           &command_quantize,
                                           &command_calibrate,
                                           &command_devices,
                                           &command_doctor,
                                           &command_plan,
                                           NULL};

static int help_overview(void) {
    out_text("godwit " GW_VERSION " - runs transformer language models\n\n"
             "usage: godwit COMMAND [OPTIONS]\n\ncommands:\n");
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        out_print("  %-12s %s\n", app_commands[i]->name, app_commands[i]->summary);
    }
    out_text("\n'godwit COMMAND --help' shows the options of a command and examples.\n"
             "'godwit run' alone tells a story with the built-in model.\n");
    return out_close() == 0 ? APP_OK : APP_FAILURE;
}

static const app_command *find_command(const char *name) {
    for (size_t i = 0; app_commands[i] != NULL; i++) {
        if (strcmp(app_commands[i]->name, name) == 0) {
            return app_commands[i];
        }
    }
    return NULL;
}

static int unknown_command(const char *name) {
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

static int run_command(const app_command *command, int argc, char **argv) {
    app_options options;
    int code = options_parse(&options, command, argc, argv);
    if (code == APP_OK && options.help) {
        code = help_command(command);
    } else if (code == APP_OK) {
        terminal_setup(options.quiet);
        for (size_t i = 0; i < options.notes.n; i++) {
            app_note("%s", options.notes.at[i]);
        }
        double start = app_seconds();
        int several = gw_hosts_asked() > 1;
        code = several ? run_among_hosts(command, &options) : command->run(&options);
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

int main(int argc, char **argv) {
    output_setup();
    signals_setup();
    terminal_setup(0);
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        app_error("no command: 'godwit --help' lists them, 'godwit run' tells a story");
        return APP_USAGE;
    }
    if (strcmp(name, "--version") == 0) {
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
    return is_help ? help_command(command) : run_command(command, argc - 2, argv + 2);
}
