/* tests/fuzz/fuzz_template.c - any bytes as a template over a request of any bytes: lexer, parser,
 * interpreter. Input: the template, NUL, the request (where it is empty: a conversation of ours).
 * The ranges of typed text lie in order inside the text, and a second rendering is the same. */
#include "core/text/template/template.h"
#include "tests/fuzz/fuzz.h"

static const char talk[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": [{\"type\": \"text\", \"text\": \"a<b> \\u00e9\"}]}, {\"role\": \"assistant\", "
    "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": "
    "[1, 2.5, 12345678901234567890123]}}}]}, {\"role\": \"tool\", \"content\": \"3\"}], "
    "\"bos_token\": \"<s>\", \"s\": \"Hello World\", \"n\": 3, \"l\": [3, 1, 2], \"d\": {\"k\": "
    "\"v\", \"b\": true}}";

static gw_status render(const gw_template *t, const char *json, size_t n, gw_template_text *out) {
    const gw_template_options options = {.time = {2026, 11, 26, 10, 20, 30}, .conversation = 1};
    const gw_template_input input = {"request", json, n, 0};
    return gw_template_render(t, &input, 1, &options, out);
}

static void check_ranges(const gw_template_text *text) {
    size_t at = 0;
    for (size_t i = 0; i < text->n_typed; i++) {
        size_t begin = text->typed[2 * i], end = text->typed[2 * i + 1];
        if (begin < at || end <= begin || end > text->bytes) {
            abort();
        }
        at = end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *text = (const char *)data;
    size_t bytes = strnlen(text, n);
    const char *json = bytes + 1 < n ? text + bytes + 1 : talk;
    size_t json_bytes = bytes + 1 < n ? n - bytes - 1 : sizeof talk - 1;
    gw_template *t = NULL;
    gw_template_text first = {0}, second = {0};
    gw_status status = gw_template_parse("fuzz", text, bytes, &t);
    fuzz_judge(status);
    if (status != GW_OK) {
        return 0;
    }
    status = render(t, json, json_bytes, &first);
    fuzz_judge(status);
    if (render(t, json, json_bytes, &second) != status) {
        abort();
    }
    if (status == GW_OK) {
        check_ranges(&first);
        if (first.bytes != second.bytes || memcmp(first.text, second.text, first.bytes) != 0) {
            abort();
        }
    }
    gw_template_text_free(&first);
    gw_template_text_free(&second);
    gw_template_free(t);
    return 0;
}
