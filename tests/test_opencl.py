# tests/test_opencl.py - whole models on an OpenCL device: the bits of the scalar CPU, for every
# format, order and width; faults end in one line and exit code 1.
import os
import pathlib

import pytest

from program import DATA, SHARED, logits_hash, run, some_ids

IDS = some_ids(70)  # beyond a page
OPENCL = ("--device", "opencl")


@pytest.fixture(scope="module", autouse=True)
def device():
    """Skips this file where the program has no OpenCL backend or finds no device."""
    if "| opencl |" not in run("devices").stdout:
        pytest.skip("no OpenCL device, or a program without the backend")


def models():
    found = {p.stem: (p, ()) for p in sorted(DATA.glob("tales-2m-*.gguf"))}
    found |= {p.stem: (p, ()) for p in sorted((SHARED / "models").glob("tales-2m-*.gguf"))}
    folder = SHARED / "models/tales-2m"
    if folder.is_dir():
        for weights in ("int8", "int4-g32", "int4-g256"):
            found[f"tales-2m {weights}"] = (folder, ("--weights", weights))
    return [pytest.param(path, args, id=name) for name, (path, args) in sorted(found.items())]


@pytest.mark.parametrize("rows", ["prefill", "decode", "5", "16"])
@pytest.mark.parametrize("path,args", models())
def test_hash(path, args, rows):
    ids = IDS if rows == "prefill" else IDS[:20]
    want = logits_hash(path, ids, "--rows", rows, "-t", 1, *args, cpu="scalar")
    assert logits_hash(path, ids, "--rows", rows, *args, *OPENCL) == want


def test_chunks():
    path = DATA / "tales-2m-q4_0.gguf"
    want = logits_hash(path, IDS, "-t", 1, cpu="scalar")
    for chunk in (1, 7, 64):
        assert logits_hash(path, IDS, "-b", chunk, *OPENCL) == want


def fails(setting, *words):
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", *OPENCL, check=False,
               env={"GODWIT_OPENCL": setting})
    assert done.returncode == 1, done.stderr
    assert "hash:" not in done.stdout
    for word in words:
        assert word in done.stderr
    return done.stderr


def test_build_failure():
    assert "made to fail" in fails("fail-build", "cannot build")


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 13, 20])
def test_allocation_failure(k):
    fails(f"fail-alloc={k}", "simulated")


@pytest.mark.parametrize("k", [1, 3, 10])
def test_device_lost(k):
    fails(f"fail-enqueue={k}", "lost")


def test_no_platform():
    nowhere = {"OCL_ICD_VENDORS": "/nonexistent"}
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", env=nowhere)
    assert "opencl" not in done.stderr.lower()  # the CPU, and no word about it
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", *OPENCL, check=False,
               env=nowhere)
    assert done.returncode == 1 and "opencl" in done.stderr


SIMULATORS = ("/usr/lib/oclgrind/liboclgrind-rt-icd.so",)


# The whole table takes an hour in the simulator: rows of every op, and each kind of product.
@pytest.mark.parametrize("cases", ["0-13", "15-18", "25-25", "30-30", "32-36", "37-41", "42-47",
                                   "53-55"])
def test_simulator_sees_no_fault(cases, tmp_path):
    """Oclgrind: data races, accesses outside a buffer or local array. Bits are compared too."""
    icd = next((p for p in SIMULATORS if pathlib.Path(p).is_file()), None)
    program = pathlib.Path(os.environ.get("GODWIT_BUILD", "")) / "tests/test_opencl_ops"
    if icd is None or not program.is_file():
        pytest.skip("oclgrind or tests/test_opencl_ops is not there")
    (tmp_path / "oclgrind.icd").write_text(icd + "\n")
    done = run(binary=str(program), check=False, env={
        "OCL_ICD_VENDORS": f"{tmp_path}/", "OCLGRIND_DATA_RACES": "1", "GODWIT_OP_CASES": cases,
        "GODWIT_TEST": "bits_team", "XDG_CACHE_HOME": str(tmp_path)})
    text = done.stdout + done.stderr
    for word in ("data race", "Invalid read", "Invalid write", "SKIP"):
        assert word.lower() not in text.lower(), text[-3000:]
    assert done.returncode == 0 and "PASSED  ] 1 test" in text, text[-3000:]
