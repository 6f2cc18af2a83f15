/* apps/serve/fault.h - why a request is not answered: a status, and one line that says what is
 * wrong, where and what to do. */
#ifndef GW_APPS_SERVE_FAULT_H
#define GW_APPS_SERVE_FAULT_H

#include <stdint.h>

#include "apps/terminal.h"
#include "include/godwit.h"

typedef enum conn_form { /* of errors, by the API of the route */
                         FORM_OPENAI,
                         FORM_NATIVE, /* llama-server's own */
                         FORM_RESPONSES,
                         FORM_MESSAGES,
                         FORM_OLLAMA
} conn_form;

typedef struct fault {
    int status;         /* of HTTP; 0: nothing is wrong */
    const char *code;   /* a word for programs, or NULL */
    const char *detail; /* the Messages API: error.details.error_code, or NULL */
    char param[64];     /* the field that it is about, or "" */
    int retry_after;    /* seconds; 0: not said */
    int64_t got, limit; /* both numbers of a prompt that is too long; limit 0: neither */
    char text[512];
} fault;

/* Returns -1, so that callers write `return fault_set(...)`. param NULL: none. */
int fault_set(fault *f, int status, const char *param, const char *fmt, ...) APP_PRINTF(4, 5);
/* What the library failed with, about a field (NULL: none): what a request asks for is 400. */
int fault_of_status(fault *f, gw_status status, const char *param);
/* Its line in the words by which clients of this API know it: they shorten their conversation when
 * a prompt does not fit, and look for no code. */
const char *fault_text(const fault *f, conn_form form, char out[512]);
/* The field that it is about, in this API's name. */
const char *fault_param(const fault *f, conn_form form);
/* The word for the class of error, in the manner of OpenAI's API or that of the Messages API. */
const char *fault_type(int status, int messages);

#endif
