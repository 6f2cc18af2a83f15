#!/usr/bin/env python3
"""tests/trial_format.py [FOLDER] - a weight format that no file has comes in as docs/howto/format.md says,
in a copy of the tree under FOLDER (build/trial): its entry of gw_fmt, its row in format_list.h, its row in
formats.c, nothing else. Then every backend's kernels for it are held to its terms: the op table on the CPU,
on hip (emulator, waves of 32 and 64) and on opencl (PoCL), which fails where a kernel has no case, and the
strips of the CPU.

The stage `trial` of tools/test runs it, which no full run does: it builds the library once more.
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME, ENTRY = "trial5", "GW_FMT_TRIAL5"
# Signed codes of 5 bits, 64 weights for a scale: no format has these together.
ROW = f"    ROW(X, TRIAL5,    {NAME},   4, 1, 16, GW_LEVELS_NONE, GW_TERM_SIGNED, 0, 2, GW_HEAD_F16) \\\n"
CHANGES = [
    # file, the line in front of which, what
    ("core/tensor/format_list.h", "    ROW(X, BL6_B64, ", ROW),
    ("core/tensor/formats.h", "    GW_FMT_ACT8, ", f"    {ENTRY},\n"),
    ("core/tensor/formats.c", "    [GW_FMT_BL8_B64]",
     f'    [{ENTRY}] = {{"{NAME}", -1, 64, sizeof(gw_block_{NAME}), 0, 0, decode_{NAME}, NULL, 1, '
     f"term_{NAME}}},\n"),
]
PROGRAMS = ["test_linear", "test_ops", "test_hip_ops", "test_opencl_ops"]


def call(*command, **more):
    print("+", *command, flush=True)
    return subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL, **more)


def copy_tree(folder):
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in files.decode().split("\0")[:-1]:
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, to)
        shutil.copymode(ROOT / name, to)


def change(folder):
    for name, before, text in CHANGES:
        path = folder / name
        lines = path.read_text().splitlines(keepends=True)
        at = [i for i, line in enumerate(lines) if line.startswith(before)]
        if len(at) != 1:
            sys.exit(f"{name}: {len(at)} lines begin with '{before.strip()}': this script is older than the tree")
        lines.insert(at[0], text)
        path.write_text("".join(lines))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/trial")
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    copy_tree(tree)
    change(tree)
    options = ["-DGODWIT_TESTS=ON", "-DGODWIT_HIP_ARCHS=none"]
    for tool in ("C", "CXX"):
        if shutil.which("ccache"):
            options.append(f"-DCMAKE_{tool}_COMPILER_LAUNCHER=ccache")
    call("cmake", "--preset", "check", *options, cwd=tree, stdout=subprocess.DEVNULL)
    built = tree / "build/check"
    call("cmake", "--build", built, "-j", os.cpu_count(), "--target", *PROGRAMS, "hip_emulators", cwd=tree,
         stdout=subprocess.DEVNULL)
    passed = 0
    for program in PROGRAMS:
        done = subprocess.run([built / "tests" / program], cwd=tree, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit(f"{program}: exit status {done.returncode}\n{done.stdout[-6000:]}")
        print(f"{program}: {NAME} as its terms say")
        passed += 1
    print(f"{passed} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    main()
