#!/usr/bin/env python3
# tests/draft_heads.py - heads of EAGLE-3 for tales-2m with weights drawn from a seed: as speculators
# writes them, in three variants, and the first one as SGLang and llama.cpp spell it; two that foresee
# the text of a model made for that; drafters by blocks (DFlash) as speculators and z-lab write them, and with
# chains (DSpark) as speculators and DeepSpec do.
#   draft_heads.py SHARED OUT    folders plain, normed, deep, sglang, silent, seer, seer-part, blocks, anchored,
#                                z-lab, chained, gated, joint, deepspec, ring, ring-block and ring-chain, and
#                                head.gguf, block.gguf and chain.gguf, in OUT
import json
import math
import random
import struct
import sys
from pathlib import Path

from tensor_files import read_safetensors, write_gguf, write_safetensors

D, VOCAB, DRAFT, FF, HEADS, KV, E = 256, 4096, 160, 96, 4, 2, 32
LAYER = {"model_type": "llama", "hidden_size": D, "vocab_size": VOCAB, "intermediate_size": FF,
         "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": E,
         "rms_norm_eps": 1e-5, "max_position_embeddings": 1024, "hidden_act": "silu",
         "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "attention_bias": False,
         "mlp_bias": False, "tie_word_embeddings": False}
VARIANTS = {"plain": {"norm_before_residual": True},
            "normed": {"norm_before_fc": True, "norm_output": True},
            "deep": {"fc_norm": True}}


def layer_config(variant):
    more = {"model_type": "qwen3"} if variant == "normed" else {"num_hidden_layers": 2} if variant == "deep" else {}
    return {**LAYER, **more}


def shapes(variant):
    """name -> shape; vectors are norms."""
    out = {"fc.weight": [D, 3 * D], "norm.weight": [D], "lm_head.weight": [DRAFT, D]}
    for i in range(layer_config(variant)["num_hidden_layers"]):
        at, wide = f"layers.{i}.", 2 * D if i == 0 else D
        out |= {at + "input_layernorm.weight": [D], at + "post_attention_layernorm.weight": [D],
                at + "self_attn.q_proj.weight": [HEADS * E, wide], at + "self_attn.k_proj.weight": [KV * E, wide],
                at + "self_attn.v_proj.weight": [KV * E, wide], at + "self_attn.o_proj.weight": [D, HEADS * E],
                at + "mlp.gate_proj.weight": [FF, D], at + "mlp.up_proj.weight": [FF, D],
                at + "mlp.down_proj.weight": [D, FF]}
        if i == 0:
            out[at + "hidden_norm.weight"] = [D]
        if variant == "normed":
            out |= {at + "self_attn.q_norm.weight": [E], at + "self_attn.k_norm.weight": [E]}
    if variant == "normed":
        out["input_norm.weight"] = [3 * D]
    if variant == "deep":
        out |= {f"fc_norm.{i}.weight": [D] for i in range(3)}
    return out


def drawn(rng, shape):
    if len(shape) == 1:
        values = [1 + rng.uniform(-0.3, 0.3) for _ in range(shape[0])]
    else:
        by = 3.0 * (3 / shape[1]) ** 0.5
        values = [rng.uniform(-by, by) for _ in range(shape[0] * shape[1])]
    return struct.pack(f"<{len(values)}f", *values)


def head(variant):
    rng = random.Random("eagle3 " + variant)
    return {name: ("F32", shape, drawn(rng, shape)) for name, shape in shapes(variant).items()}


def tokens(variant):
    """Which tokens of the target's those of the head are: the first ones after the bytes, and some."""
    rng = random.Random("tokens " + variant)
    return sorted(rng.sample(range(259, 259 + 2 * DRAFT), DRAFT - 8) + rng.sample(range(2000, VOCAB), 8))


def integers(values):
    return ("I64", [len(values)], struct.pack(f"<{len(values)}q", *values))


def speculators(tales, out, variant):
    embed = read_safetensors(tales / "model.safetensors")["model.embed_tokens.weight"]
    ids = tokens(variant)
    tensors = head(variant) | {"embed_tokens.weight": embed, "d2t": integers([t - i for i, t in enumerate(ids)]),
                               "t2d": ("BOOL", [VOCAB], bytes(t in ids for t in range(VOCAB)))}
    config = {"architectures": ["Eagle3DraftModel"], "speculators_model_type": "eagle3", "draft_vocab_size": DRAFT,
              "target_hidden_size": None, "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
              "transformer_layer_config": layer_config(variant), "speculators_version": "0.9.0",
              "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy",
                                     "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 4}],
                                     "verifier": {"name_or_path": str(tales), "architectures": ["LlamaForCausalLM"]}},
              **VARIANTS[variant]}
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "model.safetensors", tensors)


def sglang(out):
    """The layer as midlayer, layers by what they give, no embedding."""
    ids = tokens("plain")
    tensors = {("midlayer." + n[len("layers.0."):] if n.startswith("layers.0.") else n): t
               for n, t in head("plain").items()}
    tensors["d2t"] = integers([t - i for i, t in enumerate(ids)])
    config = LAYER | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT,
                      "norm_before_residual": True, "rope_theta": 10000.0,
                      "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 1], "use_aux_hidden_state": True}}
    del config["rope_parameters"]
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "model.safetensors", tensors)


def interleaved(raw, heads, cols):
    """Rows of each head: those that rotate together side by side."""
    size = 4 * cols
    rows = [raw[i * size:(i + 1) * size] for i in range(heads * E)]
    return b"".join(rows[h * E + half * E // 2 + i] for h in range(heads) for i in range(E // 2) for half in (0, 1))


GGUF = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm", "hidden_norm": "attn_norm_2",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down"}


def gguf(out):
    def number(kind, form, value):
        return struct.pack("<I" + form, kind, value)

    tensors = {"d2t": ([DRAFT], 27, integers(tokens("plain"))[2])}
    for name, (_, shape, raw) in head("plain").items():
        to = {"norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}.get(name, name)
        if name.startswith("layers.0."):
            to = "blk.0." + GGUF[name[len("layers.0."):-len(".weight")]] + ".weight"
        if "q_proj" in name or "k_proj" in name:
            raw = interleaved(raw, HEADS if "q_proj" in name else KV, 2 * D)
        tensors[to] = (shape, 0, raw)
    text = b"eagle3"
    pairs = {"general.architecture": struct.pack("<IQ", 8, len(text)) + text,
             "eagle3.extract_layers": struct.pack("<IIQ3i", 9, 5, 3, 0, 1, 2),
             "eagle3.target_hidden_size": number(4, "I", D), "eagle3.norm_before_residual": number(7, "?", True),
             "eagle3.block_count": number(4, "I", 1), "eagle3.context_length": number(4, "I", 1024),
             "eagle3.embedding_length": number(4, "I", D), "eagle3.feed_forward_length": number(4, "I", FF),
             "eagle3.attention.head_count": number(4, "I", HEADS),
             "eagle3.attention.head_count_kv": number(4, "I", KV),
             "eagle3.attention.key_length": number(4, "I", E), "eagle3.attention.value_length": number(4, "I", E),
             "eagle3.rope.dimension_count": number(4, "I", E), "eagle3.rope.freq_base": number(6, "f", 10000.0),
             "eagle3.attention.layer_norm_rms_epsilon": number(6, "f", 1e-5),
             "eagle3.vocab_size": number(4, "I", VOCAB)}
    write_gguf(out, pairs, tensors)


CHAIN_GGUF = {"markov_head.markov_w1.weight": "markov_w1.weight", "markov_head.markov_w2.weight": "markov_w2.weight",
              "confidence_head.proj.weight": "conf_proj.weight", "confidence_head.proj.bias": "conf_proj.bias"}


def block_gguf(out, tensors):
    """A drafter by blocks as llama.cpp writes it: no embedding and no head, layers by what they read."""
    def number(kind, form, value):
        return struct.pack("<I" + form, kind, value)

    def text(value):
        return struct.pack("<Q", len(value)) + value

    given, tensors = tensors, {}
    names = {"norm.weight": "output_norm.weight", "hidden_norm.weight": "enc.output_norm.weight"} | CHAIN_GGUF
    for name, (_, shape, raw) in given.items():
        to = names.get(name, name)
        if name.startswith("layers."):
            _, i, part = name[:-len(".weight")].split(".", 2)
            of = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", **GGUF}[part]
            to = f"blk.{i}.{of}.weight"
        tensors[to] = (shape, 0, raw)
    pairs = {"general.architecture": struct.pack("<I", 8) + text(b"dflash"),
             "dflash.target_layers": struct.pack("<IIQi", 9, 5, 1, 1), "dflash.block_size": number(4, "I", BLOCK),
             "tokenizer.ggml.mask_token_id": number(4, "I", MASK),
             "dflash.block_count": number(4, "I", BLOCK_LAYERS), "dflash.context_length": number(4, "I", 1024),
             "dflash.embedding_length": number(4, "I", D), "dflash.feed_forward_length": number(4, "I", FF),
             "dflash.attention.head_count": number(4, "I", HEADS),
             "dflash.attention.head_count_kv": number(4, "I", KV),
             "dflash.attention.key_length": number(4, "I", E), "dflash.attention.value_length": number(4, "I", E),
             "dflash.rope.dimension_count": number(4, "I", E), "dflash.rope.freq_base": number(6, "f", 10000.0),
             "dflash.attention.layer_norm_rms_epsilon": number(6, "f", 1e-5), "dflash.vocab_size": number(4, "I", VOCAB)}
    write_gguf(out, pairs, tensors)


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def ones(rows, cols, at=0):
    """Row i has a one in column at + i."""
    out = [0.0] * (rows * cols)
    for i in range(rows):
        out[i * cols + at + i] = 1.0
    return floats(out)


def foreseeing(golden, out):
    """silent: golden without what layers add, so that a token alone says what follows it. seer: a head that
    attends to its own row alone (keys and queries are constant, and rotated), has the token's row as
    value, and takes embedding and output head of the model; seer-part: the same of every other token."""
    facts = json.loads((golden / "config.json").read_text())
    tensors = read_safetensors(golden / "model.safetensors")
    for name, (kind, shape, raw) in tensors.items():
        if "o_proj" in name or "down_proj" in name:
            tensors[name] = (kind, shape, bytes(len(raw)))
    (out / "silent").mkdir()
    (out / "silent" / "config.json").write_text(json.dumps(facts))
    write_safetensors(out / "silent" / "model.safetensors", tensors)
    d, ff, vocab = facts["hidden_size"], facts["intermediate_size"], facts["vocab_size"]

    def own(shape, raw=None):
        return ("F32", shape, raw if raw is not None else bytes(4 * shape[0] * (shape[1] if len(shape) > 1 else 1)))

    layer = {"self_attn.q_proj.weight": own([d, 2 * d]), "self_attn.k_proj.weight": own([d, 2 * d]),
             "self_attn.q_proj.bias": own([d], floats([16.0] * d)), "self_attn.k_proj.bias": own([d], floats([16.0] * d)),
             "self_attn.v_proj.weight": own([d, 2 * d], ones(d, 2 * d)), "self_attn.o_proj.weight": own([d, d], ones(d, d)),
             "input_layernorm.weight": own([d], floats([1.0] * d)), "hidden_norm.weight": own([d]),
             "post_attention_layernorm.weight": own([d], floats([1.0] * d)), "mlp.gate_proj.weight": own([ff, d]),
             "mlp.up_proj.weight": own([ff, d]), "mlp.down_proj.weight": own([d, ff])}
    head = {"midlayer." + n: t for n, t in layer.items()}
    head |= {"fc.weight": own([d, 3 * d]), "norm.weight": tensors["model.norm.weight"]}
    config = facts | {"num_hidden_layers": 1, "draft_vocab_size": vocab, "norm_before_residual": True,
                      "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 1]}}
    (out / "seer").mkdir()
    (out / "seer" / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "seer" / "model.safetensors", head)
    kind, shape, raw = tensors["lm_head.weight"]
    row = len(raw) // shape[0]
    head["lm_head.weight"] = (kind, [vocab // 2, d], b"".join(raw[2 * i * row:(2 * i + 1) * row] for i in range(vocab // 2)))
    head["d2t"] = integers(list(range(vocab // 2)))
    (out / "seer-part").mkdir()
    (out / "seer-part" / "config.json").write_text(json.dumps(config | {"draft_vocab_size": vocab // 2}))
    write_safetensors(out / "seer-part" / "model.safetensors", head)


# ---- DFlash

BLOCK, MASK, BLOCK_LAYERS = 8, 3, 2
BLOCKS = {"blocks": {"aux_hidden_state_layer_ids": [0, 1], "sample_from_anchor": False},
          "anchored": {"aux_hidden_state_layer_ids": [1], "sample_from_anchor": True}}
BLOCK_CONFIG = LAYER | {"model_type": "qwen3", "num_hidden_layers": BLOCK_LAYERS, "sliding_window": None,
                        "use_sliding_window": False, "layer_types": ["full_attention"] * BLOCK_LAYERS}


RANK = 16
CHAINS = {"chained": {"markov_head_type": "vanilla", "aux_hidden_state_layer_ids": [1], "sample_from_anchor": True},
          "gated": {"markov_head_type": "gated", "aux_hidden_state_layer_ids": [0, 1], "sample_from_anchor": True,
                    "confidence_head_with_markov": False},
          "joint": {"markov_head_type": "rnn", "aux_hidden_state_layer_ids": [1], "sample_from_anchor": False}}


def chain_tensors(variant):
    """What DSpark has beyond DFlash."""
    rng = random.Random("dspark " + variant)
    by_token = CHAINS[variant].get("confidence_head_with_markov", True)
    shapes = {"markov_head.markov_w1.weight": [VOCAB, RANK],
              "markov_head.markov_w2.weight": [DRAFT if variant == "gated" else VOCAB, RANK],
              "confidence_head.proj.weight": [1, D + (RANK if by_token else 0)], "confidence_head.proj.bias": [1]}
    kind = CHAINS[variant]["markov_head_type"]
    if kind == "gated":
        shapes |= {"markov_head.gate_proj.weight": [RANK, D + RANK], "markov_head.gate_proj.bias": [RANK]}
    if kind == "rnn":
        shapes |= {"markov_head.joint_proj.weight": [3 * RANK, D + 2 * RANK], "markov_head.joint_proj.bias": [3 * RANK]}
    return {name: ("F32", shape, drawn(rng, shape)) for name, shape in shapes.items()}


def block_tensors(variant):
    rng = random.Random("dflash " + variant)
    wide = D * len((BLOCKS | CHAINS)[variant]["aux_hidden_state_layer_ids"])
    shapes = {"fc.weight": [D, wide], "hidden_norm.weight": [D], "norm.weight": [D]}
    for i in range(BLOCK_LAYERS):
        at = f"layers.{i}."
        shapes |= {at + "input_layernorm.weight": [D], at + "post_attention_layernorm.weight": [D],
                   at + "self_attn.q_proj.weight": [HEADS * E, D], at + "self_attn.k_proj.weight": [KV * E, D],
                   at + "self_attn.v_proj.weight": [KV * E, D], at + "self_attn.o_proj.weight": [D, HEADS * E],
                   at + "self_attn.q_norm.weight": [E], at + "self_attn.k_norm.weight": [E],
                   at + "mlp.gate_proj.weight": [FF, D], at + "mlp.up_proj.weight": [FF, D],
                   at + "mlp.down_proj.weight": [D, FF]}
    return {name: ("F32", shape, drawn(rng, shape)) for name, shape in shapes.items()}


def blocks(tales, out, variant):
    """As speculators writes them; "blocks" and "gated" with a vocabulary of their own, the others with the
    target's head."""
    chains = variant in CHAINS
    config = {"architectures": ["DSparkSpeculator" if chains else "DFlashSpeculator"],
              "speculators_model_type": "dspark" if chains else "dflash", "draft_vocab_size": VOCAB,
              "block_size": BLOCK, "mask_token_id": MASK, "target_hidden_size": None, "sliding_window_non_causal": False,
              "transformer_layer_config": BLOCK_CONFIG, "speculators_version": "0.9.0", **(BLOCKS | CHAINS)[variant]}
    tensors = block_tensors(variant)
    if chains:
        config |= {"markov_rank": RANK, "enable_confidence_head": True, "confidence_head_with_markov": True} | CHAINS[variant]
        tensors |= chain_tensors(variant)
    if variant in ("blocks", "gated"):
        ids = tokens(variant)
        rng = random.Random("head " + variant)
        config["draft_vocab_size"] = DRAFT
        tensors |= {"lm_head.weight": ("F32", [DRAFT, D], drawn(rng, [DRAFT, D])),
                    "d2t": integers([t - i for i, t in enumerate(ids)]),
                    "t2d": ("BOOL", [VOCAB], bytes(t in ids for t in range(VOCAB)))}
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "model.safetensors", tensors)


def z_lab(out):
    """"anchored" without its anchor: embedding and head are the target's, layers by what they give."""
    config = BLOCK_CONFIG | {"architectures": ["DFlashDraftModel"], "block_size": BLOCK, "num_target_layers": 2,
                             "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0]},
                             "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}, "rope_theta": 10000.0}
    del config["rope_parameters"]
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "model.safetensors", block_tensors("anchored"))


def deepspec(out):
    """"chained" as DeepSpec spells it: numbers outside, layers by what they give."""
    config = BLOCK_CONFIG | {"architectures": ["Qwen3DSparkModel"], "block_size": BLOCK, "mask_token_id": MASK,
                             "target_layer_ids": [0], "markov_rank": RANK, "markov_head_type": "vanilla",
                             "enable_confidence_head": True, "confidence_head_with_markov": True}
    out.mkdir()
    (out / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "model.safetensors", block_tensors("chained") | chain_tensors("chained"))


def angles(vocab, d):
    """Token t as d / 2 points of circles, t of `vocab` steps round the one that goes round f times."""
    return lambda t: [part(2 * math.pi * f * t / vocab) for f in range(1, d // 2 + 1) for part in (math.cos, math.sin)]


def ring(golden, out):
    """ring: a model whose text counts: after token t comes t + 1. ring-block: a drafter that knows it by the target's
    state two places before each row of a block (or by the block's first token): queries are keys rotated back by
    two places, values are a token's points rotated on by one. So its first two drafts are right, if states and
    positions are. ring-chain: the same with a chain that says t + 1 after t, so that all of its drafts are."""
    facts = json.loads((golden / "config.json").read_text())
    tensors = read_safetensors(golden / "model.safetensors")
    d, ff, vocab, heads = (facts[k] for k in ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads"))
    e, at = d // heads, angles(vocab, d)

    def own(shape, raw=None):
        return ("F32", shape, raw if raw is not None else bytes(4 * shape[0] * (shape[1] if len(shape) > 1 else 1)))

    for name, (kind, shape, raw) in tensors.items():
        if "o_proj" in name or "down_proj" in name:
            tensors[name] = (kind, shape, bytes(len(raw)))
    tensors["model.norm.weight"] = own([d], floats([1.0] * d))
    tensors["model.embed_tokens.weight"] = own([vocab, d], b"".join(floats(at(t)) for t in range(vocab)))
    tensors["lm_head.weight"] = own([vocab, d], b"".join(floats(at(t - 1)) for t in range(vocab)))
    (out / "ring").mkdir()
    (out / "ring" / "config.json").write_text(json.dumps(facts))
    write_safetensors(out / "ring" / "model.safetensors", tensors)

    base, even = facts.get("rope_theta", 10000.0), floats([1.0] * d)
    phases = [-2 * base ** (-2 * i / e) for i in range(e // 2)]
    query = [math.cos(p) for p in phases] + [math.sin(p) for p in phases]
    key = [1.0] * (e // 2) + [0.0] * (e // 2)
    onward = [0.0] * (d * d)
    for f in range(d // 2):
        c, s = math.cos(2 * math.pi * (f + 1) / vocab), math.sin(2 * math.pi * (f + 1) / vocab)
        for i, j, v in ((0, 0, c), (0, 1, -s), (1, 0, s), (1, 1, c)):
            onward[(2 * f + i) * d + 2 * f + j] = v
    layer = {"self_attn.q_proj.weight": own([d, d]), "self_attn.k_proj.weight": own([d, d]),
             "self_attn.q_proj.bias": own([d], floats(query * heads)), "self_attn.k_proj.bias": own([d], floats(key * heads)),
             "self_attn.v_proj.weight": own([d, d], floats(onward)), "self_attn.v_proj.bias": own([d]),
             "self_attn.o_proj.weight": own([d, d], ones(d, d)), "self_attn.q_norm.weight": own([e], floats([4.0] * e)),
             "self_attn.k_norm.weight": own([e], floats([4.0] * e)), "input_layernorm.weight": own([d], even),
             "post_attention_layernorm.weight": own([d], even), "mlp.gate_proj.weight": own([ff, d]),
             "mlp.up_proj.weight": own([ff, d]), "mlp.down_proj.weight": own([d, ff])}
    rows = [at(t) if t != MASK else [0.0] * d for t in range(vocab)]
    head = {"layers.0." + n: t for n, t in layer.items()}
    head |= {"fc.weight": own([d, d], ones(d, d)), "hidden_norm.weight": own([d], even), "norm.weight": own([d], even),
             "embed_tokens.weight": own([vocab, d], b"".join(floats(r) for r in rows))}
    config = facts | {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 1, "head_dim": e,
                      "num_key_value_heads": heads, "attention_bias": True, "block_size": BLOCK, "rope_theta": base,
                      "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [-1]}}
    (out / "ring-block").mkdir()
    (out / "ring-block" / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "ring-block" / "model.safetensors", head)
    config |= {"architectures": ["Qwen3DSparkModel"], "markov_rank": d, "enable_confidence_head": False}
    head |= {"markov_head.markov_w1.weight": own([vocab, d], b"".join(floats(at(t)) for t in range(vocab))),
             "markov_head.markov_w2.weight": own([vocab, d], b"".join(floats([8 * x for x in at(t - 1)]) for t in range(vocab)))}
    (out / "ring-chain").mkdir()
    (out / "ring-chain" / "config.json").write_text(json.dumps(config))
    write_safetensors(out / "ring-chain" / "model.safetensors", head)


def main():
    shared, out = map(Path, sys.argv[1:3])
    tales = shared / "models" / "tales-2m"
    foreseeing(shared / "goldens" / "llama-mha", out)
    for variant in VARIANTS:
        speculators(tales, out / variant, variant)
    sglang(out / "sglang")
    gguf(out / "head.gguf")
    for variant in [*BLOCKS, *CHAINS]:
        blocks(tales, out / variant, variant)
    z_lab(out / "z-lab")
    deepspec(out / "deepspec")
    block_gguf(out / "block.gguf", block_tensors("anchored"))
    block_gguf(out / "chain.gguf", block_tensors("chained") | chain_tensors("chained"))
    ring(shared / "goldens" / "llama-mha", out)


if __name__ == "__main__":
    main()
