/* apps/main.c - the godwit command: finds the subcommand, parses its options, runs it. */
#include <stdio.h>
#include <string.h>

#include "apps/common.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/signals.h"
#include "apps/terminal.h"

static const app_command *const commands[] = {
    &command_run,    &command_bench,    &command_perplexity,
    &command_logits, &command_tokenize, &command_devices,
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int help_overview(void) {
    out_text("godwit " GW_VERSION " - runs transformer language models\n\n"
             "usage: godwit COMMAND [OPTIONS]\n\ncommands:\n");
    for (int i = 0; i < COMMANDS; i++) {
        out_print("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    out_text("\n'godwit COMMAND --help' shows the options of a command and examples.\n"
             "'godwit run' alone tells a story with the built-in model.\n");
    return out_close() == 0 ? APP_OK : APP_FAILURE;
}

static const app_command *find_command(const char *name) {
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static int unknown_command(const char *name) {
    app_nearest nearest = {.word = name};
    for (int i = 0; i < COMMANDS; i++) {
        nearest_try(&nearest, commands[i]->name, strlen(commands[i]->name));
    }
    if (nearest.best != NULL) {
        app_error("unknown command '%.60s': did you mean '%s'? ('godwit --help' lists them)", name,
                  nearest.best);
    } else {
        app_error("unknown command '%.60s' ('godwit --help' lists them)", name);
    }
    return APP_USAGE;
}

static int run_command(const app_command *command, int argc, char **argv) {
    app_options options;
    int code = options_parse(&options, command, argc, argv);
    if (code == APP_OK && options.help) {
        code = help_command(command);
    } else if (code == APP_OK) {
        terminal_setup(options.quiet);
        double start = app_seconds();
        code = signals_exit_code(command->run(&options));
        if (signals_caught() != 0) {
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
    const app_command *command = find_command(is_help ? argv[2] : name);
    if (command == NULL) {
        return unknown_command(is_help ? argv[2] : name);
    }
    return is_help ? help_command(command) : run_command(command, argc - 2, argv + 2);
}
