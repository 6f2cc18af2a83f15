#!/usr/bin/env python3
"""bench/draft_trees.py - what trees of drafts could gain over chains, from what passes take.

    bench/draft_trees.py --pass 1:1.495,2:1.72,4:1.88,8:2.26,12:3.44,16:3.51 --step 0.24 [--block 1.7]

--pass ROWS:MS of the target (`bench --draft-length fixed:K` prints "verifying"), a line between them;
--step ms of the draft model's step, one for each depth, --block ms of all depths at once.
For each chance p that a draft's first choice stays: its second is right with half of what is left, its
third with a quarter (kind to trees). Nodes of a tree are those most likely to be reached. A row's work
in a draft step, masks by ancestry and the copies of what stays cost nothing here, which is kind to trees
too. Prints tokens per second of the best chain and of the best tree.
"""
import argparse
import heapq


def tree(p, rows):
    """The most likely nodes: their chances, and the greatest depth, after each."""
    ranks = [p, (1 - p) / 2, (1 - p) / 4]
    heap, out, depth = [(-c, 1) for c in ranks], [], 0
    heapq.heapify(heap)
    while len(out) < rows:
        c, at = heapq.heappop(heap)
        depth = max(depth, at)
        out.append((-c, depth))
        for r in ranks:
            heapq.heappush(heap, (c * r, at + 1))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pass", dest="passes", required=True)
    parser.add_argument("--step", type=float, default=0.0)
    parser.add_argument("--block", type=float, default=0.0)
    args = parser.parse_args()
    known = sorted((int(r), float(t)) for r, t in (x.split(":") for x in args.passes.split(",")))

    def seconds(rows):
        for (a, x), (b, y) in zip(known, known[1:]):
            if a <= rows <= b:
                return x + (y - x) * (rows - a) / (b - a)
        raise SystemExit(f"--pass says nothing of {rows} rows")

    most = known[-1][0] - 1
    print("| p | plain tok/s | best chain: drafts, tok/s | best tree: nodes, depth, tok/s | tree to chain |")
    print("|---:|---:|---:|---:|---:|")
    for p in (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.86, 0.9, 0.95):
        cost = lambda rows, depth: seconds(rows + 1) + args.block + depth * args.step  # noqa: E731
        chains, alive, sum_ = [], 1.0, 1.0
        for k in range(1, most + 1):
            alive *= p
            sum_ += alive
            chains.append((sum_ / cost(k, k), k))
        trees, sum_ = [], 1.0
        for n, (c, depth) in enumerate(tree(p, most), 1):
            sum_ += c
            trees.append((sum_ / cost(n, depth), n, depth))
        c, t, plain = max(chains), max(trees), 1 / seconds(1)
        print(f"| {p} | {1000 * plain:.0f} | {c[1]}, {1000 * c[0]:.0f} | {t[1]}, {t[2]}, {1000 * t[0]:.0f} | "
              f"{t[0] / max(c[0], plain):.2f} |")


if __name__ == "__main__":
    main()
