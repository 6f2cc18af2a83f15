# tests/test_hip_spills.py - hipcc keeps every kernel for gfx90a in registers: what the code says that
# the build has for it, or, where it has none, assembly (bench/amd_kernels.py), which takes minutes
# of a processor. In the build with the emulator alone.
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

from program import ROOT

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ""))
SCRIPT = ROOT / "bench/amd_kernels.py"
ARCH = "gfx90a"


def unpack(data, at=0):
    """MessagePack, as far as code objects go: (value, offset behind it)."""
    kind, at = data[at], at + 1
    if kind < 0x80 or kind >= 0xe0:
        return kind if kind < 0x80 else kind - 0x100, at
    if kind in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[kind], at
    if 0xcc <= kind <= 0xd3:
        size = 1 << (kind & 3)
        return int.from_bytes(data[at:at + size], "big", signed=kind >= 0xd0), at + size
    if kind < 0xc0:
        what, n = "map" if kind < 0x90 else "list" if kind < 0xa0 else "text", kind & (15 if kind < 0xa0 else 31)
    else:
        what, size = {0xd9: ("text", 1), 0xda: ("text", 2), 0xdb: ("text", 4), 0xdc: ("list", 2),
                      0xdd: ("list", 4), 0xde: ("map", 2), 0xdf: ("map", 4)}[kind]
        n, at = int.from_bytes(data[at:at + size], "big"), at + size
    if what == "text":
        return data[at:at + n].decode(), at + n
    values = []
    for _ in range(n * (2 if what == "map" else 1)):
        value, at = unpack(data, at)
        values.append(value)
    return dict(zip(values[::2], values[1::2])) if what == "map" else values, at


def code_object(path):
    """The ELF file for ARCH in a bundle of hipcc's."""
    data = path.read_bytes()
    assert data[:24] == b"__CLANG_OFFLOAD_BUNDLE__", path
    (count,), at = struct.unpack_from("<Q", data, 24), 32
    for _ in range(count):
        begin, size, length = struct.unpack_from("<3Q", data, at)
        name, at = data[at + 24:at + 24 + length].decode(), at + 24 + length
        if ARCH in name:
            return data[begin:begin + size]
    return None


def kernels(elf):
    """{name: what its metadata say} of a code object: its note of type 32, of the name AMDGPU."""
    (at,), (size, count) = struct.unpack_from("<Q", elf, 32), struct.unpack_from("<2H", elf, 54)
    headers = [struct.unpack_from("<2I6Q", elf, at + i * size) for i in range(count)]
    for kind, _, begin, _, _, length, *_ in headers:
        if kind != 4:
            continue
        name, data, what = struct.unpack_from("<3I", elf, begin)
        begin += 12
        assert (what, elf[begin:begin + name]) == (32, b"AMDGPU\0") and data <= length
        begin += (name + 3) // 4 * 4
        return {kernel[".name"]: kernel for kernel in unpack(elf[begin:begin + data])[0]["amdhsa.kernels"]}
    return {}


def built():
    """(kernel, spilled registers) of all code of the build for ARCH; nothing where it has none."""
    objects = [code_object(BUILD / f"hip/{path.stem}.hsaco") for path in (ROOT / "kernels_hip").glob("*.hip")
               if (BUILD / f"hip/{path.stem}.hsaco").is_file()]
    return [(name, kernel[".vgpr_spill_count"]) for elf in objects if elf is not None
            for name, kernel in kernels(elf).items()]


def assembled():
    done = subprocess.run([sys.executable, SCRIPT, ARCH], capture_output=True, text=True)
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert done.returncode in (0, 1), done.stderr[-3000:]
    return [(row[0].strip(), int(row[3])) for row in rows]


def test_no_kernel_spills():
    if shutil.which("hipcc") is None or not (BUILD / "emulator/libgodwit_emu64.so").is_file():
        pytest.skip("no hipcc, or no emulator in this build")
    rows = built() or assembled()
    assert [row for row in rows if row[1] != 0] == []
    assert len(rows) > 200
