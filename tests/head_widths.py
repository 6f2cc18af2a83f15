# tests/head_widths.py - a folder of random weights whose heads are no multiple of 32 wide, as those of Phi-2 (80).
import json
import random
import struct

from tensor_files import write_safetensors

D, HEADS, KV, FF, VOCAB, LAYERS = 96, 4, 2, 64, 64, 2
CACHES = ("q8_0", "q5_0", "q4_0", "q8_0,q4_0", "f16,q8_0")


def write_model(path, head=80):
    """Llama; returns the folder."""
    draw = random.Random(head)
    path.mkdir(exist_ok=True)

    def matrix(rows, columns):
        return "F32", [rows, columns], struct.pack(f"<{rows * columns}f", *(draw.gauss(0, 0.15) for _ in range(rows * columns)))

    ones = ("F32", [D], struct.pack(f"<{D}f", *[1.0] * D))
    tensors = {"model.embed_tokens.weight": matrix(VOCAB, D), "model.norm.weight": ones,
               "lm_head.weight": matrix(VOCAB, D)}
    for layer in range(LAYERS):
        p = f"model.layers.{layer}."
        tensors |= {p + "input_layernorm.weight": ones, p + "post_attention_layernorm.weight": ones,
                    p + "self_attn.q_proj.weight": matrix(HEADS * head, D),
                    p + "self_attn.k_proj.weight": matrix(KV * head, D),
                    p + "self_attn.v_proj.weight": matrix(KV * head, D),
                    p + "self_attn.o_proj.weight": matrix(D, HEADS * head),
                    p + "mlp.gate_proj.weight": matrix(FF, D), p + "mlp.up_proj.weight": matrix(FF, D),
                    p + "mlp.down_proj.weight": matrix(D, FF)}
    write_safetensors(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D, "head_dim": head,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": FF, "vocab_size": VOCAB,
        "num_hidden_layers": LAYERS, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False}))
    return path
