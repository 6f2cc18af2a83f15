# tests/test_serve_threads.py - many clients at once on every kind of route, clients that leave, models that
# come and go, and the end of the server meanwhile. Worth most under ThreadSanitizer (stage tsan), which
# reports on standard error and in the exit code; elsewhere texts are compared with those of lone requests.
import json
import os
import random
import signal
import socket
import threading

import pytest

from program import DATA, EMULATOR
from serving import MODEL, Server

pytestmark = pytest.mark.skipif(bool(EMULATOR), reason="the server of the native build")
OTHER = DATA / "tales-2m-q4_k_m.gguf"
ENV = {"TSAN_OPTIONS": "halt_on_error=0:exitcode=66:second_deadlock_stack=1"}
ROUNDS, CLIENTS = 2, 5
TOOL = {"type": "function", "function": {"name": "news", "parameters": {
    "type": "object", "properties": {"topic": {"enum": ["sea", "gold"]}}, "required": ["topic"]}}}
SAY = [{"role": "user", "content": "Once"}]


def ended(server, number=signal.SIGTERM):
    """It ends in order, and the sanitizer has nothing to say."""
    code = server.stop(number)
    reports = "".join(server.lines)
    assert "ThreadSanitizer" not in reports, reports[:12000]
    assert code == 0, (code, server.lines[-20:])


def text(server, body):
    return server.post("/v1/completions", body)["choices"][0]["text"]


def leave(server, body, path="/v1/chat/completions"):
    """A stream whose reader goes after its first bytes."""
    data = json.dumps(dict(body, stream=True)).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        assert s.recv(64)


def several(tasks):
    """Each list of calls in a thread of its own; the first error is raised."""
    errors = []

    def work(calls):
        try:
            for call in calls:
                call()
        except BaseException as error:  # pytest's own are BaseException
            errors.append(error)
    threads = [threading.Thread(target=work, args=(calls,)) for calls in tasks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_routes_at_once():
    """Two models with room for one and a half: requests for either load and unload them all the while."""
    names = [MODEL.stem, OTHER.stem]
    server = Server("-m", OTHER, "-c", 256, "--models-memory", int(1.5 * OTHER.stat().st_size), model=MODEL, env=ENV)
    try:
        request = {m: {"model": m, "prompt": "Once upon", "max_tokens": 5, "seed": 3, "n": 2} for m in names}
        alone = {m: text(server, request[m]) for m in names}
        chat = {"messages": SAY, "max_tokens": 4, "seed": 1}
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": TOOL["function"]["parameters"]}}

        def same(m):
            assert text(server, request[m]) == alone[m]
        calls = [
            lambda m: same(m),
            lambda m: server.events("/v1/chat/completions", dict(chat, model=m, logprobs=True)),
            lambda m: server.post("/v1/chat/completions", dict(chat, model=m, tools=[TOOL], tool_choice="required",
                                                               max_tokens=40)),
            lambda m: server.post("/v1/chat/completions", dict(chat, model=m, response_format=schema, max_tokens=30)),
            lambda m: leave(server, dict(chat, model=m, max_tokens=200, ignore_eos=True)),
            lambda m: server.events("/v1/responses", {"model": m, "input": "Once", "max_output_tokens": 4}),
            lambda m: server.events("/v1/messages", dict(chat, model=m)),
            lambda m: server.post("/api/chat", {"model": m, "messages": SAY, "stream": False, "options": {"num_predict": 4}}),
            lambda m: server.post("/completion", {"model": m, "prompt": "Once", "n_predict": 4}),
            lambda m: server.post("/v1/completions", {"model": m, "prompt": "a", "max_tokens": "x"}, expect=400),
            lambda m: [server.get(path) for path in ("/health", "/metrics", "/v1/models", "/slots", "/api/ps")],
            lambda m: server.ask("POST", "/tokenize", {"model": m, "content": "Once upon a time"}),
            lambda m: server.ask("POST", "/api/show", {"model": m}),
        ]
        tasks = []
        for client in range(CLIENTS):
            order = random.Random(client)
            mine = [(call, order.choice(names)) for call in calls for _ in range(ROUNDS)]
            order.shuffle(mine)
            tasks.append([lambda call=call, m=m: call(m) for call, m in mine])
        several(tasks)
        server.wait_for("requests_open", 0)
    finally:
        ended(server)


def test_helpers_and_vectors_at_once():
    """One model for texts: tokens and templates next to generated text. One for vectors."""
    server = Server("-c", 256, env=ENV)
    try:
        ids = server.post("/tokenize", {"content": "Once upon a time"})["tokens"]
        several([[lambda: server.post("/tokenize", {"content": "Once upon a time"})["tokens"] == ids or pytest.fail("ids"),
                  lambda: server.post("/detokenize", {"tokens": ids}),
                  lambda: server.ask("POST", "/apply-template", {"messages": SAY}),
                  lambda: text(server, {"prompt": "Once", "max_tokens": 6}),
                  lambda: server.get("/props")] * ROUNDS for _ in range(CLIENTS)])
    finally:
        ended(server)
    server = Server("--embeddings", "-c", 64, env=ENV)
    try:
        first = server.post("/v1/embeddings", {"input": "A text."})["data"]

        def same():
            assert server.post("/v1/embeddings", {"input": "A text."})["data"] == first
        several([[same, lambda: server.post("/api/embed", {"input": ["a", "b"]}),
                  lambda: server.get("/health")] * ROUNDS for _ in range(CLIENTS)])
    finally:
        ended(server)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_end_with_requests_in_flight(number):
    server = Server("-c", 512, "--drain", 1, env=ENV)
    body = {"messages": SAY, "max_tokens": 480, "ignore_eos": True, "n": 4}
    data = json.dumps(dict(body, stream=True)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    readers = []
    try:
        for _ in range(CLIENTS):
            s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            s.sendall(head % len(data) + data)
            readers.append(s)
        assert b" 200 " in readers[0].recv(4096)
        half = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        half.sendall(head % len(data) + data[:10])
        readers.append(half)
        server.process.send_signal(number)
        for s in readers[:CLIENTS]:
            Server.rest(s)
    finally:
        for s in readers:
            s.close()
        server.process.wait(timeout=60)
        ended(server)
