#!/usr/bin/env python3
"""The reference checkpoint of RWKV-7 for tests/test_goldens.c.

usage: rwkv_goldens.py FOLDER    (tests/data/goldens-families/rwkv7 is what it made)

Needs rwkv (its author's package), torch and safetensors from PyPI; the versions that made the folder
stand in its README.md. Writes a folder as flash-linear-attention saves it: a tiny random model in BF16,
and golden.safetensors as family_goldens.py has them. The same weights under the names of the author's
own files give the logits, on the CPU in float32.
"""
import json
import os
import pathlib
import sys

import torch
from safetensors.torch import save_file

os.environ |= {"RWKV_V7_ON": "1", "RWKV_JIT_ON": "0", "RWKV_CUDA_ON": "0"}
from rwkv.model import RWKV  # noqa: E402

VOCAB, D, HEAD, LAYERS, FF, PROMPT, MORE = 96, 128, 64, 2, 64, 16, 24  # its eps is for heads of 64
RANKS = {"w": 6, "a": 5, "v": 4, "g": 8}


def shapes():
    """name here: (name there, shape, is it stored the other way round)"""
    out = {"model.embeddings.weight": ("emb.weight", [VOCAB, D], False),
           "lm_head.weight": ("head.weight", [VOCAB, D], False)}
    for part in ("weight", "bias"):
        out[f"model.norm.{part}"] = (f"ln_out.{part}", [D], False)
        out[f"model.layers.0.pre_norm.{part}"] = (f"blocks.0.ln0.{part}", [D], False)
    for i in range(LAYERS):
        here, there = f"model.layers.{i}.", f"blocks.{i}."
        for part in ("weight", "bias"):
            out[f"{here}attn_norm.{part}"] = (f"{there}ln1.{part}", [D], False)
            out[f"{here}ffn_norm.{part}"] = (f"{there}ln2.{part}", [D], False)
            out[f"{here}attn.g_norm.{part}"] = (f"{there}att.ln_x.{part}", [D], False)
        for x in "rwkvag":
            out[f"{here}attn.x_{x}"] = (f"{there}att.x_{x}", [1, 1, D], False)
        out[f"{here}ffn.x_k"] = (f"{there}ffn.x_k", [D], False)
        for x in ("k_k", "k_a"):
            out[f"{here}attn.{x}"] = (f"{there}att.{x}", [D], False)
        out[f"{here}attn.r_k"] = (f"{there}att.r_k", [D // HEAD, HEAD], False)
        for x, name in (("r", "receptance"), ("k", "key"), ("v", "value"), ("o", "output")):
            out[f"{here}attn.{x}_proj.weight"] = (f"{there}att.{name}.weight", [D, D], False)
        for x, rank in RANKS.items():
            if x == "v" and i == 0:
                continue
            out[f"{here}attn.{x}_lora.lora.0.weight"] = (f"{there}att.{x}1", [rank, D], True)
            out[f"{here}attn.{x}_lora.lora.2.weight"] = (f"{there}att.{x}2", [D, rank], True)
            if x != "g":
                out[f"{here}attn.{x}_lora.lora.2.bias"] = (f"{there}att.{x}0", [D], False)
        out[f"{here}ffn.key.weight"] = (f"{there}ffn.key.weight", [FF, D], False)
        out[f"{here}ffn.value.weight"] = (f"{there}ffn.value.weight", [D, FF], False)
    return out


def value(name, shape, random):
    x = torch.randn(shape, generator=random)
    if "norm" in name:
        x = 0.2 * x + (1.0 if name.endswith("weight") else 0.0)
    elif ".x_" in name:
        x = torch.sigmoid(x)
    elif name.endswith(("k_k", "k_a")):
        x = 0.9 + 0.2 * x
    elif "embeddings" in name:
        x = 0.7 * x
    elif name.endswith(".weight"):
        x = x * (1.2 / shape[-1] ** 0.5)
    else:
        x = 0.3 * x
    return x.to(torch.bfloat16)


def run(model, seed):
    ids = torch.randint(3, VOCAB, (PROMPT,), generator=torch.Generator().manual_seed(seed)).tolist()
    margin = float("inf")
    logits, state = model.forward(ids, None, full_output=True)
    out = {"input_ids": torch.tensor(ids), "logits": logits.clone()}
    last = logits[-1]
    for _ in range(MORE):
        best = last.topk(2)
        margin = min(margin, float((best.values[0] - best.values[1]) / logits.std()))
        ids.append(int(best.indices[0]))
        last, state = model.forward(ids[-1:], state)
    return out | {"greedy_ids": torch.tensor(ids)}, margin


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    random, tensors, theirs = torch.Generator().manual_seed(7), {}, {}
    for name, (other, shape, turned) in shapes().items():
        tensors[name] = value(name, shape, random)
        theirs[other] = (tensors[name].t() if turned else tensors[name]).float().contiguous()
    for x in "012":  # there, and not used
        theirs[f"blocks.0.att.v{x}"] = torch.zeros(1)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "hidden_size": D, "head_dim": HEAD,
        "num_hidden_layers": LAYERS, "intermediate_size": FF, "hidden_ratio": 4.0, "vocab_size": VOCAB,
        "norm_eps": 1e-5, "norm_first": True, "norm_bias": True, "hidden_act": "sqrelu",
        "decay_low_rank_dim": RANKS["w"], "a_low_rank_dim": RANKS["a"], "v_low_rank_dim": RANKS["v"],
        "gate_low_rank_dim": RANKS["g"], "max_position_embeddings": 2048, "bos_token_id": 1,
        "eos_token_id": 2, "tie_word_embeddings": False}, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    torch.save(theirs, folder / "model.pth")
    model = RWKV(model=str(folder / "model"), strategy="cpu fp32")
    (folder / "model.pth").unlink()
    seed, margin = 0, 0.0
    while margin < 2e-3:  # no near ties
        seed += 1
        golden, margin = run(model, seed)
    save_file(golden, folder / "golden.safetensors", metadata={"format": "pt"})
    print(f"rwkv7: prompt {seed}, least margin of a greedy token {margin:.4f}")


if __name__ == "__main__":
    main()
