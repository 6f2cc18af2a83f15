# tests/test_hip_spills.py - hipcc keeps every kernel for gfx90a in registers (bench/amd_kernels.py). In
# the build with the emulator alone: it takes minutes of a processor.
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ""))
SCRIPT = pathlib.Path(__file__).parent.parent / "bench/amd_kernels.py"


def test_no_kernel_spills():
    if shutil.which("hipcc") is None or not (BUILD / "emulator/libgodwit_emu64.so").is_file():
        pytest.skip("no hipcc, or no emulator in this build")
    done = subprocess.run([sys.executable, SCRIPT, "gfx90a"], capture_output=True, text=True)
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert [row for row in rows if int(row[3]) > 0] == []
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(rows) > 200
