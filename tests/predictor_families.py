#!/usr/bin/env python3
# tests/predictor_families.py - reference checkpoints of families with the layer that each ships to
# predict one token more, under the names of its publisher, weights drawn from a seed; and that layer
# alone as llama.cpp's GGUF files have it.
#   predictor_families.py GOLDENS FAMILIES OUT   folders in OUT, and NAME.gguf of some
import json
import random
import struct
import sys
from pathlib import Path

from predictor_files import bf16
from tensor_files import gguf_text, read_safetensors, write_gguf, write_safetensors

NORM, MINUS_ONE, ROUTER, BIAS = "norm", "minus one", "router", "bias"


def attention(at, d, heads, kv, e, v=None, normed=NORM):
    out = {at + "q_proj.weight": [heads * e, d], at + "k_proj.weight": [kv * e, d],
           at + "v_proj.weight": [kv * (v or e), d], at + "o_proj.weight": [d, heads * (v or e)]}
    return out | ({at + "q_norm.weight": (normed, e), at + "k_norm.weight": (normed, e)} if normed else {})


def dense(at, d, ff):
    return {at + "gate_proj.weight": [ff, d], at + "up_proj.weight": [ff, d], at + "down_proj.weight": [d, ff]}


def norms(at, names, d, kind=NORM):
    return {at + n + ".weight": (kind, d) for n in names}


def hy_v3(c):
    d, at = 32, "model.layers.2."
    out = norms(at, ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "final_layernorm"), d)
    out |= {at + "eh_proj.weight": [d, 2 * d], at + "mlp.router.gate.weight": [4, d], at + "mlp.expert_bias": (BIAS, 4)}
    for i in range(4):
        out |= dense(f"{at}mlp.experts.{i}.", d, 16)
    c["num_nextn_predict_layers"] = 1
    return out | attention(at + "self_attn.", d, 4, 2, 8) | dense(at + "mlp.shared_mlp.", d, 16)


def mimo2(c):
    d, at = 32, "model.mtp.layers.0."
    out = norms(at, ("enorm", "hnorm", "input_layernorm", "pre_mlp_layernorm", "final_layernorm"), d)
    out |= {at + "eh_proj.weight": [d, 2 * d], at + "self_attn.attention_sink_bias": (BIAS, 4)}
    return out | attention(at + "self_attn.", d, 4, 4, 12, 8, None) | dense(at + "mlp.", d, 48)


def step35(c):
    d, at = 32, "model.layers.4."
    c["text_config"] |= {"num_nextn_predict_layers": 1, "mtp_layer_types": ["sliding_attention"],
                         "mtp_mlp_layer_types": ["dense"]}
    out = norms(at, ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "transformer.shared_head.norm"),
                d, MINUS_ONE)
    out |= {at + "eh_proj.weight": [d, 2 * d], at + "self_attn.g_proj.weight": [8, d],
            at + "transformer.shared_head.output.weight": [96, d]}
    return out | attention(at + "self_attn.", d, 8, 2, 8, None, MINUS_ONE) | dense(at + "mlp.", d, 48)


def nemotron(c):
    d, at, end = 64, "mtp.layers.0.", "mtp.layers.1."
    c |= {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}
    out = norms(at, ("enorm", "hnorm", "norm"), d) | norms(end, ("norm", "final_layernorm"), d)
    out |= {at + "eh_proj.weight": [d, 2 * d]} | attention(at + "mixer.", d, 4, 2, 16, None, None)
    out |= {end + "mixer.gate.weight": [8, d], end + "mixer.gate.e_score_correction_bias": (BIAS, 8)}
    for i in range(8):
        out |= {f"{end}mixer.experts.{i}.up_proj.weight": [16, d], f"{end}mixer.experts.{i}.down_proj.weight": [d, 16]}
    return out | {end + "mixer.shared_experts.up_proj.weight": [32, d],
                  end + "mixer.shared_experts.down_proj.weight": [d, 32]}


def one_above(d):
    """Names of Mellum and K-EXAONE: what goes before the layer stands one level above it."""
    out = norms("mtp.", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), d)
    return out | {"mtp.fc.weight": [d, 2 * d]} | norms("mtp.layers.0.", ("input_layernorm", "post_attention_layernorm"), d)


def mellum(c):
    d, at = 32, "mtp.layers.0."
    c["num_nextn_predict_layers"] = 1
    out = one_above(d) | attention(at + "self_attn.", d, 4, 2, 8) | {at + "mlp.gate.weight": [4, d]}
    for i in range(4):
        out |= dense(f"{at}mlp.experts.{i}.", d, 16)
    return out


def exaone(c):
    c["num_nextn_predict_layers"] = 1
    return one_above(32) | attention("mtp.layers.0.self_attn.", 32, 4, 2, 8) | dense("mtp.layers.0.mlp.", 32, 48)


def ernie(c):
    d, at = 32, "model.mtp_block.0."
    c["num_nextn_predict_layers"] = 1
    out = norms("model.", ("mtp_emb_norm.0", "mtp_hidden_norm.0"), d) | {"model.mtp_linear_proj.0.weight": [d, 2 * d]}
    out |= norms(at, ("input_layernorm", "post_attention_layernorm"), d)
    return out | attention(at + "self_attn.", d, 4, 2, 8, None, None) | dense(at + "mlp.", d, 48)


CASES = {"hy_v3": hy_v3, "mimo2": mimo2, "step35": step35, "nemotron-h-moe": nemotron, "mellum": mellum,
         "exaone-moe": exaone, "ernie4_5-moe": ernie}


def drawn(rng, what):
    """(type, shape, bytes): matrices that keep the size of what they multiply."""
    if isinstance(what, list):
        by = (3 / what[1]) ** 0.5
        return "BF16", what, bf16([rng.uniform(-by, by) for _ in range(what[0] * what[1])])
    kind, n = what
    middle, by = {NORM: (1, 0.3), MINUS_ONE: (0, 0.3), BIAS: (0, 0.5)}[kind]
    return ("F32" if kind == BIAS else "BF16"), [n], (
        struct.pack(f"<{n}f", *(rng.uniform(-by, by) for _ in range(n))) if kind == BIAS
        else bf16([middle + rng.uniform(-by, by) for _ in range(n)]))


def folder(source, out, make):
    out.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    rng = random.Random("predictor " + source.name)
    tensors = read_safetensors(source / "model.safetensors")
    added = {name: drawn(rng, what) for name, what in make(config).items()}
    (out / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "model.safetensors", tensors | added)
    return config, tensors, added


# ---- GGUF

NAMES = {"enorm": "nextn.enorm", "hnorm": "nextn.hnorm", "eh_proj": "nextn.eh_proj", "norm": "attn_norm",
         "final_layernorm": "nextn.shared_head_norm", "transformer.shared_head.norm": "nextn.shared_head_norm",
         "transformer.shared_head.output": "nextn.shared_head_head", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "pre_mlp_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
         "v_proj": "attn_v", "o_proj": "attn_output", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
         "g_proj": "attn_gate", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
         "attention_sink_bias": "attn_sinks", "router.gate": "ffn_gate_inp", "gate": "ffn_gate_inp",
         "e_score_correction_bias": "exp_probs_b.bias", "gate.e_score_correction_bias": "exp_probs_b.bias",
         "expert_bias": "exp_probs_b"}
OUTSIDE = {"embed_tokens": "token_embd", "embeddings": "token_embd", "lm_head": "output"}


def f32(kind, raw, plus=0.0):
    raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2)) if kind == "BF16" else raw
    values = struct.unpack(f"<{len(raw) // 4}f", raw)
    return struct.pack(f"<{len(values)}f", *(v + plus for v in values))


def gguf_name(name, layer, renamed):
    """(name in the file, whether it is of one of several experts)."""
    part = name.removesuffix(".weight")
    if "experts." in part and "shared" not in part:
        return f"blk.{layer}.{NAMES[part.rsplit('.', 1)[1]]}_exps.weight", True
    shared = "_shexp" if "shared_mlp" in part or "shared_experts" in part else ""
    for head in ("self_attn.", "mlp.shared_mlp.", "mixer.shared_experts.", "mlp.", "mixer."):
        part = part.removeprefix(head)
    to = renamed.get(part) or NAMES[part]
    return f"blk.{layer}.{to}{shared}" + ("" if to.endswith((".bias", "_b")) else ".weight"), False


def gguf(out, trunk, pairs, tensors, added, renamed=None):
    """The layer alone, as llama.cpp writes it; renamed: start of a tensor's name -> names of its own."""
    made = {}
    for name, (kind, shape, raw) in tensors.items():
        key = next((to for of, to in OUTSIDE.items() if name.endswith(of + ".weight") and "mtp" not in name), None)
        if key is not None:
            made[key + ".weight"] = (shape, 0, f32(kind, raw))
    for name, (kind, shape, raw) in added.items():
        at = next(a for a in renamed if name.startswith(a))
        key, expert = gguf_name(name[len(at):], trunk, renamed[at])
        raw = f32(kind, raw, 1.0 if "step35" in out.name and len(shape) == 1 else 0.0)
        if expert:
            before = made.get(key, ([0] + shape, 0, b""))
            made[key] = ([before[0][0] + 1] + shape, 0, before[2] + raw)
        else:
            made[key] = (shape, 0, raw)
    name = pairs.pop("architecture")
    typed = {"general.architecture": struct.pack("<I", 8) + gguf_text(name)}
    typed |= {f"{name}.{k}": value(v) for k, v in pairs.items()}
    write_gguf(out, typed, made)


def value(v):
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, list):
        kind, form = (7, "?") if isinstance(v[0], bool) else (5, "i")
        return struct.pack(f"<IIQ{len(v)}{form}", 9, kind, len(v), *v)
    return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)


def pairs_of(name, blocks, d, **more):
    return {"architecture": name, "block_count": blocks, "context_length": 64, "embedding_length": d,
            "nextn_predict_layers": 1, "attention.layer_norm_rms_epsilon": 1e-5, **more}


def gguf_files(out, parts):
    """parts: name -> what folder() gave."""
    heads = {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 8,
             "attention.value_length": 8}
    routed = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16}
    gguf(out / "hy_v3.gguf", 2, pairs_of("hy_v3", 3, 32, **heads, **routed, **{
        "feed_forward_length": 48, "expert_shared_feed_forward_length": 16, "expert_weights_scale": 2.826,
        "expert_weights_norm": True, "expert_gating_func": 2, "rope.freq_base": 11158840.0, "vocab_size": 96}),
         *parts["hy_v3"][1:], {"model.layers.2.": {}})
    near = [False, True, True, False, True]
    gguf(out / "mimo2.gguf", 4, pairs_of("mimo2", 5, 32, **routed, **{
        "attention.head_count": 4, "attention.head_count_kv": [2, 4, 4, 2, 4], "attention.key_length": 12,
        "attention.value_length": 8, "attention.value_scale": 0.7, "attention.sliding_window": 5,
        "attention.sliding_window_pattern": near, "feed_forward_length": 48, "rope.dimension_count": 4,
        "rope.freq_base": 5000000.0, "rope.freq_base_swa": 10000.0, "vocab_size": 96}),
         *parts["mimo2"][1:], {"model.mtp.layers.0.": {"final_layernorm": "layer_output_norm"}})
    gguf(out / "step35.gguf", 4, pairs_of("step35", 5, 32, **routed, **{
        "attention.head_count": [4, 8, 8, 4, 8], "attention.head_count_kv": [2] * 5, "attention.key_length": 8,
        "attention.value_length": 8, "attention.sliding_window": 5, "attention.sliding_window_pattern": near,
        "feed_forward_length": 48, "expert_shared_feed_forward_length": 24, "rope.dimension_count": 8,
        "rope.freq_base": 50000.0, "rope.freq_base_swa": 10000.0, "vocab_size": 96}),
         *parts["step35"][1:], {"model.layers.4.": {}})
    gguf(out / "nemotron-h-moe.gguf", 4, pairs_of("nemotron_h_moe", 5, 64, **{
        "attention.head_count": [0, 0, 4, 0, 4], "attention.head_count_kv": [0, 0, 2, 0, 2],
        "attention.key_length": 16, "attention.value_length": 16, "feed_forward_length": [0, 16, 0, 16, 16],
        "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 16,
        "expert_shared_feed_forward_length": 32, "expert_shared_count": 1, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2,
        "ssm.inner_size": 128, "ssm.time_step_rank": 8, "vocab_size": 320}),
         *parts["nemotron-h-moe"][1:], {"mtp.layers.0.": {}, "mtp.layers.1.": {"norm": "post_attention_norm"}})


def main():
    goldens, families, out = map(Path, sys.argv[1:4])
    parts = {}
    for name, make in CASES.items():
        parts[name] = folder((goldens if name.startswith("nemotron") else families) / name, out / name, make)
    gguf_files(out, parts)


if __name__ == "__main__":
    main()
