#!/bin/sh
# bench/h200_hybrid.sh - a model split between a GPU and the CPU: predicted against measured speed
# over N, and what auto takes against the best N. Prints one table per model.
#
#   bench/h200_hybrid.sh BIN SYNTH DEVICE [SHAPE [FORMAT [N...]]]
#
# BIN: the program. SYNTH writes models: SYNTH SHAPE FORMAT FILE. DEVICE: as for --device. Models go
# to GODWIT_TMP (default: a fresh folder, removed at the end). GODWIT_THREADS: of the CPU (default:
# all cores). GODWIT_TURNS: times that each is measured (2).
set -eu
[ $# -ge 3 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
bin=$1
synth=$2
device=$3
shape=${4:-7b}
format=${5:-q4_0}
shift $(($# < 5 ? $# : 5))
counts=${*:-0 8 16 24 30 32}
python=${PYTHON:-python3}
tmp=${GODWIT_TMP:-$(mktemp -d)}
threads=${GODWIT_THREADS:+-t $GODWIT_THREADS}
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}"
file=$tmp/$shape-$format.gguf

[ -f "$file" ] || "$python" "$synth" "$shape" "$format" "$file" > /dev/null
start=$(date +%s)
# shellcheck disable=SC2086
"$bin" plan -m "$file" --device "$device" -c 640 $threads -o csv > "$tmp/plan.csv"
echo "plan: $(($(date +%s) - start)) s; auto takes N = $(awk -F, '$2 == 1 { print $1; exit }' "$tmp/plan.csv")"
echo
echo "| N | tg32 predicted | measured | ratio | pp512 predicted | measured | ratio |"
echo "|---:|---:|---:|---:|---:|---:|---:|"
for n in $counts; do
    # shellcheck disable=SC2086
    "$bin" bench -m "$file" --device "$device" -ngl "$n" $threads -p 512 -n 32 -r "${GODWIT_TURNS:-2}" -o csv \
        > "$tmp/bench.csv"
    "$python" - "$tmp/plan.csv" "$tmp/bench.csv" "$n" <<'PY'
import csv, sys
plan = next(r for r in csv.DictReader(open(sys.argv[1])) if r["offloaded"] == sys.argv[3])
speed = {}
for r in csv.DictReader(open(sys.argv[2])):
    speed["tg" if r["n_prompt"] == "0" else "pp"] = float(r["avg_ts"])
tg, pp = float(plan["generated_tokens_per_second"]), float(plan["prompt_tokens_per_second"])
print(f"| {sys.argv[3]} | {tg:.1f} | {speed['tg']:.1f} | {tg / speed['tg']:.2f} "
      f"| {pp:.0f} | {speed['pp']:.0f} | {pp / speed['pp']:.2f} |", flush=True)
PY
done
[ -n "${GODWIT_TMP:-}" ] || rm -rf "$tmp"
