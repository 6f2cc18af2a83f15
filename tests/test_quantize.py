# tests/test_quantize.py - `godwit quantize` and `godwit calibrate`: published goldens, the same
# bytes whatever the machine, files that are whole or not there, and what is refused.
import json
import os
import signal
import struct
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, SHARED, SLOW, copy_folder, run

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


# Sum of importance (w - q)^2 over that of importance w^2 on the matrix of test_small_formats, and a
# little more: a search that gets worse is seen, one that gets better is not.
SMALL = {"iq1_s": 0.182, "iq1_m": 0.157, "iq2_xxs": 0.103, "iq2_xs": 0.0764, "iq2_s": 0.0523, "iq3_xxs": 0.0297,
         "iq3_s": 0.0150, "tq1_0": 0.183, "tq2_0": 0.183, "q1_0": 0.375, "q2_0": 0.127, "nvfp4": 0.00743}


@pytest.fixture(scope="module")
def bell(tmp_path_factory):
    """Eight rows that are bell-shaped, with importance and X^T X; row 3 has a number that is none, row 4 only
    zeros, row 5 only -0.5, 0 and 0.5."""
    n, k, seed = 8, 512, 1
    draws = []
    for _ in range(n * k * 4 + k):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        draws.append((seed >> 40) / 2**24)
    w = [sum(draws[4 * i:4 * i + 4]) - 2 for i in range(n * k)]
    h = [0.2 + 2 * x for x in draws[n * k * 4:]]
    w[3 * k + 7] = float("inf")
    w[4 * k:5 * k] = [0.0] * k
    w[5 * k:6 * k] = [(-0.5, 0.0, 0.5)[int(3 * draws[i])] for i in range(k)]
    xtx = [[h[i] * 50 if i == j else 12 * (h[i] * h[j]) ** 0.5 if i // 4 == j // 4 else 0.0 for j in range(k)]
           for i in range(k)]
    folder = tmp_path_factory.mktemp("small")
    parts = {"w": ("F32", [n, k], struct.pack(f"<{n * k}f", *w)), "w.importance": ("F32", [k], struct.pack(f"<{k}f", *h))}
    write(folder / "plain.safetensors", parts)
    parts["w.xtx"] = ("F32", [k, k], struct.pack(f"<{k * k}f", *[v for row in xtx for v in row]))
    write(folder / "xtx.safetensors", parts)
    return folder, n, k, w, h, xtx


@pytest.mark.parametrize("kind", SMALL)
def test_small_formats(tmp_path, bell, kind):
    """Formats of few bits: how far they are off, broken and empty blocks, the same for every instruction set;
    by error feedback the products come nearer than without."""
    folder, n, k, w, h, xtx = bell
    out, lost = {}, {}
    for name in ("plain", "xtx"):
        path = tmp_path / f"{name}.safetensors"
        run("quantize", "--tensors", folder / f"{name}.safetensors", kind, "-o", path, "-t", 2)
        out[name] = tensors(path)
        decoded = struct.unpack(f"<{n * k}f", out[name]["w.decoded"][2])
        off = [[decoded[r * k + i] - w[r * k + i] for i in range(k)] for r in (0, 1, 2, 6, 7)]
        lost[name] = sum(a * b * xtx[i][j] for row in off for i, a in enumerate(row)
                         for j, b in enumerate(row[i // 4 * 4:i // 4 * 4 + 4], i // 4 * 4))
        if name == "plain":
            errors = sum(h[i] * a * a for row in off for i, a in enumerate(row))
            whole = sum(h[i] * w[r * k + i] ** 2 for r in (0, 1, 2, 6, 7) for i in range(k))
            assert errors / whole < SMALL[kind], errors / whole
            broken = decoded[3 * k:4 * k]
            assert any(x != x for x in broken[:16]) or kind == "nvfp4" and broken[7] == 0
            assert all(x == x for x in broken[256:])
            assert set(decoded[4 * k:5 * k]) == {0.0}
            if kind.startswith("tq"):  # numbers that the format has are kept
                assert decoded[5 * k:6 * k] == tuple(w[5 * k:6 * k])
    assert lost["xtx"] < lost["plain"]
    run("quantize", "--tensors", folder / "plain.safetensors", kind, "-o", tmp_path / "one.safetensors", "-t", 1,
        cpu="scalar")
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "plain.safetensors").read_bytes()


def test_few_bits_need_importance(tmp_path):
    out = tmp_path / "m.gguf"
    done = quantize(out, "iq2_xxs", check=False)
    assert done.returncode != 0 and "--imatrix" in done.stderr and not out.exists()
    text = quantize(out, "iq2_m", "--imatrix", QUANT / "tales-2m.imatrix.gguf", "--dry-run").stderr
    assert "iq2_s" in text and "iq3_s" in text and "q5_k" in text
    quantize(out, "iq3_xxs", "--imatrix", QUANT / "tales-2m.imatrix.gguf")
    assert "hash:" in run("logits", "-m", out, "--ids", "1,400,500", "-t", 1).stdout


def test_fit(tmp_path):
    """Never over the size, and better than one format of the same bytes."""
    text, same, out = tmp_path / "text.txt", tmp_path / "same.gguf", tmp_path / "fit.gguf"
    text.write_bytes((QUANT / "calibration.txt").read_bytes()[:4500])
    more = ("--calibrate", text, "--no-gptq", "-t", 1)
    quantize(same, "q4_k", "--pure", "--output-tensor-type", "q6_k", *more)
    size = same.stat().st_size
    said = quantize(out, "q4_k", "--fit", size, *more).stderr
    assert size - 20_000 < out.stat().st_size <= size
    together = said.split("measured together: KL ")[1].split()
    assert together[4].startswith("q4_k") and float(together[0].rstrip(";")) < 0.8 * float(together[1])
    for wish in (("--fit", "900K"), ("--fit", size, "--fit-ctx", 100000)):
        done = quantize(tmp_path / "n.gguf", *wish, *more, check=False)
        assert done.returncode == 2 and "too few" in done.stderr and not (tmp_path / "n.gguf").exists()


def test_experts(tmp_path):
    """Each expert by what is sent to it: error feedback brings the answers nearer to the float model's."""
    model, text = tmp_path / "mixtral", tmp_path / "text.txt"
    copy_folder(SHARED / "goldens/mixtral", model)
    bytes_as = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255 else None for b in range(256)]
    rest = iter(range(256, 512))
    vocab = {c if c is not None else chr(next(rest)): i for i, c in enumerate(bytes_as)}
    vocab |= {f"<extra{i}>": i for i in range(256, 320)}
    (model / "tokenizer.json").write_text(json.dumps({
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}))
    text.write_bytes((QUANT / "calibration.txt").read_bytes()[:3200])
    lost = []
    for name, more in (("plain", ("--no-gptq",)), ("fed", ("--report", tmp_path / "report.json"))):
        out = tmp_path / f"{name}.gguf"
        quantize(out, "q4_0", "--pure", "--calibrate", text, "-t", 1, *more, model=model)
        done = run("evaluate", "-m", out, "--base", model, "-f", text, "--weights", "float", "-o", "json", "-t", 1)
        lost.append(json.loads(done.stdout)["models"][0]["text"]["kl"])
    fed = {t["name"] for t in json.loads((tmp_path / "report.json").read_text())["tensors"] if t["feedback"]}
    assert {"blk.0.ffn_down_exps.weight", "blk.1.ffn_gate_exps.weight"} <= fed
    assert lost[1] < 0.9 * lost[0], lost


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


def test_layers_left_out(tmp_path):
    """Without its first layer: a file of the rest, whose importance is that of the layers as they were."""
    out, report = tmp_path / "out.gguf", tmp_path / "report.json"
    importance = ("--imatrix", QUANT / "tales-2m.imatrix.gguf")
    found = []
    for args in ((), ("--prune-layers", "0")):
        quantize(out, "q4_0", *importance, "--pure", "--report", report, *args)
        found.append({t["name"]: t.get("relative_error") for t in json.loads(report.read_text())["tensors"]})
    assert sum(name.startswith("blk.1.") for name in found[0]) == sum(name.startswith("blk.0.") for name in found[1])
    assert not any(name.startswith("blk.1.") for name in found[1])
    assert found[1]["blk.0.ffn_down.weight"] == found[0]["blk.1.ffn_down.weight"] != found[0]["blk.0.ffn_down.weight"]
    assert "hash:" in run("logits", "-m", out, "--ids", "1,400,500", "-t", 1).stdout
    for layers, words in (("0,,1", "no list of layers"), ("99", "no layer 99"), ("1,0", "no layer would be left")):
        done = quantize(tmp_path / "x.gguf", "q4_0", "--prune-layers", layers, check=False)
        assert done.returncode == 2 and words in done.stderr, done.stderr


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
    shown = run("calibrate", "--in-file", QUANT / "tales-2m.imatrix.gguf", "--show").stdout.splitlines()
    row = next(line for line in shown if line.startswith("blk.1.ffn_down.weight"))
    assert row.split()[1] == "65536" and row.split()[-1] == "0" and shown[-1].startswith("14 weights, 128 windows")
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
            (("q4_0", "--tensor-type", "attn_(v=q8_0"), "is no regular expression", 2),
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
