# python/make_abi.py INCLUDE OUT - the declarations of include/*.h as a module that cffi loads without
# parsing anything (ABI mode): written when the wheel is built, so that it never differs from them.
import pathlib
import re
import sys

import cffi

HEADERS = ("godwit.h", "godwit_writer.h", "godwit_encoder.h", "godwit_see.h", "godwit_image.h", "godwit_bind.h",
           "godwit_lora.h")


def declarations(folder):
    """The headers without comments, preprocessor lines and inline functions."""
    text = "\n".join((pathlib.Path(folder) / name).read_text() for name in HEADERS)
    numbers = dict(re.findall(r"^#define (GW_\w+) (\d+)$", text, re.M))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    text = re.sub(r"static inline [^{;]*\{[^}]*\}", "", text)
    text = re.sub(r'extern "C" \{|^\}\s*$', "", text, flags=re.M)
    for name, value in numbers.items():
        text = re.sub(rf"\b{name}\b", value, text)
    return text


if __name__ == "__main__":
    ffi = cffi.FFI()
    ffi.cdef(declarations(sys.argv[1]))
    ffi.set_source("godwit._abi", None)
    ffi.emit_python_code(sys.argv[2])
