/* apps/serve/fault.c - errors of requests: see fault.h. */
#include "apps/serve/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

/* It may hold what a client has sent, cut anywhere: one line of whole characters. */
static void repair(char *text) {
    size_t n = strlen(text);
    for (size_t i = 0, bytes; i<n; i += bytes> 0 ? bytes : 1) {
        bytes = gw_utf8_next(text + i, n - i, NULL);
        if (bytes == 0 || (unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            text[i] = '?';
        }
    }
}

int fault_set(fault *f, int status, const char *param, const char *fmt, ...) {
    va_list args;
    *f = (fault){.status = status};
    snprintf(f->param, sizeof f->param, "%s", param != NULL ? param : "");
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
    repair(f->param);
    repair(f->text);
    return -1;
}

int fault_of_status(fault *f, gw_status status, const char *param) {
    int http = 400;
    switch (status) {
    case GW_E_NOMEM:
        http = 503;
        break;
    case GW_E_IO:
    case GW_E_DEVICE:
    case GW_E_NUMERIC:
    case GW_E_CANCELLED:
        http = 500;
        break;
    default:
        break;
    }
    return fault_set(f, http, param, "%s%s%s", param != NULL ? param : "",
                     param != NULL ? ": " : "", gw_error_text());
}

/* A conversation is "input" in the responses API. */
static const char chat_field[] = "messages", responses_field[] = "input";

const char *fault_param(const fault *f, conn_form form) {
    return form == FORM_RESPONSES && strcmp(f->param, chat_field) == 0 ? responses_field : f->param;
}

const char *fault_text(const fault *f, conn_form form, char out[512]) {
    long long got = (long long)f->got, limit = (long long)f->limit;
    size_t n = strlen(chat_field);
    if (f->limit <= 0) {
        if (form == FORM_RESPONSES && strncmp(f->text, chat_field, n) == 0 && f->text[n] == ':') {
            snprintf(out, 512, "%s%s", responses_field, f->text + n);
            return out;
        }
        return f->text;
    }
    switch (form) {
    case FORM_MESSAGES:
        snprintf(out, 512, "prompt is too long: %lld tokens > %lld maximum", got, limit);
        break;
    case FORM_OLLAMA:
        snprintf(out, 512,
                 "the input length exceeds the context length: %lld tokens, and at most %lld fit",
                 got, limit);
        break;
    case FORM_NATIVE:
        snprintf(out, 512,
                 "request (%lld tokens) exceeds the available context size (%lld tokens), try "
                 "increasing it (--ctx-size)",
                 got, limit);
        break;
    case FORM_RESPONSES:
        snprintf(out, 512,
                 "Your input exceeds the context window of this model: its maximum context length "
                 "is %lld tokens, and the input has %lld. Please adjust your input and try again, "
                 "or start the server with a larger --ctx-size.",
                 limit, got);
        break;
    default:
        snprintf(out, 512,
                 "This model's maximum context length is %lld tokens. However, your messages "
                 "resulted in %lld tokens. Please reduce the length of the messages, or start the "
                 "server with a larger --ctx-size.",
                 limit, got);
    }
    return out;
}

const char *fault_type(int status, int messages) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return messages ? "request_too_large" : "invalid_request_error";
    case 429:
        return "rate_limit_error";
    case 500:
        return messages ? "api_error" : "server_error";
    case 501:
        return messages ? "api_error" : "not_supported_error";
    case 503:
        return messages ? "overloaded_error" : "unavailable_error";
    default:
        return "invalid_request_error";
    }
}
