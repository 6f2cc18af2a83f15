# tests/test_hip_host.py - the host side of the hip backend over drivers without a card
# (tests/fake_card.c): finding devices, code for them, the cache, faults. Kernels are tested elsewhere.
import ctypes
import glob
import os
import pathlib

import pytest

from program import DATA, ROOT, run

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ""))
CUDA, AMD = BUILD / "tests/libfake_cuda.so", BUILD / "tests/libfake_amd.so"
pytestmark = pytest.mark.skipif(not CUDA.is_file(), reason="a build without the hip backend")

RTC_CUDA = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", *glob.glob("/usr/local/cuda/lib*/libnvrtc.so")]
RTC_AMD = ["libhiprtc.so", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.5"]


def loads(library):
    try:
        return ctypes.CDLL(library) is not None
    except OSError:
        return False


def godwit(*args, driver=CUDA, fake="", hip="", cache="/proc/none", log="", **more):
    env = {"GODWIT_HIP_DRIVER": str(driver), "GODWIT_FAKE": fake, "GODWIT_HIP": hip,
           "XDG_CACHE_HOME": str(cache), "GODWIT_FAKE_LOG": str(log)}
    return run(*args, check=False, env=env, **more)


def fails(*words, device="hip", code=1, **more):
    """A model on the device: one line with all the words on stderr, exit code 1, no result."""
    done = godwit("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", "--device", device,
                  **more)
    assert done.returncode == code and "hash:" not in done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    return done.stderr


def devices(**more):
    done = godwit("devices", **more)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("| hip")]


def test_both_drivers_in_one_process():
    rows = devices(driver=f"{CUDA}:{AMD}", fake="devices=2")
    assert [row.split("|")[2].strip() for row in rows] == [
        "Fake NVIDIA 0", "Fake NVIDIA 1", "Fake AMD 0", "Fake AMD 1"]
    assert [row.split("|")[1].strip() for row in rows] == ["hip:0", "hip:1", "hip:2", "hip:3"]
    assert "sm_90" in rows[0] and "32 lanes" in rows[0]
    assert "gfx90a," in rows[2] and "64 lanes" in rows[2]


def test_a_driver_without_a_card_is_none():
    for driver, fake in ((CUDA, "no-start"), (AMD, "devices=0"), ("/nonexistent.so", "")):
        assert devices(driver=driver, fake=fake) == []
        fails("hip", driver=driver, fake=fake)


def test_no_code_for_a_device_names_both():
    fails("Fake NVIDIA 0 is sm_52", "this build has code for", "NVRTC", fake="arch=52,no-compiler")
    fails("Fake AMD 0 is gfx90a", "hiprtc", driver=AMD, fake="no-compiler", hip="compile")


@pytest.mark.parametrize("driver", [CUDA, AMD], ids=["cuda", "amd"])
def test_compiled_once_then_from_disk(driver, tmp_path):
    log, cache = tmp_path / "log", tmp_path / "cache"
    common = {"driver": driver, "cache": cache, "log": log, "hip": "compile"}
    run_it = lambda: godwit("bench", "-m", DATA / "tales-2m-q4_0.gguf", "-p", 0, "-n", 1, "-r", 1,
                            "--device", "hip", **common)
    first = run_it()
    sources = sorted(log.read_text().split())
    assert "kernels_hip/roof.hip" in sources and len(sources) == len(set(sources)), first.stderr
    run_it()
    assert sorted(log.read_text().split()) == sources  # nothing was compiled again
    files = sorted((cache / "godwit").iterdir())
    assert len(files) == len(sources) and all(f.name.startswith("hip-") for f in files)
    damaged = files[0].read_bytes()
    for wrong in (damaged[:-3], damaged[:-1] + b"\0x"[1:], b""):
        files[0].write_bytes(wrong)
        before = len(log.read_text().split())
        run_it()
        assert len(log.read_text().split()) == before + 1
        assert files[0].read_bytes() == damaged


def test_build_failure_shows_the_log():
    fails("cannot build kernels_hip/", "sm_90", "first line: made to fail second line",
          hip="fail-build")
    fails("cannot build", "gfx90a", "made to fail", driver=AMD, hip="fail-build")


def test_code_that_the_driver_refuses():
    fails("does not take the code of", "CUDA_ERROR_INVALID_IMAGE", fake="refuse-code")


@pytest.mark.parametrize("kind,names", [("cuda", RTC_CUDA), ("amd", RTC_AMD)])
def test_the_real_compilers_take_every_file(kind, names, tmp_path):
    """NVRTC and hiprtc, where they are installed, build all kernels without a card."""
    if not (BUILD / "emulator").is_dir():
        pytest.skip("takes minutes: only beside the emulator")
    library = next((n for n in names if loads(n)), None)
    if library is None:
        pytest.skip(f"none of {', '.join(names)} here")
    plain = BUILD / f"tests/libfake_{kind}_plain.so"
    done = godwit("bench", "-m", DATA / "tales-2m-q4_0.gguf", "-p", 0, "-n", 1, "-r", 1, "--device",
                  "hip", driver=f"{plain}:{library}", cache=tmp_path, fake="arch=80",
                  hip="compile", timeout=900)
    assert "cannot build" not in done.stderr and "not here" not in done.stderr, done.stderr
    sources = list((ROOT / "kernels_hip").glob("*.hip"))
    assert len(list((tmp_path / "godwit").iterdir())) == len(sources)


def test_settings_are_checked():
    fails("GODWIT_HIP", "'fail' is not known", hip="fail", code=2)
