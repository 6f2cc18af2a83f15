#!/usr/bin/env python3
# tools/eyes_goldens.py - small checkpoints of models that see, with random weights, and what
# transformers makes of a picture with them: tests/data/goldens-eyes. Needs torch and transformers
# 5.24.
#
#     tools/eyes_goldens.py FOLDER [FAMILY ...]
#
# golden.safetensors: patches as a tower reads them, their grid (rows and columns of each tile), rows
# of the picture (deepstack rows next to them), ids of a prompt with placeholders, logits of its
# tokens, and ids that follow greedily.
import json
import math
import pathlib
import re
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import (Gemma3Config, Gemma3ForConditionalGeneration, Gemma4Config,
                          Gemma4ForConditionalGeneration, Glm4vConfig, Glm4vForConditionalGeneration,
                          Glm4vMoeConfig, Glm4vMoeForConditionalGeneration, InternVLConfig,
                          InternVLForConditionalGeneration, Kimi_K25Config,
                          Kimi_K25ForConditionalGeneration, Lfm2VlConfig,
                          Lfm2VlForConditionalGeneration, Llama4Config,
                          Llama4ForConditionalGeneration, Mistral3Config,
                          Mistral3ForConditionalGeneration, Qwen2_5_VLConfig,
                          Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, Qwen3_5Config,
                          Qwen3_5ForConditionalGeneration, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration, SmolVLMConfig, SmolVLMForConditionalGeneration)

VOCAB, IMAGE, BREAK, END = 64, 60, 61, 62
GREEDY = 8


def randomise(model, seed):
    """Weights that are numbers of bfloat16, so that files are small; norms near 1."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if p.dim() == 1 and ("norm" in name or "ln" in name) and "bias" not in name:
                p.add_(0.1 * noise)
            elif p.dim() <= 1:
                p.add_(0.1 * noise)
            else:
                p.copy_(noise / math.sqrt(p[0].numel()))
            p.copy_(p.bfloat16().float())
    return model.eval()


def text(**more):
    return dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                max_position_embeddings=256, **more)


def mrope(sections, interleaved):
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections,
            "mrope_interleaved": interleaved}


QWEN_VISION = dict(patch_size=4, spatial_merge_size=2, temporal_patch_size=2, in_channels=3)
QWEN_IDS = dict(image_token_id=IMAGE, video_token_id=63, vision_start_token_id=58,
                vision_end_token_id=59, tie_word_embeddings=False)


def qwen_run(model, rows, columns, seed):
    """Patches of two equal frames, by groups of 2 x 2; one run of placeholders."""
    g = torch.Generator().manual_seed(seed)
    patches = torch.randn(rows * columns, 3, 2, 16, generator=g)
    patches[:, :, 1] = patches[:, :, 0]
    patches = patches.reshape(rows * columns, -1)
    grid = torch.tensor([[1, rows, columns]])
    ids = [5, 6, 7, 58] + [IMAGE] * (rows * columns // 4) + [59, 9, 10, 11]
    out = model.model.get_image_features(patches, grid)
    features = out.pooler_output
    features = features[0] if isinstance(features, (list, tuple)) else features
    deep = [d[0] if isinstance(d, (list, tuple)) else d
            for d in (getattr(out, "deepstack_features", None) or [])]

    def logits(ids):
        kinds = torch.tensor([[int(i == IMAGE) for i in ids]])
        return model(input_ids=torch.tensor([ids]), pixel_values=patches, image_grid_thw=grid,
                     mm_token_type_ids=kinds).logits[0]

    return patches, [[rows, columns]], torch.cat([features, *deep], -1), ids, logits


def qwen3vl():
    config = Qwen3VLConfig(
        text_config=text(rope_parameters=mrope([2, 1, 1], True)),
        vision_config=dict(depth=3, hidden_size=16, intermediate_size=16, num_heads=2,
                           out_hidden_size=32, num_position_embeddings=36,
                           deepstack_visual_indexes=[0, 1], **QWEN_VISION), **QWEN_IDS)
    return qwen_run_of(Qwen3VLForConditionalGeneration(config), 6, 10)


def qwen35():
    config = Qwen3_5Config(
        text_config=text(layer_types=["linear_attention", "full_attention", "linear_attention"],
                         linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8,
                         linear_value_head_dim=8,
                         rope_parameters=dict(mrope([2, 1, 1], True), partial_rotary_factor=1.0)),
        vision_config=dict(depth=2, hidden_size=16, intermediate_size=16, num_heads=2,
                           out_hidden_size=32, num_position_embeddings=16, **QWEN_VISION),
        **QWEN_IDS)
    return qwen_run_of(Qwen3_5ForConditionalGeneration(config), 10, 4)


def qwen2vl():
    config = Qwen2VLConfig(
        text_config=text(rope_parameters=mrope([2, 1, 1], False)),
        vision_config=dict(depth=2, embed_dim=16, hidden_size=32, num_heads=2, mlp_ratio=4,
                           **QWEN_VISION), **QWEN_IDS)
    return qwen_run_of(Qwen2VLForConditionalGeneration(config), 6, 8)


def qwen25vl():
    config = Qwen2_5_VLConfig(
        text_config=text(rope_parameters=mrope([2, 1, 1], False)),
        vision_config=dict(depth=3, hidden_size=16, intermediate_size=16, num_heads=2,
                           out_hidden_size=32, window_size=16, fullatt_block_indexes=[1],
                           **QWEN_VISION), **QWEN_IDS)
    return qwen_run_of(Qwen2_5_VLForConditionalGeneration(config), 6, 10)


def qwen_run_of(model, rows, columns):
    model = randomise(model, 1)
    return model, qwen_run(model, rows, columns, 2)


GLM_VISION = dict(depth=2, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, image_size=24,
                  temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=32)
GLM_IDS = dict(image_token_id=IMAGE, video_token_id=63, image_start_token_id=58, image_end_token_id=59,
               video_start_token_id=56, video_end_token_id=57, tie_word_embeddings=False)


def glm_text(**more):
    """Half of a head rotates: four pairs, two by time."""
    heads = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    return dict(text(), **heads, rope_parameters=dict(mrope([2, 1, 1], False), partial_rotary_factor=0.5), **more)


def glm4v():
    config = Glm4vConfig(text_config=glm_text(), vision_config=GLM_VISION, **GLM_IDS)
    return qwen_run_of(Glm4vForConditionalGeneration(config), 4, 10)


def glm4vmoe():
    config = Glm4vMoeConfig(
        text_config=glm_text(moe_intermediate_size=16, num_experts_per_tok=2, n_routed_experts=4),
        vision_config=GLM_VISION, **GLM_IDS)
    return qwen_run_of(Glm4vMoeForConditionalGeneration(config), 8, 4)


def llama4():
    """Two tiles with marks between them and the whole, each of 4 x 4 patches and a class token."""
    config = Llama4Config(
        text_config=dict(text(), intermediate_size_mlp=32, num_local_experts=2, num_experts_per_tok=1,
                         interleave_moe_layer_step=2, attention_chunk_size=64, pad_token_id=3,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        vision_config=dict(hidden_size=16, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                           patch_size=4, image_size=16, projector_input_dim=24, projector_output_dim=24,
                           vision_output_dim=24),
        image_token_index=IMAGE, boi_token_index=58, eoi_token_index=59)
    model = randomise(Llama4ForConditionalGeneration(config), 1)
    tiles = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    line = [IMAGE] * 4
    ids = [5, 6, 7, 58, *line, BREAK, *line, END, 57, *line, 59, 9, 10]
    out = model.multi_modal_projector(model.get_image_features(tiles, return_dict=True).last_hidden_state)

    def logits(ids):  # the whole model's own way ends in an error in 5.24
        ids = torch.tensor([ids])
        rows = model.get_input_embeddings()(ids)
        rows[ids == IMAGE] = out.flatten(0, 1)
        return model.language_model(inputs_embeds=rows).logits[0]

    return model, (torch.cat([unfold(t, 4) for t in tiles]), [[4, 4]] * 3, out.flatten(0, 1), ids, logits)


def kimik25():
    """5 x 6 places for 6 x 4 patches, which come by rows; latent attention."""
    latent = dict(kv_lora_rank=16, q_lora_rank=None, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
                  moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
                  first_k_dense_replace=1, num_key_value_heads=4, head_dim=8, model_type="deepseek_v3")
    config = Kimi_K25Config(
        text_config=dict(text(), **latent),
        vision_config=dict(patch_size=4, pos_emb_height=5, pos_emb_width=5, num_attention_heads=2,
                           num_hidden_layers=2, hidden_size=16, intermediate_size=24),
        projection_hidden_size=16, image_token_id=IMAGE, video_token_id=63, vision_start_token_id=58,
        vision_end_token_id=59, tie_word_embeddings=False)
    model = randomise(Kimi_K25ForConditionalGeneration(config), 4)
    rows, columns = 6, 4
    patches = torch.randn(rows * columns, 3, 4, 4, generator=torch.Generator().manual_seed(2))
    grid = torch.tensor([[1, rows, columns]])
    ids = [5, 6, 7, 58] + [IMAGE] * (rows * columns // 4) + [59, 9, 10, 11]
    out = model.model.get_image_features(patches, grid)

    def logits(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=patches, image_grid_thw=grid).logits[0]

    names = ("mm_projector.pre_norm", "mm_projector.proj.0", "mm_projector.proj.2")
    return (model, (patches.flatten(1), [[rows, columns]], rows_of(out), ids, logits), kimi_names(model, names),
            lambda config: config)


def kimi_names(model, projector):
    """Its weights under the names of published checkpoints, which transformers 5.24 reads and does not
    write: neighbouring pairs rotate there, and q, k and v of the tower are one matrix."""
    out, state = {}, model.state_dict()

    def pairs(w):
        return w.unflatten(0, (2, 2, -1)).transpose(1, 2).flatten(0, 2)

    for name, w in state.items():
        name = re.sub(r"^model\.language_model\.", "language_model.model.", name.replace("lm_head", "language_model.lm_head"))
        name = re.sub(r"vision_tower\.(layers|final)", r"vision_tower.encoder.\1", name.removeprefix("model."))
        if name.startswith("vision_tower."):
            name = re.sub(r"norm([12])", lambda m: f"norm{int(m[1]) - 1}", name.replace("layers", "blocks"))
            name = re.sub(r"fc([12])", lambda m: f"fc{int(m[1]) - 1}", name.replace("attn.proj", "wo"))
            name = name.replace("pos_emb.position_embeddings", "pos_emb.weight")
        for old, new in zip(("mm_projector.pre_norm", "mm_projector.in_proj", "mm_projector.out_proj"), projector):
            name = name.replace(old, new)
        out[name] = w.bfloat16().contiguous()
    for name in [n for n in out if "attn.q_proj" in n and n.startswith("vision_tower")]:
        q, k, v = (out.pop(name.replace("q_proj", f"{x}_proj")) for x in "qkv")
        out[name.replace("attn.q_proj", "wqkv")] = torch.cat([pairs(q), pairs(k), v]).contiguous()
    for name in [n for n in out if "mlp.experts." in n]:
        w = out.pop(name)
        for e in range(w.shape[0]):
            parts = w[e].chunk(2) if name.endswith("gate_up_proj") else [w[e]]
            for part, one in zip(("gate_proj", "up_proj") if len(parts) == 2 else ("down_proj",), parts):
                out[re.sub(r"experts\..*", f"experts.{e}.{part}.weight", name)] = one.contiguous()
    return out


def kimivl():
    """The same as Kimi-VL, which has other names of the projector and of settings."""
    model, run, _, _ = kimik25()
    names = ("multi_modal_projector.pre_norm", "multi_modal_projector.linear_1", "multi_modal_projector.linear_2")

    def settings(config):
        text = dict(config["text_config"], scoring_func="sigmoid", topk_method="noaux_tc", rope_theta=10000.0)
        del text["rope_parameters"]
        seen = {k: config["vision_config"][k] for k in ("hidden_size", "intermediate_size", "merge_kernel_size",
                                                       "num_attention_heads", "num_hidden_layers", "patch_size")}
        seen.update(model_type="moonvit", init_pos_emb_height=5, init_pos_emb_width=5)
        return {"architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl",
                "media_placeholder_token_id": IMAGE, "text_config": text, "vision_config": seen}

    return model, run, kimi_names(model, names), settings


def unfold(pixels, side):
    """[3, H, W] as patches by rows: [n, 3 * side * side]."""
    c, h, w = pixels.shape
    x = pixels.reshape(c, h // side, side, w // side, side).permute(1, 3, 0, 2, 4)
    return x.reshape(-1, c * side * side)


def mistral3():
    config = Mistral3Config(
        text_config=dict(text(), model_type="ministral3", rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16}),
        vision_config=dict(model_type="pixtral", hidden_act="silu", hidden_size=16, intermediate_size=16,
                           num_hidden_layers=2, num_attention_heads=2, head_dim=8, patch_size=4,
                           image_size=64),
        spatial_merge_size=2, image_token_id=IMAGE, tie_word_embeddings=False)
    model = randomise(Mistral3ForConditionalGeneration(config), 1)
    rows, columns = 6, 8
    pixels = torch.randn(3, rows * 4, columns * 4, generator=torch.Generator().manual_seed(2))
    sizes = torch.tensor([[rows * 4, columns * 4]])
    line = [IMAGE] * (columns // 2)
    ids = [5, 6] + (line + [BREAK]) * (rows // 2 - 1) + line + [END, 9, 10]
    out = model.model.get_image_features(pixels[None], image_sizes=sizes)
    features = out.pooler_output if hasattr(out, "pooler_output") else out
    features = features[0] if isinstance(features, (list, tuple)) else features

    def logits(ids):
        return model(input_ids=torch.tensor([ids]), pixel_values=pixels[None],
                     image_sizes=sizes).logits[0]

    return model, (unfold(pixels, 4), [[rows, columns]], features, ids, logits)


def gemma3():
    """8 x 8 patches, the mean of 2 x 2; the rows of a picture see one another."""
    config = Gemma3Config(
        text_config=dict(text(), query_pre_attn_scalar=8, sliding_window=24,
                         layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
        vision_config=dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=32,
                           num_hidden_layers=2, num_attention_heads=2, patch_size=4, image_size=32,
                           vision_use_head=False),
        mm_tokens_per_image=16, image_token_id=IMAGE, boi_token_id=58, eoi_token_id=59)
    model = randomise(Gemma3ForConditionalGeneration(config), 1)
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    ids = [5, 6, 7] * 5 + [58] + [IMAGE] * 16 + [59, 9, 10]
    out = model.model.get_image_features(pixels)
    return model, (unfold(pixels[0], 4), [[8, 8]], rows_of(out), ids, pictures(
        model, pixel_values=pixels))


def gemma4e():
    """E2B and E4B: matrices with bounds, which cut; rows of a picture are read as text is."""
    config = Gemma4Config(
        text_config=dict(text(), sliding_window=24, hidden_size_per_layer_input=8,
                         vocab_size_per_layer_input=VOCAB, global_head_dim=16, pad_token_id=3,
                         layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
        vision_config=dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                           num_attention_heads=2, num_key_value_heads=2, head_dim=8, patch_size=4,
                           position_embedding_size=16, use_clipped_linears=True),
        audio_config=None, image_token_id=IMAGE, boi_token_id=58, eoi_token_id=59, video_token_id=63,
        audio_token_id=57)
    model = Gemma4ForConditionalGeneration(config)
    g = torch.Generator().manual_seed(3)
    for name, bound in model.model.vision_tower.named_buffers():
        if name.endswith(("put_min", "put_max")):
            cut = 0.4 + torch.rand((), generator=g)
            bound.copy_((-cut if name.endswith("min") else cut).bfloat16())
    return gemma4_run(randomise(model, 5))


def gemma4():
    """6 x 9 patches, the mean of 3 x 3; rows of a picture see one another in layers with windows, and
    have inputs for each layer."""
    config = Gemma4Config(
        text_config=dict(text(), sliding_window=24, hidden_size_per_layer_input=8,
                         vocab_size_per_layer_input=VOCAB, global_head_dim=16, pad_token_id=3,
                         use_bidirectional_attention="vision",
                         layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
        vision_config=dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                           num_attention_heads=2, num_key_value_heads=2, head_dim=8, patch_size=4,
                           position_embedding_size=16, standardize=True),
        audio_config=None, image_token_id=IMAGE, boi_token_id=58, eoi_token_id=59, video_token_id=63,
        audio_token_id=57)
    model = Gemma4ForConditionalGeneration(config)
    model.model.vision_tower.std_bias.copy_(torch.linspace(-0.5, 0.5, 16).bfloat16())
    model.model.vision_tower.std_scale.copy_(torch.linspace(0.5, 1.5, 16).bfloat16())
    return gemma4_run(randomise(model, 1))


def gemma4_run(model):
    rows, columns = 6, 9
    patches = torch.rand(rows * columns, 48, generator=torch.Generator().manual_seed(2))
    places = torch.tensor([[[c, r] for r in range(rows) for c in range(columns)]])
    ids = [5, 6, 7] * 5 + [58] + [IMAGE] * 6 + [59, 9, 10]
    given = dict(pixel_values=patches[None], image_position_ids=places)
    out = model.model.get_image_features(**given)
    return model, (patches, [[rows, columns]], rows_of(out), ids, pictures(model, **given))


def tiled(rows, *after):
    """Ids of a prompt with tiles of so many rows, each after its mark, and the last one after another."""
    marks = [58] * (len(rows) - 1) + [57]
    return [5, 6, 7] + [i for mark, n in zip(marks, rows) for i in [mark] + [IMAGE] * n] + [59, *after]


def smolvlm():
    """Two tiles of 6 x 6 patches and the whole; groups of 2 x 2 side by side."""
    config = SmolVLMConfig(
        text_config=dict(text(), model_type="llama"),
        vision_config=dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                           patch_size=4, image_size=24),
        scale_factor=2, image_token_id=IMAGE, pad_token_id=3, tie_word_embeddings=False)
    model = randomise(SmolVLMForConditionalGeneration(config), 1)
    pixels = torch.randn(1, 3, 3, 24, 24, generator=torch.Generator().manual_seed(2))
    given = dict(pixel_values=pixels)
    features = model.model.get_image_features(**given).pooler_output[0]
    return model, (torch.cat([unfold(p, 4) for p in pixels[0]]), [[6, 6]] * 3, features,
                   tiled([9] * 3, 9, 10), pictures(model, **given))


def internvl_of(kind, **vision):
    """A tile of 6 x 6 patches and the thumbnail, one run of placeholders; a class token, layer scale."""
    config = InternVLConfig(
        text_config=dict(text(), model_type=kind),
        vision_config=dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                           patch_size=4, image_size=24, **vision),
        image_token_id=IMAGE, image_seq_length=9, tie_word_embeddings=False)
    model = randomise(InternVLForConditionalGeneration(config), 3)
    pixels = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(2))
    given = dict(pixel_values=pixels)
    out = model.model.get_image_features(**given)
    ids = [5, 6, 7, 58] + [IMAGE] * 18 + [59, 9, 10]
    return model, (torch.cat([unfold(p, 4) for p in pixels]), [[6, 6]] * 2, rows_of(out), ids,
                   pictures(model, **given))


def internvl():
    return internvl_of("qwen2", attention_bias=True)


def internvl6b():
    """RMS norms, and norms of q and k."""
    return internvl_of("qwen3", norm_type="rms_norm", use_qk_norm=True)


def first_form(folder, to):
    """A checkpoint of InternVL as it was published before transformers had the class."""
    config = json.loads((folder / "config.json").read_text())
    vision = config["vision_config"]
    vision.update(image_size=vision["image_size"][0], patch_size=vision["patch_size"][0],
                  qk_normalization=vision.pop("use_qk_norm"), qkv_bias=vision.pop("attention_bias"))
    config = {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "downsample_ratio": 0.5,
              "dynamic_image_size": True, "force_image_size": 24, "min_dynamic_patch": 1, "max_dynamic_patch": 12,
              "use_thumbnail": True, "ps_version": "v2", "select_layer": -1, "tie_word_embeddings": False,
              "image_token_id": IMAGE, "vision_config": vision, "llm_config": config["text_config"]}
    names = [("multi_modal_projector.layer_norm", "mlp1.0"), ("multi_modal_projector.linear_1", "mlp1.1"),
             ("multi_modal_projector.linear_2", "mlp1.3"), ("vision_tower.", "vision_model."),
             ("cls_token", "class_embedding"), ("position_embeddings", "position_embedding"),
             ("patch_embeddings.projection", "patch_embedding"), ("encoder.layer.", "encoder.layers."),
             ("attention.projection_layer", "attn.proj"), ("attention.", "attn."), ("layernorm_before", "norm1"),
             ("layernorm_after", "norm2"), ("lambda_", "ls")]
    stored, made = load_file(folder / "model.safetensors"), {}
    for name, value in sorted(stored.items()):
        if "q_proj" in name and "vision" in name:
            value = torch.cat([stored[name.replace("q_proj", f"{part}_proj")] for part in "qkv"])
            name = name.replace("q_proj", "qkv")
        elif re.search("vision.*[kv]_proj", name):
            continue
        for old, new in names if "language" not in name and "lm_head" not in name else []:
            name = name.replace(old, new)
        made[name] = value.contiguous()
    to.mkdir(parents=True, exist_ok=True)
    save_file(made, to / "model.safetensors", {"format": "pt"})
    (to / "config.json").write_text(json.dumps(config, separators=(",", ":")) + "\n")
    (to / "golden.safetensors").write_bytes((folder / "golden.safetensors").read_bytes())


def lfm2vl():
    """Tiles of 6 x 4 and 4 x 8 patches, for which the table of 5 x 5 positions is resized."""
    config = Lfm2VlConfig(
        text_config=dict(text(), model_type="lfm2", layer_types=["conv", "full_attention", "conv"],
                         block_auto_adjust_ff_dim=False),
        vision_config=dict(model_type="siglip2_vision_model", hidden_size=16, intermediate_size=32,
                           num_hidden_layers=2, num_attention_heads=2, patch_size=4, num_patches=25,
                           vision_use_head=False),
        projector_hidden_size=24, image_token_id=IMAGE)
    model = randomise(Lfm2VlForConditionalGeneration(config), 1)
    grid = [[6, 4], [4, 8], [2, 2]]
    n = [r * c for r, c in grid]
    values = torch.randn(sum(n), 48, generator=torch.Generator().manual_seed(2))
    padded = torch.nn.utils.rnn.pad_sequence(list(values.split(n)), batch_first=True)
    mask = torch.arange(padded.shape[1])[None] < torch.tensor(n)[:, None]
    given = dict(pixel_values=padded, spatial_shapes=torch.tensor(grid), pixel_attention_mask=mask.long())
    features = torch.cat(model.model.get_image_features(**given).pooler_output)
    return model, (values, grid, features, tiled([x // 4 for x in n], 9, 10), pictures(model, **given))


def rows_of(out):
    features = getattr(out, "pooler_output", out)
    features = features[0] if isinstance(features, (list, tuple)) else features
    return features.reshape(-1, features.shape[-1])


def pictures(model, **given):
    """Logits of a prompt, whose placeholders are those of pictures."""
    def logits(ids):
        kinds = torch.tensor([[int(i == IMAGE) for i in ids]])
        return model(input_ids=torch.tensor([ids]), token_type_ids=kinds, mm_token_type_ids=kinds,
                     **given).logits[0]

    return logits


FAMILIES = {f.__name__: f for f in (qwen3vl, qwen35, qwen2vl, qwen25vl, mistral3, gemma3, gemma4, gemma4e, smolvlm,
                                    internvl, internvl6b, lfm2vl, glm4v, glm4vmoe, kimik25, kimivl, llama4)}


def make(folder, name):
    with torch.no_grad():
        model, (patches, grid, features, ids, logits), *published = FAMILIES[name]()
        rows, now, made = logits(ids), list(ids), []
        for _ in range(GREEDY):
            made.append(int(logits(now)[-1].argmax()))
            now.append(made[-1])
    out = pathlib.Path(folder) / name
    out.mkdir(parents=True, exist_ok=True)
    model.bfloat16().save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((out / "config.json").read_text())
    if published:
        config = published[1](config)
        save_file(published[0], out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(config, separators=(",", ":")) + "\n")
    save_file({"patches": patches.contiguous(), "grid": torch.tensor(grid).flatten(),
               "features": features.float().contiguous(), "logits": rows[-1:].contiguous(),
               "input_ids": torch.tensor(ids), "greedy_ids": torch.tensor(made)},
              out / "golden.safetensors")
    if name == "internvl":
        first_form(out, out.parent / "internvlchat")
    print(name, tuple(patches.shape), tuple(features.shape), len(ids), made, flush=True)


if __name__ == "__main__":
    for family in sys.argv[2:] or FAMILIES:
        make(sys.argv[1], family)
