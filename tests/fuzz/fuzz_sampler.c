/* tests/fuzz/fuzz_sampler.c - any options of a sampler, over logits with every kind of number. */
#include <math.h>

#include "core/engine/sampling/sampler.h"
#include "tests/fuzz/fuzz.h"

enum { VOCAB = 97, LOGITS = 16, ORDER = 64 };

typedef struct input {
    gw_sampler_options options;
    gw_logit_bias bias[2];
    float logits[LOGITS];
    int32_t steps[4];
    char order[ORDER];
    uint8_t on, much[8];
} input;

static const char *const breakers[2] = {"b", "ca"};
static const char *const spelled[4] = {"a", "b", "c", ""};

static void spell(const void *vocab, int32_t id, const char **text, size_t *bytes) {
    *text = ((const char *const *)vocab)[id & 3];
    *bytes = strlen(*text);
}

/* Values in range, which random bytes seldom are. */
static void switch_on(gw_sampler_options *o, const input *in) {
    const float x = (float)in->much[0] / 255.0f, y = (float)in->much[1] / 255.0f;
    if (in->on & 1) {
        o->dynatemp_range = 3 * x;
        o->dynatemp_exponent = 4 * y;
    }
    if (in->on & 2) {
        o->top_n_sigma = 5 * x;
        o->tfs_z = y;
    }
    if (in->on & 4) {
        o->xtc_probability = x;
        o->xtc_threshold = y;
    }
    if (in->on & 8) {
        o->mirostat = 1 + in->much[2] % 2;
        o->mirostat_tau = 10 * x;
        o->mirostat_eta = 10 * y;
    }
    if (in->on & 16) {
        o->dry_multiplier = 1000 * x;
        o->dry_base = 1 + 999 * y;
        o->dry_allowed_length = 1 + in->much[3] % 4;
    }
    if (in->on & 32) {
        o->fsd_alpha = x;
        o->fsd_n = 1 + in->much[4] % 8;
        o->fsd_k = 1 + in->much[5] % 100;
        o->fsd_random = in->much[6] % 4;
    }
    o->temperature = in->on & 64 ? 0 : o->temperature;
    o->repeat_penalty = in->on & 128 ? 1.5f : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    input in;
    memset(&in, 0, sizeof in);
    gw_sampler_defaults(&in.options);
    if (n < 1) {
        return 0;
    }
    int raw = data[0] & 1; /* options as bytes, or the defaults with other logits */
    size_t skip = raw ? 0 : sizeof in.options, take = sizeof in - skip;
    memcpy((char *)&in + skip, data + 1, n - 1 < take ? n - 1 : take);
    in.order[ORDER - 1] = '\0';
    in.options.order = data[0] & 2 ? in.order : NULL;
    in.options.bias = in.bias;
    in.options.n_bias = data[0] >> 2 & 1 ? 2 : 0;
    in.options.repeat_last_n &= 0xffff;
    in.options.dry_last_n &= 0xffff;
    in.options.dry_breakers = in.options.n_dry_breakers % 2 ? breakers : NULL;
    in.options.n_dry_breakers = 2;
    if (!raw) {
        switch_on(&in.options, &in);
    }
    const gw_pieces pieces = {.piece = spell, .vocab = spelled};
    gw_sampler *s = NULL;
    gw_status status = gw_sampler_make(VOCAB, &in.options, &pieces, &s);
    fuzz_judge(status);
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = in.logits[i % LOGITS] * (float)(1 + i % 3);
    }
    for (int i = 0; i < 4 && status == GW_OK; i++) {
        int32_t token = -1;
        fuzz_judge(gw_sampler_accept(s, in.steps[i]));
        status = gw_sampler_pick(s, logits, i, &token);
        fuzz_judge(status);
        if (status == GW_OK && (token < 0 || token >= VOCAB || !(logits[token] > -INFINITY))) {
            abort();
        }
        if (status == GW_OK && in.much[7] >> i & 1) {
            fuzz_judge(gw_sampler_accept(s, token));
            fuzz_judge(gw_sampler_rewind(s, (size_t)(in.much[7] >> 4) % 3));
        }
    }
    gw_sampler_free(s);
    return 0;
}
