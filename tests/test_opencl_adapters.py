# tests/test_opencl_adapters.py - adapters through OpenCL: the bits of the processor (test_lora.py,
# test_lora_experts.py).
import pytest

import test_lora
import test_lora_experts
from program import run


@pytest.mark.parametrize("of, n", [(test_lora, 9), (test_lora_experts, 5)], ids=["layers", "experts"])
def test_bits(of, n):
    if "| opencl:0 |" not in run("devices").stdout:
        pytest.skip("no OpenCL device, or a program without the backend")
    of.same_on("opencl", {}, n)
