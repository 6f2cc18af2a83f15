/* apps/worker.c - `godwit worker`: the devices of this host for commands on others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/options.h"
#include "apps/signals.h"
#include "include/godwit_hosts.h"

int worker_secret(const app_options *o, app_text *out) {
    if (o->secret_file == NULL) {
        app_error("--secret-file is missing: a file of at least 16 bytes that workers and their "
                  "clients share, as 'openssl rand -hex 32' writes one");
        return APP_USAGE;
    }
    int code = app_read_file(o->secret_file, out);
    while (code == APP_OK && out->bytes > 0 &&
           (out->at[out->bytes - 1] == '\n' || out->at[out->bytes - 1] == '\r')) {
        out->bytes--;
    }
    return code;
}

/* $XDG_CACHE_HOME/godwit/weights; "": there is no home. */
static const char *keep_folder(const app_options *o, char *room, size_t bytes) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (o->keep_dir != NULL) {
        return o->keep_dir;
    }
    if (cache != NULL && cache[0] == '/') {
        n = snprintf(room, bytes, "%s/godwit/weights", cache);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(room, bytes, "%s/.cache/godwit/weights", home);
    }
    return n > 0 && (size_t)n < bytes ? room : NULL;
}

static void say(void *user, const char *line) {
    (void)user;
    app_note("%s", line);
}

static int run_worker(const app_options *o) {
    char folder[3000];
    app_text secret = {.at = NULL};
    int code = worker_secret(o, &secret);
    if (code == APP_OK) {
        const gw_worker_options options = {.listen = o->listen,
                                           .secret = secret.at,
                                           .secret_bytes = secret.bytes,
                                           .device = o->device,
                                           .threads = o->threads,
                                           .keep_folder = keep_folder(o, folder, sizeof folder),
                                           .keep = o->keep_bytes,
                                           .cancel = signals_cancel(),
                                           .say = say};
        gw_status status = gw_worker_run(&options);
        code = status == GW_OK ? APP_OK : app_fail(status);
        if (status == GW_OK) {
            signals_forget(); /* it was asked to end, and has ended */
        }
    }
    free(secret.at);
    return code;
}

const app_command command_worker = {
    .name = "worker",
    .bit = CMD_WORKER,
    .usage = "--secret-file FILE [--listen HOST:PORT] [OPTIONS]",
    .summary = "compute for commands on other hosts",
    .detail =
        "Waits for commands with --workers, which bring their model along and have a part of it\n"
        "computed here, one at a time; docs/hosts.md. Who has the secret may use this process as\n"
        "its own; what is sent is not encrypted: on other networks than your own through ssh.\n",
    .examples = "  godwit worker --secret-file secret --listen 192.168.0.2:7717 --device hip\n"
                "  godwit run -m model.gguf --workers 192.168.0.2:7717 --secret-file secret\n",
    .run = run_worker,
};
