"""The shared library of this package, or the one that GODWIT_LIBRARY names."""
import os
import pathlib

from ._abi import ffi

_OWN = pathlib.Path(__file__).parent / "libgodwit.so"
# Never unloaded: its threads stay until the process ends.
lib = ffi.dlopen(os.environ.get("GODWIT_LIBRARY") or (str(_OWN) if _OWN.exists() else "libgodwit.so.0"),
                 ffi.RTLD_NOW | ffi.RTLD_NODELETE)

for _name in ("gw_model_options", "gw_session_options", "gw_sampler_options", "gw_writer_options",
              "gw_answer_options", "gw_encoder_options"):
    if lib.gw_struct_size(_name.encode()) != ffi.sizeof(_name):
        raise ImportError(f"the library that was loaded is of another build: {_name} differs")


class GodwitError(Exception):
    """What the library says; `status` is its class in one word ("context", "device", ...)."""

    def __init__(self, text: str, status: str = ""):
        super().__init__(text)
        self.status = status


def owned(pointer, free, *needed):
    """The pointer, freed when nobody has it any more, and before what it needs."""
    return ffi.gc(pointer, lambda p, needed=needed: free(p))


def check(status: int) -> None:
    """The error's text belongs to the thread that made the call."""
    if status != 0:
        raise GodwitError(ffi.string(lib.gw_error_text()).decode("utf-8", "replace"),
                          ffi.string(lib.gw_status_name(status)).decode())


def version() -> str:
    return ffi.string(lib.gw_version()).decode()
