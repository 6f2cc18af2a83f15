# tests/test_family_files.py - families in GGUF's names: tiny files of made weights (family_files.py) against
# the logits, and for encoders the rows, that llama.cpp b11434 gives for them in float32.
import json
import re

import numpy as np
import pytest

from family_files import D, ENCODERS, FAMILIES, V, write_family, write_model
from program import DATA, logits_hash, run
from tensor_files import read_safetensors

IDS = [3, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]
LIMIT = 2e-5
GOLDEN = read_safetensors(DATA / "goldens-gguf.safetensors")


def distance(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name, tmp_path):
    model, out = tmp_path / "model.gguf", tmp_path / "out.safetensors"
    write_family(model, name)
    run("logits", "-m", model, "--ids", ",".join(map(str, IDS)), "--kv-type", "f32", "-o", out)
    got = np.frombuffer(read_safetensors(out)["logits"][2], "<f4").reshape(-1, V)
    assert distance(got[-1], np.frombuffer(GOLDEN[name][2], "<f4")) < LIMIT


def test_families_are_listed():
    """Each family here, and the names of GGUF files and of config.json that it is found by."""
    listed = {f["family"]: f for f in json.loads(run("inspect", "--families", "--json").stdout)}
    for name in {**FAMILIES, **ENCODERS}:
        arch = name.split("+")[0]
        assert any(arch in f["gguf"].split() for f in listed.values()), name
    assert "LlamaForCausalLM" in listed["llama"]["hf"].split()
    lines = run("inspect", "--families").stdout.splitlines()
    assert len(lines) == len(listed) and all(line.count("\t") == 2 for line in lines)


APPROXIMATE = 1e-3  # llama.cpp computes the tanh form of gelu where the published models have erf's


@pytest.mark.parametrize("name", ENCODERS)
def test_rows(name, tmp_path):
    model, out = tmp_path / "model.gguf", tmp_path / "out.safetensors"
    write_family(model, name)
    run("embed", "-m", model, "--ids", ",".join(map(str, IDS)), "--pooling", "mean", "-o", out)
    got = np.frombuffer(read_safetensors(out)["hidden"][2], "<f4").reshape(-1, D)
    limit = APPROXIMATE if name in ("jina-bert-v3", "nomic-bert-moe") else LIMIT
    assert distance(got[-1], np.frombuffer(GOLDEN[name][2], "<f4")) < limit


@pytest.mark.parametrize("name", ["eurobert", "jina-bert-v3"])
def test_folders(name, tmp_path):
    """The same families as transformers 5.24 saves and computes them."""
    folder, out = DATA / "goldens-families" / name, tmp_path / "out.safetensors"
    golden = read_safetensors(folder / "golden.safetensors")
    ids = np.frombuffer(golden["input_ids"][2], "<i8")
    run("embed", "-m", folder, "--ids", ",".join(map(str, ids)), "--pooling", "mean", "-o", out)
    got = np.frombuffer(read_safetensors(out)["hidden"][2], "<f4")
    assert distance(got, np.frombuffer(golden["hidden"][2], "<f4")) < LIMIT


def test_gptj_in_ggufs_names(tmp_path):
    """No llama.cpp loads it: its names are those of the gguf package. The folder's logits, bit for bit."""
    names = {"wte.weight": "token_embd.weight", "ln_f": "output_norm", "lm_head": "output", "ln_1": "attn_norm",
             "attn.q_proj": "attn_q", "attn.k_proj": "attn_k", "attn.v_proj": "attn_v",
             "attn.out_proj": "attn_output", "mlp.fc_in": "ffn_up", "mlp.fc_out": "ffn_down"}
    folder = DATA / "goldens-families/gptj"
    config, tensors = json.loads((folder / "config.json").read_text()), {}
    for name, (_, shape, data) in read_safetensors(folder / "model.safetensors").items():
        name = name.replace("transformer.", "").replace("h.", "blk.", name.startswith("transformer.h."))
        for old, new in names.items():
            name = name.replace(old, new)
        tensors[name] = (shape, 0, b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))
    write_model(tmp_path / "model.gguf", "gptj", {
        "block_count": config["n_layer"], "context_length": config["n_positions"],
        "embedding_length": config["n_embd"], "feed_forward_length": 4 * config["n_embd"],
        "attention.head_count": config["n_head"], "rope.dimension_count": config["rotary_dim"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"], "vocab_size": config["vocab_size"]},
        tensors, config["vocab_size"])
    assert logits_hash(tmp_path / "model.gguf", IDS[:8]) == logits_hash(folder, IDS[:8])


INDEXED = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "lm_head": "output",
           "embed_tokens": "token_embd", "layers": "blk", "indexer.weights_proj": "indexer.proj",
           "indexer.wk": "indexer.attn_k", "indexer.wq_b": "indexer.attn_q_b", "q_a_proj": "attn_q_a",
           "q_b_proj": "attn_q_b", "kv_a_proj_with_mqa": "attn_kv_a_mqa", "kv_b_proj": "attn_kv_b",
           "q_a_layernorm": "attn_q_a_norm", "kv_a_layernorm": "attn_kv_a_norm", "o_proj": "attn_output",
           "mlp.gate.e_score_correction_bias": "exp_probs_b.bias", "mlp.gate.weight": "ffn_gate_inp.weight",
           "_proj.weight": ".weight"}


def in_ggufs_names(name):
    name, end = name.removeprefix("model."), ""
    if name == "norm.weight":
        return "output_norm.weight"
    for part, suffix in (("shared_experts.", "_shexp"), ("experts.", "_exps")):
        if part in name:
            name, end = name.replace(part, ""), suffix
            break
    for old, new in INDEXED.items():
        name = name.replace(old, new)
    name = name.replace("self_attn.", "").replace("mlp.", "ffn_")
    return name.replace(".weight", end + ".weight") if end else name


@pytest.mark.parametrize("name", ["deepseek32", "glm-dsa"])
def test_indexers_in_ggufs_names(name, tmp_path):
    """More tokens than an indexer chooses, some layers with another one's list: the folder's logits, bit for bit."""
    folder = DATA / "goldens-families" / name
    c, stacked = json.loads((folder / "config.json").read_text()), {}
    tensors = {}
    for old, (_, shape, data) in sorted(read_safetensors(folder / "model.safetensors").items()):
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        expert = re.search(r"experts\.(\d+)\.", old)
        if expert and "shared" not in old:
            stacked.setdefault(in_ggufs_names(old.replace(expert[0], "experts.")), []).append((shape, data))
        else:
            tensors[in_ggufs_names(old)] = (shape, 0, data)
    for new, parts in stacked.items():
        tensors[new] = ([len(parts), *parts[0][0]], 0, b"".join(data for _, data in parts))
    write_model(tmp_path / "model.gguf", name, {
        "block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": c["rms_norm_eps"], "attention.q_lora_rank": c["q_lora_rank"],
        "attention.kv_lora_rank": c["kv_lora_rank"], "attention.key_length_mla": c["qk_head_dim"],
        "attention.value_length_mla": c["v_head_dim"], "rope.dimension_count": c["qk_rope_head_dim"],
        "rope.freq_base": c["rope_parameters"]["rope_theta"], "vocab_size": c["vocab_size"],
        "leading_dense_block_count": c["first_k_dense_replace"], "expert_count": c["n_routed_experts"],
        "expert_used_count": c["num_experts_per_tok"], "expert_shared_count": c["n_shared_experts"],
        "expert_feed_forward_length": c["moe_intermediate_size"], "expert_gating_func": 2,
        "expert_weights_scale": c["routed_scaling_factor"], "expert_weights_norm": c["norm_topk_prob"],
        "attention.indexer.head_count": c["index_n_heads"],
        "attention.indexer.key_length": c["index_head_dim"], "attention.indexer.top_k": c["index_topk"],
        **({"attention.indexer.types": [t == "full" for t in c["indexer_types"]]}
           if "indexer_types" in c else {})}, tensors, c["vocab_size"])
    assert logits_hash(tmp_path / "model.gguf", IDS[:8]) == logits_hash(folder, IDS[:8])
