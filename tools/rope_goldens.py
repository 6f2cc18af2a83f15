#!/usr/bin/env python3
"""Reference checkpoints of every rope scaling, for tests/test_goldens.c and test_rope_goldens.py.

usage: rope_goldens.py FOLDER        (tests/data/goldens-rope is what it made)

Needs transformers, torch and safetensors from PyPI; the versions that made tests/data/goldens-rope
stand in its README.md. Any other recent ones give the same within rounding:
    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.23.0

Writes two random models and, beside them, one folder per case: a config.json, a link to the weights
and golden.safetensors with input_ids [T], logits [T, v] of the whole prompt and greedy_ids [T + 24].
The reference reads the folder as it stands, so that it is also what says what a spelling means. The
weights are large enough for attention to be sharp: without its scaling a case is far away, which is
checked here, as is that no greedy token is a near tie.
"""
import json
import pathlib
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.numpy import save_file

WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS, VOCAB = 64, 2, 1, 32, 32, 2, 96
MORE = 24  # greedy tokens

SHAPE = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
         "intermediate_size": INNER, "num_hidden_layers": LAYERS, "vocab_size": VOCAB,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": None}
MODELS = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": HEAD,
              "tie_word_embeddings": False, "dtype": "float32"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
              "tie_word_embeddings": True, "torch_dtype": "float32"},
}

# name: (model, prompt length, the rest of config.json); prompts are longer than the old context
CASES = {
    "llama-yarn": ("llama", 48, {
        "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                            "original_max_position_embeddings": 32}}),
    "llama-yarn-betas": ("llama", 72, {
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 8.0,
                            "original_max_position_embeddings": 64, "beta_fast": 4.0,
                            "beta_slow": 0.5, "attention_factor": 1.35}}),
    "llama-yarn-mscale": ("llama", 48, {
        "max_position_embeddings": 320,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 10.0,
                            "original_max_position_embeddings": 32, "mscale": 1.5,
                            "mscale_all_dim": 0.5}}),
    "llama-linear": ("llama", 40, {
        "max_position_embeddings": 128, "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama-llama3": ("llama", 48, {
        "max_position_embeddings": 256, "rope_theta": 10000.0,
        "original_max_position_embeddings": 32,  # above what stands in rope_scaling
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 256}}),
    "qwen2-yarn": ("qwen2", 48, {
        "max_position_embeddings": 128, "rope_theta": 1000000.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
}


def weights(model, seed):
    """Random tensors: attention logits of a spread of about 1.5, layers that matter."""
    random = numpy.random.default_rng(seed)
    tensors = {}

    def add(name, *shape, spread=0.15, middle=0.0):
        tensors[name] = (middle + spread * random.standard_normal(shape)).astype(numpy.float32)

    add("model.embed_tokens.weight", VOCAB, WIDTH)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            add(f"{at}self_attn.{name}_proj.weight", rows, WIDTH)
            if model == "qwen2":
                add(f"{at}self_attn.{name}_proj.bias", rows)
        add(at + "self_attn.o_proj.weight", WIDTH, HEADS * HEAD)
        add(at + "mlp.gate_proj.weight", INNER, WIDTH)
        add(at + "mlp.up_proj.weight", INNER, WIDTH)
        add(at + "mlp.down_proj.weight", WIDTH, INNER)
        add(at + "input_layernorm.weight", WIDTH, middle=1.0)
        add(at + "post_attention_layernorm.weight", WIDTH, middle=1.0)
    add("model.norm.weight", WIDTH, middle=1.0)
    if model == "llama":
        add("lm_head.weight", VOCAB, WIDTH)
    return tensors


def logits_of(folder):
    """From ids [T] to logits [T, v], by the reference, which reads this folder."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()

    def forward(ids):
        with torch.no_grad():
            return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()

    return forward


def put_folder(folder, model, rest, root):
    folder.mkdir(parents=True, exist_ok=True)
    config = {**MODELS[model], **SHAPE, **rest}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    link = folder / "model.safetensors"
    link.unlink(missing_ok=True)
    link.symlink_to(root / f"{model}.safetensors")


def put_tensors(tensors, path):
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def distance(a, b):
    return float(numpy.linalg.norm(a - b) / numpy.linalg.norm(b))


def make(name, root):
    model, length, rest = CASES[name]
    folder = root / name
    put_folder(folder, model, rest, pathlib.Path(".."))
    random = numpy.random.default_rng(length)
    prompt = [1] + [int(i) for i in random.integers(3, VOCAB, length - 1)]
    forward = logits_of(folder)
    logits, ids, margin = forward(prompt), list(prompt), numpy.inf
    for _ in range(MORE):
        last = forward(ids)[-1]
        first, second = numpy.sort(last)[::-1][:2]
        margin = min(margin, float(first - second))
        ids.append(int(last.argmax()))
    put_tensors({"input_ids": numpy.array(prompt, numpy.int64), "logits": logits,
                 "greedy_ids": numpy.array(ids, numpy.int64)}, folder / "golden.safetensors")
    with tempfile.TemporaryDirectory() as other:
        unscaled = {k: v for k, v in rest.items() if not k.startswith("rope_")}
        theta = rest.get("rope_theta") or rest["rope_parameters"]["rope_theta"]
        put_folder(pathlib.Path(other), model, {**unscaled, "rope_theta": theta}, root.resolve())
        away = distance(logits_of(other)(prompt), logits)
    assert away > 0.01, f"{name}: the scaling changes little ({away:.2g})"
    assert margin > 1e-3, f"{name}: a greedy token is a near tie ({margin:.2g})"
    print(f"{name}: without scaling {away:.2f} away; least margin of a greedy token {margin:.3f}; "
          f"{len(set(ids[length:]))} different ones")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    root.mkdir(parents=True, exist_ok=True)
    for seed, model in enumerate(MODELS, 1):
        put_tensors(weights(model, seed), root / f"{model}.safetensors")
    for name in CASES:
        make(name, root)


main()
