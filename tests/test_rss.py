# tests/test_rss.py - peak memory of a run: at most the file, the KV cache and a tenth more.
# Models with random weights, large enough that the program itself (FIXED) does not decide.
import os
import subprocess
import sys

import pytest

from program import BIN, EMULATOR, SANITIZED, SHARED

SYNTH = SHARED / "tools/synth_gguf.py"
FIXED = 24 << 20  # the program, its libraries, one thread stack per thread, the tokenizer
CONTEXT = 512

pytestmark = [
    pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="memory of an emulator or a sanitizer"),
    pytest.mark.skipif(not SYNTH.is_file(), reason=f"{SYNTH} is not there"),
]


def peak_bytes(args):
    """Peak resident bytes of one run (of its own process: wait4 tells)."""
    with open(os.devnull, "r+b") as null:
        child = subprocess.Popen([BIN, *map(str, args)], stdin=null, stdout=null,
                                 stderr=subprocess.PIPE)
        words = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, words[-2000:]
    return usage.ru_maxrss * 1024


@pytest.mark.parametrize("weights", ["q4_k", "f16"])
def test_peak(weights, tmp_path):
    path = tmp_path / "synthetic.gguf"
    subprocess.run([sys.executable, SYNTH, "1.1b", weights, path, "--layers", "3"], check=True,
                   stdout=subprocess.DEVNULL)
    kv = 3 * 2 * CONTEXT * 4 * 64 * 2  # layers, K and V, positions, KV heads, width, f16
    peak = peak_bytes(["logits", "-m", path, "-c", CONTEXT, "--ids", "1,300,301,302", "--greedy", 4])
    limit = (path.stat().st_size + kv) * 1.1 + FIXED
    assert peak <= limit, f"{peak / 2**20:.0f} MiB, allowed {limit / 2**20:.0f} MiB"
