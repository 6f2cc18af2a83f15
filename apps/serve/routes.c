/* apps/serve/routes.c - finds a request's route, and who may ask: see routes.h. */
#include "apps/serve/routes.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/os_net.h"

static const route *const families[] = {
    routes_info,     routes_text,   routes_chat,   routes_completions, routes_responses,
    routes_messages, routes_native, routes_ollama, routes_vectors,     routes_lora,
};

enum { SMALL_BODY = 1 << 20 };

/* ---- finding --------------------------------------------------------------------------------- */

static int has_method(const route *r, const char *method) {
    return strcmp(r->method, method) == 0 ||
           (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* The path without the slash at its end matches as well. */
static int has_path(const route *r, const char *path, const char **rest) {
    size_t n = strlen(r->path);
    if (strncmp(r->path, path, n) != 0) {
        return 0;
    }
    *rest = path + n;
    if ((r->flags & ROUTE_REST) != 0) {
        return path[n] != '\0';
    }
    return path[n] == '\0' || (path[n] == '/' && path[n + 1] == '\0' && n > 1);
}

/* NULL: none; *other: the method that the path is for. */
static const route *find(const http_head *head, const char **rest, const char **other) {
    *other = NULL;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        for (const route *r = families[i]; r->method != NULL; r++) {
            if (has_path(r, head->path, rest)) {
                if (has_method(r, head->method)) {
                    return r;
                }
                *other = r->method;
            }
        }
    }
    return NULL;
}

/* ---- who asks -------------------------------------------------------------------------------- */

/* In a time that says nothing about where they differ. */
static int same_key(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    unsigned char differ = n != m;
    for (size_t i = 0; i < m; i++) {
        differ |= (unsigned char)(a[n > 0 ? i % n : 0] ^ b[i]);
    }
    return differ == 0;
}

/* The key that is shown, as OpenAI's clients, those of the Messages API, or Azure's say it. */
static const char *shown_key(const http_head *head) {
    const char *given = http_head_field(head, "Authorization");
    if (given != NULL && strncasecmp(given, "Bearer ", 7) == 0) {
        return given + 7 + strspn(given + 7, " ");
    }
    given = http_head_field(head, "x-api-key");
    if (given == NULL) {
        given = http_head_field(head, "api-key");
    }
    return given != NULL ? given : "";
}

static const char *known_key(const server *s, const char *given) {
    const char *found = NULL;
    for (size_t i = 0; i < s->n_keys; i++) {
        found = same_key(given, s->keys[i]) ? s->keys[i] : found;
    }
    return found;
}

/* The host's name without port and brackets. */
static void host_name(const char *host, char name[256]) {
    size_t n = host[0] == '[' ? strcspn(host + 1, "]") : strcspn(host, ":");
    snprintf(name, 256, "%.*s", (int)(n < 255 ? n : 255), host + (host[0] == '['));
}

static int is_address(const char *name) {
    unsigned char bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static int ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcasecmp(name + n - k, end) == 0;
}

/* Names that no page of the web can have: of this machine, of its network (RFC 6762), and those
 * (RFC 9476) by which containers reach the machine that they run on. */
static int is_local_name(const char *name) {
    return strcasecmp(name, "localhost") == 0 || ends_with(name, ".localhost") ||
           ends_with(name, ".local") || ends_with(name, ".internal");
}

/* The server's own, or one that it was started with. */
static int is_named_host(const server *s, const char *name) {
    if (strcasecmp(name, s->o->host) == 0) {
        return 1;
    }
    for (size_t i = 0; i < s->o->allowed_hosts.n; i++) {
        const char *allowed = s->o->allowed_hosts.at[i];
        if (strcmp(allowed, "*") == 0 || strcasecmp(name, allowed) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A page of the web that gives its own name this machine's address would be asked for by that name
 * (DNS rebinding). With a key it gets nothing anyway. */
static int knows_host(const server *s, const http_head *head) {
    const char *host = http_head_field(head, "Host");
    char name[256];
    if (host == NULL || !s->loopback || s->n_keys > 0) {
        return 1;
    }
    host_name(host, name);
    return name[0] == '\0' || is_address(name) || is_local_name(name) || is_named_host(s, name);
}

static int is_loopback_address(const char *name) {
    struct in_addr four;
    return (inet_pton(AF_INET, name, &four) == 1 && ntohl(four.s_addr) >> 24 == 127) ||
           strcmp(name, "::1") == 0;
}

/* Programs that show pages of their own; a page of the web has none of these schemes. */
static int is_program(const char *origin) {
    static const char *const schemes[] = {"app://", "tauri://", "file://", "vscode-webview://",
                                          "vscode-file://"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncasecmp(origin, schemes[i], strlen(schemes[i])) == 0) {
            return 1;
        }
    }
    return 0;
}

/* A page of a host that may ask: this machine's, the server's own as it was asked for, one that it
 * was started with. */
static int is_known_origin(const server *s, const http_head *head, const char *origin) {
    const char *at = strstr(origin, "://"), *host = http_head_field(head, "Host");
    char name[256];
    if (at == NULL) {
        return 0;
    }
    host_name(at + 3, name);
    int named = is_named_host(s, name) && !is_address(name);
    int itself = host != NULL && strcasecmp(at + 3, host) == 0 && knows_host(s, head);
    return is_local_name(name) || is_loopback_address(name) || named || itself ||
           is_program(origin);
}

static int allows_origin(const server *s, const http_head *head, const char *origin) {
    for (size_t i = 0; i < s->o->cors_origins.n; i++) {
        const char *allowed = s->o->cors_origins.at[i];
        if (strcmp(allowed, "*") == 0 || strcasecmp(allowed, origin) == 0) {
            return 1;
        }
    }
    return is_known_origin(s, head, origin);
}

void routes_origin(const conn *c, struct evbuffer *out) {
    const server *s = conn_server(c);
    const http_head *head = conn_head(c);
    const char *origin = head->bytes != NULL ? http_head_field(head, "Origin") : NULL;
    if (origin == NULL || !allows_origin(s, head, origin)) {
        return;
    }
    evbuffer_add_printf(out, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", origin);
    evbuffer_add_printf(out, "Access-Control-Expose-Headers: X-Request-Id, Retry-After, "
                             "Godwit-Relaxed\r\n");
}

/* OPTIONS, CORS preflight among them; unauthenticated, as browsers send no key with it. */
static void answer_options(conn *c) {
    const http_head *head = conn_head(c);
    const char *wanted = http_head_field(head, "Access-Control-Request-Headers");
    const char *origin = http_head_field(head, "Origin");
    char extra[1024] = "Allow: GET, HEAD, POST, OPTIONS\r\n";
    if (origin != NULL && allows_origin(conn_server(c), head, origin)) {
        snprintf(extra, sizeof extra,
                 "Allow: GET, HEAD, POST, OPTIONS\r\n"
                 "Access-Control-Allow-Methods: GET, HEAD, POST, OPTIONS\r\n"
                 "Access-Control-Allow-Headers: %.700s\r\nAccess-Control-Max-Age: 86400\r\n",
                 wanted != NULL ? wanted : "Authorization, Content-Type");
    }
    conn_begin(c, 204, "", 0, extra);
    conn_end(c);
}

/* What is wrong whatever the route: 0, or a status with its fault. */
static int refuse_any(const server *s, const http_head *head, fault *f) {
    const char *origin = http_head_field(head, "Origin");
    const char *coding = http_head_field(head, "Content-Encoding");
    if (!knows_host(s, head)) {
        fault_set(f, 403, NULL,
                  "this server listens on this machine only and is not known as '%.100s': use "
                  "localhost, or start it with --allowed-host",
                  http_head_field(head, "Host"));
    } else if (origin != NULL && !allows_origin(s, head, origin)) {
        fault_set(f, 403, NULL,
                  "pages of %.100s may not ask this server: --cors-origin names those that may",
                  origin);
    } else if (coding != NULL && strcasecmp(coding, "identity") != 0 &&
               (head->chunked || head->length > 0)) {
        fault_set(f, 415, NULL, "a body in %.40s is not read here: send it as it is", coding);
    }
    return f->status;
}

int routes_refuse(conn *c, const char **key) {
    const server *s = conn_server(c);
    const http_head *head = conn_head(c);
    const char *rest, *other;
    fault f = {0};
    if (strcmp(head->method, "OPTIONS") == 0) {
        answer_options(c);
        return -1;
    }
    const route *r = find(head, &rest, &other);
    conn_set_form(c, r != NULL ? r->form : FORM_OPENAI);
    if (r != NULL && (r->flags & ROUTE_SMALL) != 0) {
        conn_set_body_max(c, SMALL_BODY);
    }
    if (refuse_any(s, head, &f) != 0) {
        reply_fault(c, &f);
        return -1;
    }
    if (r == NULL && other != NULL) {
        fault_set(&f, 405, NULL, "%.200s takes %s, not %.20s", head->path, other, head->method);
    } else if (r == NULL) {
        fault_set(&f, 404, NULL, "there is no %.200s here", head->path);
    } else if (s->n_keys > 0 && (r->flags & ROUTE_PUBLIC) == 0) {
        const char *given = shown_key(head);
        *key = known_key(s, given);
        if (*key == NULL) {
            *key = "";
            fault_set(&f, 401, NULL, "%s (Authorization: Bearer KEY)",
                      given[0] == '\0' ? "this server asks for an API key"
                                       : "the API key is not one of this server's");
            f.code = "invalid_api_key";
        }
    }
    if (f.status == 0) {
        return 0;
    }
    reply_fault(c, &f);
    return -1;
}

void routes_answer(conn *c, const char *key) {
    const char *rest, *other;
    const route *r = find(conn_head(c), &rest, &other);
    (void)key;
    if (r != NULL) {
        r->answer(c, rest);
    }
}
