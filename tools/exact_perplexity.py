#!/usr/bin/env python3
"""Perplexity of a small Llama GGUF in double precision, sharing no code with the engine.

usage: exact_perplexity.py MODEL.gguf TEXT [PROGRAM]

Weights are expanded by the `gguf` package (pip install gguf), activations stay double; windows and
scoring are those of `godwit perplexity -c 512`. PROGRAM (default build/release/godwit) tokenizes.
For judging reference figures: an engine that quantizes activations has noise of its own.
"""
import json
import subprocess
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

CONTEXT = 512


def load(path):
    reader = GGUFReader(path)
    weights = {}
    for t in reader.tensors:
        shape = [int(n) for n in reversed(t.shape)]
        weights[t.name] = np.asarray(dequantize(t.data, t.tensor_type), np.float64).reshape(shape)
    keys = {f.name: f.parts[-1][0] for f in reader.fields.values() if f.name.startswith("llama.")}
    return weights, {name.split(".", 1)[1]: value for name, value in keys.items()}


def rotate(x, cosine, sine):
    a, b = x[..., 0::2], x[..., 1::2]
    y = np.empty_like(x)
    y[..., 0::2], y[..., 1::2] = a * cosine - b * sine, a * sine + b * cosine
    return y


def attention(q, k, v, group):
    n, heads, width = q.shape
    mask = np.triu(np.full((n, n), -np.inf), 1)
    out = np.empty_like(q)
    for h in range(heads):
        score = q[:, h] @ k[:, h // group].T / np.sqrt(width) + mask
        p = np.exp(score - score.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, h // group]
    return out.reshape(n, heads * width)


def logits(w, hp, ids):
    n, heads, kv_heads = len(ids), int(hp["attention.head_count"]), int(hp["attention.head_count_kv"])
    eps = float(hp["attention.layer_norm_rms_epsilon"])
    width = w["blk.0.attn_q.weight"].shape[0] // heads
    base = float(hp.get("rope.freq_base", 10000.0))
    angle = np.arange(n)[:, None] * base ** (-np.arange(0, width, 2) / width)
    turn = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight

    x = w["token_embd.weight"][ids]
    for layer in range(int(hp["block_count"])):
        part = {name: w[f"blk.{layer}.{name}.weight"] for name in (
            "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
            "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
        y = norm(x, part["attn_norm"])
        q = rotate((y @ part["attn_q"].T).reshape(n, heads, width), *turn)
        k = rotate((y @ part["attn_k"].T).reshape(n, kv_heads, width), *turn)
        v = (y @ part["attn_v"].T).reshape(n, kv_heads, width)
        x = x + attention(q, k, v, heads // kv_heads) @ part["attn_output"].T
        y = norm(x, part["ffn_norm"])
        gate = y @ part["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ part["ffn_up"].T)) @ part["ffn_down"].T
    return norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T


def main(path, text, program="build/release/godwit"):
    w, hp = load(path)
    done = subprocess.run([program, "tokenize", "-m", path, "-f", text, "--ids"],
                          capture_output=True, text=True, check=True)
    ids = json.loads(done.stdout)
    losses = []
    for at in range(0, len(ids) // CONTEXT * CONTEXT, CONTEXT):
        window = [1] + ids[at + 1:at + CONTEXT]
        z = logits(w, hp, window)
        top = z.max(-1)
        log_sum = np.log(np.exp(z - top[:, None]).sum(-1)) + top
        losses += [log_sum[i] - z[i, window[i + 1]] for i in range(CONTEXT // 2, CONTEXT - 1)]
    print(f"exact PPL = {np.exp(np.mean(losses)):.4f} ({len(losses)} tokens)")


main(*sys.argv[1:])
