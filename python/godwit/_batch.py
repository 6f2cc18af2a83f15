"""Many texts at once over one model."""
import asyncio
import queue
import threading
import typing

from ._library import GodwitError, check, ffi, lib, owned
from ._text import Options, c_texts, new_grammar

if typing.TYPE_CHECKING:
    from ._model import Model


class Request:
    """One text of a batch: iterate over its pieces (`for`, or `async for`), or take `result()`."""

    def __init__(self) -> None:
        self._pieces: "queue.SimpleQueue[str | GodwitError | None]" = queue.SimpleQueue()
        self._told: "typing.Callable[[], None] | None" = None
        self._handle: typing.Any = None
        self._keep: "list[typing.Any]" = []
        self._over = False
        self.finish = ""  # "stop", "length" or "cancelled", once it is over
        self.tokens = 0

    def cancel(self) -> None:
        """It ends with what it has."""
        if self._handle is not None and not self._over:
            lib.gw_request_cancel(self._handle)

    def __iter__(self) -> "typing.Iterator[str]":
        while (piece := self._take(self._pieces.get())) is not None:
            yield piece

    def result(self) -> str:
        return "".join(self)

    async def __aiter__(self) -> "typing.AsyncIterator[str]":
        loop, more = asyncio.get_running_loop(), asyncio.Event()

        def told() -> None:
            loop.call_soon_threadsafe(more.set)

        self._told = told
        while True:
            try:
                piece = self._take(self._pieces.get_nowait())
            except queue.Empty:
                await more.wait()
                more.clear()
                continue
            if piece is None:
                return
            yield piece

    def _take(self, piece: "str | GodwitError | None") -> "str | None":
        if piece is None or isinstance(piece, GodwitError):
            self._pieces.put(None)  # whoever asks again
        if isinstance(piece, GodwitError):
            raise piece
        return piece

    def _put(self, piece: "str | GodwitError | None") -> None:
        self._pieces.put(piece)
        if self._told is not None:
            self._told()


class Batch:
    """Texts that are computed together, each to the bits that it would have alone. `Model.batch` makes one.

    A thread of the batch computes, and has the model while it does; requests come from any thread or event
    loop. Leave it by `with`, or `close()` it.
    """

    def __init__(self, model: "Model", *, parallel: int = 16, n_ctx: int = 0, cache_tokens: int = 0) -> None:
        if n_ctx < 0:
            raise ValueError(f"n_ctx is {n_ctx}: a number of tokens, or 0")
        self._model = model
        options = ffi.new("gw_batch_options *", {
            "n_ctx": n_ctx or model.n_ctx, "parallel": parallel, "cache_tokens": cache_tokens, "queue": 1 << 20,
            "kv_type": model._kv_type})
        out = ffi.new("gw_batch **")
        with model._lock:
            check(lib.gw_batch_new_sized(model._handle(), options, ffi.sizeof("gw_batch_options"), out))
        self._batch: typing.Any = owned(out[0], lib.gw_batch_free, model._handle())
        self._open: "dict[int, Request]" = {}
        self._numbers, self._next = threading.Lock(), 0
        self._event = ffi.callback("gw_event_fn", self._on_event)
        self._thread = threading.Thread(target=self._run, name="godwit batch", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def submit(self, prompt: "str | bytes | typing.Sequence[int]", **options: typing.Any) -> Request:
        """A text that begins as soon as there is room; options as of `Model.stream`."""
        if self._batch is None:
            raise GodwitError("the batch is closed", "state")
        o, request = Options(**options), Request()
        pick = self._model._adapters.pick(o.lora)
        ids = self._model.tokenize(prompt) if isinstance(prompt, (str, bytes)) else list(prompt)
        stops = o.stops()
        each, listed = c_texts(stops)
        grammar = new_grammar(self._model, o)
        with self._numbers:
            self._next += 1
            number = self._next
            self._open[number] = request
        ask = ffi.new("gw_request_options *", {
            "tokens": (tokens := ffi.new("int32_t[]", ids)), "n_tokens": len(ids), "sampler": (sampler := o.sampler()),
            "grammar": grammar or ffi.NULL, "stops": listed, "n_stops": len(stops), "max_tokens": o.max_tokens,
            "mid_text": 0 if grammar else 1, "event": self._event, "user": ffi.cast("void *", number)})
        request._keep = [tokens, sampler, each, listed, grammar]
        out = ffi.new("gw_request **")
        try:
            check(lib.gw_batch_submit_adapted_sized(self._batch, ask, ffi.sizeof("gw_request_options"), pick, out))
        except GodwitError:
            del self._open[number]
            raise
        request._handle = owned(out[0], lib.gw_request_free, self._batch)
        return request

    def generate(self, prompts: "typing.Iterable[str | bytes | typing.Sequence[int]]", **options: typing.Any) -> "list[str]":
        """The texts of all prompts, in their order."""
        return [r.result() for r in [self.submit(p, **options) for p in prompts]]

    def close(self) -> None:
        """Ends what has not ended; waits for the thread."""
        if self._batch is None:
            return
        for request in list(self._open.values()):
            request.cancel()
        lib.gw_batch_drain(self._batch)
        self._thread.join()
        with self._model._lock:
            ffi.release(self._batch)
        self._batch = None

    def _run(self) -> None:
        work = ffi.new("size_t *")
        while lib.gw_batch_wait(self._batch, -1.0, work) == 0 and work[0] > 0:
            with self._model._lock:
                status = lib.gw_batch_step(self._batch, work)
            if status != 0:  # every request has had it as its last event
                return

    def _on_event(self, user: typing.Any, event: typing.Any) -> None:
        number = int(ffi.cast("uintptr_t", user))
        request = self._open[number]
        if event.kind in (lib.GW_EVENT_TOKEN, lib.GW_EVENT_END) and event.bytes > 0:
            request._put(bytes(ffi.buffer(event.text, event.bytes)).decode("utf-8", "replace"))
        if event.kind == lib.GW_EVENT_END:
            request.tokens = event.n_generated
        if event.kind == lib.GW_EVENT_DONE:
            request.finish = ("stop", "length", "cancelled", "error")[event.finish]
            request._over = True
            with self._numbers:
                del self._open[number]
            failed = event.finish == lib.GW_FINISH_ERROR
            request._put(GodwitError(ffi.string(event.error).decode("utf-8", "replace"),
                                     ffi.string(lib.gw_status_name(event.status)).decode()) if failed else None)
