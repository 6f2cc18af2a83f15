# tests/test_qwen4_names.py - Qwen3.8-Flash-Next out of a GGUF file with llama.cpp's names: the logits that it
# has out of its folder. The file is made here from the reference checkpoint; value heads change places.
import json
import struct

import numpy as np
import pytest

from family_files import write_model
from program import SHARED, run
from tensor_files import read_safetensors

GOLDEN = SHARED / "goldens/qwen4-exp"
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight"}
PARTS = {
    "input_mix_weight_down.weight": "down.weight", "input_mix_weight_up.weight": "up.weight",
    "block_inject_weight.weight": "inject.weight", "hc_norm.weight": "norm.weight"}
INSIDE = {
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.indexer.q_layernorm.weight": "indexer.q_norm.weight",
    "self_attn.indexer.k_layernorm.weight": "indexer.k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight", "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight", "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "ple.key_proj.weight": "ple_key.weight", "ple.value_proj.weight": "ple_value.weight",
    "ple.norm_key.weight": "ple_norm_key.weight", "ple.norm_query.weight": "ple_norm_query.weight",
    "ple.norm_conv.weight": "ple_norm_conv.weight", "ple.conv1d.weight": "ple_conv1d.weight"}
VALUE_HEADS, KEY_HEADS, WIDE = 4, 2, 16
TURNS = np.arange(VALUE_HEADS).reshape(KEY_HEADS, -1).T.ravel()  # heads by their place among a key's


def by_turns(x, axis=0, each=WIDE):
    """Value heads, `each` rows or columns apiece, in the order of files."""
    x = np.moveaxis(x, axis, 0)
    x = x.reshape(VALUE_HEADS, each, *x.shape[1:])[TURNS].reshape(x.shape)
    return np.moveaxis(x, 0, axis)


def placed(name, x):
    if name.endswith(("in_proj_qkv.weight", "linear_attn.conv1d.weight")):
        keys = 2 * KEY_HEADS * WIDE
        x = np.concatenate([x[:keys], by_turns(x[keys:])])
    if name.endswith("in_proj_z.weight"):
        x = by_turns(x)
    if name.endswith(("in_proj_a.weight", "in_proj_b.weight", "dt_bias", "A_log")):
        x = by_turns(x, each=1)
    if name.endswith("out_proj.weight"):
        x = by_turns(x, axis=1)
    if name.endswith("A_log"):
        x = -np.exp(x)
    if "norm" in name and name.endswith(".weight") and "linear_attn" not in name:
        x = x + 1
    return x.squeeze() if "conv1d" in name else x


def gguf_tensors(tensors):
    out, stacked = {}, {}
    for name, x in tensors.items():
        parts = name.removeprefix("model.").split(".")
        if name in OUTSIDE:
            out[OUTSIDE[name]] = x
        elif parts[0] == "hyper_connection_mixer":
            out["output_hc_" + PARTS[".".join(parts[1:])]] = placed(name, x)
        elif "shard_" in name:
            out["per_layer_token_embd.weight"] = x
        elif parts[0] == "layers" and "ple_embedding" not in name:
            layer, rest = f"blk.{parts[1]}.", ".".join(parts[2:])
            if "hyper_connection" in rest:
                kind = "hc_attn_" if rest.startswith("attn") else "hc_ffn_"
                out[layer + kind + PARTS[rest.split(".", 1)[1]]] = placed(name, x)
            elif rest.endswith("index_qk_proj.weight"):
                out[layer + "indexer.q_proj.weight"], out[layer + "indexer.k_proj.weight"] = x[:32], x[32:]
            elif "mlp.experts." in rest:
                expert, part = rest.split(".")[2:4]
                stacked.setdefault(f"{layer}ffn_{part.removesuffix('_proj')}_exps.weight", {})[int(expert)] = x
            else:
                out[layer + INSIDE[rest]] = placed(name, x)
    return out | {name: np.stack([x[e] for e in sorted(x)]) for name, x in stacked.items()}


def keys_of(f, constants):
    layers = f["layer_types"]
    return {
        "block_count": f["num_hidden_layers"], "context_length": f["max_position_embeddings"],
        "embedding_length": f["hidden_size"], "vocab_size": f["vocab_size"],
        "feed_forward_length": f["intermediate_size"], "attention.head_count": f["num_attention_heads"],
        "attention.head_count_kv": f["num_key_value_heads"], "attention.key_length": f["head_dim"],
        "attention.value_length": f["head_dim"], "attention.layer_norm_rms_epsilon": f["rms_norm_eps"],
        "rope.dimension_count": 8, "rope.freq_base": 10000.0, "rope.dimension_sections": [2, 1, 1, 0],
        "expert_count": f["num_experts"], "expert_used_count": f["num_experts_per_tok"],
        "expert_feed_forward_length": f["moe_intermediate_size"],
        "expert_shared_feed_forward_length": f["shared_expert_intermediate_size"],
        "ssm.conv_kernel": f["linear_conv_kernel_dim"], "ssm.state_size": f["linear_key_head_dim"],
        "ssm.group_count": KEY_HEADS, "ssm.time_step_rank": VALUE_HEADS, "ssm.inner_size": VALUE_HEADS * WIDE,
        "full_attention_interval": 4, "hyper_connection.count": f["hc_count"],
        "hyper_connection.low_rank": f["hc_lowrank"], "attention.indexer.head_count": f["indexer_n_heads"],
        "attention.indexer.key_length": f["indexer_head_dim"], "attention.indexer.top_k": f["indexer_budget"],
        "attention.compress_ratios": [f["indexer_compress_ratio"] * (t == "indexed_attention") for t in layers],
        "ple.layers": [i - 1 for i in f["ple_layer_ids"]], "ple.ngram_size": f["ngram_size"],
        "ple.heads_per_ngram": f["heads_per_ngram"], "ple.conv_kernel": f["ple_conv_kernel_size"],
        "ple.eos_token_id": f["eos_token_id"], "embedding_length_per_layer_input": 16, **constants}


def write(path, change=0):
    facts = json.loads((GOLDEN / "config.json").read_text())
    raw, tensors, hashes = read_safetensors(GOLDEN / "model.safetensors"), {}, {}
    for name, (dtype, shape, data) in raw.items():
        if dtype == "BF16":
            wide = np.frombuffer(data, "<u2").astype("<u4") << 16
            tensors[name] = wide.view("<f4").reshape(shape)
        elif dtype == "F32":
            tensors[name] = np.frombuffer(data, "<f4").reshape(shape)
        else:
            hashes[name.rsplit(".", 1)[1]] = np.frombuffer(data, "<i8")
    factors, sizes = hashes["layer_multipliers"], hashes["ngram_heads_vocab_sizes"]
    constants = {"ple.layer_multipliers": factors + change,
                 "ple.head_offsets": hashes["ngram_heads_offsets"],
                 "ple.head_vocab_sizes": sizes}
    write_model(path, "qwen4exp", keys_of(facts, constants), {
        n: (list(x.shape), 0, np.ascontiguousarray(x, "<f4").tobytes()) for n, x in gguf_tensors(tensors).items()},
        facts["vocab_size"])


def logits(model, out):
    ids = ",".join(str(3 + i * 37 % 300) for i in range(60))
    run("logits", "-m", model, "--ids", ids, "--kv-type", "f32", "-o", out)
    return np.frombuffer(read_safetensors(out)["logits"][2], "<f4")


def test_qwen4(tmp_path):
    if not GOLDEN.exists():
        pytest.skip(f"SKIP: {GOLDEN} is missing")
    write(tmp_path / "model.gguf")
    want, got = logits(GOLDEN, tmp_path / "a"), logits(tmp_path / "model.gguf", tmp_path / "b")
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 2e-5


def test_another_seed_is_refused(tmp_path):
    """Files state multipliers and no seed: what this program makes of its seed has to be those."""
    if not GOLDEN.exists():
        pytest.skip(f"SKIP: {GOLDEN} is missing")
    write(tmp_path / "model.gguf", change=2 ** 12)
    said = run("logits", "-m", tmp_path / "model.gguf", "--ids", "1,2,3", check=False)
    assert said.returncode == 1 and "its first multiplier is another" in said.stderr
