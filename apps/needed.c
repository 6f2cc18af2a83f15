/* apps/needed.c - what a model of an unknown family consists of: apps/needed.h. */
#include "apps/needed.h"

#include <string.h>

#include "include/godwit_families.h"

/* A block, what of a spec computes it, parts of names of tensors that tell of it, last words of
 * keys that do so where there are no such parts or no tensors. axes: only of tensors with one axis
 * that counts, where the rule before did not hold, or with two. */
enum { NOT_AFTER_DELTA = 1 }; /* its files have a decay of that name too */

typedef struct rule {
    const char *block, *by, *parts, *keys;
    int axes;
} rule;

static const rule rules[] = {
    {"attention", "attention",
     "attn_q. attn_qkv. q_proj. qkv_proj. query_key_value. c_attn. Wqkv. W_pack. wq.", "", 0},
    {"latent attention (MLA)", "rope_kv, attention",
     "attn_kv_a_mqa. kv_a_proj_with_mqa. attn_kv_b. kv_b_proj.", "kv_lora_rank", 0},
    {"attention to a source text", "attention cross",
     "cross_attn encoder_attn EncDecAttention crossattention",
     "cross_attention_layers is_encoder_decoder", 0},
    {"sinks of attention", "attention sinks", "attn_sinks .sinks attention_sink_bias", "", 0},
    {"windows of attention", "number window", "", "sliding_window", 0},
    {"biases by distance", "attention bias", "attn_rel_b relative_attention_bias", "", 0},
    {"a gate on what attention gives", "mix gate", "attn_gate. self_attn.g_proj.", "", 0},
    {"norms of q and k", "rope_kv norm", "attn_q_norm. q_norm. q_layernorm. query_layernorm.", "",
     0},
    {"an indexer that chooses what attention sees", "choose, listed", "indexer.",
     "index_topk top_k_index index_n_heads index_topk_blocks", 0},
    {"compressed entries of a cache", "compress", "compressor", "compress_ratios compress_rates",
     0},
    {"experts", "route, experts",
     "ffn_gate_inp. _exps. .experts. block_sparse_moe feed_forward.router ffn.router",
     "num_experts num_local_experts n_routed_experts moe_num_experts expert_count", 0},
    {"experts that all tokens take", "glu", "_shexp. shared_expert share_expert shared_mlp", "", 0},
    {"a second set of experts by group", NULL, "_chexps.", "", 0},
    {"a convolution over the last positions", "conv", "conv1d shortconv .conv.conv. short_conv",
     "conv_L_cache", 0},
    {"selective scan, a decay for each channel and state (Mamba-1)", "ssm channels", "ssm_a .A_log",
     "mamba_dt_rank time_step_rank", 2},
    {"gated delta net", "delta",
     "ssm_beta ssm_ba. ssm_f_a. linear_attn.in_proj linear_attn.b_proj f_a_proj. forget_gate.",
     "linear_num_value_heads", 0},
    {"state space, a decay for each head (Mamba-2)", "ssm", "ssm_a mixer.A_log mamba.A_log",
     "mamba_n_groups n_groups", NOT_AFTER_DELTA},
    {"linear attention with a fixed decay", NULL, "self_attn.output_gate. attn_lightning",
     "attn_type_list", 0},
    {"time mixing with a matrix as state (RWKV-7)", "wkv",
     "time_mix_a0 time_mix_r_k .attn.r_k .att.r_k .attention.r_k", "", 0},
    {"time mixing of RWKV 4 to 6", NULL,
     "time_mix_decay time_mix_first .att.time_ .attention.time_", "", 0},
    {"a matrix as state under exponential gates (xLSTM)", "exp_gates, retention, divide",
     "mlstm_layer igate_preact", "mlstm_round_up_to_multiple_of xlstm_block", 0},
    {"several residual streams mixed (hyper-connections)", "streams, hyper",
     "hc_attn_ hc_ffn_ attn_hc ffn_hc", "hc_mult hc_count", 0},
    {"choice among the results of earlier blocks", NULL, "res_proj. attn_res_ block_res",
     "attn_res_block_size", 0},
    {"rows of tables by n-grams", "ngram", ".ngram", "ngram_sizes ngram_size", 0},
    {"rows of tables by n-grams under a gate (Engram)", NULL, "engram",
     "engram_layers engram_layer_ids", 0},
    {"an embedding for each layer", "embed", "per_layer_token_embd embed_tokens_per_layer", "", 0},
    {"the layers run several times over", "number named", "", "num_loops", 0},
    {"two stacks that take turns over kept states", NULL,
     "hrm_ z_L_init z_l_init L_module H_module", "H_cycles h_cycles", 0},
    {"adapters chosen by tokens inside the layers", NULL, ".lora_a. .lora_b. lora_A_ alora",
     "adapter_token_ids", 0},
    {"text by denoising", NULL, "", "mask_token_id diffusion_steps shift_logits canvas_size", 0},
    {"layers that predict one token more", "a spec NAME-mtp", "nextn. mtp.",
     "num_nextn_predict_layers", 0},
    {"matrices of their own for rows of pictures", "skip", "vis_attn_ vision_expert", "", 0},
    {"a vision tower", "a spec NAME-vision",
     "vision_tower. vision_model. visual. vision_embed vit. model.vision.", "vision_config", 0},
    {"an encoder of sound", NULL,
     "audio_tower. audio_encoder. audio_model. sound_encoder conformer", "audio_config", 0},
    {"speech as output", NULL, "talker. code_predictor. codec_ posnet wavtokenizer flow_net",
     "talker_config code_predictor_config", 0},
    {"a head that drafts for another model", NULL, "d2t t2d", "draft_vocab_size target_hidden_size",
     0},
};

static int has_part(const char *name, const char *parts) {
    for (const char *p = parts; *p != '\0'; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        for (const char *at = name; *at != '\0'; at++) {
            if (strncmp(at, p, n) == 0) {
                return 1;
            }
        }
        p += n;
    }
    return 0;
}

static int has_axes(const gw_tensor_info *t, int axes) {
    int counted = 0;
    for (int i = 0; i < t->n_dim; i++) {
        counted += t->dim[i] > 1;
    }
    return axes == 0 || counted == axes;
}

static int is_word_of(const char *words, const char *at, size_t n) {
    for (const char *p = words; *p != '\0'; p += strspn(p, " ")) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, at, n) == 0) {
            return 1;
        }
        p += length;
    }
    return 0;
}

/* One of the words of a.b.c; what is null, false or 0 is not there. */
static int has_key(const gw_meta *m, const char *keys) {
    int none = strcmp(m->value, "null") == 0 || strcmp(m->value, "false") == 0 ||
               strcmp(m->value, "0") == 0;
    for (const char *p = m->key; !none && *p != '\0'; p += *p == '.') {
        size_t n = strcspn(p, ".");
        if (is_word_of(keys, p, n)) {
            return 1;
        }
        p += n;
    }
    return 0;
}

static const char *seen(const rule *r, const gw_meta *meta, size_t n_meta,
                        const gw_tensor_info *tensors, size_t n_tensors) {
    for (size_t i = 0; i < n_tensors; i++) {
        if (has_part(tensors[i].name, r->parts) && has_axes(&tensors[i], r->axes)) {
            return tensors[i].name;
        }
    }
    for (size_t i = 0; (n_tensors == 0 || r->parts[0] == '\0') && i < n_meta; i++) {
        if (has_key(&meta[i], r->keys)) {
            return meta[i].key;
        }
    }
    return NULL;
}

size_t app_needed_blocks(const gw_meta *meta, size_t n_meta, const gw_tensor_info *tensors,
                         size_t n_tensors, app_needed out[APP_NEEDED_MOST]) {
    size_t n = 0;
    _Static_assert(sizeof rules / sizeof rules[0] <= APP_NEEDED_MOST, "a place for each rule");
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const char *what = seen(&rules[i], meta, n_meta, tensors, n_tensors);
        int after =
            rules[i].axes == NOT_AFTER_DELTA && n > 0 && out[n - 1].block == rules[i - 1].block;
        if (what != NULL && !after) {
            out[n++] = (app_needed){rules[i].block, rules[i].by, what};
        }
    }
    return n;
}

int app_has_word(const char *list, const char *word, size_t n) {
    for (const char *p = list; *p != '\0'; p += strcspn(p, " "), p += strspn(p, " ")) {
        if (strcspn(p, " +") == n && memcmp(p, word, n) == 0) {
            return 1;
        }
    }
    return 0;
}

int app_unknown_family(const char *architecture) {
    gw_family f;
    size_t n = strlen(architecture);
    for (size_t i = 0; gw_family_at(i, &f); i++) {
        if (app_has_word(f.gguf, architecture, n) || app_has_word(f.hf, architecture, n)) {
            return 0;
        }
    }
    return architecture[0] != '\0' && strcmp(architecture, "clip") != 0;
}
