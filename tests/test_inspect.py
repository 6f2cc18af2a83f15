# tests/test_inspect.py - `godwit inspect`: what it shows is what is in the files, and its verdict is
# what loading says, for every file of the corpus of broken ones and for sound ones.
import json
import re
import shutil
import struct

import numpy
import pytest

from family_files import write_model
from program import DATA, SHARED, copy_folder, run

SMALL = DATA / "tales-2m-q4_0.gguf"
MANIFEST = SHARED / "badfiles/manifest.json"
CASES = json.loads(MANIFEST.read_text())["files"] if MANIFEST.exists() else {}
CASES = {k: v for k, v in CASES.items() if v["format"] in ("gguf", "safetensors", "hf")}
MODELS = sorted(SHARED.glob("models/tales-2m*")) + [SHARED / "models/tales-21m"]
MODELS = [m for m in MODELS if m.exists()]


def inspect(model, *args, **more):
    return run("inspect", "-m", model, *args, **more)


def loading(model):
    return run("logits", "-m", model, "--ids", "1,2,3", "-t", "1", "-q", check=False)


@pytest.mark.parametrize("name", CASES or [None])
def test_verdict_is_what_loading_says(name, tmp_path):
    if name is None:
        pytest.skip(f"SKIP: no corpus at {MANIFEST}")
    model = SHARED / "badfiles" / name
    if CASES[name]["format"] == "safetensors":
        folder = copy_folder(SHARED / "badfiles/hf-valid-base", tmp_path / "m")
        shutil.copyfile(model, folder / "model.safetensors")
        model = folder
    loaded, seen = loading(model), inspect(model, check=False)
    only_in_use = ": numeric: " in loaded.stderr  # weights that are no numbers load
    assert seen.returncode == (0 if only_in_use else loaded.returncode), seen.stderr
    if not only_in_use:
        assert seen.stderr == loaded.stderr
    assert seen.stdout.endswith("valid\n") == (seen.returncode == 0)
    data = inspect(model, "--json", "-q", check=False)
    found = json.loads(data.stdout)
    assert found["valid"] == (seen.returncode == 0)
    if not found["valid"]:
        assert f": {found['class']}: " in seen.stderr and found["fault"] in seen.stderr
        assert CASES[name]["expect"] != "accept" or CASES[name]["format"] == "safetensors"


@pytest.mark.parametrize("model", MODELS or [SMALL], ids=lambda m: m.name)
def test_sound_models(model):
    text = inspect(model).stdout
    assert text.endswith("valid\n")
    found = json.loads(inspect(model, "--json").stdout)
    assert found["valid"] and found["class"] is None and found["layers"] in (2, 6)
    assert sum(t["bytes"] for t in found["tensors"]) == found["weight_bytes"]
    assert sum(f["bytes"] for f in found["formats"].values()) == found["weight_bytes"]
    assert sum(int(numpy.prod(t["shape"])) for t in found["tensors"]) == found["parameters"]
    for tensor in found["tensors"]:
        assert re.search(rf"^  {re.escape(tensor['name'])} +{tensor['format']} ", text, re.M)
    files = [f for f in model.rglob("*.safetensors")] if model.is_dir() else [model]
    assert found["file_bytes"] == sum(f.stat().st_size for f in files)
    if not model.is_dir():
        keys = {m["key"]: m for m in found["metadata"]}
        assert keys["general.architecture"]["value"] == "llama"
        assert keys["tokenizer.ggml.tokens"]["count"] == found["vocabulary"] == 4096
        assert keys["tokenizer.ggml.tokens"]["value"].startswith('["<unk>", "<s>", "</s>", ')


def test_the_model_needs_no_option():
    assert run("inspect", SMALL, "-q").stdout == run("inspect", "-q", "-m", SMALL).stdout
    done = run("inspect", "/nonexistent.gguf", check=False)
    assert done.returncode == 1 and "/nonexistent.gguf" in done.stderr


def test_builtin_model():
    assert run("inspect", "-q").stdout.endswith("valid\n")


def split_in_two(model, folder):
    """The same tensors in two parts, written by hand."""
    data = model.read_bytes()
    found = json.loads(inspect(model, "--json").stdout)
    at, n_tensors, n_kv = 24, *struct.unpack_from("<QQ", data, 8)
    assert len(found["tensors"]) == n_tensors

    def text(s):
        return struct.pack("<Q", len(s)) + s

    def skip_value(kind, at):
        size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind != 9:
            return at + size[kind]
        inner, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = skip_value(inner, at)
        return at

    begin = at
    for _ in range(n_kv):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at = skip_value(struct.unpack_from("<I", data, at)[0], at + 4)
    pairs, infos = data[begin:at], []
    for _ in range(n_tensors):
        name_bytes = struct.unpack_from("<Q", data, at)[0]
        rank = struct.unpack_from("<I", data, at + 8 + name_bytes)[0]
        end = at + 8 + name_bytes + 4 + 8 * rank + 4
        infos.append((data[at:end], struct.unpack_from("<Q", data, end)[0]))
        at = end + 8
    base = (at + 31) // 32 * 32
    for part in range(2):
        mine = [i for i in range(n_tensors) if i % 2 == part]
        head = (struct.pack("<4sIQQ", b"GGUF", 3, len(mine), (n_kv if part == 0 else 0) + 3) +
                (pairs if part == 0 else b"") +
                text(b"split.no") + struct.pack("<IH", 2, part) +
                text(b"split.count") + struct.pack("<IH", 2, 2) +
                text(b"split.tensors.count") + struct.pack("<Ii", 5, n_tensors))
        body = b""
        for i in mine:
            head += infos[i][0] + struct.pack("<Q", len(body))
            blob = data[base + infos[i][1]:][:found["tensors"][i]["bytes"]]
            body += blob + b"\0" * (-len(blob) % 32)
        head += b"\0" * (-len(head) % 32)
        (folder / f"m-{part + 1:05}-of-00002.gguf").write_bytes(head + body)
    return folder / "m-00001-of-00002.gguf"


def test_split_set(tmp_path):
    first = split_in_two(SMALL, tmp_path)
    found, whole = (json.loads(inspect(m, "--json").stdout) for m in (first, SMALL))
    assert found["valid"] and found["container"] == "GGUF, 2 files"
    key = lambda t: t["name"]
    assert sorted(found["tensors"], key=key) == sorted(whole["tensors"], key=key)
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    gone = inspect(first, "-q", check=False)
    assert gone.returncode == 1 and "m-00002-of-00002.gguf" in gone.stderr


def test_values_are_read_on_request():
    bad = SHARED / "badfiles/gguf-model-weights-nan.gguf"
    if not bad.exists():
        pytest.skip("SKIP: no corpus")
    assert inspect(bad, "-q").returncode == 0
    done = inspect(bad, "-q", "--check-tensors", check=False)
    assert done.returncode == 1 and re.search(r": numeric: tensor \S+ has .*nan in row", done.stderr)
    assert inspect(SMALL, "-q", "--check-tensors").stdout.endswith("valid\n")


def test_chat_template_is_named(tmp_path):
    source = SHARED / "models/tales-2m"
    if not source.exists():
        pytest.skip("SKIP: no shared models")
    folder = copy_folder(source, tmp_path / "m")
    config = json.loads((folder / "tokenizer_config.json").read_text())

    def shown(template):
        config["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return json.loads(inspect(folder, "--json").stdout)["chat_template"]
    assert shown("{{ '[INST] <<SYS>>' }}") == "llama2"
    assert shown([{"name": "tools", "template": "x"},
                  {"name": "default", "template": "<|im_start|>"}]) == "chatml"
    assert shown("{{ messages }}") == "own"
    assert shown("{% if %}") == "not well formed"
    assert run("chat", "-m", folder, check=False).returncode == 1
    (folder / "chat_template.jinja").write_text("<start_of_turn>")
    assert shown("<|im_start|>") == "gemma"


def test_names_cannot_move_the_cursor(tmp_path):
    data = SMALL.read_bytes()
    assert data.count(b"token_embd.weight") == 1
    path = tmp_path / "odd.gguf"
    path.write_bytes(data.replace(b"token_embd.weight", b"token_\x1b[2J.weight"))
    done = inspect(path, check=False)
    assert done.returncode == 1 and "\x1b" not in done.stdout + done.stderr


def test_weights_alone(tmp_path):
    """A file of tensors without a model around it: what is in it, and whether it is sound."""
    header = b'{"a.weight":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}'
    path = tmp_path / "one.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
    found = json.loads(inspect(path, "--json").stdout)
    assert found["valid"] and found["tensors"] == [
        {"name": "a.weight", "format": "F16", "shape": [2, 3], "bytes": 12}]
    assert inspect(path).stdout.endswith("valid\n")
    path.write_bytes(path.read_bytes()[:-1])
    cut = inspect(path, check=False)
    assert cut.returncode == 1 and ": bounds: " in cut.stderr and len(cut.stderr.splitlines()) == 1


def test_torch_checkpoint():
    folder = SHARED / "goldens/llama-pickle"
    if not folder.exists():
        pytest.skip(f"SKIP: no {folder}")
    alone = json.loads(inspect(folder / "pytorch_model.bin", "--json").stdout)
    whole = json.loads(inspect(folder, "--json").stdout)
    assert alone["valid"] and whole["valid"] and len(alone["tensors"]) == 21
    assert alone["tensors"] == whole["tensors"] and whole["layers"] == 2


def needed(model):
    seen = run("inspect", "-m", model, "--json", check=False)
    assert seen.returncode == 1
    found = json.loads(seen.stdout)
    text = run("inspect", "-m", model, "-q", check=False).stdout
    for block in found["needed"]:
        assert f"{'known' if block['by'] else 'missing'}  " in text and block["block"] in text
    return {block["block"].split(",")[0].split(" (")[0]: block for block in found["needed"]}


def test_blocks_of_unknown_families(tmp_path):
    """Told by tensors of folders and of GGUF files, or by config.json where that is all there is."""
    folder = copy_folder(DATA / "goldens-families/glm-dsa", tmp_path / "m")
    assert json.loads(inspect(folder, "--json", check=False).stdout)["needed"] is None
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["UnheardForCausalLM"], "model_type": "unheard"}))
    blocks = needed(folder)
    assert {"latent attention", "an indexer that chooses what attention sees", "experts"} <= set(blocks)
    assert blocks["experts"]["by"] == "route, experts" and "experts" in blocks["experts"]["seen"]
    assert not any(b["by"] is None for b in blocks.values())

    for states, scan, by in (((128, 16), "selective scan", "ssm channels"), ((4, 1), "state space", "ssm")):
        write_model(tmp_path / "m.gguf", "unheard", {"block_count": 1}, {
            n: (list(s), 0, bytes(4 * s[0] * s[1]))
            for n, s in {"token_embd.weight": (8, 32), "blk.0.ssm_conv1d.weight": (128, 4),
                         "blk.0.ssm_a": states, "blk.0.attn_lightning.weight": (8, 32)}.items()}, 8)
        blocks = needed(tmp_path / "m.gguf")
        assert set(blocks) == {"a convolution over the last positions", scan, "linear attention with a fixed decay"}
        assert blocks[scan]["by"] == by and blocks["linear attention with a fixed decay"]["by"] is None

    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text(json.dumps({"architectures": ["OtherForConditionalGeneration"], "text_config": {
        "sliding_window": 4, "num_experts": 0, "nested": {"kv_lora_rank": 8}}, "audio_config": {"a": 1}}))
    blocks = needed(bare)
    assert set(blocks) == {"windows of attention", "latent attention", "an encoder of sound"}
    assert blocks["latent attention"]["seen"] == "text_config.nested.kv_lora_rank"
    (bare / "config.json").write_text(json.dumps({"architectures": ["OtherForCausalLM"], "engram_layer_ids": [1, 14]}))
    assert {k: b["by"] for k, b in needed(bare).items()} == {"rows of tables by n-grams under a gate": None}
