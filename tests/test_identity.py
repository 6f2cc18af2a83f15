# tests/test_identity.py - one arithmetic: the bits of the logits of whole models are equal for
# every instruction-set level, thread count, prefill chunk and row width, in every weight format. Each
# of these varies alone, against one anchor. Every format meets every level, long chunks and short,
# and a third of the widths, all three thirds by turns; one format of each kind meets all widths and
# chunks of 512.
# Equal to what: to the scalar level with one thread, of build/check or build/release where one exists
# (the newer), so that other processors are held against the same bits.
import functools
import hashlib
import json
import os
import pathlib

import pytest

from program import (BIN, DATA, EMULATOR, ROOT, SANITIZED, SHARED, SLOW, logits_hash, run, small_models,
                     some_ids)

LEVELS = ("avx2", "avx512", "vnni", "amx", "neon", "i8mm", "rvv")
# Beyond a chunk of 512 and, in pages, ragged; in slow builds beyond a chunk of 17 and a tile of 16.
IDS = some_ids(18 if SLOW else 531)
SOME = IDS[:150]  # several pages
FEW = IDS[:40]
# Every chunk and width is the business of the build that users run; the others prove their kernels.
OWN = pathlib.Path(os.environ.get("GODWIT_BUILD", "release")).name
BRIEF = SLOW or OWN not in ("check", "release")
# Names end so of one format of each kind: in blocks and in super-blocks, floats, made while loading,
# another cache.
KINDS = ("q4_0", "q6_k", "f16", "int8", "q8_0")
WHOLE = ("tales-2m-q4_0", "tales-2m-q6_k", "tales-2m-f16")

_natives = [ROOT / "build" / name / "godwit" for name in ("check", "release") if BRIEF or name == OWN]
_release = max((p for p in _natives if p.is_file()), key=lambda p: p.stat().st_mtime, default=None)
REFERENCE = str(_release) if _release else None
if REFERENCE is None and EMULATOR:
    pytest.skip("the bits to compare with come from build/check/godwit: build it first",
                allow_module_level=True)


def models():
    """(name, path, arguments) of everything there is to run."""
    found = small_models(("int8", "int4-g32", "int4-g64", "int4-g128", "int4-g256"))
    folder = SHARED / "models/tales-2m"
    if folder.is_dir():
        found["tales-2m folder"] = (folder, ())
    for p in sorted(DATA.glob("tales-2m-q4_0.gguf")):
        for kv in ("q8_0", "q5_0", "q4_0", "q8_0,q4_0", "q5_0,f16"):
            found[f"tales-2m kv {kv}"] = (p, ("--kv-type", kv))
    if SLOW:  # the op table of such a build has every format: whole models of three kinds
        found = {name: found[name] for name in found if name in WHOLE}
    return [pytest.param(path, args, id=name) for name, (path, args) in sorted(found.items())]


def of_each_kind():
    return [model for model in models() if model.id.endswith(KINDS)]


@functools.cache
def why_not(level):
    """None when the program under test runs this level here, else its words."""
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", cpu=level, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


KEPT = _release.parent / "anchors.json" if _release else None  # anchors of the program with this digest


@functools.cache
def kept_anchors():
    digest = hashlib.sha256(_release.read_bytes()).hexdigest()
    kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    return kept if kept.get("program") == digest else {"program": digest}


def anchor(path, args, rows, n):
    """The scalar bits, worked out once: what one build asked for serves those after it."""
    weights = path / "model.safetensors" if path.is_dir() else path
    state = weights.stat()
    key = json.dumps([str(path), state.st_size, state.st_mtime_ns, *args, rows, *IDS[:n]])
    found = kept_anchors().get(key) if REFERENCE else None
    if not found:
        found = logits_hash(path, IDS[:n], "--rows", rows, "-t", 1, *args, binary=REFERENCE, cpu="scalar")
        keep(key, found)
    return found


def keep(key, found):
    if REFERENCE:
        kept_anchors()[key] = found
        fresh = KEPT.with_name(f"anchors.{os.getpid()}")
        fresh.write_text(json.dumps(kept_anchors()))
        fresh.replace(KEPT)


@pytest.mark.parametrize("path,args", models())
@pytest.mark.parametrize("level", LEVELS)
def test_levels(path, args, level):
    if why_not(level):
        pytest.skip(why_not(level))
    ids = FEW if SLOW else SOME
    assert logits_hash(path, ids, *args, cpu=level) == anchor(path, args, "prefill", len(ids))
    assert (logits_hash(path, FEW, "--rows", "decode", *args, cpu=level)
            == anchor(path, args, "decode", len(FEW)))


@pytest.mark.parametrize("path,args", models() if BRIEF else of_each_kind())
def test_scalar_of_this_build(path, args):
    """A second compiler or processor: only here can its scalar code differ from the anchor. In the
    release, several threads are all that differs."""
    n = len(FEW)
    assert logits_hash(path, FEW, *args, cpu="scalar") == anchor(path, args, "prefill", n)


@pytest.mark.parametrize("path,args", models())
def test_chunks_and_threads(path, args):
    want = anchor(path, args, "prefill", len(SOME))
    for chunk, threads in ((17, 7),) if BRIEF else ((17, 7), (1, 2), (len(SOME) + 1, 1)):
        got = logits_hash(path, SOME, "-b", chunk, "-t", threads, *args)
        assert got == want, f"-b {chunk} -t {threads}"


@pytest.mark.parametrize("path,args", of_each_kind())
def test_beyond_a_chunk(path, args):
    want = anchor(path, args, "prefill", len(IDS))
    for chunk, threads in ((512, 2),) if BRIEF else ((512, 2), (512, 7), (512, 1), (17, 1)):
        got = logits_hash(path, IDS, "-b", chunk, "-t", threads, *args)
        assert got == want, f"-b {chunk} -t {threads}"


def widths(place):
    """Those of the model at this place of the list, 1 to 16."""
    if BRIEF:
        return 5, 16
    every = range(1, 17)
    return every if models()[place].id.endswith(KINDS) else every[place % 3::3]


@pytest.mark.parametrize("path,args,widths", [
    pytest.param(*model.values, widths(i), id=model.id) for i, model in enumerate(models())])
def test_widths(path, args, widths):
    want = anchor(path, args, "decode", len(FEW))
    for width in widths:
        got = logits_hash(path, FEW, "--rows", width, "-t", 1 + width % 2, *args)
        assert got == want, f"--rows {width}"
    assert logits_hash(path, FEW, "--rows", "decode", "-t", 7, *args) == want


@pytest.mark.skipif(BRIEF, reason="minutes in this build; the small models cover it")
@pytest.mark.parametrize("name", ["tales-21m", "tales-21m-q8_0.gguf", "tales-21m-q4_0.gguf",
                                  "tales-21m-q4_k_m.gguf", "tales-21m-q6_k.gguf"])
def test_trained_model(name):
    """Every level; at the best one the other chunk, widths and threads."""
    path = SHARED / "models" / name
    if name == "tales-21m-q4_k_m.gguf":
        path = ROOT / "models" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    levels = [l for l in LEVELS if not why_not(l)]
    for rows, variants in (("prefill", [("-b", b, "-t", t) for b, t in ((17, 2), (512, 7))]),
                           ("decode", [("--rows", w, "-t", t) for w, t in ((5, 1), (1, 2), (16, 7))])):
        want = anchor(path, (), rows, len(FEW))
        for level, variant in [*((l, variants[0]) for l in levels), *((None, v) for v in variants[1:])]:
            got = logits_hash(path, FEW, *variant, cpu=level)
            assert got == want, f"{rows} {level or 'as found'} {variant}"


def test_wrong_bits_are_seen():
    """The test can fail: other tokens give another digest."""
    path = DATA / "tales-2m-q4_0.gguf"
    assert logits_hash(path, FEW) != logits_hash(path, FEW[:-1] + [FEW[-1] + 1])
    assert pathlib.Path(BIN).is_file()


def test_codes_and_scales_apart():
    """Experts in MXFP4 as a folder has them, codes and exponents in two tensors, are those of the GGUF file."""
    folder = SHARED / "goldens/gpt-oss-mxfp4"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    ids = range(1, 13)
    assert logits_hash(folder, ids) == logits_hash(folder / "gpt-oss-mxfp4.gguf", ids)


# What Llama-like models do not have: windows by layer, sinks, caps, chunks, ALiBi, parallel blocks, experts.
NEW = ("gemma3-pattern", "gemma2", "gpt-oss", "llama4", "bloom", "cohere2", "mixtral", "qwen2-moe", "phi4-mini",
       "apertus", "qwen3-next", "nemotron-h-moe", "lfm2", "deepseek-v3", "gemma3n")


@pytest.mark.parametrize("name", NEW[1:3] if SLOW else NEW)
def test_kinds_of_layers(name):
    """Chunks, widths, threads and levels change no bit, whatever a layer is made of."""
    model = SHARED / "goldens" / name
    if not model.is_dir():
        pytest.skip(f"{model} is not there")
    ids = [1, 7, 3, 9, 2, 8, 5, 4, 6, 1, 2, 3, 11, 13, 12, 10, 9, 8, 7, 6]
    prompt, token = (logits_hash(model, ids, "--rows", rows, "-t", 1, cpu="scalar") for rows in ("prefill", "decode"))
    assert logits_hash(model, ids, "--rows", "prefill", "-b", 7) == prompt
    assert logits_hash(model, ids, "--rows", "prefill") == prompt
    for rows in ("decode", "5", "16"):
        assert logits_hash(model, ids, "--rows", rows) == token, rows


@pytest.mark.skipif(BRIEF, reason="the release has it")
@pytest.mark.parametrize("more", [("--draft", "ngram"), ("--kv-type", "q8_0"), ("--kv-type", "f32", "--draft", "ngram"),
                                  ("-c", 40, "--context-shift"), ("--grammar", 'root ::= [a-z ]+')])
def test_experts_and_drafts(more, tmp_path):
    """Windows by layer, sinks and experts at once: a text does not depend on drafts, chunks or a prompt cache."""
    model = SHARED / "goldens/gpt-oss-mxfp4/gpt-oss-mxfp4.gguf"
    if not model.is_file():
        pytest.skip(f"{model} is not there")
    args = ("run", "-m", model, "-p", "hello there hello there hello", "-n", 48, "--seed", 3, "--no-stats", "-q")
    plain = [x for x in more if x not in ("--draft", "ngram")]
    want = run(*args, *plain).stdout
    assert run(*args, *more, "-b", 3).stdout == want
    if "--context-shift" not in more:
        cache = tmp_path / "cache"
        assert run(*args, *plain, "--prompt-cache", cache).stdout == want
        assert cache.stat().st_size > 0
        assert run(*args, *more, "--prompt-cache", cache).stdout == want
