#!/usr/bin/env python3
# bench/synth_eyes.py FOLDER [--width 4096] [--depth 27] [--pixels N] - a model that sees, of Qwen3-VL 8B's published
# shape, with random weights: FOLDER/mmproj.gguf is the whole vision tower in F16, FOLDER/text.gguf four layers of a
# text model of that width with a vocabulary of bytes. For speed alone, next to llama.cpp's mtmd, which reads both.
#
# --pixels is the most a picture is resized to (llama.cpp takes --image-max-tokens, a 1,024th of it).
import argparse
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from tensor_files import gguf_text  # noqa: E402

F32, F16 = 0, 1
HIDDEN, HEADS, INNER, PATCH, SIDE = 1152, 16, 4304, 16, 48  # of the tower; SIDE: places of its table a side
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
            "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% else %}<|vision_start|><|image_pad|>"
            "<|vision_end|>{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
random = np.random.Generator(np.random.SFC64(1))


def u32(x):
    return struct.pack("<II", 4, x)


def f32(x):
    return struct.pack("<If", 6, x)


def text(x):
    return struct.pack("<I", 8) + gguf_text(x)


def array(kind, items):
    return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)


def matrix(*shape):
    """Shape with rows first, weights of N(0, 0.02) in F16: 1,000 random rows are enough for speed."""
    rows = (random.standard_normal((min(shape[0], 1000), *shape[1:]), dtype=np.float32) * 0.02).astype("<f2")
    return shape, F16, np.resize(rows, shape)


def plain(*shape):
    """In F32, as llama.cpp wants tables that it interpolates."""
    return shape, F32, random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)


def vector(n, value=0.0):
    return (n,), F32, np.full(n, value, "<f4")


def norm(name, n, out):
    out[f"{name}.weight"], out[f"{name}.bias"] = vector(n, 1.0), vector(n)


def linear(name, rows, columns, out):
    out[f"{name}.weight"], out[f"{name}.bias"] = matrix(rows, columns), vector(rows)


def write(path, pairs, tensors):
    """A GGUF file, a tensor at a time."""
    head, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)), 0
    head += b"".join(gguf_text(k) + v for k, v in pairs.items())
    for name, (shape, kind, data) in tensors.items():
        head += gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, at)
        at += -(-data.nbytes // 32) * 32
    with path.open("wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _, _, data in tensors.values():
            f.write(data.tobytes() + bytes(-data.nbytes % 32))


def tower(path, width, depth, pixels):
    taps = [i for i in (8, 16, 24) if i < depth]
    out = {"v.patch_embd.weight": matrix(HIDDEN, 3, PATCH, PATCH), "v.patch_embd.weight.1": matrix(HIDDEN, 3, PATCH, PATCH),
           "v.patch_embd.bias": vector(HIDDEN), "v.position_embd.weight": plain(SIDE * SIDE, HIDDEN)}
    for i in range(depth):
        norm(f"v.blk.{i}.ln1", HIDDEN, out)
        norm(f"v.blk.{i}.ln2", HIDDEN, out)
        linear(f"v.blk.{i}.attn_qkv", 3 * HIDDEN, HIDDEN, out)
        linear(f"v.blk.{i}.attn_out", HIDDEN, HIDDEN, out)
        linear(f"v.blk.{i}.ffn_up", INNER, HIDDEN, out)
        linear(f"v.blk.{i}.ffn_down", HIDDEN, INNER, out)
    norm("v.post_ln", HIDDEN, out)
    linear("mm.0", 4 * HIDDEN, 4 * HIDDEN, out)
    linear("mm.2", width, 4 * HIDDEN, out)
    for i in taps:
        norm(f"v.deepstack.{i}.norm", 4 * HIDDEN, out)
        linear(f"v.deepstack.{i}.fc1", 4 * HIDDEN, 4 * HIDDEN, out)
        linear(f"v.deepstack.{i}.fc2", width, 4 * HIDDEN, out)
    half = array(6, [struct.pack("<f", 0.5)] * 3)
    write(path, {
        "general.architecture": text("clip"), "general.type": text("mmproj"), "clip.use_gelu": struct.pack("<IB", 7, 1),
        "clip.has_vision_encoder": struct.pack("<IB", 7, 1), "clip.projector_type": text("qwen3vl_merger"),
        "clip.vision.embedding_length": u32(HIDDEN), "clip.vision.feed_forward_length": u32(INNER),
        "clip.vision.block_count": u32(depth), "clip.vision.attention.head_count": u32(HEADS),
        "clip.vision.attention.layer_norm_epsilon": f32(1e-6), "clip.vision.projection_dim": u32(width),
        "clip.vision.patch_size": u32(PATCH), "clip.vision.image_size": u32(SIDE * PATCH),
        "clip.vision.image_max_pixels": u32(pixels), "clip.vision.image_mean": half, "clip.vision.image_std": half,
        "clip.vision.spatial_merge_size": u32(2),
        "clip.vision.is_deepstack_layers": array(7, [bytes([i in taps]) for i in range(depth)])}, out)
    return len(taps)


def words():
    """The 256 bytes as GPT-2 spells them, some of their pairs, and the marks of a chat."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    bytes_ = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]
    return bytes_, bytes_ + [a + "e" for a in "thrs"] + SPECIAL


def text_model(path, width, taps):
    heads, inner, layers = width // 128, width * 3, 4  # more layers than the tower has taps, as llama.cpp wants
    bytes_, tokens = words()
    out = {"token_embd.weight": matrix(len(tokens), width), "output_norm.weight": vector(width, 1.0),
           "output.weight": matrix(len(tokens), width)}
    for i in range(layers):
        for name, rows, columns in (("attn_q", width, width), ("attn_k", width // 4, width), ("attn_v", width // 4, width),
                                    ("attn_output", width, width), ("ffn_gate", inner, width), ("ffn_up", inner, width),
                                    ("ffn_down", width, inner)):
            out[f"blk.{i}.{name}.weight"] = matrix(rows, columns)
        for name, n in (("attn_norm", width), ("ffn_norm", width), ("attn_q_norm", 128), ("attn_k_norm", 128)):
            out[f"blk.{i}.{name}.weight"] = vector(n, 1.0)
    a = "qwen3vl."
    kinds = [1] * (len(tokens) - len(SPECIAL)) + [3] * len(SPECIAL)
    write(path, {
        "general.architecture": text("qwen3vl"), a + "block_count": u32(layers), a + "context_length": u32(32768),
        a + "embedding_length": u32(width), a + "feed_forward_length": u32(inner),
        a + "attention.head_count": u32(heads), a + "attention.head_count_kv": u32(heads // 4),
        a + "attention.key_length": u32(128), a + "attention.value_length": u32(128),
        a + "attention.layer_norm_rms_epsilon": f32(1e-6), a + "rope.freq_base": f32(5e6),
        a + "rope.dimension_sections": array(5, [struct.pack("<i", n) for n in (24, 20, 20, 0)]),
        a + "n_deepstack_layers": u32(taps), "tokenizer.ggml.model": text("gpt2"), "tokenizer.ggml.pre": text("qwen2"),
        "tokenizer.ggml.tokens": array(8, [gguf_text(t) for t in tokens]),
        "tokenizer.ggml.token_type": array(5, [struct.pack("<i", k) for k in kinds]),
        "tokenizer.ggml.merges": array(8, [gguf_text(f"{a} e") for a in "thrs"]),
        "tokenizer.ggml.eos_token_id": u32(tokens.index("<|im_end|>")), "tokenizer.ggml.add_bos_token": struct.pack("<IB", 7, 0),
        "tokenizer.chat_template": text(TEMPLATE)}, out)


arguments = argparse.ArgumentParser()
arguments.add_argument("folder", type=pathlib.Path)
arguments.add_argument("--width", type=int, default=4096)
arguments.add_argument("--depth", type=int, default=27)
arguments.add_argument("--pixels", type=int, default=16777216)
a = arguments.parse_args()
a.folder.mkdir(parents=True, exist_ok=True)
text_model(a.folder / "text.gguf", a.width, tower(a.folder / "mmproj.gguf", a.width, a.depth, a.pixels))
