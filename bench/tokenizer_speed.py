#!/usr/bin/env python3
# bench/tokenizer_speed.py - tokens/s of each kind of tokenizer beside the `tokenizers` library, by turns,
# one thread each, the best of several rounds.
#
# usage: tokenizer_speed.py BENCH_TOKENIZER TEXT_FILE TOKENIZER...
# BENCH_TOKENIZER is the program of bench/bench_tokenizer.c; a TOKENIZER is a tokenizer.json, or
# another file of godwit's alone (tekken.json, tokenizer.model, a GGUF file).
import json
import os
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

ROUNDS = 5


def ours(bench, path, text):
    done = subprocess.run([bench, path, text, "1"], capture_output=True, text=True, check=True)
    _, tokens, seconds = done.stdout.split()
    return int(tokens), float(seconds)


def theirs(tokenizer, text):
    start = time.thread_time()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return len(ids), time.thread_time() - start


def load(path):
    """None where the library cannot read the file."""
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(path)
    except Exception:
        return None


def kind(path):
    if not path.endswith("tokenizer.json"):
        return os.path.basename(path)
    with open(path, encoding="utf-8") as file:
        return json.load(file)["model"].get("type", "?")


def main():
    if len(sys.argv) < 4:
        sys.exit("usage: tokenizer_speed.py BENCH_TOKENIZER TEXT_FILE TOKENIZER...")
    bench, name, paths = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(name, encoding="utf-8", newline="") as file:
        text = file.read()
    size = len(text.encode())
    print(f"{size} bytes, best of {ROUNDS}\n")
    print("| tokenizer | kind | MB/s | Mtokens/s | tokenizers, Mtokens/s | times |")
    print("|---|---|---|---|---|---|")
    for path in paths:
        other = load(path)
        mine, rest = [], []
        for _ in range(ROUNDS):
            mine.append(ours(bench, path, name))
            if other is not None:
                rest.append(theirs(other, text))
        tokens, seconds = min(mine, key=lambda pair: pair[1])
        row = [os.path.basename(os.path.dirname(path)), kind(path), f"{size / seconds * 1e-6:.1f}",
               f"{tokens / seconds * 1e-6:.2f}"]
        if rest:
            count, slow = min(rest, key=lambda pair: pair[1])
            note = "" if count == tokens else f" ({count} tokens, not {tokens})"
            row += [f"{count / slow * 1e-6:.2f}{note}", f"{slow / seconds:.1f}"]
        else:
            row += ["-", "-"]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
