#!/usr/bin/env python3
"""bench/int_attention.py - attention of prompts in integers, a trial of its accuracy (numpy only).

usage: int_attention.py shapes
       int_attention.py perplexity FOLDER IDS [WINDOWS]
FOLDER has config.json and model.safetensors of a Llama; IDS: token ids, one a line.

Scores and page sums as docs/record/2026-11-27-integer-attention.md proposes them: two int8 digits a number, pages
below a query's own in integers, its own page in float. Against float64 beside the contract of today (float32 chains)
and 16-bit inputs with float sums.
"""
import json
import struct
import sys

import numpy as np

PAGE, TOP = 64, 32639
F = np.float32


def f16(x):
    return x.astype(np.float16).astype(F)


def digits(x, axis):
    """x as (high, low, scale): |256 high + low| <= TOP, value = scale * (256 high + low)."""
    amax = np.abs(x).max(axis, keepdims=True)
    inverse = np.divide(F(TOP), amax, out=np.zeros_like(amax), where=amax > 0)
    n = np.rint(x * inverse).astype(np.int64)
    high = (n + 128) >> 8
    return high.astype(np.float64), (n - 256 * high).astype(np.float64), (amax / F(TOP)).astype(F)


def mixed(a, b):
    """256 sum of high high + sum of high low + low high: integers, exact in float64."""
    return 256 * (a[0] @ b[0]) + a[0] @ b[1] + a[1] @ b[0]


def join(tops, sums, outs):
    """Pages in order, groups left out: a chain in float32."""
    best = max(tops)
    total, out = F(0), np.zeros_like(outs[0])
    for m, l, o in zip(tops, sums, outs):
        w = np.exp(F(m - best))
        total, out = F(l * w + total), (o * w + out).astype(F)
    return out / total


def page_sums(p, v, how):
    """sum p, sum p v of a page in integers: p [64], v [64, e]."""
    n = np.rint(p * F(TOP)).astype(np.int64)
    if how == "int, v by channel":
        a, b = digits(p[None], 1), digits(v, 0)
        by = b[2][0]
    elif how == "int, v by position":
        b = digits(v, 1)
        a, by = digits((p * b[2][:, 0])[None], 1), F(1)
    else:  # the channel's size first, then the position's of what is left
        size = np.abs(v).max(0).astype(F)
        b = digits(np.divide(v, size, out=np.zeros_like(v), where=size > 0), 1)
        a, by = digits((p * b[2][:, 0])[None], 1), size
    return F(n.sum()) * (F(1) / F(TOP)), mixed(a, b)[0].astype(F) * (F(a[2][0, 0] * F(256)) * by)


def attend(q, k, v, pos, scale, how):
    """q [e] at pos, k and v [n, e] as the cache has them."""
    if how == "f64":
        s = (k[:pos + 1].astype(np.float64) @ q.astype(np.float64)) * scale
        p = np.exp(s - s.max())
        return p @ v[:pos + 1].astype(np.float64) / p.sum()
    tops, sums, outs = [], [], []
    for first in range(0, pos + 1, PAGE):
        end = min(first + PAGE, pos + 1)
        kk, vv, qq = k[first:end], v[first:end], q
        if how.startswith("int") and end <= pos // PAGE * PAGE:
            dq, dk = digits(q[None], 1), digits(kk, 1)
            by = F(dq[2][0, 0] * F(256) * F(scale)) * dk[2][:, 0]
            s = mixed(dq, (dk[0].T, dk[1].T))[0].astype(F) * by
            m = s.max()
            l, o = page_sums(np.exp(s - m).astype(F), vv, how)
        else:
            if how == "f16":
                kk, vv, qq = f16(kk), f16(vv), f16(q)
            s = ((kk @ qq) * F(scale)).astype(F)
            m = s.max()
            p = np.exp(s - m).astype(F)
            l = p.sum(dtype=F)
            o = ((f16(p) if how == "f16" else p) @ vv).astype(F)
        tops.append(m), sums.append(l), outs.append(o)
    return join(tops, sums, outs)


WAYS = ["f32", "f16", "int, v by channel", "int, v by position", "int"]


def shapes():
    rng = np.random.default_rng(1)
    print("| keys, values | width |" + "".join(f" {w} |" for w in WAYS) + " f16, worst channel | int, worst channel |")
    print("|---|---|" + "---|" * (len(WAYS) + 2))
    cases = [("plain", 1, 1, 1.0), ("3 channels of k 50 times", 50, 1, 0.05), ("3 channels of v 50 times", 1, 50, 1.0),
             ("both", 50, 50, 0.05), ("q 8 times", 1, 1, 8.0), ("the first position takes most, its v 1/100", -1, 1, 1.0),
             ("the first position takes all, its v 1/100", -2, 1, 1.0)]
    for name, loud_k, loud_v, gain in cases:
        for e in (64, 128):
            n = 2048
            q = (rng.standard_normal((24, e)) * gain).astype(F)
            k, v = rng.standard_normal((n, e)), rng.standard_normal((n, e))
            at = rng.permutation(e)[:3]
            if loud_k > 0:
                k[:, at] *= loud_k
            else:
                k[0] *= 4
                v[0] /= 100
                q += (0.4 if loud_k == -2 else 1.5 / e ** 0.5) * k[0].astype(F)
            v[:, rng.permutation(e)[:3]] *= loud_v
            k, v = f16(k.astype(F)), f16(v.astype(F))
            rows = rng.integers(64, n, len(q))
            want = np.stack([attend(x, k, v, r, e ** -0.5, "f64") for x, r in zip(q, rows)])
            off = {w: np.stack([attend(x, k, v, r, e ** -0.5, w) for x, r in zip(q, rows)]) - want for w in WAYS}
            size = lambda x, axis=None: np.sqrt((x ** 2).sum(axis))
            worst = [(size(off[w], 0) / size(want, 0)).max() for w in ("f16", "int")]
            print(f"| {name} | {e} |" + "".join(f" {size(off[w]) / size(want):.1e} |" for w in WAYS)
                  + "".join(f" {w:.1e} |" for w in worst), flush=True)


# ---- perplexity: a Llama of float weights, only its attention changed ------------------------------------------------

def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        data = raw[8 + n + a:8 + n + b]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(F)
        else:
            x = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[t["dtype"]]).astype(F)
        out[name] = x.reshape(t["shape"])
    return out


def window_attention(q, k, v, how):
    """q [h, t, e], k and v [h, t, e] of one window."""
    h, t, e = q.shape
    scale = F(e ** -0.5)
    seen = np.tril(np.ones((t, t), bool))
    if how != "int":
        if how == "f16":
            q, k, v = f16(q), f16(k), f16(v)
        s = np.where(seen, (q @ k.transpose(0, 2, 1)) * scale, F(-np.inf))
        p = np.exp(s - s.max(-1, keepdims=True))
        total = p.sum(-1, keepdims=True)
        return (f16(p) if how == "f16" else p) @ v / total
    out = np.zeros_like(q)
    dq, dk = digits(q, 2), digits(k, 2)
    whole = np.arange(t)[None] // PAGE < np.arange(t)[:, None] // PAGE  # of a row: positions of pages below its own
    kt = (dk[0].transpose(0, 2, 1), dk[1].transpose(0, 2, 1))
    si = (mixed(dq, kt).astype(F) * ((dq[2] * F(256) * scale) * dk[2].transpose(0, 2, 1))).astype(F)
    s = np.where(whole, si, (q @ k.transpose(0, 2, 1)) * scale)
    s = np.where(seen, s, F(-np.inf))
    best, total = np.full((h, t, 1), F(-np.inf)), np.zeros((h, t, 1), F)
    for first in range(0, t, PAGE):
        sl = slice(first, first + PAGE)
        m = s[:, :, sl].max(-1, keepdims=True)
        live = np.isfinite(m)
        p = np.where(live, np.exp(s[:, :, sl] - np.where(live, m, 0)), 0).astype(F)
        n = np.rint(p * F(TOP)).astype(np.int64)
        size = np.abs(v[:, sl]).max(1, keepdims=True)
        dv = digits(np.divide(v[:, sl], size, out=np.zeros_like(v[:, sl]), where=size > 0), 2)
        dp = digits((p * dv[2].transpose(0, 2, 1)).astype(F), 2)
        oi = mixed(dp, dv).astype(F) * (dp[2] * F(256)) * size
        mask = (np.arange(t) // PAGE > first // PAGE)[None, :, None]
        o = np.where(mask, oi, p @ v[:, sl]).astype(F)
        l = np.where(mask, n.sum(-1, keepdims=True).astype(F) / F(TOP), p.sum(-1, keepdims=True)).astype(F)
        top = np.maximum(best, m)
        was, now = np.exp(np.where(np.isfinite(best), best - top, -np.inf)), np.where(live, np.exp(np.where(live, m - top, 0)), 0)
        out, total, best = (out * was + o * now).astype(F), (total * was + l * now).astype(F), top
    return out / total


def perplexity(folder, ids_path, limit=10 ** 6):
    c = json.load(open(folder + "/config.json"))
    w = load(folder + "/model.safetensors")
    ids = np.array([int(x) for x in open(ids_path).read().split()])
    h, g, d = c["num_attention_heads"], c["num_key_value_heads"], c["hidden_size"]
    e, eps, theta, n = d // h, c["rms_norm_eps"], c.get("rope_theta", 10000.0), 512
    angle = np.arange(n)[:, None] * theta ** (-np.arange(e // 2) * 2 / e)
    cos, sin = np.cos(angle).astype(F), np.sin(angle).astype(F)
    norm = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + F(eps)) * w[name]

    def rope(x):
        a, b = x[..., :e // 2], x[..., e // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def run(window, how):
        x = w["model.embed_tokens.weight"][window]
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            lin = lambda name, x: x @ w[p + name + ".weight"].T
            y = norm(x, p + "input_layernorm.weight")
            q = rope(lin("self_attn.q_proj", y).reshape(n, h, e).transpose(1, 0, 2))
            k = f16(rope(lin("self_attn.k_proj", y).reshape(n, g, e).transpose(1, 0, 2)))
            v = f16(lin("self_attn.v_proj", y).reshape(n, g, e).transpose(1, 0, 2))
            a = window_attention(q, np.repeat(k, h // g, 0), np.repeat(v, h // g, 0), how)
            x = x + lin("self_attn.o_proj", a.transpose(1, 0, 2).reshape(n, d).astype(F))
            y = norm(x, p + "post_attention_layernorm.weight")
            z = lin("mlp.gate_proj", y)
            x = x + lin("mlp.down_proj", z / (1 + np.exp(-z)) * lin("mlp.up_proj", y))
        logits = norm(x, "model.norm.weight") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
        z = logits[n // 2:-1].astype(np.float64)
        z -= z.max(-1, keepdims=True)
        return np.log(np.exp(z).sum(-1)) - z[np.arange(len(z)), window[n // 2 + 1:]]

    ways = ["f32", "f16", "int"]
    loss = {how: [] for how in ways}
    for at in range(0, min(len(ids) - n + 1, int(limit) * n), n):
        window = ids[at:at + n].copy()
        window[0] = c["bos_token_id"]
        for how in ways:
            loss[how].append(run(window, how))
    for how in ways:
        p = np.exp(np.concatenate(loss[how]).mean())
        base = np.exp(np.concatenate(loss["f32"]).mean())
        print(f"{folder} {how}: perplexity {p:.6f}, {100 * (p / base - 1):+.5f}%", flush=True)


if __name__ == "__main__":
    shapes() if sys.argv[1] == "shapes" else perplexity(*sys.argv[2:])
