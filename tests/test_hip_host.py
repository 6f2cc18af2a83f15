# tests/test_hip_host.py - the host side of the hip backend over drivers without a card
# (tests/fake_card.c): finding devices, code for them, the cache, faults. Kernels are tested elsewhere.
import ctypes
import glob
import os
import pathlib
import re

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


def table_of_links(folder, cards):
    """That of AMD's kernel driver: two cards of a package have four links, two packages one."""
    for node in range(cards + 1):
        (folder / str(node)).mkdir()
        gpu = f"simd_count 440\ndomain 1\nlocation_id {0xc0 + node - 1 << 8}\n" if node else "simd_count 0\n"
        (folder / str(node) / "properties").write_text(gpu)
        for i, to in enumerate(n for n in range(1, cards + 1) if node not in (0, n)):
            link = folder / str(node) / "io_links" / str(i)
            link.mkdir(parents=True)
            wide = 200000 if (node - 1) // 2 == (to - 1) // 2 else 50000
            link.joinpath("properties").write_text(
                f"type 11\nnode_from {node}\nnode_to {to}\nmin_bandwidth 50000\nmax_bandwidth {wide}\n")
    return folder


@pytest.mark.parametrize("link,has_table,groups", [
    (4, 1, "0,1;2,3"), (4, 0, "0,1,2,3"), (2, 1, "no two of the devices")])
def test_which_cards_make_a_group(link, has_table, groups, tmp_path):
    table = table_of_links(tmp_path, 4) if has_table else tmp_path
    done = run("logits", "-m", DATA / "tales-2m-q4_0.gguf", "--ids", "1,300", "--split-mode", "hybrid",
               "--device", "hip:0,hip:1,hip:2,hip:3", check=False,
               env={"GODWIT_HIP_DRIVER": str(AMD), "GODWIT_FAKE": f"devices=4,link={link}",
                    "GODWIT_HIP_LINKS": str(table), "XDG_CACHE_HOME": "/proc/none"})
    assert groups in done.stderr, done.stderr


def test_a_driver_without_a_card_is_none():
    for driver, fake in ((CUDA, "no-start"), (AMD, "devices=0"), ("/nonexistent.so", "")):
        assert devices(driver=driver, fake=fake) == []
        fails("hip", driver=driver, fake=fake)


def test_no_code_for_a_device_names_both():
    fails("Fake NVIDIA 0 is sm_52", "this build has code for", "NVRTC", fake="arch=52,no-compiler")
    fails("Fake AMD 0 is gfx90a", "hiprtc", driver=AMD, fake="no-compiler", hip="compile")


@pytest.mark.parametrize("driver,fake,words", [
    (CUDA, "arch=139", "Fake NVIDIA 0 is sm_139, which this version does not know: its kernels use what sm_121 has"),
    (AMD, "gfx=1999", "Fake AMD 0 is gfx1999, which this version does not know: its kernels are slow"),
    (CUDA, "arch=90", None), (AMD, "gfx=1201", None)], ids=lambda value: str(value)[:8])
def test_an_unknown_processor_is_one_line(driver, fake, words, tmp_path):
    """A row of kernels_hip/arch.h, or a line that says that there is none."""
    done = godwit("run", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "The sea", "-n", 1, "--temp", 0, "--no-stats",
                  "--device", "hip", driver=driver, fake=fake, hip="compile", cache=tmp_path)
    assert ("which this version does not know" in done.stderr) == (words is not None), done.stderr
    assert words is None or done.stderr.count(words) == 1, done.stderr


def compiled(log):
    return sorted(line for line in log.read_text().splitlines() if line.startswith("gw_"))


def bench(model, hip="compile", **common):
    done = godwit("bench", "-m", model, "-p", 0, "-n", 1, "-r", 1, "--device", "hip", hip=hip, **common)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("driver", [CUDA, AMD], ids=["cuda", "amd"])
def test_compiled_once_then_from_disk(driver, tmp_path):
    log, cache = tmp_path / "log", tmp_path / "cache"
    run_it = lambda: bench(DATA / "tales-2m-q4_0.gguf", driver=driver, cache=cache, log=log)
    run_it()
    kernels = compiled(log)
    assert len(kernels) == len(set(kernels)) and "gw_roof_read" in kernels
    run_it()
    assert compiled(log) == kernels  # nothing was compiled again
    files = sorted((cache / "godwit").iterdir())
    assert len(files) == len(kernels) and all(f.name.startswith("hip-") for f in files)
    damaged = files[0].read_bytes()
    for wrong in (damaged[:-3], damaged[:-1] + b"\0x"[1:], b""):
        files[0].write_bytes(wrong)
        before = len(compiled(log))
        run_it()
        assert len(compiled(log)) == before + 1
        assert files[0].read_bytes() == damaged


def formats(kernels):
    """The quantized formats that products among them are for."""
    product = r"gw_(?:linear|glu|gemm|gemm_group|gemm_large|gemm_plain)_(i?q\d\w*?)(?:_four|_wide|_many|_pieces|_beside|_order)?"
    found = (re.fullmatch(product, kernel) for kernel in kernels)
    return {m.group(1) for m in found if m}


def test_only_what_the_model_needs_is_compiled(tmp_path):
    log, common = tmp_path / "log", {"cache": tmp_path / "cache", "log": tmp_path / "log"}
    bench(DATA / "tales-2m-q4_0.gguf", **common)
    first = set(compiled(log))
    assert log.read_text().split()[-1] == "first-launch"  # all was there when the first step ran
    assert formats(first) == {"q4_0", "q6_k"}  # the output head has another
    assert {"gw_linear_q4_0", "gw_glu_q4_0", "gw_linear_q4_0_wide", "gw_sample"} <= first
    assert "gw_linear_q4_0_beside" in first  # in front of attention and behind it
    pages = {k for k in first if k.startswith("gw_attend_f16_h")}
    assert "gw_glu_q6_k" not in first and pages == {"gw_attend_f16_h2_e64", "gw_attend_f16_h2_whole64"}
    bench(DATA / "tales-2m-q4_k_m.gguf", **common)  # what both need is there
    more = compiled(log)
    assert len(more) == len(set(more))
    assert "q4_k" in formats(set(more) - first) <= {"q4_k", "q6_k"}


def test_every_command_finds_its_kernels(tmp_path):
    """A product alone, a draft of another format, half of the layers, another cache."""
    model, other = DATA / "tales-2m-q4_0.gguf", DATA / "tales-2m-q4_k_m.gguf"
    log, common = tmp_path / "log", {"cache": tmp_path / "cache", "log": tmp_path / "log", "hip": "compile"}

    def finds(kernel, *args):
        done = godwit(*args, "--device", "hip", **common)
        assert done.returncode == 0, done.stderr
        assert kernel in compiled(log), args

    finds("gw_linear_q5_1", "bench", "--gemm", "q5_1:K=64,N=32,M=1")
    finds("gw_linear_q5_1_four", "bench", "--gemm", "q5_1:K=64,N=32,M=2")
    finds("gw_linear_q6_k", "run", "-m", model, "--draft", other, "-p", "a", "-n", 4)
    finds("gw_rope_kv_q8_0", "logits", "-m", model, "--ids", "1,300", "--kv-type", "q8_0")
    finds("gw_roof_read", "run", "-m", model, "-p", "a", "-n", 2, "--offload-layers", 2)


def test_build_failure_shows_the_log():
    for k in (1, 2, 9):  # when the device is opened, when a session begins
        fails("cannot build kernels_hip/", "sm_90", "first line: made to fail second line",
              hip=f"fail-build={k}")
        fails("cannot build", "gfx90a", "made to fail", driver=AMD, hip=f"fail-build={k}")


def test_code_that_the_driver_refuses():
    fails("does not take the code of", "CUDA_ERROR_INVALID_IMAGE", fake="refuse-code")


def test_code_of_another_driver_is_made_again(tmp_path):
    """A driver that was installed again under its old number: what the last one's compiler left on
    disk is replaced, once."""
    log, cache = tmp_path / "log", tmp_path / "cache"
    made = []
    for driver in (1, 2, 2):
        bench(DATA / "tales-2m-q4_0.gguf", cache=cache, log=log, fake=f"driver={driver}")
        made.append(len(compiled(log)))
    assert made[0] > 10 and made == [made[0], 2 * made[0], 2 * made[0]]


def test_ctrl_c_stops_compiling(tmp_path):
    log, cache = tmp_path / "log", tmp_path / "cache"
    say = ("run", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "a", "-n", 2, "--device", "hip")
    common = {"cache": cache, "log": log, "hip": "compile", "driver": AMD}  # compiles one by one
    done = godwit(*say, fake="interrupt=5", **common)
    assert done.returncode == 130 and done.stdout == "", done.stderr
    assert len(compiled(log)) == 5
    done = godwit(*say, **common)
    assert done.returncode == 0, done.stderr
    assert len(compiled(log)) == len(set(compiled(log))) > 5  # what was made is kept


def test_options_belong_to_the_key(tmp_path):
    log, common = tmp_path / "log", {"cache": tmp_path / "cache", "log": tmp_path / "log"}
    model, made = DATA / "tales-2m-q4_0.gguf", []
    for option in ("compile", "option=-lineinfo", "option=-lineinfo", "compile"):
        bench(model, hip=option, **common)
        made.append(len(compiled(log)))
    assert made == [made[0], 2 * made[0], 2 * made[0], 2 * made[0]]


def test_the_compiler_gets_every_header(tmp_path):
    log = tmp_path / "log"
    bench(DATA / "tales-2m-q4_0.gguf", log=log, cache=tmp_path)
    shared = set(re.findall(r"core/tensor/\w+\.h", (ROOT / "cmake/hip.cmake").read_text()))
    want = len(list((ROOT / "kernels_hip").rglob("*.h"))) + len(shared) + 1  # and stdint.h
    assert f"headers {want}\n" in log.read_text()


def test_code_older_than_the_card(tmp_path):
    """What is launched is what that code has, not what the card could do."""
    made = {}
    for name, fake, hip in (("old", "arch=75", "compile"), ("new", "arch=90", "compile"),
                            ("old code", "arch=90", "code=75")):
        log = tmp_path / name
        done = godwit("run", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "a b c d", "-n", 2, "--device",
                      "hip", log=log, cache=tmp_path / f"cache {name}", fake=fake, hip=hip)
        assert done.returncode == 0, done.stderr
        made[name] = compiled(log)
    assert made["old code"] == made["old"] != made["new"]


def launches(tmp_path, driver, fake, name):
    """[[kernel, blocks, threads, bytes of shared memory], ..] of each graph of decode steps."""
    log = tmp_path / f"{driver.stem} {fake} {name}"
    done = godwit("logits", "-m", DATA / f"{name}.gguf", "--ids", "1,300", "--rows", "decode", "--device", "hip",
                  driver=driver, fake=fake, log=log)
    assert done.returncode == 0, done.stderr
    graphs = log.read_text().split("graph\n")[1:]
    return [[line.split()[1:] for line in graph.splitlines() if line.startswith("launch ")] for graph in graphs]


@pytest.mark.parametrize("name", ["tales-2m-q4_0", "tales-2m-q4_k_m"])
@pytest.mark.parametrize("fake", ["", "gfx=1100", "gfx=1201", "gfx=942"])
def test_launches_of_a_token(fake, name, tmp_path):
    """A layer takes as many on AMD as on NVIDIA, and two blocks of a product share a compute unit and its 64 KB."""
    first = launches(tmp_path, AMD, fake, name)[0]
    theirs = launches(tmp_path, CUDA, "arch=90", name)[0]
    assert len(first) == len(theirs) == 15 + (name == "tales-2m-q4_k_m")  # six in each of two layers, and three
    products = [row for row in first if row[0].startswith(("gw_linear_", "gw_glu_"))]
    assert len(products) >= 9 and all(int(blocks) <= 2 * 7 and int(shared) <= 32 << 10 for _, blocks, _, shared in products)


@pytest.mark.parametrize("kind,names", [("cuda", RTC_CUDA), ("amd", RTC_AMD)])
def test_a_real_compiler_behind_the_program(kind, names, tmp_path):
    """What one product needs; tests/test_hip_compile.c builds every kernel."""
    library = next((n for n in names if loads(n)), None)
    if library is None:
        pytest.skip(f"none of {', '.join(names)} here")
    plain = BUILD / f"tests/libfake_{kind}_plain.so"
    done = godwit("bench", "--gemm", "q4_0:K=64,N=32,M=1", "--device", "hip",
                  driver=f"{plain}:{library}", cache=tmp_path, fake="arch=80", hip="compile", timeout=900)
    assert done.returncode == 0, done.stderr
    # and the kernels that try the device, fetch the step, and lay x down as blocks with copies fetch it
    assert len(list((tmp_path / "godwit").iterdir())) == (4 if kind == "cuda" else 3)


def test_settings_are_checked():
    fails("GODWIT_HIP", "'fail' is not known", hip="fail", code=2)


# ---- chosen by itself ------------------------------------------------------------------------------

def auto(*args, **more):
    """No device is named; what runs on the card fails in one way or another, as there is none."""
    done = godwit("run", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "The sea", "-n", 4, "--temp", 0, "--no-stats",
                  "--device", "auto", *args, **more)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("fake,hip,word", [
    ("arch=52,no-compiler", "", "NVRTC"), ("", "fail-build=1", "made to fail"), ("refuse-code", "", "does not take")])
def test_a_card_that_cannot_be_used_is_one_line_and_the_cpu(fake, hip, word):
    want = run("run", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "The sea", "-n", 4, "--temp", 0, "-q").stdout
    done = auto(fake=fake, hip=hip)
    assert done.stdout == want
    assert done.stderr.count("\n") == 1 and word in done.stderr and "the cpu computes" in done.stderr
    assert auto("-q", fake=fake, hip=hip).stderr == ""
    assert auto("-ngl", "all", fake=fake, hip=hip).stdout == want


@pytest.mark.parametrize("args", [
    ("chat", "-p", "Hello", "--single-turn", "-n", 2), ("bench", "-p", 4, "-n", 1, "-r", 1),
    ("perplexity", "-f", "text", "-c", 16), ("logits", "--ids", "1,300")], ids=lambda args: args[0])
def test_every_command_chooses(args, tmp_path, monkeypatch):
    (tmp_path / "text").write_text("The king and the queen had a daughter. " * 9)
    cases = [("", (), True), ("cpu", (), False)]
    if args[0] == "logits":  # what the command line says wins
        cases += [("hip", ("--device", "cpu"), False), ("cpu", ("--device", "auto"), True)]
    args = (*args, "-m", DATA / "tales-2m-q4_0.gguf")
    for variable, option, chooses in cases:
        monkeypatch.setenv("GODWIT_ARG_DEVICE", variable)
        done = godwit(*args, *option, fake="refuse-code", cwd=tmp_path)
        assert done.returncode == 0 and ("the cpu computes" in done.stderr) == chooses, (variable, option, done.stderr)


def test_a_card_is_chosen_and_said(tmp_path):
    done = godwit("run", "-m", DATA / "tales-2m-q4_0.gguf", "-p", "The sea", "-n", 1, "--temp", 0, "--no-stats",
                  "--device", "auto", "-ngl", "all", cache=tmp_path)
    assert "on Fake NVIDIA 0, all 2 layers; --device cpu for the CPU" in done.stderr
    plan = godwit("plan", "-m", DATA / "tales-2m-q4_0.gguf", "-c", 128, "-b", 16, "--device", "auto", cache=tmp_path)
    assert plan.returncode == 0 and "hip:0 |" in plan.stdout, plan.stderr
    assert re.search(r"^\| \* (cpu|hip:0) \|", plan.stdout, re.M)
