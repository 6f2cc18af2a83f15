# tests/test_head_widths.py - caches in blocks of 32 for heads of other widths (head_widths.py): near the float cache,
# one digest for every width of a pass and instruction set, sessions that go on. Cards: test_hip.py, test_opencl.py.
import re

import numpy as np
import pytest

from head_widths import CACHES, write_model
from program import SHARED, logits_hash, run, some_ids
from tensor_files import read_safetensors

IDS = [i % 64 for i in some_ids(70)]  # beyond a page
LIMIT = {"q8_0": 0.02, "q5_0": 0.2, "q4_0": 0.4, "q8_0,q4_0": 0.4, "f16,q8_0": 0.02}  # of the float cache's logits


@pytest.fixture(scope="module", params=[80, 16])
def model(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("widths") / str(request.param), request.param)


def logits(model, tmp_path, kv, rows):
    out = tmp_path / "logits.safetensors"
    run("logits", "-m", model, "--ids", ",".join(map(str, IDS)), "--kv-type", kv, "--rows", rows, "-o", out)
    (_, shape, raw), = read_safetensors(out).values()
    return np.frombuffer(raw, "<f4").reshape(shape)


@pytest.mark.parametrize("kv", CACHES)
def test_near_the_float_cache(model, kv, tmp_path):
    for rows in ("prefill", "decode"):
        want, got = (logits(model, tmp_path, k, rows) for k in ("f32", kv))
        off = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert 0 < off < LIMIT[kv], (rows, off)


@pytest.mark.parametrize("kv", CACHES)
def test_one_digest(model, kv):
    args = ("--kv-type", kv)
    for weights in ((), ("--weights", "int8")) if kv in ("q8_0", "q4_0") else ((),):
        for rows, others in (("decode", ("3", "16")), ("prefill", ("prefill",))):
            want = logits_hash(model, IDS, *args, *weights, "--rows", rows, cpu="scalar")
            for other in others:
                assert logits_hash(model, IDS, *args, *weights, "--rows", other) == want, (rows, other)
            if rows == "prefill":
                assert logits_hash(model, IDS, *args, *weights, "--rows", rows, "-b", 16) == want


def test_memory(model):
    """A head takes whole blocks: 80 values those of 96."""
    head = int(re.search(r'"head_dim": (\d+)', (model / "config.json").read_text()).group(1))
    text = run("plan", "-m", model, "-c", 64, "--kv-type", "q8_0", "-o", "json").stdout
    kv = int(re.search(r'"kv_bytes": ?(\d+)', text).group(1))
    assert kv >= 2 * 2 * 2 * 64 * ((head + 31) // 32 * 32) * 34 // 32


def test_refused():
    """Heads of 16 with norms of their own, and those of an encoder."""
    for command, name in (("logits", "gemma3-pattern"), ("embed", "bert")):
        model = SHARED / "goldens" / name
        if not model.is_dir():
            pytest.skip(f"{model} is not there")
        done = run(command, "-m", model, "--ids", "1,2,3", "--kv-type", "q8_0", check=False)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "has blocks of 32 values, heads of layer 0 of this model have 16 and cannot be widened" in done.stderr
