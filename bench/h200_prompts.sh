#!/usr/bin/env bash
# bench/h200_prompts.sh - two builds of godwit in turn on one GPU: products of prompts alone, beside
# cuBLAS, and whole prompts; then the second build's bits and what the checkers say. On the machine
# with the GPU:
#
#   bench/h200_prompts.sh BEFORE AFTER SYNTH [MODEL ...]
#
# BEFORE, AFTER: the programs. SYNTH writes models: SYNTH SHAPE FORMAT FILE --layers N. MODEL:
# SHAPE-FORMAT, or SHAPE-int4 for int4 groups of 128, by default 7b-q4_0 8b-q4_k 7b-q8_0 7b-int4;
# they go to GODWIT_TMP (a fresh folder, removed at the end). DEVICE: hip. PRODUCT: K=..,N=.. of the
# product, 14336 and 21504. Bits are those of one layer, of which a real GPU shares tiles out, as it
# does not in the op table's small products; by the processor of the same machine.
set -u

case $# in 0 | 1 | 2) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
before=$1 after=$2 synth=$3
shift 3
models=${*:-7b-q4_0 8b-q4_k 7b-q8_0 7b-int4}
device=${DEVICE:-hip} product=${PRODUCT:-K=14336,N=21504}
rows=16,17,32,64,128,160,192,256,257,288,320,512
tmp=${GODWIT_TMP:-$(mktemp -d)}
[ -n "${GODWIT_TMP:-}" ] || trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="$tmp/cache"
mkdir -p "$tmp/cache"

make_model() { # MODEL, NAME, options of SYNTH: a file, if it is not there, and what to say with it
    local format=${1#*-} file="$tmp/$2.gguf"
    how=()
    if [ "$format" = int4 ]; then
        format=f16 how=(--weights int4-g128)
    fi
    if [ ! -f "$file" ]; then
        "${PYTHON:-python3}" "$synth" "${1%%-*}" "$format" "$file.part" "${@:3}" > /dev/null || exit 1
        mv "$file.part" "$file"
    fi
}

products() {
    echo "| us, int4-g128, $product, M = | ${rows//,/ | } |"
    for program in "$before" "$after" "$before" "$after"; do
        echo "| $program | $("$program" bench --gemm "int4-g128:$product,M=$rows" --device "$device" \
            2> /dev/null | awk -F'|' '/^\| *[0-9]/ { printf "%s|", $4 }')"
    done
    if "${PYTHON:-python3}" -c 'import torch; torch.zeros(1).cuda()' 2> /dev/null; then
        local k=${product%%,*} n=${product##*,}
        "${PYTHON:-python3}" "$(dirname "$0")/cublas.py" "${k#*=}" "${n#*=}" $rows
    fi
}

prompts() {
    echo "| tok/s, prompts of | 512 | 256 | 160 | 64 | 24 | 4000 |"
    for model in $models; do
        make_model "$model" "$model"
        for program in "$before" "$after" "$before" "$after"; do
            echo "| $model, $program | $("$program" bench -m "$tmp/$model.gguf" "${how[@]}" -n 0 -r 4 \
                --device "$device" -p 512,256,160,64,24,4000 -o jsonl 2> /dev/null |
                sed -n 's/.*"avg_ts": *\([0-9.]*\).*/\1 |/p' | tr '\n' ' ')"
        done
        rm -f "$tmp/$model.gguf"
    done
}

ids() { # N: so many tokens, from 300 on, in no order
    awk -v n="$1" 'BEGIN { srand(n); for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", 300 + rand() * 700 }'
}
hash_of() { # PROGRAM and what follows
    "$@" 2>&1 | sed -n 's/^hash: \(.\{16\}\).*/\1/p; s/^godwit.*/&/p' | head -1
}

bits() { # and the checkers, of 140 tokens: tiles of both kinds, parts of them
    local check quiet
    for model in $models; do
        make_model "$model" one --layers 1
        ask=(logits -q -m "$tmp/one.gguf" "${how[@]}" --rows prefill)
        for n in 20 50 100 140 300 1100; do # tiles of 32, 64 and 128 tokens
            want=$(hash_of "$after" "${ask[@]}" --ids "$(ids $n)" --device cpu)
            for _ in 1 2 3; do # what depends on who is first may be right once
                got=$(hash_of "$after" "${ask[@]}" --ids "$(ids $n)" --device "$device" --exact)
                echo "$model, $n tokens: cpu $want, $device $got, $(
                    if [ ${#want} = 16 ] && [ "$want" = "$got" ]; then echo the same; else echo NO; fi)"
            done
        done
        for check in racecheck memcheck; do
            command -v compute-sanitizer > /dev/null || continue
            quiet=()
            [ $check = racecheck ] || quiet=(--report-api-errors no)
            echo "$model, $check: $(timeout 200 compute-sanitizer --tool $check "${quiet[@]}" \
                --kernel-regex kns=gw_gemm_group "$after" "${ask[@]}" --ids "$(ids 140)" \
                --device "$device" --exact 2>&1 | grep SUMMARY)"
        done
        rm -f "$tmp/one.gguf"
    done
}

products
echo
prompts
echo
bits
