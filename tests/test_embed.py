# tests/test_embed.py - encoders, embedders, rerankers and encoder-decoders against the outputs of
# the reference library.
import json
import struct
import subprocess
import time

import numpy as np
import pytest

from program import BIN, DATA, EMULATOR, SHARED, run

GOLDENS = SHARED / "goldens"
LIMIT = 2e-5  # of the norm of the difference over the norm of the reference


def tensors(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    table = json.loads(data[8:8 + n])
    table.pop("__metadata__", None)
    kinds = {"F32": "<f4", "I64": "<i8"}
    return {name: np.frombuffer(data[8 + n:][t["data_offsets"][0]:t["data_offsets"][1]],
                                kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in table.items()}


def golden(name):
    path = GOLDENS / name / "golden.safetensors"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return GOLDENS / name, tensors(path)


def listed(ids):
    return ",".join(str(i) for i in ids)


def distance(got, want):
    return np.linalg.norm(got.astype(float) - want) / np.linalg.norm(want.astype(float))


EMBEDDERS = ["bert", "minilm-style", "bge-m3-style", "modernbert-embed", "qwen3-embedding"]


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors(name, tmp_path):
    model, want = golden(name)
    out = tmp_path / "out.safetensors"
    run("embed", "-m", model, "--ids", listed(want["input_ids"]), "-o", out)
    got = tensors(out)
    assert got["hidden"].shape == want["hidden"].shape
    assert distance(got["hidden"], want["hidden"]) < LIMIT
    if "embedding" in want:
        assert distance(got["embedding"], want["embedding"]) < LIMIT


def test_scores():
    model, want = golden("bert-cross-encoder")
    for i, score in enumerate(want["scores"]):
        done = run("rerank", "-m", model, "--ids", listed(want[f"input_ids_{i}"]), "--types",
                   listed(want[f"token_type_ids_{i}"]))
        assert done.stdout.startswith("score: ")
        assert abs(float(done.stdout.split()[1]) / score - 1) < LIMIT


@pytest.mark.parametrize("name", ["t5-v1.1", "m2m100"])
def test_source_and_target(name, tmp_path):
    model, want = golden(name)
    out = tmp_path / "out.safetensors"
    source, start = listed(want["input_ids"]), want["greedy_ids"]
    run("logits", "-m", model, "--ids", source, "--decoder-ids", listed(want["decoder_input_ids"]),
        "--kv-type", "f32", "-o", out)
    assert distance(tensors(out)["logits"], want["logits"]) < LIMIT
    done = run("logits", "-m", model, "--ids", source, "--decoder-ids", start[0], "--greedy",
               len(start) - 1)
    assert done.stdout.split("greedy: ")[1].strip() == listed(start[1:])


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_killed_and_started_again(tmp_path):
    """What is done before kill -9 is not done again, and the bytes are those of one run."""
    model = DATA / "tales-2m-q4_0.gguf"
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"Once upon a time {i}\n" for i in range(1700)))
    whole, parts = tmp_path / "whole.npy", tmp_path / "parts.npy"
    command = ["embed", "-m", model, "-f", texts, "-t", "1"]
    run(*command, "-o", whole)
    partial, slice_bytes = tmp_path / "parts.npy.partial", 64 + 512 * 256 * 4
    started = subprocess.Popen([*EMULATOR, BIN, *map(str, command), "-o", str(parts)],
                               stderr=subprocess.DEVNULL)
    while started.poll() is None and size_of(partial) < slice_bytes:
        time.sleep(0.001)
    started.kill()
    started.wait()
    if parts.exists():
        pytest.skip("it had ended before it was killed")
    done = run(*command, "-o", parts)
    assert "going on behind" in done.stderr
    assert parts.read_bytes() == whole.read_bytes() and not partial.exists()
