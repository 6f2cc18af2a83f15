#!/usr/bin/env python3
# bench/kv_recall.py MODEL TEXT [--tokens N ...] [--types TYPE ...] [--program GODWIT] - what KV caches in few bits cost.
# Key-value lines ("The password of the river is stone.") stand at even depths of a long text, and a model answers a
# question about each: how many it gives back to the letter, how many of its answers are those with a cache in f16, and
# what the right one costs it: the mean of all questions, and of their differences from f16, with its standard error
# once by question and once by context, since questions of a context share its keys and values. Then the perplexity of
# the text by cache. The package is the one that this Python imports. Nothing is timed.
import argparse
import math
import pathlib
import random
import re
import subprocess

import numpy

import godwit

TYPES = ("f16", "q8_0", "q5_0", "q4_0")
KEYS = ("river garden kitchen mountain castle forest bridge harbor village market school temple station island desert "
        "valley library museum prison church factory hotel cellar tower office palace farm theater stable chapel "
        "cottage tavern").split()
VALUES = ("stone tiger cloud apple silver winter candle rabbit violin pepper orange ladder mirror basket hammer "
          "ribbon copper falcon lemon marble needle ocean pencil razor saddle thunder umbrella velvet walnut zebra "
          "butter dragon").split()
ASKED = "\n\nQuestion: What is the password of the {0}?\nAnswer: The password of the {0} is"


def context_of(model, text, seed, tokens, lines):
    """Ids of a text with so many lines in it, and the (key, value) of each, in the order of the text."""
    draw, sentences, n = random.Random(seed), [], 0
    for sentence in text.replace("\n", " ").split(". ")[seed * 7:]:
        ids = model.tokenize(f" {sentence.strip()}.", bos=False)
        if n + len(ids) > tokens - 24 * (lines + 2):
            break
        sentences.append(ids)
        n += len(ids)
    pairs = list(zip(draw.sample(KEYS, lines), draw.sample(VALUES, lines)))
    for i, (key, value) in reversed(list(enumerate(pairs))):
        sentences.insert((2 * i + 1) * len(sentences) // (2 * lines),
                         model.tokenize(f"\nThe password of the {key} is {value}.\n", bos=False))
    return sum(sentences, model.tokenize("")), pairs


def log_softmax(row, token):
    row = row.astype(numpy.float64)
    return row[token] - row.max() - math.log(numpy.exp(row - row.max()).sum())


def ask(model, session, start, key, value):
    """(the answer's first token, is it the value's, nats of the value)."""
    session.rewind(start)
    session.prefill(model.tokenize(ASKED.format(key), bos=False))
    right = model.tokenize(f" {value}", bos=False)
    first, exact, nats = int(session.logits[-1].argmax()), True, 0.0
    for token in right:
        row = session.logits[-1]
        exact &= int(row.argmax()) == token
        nats -= log_softmax(row, token)
        session.decode([token])
    return first, exact, nats


def recall(o, text, kv_type, tokens):
    """[(first token, exact, nats)] of all questions, and the length of the longest context."""
    answers, longest = [], 0
    with godwit.Model(o.model, threads=o.threads, n_ctx=tokens, kv_type=kv_type) as model:
        for seed in range(o.contexts):
            ids, pairs = context_of(model, text, seed, tokens, o.lines)
            longest = max(longest, len(ids))
            with model.session(tokens) as session:
                session.prefill(ids)
                answers += [ask(model, session, len(ids), *pair) for pair in pairs]
    return answers, longest


def error(x):
    """The standard error of the mean of x."""
    return float(numpy.std(x, ddof=1)) / math.sqrt(len(x)) if len(x) > 1 else math.nan


def row(kv_type, length, answers, whole, lines):
    """A line of the table: answers, and what they differ by from those with a cache in f16."""
    n, same = len(answers), sum(a[0] == b[0] for a, b in zip(answers, whole))
    more = numpy.array([a[2] - b[2] for a, b in zip(answers, whole)])
    by_context = error(more.reshape(-1, lines).mean(axis=1))
    won, lost = (sum(x[1] > y[1] for x, y in zip(*pair)) for pair in ((answers, whole), (whole, answers)))
    return (f"| {kv_type} | {length} | {sum(a[1] for a in answers)} of {n} (+{won} -{lost}) | {same} of {n} | "
            f"{sum(a[2] for a in answers) / n:.4f} | {more.mean():+.4f} | {error(more):.4f} | {by_context:.4f} |")


def perplexity(program, path, text, kv_type, n_ctx, threads):
    done = subprocess.run([program, "perplexity", "-m", path, "-f", text, "-c", str(n_ctx), "--kv-type", kv_type, "-t",
                           str(threads)], capture_output=True, text=True, check=True)
    return float(re.search(r"^PPL = ([0-9.]+) ", done.stdout, re.M).group(1))


def main():
    o = argparse.ArgumentParser()
    o.add_argument("model")
    o.add_argument("text")
    o.add_argument("--tokens", type=int, nargs="*", default=[2048, 8192])
    o.add_argument("--types", nargs="*", default=TYPES[1:], help="caches that are held against f16, as --kv-type")
    o.add_argument("--lines", type=int, default=8, help="in a context, at most 32")
    o.add_argument("--contexts", type=int, default=4)
    o.add_argument("--program", help="measures perplexity, too")
    o.add_argument("--ctx", type=int, default=512)
    o.add_argument("-t", "--threads", type=int, default=0)
    o = o.parse_args()
    text = pathlib.Path(o.text).read_text()
    print("| cache | tokens | given back | as with f16 | nats | more than f16 | error | by context |\n"
          "|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for tokens in o.tokens:
        whole, length = recall(o, text, "f16", tokens)
        for kv_type in ["f16", *o.types]:
            answers = whole if kv_type == "f16" else recall(o, text, kv_type, tokens)[0]
            print(row(kv_type, length, answers, whole, o.lines), flush=True)
    if o.program:
        print("\n| cache | perplexity | against f16 |\n|---|---:|---:|", flush=True)
        for kv_type in TYPES:
            one = perplexity(o.program, o.model, o.text, kv_type, o.ctx, max(1, o.threads))
            whole = one if kv_type == "f16" else whole
            print(f"| {kv_type} | {one:.4f} | {100 * (one / whole - 1):+.3f}% |", flush=True)


if __name__ == "__main__":
    main()
