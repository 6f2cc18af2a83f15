/* docs/example.c - continues a text with libgodwit:
 *     cc example.c $(pkg-config --cflags --libs godwit) -o example
 *     ./example model.gguf "Once upon a time" */
#include <godwit.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    gw_model *model = NULL;
    gw_session *session = NULL;
    gw_sampler *sampler = NULL;
    gw_stream *stream = NULL;
    gw_model_options options = {.path = argc > 1 ? argv[1] : "model.gguf"};
    gw_sampler_options sampling;
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time", *text;
    int32_t *ids = NULL, token = 0;
    size_t n = 0, bytes;
    gw_sampler_defaults(&sampling);
    sampling.seed = 1;
    int bad = gw_model_open(&options, &model) || gw_session_new(model, NULL, &session) ||
              gw_sampler_new(model, &sampling, &sampler) || gw_stream_new(model, &stream) ||
              gw_tokenize(model, prompt, strlen(prompt), GW_TEXT_BOS, &ids, &n) ||
              gw_session_prefill(session, ids, n) ||
              gw_sampler_pick(sampler, gw_session_logits(session, 0), (int32_t)n, &token);
    for (int i = 0; !bad && i < 32 && !gw_token_is_end(model, token); i++) {
        bad = gw_sampler_accept(sampler, token) || gw_stream_push(stream, token, &text, &bytes) ||
              fwrite(text, 1, bytes, stdout) != bytes ||
              gw_session_next(session, sampler, token, 0, &token);
    }
    printf("\n");
    if (bad) {
        fprintf(stderr, "example: %s\n", ferror(stdout) ? "cannot write" : gw_error_text());
    }
    gw_free(ids);
    gw_stream_free(stream);
    gw_sampler_free(sampler);
    gw_session_free(session);
    gw_model_free(model);
    return bad;
}
