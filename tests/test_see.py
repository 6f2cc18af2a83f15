# tests/test_see.py - `godwit run --image`: a small random model that sees, with a vocabulary of words and a
# template, tells pictures apart, takes several in their order, and says what is wrong in one line.
import json
import shutil

import pytest

from program import DATA, run

PICTURES = DATA / "pictures"
TEMPLATE = ("{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|>"
            "<|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endfor %}")
SPECIAL = {58: "<|vision_start|>", 59: "<|vision_end|>", 60: "<|image_pad|>", 63: "<|video_pad|>"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The reference checkpoint of Qwen3-VL with what it lacks to be talked to."""
    path = tmp_path_factory.mktemp("see") / "qwen3vl"
    shutil.copytree(DATA / "goldens-eyes/qwen3vl", path)
    words = {SPECIAL.get(i, f"w{i}"): i for i in range(64)}
    added = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for i, t in SPECIAL.items()]
    (path / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None, "decoder": None, "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    (path / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 4, "merge_size": 2,
        "temporal_patch_size": 2, "size": {"shortest_edge": 64, "longest_edge": 1024},
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 3, "do_resize": True,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_convert_rgb": True}))
    return path


def text(folder, *pictures, prompt="w5 w6 w7", check=True, more=()):
    files = [argument for p in pictures for argument in ("--image", p)]
    return run("run", "-m", folder, *files, "-p", prompt, "-n", "12", "--temp", "0", "--no-display-prompt",
               "--no-stats", "--ignore-eos", *more, check=check)


def test_pictures_matter(folder):
    one, other = PICTURES / "rgb.png", PICTURES / "grey.png"
    seen = {order: text(folder, *order).stdout for order in [(one,), (other,), (one, other), (other, one)]}
    assert len(set(seen.values())) == 4, seen
    assert seen[(one,)] == text(folder, one, more=("-b", "3", "-t", "2")).stdout
    shutil.copy(one, folder / "copy.png")
    assert seen[(one,)] == text(folder, folder / "copy.png").stdout


def test_typed_placeholders_are_text(folder):
    """What a user types is no place of a picture."""
    done = text(folder, PICTURES / "rgb.png", prompt="<|image_pad|> w5")
    assert done.stdout


def test_what_is_wrong(folder, tmp_path):
    (tmp_path / "cut.png").write_bytes((PICTURES / "rgb.png").read_bytes()[:-20])
    for picture, words in ((tmp_path / "cut.png", "cut.png"), (tmp_path / "none.png", "none.png")):
        done = text(folder, picture, check=False)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1
    done = text(DATA / "tales-2m-q4_0.gguf", PICTURES / "rgb.png", check=False)
    assert done.returncode == 1 and not done.stdout
    done = text(folder, PICTURES / "rgb.png", check=False, more=("--prompt-cache", tmp_path / "cache"))
    assert done.returncode == 2 and "--prompt-cache" in done.stderr
