"""godwit: transformer language models, with the same text everywhere.

    >>> import godwit
    >>> model = godwit.Model("model.gguf")
    >>> model.generate("Once upon a time", max_tokens=20, seed=1)
    >>> for piece in model.stream("The sea", temperature=0, max_tokens=20):
    ...     print(piece, end="")

The library computes outside of Python's lock. A model is used by one thread at a time, and takes
care of that itself. Text, seed and options give the text that `godwit run` gives.
"""
import typing

from ._batch import Batch, Request
from ._library import GodwitError, version
from ._model import Answer, Model, ToolCall
from ._session import Session

__all__ = ["Answer", "Batch", "GodwitError", "Model", "Request", "Session", "ToolCall", "devices", "version"]
__version__ = version()


def devices() -> "list[dict[str, typing.Any]]":
    """What can compute here: id (for `Model(device=...)`), name, memory and threads."""
    from ._library import ffi, lib
    rows = ffi.new("gw_device_info[32]")
    n = min(32, lib.gw_devices(rows, 32))
    return [{"id": ffi.string(r.id).decode(), "name": ffi.string(r.name).decode(), "memory_bytes": r.memory_bytes,
             "free_bytes": r.free_bytes, "threads": r.threads} for r in rows[0:n]]
