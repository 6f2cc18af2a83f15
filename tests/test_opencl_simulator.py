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
# a prompt of 100 tokens takes minutes of a processor and 1.5 GB ("f16 prefill, more than a block
# deep" in the team way), and many minutes more where others are at work.
PATIENCE = 3600

# Cases of tests/op_list.h that take seconds at most and together go through every kernel: ragged
# ends, several groups, more than one page, each format of a cache, outputs in act8.
BOTH_WAYS = """
EMBED f32 rows
EMBED f16 rows
EMBED q8_0 rows
EMBED q6_k rows
EMBED ids that were drawn
PICK the last row
PICK some rows
NORM whole lanes
NORM ragged
NORM narrower than the lanes
NORM to act8
NORM to act8, one row
NORM several blocks to a lane, ragged
NORM to act8, several blocks to a lane
NORM zeros, NaN, infinity, tiny, large
NORM to act8, zeros, NaN, infinity, tiny, large
QUANTIZE many rows
QUANTIZE one long row
QUANTIZE zeros, NaN, infinity, tiny
LINEAR f16 decode, ragged k and m
LINEAR q4_0 decode, one row of 4096
LINEAR quantized, residual in place
LINEAR bf16 prefill, ragged
LINEAR decode of q4_k
LINEAR decode of int4_g128
LINEAR prefill of int4_g128
GLU f16 decode to act8
GLU quantized, formats differ
ROPE_KV halves, f16
ROPE_KV partial rotation, odd width, slots
ROPE_KV 80 wide, partial, interleaved
ROPE_KV halves, q8_0
ATTENTION first position
ATTENTION a full page
ATTENTION one past a page
ATTENTION several pages, f32
ATTENTION odd head width
ATTENTION to act8
ATTENTION q8_0, first position
SAMPLE the largest
SAMPLE the largest, ties
SAMPLE one token
SAMPLE nothing to draw
SAMPLE top-k of all but one
SAMPLE top-k of more than all
SAMPLE top-p of ties
EMBED scaled, positions
NORM no weight, to act8
NORM addend and factor
NORM layer, ragged
NORM layer, to act8
ACT silu, limit, to act8
ACT swiglu_oai
MIX gates of heads, to act8
MIX everything, in place
ROUTE softmax, renormed, scaled, factors
ROUTE sigmoid, bias, groups of two best
ROUTE sparsemixer
EXPERTS_GLU 5 rows, ragged, biases
EXPERTS_GLU one matrix, inside strips
EXPERTS_GLU gates at the input
EXPERTS_GLU decode of int4_g128
EXPERTS_GLU prefill of q4_k
EXPERTS_DOWN one row
EXPERTS_DOWN inside strips
EXPERTS_DOWN prefill of int4_g128
EXPERTS_LORA_A rows of several adapters
EXPERTS_LORA_B rows of several adapters, gates
EXPERTS_LORA_B of all experts, gated, a wide rank
ROPE_KV layer norms of heads, wide weights
ROPE_KV norms behind the rotation, values normed
ROPE_KV wide values, q8_0
ROPE_KV queries alone
ATTENTION narrow values
ATTENTION wide values, q8_0, slots
ATTENTION cap and sinks
ATTENTION digits, two rows, one page
"""
# Kernels of the way for graphics processors that rows in numbers, and several pages, take.
TEAM_WAY = """
LINEAR f16 prefill, over the borders of tiles
ATTENTION rows together, large group
ATTENTION rows together over a page border, to act8
ATTENTION rows together, q8_0, window
"""
ITEM_WAY = """
LINEAR f16 decode
LINEAR f16 decode, 2 rows
ROPE_KV interleaved, f32, over page borders
ROPE_KV head norms, 128 wide
"""
# What groups leave for the last one to join, OpenCL 1.2 does not order: attention of one page, which
# joins nothing.
LAST_JOINS = """
ATTENTION first position
ATTENTION a full page
ATTENTION q8_0, first position
ATTENTION one page, to act8
GLU q8_0 decode, one row of 2048
"""


def numbers(names):
    """What GODWIT_OP_CASES takes: ranges of the numbers that cases of these names, "OP why", have in
    the table, which eight of each format follow (oc_case); for None the whole table, each alone."""
    table = (ROOT / "tests/op_list.h").read_text()
    table = re.findall(r'^    \{\.op = GW_OP_(\w+), \.why = "([^"]*)"', table, re.MULTILINE)
    if names is None:
        return [f"{i}-{i}" for i in range(len(table))]
    formats = (ROOT / "core/tensor/formats.h").read_text().partition("enum gw_fmt {")[2]
    table += [(op, f"{order} of {name.lower()}") for name in re.findall(r"GW_FMT_(\w+),", formats)
              for op in ("LINEAR", "GLU", "EXPERTS_GLU", "EXPERTS_DOWN")
              for order in ("decode", "prefill")]
    found = sorted(table.index(tuple(name.split(" ", 1))) for name in names.split("\n")[1:-1])
    ends = [i for i in found if i + 1 not in found]
    return [f"{first}-{last}" for first, last in zip((i for i in found if i - 1 not in found), ends)]


def parts():
    """A test of test_opencl_ops.c, which takes one way through the ops, and a range of the cases."""
    team, item = (None, None) if OPENCL_ALL else (BOTH_WAYS + TEAM_WAY[1:], BOTH_WAYS + ITEM_WAY[1:])
    cases = {"bits_team": numbers(team), "bits_as_found": numbers(item),
             "bits_last_joins": numbers(LAST_JOINS),
             # whatever the cases: ops that share the local memory of one launch, the roof
             "bits_chain": ["0-0"], "roof_team": ["0-0"], "roof_as_found": ["0-0"]}
    return [(test, part) for test, of in cases.items() for part in of]


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
