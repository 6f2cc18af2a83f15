# tests/test_family_files.py - families in GGUF's names: tiny files of made weights (family_files.py) against
# the logits, and for encoders the rows, that llama.cpp b11434 gives for them in float32.
import json

import numpy as np
import pytest

from family_files import D, ENCODERS, FAMILIES, V, write_family
from program import DATA, run
from tensor_files import read_safetensors

IDS = [3, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]
LIMIT = 2e-5
GOLDEN = read_safetensors(DATA / "goldens-gguf.safetensors")


def distance(got, want):
    return np.linalg.norm(got - want) / np.linalg.norm(want)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name, tmp_path):
    model, out = tmp_path / "model.gguf", tmp_path / "out.safetensors"
    write_family(model, name)
    run("logits", "-m", model, "--ids", ",".join(map(str, IDS)), "--kv-type", "f32", "-o", out)
    got = np.frombuffer(read_safetensors(out)["logits"][2], "<f4").reshape(-1, V)
    assert distance(got[-1], np.frombuffer(GOLDEN[name][2], "<f4")) < LIMIT


def test_families_are_listed():
    """Each family here, and the names of GGUF files and of config.json that it is found by."""
    listed = {f["family"]: f for f in json.loads(run("inspect", "--families", "--json").stdout)}
    for name in {**FAMILIES, **ENCODERS}:
        arch = name.split("+")[0]
        assert any(arch in f["gguf"].split() for f in listed.values()), name
    assert "LlamaForCausalLM" in listed["llama"]["hf"].split()
    lines = run("inspect", "--families").stdout.splitlines()
    assert len(lines) == len(listed) and all(line.count("\t") == 2 for line in lines)
