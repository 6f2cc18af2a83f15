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


def copied(name, folder):
    """A golden's folder, to be changed."""
    model, want = golden(name)
    for path in model.rglob("*"):
        if path.is_file() and path.suffix != ".gguf" and not path.name.startswith("golden"):
            to = folder / path.relative_to(model)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
    return folder, want


def write_tensors(path, named):
    head, body = {}, b""
    for name, t in named.items():
        raw = t.astype("<f4").tobytes()
        head[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize("acts", [("Tanh",), ("Identity", "Tanh")])
def test_dense_modules(acts, tmp_path):
    """Dense layers between pooling and length, as EmbeddingGemma and LaBSE have them."""
    model, want = copied("minilm-style", tmp_path / "model")
    modules = json.loads((model / "modules.json").read_text())
    rng, x = np.random.default_rng(7), want["hidden"].astype(float).mean(0)
    for i, act in enumerate(acts):
        part, rows = model / f"{i + 2}_Dense", len(x) + 8
        part.mkdir()
        w, b = rng.standard_normal((rows, len(x))) / 8, rng.standard_normal(rows) / 8
        bias = act == "Tanh"
        (part / "config.json").write_text(json.dumps({
            "in_features": len(x), "out_features": rows, "bias": bias,
            "activation_function": f"torch.nn.modules.{'activation' if bias else 'linear'}.{act}"}))
        write_tensors(part / "model.safetensors", {"linear.weight": w} | ({"linear.bias": b} if bias else {}))
        modules.insert(-1, {"idx": i + 2, "name": str(i + 2), "path": part.name,
                            "type": "sentence_transformers.models.Dense"})
        x = np.tanh(w @ x + b) if bias else w @ x
    (model / "modules.json").write_text(json.dumps(modules))
    out = tmp_path / "out.safetensors"
    run("embed", "-m", model, "--ids", listed(want["input_ids"]), "-o", out)
    assert distance(tensors(out)["embedding"], x / np.linalg.norm(x)) < LIMIT
    (model / "2_Dense/config.json").write_text('{"in_features": 3, "out_features": 4}')
    done = run("embed", "-m", model, "--ids", "5,6", check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "2_Dense" in done.stderr, done.stderr


def test_lines_of_json(tmp_path):
    """JSON lines in and out have the vectors of plain lines; a line without a text is named."""
    model, lines = DATA / "tales-2m-q4_0.gguf", ["Once upon", "a \"time\"", "caf\u00e9"]
    plain, rows = tmp_path / "texts.txt", tmp_path / "texts.jsonl"
    plain.write_text("".join(x + "\n" for x in lines), encoding="utf-8")
    rows.write_text("".join(json.dumps({"id": i, "text": x}) + "\n" for i, x in enumerate(lines)))
    run("embed", "-m", model, "-f", plain, "-o", tmp_path / "a.npy")
    run("embed", "-m", model, "-f", rows, "-o", tmp_path / "b.npy")
    run("embed", "-m", model, "-f", rows, "-o", tmp_path / "b.jsonl")
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    want = np.load(tmp_path / "a.npy")
    found = [json.loads(x)["embedding"] for x in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert np.array_equal(np.asarray(found, "f4"), want)
    said = [json.loads(x)["embedding"] for x in run("embed", "-m", model, "-f", plain).stdout.splitlines()]
    assert np.array_equal(np.asarray(said, "f4"), want)
    rows.write_text('{"text": "a"}\n{"words": "b"}\n')
    done = run("embed", "-m", model, "-f", rows, "-o", tmp_path / "c.npy", check=False)
    assert done.returncode == 1 and "2" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "c.npy").exists()


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
