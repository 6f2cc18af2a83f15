# tests/test_serve_load.py - hostile clients of every kind at once, and clients that behave: none of these is
# refused for good or gets another text, /health always answers, memory comes back. A few seconds in a test;
# GODWIT_LOAD_SECONDS=600 python3 tests/test_serve_load.py prints what docs/record has of such a run.
import base64
import contextlib
import http.client
import json
import os
import random
import resource
import socket
import struct
import threading
import time

import pytest

from program import EMULATOR, NIGHTLY, SANITIZED
from serving import Server

pytestmark = pytest.mark.skipif(bool(EMULATOR), reason="the server of the native build")
SECONDS = float(os.environ.get("GODWIT_LOAD_SECONDS", 60 if NIGHTLY else 4))
FILES = 512  # descriptors of the server: so many connections are soon there
TRIES = 8    # of a client that behaves, which waits as long as Retry-After says
SAY = [{"role": "user", "content": "Once"}]
LONG = {"messages": SAY, "max_tokens": 400, "ignore_eos": True, "stream": True}


class Load:
    """What all clients share."""

    def __init__(self, server):
        self.server, self.over, self.lock = server, threading.Event(), threading.Lock()
        self.health, self.waits, self.memory, self.lost = [], [], [], []
        self.done = self.retried = 0
        self.hostile = {}

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize() / 2**20


# ---- those that behave ----------------------------------------------------------------------------------


def ask(port, method, path, body=None):
    """(status, seconds to wait before another try, text)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, int(answer.headers.get("Retry-After", 0)), answer.read().decode()
    finally:
        connection.close()


def requests(n):
    """Of client n: (path, body, what of the answer has to be the same each time)."""
    return [
        ("/v1/completions", {"prompt": f"The {n}", "max_tokens": 6, "seed": n}, lambda a: a["choices"][0]["text"]),
        ("/v1/chat/completions", {"messages": SAY, "max_tokens": 5, "seed": n},
         lambda a: a["choices"][0]["message"]["content"]),
        ("/v1/completions", {"prompt": "A", "max_tokens": 20, "seed": n, "json_schema": {"enum": ["sea", "gold"]}},
         lambda a: a["choices"][0]["text"]),
        ("/tokenize", {"content": f"Once upon {n} times"}, lambda a: a["tokens"]),
    ]


def behave(load, n, alone):
    order = random.Random(n)
    while not load.over.is_set():
        i = order.randrange(len(alone))
        path, body, of = requests(n)[i]
        began = time.monotonic()
        status, text = 0, ""
        for attempt in range(TRIES):
            try:
                status, wait, text = ask(load.server.port, "POST", path, body)
            except OSError as error:
                status, text = 0, repr(error)
            if status not in (429, 503):
                break
            load.retried += 1
            time.sleep(max(wait, 0.2))
        with load.lock:
            load.waits.append(time.monotonic() - began)
            load.done += 1
            if status != 200 or of(json.loads(text)) != alone[i]:
                load.lost.append((path, status, text[:200]))
        time.sleep(0.01)


def look(load):
    """/health, again and again, each on a connection of its own."""
    while not load.over.is_set():
        began = time.monotonic()
        try:
            status = ask(load.server.port, "GET", "/health")[0]
        except OSError as error:
            status = error
        load.health.append(time.monotonic() - began)
        if status != 200:
            load.lost.append(("/health", status, ""))
        load.memory.append(load.resident())
        time.sleep(0.02)


# ---- those that do not ----------------------------------------------------------------------------------


def head(path, *lines):
    return b"\r\n".join([b"POST " + path.encode() + b" HTTP/1.1", b"Host: localhost", *lines]) + b"\r\n\r\n"


def post(path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(path, b"Content-Length: %d" % len(data)) + data


def slow_heads(connect, order, over):
    all_of_them = [connect() for _ in range(20)]
    for byte in b"POST /v1/completions HTTP/1.1\r\nHost: local":
        for s in all_of_them:
            s.sendall(bytes([byte]))
        if over.wait(0.05):
            return


def slow_bodies(connect, order, over):
    all_of_them = [connect() for _ in range(10)]
    for s in all_of_them:
        s.sendall(head("/v1/chat/completions", b"Content-Length: %d" % (8 << 20)) + b'{"messages": [')
    for _ in range(20):
        for s in all_of_them:
            s.sendall(b'"a",')
        if over.wait(0.1):
            return


def large_heads(connect, order, over):
    s = connect()
    s.sendall(b"GET /" + b"a" * order.choice([1000, 70000]) + b" HTTP/1.1\r\n" + b"X: " + b"a" * 70000)
    Server.rest(s)


def large_bodies(connect, order, over):
    s = connect()
    s.sendall(post("/v1/chat/completions", b"[" + b"{}," * order.choice([1000, 700000]) + b"{}]"))
    Server.rest(s)


def cut_off(connect, order, over):
    for _ in range(20):
        s = connect()
        whole = post("/v1/completions", {"prompt": "Once", "max_tokens": 50})
        s.sendall(whole[:order.randrange(1, len(whole))])
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed by a reset
        s.close()


def idle(connect, order, over):
    all_of_them = [connect() for _ in range(FILES)]
    over.wait(2)
    del all_of_them


def schema(n, bytes_at_least):
    members = {}
    while len(json.dumps(members)) < bytes_at_least:
        name = f"m{n}_{len(members)}"
        members[name] = {"anyOf": [{"type": "string", "pattern": "^[a-z]{2,40}-[0-9]+$", "maxLength": 60},
                                   {"type": "array", "items": {"type": "integer", "maximum": 1000 + n}, "maxItems": 9},
                                   {"enum": [f"{name}-{i}" for i in range(12)]}]}
    return {"type": "object", "properties": members, "required": list(members)[::2]}


def heavy_schemas(connect, order, over):
    s = connect()
    body = {"messages": SAY, "max_tokens": 4, "response_format": {
        "type": "json_schema", "json_schema": {"name": "a", "schema": schema(order.randrange(10**6), 20000)}}}
    s.sendall(post("/v1/chat/completions", body))
    s.recv(4096)


def deep(connect, order, over):
    s = connect()
    n = order.choice([1900, 100000])
    s.sendall(post("/v1/completions", b'{"prompt": "a", "x": ' + b"[" * n + b"]" * n + b"}"))
    s.recv(4096)


def long_prompts(connect, order, over):
    s = connect()
    s.sendall(post("/v1/completions", {"prompt": "sea " * order.choice([300, 200000]), "max_tokens": 2}))
    s.recv(4096)


def unread(connect, order, over):
    all_of_them = []
    for _ in range(4):
        s = connect(4096)
        s.sendall(post("/v1/chat/completions", dict(LONG, n=4)))
        all_of_them.append(s)
    over.wait(3)


def bad_pictures(connect, order, over):
    junk = order.choice(["====", "A" * 100001, base64.b64encode(b"\x89PNG\r\n\x1a\n" + order.randbytes(50000)).decode()])
    s = connect()
    s.sendall(post("/v1/chat/completions", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + junk}}]}], "max_tokens": 2}))
    s.recv(4096)


def cancels(connect, order, over):
    all_of_them = []
    for _ in range(15):
        s = connect()
        s.sendall(post("/v1/chat/completions", LONG))
        all_of_them.append(s)
    over.wait(order.choice([0, 0.05, 0.3]))


def broken_chunks(connect, order, over):
    for data in (b"5\r\nhelloo", b"fffffff\r\n", b"-1\r\n", b"0\r\nX: " + b"a" * 9000):
        s = connect()
        s.sendall(head("/tokenize", b"Transfer-Encoding: chunked") + data)
        s.recv(4096)


KINDS = [slow_heads, slow_bodies, large_heads, large_bodies, cut_off, idle, heavy_schemas, deep, long_prompts, unread,
         bad_pictures, cancels, broken_chunks]


def misbehave(load, at):
    """One kind, from an address of its own, until it is over."""
    kind, order, rounds = KINDS[at], random.Random(at), 0
    while not load.over.is_set():
        opened = []

        def connect(receive=None):
            s = socket.socket()
            opened.append(s)
            if receive:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            s.settimeout(3)
            s.bind((f"127.0.1.{at + 1}", 0))
            s.connect(("127.0.0.1", load.server.port))
            return s
        with contextlib.suppress(OSError):  # it is left by the server, as it should be
            kind(connect, order, load.over)
        for s in opened:
            s.close()
        rounds += 1
        load.over.wait(0.05)
    load.hostile[kind.__name__] = rounds


# ---- the run --------------------------------------------------------------------------------------------


def together(load, seconds, works):
    load.over.clear()
    threads = [threading.Thread(target=work, args=more, daemon=True) for work, *more in works]
    for t in threads:
        t.start()
    time.sleep(seconds)
    load.over.set()
    for t in threads:
        t.join(timeout=180)
    assert not any(t.is_alive() for t in threads)


def percentile(values, p):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]


def figures(load):
    return {"health": len(load.health), "health_p50_ms": 1000 * percentile(load.health, 50),
            "health_p99_ms": 1000 * percentile(load.health, 99), "health_max_ms": 1000 * max(load.health),
            "requests": load.done, "retried": load.retried, "lost": len(load.lost),
            "request_p50_ms": 1000 * percentile(load.waits, 50), "request_p99_ms": 1000 * percentile(load.waits, 99),
            "memory_p50_mib": percentile(load.memory, 50), "memory_max_mib": max(load.memory)}


def fill_caches(port):
    """What a server of this size holds in any case once it is used: pages of all the cache, grammars."""
    works = [threading.Thread(target=ask, args=(port, "POST", "/v1/completions", {
        "prompt": f"{n} " + "sea " * 400, "max_tokens": 64, "ignore_eos": True, "seed": n})) for n in range(24)]
    works += [threading.Thread(target=ask, args=(port, "POST", "/v1/chat/completions", {
        "messages": SAY, "max_tokens": 4, "response_format": {
            "type": "json_schema", "json_schema": {"name": "a", "schema": schema(n, 20000)}}})) for n in range(3)]
    for t in works:
        t.start()
    for t in works:
        t.join()


def run_load(seconds):
    """Figures of a quiet time and of the hostile one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    server = Server("-c", 512, before=["bash", "-c", f'ulimit -n {FILES}; exec "$@"', "-"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        load = Load(server)
        alone = [[of(json.loads(ask(server.port, "POST", path, body)[2])) for path, body, of in requests(n)] for n in range(3)]
        good = [(behave, load, n, alone[n]) for n in range(3)] + [(look, load)]
        fill_caches(server.port)
        together(load, max(1, seconds / 10), good)
        quiet = figures(load)
        assert not load.lost, load.lost[:5]
        load.health, load.waits, load.memory, load.done = [], [], [], 0
        together(load, seconds, good + [(misbehave, load, at) for at in range(len(KINDS))])
        hostile = figures(load)
        server.wait_for("requests_open", 0, 60)
        limit = time.monotonic() + 30
        while load.resident() > 2 * quiet["memory_max_mib"] and time.monotonic() < limit:
            time.sleep(0.2)
        hostile["memory_end_mib"] = load.resident()
        hostile["pages_used"] = server.metric("pages_used")
        return load, quiet, hostile
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        code = server.stop()
        assert code == 0, (code, server.lines[-20:])


def test_hostile_load():
    load, quiet, hostile = run_load(SECONDS)
    assert not load.lost, load.lost[:5]
    assert hostile["requests"] > 0 and hostile["health"] > 0
    assert set(load.hostile) == {kind.__name__ for kind in KINDS} and all(load.hostile.values())
    assert hostile["pages_used"] == 0
    if not SANITIZED:  # where freed memory is kept for a while
        assert hostile["memory_end_mib"] <= 2 * quiet["memory_max_mib"], (quiet, hostile)


def test_idle_connections_take_places_from_their_own_address():
    """One that waits before it sends keeps its place, although another address opens more than there are."""
    server = Server("-c", 128, before=["bash", "-c", f'ulimit -n {FILES}; exec "$@"', "-"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened = []
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as first:
            server.wait_for("connections", 2)
            for _ in range(FILES):
                opened.append(socket.create_connection(("127.0.0.1", server.port), 20, ("127.0.1.77", 0)))
            assert ask(server.port, "GET", "/health")[0] == 200
            first.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in Server.rest(first)
    finally:
        for s in opened:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert server.stop() == 0


def schemas_delay(rounds=20):
    """Seconds of a small request: alone, and next to three others with schemas of 20 kB, never seen before."""
    server = Server("-c", 512)
    small = ("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 4, "seed": 1})
    times = {"alone": [], "with schemas": []}
    try:
        for i in range(2 * rounds):
            kind = "with schemas" if i % 2 else "alone"
            opened = []
            for n in range(3 if i % 2 else 0):
                s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                s.sendall(post("/v1/chat/completions", {"messages": SAY, "max_tokens": 4, "response_format": {
                    "type": "json_schema", "json_schema": {"name": "a", "schema": schema(10 * i + n, 20000)}}}))
                opened.append(s)
            for _ in range(5):
                began = time.monotonic()
                assert ask(server.port, *small)[0] == 200
                times[kind].append(time.monotonic() - began)
            for s in opened:
                assert b" 200 " in s.recv(4096) or b" 400 " in s.recv(4096)
                s.close()
        return times
    finally:
        assert server.stop() == 0


if __name__ == "__main__":
    _, before, during = run_load(SECONDS)
    for name, row in (("quiet", before), ("hostile", during)):
        print(name, json.dumps({key: round(value, 1) for key, value in row.items()}))
    for name, row in schemas_delay().items():
        print(f"a small request {name}: median {1000 * percentile(row, 50):.0f} ms, "
              f"p99 {1000 * percentile(row, 99):.0f} ms, at most {1000 * max(row):.0f} ms")
