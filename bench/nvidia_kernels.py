"""bench/nvidia_kernels.py - what NVRTC makes of the kernels for an NVIDIA processor.

    bench/nvidia_kernels.py [ARCH [FILE ...]]      (sm_80, all files; minutes of a processor)

One row per kernel: registers, bytes of stack, and bytes that its instructions store there and load from
there because registers spill. At the end, on stderr, the seconds of a processor. Exit code 1 when a file
does not compile. NVRTC: another library than libnvrtc.so, as libnvrtc.so.12 of a wheel.
"""

import ctypes
import os
import re
import sys
import time

from amd_kernels import FILES, ROOT

OPTIONS = ("-std=c++17", "--fmad=false", "-default-device", "--ptxas-options=-v")  # of backends/hip/compiler.c
ENTRY = re.compile(r"Compiling entry function '(\w+)'.*?\n.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                   r"(\d+) bytes spill loads\n.*?Used (\d+) registers", re.S)


def headers():
    """(name, text) of all that a kernel may include; stdint.h as backends/hip/program.c has it."""
    program = (ROOT / "backends/hip/program.c").read_text()
    stdint = re.search(r"stdint_text\[\] = (.*?);\n\n", program, re.S).group(1)
    yield b"stdint.h", "".join(re.findall(r'"(.*?)"', stdint)).replace("\\n", "\n").encode()
    for folder in ("kernels_hip", "core/tensor"):
        for path in (ROOT / folder).rglob("*.h"):
            yield path.relative_to(ROOT).as_posix().encode(), path.read_bytes()


def strings(values):
    return (ctypes.c_char_p * len(values))(*values)


def compiled(nvrtc, arch, name):
    """The compiler's log of a file."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    names, texts = zip(*headers())
    options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture={arch}")]
    error = nvrtc.nvrtcCreateProgram(ctypes.byref(program), (ROOT / name).read_bytes(), name.encode(), len(names),
                                     strings(texts), strings(names))
    error = error or nvrtc.nvrtcCompileProgram(program, len(options), strings(options))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if error:
        sys.exit(f"{log.value.decode()}bench/nvidia_kernels.py: {name} does not compile for {arch}: see the lines above")
    return log.value.decode()


def main():
    arch = sys.argv[1] if len(sys.argv) > 1 else "sm_80"
    nvrtc = ctypes.CDLL(os.environ.get("NVRTC", "libnvrtc.so"))
    print("| kernel | registers | stack | spill stores | spill loads |\n|---|---|---|---|---|")
    for name in sys.argv[2:] or FILES:
        for kernel, stack, stores, loads, registers in ENTRY.findall(compiled(nvrtc, arch, name)):
            print(f"| {kernel} | {registers} | {stack} | {stores} | {loads} |", flush=True)
    print(f"{time.process_time():.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
