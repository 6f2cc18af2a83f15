#!/usr/bin/env python3
# tests/data/pictures/make.py FOLDER - what tests/test_picture.c compares with: pixels of Pillow and
# torchvision, patches of transformers. Needs pillow 13, torch, torchvision 0.29, transformers 5.24.
#   resize.txt     rule filter seed width height to_width to_height sha256
#   processors.txt settings, then "= seed width height tiles tokens sha256 sha256" of what they make: the
#                  patches, and what stands in the text for the picture (-: not known)
#   NAME.jpg, .png, .webp and decode.txt: "NAME width height sha256"
# Pictures are a hash of the place of each value, so that C can make them too.
import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import types
import warnings
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms.v2 import functional as tv
from transformers.image_transforms import convert_to_rgb
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor
from transformers.models.glm46v.image_processing_glm46v import Glm46VImageProcessor
from transformers.models.glm4v.image_processing_glm4v import Glm4vImageProcessor
from transformers.models.kimi_k25.image_processing_kimi_k25 import Kimi_K25ImageProcessor
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor
from transformers.models.llama4.image_processing_llama4 import Llama4ImageProcessor
from transformers.models.llama4.processing_llama4 import Llama4Processor
from transformers.models.pixtral.image_processing_pixtral import PixtralImageProcessor
from transformers.models.pixtral.processing_pixtral import PixtralProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.siglip.image_processing_siglip import SiglipImageProcessor
from transformers.models.smolvlm.image_processing_smolvlm import SmolVLMImageProcessor
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

out = pathlib.Path(sys.argv[1])
warnings.simplefilter("ignore")


def made(seed, width, height, channels=3):
    """[height, width, channels]; of every third seed only 0 and 255, of every third a ramp."""
    y, x, c = np.meshgrid(np.arange(height, dtype=np.uint32), np.arange(width, dtype=np.uint32),
                          np.arange(channels, dtype=np.uint32), indexing="ij")
    v = x * np.uint32(73856093) ^ y * np.uint32(19349663) ^ c * np.uint32(83492791)
    v ^= np.uint32(seed * 2654435761 % 2**32)
    v ^= v >> np.uint32(15)
    v *= np.uint32(2246822519)
    v ^= v >> np.uint32(13)
    v >>= np.uint32(24)
    if seed % 3 == 1:
        v = (v >> np.uint32(7)) * np.uint32(255)
    if seed % 3 == 2:
        v = (x * np.uint32(255) // np.uint32(width) + y + c * np.uint32(40) + (v >> np.uint32(5))) & np.uint32(255)
    return v.astype(np.uint8)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


# ---- resizing

def resize_lines():
    pick = random.Random(61)
    modes = {1: Mode.LANCZOS, 2: Mode.BILINEAR, 3: Mode.BICUBIC}
    for seed in range(200):
        sizes = [pick.randint(1, 240) for _ in range(2)] + [pick.randint(1, 300) for _ in range(2)]
        if seed % 10 == 0:
            sizes[2] = sizes[0]
        if seed % 10 == 1:
            sizes[3] = sizes[1]
        if seed % 10 == 2:
            sizes[:2] = [pick.randint(1, 9), pick.randint(300, 900)]
        width, height, to_width, to_height = sizes
        pixels = made(seed, width, height)
        where = f"{seed} {width} {height} {to_width} {to_height}"
        for f in (1 + seed % 5, 1 + (seed + 2) % 5):
            small = Image.fromarray(pixels).resize((to_width, to_height), f)
            yield f"pil {f} {where} {digest(np.asarray(small))}"
        f = 1 + seed % 3
        tensor = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        small = tv.resize(tensor, [to_height, to_width], interpolation=modes[f], antialias=True)
        yield f"torchvision {f} {where} {digest(small.permute(1, 2, 0).numpy())}"


# ---- processors

def cut(pictures, side):
    """[n, 3, h, w] to [patches, 3 * side * side]."""
    rows = []
    for x in pictures:
        x = np.asarray(x)
        h, w = x.shape[1] // side, x.shape[2] // side
        x = x[:, :h * side, :w * side].reshape(3, h, side, w, side)
        rows.append(x.transpose(1, 3, 0, 2, 4).reshape(h * w, -1))
    return np.concatenate(rows)


def names(**members):
    """Stands for a processor whose tokenizer is not here: its methods need these members only."""
    return types.SimpleNamespace(**members)


def qwen(p, image):
    o = p(images=[image], return_tensors="pt")
    n = int(o["image_grid_thw"][0].prod()) // 4
    return o["pixel_values"].numpy(), 1, n, "<|image_pad|>" * n


def glm4v(p, image):
    o = p(images=[image], return_tensors="pt")
    n = int(o["image_grid_thw"][0].prod()) // 4
    return o["pixel_values"].numpy(), 1, n, "<|image|>" * n


def fixed(side, merge):
    def make(p, image):
        o = p(images=image, return_tensors="pt")["pixel_values"].numpy()
        rows = cut(o, side)
        n = (o.shape[2] // side // merge) * (o.shape[3] // side // merge)
        soft = "<image_soft_token>" * n
        return rows, 1, n, f"\n\n<start_of_image>{soft}<end_of_image>\n\n" if merge == 4 else None
    return make


def gemma4(p, image):
    o = p(images=image, return_tensors="pt")
    n = int(o["num_soft_tokens_per_image"][0])
    return o["pixel_values"][0].numpy()[:n * 9], 1, n, f"<|image>{'<|image|>' * n}<image|>"


def pixtral(p, image):
    o = p(images=image, return_tensors="pt", patch_size=28)
    h, w = o["image_sizes"][0]
    me = names(patch_size=14, spatial_merge_size=2, image_token="[IMG]", image_break_token="[IMG_BREAK]",
               image_end_token="[IMG_END]")
    text = PixtralProcessor.replace_image_token(me, o, 0)
    return cut(o["pixel_values"].numpy(), 14), 1, int(h) // 28 * (int(w) // 28), text


def smolvlm(p, image):
    o = p(images=[[image]], return_tensors="pt", return_row_col_info=True)
    pixels = o["pixel_values"][0].numpy()
    rows = cut(pixels, 16)
    text = get_image_prompt_string(o["rows"][0][0], o["cols"][0][0], len(rows) // 16 // len(pixels),
                                   fake_token_around_image="<fake_token_around_image>",
                                   image_token="<image>", global_image_token="<global-img>")
    return rows, len(pixels), len(rows) // 16, text


def internvl(p, image):
    o = p(images=image, return_tensors="pt")["pixel_values"].numpy()
    rows = cut(o, 14)
    return rows, len(o), len(rows) // 4, f"<img>{'<IMG_CONTEXT>' * (len(rows) // 4)}</img>"


def lfm2(p, image):
    o = p(images=image, return_tensors="pt", return_row_col_info=True)
    me = names(image_start_token="<|image_start|>", image_end_token="<|image_end|>", image_token="<image>",
               image_thumbnail_token="<|img_thumbnail|>", image_processor=p)
    for name in ("_build_image_tokens", "_get_image_num_tokens", "_compute_tokens_per_tile",
                 "_compute_tokens_for_image"):
        setattr(me, name, types.MethodType(getattr(Lfm2VlProcessor, name), me))
    text = Lfm2VlProcessor.replace_image_token(me, o, 0, use_image_special_tokens=True)
    rows = [v.numpy()[:int(m.sum())] for v, m in zip(o["pixel_values"], o["pixel_attention_mask"])]
    return np.concatenate(rows), len(rows), sum(map(len, rows)) // 4, text


def llama4(p, image):
    whole = p(images=image, return_tensors="pt")
    o = whole["pixel_values"]
    o = o[0] if o.ndim == 5 else o
    rows = cut(o.float().numpy(), 14)
    text = Llama4Processor._prompt_split_image(None, whole["aspect_ratios"][0], len(rows) // 4 // len(o))
    return rows, len(o), len(rows) // 4, text


def kimi(p, image):
    o = p(images=image, return_tensors="pt")
    v = o["pixel_values"].numpy()
    return v.reshape(len(v), -1), 1, len(v) // 4, "<|media_pad|>" * (len(v) // 4)


def edges(low, high):
    return {"shortest_edge": low, "longest_edge": high}


PROCESSORS = [  # the processor, what config.json adds, what it makes of a picture, most pixels a side
    (Qwen2VLImageProcessor(), {}, qwen, 400),
    (Qwen2VLImageProcessor(patch_size=16, size=edges(65536, 16777216), image_mean=[.5] * 3,
                           image_std=[.5] * 3), {}, qwen, 300),
    (Qwen2VLImageProcessor(size=edges(3136, 50000)), {}, qwen, 900),
    (Gemma3ImageProcessor(size={"height": 224, "width": 224}),
     {"mm_tokens_per_image": 16, "vision_config": {"patch_size": 14}}, fixed(14, 4), 600),
    (SiglipImageProcessor(size={"height": 384, "width": 384}), {"vision_config": {"patch_size": 14}},
     fixed(14, 1), 600),
    (Gemma4ImageProcessor(max_soft_tokens=70), {}, gemma4, 500),
    (Gemma4ImageProcessor(), {}, gemma4, 500),
    (PixtralImageProcessor(size={"longest_edge": 448}, patch_size=14), {"spatial_merge_size": 2}, pixtral, 900),
    (SmolVLMImageProcessor(size={"longest_edge": 384}, max_image_size={"longest_edge": 128}),
     {"scale_factor": 4, "vision_config": {"patch_size": 16}}, smolvlm, 500),
    (SmolVLMImageProcessor(do_image_splitting=False, max_image_size={"longest_edge": 128}),
     {"scale_factor": 4, "vision_config": {"patch_size": 16}}, smolvlm, 500),
    (GotOcr2ImageProcessor(crop_to_patches=True, size={"height": 112, "width": 112}),
     {"downsample_ratio": 0.5, "vision_config": {"patch_size": [14, 14]}}, internvl, 600),
    (GotOcr2ImageProcessor(size={"height": 112, "width": 112}),
     {"downsample_ratio": 0.5, "vision_config": {"patch_size": [14, 14]}}, internvl, 600),
    (Lfm2VlImageProcessor(max_tiles=4, min_image_tokens=16, max_image_tokens=64, tile_size=128), {}, lfm2, 700),
    (Lfm2VlImageProcessor(do_image_splitting=False), {}, lfm2, 700),
    (Llama4ImageProcessor(size={"height": 112, "width": 112}),
     {"vision_config": {"patch_size": 14, "pixel_shuffle_ratio": 0.5}}, llama4, 600),
    (Llama4ImageProcessor(size={"height": 112, "width": 112}, max_patches=5),
     {"vision_config": {"patch_size": 14, "pixel_shuffle_ratio": 0.5}}, llama4, 600),
    (Kimi_K25ImageProcessor(), {}, kimi, 300),
    (Kimi_K25ImageProcessor(max_patches=64), {}, kimi, 500),
    (Kimi_K25ImageProcessor(size={"max_height": 8, "max_width": 8}), {}, kimi, 500),
    (Glm4vImageProcessor(), {}, glm4v, 200),
    (Glm46VImageProcessor(size=edges(12544, 90000)), {}, glm4v, 900),
]


def processor_lines():
    pick = random.Random(5)
    for number, (processor, config, make, most) in enumerate(PROCESSORS):
        settings = json.loads(processor.to_json_string())
        yield json.dumps({"settings": settings, "config": config}, separators=(",", ":"))
        for seed in range(6):
            width, height = pick.randint(1, most), pick.randint(1, most)
            if seed == 5:
                width, height = pick.randint(2, 6), pick.randint(200, 390)
            rows, tiles, tokens, text = make(processor, Image.fromarray(made(seed, width, height)))
            yield f"= {seed} {width} {height} {tiles} {tokens} {digest(rows.astype(np.float32))} " + \
                ("-" if text is None else hashlib.sha256(text.encode()).hexdigest())


# ---- files

def png(width, height, depth, color, rows, chunks=()):
    """A PNG of rows as they are: of what Pillow does not write."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + r for r in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunk(*c) for c in chunks) + \
        chunk(b"IDAT", body) + chunk(b"IEND", b"")


def saved(image, kind, **options):
    to = io.BytesIO()
    image.save(to, kind, **options)
    return to.getvalue()


def files():
    rgb, rgba = Image.fromarray(made(2, 37, 23)), Image.fromarray(made(2, 37, 23, 4), "RGBA")
    grey, tall = rgb.convert("L"), Image.fromarray(made(2, 19, 41))
    palette = rgb.quantize(30)
    yield "rgb.jpg", saved(rgb, "JPEG", quality=70)
    yield "rgb444.jpg", saved(rgb, "JPEG", quality=90, subsampling=0)
    yield "rgb422.jpg", saved(rgb, "JPEG", quality=90, subsampling=1)
    yield "progressive.jpg", saved(tall, "JPEG", quality=60, progressive=True)
    yield "grey.jpg", saved(grey, "JPEG", quality=60)
    yield "cmyk.jpg", saved(rgb.convert("CMYK"), "JPEG", quality=60)
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        yield f"turn{turn}.jpg", saved(tall.crop((0, 0, 11, 7)), "JPEG", quality=80, exif=exif)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "turn.png", saved(tall.crop((0, 0, 5, 9)), "PNG", exif=exif)
    yield "turn.webp", saved(tall.crop((0, 0, 5, 9)), "WEBP", lossless=True, exif=exif)
    yield "rgb.png", saved(rgb.crop((0, 0, 9, 7)), "PNG")
    yield "rgba.png", saved(rgba.crop((0, 0, 16, 16)), "PNG")
    yield "grey.png", saved(grey.crop((0, 0, 9, 7)), "PNG")
    yield "greya.png", saved(rgba.crop((0, 0, 16, 16)).convert("LA"), "PNG")
    yield "bits.png", saved(grey.convert("1"), "PNG")
    yield "palette.png", saved(palette, "PNG")
    yield "palettea.png", saved(palette, "PNG", transparency=bytes(range(0, 240, 8)))
    yield "key.png", saved(grey.crop((0, 0, 9, 7)), "PNG", transparency=grey.getpixel((3, 3)))
    yield "grey2.png", png(7, 3, 2, 0, [bytes([0x1b, 0xe4]), bytes([0xff, 0x00]), bytes([0x27, 0x9c])])
    yield "key2.png", png(7, 3, 2, 0, [bytes([0x1b, 0xe4]), bytes([0xff, 0x00]), bytes([0x27, 0x9c])], [(b"tRNS", b"\0\1")])
    yield "key4.png", png(6, 2, 4, 0, [bytes([0x05, 0xf5, 0x1a]), bytes([0x50, 0x0c, 0x55])], [(b"tRNS", b"\0\5")])
    yield "key40.png", png(6, 2, 4, 0, [bytes([0x05, 0xf5, 0x1a]), bytes([0x50, 0x0c, 0x55])], [(b"tRNS", b"\0\0")])
    yield "grey16.png", png(5, 2, 16, 0, [made(9, 5, 1, 2).tobytes(), made(6, 5, 1, 2).tobytes()])
    yield "rgb16.png", png(5, 2, 16, 2, [made(9, 5, 1, 6).tobytes(), made(6, 5, 1, 6).tobytes()])
    yield "rgba16.png", png(5, 2, 16, 6, [made(9, 5, 1, 8).tobytes(), made(6, 5, 1, 8).tobytes()])
    yield "many.png", saved(rgb.crop((0, 0, 6, 6)), "PNG", save_all=True, append_images=[rgb.crop((6, 6, 12, 12))])
    yield "lossy.webp", saved(rgb, "WEBP", quality=60)
    yield "lossya.webp", saved(rgba, "WEBP", quality=60)
    yield "lossless.webp", saved(rgb.crop((0, 0, 9, 7)), "WEBP", lossless=True)
    yield "losslessa.webp", saved(rgba.crop((0, 0, 9, 7)), "WEBP", lossless=True, exact=True)
    yield "many.webp", saved(rgb.crop((0, 0, 8, 8)), "WEBP", lossless=True, save_all=True,
                             append_images=[rgb.crop((8, 8, 16, 16))])


def decode_lines():
    for name, data in files():
        (out / name).write_bytes(data)
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        pixels = convert_to_rgb(image, return_numpy=True)
        if image.mode == "I;16":  # Pillow clips to 255, so that nearly all is white
            pixels = np.repeat(np.asarray(image)[..., None] >> 8, 3, -1).astype(np.uint8)
        yield f"{name} {pixels.shape[1]} {pixels.shape[0]} {digest(pixels)}"


for name, lines in (("resize", resize_lines), ("processors", processor_lines), ("decode", decode_lines)):
    (out / f"{name}.txt").write_text("".join(line + "\n" for line in lines()))
