# tests/test_oddities.py - files with the oddities that people hand on, each beside the file without it: a
# model is one of the same numbers then.
import json
import struct

import pytest

from program import DATA, SHARED, copy_folder, run
from tensor_files import read_gguf, read_safetensors, write_gguf, write_safetensors

SMALL = DATA / "tales-2m-q4_0.gguf"
FOLDER = SHARED / "models/tales-2m"


def said(model, *args):
    """The digest of a prompt's logits, and what is generated."""
    return run("logits", "-m", model, "-p", "the sea", "--greedy", 6, *args).stdout


def u32(value):
    return struct.pack("<II", 4, value)


# ---- GGUF ------------------------------------------------------------------------------------------

def dimensions_of_one(pairs, tensors):
    for name, (shape, kind, data) in tensors.items():
        if len(shape) == 1:  # [n, 1, 1], as GGUF writes it
            tensors[name] = ([1, 1, *shape], kind, data)


def padding_id_of_minus_one(pairs, tensors):
    pairs["tokenizer.ggml.padding_token_id"] = u32(0xffffffff)


def heads_layer_by_layer(pairs, tensors):
    for name in ("llama.attention.head_count", "llama.attention.head_count_kv", "llama.feed_forward_length"):
        pairs[name] = struct.pack("<IIQ", 9, 4, 2) + pairs[name][4:] * 2


@pytest.mark.parametrize("oddity", [dimensions_of_one, padding_id_of_minus_one, heads_layer_by_layer],
                         ids=lambda f: f.__name__)
def test_gguf(oddity, tmp_path):
    pairs, tensors = read_gguf(SMALL)
    oddity(pairs, tensors)
    write_gguf(tmp_path / "odd.gguf", pairs, tensors)
    assert said(tmp_path / "odd.gguf") == said(SMALL)


def test_a_token_without_text(tmp_path):
    """The last token of the vocabulary, which the text does not have."""
    pairs, tensors = read_gguf(SMALL)
    texts, at = pairs["tokenizer.ggml.tokens"], 16
    for _ in range(struct.unpack_from("<Q", texts, 8)[0]):
        last, at = at, at + 8 + struct.unpack_from("<Q", texts, at)[0]
    pairs["tokenizer.ggml.tokens"] = texts[:last] + bytes(8)
    write_gguf(tmp_path / "odd.gguf", pairs, tensors)
    assert said(tmp_path / "odd.gguf") == said(SMALL)


# ---- folders ---------------------------------------------------------------------------------------

def change(path, **members):
    path.write_text(json.dumps({**json.loads(path.read_text()), **members}))


def no_limit(folder):
    change(folder / "tokenizer_config.json", model_max_length=1e30)


def infinity_of_no_use(folder):
    change(folder / "config.json", some_limit=float("inf"), another=float("nan"))


def names_without_model(folder):
    tensors = read_safetensors(folder / "model.safetensors")
    assert any(name.startswith("model.") for name in tensors)
    write_safetensors(folder / "model.safetensors", {k.removeprefix("model."): v for k, v in tensors.items()})


@pytest.mark.parametrize("oddity", [no_limit, infinity_of_no_use, names_without_model], ids=lambda f: f.__name__)
def test_folder(oddity, tmp_path):
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is not there")
    folder = copy_folder(FOLDER, tmp_path / "m")
    oddity(folder)
    assert said(folder) == said(FOLDER)


def test_a_text_that_goes_on_has_no_end_token(tmp_path):
    """add_eos_token closes a text that is whole; what is continued is not."""
    pairs, tensors = read_gguf(SMALL)
    pairs["tokenizer.ggml.add_eos_token"] = struct.pack("<IB", 7, 1)
    write_gguf(tmp_path / "odd.gguf", pairs, tensors)
    story = lambda model: run("run", "-m", model, "-p", "the sea", "-n", 6, "--temp", 0, "--ignore-eos", "-q").stdout
    ids = lambda model: run("tokenize", "-m", model, "-p", "the sea", "--ids", "-q").stdout.split()
    assert story(tmp_path / "odd.gguf") == story(SMALL)
    assert ids(tmp_path / "odd.gguf")[-1] != ids(SMALL)[-1]


def test_no_space_behind_special_tokens(tmp_path):
    """tokenizer.model with "legacy": false."""
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is not there")
    folder = copy_folder(FOLDER, tmp_path / "m")
    change(folder / "tokenizer_config.json", legacy=False)
    ids = lambda model, text: run("tokenize", "-m", model, "-p", text, "--special", "--no-bos", "--ids").stdout
    assert ids(folder, "a</s> sea") == ids(FOLDER, "a</s>sea") != ids(folder, "a</s>sea")
