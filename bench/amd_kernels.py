"""bench/amd_kernels.py - what hipcc makes of the kernels for an AMD architecture.

    bench/amd_kernels.py [ARCH [FILE[:KERNEL,..] ...]]      (gfx90a, all files; needs hipcc; minutes)

One row per kernel: vector registers, waves per SIMD that they allow, spilled registers, 16-byte
loads from global memory, dot and matrix instructions, spilled scalars, matrix instructions alone.
Exit code 1 when vector registers spill, 2 when a file does not compile. AMD_COMPILER: another command than hipcc, of which a
compiler's options follow; one that ends in "clang" needs to bring nothing of ROCm's, whose headers
and libraries are then hipcc's. Where those lack ARCH they are of another processor, which decides
about images alone.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "kernels_hip").rglob("*.hip"))
LIBRARIES = (Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode"), Path("/opt/rocm/amdgcn/bitcode"))
LINKED = ("hip", "ocml", "ockl", "oclc_daz_opt_off", "oclc_unsafe_math_off", "oclc_finite_only_off",
          "oclc_correctly_rounded_sqrt_on")


def compiler():
    return shlex.split(os.environ.get("AMD_COMPILER", "hipcc"))


def libraries(arch, room):
    """A folder with ROCm's libraries for arch, in room where there is none yet; or None."""
    found = next((folder for folder in LIBRARIES if (folder / "ocml.bc").is_file()), None)
    version = f"oclc_isa_version_{arch[3:]}.bc"
    if found is None or (found / version).is_file():
        return found
    folder = room / "bitcode"
    folder.mkdir(exist_ok=True)
    for path in found.glob("*.bc"):
        shutil.copy(path, folder)
    shutil.copy(found / "oclc_isa_version_1030.bc", folder / version)
    return folder


def options(arch, room):
    """Of a compiler, before those of every one."""
    folder = libraries(arch, room)
    if compiler()[-1] != "clang":
        return [f"--rocm-device-lib-path={folder}"] if folder not in (None, *LIBRARIES) else []
    wave = 64 if arch.startswith("gfx9") else 32
    headers = sorted(Path("/usr/lib").glob("llvm-*/lib/clang/*/include/__clang_hip_runtime_wrapper.h"))[-1].parent
    include = room / "include"
    include.mkdir(exist_ok=True)
    for path in (*headers.glob("__clang_hip_*"), *headers.glob("__clang_cuda_*")):
        shutil.copy(path, include)
    standard = sorted(Path("/usr/include/c++").iterdir())[-1]
    machine = Path("/usr/include/x86_64-linux-gnu")
    own = Path(compiler()[0]).parent / "lib"
    found = ["-x", "hip", "-nogpulib", "-nogpuinc", "-D__HIP_PLATFORM_AMD__", f"-D__AMDGCN_WAVEFRONT_SIZE={wave}",
             "-Wno-everything", *(["-resource-dir", own, "-isystem", own / "include"] if own.is_dir() else []),
             "-isystem", headers / "cuda_wrappers", "-isystem", standard, "-isystem", machine / "c++" / standard.name,
             "-isystem", machine, "-idirafter", "/usr/include", "-include",
             include / "__clang_hip_runtime_wrapper.h", "-I", include]
    for name in (*LINKED, f"oclc_wavefrontsize64_{'on' if wave == 64 else 'off'}", f"oclc_isa_version_{arch[3:]}"):
        found += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", folder / f"{name}.bc"]
    return found


def assembly(arch, name, first):
    """Of a file; NAME:KERNEL,.. of those kernels in it. first: what options() gave, once for all of them, as it
    copies what other compilers read."""
    name, _, only = name.partition(":")
    kernels = [f"-DGW_ONLY_{kernel}=1" for kernel in only.split(",") if only]
    command = [*compiler(), *first, f"--offload-arch={arch}", "--cuda-device-only", "-O3",
               "-ffp-contract=off", "-std=c++17", *(["-DGW_ONLY", *kernels] if kernels else []), "-I", ROOT, "-S",
               "-o", "-", ROOT / name]
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def kernels(text):
    """(name, registers, waves, spilled, wide loads, dot and matrix instructions, scalars, matrix instructions) of
    each kernel."""
    spilled = {}
    # of a SIMD: registers for each lane, shared out in units, and most waves
    room, unit, most = (1536, 24, 16) if re.search(r"amdhsa--gfx1[12]", text) else (512, 8, 8)
    for m in re.finditer(r"\.name:\s+(gw_\w+)\n(.*?)\.wavefront_size", text, re.S):
        def number(key, body=m.group(2)):
            return int(re.search(rf"\.{key}:\s+(\d+)", body).group(1))
        spilled[m.group(1)] = (number("vgpr_count"), number("vgpr_spill_count"), number("sgpr_spill_count"))
    for m in re.finditer(r"^(gw_\w+):\s.*?\n(.*?)\.Lfunc_end", text, re.S | re.M):
        name, body = m.groups()
        if name in spilled:
            registers, spills, scalars = spilled[name]
            waves = min(most, room // (-(-max(registers, 1) // unit) * unit))
            wide = len(re.findall(r"\b(?:global|flat)_load_(?:dwordx4|b128)", body))
            dots = len(re.findall(r"\bv_dot4c?_i32_iu?8", body))
            matrices = len(re.findall(r"\bv_mfma_(?:i32|f32)|\bv_wmma", body))
            yield (name, registers, waves, spills, wide, dots + matrices, scalars, matrices)


def main():
    arch = sys.argv[1] if len(sys.argv) > 1 else "gfx90a"
    files = sys.argv[2:] or FILES
    print("| kernel | VGPRs | waves per SIMD | spilled | 16-byte loads | dot, matrix | scalars spilled | matrix |")
    print("|---|---|---|---|---|---|---|---|")
    bad = 0
    with tempfile.TemporaryDirectory() as room, ThreadPoolExecutor(os.cpu_count()) as pool:
        first = options(arch, Path(room))
        try:
            for text in pool.map(lambda name: assembly(arch, name, first), files):
                for row in kernels(text):
                    print("| " + " | ".join(str(v) for v in row) + " |")
                    bad |= row[3] > 0
        except subprocess.CalledProcessError as error:
            pool.shutdown(cancel_futures=True)
            print(f"{error.stderr}bench/amd_kernels.py: {error.cmd[-1]} does not compile for {arch}: see the lines "
                  "above", file=sys.stderr)
            return 2
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
