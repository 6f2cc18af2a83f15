# tests/test_count.py - the totals of tools/test: what its counter makes of each kind of output.
import subprocess
import sys

import pytest

from program import ROOT

CMOCKA = """[==========] Running 3 test(s).
[ RUN      ] a
[       OK ] a
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  FAILED  ] 1 test(s), listed below:
"""
CASES = {
    "cmocka": ("fail", "", CMOCKA, "1 1 1"),
    "two cmocka groups": ("fail", "", CMOCKA * 2, "2 2 2"),
    "cmocka that dies in a group": ("fail", "", CMOCKA.split("[==========] 3")[0], "0 1 0"),
    "dies after its totals": ("fail", "", CMOCKA.rsplit("[  FAILED", 1)[0], "1 1 1"),
    "pytest": ("fail", "", ".sF\n1 failed, 2 passed, 3 skipped in 0.50s\n", "2 1 3"),
    "pytest, an error in collection": ("fail", "", "1 error in 0.10s\n", "0 1 0"),
    "pytest, a whole file skipped": ("notrun", "<skipped/>",
                                     "SKIPPED [1] t.py:3: no data\n1 skipped in 0.01s\n", "0 0 1"),
    "a check": ("run", "", "ok a\nok b\nSKIP c: no compiler\n", "2 0 1"),
    "a check that fails": ("fail", "", "    place\nFAIL a\nok b\n", "1 1 0"),
    "a plain program": ("run", "", "hello\n", "1 0 0"),
    "a crash": ("fail", "", "", "0 1 0"),
    "not built": ("notrun", "<skipped/>", "Unable to find executable: x\n", "0 1 0"),
}


@pytest.mark.parametrize("name", CASES)
def test_count(name, tmp_path):
    status, inside, output, want = CASES[name]
    results = tmp_path / "results.xml"
    results.write_text(f'<testsuite><testcase name="t" status="{status}">{inside}'
                       f"<system-out>{output}</system-out></testcase></testsuite>")
    done = subprocess.run([sys.executable, ROOT / "tools/count_tests.py", results],
                          capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == want
