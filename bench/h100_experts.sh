#!/bin/sh
# bench/h100_experts.sh - mixtures of experts on one GPU: bits of the op table, of two small models
# beside the CPU, and the speed of generation and of prompts. Builds nothing; within eight minutes.
#
#   bench/h100_experts.sh GODWIT TEST_HIP_OPS SYNTH [MODEL ...]
#
# GODWIT, TEST_HIP_OPS: the programs. SYNTH writes models: SYNTH SHAPE FORMAT FILE --layers N. MODEL:
# SHAPE-FORMAT, by default 30b-a3b-q4_k 20b-oss-q8_0. LAYERS: of the models that are timed (all of
# them where it is not set). Models go to GODWIT_TMP (a fresh folder, removed at the end).
set -u

case $# in 0 | 1 | 2) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
godwit=$1 ops=$2 synth=$3
shift 3
models=${*:-30b-a3b-q4_k 20b-oss-q8_0}
tmp=${GODWIT_TMP:-$(mktemp -d)}
[ -n "${GODWIT_TMP:-}" ] || trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="$tmp/cache"
mkdir -p "$tmp/cache"
ids=1,300,45,17,99,250,33,8,12,77,500,600,401,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16

make_model() { # MODEL FILE [OPTIONS of SYNTH]
    model=$1 file=$2
    shift 2
    [ -f "$file" ] ||
        "${PYTHON:-python3}" "$synth" "${model%-*}" "${model##*-}" "$file" "$@" > /dev/null
}

hash_of() { # FILE ROWS [OPTIONS]
    file=$1 rows=$2
    shift 2
    timeout 100 "$godwit" logits -q -m "$file" --rows "$rows" --ids "$ids" "$@" 2>&1 |
        sed -n 's/^hash: \(.\{16\}\).*/\1/p; s/^godwit.*/&/p' | head -1
}

echo "== op table"
GODWIT_HIP_DRIVER=system GODWIT_TEST=check_table timeout 150 "$ops" 2>&1 | tail -3
GODWIT_HIP_DRIVER=system GODWIT_TEST=experts_are_their_products timeout 60 "$ops" 2>&1 | tail -3

for model in $models; do
    echo "== $model, one layer: bits"
    make_model "$model" "$tmp/small.gguf" --layers 1 || exit 1
    for rows in prefill decode 5; do
        want=$(hash_of "$tmp/small.gguf" "$rows" --device cpu)
        got=$(hash_of "$tmp/small.gguf" "$rows" --device hip --exact)
        [ "$want" = "$got" ] && [ "${#want}" = 16 ] && echo "$rows: equal" ||
            echo "$rows: $got, not $want"
    done
    rm -f "$tmp/small.gguf"
done
for model in $models; do
    echo "== $model: speed"
    make_model "$model" "$tmp/model.gguf" ${LAYERS:+--layers "$LAYERS"} || exit 1
    timeout 110 "$godwit" bench -m "$tmp/model.gguf" --device hip -p 512 -n 128 -r 3
    rm -f "$tmp/model.gguf"
done
