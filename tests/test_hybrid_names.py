# tests/test_hybrid_names.py - Hy4, Ling 3, GLM-5.3-Flash and MiniMax M3 out of GGUF files with the names of llama.cpp
# b11434: the logits that they have out of their folders. The files are made here from the reference checkpoints.
import json
import re
import shutil

import numpy as np
import pytest

from family_files import write_model
from program import DATA, logits_hash, run
from tensor_files import read_safetensors

IDS = "3,10,20,30,40,50,60,70,80,90,11,21,31,41"
COMMON = [(r"^(model\.language_model|language_model\.model|language_model|model)\.", ""), (r"^norm\.", "output_norm."),
          (r"layers\.", "blk."), ("lm_head", "output"), ("embed_tokens|word_embeddings", "token_embd"),
          ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")]
LATENT = [(r"(self_attn|attention)\.kv_a_proj_with_mqa", "attn_kv_a_mqa"), (r"(self_attn|attention)\.kv_b_proj", "attn_kv_b"),
          (r"(self_attn|attention)\.(q_a|kv_a)_layernorm", r"attn_\2_norm"), (r"(self_attn|attention)\.q_([ab])_proj", r"attn_q_\2"),
          (r"indexer\.wq_b", "indexer.attn_q_b"), (r"indexer\.wk", "indexer.attn_k"), (r"indexer\.weights_proj", "indexer.proj"),
          (r"index_kpool_compress_(\w+)", r"kpool_\1.weight")]
DELTA = [(r"(self_attn|attention)\.([qkv])_conv1d", r"ssm_conv1d_\2"), (r"(self_attn|attention)\.([fg])_([ab])_proj", r"ssm_\2_\3"),
         (r"(self_attn|attention)\.b_proj", "ssm_beta"), (r"(self_attn|attention)\.dt_bias", "ssm_dt.bias"),
         (r"(self_attn|attention)\.A_log", "ssm_a"), (r"(self_attn|attention)\.o_norm", "ssm_norm")]
REST = [(r"(self_attn|attention)\.(o_proj|dense)", "attn_output"), (r"(self_attn|attention)\.([qkv])_proj", r"attn_\2"),
        (r"self_attn\.indexer", "indexer"), (r"self_attn\.index_([qk])_", r"indexer.\1_"), (r"self_attn\.([qk])_norm", r"attn_\1_norm"),
        (r"(mlp|block_sparse_moe)\.(gate\.)?(e_score_correction_bias|expert_bias)$", "exp_probs_b.bias"),
        (r"(mlp|block_sparse_moe)\.gate\.", "ffn_gate_inp."),
        (r"(mlp|block_sparse_moe)\.shared_experts\.(\w+?)(_proj)?\.", r"ffn_\2_shexp."), (r"mlp\.(\w+?)_proj\.", r"ffn_\1.")]
HYPER = [(r"hc_(attn|ffn)_(fn|base|scale)$", r"hc_\1_\2.weight")]
NAMES = {
    "hy_v4": [*COMMON, (r"hc_pre\.hc_head\.hc_head_(\w+)", r"output_hc_\1.weight"), (r"hc_pre\.hc_attn_layer\.", "hc_attn."),
              (r"hc_pre\.hc_mlp_layer\.", "hc_ffn."), (r"hc_(attn|ffn)\.hc_(\w+)", r"hc_\1_\2.weight"),
              (r"self_attn\.learnable_sink_param", "attn_sinks.weight"), (r"self_attn\.linear_gate", "attn_gate"),
              (r"linear_gate", "gate_proj"), *LATENT, *REST],
    "bailingmoe3": [*COMMON, (r"attention\.f_proj", "ssm_f_a"), *LATENT, *DELTA, *REST],
    "glm5-next": [*COMMON, *HYPER, *LATENT, *DELTA, *REST],
    "minimax-m3": [*COMMON, *REST],
}


def stored(family, name, x):
    """The values as a converter of llama.cpp writes them."""
    if name.endswith("A_log"):
        return np.exp(x) if family == "bailingmoe3" else -np.exp(x)
    return x + 1 if family == "minimax-m3" and "norm" in name else x


def tensors_of(family, folder):
    """name in GGUF -> values. Experts side by side, fused ones taken from each other; a gate of a delta net is told
    from that of heads by its layer's other tensors."""
    out, experts = {}, {}
    read = read_safetensors(folder / "model.safetensors")
    for name, (_, shape, data) in sorted(read.items()):
        if re.match(r"vision_tower|multi_modal|patch_merge|model\.visual", name):
            continue
        x = np.frombuffer(b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)), "<f4").reshape(shape)
        x, layer = stored(family, name, x), name.partition(".attention.")[0]
        if name.endswith("attention.g_proj.weight"):
            name = name.replace("attention.g_proj", "attn_gate" if f"{layer}.attention.kv_b_proj.weight" in read else "ssm_g_a")
        found = re.search(r"layers\.(\d+)\.\w+\.experts\.(.*)", name)
        if found:
            layer, part = int(found[1]), found[2].replace(".weight", "").split(".")[-1]
            part = {"w1": "gate", "w3": "up", "w2": "down"}.get(part, part.replace("_proj", ""))
            if part == "gate_up":
                experts[layer, "gate"], experts[layer, "up"] = list(np.split(x, 2, 1)[0]), list(np.split(x, 2, 1)[1])
            else:
                experts.setdefault((layer, part), []).extend([x] if x.ndim == 2 else list(x))
            continue
        for old, new in NAMES[family]:
            name = re.sub(old, new, name)
        out[name] = x.reshape(x.shape[0], -1) if "conv1d" in name else x
    return out | {f"blk.{n}.ffn_{part}_exps.weight": np.stack(x) for (n, part), x in experts.items()}


def keys_of(family, config):
    c = config.get("text_config", config)
    take = lambda *names: next(c[n] for n in names if n in c)
    keys = {"block_count": c["num_hidden_layers"], "context_length": 64, "embedding_length": c["hidden_size"],
            "feed_forward_length": c.get("dense_intermediate_size", c["intermediate_size"]),
            "attention.head_count": c["num_attention_heads"], "vocab_size": c["vocab_size"],
            "attention.head_count_kv": c["num_key_value_heads"], "leading_dense_block_count": 1,
            "attention.layer_norm_rms_epsilon": c["rms_norm_eps"], "expert_count": take("num_experts", "num_local_experts", "n_routed_experts"),
            "expert_used_count": take("num_experts_per_tok", "num_experts_per_token"), "expert_shared_count": 1,
            "expert_feed_forward_length": c.get("moe_intermediate_size", c["intermediate_size"]), "expert_gating_func": 2,
            "expert_weights_scale": c["routed_scaling_factor"], "expert_weights_norm": True,
            "rope.freq_base": c.get("rope_parameters", {}).get("rope_theta", 10000.0)}
    if family == "minimax-m3":
        return keys | {"rope.dimension_count": c["rotary_dim"], "attention.key_length": c["head_dim"],
                       "attention.indexer.head_count": c["index_n_heads"], "attention.indexer.key_length": c["index_head_dim"],
                       "attention.indexer.top_k": c["index_topk_blocks"], "attention.indexer.block_size": c["index_block_size"],
                       "attention.indexer.local_blocks": c["index_local_blocks"], "swiglu_clamp_exp": c["swiglu_limit"],
                       "expert_shared_feed_forward_length": c["shared_intermediate_size"]}
    keys |= {"attention.head_count_kv": 1, "attention.kv_lora_rank": c["kv_lora_rank"], "attention.value_length_mla": c["v_head_dim"],
             "attention.key_length_mla": c["qk_nope_head_dim"] + c["qk_rope_head_dim"], "rope.dimension_count": c["qk_rope_head_dim"]}
    keys |= {"attention.q_lora_rank": c["q_lora_rank"]} if c["q_lora_rank"] else {}
    if family != "hy_v4":
        keys |= {"attention.head_count_kv": [int(t != "linear_attention") for t in c["layer_types"]],
                 "kda.head_dim": c["linear_head_dim"], "ssm.conv_kernel": c["linear_conv_kernel_dim"],
                 "kda.gate_lower_bound": c.get("kda_lower_bound", c.get("linear_lower_bound"))}
    if family == "bailingmoe3":
        return keys | {"expert_group_count": c["num_expert_group"], "expert_group_used_count": c["topk_group"],
                       "expert_shared_feed_forward_length": c["moe_intermediate_size"], "kda.safe_gate": c["kda_safe_gate"]}
    keys |= {"hyper_connection.count": c["hc_mult"], "hyper_connection.epsilon": c["hc_eps"], "swiglu_clamp_exp": c["swiglu_limit"],
             "attention.indexer.head_count": c["index_n_heads"], "attention.indexer.key_length": c["index_head_dim"],
             "attention.indexer.top_k": c["index_topk"], "attention.indexer.types": [t == "full" for t in c["indexer_types"]]}
    return keys | ({"hyper_connection.magnitude": c["hc_magnitude"]} if family == "hy_v4" else {
        "hyper_connection.sinkhorn_iterations": c["hc_sinkhorn_iters"], "swiglu_clamp_shexp": c["swiglu_limit"],
        "attention.indexer.kpool": c["index_kpool"], "attention.indexer.kpool_select_tail": True})


def logits_of(model, tmp_path):
    out = tmp_path / "out.safetensors"
    run("logits", "-m", model, "--ids", IDS, "--kv-type", "f32", "-o", out)
    return np.frombuffer(read_safetensors(out)["logits"][2], "<f4")


@pytest.mark.parametrize("family", NAMES)
def test_logits(family, tmp_path):
    """Equal but for the exponentials that a converter has rounded."""
    folder, model = DATA / "goldens-families" / family, tmp_path / "model.gguf"
    config = json.loads((folder / "config.json").read_text())
    keys, tensors = keys_of(family, config), tensors_of(family, folder)
    write_model(model, family, keys, {n: (list(x.shape), 0, x.astype("<f4").tobytes()) for n, x in tensors.items()}, keys["vocab_size"])
    got, want = logits_of(model, tmp_path), logits_of(folder, tmp_path)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 2e-6


def changed(name, tmp_path, **keys):
    """The reference folder with other keys in its text_config."""
    folder = tmp_path / "m"
    shutil.copytree(DATA / "goldens-families" / name, folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= keys
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_tail_that_is_not_seen_is_refused(tmp_path):
    """GLM-5.3-Flash always sees its unfinished block; a folder that says otherwise is another model."""
    folder = changed("glm5-next", tmp_path, index_kpool_always_select_tail=False)
    done = run("logits", "-m", folder, "--ids", "3,4", check=False)
    assert done.returncode != 0 and "index_kpool_always_select_tail" in done.stderr and len(done.stderr.splitlines()) == 1


def test_lists_of_all_blocks_are_plain_attention(tmp_path):
    """30 blocks of 3 hold a context of 64 and not one of 128: the first is computed without lists. Equal bits."""
    folder = changed("minimax-m3", tmp_path, index_topk_blocks=30, max_position_embeddings=128)
    ids = [3 + i * 37 % 90 for i in range(60)]
    few, many = (run("bench", "-m", folder, "-dev", "cpu", "-p", n, "-n", 1, "-r", 1, "--ops").stdout for n in (8, 70))
    assert "listed" not in few and "listed" in many
    assert logits_hash(folder, ids, "-c", 64) == logits_hash(folder, ids, "-c", 128)
