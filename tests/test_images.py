# tests/test_images.py - pictures in a conversation as `godwit template` shows them, and what is said of
# bad ones. A folder needs no weights for this: a tokenizer, a template, the image processor's settings.
import json
import shutil

import pytest

import program
from tensor_files import gguf_text, write_gguf

PICTURES = program.DATA / "pictures"
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}"
            "{% else %}{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|>"
            "<|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}")
MODEL = program.DATA / "tales-2m-q4_0.gguf"


def u32(value):
    return (4).to_bytes(4, "little") + value.to_bytes(4, "little")


def words(value):
    return (8).to_bytes(4, "little") + gguf_text(value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of a request: template, tower, and messages with two pictures."""
    path = tmp_path_factory.mktemp("images")
    (path / "chat.jinja").write_text(TEMPLATE)
    write_gguf(path / "mmproj.gguf", {
        "general.architecture": words("clip"), "clip.projector_type": words("qwen3vl_merger"),
        "clip.vision.patch_size": u32(16), "clip.vision.spatial_merge_size": u32(2)}, {})
    parts = [{"type": "image"}, {"type": "text", "text": "<|image_pad|> and"}, {"type": "image"}]
    (path / "two.json").write_text(json.dumps({"messages": [{"role": "user", "content": parts}]}))
    return path


def template(folder, *pictures, check=True, mmproj="mmproj.gguf"):
    files = [argument for p in pictures for argument in ("--image", p)]
    return program.run("template", "-m", MODEL, "--mmproj", folder / mmproj, "--chat-template",
                       folder / "chat.jinja", "-f", folder / "two.json", *files, check=check)


def test_pictures_in_their_order(folder):
    """37 x 23 and 9 x 7 pixels are enlarged to 65,536: 352 x 224 and 320 x 256."""
    text = template(folder, PICTURES / "rgb.jpg", PICTURES / "rgb.png").stdout
    first, typed, second = text.partition("<|image_pad|> and")
    assert typed, "what the user wrote stays"
    assert first.count("<|image_pad|>") == 11 * 7
    assert second.count("<|image_pad|>") == 10 * 8
    assert first.startswith("<|im_start|>user\n<|vision_start|><|image_pad|>")


def test_template_of_texts_alone(folder):
    """One that puts texts together, or passes over other parts: the pictures stand where the message has them."""
    for content in ("'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n'",
                    "'<|im_start|>' + m.role + '\\n' + (m.content if m.content is string else '') + '<|im_end|>\\n'"):
        (folder / "texts.jinja").write_text("{% for m in messages %}{{ " + content + " }}{% endfor %}")
        done = program.run("template", "-m", MODEL, "--mmproj", folder / "mmproj.gguf", "--chat-template",
                           folder / "texts.jinja", "-f", folder / "two.json", "--image", PICTURES / "rgb.jpg",
                           "--image", PICTURES / "rgb.png").stdout
        assert done == template(folder, PICTURES / "rgb.jpg", PICTURES / "rgb.png").stdout


def test_wrong_number(folder):
    done = template(folder, PICTURES / "rgb.jpg", check=False)
    assert done.returncode == 1 and "places for 2 pictures, 1 are given" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("data, word", [
    (b"", "no picture"), (b"GIF89a" + bytes(40), "GIF"), (b"\xff\xd8\xff\xe0" + bytes(40), "JPEG"),
    ((PICTURES / "rgb.png").read_bytes()[:-20], "ends within it"),
    ((PICTURES / "rgb.jpg").read_bytes()[:-200], "ends within"),
    ((PICTURES / "lossy.webp").read_bytes()[:-20], "ends within it")])
def test_bad_pictures(folder, tmp_path, data, word):
    bad = tmp_path / "bad.bin"
    bad.write_bytes(data)
    done = template(folder, bad, bad, check=False)
    assert done.returncode == 1 and not done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and word in lines[0] and "bad.bin" in lines[0]


def test_no_tower(folder):
    done = program.run("template", "-m", MODEL, "--chat-template", folder / "chat.jinja", "-f",
                       folder / "two.json", "--image", PICTURES / "rgb.jpg", check=False)
    assert done.returncode == 1 and "mmproj" in done.stderr
    shutil.copy(MODEL, folder / "text.gguf")
    done = template(folder, PICTURES / "rgb.jpg", check=False, mmproj="text.gguf")
    assert done.returncode == 1 and "clip.projector_type" in done.stderr


def test_tower_next_to_the_model(folder, tmp_path):
    """Without --mmproj: the only file that is called so."""
    shutil.copy(MODEL, tmp_path / "text.gguf")
    shutil.copy(folder / "mmproj.gguf", tmp_path / "mmproj-of-it.gguf")
    arguments = ("--chat-template", folder / "chat.jinja", "-f", folder / "two.json", "--image", PICTURES / "rgb.jpg",
                 "--image", PICTURES / "rgb.png")
    found = program.run("template", "-m", tmp_path / "text.gguf", *arguments).stdout
    assert found == template(folder, PICTURES / "rgb.jpg", PICTURES / "rgb.png").stdout
    shutil.copy(folder / "mmproj.gguf", tmp_path / "mmproj-other.gguf")
    done = program.run("template", "-m", tmp_path / "text.gguf", *arguments, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "mmproj" in done.stderr
