#!/usr/bin/env python3
# bench/serve_soak.py - all that clients do to a server, for so many seconds of its own processor time, and
# what it holds meanwhile: memory, file descriptors, threads, pages of the cache. None of it may grow, no
# request may be lost, and /health answers within 100 ms. Exit code 1 and a line for all that is not so.
#
#   bench/serve_soak.py MODEL --godwit build/release/godwit [--cpu-seconds 300] [--limit 3600] [--clients 8]
#       [--seed 1] [--threads 2] [--parallel 8] [--device cpu] [--cores 0,1] [--client-cores 2] [--sanitized]
#
# Clients draw what they do from a seed: short and long prompts, several choices, streams that are read, left
# or stalled, chats with a schema, broken JSON, fields that are refused, heads that never end, connections
# without a request. Every answer to the same request must be the same. They wait as long as the server says
# (Retry-After), and for an answer as long as the server makes tokens: one that makes none for two minutes
# while requests are open has lost them. Every tenth of the time all pause and the server is looked at.
#
# The end is --cpu-seconds of the server's process; --limit seconds of the clock end it early, which is said.
# /health is asked from a process of its own, ten times a second: threads of this one wait for each other.
# --sanitized: the program is built with sanitizers, whose own memory grows and whose answers take longer, so
# memory and /health are shown and not judged; what they report is the end of the server with another code.
import argparse
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

from serve_load import Program, free_port, percentile

PARTS, STALLED, HEALTHY = 10, 120, 0.1
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"enum": [1, 2, 3]}},
          "required": ["name", "age"], "additionalProperties": False}


def watch_health(port):
    """Prints the seconds of each answer until the standard input ends; -1: none came."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    while True:
        start = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", port), 60) as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = s.recv(4096)
            print(time.monotonic() - start if b" 200 " in answer else -1, flush=True)
        except OSError:
            print(-1, flush=True)
        time.sleep(max(0.0, 0.1 - (time.monotonic() - start)))


class Soak:
    def __init__(self, args):
        self.args, self.port = args, free_port()
        self.words = tempfile.TemporaryFile("w+")
        command = [args.godwit, "serve", "-m", args.model, "--device", args.device, "--port", str(self.port), "-t",
                   str(args.threads), "-c", "512", "--parallel", str(args.parallel), "--queue", str(2 * args.parallel),
                   "--cache-tokens", str(256 * args.parallel), "--draft", "ngram", "--log-file", os.devnull, "-q"]
        self.server = Program("godwit", command, self.port, args.cores, self.words)
        if args.client_cores:
            os.sched_setaffinity(0, args.client_cores)
        self.health = subprocess.Popen([sys.executable, __file__, "--watch", str(self.port)], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        self.known, self.lock, self.faults, self.counts = {}, threading.Lock(), [], {}
        self.go, self.stop = threading.Event(), False
        self.idle = threading.Barrier(args.clients + 1)
        self.started = time.monotonic()

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    # ---- what clients do -------------------------------------------------------------------------

    def ask(self, path, body, read=True):
        """(status, what came); asks again when the server has said when to. No deadline: see watch()."""
        text = json.dumps(body) if isinstance(body, dict) else body
        while True:
            c = http.client.HTTPConnection("127.0.0.1", self.port)
            try:
                c.request("POST", path, text)
                answer = c.getresponse()
                data = answer.read() if read else answer.read(40)
            finally:
                c.close()
            if answer.status != 429:
                return answer.status, data
            wait = answer.headers["Retry-After"]
            if wait is None:
                self.fault("429 without Retry-After")
                return answer.status, data
            self.count("told to wait")
            time.sleep(min(float(wait), 5) * (0.2 + 0.8 * random.random()))

    def same(self, name, status, texts):
        if status != 200:
            return self.fault(f"request {name}: {status} {texts}")
        with self.lock:
            before = self.known.setdefault(name, texts)
        if before != texts:
            self.fault(f"request {name}: {texts} after {before}")

    def body(self, number):
        q = random.Random(number)
        words = ("the", "sea", "king", "ship", "a", "cat", "time")
        return {"prompt": " ".join(q.choice(words) for _ in range(q.choice((3, 20, 150)))), "max_tokens": q.choice((1, 8, 60)),
                "seed": number, "temperature": q.choice((0, 0.9)), "n": q.choice((1, 1, 1, 2))}

    def text(self, r):
        number = r.randrange(40)
        status, data = self.ask("/v1/completions", self.body(number))
        self.same(number, status, [c["text"] for c in json.loads(data)["choices"]] if status == 200 else data[:200])

    def stream(self, r):
        """The same requests, of one choice, in events: the same texts."""
        number = r.randrange(40)
        body = dict(self.body(number), n=1, stream=True)
        status, data = self.ask("/v1/completions", body)
        events = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
        if status != 200 or events[-1:] != ["[DONE]"]:
            return self.fault(f"stream {number}: {status} {data[-200:]}")
        choices = [c for e in events[:-1] for c in json.loads(e)["choices"]]
        self.same(f"one choice of {number}", status, "".join(c.get("text") or "" for c in choices))

    def chat(self, r):
        number = r.randrange(8)
        body = {"messages": [{"role": "user", "content": "Who is it?" * (1 + number)}], "max_tokens": 60, "seed": number,
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
        status, data = self.ask("/v1/chat/completions", body)
        self.same(f"chat {number}", status, json.loads(data)["choices"][0]["message"] if status == 200 else data[:200])

    def leave(self, r):
        body = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}
        self.ask("/v1/completions", body, read=False)

    def broken(self, r):
        body = bytearray(json.dumps({"prompt": "a", "max_tokens": 3, "stop": ["x"], "logit_bias": {"5": 1}}).encode())
        for _ in range(r.randrange(1, 5)):
            body[r.randrange(len(body))] = r.randrange(256)
        status, _ = self.ask("/v1/completions", bytes(body))
        if status not in (200, 400):
            self.fault(f"{status} for {bytes(body)!r}")

    def raw(self, r):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(r.choice((b"", b"GET /health HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{", b"\r\n" * 50,
                                b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3, os.urandom(200))))
            time.sleep(r.random() * 0.2)

    def stall(self, r):
        """Asks for more than it reads, and reads nothing for a while."""
        body = json.dumps({"prompt": "The king", "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", self.port))
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(r.random() * 0.5)

    def client(self, number):
        r = random.Random(self.args.seed * 1000 + number)
        all_of_it = [self.text] * 4 + [self.stream] * 3 + [self.chat, self.leave, self.broken, self.raw, self.stall]
        while not self.stop:
            self.go.wait()
            what = r.choice(all_of_it)
            try:
                what(r)
            except (OSError, http.client.HTTPException) as e:
                if what not in (self.raw, self.stall, self.leave):
                    self.fault(f"{what.__name__}: no answer: {e!r}")
                if self.server.process.poll() is not None:
                    time.sleep(0.5)
            except Exception as e:  # a client that is gone would end the whole run without a word
                self.fault(f"{what.__name__}: {e!r}")
            self.count(what.__name__)
            if not self.go.is_set():
                self.idle.wait()

    # ---- what is seen ----------------------------------------------------------------------------

    def metrics(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            c.request("GET", "/metrics")
            return c.getresponse().read().decode()
        finally:
            c.close()

    def metric(self, name):
        found = re.findall(rf"^godwit_{name}(?:\{{[^}}]*\}})? (\S+)$", self.metrics(), re.M)
        return int(sum(map(float, found)))

    def watch(self):
        """Ends a server that makes no token while requests are open, so that those who wait see an end."""
        before, since = -1, time.monotonic()
        while not self.stop and self.server.process.poll() is None:
            try:
                now = (self.metric("rows_total"), self.metric("prompt_tokens_read_total"))
                if now != before or self.metric("requests_open") == 0:
                    before, since = now, time.monotonic()
            except (OSError, http.client.HTTPException):
                pass
            if time.monotonic() - since > STALLED:
                self.fault(f"requests are open, and nothing has been computed for {STALLED} s")
                self.server.process.kill()
            time.sleep(1)

    def look(self):
        pid = self.server.process.pid
        limit = time.monotonic() + 60
        while time.monotonic() < limit and (self.metric("requests_open") or self.metric("pages_used")):
            time.sleep(0.2)
        time.sleep(1.0)
        with open(f"/proc/{pid}/status") as f:
            status = dict(line.split(":", 1) for line in f.read().splitlines())
        return {"rss": int(status["VmRSS"].split()[0]), "fds": len(os.listdir(f"/proc/{pid}/fd")),
                "threads": int(status["Threads"]), "pages": self.metric("pages_used"),
                "queue": self.metric("queue_requests"), "open": self.metric("requests_open")}

    def work(self, until):
        """All do what they do until the process has used so many seconds; 0: the clock has ended it."""
        self.go.set()
        while self.server.processor_seconds() < until and time.monotonic() - self.started < self.args.limit:
            if self.server.process.poll() is not None:
                break
            time.sleep(0.1)
        self.go.clear()
        self.idle.wait()
        return self.server.process.poll() is None

    def judge(self, seen, health):
        for key in ("fds", "threads", "pages", "queue", "open"):
            if seen[-1][key] > seen[min(2, len(seen) - 1)][key]:
                self.faults.append(f"{key}: {[s[key] for s in seen]}")
        half = max(s["rss"] for s in seen[:(len(seen) + 1) // 2])  # who is served at once varies, and blocks with it
        if not self.args.sanitized and len(seen) > 3 and seen[-1]["rss"] > 1.02 * half + 2048:
            self.faults.append(f"memory, kB: {[s['rss'] for s in seen]}")
        late = [h for h in health if not 0 <= h <= HEALTHY]
        if late and (min(late) < 0 or not self.args.sanitized):
            self.faults.append(f"/health: {len(late)} of {len(health)} later than {HEALTHY:g} s, or never: {sorted(late)[-5:]}")

    def finish(self, seen, used):
        self.stop = True
        self.health.stdin.close()
        health = [float(x) for x in self.health.stdout.read().split()]
        if seen and health:
            self.judge(seen, health)
            print(f"/health: {len(health)} answers, median {percentile(health, 0.5) * 1e3:.1f} ms, 99% "
                  f"{percentile(health, 0.99) * 1e3:.1f} ms, longest {max(health) * 1e3:.1f} ms")
        else:
            self.faults.append("nothing was seen of the server")
        code = self.server.stop()
        if code != 0:
            self.faults.append(f"the server has ended with {code}")
        self.words.seek(0)
        words = self.words.read()
        if words:
            print(f"the server's words:\n{words[:20000]}")
        print(f"{used:.0f} s of the process in {time.monotonic() - self.started:.0f} s, {sum(self.counts.values())} requests, "
              f"{len(self.known)} texts known, {len(self.faults)} faults")
        for fault in self.faults[:20]:
            print(f"FAIL {fault}")
        return bool(self.faults)

    def run(self):
        threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(self.args.clients)]
        for t in [*threads, threading.Thread(target=self.watch, daemon=True)]:
            t.start()
        seen, used = [], 0.0
        print("| process, s | clock, s | memory, kB | fds | threads | pages | tokens | told to wait | requests |\n"
              "|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for part in range(PARTS):
            if not self.work(self.args.cpu_seconds * (part + 1) / PARTS):
                break
            seen.append(s := self.look())
            used = self.server.processor_seconds()
            clock = time.monotonic() - self.started
            print(f"| {used:.0f} | {clock:.0f} | {s['rss']} | {s['fds']} | {s['threads']} | {s['pages']} | "
                  f"{self.metric('generated_tokens_total')} | {self.counts.get('told to wait', 0)} | {self.counts} |", flush=True)
            if clock >= self.args.limit:
                print(f"ended by the clock after {self.args.limit} s")
                break
        return self.finish(seen, used)


def main():
    cores = lambda text: [int(x) for x in text.split(",")]
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("--godwit")
    for name, preset in (("cpu-seconds", 300), ("limit", 3600), ("clients", 8), ("seed", 1), ("threads", 2), ("parallel", 8)):
        parser.add_argument(f"--{name}", type=int, default=preset)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cores", type=cores, help="of the server")
    parser.add_argument("--client-cores", type=cores)
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--watch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.watch:
        watch_health(args.watch)
    if not args.model or not args.godwit:
        parser.error("a model and --godwit are needed")
    sys.exit(Soak(args).run())


if __name__ == "__main__":
    main()
