#!/bin/sh
# bench/h200_hybrid.sh - a model split between a GPU and the CPU: predicted against measured speed
# over N, and what auto takes against the best N. Prints one table per model.
#
#   bench/h200_hybrid.sh BIN SYNTH DEVICE [SHAPE [FORMAT [N...]]]
#
# BIN: the program. SYNTH writes models: SYNTH SHAPE FORMAT FILE. DEVICE: as for --device. Models go
# to GODWIT_TMP (default: a fresh folder, removed at the end); what another call left there in
# runs.csv and plans.csv counts as well. GODWIT_THREADS: of the CPU (default: all cores).
# GODWIT_TURNS: how often all is measured (3). GODWIT_SECONDS: no measurement begins later (none).
# GODWIT_ASK: what ("-p 512 -n 32 -r 1"). A machine shared with others changes its speed within
# seconds, so every six measurements have a forecast among them, N comes in another order in each
# turn, and the table compares the middle of all forecasts with the middle of all measurements. Below
# it, for how many N they agree within 15%: these, and tokens over seconds of all of each.
set -eu
[ $# -ge 3 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2; }
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
ask=${GODWIT_ASK:--p 512 -n 32 -r 1}
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$tmp/cache}"
file=$tmp/$shape-$format.gguf

[ -f "$file" ] || "$python" "$synth" "$shape" "$format" "$file" > /dev/null
runs=$tmp/runs.csv plans=$tmp/plans.csv
began=$(date +%s)

forecast() {
    rm -f "$XDG_CACHE_HOME"/godwit/gauge-*
    start=$(date +%s)
    # shellcheck disable=SC2086
    "$bin" plan -m "$file" --device "$device" -c 640 $threads -o csv > "$tmp/plan.csv"
    cat "$tmp/plan.csv" >> "$plans"
    echo "forecast: $(($(date +%s) - start)) s; auto takes N = $(awk -F, '$2 == 1 { print $1; exit }' "$tmp/plan.csv")" >&2
}

turn=0 since=0
while [ "$turn" -lt "${GODWIT_TURNS:-3}" ]; do
    turn=$((turn + 1))
    for n in $(printf '%s\n' $counts | sort -R); do
        [ $(($(date +%s) - began)) -lt "${GODWIT_SECONDS:-1000000}" ] || break 2
        [ $((since % 6)) != 0 ] || forecast
        since=$((since + 1))
        # shellcheck disable=SC2086
        "$bin" bench -m "$file" --device "$device" -ngl "$n" $threads $ask -o csv > "$tmp/bench.csv"
        sed "s/^/$n,/" "$tmp/bench.csv" >> "$runs"
    done
done
"$python" - "$plans" "$runs" <<'PY'
import csv, sys
from statistics import harmonic_mean, median
planned, seen = {}, {}
for row in csv.reader(open(sys.argv[1])):
    if row[0] == "offloaded":
        head = {name: i for i, name in enumerate(row)}
    elif row[head["device"]] == "cpu":
        speeds = planned.setdefault(row[0], ([], []))
        speeds[0].append(float(row[head["generated_tokens_per_second"]]))
        speeds[1].append(float(row[head["prompt_tokens_per_second"]]))
for n, *row in csv.reader(open(sys.argv[2])):
    if "avg_ts" in row:
        head = {name: i for i, name in enumerate(row)}
    else:
        speeds = seen.setdefault(n, ([], []))
        speeds[int(row[head["n_prompt"]]) > 0].append(float(row[head["avg_ts"]]))
print("| N | tg32 predicted | measured | ratio | pp512 predicted | measured | ratio |")
print("|---:|---:|---:|---:|---:|---:|---:|")
for n in sorted(seen, key=int):
    cells = ""
    for of_plan, measured in zip(planned[n], seen[n]):
        if not measured:
            cells += " | | |"
            continue
        both = median(of_plan), median(measured)
        cells += f" {both[0]:.1f} | {both[1]:.1f} | {both[0] / both[1]:.2f} |"
    print(f"| {n} |{cells}")
for part, what in enumerate(("generation", "prompts")):
    of = [n for n in seen if seen[n][part]]
    middle, over = (sum(abs(f(planned[n][part]) / f(seen[n][part]) - 1) <= 0.15 for n in of)
                    for f in (median, harmonic_mean))
    print(f"{what}: within 15% for {middle} of {len(of)} N, by tokens over seconds for {over}")
print(f"{len(planned['0'][0])} forecasts, {sum(len(part) for row in seen.values() for part in row)} measurements")
PY
[ -n "${GODWIT_TMP:-}" ] || rm -rf "$tmp"
