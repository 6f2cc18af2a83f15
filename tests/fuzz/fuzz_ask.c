/* tests/fuzz/fuzz_ask.c - requests of the server as JSON: the fields of every API, messages, tools,
 * formats. Whatever is read or refused, an error has one line and names a field or none. */
#include <stdlib.h>
#include <string.h>

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

void app_note(const char *fmt, ...) { (void)fmt; } /* nothing is printed here */

static void check(int code, const fault *f) {
    if ((code != 0) != (f->status != 0) || strchr(f->text, '\n') != NULL) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const ask_refusal refused[] = {{"suffix", "\"\""}, {"audio", NULL}, {NULL, NULL}};
    static const app_options options = {.n_predict = -1, .top_p = 1, .temperature = 1};
    fault f = {0};
    wide_mark wide = {""};
    json_t *root = ask_parse((const char *)data, size, &wide, &f);
    if (root == NULL) {
        check(-1, &f);
        return 0;
    }
    ask a;
    ask_init(&a, &options);
    a.wide = wide;
    check(ask_refuse(root, refused, &f), &f);
    f = (fault){0};
    check(ask_read_common(&a, root, &f), &f);
    f = (fault){0};
    check(ask_read_format(&a, json_object_get(root, "response_format"), "response_format", &f), &f);
    f = (fault){0};
    check(ask_read_grammar(&a, root, &f), &f);
    f = (fault){0};
    check(tools_read(&a, root, &f), &f);
    f = (fault){0};
    json_t *messages = chat_text_messages(&a, json_object_get(root, "messages"), &f);
    check(messages == NULL ? -1 : 0, &f);
    if (messages != NULL) {
        f = (fault){0};
        check(chat_text_read(&a, root, messages, &f), &f);
        json_decref(with_parts(&a.pictures, a.chat));
        if (a.tools != NULL) {
            json_t *plain = without_calls(json_object_get(a.chat, "messages"), &a.wide);
            tell_of_tools(plain, a.tools, &a.wide);
            json_decref(plain);
        }
    }
    ask_free(&a);
    json_decref(root);
    return 0;
}
