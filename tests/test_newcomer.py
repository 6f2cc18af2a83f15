# tests/test_newcomer.py - what people type who come from elsewhere, and files with the oddities that
# people hand on: taken, answered with what to use instead, or noted; never a wrong guess.
import resource
import struct
import subprocess

import pytest

from program import BIN, DATA, EMULATOR, SLOW, run

SMALL = DATA / "tales-2m-q4_0.gguf"
SHORT = ("-n", 4, "--temp", 0, "--no-stats")


def text(*args, **more):
    return run("run", "-m", SMALL, *SHORT, *args, **more).stdout


# ---- where the prompt comes from -------------------------------------------------------------------

def test_prompt_down_a_pipe():
    want = text("-p", "The old king")
    assert text(input="The old king") == text(input="The old king\n") == want
    assert text("-p", "The old king", input="Another") == want  # what is said wins
    assert text(input="") == text("-p", "Once upon a time")


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_line_end_of_a_file(tmp_path, end):
    (tmp_path / "prompt.txt").write_bytes(b"The sea" + end.encode())
    assert text("-f", tmp_path / "prompt.txt") == text("-p", "The sea")


def test_model_as_a_word_or_a_folder(tmp_path):
    want = text("-p", "The sea")
    assert run("run", SMALL, *SHORT, "-p", "The sea").stdout == want
    (tmp_path / "one.gguf").symlink_to(SMALL)
    assert run("run", tmp_path, *SHORT, "-p", "The sea").stdout == want
    (tmp_path / "two.gguf").symlink_to(SMALL)
    done = run("run", tmp_path, "-p", "a", check=False)
    assert done.returncode != 0 and "2 .gguf files" in done.stderr


def test_escapes():
    assert text("-p", r"a\nb\x21", "-e") == text("-p", "a\nb!")
    assert text("-p", r"a\q", "-e") == text("-p", r"a\q") and r"\q" in text("-p", r"a\q")


def test_first_message_of_a_chat(tmp_path):
    args = ("chat", SMALL, "-n", 3, "--temp", 0, "-q")
    (tmp_path / "m.txt").write_text("Hello\r\n")
    want = run(*args, input="Hello\n").stdout
    assert want == run(*args, "-p", "Hello").stdout == run(*args, "-f", tmp_path / "m.txt").stdout
    assert run(*args, "-p", "Hello", "--single-turn", input="More\n").stdout == want


# ---- options of llama.cpp ---------------------------------------------------------------------------

@pytest.mark.parametrize("options,note", [
    ("-fa", ""), ("-fa on", ""), ("--flash-attn=auto", ""), ("--color", ""), ("-no-cnv", ""), ("-sm layer", ""),
    ("--top_k 40", ""), ("--no-mmap", "--no-mmap changes nothing"), ("--mlock", "--mlock"), ("-tb 2", "-tb")])
def test_taken(options, note):
    done = run("run", "-m", SMALL, *SHORT, "-p", "The sea", *options.split())
    assert done.stdout == text("-p", "The sea")
    assert done.stderr.startswith(note) and done.stderr.count("\n") == (note != "")


@pytest.mark.parametrize("options,instead", [
    ("-i", "godwit chat"), ("-cnv", "godwit chat"), ("-mg 1", "--device hip:1"),
    ("-sm row", "tensor"), ("--rope-freq-base 1e6", "model's own"), ("--lora-base x", "no other weights"), ("--port 80", "server")])
def test_answered(options, instead):
    done = run("run", "-m", SMALL, *options.split(), check=False)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert instead in done.stderr and "did you mean" not in done.stderr


@pytest.mark.parametrize("words,rc,named", [
    ("run llama3.2", 1, "llama3.2: no such file"), ("run llama3.2:1b -n 1", 1, "no such file"),
    ("run -m user/repo-GGUF", 1, "HF_HUB_OFFLINE"), ("bench -m user/repo:Q4_K_M", 1, "HF_HUB_OFFLINE"),
    ("chat -m hf:user/repo -p a", 1, "HF_HUB_OFFLINE"), ("run -hf user/repo", 1, "HF_HUB_OFFLINE"),
    ("run -m https://example.org/x.gguf", 1, "HF_HUB_OFFLINE"), ("serve -m user/repo", 1, "godwit pull user/repo"), ("run -m ~/x.gguf", 1, "~ was not expanded"),
    ("-m x.gguf -p hi", 2, "godwit run -m"), ("x.gguf", 2, "godwit run -m x.gguf"), ("info x", 2, "godwit inspect"),
    ("server -m x", 2, "godwit serve"), ("generate", 2, "godwit run"),
    ("run --device cuda", 1, "hip:N"), ("run --device cuda:0", 1, "hip:N"), ("run --device CUDA0", 1, "hip:N"),
    ("run --device gpu", 1, "hip:N"), ("run --device metal", 1, "opencl:N"), ("run --device Vulkan0", 1, "opencl:N"),
    ("run --device rocm", 1, "AMD cards are hip:N"), ("run --device cpu,cuda", 1, "hip:N")])
def test_words_of_others(words, rc, named):
    done = run(*words.split(), check=False, env={"HF_HUB_OFFLINE": "1"})
    assert done.returncode == rc and done.stdout == "" and done.stderr.count("\n") == 1
    assert named in done.stderr, done.stderr


def test_version_words():
    want = run("--version").stdout
    assert want.startswith("godwit ")
    for word in ("version", "-V", "-v"):
        assert run(word).stdout == want


def test_quantize_by_words(tmp_path):
    """IN OUT TYPE [THREADS], as llama-quantize has it, and as much of it as options do not give."""
    source = DATA / "tales-2m-f16.gguf"
    ways = [(source, tmp_path / "a.gguf", "Q4_0"), (source, tmp_path / "b.gguf", "Q4_0", 2),
            ("--pure", source, tmp_path / "c.gguf", "Q4_0"), ("-m", source, tmp_path / "d.gguf", "q4_0"),
            ("-m", source, "-o", tmp_path / "e.gguf", "Q4_0"), ("-o", tmp_path / "f.gguf", source, "Q4_0")]
    if not source.exists():
        ways = [("--allow-requantize", *[SMALL if w == source else w for w in way]) for way in ways]
    for way in ways:
        run("quantize", *way)
    assert {p.name for p in tmp_path.iterdir()} >= {c + ".gguf" for c in "abcdef"}
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    done = run("quantize", SMALL, tmp_path / "x.gguf", "q4_0", "more", check=False)
    assert done.returncode == 2 and "IN OUT TYPE" in done.stderr


@pytest.mark.parametrize("kind,word", [(b"adapter", "adapter"), (b"mmproj", "mmproj"), (b"imatrix", "--imatrix")])
def test_what_is_no_model(tmp_path, kind, word):
    def text(key, value):
        return struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) +
                                      text(b"general.architecture", b"llama") + text(b"general.type", kind))
    done = run("run", "-m", tmp_path / "x.gguf", "-n", 1, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "not a model" in done.stderr and word in done.stderr


def test_unknown_variables_are_named():
    done = run("run", "-m", SMALL, *SHORT, "-p", "a", env={"GODWIT_ARG_TMEP": "1", "GODWIT_ARG_ZZZZZZ": "1"})
    assert "GODWIT_ARG_TMEP is no option: did you mean GODWIT_ARG_TEMP" in done.stderr
    assert "GODWIT_ARG_ZZZZZZ is no option\n" in done.stderr


# ---- notes ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("args,word", [
    (("-p", "a", "-c", 8192), "trained for 1024"),
    (("-p", "<s>a"), "--special"),
    (("-p", "<s>a", "--special"), "two start tokens")])
def test_notes(args, word):
    done = run("run", "-m", SMALL, *SHORT, *args)
    assert word in done.stderr and done.stderr.count("\n") == 1
    assert run("run", "-m", SMALL, *SHORT, *args, "-q").stderr == ""
    assert run("run", "-m", SMALL, *SHORT, "-p", "a").stderr == ""


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_unknown_architecture(tmp_path, command):
    """What can be done is said, and which families there are."""
    def named(architecture):
        return b"general.architecture" + struct.pack("<IQ", 8, len(architecture)) + architecture
    known = SMALL.read_bytes()
    assert known.count(named(b"llama")) == 1
    (tmp_path / "new.gguf").write_bytes(known.replace(named(b"llama"), named(b"trunk")))
    done = run(command, tmp_path / "new.gguf", check=False)
    said = done.stderr + done.stdout * (command == "inspect")
    assert done.returncode == 1 and done.stderr.count("\n") <= 1
    for words in ("architecture 'trunk' is not known", "a newer version may know it", "--spec FILE describes it",
                  "inspect --families", "--spec"):
        assert words in said, said


@pytest.mark.skipif(SLOW, reason="sanitizers and emulators need more addresses")
def test_little_address_space():
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))
    done = subprocess.run([*EMULATOR, BIN, "run", "-m", SMALL, "-n", "2", "-p", "a", "-q", "-t", "2"],
                          preexec_fn=limit, capture_output=True)
    assert done.returncode == 0, done.stderr


# ---- the device chosen by itself --------------------------------------------------------------------

AUTO = {"GODWIT_ARG_DEVICE": "", "GODWIT_HIP_DRIVER": "none"}


def test_without_a_card_nothing_is_said():
    assert run("run", "-m", SMALL, *SHORT, "-p", "a", env=AUTO).stderr == ""
    assert run("run", "-m", SMALL, *SHORT, "-p", "a", "--device", "auto", env={**AUTO, "GODWIT_OPENCL": "item"}).stderr == ""
