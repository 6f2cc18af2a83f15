# tests/test_family_files.py - families in GGUF's names: tiny files of made weights (family_files.py) against
# the logits, and for encoders the rows, that llama.cpp b11434 gives for them in float32.
import json
import re

import numpy as np
import pytest

from family_files import D, ENCODERS, FAMILIES, V, weights, write_family, write_model
from program import DATA, logits_hash, run
from tensor_files import read_safetensors, write_safetensors

IDS = [3, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]
LIMIT = 2e-5
GOLDEN = read_safetensors(DATA / "goldens-gguf.safetensors")


def distance(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def logits_of(model, tmp_path):
    out = tmp_path / "out.safetensors"
    run("logits", "-m", model, "--ids", ",".join(map(str, IDS)), "--kv-type", "f32", "-o", out)
    return np.frombuffer(read_safetensors(out)["logits"][2], "<f4").reshape(-1, V)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name, tmp_path):
    model = tmp_path / "model.gguf"
    write_family(model, name)
    assert distance(logits_of(model, tmp_path)[-1], np.frombuffer(GOLDEN[name][2], "<f4")) < LIMIT


def test_families_are_listed():
    """Each family here, and the names of GGUF files and of config.json that it is found by."""
    listed = {f["family"]: f for f in json.loads(run("inspect", "--families", "--json").stdout)}
    for name in {**FAMILIES, **ENCODERS}:
        arch = name.split("+")[0]
        assert any(arch in f["gguf"].split() for f in listed.values()), name
    assert "LlamaForCausalLM" in listed["llama"]["hf"].split()
    *lines, last = run("inspect", "--families").stdout.splitlines()
    assert len(lines) == len(listed) and all(line.count("\t") == 2 for line in lines)
    run_here, names = map(int, re.match(r"# (\d+) of the (\d+) architecture names of llama.cpp b11434; not:", last).groups())
    missing = last.partition("not:")[2].split()
    known = {name.split("+")[0] for f in listed.values() if "-vision" not in f["family"] for name in f["gguf"].split()}
    assert names == 153 and run_here == names - len(missing) >= 132 and not known & set(missing)


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


FOLDERS = {  # family: its class, keys of config.json that are added, names of tensors that are not Llama's
    "cogvlm": ("CogVLMForCausalLM", {"num_key_value_heads": 4}, {
        "vis_attn_qkv": "self_attn.vision_expert_query_key_value", "vis_attn_output": "self_attn.vision_expert_dense",
        "vis_gate": "mlp.vision_mlp.gate_proj", "vis_up": "mlp.vision_mlp.up_proj",
        "vis_down": "mlp.vision_mlp.down_proj", "attn_qkv": "self_attn.language_expert_query_key_value",
        "attn_output": "self_attn.language_expert_dense", "ffn_gate": "mlp.language_mlp.gate_proj",
        "ffn_up": "mlp.language_mlp.up_proj", "ffn_down": "mlp.language_mlp.down_proj"}),
    "maple": ("MapleForCausalLM", {
        "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_theta": 5000.0, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}, {}),
    "nanbeige": ("NanbeigeForCausalLM", {"num_loops": 2}, {}),
    "spark2_5": ("Spark2_5ForCausalLM", {
        "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {"full_attention": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                            "sliding_attention": {"rope_theta": 5000.0, "partial_rotary_factor": 1.0}},
        "headwise_attn_output_gate": True, "gate_attn_act_mode": "sigmoid", "hidden_act": "gelu"}, {
            "attn_gate": "self_attn.g_proj", "attn_qkv": "self_attn.q_k_v_proj"}),
}
LLAMA = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def in_halves(x, heads):
    """Rows of q or k whose pairs stand side by side, in the order of folders: first parts, second parts."""
    return x.reshape(heads, -1, 2, D).swapaxes(1, 2).reshape(-1, D)


def folder_of(name):
    _, tensors = FAMILIES[name]
    names, out = LLAMA | FOLDERS[name][2], {}
    seeds = {n: i + 1 for i, n in enumerate(sorted(tensors))}
    for old, shape in tensors.items():
        x, parts = weights(old, shape, seeds[old]), old.split(".")
        if name == "nanbeige" and parts[-2] in ("attn_q", "attn_k"):
            x = in_halves(x, 4 if parts[-2] == "attn_q" else 2)
        if parts[0] != "blk":
            out[f"{OUTSIDE[parts[0]]}.weight"] = x
        elif parts[2].endswith("_exps"):
            part = parts[2].removeprefix("ffn_").removesuffix("_exps")
            out |= {f"model.layers.{parts[1]}.mlp.experts.{e}.{part}_proj.weight": y for e, y in enumerate(x)}
        else:
            out[f"model.layers.{parts[1]}.{names[parts[2]]}.weight"] = x
    return {n: ("F32", list(x.shape), x.tobytes()) for n, x in out.items()}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_of_what_no_library_makes(name, tmp_path, monkeypatch):
    """Families without a class in transformers: the same tensors as a folder have the file's logits."""
    if name == "maple":  # in folders its bound is not stated
        monkeypatch.setitem(FAMILIES, name, (FAMILIES[name][0] | {"swiglu_clamp_exp": 7.0}, FAMILIES[name][1]))
    write_family(tmp_path / "model.gguf", name)
    (tmp_path / "folder").mkdir()
    kind, more, _ = FOLDERS[name]
    config = {"architectures": [kind], "num_hidden_layers": 3, "hidden_size": D, "intermediate_size": 96,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": V,
              "max_position_embeddings": 128, "rms_norm_eps": 1e-5, **more}
    (tmp_path / "folder/config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "folder/model.safetensors", folder_of(name))
    assert distance(logits_of(tmp_path / "folder", tmp_path), logits_of(tmp_path / "model.gguf", tmp_path)) < 2e-6


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
