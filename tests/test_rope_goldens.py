# tests/test_rope_goldens.py - rope scaling as GGUF states it: the reference checkpoints of
# tests/data/goldens-rope as GGUF files, with the reference's logits and greedy tokens.
# tests/test_goldens.c runs the same checkpoints as folders.
import json
import math
import re
import struct

import numpy
import pytest

from program import DATA, logits_hash, run

ROOT = DATA / "goldens-rope"
CLOSE_ENOUGH = 2e-5  # norm of the difference over norm of the reference, as in test_goldens.c
FAR = 0.1  # a case without its scaling is farther away

TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    kinds = {"F32": "<f4", "I64": "<i8", "U8": "u1"}
    return {name: numpy.frombuffer(data[8 + length:][slice(*t["data_offsets"])],
                                   kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def pair(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    return text(key) + struct.pack("<If" if isinstance(value, float) else "<II",
                                   6 if isinstance(value, float) else 4, value)


def write_gguf(path, keys, tensors, kinds={}):
    """kinds: the type of a tensor whose bytes [rows, bytes of a row of 256 weights] these are; else F32."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    head += b"".join(pair(k, v) for k, v in keys.items())
    body = b""
    for name, t in tensors.items():
        head += text(name) + struct.pack("<I", t.ndim)
        kind = kinds.get(name, 0)
        shape = (t.shape[0], 256) if kind else t.shape
        head += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", kind, len(body))
        body += (t if kind else t.astype("<f4")).tobytes()
        body += b"\0" * (-len(body) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)


def pairs_side_by_side(t, heads):
    """Rows of a head as llama files order them: the two values that rotate together adjoin."""
    return t.reshape(heads, 2, -1, *t.shape[1:]).swapaxes(1, 2).reshape(t.shape)


def gguf_name(name):
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)", name)
    return f"blk.{layer[1]}.{TENSORS[layer[2]]}.{layer[3]}" if layer else TENSORS[name]


def to_gguf(case, path, scaling, tensors=None):
    """The case with these rope keys; tensors: what the file holds beyond the weights."""
    config = json.loads((ROOT / case / "config.json").read_text())
    arch = config["model_type"]
    rope = config.get("rope_parameters") or config["rope_scaling"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    keys = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"], "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"], "vocab_size": config["vocab_size"],
        "attention.head_count": heads, "attention.head_count_kv": kv_heads,
        "attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 32,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config.get("rope_theta") or rope["rope_theta"],
    }
    keys.update({f"rope.{key}": value for key, value in scaling.items()})
    weights = {}
    for name, t in read_safetensors(ROOT / case / "model.safetensors").items():
        if arch == "llama" and re.search(r"\.[qk]_proj\.", name):
            t = pairs_side_by_side(t, heads if ".q_proj." in name else kv_heads)
        weights[gguf_name(name)] = t
    write_gguf(path, {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in keys.items()}},
               {**weights, **(tensors or {})})


def golden_of(case):
    g = read_safetensors(ROOT / case / "golden.safetensors")
    ids = g["input_ids"].tolist()
    return ids, g["logits"], g["greedy_ids"].tolist()[len(ids):]


def evaluate(model, ids, out):
    """Logits [T, v] and 24 greedy tokens."""
    done = run("logits", "-m", model, "--ids", ",".join(map(str, ids)), "--kv-type", "f32", "-t", "2",
               "--greedy", "24", "-o", out)
    greedy = re.search(r"^greedy: ([\d,]+)$", done.stdout, re.M)[1]
    return read_safetensors(out)["logits"], [int(i) for i in greedy.split(",")]


def distance(got, want):
    return numpy.linalg.norm(got - want) / numpy.linalg.norm(want)


YARN = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 32}
# As the converter of llama.cpp writes them, and as other files may.
CASES = {
    "llama-yarn": YARN,
    "qwen2-yarn": YARN,
    "llama-yarn-betas": {"scaling.type": "yarn", "scaling.factor": 8.0,
                         "scaling.original_context_length": 64, "scaling.yarn_beta_fast": 4.0,
                         "scaling.yarn_beta_slow": 0.5, "scaling.yarn_attn_factor": 1.35},
    # No key for mscale: (0.15 ln 10 + 1) / (0.05 ln 10 + 1) as a factor on yarn's own.
    "llama-yarn-mscale": {"scaling.type": "yarn", "scaling.factor": 10.0,
                          "scaling.original_context_length": 32, "scaling.attn_factor":
                          (0.15 * math.log(10) + 1) / (0.05 * math.log(10) + 1)
                          / (0.1 * math.log(10) + 1)},
    "llama-linear": {"scaling.type": "linear", "scaling.factor": 4.0},
}


@pytest.mark.parametrize("case", CASES)
def test_scaling_of_a_gguf(case, tmp_path):
    ids, logits, greedy = golden_of(case)
    to_gguf(case, tmp_path / "m.gguf", CASES[case])
    got, tokens = evaluate(tmp_path / "m.gguf", ids, tmp_path / "out.safetensors")
    assert distance(got, logits) <= CLOSE_ENOUGH
    assert tokens == greedy


def test_llama3_as_a_tensor(tmp_path):
    """GGUF has no key for this scaling: the file holds what each frequency is divided by."""
    ids, logits, greedy = golden_of("llama-llama3")
    original, factor, low, high = 32, 8.0, 1.0, 4.0
    turns = original * 10000.0 ** (-numpy.arange(16) / 16) / (2 * math.pi)
    keep = numpy.clip((turns - low) / (high - low), 0, 1)
    divisors = {"rope_freqs.weight": 1 / ((1 - keep) / factor + keep)}
    assert 0 < sum(0 < k < 1 for k in keep) < 16
    to_gguf("llama-llama3", tmp_path / "m.gguf", {}, divisors)
    got, tokens = evaluate(tmp_path / "m.gguf", ids, tmp_path / "out.safetensors")
    assert distance(got, logits) <= CLOSE_ENOUGH
    assert tokens == greedy


@pytest.mark.parametrize("case", [*CASES, "llama-llama3"])
def test_scaling_matters(case, tmp_path):
    """The distance above means something: the same weights without the scaling are far away."""
    ids, logits, _ = golden_of(case)
    to_gguf(case, tmp_path / "m.gguf", {})
    got, _ = evaluate(tmp_path / "m.gguf", ids, tmp_path / "out.safetensors")
    assert distance(got, logits) > FAR


def test_both_containers_give_the_same_bits(tmp_path):
    ids, _, _ = golden_of("qwen2-yarn")
    to_gguf("qwen2-yarn", tmp_path / "m.gguf", CASES["qwen2-yarn"])
    assert logits_hash(tmp_path / "m.gguf", ids) == logits_hash(ROOT / "qwen2-yarn", ids)


def test_what_is_not_supported_is_said(tmp_path):
    for key, value, word in (("scaling.yarn_log_multiplier", 0.1, "log multiplier of 0.1"),
                             ("scaling.yarn_ext_factor", 0.5, "extrapolation factor of 0.5")):
        to_gguf("llama-yarn", tmp_path / "m.gguf", {**YARN, key: value})
        done = run("logits", "-m", tmp_path / "m.gguf", "--ids", "1", check=False)
        assert done.returncode == 1 and word in done.stderr and len(done.stderr.splitlines()) == 1
