#!/usr/bin/env python3
"""bench/make_shapes.py - GGUF files of random weights in the shapes of hybrid, latent-attention and
per-layer-input models, and of drafters by blocks, for speed and memory, not for text.

    bench/make_shapes.py SHAPE FORMAT OUT.gguf [--layers N] [--vocab N] [--seed N]

SHAPE: qwen3.5-35b-a3b, qwen3.5-27b, deepseek-v2-lite, gemma4-e2b; dflash-8b-16, dflash-8b-8 and
eagle3-8b, for a model 4,096 wide of 128,256 tokens and 31 layers or more, whose embedding, and of
the first two its head, they take.
FORMAT: f16, q8_0, q4_k; rows that are no multiple of 256 wide take q5_0 instead of q4_k.
Weights are about N(0, 0.02), norms 1; one draw of each shape serves all layers. Needs numpy.
"""
import argparse
import struct

import numpy as np

# number of the type in a file, weights of a block, its bytes
FORMATS = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q5_0": (6, 32, 22), "q8_0": (8, 32, 34),
           "q4_k": (12, 256, 144), "i64": (27, 1, 8)}
FILE_TYPES = {"f16": 1, "q8_0": 7, "q4_k": 15}

QWEN = dict(kv_heads=2, head=256, rotary=64, keys=16, wide=128, taps=4, every=4, vocab=248320,
            context=262144, base=1e7)
SHAPES = {
    "qwen3.5-35b-a3b": dict(QWEN, arch="qwen35moe", layers=40, width=2048, heads=16, values=32,
                            experts=256, used=8, ff=512),
    "qwen3.5-27b": dict(QWEN, arch="qwen35", layers=64, width=5120, heads=24, kv_heads=4,
                        values=48, ff=17408),
    "deepseek-v2-lite": dict(arch="deepseek2", layers=27, width=2048, heads=16, rank=512, nope=128,
                             rotary=64, value=128, dense=1, dense_ff=10944, experts=64, used=6,
                             shared=2, ff=1408, vocab=102400, context=163840, base=1e4),
    "gemma4-e2b": dict(arch="gemma4", layers=35, width=1536, heads=8, kv_heads=1, head=512,
                       head_local=256, shared=20, every=5, window=512, inputs=256, ff=6144,
                       vocab=262144, context=131072, base=1e6),
} | {f"dflash-8b-{n}": dict(arch="dflash", layers=5, width=4096, heads=32, kv_heads=8, head=128,
                            ff=12288, block=n, taps=(2, 9, 16, 23, 30), vocab=128256, context=8192,
                            base=1e6) for n in (8, 16)} | {
    "eagle3-8b": dict(arch="eagle3", layers=1, width=4096, heads=32, kv_heads=8, head=128, ff=14336,
                      taps=(2, 16, 29), rows=32000, vocab=128256, context=8192, base=5e5)}


# ---- values of GGUF's header ------------------------------------------------------------------

def string(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def u32(v):
    return struct.pack("<II", 4, v)


def f32(v):
    return struct.pack("<If", 6, v)


def text(v):
    return struct.pack("<I", 8) + string(v)


def array(kind, items):
    return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)


def flags(values):
    return array(7, [struct.pack("<?", v) for v in values])


def numbers(values):
    return array(5, [struct.pack("<i", v) for v in values])


def vocabulary(vocab):
    """A byte-complete vocabulary: three marks, the bytes, filler words."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"\u2581w{i}" for i in range(vocab - len(tokens))]
    kinds = [2 if i == 0 else 3 if i < 3 else 6 if i < 259 else 1 for i in range(vocab)]
    scores = [0.0 if i < 259 else -float(i) for i in range(vocab)]
    return {"model": text("llama"), "tokens": array(8, [string(t) for t in tokens]),
            "scores": array(6, [struct.pack("<f", s) for s in scores]),
            "token_type": numbers(kinds), "bos_token_id": u32(1), "eos_token_id": u32(2),
            "unknown_token_id": u32(0)}


# ---- families: (keys, tensors); a tensor is (name, shape, "big" or a format, how it is filled) ---

def common(s):
    return {"context_length": u32(s["context"]), "embedding_length": u32(s["width"]),
            "block_count": u32(s["layers"]), "attention.head_count": u32(s["heads"]),
            "attention.layer_norm_rms_epsilon": f32(1e-6), "rope.freq_base": f32(s["base"])}


def qwen(s):
    d, routed = s["width"], "experts" in s
    heads, kv, keys = s["heads"] * s["head"], s["kv_heads"] * s["head"], s["keys"] * s["wide"]
    inner = s["values"] * s["wide"]
    full = [(l + 1) % s["every"] == 0 for l in range(s["layers"])]
    third = (s["rotary"] // 2 + 2) // 3  # of time, height and width; text has one position for all
    sections = [third, third, s["rotary"] // 2 - 2 * third, 0]
    keys_of = {"attention.head_count_kv": u32(s["kv_heads"]), "rope.dimension_count":
               u32(s["rotary"]), "rope.dimension_sections": numbers(sections),
               "attention.key_length": u32(s["head"]),
               "attention.value_length": u32(s["head"]), "feed_forward_length": u32(s["ff"]),
               "ssm.conv_kernel": u32(s["taps"]), "ssm.state_size": u32(s["wide"]),
               "ssm.group_count": u32(s["keys"]), "ssm.time_step_rank": u32(s["values"]),
               "ssm.inner_size": u32(inner), "full_attention_interval": u32(s["every"]),
               "attention.recurrent_layers": flags([not f for f in full])}
    if routed:
        keys_of |= {"expert_count": u32(s["experts"]), "expert_used_count": u32(s["used"]),
                    "expert_feed_forward_length": u32(s["ff"]),
                    "expert_shared_feed_forward_length": u32(s["ff"])}
    out = []
    for l in range(s["layers"]):
        p = f"blk.{l}."
        out += [(p + "attn_norm.weight", (d,), "f32", 1), (p + "post_attention_norm.weight", (d,),
                                                           "f32", 1)]
        if full[l]:
            out += [(p + "attn_q.weight", (2 * heads, d), "big", 0), (p + "attn_k.weight", (kv, d),
                                                                      "big", 0),
                    (p + "attn_v.weight", (kv, d), "big", 0), (p + "attn_output.weight", (d, heads),
                                                               "big", 0),
                    (p + "attn_q_norm.weight", (s["head"],), "f32", 1),
                    (p + "attn_k_norm.weight", (s["head"],), "f32", 1)]
        else:
            out += [(p + "attn_qkv.weight", (2 * keys + inner, d), "big", 0),
                    (p + "attn_gate.weight", (inner, d), "big", 0),
                    (p + "ssm_alpha.weight", (s["values"], d), "big", 0),
                    (p + "ssm_beta.weight", (s["values"], d), "big", 0),
                    (p + "ssm_a", (s["values"],), "f32", -1), (p + "ssm_dt.bias", (s["values"],),
                                                               "f32", 1),
                    (p + "ssm_conv1d.weight", (2 * keys + inner, s["taps"]), "f32", 0),
                    (p + "ssm_norm.weight", (s["wide"],), "f32", 1),
                    (p + "ssm_out.weight", (d, inner), "big", 0)]
        if routed:
            out += experts(p, s, d)
            out += [(p + "ffn_gate_inp_shexp.weight", (1, d), "f32", 0)]
            out += gated(p, "_shexp", d, s["ff"])
        else:
            out += gated(p, "", d, s["ff"])
    return keys_of, out


def gated(p, suffix, d, f):
    return [(f"{p}ffn_gate{suffix}.weight", (f, d), "big", 0),
            (f"{p}ffn_up{suffix}.weight", (f, d), "big", 0),
            (f"{p}ffn_down{suffix}.weight", (d, f), "big", 0)]


def experts(p, s, d):
    e, f = s["experts"], s["ff"]
    return [(p + "ffn_gate_inp.weight", (e, d), "f32", 0),
            (p + "ffn_gate_exps.weight", (e, f, d), "big", 0),
            (p + "ffn_up_exps.weight", (e, f, d), "big", 0),
            (p + "ffn_down_exps.weight", (e, d, f), "big", 0)]


def deepseek(s):
    d, h, rank = s["width"], s["heads"], s["rank"]
    qk = s["nope"] + s["rotary"]
    keys_of = {"attention.head_count_kv": u32(1), "rope.dimension_count": u32(s["rotary"]),
               "attention.key_length": u32(rank + s["rotary"]), "attention.value_length": u32(rank),
               "attention.key_length_mla": u32(qk), "attention.value_length_mla": u32(s["value"]),
               "attention.kv_lora_rank": u32(rank), "feed_forward_length": u32(s["dense_ff"]),
               "leading_dense_block_count": u32(s["dense"]), "expert_count": u32(s["experts"]),
               "expert_used_count": u32(s["used"]), "expert_shared_count": u32(s["shared"]),
               "expert_feed_forward_length": u32(s["ff"]), "expert_weights_scale": f32(1.0),
               "expert_gating_func": u32(1)}
    out = []
    for l in range(s["layers"]):
        p = f"blk.{l}."
        out += [(p + "attn_norm.weight", (d,), "f32", 1), (p + "ffn_norm.weight", (d,), "f32", 1),
                (p + "attn_q.weight", (h * qk, d), "big", 0),
                (p + "attn_kv_a_mqa.weight", (rank + s["rotary"], d), "big", 0),
                (p + "attn_kv_a_norm.weight", (rank,), "f32", 1),
                (p + "attn_k_b.weight", (h, rank, s["nope"]), "f16", 0),
                (p + "attn_v_b.weight", (h, s["value"], rank), "f16", 0),
                (p + "attn_output.weight", (d, h * s["value"]), "big", 0)]
        if l < s["dense"]:
            out += gated(p, "", d, s["dense_ff"])
        else:
            out += experts(p, s, d) + gated(p, "_shexp", d, s["shared"] * s["ff"])
    return keys_of, out


def gemma(s):
    d, layers = s["width"], s["layers"]
    local = [(l + 1) % s["every"] != 0 for l in range(layers)]
    own = layers - s["shared"]
    ffs = [s["ff"] * (1 if l < own else 2) for l in range(layers)]
    keys_of = {"attention.head_count_kv": u32(s["kv_heads"]), "feed_forward_length": numbers(ffs),
               "rope.freq_base_swa": f32(1e4), "attention.key_length": u32(s["head"]),
               "attention.value_length": u32(s["head"]),
               "attention.key_length_swa": u32(s["head_local"]),
               "attention.value_length_swa": u32(s["head_local"]),
               "rope.dimension_count": u32(s["head"]),
               "rope.dimension_count_swa": u32(s["head_local"]),
               "final_logit_softcapping": f32(30.0), "attention.sliding_window": u32(s["window"]),
               "attention.shared_kv_layers": u32(s["shared"]),
               "embedding_length_per_layer_input": u32(s["inputs"]),
               "attention.sliding_window_pattern": flags(local)}
    out = [("per_layer_token_embd.weight", (s["vocab"], layers * s["inputs"]), "big", 0),
           ("per_layer_model_proj.weight", (layers * s["inputs"], d), "big", 0),
           ("per_layer_proj_norm.weight", (s["inputs"],), "f32", 1),
           ("rope_freqs.weight", (s["head"] // 2,), "f32", 1)]
    for l in range(layers):
        p, head = f"blk.{l}.", s["head_local"] if local[l] else s["head"]
        out += [(p + n + ".weight", (d,), "f32", 1)
                for n in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm",
                          "post_norm")]
        out += [(p + "layer_output_scale.weight", (1,), "f32", 1),
                (p + "inp_gate.weight", (s["inputs"], d), "big", 0),
                (p + "proj.weight", (d, s["inputs"]), "big", 0),
                (p + "attn_q.weight", (s["heads"] * head, d), "big", 0),
                (p + "attn_q_norm.weight", (head,), "f32", 1),
                (p + "attn_output.weight", (d, s["heads"] * head), "big", 0)]
        if l < own:
            out += [(p + "attn_k.weight", (s["kv_heads"] * head, d), "big", 0),
                    (p + "attn_v.weight", (s["kv_heads"] * head, d), "big", 0),
                    (p + "attn_k_norm.weight", (head,), "f32", 1)]
        out += gated(p, "", d, ffs[l])
    return keys_of, out


def dflash(s):
    d, heads, kv = s["width"], s["heads"] * s["head"], s["kv_heads"] * s["head"]
    keys_of = {"attention.head_count_kv": u32(s["kv_heads"]), "attention.key_length": u32(s["head"]),
               "attention.value_length": u32(s["head"]), "rope.dimension_count": u32(s["head"]),
               "feed_forward_length": u32(s["ff"]), "block_size": u32(s["block"]),
               "target_layers": numbers(s["taps"])}
    out = [("fc.weight", (d, len(s["taps"]) * d), "big", 0), ("enc.output_norm.weight", (d,), "f32", 1)]
    for l in range(s["layers"]):
        p = f"blk.{l}."
        out += [(p + "attn_norm.weight", (d,), "f32", 1), (p + "ffn_norm.weight", (d,), "f32", 1),
                (p + "attn_q_norm.weight", (s["head"],), "f32", 1),
                (p + "attn_k_norm.weight", (s["head"],), "f32", 1),
                (p + "attn_q.weight", (heads, d), "big", 0), (p + "attn_k.weight", (kv, d), "big", 0),
                (p + "attn_v.weight", (kv, d), "big", 0), (p + "attn_output.weight", (d, heads), "big", 0)]
        out += gated(p, "", d, s["ff"])
    return keys_of, out


def eagle3(s):
    d, heads, kv = s["width"], s["heads"] * s["head"], s["kv_heads"] * s["head"]
    keys_of = {"attention.head_count_kv": u32(s["kv_heads"]), "attention.key_length": u32(s["head"]),
               "attention.value_length": u32(s["head"]), "rope.dimension_count": u32(s["head"]),
               "feed_forward_length": u32(s["ff"]), "extract_layers": numbers(s["taps"]),
               "target_hidden_size": u32(d), "vocab_size": u32(s["vocab"])}
    p = "blk.0."
    out = [("fc.weight", (d, len(s["taps"]) * d), "big", 0), ("d2t", (s["rows"],), "i64", 0)]
    out += [(p + f"{n}.weight", (d,), "f32", 1) for n in ("attn_norm", "attn_norm_2", "ffn_norm")]
    out += [(p + "attn_q.weight", (heads, 2 * d), "big", 0), (p + "attn_k.weight", (kv, 2 * d), "big", 0),
            (p + "attn_v.weight", (kv, 2 * d), "big", 0), (p + "attn_output.weight", (d, heads), "big", 0),
            ("output.weight", (s["rows"], d), "big", 0)]
    return keys_of, out + gated(p, "", d, s["ff"])


FAMILIES = {"eagle3": eagle3, "qwen35": qwen, "qwen35moe": qwen, "deepseek2": deepseek, "gemma4": gemma, "dflash": dflash}


# ---- values of weights --------------------------------------------------------------------------

def blocks(fmt, n, rng):
    """n weights as bytes, of a standard deviation near 0.02 by the scales of their blocks."""
    _, per, size = FORMATS[fmt]
    if fmt in ("f32", "f16"):
        return (rng.standard_normal(n, dtype=np.float32) * 0.02).astype(
            "<f4" if fmt == "f32" else "<f2").tobytes()
    raw = rng.integers(0, 256, (n // per, size), dtype=np.uint8)

    def half(at, value):
        raw[:, at:at + 2] = np.frombuffer(np.array([value], "<f2").tobytes(), np.uint8)

    if fmt == "q8_0":
        half(0, 0.02 / 74)
    elif fmt == "q5_0":
        half(0, 0.02 / 9.2)
    else:
        half(0, 0.02 / 4.6 / 32)
        half(2, 0.02 / 4.6 / 32 * 7.5)
    return raw.tobytes()


def format_of(shape, kind, big):
    fmt = big if kind == "big" else kind
    per = FORMATS[fmt][1]
    return fmt if shape[-1] % per == 0 else "q5_0" if shape[-1] % 32 == 0 else "f16"


def padded(n):
    return (n + 31) // 32 * 32


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("format", choices=FILE_TYPES)
    parser.add_argument("out")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    s = dict(SHAPES[args.shape])
    if args.layers:
        s["layers"] = args.layers
        if "shared" in s and s["arch"] == "gemma4":
            s["shared"] = min(s["shared"], args.layers // 2)
    s["vocab"] = args.vocab or s["vocab"]
    arch, rng = s["arch"], np.random.default_rng(args.seed)
    keys, tensors = FAMILIES[arch](s)
    d = s["width"]
    drafts = arch in ("dflash", "eagle3")
    if not drafts:
        tensors = [("token_embd.weight", (s["vocab"], d), "big", 0)] + tensors
    tensors += [("output_norm.weight", (d,), "f32", 1)]
    if arch != "gemma4" and not drafts:  # the one takes its embedding again
        tensors += [("output.weight", (s["vocab"], d), "big", 0)]
    tensors = [(n, shape, format_of(shape, kind, args.format), how)
               for n, shape, kind, how in tensors]
    kv = {"general.architecture": text(arch), "general.name": text("random " + args.shape),
          "general.file_type": u32(FILE_TYPES[args.format]), "general.quantization_version": u32(2)}
    kv |= {f"{arch}.{k}": v for k, v in (common(s) | keys).items()}
    kv |= {f"tokenizer.ggml.{k}": v for k, v in vocabulary(s["vocab"]).items()}
    kv |= {"tokenizer.ggml.mask_token_id": u32(3)} if arch == "dflash" else {}

    def size(shape, fmt):
        return int(np.prod(shape, dtype=np.int64)) // FORMATS[fmt][1] * FORMATS[fmt][2]

    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(kv))
    head += b"".join(string(k) + v for k, v in kv.items())
    at = 0
    for name, shape, fmt, _ in tensors:
        head += string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", FORMATS[fmt][0], at)
        at += padded(size(shape, fmt))
    drawn = {}
    with open(args.out, "wb") as out:
        out.write(head + bytes(padded(len(head)) - len(head)))
        for name, shape, fmt, how in tensors:
            if fmt == "i64":  # tokens of a head's vocabulary: every fourth
                raw = (4 * np.arange(shape[0], dtype="<i8")).tobytes()
            elif how != 0:
                raw = np.full(shape, how, "<f4").tobytes()
            else:
                if (shape, fmt) not in drawn:
                    drawn[shape, fmt] = blocks(fmt, int(np.prod(shape, dtype=np.int64)), rng)
                raw = drawn[shape, fmt]
            out.write(raw + bytes(padded(len(raw)) - len(raw)))
    print(f"{args.out}: {args.shape}, {len(tensors)} tensors, {at / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
