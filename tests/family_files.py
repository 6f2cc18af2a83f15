#!/usr/bin/env python3
"""tests/family_files.py - tiny GGUF files of families with weights that are made, not drawn: keys and tensors
as llama.cpp b11434 reads them. tests/test_family_files.py holds the logits that llama.cpp gave for them (tests/data/README.md).

usage: family_files.py FOLDER [NAME ...]
"""
import pathlib
import struct
import sys

import numpy as np

from tensor_files import gguf_text, write_gguf

# Vocabulary, model width, feed-forward, layers, heads, KV heads, width of a head, experts, used, their width.
V, D, F, L, H, KV, E, X, U, XF = 288, 64, 96, 3, 4, 2, 16, 8, 2, 32
SHARED = "_shexp"


# ---- tensors of a layer: name -> shape, rows first ----------------------------------------------------

def norm(i, *names, n=D, bias=False):
    parts = ("weight", "bias") if bias else ("weight",)
    return {f"blk.{i}.{name}.{part}": (n,) for name in names for part in parts}


def halves(i, bias=False):
    return norm(i, "attn_norm", "ffn_norm", bias=bias)


def qk_norms(i):
    return norm(i, "attn_q_norm", "attn_k_norm", n=E)


def attention(i, h=H, kv=KV, e=E, v=E, bias=False, fused=False, out_bias=False):
    rows = {"qkv": h * e + kv * (e + v)} if fused else {"q": h * e, "k": kv * e, "v": kv * v}
    out = {}
    for name, n in rows.items():
        out[f"blk.{i}.attn_{name}.weight"] = (n, D)
        if bias:
            out[f"blk.{i}.attn_{name}.bias"] = (n,)
    out[f"blk.{i}.attn_output.weight"] = (D, h * v)
    if out_bias:
        out[f"blk.{i}.attn_output.bias"] = (D,)
    return out


def latent(i, q_rank=24, rank=32, rot=16, nope=16, v=16):
    """Attention over a latent row (DeepSeek V2's names)."""
    out = {f"blk.{i}.attn_q.weight": (H * (rot + nope), D)}
    if q_rank:
        out = {f"blk.{i}.attn_q_a.weight": (q_rank, D), f"blk.{i}.attn_q_a_norm.weight": (q_rank,),
               f"blk.{i}.attn_q_b.weight": (H * (rot + nope), q_rank)}
    return {**out, f"blk.{i}.attn_kv_a_mqa.weight": (rank + rot, D), f"blk.{i}.attn_kv_a_norm.weight": (rank,),
            f"blk.{i}.attn_kv_b.weight": (H * (nope + v), rank), f"blk.{i}.attn_output.weight": (D, H * v)}


def absorbed(i):
    """The same with kv_b in the two halves that newer files have."""
    out = latent(i)
    out.pop(f"blk.{i}.attn_kv_b.weight")
    return {**out, f"blk.{i}.attn_k_b.weight": (H, 32, 16), f"blk.{i}.attn_v_b.weight": (H, 16, 32)}


def forward(i, f=F, gate=True, bias=False, suffix=""):
    out = {}
    for name, shape in (("up", (f, D)), ("down", (D, f)), *((("gate", (f, D)),) if gate else ())):
        out[f"blk.{i}.ffn_{name}{suffix}.weight"] = shape
        if bias:
            out[f"blk.{i}.ffn_{name}{suffix}.bias"] = shape[:1]
    return out


def experts(i, f=XF, gate=True, bias=False):
    out = {f"blk.{i}.ffn_gate_inp.weight": (X, D), f"blk.{i}.ffn_up_exps.weight": (X, f, D),
           f"blk.{i}.ffn_down_exps.weight": (X, D, f)}
    if gate:
        out[f"blk.{i}.ffn_gate_exps.weight"] = (X, f, D)
    if bias:
        out[f"blk.{i}.exp_probs_b.bias"] = (X,)
    return out


def whole(layer, out=True, bias=False, last=True):
    """A decoder's tensors; out: with a head of its own, last: with a norm before it."""
    tensors = {"token_embd.weight": (V, D)}
    if last:
        tensors |= {"output_norm.weight": (D,)} | ({"output_norm.bias": (D,)} if bias else {})
    if out:
        tensors["output.weight"] = (V, D)
    for i in range(L):
        tensors |= layer(i)
    return tensors


def encoder(layer):
    tensors = {"token_embd.weight": (V, D), "token_types.weight": (1, D),
               "token_embd_norm.weight": (D,), "token_embd_norm.bias": (D,)}
    for i in range(L):
        tensors |= norm(i, "attn_output_norm", "layer_output_norm", bias=True) | layer(i)
    return tensors


def sparse(i):
    """Latent attention with an indexer."""
    rest = {k: v for k, v in mixture(i, bias=True).items() if "attn" not in k}
    return rest | norm(i, "attn_norm") | absorbed(i) | {
        f"blk.{i}.indexer.k_norm.weight": (64,), f"blk.{i}.indexer.k_norm.bias": (64,),
        f"blk.{i}.indexer.proj.weight": (2, D), f"blk.{i}.indexer.attn_k.weight": (64, D),
        f"blk.{i}.indexer.attn_q_b.weight": (2 * 64, 24)}


def decilm(i):
    """A whole layer, one whose attention is a matrix, one without attention."""
    if i == 2:
        return norm(i, "ffn_norm") | forward(i)
    mixed = attention(i) if i == 0 else {f"blk.{i}.attn_output.weight": (D, D)}
    return halves(i) | mixed | forward(i, f=64 if i else F)


# ---- families: keys other than the common ones, tensors --------------------------------------------------

MIX = {"expert_count": X, "expert_used_count": U}
MOE = {**MIX, "expert_feed_forward_length": XF}
WIDE = {"attention.key_length": E, "attention.value_length": E}
TURNS = {"rope.dimension_count": E}


def near(*layers):
    return {"attention.sliding_window": 5, "attention.sliding_window_pattern": [bool(x) for x in layers],
            "rope.freq_base_swa": 5000.0}


def plain(i):
    return halves(i) | attention(i) | forward(i)


def mixture(i, dense=1, f=XF, bias=False, **more):
    """Dense layers first, then experts and a shared one."""
    rest = forward(i) if i < dense else experts(i, bias=bias) | forward(i, f=f, suffix=SHARED)
    return halves(i) | attention(i, **more) | rest


SPARSE = {"attention.head_count_kv": 1, "attention.q_lora_rank": 24, "attention.kv_lora_rank": 32,
          "attention.key_length": 48, "attention.value_length": 32, "attention.key_length_mla": 32,
          "attention.value_length_mla": 16, "rope.dimension_count": 16, "leading_dense_block_count": 1,
          "expert_shared_count": 1, "expert_weights_scale": 2.5, "expert_weights_norm": True,
          "expert_gating_func": 2, "attention.indexer.head_count": 2, "attention.indexer.key_length": 64,
          "attention.indexer.top_k": 64}
OPEN_ELM = ((4, 2, 96), (8, 4, 64), (4, 2, 128))
FAMILIES = {
    "arctic": ({**MIX, **TURNS}, whole(
        lambda i: plain(i) | forward(i, f=D) | norm(i, "ffn_norm_exps") | experts(i, f=F))),
    "bailingmoe": ({**MOE, **TURNS, "leading_dense_block_count": 0, "expert_shared_count": 2,
                    "expert_weights_scale": 1.0, "expert_weights_norm": True},
                   whole(lambda i: mixture(i, dense=0, f=2 * XF))),
    "bailingmoe2": ({**MOE, "rope.dimension_count": E // 2, "leading_dense_block_count": 1,
                     "expert_shared_feed_forward_length": XF, "expert_shared_count": 1,
                     "expert_weights_scale": 2.5, "expert_weights_norm": True, "expert_gating_func": 2,
                     "expert_group_count": 2, "expert_group_used_count": 1},
                    whole(lambda i: qk_norms(i) | mixture(i, bias=True, fused=True))),
    "bitnet": ({}, whole(lambda i: plain(i) | norm(i, "attn_sub_norm") | norm(i, "ffn_sub_norm", n=F),
                         out=False)),
    "codeshell": ({}, whole(lambda i: halves(i, True) | attention(i, bias=True, out_bias=True) |
                            forward(i, gate=False, bias=True), bias=True)),
    "cohere2moe": ({**MOE, **WIDE, **TURNS, **near(0, 1, 0), "leading_dense_block_count": 1,
                    "expert_shared_count": 1, "expert_shared_feed_forward_length": XF,
                    "expert_weights_norm": True, "expert_gating_func": 2, "logit_scale": 0.5},
                   whole(lambda i: {k: v for k, v in mixture(i).items() if "ffn_norm" not in k}, out=False)),
    "cogvlm": ({"attention.head_count_kv": H}, whole(
        lambda i: halves(i) | attention(i, kv=H, fused=True) | forward(i) |
        {f"blk.{i}.vis_attn_qkv.weight": (3 * D, D), f"blk.{i}.vis_attn_output.weight": (D, D),
         f"blk.{i}.vis_gate.weight": (F, D), f"blk.{i}.vis_up.weight": (F, D),
         f"blk.{i}.vis_down.weight": (D, F)})),
    "dbrx": ({**MIX, "feed_forward_length": XF, "attention.clamp_kqv": 0.8},
             whole(lambda i: norm(i, "attn_norm", "attn_output_norm") | attention(i, fused=True) |
                   experts(i))),
    "deci": ({**WIDE, **TURNS, "attention.head_count": [4, 4, 0], "attention.head_count_kv": [2, 0, 0],
              "feed_forward_length": [F, 64, F]}, whole(decilm)),
    "deepseek": ({**MOE, "leading_dense_block_count": 1, "expert_shared_count": 2,
                  "expert_weights_scale": 1.0}, whole(lambda i: mixture(i, f=2 * XF))),
    "deepseek2-ocr": ({**MOE, "attention.head_count_kv": H, "leading_dense_block_count": 1,
                       "expert_shared_count": 2}, whole(lambda i: mixture(i, f=2 * XF, kv=H))),
    "exaone": ({}, whole(plain)),
    "gemma": (WIDE, whole(plain, out=False)),
    "granite_swa": ({**near(0, 1, 1), "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0,
                     "attention.scale": 0.2, "attention.rope_pattern": [True, True, False]},
                    whole(lambda i: plain(i) | norm(i, "attn_sinks", n=H))),
    "grok": ({**MIX, "feed_forward_length": XF, "attn_logit_softcapping": 30.0, "embedding_scale": 5.0,
              "logit_scale": 0.57, "attention.output_scale": 0.25},
             whole(lambda i: halves(i) | norm(i, "attn_output_norm", "layer_output_norm") | attention(i) |
                   experts(i))),
    "grok+dense": ({**MOE, "attn_logit_softcapping": 30.0, "final_logit_softcapping": 50.0,
                    "embedding_scale": 5.0, "logit_scale": 0.57, "attention.output_scale": 0.25},
                   whole(lambda i: plain(i) | norm(i, "attn_output_norm", "layer_output_norm") |
                         experts(i))),
    "hunyuan_vl": (WIDE, whole(lambda i: plain(i) | qk_norms(i))),
    "jais": ({"attention.head_count_kv": H, "attention.max_alibi_bias": 8.0},
             whole(lambda i: halves(i, True) | attention(i, kv=H, bias=True, fused=True, out_bias=True) |
                   forward(i, bias=True), bias=True)),
    "jais2": ({}, whole(lambda i: halves(i, True) | attention(i, bias=True, out_bias=True) |
                        forward(i, gate=False, bias=True), bias=True)),
    "laguna": ({**MOE, **WIDE, **near(0, 1, 1), "attention.head_count": [4, 8, 4],
                "rope.dimension_count": E // 2, "rope.dimension_count_swa": E,
                "leading_dense_block_count": 1, "expert_shared_feed_forward_length": XF,
                "expert_weights_scale": 1.5, "expert_weights_norm": True, "expert_gating_func": 2},
               whole(lambda i: qk_norms(i) | mixture(i, bias=True, h=(4, 8, 4)[i]) |
                     {f"blk.{i}.attn_gate.weight": ((4, 8, 4)[i], D)})),
    "maple": ({**MOE, **WIDE, **TURNS, **near(1, 0, 1), "swiglu_clamp_exp": 0.6},
              whole(lambda i: halves(i) | qk_norms(i) | attention(i) | experts(i))),
    "maincoder": (TURNS, whole(lambda i: plain(i) | qk_norms(i))),
    "mellum": ({**MOE, **WIDE, **near(1, 0, 1), "rope.freq_base_swa": 10000.0},
               whole(lambda i: halves(i) | qk_norms(i) | attention(i) | experts(i))),
    "mimo2": ({**MOE, **near(0, 1, 1), "attention.head_count_kv": [2, 4, 4], "attention.key_length": 24,
               "attention.value_length": 16, "rope.dimension_count": 8, "leading_dense_block_count": 1,
               "attention.value_scale": 0.7},
              whole(lambda i: halves(i) | attention(i, kv=(2, 4, 4)[i], e=24, v=16) |
                    (experts(i, bias=True) | norm(i, "attn_sinks", n=H) if i else forward(i)))),
    "glm-dsa": ({**SPARSE, **MOE}, whole(sparse)),
    "deepseek32": ({**SPARSE, **MOE}, whole(sparse)),
    "minicpm": ({"embedding_scale": 12.0, "residual_scale": 0.4, "logit_scale": 2.0}, whole(plain, out=False)),
    "minicpm3": ({"attention.head_count_kv": H, "attention.q_lora_rank": 24, "attention.kv_lora_rank": 32,
                  "attention.key_length": 32, "rope.dimension_count": 16},
                 whole(lambda i: halves(i) | latent(i) | forward(i), out=False)),
    "mistral4": ({**MOE, "attention.head_count_kv": 1, "attention.q_lora_rank": 24,
                  "attention.kv_lora_rank": 32, "attention.key_length": 48, "attention.value_length": 32,
                  "attention.key_length_mla": 32, "attention.value_length_mla": 16,
                  "rope.dimension_count": 16, "leading_dense_block_count": 1, "expert_shared_count": 1,
                  "expert_weights_scale": 1.0, "expert_weights_norm": True, "expert_gating_func": 1,
                  "attention.temperature_scale": 0.1, "attention.temperature_length": 4},
                 whole(lambda i: {k: v for k, v in mixture(i).items() if "attn" not in k} |
                       norm(i, "attn_norm") | absorbed(i))),
    "nanbeige": ({"num_loops": 2}, whole(plain)),
    "nanbeige+bare": ({"num_loops": 3, "skip_loop_final_norm": True}, whole(plain)),
    "olmo": ({}, whole(lambda i: attention(i) | forward(i), last=False)),
    "openelm": ({**WIDE, **TURNS, "attention.head_count": [x[0] for x in OPEN_ELM],
                 "attention.head_count_kv": [x[1] for x in OPEN_ELM],
                 "feed_forward_length": [x[2] for x in OPEN_ELM]},
                whole(lambda i: halves(i) | qk_norms(i) | forward(i, f=OPEN_ELM[i][2]) |
                      attention(i, h=OPEN_ELM[i][0], kv=OPEN_ELM[i][1], fused=True), out=False)),
    "paddleocr": ({**WIDE, "rope.dimension_sections": [4, 2, 2, 0]}, whole(plain)),
    "pangu-embedded": ({**WIDE, **TURNS}, whole(
        lambda i: halves(i) | attention(i, bias=True, out_bias=True) | forward(i))),
    "plamo": ({}, whole(lambda i: norm(i, "attn_norm") | attention(i) | forward(i))),
    "plamo3": ({**WIDE, **TURNS, **near(1, 0, 1)},
               whole(lambda i: halves(i) | qk_norms(i) | attention(i, fused=True) |
                     {f"blk.{i}.post_attention_norm": (D,), f"blk.{i}.post_ffw_norm": (D,),
                      f"blk.{i}.ffn_up.weight": (2 * F, D), f"blk.{i}.ffn_down.weight": (D, F)})),
    "plm": ({"attention.head_count_kv": H, "attention.kv_lora_rank": 32, "attention.key_length": 32,
             "attention.value_length": 16, "rope.dimension_count": 16},
            whole(lambda i: halves(i) | latent(i, q_rank=0) | forward(i, gate=False), out=False)),
    "qwen": ({"attention.head_count_kv": H, "feed_forward_length": 2 * F},
             whole(lambda i: halves(i) | attention(i, kv=H, bias=True, fused=True) | forward(i))),
    "qwen3vlmoe": ({**MOE, **WIDE, "rope.dimension_sections": [3, 3, 2, 0], "n_deepstack_layers": 0},
                   whole(lambda i: halves(i) | qk_norms(i) | attention(i) | experts(i))),
    "refact": ({}, whole(plain)),
    "smallthinker": ({**MOE, **WIDE, "feed_forward_length": XF, "expert_gating_func": 2,
                      "attention.sliding_window": 4096},
                     whole(lambda i: halves(i) | attention(i) | experts(i))),
    "spark2_5": ({**WIDE, **near(1, 0, 1), "rope.dimension_count": E // 2, "rope.dimension_count_swa": E},
                 whole(lambda i: halves(i) | attention(i, fused=True) | forward(i) |
                       {f"blk.{i}.attn_gate.weight": (H, D)})),
    "step35": ({**MOE, **WIDE, **TURNS, **near(0, 1, 1), "attention.head_count": [4, 8, 8],
                "attention.head_count_kv": [2, 2, 2], "leading_dense_block_count": 1,
                "expert_shared_feed_forward_length": XF, "expert_weights_scale": 1.5,
                "expert_weights_norm": True, "swiglu_clamp_exp": [0.0, 0.0, 0.25],
                "swiglu_clamp_shexp": [0.0, 0.3, 0.0]},
               whole(lambda i: qk_norms(i) | mixture(i, bias=True, h=(4, 8, 8)[i]) |
                     {f"blk.{i}.attn_gate.weight": ((4, 8, 8)[i], D)})),
    "starcoder": ({"attention.head_count_kv": 1},
                  {**whole(lambda i: halves(i, True) | forward(i, gate=False, bias=True) |
                           attention(i, kv=1, bias=True, fused=True, out_bias=True), bias=True, out=False),
                   "position_embd.weight": (128, D)}),
    "xverse": ({}, whole(plain)),
}
LAYERNORM = {"codeshell", "cohere2moe", "dbrx", "jais", "jais2", "olmo", "starcoder", "jina-bert-v3", "nomic-bert-moe"}
BOTH_WAYS = {"attention.causal": False, "pooling_type": 1}
ENCODERS = {
    "eurobert": (BOTH_WAYS, whole(plain, out=False)),
    "jina-bert-v3": ({**BOTH_WAYS, "attention.head_count_kv": H}, encoder(
        lambda i: attention(i, kv=H, bias=True, out_bias=True) | forward(i, gate=False, bias=True))),
    "llama-embed": (BOTH_WAYS, whole(plain, out=False)),
    "neo-bert": ({**BOTH_WAYS, "attention.head_count_kv": H, "pooling_type": 2}, {
        **whole(lambda i: halves(i) | attention(i, kv=H, fused=True) |
                {f"blk.{i}.ffn_up.weight": (2 * F, D), f"blk.{i}.ffn_down.weight": (D, F)},
                out=False, last=False), "enc.output_norm.weight": (D,)}),
    "nomic-bert-moe": ({**BOTH_WAYS, **MIX, "attention.head_count_kv": H,
                        "moe_every_n_layers": 2}, encoder(
        lambda i: attention(i, kv=H, bias=True, fused=True, out_bias=True) |
        (experts(i, f=F, gate=False) if i % 2 else forward(i, gate=False, bias=True)))),
}


# ---- bytes ---------------------------------------------------------------------------------------------

def value(v):
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + gguf_text(v)
    if isinstance(v, np.ndarray):
        return struct.pack("<IIQ", 9, 10, len(v)) + v.astype("<u8").tobytes()
    kind = value(v[0])[:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(v)) + b"".join(value(x)[4:] for x in v)


def numbers(v):
    """An array of signed numbers."""
    return struct.pack(f"<IIQ{len(v)}i", 9, 5, len(v), *v)


def weights(name, shape, seed):
    """Of a tensor: spread like numbers drawn evenly, made from their place by integers alone."""
    n = int(np.prod(shape))
    x = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed * 0x632BE59BD9B4E019 % 2**64)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    even = ((x % np.uint64(4001)).astype(np.float64) - 2000) / 2000 * 3 ** 0.5  # of variance 1
    if "norm" in name and not name.endswith("bias"):
        even = 1 + 0.2 * even
    elif len(shape) == 1:
        even *= 0.1
    else:
        even *= 0.7 if "embd" in name else 1.2 / shape[-1] ** 0.5
    return even.astype("<f4").reshape(shape)


def write_model(path, arch, keys, tensors, vocab):
    """A file with a vocabulary of bytes and as many tokens more; fewer than 259: of tokens alone."""
    size = 256 if vocab >= 259 else 0
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(size)]
    tokens += [f"t{i}" for i in range(vocab - len(tokens))]
    kinds = [2, 3, 3] + [6] * size + [1] * (vocab - 3 - size)
    pairs = {"general.architecture": value(arch), **{f"{arch}.{k}": value(v) for k, v in keys.items()},
             "tokenizer.ggml.model": value("llama" if size else "none"), "tokenizer.ggml.tokens": value(tokens),
             "tokenizer.ggml.scores": value([0.0] * vocab), "tokenizer.ggml.bos_token_id": value(1),
             "tokenizer.ggml.token_type": numbers(kinds), "tokenizer.ggml.eos_token_id": value(2),
             "tokenizer.ggml.token_type_count": value(1)}
    write_gguf(path, pairs, tensors)


def write_family(path, name):
    keys, tensors = {**FAMILIES, **ENCODERS}[name]
    eps = "attention.layer_norm_epsilon" if name in LAYERNORM else "attention.layer_norm_rms_epsilon"
    keys = {"block_count": L, "context_length": 128, "embedding_length": D, "feed_forward_length": F,
            "attention.head_count": H, "attention.head_count_kv": KV, "vocab_size": V,
            "rope.freq_base": 10000.0, eps: 1e-5, **keys}
    seeds = {n: i + 1 for i, n in enumerate(sorted(tensors))}
    write_model(path, name.split("+")[0], keys, {
        n: (list(shape), 0, weights(n, shape, seeds[n]).tobytes()) for n, shape in tensors.items()}, V)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or {**FAMILIES, **ENCODERS}:
        write_family(folder / f"{name}.gguf", name)


if __name__ == "__main__":
    main()
