#!/usr/bin/env python3
"""Drafts of layers that predict one token more, by PyTorch, for tests/test_predictor_families.c.

usage: predictor_goldens.py GOLDENS OUT.json    (tests/data/predictors.json is what it made; GOLDENS
                                                 are the shared reference checkpoints)

Needs transformers, torch and safetensors from PyPI (5.24.0, 2.15.0). tests/predictor_families.py
makes the checkpoints. The layer itself is the reference's: a model of that family with this one
layer (two, of Nemotron 3) is made of its tensors, and reads the rows that go into it; what stands
before and after it, and which state a row takes, is written down here.

For each family: ids of two texts, and drafts [STEPS][n - 1]: after each position p but the first
what the layer says after row p, then after row p + 1 given the text's token there and the
layer's own state, and so on. The first token of a text has no row.
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

STEPS, LENGTH, TEXTS, VOCAB = 3, 26, 2, 96
ROOT = pathlib.Path(__file__).resolve().parent.parent

# Of a family: where the layer's tensors stand and under which name in a model of one layer, names of
# the two norms and the matrix before it, of the norm after it, of the head (None: the model's),
# what else such a model has in its configuration; raw: states are taken before the model's norm.
FAMILIES = {
    "hy_v3": {"layer": ("model.layers.2.", "model.layers.0."), "e": "enorm", "h": "hnorm", "eh": "eh_proj",
              "norm": "final_layernorm", "config": {"num_hidden_layers": 1, "mlp_layer_types": ["sparse"]}},
    "mimo2": {"layer": ("model.mtp.layers.0.", "model.layers.0."), "e": "enorm", "h": "hnorm", "eh": "eh_proj",
              "norm": "final_layernorm", "rename": {"pre_mlp_layernorm": "post_attention_layernorm"},
              "config": {"num_hidden_layers": 1, "mlp_layer_types": ["dense"], "layer_types": ["sliding_attention"]}},
    "step35": {"layer": ("model.layers.4.", "model.layers.0."), "e": "enorm", "h": "hnorm", "eh": "eh_proj",
               "norm": "transformer.shared_head.norm", "head": "transformer.shared_head.output", "raw": True, "plus": 1.0,
               "config": {"num_hidden_layers": 1, "mlp_layer_types": ["dense"], "layer_types": ["sliding_attention"],
                          "num_nextn_predict_layers": 0, "mtp_layer_types": None, "mtp_mlp_layer_types": None,
                          "swiglu_limits": [None], "swiglu_limits_shared": [None],
                          "per_layer_config": {"0": {"num_attention_heads": 8}}}},
    "nemotron-h-moe": {"layer": ("mtp.layers.", "backbone.layers."), "e": "0.enorm", "h": "0.hnorm", "eh": "0.eh_proj",
                       "norm": "1.final_layernorm", "eps": 1e-5,
                       "config": {"num_hidden_layers": 2, "hybrid_override_pattern": "*E", "num_nextn_predict_layers": 0}},
    "mellum": {"layer": ("mtp.", "model."), "e": "pre_fc_norm_embedding", "h": "pre_fc_norm_hidden", "eh": "fc",
               "norm": "norm", "config": {"num_hidden_layers": 1, "mlp_layer_types": ["sparse"],
                                          "layer_types": ["sliding_attention"], "num_nextn_predict_layers": None}},
    "exaone-moe": {"layer": ("mtp.", "model."), "e": "pre_fc_norm_embedding", "h": "pre_fc_norm_hidden", "eh": "fc",
                   "norm": "norm", "config": {"num_hidden_layers": 1, "mlp_layer_types": ["dense"],
                                              "layer_types": ["sliding_attention"]}},
    "ernie4_5-moe": {"layer": ("model.mtp_block.0.", "model.layers.0."), "e": "model.mtp_emb_norm.0",
                     "h": "model.mtp_hidden_norm.0", "eh": "model.mtp_linear_proj.0", "norm": None,
                     "config": {"num_hidden_layers": 1, "moe_layer_start_index": 1, "moe_layer_end_index": 0,
                                "moe_num_experts": 0}},
}


def opened(folder):
    model = transformers.AutoModelForCausalLM if "vision_config" not in json.loads(
        (folder / "config.json").read_text()) else transformers.AutoModelForImageTextToText
    return model.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def decoder(model):
    inner = model.get_decoder() if hasattr(model, "get_decoder") else model.model
    return getattr(inner, "language_model", inner)


def norm_of(inner):
    return inner.norm_f if hasattr(inner, "norm_f") else inner.norm


def states(inner, **inputs):
    """(before the norm, after it) of each row."""
    kept = []
    hook = norm_of(inner).register_forward_pre_hook(lambda module, args: kept.append(args[0].detach()))
    with torch.no_grad():
        out = inner(use_cache=False, **inputs).last_hidden_state
    hook.remove()
    return kept[-1][0], out[0]


def one_layer(folder, f, tensors):
    """A model of the layer alone, with its norm after it and its head."""
    config = json.loads((folder / "config.json").read_text())
    config.get("text_config", config).update(f["config"])
    at, to = f["layer"]
    norm = next(n for n in tensors if n.endswith(("model.norm.weight", "norm_f.weight")))
    out = {n: t for n, t in tensors.items() if "layers." not in n and "mtp" not in n}
    for name, t in tensors.items():
        if name.startswith(at) and not any(name == full(f, f.get(k)) for k in ("e", "h", "eh", "norm", "head")):
            name = to + name[len(at):]
            for old, new in f.get("rename", {}).items():
                name = name.replace(old, new)
            out[name] = t
        elif "vision" in name:
            out[name] = t
    if f["norm"] is not None:
        out[norm] = tensors[full(f, f["norm"])]
    if f.get("head"):
        out["lm_head.weight"] = tensors[full(f, f["head"])]
    small = pathlib.Path(tempfile.mkdtemp())
    (small / "config.json").write_text(json.dumps(config))
    save_file(out, small / "model.safetensors", metadata={"format": "pt"})
    model = opened(small)
    shutil.rmtree(small)
    return model


def full(f, name):
    return None if name is None else ("" if name.startswith("model.") else f["layer"][0]) + name + ".weight"


def rms(x, w, eps, plus):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * (w + plus)


def drafts(folder, f, texts):
    tensors = {n: t.float() if t.is_floating_point() else t
               for n, t in load_file(folder / "model.safetensors").items()}
    stored = load_file(folder / "model.safetensors")
    target, layer = opened(folder), one_layer(folder, f, stored)
    eps = f.get("eps") or json.loads((folder / "config.json").read_text()).get("rms_norm_eps", 1e-5)
    w = {k: tensors[full(f, f[k])] for k in ("e", "h", "eh")}
    embed, own_raw = target.get_input_embeddings().weight, f.get("raw") or f["norm"] is None
    found = []
    for ids in texts:
        n, steps = len(ids), []
        raw, normed = states(decoder(target), input_ids=torch.tensor([ids]))
        given = raw if f.get("raw") else normed

        def row(p, state):
            e = rms(embed[ids[p]], w["e"], eps, f.get("plus", 0.0))
            return torch.cat([e, rms(state, w["h"], eps, f.get("plus", 0.0))]) @ w["eh"].T

        for k in range(STEPS):
            steps.append([])
        for p in range(1, n):
            rows = [row(i, given[i - 1]) for i in range(1, p + 1)]
            for k in range(min(STEPS, n - p)):
                if k > 0:
                    rows.append(row(p + k, own))
                before, after = states(decoder(layer), inputs_embeds=torch.stack(rows)[None])
                own = before[-1] if own_raw else after[-1]
                logits = layer.lm_head(before[-1] if f["norm"] is None else after[-1])[:VOCAB]
                best = torch.topk(logits, 2).values
                steps[k].append(int(logits.argmax()))
                f["least"] = min(f.get("least", 9e9), float(best[0] - best[1]) / float(logits.abs().max()))
        found.append({"ids": ids, "drafts": steps})
    print(folder.name, "nearest two logits", f["least"])
    return found


def main():
    goldens, out = sys.argv[1:3]
    folders = pathlib.Path(tempfile.mkdtemp())
    subprocess.run([sys.executable, str(ROOT / "tests/predictor_families.py"), goldens,
                    str(ROOT / "tests/data/goldens-families"), str(folders)], check=True)
    rng = random.Random(11)
    texts = [[3 + rng.randrange(VOCAB - 3) for _ in range(LENGTH)] for _ in range(TEXTS)]
    made = {name: drafts(folders / name, f, texts) for name, f in FAMILIES.items()}
    lines = [f'"{name}": {json.dumps(of)}' for name, of in made.items()]
    pathlib.Path(out).write_text("{" + ",\n".join(lines) + "}\n")
    shutil.rmtree(folders)


main()
