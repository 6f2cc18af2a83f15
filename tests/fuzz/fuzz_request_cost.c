/* tests/fuzz/fuzz_request_cost.c - what requests, messages and templates cost: twice as many of any
 * part may allocate, and take, about twice as much and no more. Input: a byte for where the part
 * stands, then the part as JSON. Bytes that are allocated count, which is the same on every
 * machine; time besides, where it is long. */
#include <sanitizer/allocator_interface.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apps/option_table.c"
#include "apps/sampling.c"
#include "apps/serve/ask.c"
#include "apps/serve/chat_fit.c"
#include "apps/serve/chat_text.c"
#include "apps/serve/fault.c"
#include "apps/serve/text.c"
#include "apps/serve/tools.c"
#include "apps/serve/wide.c"
#include "tests/fuzz/no_adapters.h"
#include "core/text/template/template.h"

void app_note(const char *fmt, ...) { (void)fmt; } /* nothing is printed here */

enum { TIMES = 1024, BYTES_MAX = 1 << 19, SLACK = 1 << 17 };
#define SLACK_SECONDS 0.5

typedef struct cost {
    double bytes, seconds;
} cost;

static size_t allocated;
static void on_malloc(const volatile void *at, size_t n) {
    (void)at;
    allocated += n;
}
static void on_free(const volatile void *at) { (void)at; }

/* Where the part stands, and what stands around it. */
static const struct {
    const char *before, *after;
} places[] = {
    {"{\"messages\": [", "]}"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [", "]}]}"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [", "]}]}"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [", "]}"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": "
     "\"namespace\", \"name\": \"n\", \"tools\": [",
     "]}]}"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logit_bias\": [", "]}"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"guided_choice\": [", "]}"},
};
enum { PLACES = sizeof places / sizeof places[0] };

static char *request_of(size_t place, const char *part, size_t n, size_t times, size_t *bytes) {
    text_buffer out = {0};
    text_add(&out, places[place].before, strlen(places[place].before));
    for (size_t i = 0; i < times; i++) {
        text_add(&out, ", ", i > 0 ? 2 : 0);
        text_add(&out, part, n);
    }
    text_add(&out, places[place].after, strlen(places[place].after));
    *bytes = out.n;
    return out.at;
}

static void render(const json_t *chat) {
    static const char source[] =
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}";
    const gw_template_options options = {.time = {2026, 11, 26, 10, 20, 30}, .conversation = 1};
    gw_template *t = NULL;
    gw_template_text text = {0};
    char *json = json_dumps(chat, JSON_COMPACT);
    if (json != NULL && gw_template_parse("cost", source, sizeof source - 1, &t) == GW_OK) {
        const gw_template_input input = {"request", json, strlen(json), 0};
        gw_template_render(t, &input, 1, &options, &text);
        gw_template_text_free(&text);
        gw_template_free(t);
    }
    free(json);
}

static void read_request(const char *text, size_t bytes) {
    static const app_options options = {.n_predict = -1, .top_p = 1, .temperature = 1};
    fault f = {0};
    ask a;
    wide_mark wide = {""};
    json_t *root = ask_parse(text, bytes, &wide, &f);
    if (root == NULL) {
        return;
    }
    ask_init(&a, &options);
    a.wide = wide;
    a.root = root;
    ask_read_common(&a, root, &f);
    ask_read_grammar(&a, root, &f);
    tools_read(&a, root, &f);
    json_t *messages = chat_text_messages(&a, json_object_get(root, "messages"), &f);
    if (messages != NULL && chat_text_read(&a, root, messages, &f) == 0) {
        const json_t *list = json_object_get(a.chat, "messages");
        json_decref(without_calls(list, &a.wide));
        json_decref(with_parts(&a.pictures, a.chat));
        for (size_t i = 0; chat_fits[i] != 0; i++) {
            json_decref(chat_fit(list, chat_fits[i]));
        }
        render(a.chat);
    }
    ask_trim_request(&a, NULL);
    ask_trim_prompt(&a);
    ask_free(&a);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cost measure(size_t place, const char *part, size_t n, size_t times) {
    size_t bytes;
    char *text = request_of(place, part, n, times, &bytes);
    size_t before = allocated;
    double began = now();
    read_request(text, bytes);
    cost c = {(double)(allocated - before), now() - began};
    free(text);
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int hooked;
    if (!hooked) {
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
        hooked = 1;
    }
    if (size < 2) {
        return 0;
    }
    const char *part = (const char *)data + 1;
    size_t n = size - 1, place = data[0] % PLACES, times = BYTES_MAX / n;
    times = times < TIMES ? times : TIMES;
    if (times < 16) {
        return 0;
    }
    cost half = measure(place, part, n, times / 2), whole = measure(place, part, n, times);
    if (whole.bytes > 3 * half.bytes + SLACK || whole.seconds > 4 * half.seconds + SLACK_SECONDS) {
        abort();
    }
    return 0;
}
