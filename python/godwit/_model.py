"""Models: texts, chats, logits, vectors."""
import asyncio
import concurrent.futures
import dataclasses
import json
import os
import threading
import typing

from ._batch import Batch
from ._images import Picture, Pictures, listed, opened, taken_out
from ._library import GodwitError, check, ffi, lib, owned
from ._lora import Adapters, Files, Pick
from ._session import Session
from ._text import Options, Text, new_grammar

if typing.TYPE_CHECKING:
    import numpy

    Floats = numpy.ndarray[typing.Any, numpy.dtype[numpy.float32]]

Ids = typing.Sequence[int]
Json = typing.Dict[str, typing.Any]


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


class Model:
    """A .gguf file or a Hugging Face folder.

    device: "cpu", "hip:0", "opencl:0", "auto"; threads 0: the physical cores; n_ctx: tokens of a
    text, 0: what the model was trained for, at most 4096; weights: "int8", "int4-g128", ... of a model in
    floats; images: prompts may have pictures, by its vision tower, of a GGUF file from the file mmproj (None: the
    one next to it); kv_type: of keys and values, "f32", "q8_0", "q5_0", "q4_0" instead of "f16", or of each,
    "q8_0,q4_0". Errors are GodwitError.

    lora: adapters, PEFT folders or GGUF files, each a path or (path, scale): one, or a list, which are in all texts
    that choose nothing; or a dict of names, which are in texts that choose them. `adapters` has their names.
    lora_at_once: how many a text has at most, 1 to 4, each costs every row; 0: those of the list, of a dict one.

    kv_host_layers: of how many of a card's layers the keys and values lie in main memory, where the card reads them
    over its link: a number, "all", "none", or "auto", of as many as it has no room for.
    """

    def __init__(self, path: "str | os.PathLike[str]", *, device: str = "cpu", threads: int = 0, n_ctx: int = 0,
                 weights: "str | None" = None, images: bool = False, mmproj: "str | None" = None, kv_type: str = "f16",
                 lora: "Files | None" = None, lora_at_once: int = 0, kv_host_layers: "int | str" = "auto") -> None:
        if n_ctx < 0:
            raise ValueError(f"n_ctx is {n_ctx}: a number of tokens, or 0")
        self._images = opened(path, mmproj) if images else None
        words = [ffi.new("char[]", os.fsencode(path)), ffi.new("char[]", device.encode()),
                 ffi.new("char[]", weights.encode()) if weights else ffi.NULL,
                 ffi.new("char[]", os.fsencode(mmproj)) if mmproj else ffi.NULL,
                 ffi.new("char[]", str(kv_host_layers).encode())]
        self._kv_type = ffi.new("char[]", kv_type.encode())
        options = ffi.new("gw_model_options *", {"path": words[0], "device": words[1], "weights": words[2],
                                                 "mmproj": words[3], "images": images, "threads": threads,
                                                 "n_ctx": n_ctx or -4096, "kv_type": self._kv_type,
                                                 "kv_host_layers": words[4]})
        out = ffi.new("gw_model **")
        check(lib.gw_model_open_sized(options, ffi.sizeof("gw_model_options"), out))
        self._model: typing.Any = owned(out[0], lib.gw_model_free)
        self._adapters = Adapters(self._model, lora, lora_at_once)
        self.adapters: "list[str]" = self._adapters.names
        self._lock = threading.RLock()
        info = ffi.new("gw_model_info *")
        lib.gw_model_describe(self._model, info)
        self.n_vocab: int = info.n_vocab
        trained = info.n_ctx_train
        self.n_ctx: int = n_ctx or (trained if 0 < trained < 4096 else 4096)
        self.name: str = ffi.string(info.name).decode("utf-8", "replace")
        self.device: str = ffi.string(info.device).decode()
        self.bos: int = lib.gw_token_bos(self._model)  # -1: the model has none
        self.eos: int = lib.gw_token_eos(self._model)
        self._encoder: typing.Any = None

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

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _handle(self) -> typing.Any:
        if self._model is None:
            raise GodwitError("the model is closed", "state")
        return self._model

    def _new_session(self, n_ctx: int) -> typing.Any:
        if n_ctx < 0:
            raise ValueError(f"n_ctx is {n_ctx}: a number of tokens, or 0")
        options, out = ffi.new("gw_session_options *", {"n_ctx": n_ctx, "kv_type": self._kv_type}), ffi.new("gw_session **")
        check(lib.gw_session_new_sized(self._handle(), options, ffi.sizeof("gw_session_options"), out))
        return owned(out[0], lib.gw_session_free, self._model)

    def session(self, n_ctx: int = 0, *, lora: "Pick | None" = None) -> Session:
        """A timeline for callers that choose tokens themselves: logits as numpy arrays, rewind, copies. lora: as of
        `stream`, of all of its tokens."""
        return Session(self, n_ctx, lora)

    def batch(self, *, parallel: int = 16, n_ctx: int = 0, cache_tokens: int = 0) -> Batch:
        """Many texts at once: `with model.batch() as batch: batch.generate([...])`. parallel: so many are under
        way together; n_ctx: the most tokens of one; cache_tokens: positions of all, 0: 4 times n_ctx."""
        return Batch(self, parallel=parallel, n_ctx=n_ctx, cache_tokens=cache_tokens)

    # ---- tokens ----------------------------------------------------------------------------------

    def tokenize(self, text: "str | bytes", *, bos: bool = True, special: bool = False, end: bool = False) -> "list[int]":
        """bos: with the start token, as the model asks; end: and the end token; special: spellings of
        special tokens become these tokens."""
        raw = text.encode() if isinstance(text, str) else bytes(text)
        ids, n = ffi.new("int32_t **"), ffi.new("size_t *")
        flags = (1 if bos else 0) | (2 if special else 0) | (0 if end else 4)
        check(lib.gw_tokenize(self._handle(), raw, len(raw), flags, ids, n))
        try:
            return list(ids[0][0:n[0]])
        finally:
            lib.gw_free(ids[0])

    def detokenize(self, ids: Ids, *, special: bool = False) -> str:
        return self.detokenize_bytes(ids, special=special).decode("utf-8", "replace")

    def detokenize_bytes(self, ids: Ids, *, special: bool = False) -> bytes:
        text, n = ffi.new("char **"), ffi.new("size_t *")
        check(lib.gw_detokenize(self._handle(), ffi.new("int32_t[]", list(ids)), len(ids), special, text, n))
        try:
            return bytes(ffi.buffer(text[0], n[0]))
        finally:
            lib.gw_free(text[0])

    def vocabulary(self) -> "list[bytes]":
        """What each token adds to a text: for grammars and filters of others. Special tokens add nothing."""
        front = self.tokenize("a", bos=False)
        skip = len(self.detokenize_bytes(front))
        return [self.detokenize_bytes([*front, i])[skip:] for i in range(self.n_vocab)]

    def is_end(self, token: int) -> bool:
        """Does this token end a text?"""
        return bool(lib.gw_token_is_end(self._handle(), token))

    # ---- texts -----------------------------------------------------------------------------------

    def _pieces(self, prompt: "str | bytes | Ids", images: "typing.Sequence[Picture]", o: Options) -> "typing.Iterator[str]":
        with self._lock:
            ids, seen = self._prompt(prompt, images)
            text = Text(self, ids, o, grammar=new_grammar(self, o), seen=seen)
            try:
                while (got := text.next()) is not None:
                    if got[1]:
                        yield got[1].decode("utf-8", "replace")
            finally:
                text.close()

    def _prompt(self, prompt: "str | bytes | Ids", images: "typing.Sequence[Picture]") -> "tuple[list[int], typing.Any]":
        if not images:
            return (self.tokenize(prompt) if isinstance(prompt, (str, bytes)) else list(prompt)), None
        if not isinstance(prompt, (str, bytes)):
            raise GodwitError("a prompt with pictures is text", "argument")
        shown = Pictures(self, images)
        chat = self._open_chat(None)[0]
        n = ffi.new("size_t *")
        if lib.gw_chat_template(chat, n) == ffi.NULL:
            ids = shown.plain_ids(prompt)
        else:
            said = prompt if isinstance(prompt, str) else prompt.decode()
            parts = [{"type": "image"}] * len(images) + [{"type": "text", "text": said}]
            ids = shown.chat_ids(chat, json.dumps({"messages": [{"role": "user", "content": parts}],
                                                   "add_generation_prompt": True}).encode())
        return ids, shown.see(ids)

    def stream(self, prompt: "str | bytes | Ids", *, images: "Picture | typing.Sequence[Picture]" = (), max_tokens: int = -1,
               temperature: float = 0.8, top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, seed: int = 0,
               stop: "str | typing.Sequence[str]" = (), grammar: "str | None" = None,
               json_schema: "str | Json | None" = None, lora: "Pick | None" = None) -> "typing.Iterator[str]":
        """The text that follows the prompt, piece by piece. The model is busy until it ends or is closed. images:
        paths or bytes of pictures that come before the prompt, or one, as of `godwit run --image`. lora: the text's
        adapters, "name", ["name", ...] or {"name": scale}, () for none; None: as the model was opened."""
        return self._pieces(prompt, listed(images), Options(max_tokens, temperature, top_k, top_p, min_p, seed, stop, grammar,
                                                            json_schema, lora))

    def generate(self, prompt: "str | bytes | Ids", **options: typing.Any) -> str:
        """The whole text; options as of `stream`."""
        return "".join(self.stream(prompt, **options))

    async def astream(self, prompt: "str | bytes | Ids", **options: typing.Any) -> "typing.AsyncIterator[str]":
        """The same for asyncio: each piece is computed in one thread of its own, so that the event loop goes on."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        loop, pieces = asyncio.get_running_loop(), self.stream(prompt, **options)
        try:
            while (piece := await loop.run_in_executor(pool, lambda: next(pieces, None))) is not None:
                yield piece
        finally:
            await loop.run_in_executor(pool, pieces.close)  # type: ignore[attr-defined]
            pool.shutdown()

    def _open_chat(self, chat_template: "str | None") -> "tuple[typing.Any, typing.Any]":
        """The chat, and the template's text where it is one; else None."""
        out, word = ffi.new("gw_chat **"), ffi.new("char[]", (chat_template or "").encode())
        is_text = "{" in (chat_template or "")
        settings = ffi.new("gw_chat_settings *", {
            "name": word if chat_template and not is_text else ffi.NULL,
            "template_text": word if is_text else ffi.NULL, "template_bytes": len(word) - 1 if is_text else 0})
        check(lib.gw_chat_open(self._handle(), settings, out))
        return owned(out[0], lib.gw_chat_free, self._model), word if is_text else None

    def chat(self, messages: "typing.Sequence[Json]", *, tools: "list[Json] | None" = None, tool_choice: str = "auto",
             json_schema: "str | Json | None" = None, max_tokens: int = -1, temperature: float = 0.8, top_k: int = 40,
             top_p: float = 0.95, min_p: float = 0.05, seed: int = 0, stop: "str | typing.Sequence[str]" = (),
             chat_template: "str | None" = None, lora: "Pick | None" = None) -> Answer:
        """An answer to messages as OpenAI's API has them, pictures included. tools: a list as there; tool_choice:
        "auto", "none", "required" or a tool's name; json_schema: what the answer's text has to fit; chat_template: a
        Jinja template or the name of a form ("chatml") instead of the model's own; lora: as of `stream`."""
        options = Options(max_tokens, temperature, top_k, top_p, min_p, seed, stop, lora=lora)
        with self._lock:
            chat, template = self._open_chat(chat_template)
            said, pictures = taken_out(messages)
            request: Json = {"messages": said, "add_generation_prompt": True}
            raw = json.dumps({**request, "tools": tools} if tools else request).encode()
            seen = None
            if pictures:
                shown = Pictures(self, pictures)
                ids = shown.chat_ids(chat, raw)
                seen = shown.see(ids)
            else:
                written = ffi.new("gw_chat_text *")
                check(lib.gw_chat_write(chat, raw, len(raw), written))
                ids = list(written.ids[0:written.n_ids])
                lib.gw_chat_text_free(written)
            texts = ffi.new("char *[16]")
            n = min(16, lib.gw_chat_stops(chat, ffi.cast("const char **", texts), 16))
            options.stop = options.stops() + [ffi.string(texts[i]).decode() for i in range(n)]
            reader, grammar = self._answer_reader(chat, ids, tools, tool_choice, json_schema, template)
            return self._answer(reader, Text(self, ids, options, chat=chat, grammar=grammar, seen=seen))

    def _answer_reader(self, chat: typing.Any, ids: "list[int]", tools: "list[Json] | None", tool_choice: str,
                       json_schema: "str | Json | None", template: typing.Any) -> "tuple[typing.Any, typing.Any]":
        """What reads the answer's parts, and the grammar that it has to keep; None: any text."""
        spelled = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
        words = [json.dumps(tools).encode() if tools else b"", spelled.encode() if json_schema is not None else b""]
        keep = [ffi.new("char[]", w) for w in words] + [ffi.new("char[]", tool_choice.encode())]
        choice = {"auto": 0, "none": 1}.get(tool_choice, 2)
        o = ffi.new("gw_answer_options *", {
            "chat_template": template or ffi.NULL, "chat_template_bytes": len(template) - 1 if template else 0,
            "tools": keep[0] if tools else ffi.NULL, "tools_bytes": len(words[0]), "choice": choice,
            "named": keep[2] if tool_choice not in ("auto", "none", "required") else ffi.NULL,
            "schema": keep[1] if json_schema is not None else ffi.NULL, "schema_bytes": len(words[1]), "whole_calls": 1})
        out, made = ffi.new("gw_answer **"), ffi.new("gw_grammar **")
        check(lib.gw_answer_new_sized(self._handle(), o, ffi.sizeof("gw_answer_options"), out))
        reader = owned(out[0], lib.gw_answer_free, self._model)
        check(lib.gw_answer_begin(reader, ffi.new("int32_t[]", ids), len(ids)))
        check(lib.gw_answer_grammar(reader, chat, made))
        return reader, owned(made[0], lib.gw_grammar_free, self._model, chat) if made[0] else None

    def _answer(self, reader: typing.Any, text: Text) -> Answer:
        answer, parts, n = Answer(), ffi.new("const gw_part **"), ffi.new("size_t *")
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
    def _take(answer: Answer, parts: typing.Any, n: int) -> None:
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

    def logits(self, ids: Ids) -> "Floats":
        """Scores of the token that follows each of these: numpy float32 [n, n_vocab], written by the library."""
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
        """Log probability of a text that follows another one, and whether each of its tokens is the most probable."""
        import numpy
        front, whole = self.tokenize(context), self.tokenize(context + continuation)
        n = next((i for i, (a, b) in enumerate(zip(front, whole)) if a != b), min(len(front), len(whole)))
        n = max(1, n)
        rows = self.logits(whole[:-1])[n - 1:].astype(numpy.float64)
        top = rows.max(axis=1, keepdims=True)
        logs = rows - top - numpy.log(numpy.exp(rows - top).sum(axis=1, keepdims=True))
        wanted = whole[n:]
        return float(sum(logs[i, t] for i, t in enumerate(wanted))), all(rows[i].argmax() == t for i, t in enumerate(wanted))

    def _open_encoder(self) -> "tuple[typing.Any, typing.Any]":
        if self._encoder is None:
            out = ffi.new("gw_encoder **")
            check(lib.gw_encoder_new_sized(self._handle(), ffi.new("gw_encoder_options *"), ffi.sizeof("gw_encoder_options"), out))
            self._encoder = owned(out[0], lib.gw_encoder_free, self._model)
        info = ffi.new("gw_encoder_info *")
        lib.gw_encoder_describe_sized(self._encoder, info, ffi.sizeof("gw_encoder_info"))
        return self._encoder, info

    def _texts(self, rows: "list[tuple[list[int], list[int] | None]]") -> "tuple[typing.Any, typing.Any]":
        keep = [(ffi.new("int32_t[]", ids), ffi.new("int32_t[]", types) if types else ffi.NULL, len(ids)) for ids, types in rows]
        return keep, ffi.new("gw_encoder_text[]", [{"ids": i, "types": t, "n": n} for i, t, n in keep])

    def embed(self, texts: "typing.Sequence[str]") -> "Floats":
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
                check(lib.gw_tokenize_pair(self._handle(), q, len(q), d, len(d), 1, ids, types, n))
                rows.append((list(ids[0][0:n[0]]), list(types[0][0:n[0]]) if info.types > 1 else None))
                lib.gw_free(ids[0])
                lib.gw_free(types[0])
            keep, texts = self._texts(rows)
            out = numpy.empty((len(rows), max(1, info.labels)), numpy.float32)
            check(lib.gw_encoder_score(encoder, texts, len(rows), ffi.cast("float *", out.ctypes.data)))
            del keep
        return [float(x) for x in out[:, 0]]
