# tests/test_gguf_names.py - DeepSeek V4 out of a GGUF file with llama.cpp's names has the logits that
# it has out of its folder, bit for bit. The file is made here from the reference checkpoint.
import json
import random
import struct

import pytest

from program import SHARED, run
from tensor_files import gguf_text, read_safetensors, write_gguf, write_safetensors

GOLDEN = SHARED / "goldens/deepseek-v4"
FAR = 32  # rows of an entry that is heavily compressed; files know such a layer by more than 16

OUTSIDE = {"embed.weight": "token_embd.weight", "head.weight": "output.weight",
           "norm.weight": "output_norm.weight", "hc_head_fn": "output_hc_fn.weight",
           "hc_head_base": "output_hc_base.weight", "hc_head_scale": "output_hc_scale.weight"}
INSIDE = {"attn_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight",
          "attn.wq_a.weight": "attn_q_a.weight", "attn.q_norm.weight": "attn_q_a_norm.weight",
          "attn.wq_b.weight": "attn_q_b.weight", "attn.wkv.weight": "attn_kv.weight",
          "attn.norm.weight": "attn_kv_a_norm.weight", "attn.attn_sink": "attn_sinks.weight",
          "attn.wo_a.weight": "attn_output_a.weight", "attn.wo_b.weight": "attn_output_b.weight",
          "attn.indexer.wq_b.weight": "indexer.attn_q_b.weight",
          "attn.indexer.weights_proj.weight": "indexer.proj.weight",
          "ffn.gate.weight": "ffn_gate_inp.weight", "ffn.gate.bias": "exp_probs_b.bias",
          "ffn.gate.tid2eid": "ffn_gate_tid2eid.weight"}
for hc in ("attn", "ffn"):
    for part in ("fn", "base", "scale"):
        INSIDE[f"hc_{hc}_{part}"] = f"hc_{hc}_{part}.weight"
for part, name in (("wkv.weight", "kv"), ("wgate.weight", "gate"), ("ape", "ape"), ("norm.weight", "norm")):
    INSIDE["attn.compressor." + part] = f"attn_compressor_{name}.weight"
    INSIDE["attn.indexer.compressor." + part] = f"indexer_compressor_{name}.weight"
EXPERT = {"w1": "gate", "w2": "down", "w3": "up"}


def widened(dtype, data):
    """(number of the type in a file, bytes): bf16 as floats, 64-bit integers as 32-bit ones."""
    if dtype == "BF16":
        return 0, b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    if dtype == "I64":
        return 26, b"".join(data[i:i + 4] for i in range(0, len(data), 8))
    return 0, data


def gguf_tensors(facts, tensors):
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        kind, data = widened(dtype, data)
        if name in OUTSIDE:
            out[OUTSIDE[name]] = (shape, kind, data)
            continue
        _, layer, rest = name.split(".", 2)
        if rest.startswith("ffn.shared_experts."):
            rest = f"ffn_{EXPERT[rest.split('.')[2]]}_shexp.weight"
        elif rest.startswith("ffn.experts."):
            expert, part = rest.split(".")[2:4]
            key = f"blk.{layer}.ffn_{EXPERT[part]}_exps.weight"
            whole = out.setdefault(key, ([facts["n_routed_experts"]] + shape, kind, b""))
            assert len(whole[2]) == int(expert) * len(data)  # in order
            out[key] = (whole[0], kind, whole[2] + data)
            continue
        else:
            rest = INSIDE[rest]
        out[f"blk.{layer}.{rest}"] = (shape, kind, data)
    return out


def typed(v):
    if isinstance(v, str):
        return struct.pack("<I", 8) + gguf_text(v)
    if isinstance(v, list):
        return struct.pack("<IIQ", 9, 4, len(v)) + struct.pack(f"<{len(v)}I", *v)
    return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)


def pairs_of(f):
    def key(name):
        return "deepseek4." + name

    ratios = {"sliding_attention": 0, "heavily_compressed_attention": FAR,
              "compressed_sparse_attention": f["compress_rates"]["compressed_sparse_attention"]}
    pairs = {"block_count": f["num_hidden_layers"], "context_length": f["max_position_embeddings"],
             "embedding_length": f["hidden_size"], "vocab_size": f["vocab_size"],
             "attention.head_count": f["num_attention_heads"], "attention.head_count_kv": 1,
             "attention.key_length": f["head_dim"], "attention.value_length": f["head_dim"],
             "attention.layer_norm_rms_epsilon": f["rms_norm_eps"],
             "attention.q_lora_rank": f["q_lora_rank"], "rope.dimension_count": f["qk_rope_head_dim"],
             "rope.freq_base": f["rope_theta"], "attention.sliding_window": f["sliding_window"],
             "attention.indexer.head_count": f["index_n_heads"],
             "attention.indexer.key_length": f["index_head_dim"],
             "attention.indexer.top_k": f["index_topk"],
             "attention.output_group_count": f["o_groups"],
             "attention.output_lora_rank": f["o_lora_rank"],
             "attention.compress_rope_freq_base": f["compress_rope_theta"],
             "attention.compress_ratios": [ratios[t] for t in f["layer_types"]],
             "hyper_connection.count": f["hc_mult"],
             "hyper_connection.sinkhorn_iterations": f["hc_sinkhorn_iters"],
             "hyper_connection.epsilon": f["hc_eps"],
             "hash_layer_count": f["mlp_layer_types"].count("hash_moe"),
             "expert_count": f["n_routed_experts"], "expert_used_count": f["num_experts_per_tok"],
             "expert_shared_count": 1, "expert_gating_func": 4,
             "expert_feed_forward_length": f["moe_intermediate_size"],
             "expert_weights_scale": f["routed_scaling_factor"], "swiglu_clamp_exp": f["swiglu_limit"]}
    pairs = {"general.architecture": "deepseek4", **{key(k): v for k, v in pairs.items()}}
    return {k: typed(v) for k, v in pairs.items()}


def logits(model):
    ids = ",".join(str(3 + i * 37 % 300) for i in range(90))
    return run("logits", "-m", model, "--ids", ids, "--kv-type", "f32").stdout


def test_deepseek4(tmp_path):
    if not GOLDEN.exists():
        pytest.skip(f"SKIP: {GOLDEN} is missing")
    facts = json.loads((GOLDEN / "config.json").read_text())
    tensors = read_safetensors(GOLDEN / "model.safetensors")
    rng = random.Random(5)
    facts["compress_rates"]["heavily_compressed_attention"] = FAR
    for name, (dtype, shape, _) in list(tensors.items()):
        if "mtp" in name:
            del tensors[name]
        elif name.endswith("attn.compressor.ape") and shape[0] == 8:
            values = [rng.uniform(-1, 1) for _ in range(FAR * shape[1])]
            data = b"".join(struct.pack("<f", v)[2:] for v in values)
            tensors[name] = (dtype, [FAR, shape[1]], data)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(facts))
    write_safetensors(folder / "model.safetensors", tensors)
    write_gguf(tmp_path / "model.gguf", pairs_of(facts), gguf_tensors(facts, tensors))
    assert logits(folder) == logits(tmp_path / "model.gguf")
