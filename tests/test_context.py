# tests/test_context.py - --prompt-cache and --context-shift through the program: the text is the one
# without a cache, and the one without speculation; files that do not fit are left alone in one line.
import os
import subprocess

import pytest

from program import DATA, run

SMALL = DATA / "tales-2m-q4_0.gguf"
OTHER = DATA / "tales-2m-q4_k_m.gguf"
PROMPT = "Once upon a time there was a king who had three sons, and the youngest of them"


def story(*args, model=SMALL, **more):
    return run("run", "-m", model, "--no-stats", "--seed", "3", "-n", "30", "-t", "1", *args, **more)


# ---- prompt cache --------------------------------------------------------------------------------

def test_same_text_with_and_without_a_cache(tmp_path):
    cache = tmp_path / "p.cache"
    plain = story("-p", PROMPT).stdout
    assert story("-p", PROMPT, "--prompt-cache", cache).stdout == plain  # writes it
    written = cache.read_bytes()
    assert story("-p", PROMPT, "--prompt-cache", cache).stdout == plain  # reads all of it
    assert cache.read_bytes() == written
    for prompt in (PROMPT + " was bold", PROMPT[:40], PROMPT[:30] + " queen", "Elsewhere"):
        want = story("-p", prompt).stdout
        for _ in range(2):
            assert story("-p", prompt, "--prompt-cache", cache).stdout == want, prompt
    assert story("-p", PROMPT, "--prompt-cache", cache, "--draft", "ngram").stdout == plain
    assert story("-p", PROMPT, "--prompt-cache", cache, "-c", "100", "-b", "3").stdout == plain
    assert os.listdir(tmp_path) == ["p.cache"]


def test_the_summary_says_what_was_read(tmp_path):
    cache = tmp_path / "p.cache"
    for words in ("0 more tokens", "more tokens of the prompt from"):
        done = run("run", "-m", SMALL, "-p", PROMPT, "-n", "2", "--prompt-cache", cache)
        assert words in done.stderr
    assert "prompt  1 tokens" in done.stderr


def test_read_only(tmp_path):
    cache = tmp_path / "p.cache"
    story("-p", PROMPT, "--prompt-cache", cache, "--prompt-cache-ro")
    assert not cache.exists()
    story("-p", PROMPT, "--prompt-cache", cache)
    written = cache.read_bytes()
    story("-p", "Elsewhere", "--prompt-cache", cache, "--prompt-cache-ro")
    assert cache.read_bytes() == written


@pytest.mark.parametrize("more,words", [
    (["-m", OTHER], "another model"),
    (["--kv-type", "f32"], "kv-type"),
    (["-c", "25", "-p", "A king"], "the context 25"),
    (["--device", "ref"], "another arithmetic"),
])
def test_a_cache_that_does_not_fit_is_left_alone(tmp_path, more, words):
    cache = tmp_path / "p.cache"
    story("-p", PROMPT + " was bold and strong and did not fear the wolf", "--prompt-cache", cache)
    written = cache.read_bytes()
    args = ("-p", PROMPT, "-n", "3", *more)
    done = story(*args, "--prompt-cache", cache)
    assert done.stdout == story(*args).stdout
    notes = [line for line in done.stderr.splitlines() if "p.cache" in line]
    assert len(notes) == 1 and "is not used" in notes[0] and "remove the file" in notes[0]
    assert words in notes[0]
    assert cache.read_bytes() == written


def test_a_damaged_cache_is_left_alone(tmp_path):
    cache = tmp_path / "p.cache"
    want = story("-p", PROMPT, "--prompt-cache", cache).stdout
    data = bytearray(cache.read_bytes())
    for broken in (data[:-5], data[:70], bytes(len(data)), data[:-900] + b"x" + data[-899:]):
        cache.write_bytes(broken)
        done = story("-p", PROMPT, "--prompt-cache", cache)
        assert done.stdout == want
        assert len([line for line in done.stderr.splitlines() if "p.cache" in line]) == 1
        assert cache.read_bytes() == broken


def test_an_empty_file_is_a_new_cache(tmp_path):
    cache = tmp_path / "p.cache"
    cache.touch()
    want = story("-p", PROMPT).stdout
    done = story("-p", PROMPT, "--prompt-cache", cache)
    assert done.stdout == want and "p.cache" not in done.stderr
    assert cache.stat().st_size > 1000
    assert story("-p", PROMPT, "--prompt-cache", cache).stdout == want


def test_a_cache_that_cannot_be_written_does_not_cost_the_answer(tmp_path):
    want = story("-p", PROMPT).stdout
    done = story("-p", PROMPT, "--prompt-cache", tmp_path / "none/p.cache")
    assert done.stdout == want
    assert [line for line in done.stderr.splitlines() if "is not written" in line and "p.cache" in line]
    done = subprocess.run(["sh", "-c", 'ulimit -f 8; exec "$0" "$@"', *story_args(tmp_path)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == want, done.stderr
    assert "p.cache" in done.stderr and os.listdir(tmp_path) == []


def story_args(folder):
    from program import BIN, EMULATOR
    return [*EMULATOR, BIN, "run", "-m", str(SMALL), "--no-stats", "--seed", "3", "-n", "30", "-t", "1",
            "-p", PROMPT, "--prompt-cache", str(folder / "p.cache")]


# ---- context shift -------------------------------------------------------------------------------

SHIFT = ("-p", PROMPT, "-n", "150", "-c", "64", "--ignore-eos", "--context-shift")


@pytest.mark.parametrize("keep", ["0", "7", "-1"])
def test_one_text_whatever_the_speculation_and_chunks(keep):
    plain = story(*SHIFT, "--keep", keep).stdout
    assert len(plain) > 300
    for more in (["--draft", "ngram"], ["--draft", SMALL], ["-b", "5"], ["-t", "2"],
                 ["--draft", OTHER, "--draft-length", "fixed:7"]):
        assert story(*SHIFT, "--keep", keep, *more).stdout == plain, more


def test_without_it_the_text_ends():
    done = run("run", "-m", SMALL, "-p", PROMPT, "-n", "300", "-c", "64", "--ignore-eos")
    assert "context full" in done.stderr


def test_what_is_kept_changes_the_text():
    assert len({story(*SHIFT, "--keep", keep).stdout for keep in ("0", "8", "-1")}) == 3


def test_keeping_everything_is_refused():
    done = run("run", "-m", SMALL, "-p", PROMPT, "-c", "20", "--context-shift", "--keep", "-1",
               check=False)
    assert done.returncode == 2 and "--keep" in done.stderr, done.stderr
