#!/usr/bin/env python3
"""bench/make_encoders.py - encoders and an encoder-decoder of random weights, for speed.

    bench/make_encoders.py SHAPE FORMAT DIR|FILE.gguf
    bench/make_encoders.py texts N LEAST MOST FILE      N texts of LEAST..MOST tokens, one a line

SHAPE: minilm (all-MiniLM-L6-v2), bge-m3, m2m100 (418M); FORMAT: f32, f16; a GGUF, of minilm alone, f32
or q8_0. A folder has all that godwit and sentence-transformers read of one, its own tokenizer too:
words are w0, w1, ..., one token each, so that a text's length is known. Needs numpy.
"""
import json
import os
import random
import struct
import sys

import numpy as np

SHAPES = {  # layers, width, feed-forward, heads, vocabulary, positions
    "minilm": (6, 384, 1536, 12, 30522, 512),
    "bge-m3": (24, 1024, 4096, 16, 250002, 8194),
    "m2m100": (12, 1024, 4096, 16, 128112, 1024),
}
WORDS = 20000  # that texts are made of
LANGUAGES = "af am ar de en es fr hi it ja ko nl pl pt ru sv tr uk vi zh".split()


# ---- weights -------------------------------------------------------------------------------------

def layer(prefix, names, d, f, rng):
    """Names of q, k, v, output, norm, up, down, norm -> tensors of a layer."""
    for name in names:
        n, k = (f, d) if name == names[5] else (d, f) if name == names[6] else (d, d)
        if "norm" in name.lower():
            yield prefix + name + ".weight", np.ones(d, np.float32)
            yield prefix + name + ".bias", np.zeros(d, np.float32)
            continue
        yield prefix + name + ".weight", normal(rng, n, k)
        yield prefix + name + ".bias", np.zeros(n, np.float32)


def normal(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)


def bert(layers, d, f, vocab, positions, types, rng):
    at = "embeddings."
    yield at + "word_embeddings.weight", normal(rng, vocab, d)
    yield at + "position_embeddings.weight", normal(rng, positions, d)
    yield at + "token_type_embeddings.weight", normal(rng, types, d)
    yield at + "LayerNorm.weight", np.ones(d, np.float32)
    yield at + "LayerNorm.bias", np.zeros(d, np.float32)
    names = ["attention.self.query", "attention.self.key", "attention.self.value",
             "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense",
             "output.dense", "output.LayerNorm"]
    for i in range(layers):
        yield from layer(f"encoder.layer.{i}.", names, d, f, rng)


def m2m100(layers, d, f, vocab, rng):
    yield "model.shared.weight", normal(rng, vocab, d)
    attention = ["q_proj", "k_proj", "v_proj", "out_proj"]
    for side in ("encoder", "decoder"):
        for i in range(layers):
            at = f"model.{side}.layers.{i}."
            yield from layer(at, [f"self_attn.{x}" for x in attention] +
                             ["self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"], d, f, rng)
            if side == "decoder":
                for x in attention:
                    yield f"{at}encoder_attn.{x}.weight", normal(rng, d, d)
                    yield f"{at}encoder_attn.{x}.bias", np.zeros(d, np.float32)
                yield f"{at}encoder_attn_layer_norm.weight", np.ones(d, np.float32)
                yield f"{at}encoder_attn_layer_norm.bias", np.zeros(d, np.float32)
        yield f"model.{side}.layer_norm.weight", np.ones(d, np.float32)
        yield f"model.{side}.layer_norm.bias", np.zeros(d, np.float32)


def tensors(shape, rng):
    layers, d, f, _, vocab, positions = SHAPES[shape]
    if shape == "m2m100":
        return m2m100(layers, d, f, vocab, rng)
    return bert(layers, d, f, vocab, positions, 2 if shape == "minilm" else 1, rng)


# ---- tokenizers ----------------------------------------------------------------------------------

def words(specials, vocab, mark=""):
    names = specials + [f"{mark}w{i}" for i in range(WORDS)]
    return names + [f"<unused{i}>" for i in range(vocab - len(names))]


def tokenizer(shape):
    """tokenizer.json, the file of tokenizer_config.json, vocab.txt or None."""
    vocab = SHAPES[shape][4]
    if shape == "minilm":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        names, begin, end = words(special, vocab), "[CLS]", "[SEP]"
        model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                 "max_input_chars_per_word": 100, "vocab": {x: i for i, x in enumerate(names)}}
        parts = {"normalizer": {"type": "BertNormalizer", "clean_text": True,
                                "handle_chinese_chars": True, "strip_accents": None,
                                "lowercase": True},
                 "pre_tokenizer": {"type": "BertPreTokenizer"},
                 "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
        config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "cls_token": begin,
                  "sep_token": end, "pad_token": "[PAD]", "unk_token": "[UNK]",
                  "mask_token": "[MASK]"}
    else:
        special, mark = ["<s>", "<pad>", "</s>", "<unk>"], "\u2581"
        names = words(special + ["\u2581"] + [chr(c) for c in range(33, 127)], vocab, mark)
        begin, end = "<s>", "</s>"
        if shape == "m2m100":
            names[-len(LANGUAGES):] = [f"__{x}__" for x in LANGUAGES]
            special, begin = special + names[-len(LANGUAGES):], "__en__"
        scores = [0.0] * 4 + [-20.0] * 95 + [-10.0] * (vocab - 99)
        model = {"type": "Unigram", "unk_id": 3, "byte_fallback": False,
                 "vocab": [list(x) for x in zip(names, scores)]}
        space = {"type": "Metaspace", "replacement": mark, "prepend_scheme": "always",
                 "split": True}
        parts = {"normalizer": None, "pre_tokenizer": space, "decoder": space}
        config = {"tokenizer_class": "XLMRobertaTokenizer" if shape == "bge-m3"
                  else "M2M100Tokenizer", "bos_token": "<s>", "eos_token": "</s>",
                  "pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>",
                  "sep_token": "</s>"}
    ids = {x: names.index(x) for x in special}
    piece = [{"SpecialToken": {"id": begin, "type_id": 0}},
             {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": end, "type_id": 0}}]
    whole = {"version": "1.0", "truncation": None, "padding": None,
             "added_tokens": [{"id": i, "content": x, "single_word": False, "lstrip": False,
                               "rstrip": False, "normalized": False, "special": True}
                              for x, i in ids.items()],
             **parts, "model": model,
             "post_processor": {"type": "TemplateProcessing", "single": piece, "pair": piece + [
                 {"Sequence": {"id": "B", "type_id": 0}},
                 {"SpecialToken": {"id": end, "type_id": 0}}],
                 "special_tokens": {x: {"id": x, "ids": [ids[x]], "tokens": [x]}
                                    for x in (begin, end)}}}
    return whole, config, names


def config_of(shape, word):
    layers, d, f, heads, vocab, positions = SHAPES[shape]
    if shape == "m2m100":
        return {"architectures": ["M2M100ForConditionalGeneration"], "model_type": "m2m_100",
                "d_model": d, "encoder_layers": layers, "decoder_layers": layers,
                "encoder_attention_heads": heads, "decoder_attention_heads": heads,
                "encoder_ffn_dim": f, "decoder_ffn_dim": f, "vocab_size": vocab,
                "max_position_embeddings": positions, "scale_embedding": True,
                "activation_function": "relu", "is_encoder_decoder": True, "pad_token_id": 1,
                "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
                "tie_word_embeddings": True, "dtype": word}
    name = "BertModel" if shape == "minilm" else "XLMRobertaModel"
    return {"architectures": [name], "model_type": "bert" if shape == "minilm" else "xlm-roberta",
            "hidden_size": d, "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": f, "vocab_size": vocab, "max_position_embeddings": positions,
            "type_vocab_size": 2 if shape == "minilm" else 1, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu", "pad_token_id": 0 if shape == "minilm" else 1, "dtype": word,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


# ---- files ---------------------------------------------------------------------------------------

def write_folder(shape, fmt, folder):
    os.makedirs(folder, exist_ok=True)
    kind, word = (np.float32, "F32") if fmt == "f32" else (np.float16, "F16")

    def put(name, value):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))

    table, at = {}, 0
    for name, x in tensors(shape, np.random.default_rng(1)):
        n = x.size * kind().itemsize
        table[name] = {"dtype": word, "shape": list(x.shape), "data_offsets": [at, at + n]}
        at += n
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, x in tensors(shape, np.random.default_rng(1)):
            f.write(x.astype(kind).tobytes())
    whole, config, names = tokenizer(shape)
    put("config.json", config_of(shape, "float32" if fmt == "f32" else "float16"))
    put("tokenizer.json", whole)
    put("tokenizer_config.json", config | {"model_max_length": SHAPES[shape][5]})
    if shape == "minilm":
        put("vocab.txt", "\n".join(names) + "\n")
    if shape != "m2m100":
        place = "sentence_transformers.models."
        put("modules.json", [
            {"idx": 0, "name": "0", "path": "", "type": place + "Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": place + "Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": place + "Normalize"}])
        put("1_Pooling/config.json", {"word_embedding_dimension": SHAPES[shape][1],
                                      "pooling_mode_cls_token": shape == "bge-m3",
                                      "pooling_mode_mean_tokens": shape == "minilm"})


def q8_0(x):
    blocks = x.reshape(-1, 32)
    d = (np.abs(blocks).max(1) / 127).astype(np.float16)
    inverse = np.where(d > 0, 1 / np.maximum(d.astype(np.float32), 1e-30), 0)
    out = np.zeros((len(blocks), 34), np.uint8)
    out[:, :2] = d.view(np.uint8).reshape(-1, 2)
    out[:, 2:] = np.rint(blocks * inverse[:, None]).astype(np.int8).view(np.uint8)
    return out


GGUF_NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.LayerNorm": "token_embd_norm",
              "embeddings.position_embeddings": "position_embd",
              "embeddings.token_type_embeddings": "token_types",
              "attention.self.query": "attn_q", "attention.self.key": "attn_k",
              "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
              "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
              "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


def gguf_name(name):
    stem, tail = name.rsplit(".", 1)
    if not stem.startswith("encoder.layer."):
        return f"{GGUF_NAMES[stem]}.{tail}"
    number, rest = stem[len("encoder.layer."):].split(".", 1)
    return f"blk.{number}.{GGUF_NAMES[rest]}.{tail}"


def write_gguf(shape, fmt, path):
    layers, d, f, heads, vocab, positions = SHAPES[shape]
    names = tokenizer(shape)[2]
    pieces = [x if x.startswith(("[", "<")) else "\u2581" + x for x in names]
    text = lambda x: struct.pack("<Q", len(x.encode())) + x.encode()
    number = lambda x: struct.pack("<II", 4, x)
    meta = {"general.architecture": struct.pack("<I", 8) + text("bert"),
            "bert.block_count": number(layers), "bert.context_length": number(positions),
            "bert.embedding_length": number(d), "bert.feed_forward_length": number(f),
            "bert.attention.head_count": number(heads),
            "bert.attention.layer_norm_epsilon": struct.pack("<If", 6, 1e-12),
            "bert.attention.causal": struct.pack("<IB", 7, 0), "bert.pooling_type": number(1),
            "tokenizer.ggml.model": struct.pack("<I", 8) + text("bert"),
            "tokenizer.ggml.token_type_count": number(2),
            "tokenizer.ggml.tokens": struct.pack("<IIQ", 9, 8, vocab) + b"".join(map(text, pieces)),
            "tokenizer.ggml.token_type": struct.pack("<IIQ", 9, 5, vocab) + struct.pack(
                f"<{vocab}i", *(3 if i < 5 else 1 for i in range(vocab))),
            "tokenizer.ggml.unknown_token_id": number(1),
            "tokenizer.ggml.padding_token_id": number(0), "tokenizer.ggml.cls_token_id": number(2),
            "tokenizer.ggml.bos_token_id": number(2), "tokenizer.ggml.eos_token_id": number(3),
            "tokenizer.ggml.seperator_token_id": number(3),
            "tokenizer.ggml.mask_token_id": number(4)}
    infos, data = [], []
    at = 0
    for name, x in tensors(shape, np.random.default_rng(1)):
        packed = fmt == "q8_0" and x.ndim == 2 and "_embeddings" not in name
        raw = (q8_0(x) if packed else x).tobytes()
        infos.append(text(gguf_name(name)) + struct.pack(f"<I{x.ndim}QIQ", x.ndim, *x.shape[::-1],
                                                         8 if packed else 0, at))
        data.append(raw + b"\0" * (-len(raw) % 32))
        at += len(data[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(meta))
    head += b"".join(text(k) + v for k, v in meta.items()) + b"".join(infos)
    with open(path, "wb") as out:
        out.write(head + b"\0" * (-len(head) % 32))
        out.write(b"".join(data))


def write_texts(n, least, most, path):
    draw = random.Random(1)
    with open(path, "w") as f:
        for _ in range(n):
            size = draw.randint(least, most) - 2  # two more stand around a text
            f.write(" ".join(f"w{draw.randrange(WORDS)}" for _ in range(size)) + "\n")


def main():
    args = sys.argv[1:]
    if len(args) == 5 and args[0] == "texts":
        write_texts(int(args[1]), int(args[2]), int(args[3]), args[4])
    elif len(args) == 3 and args[0] == "minilm" and args[2].endswith(".gguf") and \
            args[1] in ("f32", "q8_0"):
        write_gguf(*args)
    elif len(args) == 3 and args[0] in SHAPES and args[1] in ("f32", "f16"):
        write_folder(*args)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
