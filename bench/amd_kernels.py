"""bench/amd_kernels.py - what hipcc makes of the kernels for an AMD architecture.

    bench/amd_kernels.py [ARCH [FILE ...]]      (gfx90a, all files; needs hipcc; minutes)

One row per kernel: vector registers, waves per SIMD that they allow, spilled registers, 16-byte
loads from global memory, dot and matrix instructions, spilled scalars. Exit code 1 when vector
registers spill. AMD_COMPILER: another command than hipcc, of which a compiler's options follow.
"""

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "kernels_hip").rglob("*.hip"))


def assembly(arch, name):
    command = [*shlex.split(os.environ.get("AMD_COMPILER", "hipcc")), f"--offload-arch={arch}", "--cuda-device-only", "-O3", "-ffp-contract=off",
               "-std=c++17", "-I", str(ROOT), "-S", "-o", "-", str(ROOT / name)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kernels(text):
    """(name, registers, waves, spilled, wide loads, dot and matrix instructions, scalars) of each kernel."""
    spilled = {}
    for m in re.finditer(r"\.name:\s+(gw_\w+)\n(.*?)\.wavefront_size", text, re.S):
        def number(key, body=m.group(2)):
            return int(re.search(rf"\.{key}:\s+(\d+)", body).group(1))
        spilled[m.group(1)] = (number("vgpr_count"), number("vgpr_spill_count"), number("sgpr_spill_count"))
    for m in re.finditer(r"^(gw_\w+):\s.*?\n(.*?)s_endpgm.*?\.Lfunc_end", text, re.S | re.M):
        name, body = m.groups()
        if name in spilled:
            registers, spills, scalars = spilled[name]
            waves = min(8, 512 // (-(-max(registers, 1) // 8) * 8))
            wide = len(re.findall(r"\b(?:global|flat)_load_(?:dwordx4|b128)", body))
            yield (name, registers, waves, spills, wide,
                   len(re.findall(r"\bv_dot4c?_i32_iu?8|\bv_mfma_(?:i32|f32)|\bv_wmma", body)), scalars)


def main():
    arch = sys.argv[1] if len(sys.argv) > 1 else "gfx90a"
    files = sys.argv[2:] or FILES
    print("| kernel | VGPRs | waves per SIMD | spilled | 16-byte loads | dot, matrix | scalars spilled |")
    print("|---|---|---|---|---|---|---|")
    bad = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in pool.map(lambda name: assembly(arch, name), files):
            for row in kernels(text):
                print("| " + " | ".join(str(v) for v in row) + " |")
                bad |= row[3] > 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
