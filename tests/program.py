# tests/program.py - how pytest files run the godwit program and find test data.
# GODWIT_BIN, GODWIT_EMULATOR and GODWIT_BUILD come from ctest (tests/CMakeLists.txt).
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = os.environ.get("GODWIT_BIN", str(ROOT / "build/release/godwit"))
EMULATOR = os.environ.get("GODWIT_EMULATOR", "").split()
SHARED = pathlib.Path(os.environ.get("GODWIT_SHARED", ROOT / "../shared"))
DATA = ROOT / "tests/data"
NIGHTLY = "GODWIT_NIGHTLY" in os.environ  # tools/test nightly: what repeats a path
OPENCL_ALL = "GODWIT_OPENCL_ALL" in os.environ  # tools/test opencl-all: every format, width and split
SANITIZED = pathlib.Path(os.environ.get("GODWIT_BUILD", "")).name == "sanitize"
SLOW = bool(EMULATOR) or SANITIZED  # arithmetic is 5 to 100 times slower
# A text drawn without a seed would differ from run to run, and what a test sees of it by chance.
os.environ.setdefault("GODWIT_ARG_SEED", "1")
# Where no device is named the CPU is meant; what is chosen by itself is a test's own subject ("auto").
os.environ.setdefault("GODWIT_ARG_DEVICE", "cpu")
# Roofs are measured in a fiftieth of their time: what is printed is tested, not the machine.
os.environ.setdefault("GODWIT_BRIEF_ROOF", "1")


def run(*args, binary=None, cpu=None, timeout=300, check=True, **more):
    """Run the program; with check, a non-zero exit fails the test and shows stderr."""
    environment = dict(os.environ, **more.pop("env", {}))
    if cpu:
        environment["GODWIT_CPU"] = cpu
    command = [binary] if binary else [*EMULATOR, BIN]
    if "input" not in more:
        more["stdin"] = subprocess.DEVNULL
    done = subprocess.run([*command, *map(str, args)], env=environment, timeout=timeout,
                          capture_output=True, text=True, **more)
    if check:
        assert done.returncode == 0, f"{args}: exit {done.returncode}: {done.stderr[-2000:]}"
    return done


def logits_hash(model, ids, *args, **more):
    """The digest that `godwit logits` prints for these ids."""
    done = run("logits", "-m", model, "--ids", ",".join(map(str, ids)), *args, **more)
    found = re.search(r"^hash: ([0-9a-f]{64})$", done.stdout, re.M)
    assert found, f"no hash in {done.stdout!r}"
    return found.group(1)


def small_models(widths):
    """{name: (path, arguments)} of the small trained model in every format that is here, and its
    folder with float weights requantized to these widths."""
    found = {p.stem: (p, ()) for p in sorted(DATA.glob("tales-2m-*.gguf"))}
    found |= {p.stem: (p, ()) for p in sorted((SHARED / "models").glob("tales-2m-*.gguf"))}
    folder = SHARED / "models/tales-2m"
    if folder.is_dir():
        found |= {f"tales-2m {weights}": (folder, ("--weights", weights)) for weights in widths}
    return found


def copy_folder(source, target):
    """A copy that may be written to, also of a folder that may not."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder in (target, *(p for p in target.rglob("*") if p.is_dir())):
        folder.chmod(0o755)
    return target


def some_ids(n, vocab=4096):
    """bos and n - 1 ids that are the same everywhere; beyond control and byte tokens."""
    state, ids = 12345, [1]
    for _ in range(n - 1):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append(260 + state // 65536 % (vocab - 260))
    return ids
