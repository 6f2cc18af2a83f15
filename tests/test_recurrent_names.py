# tests/test_recurrent_names.py - recurrent families out of GGUF files with llama.cpp's names: the logits that
# they have out of their folders. The files are made here from the reference checkpoints.
import json

import numpy as np
import pytest

from family_files import write_model
from program import DATA, logits_hash, run
from tensor_files import read_safetensors

IDS = "3,10,20,30,40,50,60,70,80,90,11,21"
NAMES = {  # in this order
    "model.": "", "backbone.": "", "lm_head": "output", "embed_tokens": "token_embd", "embeddings": "token_embd",
    "final_layernorm": "output_norm", "norm_f": "output_norm", "layers": "blk", "input_layernorm": "attn_norm",
    "pre_ff_layernorm": "ffn_norm", ".mamba.": ".mixer.", "mixer.dt_layernorm": "ssm_dt_norm",
    "mixer.b_layernorm": "ssm_b_norm", "mixer.c_layernorm": "ssm_c_norm", "mixer.in_proj": "ssm_in",
    "mixer.x_proj": "ssm_x", "mixer.dt_proj": "ssm_dt", "mixer.conv1d": "ssm_conv1d", "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d", "mixer.out_proj": "ssm_out", "self_attn.": "attn_", "attn_o": "attn_output",
    "feed_forward.": "ffn_", "router": "gate_inp", "_proj.": ".", ".norm.weight": ".attn_norm.weight"}


def in_ggufs_names(folder):
    out, experts = {}, {}
    for name, (_, shape, data) in sorted(read_safetensors(folder / "model.safetensors").items()):
        x = np.frombuffer(b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)), "<f4").reshape(shape)
        x = -np.exp(x) if name.endswith("A_log") else x.reshape(x.shape[0], -1) if "conv1d.weight" in name else x
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if "ffn_experts" in name:
            layer, _, part = name.partition(".ffn_experts.")
            experts.setdefault(f"{layer}.ffn_{part.split('.')[1]}_exps.weight", []).append(x)
        else:
            out[name] = x
    return out | {name: np.stack(parts) for name, parts in experts.items()}


def keys_of(c):
    keys = {"block_count": c["num_hidden_layers"], "context_length": 128, "embedding_length": c["hidden_size"],
            "ssm.conv_kernel": c.get("conv_kernel", 4), "ssm.inner_size": 2 * c["hidden_size"],
            "ssm.state_size": c.get("state_size", c.get("mamba_d_state")), "vocab_size": c["vocab_size"],
            "ssm.time_step_rank": c.get("time_step_rank", c.get("mamba_dt_rank")),
            "attention.layer_norm_rms_epsilon": c.get("layer_norm_epsilon", c.get("rms_norm_eps"))}
    if c["model_type"] != "jamba":
        return keys | {"feed_forward_length": 0, "attention.head_count": 0,
                       "ssm.dt_b_c_rms": c["model_type"] == "falcon_mamba"}
    attends = [l % c["attn_layer_period"] == c["attn_layer_offset"] for l in range(c["num_hidden_layers"])]
    return keys | {"feed_forward_length": c["intermediate_size"], "attention.head_count": c["num_attention_heads"],
                   "attention.head_count_kv": [c["num_key_value_heads"] * a for a in attends],
                   "expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"]}


def logits(model, out):
    run("logits", "-m", model, "--ids", IDS, "--kv-type", "f32", "-o", out)
    return np.frombuffer(read_safetensors(out)["logits"][2], "<f4")


RWKV = {  # in this order
    "model.norm": "output_norm", "model.layers.0.pre_norm": "token_embd_norm", "model.embeddings": "token_embd",
    "lm_head": "output", "model.layers": "blk", "ffn_norm": "attn_norm_2", "attn.g_norm": "time_mix_ln",
    "attn.r_proj": "time_mix_receptance", "attn.k_proj": "time_mix_key", "attn.v_proj": "time_mix_value",
    "attn.o_proj": "time_mix_output", "_lora.lora.0.weight": "1.weight", "_lora.lora.2.weight": "2.weight",
    "_lora.lora.2.bias": "0.weight", "attn.": "time_mix_", "ffn.x_k": "channel_mix_lerp_k", "ffn.": "channel_mix_"}


def test_rwkv(tmp_path):
    """Six shares of the row before in one tensor; the first layer has a gate for its value that counts for nothing."""
    folder, tensors, shares = DATA / "goldens-families/rwkv7", {}, {}
    c = json.loads((folder / "config.json").read_text())
    for name, (_, shape, data) in read_safetensors(folder / "model.safetensors").items():
        x = np.frombuffer(b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)), "<f4").reshape(shape)
        for old, new in RWKV.items():
            name = name.replace(old, new)
        if "time_mix_x_" in name:
            shares[name] = x.reshape(1, 1, -1)
        else:
            tensors[name if name.endswith(("weight", "bias")) else name + ".weight"] = x
    for l in range(c["num_hidden_layers"]):
        parts = [shares[f"blk.{l}.time_mix_x_{part}"] for part in "rwkvag"]
        tensors[f"blk.{l}.time_mix_lerp_fused.weight"] = np.stack(parts)
    for old, new in (("a0", "v0"), ("a1", "v1"), ("a2", "v2")):
        tensors[f"blk.0.time_mix_{new}.weight"] = tensors[f"blk.0.time_mix_{old}.weight"]
    write_model(tmp_path / "model.gguf", "rwkv7", {
        "block_count": c["num_hidden_layers"], "context_length": 128, "embedding_length": c["hidden_size"],
        "feed_forward_length": c["intermediate_size"], "attention.layer_norm_epsilon": c["norm_eps"],
        "wkv.head_size": c["head_dim"], "attention.decay_lora_rank": c["decay_low_rank_dim"],
        "attention.iclr_lora_rank": c["a_low_rank_dim"], "attention.gate_lora_rank": c["gate_low_rank_dim"],
        "attention.value_residual_mix_lora_rank": c["v_low_rank_dim"], "attention.head_count": 0,
        "vocab_size": c["vocab_size"]},
        {n: (list(x.shape), 0, x.tobytes()) for n, x in tensors.items()}, c["vocab_size"])
    assert logits_hash(tmp_path / "model.gguf", map(int, IDS.split(","))) == logits_hash(
        folder, map(int, IDS.split(",")))


@pytest.mark.parametrize("name", ["mamba", "falcon-mamba", "jamba", "jamba-dense"])
def test_logits(name, tmp_path):
    folder = DATA / "goldens-families" / name
    c, tensors = json.loads((folder / "config.json").read_text()), in_ggufs_names(folder)
    write_model(tmp_path / "model.gguf", "jamba" if c["model_type"] == "jamba" else "mamba", keys_of(c),
                {n: (list(x.shape), 0, x.tobytes()) for n, x in tensors.items()}, c["vocab_size"])
    got, want = logits(tmp_path / "model.gguf", tmp_path / "a"), logits(folder, tmp_path / "b")
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 2e-6
