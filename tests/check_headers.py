#!/usr/bin/env python3
# tests/check_headers.py - every header compiles alone as C11; godwit.h also as C++. On hosts that godwit does
# not run on, one that all need does not.
# Left to their includers: bodies that are included once per instruction set (BODIES), test data.
# Headers for one instruction set are compiled with its flags, where this compiler knows them.
import os
import platform
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

import tree

CC = os.environ.get("GODWIT_CC", "cc")
BUILD = os.environ.get("GODWIT_BUILD", "")
WARN = ("-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Werror "
        "-Wno-unused-function -Wno-overlength-strings").split()
BODIES = ("_body.h", "_unpack.h")
ISA = {
    "avx2": "-mavx2 -mfma -mf16c",
    "avx512": "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq",
    "vnni": "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni",
    "amx": "-mamx-tile -mamx-int8",
    "neon": "-march=armv8.2-a+dotprod",
}


def compiler_target():
    done = subprocess.run([CC, "-dumpmachine"], capture_output=True, text=True)
    return done.stdout.split("-")[0] if done.returncode == 0 else platform.machine()


def flags_of(path, machine):
    if path.endswith("cpu/simde.h"):  # redefines intrinsics by design; preset simde compiles it
        return None
    if re.search(r"_windows[a-z_]*\.h$|_rvv\.h$", path):  # the stage cross compiles for Windows and riscv64
        return None
    found = re.search(r"_(avx2|avx512|vnni|amx|neon)\.h$", path)
    if not found:
        return []
    arm = found.group(1) == "neon"
    if arm != (machine in ("aarch64", "arm64")):
        return None
    return ISA[found.group(1)].split()


def compile_alone(compiler, language, path, flags):
    """The first complaint, or None. A file that includes the header: twice, for its guard."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "alone." + ("c" if language == "gnu11" else "cc"))
        with open(source, "w") as out:
            out.write(f'#include "{tree.rel(path)}"\n' * 2 + "extern int not_empty;\n")
        command = [compiler, f"-std={language}", "-fsyntax-only", "-D_GNU_SOURCE", f"-I{tree.ROOT}",
                   *WARN, *flags, source]
        if language != "gnu11":
            command.remove("-Wstrict-prototypes")
        if BUILD:
            command.insert(1, f"-I{BUILD}/generated")
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    lines = [l for l in done.stderr.splitlines() if "error" in l] or done.stderr.splitlines()
    return f"{tree.rel(path)}: {lines[0] if lines else 'the compiler failed'}"


def hosts_that_are_refused():
    """Those that would compute nonsense, or could not map a file: the compiler says so in words."""
    for macro, value, words in (("__BYTE_ORDER__", "__ORDER_BIG_ENDIAN__", "little-endian processors only"),
                                ("__SIZEOF_POINTER__", "4", "64-bit addresses")):
        complaint = compile_alone(CC, "gnu11", tree.ROOT / "core/base/size.h", [f"-U{macro}", f"-D{macro}={value}"])
        if words not in (complaint or ""):
            yield f"core/base/size.h with {macro} as {value}: {complaint or 'compiles'}"


def main():
    machine = compiler_target()
    jobs = []
    for path in tree.files(tree.CODE, (".h",)):
        if path.name.endswith(BODIES) or "data" in path.parts:
            continue
        flags = flags_of(tree.rel(path), machine)
        if flags is not None:
            jobs.append((path, flags))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda job: compile_alone(CC, "gnu11", *job), jobs))
    tree.report(f"each of {len(jobs)} headers compiles alone", [f for f in found if f])

    tree.report("big-endian and 32-bit hosts are refused", hosts_that_are_refused())

    cxx = shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if cxx:
        bad = compile_alone(cxx, "c++11", tree.ROOT / "include/godwit.h", [])
        tree.report("godwit.h is C++ too", [bad] if bad else [])
    else:
        tree.skip("godwit.h is C++ too", "no C++ compiler here")
    tree.finish()


main()
