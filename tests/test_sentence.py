# tests/test_sentence.py - folders of embedding models (sentence-transformers): the modules of
# modules.json in their order, limits, prompts. The cases of field/ have what the library computes;
# orders and modes of pooling that they lack are computed here a second time, in numpy.
import json
import shutil
import struct
import subprocess

import numpy as np
import pytest

from program import BIN, EMULATOR, SHARED, run

FIELD = SHARED / "field"
BASE = FIELD / "st-dense-before-pooling" / "model"
TEXT = "The sea was calm"
NAMES = ["dense-before-pooling", "dense-residual", "do-lower-case", "include-prompt", "layernorm-dropout",
         "limit-in-tokenizer-config", "pooling-two", "static-embedding", "transformer-in-subfolder", "truncate-dim"]


@pytest.mark.parametrize("name", NAMES)
def test_field_case(name):
    folder = FIELD / f"st-{name}"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    case = json.loads((folder / "case.json").read_text())
    command = case["command"].replace("{godwit}", " ".join([*EMULATOR, str(BIN)])).replace("{dir}", str(folder))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.stdout == case["expect"]["stdout"], done.stderr


def save_tensors(path, values):
    header, data = {}, b""
    for name, x in values.items():
        raw = x.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def made(tmp_path, modules):
    """A folder of these modules after a small transformer: (class, config, tensors)."""
    if not BASE.is_dir():
        pytest.skip(f"{BASE} is not there")
    folder = tmp_path / "model"
    folder.mkdir()
    for file in BASE.iterdir():
        if file.is_file() and file.name != "modules.json":
            shutil.copy(file, folder / file.name)
    rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (name, config, values) in enumerate(modules, 1):
        part = folder / f"{i}_{name}"
        part.mkdir()
        (part / "config.json").write_text(json.dumps(config))
        if values:
            save_tensors(part / "model.safetensors", values)
        rows.append({"idx": i, "name": str(i), "path": part.name, "type": f"sentence_transformers.models.{name}"})
    (folder / "modules.json").write_text(json.dumps(rows))
    return folder


def states(folder, tmp_path):
    """The text's hidden states, by the program: what the modules begin with."""
    ids = json.loads(run("tokenize", "-m", folder, "-p", TEXT, "--ids", "-q").stdout)
    run("embed", "-m", folder, "--ids", ",".join(map(str, ids)), "-o", tmp_path / "h.safetensors")
    data = (tmp_path / "h.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    row = json.loads(data[8:8 + n])["hidden"]
    begin, end = row["data_offsets"]
    return np.frombuffer(data[8 + n:][begin:end], "<f4").reshape(row["shape"]).astype(float)


def embedded(folder, *args):
    return np.array(json.loads(run("embed", "-m", folder, "-p", TEXT, "-q", *args).stdout)["embedding"])


def unit(x):
    return x / np.linalg.norm(x)


POOLED = {
    "cls": lambda h: h[0],
    "max": lambda h: h.max(0),
    "mean": lambda h: h.mean(0),
    "mean_sqrt_len_tokens": lambda h: h.sum(0) / np.sqrt(len(h)),
    "weightedmean": lambda h: (h * np.arange(1, len(h) + 1)[:, None]).sum(0) / np.arange(1, len(h) + 1).sum(),
    "lasttoken": lambda h: h[-1],
}


@pytest.mark.parametrize("mode", [*POOLED, ("lasttoken", "cls", "max")])
def test_pooling(mode, tmp_path):
    folder = made(tmp_path, [("Pooling", {"embedding_dimension": 32, "pooling_mode": mode}, {})])
    modes = [mode] if isinstance(mode, str) else mode
    want = np.concatenate([POOLED[m](states(folder, tmp_path)) for m in modes])
    assert np.abs(embedded(folder) - want).max() < 1e-5


def test_order_of_modules(tmp_path):
    """A dense layer with a residual of its own, a norm between dense layers, one at the end, a cut."""
    rng = np.random.default_rng(3)
    a, straight, b = rng.normal(size=(24, 32)), rng.normal(size=(24, 32)), rng.normal(size=(20, 24))
    dense = {"bias": False, "activation_function": "torch.nn.modules.activation.ReLU"}
    folder = made(tmp_path, [
        ("Dense", {**dense, "in_features": 32, "out_features": 24, "use_residual": True,
                   "module_input_name": "token_embeddings"}, {"linear.weight": a, "residual.weight": straight}),
        ("Pooling", {"word_embedding_dimension": 24, "pooling_mode_max_tokens": True}, {}),
        ("Normalize", {}, {}), ("Dropout", {"dropout": 0.1}, {}),
        ("Dense", {**dense, "in_features": 24, "out_features": 20}, {"linear.weight": b}),
        ("Normalize", {}, {})])
    h = states(folder, tmp_path)
    x = (np.maximum(h @ a.T, 0) + h @ straight.T).max(0)
    full = np.maximum(b @ unit(x), 0)
    assert np.abs(embedded(folder) - unit(full)).max() < 1e-5
    assert np.abs(embedded(folder, "--no-normalize") - full).max() < 1e-4
    assert np.abs(embedded(folder, "--dimensions", "8") - unit(full[:8])).max() < 1e-5
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    (folder / "config_sentence_transformers.json").write_text(json.dumps({**settings, "truncate_dim": 8}))
    assert np.abs(embedded(folder) - unit(full)[:8]).max() < 1e-5  # the library cuts after the norm


@pytest.mark.parametrize("name, config, words", [
    ("CNN", {}, "CNN"), ("WeightedLayerPooling", {}, "WeightedLayerPooling"), ("SpladePooling", {}, "SpladePooling"),
    ("Pooling", {"pooling_mode": "median"}, "median"),
    ("Dense", {"in_features": 32, "out_features": 32, "module_input_name": "token_embeddings",
               "activation_function": "mine.Act"}, "mine.Act"),
    ("Dense", {"in_features": 32, "out_features": 32, "module_input_name": "all_layers"}, "all_layers")])
def test_what_is_not_known_is_named(name, config, words, tmp_path):
    folder = made(tmp_path, [(name, config, {})])
    done = run("embed", "-m", folder, "-p", TEXT, check=False)
    assert done.returncode == 1 and words in done.stderr and len(done.stderr.strip().splitlines()) == 1
