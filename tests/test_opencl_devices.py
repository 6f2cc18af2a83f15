# tests/test_opencl_devices.py - devices other than PoCL's, real or as if: floats that are tried by operands,
# small groups and little local memory, a driver that does not come back; Intel's runtime for processors
# and Mesa's Rusticl on llvmpipe, where tools/setup opencl has installed them.
import os
import pathlib
import signal
import subprocess
import time

import pytest

from program import BIN, DATA, OPENCL_ALL, ROOT, SHARED, logits_hash, run, some_ids

OPENCL = ("--device", "opencl")
TINY = DATA / "tales-2m-q4_0.gguf"
INTEL = ROOT / "build/opencl-runtimes/lib"
MESA = pathlib.Path("/usr/lib/x86_64-linux-gnu/libRusticlOpenCL.so.1")
ALONE = {"GODWIT_HIP_DRIVER": "none"}


@pytest.fixture(scope="module")
def has_device():
    if "| opencl:0 |" not in run("devices").stdout:
        pytest.skip("no OpenCL device, or a program without the backend")


def refused(env, model=TINY):
    done = run("logits", "-m", model, "--ids", "1,300", *OPENCL, check=False, env={**ALONE, **env})
    assert done.returncode == 1 and "hash:" not in done.stdout
    lines = done.stderr.strip().splitlines()
    assert len([line for line in lines if not line.startswith("MESA: ")]) == 1, lines
    return lines[-1]


# ---- floats: kernels_cl/floats.cl computes as such a device would -----------------------------------

@pytest.mark.parametrize("way,lacks,operands", [
    ("UNFUSED", "a fused multiply-add", "fma(0x1.001p+0, 0x1.001p+0, -0x1.002p+0) is 0x0p+0 there, not 0x1p-24"),
    ("DOUBLED", "a fused multiply-add", "0x1p-60) is 0x1.002p+0 there, not 0x1.002002p+0"),
    ("FLUSHED", "subnormal numbers", "is 0x0p+0 there"),
    ("RECIPROCAL", "correctly rounded division", " / "),
    ("ROOT", "correctly rounded square roots", "sqrt("),
    ("CONTRACTED", "products that are rounded before something is added", " + "),
])
def test_other_floats(has_device, way, lacks, operands):
    """Computed by the device, each of these ways is refused, with the operand that tells."""
    line = refused({"GODWIT_OPENCL": f"floats={way}"})
    assert f" lacks {lacks}, which equal results need: " in line and operands in line


# ---- small devices ------------------------------------------------------------------------------

@pytest.mark.parametrize("env", [{"GODWIT_OPENCL": "team,group=16"}, {"GODWIT_OPENCL": "team,local=1000"},
                                 {"POCL_MAX_WORK_GROUP_SIZE": "16"}, {"POCL_MAX_WORK_GROUP_SIZE": "1"}],
                         ids=lambda env: "-".join(env.values()))
def test_small_groups(has_device, env):
    """What takes no groups of teams, or has no memory for them, goes the way of single items."""
    for rows in ("prefill", "decode"):
        want = logits_hash(TINY, some_ids(9), "--rows", rows, "-t", 1, cpu="scalar", env=ALONE)
        assert logits_hash(TINY, some_ids(9), "--rows", rows, *OPENCL, env={**ALONE, **env}) == want


# ---- a driver that does not come back -----------------------------------------------------------

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_wait(has_device, number):
    command = [BIN, "run", "-m", TINY, "-p", "The sea", "-n", "4", "--temp", "0", "-q", *OPENCL]
    env = dict(os.environ, GODWIT_OPENCL="fail-wait=1", GODWIT_BUSY_FILE="", **ALONE)
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while "pause" not in pathlib.Path(f"/proc/{child.pid}/wchan").read_text() and time.monotonic() < deadline:
        assert child.poll() is None, child.communicate()
        time.sleep(0.1)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 128 + number
    assert said.count("\n") == 1 and "its driver does not come back" in said


# ---- other runtimes -----------------------------------------------------------------------------

def icd(folder, library):
    if not library.exists():
        pytest.skip(f"{library.name} is not installed (tools/setup opencl)")
    (folder / "other.icd").write_text(f"{library}\n")
    return {**ALONE, "OCL_ICD_VENDORS": f"{folder}/", "XDG_CACHE_HOME": str(folder)}


@pytest.fixture(scope="module")
def intel(tmp_path_factory):
    env = icd(tmp_path_factory.mktemp("intel"), INTEL / "libintelocl.so")
    env["LD_LIBRARY_PATH"] = str(INTEL)
    if "| opencl:0 |" not in run("devices", env=env).stdout:
        pytest.skip("Intel's runtime finds no device here")
    return env


@pytest.fixture(scope="module")
def rusticl(tmp_path_factory):
    env = icd(tmp_path_factory.mktemp("rusticl"), MESA)
    env["RUSTICL_ENABLE"] = "llvmpipe"
    if "llvmpipe" not in run("devices", env=env).stdout:
        pytest.skip("Rusticl has no llvmpipe here")
    return env


MORE = ("tales-2m-q8_0", "tales-2m-q4_k_m", "tales-2m-f16") * OPENCL_ALL


@pytest.mark.parametrize("rows", ["prefill", "decode", "5"] if OPENCL_ALL else ["prefill", "decode"])
@pytest.mark.parametrize("name", ("tales-2m-q4_0", *MORE))
def test_intel(intel, name, rows):
    """It does not announce its fused multiply-add."""
    path = DATA / f"{name}.gguf"
    path = path if path.is_file() else SHARED / f"models/{name}.gguf"
    want = logits_hash(path, some_ids(70)[:9], "--rows", rows, "-t", 1, cpu="scalar", env=ALONE)
    assert logits_hash(path, some_ids(70)[:9], "--rows", rows, *OPENCL, env=intel) == want


def test_rusticl_flushes(rusticl):
    """llvmpipe takes subnormal numbers for zeros."""
    line = refused(rusticl)
    assert "llvmpipe" in line and "lacks subnormal numbers" in line


@pytest.mark.skipif(not OPENCL_ALL, reason="Mesa's compiler takes a minute: tools/test opencl-all")
def test_rusticl_all_the_same(rusticl):
    """A prompt without subnormal numbers has the CPU's bits. Generated tokens are not tried: Mesa 22.3
    does not end compiling their kernels in 200 seconds of a processor."""
    ids, env = some_ids(9), {**rusticl, "GODWIT_OPENCL": "any-floats"}
    want = logits_hash(TINY, ids, "-t", 1, cpu="scalar", env=ALONE)
    assert logits_hash(TINY, ids, *OPENCL, env=env, timeout=900) == want
