#!/usr/bin/env python3
# tests/predictor_files.py - reference checkpoints with a layer that predicts one token more: that of
# the model's last layer under the names of such a layer, and what goes before it drawn from a seed.
#   predictor_files.py GOLDENS FAMILIES OUT   folders and GGUF files in OUT
import json
import random
import struct
import sys
from pathlib import Path

from tensor_files import read_safetensors, write_gguf, write_safetensors

KINDS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def bf16(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def drawn(rng, kind, d):
    """(shape, floats) of what stands before the layer, or behind it."""
    if kind == "eh":
        return [d, 2 * d], [rng.gauss(0, (2 * d) ** -0.5) for _ in range(2 * d * d)]
    return [d], [kind + rng.uniform(-0.2, 0.2) for _ in range(d)]


def bare(kind, d):
    """The same with values that a test can follow: out[i] = e[i + 1] / 2 + h[i + 3]."""
    if kind != "eh":
        return [d], [kind] * d
    eh = [0.0] * (2 * d * d)
    for i in range(d):
        eh[i * 2 * d + (i + 1) % d] = 0.5
        eh[i * 2 * d + d + (i + 3) % d] = 1.0
    return [d, 2 * d], eh


# ---- folders ------------------------------------------------------------------------------------


def folder(source, out, config, last, to, extra, empty=False):
    """Layer `last` again as `to`; extra: name -> kind. empty: the layer adds nothing."""
    out.mkdir(parents=True)
    facts = json.loads((source / "config.json").read_text())
    inner = facts.get("text_config", facts)
    inner.update(config)
    (out / "config.json").write_text(json.dumps(facts))
    tensors = read_safetensors(source / "model.safetensors")
    rng = random.Random(7)
    for name in [n for n in tensors if n.startswith(last)]:
        dtype, shape, data = tensors[name]
        silent = empty and ("o_proj" in name or "down_proj" in name)
        tensors[to + name[len(last):]] = (dtype, shape, bytes(len(data)) if silent else data)
    for name, kind in extra.items():
        shape, values = bare(kind, inner["hidden_size"]) if empty else drawn(rng, kind, inner["hidden_size"])
        tensors[name] = ("BF16", shape, bf16(values))
    write_safetensors(out / "model.safetensors", tensors)


# ---- own embedding and head ---------------------------------------------------------------------

EMBED_BY, HEAD_BY = 5, 11  # columns by which they are turned


def turned(raw, d, size, by):
    """Rows of d elements, element i at i + by."""
    rows = (raw[at:at + d * size] for at in range(0, len(raw), d * size))
    return b"".join(r[-by * size:] + r[:-by * size] for r in rows)


def from_token_alone(d):
    """eh: the token's normed row, from an own embedding's columns to an own head's."""
    eh = [0.0] * (2 * d * d)
    for i in range(d):
        eh[(i + HEAD_BY) % d * 2 * d + (i + EMBED_BY) % d] = 1.0
    return eh


def silence(tensors, words):
    """Layers add nothing: what follows a token is its row's alone."""
    for name, t in tensors.items():
        if any(w in name for w in words):
            tensors[name] = (*t[:-1], bytes(len(t[-1])))


def own(out, names, to):
    """The checkpoint of out again, one whose text is from_token_alone: with an embedding and a head of
    the layer's own that foresee it, and behind "-not" without them. to: own name -> the model's."""
    tensors = read_safetensors(out / "model.safetensors")
    silence(tensors, ("o_proj.weight", "out_proj.weight", "down_proj.weight"))
    d = tensors[names["norm"]][1][0]
    for kind in ("embed_norm", "hidden_norm"):
        tensors[names[kind]] = ("BF16", [d], bf16([names["one"]] * d))
    tensors[names["eh"]] = ("BF16", [d, 2 * d], bf16(from_token_alone(d)))
    tensors[names["norm"]] = (*tensors["model.norm.weight"][:2],
                              turned(tensors["model.norm.weight"][2], d, 2, HEAD_BY))
    for there in ("-not", ""):
        folder = out.with_name(out.name + "-own" + there)
        folder.mkdir()
        (folder / "config.json").write_text((out / "config.json").read_text())
        if not there:
            for name, (source, by) in to.items():
                kind, shape, raw = tensors[source]
                tensors[name] = (kind, shape, turned(raw, d, 2, by))
        write_safetensors(folder / "model.safetensors", tensors)


# ---- GGUF ---------------------------------------------------------------------------------------


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, form):
        size = struct.calcsize("<" + form)
        self.at += size
        return struct.unpack("<" + form, self.raw[self.at - size:self.at])[0]

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.raw[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind = self.take("I")
            return [self.value(kind) for _ in range(self.take("Q"))]
        return self.take(KINDS[kind])


def own_gguf(out, pairs, tensors, d, layer):
    """As own."""
    sizes = {0: 4, 1: 2, 30: 2}
    silence(tensors, ("attn_output.", "ffn_down"))
    for name, values in (("enorm", [1.0] * d), ("hnorm", [1.0] * d), ("eh_proj", from_token_alone(d))):
        shape, kind, _ = tensors[f"{layer}nextn.{name}.weight"]
        tensors[f"{layer}nextn.{name}.weight"] = (shape, kind, struct.pack(f"<{len(values)}f", *values))
    to = {"shared_head_norm": ("output_norm.weight", HEAD_BY), "embed_tokens": ("token_embd.weight", EMBED_BY),
          "shared_head_head": ("output.weight", HEAD_BY)}
    for name, (source, by) in to.items():
        shape, kind, raw = tensors[source]
        if name == "embed_tokens":
            write_gguf(out.with_name(out.stem + "-own-not.gguf"), pairs, tensors)
        tensors[f"{layer}nextn.{name}.weight"] = (shape, kind, turned(raw, d, sizes[kind], by))
    write_gguf(out.with_name(out.stem + "-own.gguf"), pairs, tensors)


def gguf(source, out, d, trunk, with_own=False):
    """Layer trunk - 1 again as layer trunk, with nextn tensors."""
    r = Reader(source.read_bytes())
    r.at = 8
    n_tensors, n_pairs = r.take("Q"), r.take("Q")
    pairs, architecture = {}, ""
    for _ in range(n_pairs):
        key, start = r.text(), r.at
        value = r.value(r.take("I"))
        pairs[key] = r.raw[start:r.at]
        architecture = value if key == "general.architecture" else architecture
    pairs[architecture + ".block_count"] = struct.pack("<II", 4, trunk + 1)
    pairs[architecture + ".nextn_predict_layers"] = struct.pack("<II", 4, 1)
    infos = []
    for _ in range(n_tensors):
        name, n = r.text(), r.take("I")
        infos.append([name, [r.take("Q") for _ in range(n)], r.take("I"), r.take("Q")])
    base = r.at + -r.at % 32
    ends = sorted(i[3] for i in infos[1:]) + [len(r.raw) - base]
    tensors = {}
    for name, dim, kind, at in infos:
        end = min(e for e in ends + [len(r.raw) - base] if e > at)
        tensors[name] = (dim[::-1], kind, r.raw[base + at:base + end])
    last = f"blk.{trunk - 1}."
    for name in [n for n in tensors if n.startswith(last)]:
        tensors[f"blk.{trunk}." + name[len(last):]] = tensors[name]
    rng = random.Random(7)
    for name, kind in (("enorm", 1), ("hnorm", 1), ("eh_proj", "eh"), ("shared_head_norm", 1)):
        shape, values = drawn(rng, kind, d)
        data = struct.pack(f"<{len(values)}f", *values)
        tensors[f"blk.{trunk}.nextn.{name}.weight"] = (shape, 0, data)
    write_gguf(out, pairs, tensors)
    if with_own:
        own_gguf(out, pairs, tensors, d, f"blk.{trunk}.")


def behind(prefix):
    """Names of what a layer behind the others has beside it."""
    return {prefix + "enorm.weight": 1, prefix + "hnorm.weight": 1, prefix + "eh_proj.weight": "eh",
            prefix + "shared_head.norm.weight": 1}


def main():
    goldens, families, out = map(Path, sys.argv[1:4])
    mtp = {"mtp.pre_fc_norm_embedding.weight": 0, "mtp.pre_fc_norm_hidden.weight": 0,
           "mtp.fc.weight": "eh", "mtp.norm.weight": 0}
    one = {"num_nextn_predict_layers": 1}
    folder(goldens / "deepseek-v3", out / "deepseek-v3", one, "model.layers.2.", "model.layers.3.",
           behind("model.layers.3."))
    folder(goldens / "qwen3-next", out / "qwen3-next", {}, "model.layers.3.", "mtp.layers.0.", mtp)
    folder(goldens / "qwen3.5-moe-mm", out / "qwen3.5-moe", {"mtp_num_hidden_layers": 1},
           "model.language_model.layers.3.", "mtp.layers.0.", mtp)
    folder(goldens / "qwen3-next", out / "bare", {}, "model.layers.3.", "mtp.layers.0.", mtp, True)
    air = families / "glm4moe-air"
    n = json.loads((air / "config.json").read_text())["num_hidden_layers"]
    folder(air, out / "glm4moe", one, f"model.layers.{n - 1}.", f"model.layers.{n}.",
           behind(f"model.layers.{n}."))
    gguf(goldens / "deepseek-v3" / "deepseek-v3.gguf", out / "deepseek-v3.gguf", 64, 3, True)
    own(out / "qwen3-next",
        {"one": 0.0, "norm": "mtp.norm.weight", "eh": "mtp.fc.weight",
         "embed_norm": "mtp.pre_fc_norm_embedding.weight", "hidden_norm": "mtp.pre_fc_norm_hidden.weight"},
        {"mtp.embed_tokens.weight": ("model.embed_tokens.weight", EMBED_BY),
         "mtp.lm_head.weight": ("lm_head.weight", HEAD_BY)})
    own(out / "deepseek-v3",
        {"one": 1.0, "norm": "model.layers.3.shared_head.norm.weight", "eh": "model.layers.3.eh_proj.weight",
         "embed_norm": "model.layers.3.enorm.weight", "hidden_norm": "model.layers.3.hnorm.weight"},
        {"model.layers.3.embed_tokens.weight": ("model.embed_tokens.weight", EMBED_BY),
         "model.layers.3.shared_head.head.weight": ("lm_head.weight", HEAD_BY)})
    gguf(goldens / "qwen3.5-moe-mm" / "qwen3.5-moe-mm.gguf", out / "qwen3.5-moe.gguf", 64, 4)


if __name__ == "__main__":
    main()
