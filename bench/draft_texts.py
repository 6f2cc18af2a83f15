#!/usr/bin/env python3
# bench/draft_texts.py - texts with drafts against those without, of a server on any device: prompts cut out of a
# text, greedy and drawn, one at a time and many at once. Says how many differ; exit 1 when one does, or when nothing
# was drafted.
#
#   bench/draft_texts.py PROGRAM MODEL TEXT [--device hip] [--prompts 100] [--tokens 48] [--streams 1,16]
#       --draft WHAT [--draft WHAT ...]
#
# WHAT: as godwit serve --draft takes it; words of further options may follow, as in
# "head --draft-length fixed:4".
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

from serve_load import free_port

SETTINGS = ({"temperature": 0}, {"temperature": 0.8, "top_p": 0.95}, {"temperature": 1.2, "repetition_penalty": 1.1})


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read().decode()


def texts(o, draft, streams):
    """All texts of a server with these drafts, and how many drafts it accepted of how many."""
    port = free_port()
    command = [o.program, "serve", "-m", o.model, "--device", o.device, "--port", str(port), "--parallel",
               str(max(streams)), *(["--draft", *draft.split()] if draft else [])]
    words = tempfile.TemporaryFile()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words)
    try:
        for _ in range(600):
            try:
                ask(port, "/health")
                break
            except OSError:
                time.sleep(0.1)
            if server.poll() is not None:
                break
        else:
            sys.exit(f"no answer to /health: {' '.join(command)}")
        if server.poll() is not None:
            words.seek(0)
            sys.exit(words.read().decode())
        out = []
        for wide in streams:
            bodies = [{"prompt": p, "max_tokens": o.tokens, "seed": i, **SETTINGS[k]}
                      for k in range(len(SETTINGS)) for i, p in enumerate(o.texts)]
            with concurrent.futures.ThreadPoolExecutor(wide) as pool:
                out += pool.map(lambda b: json.loads(ask(port, "/v1/completions", b))["choices"][0]["text"], bodies)
        seen = {}
        for line in ask(port, "/metrics").splitlines():
            if "draft" in line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                seen[name.split("{")[0].split(":")[-1]] = float(value)
        return out, seen
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program"), parser.add_argument("model"), parser.add_argument("text")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--draft", action="append", required=True)
    o = parser.parse_args()
    with open(o.text) as f:
        whole = f.read()
    step = len(whole) // o.prompts
    o.texts = [whole[i * step:i * step + 120] for i in range(o.prompts)]
    streams = [int(n) for n in o.streams.split(",")]
    want, _ = texts(o, None, streams)
    wrong = sum(a != b for a, b in zip(want[:len(want) // len(streams)], want[-(len(want) // len(streams)):]))
    print(f"without drafts: {len(want)} texts; {wrong} differ between {streams[0]} and {streams[-1]} streams")
    for draft in o.draft:
        got, seen = texts(o, draft, streams)
        differ = sum(a != b for a, b in zip(want, got))
        wrong += differ + (seen.get("godwit_drafted_tokens_total", 0) == 0)
        print(f"{os.path.basename(draft)}: {differ} of {len(got)} differ; {seen}")
    sys.exit(wrong > 0)


main()
