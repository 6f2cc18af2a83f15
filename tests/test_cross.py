# tests/test_cross.py - the program on other systems and processors (tools/cross --quick, under qemu and wine): what
# it computes, draws, tokenizes and writes is what the program of this machine's own build gives for the same words.
# On Windows besides: a chat through a pipe, the server, names beyond ASCII, pictures, adapters; on riscv64 vectors
# of two lengths. The stage `cross` builds the programs; a target without one is skipped.
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

import serving
from program import BIN, DATA, EMULATOR, ROOT, SANITIZED, SHARED, logits_hash, run
from seeing import PICTURES, seeing_model

pytestmark = pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="compares with the native build without sanitizers")
SMALL = DATA / "tales-2m-q4_0.gguf"
TARGETS = {"x86_64-linux-musl": [], "riscv64-linux-musl": ["qemu-riscv64"], "powerpc64le-linux-musl": ["qemu-ppc64le"],
           "x86_64-windows-gnu": ["/usr/lib/wine/wine64"]}
WINDOWS, RISCV = "x86_64-windows-gnu", "riscv64-linux-musl"
FORMATS = ("q4_0", "q4_k_m", "q8_0", "iq4_xs", "mxfp4", "bf16")
IDS = [1, 300, 17, 45, 260, 512, 99, 1000, 3, 77, 410, 5, 8, 640, 200, 31, 90, 2]
TEXT = "Once upon a time, in Zürich: 3 königliche Ёжики 🐉 said \"don't\"...\n\tIt's 12345 o'clock"
REQUEST = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, who are you?"}],
           "add_generation_prompt": True}


@pytest.fixture(params=list(TARGETS))
def other(request, monkeypatch):
    """Runs the program of a target as program.run does this machine's; its standard error is kept."""
    return runner(request.param, monkeypatch)


@pytest.fixture
def windows(monkeypatch):
    return runner(WINDOWS, monkeypatch)


def command_of(target):
    found = [p for p in (ROOT / f"build/quick-{target}/godwit", ROOT / f"build/quick-{target}/godwit.exe") if p.is_file()]
    if not found:
        pytest.skip(f"SKIP: tools/cross --quick {target} has built nothing")
    if TARGETS[target] and not shutil.which(TARGETS[target][0]):
        pytest.skip(f"SKIP: no {TARGETS[target][0]}")
    return [*TARGETS[target], str(found[0])]


def runner(target, monkeypatch, *emulator):
    command = [*emulator, command_of(target)[-1]] if emulator else command_of(target)
    if target == WINDOWS:
        monkeypatch.setenv("WINEPREFIX", str(ROOT / "build/wine"))
        monkeypatch.setenv("WINEDEBUG", "-all")
        subprocess.run(["/usr/lib/wine/wineserver", "-p10"], check=False)  # stays ten seconds after a program

    def start(*args, timeout=300, check=True, **more):
        more.setdefault("stdin" if "input" not in more else "input", more.get("input", subprocess.DEVNULL))
        # Files, not pipes: wine's own services have those open too, seconds longer than the program.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
            done = subprocess.run([*command, *map(str, args)], stdout=out, stderr=said, timeout=timeout, **more)
            for file in (out, said):
                file.seek(0)
            done.stdout, done.stderr = out.read().decode(), said.read().decode(errors="replace")
        if check:
            assert done.returncode == 0, f"{target} {args}: exit {done.returncode}: {done.stderr[-2000:]}"
        return done

    start.command, start.target = command, target
    return start


def same(other, *args, **more):
    """Standard output is the same to the byte."""
    theirs = other(*args, **more).stdout
    if "input" in more:
        more["input"] = more["input"].decode()
    assert theirs == run(*args, **more).stdout
    assert theirs.strip()
    return theirs


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """{format: file}: two that are in the tree, the others made of one of them."""
    folder = tmp_path_factory.mktemp("models")
    found = {name: DATA / f"tales-2m-{name}.gguf" for name in FORMATS[:2]}
    for name in FORMATS[2:]:
        found[name] = folder / f"{name}.gguf"
        run("quantize", DATA / "tales-2m-q4_k_m.gguf", found[name], name, "-q", "--allow-requantize")
    return found


def logits_are_those_of_this_machine(other, models, **more):
    for name in FORMATS:
        found = re.search(r"^hash: ([0-9a-f]{64})\ngreedy: (.*)$", other(
            "logits", "-m", models[name], "-t", "2", "--ids", ",".join(map(str, IDS)), "--greedy", "4", **more).stdout, re.M)
        assert found and found[1] == logits_hash(models[name], IDS, "--greedy", "4"), name


def test_logits(other, models):
    """A prompt in one piece and tokens one by one, in six formats."""
    logits_are_those_of_this_machine(other, models)


@pytest.mark.parametrize("bits", [128, 256])
def test_vectors_of_riscv(models, monkeypatch, bits):
    """Registers of two lengths: kernels of all formats equal the scalar ones; whole models. Above, qemu has no vectors."""
    emulator = [*TARGETS[RISCV], "-cpu", f"rv64,v=true,vext_spec=v1.0,vlen={bits}"]
    vectors = runner(RISCV, monkeypatch, *emulator)
    if not (ROOT / f"build/quick-{RISCV}/tests/test_linear").is_file():
        pytest.skip("SKIP: tools/cross --quick was not told to build test_linear")
    done = subprocess.run([*emulator, ROOT / f"build/quick-{RISCV}/tests/test_linear"], capture_output=True, text=True,
                          timeout=300, env={**os.environ, "GODWIT_TEST": "kernels_equal_scalar"})
    checked = re.search(r"^([0-9]+) kernels checked$", done.stdout, re.M)
    assert done.returncode == 0 and checked and int(checked[1]) >= 58 and "SKIP" not in done.stdout, done.stdout + done.stderr
    logits_are_those_of_this_machine(vectors, models, env={**os.environ, "GODWIT_CPU": "rvv"})
    if bits == 128:
        done = runner(RISCV, monkeypatch)("logits", "-m", SMALL, "--ids", "1", check=False, env={**os.environ, "GODWIT_CPU": "rvv"})
        assert done.returncode != 0 and "rvv" in done.stderr and done.stderr.count("\n") == 1


def test_drawn_text(other):
    same(other, "run", "-m", SMALL, "-p", "The old king", "-n", "24", "-t", "2", "--seed", "7", "--temp", "1.2", "--top-p", "0.95",
         "--min-p", "0.02", "--repeat-penalty", "1.1", "-q")
    same(other, "run", "-m", SMALL, "-p", "The old king", "-n", "8", "--temp", "0", "-t", "1", "-q")


def test_tokens(other, tmp_path):
    text = tmp_path / "text"
    text.write_text(TEXT)
    ids = json.loads(same(other, "tokenize", "-m", SMALL, "-q", "--ids", "-f", text))
    same(other, "tokenize", "-m", SMALL, "-q", "--decode", ",".join(map(str, ids)))
    for folder in [*sorted((DATA / "numbered-vocab").iterdir()), *sorted(SHARED.glob("field/hf-split-*/model"))]:
        same(other, "tokenize", "-m", folder, "-q", "--ids", "-f", text)


def test_templates(other, tmp_path):
    request = tmp_path / "request.json"
    request.write_text(json.dumps(REQUEST))
    own = tmp_path / "own.jinja"
    own.write_text("{% for m in messages %}{{ m.role | upper }}: {{ m['content'] | trim | tojson }}\n{% endfor %}"
                   "{{ strftime_now('%Y') | length }} {{ 7 // 2 }} {{ 1e3 / 7 }} {{ messages | map(attribute='role') | join(', ') }}")
    for template in ("chatml", "llama3", own):
        same(other, "template", "--chat-template", template, "-f", request)


def test_quantized_files(other, tmp_path):
    for name in ("q8_0", "q4_1"):
        for who, path in ((other, "theirs"), (run, "ours")):
            who("quantize", SMALL, tmp_path / path, name, "-q", "--allow-requantize")
        assert (tmp_path / "theirs").read_bytes() == (tmp_path / "ours").read_bytes()


def test_errors(other, tmp_path):
    done = other("run", "-m", tmp_path / "no such file.gguf", "-p", "x", check=False)
    mine = run("run", "-m", tmp_path / "no such file.gguf", "-p", "x", check=False)
    assert done.returncode == mine.returncode != 0 and done.stderr.count("\n") == 1
    done = other("run", "--no-such-option", check=False)
    assert done.returncode == run("run", "--no-such-option", check=False).returncode


# ---- Windows -----------------------------------------------------------------------------------------


def test_chat_through_a_pipe(windows):
    arguments = ["chat", "-m", str(SMALL), "--temp", "0", "-t", "1", "-n", "10", "-q"]
    same(windows, *arguments, input="The old king\nUnd die Königin?\n".encode())
    assert windows(*arguments, input=b"The old king\r\n").stdout == run(*arguments, input="The old king\n").stdout


def test_names_beyond_ascii(windows, tmp_path):
    model = tmp_path / "Ordner mit Ünïcödé 模型" / "königlich ёж.gguf"
    model.parent.mkdir()
    shutil.copy(SMALL, model)
    arguments = ["-p", "Zürich 🐉", "-n", "6", "--temp", "0", "-t", "1", "-q"]
    same(windows, "run", "-m", model, *arguments)
    made = model.with_name("gemacht 量.gguf")
    windows("quantize", model, made, "q8_0", "-q", "--allow-requantize")
    assert logits_hash(made, IDS) in windows("logits", "-m", made, "--ids", ",".join(map(str, IDS))).stdout


def test_plain_c(windows):
    """fmaf of the C library is no fused one there (core/base/fma_windows.c)."""
    done = windows("logits", "-q", "-m", SMALL, "--ids", "1,300,17,45,260", "-t", "1", env={**os.environ, "GODWIT_CPU": "scalar"})
    assert done.stdout == f"hash: {logits_hash(SMALL, [1, 300, 17, 45, 260])}\n"


def test_adapters(windows):
    ask = ["logits", "-q", "-m", DATA / "lora/llama", "-t", "1", "--ids", "3,17,45,60"]
    plain = same(windows, *ask)
    assert same(windows, *ask, "--lora", DATA / "lora/llama-all") != plain


def test_pictures(windows, tmp_path):
    """One of each kind of file, read by the program's own libraries."""
    model = seeing_model(tmp_path / "qwen3vl")
    texts = {same(windows, "run", "-m", model, "--image", PICTURES / name, "-p", "w5 w6", "-n", "8", "--temp", "0", "-t", "1",
                  "--no-display-prompt", "--no-stats", "--ignore-eos") for name in ("rgb.png", "rgb.jpg", "lossless.webp")}
    assert len(texts) > 1


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        windows = runner(WINDOWS, patch)
        patch.setattr(serving, "BIN", windows.command[1])
        patch.setattr(serving, "EMULATOR", windows.command[:1])
        running = serving.Server("-c", "512")
        yield running
        running.stop(signal.SIGKILL)  # a signal of POSIX ends wine, not the program
        with contextlib.suppress(OSError):
            subprocess.run(["/usr/lib/wine/wineserver", "-k"], env=os.environ, timeout=60)


def test_serve(server):
    """Every interface answers with the text of `run`; streams, mistakes, many at once."""
    ask = {"max_tokens": 12, "temperature": 0}
    text = run("run", "-m", SMALL, "-p", "The old king", "-n", "12", "--temp", "0", "-q").stdout
    done = server.post("/v1/completions", {"prompt": "The old king", **ask})
    assert done["choices"][0]["text"].strip() and text.rstrip("\n").endswith(done["choices"][0]["text"].rstrip("\n"))
    pieces = [e["choices"][0]["text"] for _, e in server.events("/v1/completions", {"prompt": "The old king", **ask})
              if e != "[DONE]" and e["choices"]]
    assert "".join(pieces) == done["choices"][0]["text"]
    messages = [{"role": "user", "content": "Grüße"}]
    chat = server.post("/v1/chat/completions", {"messages": messages, **ask})
    assert chat["choices"][0]["message"]["content"] == server.post(
        "/v1/messages", {"model": "x", "messages": messages, **ask})["content"][0]["text"]
    assert server.post("/v1/completions", {"prompt": 7}, expect=400)["error"]
    assert server.get("/nothing")[0] == 404
    assert server.get("/v1/models")[0] == 200 and server.get("/metrics")[0] == 200
    assert server.raw(b"nonsense\r\n\r\n", wait=2.0).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("name", ["test_text_is_that_of_a_lone_run", "test_text_does_not_depend_on_company",
                                  "test_every_api_gives_the_same_answer", "test_choices_repeat", "test_stop_leaks_nothing",
                                  "test_unknown_fields_are_ignored"])
def test_conformance(server, name):
    """Tests of tests/test_serve.py, of this server."""
    import test_serve
    getattr(test_serve, name)(server)
