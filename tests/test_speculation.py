# tests/test_speculation.py - speculation as a user meets it: the same text with every kind of draft, what
# is refused and why, the summary, the JSON, bench. The engine's part is in test_draft*.c.
import json
import re
import shutil

import pytest

from program import DATA, ROOT, SHARED, SLOW, run

TARGET = DATA / "tales-2m-q4_0.gguf"
DRAFT = DATA / "tales-2m-q4_k_m.gguf"
LARGE = ROOT / "models/tales-21m-q4_k_m.gguf"
PROMPT = ("The king had a daughter, and the daughter had a golden ball. The king had a son, and the "
          "son had")
SAMPLERS = [["--temp", 0], ["--temp", 0.8], ["--temp", 1.5, "--top-k", 0, "--top-p", 1],
            ["--temp", 0.8, "--repeat-penalty", 1.3, "--frequency-penalty", 0.2,
             "--repeat-last-n", 12],
            ["--temp", 0.9, "--samplers", "temperature;typical;penalties", "--typical", 0.8]]
SOURCES = [["--draft", DRAFT], ["--draft", DRAFT, "--draft-length", "fixed:15"],
           ["--draft", DRAFT, "--draft-length", "heuristic", "--draft-greedy"],
           ["--draft", TARGET, "--draft-length", "fixed:4"], ["--draft", "ngram"],
           ["--draft", "ngram", "--draft-length", "fixed:7"],
           ["--draft", DRAFT, "--draft-device", "ref", "--draft-length", "fixed:2"]]


def text(*args, model=TARGET, n=48, **more):
    return run("run", "-m", model, "-p", PROMPT, "-n", n, "-s", 3, "-q", "-t", 1, *args, **more).stdout


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: " ".join(map(str, s)))
def test_same_text(sampler):
    n = 12 if SLOW else 48
    plain = text(*sampler, n=n)
    assert len(plain) > len(PROMPT) + n
    for source in SOURCES:
        assert text(*sampler, *source, n=n) == plain, source


@pytest.mark.parametrize("n", [0, 1, 2, 17, -1])
def test_same_end(n):
    """As many tokens as asked for, or until the context is full, and the same reason."""
    def both(*more):
        done = run("run", "-m", TARGET, "-p", PROMPT, "-n", n, "-c", 64, "--temp", 0, "--ignore-eos",
                   "--stats", "json", *more)
        return done.stdout, json.loads(done.stderr.splitlines()[-1])
    plain, a = both()
    drafted, b = both("--draft", DRAFT, "--draft-length", "fixed:5")
    assert plain == drafted
    assert a["text"]["tokens"] == b["text"]["tokens"] and a["text"]["ended"] == b["text"]["ended"]
    assert n < 0 or a["text"]["tokens"] == n
    assert n >= 0 or a["text"]["ended"] == "context full"
    assert b["text"]["passes"] <= a["text"]["passes"] and "draft" not in a


def test_file_is_searched(tmp_path):
    """What the plain run would say, given as a file, is found there."""
    plain = text("--temp", 0, n=64)
    (tmp_path / "said.txt").write_text(plain)
    done = run("run", "-m", TARGET, "-p", PROMPT, "-n", 64, "--temp", 0, "--draft", "ngram",
               "--draft-file", tmp_path / "said.txt", "--draft-length", "fixed:8", "--stats", "json")
    assert done.stdout == plain
    draft = json.loads(done.stderr.splitlines()[-1])["draft"]
    assert draft["source"] == "lookup" and draft["looked_up"] == draft["drafted"] > 0
    assert draft["accepted"] > 0.8 * draft["drafted"]
    assert draft["tokens_per_pass"] > 5


@pytest.mark.skipif(SLOW, reason="a larger model")
def test_auto(tmp_path):
    """The largest model beside the target that is small enough and speaks its vocabulary."""
    for name, source in (("target.gguf", LARGE), ("small.gguf", TARGET), ("larger.gguf", DRAFT)):
        (tmp_path / name).symlink_to(source)
    (tmp_path / "broken.gguf").write_bytes(DRAFT.read_bytes()[:-5])
    plain = text("--temp", 0, model=tmp_path / "target.gguf", n=24)
    done = run("run", "-m", tmp_path / "target.gguf", "-p", PROMPT, "-n", 24, "--temp", 0, "--draft",
               "auto", "--draft-length", "heuristic", "--stats", "json")
    assert done.stdout == plain
    found = json.loads(done.stderr.splitlines()[-1])["draft"]
    assert re.fullmatch(r"\S+ Q4_K and lookup", found["source"]), found["source"]
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(TARGET, alone / "target.gguf")
    done = run("run", "-m", alone / "target.gguf", "-n", 4, "--draft", "auto", "--stats", "json")
    assert json.loads(done.stderr.splitlines()[-1])["draft"]["source"] == "lookup"


def test_other_ways_to_accept():
    """Both give a text of the length asked for; greedy rejection sampling is exact."""
    plain = text("--temp", 0)
    assert text("--temp", 0, "--draft", DRAFT, "--draft-accept", "rejection", "--draft-length",
                "fixed:4") == plain
    for how in ("rejection", "pool"):
        args = ["--temp", 1, "--draft", DRAFT, "--draft-accept", how, "--draft-length", "fixed:3"]
        assert text(*args) == text(*args)  # a seed means a text here too
        done = run("run", "-m", TARGET, "-p", PROMPT, "-n", 40, "-s", 3, *args, "--stats", "json")
        found = json.loads(done.stderr.splitlines()[-1])
        assert found["text"]["tokens"] == 40 and found["draft"]["accept"] == how
        assert found["draft"]["accepted"] > 0


def test_summary():
    done = run("run", "-m", TARGET, "-p", PROMPT, "-n", 40, "-s", 3, "--draft", DRAFT,
               "--draft-length", "fixed:3")
    assert re.search(r"^draft   \S+ Q4_K, exact, fixed:3: \d+ drafted, \d+ accepted \(\d+%\), "
                     r"by position 0\.\d\d( [01]\.\d\d){2}$", done.stderr, re.M), done.stderr
    # the first pass, and the last one, for which this text leaves a single token
    assert re.search(r"^passes  \d+, 2 of them without drafts, [1-4]\.\d\d tokens each; [\d.]+ tok/s, "
                     r"without [\d.]+ \(estimated\): \d+\.\d\dx$", done.stderr, re.M), done.stderr
    assert re.search(r"^text    40 tokens ", done.stderr, re.M)


def test_json_adds_up():
    done = run("run", "-m", TARGET, "-p", PROMPT, "-n", 40, "-s", 3, "--draft", DRAFT,
               "--draft-length", "fixed:3", "--stats", "json")
    found = json.loads(done.stderr.splitlines()[-1])
    draft, said = found["draft"], found["text"]
    assert said["tokens"] == draft["tokens"] == 40 and said["passes"] == draft["passes"]
    assert draft["tokens_per_pass"] * draft["passes"] == pytest.approx(39, abs=0.01)
    assert 0 < draft["accepted"] < draft["drafted"] <= 3 * draft["passes"]
    assert len(draft["acceptance_by_position"]) == 3 and len(draft["width_seconds"]) == 16
    assert draft["width_seconds"][0] > 0 and draft["width_seconds"][3] > 0
    assert draft["tokens_per_second"] > 0 and draft["tokens_per_second_without"] > 0


@pytest.mark.parametrize("args,code,words", [
    (["--draft", "no-such-file.gguf"], 1, ["no-such-file.gguf", "cannot open"]),
    (["--draft", DRAFT, "--draft-length", "fixed:16"], 2, ["fixed:16", "1 to 15"]),
    (["--draft", DRAFT, "--draft-length", "long"], 2, ["long", "heuristic"]),
    (["--draft", DRAFT, "--draft-accept", "most"], 2, ["exact|rejection|pool"]),
    (["--draft", DRAFT, "--draft-device", "gpu9"], 1, ["gpu9"]),
    (["--draft", DRAFT, "--draft-file", "x.txt"], 2, ["--draft-file", "ngram"]),
    (["--draft", "ngram", "--draft-file", "no-such.txt"], 1, ["no-such.txt"]),
    (["--draft", "ngram", "--draft-accept", "pool", "--top-k", 0, "--top-p", 1, "--min-p", 0], 2,
     ["pool", "vocabulary"]),
])
def test_refused(args, code, words):
    done = run("run", "-m", TARGET, "-n", 4, *args, check=False)
    assert done.returncode == code
    last = done.stderr.strip().splitlines()
    assert any(line.startswith("godwit: error: ") for line in last)
    for word in words:
        assert word in done.stderr


def test_no_vocabulary():
    other = SHARED / "goldens/llama-mha"
    if not other.exists():
        pytest.skip(f"SKIP: {other} is missing")
    done = run("run", "-m", TARGET, "-n", 4, "--draft", other, check=False)
    assert done.returncode == 1 and "tokenizer" in done.stderr


def test_other_vocabulary(tmp_path):
    """A draft that speaks otherwise is refused with the first difference."""
    image = bytearray(DRAFT.read_bytes())
    at = image.index("\u2581king".encode())
    image[at + 4:at + 5] = b"o"
    (tmp_path / "changed.gguf").write_bytes(image)
    done = run("run", "-m", TARGET, "-n", 4, "--draft", tmp_path / "changed.gguf", check=False)
    assert done.returncode == 1
    assert re.search(r"its token \d+ is '.kong', the target's is '.king'", done.stderr), done.stderr


def test_bench():
    lines = run("bench", "-m", TARGET, "-p", 0, "-n", 24, "-r", 2, "--draft", DRAFT,
                "--draft-length", "fixed:4", "--assume-acceptance", 0.9, "-o", "jsonl").stdout
    plain, drafted = map(json.loads, lines.splitlines())
    assert plain["draft"] == "" and plain["drafted"] == 0 and plain["speed_up"] == 0
    assert drafted["draft_length"] == "fixed:4" and drafted["n_gen"] == plain["n_gen"] == 24
    assert 2.5 < drafted["tokens_per_pass"] <= 5 and drafted["speed_up"] > 0
    assert drafted["draft_accepted"] > 0.5 * drafted["drafted"]
    assert drafted["passes"] >= 2 * 24 / 5 and drafted["tokens_per_pass"] * drafted["passes"] <= 48
    parts = drafted["draft_ms"] + drafted["verify_ms"] + drafted["pick_ms"] + drafted["wasted_ms"]
    assert 0 < drafted["draft_ms"] and 0 < drafted["verify_ms"]
    assert parts * drafted["passes"] <= sum(drafted["samples_ns"]) * 1e-6
    assert drafted["rows_5_ms"] > 0 and drafted["draft_step_ms"] > 0
    assert plain["draft_ms"] == plain["verify_ms"] == plain["rows_1_ms"] == 0
    table = run("bench", "-m", TARGET, "-p", 8, "-n", 8, "-d", "0,70", "-r", 1, "--draft", DRAFT,
                "--draft-length", "fixed:2").stdout
    assert [re.search(r"\| +((?:pp|tg)\d+(?: @ d70)?(?: draft)?) \|", row).group(1)
            for row in table.splitlines()[2:]] == ["pp8", "pp8 @ d70", "tg8", "tg8 draft",
                                                  "tg8 @ d70", "tg8 @ d70 draft"]
    assert re.search(r"\d\.\d\dx, \d\.\d\d tokens/pass", table)
    for args in (["--assume-acceptance", 0.5], ["--assume-acceptance", 0.5, "--draft", "ngram"]):
        done = run("bench", "-m", TARGET, "-n", 4, *args, check=False)
        assert done.returncode == 2 and "--draft MODEL" in done.stderr
