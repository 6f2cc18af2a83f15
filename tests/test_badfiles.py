# tests/test_badfiles.py - broken model files through the real program: one clear line, a class of
# fault, exit 1, in time and bounded memory. Every entry of the corpus, then
# what no corpus can hold: folders, pipes, devices, sparse files, names that are not text. GODWIT
# names the executable; without it, what ctest passes (tests/program.py).
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import program

BIN = os.environ.get("GODWIT", program.BIN)
CORPUS = program.SHARED / "badfiles"
MANIFEST = CORPUS / "manifest.json"
CASES = json.loads(MANIFEST.read_text())["files"] if MANIFEST.exists() else {}
PICKLES = {k: v for k, v in CASES.items() if v["format"] == "pt"}
CASES = {k: v for k, v in CASES.items() if v["format"] in ("gguf", "safetensors", "hf")}
# Sanitizers keep freed memory and shadow every page: time and memory are then only roughly bounded.
SECONDS = 60 if program.SLOW else 2
MEMORY_FREE = 1024 << 20 if program.SLOW else 64 << 20
SANITIZER_WORDS = ("AddressSanitizer", "runtime error:", "LeakSanitizer", "UndefinedBehavior")


def measure(*args):
    """Run the program; (exit status, stderr, seconds, peak resident bytes)."""
    err_read, err_write = os.pipe()
    command = [*program.EMULATOR, BIN, *[os.fsencode(a) for a in args]]
    begin = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=err_write)
    os.close(err_write)
    signal.signal(signal.SIGALRM, lambda *_: child.kill())
    signal.alarm(SECONDS * 5)
    with os.fdopen(err_read, "rb") as err:
        text = err.read()
    _, status, usage = os.wait4(child.pid, 0)
    signal.alarm(0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, text, time.monotonic() - begin, usage.ru_maxrss * 1024


def size_of(path):
    files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
    return sum(f.stat().st_size for f in files)


def judge(path, classes, *, name=None, bytes_allowed=None):
    """The program must refuse the file in one line that names it and says a class of `classes`."""
    status, err, seconds, peak = measure("logits", "-m", path, "--ids", "1,2,3", "-t", "2")
    text = err.decode("utf-8")  # the message itself is always UTF-8
    assert status == 1, f"exit {status}: {text[-1500:]}"
    assert not any(word in text for word in SANITIZER_WORDS), text[-3000:]
    lines = text.splitlines()
    assert len(lines) == 1 and text.endswith("\n"), f"not one line: {text[:1500]!r}"
    assert lines[0].startswith("godwit: error: "), lines[0]
    assert (name or path.name) in lines[0], f"does not name the file: {lines[0]!r}"
    assert any(f": {word}: " in lines[0] for word in classes), f"{classes}: {lines[0]!r}"
    check_cost(path, seconds, peak, bytes_allowed)
    return lines[0]


def check_cost(path, seconds, peak, bytes_allowed=None):
    assert seconds < SECONDS, f"{seconds:.1f} s"
    allowed = size_of(path) * 2 if bytes_allowed is None else bytes_allowed
    assert peak < allowed + MEMORY_FREE, f"{peak >> 20} MB"


@pytest.fixture(params=CASES or [None])
def case(request):
    if request.param is None:
        pytest.skip(f"SKIP: no corpus at {CORPUS}")
    return request.param, CASES[request.param]


needs_corpus = pytest.mark.skipif(not CASES, reason=f"SKIP: no corpus at {CORPUS}")


def as_model(name, entry, tmp_path):
    """What -m takes: bare safetensors become the weights of a folder."""
    if entry["format"] != "safetensors":
        return CORPUS / name
    folder = tmp_path / name.removesuffix(".safetensors")
    folder.mkdir()
    shutil.copy(CORPUS / "hf-valid-base/config.json", folder)
    shutil.copy(CORPUS / "hf-valid-base/tokenizer.json", folder)
    shutil.copy(CORPUS / name, folder / "model.safetensors")
    return folder


def test_corpus(case, tmp_path):
    name, entry = case
    path = as_model(name, entry, tmp_path)
    if entry["expect"] == "reject":
        judge(path, [entry["error_class"], *entry["also_ok"]])
    elif entry["format"] == "safetensors":
        # A valid container that is no whole model: the reader lets it pass, a weight is missing.
        line = judge(path, ["metadata"])
        assert "missing" in line and "tensor" in line, line
    else:
        status, err, seconds, peak = measure("logits", "-m", path, "--ids", "1,2,3", "-t", "2")
        text = err.decode()
        assert status in ((0,) if entry["expect"] == "accept" else (0, 1)), f"{status}: {text}"
        assert not any(word in text for word in SANITIZER_WORDS), text[-3000:]
        if status == 1:
            assert len(text.splitlines()) == 1, text
        check_cost(path, seconds, peak)


@pytest.mark.parametrize("name", PICKLES or [None])
def test_pickles(name):
    """What torch.save wrote, or pretends to: looked at, never run."""
    if name is None:
        pytest.skip(f"SKIP: no corpus at {CORPUS}")
    entry, path = PICKLES[name], CORPUS / name
    status, err, seconds, peak = measure("inspect", path)
    text = err.decode()
    allowed = {"accept": (0,), "reject": (1,), "either": (0, 1)}[entry["expect"]]
    assert status in allowed, f"{status}: {text}"
    assert "BAD-PICKLE-RAN" not in text and not any(word in text for word in SANITIZER_WORDS)
    if status == 1:
        classes = [entry["error_class"], *entry["also_ok"]]
        assert len(text.splitlines()) == 1 and text.startswith("godwit: error: "), text
        assert name in text and any(f": {word}: " in text for word in classes), text
    check_cost(path, seconds, peak)


def test_folder_named_like_a_file(tmp_path):
    (tmp_path / "x.gguf").mkdir()
    assert "config.json" in judge(tmp_path / "x.gguf", ["metadata"])


def test_pipe(tmp_path):
    os.mkfifo(tmp_path / "x.gguf")
    assert "pipe" in judge(tmp_path / "x.gguf", ["io"], bytes_allowed=0)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_device(device):
    assert "device" in judge(pathlib.Path(device), ["io"], bytes_allowed=0)


@needs_corpus
def test_pipe_among_the_files_of_a_folder(tmp_path):
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(CORPUS / "hf-valid-base" / name, tmp_path)
    os.mkfifo(tmp_path / "model.safetensors")
    assert "pipe" in judge(tmp_path, ["io"], name="model.safetensors", bytes_allowed=0)


def test_missing_file(tmp_path):
    judge(tmp_path / "absent.gguf", ["io"], bytes_allowed=0)


def test_unreadable_file(tmp_path):
    path = tmp_path / "locked.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("SKIP: this user may read everything")
    judge(path, ["io"])


@pytest.mark.parametrize("start", [b"", b"GGUF\x03\0\0\0"], ids=["zeros", "empty-gguf"])
def test_sparse_100_gb(tmp_path, start):
    """Memory and time follow what is read, not what the file claims to be."""
    path = tmp_path / "sparse.gguf"
    try:
        path.write_bytes(start)
        os.truncate(path, 100 << 30)
    except OSError as error:
        pytest.skip(f"SKIP: no sparse files here: {error}")
    judge(path, ["magic", "metadata"], bytes_allowed=0)


@needs_corpus
def test_sparse_safetensors(tmp_path):
    shutil.copy(CORPUS / "hf-valid-base/config.json", tmp_path)
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.write((100_000_000).to_bytes(8, "little") + b"{")
    try:
        os.truncate(tmp_path / "model.safetensors", 100 << 30)
    except OSError as error:
        pytest.skip(f"SKIP: no sparse files here: {error}")
    # The header really is 100 MB of zeros; reading it once is what it costs.
    judge(tmp_path, ["syntax", "encoding"], name="model.safetensors", bytes_allowed=300_000_000)


@pytest.mark.parametrize("name, shown", [(b"line\nbreak.gguf", "break.gguf"),
                                         (b"bad\xff\xfename.gguf", "name.gguf"),
                                         (b"esc\x1b[31m.gguf", "esc")])
def test_name_that_is_not_text(tmp_path, name, shown):
    path = os.fsencode(tmp_path) + b"/" + name
    with open(path, "wb") as file:
        file.write(b"not a model at all")
    line = judge(pathlib.Path(os.fsdecode(path)), ["magic"], name=shown)
    assert "\x1b" not in line


@pytest.mark.parametrize("start, hint", [
    (b"<!DOCTYPE html><html><head>", "web page"), (b"PK\3\4" + b"x" * 60, "zip"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
    (b"\x02\0\0\0\0\0\0\0{}", "safetensors")])
def test_hint_what_it_is(tmp_path, start, hint):
    path = tmp_path / "model.gguf"
    path.write_bytes(start)
    assert hint in judge(path, ["magic"])


def test_part_of_a_set_alone(tmp_path):
    """A file that says it is part 2 of 3."""
    text = lambda s: len(s).to_bytes(8, "little") + s
    pairs = text(b"split.no") + b"\2\0\0\0\1\0" + text(b"split.count") + b"\2\0\0\0\3\0"
    path = tmp_path / "m-00002-of-00003.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + (0).to_bytes(8, "little") + (2).to_bytes(8, "little") + pairs)
    assert "first part" in judge(path, ["metadata"])


def test_no_file_of_the_manifest_is_missing():
    if not CASES:
        pytest.skip(f"SKIP: no corpus at {CORPUS}")
    assert [n for n in CASES if not (CORPUS / n).exists()] == []


def test_memory_without_a_model():
    """The bounds above leave room for the program itself, which must not use it up."""
    status, _, _, peak = measure("--version")
    assert status == 0
    assert peak < MEMORY_FREE, f"{peak >> 20} MB"
