#!/usr/bin/env python3
# bench/speculation.py - what drafting is worth with the trained pair: acceptance and tokens per pass
# (independent of the machine's load) and, with --times instead, speed against no speculation in
# alternating runs. Prints markdown tables; docs/speculation.md shows how to read them.
#
#   bench/speculation.py --bin build/release/godwit --models ../shared/models [--times] [--quick]
import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile

UNFILTERED = ["--top-k", "0", "--top-p", "1", "--min-p", "0"]
BYTES = {0: 4, 1: 2}  # of an element: GGUF types F32, F16


def run(options, target, prompt, *more):
    command = [options.bin, "run", "-m", str(target), "-f", str(prompt), "--ignore-eos", "--stats",
               "json", *map(str, more)]
    if options.threads:
        command += ["-t", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stderr.strip().splitlines()[-1]), done.stdout


# ---- prompts and drafts --------------------------------------------------------------------------

def continuations(text, n, folder):
    """n beginnings of about 200 characters, evenly over the text, from a sentence's start."""
    files = []
    for i in range(n):
        at = text.find(". ", i * (len(text) - 2000) // n) + 2
        path = folder / f"continue-{i}.txt"
        path.write_text(text[at:at + 200].rsplit(" ", 1)[0])
        files.append(path)
    return files


def repeating(text, n, folder):
    """A passage, and then its first words again, as a summary that quotes its input begins."""
    files = []
    for i in range(n):
        at = text.find(". ", i * (len(text) - 3000) // n) + 2
        passage = text[at:at + 900].rsplit(" ", 1)[0]
        path = folder / f"repeat-{i}.txt"
        path.write_text(f"{passage}\n\n{passage[:120].rsplit(' ', 1)[0]}")
        files.append(path)
    return files


def gguf_tensors(data):
    """(type, elements, offset from the start of the data) of each tensor; where the data starts."""
    at = 4

    def take(fmt):
        nonlocal at
        value = struct.unpack_from("<" + fmt, data, at)[0]
        at += struct.calcsize(fmt)
        return value

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at]

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = take("I"), take("Q")
            return [value(inner) for _ in range(n)]
        return take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q",
                     11: "q", 12: "d"}[kind])

    take("I")  # version
    n_tensors, n_keys = take("Q"), take("Q")
    keys = {}
    for _ in range(n_keys):
        name = text()
        keys[name] = value(take("I"))
    tensors = []
    for _ in range(n_tensors):
        name = text()
        elements = 1
        for _ in range(take("I")):
            elements *= take("Q")
        tensors.append((name, take("I"), elements, take("Q")))
    align = keys.get(b"general.alignment", 32)
    return tensors, (at + align - 1) // align * align


def adversary(model, path):
    """The small model with random matrices: its vocabulary, its cost, and nothing to say."""
    data = bytearray(model.read_bytes())
    tensors, start = gguf_tensors(bytes(data))
    source = random.Random(1)
    noise = [struct.pack("<e", source.gauss(0, 0.05)) for _ in range(65521)]
    block = b"".join(noise)
    for name, kind, elements, offset in tensors:
        if kind == 1:
            n = elements * BYTES[kind]
            data[start + offset:start + offset + n] = (block * (n // len(block) + 1))[:n]
    path.write_bytes(data)
    return path


# ---- what does not depend on the load ------------------------------------------------------------

def pooled(results):
    """Totals over the runs: tokens per pass, share of drafts accepted, acceptance at position 1."""
    sums = {key: sum(r["draft"][key] for r in results)
            for key in ("passes", "passes_without_drafts", "drafted", "accepted")}
    drafting = sums["passes"] - sums["passes_without_drafts"]
    first = statistics.fmean(r["draft"]["acceptance_by_position"][0] for r in results)
    per_pass = (sums["accepted"] + drafting) / max(drafting, 1)
    return per_pass, sums["accepted"] / max(sums["drafted"], 1), first


def acceptance(options, targets, drafts, prompts):
    print("\n| target | draft | what | tokens per pass | accepted | first draft accepted | bar |")
    print("|---|---|---|---:|---:|---:|---|")
    for target in targets:
        for draft in drafts:
            agree = {}
            rows = [("greedy, 4 drafted", ["--temp", 0], 4, "2.4 per pass"),
                    ("greedy, 6 drafted", ["--temp", 0], 6, ""),
                    ("0.8, shared noise", ["--temp", 0.8, *UNFILTERED], 1, ""),
                    ("0.8, greedy draft", ["--temp", 0.8, *UNFILTERED, "--draft-greedy"], 1, ""),
                    ("0.8 and the default filters, shared noise", ["--temp", 0.8], 1, ""),
                    ("0.8 and the default filters, greedy draft",
                     ["--temp", 0.8, "--draft-greedy"], 1, ""),
                    ("0.8, rejection sampling", ["--temp", 0.8, *UNFILTERED, "--draft-accept",
                                                 "rejection"], 1, ""),
                    ("1.5, shared noise, 4 drafted", ["--temp", 1.5], 4, "")]
            for name, how, k, bar in rows:
                results = [run(options, target, p, "-n", options.tokens, "-s", 7 + i, "--draft",
                               draft, "--draft-length", f"fixed:{k}", *how)[0]
                           for i, p in enumerate(prompts)]
                per_pass, share, first = pooled(results)
                agree[name] = share
                print(f"| {target.name} | {draft.name} | {name} | {per_pass:.2f} | {share:.3f} | "
                      f"{first:.3f} | {bar} |", flush=True)
            gain = agree["0.8, shared noise"] - agree["0.8, greedy draft"]
            print(f"| {target.name} | {draft.name} | shared noise minus greedy draft at 0.8 | | "
                  f"{gain:+.3f} | | +0.1 |")


# ---- speed ---------------------------------------------------------------------------------------

def speed(options, target, prompts, how, draft):
    """Seconds without drafts over seconds with them: the median of pairs of runs, taken in turn. Of
    the text alone, and with the prompt, which a draft model reads too. The texts must agree."""
    text, whole, per_pass = [], [], []
    for i in range(options.repeat * len(prompts)):
        same = [prompts[i % len(prompts)], "-n", options.tokens, "-s", 7 + i, *how]
        pair = [same, [*same, "--draft", *draft]]
        order = pair[::-1] if i % 2 else pair
        found = [run(options, target, *args) for args in order]
        (a, said), (b, other) = found[::-1] if i % 2 else found
        if said != other:
            raise SystemExit(f"{same[0]}: the text changed with {draft}")
        text.append(a["text"]["seconds"] / b["text"]["seconds"])
        whole.append(sum(a[part]["seconds"] for part in ("prompt", "text")) /
                     sum(b[part]["seconds"] for part in ("prompt", "text")))
        per_pass.append(b["draft"]["tokens_per_pass"])
    return statistics.median(text), statistics.median(whole), statistics.fmean(per_pass)


def speeds(options, targets, drafts, texts, against):
    print("\n| target | draft | prompts | temperature | tokens per pass | speed-up | with the prompt |")
    print("|---|---|---|---:|---:|---:|---:|")
    worst = (9, "")
    for target in targets:
        sources = [(d.name, [d]) for d in drafts]
        sources += [("ngram", ["ngram"]), ("random weights", [against]),
                    (f"{drafts[-1].name}, fixed:4", [drafts[-1], "--draft-length", "fixed:4"])]
        for name, draft in sources:
            if options.only not in ("", name):
                continue
            for kind, prompts in texts.items():
                for temperature in (0, 0.2, 0.8, 1.5):
                    ratio, whole, per_pass = speed(options, target, prompts,
                                                   ["--temp", temperature], draft)
                    row = f"| {target.name} | {name} | {kind} | {temperature} |"
                    print(f"{row} {per_pass:.2f} | {ratio:.3f}x | {whole:.3f}x |", flush=True)
                    if "fixed" not in name:
                        worst = min(worst, (ratio, row))
    if worst[1]:
        print(f"\nworst of those that choose their length: {worst[0]:.3f}x (bar 0.97x) {worst[1]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/release/godwit")
    parser.add_argument("--models", default="../shared/models")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--targets", default="tales-21m,tales-21m-q8_0.gguf")
    parser.add_argument("--times", action="store_true", help="speeds instead: wants a quiet machine")
    parser.add_argument("--only", default="", help="ngram, random weights, ...: speeds of that source")
    parser.add_argument("--quick", action="store_true", help="few prompts, one target and draft")
    options = parser.parse_args()
    models = pathlib.Path(options.models)
    targets = [models / name for name in options.targets.split(",")]
    drafts = [models / "tales-2m-f16.gguf", models / "tales-2m-q8_0.gguf"]
    if options.quick:
        targets, drafts, options.prompts, options.repeat = targets[-1:], drafts[-1:], 4, 1
    text = (models / "val-time-machine.txt").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prompts = continuations(text, options.prompts, folder)
        if not options.times:
            acceptance(options, targets, drafts, prompts)
        else:
            few = max(2, options.prompts // 4)
            texts = {"continuation": prompts[:few], "repeats its input": repeating(text, few, folder)}
            speeds(options, targets, drafts, texts,
                   adversary(models / "tales-2m-f16.gguf", folder / "random.gguf"))


main()
