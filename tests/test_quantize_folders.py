# tests/test_quantize_folders.py - `godwit quantize` of folders: the file has the folder's text, or is refused
# before anything is written. And one writer of an output at a time, which goes on only with its own work.
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import time

import pytest

from program import BIN, EMULATOR, SHARED, SLOW, copy_folder, run
from tensor_files import read_gguf, read_safetensors, write_gguf

GOLDENS, MODELS = SHARED / "goldens", SHARED / "models"
pytestmark = pytest.mark.skipif(not GOLDENS.is_dir() or SLOW, reason="needs the reference checkpoints")
# Of the decoders among the goldens: those whose weights and numbers GGUF can say.
ACCEPTED = """cohere2 gemma2 gpt-oss gpt-oss-mxfp4 gpt2 hunyuan-dense llama-awq-g32 llama-ct-fp8-channel
llama-ct-nvfp4a16 llama-ct-w4a16-asym-actorder llama-ct-w4a16-g64 llama-fp8-block llama-gptq-g32
llama-gptq-g64-actorder llama-gptq-v2-g64 llama-gqa-llama3rope llama-mha llama-pickle llama-sharded
ministral3-mm mistral-swa mixtral nemotron olmo3 qwen2 qwen2-moe qwen3 smollm3""".split()


def decoders():
    for path in sorted(GOLDENS.glob("*/golden.safetensors")):
        golden = read_safetensors(path)
        if "greedy_ids" in golden and "decoder_input_ids" not in golden:
            ids, greedy = (struct.unpack(f"<{len(golden[k][2]) // 8}q", golden[k][2])
                           for k in ("input_ids", "greedy_ids"))
            yield path.parent, ids, greedy[len(ids):]


def greedy(model, ids, n):
    done = run("logits", "-m", model, "--ids", ",".join(map(str, ids)), "--greedy", n, "--kv-type", "f32", "-t", 1)
    return tuple(map(int, re.search(r"^greedy: (.*)$", done.stdout, re.M).group(1).split(",")))


def test_every_decoder_keeps_its_text(tmp_path):
    accepted = []
    for folder, ids, want in decoders():
        out = tmp_path / "out.gguf"
        done = run("quantize", "-m", folder, "-o", out, "f32", "-t", 1, check=False)
        if done.returncode == 0:
            accepted.append(folder.name)
            assert greedy(out, ids, len(want)) == want, folder.name
            out.unlink()
        else:
            assert done.stderr.count("error:") == 1 and str(folder) in done.stderr, done.stderr
        assert not any(tmp_path.iterdir()), folder.name
    assert set(ACCEPTED) <= set(accepted)


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
# A change of a folder's config.json, and of what the refusal speaks; None: the file has the folder's text.
CHANGES = {
    "yarn": ("llama-mha", {"rope_parameters": YARN}, None),
    "yarn with betas": ("llama-mha", {"rope_parameters": YARN | {"beta_fast": 8.0, "beta_slow": 2.0}}, None),
    "yarn with a factor": ("llama-mha", {"rope_parameters": YARN | {"attention_factor": 0.7}}, None),
    "yarn with scales": ("qwen3", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}, None),
    "yarn not rounded": ("llama-mha", {"rope_parameters": YARN | {"original_max_position_embeddings": 1000, "truncate": False}},
                         "rope"),
    "linear": ("qwen2", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}}, None),
    "window": ("mistral-swa", {"sliding_window": 3}, None),
    "no window": ("mistral-swa", {"sliding_window": None}, None),
    "renorm": ("qwen2-moe", {"norm_topk_prob": True}, "norm_topk_prob"),
    "sparse": ("qwen2-moe", {"mlp_only_layers": [0]}, "tensor|mlp_only_layers|kind"),
    "activation": ("llama-mha", {"hidden_act": "gelu"}, "hidden_act"),
    "no query factor": ("ministral3-mm", {"text_config.rope_parameters.llama_4_scaling_beta": 0.0}, None),
    "query factor": ("ministral3-mm", {"text_config.rope_parameters.llama_4_scaling_beta": 0.3}, None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_config_says(name, tmp_path):
    source, change, refused = CHANGES[name]
    folder, out = copy_folder(GOLDENS / source, tmp_path / "model"), tmp_path / "out.gguf"
    config = json.loads((folder / "config.json").read_text())
    for key, value in change.items():
        at = config
        for part in key.split(".")[:-1]:
            at = at[part]
        at[key.split(".")[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))
    done = run("quantize", "-m", folder, "-o", out, "f32", "-t", 1, check=False)
    if refused is None:
        assert done.returncode == 0, done.stderr
        ids = list(range(3, 63, 3))
        assert greedy(out, ids, 12) == greedy(folder, ids, 12)
    else:
        assert done.returncode == 1 and re.search(refused, done.stderr), done.stderr
        assert not list(tmp_path.glob("out*"))


# ---- one writer ------------------------------------------------------------------------------------

def test_two_writers(tmp_path):
    """The journal is locked: whoever comes second is told so, and nothing of the first is touched."""
    out, journal = tmp_path / "out.gguf", tmp_path / "out.gguf.partial.journal"
    partial = tmp_path / "out.gguf.partial"
    partial.write_bytes(b"of the first")
    with open(journal, "w") as held:
        held.write("godwit quantize 1\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run("quantize", "-m", GOLDENS / "llama-mha", "-o", out, "f16", check=False)
        assert done.returncode == 1 and "another godwit quantize" in done.stderr
        assert partial.read_bytes() == b"of the first" and journal.read_text() == "godwit quantize 1\n"
    run("quantize", "-m", GOLDENS / "llama-mha", "-o", out, "f16")
    assert [p.name for p in tmp_path.iterdir()] == ["out.gguf"]


def test_a_journal_that_is_a_link(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "out.gguf.partial.journal").symlink_to("mine.txt")
    done = run("quantize", "-m", GOLDENS / "llama-mha", "-o", tmp_path / "out.gguf", "f16", check=False)
    assert done.returncode == 1 and "journal" in done.stderr
    assert (tmp_path / "mine.txt").read_text() == "kept"


def cut_off(out, *args):
    """A run that is killed when a few tensors are whole; False: it was too fast."""
    journal = out.with_name(out.name + ".partial.journal")
    child = subprocess.Popen([*EMULATOR, BIN, "quantize", "-o", out, *map(str, args), "-t", "1"],
                             stderr=subprocess.DEVNULL)
    while child.poll() is None and not (journal.exists() and journal.read_text().count("\n") > 6):
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    return journal.exists()


def few_bits_of_each(raw):
    """A repaired download: every tensor is another one, by a few bytes."""
    return bytes(b ^ (i % 4099 == 1) for i, b in enumerate(raw))


@pytest.mark.parametrize("changed", ["source", "imatrix", "nothing"])
def test_resume_knows_its_work(changed, tmp_path):
    source, out, matrix = tmp_path / "s.gguf", tmp_path / "out.gguf", tmp_path / "imatrix.gguf"
    pairs, tensors = read_gguf(MODELS / "tales-2m-f16.gguf")
    write_gguf(source, pairs, tensors)
    matrix.write_bytes((SHARED / "quant/tales-2m.imatrix.gguf").read_bytes())
    args = ("-m", source, "q4_k_m", "--imatrix", matrix)
    for _ in range(5):
        if cut_off(out, *args):
            break
        out.unlink()
    else:
        pytest.skip("no run could be cut off")
    if changed == "source":
        write_gguf(source, pairs, {name: (shape, kind, few_bits_of_each(raw) if kind == 1 else raw)
                                   for name, (shape, kind, raw) in tensors.items()})
    elif changed == "imatrix":
        raw = bytearray(matrix.read_bytes())
        raw[-4096:] = bytes(b ^ (i % 4 == 2) for i, b in enumerate(raw[-4096:]))  # a bit of some floats
        matrix.write_bytes(raw)
    run("quantize", "-o", out, *args, "--resume", "-t", 1)
    run("quantize", "-o", tmp_path / "whole.gguf", *args, "-t", 1)
    assert out.read_bytes() == (tmp_path / "whole.gguf").read_bytes()
    assert not os.path.exists(f"{out}.partial.journal")
