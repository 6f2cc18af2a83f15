# tests/test_sanitizer.py - a finding in a kernel ends a program of the build with sanitizers, although
# its check is one that could go on (CMakeLists.txt, tests/sanitizer_options.c).
import json
import os
import pathlib
import shlex
import subprocess

import pytest

from program import ROOT, SANITIZED

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ""))
WRONG = """#include <stdio.h>
int main(int n, char **arguments) {
    int most = 2147483647;
    printf("%d\\n", most + n);
    fflush(stdout);
    (void)arguments;
    return 0;
}
"""


@pytest.mark.skipif(not SANITIZED, reason="a build without sanitizers")
def test_ends_at_the_first_finding(tmp_path):
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    kernel = next(entry for entry in entries if entry["file"].endswith("cpu/ops_simd.c"))
    compiler, *words = [word for word in shlex.split(kernel["command"]) if "ccache" not in word]
    flags = [word for word in words if word.startswith(("-fsanitize", "-fno-sanitize"))]
    assert "-fsanitize-recover=undefined" in flags
    (tmp_path / "wrong.c").write_text(WRONG)
    program = tmp_path / "wrong"
    flags.remove("-fsanitize=fuzzer-no-link")
    subprocess.run([compiler, *flags, tmp_path / "wrong.c", ROOT / "tests/sanitizer_options.c", "-o", program],
                   check=True)
    environment = {name: value for name, value in os.environ.items() if name != "UBSAN_OPTIONS"}
    done = subprocess.run([program], capture_output=True, text=True, env=environment)
    assert done.returncode != 0 and done.stdout == "", done.stdout
    assert "signed integer overflow" in done.stderr
