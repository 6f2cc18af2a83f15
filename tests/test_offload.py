# tests/test_offload.py - a model split between an OpenCL device and the CPU: for every number of
# offloaded layers the bits of the CPU alone, the same text with speculation, clear refusals.
import concurrent.futures
import csv
import json
import re

import pytest

from program import DATA, OPENCL_ALL, SHARED, SLOW, logits_hash, run, some_ids
from serving import serving

MODEL = DATA / "tales-2m-q4_0.gguf"
IDS = some_ids(70)  # beyond a page
NOWHERE = {"OCL_ICD_VENDORS": "/nonexistent"}


@pytest.fixture(scope="module")
def device():
    if "| opencl:0 |" not in run("devices").stdout:
        pytest.skip("no OpenCL device, or a program without the backend")
    return "opencl:0"


def formats():
    names = ("2m-q6_k", "2m-f16")
    if OPENCL_ALL:
        names += ("2m-q8_0", "2m-q4_k_m", "2m-iq4_nl", "2m-q5_1", "2m-q2_k", "21m-q4_0")
    return [pytest.param(SHARED / f"models/tales-{name}.gguf", id=name) for name in names]


def n_layers(model):
    """From the refusal of a budget that nothing fits: it names all layers."""
    done = run("logits", "-m", model, "--ids", "1", "--device", "ref", "--vram-budget", "1k", check=False)
    found = re.search(r"offloading (\d+) layers", done.stderr)
    assert done.returncode == 1 and found, done.stderr
    return int(found.group(1))


@pytest.mark.parametrize("rows", ["prefill", "decode", "3"])
def test_every_n(device, rows):
    want = logits_hash(MODEL, IDS, "--rows", rows, "-t", 1, cpu="scalar")
    for n in [*range(n_layers(MODEL) + 1), "all"]:
        assert logits_hash(MODEL, IDS, "--rows", rows, "-b", 24, "--device", device, "-ngl", n) == want, n


@pytest.mark.parametrize("model", formats())
def test_formats(device, model):
    if not model.is_file():
        pytest.skip(f"{model} is not there")
    want = {rows: logits_hash(model, IDS, "--rows", rows) for rows in ("prefill", "16")}
    for n in range(1, n_layers(model), 1 if not SLOW else 2):
        for rows, expected in want.items():
            assert logits_hash(model, IDS, "--rows", rows, "--device", device, "-ngl", n) == expected, n


@pytest.mark.parametrize("model,layers", [(MODEL, 1), (SHARED / "goldens/gemma3n", 1),
                                          (SHARED / "goldens/mixtral", "--cpu-moe")])
def test_prompts_of_layers_in_main_memory(device, model, layers):
    """Copied to the device and computed there, or not: one digest, whatever the chunks and the cache; and plan
    counts the room for it, which 'off' gives back."""
    if not model.exists():
        pytest.skip(f"{model} is not there")
    ids = [i % 90 + 3 for i in IDS]
    split = (layers,) if layers == "--cpu-moe" else ("-ngl", layers)
    for more in (("-b", 24), ("-b", 24, "--kv-type", "f32"), ()):
        want = logits_hash(model, ids, "--exact", *more)
        for mode in ("on", "off"):
            got = logits_hash(model, ids, "--exact", "--device", device, *split, "--prompt-offload", mode, *more)
            assert got == want, (more, mode)
    if layers == 1 and model == MODEL:
        room = {mode: json.loads(run("plan", "-m", model, "--device", device, "--prompt-offload", mode, "-o", "json",
                                     ).stdout)["rows"][1]["devices"] for mode in ("on", "off")}
        scratch = {mode: max(d["scratch_bytes"] for d in room[mode] if d["device"] == device) for mode in room}
        assert scratch["on"] > scratch["off"] + 100000


def test_room_for_caches_in_few_bits(device):
    """Of prompts one layer's pages in q8_0, wherever the layer's cache is smaller."""
    use = {kv: next(d for d in json.loads(run("plan", "-m", MODEL, "--device", device, "-c", 16384, "--kv-type", kv, "-o",
                                              "json").stdout)["rows"][-1]["devices"] if d["device"] == device)
           for kv in ("q8_0", "q4_0")}
    assert use["q4_0"]["kv_bytes"] < 0.6 * use["q8_0"]["kv_bytes"]
    more = use["q4_0"]["scratch_bytes"] - use["q8_0"]["scratch_bytes"]
    assert 1 <= more / (use["q8_0"]["kv_bytes"] / n_layers(MODEL)) < 1.5


@pytest.mark.parametrize("devices,split", [("opencl:0,cpu", "1,1"), ("cpu,opencl:0", "2,3"), ("opencl,cpu", "9,1")])
def test_several_devices(device, devices, split):
    want = logits_hash(MODEL, IDS)
    assert logits_hash(MODEL, IDS, "--device", devices, "--split", split) == want
    assert logits_hash(MODEL, IDS, "--device", devices, "--split", split, "-ngl", 3) == want


def test_by_name(device):
    line = next(x for x in run("devices").stdout.splitlines() if x.startswith("| opencl:0 |"))
    name = line.split("|")[2].strip()
    want = logits_hash(MODEL, IDS)
    assert logits_hash(MODEL, IDS, "--device", name.upper()) == want


@pytest.mark.parametrize("draft", [("ngram",), (str(MODEL), "--draft-offload-layers", "2"),
                                   (str(MODEL), "--draft-device", "cpu")])
def test_speculation(device, draft):
    """The text of a split model, drafted or not, is that of the CPU."""
    args = ("run", "-m", DATA / "tales-2m-q4_k_m.gguf", "-p", "Once upon a time", "-n", 48, "--seed", 7, "--no-stats")
    want = run(*args).stdout
    split = ("--device", device, "-ngl", 3)
    assert run(*args, *split).stdout == want
    for length in ("fixed:4", "cost"):
        assert run(*args, *split, "--draft", *draft, "--draft-length", length).stdout == want


@pytest.mark.parametrize("name", ["gemma3-pattern", "gpt-oss", "llama4", "bloom", "phimoe", "apertus",
                                  "qwen3-next", "falcon-h1", "lfm2", "kimi-linear", "gemma4-e",
                                  "gemma3n"])
def test_kinds_of_layers(device, name):
    """Whatever a layer is made of runs on the device, to the CPU's bits; also where layers are split."""
    model = SHARED / "goldens" / name
    if not model.is_dir():
        pytest.skip(f"{model} is not there")
    ids = [1, 7, 3, 9, 2, 8, 5, 4, 6, 1, 2, 3]
    for rows in ("prefill", "decode"):
        want = logits_hash(model, ids, "--rows", rows)
        for layers in ("all", 1):
            done = run("logits", "-m", model, "--ids", ",".join(map(str, ids)), "--rows", rows, "--exact",
                       "--device", device, "-ngl", layers)
            assert f"hash: {want}" in done.stdout, (rows, layers)
            assert "no kernel" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["mixtral", "qwen2-moe", "gpt-oss-mxfp4/gpt-oss-mxfp4.gguf"])
def test_experts_in_main_memory(device, name):
    """Experts of all or of some layers with the CPU, the rest on the device: the CPU's bits."""
    model = SHARED / "goldens" / name
    if not model.exists():
        pytest.skip(f"{model} is not there")
    ids = [1, 7, 3, 9, 2, 8, 5, 4, 6, 1, 2, 3]
    for rows in ("prefill", "decode", "5"):
        want = logits_hash(model, ids, "--rows", rows)
        for kept in ((), ("--cpu-moe",), ("--n-cpu-moe", 1)):
            done = run("logits", "-m", model, "--ids", ",".join(map(str, ids)), "--rows", rows, "--device", device,
                       "--exact", *kept)
            assert f"hash: {want}" in done.stdout, (rows, kept)
            assert ("stay in main memory" in done.stderr) == bool(kept), done.stderr


def one_error_line(done, code, *words):
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("command", [["logits", "--ids", "1"], ["run", "-p", "x"], ["bench", "-p", "8", "-n", "0"]])
def test_missing_device(command):
    for name in ("opencl:63", "no such card"):
        done = run(*command, "-m", MODEL, "--device", name, check=False)
        one_error_line(done, 1, f"'{name}' is not on this machine", "there are cpu (")


def test_budget():
    done = run("logits", "-m", MODEL, "--ids", "1", "--device", "ref", "--vram-budget", "1M", check=False)
    one_error_line(done, 1, "needs", "may be used", "1 MB")
    done = run("logits", "-m", MODEL, "--ids", "1", "--vram-budget", "some", check=False)
    one_error_line(done, 2, "--vram-budget", "'some' is not a size")


def test_implied_device():
    """Layers to offload, but nothing to offload them to: the CPU, and one line that says so."""
    want = logits_hash(MODEL, IDS)
    done = run("logits", "-m", MODEL, "--ids", ",".join(map(str, IDS)), "-ngl", "all",
               env={**NOWHERE, "GODWIT_HIP_DRIVER": "none", "GODWIT_ARG_DEVICE": ""})
    assert want in done.stdout
    assert "the cpu computes" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert run("logits", "-m", MODEL, "--ids", "1", "--device", "cpu", env=NOWHERE).stderr == ""


# ---- caches in main memory -----------------------------------------------------------------------

def test_caches_in_main_memory(device):
    """Of no layer, one and all, in each format: one digest."""
    for rows, kv in (("prefill", "f16"), ("decode", "q8_0,q4_0"), ("3", "q4_0"), ("prefill", "q5_0"), ("16", "f32")):
        args = ("--rows", rows, "--kv-type", kv, "-c", 256)
        want = logits_hash(MODEL, IDS, *args)
        for asked in (("--kv-host-layers", "none"), ("--kv-host-layers", 1), ("--kv-host-layers", "all"), ("-nkvo",)):
            assert logits_hash(MODEL, IDS, *args, "--device", device, *asked) == want, (rows, kv, asked)


@pytest.mark.parametrize("name", ["gemma3-pattern", "gemma4-e", "qwen3-next", "deepseek-v4"])
def test_caches_of_kinds_of_layers(device, name):
    """Rings, caches that other layers read, states next to them, areas."""
    model = SHARED / "goldens" / name
    if not model.is_dir():
        pytest.skip(f"{model} is not there")
    ids = [1, 7, 3, 9, 2, 8, 5, 4, 6, 1, 2, 3]
    for rows in ("prefill", "decode") if name != "deepseek-v4" else ("decode",):
        args = ("--rows", rows, "--exact")
        want = logits_hash(model, ids, *args)
        assert logits_hash(model, ids, *args, "--device", device, "--no-kv-offload") == want


def test_caches_that_do_not_fit(device, tmp_path):
    """As many as the budget has no room for; plan says which, and a line when the model is opened."""
    small = ("-c", 256, "-b", 32)

    def last_row(*args):
        said = run("plan", "-m", MODEL, *small, "--device", device, "-ngl", 0, *args, "-o", "json",
                   env={"XDG_CACHE_HOME": str(tmp_path)})
        row = json.loads(said.stdout)["rows"][-1]
        return row, next(d for d in row["devices"] if d["device"] == device)

    _, use = last_row("--kv-host-layers", "none")
    layers, rest = n_layers(MODEL), use["weight_bytes"] + use["scratch_bytes"]
    want = logits_hash(MODEL, IDS)
    for k in (0, 1, layers):
        budget = ("--vram-budget", rest + use["kv_bytes"] * (layers - k) // layers)
        if k == 1:
            row, own = last_row(*budget)
            assert row["fits"] and own["kv_host_layers"] == 1 and row["full_cache_seconds"] > 0
            assert own["kv_host_bytes"] * layers == use["kv_bytes"] == own["kv_bytes"] + own["kv_host_bytes"]
        done = run("logits", "-m", MODEL, "--ids", ",".join(map(str, IDS)), *small, "--device", device, *budget)
        assert want in done.stdout
        assert (f"caches of {k} of {layers} layers in main memory" in done.stderr) == (k > 0)
    args = ("logits", "-m", MODEL, "--ids", "1", *small, "--device", device, "--vram-budget")
    one_error_line(run(*args, rest - 1, check=False), 1, "needs", "may be used", "in main memory")
    one_error_line(run(*args, rest, "--kv-host-layers", "none", check=False), 1, "needs", "may be used")
    text = run("plan", "-m", MODEL, *small, "--device", device, "--vram-budget", rest, "-ngl", layers).stdout
    assert "in main memory |" in text and f"the caches of {layers} layers lie in main memory" in text


def test_texts_with_caches_in_main_memory(device, tmp_path):
    """A text, drafted or not, a prompt that was kept either way, and requests of a server: one text."""
    say = ("run", "-m", MODEL, "-p", "Once upon a time", "-n", 40, "--seed", 7, "--no-stats", "--no-display-prompt", "-q")
    want = run(*say).stdout
    host = ("--device", device, "--no-kv-offload")
    assert run(*say, *host).stdout == want
    assert run(*say, *host, "--draft", "ngram", "--draft-length", "fixed:4").stdout == want
    for first, then in (((), host), (host, ("--device", device))):
        cache = tmp_path / f"cache{len(first)}"
        for args in (first, then):
            assert run(*say, *args, "--prompt-cache", cache).stdout == want
    with serving("-c", 256, *host, "--cache-ram", 8) as s:
        asked = {"prompt": "Once upon a time", "max_tokens": 40, "seed": 7}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for answer in pool.map(lambda _: s.post("/v1/completions", asked), range(3)):
                assert answer["choices"][0]["text"].rstrip("\n") == want.rstrip("\n")
        assert any("layers in main memory" in line for line in s.lines)


def test_words_of_caches(device):
    done = run("logits", "-m", MODEL, "--ids", "1", "--device", device, "--kv-host-layers", "some", check=False)
    one_error_line(done, 2, "--kv-host-layers", "'some' is neither a number of layers nor one of auto, all, none")
    done = run("logits", "-m", MODEL, "--ids", "1", "--device", "ref", "--kv-host-layers", "1", check=False)
    one_error_line(done, 1, "--kv-host-layers", "ref cannot read caches in main memory")


def test_caches_here_and_not_here():
    args = ("logits", "-m", MODEL, "--ids", "1", "--no-kv-offload")
    for layers in ("none", 1):
        one_error_line(run(*args, "--kv-host-layers", layers, check=False), 2,
                       f"--no-kv-offload and --kv-host-layers {layers} exclude each other")
    want = run(*args).stdout
    assert want and all(run(*args, "--kv-host-layers", layers).stdout == want for layers in ("all", "auto"))


# ---- plan ----------------------------------------------------------------------------------------

def plan(tmp_path, *args, **more):
    return run("plan", "-m", MODEL, "-c", 128, "-b", 16, *args, env={"XDG_CACHE_HOME": str(tmp_path)}, **more)


def test_plan(tmp_path):
    """Markdown, csv and json say the same; the second call remembers the first."""
    args = ("--device", "ref", "--vram-budget", "2500k")
    for _ in range(3):
        said = json.loads(plan(tmp_path, *args, "-o", "json").stdout)
        disturbed = any(d["disturbed"] for d in said["devices"])
        if not disturbed:
            break
    assert [r["offloaded"] for r in said["rows"]] == list(range(said["layers"] + 1))
    assert said["rows"][said["chosen"]]["fits"]
    table = list(csv.DictReader(plan(tmp_path, *args, "-o", "csv").stdout.splitlines()))
    assert len(table) == 2 * len(said["rows"])
    for line in table:
        row = said["rows"][int(line["offloaded"])]
        own = next(d for d in row["devices"] if d["device"] == line["device"])
        assert int(line["weight_bytes"]) == own["weight_bytes"]
        assert int(line["kv_bytes"]) == own["kv_bytes"]
        if disturbed:  # measured again, not kept
            continue
        assert float(line["generated_tokens_per_second"]) == pytest.approx(row["generated_tokens_per_second"], rel=1e-4)
    text = plan(tmp_path, *args).stdout
    assert "ref layers" in text and "\n| * " in text.split("| N |")[1]
    if not disturbed:
        assert f"\n| * {said['chosen']} |" in text


def test_plan_refuses(tmp_path):
    done = plan(tmp_path, "--device", "ref", "--vram-budget", "1M", "-ngl", "all", check=False)
    one_error_line(done, 1, "needs", "may be used")
    done = plan(tmp_path, "--device", "abacus", check=False)
    one_error_line(done, 1, "'abacus' is not on this machine")


def test_plan_without_a_device(tmp_path):
    done = run("plan", "-m", MODEL, "-c", 128, "-b", 16, "-o", "json",
               env={"XDG_CACHE_HOME": str(tmp_path), "GODWIT_ARG_DEVICE": "", "GODWIT_HIP_DRIVER": "none", **NOWHERE})
    assert len(json.loads(done.stdout)["rows"]) == 1
    assert "the cpu computes" in done.stderr


def test_plan_on_a_device(device, tmp_path):
    """auto takes what plan says, and loading takes no other bytes than it says."""
    said = json.loads(plan(tmp_path, "--device", device, "-o", "json").stdout)
    done = run("logits", "-m", MODEL, "--ids", "1,300", "-b", 16, "-c", 128, "--device", device, "-ngl", "auto",
               env={"XDG_CACHE_HOME": str(tmp_path)})
    assert logits_hash(MODEL, [1, 300]) in done.stdout
    assert 0 <= said["chosen"] <= said["layers"]
