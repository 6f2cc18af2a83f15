# tests/test_hip_spills.py - hipcc keeps every kernel for gfx90a in vector registers, and spills few scalars
# into their lanes: what the code says that the build has for it, or, where it has none, assembly
# (bench/amd_kernels.py), which takes minutes of a processor. In the build with the emulator alone.
# Prompts of gfx11 and gfx12 are multiplied by WMMA: what hipcc and a newer compiler (tools/setup cross) make.
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
ZIG = ROOT / "build/zig/ziglang/zig"
KINDS = "GODWIT_HIP_KINDS" in os.environ  # not tools/test hip-all: some formats of weights
# Of quantized weights each way that a record is summed up: by blocks, by halves, with minimums, as a whole.
FORMATS = ("q4_0", "q2_k", "q4_k", "int4_g128")
PROMPTS = {"gemm/gemm": "gw_gemm_", "gemm/gemm_large": "gw_gemm_large_", "experts/experts_gemm": "gw_experts_gemm_",
           "gemm/gemm_half": "gw_gemm_half_", "attention/attend_digits": "gw_attend_digits_",
           "attention/attend_prompt_half": "gw_attend_prompt_half_"}
# Heads of 256 values on gfx1100: most vector registers of what the loop over tiles needs and the one over pages
# does not.
WIDE_HEADS = 16
TWO_BLOCKS = 512 // 4  # registers of a SIMD, waves of two blocks there
SCALARS = 64  # most that a kernel spills: decode products have 42, outside of their loops


def tool(name):
    """The newest LLVM's, as hipcc brings one; or None."""
    found = sorted(pathlib.Path("/usr/lib").glob(f"llvm-*/bin/{name}"),
                   key=lambda path: int(re.search(r"llvm-(\d+)", str(path)).group(1)))
    return str(found[-1]) if found else shutil.which(name, path="/opt/rocm/llvm/bin")


def built(tmp_path):
    """(kernel, spilled vector registers, spilled scalars, vector registers) of all code of the build for ARCH; nothing
    where it has none."""
    unbundle, readelf, rows = tool("clang-offload-bundler"), tool("llvm-readelf"), []
    bundles = [BUILD / f"hip/{path.stem}.hsaco" for path in (ROOT / "kernels_hip").rglob("*.hip")]
    if unbundle is None or readelf is None or not all(bundle.is_file() for bundle in bundles):
        return []
    for bundle in bundles:
        code = tmp_path / f"{bundle.stem}.elf"
        subprocess.run([unbundle, "--unbundle", "--type=o", f"--targets=hipv4-amdgcn-amd-amdhsa--{ARCH}",
                        f"--input={bundle}", f"--output={code}"], check=True)
        notes = subprocess.run([readelf, "--notes", code], check=True, capture_output=True, text=True).stdout
        rows += re.findall(r"\.name: +(gw_\w+)\n.*?\.sgpr_spill_count: +(\d+).*?\.vgpr_count: +(\d+)\n.*?"
                           r"\.vgpr_spill_count: +(\d+)", notes, re.S)
    return [(name, int(vectors), int(scalars), int(all_of_it)) for name, scalars, all_of_it, vectors in rows]


def assembled():
    done = subprocess.run([sys.executable, SCRIPT, ARCH], capture_output=True, text=True)
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return [(row[0].strip(), int(row[3]), int(row[6]), int(row[1])) for row in rows]


def test_no_kernel_spills(tmp_path):
    if shutil.which("hipcc") is None or not (BUILD / "emulator/libgodwit_emu64.so").is_file():
        pytest.skip("no hipcc, or no emulator in this build")
    rows = built(tmp_path) or assembled()
    assert [row for row in rows if row[1] != 0 or row[2] > SCALARS] == []
    assert len(rows) > 200
    # Two blocks of 8 waves to a compute unit, of a generated token. LLVM 15 is four registers above that for 8 bits.
    products = {row[0]: row[3] for row in rows if re.fullmatch(r"gw_(linear|glu)_\w+", row[0]) and
                not row[0].endswith(("_four", "_wide", "_pieces", "_1", "_2", "_4", "_long", "_order", "_parts"))}
    assert len(products) > 40
    assert max(products.values()) <= TWO_BLOCKS + 4
    assert {name for name, n in products.items() if n > TWO_BLOCKS} <= {f"gw_linear_{name}" for name in
                                                                       ("q8_0", "int8", "bl8_b32")}


def chosen():
    for number, (name, kernel) in enumerate(PROMPTS.items()):
        formats = FORMATS if number < 2 else FORMATS[1:2] if number == 2 else ()
        only = ":" + ",".join(kernel + fmt for fmt in formats) if KINDS and formats else ""
        yield f"kernels_hip/{name}.hip{only}"


def rows_of(rows, kernel):
    """Rows of kernels whose longest beginning in PROMPTS is `kernel`."""
    longer = tuple(other for other in PROMPTS.values() if other.startswith(kernel) and other != kernel)
    return [name for name in rows if name.startswith(kernel) and not name.startswith(longer)]


@pytest.mark.parametrize("compiler,arch", [("hipcc", "gfx1100"), ("zig", "gfx1100"), ("zig", "gfx1201")])
def test_prompts_by_wmma(compiler, arch):
    """LLVM 15 has no more than 128 registers on gfx1100, whatever it is told, and spills there."""
    if shutil.which("hipcc") is None or not (BUILD / "emulator/libgodwit_emu64.so").is_file():
        pytest.skip("no hipcc, or no emulator in this build")
    if compiler == "zig" and not ZIG.is_file():
        pytest.skip("no newer compiler: tools/setup cross")
    env = {**os.environ, **({"AMD_COMPILER": f"{ZIG} clang"} if compiler == "zig" else {})}
    done = subprocess.run([sys.executable, SCRIPT, arch, *chosen()], capture_output=True, text=True, env=env)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    rows = {row[0].strip(): [int(v) for v in row[1:]] for row in (line.split("|")[1:-1]
                                                                for line in done.stdout.splitlines()[2:])}
    rows = {name: row for name, row in rows.items() if name.startswith(tuple(PROMPTS.values())) and "plain" not in name}
    assert [kernel for kernel in PROMPTS.values() if rows_of(rows, kernel) == []] == []
    assert len(rows) >= 15
    assert [name for name, row in rows.items() if row[6] == 0] == []
    spilled = {name: row[2] for name, row in rows.items() if row[2] > 0}
    wide = spilled.pop("gw_attend_digits_256", 0) if arch == "gfx1100" else 0
    assert (spilled == {} and wide <= WIDE_HEADS) or compiler == "hipcc", (spilled, wide)
