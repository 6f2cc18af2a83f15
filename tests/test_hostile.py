# tests/test_hostile.py - prompts, arguments, files and signals that mean no good, through the
# program: a result or one clear line, in time, whatever the moment.
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, SHARED, SLOW, run

SMALL = DATA / "tales-2m-q4_0.gguf"
PROGRAM = [*EMULATOR, BIN]
SECONDS = 60 if SLOW else 10  # of a machine that does other things as well
MEGABYTE = 1 << 20


def one_line(done):
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("godwit: error: "), done.stderr[-1500:]
    return lines[0]


# ---- prompts -------------------------------------------------------------------------------------

@pytest.mark.parametrize("text", ["a", " ", "\n", "\t", "日", "é", "🙂", "\r\n", "ab ", "<s>"])
def test_a_megabyte_of_anything(tmp_path, text):
    path = tmp_path / "long.txt"
    path.write_text(text * (MEGABYTE // len(text.encode())))
    start = time.monotonic()
    line = one_line(run("run", "-q", "-m", SMALL, "-f", path, check=False))
    assert "tokens, context is 1024" in line
    assert time.monotonic() - start < SECONDS


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
                                  b"a\x00b", b"\xe6\x97", b"\x1b[31m", b"\xef\xbb\xbfx"])
def test_bytes_that_are_no_text(tmp_path, text):
    path = tmp_path / "odd.txt"
    path.write_bytes(text)
    done = run("run", "-m", SMALL, "-q", "-n", "3", "--temp", "0", "-f", path)
    assert done.stderr == ""


def test_markup_of_a_user_stays_text():
    for text in ("<s>", "</s>", "<|im_end|>", "<unk>", "<0x0A>", "[INST]"):
        done = run("tokenize", "-m", SMALL, "-q", "-p", "say " + text + " twice")
        ids = [int(word) for word in done.stdout.strip().strip("[]").split(",")]
        assert not {0, 2} & set(ids) and 1 not in ids[1:], (text, ids)


def test_a_prompt_of_special_tokens_only():
    for text in ("<s>", "</s>", "<s></s><s>"):
        done = run("run", "-m", SMALL, "-q", "-n", "3", "--temp", "0", "--special", "-p", text)
        assert done.stderr == ""


def test_nul_in_json_is_kept_or_refused(tmp_path):
    """Legal in JSON: messages and values keep it; where no schema can have it, it says so."""
    talk = tmp_path / "talk.json"
    messages = [{"role": "user", "content": "a\0b"}, {"role": "assistant", "content": "ok\0"}]
    talk.write_text(json.dumps({"messages": messages}))
    subprocess.run([*PROGRAM, "chat", "-m", SMALL, "-q", "--chat-template", "chatml", "--load",
                    talk], input=f"/save {talk}.2\n", text=True, check=True, timeout=120)
    assert json.loads((tmp_path / "talk.json.2").read_text())["messages"] == messages
    for value in ({"x": ["a\0b", ""]}, "\0", "\0\0"):
        done = run("run", "-m", SMALL, "-q", "--no-display-prompt", "-n", "60", "-p", "x",
                   "--json-schema", json.dumps({"enum": [value]}))
        assert json.loads(done.stdout) == value
    for schema, words in (('{"enum": [{"a\\u0000": 1}]}', "line 1 column"),
                          ('{"required": ["\\u0000"]}', 'at #: "required": ')):
        line = one_line(run("run", "-m", SMALL, "--json-schema", schema, check=False))
        assert words in line and "\\u0000 is not supported" in line


def test_an_empty_prompt():
    text = run("run", "-m", SMALL, "-q", "-n", "8", "--temp", "0", "-p", "").stdout
    assert len(text.split()) > 1


def test_an_absurd_context_is_refused_at_once():
    start = time.monotonic()
    line = one_line(run("run", "-m", SMALL, "-c", "2000000000", check=False))
    assert "needs" in line and "B, have" in line and time.monotonic() - start < SECONDS


def test_names_that_are_no_text(tmp_path):
    for name in (b"new\nline.gguf", b"bell\x07.gguf", b"\xff\xfe.gguf", "‮fugg.gguf".encode()):
        path = os.path.join(os.fsencode(tmp_path), name)
        done = subprocess.run([*PROGRAM, "run", "-m", path], capture_output=True, timeout=60)
        assert done.returncode == 1 and done.stderr.decode("utf-8").count("\n") == 1
        assert b"\x07" not in done.stderr and "‮" not in done.stderr.decode()


# ---- files that change ---------------------------------------------------------------------------

@pytest.mark.parametrize("left", [0, 4096])
@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_a_model_that_shrinks_while_it_runs(tmp_path, kind, left):
    model = part = tmp_path / "model.gguf"
    if kind == "gguf":
        shutil.copy(SMALL, model)
    elif not (SHARED / "models/tales-2m").is_dir():
        pytest.skip("no folder in the test data")
    else:
        model, part = tmp_path / "model", tmp_path / "model/model.safetensors"
        shutil.copytree(SHARED / "models/tales-2m", model, copy_function=shutil.copyfile)
        model.chmod(0o755)
    child = subprocess.Popen([*PROGRAM, "run", "-m", model, "-n", "-1", "-c", "30000", "-q",
                              "--ignore-eos", "-p", "Once"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    child.stdout.read(60)
    os.truncate(part, left)
    _, words = child.communicate(timeout=120)
    assert child.returncode == 1, words
    assert words.decode().count("godwit: error: ") == 1 and b"shorter" in words


def test_a_model_that_is_replaced_while_it_runs(tmp_path):
    model, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    shutil.copy(SMALL, model)
    want = run("run", "-m", SMALL, "-q", "-n", "300", "--temp", "0", "--ignore-eos", "-p", "Once").stdout
    child = subprocess.Popen([*PROGRAM, "run", "-m", model, "-n", "300", "--temp", "0", "-q",
                              "--ignore-eos", "-p", "Once"], stdout=subprocess.PIPE)
    head = os.read(child.stdout.fileno(), 40)
    other.write_bytes(b"something else")
    os.rename(other, model)
    rest, _ = child.communicate(timeout=120)
    assert child.returncode == 0 and (head + rest).decode() == want


# ---- signals at any moment -----------------------------------------------------------------------

@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_at_random_moments(tmp_path, number, code):
    chance = random.Random(number)
    cache = tmp_path / "p.cache"
    args = ["run", "-m", str(SMALL), "-n", "40", "-q", "-p", "Once upon a time " * 20,
            "--prompt-cache", str(cache)]
    start = time.monotonic()
    subprocess.run([*PROGRAM, *args], check=True, stdout=subprocess.DEVNULL, timeout=120)
    whole = time.monotonic() - start
    written = cache.read_bytes()
    for _ in range(8 if SLOW else 25):
        if chance.random() < 0.5:
            cache.unlink(missing_ok=True)
        child = subprocess.Popen([*PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(chance.random() * whole * 1.1)
        child.send_signal(number)
        out, words = child.communicate(timeout=120)
        # Before the handler is there the system ends the process.
        assert child.returncode in (0, code, -number), (child.returncode, words)
        assert b"error" not in words, words
        out.decode("utf-8", "strict")
        assert not cache.exists() or cache.read_bytes() == written  # whole or untouched
    assert {name for name in os.listdir(tmp_path)} <= {"p.cache"}


def test_a_second_signal_while_saving_leaves_no_harm(tmp_path):
    cache = tmp_path / "p.cache"
    args = [*PROGRAM, "run", "-m", str(SMALL), "-n", "1", "-q", "-p", "Once", "--prompt-cache", str(cache)]
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, timeout=120)
    for _ in range(5):
        child = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGINT)
        child.wait(timeout=120)
        subprocess.run(args, check=True, stdout=subprocess.DEVNULL, timeout=120)
