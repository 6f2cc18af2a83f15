# tests/test_encoder_families.py - encoders and encoder-decoders that no golden holds: small random
# checkpoints with the published names, against a second implementation in numpy, in double.
import json
import math
import struct

import numpy as np
import pytest

from program import run

LIMIT = 2e-5
V, D, F, H, L = 96, 32, 48, 4, 2
IDS = [5, 17, 1, 33, 60, 2, 80, 41, 9, 77, 3]
TARGET = [2, 40, 7, 1, 51]


class Model:
    """Weights by name, made when they are asked for."""

    def __init__(self, seed):
        self.random, self.w = np.random.default_rng(seed), {}

    def __call__(self, name, *shape):
        if name not in self.w:
            x = self.random.standard_normal(shape) * 0.3
            ln = len(shape) == 1 and name.endswith("weight")
            self.w[name] = (x + 1 if ln else x).astype("f4")
        return self.w[name].astype(float)

    def linear(self, x, name, n, bias=True):
        y = x @ self(f"{name}.weight", n, x.shape[1]).T
        return y + self(f"{name}.bias", n) if bias else y

    def norm(self, x, name, eps=1e-12):
        y = x - x.mean(1, keepdims=True)
        y = y / np.sqrt((y * y).mean(1, keepdims=True) + eps)
        return y * self(f"{name}.weight", x.shape[1]) + self(f"{name}.bias", x.shape[1])

    def save(self, folder, config):
        table, at = {}, 0
        for name, x in self.w.items():
            table[name] = {"dtype": "F32", "shape": list(x.shape),
                           "data_offsets": [at, at + x.nbytes]}
            at += x.nbytes
        head = json.dumps(table).encode()
        head += b" " * (-len(head) % 8)
        (folder / "model.safetensors").write_bytes(
            struct.pack("<Q", len(head)) + head + b"".join(x.tobytes() for x in self.w.values()))
        (folder / "config.json").write_text(json.dumps(config))


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def silu(x):
    return x / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def attention(q, k, v, causal=False, bias=None):
    out = np.zeros_like(q)
    e = D // H
    for h in range(H):
        c = slice(h * e, h * e + e)
        s = q[:, c] @ k[:, c].T / math.sqrt(e) + (bias[h] if bias is not None else 0)
        if causal:
            s = np.where(np.tril(np.ones(s.shape)) > 0, s, -np.inf)
        p = np.exp(s - s.max(1, keepdims=True))
        out[:, c] = p / p.sum(1, keepdims=True) @ v[:, c]
    return out


def rotate(x, base):
    e = D // H
    angle = np.arange(len(x))[:, None] * base ** (-np.arange(0, e, 2) / e)
    c, s, y = np.cos(angle), np.sin(angle), x.copy()
    for h in range(0, D, e):
        a, b = x[:, h:h + e // 2], x[:, h + e // 2:h + e]
        y[:, h:h + e // 2], y[:, h + e // 2:h + e] = a * c - b * s, b * c + a * s
    return y


def counted(ids, pad):
    """Positions that pass over the padding, as RoBERTa has them."""
    real = np.array(ids) != pad
    return np.cumsum(real) * real + pad


def buckets(n):
    away = np.arange(n)[None, :] - np.arange(n)[:, None]
    far = np.abs(away)
    large = 8 + (np.log(np.maximum(far, 1) / 8) / math.log(16) * 8).astype(int)
    return np.where(away > 0, 16, 0) + np.where(far < 8, far, np.minimum(large, 15))


def bert_layer(m, x, p, names, act=gelu, bias=None):
    q, k, v, o, n1, up, down, n2 = (p + name for name in names)
    a = attention(m.linear(x, q, D), m.linear(x, k, D), m.linear(x, v, D), bias=bias)
    x = m.norm(x + m.linear(a, o, D), n1)
    return m.norm(x + m.linear(act(m.linear(x, up, F)), down, D), n2)


BERT = ["attention.self.query", "attention.self.key", "attention.self.value",
        "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense",
        "output.dense", "output.LayerNorm"]


def words(m, names=("embeddings.word_embeddings", "embeddings.position_embeddings"), at=None):
    x = m(f"{names[0]}.weight", V, D)[IDS]
    if at is not None:
        x = x + m(f"{names[1]}.weight", 64, D)[at]
    return x


def roberta(m):
    x = words(m, at=counted(IDS, 1)) + m("embeddings.token_type_embeddings.weight", 1, D)[0]
    x = m.norm(x, "embeddings.LayerNorm")
    for i in range(L):
        x = bert_layer(m, x, f"encoder.layer.{i}.", BERT)
    return x, {"architectures": ["RobertaModel"], "type_vocab_size": 1, "pad_token_id": 1,
               "layer_norm_eps": 1e-12}


def distilbert(m):
    x = m.norm(words(m, at=range(len(IDS))), "embeddings.LayerNorm")
    names = ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
             "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"]
    for i in range(L):
        x = bert_layer(m, x, f"transformer.layer.{i}.", names)
    return x, {"architectures": ["DistilBertModel"], "n_layers": L, "n_heads": H, "dim": D,
               "hidden_dim": F, "activation": "gelu"}


def mpnet(m):
    x = m.norm(words(m, at=counted(IDS, 1)), "embeddings.LayerNorm")
    table = m("encoder.relative_attention_bias.weight", 32, H)
    names = ["attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o",
             "attention.LayerNorm"] + BERT[5:]
    for i in range(L):
        x = bert_layer(m, x, f"encoder.layer.{i}.", names,
                       bias=table[buckets(len(IDS))].transpose(2, 0, 1))
    return x, {"architectures": ["MPNetModel"], "pad_token_id": 1, "layer_norm_eps": 1e-12,
               "relative_attention_num_buckets": 32}


def gated_layer(m, x, p, qkv, o, n1, gate_up, down, n2, base, act, bias):
    q, k, v = np.split(m.linear(x, p + qkv, 3 * D, bias), 3, axis=1)
    a = attention(rotate(q, base), rotate(k, base), v)
    x = m.norm(x + m.linear(a, p + o, D, bias), p + n1)
    gate, up = gate_up(p, x)
    return m.norm(x + m.linear(act(gate) * up, p + down, D, bias), p + n2)


def nomic(m):
    x = m.norm(words(m) + m("embeddings.token_type_embeddings.weight", 2, D)[0], "emb_ln")
    for i in range(L):
        x = gated_layer(m, x, f"encoder.layers.{i}.", "attn.Wqkv", "attn.out_proj", "norm1",
                        lambda p, y: (m.linear(y, p + "mlp.fc12", F, False),
                                      m.linear(y, p + "mlp.fc11", F, False)),
                        "mlp.fc2", "norm2", 1000.0, silu, False)
    return x, {"architectures": ["NomicBertModel"], "n_embd": D, "n_head": H, "n_layer": L,
               "n_inner": F, "n_positions": 64, "activation_function": "swiglu",
               "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "prenorm": False,
               "layer_norm_epsilon": 1e-12}


def gte(m):
    x = m.norm(words(m) + m("embeddings.token_type_embeddings.weight", 2, D)[0],
               "embeddings.LayerNorm")

    def halves(p, y):
        both = m.linear(y, p + "mlp.up_gate_proj", 2 * F, False)
        return both[:, F:], both[:, :F]
    for i in range(L):
        x = gated_layer(m, x, f"encoder.layer.{i}.", "attention.qkv_proj", "attention.o_proj",
                        "attn_ln", halves, "mlp.down_proj", "mlp_ln", 160000.0, gelu, True)
    return x, {"architectures": ["NewModel"], "rope_theta": 160000, "hidden_act": "gelu"}


COMMON = {"vocab_size": V, "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L,
          "num_attention_heads": H, "max_position_embeddings": 64, "type_vocab_size": 2,
          "hidden_act": "gelu", "pad_token_id": 0}


def hidden_of(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    t = json.loads(data[8:8 + n])
    name = "hidden" if "hidden" in t else "logits"
    a, e = t[name]["data_offsets"]
    return np.frombuffer(data[8 + n + a:8 + n + e], "<f4").reshape(t[name]["shape"])


def distance(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("family", [roberta, distilbert, mpnet, nomic, gte])
def test_encoders(family, tmp_path):
    m, out = Model(7), tmp_path / "out.safetensors"
    want, config = family(m)
    m.save(tmp_path, {**COMMON, **config})
    run("embed", "-m", tmp_path, "--ids", ",".join(map(str, IDS)), "-o", out)
    assert distance(hidden_of(out), want) < LIMIT


# ---- encoder-decoders

def bart_like(m, pre, learned, first, act, scale):
    """pre: norms before each half; first: norms behind the embeddings."""
    def places(side, n):
        if learned:
            return m(f"model.{side}.embed_positions.weight", 66, D)[2:2 + n]
        angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(D // 2) / (D // 2))
        return np.concatenate([np.sin(angle), np.cos(angle)], 1)

    def begin(side, ids):
        x = m("model.shared.weight", V, D)[ids] * scale + places(side, len(ids))
        return m.norm(x, f"model.{side}.layernorm_embedding", 1e-5) if first else x

    def half(x, name, f):
        if pre:
            return x + f(m.norm(x, name, 1e-5))
        return m.norm(x + f(x), name, 1e-5)

    def attend(p, x, other, causal):
        y = other if other is not None else x
        a = attention(m.linear(x, p + "q_proj", D), m.linear(y, p + "k_proj", D),
                      m.linear(y, p + "v_proj", D), causal)
        return m.linear(a, p + "out_proj", D)

    def feed(p, x):
        return m.linear(act(m.linear(x, p + "fc1", F)), p + "fc2", D)

    x = begin("encoder", IDS)
    for i in range(L):
        p = f"model.encoder.layers.{i}."
        x = half(x, p + "self_attn_layer_norm", lambda y: attend(p + "self_attn.", y, None, False))
        x = half(x, p + "final_layer_norm", lambda y: feed(p, y))
    memory = m.norm(x, "model.encoder.layer_norm", 1e-5) if pre else x
    x = begin("decoder", TARGET)
    for i in range(L):
        p = f"model.decoder.layers.{i}."
        x = half(x, p + "self_attn_layer_norm", lambda y: attend(p + "self_attn.", y, None, True))
        x = half(x, p + "encoder_attn_layer_norm",
                 lambda y: attend(p + "encoder_attn.", y, memory, False))
        x = half(x, p + "final_layer_norm", lambda y: feed(p, y))
    x = m.norm(x, "model.decoder.layer_norm", 1e-5) if pre else x
    return x @ m("model.shared.weight", V, D).T + m("final_logits_bias", 1, V)[0]


DECODERS = {
    "BartForConditionalGeneration": (False, True, True, gelu, False),
    "MBartForConditionalGeneration": (True, True, True, gelu, True),
    "MarianMTModel": (False, False, False, silu, True),
    "PegasusForConditionalGeneration": (True, False, False, relu, True),
}


@pytest.mark.parametrize("name", DECODERS)
def test_encoder_decoders(name, tmp_path):
    m, out = Model(11), tmp_path / "out.safetensors"
    pre, learned, first, act, scaled = DECODERS[name]
    want = bart_like(m, pre, learned, first, act, math.sqrt(D) if scaled else 1.0)
    acts = {gelu: "gelu", silu: "swish", relu: "relu"}
    m.save(tmp_path, {
        "architectures": [name], "vocab_size": V, "d_model": D, "encoder_layers": L,
        "decoder_layers": L, "encoder_attention_heads": H, "decoder_attention_heads": H,
        "encoder_ffn_dim": F, "decoder_ffn_dim": F, "activation_function": acts[act],
        "scale_embedding": scaled, "max_position_embeddings": 64, "pad_token_id": 1,
        "decoder_start_token_id": 2})
    run("logits", "-m", tmp_path, "--ids", ",".join(map(str, IDS)), "--decoder-ids",
        ",".join(map(str, TARGET)), "--kv-type", "f32", "-o", out)
    assert distance(hidden_of(out), want) < LIMIT
