# tests/test_evaluate.py - `godwit evaluate`: figures of texts against numpy's from the same logits,
# llama.cpp's files of a base, tasks of every kind against the same texts written out, the references
# of other implementations, tables, and files that are no tasks.
import csv
import io
import json
import re
import struct
import xml.etree.ElementTree

import numpy
import pytest

from program import DATA, EMULATOR, SHARED, run

SMALL = DATA / "tales-2m-q4_0.gguf"
QUANT = SHARED / "quant"
TEXT = ("The king and the queen had a daughter, and she was the fairest of them all. In the wood "
        "there lived an old woman who knew nothing of it. ") * 4
N = 48  # tokens of a window


def one_error_line(done, *words):
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("godwit: error: "), done.stderr
    for word in words:
        assert word in lines[0], f"{word!r} is not in {lines[0]!r}"


def evaluate(*args, **more):
    return json.loads(run("evaluate", "-q", "-o", "json", *args, **more).stdout)["models"]


# ---- texts ---------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "t.txt"
    path.write_text(TEXT)
    ids = json.loads(run("tokenize", "-m", SMALL, "-q", "-f", path).stdout)
    return path, ids


def log_probabilities(ids, folder, *args):
    out = folder / "l"
    run("logits", "-q", "-m", SMALL, "--ids", ",".join(map(str, ids)), "-o", out, *args)
    data = out.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    shape = json.loads(data[8:8 + size])["logits"]["shape"]
    x = numpy.frombuffer(data[8 + size:], "<f4").reshape(shape).astype("f8")
    x = x - x.max(1, keepdims=True)
    return x - numpy.log(numpy.exp(x).sum(1, keepdims=True))


def scored(ids, stride):
    """(window, first row) by the definition of the page."""
    step = stride or N
    for at in range(0, len(ids) - N + 1, step):
        first = N // 2 if not stride else 0 if at == 0 else N - stride - 1
        yield [1, *ids[at + 1:at + N]], first


@pytest.mark.parametrize("stride", [0, 30])
def test_figures_of_a_text(text, tmp_path, stride):
    """A model against a base that differs in how activations are rounded."""
    path, ids = text
    own, base, token, size = [], [], [], 0
    for window, first in scored(ids, stride):
        lp, lb = (log_probabilities(window, tmp_path, *args) for args in (("--weights", "float"), ()))
        own.append(lp[first:-1])
        base.append(lb[first:-1])
        token += window[first + 1:]
        decode = [json.dumps(x)[1:-1].replace(" ", "") for x in (window[first:], window[first:first + 1])]
        whole, before = (run("tokenize", "-m", SMALL, "-q", "--decode", x).stdout for x in decode)
        size += len(whole.encode()) - len(before.encode())
    own, base = numpy.concatenate(own), numpy.concatenate(base)
    rows = numpy.arange(len(token))
    nll, base_nll = -own[rows, token], -base[rows, token]
    kl = (numpy.exp(base) * (base - own)).sum(1)
    dp = numpy.exp(-nll) - numpy.exp(-base_nll)
    want = {"scored": len(token), "bytes": size, "ppl": numpy.exp(nll.mean()),
            "ppl_err": numpy.exp(nll.mean()) * nll.std() / numpy.sqrt(len(token) - 1),
            "bits_per_byte": nll.sum() / numpy.log(2) / size, "base_ppl": numpy.exp(base_nll.mean()),
            "ln_ppl_ratio": (nll - base_nll).mean(), "kl": kl.mean(),
            "kl_err": kl.std(ddof=1) / numpy.sqrt(len(kl)), "kl_median": numpy.quantile(kl, 0.5),
            "kl_p90": numpy.quantile(kl, 0.9), "kl_p99": numpy.quantile(kl, 0.99), "kl_max": kl.max(),
            "same_top": (own.argmax(1) == base.argmax(1)).mean(),
            "rms_dp": numpy.sqrt((dp ** 2).mean()), "mean_dp": dp.mean(),
            "dp_p05": numpy.quantile(dp, 0.05)}
    assert len(token) > 40 and 0 < kl.mean() < 0.1
    for args in ((), ("-b", 7, "-t", 2))[stride > 0:]:
        got = evaluate("-m", SMALL, "--weights", "float", "--base", SMALL, "-f", path, "-c", N,
                       "--stride", stride, *args)[0]["text"]
        for name, value in want.items():
            assert got[name] == pytest.approx(value, rel=1e-5, abs=1e-9), name


def test_file_of_a_base(text, tmp_path):
    path, ids = text
    kld = tmp_path / "base.kld"
    saved = evaluate("-m", SMALL, "-f", path, "-c", N, "--save-all-logits", kld)[0]["text"]
    data = kld.read_bytes()
    windows = len(ids) // N
    assert data[:8] == b"_logits_" and struct.unpack("<Iii", data[8:20]) == (N, 4096, windows)
    assert list(struct.unpack(f"<{windows * N}i", data[20:20 + 4 * windows * N])) == ids[:windows * N]
    body = data[20 + 4 * windows * N:]
    assert len(body) == windows * (N // 2 - 1) * (8 + 2 * 4096)
    scale, least = struct.unpack("<ff", body[:8])
    window, first = next(scored(ids, 0))
    want = log_probabilities(window, tmp_path)[first]
    kept = numpy.frombuffer(body[8:8 + 2 * 4096], "<u2") * scale + least
    assert numpy.abs(numpy.maximum(want, want.max() - 16) - kept).max() < 16 / 65535
    # The same model against it, and another one: as with the base beside it.
    same, other = evaluate("-m", SMALL, "--kl-divergence-base", kld)[0]["text"], evaluate(
        "-m", SMALL, "--weights", "float", "--kl-divergence-base", kld)[0]["text"]
    beside = evaluate("-m", SMALL, "--weights", "float", "--base", SMALL, "-f", path, "-c", N)[0]["text"]
    assert abs(same["kl"]) < 1e-5 and same["same_top"] == 1 and same["ppl"] == saved["ppl"]
    assert other["kl"] == pytest.approx(beside["kl"], rel=0.01)
    assert other["base_ppl"] == pytest.approx(beside["base_ppl"], rel=1e-4)
    # What is not whole, and what is none.
    for name, broken, words in (("short", data[:-1], ["not whole"]),
                                ("vocabulary", data[:12] + struct.pack("<i", 4098) + data[16:], []),
                                ("windows", data[:16] + struct.pack("<i", -1) + data[20:], ["broken"]),
                                ("ids", data[:20] + struct.pack("<i", 4096) + data[24:], ["4096"]),
                                ("none", b"text", ["base.kld"])):
        kld.write_bytes(broken)
        done = run("evaluate", "-m", SMALL, "-q", "--kl-divergence-base", kld, check=False)
        assert done.returncode == 1 and done.stdout == "", name
        one_error_line(done, "base.kld", *words)


@pytest.mark.skipif(not (QUANT / "tales-2m-3x128.kld").is_file() or bool(EMULATOR),
                    reason=f"{QUANT} is not there, or arithmetic is slow here")
def test_references():
    """Of llama.cpp, and of a float32 implementation (README.md there)."""
    models = SHARED / "models"
    for cache, share, more in (("f32", 0.03, 0), ("f16", 0.01, 2e-4)):  # attention in float; in digits
        got = evaluate("-m", models / "tales-2m-q4_0.gguf", "-m", models / "tales-2m-q8_0.gguf", "--kv-type", cache,
                       "--kl-divergence-base", QUANT / "tales-2m-3x128.kld")
        for m, mean, p99, ppl in zip(got, (0.096160, 0.002368), (0.622231, 0.012594), (45.453824, 41.018034)):
            t = m["text"]
            assert abs(t["kl"] - mean) <= share * mean + more and abs(t["kl_p99"] / p99 - 1) <= 0.1
            assert abs(t["ppl"] / ppl - 1) <= 0.005
    want = json.loads((QUANT / "choice.json").read_text())["tales-2m"]
    tasks = evaluate("-m", models / "tales-2m", *(x for f in ("hellaswag.jsonl", "hellaswag.txt", "winogrande.csv")
                                                  for x in ("--tasks", QUANT / f)))[0]["tasks"]
    for t in tasks:
        ref = want[t["kind"]]
        assert t["acc"] == pytest.approx(ref["acc"]) and t["n"] == len(ref["tasks"])
        assert t.get("acc_norm") == ref.get("acc_norm")
        for a, b in zip(t["samples"], ref["tasks"]):
            assert a["loglikelihood"] == pytest.approx(b["loglikelihood"], abs=0.02)
            assert (a["ids"], a["gold"], a["acc"]) == (b["ids"], b["gold"], b["acc"])
            if t["kind"] == "hellaswag":
                assert a["means"] == pytest.approx(b["llama_cpp_mean"], abs=0.01)
                assert (a["characters"], a["acc_norm"], a["mean"]) == (
                    b["characters"], b["acc_norm"], b["llama_cpp_correct"])


# ---- tasks ---------------------------------------------------------------------------------------

def harness(text):
    """What lm-evaluation-harness makes of HellaSwag's texts."""
    return re.sub("\\[.*?\\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


ASK = "The following are multiple choice questions (with answers) about old tales.\n\n"
SEA = "Where did he go?\nA. to sea\nB. to bed\nC. home\nD. up\nAnswer:"
BIRD = "What sang?\nA. a bird\nB. a stone\nC. a door\nD. a hat\nAnswer:"
# file, its text, the query and the choices that the same task has when it is written out, the right one
KINDS = {
    "h.jsonl": ({"activity_label": "Cooking", "ctx_a": "He took [note] a  pot. [title] And", "ctx_b": "THEN he",
                 "endings": ["ate it [all] up.", "was  a pot."], "label": "1"},
                harness("Cooking: He took [note] a  pot. [title] And " + "THEN he".capitalize()),
                [" " + harness(x) for x in ("ate it [all] up.", "was  a pot.")], 1),
    "h.txt": ("He took a pot\n2\nand sang.\nof gold.\nand ran.\nto him.\n",
              "He took a pot", [" and sang.", " of gold.", " and ran.", " to him."], 2),
    "a.jsonl": ({"question": "What is old?", "choices": {"text": ["a king", "a day", "a tree"], "label": ["1", "2", "3"]},
                 "answerKey": "3"}, "Question: What is old?\nAnswer:", [" a king", " a day", " a tree"], 2),
    "o.jsonl": ({"question_stem": "The sea is", "choices": {"text": ["wide", "red"], "label": ["A", "B"]}, "answerKey": "A"},
                "The sea is", [" wide", " red"], 0),
    "p.jsonl": ({"goal": "Catch a fish", "sol1": "with a net", "sol2": "with a hat", "label": 0},
                "Question: Catch a fish\nAnswer:", [" with a net", " with a hat"], 0),
    "m.jsonl": ({"question": " Where did he go? ", "subject": "old_tales", "choices": ["to sea", "to bed", "home", "up"],
                 "answer": 0}, ASK + SEA, [" A", " B", " C", " D"], 0),
    "m.csv": ('"Where did he go?",to sea,"to bed",home,up,D\n', SEA, [" A", " B", " C", " D"], 3),
    "b.bin": (struct.pack("<II", 1, 8) + struct.pack("<I", 4) + b"He w" + struct.pack("<I", 2)
              + b"".join(struct.pack("<I", len(x)) + x for x in (b"ent", b"as")) + struct.pack("<ii", 0, 1)
              + struct.pack("<I", 0), "He w", [" ent", " as"], 1),
}


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else
                     (content if isinstance(content, str) else json.dumps(content) + "\n").encode())
    return path


def test_kinds_of_tasks(tmp_path):
    """Every kind has the likelihoods of the same texts as they stand, in one run over all files."""
    args = []
    for name, (content, query, choices, gold) in KINDS.items():
        plain = write(tmp_path / f"{name}.plain", {"query": query, "choices": [c[1:] for c in choices], "gold": gold})
        args += ["--tasks", write(tmp_path / name, content), "--tasks", plain]
    tasks = evaluate("-m", SMALL, *args)[0]["tasks"]
    again = evaluate("-m", SMALL, "-b", 5, "-t", 2, *args)[0]["tasks"]
    assert [t["samples"] for t in tasks] == [t["samples"] for t in again], "-b and -t change nothing"
    for got, plain in zip(tasks[::2], tasks[1::2]):
        a, b = got["samples"][0], plain["samples"][0]
        name = got["file"].rsplit("/", 1)[1]
        assert a["loglikelihood"] == b["loglikelihood"] and a["ids"] == b["ids"], name
        assert a["gold"] == b["gold"] == KINDS[name][3] and a["characters"] == b["characters"], name
        norm = [x / n for x, n in zip(b["loglikelihood"], b["characters"])]
        assert b["acc_norm"] == (norm.index(max(norm)) == b["gold"]), name
        assert a["acc"] == (a["loglikelihood"].index(max(a["loglikelihood"])) == a["gold"]), name
    assert [t["kind"] for t in tasks[::2]] == ["hellaswag", "hellaswag", "arc", "openbookqa", "piqa", "mmlu", "mmlu", "choice"]


def test_pairs_and_examples(tmp_path):
    """WinoGrande in both forms against logits; examples in front of questions of their subject."""
    sentence = "The fox ate the goose because _ was hungry, he said."
    pair = {"sentence": sentence, "option1": "the fox", "option2": "the goose", "answer": "1"}
    lines = write(tmp_path / "w.jsonl", pair)
    table = write(tmp_path / "w.csv", f'0,"{sentence}",the fox,the goose,1')
    dev = write(tmp_path / "dev.jsonl", "".join(json.dumps(x) + "\n" for x in (
        {"question": "Who?", "subject": "new_tales", "choices": ["a", "b", "c", "d"], "answer": 1},
        {"question": "What sang?", "subject": "old_tales", "choices": ["a bird", "a stone", "a door", "a hat"], "answer": "A"})))
    mmlu = write(tmp_path / "m.jsonl", KINDS["m.jsonl"][0])
    plain = write(tmp_path / "plain.jsonl", {"query": f"{ASK}{BIRD} A\n\n{SEA}", "choices": ["A", "B", "C", "D"], "gold": 0})
    a, b = evaluate("-m", SMALL, "--tasks", lines, "--tasks", table)[0]["tasks"]
    assert a["samples"] == b["samples"] and a["kind"] == b["kind"] == "winogrande"
    for k, option in enumerate(("the fox", "the goose")):
        before, ids = (json.loads(run("tokenize", "-m", SMALL, "-q", "--ids", "-p", x).stdout) for x in
                       (f"The fox ate the goose because {option}", sentence.replace("_", option)))
        lp = log_probabilities(ids, tmp_path)
        each = [lp[i - 1, ids[i]] for i in range(len(before), len(ids))]
        assert a["samples"][0]["loglikelihood"][k] == pytest.approx(sum(each), abs=1e-4)
        assert a["samples"][0]["means"][k] == pytest.approx(numpy.mean(each[:-1]), abs=1e-4)
    shots = evaluate("-m", SMALL, "--tasks", mmlu, "--shots", 1, "--shots-file", dev)[0]["tasks"][0]
    assert shots["samples"][0]["loglikelihood"] == evaluate("-m", SMALL, "--tasks", plain)[0]["tasks"][0]["samples"][0][
        "loglikelihood"]
    done = run("evaluate", "-m", SMALL, "--tasks", mmlu, "--shots", 2, "--shots-file", dev, check=False)
    assert done.returncode == 1
    one_error_line(done, "--shots", "1 examples")


@pytest.mark.parametrize("name,content,words", [
    ("x.jsonl", '{"query": "a", "choices": ["b", "c"], "gold": 0}\n{"query": 3,', ["line 2", "no JSON"]),
    ("x.jsonl", '{"question": "a"}', ["line 1", "hellaswag", "answerKey"]),
    ("x.jsonl", '\n{"query": "a", "choices": ["b"], "gold": 0}', ["line 2", "choices"]),
    ("x.jsonl", '{"query": "a", "choices": ["b", "c"], "gold": 2}', ["gold"]),
    ("x.jsonl", '{"activity_label": "a", "ctx_a": "a", "endings": ["b", "c"], "label": ""}', ["label", "test part"]),
    ("x.jsonl", '{"sentence": "no gap", "option1": "b", "option2": "c", "answer": "1"}', ["_"]),
    ("x.jsonl", '{"query": "a", "choices": ["b", "c"], "gold": 0}{"goal": "a", "sol1": "b", "sol2": "c", "label": 0}',
     ["another kind"]),
    ("x.jsonl", "[]", ["no tasks"]),
    ("x.txt", "a\n0\nb\nc\nd\n", ["line 5", "six lines"]),
    ("x.txt", "just a text\nof two lines\n", ["no file of tasks"]),
    ("x.csv", "0,no gap,a,b,1\n", ["line 1", "_"]),
    ("x.csv", '0,a _ b,"a,b,1\n', ["no file of tasks"]),
    ("x.csv", "0,a _ b,a,b,1\n1,a _ b,a,1\n", ["line 2", "4 fields"]),
    ("x.csv", "q,a,b,c,d,E\n", ["A, B, C or D"]),
    ("x.bin", struct.pack("<II", 1, 8) + struct.pack("<I", 2**31) + b"q", ["not whole"]),
    ("x.bin", struct.pack("<I", 2**31), ["not whole"]),
    ("x.txt", b"", ["no tasks"]),
])
def test_files_that_are_no_tasks(tmp_path, name, content, words):
    done = run("evaluate", "-m", SMALL, "--tasks", write(tmp_path / name, content), check=False)
    assert done.returncode == 1 and done.stdout == ""
    one_error_line(done, name, *words)


# ---- tables --------------------------------------------------------------------------------------

def test_tables(text, tmp_path):
    path, _ = text
    picture, tasks = tmp_path / "p<&>.svg", write(tmp_path / "h.txt", KINDS["h.txt"][0])
    args = ["-m", SMALL, "-m", SMALL, "--base", SMALL, "-f", path, "-c", N, "--chunks", 1, "--tasks", tasks]
    done = run("evaluate", *args, "--picture", picture)
    tables = [t.splitlines() for t in done.stdout.split("\n\n") if t.startswith("|")]
    assert [len(t) for t in tables] == [4, 4, 5]  # the tasks of the base too
    for t in tables:
        assert len({row.count("|") for row in t}) == 1, t
    assert done.stdout.count("| tales-2m-q4_0.gguf |") == 7
    shapes = [e.tag.rsplit("}", 1)[1] for e in xml.etree.ElementTree.parse(picture).iter()]
    assert shapes.count("circle") == 2 and shapes.count("polyline") == 1
    rows = list(csv.DictReader(io.StringIO(run("evaluate", "-q", *args, "-o", "csv").stdout)))
    assert len(rows) == 3 and rows[0]["kl"] == "" and float(rows[1]["kl"]) == float(rows[2]["kl"]) == 0
    assert set(rows[1]) > {"ppl", "kl_p99", "same_top", "hellaswag_acc_norm"} and None not in rows[1]


@pytest.mark.parametrize("line,words", [
    ("", ["-f", "--tasks"]),
    ("-f T --base M --kl-divergence-base x", ["--base"]),
    ("-f T --stride 48 -c 48", ["--stride"]),
    ("-f T --stride 8 --save-all-logits x", ["--stride"]),
    ("-m M -m M -f T --save-all-logits x", ["--save-all-logits"]),
    ("--tasks T --picture x", ["--picture"]),
    ("--tasks T --shots 2", ["--shots-file"]),
])
def test_usage(text, line, words):
    args = [{"T": text[0], "M": SMALL}.get(word, word) for word in line.split()]
    done = run("evaluate", *(args if "-m" in args else ["-m", SMALL, *args]), check=False)
    assert done.returncode == 2 and done.stdout == ""
    one_error_line(done, *words)
    assert not re.search(r"\bx\b", " ".join(p.name for p in text[0].parent.iterdir()))
