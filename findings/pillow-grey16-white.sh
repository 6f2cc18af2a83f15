#!/bin/sh
# findings/pillow-grey16-white.sh - Pillow makes a 16-bit grey PNG white when it is converted to RGB, and a 16-bit RGB PNG of the same values not
# packages: pillow==13.0.0
# seen: 2026-11-29
# what: grey values 0x4000, 0x8000, 0xc000 become 255, 255, 255 by Image.open().convert("RGB")
# instead: 0x40, 0x80, 0xc0, the upper 8 bits, as the same library gives for a 16-bit RGB PNG
set -u
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" -q install pillow==13.0.0 > "$folder/log" 2>&1 || {
    tail -n 3 "$folder/log" >&2
    exit 77
}
"$folder/venv/bin/python" - <<'PYTHON'
import io
import struct
import sys
import zlib

import PIL
from PIL import Image

VALUES = 0x4000, 0x8000, 0xC000


def png(color, channels):
    """One row of three pixels, 16 bits a value."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    row = b"\0" + b"".join(struct.pack(">H", v) * channels for v in VALUES)
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 1, 16, color, 0, 0, 0)) +
                      chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b""))


def reds(data):
    return list(Image.open(data).convert("RGB").tobytes()[::3])


grey, rgb = reds(png(0, 1)), reds(png(2, 3))
print("pillow", PIL.__version__, "grey:", grey, "rgb:", rgb)
sys.exit(0 if (grey, rgb) == ([255, 255, 255], [0x40, 0x80, 0xC0]) else 1)
PYTHON
