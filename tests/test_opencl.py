# tests/test_opencl.py - whole models on an OpenCL device: the bits of the scalar CPU, for every
# format, order and width; faults end in one line and exit code 1.
import functools
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest

from head_widths import write_model
from program import DATA, OPENCL_ALL, ROOT, SHARED, logits_hash, run, small_models, some_ids

IDS = some_ids(70)  # beyond a page
OPENCL = ("--device", "opencl")
BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ""))


@pytest.fixture(scope="module", autouse=True)
def device():
    """Skips this file where the program has no OpenCL backend or finds no device."""
    if "| opencl:0 |" not in run("devices").stdout:
        pytest.skip("no OpenCL device, or a program without the backend")


@functools.cache
def pocl(quick=False):
    """What PoCL is asked for on the way for graphics processors (tests/pocl.h). 3.1 takes a minute to
    optimize a kernel of all ops: quick."""
    if not re.search(r"PoCL.*driver 3\.", run("devices").stdout):
        return {"POCL_WORK_GROUP_METHOD": "cbs"}
    return {"POCL_EXTRA_BUILD_FLAGS": "-cl-opt-disable"} if quick and not OPENCL_ALL else {}


def models():
    found = small_models(("int8", "int4-g32", "int4-g256"))
    some = found if OPENCL_ALL else ("tales-2m-f16", "tales-2m-q4_0", "tales-2m-q4_k_m")
    return [pytest.param(*found[name], id=name) for name in sorted(found) if name in some]


@pytest.mark.parametrize("name", ["t5-v1.1", "m2m100"])
def test_beams(name):
    model = SHARED / "goldens" / name
    if not model.is_dir():
        pytest.skip(f"{model} is not there")
    ask = ["logits", "-m", model, "--ids", "5,6,7,8,9,2", "--decoder-ids", "2", "--greedy", "5",
           "--beams", "4", "-c", "40"]
    want = run(*ask, "--device", "cpu").stdout
    assert want.count("beam: ") == 4 and run(*ask, *OPENCL).stdout == want


@pytest.mark.parametrize("rows", ["prefill", "decode", "5", "16"] if OPENCL_ALL else ["prefill", "5"])
@pytest.mark.parametrize("path,args", models())
def test_hash(path, args, rows):
    ids = IDS if rows == "prefill" else IDS[:20]
    want = logits_hash(path, ids, "--rows", rows, "-t", 1, *args, cpu="scalar")
    assert logits_hash(path, ids, "--rows", rows, *args, *OPENCL) == want


@pytest.mark.parametrize("name", ["bailingmoe3", "glm5-next", "hy_v4", "minimax-m3"])
def test_lists_and_bounded_nets(name):
    model = DATA / "goldens-families" / name
    want = logits_hash(model, range(3, 19), "--rows", "5", "-t", 1, cpu="scalar")
    assert logits_hash(model, range(3, 19), "--rows", "5", *OPENCL) == want


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder for PoCL's code."""
    return tmp_path_factory.mktemp("pocl")


def variables(path):
    """The sections of a 64-bit ELF file that hold variables."""
    data = path.read_bytes()
    (at,), (size, count, names) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<3H", data, 58)
    sections = [struct.unpack_from("<2I4Q", data, at + i * size) for i in range(count)]
    starts = [sections[names][4] + s[0] for s in sections if s[5] > 0]
    found = {data[start:data.index(b"\0", start)] for start in starts}
    assert b".text" in found
    return found & {b".bss", b".data", b".tbss", b".tdata"}


@pytest.mark.parametrize("rows,kv,more", [("decode", "f16", ",last-joins"), ("3", "f16", ""),
                                          ("decode", "q8_0", ""), ("prefill", "q8_0", ""), ("3", "q4_0", ""),
                                          ("3", "q8_0,f16", ""), ("prefill", "q8_0,q4_0", "")])
@pytest.mark.parametrize("name", ["tales-2m-q4_0"])
def test_hash_team(name, rows, kv, more, compiled):
    """The way for graphics processors; steps of one row take norms and rotations into the launch
    that follows."""
    path = DATA / f"{name}.gguf"
    args = ("--rows", rows, "--kv-type", kv)
    want = logits_hash(path, IDS, *args, "-t", 1, cpu="scalar")
    env = {"GODWIT_OPENCL": "team,no-cache" + more, "POCL_CACHE_DIR": str(compiled), **pocl()}
    assert logits_hash(path, IDS, *args, *OPENCL, env=env) == want
    code = list(compiled.rglob("*.so"))
    assert code or "pocl" not in run("devices").stdout.lower()
    # else a local array that threads share (kernels_cl/common.cl): seldom wrong, where two run at once
    assert [(str(path), variables(path)) for path in code if variables(path)] == []


ONE_LAUNCH = "team,no-cache,walk=1"
GOLDENS = [(SHARED / "goldens" / name, 320) for name in ("llama-gqa-llama3rope", "qwen2", "qwen3")]


@pytest.mark.parametrize("path,vocab", [(DATA / "tales-2m-q4_0.gguf", 4096)] + GOLDENS * OPENCL_ALL,
                         ids=lambda value: getattr(value, "stem", ""))
def test_one_launch(path, vocab):
    """A step in one launch, as on NVIDIA, of one group (PoCL runs groups in turn). Goldens: floats in
    rows that fill no piece, biases, norms of heads."""
    if not path.exists():
        pytest.skip(f"no {path}")
    args, ids = ("--rows", "decode"), some_ids(70, vocab)
    one_a_step = f"{ONE_LAUNCH},must-walk,last-joins,fail-enqueue={len(ids) + 1}"
    env = {"GODWIT_OPENCL": one_a_step, **pocl(quick=True)}
    want = logits_hash(path, ids, *args, "-t", 1, cpu="scalar")
    assert logits_hash(path, ids, *args, *OPENCL, env=env) == want


def test_names_of_one_launch():
    """A step in one launch has the text of a source once for each set of options: what it defines gets a name of
    its own each time (walk.cl), or the second set does not build and all steps go op by op without a word."""
    walk = (ROOT / "backends/opencl/walk.c").read_text()
    sources = ["planes", "lanes", "attention", *re.findall(r'"(\w+) "', walk.split("sources[] = {")[1].split("}")[0])]
    assert len(sources) == 9
    named = re.findall(r"#define (\w+) NAMED\(\1\)", (ROOT / "kernels_cl/walk.cl").read_text())
    defined = r"^static inline [\w ]+?\*?(\w+)\(|^KERNEL\w*(?:\(\w+\))? (\w+)\(|^} (\w+);"
    found = set()
    for path in (ROOT / "kernels_cl").rglob("*.cl"):
        if path.stem in sources:
            found |= {"".join(names) for names in re.findall(defined, path.read_text(), re.M)}
    assert len(found) > 50 and sorted(found - set(named)) == []


def test_one_launch_that_does_not_build(compiled):
    """Each op has its own then."""
    path, args = DATA / "tales-2m-q4_0.gguf", ("--rows", "decode")
    want = logits_hash(path, IDS[:20], *args, "-t", 1, cpu="scalar")
    env = {"GODWIT_OPENCL": ONE_LAUNCH + ",fail-walk", "POCL_CACHE_DIR": str(compiled),  # programs of test_hash_team
           **pocl()}
    assert logits_hash(path, IDS[:20], *args, *OPENCL, env=env) == want
    fails(ONE_LAUNCH + ",must-walk,fail-walk", "cannot build", "made to fail")


@pytest.mark.parametrize("setting", ["walk=", "walk=x", "walk=-1", "walk-rows=0"])
def test_one_launch_of_what(setting):
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1", *OPENCL, check=False,
               env={"GODWIT_OPENCL": setting})
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f"GODWIT_OPENCL: argument: '{setting}' is not known" in done.stderr


@pytest.mark.parametrize("rows,kv", [("prefill", "q8_0"), ("decode", "q8_0"), ("5", "q8_0"), ("prefill", "q4_0"),
                                     ("decode", "q4_0"), ("5", "q5_0"), ("prefill", "q5_0")])
def test_hash_cache(rows, kv):
    args = ("--rows", rows, "--kv-type", kv)
    path = DATA / "tales-2m-q4_0.gguf"
    want = logits_hash(path, IDS, *args, "-t", 1, cpu="scalar")
    assert logits_hash(path, IDS, *args, *OPENCL) == want


@pytest.mark.parametrize("kv", ["q8_0", "q4_0"])
def test_cache_stays_on_the_device(kv):
    done = run("bench", "-m", DATA / "tales-2m-q4_0.gguf", *OPENCL, "--kv-type", kv, "-p", 16, "-n", 1,
               "-r", 1, "--ops")
    assert "opencl.attention." in done.stdout and "opencl.rope_kv." in done.stdout
    assert "cpu.attention." not in done.stdout


@pytest.mark.parametrize("name", ["tales-2m-q4_0", "tales-2m-q4_k_m"])
def test_hash_without_assembly(name):
    """The way for processors that are no x86."""
    path = DATA / f"{name}.gguf"
    want = logits_hash(path, IDS[:20], "--rows", "5", "-t", 1, cpu="scalar")
    assert logits_hash(path, IDS[:20], "--rows", "5", *OPENCL,
                       env={"GODWIT_OPENCL": "item,plain,no-cache"}) == want


def test_caches_of_any_width(tmp_path):
    """Heads of 80 in blocks of 32."""
    model = write_model(tmp_path / "80")
    for rows, kv, more in (("prefill", "q8_0", ("--weights", "int8")), ("decode", "q4_0", ()), ("5", "f16,q5_0", ())):
        args = ("--rows", rows, "--kv-type", kv, *more)
        ids = [i % 64 for i in (IDS if rows == "prefill" else IDS[:9])]
        assert logits_hash(model, ids, *args, *OPENCL) == logits_hash(model, ids, *args), (rows, kv)


def test_rows_that_nothing_attends_to(tmp_path):
    """Queries of ColBERT, filled up with masks."""
    folder = DATA / "goldens-families/colbert"
    texts = tmp_path / "texts.jsonl"
    lines = json.loads((folder / "texts.json").read_text())["query"]
    texts.write_text("".join(json.dumps({"text": x}) + "\n" for x in lines))
    args = ("embed", "-m", folder, "-f", texts, "--prompt-name", "query", "--truncate", "-q")
    assert run(*args, *OPENCL).stdout == run(*args).stdout


def test_chunks():
    path = DATA / "tales-2m-q4_0.gguf"
    want = logits_hash(path, IDS, "-t", 1, cpu="scalar")
    for chunk in (1, 7, 64):
        assert logits_hash(path, IDS, "-b", chunk, *OPENCL) == want


DRAWN = ("--temp", 0.7, "--top-p", 1, "--min-p", 0, "--seed", 5)  # by the device


@pytest.mark.parametrize("args", [
    ("-n", 2), ("-n", 60, "--stop", "the"), ("-n", 100, "-c", 24), ("-n", 60, "--ban", "he"),
    ("-n", 60, "-c", 32, "--context-shift"), ("-n", 40, "--grammar", "root ::= [a-z ]+"),
    ("-n", 40, "--temp", 0)], ids=lambda args: " ".join(map(str, args)))
def test_text_ends_alike(args):
    """A step that was begun too early leaves no trace."""
    say = ("run", "-m", DATA / "tales-2m-q4_0.gguf", "-q", "--no-stats", *DRAWN, *args)
    assert run(*say, *OPENCL).stdout == run(*say).stdout


def test_chat_goes_on():
    say = ("chat", "-m", DATA / "tales-2m-q4_0.gguf", "--chat-template", "chatml", "-q", "-n", 20, *DRAWN)
    lines = "Tell me a story\nAnd then?\nWhy?\n"
    assert run(*say, *OPENCL, input=lines).stdout == run(*say, input=lines).stdout


def test_text_with_drafts():
    """Drafted text is the CPU's: rows of the covering table of test_draft_identity.c."""
    program = BUILD / "tests/test_draft_identity"
    if not program.is_file() or not (SHARED / "models").is_dir():
        pytest.skip("tests/test_draft_identity or the shared models are not there")
    rows = "34" if OPENCL_ALL else "8"
    done = run(binary=str(program), env={"GODWIT_DRAFT_DEVICE": "opencl:0", "GODWIT_DRAFT_ROWS": rows})
    assert " 0 of them differ" in done.stdout + done.stderr


def fails(setting, *words):
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", *OPENCL, check=False,
               env={"GODWIT_OPENCL": setting})
    assert done.returncode == 1, done.stderr
    assert "hash:" not in done.stdout
    assert done.stderr.count("\n") == 1, done.stderr  # PoCL's compiler writes there too: backends/opencl/program.c
    for word in words:
        assert word in done.stderr
    return done.stderr


def test_several_allocations():
    """A device that gives 600 kB at once: embedding and head (860 kB) are cut. What cannot be is
    refused."""
    path = DATA / "tales-2m-q4_0.gguf"
    args = ("-c", 128, "-b", 16)
    want = logits_hash(path, IDS, *args, "-t", 1, cpu="scalar")
    assert logits_hash(path, IDS, *args, *OPENCL, env={"GODWIT_OPENCL": "max-alloc=600000"}) == want
    fails("max-alloc=1000", "in one piece")


# A page of K, and of V, of one layer in each allocation: eight in all.
@pytest.mark.parametrize("way,rows,n", [("item", "prefill", 200), ("team", "decode", 70)])
@pytest.mark.parametrize("kv,page", [("f32", 32768)] * OPENCL_ALL + [("f16", 16384), ("q8_0", 8704)])
def test_cache_in_several_allocations(way, rows, n, kv, page, compiled):
    path, ids = DATA / "tales-2m-q4_0.gguf", some_ids(n)
    args = ("-c", 256, "--kv-type", kv, "--rows", rows)
    want = logits_hash(path, ids, *args, "-t", 1, cpu="scalar")
    env = {"GODWIT_OPENCL": f"{way},max-cache={page + 100}"}
    if way == "team":  # programs of the tests above
        env = {"GODWIT_OPENCL": env["GODWIT_OPENCL"] + ",no-cache", "POCL_CACHE_DIR": str(compiled), **pocl()}
    assert logits_hash(path, ids, *args, *OPENCL, env=env) == want


def test_cache_beyond_all_allocations():
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", *OPENCL, "-c", 1024, check=False,
               env={"GODWIT_OPENCL": "max-cache=20000"})
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in ("cache of a layer needs 524.3 kB", "at most 131.1 kB in 8 allocations", "(-c)", "--kv-type q8_0"):
        assert word in done.stderr


def test_build_failure():
    assert "made to fail" in fails("fail-build", "cannot build")
    for which in ("fail-build", "fail-build=4"):  # before weights are loaded; for a plan
        done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", "-ngl", "all",
                   env={"GODWIT_OPENCL": which + ",card", "GODWIT_HIP_DRIVER": "none", "GODWIT_ARG_DEVICE": ""})
        assert "hash:" in done.stdout and "the cpu computes" in done.stderr
        assert "cannot build" in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("k", [1, 8])
def test_allocation_failure(k):
    fails(f"fail-alloc={k}", "simulated")


@pytest.mark.parametrize("k", [1, 10])
def test_device_lost(k):
    fails(f"fail-enqueue={k}", "lost")


def test_a_processor_is_not_chosen():
    """PoCL's device is the CPU by a longer way: of itself the program takes the CPU, without a word."""
    if "pocl" not in run("devices").stdout.lower():
        pytest.skip("the OpenCL device is no processor")
    args = ("run", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "The sea", "-n", 1, "--temp", 0, "--stats", "json")
    for named in ((), ("--device", "auto")):
        done = run(*args, *named, env={"GODWIT_HIP_DRIVER": "none", "GODWIT_ARG_DEVICE": ""})
        assert done.stderr.count("\n") == 1 and "opencl" not in done.stderr.lower(), done.stderr
        assert "cpu" in json.loads(done.stderr)["model"]["device"].lower()


def test_no_platform():
    nowhere = {"OCL_ICD_VENDORS": "/nonexistent"}
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", env=nowhere)
    assert "opencl" not in done.stderr.lower()  # the CPU, and no word about it
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", *OPENCL, check=False,
               env=nowhere)
    assert done.returncode == 1 and "opencl" in done.stderr


# ---- CLBlast

FIRST_BUILD = 1500  # seconds: PoCL takes minutes for CLBlast's kernels once, longer where others are at work

FLOATS = DATA / "tales-2m-f16.gguf" if (DATA / "tales-2m-f16.gguf").is_file() else SHARED / "models/tales-2m-f16.gguf"


def logits_of(tmp_path, *args, env=None):
    """Logits of a prompt, the greedy ids behind it, and stderr."""
    out = tmp_path / "logits.safetensors"
    done = run("logits", "-m", FLOATS, "--ids", ",".join(map(str, IDS)), "--greedy", 12, "-o", out, *args,
               env=env or {}, timeout=FIRST_BUILD)
    data = out.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    (tensor,) = [t for name, t in json.loads(data[8:8 + n]).items() if name != "__metadata__"]
    begin, end = tensor["data_offsets"]
    assert tensor["dtype"] == "F32"
    values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + n + begin:8 + n + end])
    return values, done.stdout.split("greedy:")[1], done.stderr


def farthest(a, b):
    assert len(a) == len(b) and all(x == x for x in a + b)
    return max(abs(x - y) for x, y in zip(a, b))


def test_blas(tmp_path):
    """Prompts through CLBlast. Our own order, one chain over a row, is the longest of all: no other
    may stray from the oracle in double precision by more than it does, give or take what of an error
    is chance."""
    if not FLOATS.is_file():
        pytest.skip("no model with float weights is there")
    oracle, text, _ = logits_of(tmp_path, "--device", "ref")
    exact, same, _ = logits_of(tmp_path, *OPENCL)
    blas, greedy, said = logits_of(tmp_path, *OPENCL, "--blas")
    if "libclblast.so.1 cannot be opened" in said:
        pytest.skip("CLBlast is not installed")
    assert said == ""
    assert farthest(blas, oracle) <= 4 * farthest(exact, oracle)
    assert greedy == same == text
    done = run("bench", "-m", FLOATS, *OPENCL, "--blas", "-p", 16, "-n", 1, "-r", 1, "--ops")
    prompt, token = done.stdout.split("tg1, ")
    assert "opencl.linear.f16.clblast" in prompt and "opencl.glu.f16.clblast" in prompt
    assert ".clblast" not in token.split("|", 1)[1]


@pytest.mark.parametrize("setting,why", [("no-blas", "libclblast.so.1 cannot be opened"),
                                         ("fail-blas=1", "a product failed, CL_OUT_OF_RESOURCES"),
                                         ("fail-blas=2", "a product failed, CL_OUT_OF_RESOURCES")])
def test_without_blas(setting, why):
    """The library is not there, fails its trial, fails in a prompt: our own launches, and one line."""
    if not FLOATS.is_file():
        pytest.skip("no model with float weights is there")
    want = logits_hash(FLOATS, IDS, "-t", 1, cpu="scalar")
    done = run("logits", "-m", FLOATS, "--ids", ",".join(map(str, IDS)), *OPENCL, "--blas",
               env={"GODWIT_OPENCL": setting}, timeout=FIRST_BUILD)
    assert f"hash: {want}" in done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("--blas without CLBlast on opencl:0: "), done.stderr
    if why not in lines[0]:  # no library: nothing can fail
        assert "cannot be opened" in lines[0]
        pytest.skip("CLBlast is not installed")


# ---- instructions of devices that are not here ---------------------------------------------------

AMD = ("-target", "amdgcn-amd-amdhsa", "-nogpulib")
WAYS = {  # by the numbers of kernels_cl/exchange.cl: compiler's arguments, what is in its output
    "PTX": (1, 1, ("-target", "nvptx64-nvidia-cuda"), "shfl.sync.bfly", "dp4a.u32.s32"),
    "gfx906": (2, 3, (*AMD, "-mcpu=gfx906"), "ds_bpermute_b32", "v_dot4_i32_i8"),
    "gfx90a": (2, 3, (*AMD, "-mcpu=gfx90a"), "ds_bpermute_b32", "v_dot4c_i32_i8"),
    "gfx1030": (2, 3, (*AMD, "-mcpu=gfx1030"), "ds_bpermute_b32", "v_dot4c_i32_i8"),
    "gfx1100": (2, 2, (*AMD, "-mcpu=gfx1100"), "ds_bpermute_b32", "v_dot4_i32_iu8"),
    "Intel": (3, 0, ("-target", "spir64", "-emit-llvm", "-Dcl_intel_subgroups"),
              "intel_sub_group_shuffle", None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["shuffles", "dots"])
def test_instructions_of_other_devices(way, what):
    """What probe.c would try there compiles to the instructions it is about."""
    clang = shutil.which("clang")
    shuffles, dots, arguments, moved, multiplied = WAYS[way]
    word = moved if what == "shuffles" else multiplied
    if clang is None or word is None:
        pytest.skip("no clang, or no such instruction")
    chosen = ("-DPROBE_SHUFFLES", f"-DGW_SHUFFLES={shuffles}") if what == "shuffles" else (f"-DGW_DOTS={dots}",)
    folder = subprocess.run([clang, "-print-resource-dir"], capture_output=True, text=True, check=True)
    header = pathlib.Path(folder.stdout.strip()) / "include/opencl-c.h"
    text = "".join((ROOT / "kernels_cl" / name).read_text() for name in ("exchange.cl", "probe.cl"))
    done = subprocess.run([clang, "-x", "cl", "-cl-std=CL1.2", "-cl-no-stdinc", "-include", header, *chosen,
                           *arguments, "-O1", "-S", "-o", "-", "-"], input=text, capture_output=True, text=True)
    if re.search(r"invalid target ID|unknown target|No available targets", done.stderr):
        pytest.skip("this clang does not know the device")
    assert done.returncode == 0, done.stderr
    assert word in done.stdout
