# tests/test_score.py - rerankers made of a causal language model (LogitScore of sentence-transformers): pairs by
# the folder's own template, scores as the library gives them (tests/data/logit-score, tools/score_goldens.py),
# in `rerank` and the server.
import json
import shutil

import pytest

from program import DATA, EMULATOR, run
from serving import serving

FOLDER = DATA / "logit-score"
GOLDEN = json.loads((FOLDER / "scores.json").read_text())
PAIRS, FORMS = GOLDEN["pairs"], GOLDEN["forms"]


@pytest.fixture(scope="module", params=FORMS)
def form(request, tmp_path_factory):
    """(folder, what the library says): what all forms share, and over it what each has of its own."""
    folder = tmp_path_factory.mktemp("score") / "model"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns(*FORMS, "scores.json"))
    if (FOLDER / request.param).is_dir():
        shutil.copytree(FOLDER / request.param, folder, dirs_exist_ok=True)
    return folder, FORMS[request.param]


def scores(folder, query, documents, tmp_path, *args):
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"id": i, "text": d}) + "\n" for i, d in enumerate(documents)))
    lines = run("rerank", "-m", folder, "-q", query, "-f", path, "--quiet", *args).stdout.splitlines()
    return {int(i): float(score) for score, i, *_ in (line.split("\t") for line in lines if line.count("\t") >= 2)}


def test_tokens_and_scores(form, tmp_path):
    folder, golden = form
    for (query, document), want, ids in zip(PAIRS, golden["scores"], golden["ids"]):
        if query:
            said = run("tokenize", "-m", folder, "-p", query, "--pair", document, "--ids", "-q").stdout.splitlines()
            assert json.loads(said[0]) == ids and set(json.loads(said[1])) == {0}
        got = float(run("rerank", "-m", folder, "--ids", ",".join(map(str, ids))).stdout.split()[1])
        assert got == pytest.approx(want, abs=2e-5)
    asked = [d for q, d in PAIRS if q == PAIRS[0][0]]
    got = scores(folder, PAIRS[0][0], asked, tmp_path)
    assert [got[i] for i in range(len(asked))] == pytest.approx(golden["scores"][:len(asked)], abs=2e-5)


def test_cut_documents_keep_the_end_of_the_template(tmp_path):
    """As the library does it: the document gives way, not what opens the answer."""
    long, ids = "The sea was calm. " * 100, FORMS["flat"]["ids"][1]
    refused = run("rerank", "-m", FOLDER, "-q", "how", "-f", "-", "-c", 128, input=long, check=False)
    assert refused.returncode == 1 and "--truncate" in refused.stderr
    path = tmp_path / "d.txt"
    path.write_text(long)
    whole = json.loads(run("tokenize", "-m", FOLDER, "-p", "how", "--pair", long, "--ids", "-q").stdout.splitlines()[0])
    end = len(ids) - ids.index(2, 40)  # from the second <|im_end|> on
    want = run("rerank", "-m", FOLDER, "--ids", ",".join(map(str, whole[:128 - end] + whole[-end:]))).stdout.split()[1]
    got = run("rerank", "-m", FOLDER, "-q", "how", "-f", path, "-c", 128, "--truncate").stdout.split("\t")[0]
    assert got == want


@pytest.mark.skipif(bool(EMULATOR), reason="the server of the native build")
def test_server():
    with serving("--embeddings", model=FOLDER) as s:
        query, documents = PAIRS[0][0], [PAIRS[0][1], PAIRS[1][1]]
        rows = s.post("/v1/rerank", {"query": query, "documents": documents})["results"]
        got = {row["index"]: row["relevance_score"] for row in rows}
        assert [got[0], got[1]] == pytest.approx(FORMS["flat"]["scores"][:2], abs=2e-5)
        long = "word " * 20000
        for body, param in (({"query": query, "documents": ["a", long]}, "documents"), ({"query": long, "documents": ["a"]}, "query"),
                            ({"query": query, "texts": [long]}, "texts"), ({"query": query, "documents": [3]}, "documents")):
            assert s.post("/v1/rerank", body, expect=400)["error"]["param"] == param
        assert "LogitScore" in s.post("/v1/embeddings", {"input": "a"}, expect=400)["error"]["message"]


REFUSED = {  # what is changed: words of the refusal
    "module_input_name": ("1_LogitScore/config.json", {"true_token_id": 3, "module_input_name": "scores"}, "causal_logits"),
    "token": ("1_LogitScore/config.json", {"true_token_id": "yes"}, "true_token_id"),
    "none": ("1_LogitScore/config.json", {"false_token_id": 3}, "true_token_id"),
    "outside": ("1_LogitScore/config.json", {"true_token_id": 100000}, "100000"),
    "template": ("chat_template.jinja", None, "template"),
    "broken": ("chat_template.jinja", "{% if %}", "LogitScore"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    file, content, words = REFUSED[name]
    folder = tmp_path / "model"
    shutil.copytree(FOLDER, folder)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    (tmp_path / "d").write_text("a\n")
    done = run("rerank", "-m", folder, "-q", "a", "-f", tmp_path / "d", check=False)
    assert done.returncode == 1 and words in done.stderr and done.stdout == "", done.stderr
    if file.endswith("jinja"):  # it still makes text
        assert run("run", "-m", folder, "-p", "a", "-n", 2, "-q").returncode == 0
