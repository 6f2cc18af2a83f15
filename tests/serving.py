# tests/serving.py - a server for pytest files: starts `godwit serve` on a port that is free, speaks to
# it over plain sockets where what is sent matters, and over http.client where it does not.
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from program import BIN, DATA, EMULATOR

MODEL = DATA / "tales-2m-q4_0.gguf"
# Endings to be compared: what `godwit evaluate` reads, and what programs ask a server for.
TASKS = [{"query": "The king went to the", "choices": ["sea", "city of gold", "bed"], "gold": 0},
         {"query": "Once upon a time there was", "choices": ["a cat", "and and", "nothing at all"], "gold": 0},
         {"query": "She opened the door and", "choices": ["the the", "saw an old woman"], "gold": 1}]


class Server:
    def __init__(self, *arguments, model=MODEL, env=None, wait=True, before=()):
        models = [] if model is None else ["-m", str(model)]
        environment = dict(os.environ, **(env or {}))
        environment.pop("GODWIT_ARG_SEED", None)
        self.process = subprocess.Popen(
            [*before, *EMULATOR, BIN, "serve", *models, "--port", "0", "-t", "1", *map(str, arguments)],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env=environment)
        self.lines, self.port = [], None
        threading.Thread(target=self._read, daemon=True).start()
        limit = time.monotonic() + 60
        while self.port is None and time.monotonic() < limit and self.process.poll() is None:
            time.sleep(0.005)
        assert self.port, self.lines
        while wait and self.get("/health")[0] == 503 and time.monotonic() < limit:
            time.sleep(0.01)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.match(r"listening on http://(?:\[::1\]|[\d.]+):(\d+)", line)
            if found:
                self.port = int(found[1])

    def stop(self, number=signal.SIGTERM):
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60)

    # ---- requests --------------------------------------------------------------------------------

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, text)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = json.dumps(body) if body is not None and not isinstance(body, (str, bytes)) else body
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def get(self, path, **more):
        status, _, text = self.ask("GET", path, **more)
        return status, (json.loads(text) if text[:1] in ("{", "[") else text)

    def post(self, path, body, expect=200, **more):
        status, _, text = self.ask("POST", path, body, **more)
        assert status == expect, (status, text)
        return json.loads(text) if text else None

    def events(self, path, body, **more):
        """[(event or None, parsed data or "[DONE]")] of a stream."""
        status, headers, text = self.ask("POST", path, dict(body, stream=True), **more)
        assert status == 200, (status, text)
        assert headers["Content-Type"].startswith("text/event-stream")
        assert headers["X-Accel-Buffering"] == "no" and headers["Cache-Control"] == "no-store"  # proxies pass it on
        found = []
        for block in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != ":")
            if "data" in fields:
                data = fields["data"]
                found.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
        return found

    def raw(self, data, wait=5.0, parts=None):
        """What comes back for these bytes until the server closes, or is silent for `wait` seconds."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as s:
            with contextlib.suppress(OSError):
                for part in parts or [data]:
                    s.sendall(part)
            return self.rest(s)

    @staticmethod
    def rest(s):
        got = b""
        with contextlib.suppress(OSError):
            while True:
                more = s.recv(65536)
                if not more:
                    break
                got += more
        return got

    def metric(self, name):
        _, text = self.get("/metrics")
        found = re.search(rf"^godwit_{name}(?:\{{[^}}]*\}})? ([\d.e+-]+)$", text, re.M)
        assert found, name
        return float(found[1])

    def wait_for(self, name, value, seconds=20):
        limit = time.monotonic() + seconds
        while self.metric(name) != value:
            assert time.monotonic() < limit, (name, self.metric(name), value)
            time.sleep(0.02)


@contextlib.contextmanager
def serving(*arguments, **more):
    server = Server(*arguments, **more)
    try:
        yield server
    finally:
        code = server.stop()
        assert code == 0, (code, server.lines[-20:])
