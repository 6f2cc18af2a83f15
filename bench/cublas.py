#!/usr/bin/env python3
# bench/cublas.py - x W^T in 16-bit floats as PyTorch does it (cuBLAS), to compare
# `godwit bench --gemm` with.
#
#   bench/cublas.py K N M[,M...]
#
# x is [M, K], W [N, K]; three weights in turn, more than the second cache holds. Prints, for each M,
# the least and the middle of nine means of 30 products, in microseconds. Needs a CUDA device and
# PyTorch.
import sys


def main():
    if len(sys.argv) != 4:
        print("usage: bench/cublas.py K N M[,M...]", file=sys.stderr)
        return 2
    import torch

    k, n = int(sys.argv[1]), int(sys.argv[2])

    def make(rows):
        return torch.randn(rows, k, device="cuda", dtype=torch.float16) * 0.02

    weights = [make(n) for _ in range(3)]
    print("| M | cuBLAS fp16, least us | middle |\n|---:|---:|---:|")
    for m in (int(m) for m in sys.argv[3].split(",")):
        x, times = make(m), []
        for repetition in range(10):  # the first one warms up
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for i in range(30):
                torch.nn.functional.linear(x, weights[i % 3])
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 30 * 1000)
        times = sorted(times[1:])
        print(f"| {m} | {times[0]:.1f} | {times[4]:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
