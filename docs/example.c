/* docs/example.c - continues a text with libgodwit:
 *     cc example.c $(pkg-config --cflags --libs godwit) -o example
 *     ./example model.gguf "Once upon a time" */
#include <godwit.h>
#include <stdio.h>
#include <string.h>

static int failed(gw_status status) {
    if (status != GW_OK) {
        fprintf(stderr, "example: %s\n", gw_error_text());
    }
    return status != GW_OK;
}

int main(int argc, char **argv) {
    gw_model *model = NULL;
    gw_session *session = NULL;
    gw_sampler *sampler = NULL;
    gw_stream *stream = NULL;
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time", *text;
    int32_t *ids = NULL, token = 0;
    size_t n = 0, bytes;
    gw_model_options options = {.path = argc > 1 ? argv[1] : "model.gguf"};
    gw_sampler_options sampling;
    gw_sampler_defaults(&sampling);
    sampling.seed = 1;
    int bad = failed(gw_model_open(&options, &model)) ||
              failed(gw_session_new(model, NULL, &session)) ||
              failed(gw_sampler_new(model, &sampling, &sampler)) ||
              failed(gw_stream_new(model, &stream)) ||
              failed(gw_tokenize(model, prompt, strlen(prompt), GW_TEXT_BOS, &ids, &n)) ||
              failed(gw_session_prefill(session, ids, n));
    for (int i = 0; !bad && i < 32; i++) { /* 32 tokens, or to the end of the text */
        const float *logits = gw_session_logits(session, 0);
        bad = failed(gw_sampler_pick(sampler, logits, gw_session_pos(session), &token));
        if (bad || gw_token_is_end(model, token)) {
            break;
        }
        bad = failed(gw_sampler_accept(sampler, token)) ||
              failed(gw_stream_push(stream, token, &text, &bytes)) ||
              fwrite(text, 1, bytes, stdout) != bytes ||
              failed(gw_session_decode(session, &token, 1));
    }
    printf("\n");
    gw_free(ids);
    gw_stream_free(stream);
    gw_sampler_free(sampler);
    gw_session_free(session);
    gw_model_free(model);
    return bad;
}
