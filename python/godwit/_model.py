"""Models: texts, chats, logits, vectors."""
import asyncio
import dataclasses
import json
import os
import threading
import typing

from ._library import GodwitError, check, ffi, lib, owned

Ids = typing.Sequence[int]


@dataclasses.dataclass
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON


@dataclasses.dataclass
class Answer:
    """What a model answered: text, what it thought before, and the tools that it asks for."""
    text: str = ""
    reasoning: str = ""
    tool_calls: "list[ToolCall]" = dataclasses.field(default_factory=list)
    tokens: int = 0


class _Text:
    """One text that is being written: a session, a writer, and what both borrow."""

    def __init__(self, model, ids, options, chat=None, grammar=None):
        self.model, self.keep, self.done = model, [], False
        self.ids = ffi.new("int32_t[]", list(ids))
        self.limit = options["max_tokens"]
        self.grammar = grammar
        sampler = ffi.new("gw_sampler_options *")
        lib.gw_sampler_defaults_sized(sampler, ffi.sizeof("gw_sampler_options"))
        for name in ("seed", "temperature", "top_k", "top_p", "min_p"):
            setattr(sampler, name, options[name])
        stops = [ffi.new("char[]", s.encode()) for s in options["stop"]]
        listed = ffi.new("char *[]", stops) if stops else ffi.NULL
        self.keep += [sampler, stops, listed]
        writer = ffi.new("gw_writer_options *", {
            "sampler": sampler, "grammar": grammar or ffi.NULL, "chat": chat or ffi.NULL, "stops": listed,
            "n_stops": len(stops), "mid_text": 0 if grammar or chat else 1,
            "max_tokens": max(0, self.limit) if self.limit >= 0 else 0})
        out = ffi.new("gw_writer **")
        check(lib.gw_writer_new_sized(model._model, writer, ffi.sizeof("gw_writer_options"), out))
        self.writer = owned(out[0], lib.gw_writer_free, model._model, chat, grammar)
        self.session = model._new_session(max(model.n_ctx, 1))
        check(lib.gw_session_prefill(self.session, self.ids, len(ids)))
        check(lib.gw_writer_begin(self.writer, lib.gw_session_tokens(self.session), len(ids)))
        self.sampler = lib.gw_writer_sampler(self.writer)
        self.pending, self.written = -1, 0
        self.token, self.back = ffi.new("int32_t *"), ffi.new("size_t *")
        self.piece, self.there, self.stop = ffi.new("gw_piece *"), ffi.new("int *"), ffi.new("int32_t *")

    def next(self):
        """(token, bytes) that are certain; None at the end."""
        while not self.done:
            check(lib.gw_writer_piece(self.writer, self.piece, self.there))
            if self.there[0]:
                return self.piece.token, ffi.buffer(self.piece.text, self.piece.bytes)[:]
            if lib.gw_writer_ended(self.writer, self.stop) or 0 <= self.limit <= self.written or \
                    lib.gw_session_pos(self.session) >= lib.gw_session_n_ctx(self.session):
                self.done = True
                check(lib.gw_writer_rest(self.writer, self.piece))
                return -1, ffi.buffer(self.piece.text, self.piece.bytes)[:] if self.piece.bytes else b""
            self._step()
        return None

    def _step(self):
        at = lib.gw_session_pos(self.session)
        if self.pending < 0:
            check(lib.gw_writer_pick(self.writer, lib.gw_session_logits(self.session, 0), at, self.token))
        else:
            check(lib.gw_session_next(self.session, self.sampler, self.pending, 0, self.token))
            at = lib.gw_session_pos(self.session)
        self.pending = self.token[0]
        check(lib.gw_writer_take(self.writer, self.pending, at, self.back))
        self.written += 1

    def close(self):
        for name in ("writer", "session", "grammar"):
            if getattr(self, name):
                ffi.release(getattr(self, name))
                setattr(self, name, None)


class Model:
    """A .gguf file or a Hugging Face folder.

    device: "cpu", "hip:0", "opencl:0", "auto"; threads 0: the physical cores; n_ctx: tokens of a
    text, 0: what the model was trained for, at most 4096. Errors are GodwitError.
    """

    def __init__(self, path: "str | os.PathLike", *, device: str = "cpu", threads: int = 0, n_ctx: int = 0,
                 weights: "str | None" = None):
        words = [ffi.new("char[]", os.fsencode(path)), ffi.new("char[]", device.encode()),
                 ffi.new("char[]", weights.encode()) if weights else ffi.NULL]
        options = ffi.new("gw_model_options *", {"path": words[0], "device": words[1], "weights": words[2],
                                                 "threads": threads, "n_ctx": n_ctx or -4096})
        out = ffi.new("gw_model **")
        check(lib.gw_model_open_sized(options, ffi.sizeof("gw_model_options"), out))
        self._model, self._lock = ffi.gc(out[0], lib.gw_model_free), threading.RLock()
        info = ffi.new("gw_model_info *")
        lib.gw_model_describe(self._model, info)
        self.n_vocab: int = info.n_vocab
        trained = info.n_ctx_train
        self.n_ctx: int = n_ctx or (trained if 0 < trained < 4096 else 4096)
        self.name: str = ffi.string(info.name).decode("utf-8", "replace")
        self.device: str = ffi.string(info.device).decode()
        self._encoder = None

    def close(self) -> None:
        """Frees the model now; texts that are being written must be over."""
        with self._lock:
            if self._encoder is not None:
                ffi.release(self._encoder)
                self._encoder = None
            if self._model is not None:
                ffi.release(self._model)
                self._model = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def _new_session(self, n_ctx):
        if self._model is None:
            raise GodwitError("the model is closed", "state")
        options, out = ffi.new("gw_session_options *", {"n_ctx": n_ctx}), ffi.new("gw_session **")
        check(lib.gw_session_new_sized(self._model, options, ffi.sizeof("gw_session_options"), out))
        return owned(out[0], lib.gw_session_free, self._model)

    # ---- tokens ----------------------------------------------------------------------------------

    def tokenize(self, text: "str | bytes", *, bos: bool = True, special: bool = False, end: bool = False) -> "list[int]":
        """bos: with the start token, as the model asks; end: and the end token; special: spellings of
        special tokens become these tokens."""
        raw = text.encode() if isinstance(text, str) else bytes(text)
        ids, n = ffi.new("int32_t **"), ffi.new("size_t *")
        flags = (1 if bos else 0) | (2 if special else 0) | (0 if end else 4)
        check(lib.gw_tokenize(self._model, raw, len(raw), flags, ids, n))
        try:
            return list(ids[0][0:n[0]])
        finally:
            lib.gw_free(ids[0])

    def detokenize(self, ids: Ids, *, special: bool = False) -> str:
        text, n = ffi.new("char **"), ffi.new("size_t *")
        check(lib.gw_detokenize(self._model, ffi.new("int32_t[]", list(ids)), len(ids), special, text, n))
        try:
            return ffi.buffer(text[0], n[0])[:].decode("utf-8", "replace")
        finally:
            lib.gw_free(text[0])

    # ---- texts -----------------------------------------------------------------------------------

    def _grammar(self, grammar, json_schema, chat=None):
        if grammar is None and json_schema is None:
            return None
        text = (grammar if grammar is not None else
                json_schema if isinstance(json_schema, str) else json.dumps(json_schema)).encode()
        out = ffi.new("gw_grammar **")
        check(lib.gw_grammar_new(self._model, 0 if grammar is not None else 1, text, len(text), chat or ffi.NULL, out))
        return owned(out[0], lib.gw_grammar_free, self._model, chat)

    def _pieces(self, prompt, grammar, json_schema, options):
        ids = self.tokenize(prompt) if isinstance(prompt, (str, bytes)) else list(prompt)
        with self._lock:
            text = _Text(self, ids, options, grammar=self._grammar(grammar, json_schema))
            try:
                while (got := text.next()) is not None:
                    if got[1]:
                        yield got[1].decode("utf-8", "replace")
            finally:
                text.close()

    def stream(self, prompt: "str | bytes | Ids", *, max_tokens: int = -1, temperature: float = 0.8, top_k: int = 40,
               top_p: float = 0.95, min_p: float = 0.05, seed: int = 0, stop: "typing.Sequence[str]" = (),
               grammar: "str | None" = None, json_schema: "str | dict | None" = None) -> "typing.Iterator[str]":
        """The text behind the prompt, piece by piece. The model is busy until it ends or is closed."""
        return self._pieces(prompt, grammar, json_schema, {
            "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
            "seed": seed, "stop": [stop] if isinstance(stop, str) else list(stop)})

    def generate(self, prompt: "str | bytes | Ids", **options) -> str:
        """The whole text; options as of `stream`."""
        return "".join(self.stream(prompt, **options))

    async def astream(self, prompt: "str | bytes | Ids", **options) -> "typing.AsyncIterator[str]":
        """The same for asyncio: each piece is computed in one thread of its own, so that the event loop goes on."""
        import concurrent.futures
        pool = concurrent.futures.ThreadPoolExecutor(1)
        loop, pieces, end = asyncio.get_running_loop(), self.stream(prompt, **options), object()
        try:
            while (piece := await loop.run_in_executor(pool, next, pieces, end)) is not end:
                yield piece
        finally:
            await loop.run_in_executor(pool, pieces.close)
            pool.shutdown()

    def chat(self, messages: "typing.Sequence[dict]", *, tools: "list | None" = None, tool_choice: str = "auto",
             json_schema: "str | dict | None" = None, max_tokens: int = -1, temperature: float = 0.8, top_k: int = 40,
             top_p: float = 0.95, min_p: float = 0.05, seed: int = 0, stop: "typing.Sequence[str]" = (),
             chat_template: "str | None" = None) -> Answer:
        """An answer to messages as OpenAI's API has them. tools: a list as there; tool_choice: "auto",
        "none", "required" or a tool's name; json_schema: what the answer's text has to fit; chat_template: a Jinja
        template or the name of a form ("chatml") instead of the model's own."""
        options = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p,
                   "min_p": min_p, "seed": seed, "stop": list(stop)}
        with self._lock:
            out = ffi.new("gw_chat **")
            word = ffi.new("char[]", (chat_template or "").encode())
            is_text = "{" in (chat_template or "")
            settings = ffi.new("gw_chat_settings *", {
                "name": word if chat_template and not is_text else ffi.NULL,
                "template_text": word if is_text else ffi.NULL, "template_bytes": len(word) - 1 if is_text else 0})
            check(lib.gw_chat_open(self._model, settings, out))
            chat = owned(out[0], lib.gw_chat_free, self._model)
            request = {"messages": list(messages), "add_generation_prompt": True} | ({"tools": tools} if tools else {})
            raw, written = json.dumps(request).encode(), ffi.new("gw_chat_text *")
            check(lib.gw_chat_write(chat, raw, len(raw), written))
            ids = list(written.ids[0:written.n_ids])
            lib.gw_chat_text_free(written)
            texts = ffi.new("char *[16]")
            n = min(16, lib.gw_chat_stops(chat, ffi.cast("const char **", texts), 16))
            options["stop"] += [ffi.string(texts[i]).decode() for i in range(n)]
            return self._answer(chat, ids, tools, tool_choice, json_schema, options, word if is_text else None)

    def _answer(self, chat, ids, tools, tool_choice, json_schema, options, template):
        schema = None if json_schema is None else (json_schema if isinstance(json_schema, str) else json.dumps(json_schema))
        words = [json.dumps(tools).encode() if tools else b"", schema.encode() if schema else b""]
        keep = [ffi.new("char[]", w) for w in words] + [ffi.new("char[]", tool_choice.encode())]
        choice = {"auto": 0, "none": 1}.get(tool_choice, 2)
        o = ffi.new("gw_answer_options *", {
            "chat_template": template or ffi.NULL, "chat_template_bytes": len(template) - 1 if template else 0,
            "tools": keep[0] if tools else ffi.NULL, "tools_bytes": len(words[0]), "choice": choice,
            "named": keep[2] if tool_choice not in ("auto", "none", "required") else ffi.NULL,
            "schema": keep[1] if schema else ffi.NULL, "schema_bytes": len(words[1]), "whole_calls": 1})
        out, made = ffi.new("gw_answer **"), ffi.new("gw_grammar **")
        check(lib.gw_answer_new_sized(self._model, o, ffi.sizeof("gw_answer_options"), out))
        reader = owned(out[0], lib.gw_answer_free, self._model)
        check(lib.gw_answer_begin(reader, ffi.new("int32_t[]", ids), len(ids)))
        check(lib.gw_answer_grammar(reader, chat, made))
        grammar = owned(made[0], lib.gw_grammar_free, self._model, chat) if made[0] else None
        text, answer = _Text(self, ids, options, chat=chat, grammar=grammar), Answer()
        parts, n = ffi.new("const gw_part **"), ffi.new("size_t *")
        try:
            while (got := text.next()) is not None:
                token, raw = got
                if token >= 0 and not lib.gw_answer_is_text(reader, token):
                    check(lib.gw_answer_push(reader, token, parts, n))
                else:
                    check(lib.gw_answer_push_text(reader, raw, len(raw), parts, n))
                self._take(answer, parts[0], n[0])
            check(lib.gw_answer_push(reader, -1, parts, n))
            self._take(answer, parts[0], n[0])
            answer.tokens = text.written
        finally:
            text.close()
        return answer

    @staticmethod
    def _take(answer, parts, n):
        for part in parts[0:n]:
            text = ffi.buffer(part.text, part.bytes)[:].decode("utf-8", "replace") if part.bytes else ""
            if part.kind == lib.GW_PART_TEXT:
                answer.text += text
            elif part.kind == lib.GW_PART_REASONING:
                answer.reasoning += text
            elif part.kind == lib.GW_PART_CALL:
                answer.tool_calls.append(ToolCall(ffi.string(part.id).decode(), ffi.string(part.name).decode(), ""))
            elif part.kind == lib.GW_PART_ARGUMENTS:
                answer.tool_calls[-1].arguments += text

    # ---- numbers ---------------------------------------------------------------------------------

    def logits(self, ids: Ids):
        """Scores of the token behind each of these: numpy float32 [n, n_vocab], written by the library."""
        import numpy
        tokens, out = ffi.new("int32_t[]", list(ids)), numpy.empty((len(ids), self.n_vocab), numpy.float32)
        with self._lock:
            session = self._new_session(len(ids))
            try:
                check(lib.gw_session_prefill_logits(session, tokens, len(ids), self.n_vocab,
                                                    ffi.cast("float *", out.ctypes.data)))
            finally:
                ffi.release(session)
        return out

    def loglikelihood(self, context: str, continuation: str) -> "tuple[float, bool]":
        """Log probability of a text behind another one, and whether each of its tokens is the most probable."""
        import numpy
        front, whole = self.tokenize(context), self.tokenize(context + continuation)
        n = next((i for i, (a, b) in enumerate(zip(front, whole)) if a != b), min(len(front), len(whole)))
        n = max(1, n)
        rows = self.logits(whole[:-1])[n - 1:].astype(numpy.float64)
        top = rows.max(axis=1, keepdims=True)
        logs = rows - top - numpy.log(numpy.exp(rows - top).sum(axis=1, keepdims=True))
        wanted = whole[n:]
        return float(sum(logs[i, t] for i, t in enumerate(wanted))), all(rows[i].argmax() == t for i, t in enumerate(wanted))

    def _open_encoder(self):
        if self._encoder is None:
            out = ffi.new("gw_encoder **")
            check(lib.gw_encoder_new_sized(self._model, ffi.new("gw_encoder_options *"), ffi.sizeof("gw_encoder_options"), out))
            self._encoder = owned(out[0], lib.gw_encoder_free, self._model)
        info = ffi.new("gw_encoder_info *")
        lib.gw_encoder_describe(self._encoder, info)
        return self._encoder, info

    def _texts(self, rows):
        keep = [(ffi.new("int32_t[]", ids), ffi.new("int32_t[]", types) if types else ffi.NULL, len(ids)) for ids, types in rows]
        return keep, ffi.new("gw_encoder_text[]", [{"ids": i, "types": t, "n": n} for i, t, n in keep])

    def embed(self, texts: "typing.Sequence[str]"):
        """Vectors of texts: numpy float32 [n, width]."""
        import numpy
        with self._lock:
            encoder, info = self._open_encoder()
            keep, rows = self._texts([(self.tokenize(t, end=True), None) for t in texts])
            out = numpy.empty((len(texts), info.width), numpy.float32)
            check(lib.gw_encoder_embed(encoder, rows, len(texts), ffi.cast("float *", out.ctypes.data)))
            del keep
        return out

    def rerank(self, query: str, documents: "typing.Sequence[str]") -> "list[float]":
        """How well each document answers the query: the first score of the model's classifier."""
        import numpy
        q = query.encode()
        with self._lock:
            encoder, info = self._open_encoder()
            rows = []
            for document in documents:
                d, ids, types, n = document.encode(), ffi.new("int32_t **"), ffi.new("int32_t **"), ffi.new("size_t *")
                check(lib.gw_tokenize_pair(self._model, q, len(q), d, len(d), 1, ids, types, n))
                rows.append((list(ids[0][0:n[0]]), list(types[0][0:n[0]]) if info.types > 1 else None))
                lib.gw_free(ids[0])
                lib.gw_free(types[0])
            keep, texts = self._texts(rows)
            out = numpy.empty((len(rows), max(1, info.labels)), numpy.float32)
            check(lib.gw_encoder_score(encoder, texts, len(rows), ffi.cast("float *", out.ctypes.data)))
            del keep
        return [float(x) for x in out[:, 0]]
