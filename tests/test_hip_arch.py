# tests/test_hip_arch.py - the table of processors, kernels_hip/arch.h: what its rows become for the
# preprocessor, and what is built for a processor without a row. tools/test hip-all: every kernel that a
# processor has is compiled for it, and no other is there.
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from program import ROOT

TABLE = (ROOT / "kernels_hip/arch.h").read_text()
ROWS = re.findall(r"^    X\((\w+), (.+?), (32|64), GW_DOT_(\w+), GW_MATRIX_(\w+), ([01]), ([01])\)", TABLE, re.M)
ASKED = """
#include "kernels_hip/device.h"
row LANES GW_COPIES GW_MMA GW_GROUP_MMA
#if GW_DOT == GW_DOT_SIGNED
SIGNED
#elif GW_DOT == GW_DOT_MIXED
MIXED
#else
NONE
#endif
"""

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def preprocessed(name, *more):
    """As NVRTC and hiprtc compile: without system headers."""
    if name.startswith("sm_"):
        told = ["-D__CUDACC__", "-D__CUDACC_RTC__", f"-D__CUDA_ARCH__={name[3:]}0"]
    else:
        told = ["-D__HIPCC_RTC__", "-D__HIP_DEVICE_COMPILE__", f"-D__{name}__=1"]
    return subprocess.run(["g++", "-x", "c++", "-E", "-P", "-nostdinc", "-I", ROOT, *told, *more, "-"],
                          input=ASKED, capture_output=True, text=True)


def test_rows():
    """Every row is one processor, and the columns are its own."""
    assert len(ROWS) == TABLE.count("\n    X(") > 45 and len({row[0] for row in ROWS}) == len(ROWS)
    for name, _, wave, dot, matrix, copies, _ in ROWS:
        done = preprocessed(name)
        assert done.returncode == 0, done.stderr
        asked = done.stdout[done.stdout.rindex("row "):].split()
        assert asked == ["row", wave, copies, str(int(matrix != "NONE")), "0", dot], name
        assert (name.startswith("gfx") and "MMA" != matrix) or name.startswith("sm_"), name


@pytest.mark.parametrize("name", ["gfx1999", "sm_139"])
def test_a_name_in_no_row(name):
    """An error in builds; the program says that it knows of none, or which one is near."""
    done = preprocessed(name)
    assert done.returncode != 0 and "kernels_hip/arch.h has no row for this processor" in done.stderr
    near = "-DGW_UNKNOWN_PROCESSOR" if name.startswith("gfx") else "-DGW_ARCH_SM=1210"
    done = preprocessed(name, near)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == (["0", "NONE"] if name.startswith("gfx") else ["0", "SIGNED"])


# By release of NVRTC (tools/setup hip-all): 13 knows none before sm_75. sm_90a is what cards of sm_90 get.
WHOLE = [(12, "sm_61"), (12, "sm_90a"), *((13, arch) for arch in ("sm_75", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"))]


@pytest.mark.parametrize("release,arch", WHOLE)
def test_every_kernel(release, arch):
    """Whole files have the kernels that backends/hip/places.c says, and no others (test_hip_compile.c)."""
    if "GODWIT_HIP_KINDS" in os.environ:
        pytest.skip("tools/test hip-all compiles them: minutes of a processor")
    folders = [path.parent for path in (ROOT / f"build/nvrtc-{release}").rglob(f"libnvrtc.so.{release}")]
    program = pathlib.Path(os.environ.get("GODWIT_BUILD", "")) / "tests/test_hip_compile"
    if not folders or not program.is_file():
        pytest.skip(f"no NVRTC {release} (tools/setup hip-all), or no emulator in this build")
    env = {**os.environ, "LD_LIBRARY_PATH": str(folders[0]), "GODWIT_HIP_ARCH": arch}
    done = subprocess.run([program], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "[       OK ] test_nvrtc" in done.stdout + done.stderr, done.stderr
