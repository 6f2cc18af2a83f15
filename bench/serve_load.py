#!/usr/bin/env python3
# bench/serve_load.py - many streams against a server: tokens per second of the clock and of the processors
# that the server used, time to the first token, time between tokens (median and 99th percentile, while other
# prompts come). With --llama-server both programs get the same load, in turn, in one run.
#
#   bench/serve_load.py MODEL --godwit build/release/godwit [--llama-server PATH]
#       [--streams 1,8,32,64] [--prompt 64] [--tokens 64] [--requests 2] [--threads 2] [--device cpu] [--cores 0,1]
#       [--check]
#
# Every stream sends --requests requests one behind the other: --prompt tokens that no other prompt begins
# with, --tokens tokens of answer, the most probable ones. --check: godwit's texts are compared with those
# that it gives to each request alone. One thread reads all sockets, so that the client takes little.
import argparse
import atexit
import json
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Program:
    """A server, on these cores alone where some are given, until it answers /health."""

    def __init__(self, name, command, port, cores=None, words=subprocess.DEVNULL):
        self.name, self.port = name, port
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores or own)  # what is started takes it over
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words)
        os.sched_setaffinity(0, own)
        atexit.register(self.process.kill)  # whatever this program ends of
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
        limit = time.monotonic() + 300
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() > limit:
                sys.exit(f"{name} did not start: {' '.join(command)}")
            time.sleep(0.05)

    def healthy(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return b" 200 " in s.recv(64)
        except OSError:
            return False

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            user, system = f.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class Stream:
    """One request after the other; a chunk of the answer is a token."""

    def __init__(self, port, bodies, selector):
        self.port, self.bodies, self.selector = port, bodies, selector
        self.texts, self.first, self.gaps, self.tokens, self.at = [], [], [], 0, 0
        self.open()

    def open(self):
        body = json.dumps(self.bodies[self.at]).encode()
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.started, self.last, self.rest, self.text = time.monotonic(), None, b"", ""
        self.selector.register(self.socket, selectors.EVENT_READ, self)

    def read(self):
        """False when all is done."""
        data = self.socket.recv(65536)
        now = time.monotonic()
        if data:
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    self.take(json.loads(line[6:]), now)
            return True
        self.selector.unregister(self.socket)
        self.socket.close()
        self.texts.append(self.text)
        self.at += 1
        if self.at < len(self.bodies):
            self.open()
        return self.at < len(self.bodies)

    def take(self, event, now):
        if "error" in event:
            sys.exit(f"refused: {event['error']}")
        if event.get("stop"):
            self.text += event.get("content", "")
            return
        self.text += event["content"]
        self.tokens += 1
        if self.last is None:
            self.first.append(now - self.started)
        else:
            self.gaps.append(now - self.last)
        self.last = now


def body_of(number, args):
    ids = [3 + (number * 7919 + k * 104729 + k * k * 31) % args.vocab for k in range(args.prompt)]
    return {"prompt": ids, "n_predict": args.tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "cache_prompt": False}


def load(port, n, args):
    selector = selectors.DefaultSelector()
    bodies = [[body_of(i * args.requests + r, args) for r in range(args.requests)] for i in range(n)]
    start = time.monotonic()
    streams = [Stream(port, b, selector) for b in bodies]
    left = len(streams)
    while left:
        for key, _ in selector.select():
            left -= not key.data.read()
    return streams, bodies, time.monotonic() - start


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def check(port, streams, bodies):
    selector = selectors.DefaultSelector()
    for stream, mine in zip(streams, bodies):
        alone = Stream(port, mine, selector)
        while True:
            selector.select()
            if not alone.read():
                break
        if alone.texts != stream.texts:
            sys.exit("a text in company is not the one alone")


def commands(args):
    port = free_port()
    n = max(args.streams)
    room = args.prompt + args.tokens + 64
    yield "godwit", port, [args.godwit, "serve", "-m", args.model, "--device", args.device, "--port", str(port), "-t",
                           str(args.threads), "-c", str(room), "--parallel", str(n), "--queue", str(2 * n), "--cache-tokens",
                           str((room + 64) * n), "-q", *args.extra]
    if args.llama_server:
        port = free_port()
        yield "llama-server", port, [args.llama_server, "-m", args.model, "--port", str(port), "-t",
                                     str(args.threads), "-c", str(room * n), "-np", str(n)]


def main():
    numbers = lambda text: [int(x) for x in text.split(",")]
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--godwit", required=True)
    parser.add_argument("--llama-server")
    parser.add_argument("--streams", type=numbers, default=[1, 8, 32, 64])
    for name, preset in (("prompt", 64), ("tokens", 64), ("requests", 2), ("threads", 2), ("vocab", 1000)):
        parser.add_argument(f"--{name}", type=int, default=preset)
    parser.add_argument("--device", default="cpu", help="of godwit")
    parser.add_argument("--cores", type=numbers, help="of the servers")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--extra", type=str.split, default=[], help="more options of godwit serve, in one word")
    args = parser.parse_args()
    print("| program | streams | tokens/s | a processor second | first token, median ms | 99% | between, median ms | 99% "
          "| 99% / median |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    programs = [Program(name, command, port, args.cores) for name, port, command in commands(args)]
    try:
        for n in args.streams:
            for p in programs:
                load(p.port, 1, argparse.Namespace(**{**vars(args), "requests": 1}))  # warm
                used = p.processor_seconds()
                streams, bodies, seconds = load(p.port, n, args)
                used = p.processor_seconds() - used
                tokens = sum(s.tokens for s in streams)
                first = [1e3 * x for s in streams for x in s.first]
                gaps = [1e3 * x for s in streams for x in s.gaps]
                middle, slow = statistics.median(gaps), percentile(gaps, 0.99)
                print(f"| {p.name} | {n} | {tokens / seconds:.1f} | {tokens / max(used, 0.01):.1f} | {statistics.median(first):.1f} | "
                      f"{percentile(first, 0.99):.1f} | {middle:.2f} | {slow:.2f} | {slow / max(middle, 1e-3):.1f} |", flush=True)
                if args.check and p.name == "godwit":
                    check(p.port, streams, bodies)
    finally:
        for p in programs:
            p.stop()


if __name__ == "__main__":
    main()
