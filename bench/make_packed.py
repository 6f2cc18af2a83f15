#!/usr/bin/env python3
"""bench/make_packed.py - folders of random weights in published packed forms, for speed.

    bench/make_packed.py SHAPE KIND DIR [--layers N]

SHAPE: 7b, 8b, 1.1b. KIND: gptq (int4, groups of 128), gptq-actorder, fp8 (blocks of 128 x 128), bf16.
Writes DIR/config.json and DIR/model.safetensors. Needs numpy.
"""
import argparse
import json
import os
import struct

import numpy as np

SHAPES = {  # layers, width, feed-forward, heads, KV heads, vocabulary
    "1.1b": (22, 2048, 5632, 32, 4, 32000),
    "7b": (32, 4096, 11008, 32, 32, 32000),
    "8b": (32, 4096, 14336, 32, 8, 128256),
}
GROUP = 128
NAMES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.int32): "I32"}


def matrix(name, out, inner, kind, rng, index_seed):
    """(name, dtype word, array) of a linear layer [out, inner]. Layers that read the same input have
    the same order of columns in real checkpoints: it comes from the input's statistics."""
    if kind == "bf16":
        bits = rng.standard_normal((out, inner), dtype=np.float32).view(np.uint32) >> 16
        return [(name + ".weight", "BF16", (bits.astype(np.uint16)))]
    if kind == "fp8":
        codes = rng.integers(0, 256, (out, inner), dtype=np.uint8)
        codes[(codes & 0x7F) > 0x68] &= 0x9F  # no NaN, nothing large
        rows, cols = -(-out // 128), -(-inner // 128)
        scales = np.full((rows, cols), 1e-4, np.float32)
        return [(name + ".weight", "F8_E4M3", codes), (name + ".weight_scale_inv", "F32", scales)]
    groups = inner // GROUP
    index = np.arange(inner, dtype=np.int32) // GROUP
    if kind == "gptq-actorder":
        index = np.random.default_rng(index_seed).permutation(index).astype(np.int32)
    words = rng.integers(-2**31, 2**31, (inner // 8, out), dtype=np.int64).astype(np.int32)
    zeros = np.full((groups, out // 8), 0x77777777, np.int32)
    scales = np.full((groups, out), 2e-3, np.float16)
    return [(name + ".qweight", "I32", words), (name + ".qzeros", "I32", zeros),
            (name + ".scales", "F16", scales), (name + ".g_idx", "I32", index)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("kind", choices=["gptq", "gptq-actorder", "fp8", "bf16"])
    parser.add_argument("folder")
    parser.add_argument("--layers", type=int)
    args = parser.parse_args()
    layers, width, ff, heads, kv_heads, vocab = SHAPES[args.shape]
    layers = args.layers or layers
    rng = np.random.default_rng(1)
    kv = width // heads * kv_heads
    tensors = []

    def floats(name, *shape, scale=0.02):
        values = (rng.standard_normal(shape, dtype=np.float32) * scale).astype(np.float16)
        tensors.append((name, "F16", values))

    floats("model.embed_tokens.weight", vocab, width)
    one = {}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for part, out, inner, reads in (
                ("self_attn.q_proj", width, width, 1), ("self_attn.k_proj", kv, width, 1),
                ("self_attn.v_proj", kv, width, 1), ("self_attn.o_proj", width, width, 2),
                ("mlp.gate_proj", ff, width, 3), ("mlp.up_proj", ff, width, 3),
                ("mlp.down_proj", width, ff, 4)):
            if part not in one:  # every layer has the same numbers: memory is read all the same
                one[part] = matrix("", out, inner, args.kind, rng, reads)
            tensors += [(at + part + rest, word, array) for rest, word, array in one[part]]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors.append((at + norm + ".weight", "F16", np.ones(width, np.float16)))
    tensors.append(("model.norm.weight", "F16", np.ones(width, np.float16)))
    floats("lm_head.weight", vocab, width)
    header, offset = {}, 0
    for name, word, array in tensors:
        header[name] = {"dtype": word, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(args.folder, exist_ok=True)
    with open(os.path.join(args.folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, array in tensors:
            file.write(np.ascontiguousarray(array).tobytes())
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width,
              "intermediate_size": ff, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "vocab_size": vocab, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "max_position_embeddings": 8192, "torch_dtype": "float16",
              "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1,
              "eos_token_id": 2}
    if args.kind.startswith("gptq"):
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": GROUP,
                                         "desc_act": args.kind == "gptq-actorder", "sym": True,
                                         "checkpoint_format": "gptq"}
    if args.kind == "fp8":
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3",
                                         "weight_block_size": [128, 128],
                                         "activation_scheme": "dynamic"}
    with open(os.path.join(args.folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)


if __name__ == "__main__":
    main()
