"""The shared library of this package, or the one that GODWIT_LIBRARY names."""
import os
import pathlib
import threading
import typing

from ._abi import ffi as ffi

_OWN = pathlib.Path(__file__).parent / "libgodwit.so"
# Never unloaded: its threads stay until the process ends.
lib: typing.Any = ffi.dlopen(os.environ.get("GODWIT_LIBRARY") or (str(_OWN) if _OWN.exists() else "libgodwit.so.0"),
                 ffi.RTLD_NOW | ffi.RTLD_NODELETE)

for _name in ("gw_model_options", "gw_session_options", "gw_sampler_options", "gw_writer_options",
              "gw_answer_options", "gw_encoder_options", "gw_batch_options", "gw_request_options", "gw_event",
              "gw_lora_file", "gw_lora_info", "gw_lora_pick"):
    if lib.gw_struct_size(_name.encode()) != ffi.sizeof(_name):
        raise ImportError(f"the library that was loaded is of another build: {_name} differs")


class GodwitError(Exception):
    """What the library says; `status` is its class in one word ("context", "device", ...)."""

    def __init__(self, text: str, status: str = ""):
        super().__init__(text)
        self.status = status


# Python's collector runs finalizers in any order, the library's objects go before those they were made from.
_lock = threading.RLock()
_users: "dict[int, int]" = {}  # by address: how many objects need it
_late: "dict[int, typing.Callable[[], None]]" = {}  # what frees an object that is needed still


def _address(pointer: typing.Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def _free(address: int, free: typing.Callable[[], None], needed: "list[int]") -> None:
    with _lock:
        if _users.get(address, 0) > 0:
            _late[address] = lambda: _free(address, free, needed)
            return
        free()
        for n in needed:
            _users[n] -= 1
            if _users[n] == 0:
                del _users[n]
                _late.pop(n, lambda: None)()


def owned(pointer: typing.Any, free: typing.Callable[[typing.Any], None], *needed: typing.Any) -> typing.Any:
    """The pointer, freed when nobody has it any more, and before what it needs."""
    below = [_address(n) for n in needed if n is not None]
    with _lock:
        for n in below:
            _users[n] = _users.get(n, 0) + 1
    address = _address(pointer)
    return ffi.gc(pointer, lambda p: _free(address, lambda: free(p), below))


def check(status: int) -> None:
    """The error's text belongs to the thread that made the call."""
    if status != 0:
        raise GodwitError(ffi.string(lib.gw_error_text()).decode("utf-8", "replace"),
                          ffi.string(lib.gw_status_name(status)).decode())


def version() -> str:
    return typing.cast(str, ffi.string(lib.gw_version()).decode())
