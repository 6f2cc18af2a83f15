# tests/test_manual.py - what the program writes about itself when it is built: the man page and the
# completions of three shells; and `godwit doctor` as a whole.
import platform
import re
import shutil
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, run

TABLE = re.compile(r"^  (-[^ ].*?)(?:  |$)", re.M)


def commands():
    return re.findall(r"^  ([a-z]+) ", run("--help").stdout, re.M)


def options(command):
    """Every name that --help shows."""
    text = run(command, "--help", "all").stdout.split("options:\n")[1].split("\nAn option can")[0]
    return {n for line in TABLE.findall(text) for n in re.findall(r"(?<![\w-])--?[a-z][\w-]*", line)}


def completion(shell, tmp_path):
    path = tmp_path / {"bash": "godwit", "zsh": "_godwit", "fish": "godwit.fish"}[shell]
    path.write_text(run("help", "--completion", shell).stdout)
    return path


def test_man_page_names_everything(tmp_path):
    text = run("help", "--man").stdout
    for command in commands():
        part = text.split(f'.SH "GODWIT {command.upper()}"\n')[1].split("\n.SH ")[0]
        for name in options(command):
            assert re.search(r"\\fB" + re.escape(name.replace("-", "\\-")) + r"\\fR", part), name
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=text, capture_output=True,
                              text=True)
        assert done.returncode == 0 and done.stderr == "" and "inspect" in done.stdout


def test_bash(tmp_path):
    path = completion("bash", tmp_path)

    def complete(*words):
        line = " ".join(f"'{w}'" for w in words)
        script = (f"source {path}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _godwit; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return set(done.stdout.split())
    assert complete("godwit", "") == set(commands()) | {"help", "--help", "--version"}
    assert complete("godwit", "ch") == {"chat"}
    assert complete("godwit", "help", "in") == {"inspect"}
    for command in commands():
        assert complete("godwit", command, "-") == options(command)
    assert complete("godwit", "run", "--weights", "int4-g1") == {"int4-g128"}
    assert complete("godwit", "run", "-m", "mod") == set()  # file names are the shell's business


def test_zsh(tmp_path):
    if not shutil.which("zsh"):
        pytest.skip("SKIP: no zsh")
    path = completion("zsh", tmp_path)
    subprocess.run(["zsh", "-n", path], check=True)
    # The shell's own parser of option descriptions, without a terminal to complete on.
    script = (f"fpath=({tmp_path} $fpath); autoload -Uz compinit _godwit; compinit -u -D -d "
              f"{tmp_path}/dump; _arguments() {{ print -rl -- $@ }}; _describe() {{ print $commands }}; "
              "words=(godwit COMMAND ''); CURRENT=3; _godwit")
    for command in ("chat", "inspect"):
        done = subprocess.run(["zsh", "-f", "-c", script.replace("COMMAND", command)],
                              capture_output=True, text=True)
        assert done.stderr == "" and done.returncode == 0
        shown = set(re.findall(r"^\*?(--?[a-z][\w-]*)\[", done.stdout, re.M))
        assert shown == options(command)
        assert ":file:_files" in done.stdout.splitlines()


def test_fish(tmp_path):
    path = completion("fish", tmp_path)
    (tmp_path / "model.gguf").touch()
    text = path.read_text()
    for command in commands():
        assert f"-a {command} " in text
    if not shutil.which("fish"):
        pytest.skip("SKIP: no fish")
    done = subprocess.run(["fish", "--no-config", "-c",
                           f"source {path}; complete -C 'godwit run --weights int4-g1'; "
                           "complete -C 'godwit chat --chat-t'; complete -C 'godwit insp'; "
                           "complete -C 'godwit run mod'; complete -C 'godwit inspect mod'"],
                          capture_output=True, text=True, cwd=tmp_path,
                          env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["int4-g128", "--chat-template", "--chat-template-file", "inspect", "model.gguf",
                     "model.gguf"], done.stdout + done.stderr


def test_help_refuses_other_words():
    for words in (["--manual"], ["--completion"], ["--completion", "csh"], ["--man", "x"]):
        done = run("help", *words, check=False)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and done.stdout == ""


def test_doctor():
    done = run("doctor", "-t", "2", "--time", "600")  # a busy machine is slow, too
    assert "looking for devices" in done.stderr and "measuring" in done.stderr and "every kernel" in done.stderr
    found = re.search(r"^kernels   cpu: (\d+) of (\d+) give the scalar CPU's bits$", done.stdout, re.M)
    assert found and found[1] == found[2] and int(found[1]) > 20
    assert re.search(r"^speed     reads [\d.]+ GB/s; int8 ", done.stdout, re.M)
    assert re.search(r"^will use  --device ", done.stdout, re.M)
    odd = run("doctor", "-t", "1", "--device", "cpu", env={"GODWIT_CPU": "scalar", "GODWIT_ARG_TEMP": "0"})
    for words in ("GODWIT_CPU limits the cpu: scalar", "every command: GODWIT_ARG_TEMP=0",
                  "no vector instructions", "see the problems above"):
        assert words in odd.stdout, odd.stdout
    assert run("doctor", env={"GODWIT_CPU": "mmx"}, check=False).returncode != 0
    for level in ("mmx", "neon" if platform.machine() == "x86_64" else "avx2"):  # those that are named are those of this machine
        done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "a", env={"GODWIT_CPU": level}, check=False)
        levels = done.stderr.split("which has ")[1]
        assert done.returncode != 0 and "scalar" in levels and level not in levels, done.stderr


def test_doctor_ends_when_told():
    """At once, and with what is said so far: a signal, and the time limit."""
    told = subprocess.Popen([*EMULATOR, BIN, "doctor", "-t", "1", "--time", "600"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    assert "looking for devices" in told.stderr.readline()
    told.terminate()
    start = time.monotonic()
    assert told.wait(20) == 128 + 15 and time.monotonic() - start < 5
    told.stdout.close()
    told.stderr.close()
