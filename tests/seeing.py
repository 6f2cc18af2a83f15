# tests/seeing.py - a small random model that sees, with what it lacks to be talked to: a vocabulary of words, a
# template and the settings of its pictures.
import base64
import json
import shutil
import struct
import zlib

from program import DATA, SLOW

PICTURES = DATA / "pictures"
# Contents are texts, or lists of texts and pictures.
TEMPLATE = ("{% for m in messages %}{{ '' if m.role == 'user' else ' w3 ' }}{% if m.content is string %}{{ m.content }}"
            "{% else %}{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
            "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
SPECIAL = {58: "<|vision_start|>", 59: "<|vision_end|>", 60: "<|image_pad|>", 63: "<|video_pad|>"}


def seeing_model(path, template=TEMPLATE):
    """The reference checkpoint of Qwen3-VL in the folder `path`, which it makes."""
    shutil.copytree(DATA / "goldens-eyes/qwen3vl", path)
    words = {SPECIAL.get(i, f"w{i}"): i for i in range(64)}
    added = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, t in SPECIAL.items()]
    (path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None, "decoder": None, "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}))
    (path / "chat_template.jinja").write_text(template)
    (path / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 4, "merge_size": 2,
        "temporal_patch_size": 2, "size": {"shortest_edge": 64, "longest_edge": 1024},
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 3, "do_resize": True,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_convert_rgb": True}))
    return path


def slow_picture(path, model, level=1):
    """A picture of 8,192 patches (2,048 with sanitizers), whose tower takes a while, for a model of seeing_model."""
    settings = json.loads((model / "preprocessor_config.json").read_text())
    settings["size"]["longest_edge"] = 16 * (2048 if SLOW else 8192)
    (model / "preprocessor_config.json").write_text(json.dumps(settings))
    rows = b"".join(b"\0" + bytes((x * y + x) % 251 for x in range(3 * 512)) for y in range(256))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 512, 256, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows, level)) + chunk(b"IEND", b""))
    return path


def coded(name):
    """A picture's file in base64."""
    return base64.b64encode((PICTURES / name).read_bytes()).decode()


def data_uri(name):
    return f"data:image/{name.rsplit('.')[-1].replace('jpg', 'jpeg')};base64,{coded(name)}"
