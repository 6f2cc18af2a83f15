#!/usr/bin/env python3
# bench/python_stream.py PROGRAM [MODEL] - tokens per second of the package's stream against those of the program:
# the same text, in turn, the best of some rounds each, since what else a machine does only makes either slower; and
# the hash of the package's logits against the program's. Ends with 1 if the package is slower by more than 3% or a
# bit differs. The package is the one that this Python imports.
import hashlib
import pathlib
import re
import subprocess
import sys
import time

import godwit

PROMPT, TOKENS, SEED, THREADS, ROUNDS, MOST = "Once upon a time", 400, 1, 2, 25, 0.03
program = sys.argv[1]
path = sys.argv[2] if len(sys.argv) > 2 else str(pathlib.Path(__file__).parent.parent / "models/tales-21m-q4_k_m.gguf")
model = godwit.Model(path, threads=THREADS)


def of_program():
    done = subprocess.run([program, "run", "-m", path, "-p", PROMPT, "-n", str(TOKENS), "-s", str(SEED), "-t", str(THREADS),
                           "--ignore-eos", "--no-display-prompt"], capture_output=True, text=True, check=True)
    return float(re.search(r"([0-9.]+) tok/s", done.stderr.split("\ntext ")[1]).group(1)), done.stdout


def of_package():
    """From the first piece to the last, as the program counts: without the prompt, and what is freed at the end."""
    pieces, times = [], []
    for piece in model.stream(PROMPT, max_tokens=TOKENS, seed=SEED):
        times.append(time.perf_counter())
        pieces.append(piece)
    return (TOKENS - 1) / (times[-1] - times[0]), "".join(pieces)


texts, best = set(), {"program": 0.0, "package": 0.0}
for _ in range(ROUNDS):
    for name, one in (("program", of_program), ("package", of_package)):
        rate, text = one()
        best[name] = max(best[name], rate)
        texts.add(text.rstrip("\n"))
ids = list(range(1, 65))
want = re.search(r"hash: (\w+)", subprocess.run([program, "logits", "-q", "-m", path, "--ids", ",".join(map(str, ids))],
                                                 capture_output=True, text=True, check=True).stdout).group(1)
got = hashlib.sha256(model.logits(ids).tobytes()).hexdigest()
assert len(texts) == 1, "the texts differ, or end early"
slower = 1 - best["package"] / best["program"]
print(f"program {best['program']:.0f} tok/s, package {best['package']:.0f} tok/s: {-100 * slower:+.1f}%")
print(f"logits of {len(ids)} tokens: {got[:16]}, {'as' if got == want else 'not as'} the program's")
sys.exit(0 if slower <= MOST and got == want else 1)
