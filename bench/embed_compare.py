#!/usr/bin/env python3
"""bench/embed_compare.py - texts per second of godwit embed beside llama.cpp's llama-embedding and
sentence-transformers, programs in turn, best of the rounds.

    bench/make_encoders.py minilm f32 DIR/minilm
    bench/make_encoders.py minilm f32 DIR/minilm-f32.gguf
    bench/make_encoders.py minilm q8_0 DIR/minilm-q8_0.gguf
    bench/make_encoders.py texts 1000 5 500 DIR/texts.txt
    bench/embed_compare.py --models DIR [--bin godwit] [--llama llama-embedding] [--python PYTHON]
                           [--threads 2] [--rounds 3]

What is not given is left out; PYTHON is one that has sentence-transformers. On a busy machine look at
the processor seconds, with --threads 1: no thread then waits for another.
"""
import argparse
import os
import resource
import subprocess
import time

SENTENCES = """
import resource, sys, time
import torch
torch.set_num_threads(int(sys.argv[3]))
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
texts = open(sys.argv[2]).read().splitlines()
model.encode(texts[:2])
t, c = time.time(), time.process_time()
model.encode(texts, batch_size=32, normalize_embeddings=True)
print(time.time() - t, time.process_time() - c)
"""


def timed(command, env):
    """Wall and processor seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)
    wall, after = time.time() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stderr[-2000:]}")
    if "SentenceTransformer" in " ".join(command):
        return tuple(map(float, done.stdout.split()[-2:]))
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", required=True)
    parser.add_argument("--texts", default="texts.txt")
    parser.add_argument("--bin", default="build/release/godwit")
    parser.add_argument("--llama")
    parser.add_argument("--python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    at = lambda name: os.path.join(o.models, name)
    texts, t = at(o.texts), str(o.threads)
    n = len(open(texts).read().splitlines())
    programs = {}
    for fmt in ("f32", "q8_0"):
        gguf = at(f"minilm-{fmt}.gguf")
        programs[f"godwit {fmt}"] = [o.bin, "embed", "-m", gguf, "-f", texts, "-t", t, "-o",
                                     at("out.npy"), "--device", "cpu"]
        if o.llama:
            programs[f"llama-embedding {fmt}"] = [
                o.llama, "-m", gguf, "-f", texts, "-t", t, "-b", "2048", "-ub", "2048",
                "--pooling", "mean", "--embd-normalize", "2", "--embd-output-format", "json"]
    if o.python:
        programs["sentence-transformers f32"] = [o.python, "-c", SENTENCES, at("minilm"), texts, t]
    best = {}
    env = os.environ | {"OMP_NUM_THREADS": t, "MKL_NUM_THREADS": t}
    for _ in range(o.rounds):
        for name, command in programs.items():
            wall, cpu = timed(command, env)
            was = best.get(name, (1e9, 1e9))
            best[name] = (min(wall, was[0]), min(cpu, was[1]))
    print(f"{n} texts, {t} threads\n\n| program | texts/s | processor seconds |\n|---|---|---|")
    for name, (wall, cpu) in best.items():
        print(f"| {name} | {n / wall:.1f} | {cpu:.1f} |")


if __name__ == "__main__":
    main()
