# tests/test_cli.py - the command as its users meet it: help, bad arguments, exit codes, pipes, full
# disks, signals, files, formats. The engine's figures are judged elsewhere.
import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import pty
import re
import resource
import shlex
import signal
import struct
import subprocess
import sys
import time

import numpy
import pytest

from program import BIN, DATA, EMULATOR, SHARED, SLOW, run

SMALL = DATA / "tales-2m-q4_0.gguf"
SYNTH = SHARED / "tools/synth_gguf.py"
COMMANDS = ("run", "chat", "bench", "perplexity", "evaluate", "logits", "tokenize", "inspect", "quantize", "calibrate", "devices", "doctor",
            "plan")
PROGRAM = [*EMULATOR, BIN]


def raw(args, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([*PROGRAM, *map(str, args)], capture_output=True, timeout=300, **more)


def one_error_line(done, *words):
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("godwit: error: "), done.stderr
    for word in words:
        assert word in lines[0], f"{word!r} is not in {lines[0]!r}"


# ---- help ----------------------------------------------------------------------------------------

def test_overview_and_version():
    overview = run("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", overview, re.M)
    assert run("help").stdout == overview
    assert re.fullmatch(r"godwit \d+\.\d+\.\d+\n", run("--version").stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    text = run(command, "--help").stdout
    assert text == run("help", command).stdout == run(command, "-n", "broken", "-h").stdout
    whole = run(command, "--help", "all").stdout
    assert whole == run("help", command, "all").stdout
    for shown in (text, whole):
        assert f"usage: godwit {command}" in shown and "examples:" in shown and "--quiet" in shown
        assert max(map(len, shown.splitlines())) <= 100
    assert "GODWIT_ARG_" in whole
    hidden = re.search(r"^(\d+) more, in groups: godwit (\w+) --help all$", text, re.M)
    lines = [[line for line in t.splitlines() if line.startswith("  -")] for t in (text, whole)]
    assert set(lines[0]) <= set(lines[1]) and len(lines[0]) < 20
    assert len(lines[1]) - len(lines[0]) == (int(hidden[1]) if hidden else 0)
    assert hidden is None or hidden[2] == command
    assert "  -m, --model PATH" in text or command in ("devices", "doctor")


def test_short_spellings():
    """llama.cpp's short names are there where they make sense."""
    text = run("run", "--help", "all").stdout
    for name in "-m -p -f -n -c -b -t -s --temp --top-k --top-p --min-p".split():
        assert re.search(rf"[ ,]{name}[ ,]", text), name


def examples(command):
    text = run(command, "--help").stdout.split("examples:\n")[1]
    return [line.strip() for line in text.splitlines() if line.startswith("  godwit ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_run(command, tmp_path):
    (tmp_path / "text.txt").write_text("The king and the queen had a daughter. " * 150)
    (tmp_path / "prompt.txt").write_text("The king\n")
    (tmp_path / "model.gguf").symlink_to(SMALL)
    found = examples(command)
    assert found
    for line in found[:1] if SLOW and command == "doctor" else found:
        args = shlex.split(line.replace("/tmp/", f"{tmp_path}/"))[1:]
        if SLOW and command not in ("devices", "doctor") and "-m" not in args:
            args += ["-m", "model.gguf"]
        if SLOW and command == "run":
            args += ["-n", "8"]
        if SLOW and command == "bench":  # small prompts and products
            args = ["8" if len(word) > 1 and word.isdigit() else word.replace("=4096", "=256")
                    for word in args]
        if "-p" in args and command == "bench":
            args += ["-r", "1"]
        if "opencl:0" in args and "| opencl:0 |" not in run("devices").stdout:
            done = run(*args, cwd=tmp_path, check=False)  # no such device here: that is said
            assert done.returncode == 1 and "'opencl:0' is not on this machine" in done.stderr, line
            continue
        own_files = command in ("evaluate", "quantize", "calibrate") or {"--image", "--suffix"} & {*args}
        done = run(*args, cwd=tmp_path, check=not own_files)
        if own_files and done.returncode != 0:
            assert done.returncode == 1 and "No such file or directory" in done.stderr, line
            continue
        assert done.stdout or command == "chat", line  # nothing was said to it


# ---- arguments -----------------------------------------------------------------------------------

@pytest.mark.parametrize("line,words", [
    ("rnu", ["'rnu'", "'run'"]),
    ("perplexiyt", ["'perplexity'"]),
    ("xyzzy", ["'xyzzy'", "--help"]),
    ("", ["--help"]),
    ("run --temp nan", ["--temp", "nan", "0 to 1000"]),
    ("run --temp inf", ["--temp"]),
    ("run --temp -0.1", ["--temp", "0 to 1000"]),
    ("run --temp=", ["--temp"]),
    ("run -t 0", ["-t", "1 to 1024"]),
    ("run --threads 1025", ["--threads", "1 to 1024"]),
    ("run --top-p -1", ["--top-p", "0 to 1"]),
    ("run --top-p 1.1", ["--top-p", "0 to 1"]),
    ("run --min-p 0,5", ["--min-p", "0 to 1"]),
    ("run --seed abc", ["--seed", "abc", "0 to 18446744073709551615"]),
    ("run -s 18446744073709551616", ["-s"]),
    ("run -s -2", ["-s"]),
    ("run -n 2147483648", ["-n", "-1 to 2147483647"]),
    ("run -n abc", ["-n", "abc"]),
    ("run -n", ["-n", "needs a value"]),
    ("run -n 1.5", ["-n", "1.5"]),
    ("run --top-k 4x", ["--top-k"]),
    ("run -c 2147483648", ["-c"]),
    ("run -b 0", ["-b", "1 to 2048"]),
    ("run --kv-type f8", ["--kv-type", "f16|f32"]),
    ("run -ctv f8", ["-ctv", "f16|f32"]),
    ("run --kv-type q8_0,f8", ["--kv-type", "'q8_0,f8'", "K,V"]),
    ("run --kv-type q8_0,", ["--kv-type", "'q8_0,'"]),
    ("run -ctk q8_0,q4_0", ["-ctk", "f16|f32"]),
    ("embed --kv-type-v f16", ["keys in auto", "values in f16"]),
    ("run --weights int5", ["--weights", "int4-g128"]),
    ("run --tmep 1", ["--tmep", "'--temp'"]),
    ("run --ids 1", ["--ids"]),
    ("run --quiet=1", ["--quiet", "no value"]),
    ("inspect a.gguf b.gguf", ["'b.gguf'"]),
    ("inspect -m a.gguf b.gguf", ["'b.gguf'"]),
    ("inspect -", ["'-'"]),
    ("run -l 3=nan", ["-l", "3=nan"]),
    ("run -l x=1", ["-l"]),
    ("run -p a -f b", ["-p", "-f"]),
    ("run -m SMALL --samplers top-k;miro", ["miro", "mirostat"]),
    ("run --mirostat 3", ["--mirostat", "0 to 2"]),
    ("run --dry-base 0.5", ["--dry-base", "1 to 1000"]),
    ("run --tfs 2", ["--tfs", "0 to 1"]),
    ("run -m SMALL --dry-multiplier 1 --dry-sequence-breaker=", ["--dry-sequence-breaker", "1 to 64"]),
    ("run -m SMALL -l 9999999=1", ["9999999"]),
    ("bench -p 1,x", ["-p", "1,x"]),
    ("bench -p 1,,2", ["-p"]),
    ("bench -p 0 -n 0", ["nothing to do"]),
    ("bench -pg 1", ["-pg", "pairs"]),
    ("bench -o xml", ["-o", "md|csv|json|jsonl"]),
    ("bench --ops -o csv", ["--ops", "csv"]),
    ("bench -r 0", ["-r", "1 to 10000"]),
    ("bench --gemm q4_0:K=64", ["--gemm", "FORMAT:K="]),
    ("bench --gemm q4_0:K=64,N=64,M=0", ["--gemm", "FORMAT:K="]),
    ("bench --gemm q4_0:K=64,N=64,7", ["--gemm", "FORMAT:K="]),
    ("bench --gemm act8:K=64,N=64", ["act8", "no format of weights"]),
    ("bench --exchange 8192,0", ["--exchange", "WIDTH[,ROWS,...]"]),
    ("bench --exchange 8192, --device cpu", ["--exchange", "WIDTH[,ROWS,...]"]),
    ("bench --image 64", ["--image", "WIDTHxHEIGHT[,N]"]),
    ("bench --image 64x48,0", ["--image", "WIDTHxHEIGHT[,N]"]),
    ("bench --image 65535x65535", ["--image", "134 million"]),
    ("bench --parallel 257", ["--parallel", "1 to 256"]),
    ("logits --rows 17 --ids 1", ["--rows", "1 to 16"]),
    ("logits --rows 0 --ids 1", ["--rows"]),
    ("logits --ids 1,-2", ["--ids"]),
    ("logits", ["--ids"]),
    ("logits -m SMALL --ids 1,4096", ["--ids", "4096", "4095"]),
    ("tokenize", ["-p", "--decode"]),
    ("tokenize -p a --decode 1", ["--decode"]),
    ("tokenize -m SMALL --decode 4096", ["--decode", "4095"]),
    ("tokenize -m SMALL --decode 1 --pair b", ["--pair", "-p"]),
    ("perplexity -m SMALL", ["-f"]),
    ("perplexity -c 7 -f x", ["-c"]),
])
def test_usage_errors(line, words):
    args = [str(SMALL) if word == "SMALL" else word for word in line.split(" ") if word]
    done = run(*args, check=False)
    assert done.returncode == 2 and done.stdout == ""
    one_error_line(done, *words)


@pytest.mark.parametrize("args,words", [
    (["run", "-m", "/nonexistent.gguf"], ["/nonexistent.gguf"]),
    (["run", "-m", "/dev/null", "-p", "x"], ["/dev/null"]),
    (["run", "-m", SMALL, "-f", "/nonexistent.txt"], ["/nonexistent.txt"]),
    (["run", "-m", SMALL, "-p", "word " * 3000], ["needs", "tokens, context is 1024"]),
    (["run", "-m", SMALL, "-c", 4, "-p", "Once upon a time there was"], ["context is 4"]),
    (["run", "-m", SMALL, "--device", "hip"], ["hip"]),
    (["logits", "-m", SMALL, "--ids", "1,2,3", "-c", 2], ["needs 3 tokens, context is 2"]),
    (["perplexity", "-m", SMALL, "-f", "/dev/null"], ["/dev/null"]),
])
def test_failures(args, words):
    done = run(*args, check=False)
    assert done.returncode in (1, 2) and done.stdout == ""
    one_error_line(done, *words)


def test_two_formats_of_a_cache():
    """-ctk and -ctv say --kv-type by parts, and a cache takes what both of them take."""
    plan = ("plan", "-m", SMALL, "--device", "cpu")

    def kept(*args):
        name = re.search(r"of KV \(--kv-type (\S+)\)", run(*plan, *args).stdout)[1]
        return name, json.loads(run(*plan, *args, "-o", "json").stdout)["rows"][0]["devices"][0]["kv_bytes"]

    whole = {kv: kept("--kv-type", kv)[1] for kv in ("f16", "q8_0", "q4_0")}
    for args, k, v in ((("-ctk", "q8_0", "-ctv", "q4_0"), "q8_0", "q4_0"), (("-ctv", "q4_0"), "f16", "q4_0"),
                       (("--kv-type", "q8_0,q4_0", "-ctk", "f16"), "f16", "q4_0")):
        name, bytes_of = kept(*args)
        assert name == f"{k},{v}" and 2 * bytes_of == whole[k] + whole[v]
    assert kept("-ctk", "q8_0", "-ctv", "q8_0") == ("q8_0", whole["q8_0"])
    rows = json.loads(run("bench", "-m", SMALL, "-p", 4, "-n", 0, "-r", 1, "-ctk", "q8_0", "-o", "json").stdout)
    assert (rows[0]["type_k"], rows[0]["type_v"]) == ("q8_0", "f16")
    latent = SHARED / "goldens/deepseek-v3"
    if latent.is_dir():
        one_error_line(run("logits", "-m", latent, "--ids", "1,2", "--kv-type", "f32,f16", check=False),
                       "--kv-type", "f32,f16", "part of their keys")


def test_huge_context_is_refused_at_once():
    start = time.monotonic()
    done = run("run", "-m", SMALL, "-c", 2147483647, "-n", 1, check=False)
    assert done.returncode == 1 and time.monotonic() - start < (60 if SLOW else 5)
    one_error_line(done, "B")


def test_environment():
    done = run("run", env={"GODWIT_ARG_TEMP": "nan"}, check=False)
    assert done.returncode == 2
    one_error_line(done, "GODWIT_ARG_TEMP", "0 to 1000")
    env = {"GODWIT_ARG_MODEL": str(SMALL), "GODWIT_ARG_PROMPT": "The king",
           "GODWIT_ARG_PREDICT": "0", "GODWIT_ARG_QUIET": "1"}
    done = run("run", env=env)
    assert done.stdout.strip() == "The king" and done.stderr == ""
    assert run("run", "-p", "The queen", env=env).stdout.strip() == "The queen"
    assert run("run", env=env | {"GODWIT_ARG_QUIET": "yes"}, check=False).returncode == 2


# ---- run -----------------------------------------------------------------------------------------

def story(*args, **more):
    return run("run", "-m", SMALL, "--quiet", *args, **more).stdout


def test_story_without_arguments():
    done = run("run", "-n", "12", "--temp", "0")
    assert done.stdout.startswith("Once upon a time") and done.stdout.endswith("\n")
    assert len(done.stdout) > len("Once upon a time") + 12
    for words in ("load ", "first token ", "prompt ", "tok/s", "GB/s", "tells children's stories", "cannot chat"):
        assert words in done.stderr, done.stderr
    assert "\033" not in done.stderr and "memory" not in done.stderr


@pytest.mark.skipif(SLOW, reason="speed and memory matter here")
def test_first_text_measures_nothing():
    """The reading of the memory touches 512 MB and takes seconds: only who asks for it pays."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = subprocess.run([sys.executable, "-c",
                           "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True, "
                           "check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)",
                           *map(str, PROGRAM), "run", "-n", "20", "-t", "1", "--device", "cpu"],
                          capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert int(peak.stdout) < 60_000  # kB
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3


def test_share_of_the_memory():
    """Of weights that the caches hold it is none, and it is never above 100%."""
    said = run("run", "-m", SMALL, "-n", 30, "--stats", "-t", 1).stderr
    assert "MBU" not in said and "caches" in said
    assert "MBU" not in run("run", "-m", SMALL, "-n", 30, "-t", 1).stderr
    assert "memory" in run("run", "-m", SMALL, "-n", 3, "--stats", "text").stderr


def test_same_seed_same_text():
    args = ("-p", "The old king", "-n", "60", "--seed")
    first = story(*args, "5")
    assert first == story(*args, "5", "-t", "1") == story(*args, "5", "-b", "2")
    assert len({story(*args, seed) for seed in "123456"}) > 3
    assert story("-p", "The old king", "-n", "60", "--temp", "0") == story(
        "-p", "The old king", "-n", "60", "--top-k", "1", "--seed", "3")


def test_the_seed_shown_repeats_the_text(monkeypatch):
    monkeypatch.delenv("GODWIT_ARG_SEED")  # which program.py sets
    done = run("run", "-m", SMALL, "-n", "40")
    seed = re.search(r"seed (\d+)", done.stderr).group(1)
    assert story("-n", "40", "-s", seed) == done.stdout


def test_prompt_and_display(tmp_path):
    (tmp_path / "p.txt").write_text("The old king\n")
    args = ("-n", "20", "--temp", "0")
    whole = story("-p", "The old king", *args)
    assert whole.startswith("The old king")
    assert story("-f", tmp_path / "p.txt", *args) == whole
    given = subprocess.run([*PROGRAM, "run", "-m", SMALL, "-q", "-f", "-", *args],
                           input="The old king\n", capture_output=True, text=True, check=True)
    assert given.stdout == whole
    assert "The old king" + story("-p", "The old king", "--no-display-prompt", *args) == whole
    assert story("-p", "The old king", "-n", "0") == "The old king\n"
    assert story("-p", "", "-n", "5", "--temp", "0").endswith("\n")


def test_bytes_that_are_not_utf8():
    done = raw(["run", "-m", SMALL, "-q", "-n", "3", "-p", os.fsdecode(b"a\xff\xfeb")])
    assert done.returncode == 0
    done.stdout.decode("utf-8", "strict")


def test_every_chunk_of_output_is_utf8():
    """Tokens of one byte each must not be written before their character is whole."""
    text = "naïve 日本語 🙂 café"
    child = subprocess.Popen([*PROGRAM, "run", "-m", SMALL, "-q", "-n", "0", "-p", text],
                             stdout=subprocess.PIPE)
    out, _ = child.communicate(timeout=60)
    assert out.decode("utf-8").strip() == text


def test_ignore_eos_and_context_end():
    done = run("run", "-m", SMALL, "-c", "64", "--ignore-eos", "-p", "The end.")
    assert "context full" in done.stderr
    text = run("tokenize", "-m", SMALL, "--ids", "-q", "-p", done.stdout.rstrip("\n")).stdout
    assert 50 <= len(json.loads(text)) <= 80


def test_bias_forbids():
    args = ("-p", "Once upon a time", "-n", "1", "--temp", "0")
    text = story(*args).rstrip("\n")
    first = json.loads(run("tokenize", "-m", SMALL, "-q", "-p", text).stdout)[-1]
    assert story(*args, "-l", f"{first}=-inf") != story(*args)
    assert story(*args, "-l", f"{first}=5") == story(*args)


# ---- streams -------------------------------------------------------------------------------------

def test_reader_that_goes_away():
    args = ["run", "-m", SMALL, "-n", "5000", "-c", "6000", "--ignore-eos"]
    child = subprocess.Popen([*PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.read(1)
    child.stdout.close()
    words = child.stderr.read().decode()
    assert child.wait(timeout=60) == 1
    assert "Traceback" not in words and "signal" not in words


@pytest.mark.parametrize("args", [
    ["--help"], ["--version"], ["run", "--help"],
    ["run", "-m", SMALL, "-q", "-n", "3"],
    ["logits", "-m", SMALL, "--ids", "1,2"],
    ["tokenize", "-m", SMALL, "--ids", "-p", "x"],
    ["tokenize", "-m", SMALL, "--decode", "1,300"],
    ["bench", "-m", SMALL, "-p", "4", "-n", "0", "-r", "1", "-t", "1"],
    ["devices"], ["inspect", "-m", SMALL], ["plan", "-q", "-m", SMALL],
    ["perplexity", "-m", SMALL, "-q", "-f", DATA / "README.md", "-c", "16"],
], ids=lambda args: " ".join(map(str, args[:2])))
def test_full_disk_and_closed_stdout(args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PROGRAM, *map(str, args)], stdout=full, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, timeout=120)
    assert done.returncode == 1
    one_error_line(done, "cannot write: No space left on device")
    command = " ".join(shlex.quote(str(word)) for word in [*PROGRAM, *args]) + " >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1
    one_error_line(done, "cannot write: Bad file descriptor")


def test_closed_stdin():
    command = " ".join(map(shlex.quote, [*PROGRAM, "run", "-m", str(SMALL), "-f", "-"])) + " <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    one_error_line(done, "standard input")


def on_terminal(args, **env):
    """What a command writes to a stderr that is a terminal."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([*PROGRAM, *map(str, args)], stdout=subprocess.DEVNULL, stderr=theirs,
                             env={k: v for k, v in os.environ.items() if k != "NO_COLOR"} |
                                 {"TERM": "xterm"} | env)
    os.close(theirs)
    text = b""
    try:
        while block := os.read(ours, 65536):
            text += block
    except OSError:  # how a terminal says that the other side is closed
        pass
    os.close(ours)
    child.wait(timeout=120)
    return text.decode()


def test_colour_and_progress(tmp_path):
    assert "\033[1;31m" in on_terminal(["xyzzy"])
    assert "\033" not in on_terminal(["xyzzy"], NO_COLOR="1")
    assert "\033" not in on_terminal(["xyzzy"], TERM="dumb")
    times = 400 if SLOW else 3000  # longer than the 0.2 s before which no bar is drawn
    (tmp_path / "t.txt").write_text("The king and the queen had a daughter. " * times)
    args = ["perplexity", "-m", SMALL, "-f", tmp_path / "t.txt", "-c", "128", "-t", 1]
    assert re.search(r"scoring \[#*\.*\] +\d+%", on_terminal(args))
    assert on_terminal([*args, "-q"]) == ""


# ---- signals -------------------------------------------------------------------------------------

def interrupted(args, number, ready, times=1, stdin=subprocess.DEVNULL):
    """Start, wait until ready(child), send the signal; exit code, stdout, stderr, seconds."""
    child = subprocess.Popen([*PROGRAM, *map(str, args)], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, stdin=stdin)
    head = ready(child)
    start = time.monotonic()
    for _ in range(times):
        child.send_signal(number)
    out, words = child.communicate(timeout=60)
    return child.returncode, (head + out).decode(), words.decode(), time.monotonic() - start


ENDLESS = ["run", "-m", SMALL, "-n", "-1", "-c", "30000", "--ignore-eos", "-p", "Once upon a time"]


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupt_while_generating(number, code):
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("started by nohup")
    got, text, words, seconds = interrupted(ENDLESS, number, lambda child: child.stdout.read(200))
    assert got == code
    assert text.startswith("Once upon a time") and text.endswith("\n")
    assert "interrupted" in words and "tok/s" in words and "error" not in words
    assert seconds < (10 if SLOW else 0.5)  # 0.1 s on a quiet machine


def test_interrupt_while_reading(tmp_path):
    """A prompt that takes seconds."""
    (tmp_path / "long.txt").write_text("The king and the queen had a daughter. " * 4000)
    args = ["run", "-m", SMALL, "-c", "100000", "-f", tmp_path / "long.txt", "-b", "64"]
    got, text, words, seconds = interrupted(args, signal.SIGINT,
                                            lambda child: time.sleep(1) or b"")
    assert got == 130 and text == "" and "error" not in words
    assert "not read to the end" in words
    assert seconds < (20 if SLOW else 1)


def test_interrupt_at_standard_input():
    read, write = os.pipe()
    args = ["run", "-m", SMALL, "-f", "-"]
    got, text, words, _ = interrupted(args, signal.SIGINT, lambda child: time.sleep(1) or b"",
                                      stdin=read)
    os.close(read)
    os.close(write)
    assert (got, text) == (130, "") and words.startswith("interrupted after")


def test_second_interrupt():
    got, *_ = interrupted(ENDLESS, signal.SIGINT, lambda child: child.stdout.read(50), times=2)
    assert got == 130


# ---- logits and its file -------------------------------------------------------------------------

def read_safetensors(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header = json.loads(data[8:8 + length])
    assert list(header) == ["logits"] and header["logits"]["dtype"] == "F32"
    begin, end = header["logits"]["data_offsets"]
    assert begin == 0 and 8 + length + end == len(data)
    return numpy.frombuffer(data[8 + length:], "<f4").reshape(header["logits"]["shape"])


def words_of(done):
    return re.search(r"^hash: ([0-9a-f]{64})$", done.stdout, re.M).group(1)


def test_logits_file_hash_and_greedy(tmp_path):
    out = tmp_path / "l.safetensors"
    done = run("logits", "-m", SMALL, "--ids", "1,300,301,302", "--greedy", "5", "-o", out)
    logits = read_safetensors(out)
    assert logits.shape == (4, 4096)
    assert words_of(done) == hashlib.sha256(logits.tobytes()).hexdigest()
    greedy = re.search(r"^greedy: (\d+(,\d+){4})$", done.stdout, re.M).group(1).split(",")
    assert int(greedy[0]) == int(logits[-1].argmax())
    ids = ",".join(["1,300,301,302", *greedy[:4]])
    longer = run("logits", "-m", SMALL, "--ids", ids, "--rows", "prefill", "--greedy", "1")
    assert re.search(rf"^greedy: {greedy[4]}$", longer.stdout, re.M)
    assert [p.name for p in tmp_path.iterdir()] == ["l.safetensors"]
    mask = os.umask(0o22)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o666 & ~mask


def test_hash_does_not_depend_on_passes():
    ids = ",".join(str(300 + i * 37 % 3000) for i in range(40))
    hashes = {words_of(run("logits", "-m", SMALL, "--ids", ids, "-b", b, "-t", t))
              for b, t in ((1, 1), (7, 2), (512, 1), (512, 3))}
    assert len(hashes) == 1
    hashes = {words_of(run("logits", "-m", SMALL, "--ids", ids, "--rows", rows))
              for rows in ("decode", "1", "3", "16")}
    assert len(hashes) == 1


def test_text_is_tokenized_as_elsewhere():
    ids = json.loads(run("tokenize", "-m", SMALL, "-q", "-p", "The old king").stdout)
    of_text = run("logits", "-m", SMALL, "-p", "The old king")
    assert words_of(of_text) == words_of(run("logits", "-m", SMALL, "--ids",
                                             ",".join(map(str, ids))))


def test_existing_file_survives_failures(tmp_path):
    out = tmp_path / "l.safetensors"
    out.write_bytes(b"precious")

    def limited():  # no file beyond 10000 bytes: the quota of a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))

    done = raw(["logits", "-m", SMALL, "--ids", "1,2,3", "-o", out], preexec_fn=limited, text=True)
    assert done.returncode == 1 and done.stdout == ""
    one_error_line(done, str(out), "File too large")
    ids = ",".join(["5"] * 3000)
    got, *_ = interrupted(["logits", "-m", SMALL, "--rows", "decode", "--ids", ids, "-o", out],
                          signal.SIGINT, lambda child: time.sleep(0.5) or b"")
    assert got == 130
    assert out.read_bytes() == b"precious"
    assert [p.name for p in tmp_path.iterdir()] == ["l.safetensors"]


def test_output_is_not_the_model(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(SMALL.read_bytes())
    link = tmp_path / "link"
    link.symlink_to(model)
    for out in (model, link):
        done = run("logits", "-m", model, "--ids", "1", "-o", out, check=False)
        assert done.returncode == 1
        one_error_line(done, "model itself")
    assert model.read_bytes() == SMALL.read_bytes()


def test_output_to_places_without_files(tmp_path):
    done = run("logits", "-m", SMALL, "--ids", "1", "-o", tmp_path / "no/such/folder", check=False)
    assert done.returncode == 1
    one_error_line(done, "no/such/folder")
    done = run("logits", "-m", SMALL, "--ids", "1", "-o", "/dev/full", check=False)
    assert done.returncode == 1
    one_error_line(done, "/dev/full", "No space left on device")
    assert run("logits", "-m", SMALL, "--ids", "1", "-o", "/dev/null").returncode == 0
    assert os.path.exists("/dev/null") and not os.path.isfile("/dev/null")


def test_output_to_standard_output_and_pipes(tmp_path):
    """Neither is replaced by a file, and nothing else stands in it."""
    args = ["logits", "-m", SMALL, "--ids", "1,2"]
    whole = tmp_path / "whole"
    shown = run(*args, "-o", whole).stdout
    want = whole.read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    child = subprocess.Popen([*PROGRAM, *map(str, [*args, "-o", pipe])], stdout=subprocess.PIPE,
                             text=True)
    assert pipe.read_bytes() == want and child.communicate(timeout=120)[0] == shown
    assert child.returncode == 0 and pipe.is_fifo()
    done = raw([*args, "-o", "/dev/stdout"])
    assert (done.returncode, done.stdout, done.stderr.decode()) == (0, want, shown)
    before = os.lstat("/dev/stdout")
    with open(tmp_path / "redirected", "wb") as to:
        done = subprocess.run([*PROGRAM, *map(str, [*args, "-o", "/dev/stdout"])], stdout=to,
                              stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 0 and (tmp_path / "redirected").read_bytes() == want
    assert os.lstat("/dev/stdout").st_ino == before.st_ino
    done = run(*args, "-o", "/dev/stdout", "--greedy", "2", check=False)
    assert done.returncode == 2 and "--greedy" in done.stderr


# ---- tokenize ------------------------------------------------------------------------------------

@pytest.mark.parametrize("text", ["Once upon a time", " two  spaces ", "naïve 日本語 🙂", "a\nb\n\n",
                                  "<s>not special</s>", "\t\ttabs"])
def test_tokenize_and_back(text, tmp_path):
    (tmp_path / "t").write_text(text)
    done = run("tokenize", "-m", SMALL, "--ids", "-p", text)
    assert done.stderr == "" and re.fullmatch(r"\[\d+(,\d+)*\]\n", done.stdout)
    ids = json.loads(done.stdout)
    assert ids[0] == 1 and 1 not in ids[1:]
    bare = run("tokenize", "-m", SMALL, "--ids", "--no-bos", "-f", tmp_path / "t").stdout
    assert json.loads(bare) == ids[1:]
    back = run("tokenize", "-m", SMALL, "--decode", ",".join(map(str, ids))).stdout
    assert back == text + "\n"


def test_tokenize_shows_pieces_on_stderr():
    done = run("tokenize", "-m", SMALL, "-p", "king")
    assert re.fullmatch(r"\[[\d,]+\]\n", done.stdout) and "king'" in done.stderr
    assert json.loads(run("tokenize", "-m", SMALL, "-q", "--special", "-p", "</s>").stdout)[-1] == 2


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] crane ##s a bird ?".split()


def test_tokenize_pairs_and_files(tmp_path):
    vocab, ids = tmp_path / "vocab.txt", tmp_path / "ids"
    vocab.write_text("\n".join(WORDS) + "\n")
    done = run("tokenize", "-m", vocab, "-q", "-p", "Cranes?", "--pair", "A bird")
    assert done.stdout == "[2,5,6,9,3,7,8,3]\n[0,0,0,0,0,1,1,1]\n"
    ids.write_text(done.stdout.splitlines()[0])
    back = run("tokenize", "-m", vocab, "--decode-file", ids).stdout
    assert back == "cranes? a bird\n"
    kept = run("tokenize", "-m", vocab, "--decode-file", ids, "--special").stdout
    assert kept == "[CLS] cranes? [SEP] a bird [SEP]\n"
    ids.write_text("[1, x]")
    done = run("tokenize", "-m", vocab, "--decode-file", ids, check=False)
    assert done.returncode == 1 and done.stdout == ""
    one_error_line(done, "byte 4", "no token id")


def test_tokenize_shows_whole_characters_only(tmp_path):
    vocab = tmp_path / "tokenizer.model"
    vocab.write_text("".join(f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256)))
    back = run("tokenize", "-m", vocab, "--decode", "195,169,195,65,226,130").stdout
    assert back == "é\ufffdA\ufffd\n"


# ---- bench ---------------------------------------------------------------------------------------

# Lists of lengths and threads multiply in the first form, others in the forms after it.
BENCHES = {"json": (["-p", "8,16", "-n", "0", "-t", "1,2", "-r", "1"], [(8, 0, 0), (16, 0, 0)], [1, 2]),
           "jsonl": (["-p", "0", "-n", "4", "-d", "0,70", "-t", "2", "-r", "2"],
                     [(0, 4, 0), (0, 4, 70)], [2]),
           "csv": (["-p", "8", "-n", "4", "-pg", "8,4", "-t", "2", "-r", "1"],
                   [(8, 0, 0), (0, 4, 0), (8, 4, 0)], [2])}
FIELDS = {"build_commit", "cpu_info", "gpu_info", "backends", "model_filename", "model_type",
          "model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v",
          "n_gpu_layers", "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns",
          "avg_ts", "stddev_ts"}


def check_record(record):
    rate = (float(record["n_prompt"]) + float(record["n_gen"])) / (float(record["avg_ns"]) * 1e-9)
    assert float(record["avg_ts"]) >= rate * 0.999  # mean of rates, not rate of the mean
    if samples := record.get("samples_ts"):
        spread = numpy.std(samples, ddof=1) if len(samples) > 1 else 0
        assert float(record["avg_ts"]) == pytest.approx(numpy.mean(samples), rel=1e-4)
        assert float(record["stddev_ts"]) == pytest.approx(spread, rel=1e-3)
        assert float(record["avg_ns"]) == pytest.approx(numpy.mean(record["samples_ns"]), rel=1e-4)
    assert float(record["roof_read_gbps"]) > 0 and float(record["roof_int8_gops"]) > 0
    if float(record["n_prompt"]) == 0:
        gbps = float(record["avg_ts"]) * float(record["decode_bytes"]) * 1e-9
        assert float(record["gbps"]) == pytest.approx(gbps, rel=0.01, abs=1e-3)
    elif float(record["n_gen"]) == 0:
        assert float(record["gops"]) > 0


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_bench_records(form):
    args, tests, threads = BENCHES[form]
    text = run("bench", "-m", SMALL, *args, "-o", form).stdout
    records = {"json": lambda: json.loads(text),
               "jsonl": lambda: [json.loads(line) for line in text.splitlines()],
               "csv": lambda: list(csv.DictReader(io.StringIO(text)))}[form]()
    assert [tuple(int(r[name]) for name in ("n_prompt", "n_gen", "n_depth"))
            for r in records] == tests * len(threads)
    assert [int(r["n_threads"]) for r in records] == [n for n in threads for _ in tests]
    for record in records:
        assert FIELDS <= set(record)
        check_record(record)
        assert form == "csv" or len(record["samples_ns"]) == len(record["samples_ts"]) == int(args[-1])


def test_bench_of_an_odd_name(tmp_path):
    """JSON stays JSON, whatever the file is called."""
    path = os.fsencode(tmp_path) + b'/a"\\\n\xff\xe4\xb8\xad.gguf'
    os.symlink(os.fsencode(SMALL), path)
    done = raw(["bench", "-m", os.fsdecode(path), "-p", "2", "-n", "0", "-r", "1", "-t", "1",
                "-o", "json"])
    record, = json.loads(done.stdout.decode("utf-8"))
    assert record["model_filename"] == f'{tmp_path}/a"\\\n\ufffd中.gguf'


def test_bench_markdown_and_ops():
    lines = run("bench", "-m", SMALL, "-p", "8", "-n", "4", "-r", "1", "--ops").stdout.splitlines()
    head = [cell.strip() for cell in lines[0].split("|")[1:-1]]
    assert head == ["model", "size", "params", "backend", "threads", "test", "t/s", "GB/s", "roof"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:4]]
    assert [row[5] for row in rows] == ["pp8", "tg4"]
    assert all(re.fullmatch(r"[\d.]+ ± [\d.]+", row[6]) for row in rows)
    assert "int8" in rows[0][8] and ("MBU" in rows[1][8] or "caches" in rows[1][8])
    shares = [float(x) for line in lines for x in re.findall(r"MBU ([\d.]+)%|([\d.]+)% read", line) for x in x if x]
    assert all(x <= 100 for x in shares)
    kernels = [line for line in lines if line.startswith("| cpu.")]
    assert any(".linear." in line for line in kernels) and any("% " in line for line in kernels)
    assert len({line.count("|") for line in kernels}) == 1


def test_bench_of_one_product():
    """So small that a pass goes through its copies several times."""
    lines = run("bench", "--gemm", "q4_0:K=64,N=32,M=1,3", "--device", "cpu").stdout.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    assert [row[0] for row in rows] == ["M", "---:", "1", "3"]
    for row in rows[2:]:
        assert row[1].startswith("cpu.linear.q4_0.") and float(row[2]) > 0 and "% of" in row[6]


def test_bench_beside_a_forecast():
    """What the same placing is expected to do; nothing of a prompt that is no whole chunk."""
    say = ("bench", "-m", SMALL, "-p", "32,33", "-n", "2", "-b", "32", "-r", "1", "--device", "cpu", "--forecast")
    lines = run(*say).stdout.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    assert rows[0][7] == "forecast" and rows[3][7] == "-"
    assert all(re.fullmatch(r"[\d.]+, x[\d.]+", rows[i][7]) for i in (2, 4))


def test_bench_of_many_texts():
    """A row for each width; what llama-batched-bench names is named so."""
    rows = json.loads(run("bench", "-p", "20", "-n", "5", "--parallel", "1,3", "-r", "1", "-o",
                          "json").stdout)
    assert [(row["pp"], row["tg"], row["pl"], row["n_kv"]) for row in rows] == [(20, 5, 1, 25),
                                                                                (20, 5, 3, 75)]
    assert all(row["speed_pp"] > 0 and row["t"] >= row["t_pp"] > 0 for row in rows)


@pytest.mark.skipif(bool(EMULATOR) or not SYNTH.is_file(), reason=f"{SYNTH} is not there, or slow")
def test_bench_reads_beside_large_weights(tmp_path):
    """Where caches cannot hold the weights, memory is read between tokens."""
    path = tmp_path / "synthetic.gguf"
    subprocess.run([sys.executable, SYNTH, "1.1b", "f16", path, "--layers", "2"], check=True,
                   stdout=subprocess.DEVNULL)
    record, = json.loads(run("bench", "-m", path, "-p", "0", "-n", "3", "-r", "2", "-t", "2",
                             "--device", "cpu", "-o", "json").stdout)
    check_record(record)
    assert record["decode_bytes"] >= 256 << 20 and len(record["samples_ns"]) == 2
    sizes = {(size.parent.name, (size.parent / "shared_cpu_list").read_text()): size.read_text().strip()
             for size in pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache/index[2-9]/size")}
    caches = sum(int(size.removesuffix("K")) << 10 for size in sizes.values())
    if record["decode_bytes"] <= caches:  # of a large server: no share of the memory
        assert record["mbu"] == 0
        return
    share = record["gbps"] / record["roof_read_gbps"]  # above 1 where others were busy as the roof was measured
    assert record["mbu"] == (pytest.approx(share, rel=1e-2) if share <= 1 else 0)


# ---- perplexity ----------------------------------------------------------------------------------

def test_perplexity_is_what_the_logits_say(tmp_path):
    """The second half of each window, scored here again from the logits themselves."""
    text = "The king and the queen had a daughter, and she was the fairest of them all. " * 12
    (tmp_path / "t.txt").write_text(text)
    n = 64
    done = run("perplexity", "-m", SMALL, "-f", tmp_path / "t.txt", "-c", n, "-b", "17")
    got = re.fullmatch(r"PPL = ([\d.]+) \+/- ([\d.]+)\n", done.stdout)
    ids = json.loads(run("tokenize", "-m", SMALL, "-q", "-f", tmp_path / "t.txt").stdout)
    scores = []
    for start in range(0, len(ids) - n + 1, n):
        window = [1, *ids[start + 1:start + n]]
        out = tmp_path / "l"
        run("logits", "-m", SMALL, "--ids", ",".join(map(str, window)), "-o", out)
        logits = read_safetensors(out).astype("f8")
        logits -= logits.max(1, keepdims=True)
        logp = logits - numpy.log(numpy.exp(logits).sum(1, keepdims=True))
        scores += [-logp[i, window[i + 1]] for i in range(n // 2, n - 1)]
    assert len(scores) == len(ids) // n * (n // 2 - 1) > 31
    ppl = numpy.exp(numpy.mean(scores))
    assert float(got.group(1)) == pytest.approx(ppl, rel=1e-4)
    assert float(got.group(2)) == pytest.approx(
        ppl * numpy.std(scores) / numpy.sqrt(len(scores) - 1), rel=1e-3)


def test_perplexity_of_a_short_text(tmp_path):
    (tmp_path / "t.txt").write_text("too short")
    done = run("perplexity", "-m", SMALL, "-f", tmp_path / "t.txt", check=False)
    assert done.returncode == 1
    one_error_line(done, "tokens", "512")


# ---- devices -------------------------------------------------------------------------------------

def test_devices():
    text = run("devices").stdout
    names = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")][2:]
    assert "cpu" in names and "ref" in names
    measured = run("devices", "--measure").stdout
    assert all(float(x) > 0 for x in re.findall(r"reads ([\d.]+)|int8 ([\d.]+)|f32 ([\d.]+)",
                                                measured)[0] if x)
