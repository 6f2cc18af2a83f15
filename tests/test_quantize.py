# tests/test_quantize.py - `godwit quantize` and `godwit calibrate`: published goldens, the same
# bytes whatever the machine, files that are whole or not there, and what is refused.
import json
import os
import signal
import struct
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, SHARED, SLOW, run

MODELS, QUANT = SHARED / "models", SHARED / "quant"
FLOATS = MODELS / "tales-2m-f16.gguf"
WIDTH = {"F32": 4, "F16": 2, "U8": 1, "I32": 4, "I64": 8}
pytestmark = pytest.mark.skipif(not QUANT.is_dir() or SLOW, reason="needs the quantizer's goldens")


def tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    table = json.loads(data[8:8 + n])
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in table.items() if name != "__metadata__"}


def write(path, parts):
    table, at = {}, 0
    for name, (dtype, shape, data) in parts.items():
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(p[2] for p in parts.values()))


def quantize(out, *args, model=FLOATS, **more):
    return run("quantize", "-m", model, "-o", out, *args, **more)


@pytest.mark.parametrize("rule, order", [("range", "none"), ("range", "static"), ("range", "group"),
                                         ("integer", "none"), ("integer", "static"), ("symmetric", "none")])
def test_error_feedback_goldens(tmp_path, rule, order):
    golden = tensors(QUANT / "gptq.safetensors")
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write(source, {"w": golden["plain.w"], "w.xtx": golden["plain.xtx"]})
    run("quantize", "--tensors", source, "int4-g32", "-o", out, "--rule", rule, "--order", order)
    made, seen = tensors(out), 0
    for part in ("codes", "scales", "zeros", "g_idx"):
        want = golden.get(f"plain.{rule}.{order}.{part}")
        if want is not None:
            assert made[f"w.{part}"] == want, part
            seen += 1
    assert seen >= 2


def test_broken_and_odd_matrices(tmp_path):
    """Columns that no group divides, dead ones, a value that is not finite."""
    n, k = 4, 40
    w = [((i * 37 + 11) % 101 - 50) / 50 for i in range(n * k)]
    w[k + 3] = float("nan")
    xtx = [[(2.0 + i % 3 if i == j else 0.1) if i != 5 and j != 5 else 0.0 for j in range(k)] for i in range(k)]
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write(source, {"w": ("F32", [n, k], struct.pack(f"<{n * k}f", *w)),
                   "w.xtx": ("F32", [k, k], struct.pack(f"<{k * k}f", *[v for row in xtx for v in row]))})
    run("quantize", "--tensors", source, "int4-g32", "-o", out, "--order", "none")
    made = tensors(out)
    assert made["w.scales"][1] == [n, 2] and "w.bytes" not in made
    scales = struct.unpack(f"<{2 * n}e", made["w.scales"][2])
    assert scales[2] != scales[2] and all(s == s for i, s in enumerate(scales) if i != 2)
    assert set(made["w.codes"][2][k:k + 32]) == {0}
    decoded = struct.unpack(f"<{n * k}f", made["w.decoded"][2])
    assert abs(decoded[5] - w[5]) < 0.1  # a dead column is coded like any other


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    out = tmp_path_factory.mktemp("quantize") / "q4_k_m.gguf"
    quantize(out, "q4_k_m", "--imatrix", QUANT / "tales-2m.imatrix.gguf", "-t", 2)
    return out.read_bytes()


@pytest.mark.parametrize("cpu, args", [(None, ("-t", 1)), (None, ("-t", 7)), (None, ("--memory", "2M")), ("scalar", ())])
def test_same_bytes(tmp_path, wanted, cpu, args):
    out = tmp_path / "out.gguf"
    quantize(out, "q4_k_m", "--imatrix", QUANT / "tales-2m.imatrix.gguf", *args, cpu=cpu)
    assert out.read_bytes() == wanted
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"]


def test_resume(tmp_path, wanted):
    """A run that was killed leaves what it has, and the next goes on with it."""
    out = tmp_path / "out.gguf"
    args = ["quantize", "-m", FLOATS, "-o", out, "q4_k_m", "--imatrix", QUANT / "tales-2m.imatrix.gguf", "-t", "1"]
    child = subprocess.Popen([*EMULATOR, BIN, *map(str, args)], stderr=subprocess.DEVNULL)
    journal = tmp_path / "out.gguf.partial.journal"
    for _ in range(2000):
        if child.poll() is not None or (journal.exists() and journal.read_text().count("\n") > 4):
            break
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    if not out.exists():
        assert journal.exists()
    run(*args, "--resume")
    assert out.read_bytes() == wanted and len(os.listdir(tmp_path)) == 1


def test_parts_and_rules(tmp_path):
    out, report = tmp_path / "m.gguf", tmp_path / "report.json"
    quantize(out, "q4_0", "--split-max-size", "600K", "--tensor-type", "attn_v=q8_0", "--output-tensor-type", "q5_1",
             "--report", report)
    parts = sorted(p.name for p in tmp_path.glob("m-*.gguf"))
    assert len(parts) >= 2 and parts[0] == f"m-00001-of-{len(parts):05d}.gguf"
    assert "valid" in run("inspect", tmp_path / parts[0]).stdout
    types = {t["name"]: t["type"] for t in json.loads(report.read_text())["tensors"]}
    assert types["blk.0.attn_v.weight"] == "q8_0" and types["token_embd.weight"] == "q5_1"
    assert types["blk.1.ffn_up.weight"] == "q4_0" and types["output_norm.weight"] == "f32"
    text = quantize(tmp_path / "none.gguf", "q4_0", "--dry-run").stderr
    assert "q4_0" in text and not (tmp_path / "none.gguf").exists()


def test_folder(tmp_path):
    """A folder becomes what the GGUF file of the same model becomes."""
    a, b = tmp_path / "a.gguf", tmp_path / "b.gguf"
    quantize(a, "q6_k", model=MODELS / "tales-2m")
    quantize(b, "q6_k")
    ids = ("--ids", "1,400,500,600,700", "-t", 1)
    hashes = [run("logits", "-m", m, *ids).stdout.split("hash:")[1] for m in (a, b)]
    assert hashes[0] == hashes[1]
    texts = [run("tokenize", "-m", m, "-p", "Once upon a time  there was", "--ids").stdout for m in (a, b)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind, more", [("gptq-g128", ("--calibrate", QUANT / "calibration.txt", "--windows", 2)),
                                        ("w4a16-g32", ("--rule", "integer")), ("gptq-g64", ())])
def test_int4_folder(tmp_path, kind, more):
    """Our own reader finds in the folder what --tensors makes of the same matrix."""
    out = tmp_path / "int4"
    quantize(out, kind, *more, model=MODELS / "tales-2m")
    assert json.loads((out / "config.json").read_text())["quantization_config"]["quant_method"] in (
        "gptq", "compressed-tensors")
    assert "hash:" in run("logits", "-m", out, "--ids", "1,400,500", "-t", 1).stdout
    assert [p.name for p in tmp_path.iterdir()] == ["int4"]
    if kind == "gptq-g64":
        made = tensors(out / "model.safetensors")
        name = "model.layers.0.self_attn.q_proj"
        assert made[name + ".qweight"][0] == "I32" and set(made[name + ".qzeros"][2]) == {0x77}
    done = quantize(out, kind, model=MODELS / "tales-2m", check=False)
    assert done.returncode == 1 and "is there already" in done.stderr


def test_calibrate(tmp_path):
    """The sums of the published activations' text, and what error feedback makes of them."""
    want = tensors(QUANT / "tales-2m-activations.safetensors")
    out, xtx = tmp_path / "im.gguf", tmp_path / "xtx.safetensors"
    run("calibrate", "-m", FLOATS, "-f", QUANT / "calibration.txt", "-o", out, "--xtx", xtx, "--windows", 8)
    made = tensors(xtx)
    dtype, shape, data = want["blk.1.ffn_down.weight.xtx"]
    n = shape[0] * shape[1]
    ours, theirs = (struct.unpack(f"<{n}f", d) for d in (made["blk.1.ffn_down.weight.xtx"][2], data))
    assert max(abs(x - y) for x, y in zip(ours, theirs)) < 1e-4 * max(map(abs, theirs))
    both = tmp_path / "both.dat"
    run("calibrate", "--in-file", out, "--in-file", out, "-o", both)
    assert both.stat().st_size > 4 * 14 * 256
    hashes = set()
    for args in (("--imatrix", out), ("--imatrix", both),  # means are the same, but for rounding
                 ("--calibrate", QUANT / "calibration.txt", "--windows", 2),
                 ("--calibrate", QUANT / "calibration.txt", "--windows", 2, "--no-gptq")):
        text = quantize(tmp_path / "m.gguf", "q4_k_s", "-t", 2, *args).stderr
        hashes.add(text.split("hash ")[1][:16])
    assert len(hashes) >= 3


def test_refusals(tmp_path):
    out = tmp_path / "out.gguf"
    broken = tmp_path / "short.dat"
    broken.write_bytes((QUANT / "tales-2m.imatrix.dat").read_bytes()[:3000])
    for args, words, code in (
            (("q4_9",), "q4_k_m", 2),
            (("q4_0", "--imatrix", broken), "ends in entry", 1),
            (("q4_0", "--imatrix", DATA / "README.md"), "importance matrix", 1),
            (("q4_0", "--tensor-type", "nothing=q8_0"), "matches no tensor", 2),
            (("q4_0", "--tensor-type", "attn_v=q9"), "q9", 2)):
        done = quantize(out, *args, check=False)
        assert done.returncode == code and words in done.stderr, done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("godwit: error: ")
        assert not out.exists()
    done = quantize(out, "q4_0", model=DATA / "tales-2m-q4_k_m.gguf", check=False)
    assert done.returncode != 0 and "--allow-requantize" in done.stderr
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(FLOATS.read_bytes())
    done = run("quantize", "-m", copy, "-o", copy, "q4_0", check=False)
    assert done.returncode != 0 and "is the model itself" in done.stderr
    bad = bytearray(FLOATS.read_bytes())
    bad[-2:] = b"\xff\x7f"  # the last weight becomes a NaN
    copy.write_bytes(bad)
    done = quantize(out, "q8_0", model=copy, check=False)
    assert done.returncode == 1 and "not finite" in done.stderr and "row" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.gguf", "short.dat"]
