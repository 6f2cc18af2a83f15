#!/bin/sh
# findings/mingw-fmaf.sh - fmaf of mingw-w64's C library for x86-64 rounds more than once: a quarter of random results differ
# packages: mingw-w64-x86-64-dev==10.0.0-3
# seen: 2026-11-30
# what: of 2,000 triples of floats of like size, fmaf(a, b, c) of libmingwex.a is not a * b + c rounded once for 550
# instead: none; C11 7.12.13.1 has fma round once, as one ternary operation
set -u
[ "$(uname -m)" = x86_64 ] || exit 77
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
cd "$folder" && apt-get download mingw-w64-x86-64-dev=10.0.0-3 > log 2>&1 && dpkg-deb -x ./*.deb files > log 2>&1 || {
    tail -n 3 log >&2
    exit 77
}
python3 - "$(find files -name libmingwex.a | grep x86_64)" <<'PYTHON'
import ctypes
import mmap
import random
import struct
import sys
from fractions import Fraction


def member(archive, ending):
    """A file of an ar archive; long names stand in the member //."""
    at, names = 8, b""
    while at < len(archive):
        name, size = archive[at:at + 16].strip(), int(archive[at + 48:at + 58])
        body = archive[at + 60:at + 60 + size]
        if name == b"//":
            names = body
        elif name[:1] == b"/" and name[1:].isdigit():
            name = names[int(name[1:]):].split(b"/")[0].split(b"\n")[0]
        if name.rstrip(b"/").endswith(ending):
            return body
        at += 60 + size + size % 2
    sys.exit(77)


def text_of(coff):
    """Section .text, which has to need no relocation."""
    sections, optional = struct.unpack_from("<H", coff, 2)[0], struct.unpack_from("<H", coff, 16)[0]
    for i in range(sections):
        row = struct.unpack_from("<8sIIIIIIHHI", coff, 20 + optional + 40 * i)
        if row[0].rstrip(b"\0") == b".text" and row[7] == 0:
            return coff[row[4]:row[4] + row[3]]
    sys.exit(77)


def rounded(x):
    """The float nearest to a fraction, ties to even, within the range of normal floats."""
    if x == 0:
        return 0.0
    exponent = 0
    while abs(x) * Fraction(2) ** -exponent >= 2**24:
        exponent += 1
    while abs(x) * Fraction(2) ** -exponent < 2**23:
        exponent -= 1
    return float(round(x * Fraction(2) ** -exponent)) * 2.0**exponent


with open(sys.argv[1], "rb") as f:
    code = text_of(member(f.read(), b"fmaf.o"))
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(code)
fmaf = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float, ctypes.c_float, ctypes.c_float)(
    ctypes.addressof(ctypes.c_char.from_buffer(memory)))
draw = random.Random(1)
wrong = 0
for _ in range(2000):
    a, b, c = (struct.unpack("<f", struct.pack("<f", draw.uniform(-2, 2)))[0] for _ in range(3))
    wrong += fmaf(a, b, c) != rounded(Fraction(a) * Fraction(b) + Fraction(c))
print(f"fmaf of mingw-w64 10.0.0-3: {wrong} of 2000 differ")
sys.exit(wrong != 550)
PYTHON
