#!/usr/bin/env python3
# tools/eyes_mmproj.py - of the small checkpoints in tests/data/goldens-eyes the vision towers as
# mmproj files, and the text of GLM-4.1V, with the keys, names and changes of llama.cpp's converter
# (b11434).
#
#     tools/eyes_mmproj.py FOLDER
import json
import pathlib
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from tensor_files import gguf_text, read_safetensors, write_gguf  # noqa: E402

F32, BF16, ROW = 0, 30, 2


def u32(x):
    return struct.pack("<II", 4, x)


def f32(x):
    return struct.pack("<If", 6, x)


def text(x):
    return struct.pack("<I", 8) + gguf_text(x)


def flags(values):
    return struct.pack("<IIQ", 9, 7, len(values)) + bytes(values)


def frames(name, shape, raw, out):
    """[d, 3, 2, h, w] as two tensors [d, 3, h, w]."""
    d, c, t, h, w = shape
    size = h * w * ROW
    for i in range(t):
        part = b"".join(raw[(k * t + i) * size:(k * t + i + 1) * size] for k in range(d * c))
        out["v.patch_embd.weight" + (".1" if i else "")] = ([d, c, h, w], BF16, part)


def rows(raw, first, count, each):
    return raw[first * each:(first + count) * each]


def interleaved(raw, shape, heads):
    """Rows of a head from halves to pairs, as LlamaModel.permute has them."""
    each, n = shape[1] * ROW, shape[0] // heads
    order = [h * n + half * (n // 2) + i for h in range(heads) for i in range(n // 2)
             for half in (0, 1)]
    return b"".join(rows(raw, r, 1, each) for r in order)


def columns_first(raw, shape, heads):
    """Of q and k the pairs that rotate by column, then those by row, which are in turn."""
    each, d = len(raw) // shape[0], shape[0] // 3
    n = d // heads
    order = [m * d + h * n + 4 * i + 2 * by + part for m in (0, 1) for h in range(heads) for by in (0, 1)
             for i in range(n // 4) for part in (0, 1)]
    return b"".join(rows(raw, r, 1, each) for r in order) + rows(raw, 2 * d, d, each)


QWEN = [(r"patch_embed\.proj\.bias", "v.patch_embd.bias"), (r"pos_embed\.weight", "v.position_embd.weight"),
        (r"blocks\.(\d+)\.norm([12])\.(\w+)", r"v.blk.\1.ln\2.\3"),
        (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", r"v.blk.\1.attn_qkv.\2"),
        (r"blocks\.(\d+)\.attn\.proj\.(\w+)", r"v.blk.\1.attn_out.\2"),
        (r"blocks\.(\d+)\.mlp\.(?:linear_)?fc1\.(\w+)", r"v.blk.\1.ffn_up.\2"),
        (r"blocks\.(\d+)\.mlp\.(?:linear_)?fc2\.(\w+)", r"v.blk.\1.ffn_down.\2"),
        (r"blocks\.(\d+)\.mlp\.(gate|up|down)_proj\.(\w+)", r"v.blk.\1.ffn_\2.\3"),
        (r"merger\.(?:norm|ln_q)\.(\w+)", r"v.post_ln.\1"),
        (r"merger\.(?:linear_fc1|mlp\.0)\.(\w+)", r"mm.0.\1"),
        (r"merger\.(?:linear_fc2|mlp\.2)\.(\w+)", r"mm.2.\1"),
        (r"deepstack_merger_list\.(\d+)\.(?:linear_)?(\w+)\.(\w+)", r"v.deepstack.\1.\2.\3")]
PIXTRAL = [(r"vision_tower\.patch_conv\.weight", "v.patch_embd.weight"),
           (r"vision_tower\.ln_pre\.weight", "v.pre_ln.weight"),
           (r"vision_tower\.transformer\.layers\.(\d+)\.attention\.([qkv])_proj\.weight", r"v.blk.\1.attn_\2.weight"),
           (r"vision_tower\.transformer\.layers\.(\d+)\.attention\.o_proj\.weight", r"v.blk.\1.attn_out.weight"),
           (r"vision_tower\.transformer\.layers\.(\d+)\.attention_norm\.weight", r"v.blk.\1.ln1.weight"),
           (r"vision_tower\.transformer\.layers\.(\d+)\.ffn_norm\.weight", r"v.blk.\1.ln2.weight"),
           (r"vision_tower\.transformer\.layers\.(\d+)\.feed_forward\.(gate|up|down)_proj\.weight", r"v.blk.\1.ffn_\2.weight"),
           (r"multi_modal_projector\.norm\.weight", "mm.input_norm.weight"),
           (r"multi_modal_projector\.patch_merger\.merging_layer\.weight", "mm.patch_merger.weight"),
           (r"multi_modal_projector\.linear_([12])\.(\w+)", r"mm.\1.\2")]


SIGLIP = [(r"embeddings\.patch_embedding\.(\w+)", r"v.patch_embd.\1"),
          (r"embeddings\.position_embedding\.weight", "v.position_embd.weight"),
          (r"encoder\.layers\.(\d+)\.layer_norm([12])\.(\w+)", r"v.blk.\1.ln\2.\3"),
          (r"encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.(\w+)", r"v.blk.\1.attn_\2.\3"),
          (r"encoder\.layers\.(\d+)\.self_attn\.out_proj\.(\w+)", r"v.blk.\1.attn_out.\2"),
          (r"encoder\.layers\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_up.\2"),
          (r"encoder\.layers\.(\d+)\.mlp\.fc2\.(\w+)", r"v.blk.\1.ffn_down.\2"),
          (r"post_layernorm\.(\w+)", r"v.post_ln.\1"),
          (r"multi_modal_projector\.mm_input_projection_weight", "mm.input_projection.weight"),
          (r"multi_modal_projector\.mm_soft_emb_norm\.weight", "mm.soft_emb_norm.weight"),
          (r"connector\.modality_projection\.proj\.weight", "mm.model.fc.weight"),
          (r"multi_modal_projector\.layer_norm\.(\w+)", r"mm.input_norm.\1"),
          (r"multi_modal_projector\.linear_([12])\.(\w+)", r"mm.\1.\2")]
INTERNVL = [(r"embeddings\.cls_token", "v.class_embd"),
            (r"embeddings\.position_embeddings", "v.position_embd.weight"),
            (r"embeddings\.patch_embeddings\.projection\.(\w+)", r"v.patch_embd.\1"),
            (r"encoder\.layer\.(\d+)\.layernorm_before\.(\w+)", r"v.blk.\1.ln1.\2"),
            (r"encoder\.layer\.(\d+)\.layernorm_after\.(\w+)", r"v.blk.\1.ln2.\2"),
            (r"encoder\.layer\.(\d+)\.attention\.([qkv])_proj\.(\w+)", r"v.blk.\1.attn_\2.\3"),
            (r"encoder\.layer\.(\d+)\.attention\.([qk])_norm\.weight", r"v.blk.\1.attn_\2_norm.weight"),
            (r"encoder\.layer\.(\d+)\.attention\.projection_layer\.(\w+)", r"v.blk.\1.attn_out.\2"),
            (r"encoder\.layer\.(\d+)\.lambda_([12])", r"v.blk.\1.ls\2.weight"),
            (r"encoder\.layer\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_up.\2"),
            (r"encoder\.layer\.(\d+)\.mlp\.fc2\.(\w+)", r"v.blk.\1.ffn_down.\2"),
            (r"multi_modal_projector\.layer_norm\.(\w+)", r"mm.model.mlp.0.\1"),
            (r"multi_modal_projector\.linear_1\.(\w+)", r"mm.model.mlp.1.\1"),
            (r"multi_modal_projector\.linear_2\.(\w+)", r"mm.model.mlp.3.\1")]
GEMMA4 = [(r"patch_embedder\.input_proj\.weight", "v.patch_embd.weight"),
          (r"patch_embedder\.position_embedding_table", "v.position_embd.weight"),
          (r"encoder\.layers\.(\d+)\.input_layernorm\.weight", r"v.blk.\1.ln1.weight"),
          (r"encoder\.layers\.(\d+)\.post_attention_layernorm\.weight", r"v.blk.\1.attn_post_norm.weight"),
          (r"encoder\.layers\.(\d+)\.pre_feedforward_layernorm\.weight", r"v.blk.\1.ln2.weight"),
          (r"encoder\.layers\.(\d+)\.post_feedforward_layernorm\.weight", r"v.blk.\1.ffn_post_norm.weight"),
          (r"encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.linear\.weight", r"v.blk.\1.attn_\2.weight"),
          (r"encoder\.layers\.(\d+)\.self_attn\.([qk])_norm\.weight", r"v.blk.\1.attn_\2_norm.weight"),
          (r"encoder\.layers\.(\d+)\.self_attn\.o_proj\.linear\.weight", r"v.blk.\1.attn_out.weight"),
          (r"encoder\.layers\.(\d+)\.mlp\.(gate|up|down)_proj\.linear\.weight", r"v.blk.\1.ffn_\2.weight"),
          (r"encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj\.((?:in|out)put_\w+)", r"v.blk.\1.attn_\2.\3"),
          (r"encoder\.layers\.(\d+)\.self_attn\.o_proj\.((?:in|out)put_\w+)", r"v.blk.\1.attn_out.\2"),
          (r"encoder\.layers\.(\d+)\.mlp\.(gate|up|down)_proj\.((?:in|out)put_\w+)", r"v.blk.\1.ffn_\2.\3"),
          (r"std_(bias|scale)", r"v.std_\1"),
          (r"embed_vision\.embedding_projection\.weight", "mm.input_projection.weight")]
GLM = [(r"patch_embed\.proj\.bias", "v.patch_embd.bias"), (r"embeddings\.position_embedding\.weight", "v.position_embd.weight"),
       (r"post_conv_layernorm\.weight", "v.norm_embd.weight"), (r"post_layernorm\.weight", "v.post_ln.weight"),
       (r"blocks\.(\d+)\.norm([12])\.weight", r"v.blk.\1.ln\2.weight"),
       (r"blocks\.(\d+)\.attn\.qkv\.weight", r"v.blk.\1.attn_qkv.weight"),
       (r"blocks\.(\d+)\.attn\.proj\.weight", r"v.blk.\1.attn_out.weight"),
       (r"blocks\.(\d+)\.mlp\.(gate|up|down)_proj\.weight", r"v.blk.\1.ffn_\2.weight"),
       (r"downsample\.(\w+)", r"mm.patch_merger.\1"), (r"merger\.proj\.weight", "mm.model.fc.weight"),
       (r"merger\.post_projection_norm\.(\w+)", r"mm.post_norm.\1"),
       (r"merger\.(gate|up|down)_proj\.weight", r"mm.\1.weight")]
KIMI = [(r"patch_embed\.proj\.(\w+)", r"v.patch_embd.\1"), (r"patch_embed\.pos_emb\.weight", "v.position_embd.weight"),
        (r"encoder\.blocks\.(\d+)\.norm0\.(\w+)", r"v.blk.\1.ln1.\2"), (r"encoder\.blocks\.(\d+)\.norm1\.(\w+)", r"v.blk.\1.ln2.\2"),
        (r"encoder\.blocks\.(\d+)\.wqkv\.(\w+)", r"v.blk.\1.attn_qkv.\2"),
        (r"encoder\.blocks\.(\d+)\.wo\.(\w+)", r"v.blk.\1.attn_out.\2"),
        (r"encoder\.blocks\.(\d+)\.mlp\.fc0\.(\w+)", r"v.blk.\1.ffn_up.\2"),
        (r"encoder\.blocks\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_down.\2"),
        (r"encoder\.final_layernorm\.(\w+)", r"v.post_ln.\1"), (r"(?:mm|multi_modal)_projector\.pre_norm\.(\w+)", r"mm.input_norm.\1"),
        (r"(?:mm|multi_modal)_projector\.(?:proj\.0|linear_1)\.(\w+)", r"mm.1.\1"),
        (r"(?:mm|multi_modal)_projector\.(?:proj\.2|linear_2)\.(\w+)", r"mm.2.\1")]
LLAMA4 = [(r"patch_embedding\.linear\.weight", "v.patch_embd.weight"), (r"class_embedding", "v.class_embd"),
          (r"positional_embedding_vlm", "v.position_embd.weight"), (r"layernorm_(pre|post)\.(\w+)", r"v.\1_ln.\2"),
          (r"model\.layers\.(\d+)\.input_layernorm\.(\w+)", r"v.blk.\1.ln1.\2"),
          (r"model\.layers\.(\d+)\.post_attention_layernorm\.(\w+)", r"v.blk.\1.ln2.\2"),
          (r"model\.layers\.(\d+)\.self_attn\.([qkv])_proj\.(\w+)", r"v.blk.\1.attn_\2.\3"),
          (r"model\.layers\.(\d+)\.self_attn\.o_proj\.(\w+)", r"v.blk.\1.attn_out.\2"),
          (r"model\.layers\.(\d+)\.mlp\.fc1\.(\w+)", r"v.blk.\1.ffn_up.\2"),
          (r"model\.layers\.(\d+)\.mlp\.fc2\.(\w+)", r"v.blk.\1.ffn_down.\2"),
          (r"vision_adapter\.mlp\.fc([12])\.weight", r"mm.model.mlp.\1.weight"),
          (r"multi_modal_projector\.linear_1\.weight", "mm.model.fc.weight")]
TABLES = {"pixtral": PIXTRAL, "siglip_vision_model": SIGLIP, "gemma4_vision": GEMMA4,
          "smolvlm_vision": SIGLIP, "siglip2_vision_model": SIGLIP, "internvl_vision": INTERNVL,
          "glm4v_vision": GLM, "glm4v_moe_vision": GLM, "kimi_k25_vision": KIMI, "moonvit": KIMI,
          "llama4_vision_model": LLAMA4}
BY_PIXEL = ("gemma4_vision", "siglip2_vision_model")  # whose patches are stored as rows of pixels


def plus_one(raw):
    """bfloat16 as float32, one more."""
    values = struct.unpack(f"<{len(raw) // 2}H", raw)
    return struct.pack(f"<{len(values)}f", *(struct.unpack("<f", struct.pack("<I", v << 16))[0] + 1
                                             for v in values))


def planes(raw, shape):
    """Rows of pixels [area, 3] as [3, area]."""
    area = shape[1] // 3
    return b"".join(raw[(r * shape[1] + p * 3 + c) * ROW:][:ROW] for r in range(shape[0])
                    for c in range(3) for p in range(area))


def rename(name, table):
    for pattern, to in table:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, to, name)
    return None


def tensors_of(stored, config, split):
    vision, out = config["vision_config"], {}
    taps = vision.get("deepstack_visual_indexes", [])
    pixtral = vision["model_type"] == "pixtral"
    for name, (_, shape, raw) in stored.items():
        short = re.sub(r"^(model\.)?(visual\.|vision_model\.|vision_tower\.(?!transformer|patch_conv|ln_pre)"
                       r"(vision_model\.)?)?", "", name)
        if short == "patch_embed.proj.weight" and len(shape) == 5:
            frames(short, shape, raw, out)
            continue
        if name.startswith("language_model."):
            continue
        to = rename(short, TABLES.get(vision["model_type"], QWEN))
        if to is None:
            continue
        to = re.sub(r"deepstack\.(\d+)", lambda m: f"deepstack.{taps[int(m[1])]}", to)
        if vision["model_type"] == "kimi_k25_vision" and "attn_qkv" in to:
            raw = columns_first(raw, shape, vision["num_attention_heads"])
        if "position_embd" in to and len(shape) == 3 and split:
            shape = [shape[0] * shape[1], shape[2]]
        if split and "attn_qkv" in to:
            each = len(raw) // shape[0]
            for i, part in enumerate("qkv"):
                n = shape[0] // 3
                out[to.replace("qkv", part)] = ([n, *shape[1:]], BF16, rows(raw, i * n, n, each))
            continue
        if pixtral and re.search(r"attn_[qk]\.", to):
            raw = interleaved(raw, shape, vision["num_attention_heads"])
        if "soft_emb_norm" in to:
            out[to] = (shape, F32, plus_one(raw))
            continue
        if to == "v.patch_embd.weight" and vision["model_type"] in BY_PIXEL:
            side = vision["patch_size"]
            shape, raw = [shape[0], 3, side, side], planes(raw, shape)
        out[to] = (shape, BF16, raw)
    return out


LARGE = ("pixtral", "llama4", "glm4v", "kimivl", "kimik25")  # their epsilon


def pairs_of(config):
    v = config["vision_config"]
    kind = {"qwen3_vl": "qwen3vl_merger", "qwen3_5": "qwen3vl_merger", "qwen2_vl": "qwen2vl_merger",
            "qwen2_5_vl": "qwen2.5vl_merger", "mistral3": "pixtral", "gemma3": "gemma3",
            "gemma4": "gemma4v", "smolvlm": "idefics3", "internvl": "internvl",
            "lfm2_vl": "lfm2", "glm4v": "glm4v", "glm4v_moe": "glm4v", "kimi_k25": "kimik25",
            "kimi_vl": "kimivl", "llama4": "llama4"}[config["model_type"]]
    width = v.get("embed_dim", v["hidden_size"])
    for key in ("patch_size", "image_size"):
        if isinstance(v.get(key), list):
            v[key] = v[key][0]
    pairs = {"general.architecture": text("clip"), "clip.has_vision_encoder": struct.pack("<IB", 7, 1),
             "clip.projector_type": text(kind), "clip.vision.embedding_length": u32(width),
             "clip.vision.feed_forward_length": u32(v.get("intermediate_size") or v["hidden_size"]),
             "clip.vision.block_count": u32(v.get("depth") or v["num_hidden_layers"]),
             "clip.vision.attention.head_count": u32(v.get("num_heads") or v["num_attention_heads"]),
             "clip.vision.attention.layer_norm_epsilon": f32(1e-5 if kind in LARGE else 1e-6),
             "clip.vision.projection_dim": u32(config["text_config"]["hidden_size"]),
             "clip.vision.patch_size": u32(v["patch_size"])}
    side = int(v.get("num_position_embeddings", 0) ** 0.5)
    pairs["clip.vision.image_size"] = u32(side * v["patch_size"] or v.get("image_size", 256 if kind == "lfm2" else 64))
    if kind.startswith("kimi"):
        high = v.get("init_pos_emb_height") or v["pos_emb_height"]
        pairs["clip.vision.image_size"] = u32(high * v["patch_size"])
        pairs["clip.vision.projector.scale_factor"] = u32(v["merge_kernel_size"][0])
    if kind == "kimik25":
        pairs["clip.vision.pos_emb_height"] = pairs["clip.vision.pos_emb_width"] = u32(v["pos_emb_height"])
    if kind in ("gemma3", "idefics3", "internvl", "lfm2", "llama4"):
        pairs["clip.vision.projector.scale_factor"] = u32(2)
    if kind == "qwen3vl_merger":
        taps = v.get("deepstack_visual_indexes", [])
        pairs["clip.vision.is_deepstack_layers"] = flags([i in taps for i in range(v["depth"])])
    if kind in ("qwen3vl_merger", "pixtral", "glm4v"):
        pairs["clip.vision.spatial_merge_size"] = u32(2)
    if kind == "qwen2.5vl_merger":
        pairs["clip.vision.n_wa_pattern"] = u32(v["fullatt_block_indexes"][0] + 1)
        pairs["clip.vision.window_size"] = u32(v["window_size"])
    return pairs, kind


# ---- the text of GLM-4.1V, whose q and k are other than in the folder

GLM_TEXT = [(r"embed_tokens\.weight", "token_embd.weight"), (r"norm\.weight", "output_norm.weight"),
            (r"lm_head\.weight", "output.weight"), (r"layers\.(\d+)\.input_layernorm\.weight", r"blk.\1.attn_norm.weight"),
            (r"layers\.(\d+)\.post_attention_layernorm\.weight", r"blk.\1.ffn_norm.weight"),
            (r"layers\.(\d+)\.post_self_attn_layernorm\.weight", r"blk.\1.post_attention_norm.weight"),
            (r"layers\.(\d+)\.post_mlp_layernorm\.weight", r"blk.\1.post_ffw_norm.weight"),
            (r"layers\.(\d+)\.self_attn\.([qkv])_proj\.(\w+)", r"blk.\1.attn_\2.\3"),
            (r"layers\.(\d+)\.self_attn\.o_proj\.weight", r"blk.\1.attn_output.weight"),
            (r"layers\.(\d+)\.mlp\.gate_up_proj\.weight", r"blk.\1.ffn_up.weight"),
            (r"layers\.(\d+)\.mlp\.down_proj\.weight", r"blk.\1.ffn_down.weight")]


def halves(raw, shape, head, turning):
    """Of each head the even ones of the rows that turn, then the odd ones, then the rest."""
    each = len(raw) // shape[0]
    order = [h * head + r for h in range(shape[0] // head)
             for r in [*range(0, turning, 2), *range(1, turning, 2), *range(turning, head)]]
    return b"".join(rows(raw, r, 1, each) for r in order)


def write_glm_text(folder, config, stored):
    c, tensors = config["text_config"], {}
    rope, head = c["rope_parameters"], c["head_dim"]
    turning = int(head * rope["partial_rotary_factor"])
    for name, (_, shape, raw) in stored.items():
        to = rename(name.removeprefix("model.language_model."), GLM_TEXT)
        if to is not None:
            raw = halves(raw, shape, head, turning) if re.search(r"attn_[qk]\.", to) else raw
            tensors[to] = (shape, BF16, raw)
    pairs = {"general.architecture": text("glm4"), "glm4.context_length": u32(c["max_position_embeddings"]),
             "glm4.embedding_length": u32(c["hidden_size"]), "glm4.block_count": u32(c["num_hidden_layers"]),
             "glm4.feed_forward_length": u32(c["intermediate_size"]), "glm4.attention.head_count": u32(c["num_attention_heads"]),
             "glm4.attention.head_count_kv": u32(c["num_key_value_heads"]), "glm4.attention.key_length": u32(head),
             "glm4.attention.value_length": u32(head), "glm4.attention.layer_norm_rms_epsilon": f32(c["rms_norm_eps"]),
             "glm4.rope.freq_base": f32(rope["rope_theta"]), "glm4.rope.dimension_count": u32(turning),
             "glm4.rope.dimension_sections": struct.pack("<IIQ4i", 9, 5, 4, *rope["mrope_section"], 0),
             "glm4.vocab_size": u32(c["vocab_size"])}
    write_gguf(folder / "text.gguf", pairs, tensors)


for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    config = json.loads((folder / "config.json").read_text())
    if "text_config" not in config:  # another form of a checkpoint that is there
        continue
    pairs, kind = pairs_of(config)
    split = kind in ("qwen2vl_merger", "qwen2.5vl_merger", "kimivl")
    tensors = tensors_of(read_safetensors(folder / "model.safetensors"), config, split)
    write_gguf(folder / "mmproj.gguf", pairs, tensors)
    if config["model_type"] == "glm4v":
        write_glm_text(folder, config, read_safetensors(folder / "model.safetensors"))
    print(folder.name, kind, len(tensors))
    if kind == "idefics3":  # with up and down exchanged, as converters of early 2025 wrote them
        other = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
        write_gguf(folder / "mmproj-old.gguf", pairs, {
            re.sub("ffn_(up|down)", lambda m: other[m[0]], name): t for name, t in tensors.items()})
