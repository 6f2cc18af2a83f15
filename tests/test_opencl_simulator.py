# tests/test_opencl_simulator.py - the OpenCL kernels in oclgrind: no data race, no access outside a
# buffer or a local array; the bits are compared too.
import os
import pathlib

import pytest

from program import OPENCL_ALL, run

SIMULATOR = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"
PROGRAM = pathlib.Path(os.environ.get("GODWIT_BUILD", "")) / "tests/test_opencl_ops"


def parts():
    """Ranges of the cases in tests/op_cases.h, the way for graphics processors. Not here: norms to
    act8, which oclgrind cannot run, and attention, whose last group joins what others wrote behind
    an atomic counter, which it takes for a race."""
    if OPENCL_ALL:
        return ["0-8", "11-13", "15-18", "25-25", "28-28", "30-30", "32-36", "37-41"]
    return ["0-5", "7-8", "11-13", "15-15", "26-26", "30-30", "32-32", "36-36", "40-41"]


@pytest.mark.parametrize("cases", parts())
def test_no_fault(cases, tmp_path):
    if not pathlib.Path(SIMULATOR).is_file() or not PROGRAM.is_file():
        pytest.skip("oclgrind or tests/test_opencl_ops is not there")
    (tmp_path / "oclgrind.icd").write_text(SIMULATOR + "\n")
    done = run(binary=str(PROGRAM), check=False, env={
        "OCL_ICD_VENDORS": f"{tmp_path}/", "OCLGRIND_DATA_RACES": "1", "GODWIT_OP_CASES": cases,
        "GODWIT_TEST": "bits_team", "XDG_CACHE_HOME": str(tmp_path)})
    text = done.stdout + done.stderr
    for word in ("data race", "Invalid read", "Invalid write", "SKIP"):
        assert word.lower() not in text.lower(), text[-3000:]
    assert done.returncode == 0 and "PASSED  ] 1 test" in text, text[-3000:]
