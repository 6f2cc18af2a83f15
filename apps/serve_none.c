/* apps/serve_none.c - godwit serve in a build without libevent: says what is missing. */
#include "apps/common.h"

#ifndef GODWIT_SERVE
static int run_none(const app_options *o) {
    (void)o;
    app_error("this build has no server: build it again with libevent (libevent-dev)");
    return APP_FAILURE;
}

const app_command command_serve = {
    .name = "serve",
    .bit = CMD_SERVE,
    .usage = "[MODEL ...] [OPTIONS]",
    .summary = "answer many clients over HTTP (not in this build)",
    .detail = "This build has no server: it was made without libevent.\n",
    .examples = "  godwit serve model.gguf\n",
    .operand = "--model",
    .run = run_none,
};
#endif
