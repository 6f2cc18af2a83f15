#!/usr/bin/env python3
# bench/serve_soak.py - hours of all that clients do to a server, and what the server holds meanwhile:
# memory, file descriptors, pages of the cache. None of it may grow. Exit code 1 and a line where it does.
#
#   bench/serve_soak.py MODEL --godwit build/release/godwit [--seconds 300] [--clients 8] [--seed 1] [--threads 2]
#
# Clients draw what they do from a seed: short and long prompts, streams that are read, left or stalled,
# broken JSON, fields that are refused, heads that never end, connections without a request. Every answer
# to the same request must be the same. Every tenth of the time all pause and the server is looked at.
import argparse
import http.client
import json
import os
import random
import socket
import sys
import threading
import time

from serve_load import Program, free_port


class Soak:
    def __init__(self, args):
        self.args, self.port = args, free_port()
        self.server = Program("godwit", [args.godwit, "serve", "-m", args.model, "--port", str(self.port), "-t", str(args.threads),
                                         "-c", "512", "--parallel", "8", "--queue", "16", "--cache-tokens", "2048",
                                         "--draft", "ngram", "--log-file", os.devnull, "-q"], self.port)
        self.known, self.lock, self.faults, self.counts = {}, threading.Lock(), [], {}
        self.go, self.stop = threading.Event(), False
        self.idle = threading.Barrier(args.clients + 1)

    def ask(self, body, read=True):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            c.request("POST", "/v1/completions", json.dumps(body) if isinstance(body, dict) else body)
            answer = c.getresponse()
            return answer.status, answer.read() if read else answer.read(40)
        finally:
            c.close()

    def text(self, r):
        number = r.randrange(40)
        q = random.Random(number)
        body = {"prompt": " ".join(q.choice(("the", "sea", "king", "ship", "a", "cat", "time")) for _ in
                                   range(q.choice((3, 20, 150)))), "max_tokens": q.choice((1, 8, 60)), "seed": number,
                "temperature": q.choice((0, 0.9)), "n": q.choice((1, 1, 1, 2))}
        status, data = self.ask(body)
        if status == 429:
            return
        texts = [c["text"] for c in json.loads(data)["choices"]] if status == 200 else [f"{status} {data[:200]}"]
        with self.lock:
            if self.known.setdefault(number, texts) != texts or status != 200:
                self.faults.append(f"request {number}: {texts} after {self.known[number]}")

    def leave(self, r):
        self.ask({"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}, read=False)

    def broken(self, r):
        body = bytearray(json.dumps({"prompt": "a", "max_tokens": 3, "stop": ["x"], "logit_bias": {"5": 1}}).encode())
        for _ in range(r.randrange(1, 5)):
            body[r.randrange(len(body))] = r.randrange(256)
        status, _ = self.ask(bytes(body))
        if status not in (200, 400, 429):
            self.faults.append(f"{status} for {bytes(body)!r}")

    def raw(self, r):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(r.choice((b"", b"GET /health HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{", b"\r\n" * 50,
                                b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3, os.urandom(200))))
            time.sleep(r.random() * 0.2)

    def client(self, number):
        r = random.Random(self.args.seed * 1000 + number)
        while not self.stop:
            self.go.wait()
            what = r.choice((self.text, self.text, self.text, self.leave, self.broken, self.raw))
            try:
                what(r)
            except OSError as e:
                if what == self.text:
                    self.faults.append(f"no answer: {e}")
            with self.lock:
                self.counts[what.__name__] = self.counts.get(what.__name__, 0) + 1
            if not self.go.is_set():
                self.idle.wait()

    def metrics(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
        c.close()
        return text

    def look(self):
        pid = self.server.process.pid
        limit = time.monotonic() + 60
        while "\ngodwit_requests_open 0\n" not in self.metrics() and time.monotonic() < limit:
            time.sleep(0.2)
        time.sleep(1.5)
        status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
        metrics = self.metrics()
        count = lambda name: sum(float(x.split()[-1]) for x in metrics.splitlines() if x.startswith(f"godwit_{name}{{"))
        return {"rss": int(status["VmRSS"].split()[0]), "fds": len(os.listdir(f"/proc/{pid}/fd")),
                "threads": int(status["Threads"]), "pages": int(count("pages_used")), "queue": int(count("queue_requests"))}

    def run(self):
        threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(self.args.clients)]
        for t in threads:
            t.start()
        seen = []
        for part in range(10):
            self.go.set()
            time.sleep(self.args.seconds / 10)
            self.go.clear()
            self.idle.wait()
            seen.append(self.look())
            print(f"{(part + 1) * self.args.seconds // 10} s: {seen[-1]}; {self.counts}", flush=True)
        code = self.server.process.poll()
        if code is not None:
            self.faults.append(f"the server has ended with {code}")
        for key in ("fds", "threads", "pages", "queue"):
            if seen[-1][key] > seen[2][key]:
                self.faults.append(f"{key}: {[s[key] for s in seen]}")
        if seen[-1]["rss"] > 1.02 * seen[2]["rss"] + 1024:
            self.faults.append(f"memory, kB: {[s['rss'] for s in seen]}")
        self.server.stop()
        for fault in self.faults[:20]:
            print(f"FAIL {fault}")
        return bool(self.faults)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--godwit", required=True)
    for name, preset in (("seconds", 300), ("clients", 8), ("seed", 1), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=preset)
    sys.exit(Soak(parser.parse_args()).run())


if __name__ == "__main__":
    main()
