# tests/test_translation.py - vocabularies whose numbers stand beside SentencePiece's pieces (M2M-100,
# Marian) as the reference library reads them; --to and --from.
import json
import shutil

import pytest

from program import DATA, SHARED, run

VOCABS = DATA / "numbered-vocab"


def numbers(done):
    return [int(i) for i in done.stdout.strip("[]\n ").replace(",", " ").split()]


@pytest.mark.parametrize("name", ["m2m100", "marian"])
def test_ids(name):
    for case in json.loads((VOCABS / name / "cases.json").read_text()):
        got = numbers(run("tokenize", "-m", VOCABS / name, "-p", case["text"], "--ids", "--special"))
        assert got == case["ids"], case["text"]


@pytest.fixture
def model(tmp_path):
    source = SHARED / "goldens/m2m100"
    if not source.is_dir():
        pytest.skip(f"{source} is not there")
    for name in ("sentencepiece.bpe.model", "vocab.json", "special_tokens_map.json",
                 "tokenizer_config.json"):
        shutil.copyfile(VOCABS / "m2m100" / name, tmp_path / name)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(source / name, tmp_path / name)
    return tmp_path


def language(model, name):
    names = json.loads((model / "special_tokens_map.json").read_text())["additional_special_tokens"]
    return len(json.loads((model / "vocab.json").read_text())) + names.index(f"__{name}__")


def test_to(model):
    """The text made begins with the language, the source with its own."""
    ids = numbers(run("tokenize", "-m", model, "-p", "The sea is calm.", "--ids"))
    assert ids[0] == language(model, "en") and ids[-1] == 2
    said = {}
    for to, own in (("fr", "en"), ("de", "en"), ("fr", "ru")):
        source = [language(model, own), *ids[1:]]
        want = run("logits", "-m", model, "--ids", ",".join(map(str, source)), "--decoder-ids",
                   f"2,{language(model, to)}", "--greedy", "4").stdout.split("greedy: ")[1].strip()
        want = want.split(",2", 1)[0] if ",2," in want + "," else want
        text = run("tokenize", "-m", model, "--decode", want).stdout.strip()
        done = run("run", "-m", model, "-p", "The sea is calm.", "--to", to, "--from", own,
                   "--temp", "0", "-n", "4", "--no-stats")
        assert done.stdout.strip() == text
        said[to, own] = done.stdout
        beam = run("run", "-m", model, "-p", "The sea is calm.", "--to", to, "--from", own,
                   "--beams", "1", "-n", "4", "--no-stats")
        assert beam.stdout == done.stdout
    drafted = run("run", "-m", model, "-p", "The sea is calm.", "--to", "fr", "--temp", "0", "-n",
                  "4", "--no-stats", "--draft", "ngram")
    assert drafted.stdout == said["fr", "en"]


def test_unknown_language(model):
    done = run("run", "-m", model, "-p", "a", "--to", "klingon", check=False)
    assert done.returncode == 2 and "'klingon'" in done.stderr and done.stderr.count("\n") == 1
