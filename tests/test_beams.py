# tests/test_beams.py - beam search against the texts and scores of the reference library
# (tests/data/beams.json), and how the program gives it: text, summary, what it excludes.
import json
import shutil

import pytest

from program import DATA, SHARED, run

CASES = json.loads((DATA / "beams.json").read_text())
MODEL = DATA / "tales-2m-q4_0.gguf"


def listed(ids):
    return ",".join(map(str, ids))


def beams(stdout):
    lines = [line.split() for line in stdout.splitlines() if line.startswith("beam: ")]
    return [(float(score), [int(i) for i in ids.split(",")]) for _, score, ids in lines]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c['model']}" for i, c in enumerate(CASES)])
def test_reference(case):
    model = SHARED / "goldens" / case["model"]
    if not model.is_dir():
        pytest.skip(f"{model} is not there")
    start = ["--decoder-ids", listed(case["start"])] if case["start"] else []
    n = len(case["start"] or case["ids"]) + case["most"]
    done = run("logits", "-m", model, "--ids", listed(case["ids"]), *start, "--kv-type", "f32",
               "-c", max(n, len(case["ids"])), "--greedy", case["most"], "--beams", case["beams"],
               "--length-penalty", case["length_penalty"], "--early-stopping", case["early"],
               "--no-repeat-ngram", case["no_repeat"])
    got = beams(done.stdout)
    assert [ids for _, ids in got] == [t["ids"] for t in case["texts"]]
    for (score, _), text in zip(got, case["texts"]):
        assert text["score"] is None or abs(score - text["score"]) < 1e-4 * max(1, abs(score))


def test_what_the_files_say(tmp_path):
    """generation_config.json has the penalty, the runs that may not repeat, the length, the end."""
    source = SHARED / "goldens/m2m100"
    if not source.is_dir():
        pytest.skip(f"{source} is not there")
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(source / name, tmp_path / name)
    (tmp_path / "generation_config.json").write_text(json.dumps({
        "length_penalty": 0.5, "no_repeat_ngram_size": 2, "max_length": 9, "eos_token_id": 2,
        "forced_eos_token_id": 2, "early_stopping": True}))
    ask = ["--ids", "5,6,7,8,2", "--decoder-ids", "2", "--beams", "3", "--kv-type", "f32"]
    got = beams(run("logits", "-m", tmp_path, *ask, "-c", "40").stdout)
    said = beams(run("logits", "-m", source, *ask, "-c", "40", "--greedy", "8", "--length-penalty",
                     "0.5", "--no-repeat-ngram", "2", "--early-stopping", "yes").stdout)
    lengths = [len(ids) for _, ids in got]
    assert max(lengths) == 8 and all(ids[-1] == 2 for _, ids in got)
    assert any(ids[-1] != 2 for _, ids in said) and all(len(ids) <= 8 for _, ids in said)


def test_text():
    say = ["run", "-m", MODEL, "-p", "Once upon a time", "-n", "12", "--beams", "4"]
    one, two = run(*say), run(*say, "--seed", "7", "--temp", "2", "-t", "1")
    assert one.stdout == two.stdout and one.stdout.startswith("Once upon a time")
    assert "beams   4, score -" in one.stderr
    alone = run(*say, "--no-display-prompt", "--stats", "json")
    assert one.stdout == "Once upon a time" + alone.stdout
    said = json.loads(alone.stderr.strip().splitlines()[-1])
    assert said["beams"] == 4 and said["text"]["tokens"] == 12
    assert abs(said["score"] * 12 - said["logprob"]) < 1e-4
    greedy = run(*say[:-1], "1", "--no-stats").stdout
    assert greedy == run(*say[:-2], "--temp", "0", "--no-stats").stdout


@pytest.mark.parametrize("more", [["--grammar", 'root ::= "a"'], ["--draft", "ngram"],
                                  ["--stop", "x"], ["--length-penalty", "long"],
                                  ["--beams", "65"], ["--early-stopping", "perhaps"]])
def test_refused(more):
    done = run("run", "-m", MODEL, "-p", "a", "--beams", "2", *more, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == ""
