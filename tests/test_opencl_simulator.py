# tests/test_opencl_simulator.py - the OpenCL kernels in oclgrind: no data race, no access outside a
# buffer or a local array; the bits are compared too.
import os
import pathlib
import re

import pytest

from program import OPENCL_ALL, ROOT, run

SIMULATOR = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
PROGRAM = pathlib.Path(os.environ.get("GODWIT_BUILD", "")) / "tests/test_opencl_ops"
# The simulator keeps the result of every instruction that a work-item has run until its group ends:
# a prompt of 100 tokens takes minutes of a processor and 1.5 GB (case 24 in the team way), and many
# minutes more where others are at work.
PATIENCE = 3600


def parts():
    """A test of test_opencl_ops.c, which takes one way through the ops, and a range of the cases in
    tests/op_cases.h: the whole table, or what takes seconds."""
    team = ["0-13", "15-15", "26-26", "30-30", "32-32", "36-36", "40-45", "53-54", "57-57", "60-60",
            "64-67", "71-71", "80-81", "83-83", "98-101", "128-128"]
    item = ["0-16", "37-40", "42-45", "57-57", "60-60", "64-67", "80-81", "83-83", "98-101", "128-128"]
    if OPENCL_ALL:
        table = (ROOT / "tests/op_cases.h").read_text()  # without the cases of every format
        count = len(re.findall(r"^    \{\.op = ", table, re.MULTILINE))
        team = item = [f"{i}-{i}" for i in range(count)]
    # attention of one page that joins nothing (what groups leave for the last one to join, OpenCL 1.2
    # does not order); whatever the cases: ops that share the local memory of one launch, the roof
    more = [("bits_last_joins", cases) for cases in ("42-43", "60-60", "85-86")]
    more += [(test, "0-0") for test in ("bits_chain", "roof_team", "roof_as_found")]
    return [("bits_team", cases) for cases in team] + [("bits_as_found", cases) for cases in item] + more


@pytest.mark.parametrize("test,cases", parts())
def test_no_fault(test, cases, tmp_path):
    if not pathlib.Path(SIMULATOR).is_file() or not PROGRAM.is_file():
        pytest.skip("oclgrind or tests/test_opencl_ops is not there")
    (tmp_path / "oclgrind.icd").write_text(SIMULATOR + "\n")
    done = run(binary=str(PROGRAM), check=False, timeout=PATIENCE, env={
        "OCL_ICD_VENDORS": f"{tmp_path}/", "OCLGRIND_DATA_RACES": "1", "GODWIT_OP_CASES": cases,
        "GODWIT_TEST": test, "XDG_CACHE_HOME": str(tmp_path)})
    text = done.stdout + done.stderr
    for word in ("data race", "Invalid read", "Invalid write", "SKIP"):
        assert word.lower() not in text.lower(), text[-3000:]
    assert done.returncode == 0 and "PASSED  ] 1 test" in text, text[-3000:]
