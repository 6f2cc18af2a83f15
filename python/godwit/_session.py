"""One token timeline, for callers that choose tokens themselves."""
import os
import typing

from ._library import check, ffi, lib
from ._lora import Pick, adapt

if typing.TYPE_CHECKING:
    import numpy

    from ._model import Model


class Session:
    """Tokens in, logits out. `Model.session` makes one; it is used by one thread at a time.

    `logits` is numpy's view of the library's own numbers, read-only and without a copy: they are those of the
    last `prefill` or `decode`, and change with the next.
    """

    def __init__(self, model: "Model", n_ctx: int = 0, lora: "Pick | None" = None) -> None:
        self._model = model
        with model._lock:
            self._session: typing.Any = model._new_session(n_ctx or model.n_ctx)
            adapt(model, self._session, lora)
        self._rows = 0

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the session; its logits must not be read any more."""
        if self._session is not None:
            with self._model._lock:
                ffi.release(self._session)
            self._session = None

    def prefill(self, ids: "typing.Sequence[int]") -> None:
        """Appends tokens of a prompt."""
        with self._model._lock:
            check(lib.gw_session_prefill(self._session, ffi.new("int32_t[]", list(ids)), len(ids)))
        self._rows = 1

    def decode(self, ids: "typing.Sequence[int]") -> None:
        """Appends 1 to 16 generated tokens; there are logits of each."""
        with self._model._lock:
            check(lib.gw_session_decode(self._session, ffi.new("int32_t[]", list(ids)), len(ids)))
        self._rows = len(ids)

    @property
    def logits(self) -> "numpy.ndarray[typing.Any, typing.Any]":
        """float32 [rows, n_vocab]: of the last token of a prompt, or of each generated one."""
        import numpy
        first = lib.gw_session_logits(self._session, 0)
        rows = self._rows if first != ffi.NULL else 0
        if rows == 0:
            return numpy.empty((0, self._model.n_vocab), numpy.float32)
        # The view keeps the pointer, the pointer the session.
        held = ffi.gc(first, lambda p, session=self._session: None)
        out = numpy.frombuffer(ffi.buffer(held, rows * self._model.n_vocab * 4), numpy.float32).reshape(rows, -1)
        out.flags.writeable = False
        return out

    @property
    def pos(self) -> int:
        return int(lib.gw_session_pos(self._session))

    @property
    def tokens(self) -> "list[int]":
        return list(lib.gw_session_tokens(self._session)[0:self.pos])

    def rewind(self, pos: int) -> None:
        """Forgets everything from position pos on."""
        with self._model._lock:
            check(lib.gw_session_rewind(self._session, pos))
        self._rows = 0

    def copy(self, n_ctx: int = 0) -> "Session":
        """Another session with the same tokens and adapters: a fork of the text. It has no logits before it computes."""
        out = Session(self._model, n_ctx or int(lib.gw_session_n_ctx(self._session)))
        with self._model._lock:
            check(lib.gw_session_copy(out._session, self._session))
        return out

    def save(self, path: "str | os.PathLike[str]") -> None:
        with self._model._lock:
            check(lib.gw_session_save(self._session, os.fsencode(path)))

    def load(self, path: "str | os.PathLike[str]") -> None:
        with self._model._lock:
            check(lib.gw_session_load(self._session, os.fsencode(path)))
        self._rows = 0
