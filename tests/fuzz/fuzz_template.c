/* tests/fuzz/fuzz_template.c - a model file's chat template: which form it is, its system text. */
#include "core/text/chat/chat.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gw_vocab vocab;
    gw_vocab_init(&vocab);
    const char *text = (const char *)data, *preset = NULL;
    const gw_chat_style *style = gw_chat_style_of_template(text, n, &vocab);
    if (style != NULL && style->name == NULL) {
        abort();
    }
    size_t bytes = gw_chat_template_preset(text, n, &preset);
    if (bytes > 0 && (preset < text || bytes > (size_t)(text + n - preset))) {
        abort();
    }
    return 0;
}
