# tests/test_hip_spills.py - hipcc keeps every kernel for gfx90a in vector registers, and spills few scalars
# into their lanes: what the code says that the build has for it, or, where it has none, assembly
# (bench/amd_kernels.py), which takes minutes of a processor. In the build with the emulator alone.
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from program import ROOT

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ""))
SCRIPT = ROOT / "bench/amd_kernels.py"
ARCH = "gfx90a"
SCALARS = 64  # most that a kernel spills: decode products have 42, outside of their loops


def tool(name):
    """The newest LLVM's, as hipcc brings one; or None."""
    found = sorted(pathlib.Path("/usr/lib").glob(f"llvm-*/bin/{name}"),
                   key=lambda path: int(re.search(r"llvm-(\d+)", str(path)).group(1)))
    return str(found[-1]) if found else shutil.which(name, path="/opt/rocm/llvm/bin")


def built(tmp_path):
    """(kernel, spilled vector registers, spilled scalars) of all code of the build for ARCH; nothing where it has none."""
    unbundle, readelf, rows = tool("clang-offload-bundler"), tool("llvm-readelf"), []
    bundles = [BUILD / f"hip/{path.stem}.hsaco" for path in (ROOT / "kernels_hip").rglob("*.hip")]
    if unbundle is None or readelf is None or not all(bundle.is_file() for bundle in bundles):
        return []
    for bundle in bundles:
        code = tmp_path / f"{bundle.stem}.elf"
        subprocess.run([unbundle, "--unbundle", "--type=o", f"--targets=hipv4-amdgcn-amd-amdhsa--{ARCH}",
                        f"--input={bundle}", f"--output={code}"], check=True)
        notes = subprocess.run([readelf, "--notes", code], check=True, capture_output=True, text=True).stdout
        rows += re.findall(r"\.name: +(gw_\w+)\n.*?\.sgpr_spill_count: +(\d+).*?\.vgpr_spill_count: +(\d+)", notes,
                           re.S)
    return [(name, int(vectors), int(scalars)) for name, scalars, vectors in rows]


def assembled():
    done = subprocess.run([sys.executable, SCRIPT, ARCH], capture_output=True, text=True)
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return [(row[0].strip(), int(row[3]), int(row[6])) for row in rows]


def test_no_kernel_spills(tmp_path):
    if shutil.which("hipcc") is None or not (BUILD / "emulator/libgodwit_emu64.so").is_file():
        pytest.skip("no hipcc, or no emulator in this build")
    rows = built(tmp_path) or assembled()
    assert [row for row in rows if row[1] != 0 or row[2] > SCALARS] == []
    assert len(rows) > 200
