#!/usr/bin/env bash
# bench/h200_compare.sh - two builds of godwit in turn on one GPU: generation, steps of several rows,
# products alone. On the machine with the GPU:
#
#   bench/h200_compare.sh BEFORE AFTER SYNTH [MODEL ...]
#
# BEFORE, AFTER: the programs. SYNTH writes models: SYNTH SHAPE FORMAT FILE. MODEL: SHAPE-FORMAT, by
# default 7b-q4_0 1.1b-q4_0 8b-q4_k 7b-q8_0 7b-f16; they go to GODWIT_TMP (a fresh folder, removed at
# the end), all at once, and rows are those of 7b-q4_0 with drafts of 1.1b-q4_0.
set -u

case $# in 0 | 1 | 2) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
before=$1 after=$2 synth=$3
shift 3
models=${*:-7b-q4_0 1.1b-q4_0 8b-q4_k 7b-q8_0 7b-f16}
tmp=${GODWIT_TMP:-$(mktemp -d)}
[ -n "${GODWIT_TMP:-}" ] || trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="$tmp/cache"
mkdir -p "$tmp/cache"

make_models() {
    for model in $models; do
        [ -f "$tmp/$model.gguf" ] || (
            "${PYTHON:-python3}" "$synth" "${model%%-*}" "${model#*-}" "$tmp/$model.part" > /dev/null &&
                mv "$tmp/$model.part" "$tmp/$model.gguf"
        ) &
    done
    wait
}

field() { # NAME, of a JSON object
    sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"
}

generation() { # twice each: what differs less than two runs do says nothing
    echo "| tok/s, 64 tokens | before | after | before | after |"
    echo "|---|---|---|---|---|"
    for model in $models; do
        row="| $model |"
        for program in "$before" "$after" "$before" "$after"; do
            row+=" $("$program" bench -m "$tmp/$model.gguf" --device hip -p 0 -n 64 -r 2 -o jsonl 2> /dev/null |
                tail -n 1 | field avg_ts) |"
        done
        echo "$row"
    done
}

rows() {
    echo "| 7b-q4_0, drafts at 0.8 | | 1 row, ms | 2 | 4 | 6 | 8 | speed-up |"
    echo "|---|---|---|---|---|---|---|---|"
    for length in 1 3 5 7; do
        for program in "$before" "$after"; do
            line=$("$program" bench -m "$tmp/7b-q4_0.gguf" --device hip -p 0 -n 48 -r 1 -o jsonl \
                --draft "$tmp/1.1b-q4_0.gguf" --draft-device hip --assume-acceptance 0.8 \
                --draft-length "fixed:$length" 2> /dev/null | tail -n 1)
            row="| K = $length | $([ "$program" = "$before" ] && echo before || echo after) |"
            for n in 1 2 4 6 8; do
                row+=" $(field "rows_${n}_ms" <<< "$line") |"
            done
            echo "$row $(field speed_up <<< "$line") |"
        done
    done
}

products() {
    for product in q4_0:K=4096,N=22016,M=1,2,4,8,16 q4_0:K=28672,N=8192,M=1,4,8 \
        q4_k:K=4096,N=28672,M=1,4,8 int4-g128:K=14336,N=21504,M=1,4,8,16,32; do
        for program in "$before" "$after"; do
            echo "$product, $([ "$program" = "$before" ] && echo before || echo after), us:$(
                "$program" bench --gemm "$product" --device hip 2> /dev/null |
                    awk -F'|' '/^\| *[0-9]/ { printf " %d: %.2f", $2, $4 }'
            )"
        done
    done
}

make_models
"$after" devices --measure
echo
generation
echo
if [ -f "$tmp/7b-q4_0.gguf" ] && [ -f "$tmp/1.1b-q4_0.gguf" ]; then
    rows
    echo
fi
products
