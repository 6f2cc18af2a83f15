#!/usr/bin/env bash
# bench/cpu.sh PROGRAM MODEL... - the CPU tables of docs/record: pp512 and tg32 per model and
# level against roofs measured in the same run, then start to first token. LEVELS and THREADS
# (default: every level that runs here, 2) narrow it down.
#   bench/cpu.sh build/release/godwit 1.1b-q4_0.gguf 1.1b-f16.gguf
set -u
program=$1
shift
threads=${THREADS:-2}
levels=${LEVELS:-amx vnni avx512 avx2 neon}

grep -m 1 'model name' /proc/cpuinfo
"$program" devices --measure -t "$threads" | tail -n 1
for level in $levels; do
    GODWIT_CPU=$level "$program" devices > /dev/null 2>&1 || continue
    for model in "$@"; do
        echo "$level $(basename "$model")"
        GODWIT_CPU=$level "$program" bench -m "$model" -p 512 -n 32 -r 3 -t "$threads" -o md 2> /dev/null | tail -n 2
    done
done
for model in "$@"; do
    for i in 1 2 3; do
        began=$(date +%s.%N)
        "$program" run -m "$model" -p "a b c d" -n 1 -t "$threads" -c 512 --quiet > /dev/null 2>&1
        echo "start to first token and exit, $(basename "$model"): $(awk "BEGIN {print $(date +%s.%N) - $began}") s"
    done
done
