# tests/test_late.py - vectors of tokens: models of late interaction (ColBERT) against PyLate's outputs
# (tools/late_goldens.py), and --pooling none.
import base64
import json
import shutil

import numpy as np
import pytest

from program import DATA, SHARED, run
from serving import serving
from tensor_files import read_safetensors, write_safetensors

FOLDERS = ["colbert", "colbert-pylate"]
LIMIT = 2e-5


def values(tensors, name):
    kind, shape, raw = tensors[name]
    return np.frombuffer(raw, {"F32": "<f4", "I64": "<i8"}[kind]).reshape(shape)


def listed(name, use, tmp_path):
    folder = DATA / "goldens-families" / name
    texts = tmp_path / "texts.jsonl"
    lines = json.loads((folder / "texts.json").read_text())[use]
    texts.write_text("".join(json.dumps({"text": x, "id": i}) + "\n" for i, x in enumerate(lines)))
    return folder, texts, values(read_safetensors(folder / "golden.safetensors"), use), len(lines)


def distance(got, want):
    return np.linalg.norm(got.astype(float) - want) / np.linalg.norm(want.astype(float))


@pytest.mark.parametrize("use", ["query", "document"])
@pytest.mark.parametrize("name", FOLDERS)
def test_vectors(name, use, tmp_path):
    folder, texts, want, n = listed(name, use, tmp_path)
    out = tmp_path / "out.safetensors"
    args = ("embed", "-m", folder, "-f", texts, "--prompt-name", use, "--truncate")
    run(*args, "-o", out)
    got = read_safetensors(out)
    counts = values(got, "counts")
    golden = read_safetensors(folder / "golden.safetensors")
    assert counts.tolist() == ([12] * n if use == "query" else values(golden, "counts").tolist())
    assert distance(values(got, "embeddings"), want) < LIMIT
    rows = [json.loads(line) for line in run(*args, "-q").stdout.splitlines()]
    assert [(x["index"], x["id"], len(x["embedding"])) for x in rows] == [(i, i, c) for i, c in enumerate(counts)]
    assert (np.concatenate([x["embedding"] for x in rows]).astype("<f4") == values(got, "embeddings")).all()


def test_what_does_not_fit(tmp_path):
    folder, texts, _, _ = listed("colbert", "query", tmp_path)
    done = run("embed", "-m", folder, "-f", texts, "--prompt-name", "query", check=False)
    assert done.returncode == 1 and "text 1: " in done.stderr and "at most 11 fit; --truncate" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    done = run("embed", "-m", folder, "-p", "a", "-o", tmp_path / "x.npy", check=False)
    assert done.returncode == 2 and ".safetensors or .jsonl" in done.stderr
    done = run("embed", "-m", folder, "-p", "a", "--prompt-name", "passage", check=False)
    assert done.returncode == 1 and "files name no such prompt" in done.stderr


@pytest.mark.parametrize("name,file", [
    ("colbert-pylate", "config_sentence_transformers.json"), ("colbert-pylate", "sentence_bert_config.json"),
    ("colbert-pylate", "tokenizer_config.json"), ("colbert", "artifact.metadata")])
def test_settings_that_are_none(name, file, tmp_path):
    """A list, a number: in one line, not as if the file were not there."""
    folder = tmp_path / "m"
    shutil.copytree(DATA / "goldens-families" / name, folder)
    for text, says in (("[]", "must be a JSON object"), ('[{"query_length": 3}]', "must be a JSON object"), ("3", "expected near")):
        (folder / file).write_text(text)
        done = run("embed", "-m", folder, "-p", "a", "--prompt-name", "query", "-q", check=False)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
        assert file in done.stderr and says in done.stderr, done.stderr


def test_no_pooling(tmp_path):
    """Of any encoder: what the pooling would be of."""
    folder = DATA / "goldens-families/embeddinggemma2"
    golden = read_safetensors(folder / "golden.safetensors")
    ids, want = ",".join(map(str, values(golden, "input_ids"))), values(golden, "hidden")
    out = tmp_path / "out.safetensors"
    run("embed", "-m", folder, "--ids", ids, "--pooling", "none", "--no-normalize", "-o", out)
    assert distance(values(read_safetensors(out), "embedding"), want) < LIMIT
    run("embed", "-m", folder, "--ids", ids, "--no-normalize", "-o", out)
    assert distance(values(read_safetensors(out), "embedding"), want.mean(0)) < LIMIT
    rows = json.loads(run("embed", "-m", folder, "--ids", ids, "--pooling", "none", "-q").stdout)["embedding"]
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_server(tmp_path):
    folder, texts, _, n = listed("colbert", "document", tmp_path)
    lines = json.loads((folder / "texts.json").read_text())
    with serving("--embeddings", model=folder) as s:
        for use in ("query", "document"):
            some = ["a gull?", "on, no"]
            want = [json.loads(run("embed", "-m", folder, "-p", x, "--prompt-name", use, "-q").stdout)["embedding"]
                    for x in some]
            found = s.post("/v1/embeddings", {"input": some, "prompt_name": use})["data"]
            assert [np.array(x["embedding"]).astype("<f4").tolist() for x in found] == \
                [np.array(x).astype("<f4").tolist() for x in want]
            packed = s.post("/v1/embeddings", {"input": some[0], "prompt_name": use, "encoding_format": "base64"})
            first = [np.frombuffer(base64.b64decode(x), "<f4").tolist() for x in packed["data"][0]["embedding"]]
            assert first == np.array(want[0]).astype("<f4").tolist()
        assert s.post("/v1/embeddings", {"input": lines["document"][-1]}, expect=400)["error"]["message"]
        cut = s.post("/api/embed", {"input": [[5] * 30]})["embeddings"]
        assert len(cut) == 1 and 0 < len(cut[0]) <= 20


def test_scores_of_a_classifier(tmp_path):
    """One that a checkpoint happens to have is not that of vectors of tokens."""
    folder = tmp_path / "judge"
    shutil.copytree(DATA / "goldens-families/colbert", folder)
    tensors = read_safetensors(folder / "model.safetensors")
    for name, shape in (("classifier.weight", [2, 32]), ("classifier.bias", [2]),
                        ("bert.pooler.dense.weight", [32, 32]), ("bert.pooler.dense.bias", [32])):
        tensors[name] = ("F32", shape, np.zeros(shape, "<f4").tobytes())
    write_safetensors(folder / "model.safetensors", tensors)
    with serving("--embeddings", model=folder) as s:
        row = s.post("/v1/rerank", {"query": "a gull", "documents": ["on"]})["results"][0]
        assert row["relevance_score"] == pytest.approx(best("a gull", ["on"], DATA / "goldens-families/colbert")[0], abs=1e-5)


def vectors(folder, text, use):
    """The vectors that stand against PyLate's above."""
    done = run("embed", "-m", folder, "-p", text, "--prompt-name", use, "--truncate", "-q")
    return np.array(json.loads(done.stdout)["embedding"])


def best(query, documents, folder):
    """MaxSim: of each of the query's vectors the largest product with one of the document's."""
    q = vectors(folder, query, "query")
    return [float((q @ vectors(folder, d, "document").T).max(1).sum()) for d in documents]


@pytest.mark.parametrize("name", FOLDERS)
def test_rerank(name, tmp_path):
    folder = DATA / "goldens-families" / name
    lines = json.loads((folder / "texts.json").read_text())
    query, documents = lines["query"][0], [*lines["document"], "a gull?", "on, no"]
    want = best(query, documents, folder)
    order = sorted(range(len(want)), key=lambda i: -want[i])
    assert len({round(x, 4) for x in want}) > 2
    file = tmp_path / "documents.jsonl"
    file.write_text("".join(json.dumps({"text": x, "id": i}) + "\n" for i, x in enumerate(documents)))
    rows = [x.split("\t") for x in run("rerank", "-m", folder, "-q", query, "-f", file, "--truncate").stdout.splitlines()]
    assert [int(x[1]) for x in rows] == order
    assert [float(x[0]) for x in rows] == pytest.approx([want[i] for i in order], abs=1e-5)
    done = run("rerank", "-m", folder, "-q", "a gull " * 40, "-f", file, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "the query: " in done.stderr
    with serving("--embeddings", model=folder) as s:
        asked = {"query": query, "documents": documents, "truncation": True}
        found = s.post("/v1/rerank", asked)
        assert [x["index"] for x in found["results"]] == order
        assert [x["relevance_score"] for x in found["results"]] == pytest.approx([want[i] for i in order], abs=1e-5)
        n = len(vectors(folder, query, "query"))
        mean = s.post("/v2/rerank", {"query": query, "documents": documents, "top_n": 2})["results"]
        assert [x["relevance_score"] for x in mean] == pytest.approx([want[i] / n for i in order[:2]], abs=1e-5)
        assert s.post("/v1/rerank", {"query": 3, "documents": ["on"]}, expect=400)["error"]["param"] == "query"


def test_inputs_of_layers():
    """Of tables by token vectors are not known, and none are given; a projection of the embedding is."""
    folder = SHARED / "goldens/gemma4-e"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    done = run("embed", "-m", folder, "--ids", "1,2,3", check=False)
    assert done.returncode == 1 and "are not known yet" in done.stderr
