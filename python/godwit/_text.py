"""One text at a time: options of sampling, and the loop from a prompt to the pieces of its text."""
import dataclasses
import json
import typing

from ._library import check, ffi, lib, owned
from ._lora import Pick, adapt

if typing.TYPE_CHECKING:
    from ._model import Model


@dataclasses.dataclass
class Options:
    """How a text goes on; the names are those of `Model.stream`."""
    max_tokens: int = -1
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int = 0
    stop: "str | typing.Sequence[str]" = ()
    grammar: "str | None" = None
    json_schema: "str | dict[str, typing.Any] | None" = None
    lora: "Pick | None" = None

    def __post_init__(self) -> None:
        if self.max_tokens < -1:
            raise ValueError(f"max_tokens is {self.max_tokens}: a number of tokens, or -1 for as many as there is room for")

    def sampler(self) -> typing.Any:
        out = ffi.new("gw_sampler_options *")
        lib.gw_sampler_defaults_sized(out, ffi.sizeof("gw_sampler_options"))
        for name in ("seed", "temperature", "top_k", "top_p", "min_p"):
            setattr(out, name, getattr(self, name))
        return out

    def stops(self) -> "list[str]":
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)


def c_texts(texts: "typing.Sequence[str]") -> "tuple[list[typing.Any], typing.Any]":
    """The strings, and an array of them, both to be kept; NULL: there are none."""
    each = [ffi.new("char[]", t.encode()) for t in texts]
    return each, ffi.new("char *[]", each) if each else ffi.NULL


def new_grammar(model: "Model", o: Options, chat: typing.Any = None) -> typing.Any:
    """What the options ask of the text's form; None: nothing."""
    if o.grammar is None and o.json_schema is None:
        return None
    spelled = o.json_schema if isinstance(o.json_schema, str) else json.dumps(o.json_schema)
    text = (o.grammar if o.grammar is not None else spelled).encode()
    out = ffi.new("gw_grammar **")
    check(lib.gw_grammar_new(model._handle(), 0 if o.grammar is not None else 1, text, len(text), chat or ffi.NULL, out))
    return owned(out[0], lib.gw_grammar_free, model._handle(), chat)


class Text:
    """One text that is being written: a session, a writer, and what both borrow."""

    def __init__(self, model: "Model", ids: "typing.Sequence[int]", options: Options, *, chat: typing.Any = None,
                 grammar: typing.Any = None, seen: typing.Any = None) -> None:
        self.done = False
        self.limit = options.max_tokens
        self.grammar: typing.Any = grammar
        tokens = ffi.new("int32_t[]", list(ids))
        sampler, stops = options.sampler(), options.stops()
        each, listed = c_texts(stops)
        self.keep = [sampler, each, listed]
        writer = ffi.new("gw_writer_options *", {
            "sampler": sampler, "grammar": grammar or ffi.NULL, "chat": chat or ffi.NULL, "stops": listed,
            "n_stops": len(stops), "mid_text": 0 if grammar or chat else 1, "max_tokens": max(0, self.limit)})
        out = ffi.new("gw_writer **")
        check(lib.gw_writer_new_sized(model._handle(), writer, ffi.sizeof("gw_writer_options"), out))
        self.writer: typing.Any = owned(out[0], lib.gw_writer_free, model._handle(), chat, grammar)
        self.session: typing.Any = model._new_session(max(model.n_ctx, 1))
        adapt(model, self.session, options.lora)
        if seen is None:
            check(lib.gw_session_prefill(self.session, tokens, len(ids)))
        else:
            check(lib.gw_session_prefill_seen(self.session, tokens, len(ids), seen.rows[0], seen.n[0]))
        check(lib.gw_writer_begin(self.writer, lib.gw_session_tokens(self.session), len(ids)))
        self.sampler = lib.gw_writer_sampler(self.writer)
        self.pending, self.written, self.given = -1, 0, 0
        self.pos, self.n_ctx = len(ids), int(lib.gw_session_n_ctx(self.session))
        self.token, self.back = ffi.new("int32_t *"), ffi.new("size_t *")
        self.piece, self.there, self.stop = ffi.new("gw_piece *"), ffi.new("int *"), ffi.new("int32_t *")

    def next(self) -> "tuple[int, bytes] | None":
        """(token, bytes) that are certain; None at the end. Few calls for a token: each takes a microsecond."""
        while not self.done:
            if self.given < self.written:  # else none can be there
                check(lib.gw_writer_piece(self.writer, self.piece, self.there))
                if self.there[0]:
                    self.given += 1
                    return self.piece.token, self._bytes()
            if lib.gw_writer_ended(self.writer, self.stop) or 0 <= self.limit <= self.written or self.pos >= self.n_ctx:
                self.done = True
                check(lib.gw_writer_rest(self.writer, self.piece))
                return -1, self._bytes()
            self._step()
        return None

    def _bytes(self) -> bytes:
        n = self.piece.bytes
        return typing.cast(bytes, ffi.unpack(self.piece.text, n)) if n else b""

    def _step(self) -> None:
        if self.pending < 0:
            check(lib.gw_writer_pick(self.writer, lib.gw_session_logits(self.session, 0), self.pos, self.token))
        else:
            check(lib.gw_session_next(self.session, self.sampler, self.pending, 0, self.token))
            self.pos += 1
        self.pending = self.token[0]
        check(lib.gw_writer_take(self.writer, self.pending, self.pos, self.back))
        self.written += 1

    def close(self) -> None:
        for name in ("writer", "session", "grammar"):
            if getattr(self, name):
                ffi.release(getattr(self, name))
                setattr(self, name, None)
