#!/usr/bin/env python3
# tests/test_draft_auto.py - the program finds and names heads that draft (EAGLE-3, DFlash, DSpark), refuses what is none of the
# model's, and says what a draft model costs.
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensor_files import read_safetensors, write_safetensors

ROOT = Path(__file__).resolve().parent.parent
GODWIT = os.environ["GODWIT_BIN"]
SHARED = Path(os.environ.get("GODWIT_SHARED", ROOT.parent / "shared")).resolve()
TALES = SHARED / "models" / "tales-2m"
PROMPT = ["-p", "the old man went down to", "-n", "24", "--temperature", "0", "--threads", "1"]

if not TALES.is_dir():
    pytest.skip("no models", allow_module_level=True)


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    out = tmp_path_factory.mktemp("heads")
    subprocess.run([sys.executable, ROOT / "tests/draft_heads.py", SHARED, out], check=True)
    return out


@pytest.fixture
def alone(tmp_path):
    """The model in a folder of its own."""
    shutil.copytree(TALES, tmp_path / "tales", copy_function=os.symlink)
    return tmp_path / "tales"


def run(*words):
    r = subprocess.run([GODWIT, *map(str, words)], capture_output=True, text=True, timeout=60)
    return r.returncode, r.stdout, r.stderr


def text_of(model, *words):
    code, out, notes = run("run", "-m", model, *PROMPT, *words)
    assert code == 0, notes
    return out, notes


def test_spellings(heads):
    want, _ = text_of(TALES)
    for name in ("plain", "sglang", "head.gguf", "blocks", "anchored", "z-lab", "block.gguf",
                 "chained", "gated", "joint", "deepspec", "chain.gguf"):
        out, notes = text_of(TALES, "--draft", heads / name, "--draft-length", "fixed:4")
        assert out == want and "fixed:4" in notes and " 0 drafted" not in notes


def test_auto(heads, alone):
    want, _ = text_of(alone)
    out, notes = text_of(alone, "--draft", "auto")
    assert out == want and "a head" not in notes
    shutil.copytree(heads / "seer", alone.parent / "another")  # for a model of another width
    shutil.copytree(heads / "normed", alone.parent / "of-it")
    out, notes = text_of(alone, "--draft", "auto")
    assert out == want and f"{alone.parent / 'of-it'}: a head (EAGLE-3) for this model" in notes
    shutil.copytree(heads / "z-lab", alone.parent / "blocks-of-it")
    out, notes = text_of(alone, "--draft", "auto")
    assert out == want and f"{alone.parent / 'blocks-of-it'}: a head (DFlash) for this model" in notes
    shutil.copy(heads / "block.gguf", alone / "tales-dflash.gguf")
    out, notes = text_of(alone, "--draft", "auto")
    assert out == want and f"{alone / 'tales-dflash.gguf'}: a head (DFlash)" in notes
    shutil.copy(heads / "head.gguf", alone / "a-tales-eagle3.gguf")
    out, notes = text_of(alone, "--draft", "auto")
    assert out == want and f"{alone / 'a-tales-eagle3.gguf'}: a head (EAGLE-3)" in notes


def test_named(heads):
    for name, kind in (("plain", "EAGLE-3"), ("sglang", "EAGLE-3"), ("head.gguf", "EAGLE-3"), ("blocks", "DFlash"),
                       ("z-lab", "DFlash"), ("block.gguf", "DFlash"), ("chained", "DSpark"), ("deepspec", "DSpark"),
                       ("chain.gguf", "DFlash")):
        code, out, notes = run("inspect", heads / name)
        assert code == 0 and f"a head that drafts ({kind})" in out and "width 256 and 4096 tokens" in out, notes


def test_refused(heads):
    code, _, notes = run("run", "-m", heads / "plain", *PROMPT)
    assert code == 1 and "no model by itself" in notes
    for name in ("seer", "seer-part", "ring-block"):
        code, _, notes = run("run", "-m", TALES, *PROMPT, "--draft", heads / name)
        assert code == 1 and "drafts for a model of width 64 and 320 tokens; tales-2m has 256 and 4096" in notes


def test_cost():
    small, large = (SHARED / "models" / f"tales-{n}-q4_0.gguf" for n in ("2m", "21m"))
    want, _ = text_of(small)
    out, notes = text_of(small, "--draft", large)
    assert out == want and "is not used: it reads " in notes and "passes" not in notes
    out, notes = text_of(small, "--draft", large, "--draft-length", "fixed:2")
    assert out == want and "is expected to cost " in notes and "passes" in notes
    _, notes = text_of(large, "--draft", small)
    assert "is expected to cost 0." in notes


@pytest.mark.parametrize("changed, words", [
    ({"block_size": 17}, "drafts blocks of 17 tokens; 2 to 16 are known"),
    ({"block_size": 1}, "drafts blocks of 1 tokens; 2 to 16 are known"),
    ({"dflash_config": {"mask_token_id": 4096, "target_layer_ids": [0]}}, "mask_token_id is 4096, which is none of the 4096"),
    ({"dflash_config": {"mask_token_id": 3, "target_layer_ids": []}}, "target_states"),
    ({"dflash_config": {"mask_token_id": 3, "target_layer_ids": [7]}}, "a model with a layer 8; tales-2m has 2"),
    ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}, "window"),
])
def test_blocks_refused(heads, tmp_path, changed, words):
    shutil.copytree(heads / "z-lab", tmp_path / "head")
    config = json.loads((tmp_path / "head/config.json").read_text()) | changed
    (tmp_path / "head/config.json").write_text(json.dumps(config))
    code, _, notes = run("run", "-m", TALES, *PROMPT, "--draft", tmp_path / "head")
    assert code == 1 and words in notes
    assert len(notes.strip().splitlines()) <= 3, notes


@pytest.mark.parametrize("head, more, left, words", [
    ("z-lab", "markov_head.markov_w1.weight", None, "has markov_head.markov_w1.weight, but does not state markov_rank"),
    ("z-lab", "candidate_selector.hidden_projection.weight", None,
     "has candidate_selector.hidden_projection.weight: convolutions within a block"),
    ("z-lab", "layers.0.mlp_conv.base_kernel", None, "has layers.0.mlp_conv.base_kernel: convolutions within a block"),
    ("chained", None, "markov_head.markov_w2.weight", "markov_head.markov_w2.weight is missing"),
    ("gated", None, "markov_head.gate_proj.bias", "markov_head.gate_proj.weight is missing, or its bias"),
])
def test_chains_refused(heads, tmp_path, head, more, left, words):
    shutil.copytree(heads / head, tmp_path / "head")
    tensors = read_safetensors(tmp_path / "head/model.safetensors")
    if more:
        tensors[more] = ("F32", [4096, 2], bytes(4096 * 8))
    tensors.pop(left, None)
    write_safetensors(tmp_path / "head/model.safetensors", tensors)
    code, _, notes = run("run", "-m", TALES, *PROMPT, "--draft", tmp_path / "head")
    assert code == 1 and words in notes, notes
    assert len(notes.strip().splitlines()) <= 3, notes

